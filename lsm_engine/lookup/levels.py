"""A batch of keys → where their rows are, newest level first."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.cache.disk import CacheLimits, DiskCache, Leaves
from lsm_engine.data_files.reader import POSITION, ReadColumns, open_data_file
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.keys import SortKeys, lower_bound, sort_keys, upper_bound
from lsm_engine.lookup.columnar_store import ColumnarStore, write_columnar
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.sorted_stores import (
    BlockCache,
    HashStore,
    SortStore,
    write_hashed,
    write_sorted,
)
from lsm_engine.lookup.store import Handles, LookupStore, RowLayout, StoredValue, StoreSettings
from lsm_engine.lsm.levels import Levels
from lsm_engine.options import core_options
from lsm_engine.options.modes import LookupFileType
from lsm_engine.options.table_options import TableOptions
from lsm_engine.storage.file_io import FileIO
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import ScalarType

# -- A data file turned into a local lookup file: built on first need, through the disk cache ------

_VERSION = 1
LookupCache = DiskCache[LookupStore]


def local_file_type(schema: TableSchema) -> LookupFileType:
    """Return the kind of a table's lookup files: columnar where others have no form for a column's values."""
    # Row stores have no form for nested values.
    if all(isinstance(field.type, ScalarType) for field in schema.fields):
        return schema.options[core_options.LOOKUP_LOCAL_FILE_TYPE]
    return LookupFileType.COLUMNAR


def store_settings(schema: TableSchema, value: StoredValue = StoredValue.ROW) -> StoreSettings:
    """Return how a table's options want lookup files made."""
    options = schema.options
    blooms = options[core_options.LOOKUP_CACHE_BLOOM_FILTER_ENABLED]
    memory = options[core_options.LOOKUP_CACHE_MAX_MEMORY_SIZE]
    pool = options[core_options.LOOKUP_CACHE_HIGH_PRIORITY_POOL_RATIO]
    return StoreSettings(
        file_type=local_file_type(schema),
        value=value,
        bloom_fpp=options[core_options.LOOKUP_CACHE_BLOOM_FILTER_FPP] if blooms else None,
        hash_load_factor=options[core_options.LOOKUP_HASH_LOAD_FACTOR],
        block_size=options[core_options.CACHE_PAGE_SIZE],
        compressed=options[core_options.LOOKUP_CACHE_SPILL_COMPRESSION] != "none",
        decoded_blocks_bytes=int(memory * (1 - pool)),
    )


def cache_limits(options: TableOptions) -> CacheLimits:
    """Return what a table's options ask of the disk cache."""
    return CacheLimits(
        max_bytes=options[core_options.LOOKUP_CACHE_MAX_DISK_SIZE],
        retention_millis=options[core_options.LOOKUP_CACHE_FILE_RETENTION],
    )


@record
class DataFiles:
    """Where the data files of one bucket are, and how they were written."""

    read_schema: TableSchema
    schemas: Mapping[int, TableSchema]
    place_of: Callable[[DataFileMeta], tuple[FileIO, str]]
    bucket_name: str
    """Partition and bucket, and the branch where owners share them, as part of a lookup file's name."""


