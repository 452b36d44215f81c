"""A small lake with one table on an instance of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lsm_assets.factory import lsm_table_assets
from tests.dagster.lake import ORDERS, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    to_write: list[Any] = []
    orders = lsm_table_assets(ORDERS, lambda context, table: list(to_write), tag_daily=True)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(tmp_path / "lake", instance, [orders], to_write)
