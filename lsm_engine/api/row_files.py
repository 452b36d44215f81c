"""Files of rows: CSV, JSON lines, Parquet, Arrow and Excel files → one stream of Arrow batches, and back."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from lsm_engine.api.progress import counted_rows
from lsm_engine.base.arguments import checked_options
from lsm_engine.base.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.names import did_you_mean
from lsm_engine.base.record import record
from lsm_engine.table.incoming import ROW_KIND_COLUMN, open_rows
from lsm_engine.types.arrow_types import type_of_field
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.text_columns import (
    TextForms,
    infer_type,
    is_text,
    parse_column,
    plain_rows,
    plain_values,
)
from lsm_engine.types.types import type_text

_STANDARD_STREAM = "-"
"""The path that stands for standard input and standard output."""
_FORMATS = ("parquet", "csv", "jsonl", "arrow", "excel")
_ENDINGS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "csv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".xlsx": "excel", ".xlsm": "excel", ".xlsb": "excel", ".xls": "excel", ".ods": "excel",
}  # fmt: skip
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_BLOCK_BYTES = 8 << 20
_HEAD_BYTES = 64 << 10
_ARROW_FILE = b"ARROW1"
_DELIMITERS = (";", "\t", "|", ",")


class FileOptions(TypedDict, total=False):
    """How files of rows are read and written; what does not concern a format is ignored.

    `format`: parquet, csv, jsonl, arrow or excel; by default what the name ends in. `null_values`: texts that mean
    null in every column; by default an empty text, and in columns that are no text also NA, N/A, NULL and the like.
    `delimiter`: between values, by default a comma, and a tab in .tsv files. `quote`, `escape`: characters; quote by
    default '"'. `header`: whether the first line has the names of columns. `names`: of the columns, in place of those.
    `include_columns`: the columns that are read, of any format; by default all.
    `encoding`: by default UTF-8. `skip_lines`: lines before the header. `decimal_point` and `thousands`: of numbers.
    `date_format`, `time_format`, `timestamp_format`: as of strptime, by default ISO 8601. `sheet`: of Excel files, by
    default the first. `on_error`: "fail", or "skip", which leaves out lines that cannot be read, and writes
    them to the CSV file `rejects` with file, line, column, value and reason.
    """

    format: str | None
    null_values: Sequence[str] | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    header: bool
    names: Sequence[str] | None
    include_columns: Sequence[str] | None
    encoding: str | None
    skip_lines: int
    decimal_point: str | None
    thousands: str | None
    date_format: str | None
    time_format: str | None
    timestamp_format: str | None
    sheet: str | None
    on_error: str | None
    rejects: str | os.PathLike[str] | None


@record
class _FileForm:
    """File options, each with its default."""

    format: str | None = None
    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None
    header: bool = True
    names: tuple[str, ...] = ()
    include_columns: tuple[str, ...] = ()
    encoding: str = "utf8"
    skip_lines: int = 0
    sheet: str | None = None
    texts: TextForms = TextForms()

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> "_FileForm":
        """Return options as a form; InvalidInputError for names and values that are none."""
        option_names = FileOptions.__annotations__
        for name in options:
            if name not in option_names:
                hint = did_you_mean(str(name), option_names)
                raise InvalidInputError(f"files have no option {name!r}{hint}", argument=name)
        several = ("null_values", "names", "include_columns")
        lists = {name: (options[name],) for name in several if isinstance(options.get(name), str)}
        given_values = checked_options({**options, **lists}, FileOptions)
        values = {name: value for name, value in given_values.items() if value not in (None, ())}
        for name, choices in (("format", _FORMATS), ("on_error", ("fail", "skip"))):
            if values.get(name, choices[0]) not in choices:
                raise InvalidInputError(
                    f"{name} is one of {', '.join(choices)}, not {values[name]!r}", argument=name
                )
        for name in ("delimiter", "quote", "escape", "decimal_point"):
            text = values.get(name, " ")
            is_character = len(text) == 1 and text.isascii() and text != "\0"
            if not is_character and (name, text) != ("quote", ""):
                raise InvalidInputError(
                    f"{name} is a single character of ASCII, not {text!r}", argument=name
                )
        names = [name for name in TextForms.__dataclass_fields__ if name in values]
        texts = {name: values.pop(name) for name in names}
        if "null_values" in texts:
            texts["null_values"] = tuple(texts["null_values"])
        values = {
            name: value for name, value in values.items() if name not in ("on_error", "rejects")
        }
        for name in ("names", "include_columns"):
            values[name] = tuple(values.get(name, ()))
        return _FileForm(**values, texts=TextForms(**texts))


# -- Lines that cannot be read ---------------------------------------------------------------------

_REJECTS = pa.schema(
    [
        ("file", pa.string()), ("line", pa.int64()), ("column", pa.string()), ("value", pa.string()),
        ("reason", pa.string()), ("row", pa.string()),
    ]
)  # fmt: skip


class _Rejects:
    """Takes the lines that cannot be read: raises for the first, or writes them to a file."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.are_skipped = options.get("on_error") == "skip"
        self.count = 0
        self._writer: Any = None
        self._path = options.get("rejects")
        if self._path is None:
            return
        if not self.are_skipped:
            raise InvalidInputError("rejects= is a file for on_error='skip'", argument="rejects")
        if os.path.lexists(self._path):
            raise AlreadyExistsError(
                "the file of rejects is there; name another, or move it away", file=str(self._path)
            )

    def add(self, rejects: Mapping[str, Any], hint: str = "") -> None:
        """Take lines, column by column of `_REJECTS`; raise InvalidInputError for the first if none may be skipped.

        `hint`: the advice of the error, which options read other forms.
        """
        count = len(rejects["line"])
        if count == 0:
            return
        table = pa.table(
            {field.name: pa.array(rejects[field.name], field.type) for field in _REJECTS}
        )
        if not self.are_skipped:
            raise _line_error(table.slice(0, 1).to_pylist()[0], hint)
        if self._path is not None:
            if self._writer is None:
                self._writer = pa.csv.CSVWriter(str(self._path), _REJECTS)
            self._writer.write_table(table)
        self.count += count

    def close(self) -> None:
        """Complete the file."""
        if self._writer is not None:
            self._writer.close()