class LookupFiles:
    """The lookup files of one bucket (LookupFile). Opening one that does not exist builds it."""

    def __init__(
        self,
        cache: LookupCache,
        owner: str,
        limits: CacheLimits,
        settings: StoreSettings,
        files: DataFiles,
        blocks: BlockCache,
    ) -> None:
        self._cache = cache
        self._owner = owner
        self._limits = limits
        self._settings = settings
        self._files = files
        self._blocks = blocks
        self._layout = RowLayout.from_schema(files.read_schema, settings.value)

    def open(self, file: DataFileMeta) -> LookupStore:
        """Return a data file's store. A file half built is removed, one found damaged built anew."""
        return self._cache.get(
            self._owner,
            self._name(file),
            self._limits,
            lambda sink: self._build(file, sink),
            self._open_store,
        )

    def damaged(self, file: DataFileMeta) -> None:
        """Remove a lookup file that was found to be wrong; the next `open` builds it."""
        self._cache.drop(self._owner, [self._name(file)], cause=Leaves.DAMAGED)

    def drop(self, files: Iterable[DataFileMeta]) -> None:
        """Remove the lookup files of data files that have left the levels."""
        self._cache.drop(self._owner, [self._name(file) for file in files])

    def touch(self, files: Iterable[DataFileMeta]) -> int:
        """Keep lookup files that are used without being opened again; return how many are built."""
        return self._cache.touch(self._owner, [self._name(file) for file in files])

    def _name(self, file: DataFileMeta) -> str:
        kind = f"{self._settings.file_type.value}-{self._settings.value.value}"
        schema = self._files.read_schema.id
        return f"{self._files.bucket_name}-{file.file_name}-{schema}-{kind}-{_VERSION}"

    def _open_store(self, data: pa.Buffer, path: str) -> LookupStore:
        match self._settings.file_type:
            case LookupFileType.COLUMNAR:
                return ColumnarStore(data, path)
            case LookupFileType.SORT:
                return SortStore(data, path, self._layout, self._blocks)
            case LookupFileType.HASH:
                return HashStore(data, path, self._layout)

    def _build(self, file: DataFileMeta, sink: BinaryIO) -> None:
        layout = self._layout
        columns = ReadColumns(
            file_schema=self._files.schemas[file.schema_id],
            read_schema=self._files.read_schema,
            names=tuple(
                name for name in (*layout.key_names, *layout.value_names) if name != POSITION
            ),
            with_positions=layout.with_positions,
        )
        file_io, path = self._files.place_of(file)
        checked = self._files.read_schema.options[core_options.PAGE_CHECKSUM]
        with open_data_file(file_io, path, file, columns, verify_checksums=checked) as reader:
            batches = reader.batches()
            match self._settings.file_type:
                case LookupFileType.COLUMNAR:
                    schema = pa.schema([reader.schema.field(n) for n in layout.stored_names])
                    write_columnar(sink, batches, schema, self._keys, data_file=path)
                case LookupFileType.SORT:
                    write_sorted(sink, batches, layout, self._settings, data_file=path)
                case LookupFileType.HASH:
                    write_hashed(sink, batches, layout, self._settings, data_file=path)

    def _keys(self, batch: pa.RecordBatch) -> SortKeys:
        return sort_keys([batch.column(name) for name in self._layout.key_names])


# -- Lookup of a batch of keys, newest level first -------------------------------------------------

DeletedRows = Callable[[DataFileMeta, Longs], Bools]
"""Data file and row positions → which of the rows a deletion vector hides."""


@record
class Hits:
    """Per key of a batch: which store holds its newest row (-1: none), and the row's handle."""

    stores: tuple[LookupStore, ...]
    files: tuple[DataFileMeta, ...]  # the data file of each store
    store: npt.NDArray[np.int32]
    handle: Longs


@record
class Versions:
    """The rows that one data file holds of a batch's keys: key numbers, ascending, and handles.

    A key that the batch repeats stands here under the number of its first occurrence only.
    """

    file: DataFileMeta
    store: LookupStore
    keys: Longs
    handles: Longs


@record
class _Run:
    """Files in key order that do not overlap, with their bounds as bytes that compare."""

    files: tuple[DataFileMeta, ...]
    lowest: tuple[bytes, ...]
    highest: tuple[bytes, ...]


