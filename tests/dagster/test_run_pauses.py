"""Runs that pause, or die, between any two of their steps: readers never start on half of what a run commits."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.events import AssetMaterializationPlannedData
from dagster._core.execution.plan.objects import StepSuccessData
from dagster._core.utils import make_new_run_id

from lsm_assets import table_assets
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.recording import recorded_version
from lsm_assets.versions import version_from_snapshot
from tests.dagster.lake import KEYS, MARKS, ORDERS, SCHEMA, Lake, rows

pytestmark = MARKS

RUNS = int(os.environ.get("LSM_PAUSED_RUNS", "3"))
"""Runs with pauses, each at others."""
RUNS_PER_LAKE = 10
READER = dg.AssetKey("eager_reader")


class Died(Exception):
    """The process of a run was killed: nothing after this point is recorded."""


class PausedLake(Lake):
    """A lake whose table has an eager reader, and whose writes call `pause` between any two of their steps."""

    def __post_init__(self) -> None:
        super().__post_init__()

        @dg.asset(
            key=READER,
            deps=[KEYS.asset(AssetKind.TABLE)],
            automation_condition=dg.AutomationCondition.eager(),
        )
        def eager_reader() -> None:
            pass

        more = dg.Definitions(assets=[eager_reader])
        self.definitions = dg.Definitions.merge(self.definitions, more)
        self.repository = self.definitions.get_repository_def()
        self.conditions: Any = None

    def requested_readers(self) -> int:
        """Sync, evaluate the reader's condition as the daemon does, and return the runs that it requests."""
        self.sync()
        evaluation = dg.evaluate_automation_conditions(
            defs=self.definitions,
            instance=self.instance,
            asset_selection=dg.AssetSelection.assets(READER),
            cursor=self.conditions,
        )
        self.conditions = evaluation.cursor
        return evaluation.total_requested

    def read(self) -> None:
        job = self.repository.get_implicit_job_def_for_assets([READER])
        job.execute_in_process(instance=self.instance, asset_selection=[READER])


@pytest.fixture
def paused(tmp_path: Path) -> Iterator[PausedLake]:
    to_write: list[Any] = []
    orders = lsm_table_assets(ORDERS, lambda context, table: list(to_write))
    with dg.DagsterInstance.ephemeral() as instance:
        yield PausedLake(tmp_path / "lake", instance, [orders], to_write)


def pausing(monkeypatch: pytest.MonkeyPatch, pause: Callable[[], None]) -> None:
    """Call `pause` before and after each commit, and between the events that record it."""
    commit, record = table_assets._commit, table_assets.record_commit

    def paused_commit(*given: Any) -> Any:
        pause()
        snapshot = commit(*given)
        pause()
        return snapshot

    def paused_record(*given: Any) -> Iterator[Any]:
        for event in record(*given):
            yield event
            pause()

    monkeypatch.setattr(table_assets, "_commit", paused_commit)
    monkeypatch.setattr(table_assets, "record_commit", paused_record)


def missing_snapshots(lake: Lake) -> set[str]:
    """Return the partitions of snapshots, and those of live snapshots, that have no event."""
    live = {str(number) for number in lake.lsm.existing_table("shop.orders").snapshot_ids()}
    recorded = {str(event.partition) for event in lake.events(AssetKind.SNAPSHOTS)}
    return (live | set(lake.snapshots)) - recorded


