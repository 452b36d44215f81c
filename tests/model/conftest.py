"""One thread per table: histories and numbered calls repeat from run to run."""

from collections.abc import Iterator

import pytest

from lsm_engine.table.executor import LocalExecutor


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    def of_one(self: LocalExecutor, threads: int | None = None) -> None:
        del threads
        self.threads = 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExecutor, "__init__", of_one)
        yield
