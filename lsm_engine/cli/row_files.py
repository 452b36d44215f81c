"""Files of rows → one stream of Arrow batches, typed by the table that they go into."""

import sys
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.json
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from lsm_engine import ErrorKind, InvalidInputError, StorageError, UnsupportedError, record
from lsm_engine.cli.call import FORMATS
from lsm_engine.cli.values import parsed

STDIN = "-"
_ENDINGS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_BLOCK_BYTES = 8 << 20
_ARROW_FILE = b"ARROW1"


@record
class RowSource:
    """An open stream of rows; `row_count` None: known at the end."""

    reader: pa.RecordBatchReader
    row_count: int | None


def open_row_files(
    paths: Sequence[str], schema: pa.Schema | None, file_format: str | None = None
) -> RowSource:
    """Open files one after the other as one stream. `schema`: the table's; None: the files' own.

    CSV and JSON cells are read as the table's types (an empty CSV cell is null, '""' is empty text);
    files with fewer columns than others give null. Raises InvalidInputError for files that are not
    what they seem, StorageError for those that cannot be read.
    """
    sources = [
        _guarded(path, _open, path, file_format or format_of(path), schema) for path in paths
    ]
    try:
        joint_schema = pa.unify_schemas([source.reader.schema for source in sources])
    except pa.ArrowException as cause:
        raise InvalidInputError(f"the files do not go together: {cause}") from cause
    counts = [source.row_count for source in sources]
    total = None if None in counts else sum(count for count in counts if count is not None)

    def batches() -> Iterator[pa.RecordBatch]:
        for path, source in zip(paths, sources, strict=True):
            yield from _aligned(path, source.reader, joint_schema)

    return RowSource(
        reader=pa.RecordBatchReader.from_batches(joint_schema, batches()), row_count=total
    )


