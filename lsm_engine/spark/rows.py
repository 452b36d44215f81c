"""Rows that need no shuffle: few rows, collected on the driver, and rows that are files already."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base.errors import (
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import parse_bytes
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.spark.jobs import Batches, TaskFailedError, collected_by
from lsm_engine.spark.jvm import estimated_bytes, parquet_relation
from lsm_engine.spark.session import (
    DRIVER_BYTES,
    SHARED_DISK,
    is_classic,
    runs_elsewhere,
    task_goal,
)
from lsm_engine.spark.staging import stage_source
from lsm_engine.spark.types import arrow_schema_of
from lsm_engine.table.bucket_context import Staging
from lsm_engine.table.incoming import ROW_KIND_COLUMN, Conformer, IncomingRows
from lsm_engine.types.table_schema import TableSchema

# -- Rows few enough for the driver ----------------------------------------------------------------
#
# It collects them once, and neither workers nor a shuffle are started for them.

_DEFAULT = "32mb"
_ON_ONE_MACHINE = 8
_TOO_LARGE = "spark.driver.maxResultSize"


def driver_bytes(spark: SparkSession) -> int:
    """Return how many bytes the driver takes over from executors; 0 on Spark Connect."""
    if not is_classic(spark):
        return 0
    return _parse_driver_bytes(spark.conf.get(DRIVER_BYTES, _DEFAULT))


def _parse_driver_bytes(text: str | None) -> int:
    text = text or _DEFAULT
    try:
        return parse_bytes(text)
    except ValueError as cause:
        raise InvalidOptionError(
            'this setting is a size, such as "32mb", or "0"', key=DRIVER_BYTES, value=text
        ) from cause


def local_bytes(spark: SparkSession) -> int:
    """Return how many bytes of files the driver reads, or compacts, itself: more where its machine is the only one.

    What it does there takes no rows from the JVM, and memory that the table's options bound.
    """
    return driver_bytes(spark) * (1 if runs_elsewhere(spark) else _ON_ONE_MACHINE)


def configured_local_bytes(settings: Mapping[str, str]) -> int:
    """Return `local_bytes` of a session with these settings, without starting it."""
    is_shared = settings.get(SHARED_DISK, "false").lower() == "true"
    is_local = is_shared or settings.get("spark.master", "local").startswith("local")
    return _parse_driver_bytes(settings.get(DRIVER_BYTES)) * (_ON_ONE_MACHINE if is_local else 1)


def few_rows(frame: DataFrame, *, label: str) -> pa.Table | None:
    """Return the rows of a DataFrame, evaluated once; None where they are, or may be, too many to be collected.

    Raises as `jobs.collected` does.
    """
    most = driver_bytes(frame.sparkSession)
    if not most or not is_plain(frame.schema):
        return None
    try:
        return collected_by(partial(_small_table, frame, most), frame.sparkSession, label=label)
    except TaskFailedError as error:
        # Spark's estimate was too small: the executors write these rows instead.
        if any(_TOO_LARGE in note for note in error.__notes__):
            return None
        raise


def is_plain(schema: StructType) -> bool:
    """Whether this process can take rows as Arrow: `toArrow`, since PySpark 4.0, fails at nulls in nested columns."""
    if not hasattr(DataFrame, "toArrow"):
        return False
    try:
        return not any(pa.types.is_nested(kind) for kind in arrow_schema_of(schema).types)
    except UnsupportedError:  # the caller's own path names the column
        return False


def _small_table(frame: DataFrame, most: int) -> pa.Table | None:
    byte_count = estimated_bytes(frame)
    return None if byte_count is None or byte_count > most else frame.toArrow()


# -- Rows that are files already: tasks read Parquet and CSV in Python, past the JVM ---------------

_PART_BYTES_MIN = 8 << 20
_PART_BYTES_MAX = 128 << 20
_BATCH_ROWS = 128 * 1024
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".csv.gz": "csv"}


@record
class FileRows:
    """Rows in Parquet or CSV files, as `Table.upsert` on a Spark executor accepts them.

    `paths`: files or directories, local or URIs such as "s3://bucket/key", that executors see under
    the same names; of a directory every .parquet, .csv and .csv.gz file counts, except hidden ones.
    CSV files have a header; `null_values` are the texts in them that mean null.
    """

    paths: tuple[str, ...]
    null_values: tuple[str, ...] = ("",)


@record
class FilePart:
    """The part of a file that one task reads: the row groups of a Parquet file whose middle lies in a byte range, or a
    whole CSV file.
    """

    path: str
    format: str
    start: int
    stop: int


def stage_files(
    staging: Staging, rows: FileRows, spark: SparkSession, *, label: str
) -> list[CommitMessage]:
    """Write the rows of files as level-0 files of their buckets; nothing is visible yet.

    Of several rows of one key the last one counts, in the order of the files as given.
    """
    parts = file_parts(rows.paths, task_count=task_goal(spark))
    source = FileSource(
        schema=staging.context.schema,
        deletes=staging.deletes,
        parts=tuple(parts),
        null_values=rows.null_values,
    )
    numbers = spark.range(0, len(parts), 1, len(parts))
    return stage_source(staging, numbers, source, label=label)


def file_parts(paths: Sequence[str], *, task_count: int) -> list[FilePart]:
    """Return the parts of files to read, in order, for about `task_count` tasks.

    Raises NotFoundError for a path that is not there, InvalidInputError if no file is found.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise InvalidInputError("no .parquet or .csv file was found", paths=list(paths))
    size = sum(file.stop for file in files) // max(1, task_count)
    step = min(max(size, _PART_BYTES_MIN), _PART_BYTES_MAX)
    return [part for file in files for part in _parts(file, step)]


