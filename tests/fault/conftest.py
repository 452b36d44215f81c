"""One thread per table: histories and numbered calls repeat from run to run."""

from collections.abc import Iterator

import pytest

from lsm_engine.table.executor import LocalExecutor


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sweeps take minutes to hours: they run when they are asked for by name."""
    if "sweep" in config.getoption("-m"):
        return
    swept = [item for item in items if item.get_closest_marker("sweep")]
    if swept:
        config.hook.pytest_deselected(items=swept)
        items[:] = [item for item in items if item not in swept]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    def of_one(self: LocalExecutor, threads: int | None = None) -> None:
        del threads
        self.threads = 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExecutor, "__init__", of_one)
        yield