@pytest.mark.parametrize("first", range(0, RUNS, RUNS_PER_LAKE))
def test_an_eager_reader_never_starts_between_two_commits_of_one_run(
    paused: PausedLake, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    chance = random.Random(first)
    paused.kept = paused.lsm
    paused.write(rows(1))
    paused.requested_readers()
    paused.read()
    paused.requested_readers()
    early: list[str] = []
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        if chance.random() < 0.5:
            pauses += 1
            if paused.requested_readers():
                early.append(str(paused.lsm.existing_table("shop.orders").latest_snapshot().id))

    pausing(monkeypatch, pause)
    commits = 1
    for _ in range(min(RUNS_PER_LAKE, RUNS - first)):
        count = chance.randint(2, 4)
        paused.write(*(rows(number) for number in range(count)))
        commits += count
        assert not early
        assert paused.requested_readers() == 1
        paused.read()
        assert not paused.requested_readers()
        assert not missing_snapshots(paused)
        events = [event.partition for event in paused.events(AssetKind.SNAPSHOTS)]
        assert events == [str(number) for number in range(1, commits + 1)], "each is recorded once"
    assert pauses


@pytest.mark.parametrize("step", range(9))
def test_a_run_that_dies_anywhere_leaves_no_snapshot_missing(
    paused: PausedLake, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    paused.write(rows(1))
    pauses = iter(range(100))

    def die() -> None:
        if next(pauses) == step:
            raise Died

    pausing(monkeypatch, die)
    with pytest.raises(Died):
        paused.write(rows(2), rows(3), rows(4))
    paused.sync()
    table = paused.lsm.existing_table("shop.orders")
    assert not missing_snapshots(paused)
    newest = version_from_snapshot(table.latest_snapshot())
    assert recorded_version(paused.instance, KEYS.asset(AssetKind.TABLE)) == newest
    partitions = [event.partition for event in paused.events(AssetKind.SNAPSHOTS)]
    assert len(partitions) == len(set(partitions)), "nothing is recorded twice"
    marked = {
        event.partition
        for event in paused.events(AssetKind.SNAPSHOTS)
        if "ended before it recorded" in str(event.metadata.get("lsm/recorded", ""))
    }
    assert len(marked) == (step % 4 in (1, 2)), "the page says who has recorded it"
    quiet = paused.sync()
    assert not quiet.asset_events
    assert not quiet.dynamic_partitions_requests


def test_a_run_is_waited_for_only_by_the_table_that_its_steps_write(lake: Lake) -> None:
    """A step of hours after the write does not keep commits of other clients from being reported."""
    run = dg.DagsterRun("hours", make_new_run_id(), status=dg.DagsterRunStatus.STARTED)
    lake.instance.add_run(run)
    table = lake.lsm.table(ORDERS)
    table.upsert(rows(1), properties={"lsm.run.id": "r", "lsm.run.dagster-id": run.run_id})

    def report(kind: dg.DagsterEventType, step: str, data: Any) -> None:
        event = dg.DagsterEvent(kind.value, run.job_name, step_key=step, event_specific_data=data)
        lake.instance.report_dagster_event(event, run.run_id)

    for key, step in ((KEYS.asset(AssetKind.TABLE), "write"), (dg.AssetKey("later"), "later")):
        planned = AssetMaterializationPlannedData(key)
        report(dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, step, planned)
    assert not lake.sync().asset_events
    report(dg.DagsterEventType.STEP_SUCCESS, "write", StepSuccessData(1.0))
    assert lake.sync().asset_events


DAYS = TableDeclaration(
    name="shop.days",
    schema=pa.schema([*SCHEMA, pa.field("day", pa.string(), nullable=False)]),
    primary_key=("id", "day"),
    partitioned_by=("day",),
    options={"bucket": "1"},
    partitions_def=dg.StaticPartitionsDefinition(["a", "b", "c"]),
)


def test_partitions_whose_rows_are_gone_say_so_and_no_event_is_redundant(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(DAYS)])
        table, key = lake.lsm.table(DAYS), DAYS.keys.asset(AssetKind.TABLE)
        for day in "abc":
            table.upsert([{"id": 1, "name": "x", "day": day}])

        def reported() -> dict[str | None, bool]:
            """Return the partitions that a tick reports, and whether it says that they have no rows."""
            told = [event for event in lake.sync().asset_events if event.asset_key == key]
            assert not [event for event in lake.sync().asset_events if event.asset_key == key]
            return {event.partition: "lsm/rows" in event.metadata for event in told}

        assert reported() == {"a": False, "b": False, "c": False}
        newest = version_from_snapshot(table.latest_snapshot())
        assert recorded_version(instance, key) == newest, "the newest partition comes last"
        table.rollback_to(1)
        assert reported() == {"b": True, "c": True}
        table.upsert([{"id": 2, "name": "y", "day": "b"}])
        assert reported() == {"b": False}
        table.overwrite(DAYS.schema.empty_table(), {"day": "a"})
        assert reported() == {"a": True}
        lake.lsm.catalog.drop_table("shop.days")
        gone = [event for event in lake.sync().asset_events if event.asset_key == key]
        assert {event.partition for event in gone} == {"a", "b", "c"}
        assert all("was dropped" in event.metadata["lsm/rows"].value for event in gone)
