"""A small lake with one table on an instance of its own; the sample's lake, replayed once."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from lsm_assets.factory import lsm_table_assets
from lsm_assets.sample.run import main
from tests.dagster.lake import ORDERS, Lake

SAMPLE_DAYS = int(os.environ.get("LSM_SAMPLE_DAYS", "0"))
"""Days of the sample, replayed by the command of the README on Spark; 0: two days in two runs, without Spark."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    to_write: list[Any] = []
    orders = lsm_table_assets(ORDERS, lambda context, table: list(to_write), tag_daily=True)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(tmp_path / "lake", instance, [orders], to_write)


@pytest.fixture(scope="session")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the warehouse of the sample; whoever changes it brings it back."""
    at = tmp_path_factory.mktemp("sample") / "lake"
    runs = [(SAMPLE_DAYS, "spark")] if SAMPLE_DAYS else [(1, "local")] * 2
    for days, executor in runs:
        given = ["--days", str(days), "--warehouse", str(at), "--executor", executor]
        told = CliRunner().invoke(main, given)
        assert told.exit_code == 0, told.output
        (at.parent / "told.txt").write_text(told.output)
    return at
