"""SparkExecutor: the work of many buckets as one Spark job, small buckets packed into tasks.

Work and items travel in the closure of the task. Results come back as commit messages in JSON. No table row passes
through the JVM. The executor uses DataFrame APIs alone, so that it works on Spark Connect.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.dml.write import StageOn
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.spark.jobs import (
    ANSWER_DDL,
    Batches,
    PackedItems,
    attempt,
    check_items,
    map_arrow,
    prepare_worker,
    run,
)
from lsm_engine.spark.merge import staged_merge
from lsm_engine.spark.merge_columns import Sides
from lsm_engine.spark.rows import FileRows, few_rows, local_bytes, plain_files, stage_files
from lsm_engine.spark.session import check_shared, task_attempts
from lsm_engine.spark.staging import check_columns, stage_frame
from lsm_engine.storage.file_io import FileIO
from lsm_engine.table.bucket_context import Staging
from lsm_engine.table.components import Discard, LocalExecutor
from lsm_engine.write.writers import stage_rows

T = TypeVar("T")


class SparkExecutor:
    """Runs the work of many buckets on the executors of a Spark session.

    The session is the caller's, to start and to stop. Executors need this package, and storage that
    they and the driver see under the same paths: on a cluster a path of a disk is refused, unless the
    session has `spark.lsm.shared-disk=true` (docs/spark-clusters.md).
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def __repr__(self) -> str:
        return f"SparkExecutor({self.spark.version})"

    def check_storage(self, file_io: FileIO) -> None:
        """Raise as `check_shared` does: on a cluster tables need storage that all share."""
        check_shared(self.spark, file_io)

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_remote: bool = False,
    ) -> list[CommitMessage]:
        """Return the commit messages of the work on each item; small items share a task.

        A task may be tried several times with all of its items, or twice at once where speculation is on;
        exactly one answer per item is used. The first error is raised, as the LsmError it was, after all tasks
        have ended and their messages were handed to `discard`; TaskFailedError if a task failed
        with anything else: then Spark ends the job, and other tasks' files stay as orphans.
        """
        if not items:
            return []
        sizes = [getattr(item, "size_bytes", 0) for item in items]
        if all(sizes) and sum(sizes) <= local_bytes(self.spark):  # of buckets known, of others not
            return LocalExecutor().messages(
                work, items, label=label, discard=discard, is_remote=is_remote
            )
        shipped = PackedItems.pack(items, sizes, self.spark)
        task = ItemTask(work=work, items=shipped, attempts=task_attempts(self.spark))
        answers = run(map_arrow(shipped.frame(self.spark), task, ANSWER_DDL), label=label)
        messages = [decode_message(message, CommitMessage) for message in answers.messages]
        try:
            if answers.error is not None:
                raise answers.error
            check_items(answers, range(len(items)), label=label)
        except LsmError:
            # Items that worked have written files, which no snapshot will ever name.
            discard(messages)
            raise
        return messages

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Write a Spark DataFrame, or FileRows, as level-0 files; None for rows of other kinds.

        Raises as `spark.staging.stage_frame` does.
        """
        match rows:
            case DataFrame():
                check_shared(rows.sparkSession, staging.context.file_io)
                check_columns(staging, rows)
                files = plain_files(rows, local_bytes(rows.sparkSession))
                if files is not None:
                    return stage_rows(staging.writing_behind(), files.reader())
                driver_rows = few_rows(rows, label="write rows")
                if driver_rows is not None:
                    return stage_rows(staging.writing_behind(), driver_rows)
                return stage_frame(staging, rows, label="write rows")
            case FileRows():
                self.check_storage(staging.context.file_io)
                return stage_files(staging, rows, self.spark, label="write files")
            case _:
                return None

    def merging(self, session: Any, source: Any, plan: Any) -> StageOn | None:
        """Return the merge of a Spark DataFrame; None for rows of other kinds."""
        if not isinstance(source, DataFrame):
            return None
        sides = Sides.from_columns(session.schema, source.schema)
        return staged_merge(session, source, plan, sides, source.sparkSession)


@record
class ItemTask:
    """The work of a task on its items."""

    work: Callable[..., CommitMessage | None]
    items: PackedItems
    attempts: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item, value in self.items.of_task(number):
                    yield attempt(item, partial(self._message, value), attempts=self.attempts)

    def _message(self, value: Any) -> bytes | None:
        message = self.work(value)
        return None if message is None else encode_message(message)
