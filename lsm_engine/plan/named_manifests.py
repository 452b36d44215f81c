"""Names of a state's manifests among the properties of its snapshot, for readers from afar.

Advice: whoever knows them fetches the manifests together with the lists, which alone decide, and saves a
round. Few and small ones are named, so that a filter which needs only some of them fetches little in vain.
"""

import re
from collections.abc import Mapping, Sequence

from lsm_engine.meta.manifest import ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot

MANIFESTS = "lsm.manifests"
"""Property of a snapshot: the names of its manifests, with a blank between."""

_COUNT_MAX = 40
_NOTE_MAX = 1_900  # bytes; stores take 2,048 of metadata with its names
_PREFIX = "manifest-"
_BYTES_MAX = 1 << 20
_NAME = re.compile(r"manifest-[0-9A-Za-z-]{1,80}")


def with_manifests(
    properties: Mapping[str, str] | None, manifests: Sequence[ManifestFileMeta]
) -> Mapping[str, str] | None:
    """Return properties that name manifests, if those are few and small."""
    names = [one.file_name for one in manifests]
    size = sum(one.file_size for one in manifests)
    if (
        not 0 < len(names) <= _COUNT_MAX
        or size > _BYTES_MAX
        or not all(map(_NAME.fullmatch, names))
    ):
        return properties
    return {**(properties or {}), MANIFESTS: " ".join(names)}


def named_manifests(snapshot: Snapshot) -> list[str]:
    """Return the names of manifests that a snapshot may have."""
    found = (snapshot.properties or {}).get(MANIFESTS, "").split()
    return [name for name in found[:_COUNT_MAX] if _NAME.fullmatch(name)]


def new_manifests(snapshot: Snapshot) -> list[str]:
    """Return those among them that the snapshot itself may have added: a commit has one id for its files."""
    commit = snapshot.delta_manifest_list.removeprefix("manifest-list-").rpartition("-")[0]
    return [name for name in named_manifests(snapshot) if commit and f"-{commit}-" in name]


def note_of_files(snapshot: Snapshot) -> str:
    """Return names of manifest lists and manifests as a note beside LATEST; the first ones, if too many."""
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    names = filter(_NAME.fullmatch, [*lists, *named_manifests(snapshot)])
    whole = " ".join(name.removeprefix(_PREFIX) for name in names)
    return whole if len(whole) <= _NOTE_MAX else whole[:_NOTE_MAX].rpartition(" ")[0]


def noted_files(note: str) -> list[str]:
    """Return the names in a note; what can be no name of ours is left out."""
    found = (_PREFIX + word for word in note.split()[: _COUNT_MAX + 2])
    return [name for name in found if _NAME.fullmatch(name)]
