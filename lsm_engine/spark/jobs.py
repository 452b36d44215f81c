"""One Spark job: tasks that answer with commit messages or errors, each item exactly once."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.spark.failures import (
    ShippedError,
    TaskFailedError,
    decode_error,
    encode_error,
    from_spark,
    is_final,
)
from lsm_engine.spark.session import is_classic, without_pandas_notice

Batches = Iterator[pa.RecordBatch]
T = TypeVar("T")

ANSWER = pa.schema(
    [
        pa.field("item", pa.int64()),
        pa.field("message", pa.binary()),
        pa.field("error", pa.string()),
    ]
)
_frozen: list[bool] = []
ANSWER_DDL = "item bigint, message binary, error string"


@record
class Answers:
    """What the tasks of a job returned: the messages of those that worked, and the first error."""

    items: tuple[int, ...]
    messages: tuple[bytes, ...]
    error: LsmError | None


def answer(item: int, message: bytes | None = None, error: str | None = None) -> pa.RecordBatch:
    """Return one answer, as a task yields it."""
    return pa.RecordBatch.from_pylist(
        [{"item": item, "message": message, "error": error}], schema=ANSWER
    )


def prepare_worker() -> None:
    """Set what this worker has loaded aside from garbage collection; call it first in a task.

    A worker collects garbage after each task, which costs some 20 ms once Arrow and numba are
    loaded, more than a small task itself.
    """
    if not _frozen:
        _frozen.append(True)
        gc.collect()
        gc.freeze()


def attempt(item: int, work: Callable[[], bytes | None], *, attempts: int) -> pa.RecordBatch:
    """Do the work of one item inside a task and return its answer.

    An error that would only come again is an answer; any other is raised for Spark to retry, but is
    an answer as well once Spark would try no more (`attempts`: how often it does).
    """
    try:
        return answer(item, message=work())
    except LsmError as error:
        if is_answer(error, attempts):
            return answer(item, error=encode_error(error))
        raise ShippedError(error) from error


def is_answer(error: LsmError, attempts: int) -> bool:
    """Whether a task answers with an error rather than fail, so that Spark tries it again.

    In its last attempt it does: were the job to fail, nobody would learn of the files of others.
    """
    task = TaskContext.get()
    return is_final(error) or (task is not None and task.attemptNumber() + 1 >= attempts)


def map_arrow(
    frame: DataFrame, work: Callable[[Batches], Batches], schema: StructType | str
) -> DataFrame:
    """Return the frame that `work` makes of each partition's batches; lazy."""
    names = tuple(frame.columns)
    if any(mark in name for name in names for mark in "`."):
        # PySpark hands the names of columns to a parser of expressions, without quotes.
        frame = frame.toDF(*(f"_{number}" for number in range(len(names))))
        work = RenamedBatches(work=work, names=names)
    with without_pandas_notice():
        return frame.mapInArrow(work, schema)


@record
class RenamedBatches:
    """Work on batches that get the names of their columns back first."""

    work: Callable[[Batches], Batches]
    names: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        """Return what the work makes of a partition."""
        return self.work(batch.rename_columns([*self.names]) for batch in batches)


def by_task(frame: DataFrame, task_count: int) -> DataFrame:
    """Return parcels in as many partitions as there are tasks, those of a task (column `task`) in one of them.

    Before PySpark 4.1 a partition may have the parcels of several tasks, one task after the other, or none.
    """
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(task_count, "task")
    return frame.repartition(task_count, "task").sortWithinPartitions("task")


def run(frame: DataFrame, *, label: str) -> Answers:
    """Run a frame of answers as one job; `label` is its description where Spark shows jobs.

    Errors that tasks answered with come back in the Answers, beside the messages of the others.
    Raises the LsmError of a task that failed as often as Spark may try, TaskFailedError if it was
    no LsmError.
    """
    rows = collected(frame, label=label)
    failed = [row["error"] for row in rows if row["error"] is not None]
    return Answers(
        items=tuple(row["item"] for row in rows),
        messages=tuple(bytes(row["message"]) for row in rows if row["message"] is not None),
        error=decode_error(failed[0], label=label) if failed else None,
    )


def collected(frame: DataFrame, *, label: str) -> list[Row]:
    """Return the few rows of a frame; raises as `run` does for tasks that failed."""
    return collected_by(frame.collect, frame.sparkSession, label=label)


def collected_by(collect: Callable[[], T], spark: SparkSession, *, label: str) -> T:
    """Return what a method of a frame collects; raises as `run` does for tasks that failed."""
    with described(spark, label):
        try:
            return collect()
        except (PySparkException, Py4JError) as cause:
            raise from_spark(cause, label=label) from None  # its note holds Spark's text


def check_items(answers: Answers, expected: Sequence[int], *, label: str) -> None:
    """Raise TaskFailedError unless every item answered exactly once.

    A task that Spark tries twice must leave nothing but unused files: one answer too many would
    commit rows twice, one too few would lose them.
    """
    if sorted(answers.items) != list(expected):
        raise TaskFailedError(
            f"Spark lost or doubled work of {label!r}; nothing was committed, try again",
            expected=len(expected),
            answered=len(answers.items),
        )


@contextmanager
def described(spark: SparkSession, label: str) -> Iterator[None]:
    """Name the jobs started inside, where the session can: Spark Connect keeps no job names."""
    if not is_classic(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setLocalProperty("spark.job.description", label)
    try:
        yield
    finally:
        # Passing None clears a property, though its annotation forbids it.
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]
