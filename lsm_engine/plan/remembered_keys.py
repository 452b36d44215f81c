"""Which buckets keys are looked for in, where old ones may be forgotten."""

from collections.abc import Iterable

from lsm_engine.meta.manifest import ManifestEntry


def remembered_buckets(
    entries: Iterable[ManifestEntry], *, since_millis: int
) -> frozenset[tuple[bytes, int]]:
    """Return the (partition, bucket) pairs with a file made at `since_millis` or later.

    A file without a creation time counts as new: nothing is forgotten by mistake.
    """
    return frozenset(
        (entry.partition, entry.bucket)
        for entry in entries
        if entry.file.creation_millis is None or entry.file.creation_millis >= since_millis
    )