def _parts(file: FilePart, step: int) -> Iterator[FilePart]:
    if file.format != "parquet":
        yield file
        return
    for start in range(0, max(1, file.stop), step):
        stop = min(start + step, file.stop)
        yield FilePart(path=file.path, format=file.format, start=start, stop=stop)


def _files(path: str) -> list[FilePart]:
    """Return the file at a path, or those below it by name, each as one part."""
    system, inner = _file_system(path)
    info = system.get_file_info(inner)
    if info.type == pa_fs.FileType.NotFound:
        raise NotFoundError(f"no file {path!r}", kind=ErrorKind.NO_SUCH_FILE, path=path)
    if info.type == pa_fs.FileType.File:
        return [_file_part(path, info, required=True)]  # type: ignore[list-item]
    below = system.get_file_info(pa_fs.FileSelector(inner, recursive=True))
    prefix = path.rstrip("/")
    parts = [
        _file_part(prefix + info.path[len(inner.rstrip("/")) :], info, required=False)
        for info in sorted(below, key=lambda info: info.path)
        if info.type == pa_fs.FileType.File and not info.base_name.startswith((".", "_"))
    ]
    return [part for part in parts if part is not None]


def _file_part(path: str, info: pa_fs.FileInfo, *, required: bool) -> FilePart | None:
    for suffix, name in _FORMATS.items():
        if path.lower().endswith(suffix):
            return FilePart(path=path, format=name, start=0, stop=info.size)
    if required:
        raise InvalidInputError(
            f"{path!r} is neither .parquet nor .csv", kind=ErrorKind.UNSUPPORTED_FORMAT, path=path
        )
    return None


def _file_system(path: str) -> tuple[pa_fs.FileSystem, str]:
    if "://" in path:
        system, inner = pa_fs.FileSystem.from_uri(path)
        return system, inner
    return pa_fs.LocalFileSystem(), path


