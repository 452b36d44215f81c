"""The Executor contract, held against the executor of one process; tests/spark holds it again."""

import pytest

from lsm_engine.table.ground.executor import LocalExecutor
from tests.contract.executor_suite import ExecutorSuite


class TestThreads(ExecutorSuite):
    @pytest.fixture
    def executor(self):
        return LocalExecutor(2)


class TestOneThread(ExecutorSuite):
    @pytest.fixture
    def executor(self):
        return LocalExecutor(1)
