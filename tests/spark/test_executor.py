"""The Executor contract on Spark, and what only tasks elsewhere can do wrong."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pyarrow
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import StorageError
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.spark import SparkExecutor, TaskFailedError, staging
from lsm_engine.spark.jobs import Answers, check_items, from_spark
from tests.contract.executor_suite import ExecutorSuite, message_of, nothing

pytestmark = pytest.mark.spark


class TestSpark(ExecutorSuite):
    @pytest.fixture
    def executor(self, spark):
        return SparkExecutor(spark)


def fail_once(directory: str, item: int) -> CommitMessage | None:
    """Every third item's first attempt fails for want of disk."""
    marker = Path(directory) / f"tried-{item}"
    if item % 3 == 0 and not marker.exists():
        marker.touch()
        raise StorageError("the disk is full", path=str(marker))
    return message_of(8, item)


def fail_always(item: int) -> CommitMessage | None:
    raise StorageError("the disk is full", path=f"disk-{item}")


def stumble(item: int) -> CommitMessage | None:
    return message_of(8, {"no": "such key"}["item"])


def crash(item: int) -> CommitMessage | None:
    os._exit(item)


def test_a_task_that_fails_is_tried_again(spark, tmp_path):
    messages = SparkExecutor(spark).messages(
        partial(fail_once, str(tmp_path)), range(8), label="fail once", discard=nothing
    )
    assert sorted(message.bucket for message in messages) == [0, 2, 4, 6]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_task_that_always_fails_says_what_it_said(spark):
    with pytest.raises(StorageError) as caught:
        SparkExecutor(spark).messages(
            fail_always, [1], label="compact shop.orders", discard=nothing
        )
    assert caught.value.message == "the disk is full"
    assert "compact shop.orders" in caught.value.__notes__[0]


@pytest.mark.parametrize(("work", "reason"), [(stumble, "KeyError: 'item'"), (crash, "crashed")])
def test_what_is_no_error_of_ours_is_one_line(spark, work, reason):
    with pytest.raises(TaskFailedError) as caught:
        SparkExecutor(spark).messages(work, [7], label="x", discard=nothing)
    assert reason in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("items", [(0, 1), (0, 1, 1, 2), (0, 1, 3)])
def test_lost_and_doubled_work_is_noticed(items):
    with pytest.raises(TaskFailedError, match="lost or doubled"):
        check_items(Answers(items=items, messages=(), error=None), range(3), label="x")


def test_a_worker_that_cannot_start_says_why():
    text = (
        "Job aborted: most recent failure: Lost task 0.3 (TID 6) (host executor driver): E: \n"
        "Error from python worker:\n  Traceback\n  python: No module named lsm_engine\n"
        "PYTHONPATH was:\n  /a:/b\n"
    )
    failed = from_spark(RuntimeError(text), label="x")
    assert (
        "No module named lsm_engine; the executors' Python has no lsm_engine: install"
        in failed.message
    )
    assert "PYSPARK_PYTHON" in failed.message
    text = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11"
    failed = from_spark(RuntimeError(text), label="x")
    assert "another version of Python than the driver, and name it" in failed.message
    assert "PYSPARK_PYTHON" not in from_spark(RuntimeError("KeyError: 'a'"), label="x").message


@pytest.mark.interop_full  # a session of its own
def test_executors_with_another_python_name_the_remedy(tmp_path):
    """Its Python has PySpark and Arrow, as clusters do, and not the engine."""
    there = tmp_path / "python"
    packages = Path(pyarrow.__file__).parent.parent
    there.write_text(f'#!/bin/sh\nexport PYTHONPATH={packages}\nexec {sys.executable} -S "$@"\n')
    there.chmod(0o755)
    script = """
import sys
from pyspark.sql import SparkSession
import lsm_engine as lsm
from lsm_engine.spark import upsert_dataframe
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with lsm.open_catalog(sys.argv[1]) as catalog:
    table = catalog.create_table("shop.t", {"id": "BIGINT"}, primary_key="id")
    try:
        upsert_dataframe(table, spark.createDataFrame([(1,)], "id long"))
    except lsm.LsmError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "lake")],
        cwd=tmp_path,  # a worker finds modules where it is started
        env={
            **os.environ,
            "PYTHONPATH": str(Path(lsm.__file__).parent.parent),
            "PYSPARK_PYTHON": str(there),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "the executors' Python has no lsm_engine: install" in done.stdout, done.stderr[-3000:]


def test_a_bucket_with_two_owners_is_noticed():
    message = message_of(8, 2)
    assert staging._doubled([message, message_of(8, 4)], "x") is None
    assert isinstance(staging._doubled([message, message], "x"), TaskFailedError)


def test_a_session_listens_on_loopback_only(spark):
    SparkExecutor(spark).messages(partial(message_of, 1), [0], label="x", discard=nothing)
    own = psutil.Process()
    addresses = {
        connection.laddr.ip
        for process in (own, *own.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_jobs_are_named_and_the_name_is_put_back(spark):
    context = spark.sparkContext
    context.setJobDescription("mine")
    SparkExecutor(spark).messages(partial(message_of, 1), [0], label="x", discard=nothing)
    assert context.getLocalProperty("spark.job.description") == "mine"
    context.setLocalProperty("spark.job.description", None)
