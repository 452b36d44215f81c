"""Work on many buckets, handed to the table's executor."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.discard import discard
from lsm_engine.table.ground.session import TableSession

T = TypeVar("T")


def run_tasks(
    session: TableSession,
    context: BucketContext,
    work: Callable[[T], CommitMessage | None],
    items: Sequence[T],
    *,
    verb: str,
) -> list[CommitMessage]:
    """Return what the work on each item has to commit; if any fails, files of the others are deleted.

    `verb` names the work, with the table, where the executor shows it. Raises InvalidOptionError, with nothing
    done, for storage that the executor does not share with this process.
    """
    if not items:
        return []
    executor = session.components.executor
    executor.check_storage(context.file_io)
    return executor.messages(
        work,
        items,
        label=f"{verb} {session.name}",
        discard=partial(discard, context),
        is_far=context.file_io.facts.is_far,
    )
