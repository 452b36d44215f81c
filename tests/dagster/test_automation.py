"""Sensors and schedules: what happens by itself, and that it happens once."""

import hashlib
from datetime import datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets import sensors
from lsm_assets.keys import AssetKind
from lsm_assets.resource import CLOCK
from lsm_assets.table_assets import compaction_reason
from lsm_assets.versions import version_from_snapshot
from tests.dagster.lake import KEYS, MARKS, SCHEMA, Lake, rows, version_id

pytestmark = MARKS


def test_a_compaction_is_asked_for_once_per_state(lake: Lake) -> None:
    lake.write(rows(1))
    assert not lake.tick("lsm_compaction").run_requests

    lake.write(*(rows(number) for number in range(5)))
    (request,) = lake.tick("lsm_compaction").run_requests
    newest = lake.lsm.existing_table("shop.orders").latest_snapshot()
    assert request.run_key == f"compact-shop.orders-{version_from_snapshot(newest).text}"
    assert request.run_key.startswith("compact-shop.orders-6-")
    assert request.asset_selection == [KEYS.asset(AssetKind.COMPACTION)]
    assert "6 sorted runs" in request.tags["lsm/reason"]
    assert not lake.tick("lsm_compaction").run_requests

    # Another daemon, or a lost cursor: the same state has the same key.
    lake.cursors.clear()
    (again,) = lake.tick("lsm_compaction").run_requests
    assert again.run_key == request.run_key


def test_a_requested_compaction_settles_the_matter(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(6)))
    (request,) = lake.tick("lsm_compaction").run_requests
    lake.materialise(AssetKind.COMPACTION, tags=request.tags)
    (event,) = lake.events(AssetKind.COMPACTION)
    assert event.metadata["lsm/reason"].value == request.tags["lsm/reason"]
    assert not lake.tick("lsm_compaction").run_requests