def _line_error(reject: Mapping[str, Any], hint: str) -> InvalidInputError:
    column = "" if reject["column"] is None else f", column {reject['column']!r}"
    facts = {name: reject[name] for name in ("column", "value") if reject[name] is not None}
    return InvalidInputError(
        f"{_shown(reject['file'])}, line {reject['line']}{column}: {reject['reason']}; "
        f"{hint}on_error='skip' leaves such lines out",
        kind=ErrorKind.INVALID_ROWS,
        file=reject["file"],
        line=reject["line"],
        **facts,
    )


# -- Reading ---------------------------------------------------------------------------------------


class RowFiles:
    """Rows of files as one stream, which any method takes that takes rows.

    `reader` is the stream as a pyarrow.RecordBatchReader, `row_count` the number of rows, None where it is known at the
    end, and `rejected_count` the number of lines that were left out so far.
    """

    def __init__(
        self, reader: pa.RecordBatchReader, row_count: int | None, rejects: _Rejects | None = None
    ) -> None:
        self.reader = reader
        self.row_count = row_count
        self._rejects = rejects

    @property
    def rejected_count(self) -> int:
        """Lines that were left out so far, because they cannot be read."""
        return 0 if self._rejects is None else self._rejects.count

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.reader.read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<RowFiles {', '.join(self.reader.schema.names)}>"


class _Stream(NamedTuple):
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    row_count: int | None = None


class _Target(NamedTuple):
    """The columns that rows are read for; None: those of the file. `required` may not be null."""

    schema: pa.Schema | None
    required: frozenset[str] = frozenset()

    def type_of(self, name: str) -> pa.DataType | None:
        """Return the type of a column; None for one that is not there."""
        index = -1 if self.schema is None else self.schema.get_field_index(name)
        return None if index < 0 or self.schema is None else self.schema.field(index).type


def read_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: Any = None,
    *,
    progress: bool = False,
    **options: Unpack[FileOptions],
) -> RowFiles:
    """Open CSV, JSON lines, Parquet, Arrow or Excel files, one after the other as one stream of rows.

    Args:
        paths: One file, or several; those of text may be compressed (.gz, .bz2, .zst, .lz4). "-" is standard input.
        table: The table, its schema or a pyarrow.Schema, whose types the values of CSV and JSON are read as. Without it types are inferred from the first
            block of rows.
        progress: Show in a notebook or a terminal how many rows have been taken.
        options: How the files are written, see `FileOptions`.

    Returns:
        The rows, for `upsert`, `append`, `merge` and the like, or `to_arrow()`. Columns that a file lacks are null.

    Raises:
        InvalidInputError: A file is not what it seems, or has a value that does not fit; the message names file,
            line, column and value. Values are read as the stream is.
        StorageError: A file cannot be read.
        UnsupportedError: An Excel file without the extra `excel`.
    """
    form, rejects = _FileForm.from_options(options), _Rejects(options)
    files = _paths_of(paths)
    target = _target_of(table)
    streams = [
        _included(path, _guarded(path, _open, path, form, target, rejects), form.include_columns)
        for path in files
    ]
    try:
        schema = pa.unify_schemas([stream.schema for stream in streams])
    except pa.ArrowException as cause:
        raise InvalidInputError(f"the files do not go together: {cause}") from cause
    counts = [stream.row_count for stream in streams]

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for path, stream in zip(files, streams, strict=True):
                yield from _aligned(path, stream.batches, schema)
        finally:
            rejects.close()

    return RowFiles(
        pa.RecordBatchReader.from_batches(
            schema, counted_rows(batches()) if progress else batches()
        ),
        None if None in counts else sum(count for count in counts if count is not None),
        rejects,
    )


