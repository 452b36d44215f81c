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
