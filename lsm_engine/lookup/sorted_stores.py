"""Lookup files as stores: sorted blocks behind an index, and hash slots."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.cache.disk import Accesses
from lsm_engine.data_files.reader import POSITION
from lsm_engine.format.arrow_buffers import gather_pieces
from lsm_engine.format.bloom import build_bloom, key_hashes
from lsm_engine.format.lookup_file import (
    Block,
    Entries,
    HashFile,
    SstFile,
    SstWriter,
    decode_compacted,
    encode_hash_file,
)
from lsm_engine.kernels.arrow_views import Bytes, Longs
from lsm_engine.kernels.keys import SortKeys, sort_keys
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, ascending, locate
from lsm_engine.lookup.store import (
    Fetched,
    Handles,
    MappedFile,
    RowLayout,
    StoreSettings,
    concatenated,
    decode_values,
    encode_keys,
    encode_values,
)

# -- The sort store --------------------------------------------------------------------------------
#
# Blocks in key order behind an index, as Paimon writes them; two searches a key.

_ROW_BITS = 32


def write_sorted(
    sink: BinaryIO,
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    settings: StoreSettings,
    *,
    data_file: str,
) -> None:
    """Write a store; batches come in key order. Raises CorruptFileError for keys that descend."""
    writer = SstWriter(sink.write, block_size=settings.block_size, compressed=settings.compressed)
    hashes = []
    last: pa.RecordBatch | None = None
    for batch in batches:
        check_order(batch, last, layout, data_file)
        keys, key_offsets = encode_keys(batch, layout)
        values, value_offsets = encode_values(batch, layout)
        hashes.append(key_hashes(keys, key_offsets))
        writer.add(
            Entries(keys=keys, key_offsets=key_offsets, values=values, value_offsets=value_offsets)
        )
        last = batch.slice(batch.num_rows - 1)
    bloom = None
    count = sum(map(len, hashes))
    if settings.bloom_fpp is not None and count:
        bloom = build_bloom(np.concatenate(hashes), entries=count, fpp=settings.bloom_fpp)
    writer.finish(bloom)


def check_order(
    batch: pa.RecordBatch, last: pa.RecordBatch | None, layout: RowLayout, data_file: str
) -> None:
    """Raise CorruptFileError unless keys ascend, also beyond the last row of the batch before."""
    columns = [batch.column(name) for name in layout.key_names]
    if last is not None:
        before = [last.column(name) for name in layout.key_names]
        columns = [
            pa.concat_arrays([previous_key.cast(column.type), column.slice(0, 1)])
            for previous_key, column in zip(before, columns, strict=True)
        ]
        check_ascending(sort_keys(columns), data_file)
        columns = [batch.column(name) for name in layout.key_names]
    check_ascending(sort_keys(columns), data_file)


def check_ascending(keys: SortKeys, data_file: str) -> None:
    """Raise CorruptFileError for keys that do not ascend one by one."""
    _, strictly = ascending(SearchKeys.from_sort_keys(keys))
    if not strictly:
        raise CorruptFileError(
            "keys of the data file repeat or are not in order; compact the table with its own writer, "
            "or look up with 'lookup.local-file-type' = 'columnar'",
            file=data_file,
        )


@record
class _Decoded:
    block: Block
    search: SearchKeys

    @property
    def size(self) -> int:
        return len(self.block.body) + 56 * len(self.block)


class BlockCache:
    """Decoded blocks of any number of stores, the least recently used given up first.

    Indexes and bloom filters are not among them: an open store holds its own.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.RLock()  # a store may be collected, and forgotten, within `put`
        self._blocks: OrderedDict[tuple[int, int], _Decoded] = OrderedDict()
        self.byte_count = 0

    def get(self, key: tuple[int, int]) -> _Decoded | None:
        """Return a block, now the last to be given up."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
        return block

    def add(self, key: tuple[int, int], block: _Decoded) -> None:
        """Take a block in."""
        with self._lock:
            if key in self._blocks:
                return
            self._blocks[key] = block
            self.byte_count += block.size
            while self.byte_count > self._max_bytes and self._blocks:
                _, evicted = self._blocks.popitem(last=False)
                self.byte_count -= evicted.size

    def forget(self, store: int) -> None:
        """Give up the blocks of a store."""
        with self._lock:
            for key in list(self._blocks):
                if key[0] == store and (block := self._blocks.pop(key, None)) is not None:
                    self.byte_count -= block.size


class SortStore:
    """Blocks in key order. A handle is the block's number, then the entry's, in 32 bits each."""

    def __init__(self, data: pa.Buffer, path: str, layout: RowLayout, blocks: BlockCache) -> None:
        self.path = path
        self.accesses = Accesses()
        self._layout = layout
        self._blocks = blocks
        self._file = SstFile(data, path)
        self._index = self._search_keys(*self._file.last_keys)

    def find(self, batch: KeyBatch, pending: Longs) -> Handles:
        """Ask the bloom filter, then the index, then the blocks that may hold a key."""
        positions = np.full(len(pending), -1, np.int64)
        candidates: Longs = np.arange(len(pending), dtype=np.int64)
        if self._file.bloom is not None:
            candidates = candidates[self._file.bloom.may_hold(batch.hashes[pending])]
        block_of = locate(self._index, batch.search, pending[candidates]).first
        inside = block_of < len(self._index)
        candidates, block_of = candidates[inside], block_of[inside]
        for number, start, stop in _stretches(block_of):
            chunk = candidates[start:stop]
            rows = locate(self._decoded(number).search, batch.search, pending[chunk]).last
            positions[chunk] = np.where(rows >= 0, (number << _ROW_BITS) | rows, -1)
        return Handles(first=positions, last=positions)

    def fetch(self, handles: Longs, names: Sequence[str]) -> Fetched:
        """Decode the rows asked for."""
        order = np.argsort(handles, kind="stable")
        ordered = handles[order]
        pieces = []
        for number, start, stop in _stretches(ordered >> _ROW_BITS):
            block = self._decoded(number).block
            rows = ordered[start:stop] & ((1 << _ROW_BITS) - 1)
            starts = block.value_starts[rows]
            pieces.append(gather_pieces(block.body, starts, block.value_ends[rows] - starts))
        data, offsets = concatenated(pieces)
        decoded = decode_values(data, offsets[:-1], offsets[1:], self._layout, file_name=self.path)
        row = np.empty(len(handles), np.int32)
        row[order] = np.arange(len(handles), dtype=np.int32)
        return Fetched(
            sources=(decoded.select(list(names)),), run=np.zeros(len(row), np.uint16), row=row
        )

    def positions(self, handles: Longs) -> Longs:
        """Return the positions kept with the rows."""
        fetched = self.fetch(handles, [POSITION])
        values: Longs = fetched.sources[0].column(0).to_numpy()
        return values[fetched.row]

    def check(self) -> None:
        """Every block carries its own checksum."""

    def _decoded(self, number: int) -> _Decoded:
        key = (id(self), number)
        decoded = self._blocks.get(key)
        if decoded is None:
            block = self._file.block(self._file.handles[number])
            search = self._search_keys(block.body, block.key_starts, block.key_ends)
            decoded = _Decoded(block=block, search=search)
            self._blocks.add(key, decoded)
        return decoded

    def _search_keys(self, body: Bytes, starts: Longs, ends: Longs) -> SearchKeys:
        columns = decode_compacted(body, starts, ends, self._layout.key_types, file_name=self.path)
        if any(column.null_count for column in columns):
            raise self._file.corrupt("a key holds a null")
        search = SearchKeys.from_sort_keys(sort_keys(columns))
        if not ascending(search)[1]:
            raise self._file.corrupt("keys are not in order")
        return search

    def __del__(self) -> None:
        self._blocks.forget(id(self))


def _stretches(numbers: Longs) -> Iterator[tuple[int, int, int]]:
    """Yield each stretch of equal numbers: the number, and where it starts and stops."""
    if not len(numbers):
        return
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    starts = [0, *cuts.tolist()]
    stops = [*cuts.tolist(), len(numbers)]
    yield from zip(numbers[starts].tolist(), starts, stops, strict=True)


# -- Hash store: one probe and one read per key ----------------------------------------------------


def write_hashed(
    sink: BinaryIO,
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    settings: StoreSettings,
    *,
    data_file: str,
) -> None:
    """Write a store of distinct keys; the encoded rows of the whole file are held for it."""
    keys, values = [], []
    last: pa.RecordBatch | None = None
    for batch in batches:
        check_order(batch, last, layout, data_file)
        keys.append(encode_keys(batch, layout))
        values.append(encode_values(batch, layout))
        last = batch.slice(batch.num_rows - 1)
    parts = encode_hash_file(
        concatenated(keys),
        concatenated(values),
        load_factor=settings.hash_load_factor,
        bloom_fpp=settings.bloom_fpp,
    )
    for part in parts:
        sink.write(part)


class HashStore:
    """Slots and values. A handle is the place of the value in the file."""

    def __init__(self, data: pa.Buffer, path: str, layout: RowLayout) -> None:
        self.path = path
        self.accesses = Accesses()
        self._layout = layout
        self._file = HashFile(data, path)
        self._mapped = MappedFile(path)

    def find(self, batch: KeyBatch, pending: Longs) -> Handles:
        """Ask the bloom filter, then the slots."""
        rows = np.full(len(pending), -1, np.int64)
        candidates: Longs = np.arange(len(pending), dtype=np.int64)
        if self._file.bloom is not None:
            candidates = candidates[self._file.bloom.may_hold(batch.hashes[pending])]
        rows[candidates] = self._file.find(batch.compacted, pending[candidates], batch.hashes)
        return Handles(first=rows, last=rows)

    def fetch(self, handles: Longs, names: Sequence[str]) -> Fetched:
        """Decode the rows asked for."""
        starts, ends = self._file.values(handles)
        decoded = decode_values(self._file.data, starts, ends, self._layout, file_name=self.path)
        row = np.arange(len(handles), dtype=np.int32)
        return Fetched(
            sources=(decoded.select(list(names)),), run=np.zeros(len(row), np.uint16), row=row
        )

    def positions(self, handles: Longs) -> Longs:
        """Return the positions kept with the rows."""
        values: Longs = self.fetch(handles, [POSITION]).sources[0].column(0).to_numpy()
        return values

    def check(self) -> None:
        """Raise CorruptFileError if the file was changed; one that was removed remains mapped."""
        self._mapped.check()