def _paths_of(paths: Any) -> list[str]:
    names = [paths] if isinstance(paths, str | os.PathLike) else paths
    is_list = isinstance(names, Sequence) and all(
        isinstance(name, str | os.PathLike) for name in names
    )
    if not is_list or not names:
        raise InvalidInputError(
            "paths are one file, or a list of at least one",
            argument="paths",
            given=type(paths).__name__,
        )
    return [os.fspath(name) for name in names]


def _included(path: str, stream: _Stream, names: Sequence[str]) -> _Stream:
    """Return the stream with these columns alone; without names, as it is."""
    if not names:
        return stream
    absent = [name for name in names if name not in stream.schema.names]
    if absent:
        raise InvalidInputError(
            f"{_shown(path)} has no column {absent[0]!r}, which include_columns names",
            kind=ErrorKind.NO_SUCH_COLUMN,
            columns=stream.schema.names,
        )
    schema = pa.schema([stream.schema.field(name) for name in names])
    return stream._replace(schema=schema, batches=(batch.select(names) for batch in stream.batches))


def _target_of(table: Any) -> _Target:
    if table is None or isinstance(table, pa.Schema):
        return _Target(table)
    schema = table if isinstance(table, TableSchema) else getattr(table, "schema", None)
    if not isinstance(schema, TableSchema):
        raise InvalidInputError(
            "table= is a table, its schema, or a pyarrow.Schema",
            argument="table",
            given=type(table).__name__,
        )
    required = {
        field.name
        for field in schema.fields
        if not field.type.nullable and field.default_value is None
    }
    return _Target(schema.arrow, frozenset(required | set(schema.primary_keys)))


