"""The Executor contract, held against the executor of one process; tests/spark holds it again."""

from threading import current_thread

import pytest

from lsm_engine.base.record import record
from lsm_engine.table.components import LIGHT_BYTES, LocalExecutor
from tests.contract.executor_suite import ExecutorSuite, nothing


class TestThreads(ExecutorSuite):
    @pytest.fixture
    def executor(self):
        return LocalExecutor(2)


class TestOneThread(ExecutorSuite):
    @pytest.fixture
    def executor(self):
        return LocalExecutor(1)


@record
class Bucket:
    """Work of a size."""

    number: int
    size_bytes: int


@pytest.mark.parametrize(
    ("is_remote", "own"), [(False, {0, 2, 3}), (True, set())], ids=["local", "far"]
)
def test_only_work_on_much_or_for_a_far_store_is_given_to_threads(is_remote, own):
    sizes = [1, LIGHT_BYTES, LIGHT_BYTES - 1, 7, LIGHT_BYTES, 0]
    done: dict[int, str] = {}

    def work(bucket: Bucket) -> None:
        done[bucket.number] = current_thread().name

    items = [Bucket(number=number, size_bytes=size) for number, size in enumerate(sizes)]
    LocalExecutor(2).messages(work, items, label="count", discard=nothing, is_remote=is_remote)
    assert {number for number, name in done.items() if name == current_thread().name} == own
    assert len(done) == len(sizes)
