"""Rows that are files already: tasks read Parquet and CSV in Python, past the JVM."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.spark.jobs import Batches
from lsm_engine.spark.session import task_goal
from lsm_engine.spark.staging import stage_source
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.incoming import Conformer, IncomingRows
from lsm_engine.table.ground.row_kinds import ROW_KIND_COLUMN

_PART_BYTES_MIN = 8 << 20
_PART_BYTES_MAX = 128 << 20
_BATCH_ROWS = 128 * 1024
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".csv.gz": "csv"}


@record
class FileRows:
    """Rows in Parquet or CSV files: what `Table.upsert` takes from a Spark executor.

    `paths`: files or directories, local or URIs such as "s3://bucket/key", that executors see under
    the same names; of a directory every .parquet, .csv and .csv.gz file counts, except hidden ones.
    CSV files have a header; `null_values` are the texts in them that mean null.
    """

    paths: tuple[str, ...]
    null_values: tuple[str, ...] = ("",)


@record
class FilePart:
    """What one task reads: the row groups of a Parquet file whose middle lies in a byte range, or a
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
    """Return what is to be read, in order, in parts for about `task_count` tasks.

    Raises NotFoundError for a path that is not there, InvalidInputError if no file is found.
    """
    files = [found for path in paths for found in _files(path)]
    if not files:
        raise InvalidInputError("no .parquet or .csv file was found", paths=list(paths))
    size = sum(found.stop for found in files) // max(1, task_count)
    step = min(max(size, _PART_BYTES_MIN), _PART_BYTES_MAX)
    return [part for found in files for part in _parts(found, step)]


def _parts(whole: FilePart, step: int) -> Iterator[FilePart]:
    if whole.format != "parquet":
        yield whole
        return
    for start in range(0, max(1, whole.stop), step):
        stop = min(start + step, whole.stop)
        yield FilePart(path=whole.path, format=whole.format, start=start, stop=stop)


def _files(path: str) -> list[FilePart]:
    """Return the file at a path, or those below it by name, each as one part."""
    system, inner = _opened(path)
    info = system.get_file_info(inner)
    if info.type == pa_fs.FileType.NotFound:
        raise NotFoundError(f"no file {path!r}", kind=ErrorKind.NO_SUCH_FILE, path=path)
    if info.type == pa_fs.FileType.File:
        return [_whole(path, info, required=True)]  # type: ignore[list-item]
    below = system.get_file_info(pa_fs.FileSelector(inner, recursive=True))
    prefix = path.rstrip("/")
    found = [
        _whole(prefix + info.path[len(inner.rstrip("/")) :], info, required=False)
        for info in sorted(below, key=lambda info: info.path)
        if info.type == pa_fs.FileType.File and not info.base_name.startswith((".", "_"))
    ]
    return [part for part in found if part is not None]


def _whole(path: str, info: pa_fs.FileInfo, *, required: bool) -> FilePart | None:
    for suffix, name in _FORMATS.items():
        if path.lower().endswith(suffix):
            return FilePart(path=path, format=name, start=0, stop=info.size)
    if required:
        raise InvalidInputError(
            f"{path!r} is neither .parquet nor .csv", kind=ErrorKind.UNSUPPORTED_FORMAT, path=path
        )
    return None


def _opened(path: str) -> tuple[pa_fs.FileSystem, str]:
    if "://" in path:
        system, inner = pa_fs.FileSystem.from_uri(path)
        return system, inner
    return pa_fs.LocalFileSystem(), path


@record
class FileSource:
    """The rows of files, made to fit: the parts with the numbers that are handed over."""

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
        system, inner = _opened(part.path)
        with system.open_input_stream(inner) as stream:  # decompresses by the path's ending
            yield from pc_csv.open_csv(stream, convert_options=options)


def _parquet_batches(part: FilePart) -> Iterator[pa.RecordBatch]:
    system, inner = _opened(part.path)
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
