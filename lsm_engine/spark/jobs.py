"""Spark jobs whose tasks answer with one commit message or error for each item."""

import ast
import gc
import json
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base import errors
from lsm_engine.base.errors import CommitUnknownError, ErrorKind, LsmError, StorageError
from lsm_engine.base.record import record
from lsm_engine.planning.keys import packed
from lsm_engine.spark.session import is_classic, task_goal, use_this_python, without_pandas_notice

T = TypeVar("T")

# -- Errors between tasks and the driver -----------------------------------------------------------
#
# As values where work can go on, as a marked line where not.
#
# A task that fails for a reason of the data (a null key, a corrupt file) answers with the
# error: trying it again would change nothing, and the other tasks' answers are needed, so that
# their files can be deleted. Anything else is raised in the task, so that Spark tries it again
# elsewhere.

_MARK = "lsm-error "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})")
_CRASH = re.compile(r"most recent failure: .*?\): (?:[\w.$]+: )?([^\n]+)")
_NO_WORKER = re.compile(r"Error from python worker:\n(?:  .*\n)*?  (.*)\nPYTHONPATH was")
_MISSING = re.compile(r"No module named '?(lsm_engine|pyarrow|pyspark|numpy)\b")
_VERSIONS = re.compile(
    r"PYTHON_VERSION_MISMATCH|Python in worker has different version", re.IGNORECASE
)
_JVM_FRAMES = re.compile(r"^\s+(?:at \S+\(.*\)|\.\.\. \d+ more)$\n?", re.MULTILINE)
_LAST_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)


class TaskFailedError(LsmError):
    """Work on an executor failed for a reason of its own: read the cause, then try again."""

    default_kind = ErrorKind.STORAGE


class ShippedError(Exception):
    """Carries an LsmError out of a task that Spark may try again, as one marked line of text."""

    def __init__(self, error: LsmError) -> None:
        super().__init__(_MARK + encode_error(error))


def shows_errors_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function that Spark calls in a worker raise the engine's errors without the calls that led to them.

    Spark shows a user the whole traceback, with the error in its last line. Errors that are not the engine's keep theirs.
    """

    @wraps(function)
    def returning(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LsmError as error:
            raise error.with_traceback(None) from None

    @wraps(function)
    def yielding(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
        except LsmError as error:
            raise error.with_traceback(None) from None

    return yielding if isgeneratorfunction(function) else returning


def shows_its_errors_alone(source_class: type[T]) -> type[T]:
    """Decorate the public methods of a class by `shows_errors_alone`."""
    for name, method in [*vars(source_class).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(source_class, name, shows_errors_alone(method))
    return source_class


_RAISED = re.compile(r"^lsm_engine\.[\w.]+\.(\w+): (.*) \[([a-z-]+)\]((?: \w+=.*)?)$", re.MULTILINE)
_FACT = re.compile(r" (\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?\d+)")


def error_of_source(error: PySparkException) -> LsmError | None:
    """Return the error of the engine that Spark met in the Python of a data source; None for any other.

    Spark shows it as the last line of a traceback, under a condition of its own.
    """
    raised = _RAISED.search(str(error))
    if not (error.getCondition() or "").startswith("PYTHON_DATA_SOURCE") or raised is None:
        return None
    cls = getattr(errors, raised[1], LsmError)
    facts = {name: ast.literal_eval(text) for name, text in _FACT.findall(raised[4])}
    error_type: type[LsmError] = cls if issubclass(cls, LsmError) else LsmError
    return error_type(raised[2], kind=ErrorKind(raised[3]), **facts)


def is_final(error: LsmError) -> bool:
    """Whether trying again elsewhere is known to end the same way."""
    return not isinstance(error, StorageError | CommitUnknownError | TaskFailedError)


def encode_error(error: LsmError) -> str:
    """Return an error as one line of JSON: its class, message, kind, facts and place."""
    frames = traceback.extract_tb(error.__traceback__)
    return json.dumps(
        {
            "type": type(error).__name__,
            "message": error.message,
            "kind": error.kind.value,
            "facts": {name: _to_json(value) for name, value in error.facts.items()},
            "place": f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
        }
    )


def decode_error(text: str, *, label: str) -> LsmError:
    """Return the error that `encode_error` wrote, with a note that names the work that raised it."""
    stored: dict[str, Any] = json.loads(text)
    # A worker of another version may have an error that this driver does not know.
    error_type = getattr(errors, stored["type"], TaskFailedError)
    cls: type[LsmError] = error_type if issubclass(error_type, LsmError) else TaskFailedError
    error = cls(stored["message"], kind=ErrorKind(stored["kind"]), **stored["facts"])
    error.add_note(f"in a Spark task of {label!r}, at {stored['place']}")
    return error


def from_spark(error: Exception, *, label: str) -> LsmError:
    """Return the error of a failed job: the LsmError that a task shipped, or a TaskFailedError
    with the last line of the task's own error and its traceback in a note.
    """
    text = str(error)
    shipped = _MARKED.search(text)
    if shipped is not None:
        return decode_error(shipped[1], label=label)
    lines: list[str] = _LAST_LINE.findall(text)
    # No task shipped an error: the worker died, or the code of the user raised.
    crash = _NO_WORKER.search(text) or _CRASH.search(text)
    reason = crash[1] if crash else lines[-1] if lines else text.partition("\n")[0]
    reason = f"{reason.strip(' :')}{remedy(text)}"
    failed = TaskFailedError(f"a Spark task of {label!r} failed: {reason}", work=label)
    failed.add_note(_JVM_FRAMES.sub("", text).strip())
    return failed


def remedy(text: str) -> str:
    """Return the remedy, if the Python of the executors is the cause of a failure."""
    missing = _MISSING.search(text)
    if missing is not None:
        problem = f"; the executors' Python has no {missing[1]}: install lsm-assets[spark] there"
    elif _VERSIONS.search(text):
        problem = "; executors run another version of Python than the driver"
    else:
        return ""
    return (
        f"{problem}, and name it before the session starts, as PYSPARK_PYTHON or spark.pyspark.python"
        " (docs/spark-clusters.md)"
    )


def _to_json(value: object) -> object:
    """Return a fact as JSON holds it; what JSON cannot hold travels as its repr."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_to_json(part) for part in value]
    return repr(value)