class Later:
    """The system's clock, ahead by some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now_millis(self) -> int:
        return lsm.SystemClock().now_millis() + int(1_000 * self.seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(lsm.SystemClock(), name)


def test_a_compaction_that_failed_is_asked_for_again_ever_more_rarely(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(6)))
    (request,) = lake.tick("lsm_compaction").run_requests

    def told(after: float) -> dg.SensorResult:
        before = CLOCK.set(Later(after))
        try:
            return lake.tick("lsm_compaction")
        finally:
            CLOCK.reset(before)

    assert not told(1e6).run_requests  # not while no run has ended
    minutes, keys = [5, 10, 20, 40, 80, 160, 320, 360, 360], [request.run_key]
    for wait in minutes:
        lake.run_of(request, dg.DagsterRunStatus.FAILURE)
        early = told(60 * wait - 30)
        assert not early.run_requests
        assert "shop.orders has failed, and is asked for again at" in early.skip_message
        (request,) = told(60 * wait + 30).run_requests
        assert f"the last {len(keys)} failed" in request.tags["lsm/reason"]
        keys.append(request.run_key)
    assert len(set(keys)) == len(keys)
    lake.run_of(request, dg.DagsterRunStatus.SUCCESS)
    assert not told(1e6).run_requests

    lake.write(rows(7))  # a commit begins anew
    (request,) = told(0).run_requests
    assert "failed" not in request.tags["lsm/reason"]
    lake.run_of(request, dg.DagsterRunStatus.CANCELED)
    assert not told(1e6).run_requests


def test_the_declared_condition_compacts_when_its_check_fails(lake: Lake) -> None:
    def requested(cursor: object = None) -> tuple[int, object]:
        found = dg.evaluate_automation_conditions(
            defs=lake.definitions,
            instance=lake.instance,
            asset_selection=dg.AssetSelection.assets(KEYS.asset(AssetKind.COMPACTION)),
            cursor=cursor,
        )
        return found.total_requested, found.cursor

    lake.write(rows(1))
    count, cursor = requested()
    assert count == 0
    lake.write(*(rows(number) for number in range(9)))
    count, cursor = requested(cursor)
    assert count == 1
    lake.materialise(AssetKind.COMPACTION)
    count, cursor = requested(cursor)
    assert count == 0


def test_a_commit_made_elsewhere_appears(lake: Lake) -> None:
    lake.write(rows(1))
    assert not lake.sync().asset_events

    table = lake.lsm.existing_table("shop.orders")
    table.upsert(rows(2))
    table.create_tag("by-hand")
    told = lake.sync()
    assert lake.snapshots == ["1", "2"]
    assert lake.tags == ["by-hand"]
    keys = {event.asset_key.path[-1] for event in told.asset_events}
    assert keys == {
        "orders",
        "orders.files",
        "orders.manifest_lists",
        "orders.snapshots",
        "orders.tags",
    }
    assert version_id(lake.events(AssetKind.TABLE)[-1].tags["dagster/data_version"]) == 2

    quiet = lake.sync()
    assert not quiet.asset_events
    assert not quiet.dynamic_partitions_requests


def test_a_compaction_made_elsewhere_leaves_the_table_as_it_was(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(6)))
    lake.lsm.existing_table("shop.orders").compact()
    told = lake.sync()
    keys = {event.asset_key.path[-1] for event in told.asset_events}
    assert "orders" not in keys
    assert "orders.files" in keys


def test_what_expired_loses_its_partition_and_keeps_its_history(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(5)))
    table = lake.lsm.existing_table("shop.orders")
    table.expire_snapshots(retain_min=1, retain_max=2)
    lake.sync()
    assert lake.snapshots == ["4", "5"]
    assert [event.partition for event in lake.events(AssetKind.SNAPSHOTS)] == list("12345")


def test_a_deleted_tag_loses_its_partition_but_not_one_to_come(lake: Lake) -> None:
    lake.write(rows(1))
    table = lake.lsm.existing_table("shop.orders")
    table.create_tag("gone")
    lake.sync()
    lake.add_tag_partition("to-come")
    table.delete_tag("gone")
    lake.sync()
    assert lake.tags == ["to-come"]


def test_a_long_past_gets_partitions_and_few_events(lake: Lake) -> None:
    table = lake.lsm.table(lake.tables[0].declaration)
    for number in range(25):
        table.upsert(rows(number))
    told = lake.sync()
    assert len(lake.snapshots) == 25
    assert len([event for event in told.asset_events if event.asset_key.path[-1] == "orders"]) == 1
    assert [event.partition for event in lake.events(AssetKind.SNAPSHOTS)] == [
        str(number) for number in range(6, 26)
    ]


def test_the_expiry_job_plans_then_acts(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(5)))
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2"}
    lake.lsm.existing_table("shop.orders").alter(
        *(lsm.SetOption(key, value) for key, value in kept.items())
    )
    job = lake.repository.get_job(KEYS.op("expire"))
    dry = {"ops": {KEYS.op("plan_expiry"): {"config": {"dry_run": True}}}}
    assert job.execute_in_process(instance=lake.instance, run_config=dry).success
    assert len(lake.snapshots) == 5
    assert job.execute_in_process(instance=lake.instance).success
    assert lake.snapshots == ["4", "5"]


def test_the_tag_schedule_asks_for_the_tag_of_the_day(lake: Lake) -> None:
    with dg.instance_for_test() as instance:  # a schedule reaches resources by a stored instance
        lake.instance = instance
        check_daily_tags(lake)


def check_daily_tags(lake: Lake) -> None:
    schedule = lake.repository.get_schedule_def(KEYS.op("tag_daily"))
    day = datetime.fromisoformat("2024-02-29T00:05:00+00:00")

    def evaluate() -> object:
        with dg.build_schedule_context(
            instance=lake.instance,
            scheduled_execution_time=day,
            repository_def=lake.repository,
            resources={"lsm": lake.lsm},
        ) as context:
            return schedule.evaluate_tick(context)

    assert not evaluate().run_requests
    lake.write(rows(1))
    (request,) = evaluate().run_requests
    assert request.partition_key == "2024-02-29"
    assert lake.tags == ["2024-02-29"]
    lake.materialise(AssetKind.TAGS, partition_key=request.partition_key)
    assert [tag.name for tag in lake.lsm.existing_table("shop.orders").tags()] == ["2024-02-29"]


def test_a_run_records_its_own_commits_unless_it_died(lake: Lake) -> None:
    """A commit of a run that still runs is left to it; of a run killed long ago it is told."""
    run = lake.instance.create_run_for_job(lake.repository.get_job("__ASSET_JOB"))
    table = lake.lsm.table(lake.tables[0].declaration)
    table.upsert(rows(1), properties={"lsm.run.id": "r", "lsm.run.dagster-id": run.run_id})
    assert not lake.sync().asset_events
    lake.instance.report_run_failed(run)
    assert lake.sync().asset_events
    assert lake.snapshots == ["1"]


def test_a_run_that_seems_to_run_for_ever_is_not_waited_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lake.instance.create_run_for_job(lake.repository.get_job("__ASSET_JOB"))
    table = lake.lsm.table(lake.tables[0].declaration)
    table.upsert(rows(1), properties={"lsm.run.id": "r", "lsm.run.dagster-id": run.run_id})
    monkeypatch.setattr(sensors, "SILENCE_SECONDS_MAX", -1)
    assert lake.sync().asset_events


def test_a_bucket_that_no_pick_would_touch_is_not_asked_for(lake: Lake) -> None:
    """Each run is far smaller than the one before it: merging them would cost more than it saves."""
    sizes = [2_000 // 4**number for number in range(5)]
    for size in sizes:
        names = [hashlib.sha512(str((size, number)).encode()).hexdigest() for number in range(size)]
        lake.write(pa.table({"id": list(range(size)), "name": names}, schema=SCHEMA))
    table = lake.lsm.existing_table("shop.orders")
    (bucket,) = table.pressure()
    assert bucket.run_count >= bucket.run_trigger
    assert not bucket.compactable
    assert bucket.reason.startswith("not due")
    assert table.due_buckets() == frozenset()
    assert [forecast.due_in_millis for forecast in table.forecast()] != [0]
    assert not [finding for finding in lsm.doctor(table).findings if finding.kind == "debt"]
    assert not lake.tick("lsm_compaction").run_requests
    assert table.compact() is None

    lake.write(rows(9))
    assert table.due_buckets() == {(bucket.partition, bucket.bucket)}
    assert [bucket.compactable for bucket in table.pressure()] == [True]
    assert lake.tick("lsm_compaction").run_requests
    assert table.compact() is not None


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({}, "asked for by hand"),
        ({"dagster/from_automation_condition": "true"}, "asked for by its automation condition"),
        ({"dagster/schedule_name": "nightly"}, "asked for by the schedule nightly"),
        ({"dagster/sensor_name": "s", "lsm/reason": "6 sorted runs"}, "6 sorted runs"),
    ],
)
def test_a_compaction_names_who_asked_for_it(tags: dict[str, str], reason: str) -> None:
    assert compaction_reason(tags) == reason


def test_a_table_whose_columns_others_have_altered_is_still_compacted(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    lake.lsm.existing_table("shop.orders").alter(lsm.AddColumn("more", "STRING"))
    config = {"ops": {KEYS.op("compact"): {"config": {"full": True}}}}
    lake.materialise(AssetKind.COMPACTION, run_config=config)
    assert lake.lsm.existing_table("shop.orders").latest_snapshot().commit_kind.name == "COMPACT"
