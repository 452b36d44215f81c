"""One thread per table: histories and numbered calls repeat from run to run."""

from collections.abc import Iterator

import pytest

from tests.model.world import on_one_thread


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with on_one_thread():
        yield
