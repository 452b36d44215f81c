"""The columnar store: mapped Arrow columns, and the sorted keys as arrays. Nothing is decoded.

    magic "LSMCOL01", then an Arrow IPC stream of the rows in the data file's order
    first words of the keys, second words, offsets (each 8 bytes a row), bytes, as SortKeys has them
    footer (80 bytes): format, rows, key width, and where each part starts; CRC-32 of all before it

The checksum is verified when the file is opened; whether the file was touched since, with each batch
of keys (decisions/0010).
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.io.cache_entries import Accesses
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.keys import ONE_WORD, TWO_WORDS, WORDS_AND_BYTES, SortKeys
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, ascending, locate
from lsm_engine.lookup.lookup_store import Fetched, Handles, MappedFile

_MAGIC = b"LSMCOL01"
_FOOTER = struct.Struct("<8sqqqqqqqqII")
_ALIGNMENT = 64
_CHUNK_BYTES = 1 << 24


class _Sink:
    """Writes and keeps count, checksum and alignment."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.size = 0
        self.checksum = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        for offset in range(0, len(view), _CHUNK_BYTES):
            piece = view[offset : offset + _CHUNK_BYTES]
            self._sink.write(piece)
            self.checksum = checksum_of(piece, self.checksum)
        self.size += len(view)
        return len(view)

    def align(self) -> int:
        self.write(bytes(-self.size % _ALIGNMENT))
        return self.size

    def flush(self) -> None:
        """The owner flushes."""

    def close(self) -> None:
        """The owner closes."""


def write_columnar(
    sink: BinaryIO,
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    keys_of: Callable[[pa.RecordBatch], SortKeys],
    *,
    data_file: str,
) -> None:
    """Write a store; batches come in the order of the data file, whose rows are in key order.

    Of the rows only the keys are held. Raises CorruptFileError, naming the data file, if its keys
    descend.
    """
    out = _Sink(sink)
    out.write(_MAGIC)
    sort_keys: list[SortKeys] = []
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            sort_keys.append(keys_of(batch))
            writer.write_batch(batch.select(schema.names))
    keys = _concatenated(sort_keys)
    sorted_, _ = ascending(SearchKeys.from_sort_keys(keys))
    if not sorted_:
        raise CorruptFileError(
            "the rows of the data file are not in key order; restore it, or run verify",
            file=data_file,
        )
    starts = []
    for part in (keys.prefix, keys.second, keys.offsets, keys.data):
        starts.append(out.align())
        out.write(np.ascontiguousarray(part))
    end = out.size
    form = keys.form if len(keys) else 0
    footer = _FOOTER.pack(_MAGIC, form, len(keys), keys.width, *starts, end, 0, 0)
    footer = footer[:-8]
    out.write(footer)
    sink.write(struct.pack("<II", out.checksum, 0))


def _concatenated(keys: Sequence[SortKeys]) -> SortKeys:
    keys = [batch for batch in keys if len(batch)]
    if not keys:
        return SortKeys(prefix=np.zeros(0, np.uint64))
    if len(keys) == 1:
        return _from_zero(keys[0])
    parts = [_from_zero(batch) for batch in keys]
    arrays = {
        "prefix": np.concatenate([part.prefix for part in parts]),
        "second": np.concatenate([part.second for part in parts]),
    }
    if parts[0].form == WORDS_AND_BYTES:
        begins = np.cumsum([0, *(len(part.data) for part in parts)])
        offsets = [part.offsets[:-1] + begin for part, begin in zip(parts, begins, strict=False)]
        arrays["data"] = np.concatenate([part.data for part in parts])
        arrays["offsets"] = np.concatenate([*offsets, begins[-1:]])
    return SortKeys(**arrays, width=parts[0].width)


def _from_zero(keys: SortKeys) -> SortKeys:
    """Return keys whose bytes begin with the first row's."""
    if keys.form != WORDS_AND_BYTES:
        return keys
    start, stop = int(keys.offsets[0]), int(keys.offsets[-1])
    return SortKeys(
        prefix=keys.prefix,
        second=keys.second,
        data=keys.data[start:stop],
        offsets=keys.offsets - start,
        width=keys.width,
    )


