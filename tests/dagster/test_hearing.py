"""The sync sensor beside `lsm serve`: it looks at the tables whose commits the server has heard of, and at no other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import lsm_engine as lsm
from lsm_assets import sensors
from lsm_assets.factory import lsm_table_assets
from lsm_assets.settings import CATALOG_URL
from tests.dagster.lake import MARKS, ORDERS, Lake, rows
from tests.served import LANDED, WRITER, prepared, serving

pytestmark = MARKS

OTHER = replace(ORDERS, name="shop.other")


def test_a_commit_through_a_server_is_reported_by_the_next_tick_which_looks_at_its_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look = sensors.sync_table
    now = [1_000.0]

    def noted(context: Any, declaration: Any, *others: Any, **options: Any) -> Any:
        looks.append(declaration.name)
        if now[0] < 0:
            raise lsm.StorageError("the disk is away for a moment")
        return look(context, declaration, *others, **options)

    monkeypatch.setattr(sensors, "sync_table", noted)
    monkeypatch.setattr(sensors, "now_seconds", lambda: abs(now[0]))
    with (
        lsm.open_catalog(tmp_path / "lake") as own,
        serving(own) as served,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        monkeypatch.setenv("LSM_TOKEN", WRITER)
        assets = [lsm_table_assets(declaration) for declaration in (ORDERS, OTHER)]
        with monkeypatch.context() as environment:
            environment.setenv(CATALOG_URL, served.url)  # read as the sensor is made
            lake = Lake(tmp_path / "lake", instance, assets, variables={CATALOG_URL: served.url})
        assert lake.repository.get_sensor_def("lsm_sync").minimum_interval_seconds == 5
        table = lake.lsm.table(ORDERS)
        lake.lsm.table(OTHER).upsert(rows(1))
        lake.sync()
        assert sorted(looks) == ["shop.orders", "shop.other"]

        looks.clear()
        quiet = lake.cursors["lsm_sync"]
        now[0] += 5
        assert "heard of no commit" in lake.sync().skip_message
        assert (looks, lake.cursors["lsm_sync"]) == ([], quiet)

        assert served.commit(ORDERS.name, prepared(table, rows(1))).json == LANDED
        now[0] *= -1
        with pytest.raises(lsm.StorageError):
            lake.sync()
        now[0] *= -1
        looks.clear()
        lake.sync()
        assert (looks, lake.snapshots) == (["shop.orders"], ["1"])

        # A table of this engine alone: its commits are recorded when they are looked for.
        looks.clear()
        lake.lsm.table(OTHER).upsert(rows(2))
        lake.sync()
        assert looks == []
        now[0] += 30
        lake.sync()
        assert sorted(looks) == ["shop.orders", "shop.other"]
