"""A data file turned into a local lookup file: built on first need, through the disk cache."""

from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import LookupFileType
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.io.cache_entries import CacheLimits, Leaves
from lsm_engine.io.data_file_reader import POSITION, ReadColumns, open_data_file
from lsm_engine.io.disk_cache import DiskCache
from lsm_engine.io.file_io import FileIO
from lsm_engine.kernels.keys import SortKeys, sort_keys
from lsm_engine.lookup.columnar_store import ColumnarStore, write_columnar
from lsm_engine.lookup.hash_store import HashStore, write_hashed
from lsm_engine.lookup.lookup_store import LookupStore, StoredValue, StoreSettings
from lsm_engine.lookup.sort_store import BlockCache, SortStore, write_sorted
from lsm_engine.lookup.stored_rows import RowLayout
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.types import ScalarType

_VERSION = 1
LookupCache = DiskCache[LookupStore]


def local_file_type(schema: TableSchema) -> LookupFileType:
    """Return the kind of a table's lookup files: columnar where others have no form for a column's values."""
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

    file_io: FileIO
    read_schema: TableSchema
    schemas: Mapping[int, TableSchema]
    path_of: Callable[[str], str]
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
        path = self._files.path_of(file.file_name)
        checked = self._files.read_schema.options[core_options.PAGE_CHECKSUM]
        with open_data_file(
            self._files.file_io, path, file, columns, verify_checksums=checked
        ) as reader:
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
