"""A table that cannot be read, was rolled back, or is no longer declared: others go on, nothing is lost."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lsm_assets import sensors
from lsm_assets.factory import lsm_table_assets
from lsm_assets.resource import LsmResource
from lsm_assets.sensors import read_cursor, tables_in_turn, write_cursor
from lsm_assets.warehouse_component import health_asset
from lsm_engine import CorruptFileError, StorageError
from tests.dagster.lake import MARKS, ORDERS, Lake, rows

pytestmark = MARKS
NAMES = ["shop.a", "shop.b", "shop.c"]
SENSORS = ("lsm_compaction", "lsm_sync")


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Lake]:
    """Three tables of one commit each."""
    declared = [replace(ORDERS, name=name) for name in NAMES]
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(each) for each in declared])
        for each in declared:
            lake.lsm.table(each).upsert(rows(1))
        yield lake


def damage(lake: Lake, name: str) -> tuple[Path, str]:
    """Cut a table's schema; return what mends it."""
    database, _, table = name.partition(".")
    path = lake.warehouse / f"{database}.db" / table / "schema" / "schema-0"
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    return path, text


@pytest.mark.parametrize("sensor", SENSORS)
def test_an_unreadable_table_keeps_no_other_from_its_turn(
    tables: Lake, monkeypatch: pytest.MonkeyPatch, sensor: str
) -> None:
    damage(tables, "shop.a")
    seen: list[str] = []
    opened = LsmResource.existing_table

    def noted(self: LsmResource, name: str) -> Any:
        seen.append(name)
        return opened(self, name)

    monkeypatch.setattr(LsmResource, "existing_table", noted)
    for module in (sensors, sensors):
        monkeypatch.setattr(module, "tables_in_turn", partial(tables_in_turn, seconds=0.0))
    assert "cannot look at shop.a" in tables.tick(sensor).skip_message
    for _ in NAMES[1:]:
        assert "cannot look" not in (tables.tick(sensor).skip_message or "")
    assert seen == NAMES


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_tick_that_can_look_at_no_table_fails(tables: Lake, sensor: str) -> None:
    for name in NAMES:
        damage(tables, name)
    with pytest.raises(CorruptFileError):
        tables.tick(sensor)


def test_a_rollback_is_reported_beside_an_unreadable_table(tables: Lake) -> None:
    table = tables.lsm.existing_table("shop.b")
    table.create_tag("first")
    table.upsert(rows(2))
    tables.sync()
    path, text = damage(tables, "shop.a")
    table.rollback_to(1)
    table.upsert(rows(3))  # takes the id 2 again: no partition is added or removed
    told = tables.sync()
    assert "cannot look at shop.a" in told.skip_message
    assert {event.asset_key.path[-1] for event in told.asset_events} >= {"b", "b.snapshots"}
    assert not told.dynamic_partitions_requests
    path.write_text(text)
    assert not tables.sync().asset_events


def test_what_could_not_be_reported_is_reported_later(
    tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.sync()
    table = tables.lsm.existing_table("shop.b")
    table.upsert(rows(2))
    tables.sync()
    table.rollback_to(1)
    table.upsert(rows(3))
    found = sensors.sync_events

    def fail(instance: Any, declaration: Any, *given: Any) -> Any:
        if declaration.name == "shop.b":
            raise StorageError("the store does not answer")
        return found(instance, declaration, *given)

    monkeypatch.setattr(sensors, "sync_events", fail)
    assert "cannot look at shop.b" in tables.sync().skip_message
    monkeypatch.undo()
    reported = {(each.asset_key.path[-1], each.partition) for each in tables.sync().asset_events}
    assert ("b.snapshots", "2") in reported


def test_a_due_table_is_asked_for_after_it_could_not_be_read(
    tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.lsm.existing_table("shop.b")
    for number in range(5):
        table.upsert(rows(number))

    kind = type(table)
    pressure = kind.pressure

    def fail(self: Any) -> Any:
        if self.name == "shop.b":
            raise StorageError("the store does not answer")
        return pressure(self)

    monkeypatch.setattr(kind, "pressure", fail)
    assert "cannot look at shop.b" in tables.tick("lsm_compaction").skip_message
    monkeypatch.undo()
    (request,) = tables.tick("lsm_compaction").run_requests
    assert request.tags["lsm/table"] == "shop__b"


def test_a_due_table_is_asked_for_where_a_rollback_gave_its_id_again(tables: Lake) -> None:
    table = tables.lsm.existing_table("shop.b")
    for number in range(5):
        table.upsert(rows(number))
    (first,) = tables.tick("lsm_compaction").run_requests
    table.rollback_to(5)
    table.upsert(rows(9))
    assert table.latest_snapshot().id == 6
    (again,) = tables.tick("lsm_compaction").run_requests
    assert again.run_key != first.run_key


def test_marks_of_an_older_version_report_nothing_again(tables: Lake) -> None:
    tables.sync()
    states = read_cursor(tables.cursors["lsm_sync"])
    for state in states.values():
        state["commits"] = dict.fromkeys(state["commits"], "5f0c2c1e-0000-4b1e-9f7a-1d2e3f4a5b6c-1")
    tables.cursors["lsm_sync"] = write_cursor(states)
    assert not tables.sync().asset_events


@pytest.mark.parametrize("sensor", SENSORS)
def test_tables_that_are_no_longer_declared_are_forgotten(tables: Lake, sensor: str) -> None:
    tables.tick(sensor)
    assert sorted(read_cursor(tables.cursors[sensor])) == NAMES
    fewer = Lake(tables.warehouse, tables.instance, tables.tables[1:], cursors=tables.cursors)
    fewer.tick(sensor)
    assert sorted(read_cursor(fewer.cursors[sensor])) == NAMES[1:]


def test_the_page_of_health_names_a_damaged_table(tables: Lake) -> None:
    damage(tables, "shop.a")
    asset = health_asset([each.declaration for each in tables.tables])
    done = dg.materialize([asset], instance=tables.instance, resources={"lsm": tables.lsm})
    (event,) = done.asset_materializations_for_node("lsm_health")
    assert "shop.a" in event.metadata["lsm/health"].value
    assert event.metadata["lsm/tables"].value == "3 of 3 exist"
    assert "shop.b" in event.metadata["lsm/oldest_commits"].value
    assert "shop.a" not in event.metadata["lsm/oldest_commits"].value
    (check,) = done.get_asset_check_evaluations()
    assert not check.passed
