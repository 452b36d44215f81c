"""Add foreign Parquet files to a table by hard links, in one commit."""

import os
from collections.abc import Iterable, Sequence

from lsm_engine.base.errors import ErrorKind, LsmError, UnsupportedError
from lsm_engine.base.units import UNAWARE_BUCKET_COUNT
from lsm_engine.data_files.linked_file import SourceFile, given_footer, linked_file
from lsm_engine.data_files.writer import DATA_PREFIX, NewFiles, WrittenFile, metas_of
from lsm_engine.dml.write import Write
from lsm_engine.format.commit_message import CommitMessage, DataIncrement, WriteResult
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.table.bucket_context import delete_quietly
from lsm_engine.table.names import names_of
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import staging_on

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