class LookupLevels:
    """The lookup files of one bucket (LookupLevels), newest first. Threads may share it."""

    def __init__(
        self,
        levels: Levels,
        files: LookupFiles,
        *,
        from_level: int = 0,
        deleted: DeletedRows | None = None,
    ) -> None:
        order = levels.key_order
        self.levels = levels
        self.files = files
        self._deleted = deleted
        self._runs = tuple(
            _Run(
                files=run.files,
                lowest=tuple(order(file.min_key) for file in run.files),
                highest=tuple(order(file.max_key) for file in run.files),
            )
            for run in levels.runs
            if run.level >= from_level
        )

    @property
    def data_files(self) -> tuple[DataFileMeta, ...]:
        """The files that are looked into, newest run first."""
        return tuple(file for run in self._runs for file in run.files)

    @property
    def has_deleted_rows(self) -> bool:
        """Whether rows of the files may be deleted by a vector."""
        return self._deleted is not None

    @property
    def run_count(self) -> int:
        """How many runs are looked into."""
        return len(self._runs)

    @cached_property
    def first_hit_is_newest(self) -> bool:
        """Whether a newer run's rows are all newer than an older run's, by their sequence numbers.

        Writers that committed on one base may have numbered rows alike; then versions have to be
        compared, and the first hit decides nothing.
        """
        oldest: int | None = None
        for run in self._runs:
            if oldest is not None and max(f.max_sequence_number for f in run.files) >= oldest:
                return False
            lowest = min(file.min_sequence_number for file in run.files)
            oldest = lowest if oldest is None else min(oldest, lowest)
        return True

    def unbuilt(self, batch: KeyBatch) -> list[DataFileMeta]:
        """Return the data files that may hold keys of a batch and have no lookup file yet."""
        files = [file for run in self._runs for file, _, _ in _candidates(run, batch)]
        return [file for file in files if not self.files.touch([file])]

    def find(self, batch: KeyBatch) -> Hits:
        """Return each key's newest row, a delete included; found keys are not looked for again."""
        stores: list[LookupStore] = []
        files: list[DataFileMeta] = []
        store_of = np.full(len(batch), -1, np.int32)
        handle_of = np.full(len(batch), -1, np.int64)
        pending: Longs = np.arange(len(batch), dtype=np.int64)
        for run in self._runs:
            # Older runs cannot change keys that are found.
            if not len(pending):
                break
            for file, start, stop in _candidates(run, batch):
                low, high = np.searchsorted(pending, (start, stop))
                # Newer runs have found all keys of this file's range.
                if low == high:
                    continue
                chunk = pending[low:high]
                store, rows = self._searched(file, batch, chunk)
                hit = self._alive(file, store, rows.last)
                if hit.any():
                    store_of[chunk[hit]] = len(stores)
                    handle_of[chunk[hit]] = rows.last[hit]
                    stores.append(store)
                    files.append(file)
            # A deleted row is not a hit, so its key stays pending.
            pending = pending[store_of[pending] < 0]
        return Hits(stores=tuple(stores), files=tuple(files), store=store_of, handle=handle_of)

    def versions(self, batch: KeyBatch) -> Iterator[Versions]:
        """Yield every version of every distinct key, file by file, newest run first.

        Rows that deletion vectors have taken are left out. A version comes once, however often the
        batch repeats its key: who merges versions would count it more than once.
        """
        for run in self._runs:
            for file, start, stop in _candidates(run, batch):
                low, high = np.searchsorted(batch.firsts, (start, stop))
                chunk = batch.firsts[low:high]
                if not len(chunk):
                    continue
                store, rows = self._searched(file, batch, chunk)
                hit = rows.last >= 0
                counts = rows.last[hit] - rows.first[hit] + 1
                if not len(counts):
                    continue
                begins = np.cumsum(counts) - counts
                steps = np.arange(int(counts.sum())) - np.repeat(begins, counts)
                keys = np.repeat(chunk[hit], counts)
                handles = np.repeat(rows.first[hit], counts) + steps
                alive = self._alive(file, store, handles)
                if alive.any():
                    yield Versions(file=file, store=store, keys=keys[alive], handles=handles[alive])

    def _alive(self, file: DataFileMeta, store: LookupStore, handles: Longs) -> Bools:
        hit: Bools = handles >= 0
        if self._deleted is not None and hit.any():
            hidden = self._deleted(file, store.positions(handles[hit]))
            hit[hit] = ~hidden
        return hit

    def _searched(
        self, file: DataFileMeta, batch: KeyBatch, pending: Longs
    ) -> tuple[LookupStore, Handles]:
        """Search one file; a store found damaged is built anew, once."""
        for attempt in (1, 2):
            store = self.files.open(file)
            try:
                store.check()
                rows = store.find(batch, pending)
                store.accesses.add(len(pending), int(np.count_nonzero(rows.last >= 0)))
                return store, rows
            except CorruptFileError as error:
                if attempt == 2 or error.facts.get("file") != store.path:
                    raise
                self.files.damaged(file)
        raise AssertionError("the second attempt returns or raises")


def _candidates(run: _Run, batch: KeyBatch) -> Iterator[tuple[DataFileMeta, int, int]]:
    """Yield the files of a run that may hold keys of a batch, and from where to where those go."""
    if not len(batch):
        return
    lowest, highest = batch.keys.bytes_of(0), batch.keys.bytes_of(len(batch) - 1)
    for index in range(bisect_left(run.highest, lowest), bisect_right(run.lowest, highest)):
        start = lower_bound(batch.keys, run.lowest[index])
        stop = upper_bound(batch.keys, run.highest[index])
        if start < stop:
            yield run.files[index], start, stop
