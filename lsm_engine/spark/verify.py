"""Deep verification on Spark: files are read by tasks, and only what is wrong with them comes back."""

from collections.abc import Iterator, Sequence
from functools import partial

from pyspark.sql import SparkSession

from lsm_engine.base.record import record
from lsm_engine.codec.messages import decode_message, encode_message
from lsm_engine.spark.jobs import (
    ANSWER_DDL,
    Batches,
    answer,
    check_items,
    map_arrow,
    prepare_worker,
    run,
)
from lsm_engine.spark.packed_items import PackedItems
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.integrity import verify
from lsm_engine.table.integrity.verify_files import FileToRead, Progress, wrong_in_file
from lsm_engine.table.integrity.verify_report import VerifyReport
from lsm_engine.table.table import Table

_FILES_PER_JOB = 20_000
"""What a job's tasks are handed passes through the driver: more files are several jobs."""
_PROBLEMS_PER_FILE = 20
_CHARACTERS_PER_PROBLEM = 2_000


def verify_table(
    table: Table,
    spark: SparkSession,
    *,
    snapshot_id: int | None = None,
    incremental: bool = False,
    progress: Progress | None = None,
) -> VerifyReport:
    """Return what `Table.verify(deep=True)` returns; the executors of a Spark session read the files.

    Executors need storage that they and the driver see under the same paths. Of each file at most 20
    problems come back, each cut to 2,000 characters. Raises TaskFailedError if tasks die, for example
    for lack of memory: what is wrong with stored bytes is listed, never raised.
    """
    return verify.verify(
        table.session,
        snapshot_id=snapshot_id,
        deep=True,
        incremental=incremental,
        progress=progress,
        read=partial(_read, spark, table.session.name),
    )


def _read(
    spark: SparkSession, name: str, context: BucketContext, files: Sequence[FileToRead]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for first in range(0, len(files), _FILES_PER_JOB):
        part = files[first : first + _FILES_PER_JOB]
        shipped = PackedItems.of(part, [one.entry.file.file_size for one in part], spark)
        task = VerifyTask(context=context, files=shipped)
        answers = run(map_arrow(shipped.frame(spark), task, ANSWER_DDL), label=f"verify {name}")
        check_items(answers, range(len(part)), label="verify")
        for item, message in zip(answers.items, answers.messages, strict=True):
            yield first + item, decode_message(message, FileProblems).texts


@record
class FileProblems:
    """What is wrong with one file."""

    texts: tuple[str, ...]


@record
class VerifyTask:
    """What a task runs: it reads its files."""

    context: BucketContext
    files: PackedItems

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for number, file in self.files.of_task(task):
                    texts = wrong_in_file(self.context, file)[:_PROBLEMS_PER_FILE]
                    cut = tuple(text[:_CHARACTERS_PER_PROBLEM] for text in texts)
                    yield answer(number, message=encode_message(FileProblems(texts=cut)))
