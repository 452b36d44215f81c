"""The context of work on a bucket, in this process or in a task elsewhere. Values that pickle."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from functools import lru_cache, partial

import pyarrow as pa

from lsm_engine.base.errors import LsmError, UnsafePathError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import POSTPONE_BUCKET_COUNT
from lsm_engine.data_files.reader import DataFileReader, ReadColumns, open_data_file
from lsm_engine.data_files.writer import (
    CHANGELOG_PREFIX,
    POSTPONED_WRITER,
    DataFileWriter,
    NewFiles,
)
from lsm_engine.format.binary_row import KeyOrder, key_order
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.file_index import INDEX_SUFFIX, FileIndexes
from lsm_engine.format.index_file import IndexFileMeta
from lsm_engine.format.manifest import Bucket, ManifestEntry
from lsm_engine.format.partition_path import partition_path, partition_paths
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.schemas import SchemaStore, TableIdentity
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileSource
from lsm_engine.storage.bulk import writing_behind
from lsm_engine.storage.clock import Clock, IdSource
from lsm_engine.storage.file_io import FileIO, check_name
from lsm_engine.storage.location import plain_path, scheme_of
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.storage.paths import TablePaths
from lsm_engine.storage.warehouse import open_directory
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField

log = logging.getLogger(__name__)


def _part_of(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]


def _part(file_io: FileIO, path: str, offset: int, size: int) -> bytes:
    with closing(file_io.open_input(path)) as source:
        source.seek(offset)
        part: bytes = source.read(size)
        return part


# -- Key order and partition directories of a schema -----------------------------------------------


def key_order_of(schema: TableSchema) -> KeyOrder | None:
    """Return how stored keys of a table compare; None for tables without a primary key."""
    if not schema.has_primary_key:
        return None
    return key_order([field.type for field in schema.select(schema.trimmed_primary_keys)])


def partition_path_of(
    schema: TableSchema, partition: bytes, *, legacy_name: bool | None = None
) -> str:
    """Return the directory of a partition, relative to its table's; "" if unpartitioned.

    `legacy_name`: how values are spelled; None: by the table's option.
    """
    fields, default_name, by_option = _spelling(schema)
    legacy = by_option if legacy_name is None else legacy_name
    return _path(partition, fields, default_name=default_name, legacy_name=legacy)


def partition_paths_of(schema: TableSchema, columns: Sequence[pa.Array]) -> list[str]:
    """Return the directories of many partitions, given as columns, as `partition_path_of` does."""
    fields, default_name, legacy = _spelling(schema)
    return partition_paths(columns, fields, default_name=default_name, legacy_name=legacy)


def _spelling(schema: TableSchema) -> tuple[tuple[DataField, ...], str, bool]:
    fields = tuple(schema.select(schema.partition_keys))
    default_name = schema.options[core_options.PARTITION_DEFAULT_NAME]
    return fields, default_name, schema.options[core_options.PARTITION_LEGACY_NAME]


@lru_cache(maxsize=4096)
def _path(
    partition: bytes, fields: tuple[DataField, ...], *, default_name: str, legacy_name: bool
) -> str:
    # Asked for every file of a partition, and decoding a row costs as much as opening a file.
    return partition_path(partition, fields, default_name=default_name, legacy_name=legacy_name)


# -- Data files outside of the table's directory (data-file.external-paths) ------------------------

_storage_at = lru_cache(maxsize=64)(open_directory)
"""Storage outside of tables: many files share a directory of `data-file.external-paths`."""


def external_place(
    file: DataFileMeta, bucket_name: str, depth: int, storage: StorageOptions
) -> tuple[FileIO, str]:
    """Return the storage and the path of a file outside of the table's directory.

    `depth`: of directories of partition values. Raises UnsafePathError unless the file lies in a directory of
    its bucket's name: a manifest that is not right leads to no other file.
    """
    assert file.external_path is not None, file
    root, *below = file.external_path.rsplit("/", depth + 2)
    is_absolute = scheme_of(root) is not None or plain_path(root).startswith("/")
    if not is_absolute or below[-2:] != [bucket_name, file.file_name]:
        raise UnsafePathError(
            "a manifest names a file outside of the table that does not lie in a directory of its bucket; run verify",
            path=file.external_path,
        )
    return _storage_at(root, storage=storage), "/".join(below)


# -- Context of work on one bucket -----------------------------------------------------------------

_NO_LIMIT = 1 << 62


@record
class BucketContext:
    """The context of work on a bucket, in this process or in a task elsewhere. It pickles.

    `schemas` holds every version that a file of the work was written with, by id. `storage`: options of the stores
    of files outside of the table's directory.
    """

    file_io: FileIO
    paths: TablePaths
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    clock: Clock
    ids: IdSource
    storage: StorageOptions = NO_OPTIONS

    @property
    def snapshots(self) -> SnapshotStore:
        """The snapshots of the table, or of the branch."""
        schemas = SchemaStore(self.file_io, self.paths)
        of_table = TableIdentity(schemas, "", lambda: self.schema).require
        return SnapshotStore(self.file_io, self.paths, of_table=of_table)

    def writing_behind(self) -> "BucketContext":
        """Return this for work in this process that a commit follows, which waits for the files."""
        return replace(
            self,
            file_io=writing_behind(
                self.file_io,
            ),
        )

    def partition_path(self, partition: bytes) -> str:
        """Return the directory of a partition, relative to the table's; "" if unpartitioned."""
        return partition_path_of(self.schema, partition)

    def bucket_directory(self, partition: bytes, bucket: int) -> str:
        """Return where a bucket's files lie."""
        return self.paths.bucket_directory(self.partition_path(partition), bucket)

    def data_file(self, partition: bytes, bucket: int, file_name: str) -> str:
        """Return where a data file lies: in its bucket's directory, or else where a writer that
        does not know `partition.legacy-name` = false has put it (decisions/0007).
        """
        name = check_name(file_name)
        path = f"{self.bucket_directory(partition, bucket)}/{name}"
        if self.schema.options[core_options.PARTITION_LEGACY_NAME] or self.file_io.exists(path):
            return path
        try:
            legacy = partition_path_of(self.schema, partition, legacy_name=True)
        except UnsupportedError:
            return path  # no writer had a legacy name for such a partition
        legacy_path = f"{self.paths.bucket_directory(legacy, bucket)}/{name}"
        return legacy_path if self.file_io.exists(legacy_path) else path

    def place_of(
        self, bucket: Bucket, file: DataFileMeta, name: str | None = None
    ) -> tuple[FileIO, str]:
        """Return the storage and the path of a data file, or of the file `name` beside it.

        Raises UnsafePathError as `external_place` does.
        """
        if file.external_path is None:
            return self.file_io, self.data_file(*bucket, name or file.file_name)
        bucket_name = self.paths.bucket_directory("", bucket[1]).rpartition("/")[2]
        depth = len(self.schema.partition_keys)
        file_io, path = external_place(file, bucket_name, depth, self.storage)
        directory, _, own_name = path.rpartition("/")
        return file_io, f"{directory}/{check_name(name or own_name)}"

    def open_file(
        self,
        bucket: Bucket,
        file: DataFileMeta,
        names: tuple[str, ...] | None = None,
        *,
        with_positions: bool = False,
        verify_checksums: bool = True,
        number: int | None = None,
    ) -> DataFileReader:
        """Open a data file of a bucket, to be read as `schema`; the caller closes it.

        `names`, `with_positions`, `number` as in ReadColumns; raises as `open_data_file` does.
        """
        columns = ReadColumns(
            file_schema=self.schemas[file.schema_id],
            read_schema=self.schema,
            names=names,
            with_positions=with_positions,
            number=number,
        )
        file_io, path = self.place_of(bucket, file)
        return open_data_file(file_io, path, file, columns, verify_checksums=verify_checksums)

    def file_index(self, bucket: Bucket, file: DataFileMeta) -> FileIndexes | None:
        """Return the indexes of a data file's columns, from its manifest entry or the file beside it.

        None: it has none. Raises CorruptFileError and NotFoundError, naming the index file.
        """
        path, read = file.file_name, partial(_part_of, file.embedded_index or b"")
        if file.embedded_index is None:
            names = [name for name in file.extra_files if name.endswith(INDEX_SUFFIX)]
            if not names:
                return None
            file_io, path = self.place_of(bucket, file, names[0])
            # One request brings all of it from afar; of a local file only what is asked for is read.
            is_remote = file_io.facts.is_remote
            read = (
                partial(_part_of, file_io.read(path))
                if is_remote
                else partial(_part, file_io, path)
            )
        return FileIndexes(read, row_count=file.row_count, file_name=path)

    def new_files(
        self,
        bucket: Bucket,
        *,
        level: int,
        source: FileSource,
        never_roll: bool = False,
        first_sequence_number: int = 0,
        write_columns: tuple[str, ...] | None = None,
    ) -> DataFileWriter:
        """Return a writer of data files of one bucket; with `never_roll`, of one file at most.

        Append tables number their rows from `first_sequence_number`; `write_columns` as in NewFiles.
        """
        files = NewFiles(
            schema=self.schema,
            directory=self.bucket_directory(*bucket),
            level=level,
            file_source=source,
            target_file_size=_NO_LIMIT if never_roll else None,
            write_columns=write_columns,
            writer=POSTPONED_WRITER if bucket[1] == POSTPONE_BUCKET_COUNT else "",
        )
        return DataFileWriter(
            self.file_io,
            files,
            ids=self.ids,
            clock=self.clock,
            first_sequence_number=first_sequence_number,
        )

    def new_changelog_files(
        self, bucket: Bucket, *, level: int, source: FileSource
    ) -> DataFileWriter:
        """Return a writer of changelog files of one bucket, beside its data files.

        They are written by the `changelog-file` options.
        """
        files = NewFiles(
            schema=replace(self.schema, options=self.schema.options.of_changelog_files()),
            directory=self.bucket_directory(*bucket),
            level=level,
            file_source=source,
            prefix=CHANGELOG_PREFIX,
        )
        return DataFileWriter(self.file_io, files, ids=self.ids, clock=self.clock)


