"""Add foreign Parquet files to a table by hard links, in one commit."""

import os
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.errors import (
    ErrorKind,
    InvalidInputError,
    LsmError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import UNAWARE_BUCKET_COUNT, checked_sequence
from lsm_engine.data_files.columns import file_schema
from lsm_engine.data_files.writer import DATA_PREFIX, FooterStats, NewFiles, WrittenFile, metas_of
from lsm_engine.dml.write import Write
from lsm_engine.format.commit_message import CommitMessage, DataIncrement, WriteResult
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.storage.checksum import parquet_checksums
from lsm_engine.storage.file_io import to_storage_error
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.table.bucket_context import delete_quietly
from lsm_engine.table.names import names_of
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import staging_on
from lsm_engine.types.types import Root, ScalarType, type_text

_WITH_LENGTH = (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)
_WIDE_TIME_STORED = "INT96"  # what timestamps finer than microseconds are in, for every reader


def given_footer(source: str, files: NewFiles) -> "pq.FileMetaData":
    """Return the footer of a Parquet file that holds the columns of a table as a writer would store them.

    Raises InvalidInputError, naming file and column, for any other: a column that is missing, is too
    much, has another type, or may be null or longer where the table's may not; StorageError for what cannot be read.
    """
    try:
        footer = pq.read_metadata(source)
        stored = footer.schema.to_arrow_schema()
    except OSError as cause:
        # The storage failed here, so the file itself may be fine.
        raise to_storage_error(source, cause) from cause
    except (pa.ArrowException, ValueError) as cause:
        # The bytes could be read, and they are not Parquet.
        raise InvalidInputError(f"not a Parquet file: {cause}", file=source) from cause
    columns = file_schema(files.schema)
    lengths = {
        field.name: type_text(field.type)
        for field in files.schema.fields
        if isinstance(field.type, ScalarType) and field.type.root in _WITH_LENGTH
    }
    for name in dict.fromkeys((*columns.names, *stored.names)):
        problem = _difference(name, columns, stored, footer)
        if problem is None and name in lengths:
            # A value longer than the column allows would be found only by a read of every row.
            problem = f"is {lengths[name]} in the table, and no footer has the lengths of values"
        if problem is not None:
            raise InvalidInputError(
                f"column {name!r} {problem}: the file cannot be taken over as it is; append its rows, or "
                "import without --link",
                kind=ErrorKind.INVALID_ROWS,
                file=source,
                column=name,
            )
    return footer


def _difference(
    name: str, columns: pa.Schema, stored: pa.Schema, footer: "pq.FileMetaData"
) -> str | None:
    places = stored.get_all_field_indices(name)
    if not places:
        return "is not in the file"
    if name not in columns.names:
        return "is not in the table"
    # Arrow could not choose between columns of the same name.
    if len(places) > 1:
        return "is in the file several times"
    field, own = stored.field(places[0]), columns.field(name)
    if _stored_type(field.type) != _stored_type(own.type):
        return f"is stored as {field.type}, and the table's is {own.type}"
    first = sum(_leaf_count(preceding.type) for preceding in list(stored)[: places[0]])
    leaves = range(first, first + _leaf_count(field.type))
    is_wide = pa.types.is_timestamp(field.type) and field.type.unit == "ns"
    # Readers of the format take nanosecond times only from INT96.
    if is_wide and footer.schema.column(leaves[0]).physical_type != _WIDE_TIME_STORED:
        return f"is stored as whole nanoseconds, and would have to be {_WIDE_TIME_STORED}"
    # A count that the footer lacks is not zero, so the file is refused as well.
    if not own.nullable and field.nullable and _null_count(footer, leaves) != 0:
        return "may be null in the file, and never in the table"
    return None


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return one Arrow type for the types that Parquet stores alike."""
    # Large and view types differ from the plain ones in memory only.
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(
            pa.field("element", _stored_type(kind.value_type), kind.value_field.nullable)
        )
    return kind


def _leaf_count(kind: pa.DataType) -> int:
    """Return the number of Parquet columns of a type."""
    parts = [kind.field(i).type for i in range(kind.num_fields)]
    return sum(map(_leaf_count, parts)) if parts else 1


def _null_count(footer: "pq.FileMetaData", leaves: Sequence[int]) -> int | None:
    """Return the number of nulls by the footer; None if the footer does not count them."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    statistics = [group.column(leaf).statistics for group in groups for leaf in leaves]
    if len(leaves) > 1 or any(chunk is None or not chunk.has_null_count for chunk in statistics):
        # A nested column has several leaves, and their counts do not add up to those of rows.
        return None
    return sum(int(chunk.null_count) for chunk in statistics)


@record
class SourceFile:
    """A file of another writer, by its absolute path, with the footer that was read and checked."""

    path: str
    footer: "pq.FileMetaData"


def linked_file(
    file_io: LocalFileIO,
    source: SourceFile,
    files: NewFiles,
    name: str,
    *,
    now_millis: int,
    first_sequence_number: int,
) -> WrittenFile:
    """Link a file with at least one row into a bucket's directory, read once for its checksums.

    Raises StorageError where the disk takes no link, such as one from another disk, and where another
    file has taken the source's name since its footer was read.
    """
    path, footer = f"{files.directory}/{name}", source.footer
    _link(source.path, path, file_io)
    if not given_footer(file_io.real_path(path), files).equals(footer):
        raise StorageError(
            "the file was replaced while it was taken over; nothing was added, run it again",
            path=source.path,
        )
    with file_io.open_input(path) as source_file:
        checksum, of_footer = parquet_checksums(source_file)
        size = source_file.size()
    rows = footer.num_rows
    checked_sequence(first_sequence_number, rows)
    stored = footer.schema.to_arrow_schema()
    stats = FooterStats(stored, files.schema)
    stats.nan_columns = {field.name for field in stored if pa.types.is_floating(field.type)}
    stats.finish(footer)
    meta = DataFileMeta(
        file_name=name,
        file_size=size,
        row_count=rows,
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=first_sequence_number,
        max_sequence_number=first_sequence_number + rows - 1,
        schema_id=files.schema.id,
        level=files.level,
        creation_millis=now_millis,
        delete_row_count=0,
        file_source=files.file_source,
        checksum=checksum,
        footer_checksum=of_footer,
    )
    return WrittenFile(schema=files.schema, meta=meta, stats=stats, ends=())


def _link(source: str, path: str, file_io: LocalFileIO) -> None:
    real = file_io.real_path(path)
    try:
        # A bucket that is written for the first time has no directory yet.
        os.makedirs(os.path.dirname(real), exist_ok=True)
        os.link(os.path.realpath(source), real)
        # The link is new and in no snapshot yet. An old modification time would make it an orphan file.
        os.utime(real)
    except OSError as cause:
        # A link across disks and a link to a file of another owner both fail here.
        raise StorageError(
            f"cannot link {source}: {cause.strerror}; a link takes a file of one's own, on the disk of "
            "the table. Append its rows, or import without --link",
            path=path,
        ) from cause


# -- Add files -------------------------------------------------------------------------------------

_BUCKET = 0


def add_files(
    session: TableSession,
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    identity: CommitIdentity,
) -> WriteResult | None:
    """Link Parquet files into a table and commit them; return what `Write.land` does, None for no rows.

    All are looked at before the first is linked. Raises UnsupportedError for tables whose files are
    more than the rows that they hold, and errors as of `given_footer` and `linked_file`.
    """
    file_io = _links_of(session)
    write = Write(session, identity)
    base = write.base()
    staging = staging_on(session, base)
    context = staging.context
    files = NewFiles(schema=session.schema, directory=context.bucket_directory(EMPTY_ROW, _BUCKET))
    sources = [
        SourceFile(path=path, footer=given_footer(path, files))
        for path in map(os.path.abspath, _paths(paths))
    ]
    unique, number = context.ids.new_id(), staging.next_sequence_number(EMPTY_ROW, _BUCKET)
    names: list[str] = []
    linked: list[WrittenFile] = []
    try:
        for source in sources:
            # A file without rows would only add an entry to a manifest.
            if source.footer.num_rows == 0:
                continue
            names.append(f"{DATA_PREFIX}{unique}-{len(names)}.parquet")
            linked.append(
                linked_file(
                    file_io,
                    source,
                    files,
                    names[-1],
                    now_millis=context.clock.now_millis(),
                    first_sequence_number=number,
                )
            )
            number += source.footer.num_rows
    except LsmError:
        # The files were taken over in part, and none is committed.
        delete_quietly(file_io, [f"{files.directory}/{name}" for name in names])
        raise
    metas = [
        meta for file_written in linked for meta in metas_of([file_written])
    ]  # each has columns in its own order
    message = CommitMessage(
        partition=EMPTY_ROW,
        bucket=_BUCKET,
        total_buckets=UNAWARE_BUCKET_COUNT,
        data=DataIncrement(new_files=tuple(metas)),
    )
    return write.land([message] if metas else [], planned_on=base)


def _paths(argument: object) -> tuple[str, ...]:
    # A path is text, and text is iterable too.
    if isinstance(argument, str | os.PathLike):
        return (os.fspath(argument),)
    paths = argument if isinstance(argument, Iterable) else (argument,)
    return names_of(
        [os.fspath(path) if isinstance(path, os.PathLike) else path for path in paths], "paths"
    )


def _links_of(session: TableSession) -> LocalFileIO:
    """Return the storage of a table that takes files as they are; UnsupportedError names why another does not."""
    schema, file_io = session.schema, session.file_io
    if schema.has_primary_key:
        reason = "it has a primary key: its files are sorted, and hold what a merge needs"
    elif schema.partition_keys:
        reason = "it is partitioned: its files hold the partition's columns, and rows of one alone"
    elif not schema.bucket_mode.policy.is_unaware:
        reason = "its rows have fixed buckets (bucket)"
    elif schema.tracks_rows:
        reason = "its rows have ids (row-tracking.enabled)"
    elif not isinstance(file_io, LocalFileIO):
        reason = "it does not lie on a disk of this machine"
    else:
        return file_io
    raise UnsupportedError(
        f"the table takes no files as they are, as {reason}; write their rows instead, or import "
        "without --link",
        kind=ErrorKind.UNSUPPORTED_FORMAT,
        table=session.name,
    )
