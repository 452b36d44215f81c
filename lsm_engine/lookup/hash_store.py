"""The hash store: one probe and one read a key, whatever the size of the file."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from lsm_engine.codec.hash_index import HashFile, encode_hash_file
from lsm_engine.io.cache_entries import Accesses
from lsm_engine.io.data_file_reader import POSITION
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.lookup_store import Fetched, Handles, MappedFile, StoreSettings
from lsm_engine.lookup.sort_store import check_order
from lsm_engine.lookup.stored_rows import (
    RowLayout,
    concatenated,
    decode_values,
    encode_keys,
    encode_values,
)


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
        """Raise CorruptFileError if somebody changed the file; once removed, the mapping stays."""
        self._mapped.check()