# -- Items of work, packed into the tasks of one Spark job -----------------------------------------

_closures = CloudPickleSerializer()  # type: ignore[no-untyped-call]


@record
class PackedItems:
    """The items of the tasks of a job. Each is pickled by itself, so that a task unpickles only its own."""

    tasks: tuple[tuple[int, ...], ...]
    items: tuple[bytes, ...]

    @staticmethod
    def pack(
        items: Sequence[Any], sizes: Sequence[int], spark: SparkSession, *, in_order: bool = False
    ) -> "PackedItems":
        """Pack items of so many bytes each into as many tasks as keep a session's cores busy."""
        return PackedItems(
            tasks=packed(sizes, task_goal=task_goal(spark), in_order=in_order),
            items=tuple(_closures.dumps(item) for item in items),  # type: ignore[no-untyped-call]
        )

    def frame(self, spark: SparkSession, *, step: int = 1) -> DataFrame:
        """Return a frame of numbers with a partition for each task, `step` numbers long."""
        count = len(self.tasks)
        return spark.range(0, count * step, 1, count)

    def of_task(self, task: int) -> Iterator[tuple[int, Any]]:
        """Yield the items of a task with their numbers, in ascending order."""
        for number in self.tasks[task]:
            yield number, _closures.loads(self.items[number])  # type: ignore[no-untyped-call]


# -- One Spark job: tasks that answer with commit messages or errors, each item exactly once -------

Batches = Iterator[pa.RecordBatch]

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
    """The results of the tasks of a job: the messages of those that worked, and the first error."""

    items: tuple[int, ...]
    messages: tuple[bytes, ...]
    error: LsmError | None


def answer(item: int, message: bytes | None = None, error: str | None = None) -> pa.RecordBatch:
    """Return one answer, as a task yields it."""
    return pa.RecordBatch.from_pylist(
        [{"item": item, "message": message, "error": error}], schema=ANSWER
    )


def prepare_worker() -> None:
    """Exclude the modules of this worker from garbage collection; call it first in a task.

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
        # An answer fails the job at once; a raised error lets Spark try the task again.
        if is_answer(error, attempts):
            return answer(item, error=encode_error(error))
        raise ShippedError(error) from error


def is_answer(error: LsmError, attempts: int) -> bool:
    """Whether a task answers with an error rather than fail, so that Spark tries it again.

    It answers in its last attempt: if the job failed, the driver would not learn of the files of other tasks.
    """
    task = TaskContext.get()
    return is_final(error) or (task is not None and task.attemptNumber() + 1 >= attempts)


def map_arrow(
    frame: DataFrame, work: Callable[[Batches], Batches], schema: StructType | str
) -> DataFrame:
    """Return the frame that `work` makes of each partition's batches; lazy."""
    use_this_python(frame.sparkSession)
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
        """Return the result of the work on a partition."""
        return self.work(batch.rename_columns([*self.names]) for batch in batches)


def by_task(frame: DataFrame, task_count: int) -> DataFrame:
    """Return shuffled batches in one partition per task, by their column `task`.

    Before PySpark 4.1 a partition may have the batches of several tasks, one task after the other, or none.
    """
    # By id each task is a partition; a hash of the ids puts several into one.
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
    """Return the result of a method that collects a frame; raises as `run` does for tasks that failed."""
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