class ColumnarStore:
    """Mapped columns and sorted keys. A handle is the row's position in the data file."""

    def __init__(self, data: pa.Buffer, path: str) -> None:
        self.path = path
        self.accesses = Accesses()
        self._data = data
        parts = _laid_open(data, path)
        self.keys = parts.keys
        self.search = SearchKeys.from_sort_keys(self.keys)
        try:
            with pa.ipc.open_stream(data.slice(len(_MAGIC), parts.stream_end)) as reader:
                self.schema = reader.schema
                self.batches = tuple(batch for batch in reader if batch.num_rows)
        except (pa.ArrowException, OSError) as cause:
            raise _damaged(path) from cause
        counts = [batch.num_rows for batch in self.batches]
        if sum(counts) != len(self.keys):
            raise _damaged(path)
        self._begins = np.cumsum([0, *counts])[:-1]
        self._mapped = MappedFile(path)
        self._selected = lru_cache(maxsize=16)(self._select)

    def find(self, batch: KeyBatch, pending: Longs) -> Handles:
        """Look up keys: one pass over both, as both are sorted."""
        rows = locate(self.search, batch.search, pending)
        return Handles(first=rows.first, last=rows.last)

    def fetch(self, handles: Longs, names: Sequence[str]) -> Fetched:
        """Return rows where they lie in the mapped file."""
        sources = self._selected(tuple(names))
        if len(sources) == 1:
            run = np.zeros(len(handles), np.uint16)
            return Fetched(sources=sources, run=run, row=handles.astype(np.int32))
        batch = np.searchsorted(self._begins, handles, side="right") - 1
        rows = (handles - self._begins[batch]).astype(np.int32)
        return Fetched(sources=sources, run=batch.astype(np.uint16), row=rows)

    def positions(self, handles: Longs) -> Longs:
        """Return the handles themselves."""
        return handles

    def check(self) -> None:
        """Raise CorruptFileError if somebody changed the file; once removed, the mapping stays."""
        self._mapped.check()

    def _select(self, names: tuple[str, ...]) -> tuple[pa.RecordBatch, ...]:
        return tuple(batch.select(list(names)) for batch in self.batches)


class _Parts:
    def __init__(self, keys: SortKeys, stream_end: int) -> None:
        self.keys = keys
        self.stream_end = stream_end


def _laid_open(data: pa.Buffer, path: str) -> _Parts:
    if data.size < len(_MAGIC) + _FOOTER.size:
        raise _damaged(path)
    view = memoryview(data)
    footer_at = data.size - _FOOTER.size
    magic, form, rows, width, *starts, end, stored, _ = _FOOTER.unpack_from(view, footer_at)
    checksum = 0
    for offset in range(0, data.size - 8, _CHUNK_BYTES):
        checksum = checksum_of(view[offset : min(offset + _CHUNK_BYTES, data.size - 8)], checksum)
    if magic != _MAGIC or stored != checksum or bytes(view[:8]) != _MAGIC:
        raise _damaged(path)
    # The checksum vouches for the footer: nothing below can lie outside the file.
    prefix, second, offsets, octets = starts
    count = rows if form in (TWO_WORDS, WORDS_AND_BYTES) else 0
    has_bytes = form == WORDS_AND_BYTES
    assert form in (0, ONE_WORD, TWO_WORDS, WORDS_AND_BYTES), form
    keys = SortKeys(
        prefix=np.frombuffer(view, np.uint64, rows, prefix),
        second=np.frombuffer(view, np.uint64, count, second),
        offsets=np.frombuffer(view, np.int64, rows + 1 if has_bytes else 0, offsets),
        data=np.frombuffer(view, np.uint8, end - octets if has_bytes else 0, octets),
        width=width,
    )
    return _Parts(keys, prefix - len(_MAGIC))


def _damaged(path: str) -> CorruptFileError:
    return CorruptFileError("a lookup file is damaged; it is built anew", file=path)
