"""Take staged work back: delete the files of messages that will never be committed."""

import logging
from collections.abc import Iterable, Iterator

from lsm_engine.base.errors import LsmError
from lsm_engine.io.file_io import FileIO
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.table.ground.bucket_context import BucketContext

log = logging.getLogger(__name__)


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
        log.warning("left files behind that nothing names: %s", error)


def staged_files(context: BucketContext, message: CommitMessage) -> Iterator[str]:
    """Yield the files that a message brought. A file that only changed its level is kept."""
    directory = context.bucket_directory(message.partition, message.bucket)
    data, compact = message.data, message.compact
    moved = {file.file_name for file in compact.before}
    for file in (
        *data.new_files,
        *data.changelog_files,
        *(file for file in compact.after if file.file_name not in moved),
        *compact.changelog_files,
    ):
        yield f"{directory}/{file.file_name}"
    for index in (*data.new_index_files, *compact.new_index_files):
        yield context.paths.index_file(index.file_name)