@record
class BucketFacts:
    """The buckets of a snapshot, as a writer needs them. Partitions are stored rows.

    `totals`: how many buckets a partition's files were written for, where that may differ from the
    schema. `indexes`: the index files of dynamic buckets, by partition and bucket. `unindexed`: files
    of dynamic buckets that no index lists, because their writer kept none. `base`: the snapshot to look
    for keys in, where they may move between partitions.
    """

    totals: Mapping[bytes, int] = field(default_factory=dict)
    indexes: Mapping[bytes, tuple[tuple[int, IndexFileMeta], ...]] = field(default_factory=dict)
    unindexed: Mapping[bytes, tuple[ManifestEntry, ...]] = field(default_factory=dict)
    base: Snapshot | None = None


@record
class Staging:
    """The state that writing new rows needs. `newest` holds the newest sequence number of each live bucket.

    With `deletes` the rows name keys to take away. With `replaces` they replace all of their
    partitions, so that what those hold by now does not matter. `buckets` is what is known
    about buckets beyond the schema (table/staging). `snapshot_id` is what the rows' snapshot will
    have, if no other commit lands first, where that orders them (`sequence.snapshot-ordering`).
    """

    context: BucketContext
    newest: Mapping[tuple[bytes, int], int]
    deletes: bool = False
    replaces: bool = False
    buckets: BucketFacts = BucketFacts()
    snapshot_id: int | None = None

    def settled(self) -> "Staging":
        """Return this with all that is known of buckets at hand: what was written on may expire meanwhile."""
        buckets = replace(self.buckets, totals=dict(self.buckets.totals))
        return replace(self, newest=dict(self.newest), buckets=buckets)

    def writing_behind(self) -> "Staging":
        """Return this for rows that a commit follows in this process (BucketContext.writing_behind)."""
        return replace(self, context=self.context.writing_behind())

    def next_sequence_number(self, partition: bytes, bucket: int) -> int:
        """Return the number of the next row of a bucket."""
        return self.newest.get((partition, bucket), -1) + 1