@record
class FileSource:
    """The rows of files, coerced to the schema: the parts with their numbers."""

    schema: TableSchema
    deletes: bool
    parts: tuple[FilePart, ...]
    null_values: tuple[str, ...]

    def sources(self, batches: Batches) -> Iterator[tuple[int, Iterator[IncomingRows]]]:
        """Yield each part, with its number."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield number, self._conformed(self.parts[number])

    def _conformed(self, part: FilePart) -> Iterator[IncomingRows]:
        conformer: Conformer | None = None
        for batch in self._batches(part):
            conformer = conformer or Conformer(batch.schema, self.schema, deletes=self.deletes)
            if batch.num_rows:
                yield conformer.conform(batch)

    def _batches(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        try:
            if part.format == "parquet":
                yield from _parquet_batches(part)
            else:
                yield from self._csv_batches(part)
        except pa.ArrowInvalid as cause:
            raise InvalidInputError(
                f"{part.path!r} does not read as {part.format}: {cause}", path=part.path
            ) from cause

    def _csv_batches(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        types = {field.name: field.type for field in self.schema.arrow}
        types.setdefault(ROW_KIND_COLUMN, pa.string())
        options = pc_csv.ConvertOptions(
            column_types=types, null_values=list(self.null_values), strings_can_be_null=True
        )
        system, inner = _file_system(part.path)
        with system.open_input_stream(inner) as stream:  # decompresses by the path's ending
            yield from pc_csv.open_csv(stream, convert_options=options)


def _parquet_batches(part: FilePart) -> Iterator[pa.RecordBatch]:
    system, inner = _file_system(part.path)
    with system.open_input_file(inner) as source, pq.ParquetFile(source) as file:
        groups = [
            number
            for number in range(file.num_row_groups)
            if part.start <= _middle(file.metadata.row_group(number)) < part.stop
        ]
        if groups:
            yield from file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups)


def _middle(group: pq.RowGroupMetaData) -> int:
    """Return the byte at the middle of a row group: it lies in exactly one part of the file."""
    first = group.column(0)
    start = first.dictionary_page_offset or first.data_page_offset
    size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
    return int(start + size // 2)


# -- DataFrames that are Parquet files and nothing else: their rows are read past the JVM ----------
#
# `spark.read.parquet(path)`, a view of it, and a choice of its columns, under other names or not. Taking such rows from
# Spark means that it decodes them, makes rows of them and Arrow batches of those: several times the work of writing them.

_FILES_MAX = 10_000
_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
_REBASE = "spark.sql.parquet.datetimeRebaseModeInRead"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"


@record
class PlainFiles:
    """Local Parquet files that hold just the rows of a DataFrame. `columns`: their names in the files.

    `schema`: the DataFrame's columns, which the files have in the same types.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pa.Schema

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, file after file."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def table(self) -> pa.Table:
        """Return the rows, which are few."""
        return self.reader().read_all()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=[*self.columns]):
                    arrays = [batch.column(name) for name in self.columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def plain_files(frame: DataFrame, most: int) -> PlainFiles | None:
    """Return the files whose rows a DataFrame is, of at most so many bytes; None for any other DataFrame.

    None too where Spark would not read from them what PyArrow does, or this process may not see the same files.
    """
    spark = frame.sparkSession
    if not most or not is_classic(spark) or runs_elsewhere(spark) or not _reads_alike(spark):
        # Spark Connect has no plan here, and a cluster has other disks.
        return None
    relation = parquet_relation(frame)
    if relation is None or relation.byte_count > most:
        return None
    paths, names = [_local_path(uri) for uri in relation.uris], relation.columns
    try:
        schema = arrow_schema_of(frame.schema)
    except UnsupportedError:
        # Raised again, with the column's name, by the way that every DataFrame takes.
        return None
    if not 0 < len(paths) <= _FILES_MAX:
        return None
    local_paths = tuple(path for path in paths if path is not None)
    if len(local_paths) < len(paths) or not all(
        _holds(path, names, schema) for path in local_paths
    ):
        return None
    return PlainFiles(paths=local_paths, columns=names, schema=schema)


def _reads_alike(spark: SparkSession) -> bool:
    as_usual = all(
        str(spark.conf.get(key, value)).lower() == value for key, value in _SETTINGS.items()
    )
    return as_usual and spark.conf.get(_REBASE, "CORRECTED") != "LEGACY"


def _local_path(uri: str) -> str | None:
    parts = urlsplit(uri)
    is_local = parts.scheme == "file" and not parts.netloc and not parts.query
    return unquote(parts.path) if is_local and not parts.fragment else None


def _holds(path: str, names: tuple[str, ...], schema: pa.Schema) -> bool:
    """Whether a file has the columns in just the types of `schema`, and no dates of a calendar that Spark converts."""
    try:
        with pq.ParquetFile(path) as file:
            stored, metadata = file.schema_arrow, file.metadata.metadata or {}
    except (OSError, pa.ArrowInvalid):
        return False  # Spark says what is wrong with it
    if any(key in metadata for key in _LEGACY) or metadata.get(_VERSION, b"").startswith(b"2."):
        return False
    lower = [name.lower() for name in stored.names]
    return all(
        lower.count(name.lower()) == 1
        and name in stored.names
        and not pa.types.is_nested(field.type)
        and stored.field(name).type == field.type
        for name, field in zip(names, schema, strict=True)
    )
