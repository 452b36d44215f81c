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
from lsm_engine.table.incoming import ROW_KIND_COLUMN, kind_symbols, open_rows
from lsm_engine.types.arrow_types import type_of_field
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.text_columns import (
    TextForms,
    cast_columns,
    form_hint,
    has_other_digits,
    infer_type,
    is_number,
    is_text,
    json_texts,
    json_type,
    newlines_before,
    null_texts,
    parse_column,
    plain_rows,
    texts_of_rows,
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
_LISTS = (
    "null_values",
    "names",
    "include_columns",
    "date_format",
    "time_format",
    "timestamp_format",
)
"""Options that are a list; one text is a list of one."""


class FileOptions(TypedDict, total=False):
    """How files of rows are read and written; what does not concern a format is ignored.

    `format`: parquet, csv, jsonl, arrow or excel; by default what the name ends in. `null_values`: texts that mean
    null in every column; by default, in columns that are no text, NA, N/A, NULL and the like. A CSV cell without
    anything always is null. `column_null_values`: those of single columns, {"price": "NA"}.
    `delimiter`: between values, by default a comma, and a tab in .tsv files. `quote`, `escape`: characters; quote by
    default '"'. `header`: whether the first line has the names of columns. `names`: of the columns, in place of those.
    `include_columns`: the columns that are read, of any format; by default all. `casts`: types of columns, such as
    {"price": "DECIMAL(10, 2)"} of Parquet files with doubles; a value that would change is refused.
    `encoding`: by default UTF-8. `skip_lines`: lines before the header. `decimal_point` and `thousands`: of numbers.
    `date_format`, `time_format`, `timestamp_format`: as of strptime, or several that are tried in turn, by default
    ISO 8601. `sheet`: of Excel files, by default the first. `on_error`: "fail", or "skip", which leaves out lines that
    cannot be read, and writes them to the CSV file `rejects` with file, line, column, value, reason and the line itself.
    """

    format: str | None
    null_values: Sequence[str] | None
    column_null_values: Mapping[str, str | Sequence[str]] | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    header: bool
    names: Sequence[str] | None
    include_columns: Sequence[str] | None
    casts: Mapping[str, str] | None
    encoding: str | None
    skip_lines: int
    decimal_point: str | None
    thousands: str | None
    date_format: str | Sequence[str] | None
    time_format: str | Sequence[str] | None
    timestamp_format: str | Sequence[str] | None
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
    casts: tuple[tuple[str, str], ...] = ()
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
        lists = {name: (options[name],) for name in _LISTS if isinstance(options.get(name), str)}
        given_values = checked_options({**options, **lists}, FileOptions)
        values: dict[str, Any] = {
            name: tuple(value) if name in _LISTS else value
            for name, value in given_values.items()
            if value is not None and (name not in _LISTS or len(value))
        }
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
        texts["column_null_values"] = null_texts(texts.get("column_null_values", {}))
        values["casts"] = tuple(values.get("casts", {}).items())
        for name in ("on_error", "rejects"):
            values.pop(name, None)
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
        self._waiting: list[pa.Table] = []
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
        if self.are_listed:
            self._waiting.append(table)
        self.count += count

    @property
    def are_listed(self) -> bool:
        """Whether a file takes them."""
        return self._path is not None

    def write(self) -> None:
        """Write the lines of a block to the file, in their order."""
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = pa.csv.CSVWriter(str(self._path), _REJECTS)
        self._writer.write_table(pa.concat_tables(self._waiting).sort_by("line"))
        self._waiting = []

    def close(self) -> None:
        """Complete the file."""
        self.write()
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

    `reader` is the stream as a pyarrow.RecordBatchReader, `schema` its columns, `row_count` the number of rows, None
    where it is known at the end, and `rejected_count` the number of lines that were left out so far.
    """

    def __init__(
        self, reader: pa.RecordBatchReader, row_count: int | None, rejects: _Rejects | None = None
    ) -> None:
        self.reader = reader
        self.row_count = row_count
        self._rejects = rejects

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the types of the table or those that the values suggest."""
        return self.reader.schema

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
        _chosen(path, _guarded(path, _open, path, form, target, rejects), form) for path in files
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


def _chosen(path: str, stream: _Stream, form: _FileForm) -> _Stream:
    """Return the columns of a stream that are to be read, in the types that they are to have."""
    names = form.include_columns or stream.schema.names
    absent = [name for name in names if name not in stream.schema.names]
    if absent:
        raise InvalidInputError(
            f"{_shown(path)} has no column {absent[0]!r}, which include_columns names",
            kind=ErrorKind.NO_SUCH_COLUMN,
            columns=stream.schema.names,
        )
    schema, batches = stream.schema, stream.batches
    if form.include_columns:
        schema = pa.schema([schema.field(name) for name in names])
        batches = (batch.select(names) for batch in stream.batches)
    schema, batches = cast_columns(schema, batches, form.casts, _shown(path))
    return stream._replace(schema=schema, batches=batches)


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
            f"there is no file {_shown(path)}", kind=ErrorKind.NO_SUCH_FILE
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


_NO_ROW_KIND = "is no row kind; write +I, -U, +U or -D"
_NO_COLUMN = "is of a column that the table, or the beginning of the file, lacks"
_OTHER_DIGITS = "would lose digits as a number, which the first rows are; a table with a column of text keeps them"


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
                    kind = (
                        pa.string()
                        if texts is None
                        else infer_type(texts, self._form.texts.of_column(name, pa.int64()))
                    )
            fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def _typed(self, batch: pa.RecordBatch, line_numbers: Callable[[Any], Any]) -> pa.RecordBatch:
        """Return a batch typed as the schema; `line_numbers` gives the line of each place in the batch."""
        columns, wrong_rows = [], None
        for name in (*self.schema.names, *self._unknown_columns(batch)):
            if name in self.schema.names:
                values, faults = self._parsed_column(batch.column(name), self.schema.field(name))
                columns.append(values)
            else:
                faults = [(pc.is_valid(batch.column(name)), _NO_COLUMN)]
            for wrong, reason in faults:
                if wrong_rows is not None:
                    # A line is left out once, for its first value that does not fit.
                    wrong = pc.and_(wrong, pc.invert(wrong_rows))
                self._reject(batch, name, wrong, line_numbers, reason)
                wrong_rows = wrong if wrong_rows is None else pc.or_(wrong_rows, wrong)
        self._rejects.write()
        typed = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return typed if wrong_rows is None else typed.filter(pc.invert(wrong_rows))

    def _parsed_column(
        self, texts: pa.Array, field: pa.Field
    ) -> tuple[pa.Array, list[tuple[pa.Array, str]]]:
        """Return a column's values, and masks of those that do not fit, each with the reason."""
        forms, faults = self._form.texts.of_column(field.name, field.type), []
        if not is_text(texts.type):
            values = texts if texts.type == field.type else texts.cast(field.type)
        else:
            if is_text(field.type) and forms.null_values:
                texts = pc.if_else(pc.is_in(texts, pa.array(forms.null_values)), None, texts)
            values, wrong = parse_column(texts, field.type, forms)
            if wrong is not None:
                faults.append((wrong, _reason(field)))
            if self._target.type_of(field.name) is None and is_number(field.type):
                faults.append((has_other_digits(texts, field.type), _OTHER_DIGITS))
        if field.name == ROW_KIND_COLUMN and self._has_kinds and is_text(values.type):
            faults.append((pc.invert(pc.is_in(values, kind_symbols())), _NO_ROW_KIND))
        if field.name in self._required and values.null_count:
            faults.append((pc.is_null(values), "no value, and the column may not be null"))
        return values, faults

    def _unknown_columns(self, batch: pa.RecordBatch) -> list[str]:
        if self._form.include_columns:
            return []
        return [name for name in batch.schema.names if name not in self.schema.names]

    @property
    def _has_kinds(self) -> bool:
        return (
            self._target.schema is not None
            and ROW_KIND_COLUMN in self.schema.names
            and self._target.type_of(ROW_KIND_COLUMN) is None
        )

    @property
    def _required(self) -> frozenset[str]:
        # A row that deletes has its key, and may have nothing else.
        return frozenset() if ROW_KIND_COLUMN in self.schema.names else self._target.required

    def _reject(
        self, batch: pa.RecordBatch, column: str, wrong: pa.Array, line_numbers: Callable[[Any], Any], reason: str
    ) -> None:  # fmt: skip
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        if not len(places):
            return
        rows, lines = batch.take(pa.array(places)), line_numbers(places)
        values = json_texts(rows.column(column))
        quoted = pc.binary_join_element_wise("'", values, "' ", "")
        is_listed = self._rejects.are_listed
        row_texts = self._row_texts(rows, lines) if is_listed else [None] * len(places)
        self._rejects.add(
            {
                "file": [self._path] * len(places),
                "line": lines,
                "column": [column] * len(places),
                "value": values,
                "reason": pc.binary_join_element_wise(
                    pc.fill_null(quoted, ""), reason, "", null_handling="replace"
                ),
                "row": row_texts,
            },
            "" if reason == _NO_COLUMN else form_hint(self.schema.field(column).type),
        )

    def _row_texts(self, rows: pa.RecordBatch, lines: Any) -> Any:
        """Return rows as the file has them, given the first line of each."""
        texts = [json_texts(part) for part in rows.columns]
        return pc.binary_join_element_wise(*texts, ",", null_handling="replace")


def _reason(field: pa.Field) -> str:
    try:
        kind = type_text(type_of_field(field.with_nullable(True)))  # noqa: FBT003
    except (InvalidInputError, UnsupportedError):
        kind = str(field.type)
    return f"is not of type {kind}"


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
        self._joined = _JoinedStream(self._head, self._stream, keeps_lines=rejects.are_listed)
        self._reader: Any = None
        # Types that the table has need no look at rows: of many files one at a time is held.
        is_typed = all(target.type_of(name) is not None for name in included)
        self._first = None if is_typed else self._next()
        self.schema = self._typed_schema(self._first, included)

    def _open_reader(self) -> Any:
        return pa.csv.open_csv(
            self._joined,
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES,
                use_threads=False,  # with threads the numbers of rows are not known
                skip_rows=self._form.skip_lines,
                skip_rows_after_names=int(self._form.header),  # it may break lines, within quotes
                column_names=self._columns,
            ),
            parse_options=self._parse_options(),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(self._columns, pa.string()),
                null_values=["", *(self._form.texts.null_values or ())],
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
        self._newline_count = sum(name.count("\n") for name in names)
        chosen = self._form.names
        if not chosen and not self._form.header and self._target.schema is not None:
            chosen = tuple(self._target.schema.names)
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled and not chosen:
            raise InvalidInputError(
                f"{_shown(self._path)} has several columns {doubled[0]!r}; names=[...] names all columns",
                columns=doubled,
            )
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
        last_row: tuple[int, str | None] = (0, None)
        while batch is not None:
            newlines = newlines_before(batch)
            self._report_invalid(batch.num_rows, newlines)
            first_place = self._row_count

            def line_numbers(
                places: Any, newlines: Any = newlines, first: int = first_place
            ) -> Any:
                lines = self._row_numbers(first + places) + self._newline_count
                return lines if newlines is None else lines + newlines[places]

            filled = _without_blank_rows(batch, line_numbers)
            yield self._typed(*filled)
            if batch.num_rows:
                last_line = int(line_numbers(np.array([batch.num_rows - 1]))[0])
                last_row = last_line, batch.column(batch.num_columns - 1)[-1].as_py()
            self._row_count += batch.num_rows
            self._newline_count += 0 if newlines is None else int(newlines[-1])
            self._joined.forget(int(self._row_numbers(self._row_count)) + self._newline_count)
            batch = self._next()
        self._report_invalid(0, None)
        self._require_closed_quote(*last_row)

    def _require_closed_quote(self, line: int, value: str | None) -> None:
        """Raise InvalidInputError if the value that ends the file has a quote that nothing closes.

        It holds the lines behind it, which are lost as rows: no such line can be left out.
        """
        quote = self._form.quote
        if not quote:
            return
        end = self._joined.end.decode(errors="replace").rstrip("\r\n")
        is_even = (len(end) - len(end.rstrip(quote))) % 2 == 0
        is_open = value is not None and (
            ("\n" in value and is_even)
            or (end.endswith(f"{quote}{value}") and not (is_even and not value))
        )
        if self._invalid_rows and not is_open:
            text, number = self._invalid_rows[-1].text or "", self._invalid_rows[-1].number
            is_last = end.endswith(text.rstrip("\r\n"))
            is_open = is_last and "\n" in text and text.count(quote) % 2 == 1
            line = number + self._newline_count
        if is_open:
            raise InvalidInputError(
                f"{_shown(self._path)}, line {line}: a quote is not closed, so the lines behind it are part of "
                "its value; close it, or quote='' reads quotes as text",
                kind=ErrorKind.INVALID_ROWS,
                file=self._path,
                line=line,
            )

    def _row_texts(self, rows: pa.RecordBatch, lines: Any) -> Any:
        newlines = newlines_before(rows)
        counts = np.zeros(len(lines), np.int64) if newlines is None else np.diff(newlines)
        return self._joined.lines(lines, lines + counts)

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
            reason = f"{actual} values where {expected} are expected: {row.text!r}"
            facts = (self._path, line, None, None, reason, row.text)
            self._rejects.add(dict(zip(_REJECTS.names, ([fact] for fact in facts), strict=True)))


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
    """A file that PyArrow reads: bytes that were read before, then the rest of their stream.

    `keeps_lines`: it holds what was read until `forget`, so that `lines` can return it.
    """

    closed = False

    def __init__(self, head: bytes, stream: Any, *, keeps_lines: bool) -> None:
        self._head = head
        self._stream = stream
        self._line_end = b"\n" if b"\n" in head else b"\r"
        self._blocks: list[bytes] | None = [] if keeps_lines else None
        self._first_line = 1
        self.end = b""

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end: the first block decides about types."""
        block = self._head if size < 0 else self._head[:size]
        self._head = self._head[len(block) :]
        while (size < 0 or len(block) < size) and (
            piece := self._stream.read(max(size - len(block), -1))
        ):
            block += piece
        if self._blocks is not None:
            self._blocks.append(block)
        # The last bytes that were read: a row that ends the file is in them, or longer than a block.
        self.end = block or self.end
        return block

    def lines(self, first: Any, last: Any) -> list[str]:
        """Return the text from each of the first lines to the last that belongs to it."""
        text = b"".join(self._blocks or ())
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == self._line_end[0])
        ends = np.concatenate([[-1], ends, [len(text)]])
        starts = ends[first - self._first_line] + 1
        ends = ends[last - self._first_line + 1]
        return [
            text[start:end].decode(errors="replace").removesuffix("\r")
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]

    def forget(self, line: int) -> None:
        """Drop what was read before a line."""
        while self._blocks:
            line_count = self._blocks[0].count(self._line_end)
            if self._first_line + line_count >= line:
                return
            self._first_line += line_count
            del self._blocks[0]


class _JsonFile(_TypedLines):
    """A file of JSON lines, read block by block, so that the line of a value that does not fit is known."""

    def __init__(self, path: str, form: _FileForm, target: _Target, rejects: _Rejects) -> None:
        super().__init__(path, form, target, rejects)
        self._stream = _text_stream(path, form.encoding)
        self._line_count = 0
        self._partial_line = b""
        self._block_lines: list[bytes] = []
        fields = [field for field in target.schema or () if self._includes(field.name)]
        self._stored = pa.schema([(field.name, json_type(field.type)) for field in fields])
        self._is_typed = False
        self._first = self._next()
        if self._first is not None:
            rows, self._is_typed = self._first[0], True
            self._stored = pa.schema(
                [field for field in rows.schema if self._is_column(rows, field.name)]
            )
        self.schema = pa.schema(
            [(field.name, target.type_of(field.name) or field.type) for field in self._stored]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield typed batches."""
        block, self._first = self._first, None
        while block is not None:
            rows, lines = block
            for batch in rows.combine_chunks().to_batches():
                yield self._typed(batch, lines.__getitem__)
            block = self._next()

    def _includes(self, name: str) -> bool:
        return not self._form.include_columns or name in self._form.include_columns

    def _is_column(self, rows: pa.Table, name: str) -> bool:
        """Whether the first rows give the file this column; one that the table and some rows lack is a fault of the others."""
        is_known = self._target.schema is None or self._target.type_of(name) is not None
        is_known = is_known or name == ROW_KIND_COLUMN or rows.column(name).null_count == 0
        return self._includes(name) and is_known

    def _row_texts(self, rows: pa.RecordBatch, lines: Any) -> Any:
        first_line = self._line_count - len(self._block_lines) + 1
        return [
            self._block_lines[line - first_line].decode(errors="replace").strip() for line in lines
        ]

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
                self._rejects.write()
            if not block:
                return None

    def _rows(self, text: bytes) -> tuple[pa.Table, Any]:
        first_line, lines = self._line_count + 1, text.splitlines(keepends=True)
        self._line_count += len(lines)
        self._block_lines = lines
        numbers = np.arange(first_line, first_line + len(lines))
        filled = np.fromiter((bool(line.strip()) for line in lines), np.bool_, len(lines))
        try:
            return self._parsed(text), numbers[filled]
        except pa.ArrowException:
            # The lines are parsed in halves, down to those that fail.
            pass
        parts, rows, schema = [(0, len(lines))], [], pa.schema([])
        while parts:
            start, end = parts.pop()
            part = b"".join(lines[start:end])
            if not part.strip():
                continue
            try:
                table = self._parsed(part)
                # A line whose value gives a column another type than those before it fails as well.
                schema = pa.unify_schemas([schema, table.schema])
                rows.append(table)
            except pa.ArrowException as cause:
                if end - start == 1:
                    filled[start] = False
                    self._reject_line(lines[start], int(numbers[start]), cause)
                    continue
                middle = (start + end) // 2
                parts += [(middle, end), (start, middle)]
        if not rows:
            return pa.table({}), numbers[:0]
        return pa.concat_tables(rows, promote_options="default"), numbers[filled]

    def _parsed(self, text: bytes) -> pa.Table:
        return pa.json.read_json(
            pa.BufferReader(text),
            read_options=pa.json.ReadOptions(block_size=len(text) + 1, use_threads=False),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self._stored,
                unexpected_field_behavior=("ignore" if self._form.include_columns else "error")
                if self._is_typed
                else "infer",
            ),
        )

    def _reject_line(self, line: bytes, number: int, cause: pa.ArrowException) -> None:
        text = line.decode(errors="replace").strip()
        column, value, reason = self._fault(text)
        reason = reason or re.sub(r",? in row \d+", "", str(cause).splitlines()[0])
        facts = (self._path, number, column, value, reason, text)
        self._rejects.add(dict(zip(_REJECTS.names, ([fact] for fact in facts), strict=True)))

    def _fault(self, text: str) -> tuple[str | None, str | None, str | None]:
        """Return the first column of a line that cannot be read, its value and the reason; None where that is unknown."""
        try:
            row = json.loads(text)
        except ValueError:
            # Arrow's own error names the fault of the line.
            return None, None, None
        if not isinstance(row, dict):
            return None, None, "the line is no JSON object"
        for name, item in row.items():
            value, is_known = json.dumps(item, ensure_ascii=False), name in self._stored.names
            if self._is_typed and not is_known:
                return name, value, f"{value} {_NO_COLUMN}"
            try:
                self._parsed(json.dumps({name: item}).encode())
            except pa.ArrowException:
                if not is_known:
                    # A value that goes into no type, such as a list of a number and a text.
                    return name, value, None
                kind = self._target.type_of(name) or self._stored.field(name).type
                return name, value, f"{value} {_reason(pa.field(name, kind))}"
        return None, None, None


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
        text_schema = texts_of_rows(pa.RecordBatch.from_pylist([], schema), form.texts).schema
        with pa.csv.CSVWriter(sink, text_schema, write_options=options) as writer:
            yield lambda batch: writer.write_batch(texts_of_rows(batch, form.texts))