def _aligned(
    path: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    while (batch := _guarded(path, next, batches, None)) is not None:
        if batch.schema != schema:
            columns = [
                batch.column(field.name)
                if field.name in batch.schema.names
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        yield batch


def _shown(path: str) -> str:
    return "standard input" if path == _STANDARD_STREAM else path


def _guarded(path: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step of reading; an error names the file that failed."""
    try:
        return work(*arguments)
    except FileNotFoundError as cause:
        raise InvalidInputError(
            f"there is no file {_shown(path)}", kind=ErrorKind.INVALID_NAME
        ) from cause
    except (StorageError, UnsupportedError, InvalidInputError):
        # These name the file already.
        raise
    except OSError as cause:
        raise StorageError(f"cannot read {_shown(path)}: {cause}") from cause
    except LookupError as cause:
        raise InvalidInputError(
            f"cannot read {_shown(path)}: {cause}; names are those of Python, such as encoding='latin1', "
            "'cp1252' or 'utf-16'"
        ) from cause
    except (pa.ArrowException, UnicodeDecodeError) as cause:
        reason = str(cause).splitlines()[0]
        if "UTF8" in reason or isinstance(cause, UnicodeDecodeError):
            raise InvalidInputError(
                f"{_shown(path)} has bytes that are not text of its encoding; encoding='latin1', "
                "'cp1252' or 'utf-16' reads other encodings"
            ) from cause
        raise InvalidInputError(f"cannot read {_shown(path)} as rows: {reason}") from cause
    except (ValueError, OverflowError) as cause:
        # An option that no reader takes.
        raise InvalidInputError(f"cannot read {_shown(path)}: {cause}") from cause


def _format_of(path: str) -> str:
    """Return the format that a file's name ends in; InvalidInputError for none of ours."""
    if path == _STANDARD_STREAM:
        raise InvalidInputError(
            "standard input and output need --format, one of csv, jsonl, arrow",
            kind=ErrorKind.INVALID_NAME,
        )
    name = Path(path).name.lower()
    for ending in _COMPRESSIONS:
        name = name.removesuffix(ending)
    file_format = _ENDINGS.get(Path(name).suffix)
    if file_format is None:
        raise InvalidInputError(
            f"the name of {path} has no known extension; give --format {'|'.join(_FORMATS)}",
            kind=ErrorKind.INVALID_NAME,
        )
    return file_format


def _open(path: str, form: _FileForm, target: _Target, rejects: _Rejects) -> _Stream:
    if path != _STANDARD_STREAM and Path(path).is_dir():
        raise InvalidInputError(f"{path} is a directory; name the files in it, such as {path}/*")
    if path != _STANDARD_STREAM and not Path(path).exists():
        raise FileNotFoundError(path)
    file_format = form.format or _format_of(path)
    if path == _STANDARD_STREAM and file_format in ("parquet", "excel"):
        raise InvalidInputError(
            f"{file_format.capitalize()} cannot be read from standard input; name its file"
        )
    if file_format == "parquet":
        file = pq.ParquetFile(path)
        return _Stream(file.schema_arrow, file.iter_batches(), file.metadata.num_rows)
    if file_format == "arrow":
        return _open_arrow(path)
    lines: _CsvFile | _JsonFile | _ExcelFile
    if file_format == "excel":
        lines = _ExcelFile(path, form, target, rejects)
    elif file_format == "csv":
        lines = _CsvFile(path, form, target, rejects)
    else:
        lines = _JsonFile(path, form, target, rejects)
    return _Stream(lines.schema, lines.batches())


def _open_arrow(path: str) -> _Stream:
    if path == _STANDARD_STREAM:
        stream = pa.ipc.open_stream(_standard_input())
        return _Stream(stream.schema, iter(stream))
    source = pa.memory_map(path)
    if source.read(len(_ARROW_FILE)) != _ARROW_FILE:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return _Stream(stream.schema, iter(stream))
    file = pa.ipc.open_file(source)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return _Stream(file.schema, batches)


def _standard_input() -> Any:
    return sys.stdin.buffer


def _text_stream(path: str, encoding: str) -> Any:
    """Return the bytes of a file of text, not compressed, in UTF-8."""
    if path == _STANDARD_STREAM:
        stream = pa.PythonFile(_standard_input(), mode="r")
    else:
        stream = pa.input_stream(path, compression="detect")
    if encoding.lower().replace("-", "").replace("_", "") in ("utf8", "ascii"):
        return stream
    return pa.transcoding_input_stream(stream, encoding, "utf8")


class _TypedLines:
    """Turns columns of text into those of the target, and hands on lines that do not fit."""

    def __init__(self, path: str, form: _FileForm, target: _Target, rejects: _Rejects) -> None:
        self._path = path
        self._form = form
        self._target = target
        self._rejects = rejects
        self.schema = pa.schema([])

    def _typed_schema(
        self, sample: pa.RecordBatch | pa.Table | None, names: Sequence[str]
    ) -> pa.Schema:
        fields = []
        for name in names:
            kind = self._target.type_of(name)
            if kind is None:
                texts = None if sample is None else sample.column(name)
                if isinstance(texts, pa.ChunkedArray):
                    texts = texts.combine_chunks()
                if texts is not None and not is_text(texts.type):
                    kind = texts.type
                else:
                    kind = pa.string() if texts is None else infer_type(texts, self._form.texts)
            fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def _typed(self, batch: pa.RecordBatch, line_numbers: Callable[[Any], Any]) -> pa.RecordBatch:
        """Return a batch typed as the schema; `line_numbers` gives the line of each place in the batch."""
        columns, wrong_rows = [], None
        for index, field in enumerate(self.schema):
            texts, wrong, reason = batch.column(index), None, _reason(field)
            if not is_text(texts.type):
                columns.append(texts if texts.type == field.type else texts.cast(field.type))
                continue
            nulls = self._form.texts.null_values or ()
            if is_text(field.type) and nulls:
                texts = pc.if_else(pc.is_in(texts, pa.array(nulls)), None, texts)
            values, wrong = parse_column(texts, field.type, self._form.texts)
            columns.append(values)
            if field.name in self._required and values.null_count:
                reason = "no value, and the column may not be null" if wrong is None else reason
                wrong = pc.is_null(values)
            if wrong is None:
                continue
            if wrong_rows is not None:
                # A line is left out once, for its first value that does not fit.
                wrong = pc.and_(wrong, pc.invert(wrong_rows))
            self._reject(batch, field.name, wrong, line_numbers, reason)
            wrong_rows = wrong if wrong_rows is None else pc.or_(wrong_rows, wrong)
        typed = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return typed if wrong_rows is None else typed.filter(pc.invert(wrong_rows))

    @property
    def _required(self) -> frozenset[str]:
        # A row that deletes has its key, and may have nothing else.
        return frozenset() if ROW_KIND_COLUMN in self.schema.names else self._target.required

    def _reject(
        self, batch: pa.RecordBatch, column: str, wrong: pa.Array, line_numbers: Callable[[Any], Any], reason: str
    ) -> None:  # fmt: skip
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        rows = batch.take(pa.array(places))
        values = rows.column(column)
        quoted = pc.binary_join_element_wise("'", values.cast(pa.string()), "' ", "")
        texts = [part.cast(pa.string()) for part in rows.columns]
        self._rejects.add(
            {
                "file": [self._path] * len(places),
                "line": line_numbers(places),
                "column": [column] * len(places),
                "value": values.cast(pa.string()),
                "reason": pc.binary_join_element_wise(
                    pc.fill_null(quoted, ""), reason, "", null_handling="replace"
                ),
                "row": pc.binary_join_element_wise(
                    *texts, self._form.delimiter or ",", null_handling="replace"
                ),
            },
            _hint(self.schema.field(column).type),
        )


def _reason(field: pa.Field) -> str:
    try:
        kind = type_text(type_of_field(field.with_nullable(True)))  # noqa: FBT003
    except (InvalidInputError, UnsupportedError):
        kind = str(field.type)
    return f"is not of type {kind}"


def _hint(kind: pa.DataType) -> str:
    """Return the options that read other forms of a type, for an error."""
    if pa.types.is_date(kind):
        return "other forms than 2026-06-30 need date_format='%d.%m.%Y' or the like; "
    if pa.types.is_time(kind):
        return "other forms than 17:30:00 need time_format='%H.%M' or the like; "
    if pa.types.is_timestamp(kind):
        return (
            "other forms than 2026-06-30 17:30 need timestamp_format='%d.%m.%Y %H:%M' or the like; "
        )
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return "decimal_point=',' and thousands='.' read other forms; "
    return ""


class _CsvFile(_TypedLines):
    """A CSV file: text by PyArrow's reader, then typed; the line of each row is known."""

    def __init__(self, path: str, form: _FileForm, target: _Target, rejects: _Rejects) -> None:
        super().__init__(path, form, target, rejects)
        if form.delimiter is None:
            name = path.lower()
            for ending in _COMPRESSIONS:
                name = name.removesuffix(ending)
            self._delimiter = "\t" if name.endswith(".tsv") else ","
        else:
            self._delimiter = form.delimiter
        self._first_row = form.skip_lines + form.header + 1
        self._row_count = 0
        self._newline_count = 0
        self._invalid_rows: list[Any] = []
        self._reported_count = 0
        self._stream = _text_stream(path, form.encoding)
        self._head = _head_of(self._stream, form.skip_lines)
        self._columns = self._names(self._head)
        # Values of columns that are not asked for reject no line.
        included = [name for name in self._columns if name in form.include_columns] or self._columns
        self._included = included
        self._reader: Any = None
        # Types that the table has need no look at rows: of many files one at a time is held.
        is_typed = all(target.type_of(name) is not None for name in included)
        self._first = None if is_typed else self._next()
        self.schema = self._typed_schema(self._first, included)

    def _open_reader(self) -> Any:
        return pa.csv.open_csv(
            _JoinedStream(self._head, self._stream),
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES,
                use_threads=False,  # with threads the numbers of rows are not known
                skip_rows=self._form.skip_lines + self._form.header,
                column_names=self._columns,
            ),
            parse_options=self._parse_options(),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(self._columns, pa.string()),
                include_columns=self._included,
                null_values=[""]
                if self._form.texts.null_values is None
                else self._form.texts.null_values,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _parse_options(self) -> Any:
        def keep(row: Any) -> str:
            self._invalid_rows.append(row)
            return "skip"

        return pa.csv.ParseOptions(
            delimiter=self._delimiter,
            quote_char=self._form.quote or False,
            escape_char=self._form.escape or False,
            newlines_in_values=True,
            ignore_empty_lines=False,  # they count as lines
            invalid_row_handler=keep,
        )

    def _names(self, head: bytes) -> list[str]:
        options = pa.csv.ReadOptions(
            skip_rows=self._form.skip_lines, autogenerate_column_names=not self._form.header
        )
        reader = pa.csv.open_csv(
            pa.BufferReader(head), read_options=options, parse_options=self._parse_options()
        )
        self._invalid_rows.clear()
        names: list[str] = reader.schema.names
        chosen = self._form.names
        if not chosen and not self._form.header and self._target.schema is not None:
            chosen = tuple(self._target.schema.names)
        if chosen:
            if len(chosen) != len(names):
                raise InvalidInputError(
                    f"{_shown(self._path)} has {len(names)} columns, and {len(chosen)} names are given",
                    columns=list(chosen),
                )
            return list(chosen)
        delimiters = [sign for sign in _DELIMITERS if sign != self._delimiter and sign in names[0]]
        if len(names) == 1 and delimiters and self._target.type_of(names[0]) is None:
            raise InvalidInputError(
                f"{_shown(self._path)} has the single column {names[0]!r}; delimiter={delimiters[0]!r} reads "
                "several columns",
                kind=ErrorKind.NO_SUCH_COLUMN,
            )
        return names

    def _next(self) -> pa.RecordBatch | None:
        if self._reader is None:
            self._reader = self._open_reader()
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            # The end of a stream is a value here.
            return None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield typed batches."""
        batch, self._first = self._next() if self._first is None else self._first, None
        while batch is not None:
            newlines = _newlines_before(batch)
            self._report_invalid(batch.num_rows, newlines)
            first_place = self._row_count

            def line_numbers(
                places: Any, newlines: Any = newlines, first: int = first_place
            ) -> Any:
                lines = self._row_numbers(first + places) + self._newline_count
                return lines if newlines is None else lines + newlines[places]

            filled = _without_blank_rows(batch, line_numbers)
            yield self._typed(*filled)
            self._row_count += batch.num_rows
            self._newline_count += 0 if newlines is None else int(newlines[-1])
            batch = self._next()
        self._report_invalid(0, None)

    def _row_numbers(self, places: Any) -> Any:
        """Return the numbers of rows, of which invalid ones are not among the batches."""
        numbers = np.array([row.number for row in self._invalid_rows], np.int64)
        rows = self._first_row + places
        return rows + np.searchsorted(numbers - np.arange(len(numbers)), rows, side="right")

    def _report_invalid(self, row_count: int, newlines: Any) -> None:
        """Reject the rows with too many or too few values that lie before the end of a batch."""
        end = self._row_count + row_count
        for row in self._invalid_rows[self._reported_count :]:
            place = row.number - self._first_row - self._reported_count
            if row_count and place > end:
                return
            self._reported_count += 1
            line = row.number + self._newline_count
            line += 0 if newlines is None else int(newlines[place - self._row_count])
            expected, actual = row.expected_columns, row.actual_columns
            self._rejects.add(
                {
                    "file": [self._path],
                    "line": [line],
                    "column": [None],
                    "value": [None],
                    "reason": [f"{actual} values where {expected} are expected: {row.text!r}"],
                    "row": [row.text],
                }
            )


def _newlines_before(batch: pa.RecordBatch) -> Any:
    """Return how many line ends values have before each row, and in all; None without any."""
    counts = None
    for column in batch.columns:
        newlines = pc.fill_null(pc.count_substring(column, "\n"), 0)
        if pc.any(pc.greater(newlines, 0)).as_py():
            counts = newlines if counts is None else pc.add(counts, newlines)
    if counts is None:
        return None
    return np.concatenate([[0], np.cumsum(counts.to_numpy())])


def _without_blank_rows(
    batch: pa.RecordBatch, line_numbers: Callable[[Any], Any]
) -> tuple[pa.RecordBatch, Callable[[Any], Any]]:
    """Return a batch without the rows that have no value, such as empty lines, and the lines of the others."""
    columns = batch.columns
    if not columns or any(column.null_count == 0 for column in columns):
        return batch, line_numbers
    blank = pc.is_null(columns[0])
    for column in columns[1:]:
        blank = pc.and_(blank, pc.is_null(column))
    if not pc.any(blank).as_py():
        return batch, line_numbers
    valued = np.flatnonzero(~blank.to_numpy(zero_copy_only=False))
    return batch.take(pa.array(valued)), lambda places: line_numbers(valued[places])


def _head_of(stream: Any, skip_lines: int) -> bytes:
    """Return the beginning of a stream, which has the header."""
    head = b""
    while head.count(b"\n") <= skip_lines + 1 and (block := stream.read(_HEAD_BYTES)):
        head += block
    return head


class _JoinedStream:
    """A file that PyArrow reads: bytes that were read before, then the rest of their stream."""

    closed = False

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, none at the end."""
        if self._head:
            block = self._head if size < 0 else self._head[:size]
            self._head = self._head[len(block) :]
            return block
        data: bytes = self._stream.read(size) if size >= 0 else self._stream.read()
        return data


class _JsonFile(_TypedLines):
    """A file of JSON lines, read block by block, so that the line of a value that does not fit is known."""

    def __init__(self, path: str, form: _FileForm, target: _Target, rejects: _Rejects) -> None:
        super().__init__(path, form, target, rejects)
        self._stream = _text_stream(path, form.encoding)
        self._line_count = 0
        self._partial_line = b""
        self._stored: pa.Schema | None = None
        self._is_typed = False
        if target.schema is not None:
            self._stored = pa.schema(
                [(field.name, _json_type(field.type)) for field in target.schema]
            )
        self._first = self._next()
        stored = self._first[0] if self._first is not None else None
        if stored is not None:
            self._stored, self._is_typed = stored.schema, True
        self.schema = pa.schema(
            [
                pa.field(field.name, target.type_of(field.name) or field.type)
                for field in self._stored or ()
            ]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield typed batches."""
        block, self._first = self._first, None
        while block is not None:
            rows, lines = block
            for batch in rows.combine_chunks().to_batches():
                yield self._typed(batch, lines.__getitem__)
            block = self._next()

    def _next(self) -> tuple[pa.Table, Any] | None:
        """Return the rows of the next block, each with its line; None at the end."""
        while True:
            block = self._stream.read(_BLOCK_BYTES)
            text = self._partial_line + block
            end = text.rfind(b"\n") + 1 if block else len(text)
            self._partial_line = text[end:]
            text = text[:end]
            if not self._line_count and text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
                raise InvalidInputError(
                    f"{_shown(self._path)} is one JSON array; write an object per line, as "
                    "jq -c '.[]' does"
                )
            if text.strip():
                rows = self._rows(text)
                if rows[0].num_rows:
                    return rows
            if not block:
                return None

    def _rows(self, text: bytes) -> tuple[pa.Table, Any]:
        first_line, lines = self._line_count + 1, text.splitlines(keepends=True)
        self._line_count += len(lines)
        numbers = np.arange(first_line, first_line + len(lines))
        filled = np.fromiter((bool(line.strip()) for line in lines), np.bool_, len(lines))
        try:
            return self._parsed(text), numbers[filled]
        except pa.ArrowException:
            # The lines are parsed in halves, down to those that fail.
            pass
        parts, rows = [(0, len(lines))], []
        while parts:
            start, end = parts.pop()
            part = b"".join(lines[start:end])
            if not part.strip():
                continue
            try:
                rows.append((self._parsed(part), start, end))
            except pa.ArrowException as cause:
                if end - start == 1:
                    filled[start] = False
                    self._reject_line(lines[start], int(numbers[start]), cause)
                    continue
                middle = (start + end) // 2
                parts += [(middle, end), (start, middle)]
        tables = [table for table, _, _ in rows]
        if not tables:
            return pa.table({}), numbers[:0]
        return pa.concat_tables(tables, promote_options="default"), numbers[filled]

    def _parsed(self, text: bytes) -> pa.Table:
        return pa.json.read_json(
            pa.BufferReader(text),
            read_options=pa.json.ReadOptions(block_size=len(text) + 1, use_threads=False),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self._stored,
                unexpected_field_behavior="error" if self._is_typed else "infer",
            ),
        )

    def _reject_line(self, line: bytes, number: int, cause: pa.ArrowException) -> None:
        text = line.decode(errors="replace").strip()
        match = re.search(r"Column\(/([^)/]+)", str(cause))
        column, value, reason = None, None, str(cause).splitlines()[0]
        if match is not None and (kind := self._target.type_of(match[1])) is not None:
            column = match[1]
            value = json.dumps(json.loads(text).get(column))
            reason = f"{value} {_reason(pa.field(column, kind))}"
        self._rejects.add(
            {
                "file": [self._path],
                "line": [number],
                "column": [column],
                "value": [value],
                "reason": [reason],
                "row": [text],
            }
        )


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Return what the JSON reader parses into: text for what is then parsed as CSV's cells are."""
    is_parsed = (
        pa.types.is_temporal(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
    return pa.string() if is_parsed else kind


class _ExcelFile(_TypedLines):
    """A sheet of an Excel file; cells of text in columns of other types are read as CSV's are."""

    def __init__(self, path: str, form: _FileForm, target: _Target, rejects: _Rejects) -> None:
        super().__init__(path, form, target, rejects)
        try:
            fastexcel = import_module("fastexcel")
        except ImportError as cause:
            raise UnsupportedError(
                f"{path} is an Excel file: pip install 'lsm-assets[excel]' reads it", extra="excel"
            ) from cause
        try:
            sheet = fastexcel.read_excel(path).load_sheet(
                form.sheet or 0,
                header_row=form.skip_lines if form.header else None,
                column_names=list(form.names) or None,
                schema_sample_rows=None,
            )
        except fastexcel.FastExcelError as cause:
            raise InvalidInputError(
                f"cannot read {path} as an Excel file: {str(cause).splitlines()[0]}", file=path
            ) from cause
        self._rows = pa.table(sheet).combine_chunks()
        self._first_row = form.skip_lines + form.header + 1
        self.schema = self._typed_schema(self._rows, self._rows.column_names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield typed batches."""
        for batch in self._rows.to_batches():
            yield self._typed(*_without_blank_rows(batch, lambda places: self._first_row + places))


# -- Writing ---------------------------------------------------------------------------------------


def write_file(rows: Any, path: str | os.PathLike[str], **options: Unpack[FileOptions]) -> int:
    """Write rows to a new CSV, JSON lines, Parquet or Arrow file, whole or not at all; return their number.

    Args:
        rows: A table, a scan, or what `upsert` takes.
        path: The file, which must not be there. Names that end in .gz, .bz2, .zst or .lz4 are compressed; "-" is standard
            output.
        options: See `FileOptions`: `format`; of CSV `delimiter`, `header`, `null_values` (the first is written), `quote`
            ("" writes none), `date_format`, `time_format`, `timestamp_format` and `decimal_point`.

    Raises:
        AlreadyExistsError: The file is there.
        InvalidInputError: The format cannot hold a column.
        StorageError: The file cannot be written.
    """
    return write_rows(rows, path, options)


def write_rows(rows: Any, path: str | os.PathLike[str], options: Mapping[str, Any]) -> int:
    """Write rows as `write_file` does."""
    if not isinstance(options, Mapping):
        raise InvalidInputError(
            "form= is a mapping of options of files, such as {'delimiter': ';'}", argument="form"
        )
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError("path= is a file", argument="path", given=type(path).__name__)
    form, file = _FileForm.from_options(options), os.fspath(path)
    file_format = form.format or _format_of(file)
    if file_format == "excel":
        raise UnsupportedError("rows are not written to Excel files; write csv", format="excel")
    if file != _STANDARD_STREAM and os.path.lexists(file):
        raise AlreadyExistsError("the file is there; name another, or move it away", file=file)
    reader, count = open_rows(rows), 0
    try:
        with _sink(file) as sink, _writer(sink, file_format, reader.schema, form) as write:
            for batch in reader:
                write(batch)
                count += batch.num_rows
    except pa.ArrowException as cause:
        raise InvalidInputError(
            f"these columns do not go into a {file_format} file: {cause}"
        ) from cause
    return count


@contextmanager
def _sink(file: str) -> Iterator[Any]:
    """Yield a stream of bytes; the file gets its name at the end, and none if something fails."""
    if file == _STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = f"{file}.part"
    try:
        compression = _COMPRESSIONS.get(Path(file).suffix.lower())
        with pa.output_stream(part, compression=compression) as sink:
            yield sink
        # The name appears only once the file is complete.
        os.rename(part, file)
    except OSError as cause:
        raise StorageError(f"cannot write {file}: {cause}") from cause
    finally:
        Path(part).unlink(missing_ok=True)


@contextmanager
def _writer(sink: Any, file_format: str, schema: pa.Schema, form: _FileForm) -> Iterator[Any]:
    """Yield a function that writes a batch."""
    if file_format == "jsonl":
        yield lambda batch: sink.write(
            "".join(
                f"{json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)}\n"
                for row in plain_rows(batch)
            ).encode()
        )
    elif file_format == "parquet":
        with pq.ParquetWriter(sink, schema) as writer:
            yield writer.write_batch
    elif file_format == "arrow":
        with pa.ipc.new_file(sink, schema) as writer:
            yield writer.write
    else:
        text_options = {"quoting_style": "needed" if form.quote else "none"}
        if form.texts.null_values:
            text_options["null_string"] = form.texts.null_values[0]
        options = pa.csv.WriteOptions(
            include_header=form.header, delimiter=form.delimiter or ",", **text_options
        )
        text_schema = _as_text(pa.RecordBatch.from_pylist([], schema), form.texts).schema
        with pa.csv.CSVWriter(sink, text_schema, write_options=options) as writer:
            yield lambda batch: writer.write_batch(_as_text(batch, form.texts))


def _as_text(batch: pa.RecordBatch, forms: TextForms) -> pa.RecordBatch:
    """Return a batch whose values that are not written as PyArrow writes them are text."""
    return pa.RecordBatch.from_arrays(
        [_column_as_text(column, forms) for column in batch.columns], names=batch.schema.names
    )


def _column_as_text(column: pa.Array, forms: TextForms) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind) and forms.date_format:
        return pc.strftime(column, forms.date_format)
    if pa.types.is_timestamp(kind) and forms.timestamp_format:
        # With fractions %S would have them, which strptime does not read.
        return pc.strftime(
            column.cast(pa.timestamp("s", kind.tz), safe=False), forms.timestamp_format
        )
    if pa.types.is_time(kind) and forms.time_format:
        seconds = column.cast(pa.time32("s"), safe=False).cast(pa.int32()).cast(pa.int64())
        return pc.strftime(seconds.cast(pa.timestamp("s")), forms.time_format)
    if forms.decimal_point != "." and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return pc.replace_substring(column.cast(pa.string()), ".", forms.decimal_point)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(plain_values(column), pa.string())
    return column