def _aligned(
    path: str, reader: pa.RecordBatchReader, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    while True:
        batch = _guarded(path, _read_next, reader)
        if batch is None:
            return
        if batch.schema != schema:
            columns = [
                batch.column(field.name)
                if field.name in batch.schema.names
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        yield batch


def _read_next(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        # The end of a stream is a value here.
        return None


def _guarded(path: str, work: Any, *arguments: Any) -> Any:
    """Run a step of reading; an error names the file that failed."""
    shown = "standard input" if path == STDIN else path
    try:
        return work(*arguments)
    except FileNotFoundError as cause:
        raise InvalidInputError(f"there is no file {shown}", kind=ErrorKind.INVALID_NAME) from cause
    except OSError as cause:
        raise StorageError(f"cannot read {shown}: {cause}") from cause
    except (pa.ArrowException, UnicodeDecodeError) as cause:
        reason = str(cause).splitlines()[0]
        raise InvalidInputError(f"cannot read {shown} as rows: {reason}") from cause


def format_of(path: str) -> str:
    """Return the format that a file's name ends in; InvalidInputError for none of ours."""
    if path == STDIN:
        raise InvalidInputError(
            "standard input needs --format, one of csv, jsonl, arrow", kind=ErrorKind.INVALID_NAME
        )
    name = Path(path).name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    file_format = _ENDINGS.get(Path(name).suffix)
    if file_format is None:
        raise InvalidInputError(
            f"the name of {path} has no known extension; give --format {'|'.join(FORMATS)}",
            kind=ErrorKind.INVALID_NAME,
        )
    return file_format


def _open(path: str, kind: str, schema: pa.Schema | None) -> RowSource:
    if path != STDIN and Path(path).is_dir():
        raise InvalidInputError(f"{path} is a directory; name the files in it, such as {path}/*")
    if kind == "parquet":
        return _open_parquet(path)
    if kind == "arrow":
        return _open_arrow(path)
    stream = _stream(path)
    if kind == "csv":
        columns = {} if schema is None else _read_as(schema)
        reader = pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES),
            convert_options=pa.csv.ConvertOptions(
                column_types=columns,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    else:
        reader = _open_json(stream, schema)
    return RowSource(reader=_typed(reader, schema), row_count=None)


def _stream(path: str) -> Any:
    return _stdin() if path == STDIN else pa.input_stream(path, compression="detect")


def _stdin() -> IO[bytes]:
    return sys.stdin.buffer


def _open_json(stream: Any, schema: pa.Schema | None) -> pa.RecordBatchReader:
    explicit = None if schema is None else pa.schema(list(_read_as(schema).items()))
    return pa.json.open_json(
        stream,
        read_options=pa.json.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pa.json.ParseOptions(explicit_schema=explicit),
    )


def _open_parquet(path: str) -> RowSource:
    if path == STDIN:
        raise InvalidInputError("Parquet cannot be read from standard input; name its file")
    file = pq.ParquetFile(path)
    reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
    return RowSource(reader=reader, row_count=file.metadata.num_rows)


def _open_arrow(path: str) -> RowSource:
    if path == STDIN:
        return RowSource(reader=pa.ipc.open_stream(_stdin()), row_count=None)
    source = pa.memory_map(path)
    if source.read(len(_ARROW_FILE)) != _ARROW_FILE:
        source.seek(0)
        return RowSource(reader=pa.ipc.open_stream(source), row_count=None)
    file = pa.ipc.open_file(source)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    reader = pa.RecordBatchReader.from_batches(file.schema, batches)
    return RowSource(reader=reader, row_count=None)


def _read_as(schema: pa.Schema) -> dict[str, pa.DataType]:
    """What readers of text parse into: themselves for simple types, text for what `parsed` knows."""
    return {field.name: pa.string() if _is_parsed(field.type) else field.type for field in schema}


def _is_parsed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_temporal(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _typed(reader: Any, schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Turn columns that were read as text into the table's types."""
    kinds = {field.name: field.type for field in schema or () if _is_parsed(field.type)}
    typed_schema = pa.schema(
        pa.field(field.name, kinds.get(field.name, field.type)) for field in reader.schema
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [
                _column(batch.column(position), field)
                for position, field in enumerate(typed_schema)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=typed_schema)

    return pa.RecordBatchReader.from_batches(typed_schema, batches())


def _column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return parsed(column, field.type)
    except pa.ArrowException as cause:
        raise InvalidInputError(
            f"column {field.name!r} has values that do not fit {field.type}: "
            f"{str(cause).splitlines()[0]}",
            column=field.name,
        ) from cause


# -- Rows of a folder: Parquet files, or a Delta table as its log says -----------------------------

DELTA_LOG = "_delta_log"
_OTHER_LOGS = ("metadata", ".hoodie", "snapshot")


class FolderRows(NamedTuple):
    """The rows of a folder, and their number."""

    data: ds.Dataset
    row_count: int

    def source(self) -> RowSource:
        """Return the rows in batches."""
        return RowSource(reader=self.data.scanner().to_reader(), row_count=self.row_count)

    def files(self, folder: str) -> list[str]:
        """Return where the files lie that hold them."""
        is_within = isinstance(self.data.filesystem, SubTreeFileSystem)
        return [str(Path(folder if is_within else "", path)) for path in self.data.files]

    def require_columns(self, names: Collection[str], folder: str) -> None:
        """Raise InvalidInputError for columns that a table of these names would leave out.

        Folders named column=value hold columns of which the files below them have nothing.
        """
        extra = [name for name in self.data.schema.names if name not in names]
        if extra:
            raise InvalidInputError(
                f"no column {extra[0]!r} in the table: add it with lsm alter, or leave what holds it out",
                kind=ErrorKind.INVALID_ROWS,
                folder=folder,
                columns=extra,
            )


def folder_rows(folder: str) -> FolderRows:
    """Return the rows of a folder; its files stay as they are.

    Those of a Delta table are those of its newest version. Else they are those of all Parquet files
    below the folder, with all columns that any of them has. Raises InvalidInputError for a table of
    another format, whose log says which of its files count; UnsupportedError without the extra
    `delta`, and for Delta tables with deletion vectors or mapped columns, which it does not read.
    """
    if Path(folder, DELTA_LOG).is_dir():
        return _delta_rows(folder)
    logs = [name for name in _OTHER_LOGS if Path(folder, name).is_dir()]
    if logs:
        raise InvalidInputError(
            f"{folder} is a table with a log of its own ({logs[0]}): some of its files may not count; export "
            "its rows with its own client, and import those",
            kind=ErrorKind.INVALID_NAME,
        )
    try:
        dataset = ds.dataset(folder, format="parquet", partitioning="hive")
        own = [fragment.physical_schema for fragment in dataset.get_fragments()]
        return _counted(dataset.replace_schema(pa.unify_schemas([dataset.schema, *own])))
    except pa.ArrowException as cause:
        raise InvalidInputError(f"cannot read {folder} as Parquet files: {cause}") from cause


def _delta_rows(folder: str) -> FolderRows:
    try:
        deltalake = import_module("deltalake")
        errors = import_module("deltalake.exceptions")
    except ImportError as cause:
        raise UnsupportedError(
            f"{folder} is a Delta table, whose log deltalake reads: pip install 'lsm-assets[delta]'",
            extra="delta",
        ) from cause
    try:
        # Its log alone by deltalake: files read through its own file system now and then end the
        # process by an abort.
        files = SubTreeFileSystem(folder, LocalFileSystem())
        return _counted(deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=files))
    except (errors.DeltaError, pa.ArrowException, OSError) as cause:
        raise UnsupportedError(
            f"cannot read the Delta table {folder}: {cause}; export its rows with Spark, and import those"
        ) from cause


def _counted(data: ds.Dataset) -> FolderRows:
    return FolderRows(data, data.count_rows())