# -- Take staged work back: delete the files of messages that will never be committed --------------


def discard(context: BucketContext, messages: Iterable[CommitMessage]) -> None:
    """Delete the files that messages brought; one that cannot be deleted is an orphan, no error."""
    delete_quietly(
        context.file_io, (path for message in messages for path in staged_files(context, message))
    )


def delete_quietly(file_io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that nothing names. One that cannot be deleted is an orphan, no error."""
    try:
        file_io.delete_many(paths)
    except LsmError as error:
        # The error that led here matters more; orphans are removed later.
        log.warning("left files behind that nothing names: %s", error)


def staged_files(context: BucketContext, message: CommitMessage) -> Iterator[str]:
    """Yield the files that a message brought. A file that only changed its level is kept."""
    if message.rewritten is not None:
        for manifest in message.rewritten.manifests:
            yield context.paths.manifest(manifest.file_name)
        return
    directory = context.bucket_directory(message.partition, message.bucket)
    data, compact = message.data, message.compact
    # A file that only changed its level belongs to the base, which may be live.
    moved = {file.file_name for file in compact.before}
    for file in (
        *data.new_files,
        *data.changelog_files,
        *(file for file in compact.after if file.file_name not in moved),
        *compact.changelog_files,
    ):
        yield from (f"{directory}/{name}" for name in file.file_names)
    for index in (*data.new_index_files, *compact.new_index_files):
        yield context.paths.index_file(index.file_name)
