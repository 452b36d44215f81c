"""Entries that go from manifests to new ones as the bytes that they are: most of what a merge of manifests writes.

A manifest that this version wrote has records that need no decoding; an entry of another writer's is
decoded and encoded again.
"""

import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lsm_engine.codec.avro import AvroRecords
from lsm_engine.codec.avro_container import (
    BLOCK_BYTES_WRITTEN,
    MANIFEST_LIMITS,
    EncodedContainer,
    GrowingContainer,
    read_container,
)
from lsm_engine.codec.avro_schemas import MANIFEST
from lsm_engine.codec.byte_copies import gather_pieces
from lsm_engine.codec.entry_bytes import MANIFESTS, entry_bytes
from lsm_engine.codec.manifest import decode_manifest, entries_of
from lsm_engine.kernels.arrow_views import Bytes, Longs

_OWN_SCHEMA = json.loads(json.dumps(MANIFEST))


class ManifestCopier:
    """Copies entries of manifests, in order, to new ones of about a size."""

    def __init__(self, *, codec: str, target_size_bytes: int, entries_max: int) -> None:
        self._codec = codec
        self._target = target_size_bytes
        self._entries_max = entries_max
        self._growing: GrowingContainer | None = None
        self._count = 0

    def add(
        self, data: bytes, stands: npt.NDArray[np.bool_], *, file_name: str
    ) -> Iterator[tuple[EncodedContainer, int]]:
        """Add the entries of a manifest that stand; yield new manifests that are full, with their entries' number.

        `stands`: bool[n], of each of its entries. Raises as `decode_manifest` does.
        """
        offset = 0
        for content, bounds in _places(data, file_name):
            count = len(bounds) - 1
            rows = np.flatnonzero(stands[offset : offset + count])
            offset += count
            starts = bounds[rows]
            copied, ends = gather_pieces(content, starts, bounds[rows + 1] - starts)
            yield from self._added(copied, ends)

    def _added(self, content: Bytes, offsets: Longs) -> Iterator[tuple[EncodedContainer, int]]:
        """Add records one behind the other, in blocks."""
        first, count = 0, len(offsets) - 1
        while first < count:
            full = int(np.searchsorted(offsets, offsets[first] + BLOCK_BYTES_WRITTEN))
            last = min(full, count, first + self._entries_max - self._count)
            growing = self._growing = self._growing or MANIFESTS.begin(self._codec)
            growing.add(content[offsets[first] : offsets[last]].tobytes(), last - first)
            self._count += last - first
            first = last
            is_full = self._count == self._entries_max or growing.size >= self._target
            if is_full or growing.content_bytes > _content_max(growing.size):
                yield from self.remainder()

    def remainder(self) -> Iterator[tuple[EncodedContainer, int]]:
        """Yield the manifest that is not full yet, if there is one."""
        growing, count = self._growing, self._count
        self._growing, self._count = None, 0
        if growing is not None:
            yield growing.end(), count


def _content_max(size: int) -> int:
    """Return how much readers let a file of a size unfold into, halved: the next block may compress better."""
    limits = MANIFEST_LIMITS
    return limits.total_bytes // 2 + limits.total_bytes_per_stored_byte * size // 2


def _places(data: bytes, file_name: str) -> Iterator[tuple[Bytes, Longs]]:
    """Yield the content of some blocks at a time, and where each of its entries begins and the last ends."""
    container = read_container(data, file_name=file_name)
    if container.schema == _OWN_SCHEMA:
        yield from AvroRecords(container, flat=True).places()
        return
    encoded = [
        entry_bytes(entry) for entry in entries_of(decode_manifest(data, file_name=file_name))
    ]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    yield np.frombuffer(b"".join(encoded), np.uint8), bounds
