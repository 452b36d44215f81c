"""The formats of data files behind one protocol: known by the extension, chosen by the options."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.data_files.avro import AvroFile, AvroOutput, check_avro
from lsm_engine.data_files.columns import file_schema
from lsm_engine.data_files.orc import OrcFile, OrcOutput
from lsm_engine.data_files.parquet import ColumnBounds, ParquetFile
from lsm_engine.data_files.parquet_output import ParquetEncoding, ParquetSettings
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileFormat
from lsm_engine.options.table_options import TableOptions
from lsm_engine.storage.checksum import ExpectedChecksums, check_whole, parquet_footer
from lsm_engine.types.table_schema import TableSchema


class StoredFile(Protocol):
    """An open file: its columns as they are stored, in groups of rows that fit in memory."""

    schema: pa.Schema
    group_rows: tuple[int, ...]

    def read_group(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of one group; there may be more columns than asked for."""
        ...

    def read_rows(self, group: int, names: Sequence[str], rows: Longs) -> pa.Table:
        """Return columns of some rows of one group, by position, which ascend; decodes few others."""
        ...

    def bounds(self, name: str, /) -> ColumnBounds | None:
        """Return what is known per group of a column, in its stored type."""
        ...

    def keep_dictionaries(self) -> None:
        """Return text that is stored by dictionary as such from now on.

        For readers that drop rows before they look at them: there is less to copy.
        """
        ...


class DataOutput(Protocol):
    """A file being written; its sink is closed by its owner."""

    def append(self, group: Any, /) -> None:
        """Append what the encoding of this file made of rows."""
        ...

    def close(self) -> "pq.FileMetaData | None":
        """Finish the file; returns its footer where that knows the columns' statistics."""
        ...

    def abandon(self) -> None:
        """Forget the file: nothing more reaches the sink."""
        ...


class FooterOf(Protocol):
    """Returns the footer of a Parquet file as `parquet_footer` does."""

    def __call__(self, source: Any, expected: int | None, *, file_name: str) -> "pq.FileMetaData":
        """Return the footer of an open file."""
        ...


class DataEncoding(Protocol):
    """How rows become files of one format."""

    def encode(self, rows: pa.Table) -> Any:
        """Return rows of exactly the file's schema as an output appends them, in any thread."""
        ...

    def open(self, sink: Any) -> DataOutput:
        """Start a file."""
        ...


class _InOrder:
    """A format whose outputs encode as they append, each group where the last one ended."""

    def __init__(self, start: Callable[[Any], DataOutput]) -> None:
        self._start = start

    def encode(self, rows: pa.Table) -> pa.Table:
        """The rows as they are."""
        return rows

    def open(self, sink: Any) -> DataOutput:
        """Start a file."""
        return self._start(sink)


def format_of(file_name: str) -> FileFormat:
    """Return the format that a file's extension names; raises UnsupportedError for others."""
    extension = file_name.rpartition(".")[2]
    for file_format in FileFormat:
        if file_format.value == extension:
            return file_format
    # A new format of another client must not be read as one that looks like it.
    raise UnsupportedError(
        "data files end in .parquet, .orc or .avro; this name does not",
        kind=ErrorKind.UNSUPPORTED_FORMAT,
        option=core_options.FILE_FORMAT.key,
        value=extension,
        file=file_name,
    )


def check_formats(schema: TableSchema) -> None:
    """Raise UnsupportedError for columns or compressions that a format of some level does not have.

    Levels are those that `file.format.per.level` and `file.compression.per.level` name, and the rest.
    """
    options = schema.options
    own = (
        *options[core_options.FILE_FORMAT_PER_LEVEL],
        *options[core_options.FILE_COMPRESSION_PER_LEVEL],
    )
    listed_levels = {level for level, _ in own}
    default_level = next(
        level for level in range(len(listed_levels) + 1) if level not in listed_levels
    )
    for level in sorted({*listed_levels, default_level}):
        if options.file_format(level).policy.decodes_whole:
            check_avro(file_schema(schema), options.file_compression(level))


def open_stored(
    source: Any,
    path: str,
    expected: ExpectedChecksums,
    *,
    verify_pages: bool,
    footer_of: FooterOf = parquet_footer,
) -> StoredFile:
    """Open a file by its extension, compared with the checksums that are known of it.

    `footer_of` reads a footer in Parquet, or knows it.
    Raises CorruptFileError where they differ, and what PyArrow does where the bytes are wrong.
    """
    file_format = format_of(path)
    if not file_format.policy.has_footer:
        check_whole(source, expected.whole, file_name=path)
    match file_format:
        case FileFormat.PARQUET:
            footer = footer_of(source, expected.footer, file_name=path)
            return ParquetFile(source, footer, verify_checksums=verify_pages)
        case FileFormat.ORC:
            return OrcFile(source, path)
        case FileFormat.AVRO:
            return AvroFile(source, path)


def data_encoding(
    schema: pa.Schema, options: TableOptions, *, level: int, group_bytes: int
) -> DataEncoding:
    """Return how files of a level are written, in the format and compression of the options.

    `group_bytes`: memory of a group of rows. Raises UnsupportedError for columns and compressions that
    the format does not have.
    """
    compression = options.file_compression(level)
    zstd_level = (
        options[core_options.FILE_COMPRESSION_ZSTD_LEVEL] if compression == "zstd" else None
    )
    match options.file_format(level):
        case FileFormat.PARQUET:
            return ParquetEncoding(schema, ParquetSettings.from_options(options, level))
        case FileFormat.ORC:
            return _InOrder(
                partial(OrcOutput, schema=schema, compression=compression, stripe_bytes=group_bytes)
            )
        case FileFormat.AVRO:
            check_avro(schema, compression)
            return _InOrder(
                partial(
                    AvroOutput,
                    schema=schema,
                    compression=compression,
                    compression_level=zstd_level,
                )
            )
