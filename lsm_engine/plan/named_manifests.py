"""What a snapshot holds of its manifests for readers from afar: their names, and a copy of its two lists.

The names are advice: whoever knows them fetches the manifests at once, and saves a round. Few and small ones are
named, so that a filter which needs only some of them fetches little in vain. The copy of a list is taken where it
has the checksum that the snapshot keeps of the list, and saves a request each.
"""

import base64
import re
import zlib
from collections.abc import Mapping, Sequence

from lsm_engine.meta.manifest import ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot

MANIFESTS = "lsm.manifests"
"""Property of a snapshot: the names of its manifests, with a blank between."""

_LISTS_MAX = 16 << 10  # bytes of both, before they are compressed
_STATE = "at:"
_COUNT_MAX = 40
_NOTE_MAX = 1_900  # bytes; stores take 2,048 of metadata with its names
_PREFIX = "manifest-"
_BYTES_MAX = 1 << 20
_NAME = re.compile(r"manifest-[0-9A-Za-z-]{1,80}")


def with_manifests(
    properties: Mapping[str, str] | None, manifests: Sequence[ManifestFileMeta]
) -> Mapping[str, str] | None:
    """Return properties that name manifests, if those are few and small."""
    names = [manifest.file_name for manifest in manifests]
    size = sum(manifest.file_size for manifest in manifests)
    if (
        not 0 < len(names) <= _COUNT_MAX
        or size > _BYTES_MAX
        or not all(map(_NAME.fullmatch, names))
    ):
        return properties
    return {**(properties or {}), MANIFESTS: " ".join(names)}


def packed_lists(base: bytes | None, delta: bytes | None) -> str | None:
    """Return a copy of two manifest lists for their snapshot (`Snapshot.manifest_lists`); None for large ones."""
    if base is None or delta is None or len(base) + len(delta) > _LISTS_MAX:
        return None
    return base64.b64encode(zlib.compress(base + delta, 9)).decode()


def copied_lists(snapshot: Snapshot) -> Mapping[str, bytes]:
    """Return the copy of its manifest lists that a snapshot has, by name: to be checked; empty without one."""
    text = snapshot.manifest_lists
    base_size, delta_size = snapshot.base_manifest_list_size, snapshot.delta_manifest_list_size
    if not text or base_size is None or delta_size is None:
        return {}
    size = base_size + delta_size
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text), _LISTS_MAX)
    except (ValueError, zlib.error):
        return {}
    if len(data) != size:
        return {}
    return {
        snapshot.base_manifest_list: data[:base_size],
        snapshot.delta_manifest_list: data[base_size:],
    }


def lists_to_fetch(snapshot: Snapshot) -> list[str]:
    """Return the names of a snapshot's manifest lists, unless it has a copy of them."""
    if snapshot.manifest_lists is not None:
        return []
    return [snapshot.base_manifest_list, snapshot.delta_manifest_list]


def named_manifests(snapshot: Snapshot) -> list[str]:
    """Return the names of manifests that a snapshot may have."""
    words = (snapshot.properties or {}).get(MANIFESTS, "").split()
    return [name for name in words[:_COUNT_MAX] if _NAME.fullmatch(name)]


def new_manifests(snapshot: Snapshot) -> list[str]:
    """Return those among them that the snapshot itself may have added: a commit has one id for its files."""
    commit = snapshot.delta_manifest_list.removeprefix("manifest-list-").rpartition("-")[0]
    return [name for name in named_manifests(snapshot) if commit and f"-{commit}-" in name]


def note_of_files(snapshot: Snapshot) -> str:
    """Return which state it is, and its files to be fetched, as a note beside LATEST; the first ones, if too many."""
    files = filter(_NAME.fullmatch, [*lists_to_fetch(snapshot), *named_manifests(snapshot)])
    names = [snapshot.delta_manifest_list, *files]
    note = _STATE + " ".join(name.removeprefix(_PREFIX) for name in names)
    return note if len(note) <= _NOTE_MAX else note[:_NOTE_MAX].rpartition(" ")[0]


def noted_state(note: str) -> str | None:
    """Return the delta manifest list of the snapshot that a note was written for: one that was found to count."""
    first = note.partition(" ")[0]
    return _PREFIX + first.removeprefix(_STATE) if first.startswith(_STATE) else None


def noted_files(note: str) -> list[str]:
    """Return the names in a note; what can be no name of ours is left out."""
    names = (_PREFIX + word for word in note.split()[: _COUNT_MAX + 2])
    return [name for name in names if _NAME.fullmatch(name)]
