"""What a run is recorded to have read can be read after expiry, rollback and the like, or it says why not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import StaleStatus

import lsm_engine as lsm
from lsm_assets.factory import lsm_table_assets
from lsm_assets.io_manager import LsmIOManager
from lsm_assets.keys import AssetKind
from lsm_assets.pinning import pinned_table
from lsm_assets.recording import recorded_versions
from lsm_assets.resource import resources_from
from lsm_assets.sensors import version_events
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from tests.dagster.lake import KEYS, MARKS, ORDERS, Lake, rows
from tests.dagster.test_freshness import COUNTS, statuses

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

TO_DO = "Materialise shop/orders again"


def count_orders(context: dg.AssetExecutionContext, table: object) -> pa.Table:
    orders = pinned_table(context, KEYS.asset(AssetKind.TABLE))
    count = orders.table.scan(**orders.at).count()
    return pa.table({"id": [0], "rows": [count]}, schema=COUNTS.schema)


@pytest.fixture
def reader(lake: Lake) -> Lake:
    counts = lsm_table_assets(COUNTS, count_orders)
    return Lake(lake.warehouse, lake.instance, [*lake.tables, counts], lake.to_write)


def read(lake: Lake) -> tuple[int, str]:
    """Return how many rows a reader sees, and what its page shows of its inputs."""
    key = COUNTS.keys.asset(AssetKind.TABLE)
    job = lake.repository.get_implicit_job_def_for_assets([key])
    assert job.execute_in_process(instance=lake.instance, asset_selection=[key]).success
    entry = lake.instance.get_latest_materialization_event(key)
    (row,) = lake.lsm.existing_table("shop.counts").scan().to_arrow().to_pylist()
    return row["rows"], entry.asset_materialization.metadata["lsm/inputs"].value


def fails(lake: Lake) -> str:
    with pytest.raises(dg.Failure) as failure:
        read(lake)
    return failure.value.description


def orders(lake: Lake) -> lsm.Table:
    return lake.lsm.existing_table("shop.orders")


def expire(table: lsm.Table) -> None:
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 ms", everything=True)
    assert len(table.snapshot_ids()) == 1


def is_fresh(lake: Lake) -> bool:
    return statuses(lake)["counts"] == {StaleStatus.FRESH}


def test_compactions_and_expiry_leave_readers_fresh_and_able_to_read(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1), rows(2))
    assert read(lake)[0] == 2
    orders(lake).compact(full=True)
    expire(orders(lake))
    lake.sync()
    assert is_fresh(lake)
    count, shown = read(lake)
    assert count == 2
    assert "snapshot 2 has expired; read at 3" in shown
    properties = lake.lsm.existing_table("shop.counts").latest_snapshot().properties
    assert '"snapshot":3' in properties["lsm.inputs"]

    lake.write()  # a run with nothing to change records the version that it was
    lake.cursors.clear()
    lake.sync()
    assert is_fresh(lake)


@pytest.mark.parametrize(
    "options", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}], ids=str
)
def test_where_level_0_is_not_read_a_reader_sees_what_the_run_has_written(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """The rows of a write are seen in the compaction after it, which is what the version names then."""
    to_write: list[pa.Table] = []
    declared = replace(ORDERS, options={"bucket": "1", **options})
    assets = [
        lsm_table_assets(declared, lambda context, table: list(to_write)),
        lsm_table_assets(COUNTS, count_orders),
    ]
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, assets, to_write)
        lake.write(rows(1))
        assert read(lake)[0] == 1
        lake.write(rows(2), rows(3))
        lake.sync()
        assert statuses(lake)["counts"] == {StaleStatus.STALE}
        assert read(lake)[0] == 3
        assert is_fresh(lake)
        orders(lake).compact(full=True)
        lake.sync()
        assert is_fresh(lake)
        orders(lake).upsert(rows(4))
        expire(orders(lake))
        assert TO_DO in fails(lake)
        lake.sync()
        assert statuses(lake)["counts"] == {StaleStatus.STALE}
        assert read(lake)[0] == 4


def test_a_change_that_dagster_has_not_heard_of_is_not_read_for_another(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1))
    orders(lake).upsert(rows(2))
    expire(orders(lake))
    message = fails(lake)
    assert TO_DO in message
    assert "snapshot 2 has changed rows that are read" in message
    lake.sync()
    assert read(lake)[0] == 2


@pytest.mark.parametrize("where", ["tag", "branch"])
def test_a_tag_or_a_branch_keeps_a_recorded_snapshot_readable(reader: Lake, where: str) -> None:
    lake = reader
    lake.write(rows(1))
    table = orders(lake)
    table.create_tag("v1")
    if where == "branch":
        table.create_branch("fix", "v1")
        table.delete_tag("v1")
    table.upsert(rows(2))
    expire(table)
    count, shown = read(lake)
    assert count == 1
    assert f"read from {where}" in shown


def test_a_rollback_moves_the_data_version_back(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1), rows(2))
    assert read(lake)[0] == 2
    lake.sync()
    orders(lake).rollback_to(1)
    message = fails(lake)
    assert TO_DO in message
    assert "snapshot 2 was rolled back" in message
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 1
    assert is_fresh(lake)

    orders(lake).upsert(rows(3, 4))  # has the id of the commit that was taken back
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 3


def test_a_commit_that_was_taken_back_between_two_looks_is_noticed(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1))
    lake.sync()
    lake.write(rows(2))
    assert read(lake)[0] == 2
    orders(lake).rollback_to(1)
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 1
    # Nothing changed but that the reader is up to date again.
    (evaluation,) = lake.sync().asset_events
    assert isinstance(evaluation, dg.AssetCheckEvaluation)
    assert (evaluation.check_name, evaluation.passed) == ("inputs", True)


def test_an_id_given_again_is_not_taken_for_the_commit_that_had_it(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1), rows(2))
    read(lake)
    orders(lake).rollback_to(1)
    orders(lake).upsert(rows(3, 4))
    assert "snapshot 2 was rolled back" in fails(lake)
    orders(lake).compact(full=True)
    expire(orders(lake))
    assert "snapshot 2 was replaced" in fails(lake)
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 3


def test_a_fast_forward_and_a_restore_move_the_data_version(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1))
    read(lake)
    table = orders(lake)
    table.create_tag("v1")
    table.create_branch("fix", "v1")
    table.branch("fix").upsert(rows(2, 3))
    table.upsert(rows(7))
    lake.sync()
    assert read(lake)[0] == 2
    table.fast_forward("fix", force=True)
    assert TO_DO in fails(lake)
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 3

    table.rollback_to_as_latest(1)
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 1


def test_a_table_dropped_and_created_anew_has_another_version(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1, 2))
    read(lake)
    lake.sync()
    lake.lsm.catalog.drop_table("shop.orders")
    lake.sync()
    assert lake.snapshots == []
    assert statuses(lake)["counts"] == {StaleStatus.STALE}

    lake.lsm.table(ORDERS)
    lake.sync()
    assert read(lake)[0] == 0
    orders(lake).upsert(rows(3))
    assert TO_DO in fails(lake)
    lake.sync()
    assert read(lake)[0] == 1


def test_a_table_created_anew_between_two_looks_is_noticed(reader: Lake) -> None:
    lake = reader
    lake.write(rows(1, 2))
    read(lake)
    lake.sync()
    lake.lsm.catalog.drop_table("shop.orders")
    lake.lsm.table(ORDERS).upsert(rows(3))
    assert "snapshot 1 was rolled back, or the table was created anew" in fails(lake)
    lake.sync()
    assert statuses(lake)["counts"] == {StaleStatus.STALE}
    assert read(lake)[0] == 1


DAYS = dg.StaticPartitionsDefinition(["a", "b", "c"])


class Daily:
    """A partitioned table and its reader, kept by the I/O manager."""

    def __init__(self, warehouse: Path, instance: dg.DagsterInstance) -> None:
        self.seen: dict[str, int] = {}
        settings = settings_from({WAREHOUSE: str(warehouse), EXECUTOR: "local"})
        self.wired, self.instance = resources_from(settings), instance
        seen = self.seen

        @dg.asset(
            key=["shop", "events"],
            partitions_def=DAYS,
            metadata={
                "lsm/primary_key": ["day", "id"],
                "lsm/partitioned_by": "day",
                "lsm/partition_column": "day",
                "lsm/options": {"bucket": "1", "write-only": "true"},
            },
        )
        def events(context: dg.AssetExecutionContext) -> pa.Table:
            return of_day(context.partition_key, 1, 2)

        @dg.asset(
            key=["shop", "event_counts"],
            partitions_def=DAYS,
            metadata={"lsm/primary_key": "day"},
            ins={"events": dg.AssetIn(key=["shop", "events"])},
        )
        def event_counts(context: dg.AssetExecutionContext, events: pa.Table) -> pa.Table:
            seen[context.partition_key] = events.num_rows
            return pa.table({"day": [context.partition_key], "rows": [events.num_rows]})

        self.assets = [events, event_counts]

    def run(self, which: int, day: str) -> dg.ExecuteInProcessResult:
        io = {"io_manager": LsmIOManager(lsm=self.wired["lsm"]), **self.wired}
        return dg.materialize(
            self.assets,
            resources=io,
            instance=self.instance,
            selection=[self.assets[which]],
            partition_key=day,
        )

    @property
    def table(self) -> lsm.Table:
        return self.wired["lsm"].existing_table("shop.events")


def of_day(day: str, *ids: int) -> pa.Table:
    return pa.table({"day": [day] * len(ids), "id": list(ids)})


@pytest.fixture
def daily(tmp_path: Path) -> Iterator[Daily]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Daily(tmp_path / "daily", instance)


def test_a_backfill_of_partitions_reads_what_is_left_of_each(daily: Daily) -> None:
    for day in ("a", "b", "c"):
        daily.run(0, day)
    daily.table.upsert(of_day("b", 7))  # not reported, and of one partition only
    expire(daily.table)
    for day in ("a", "c"):
        (event,) = daily.run(1, day).asset_materializations_for_node("shop__event_counts")
        assert daily.seen[day] == 2
        assert "snapshot 4" in event.metadata["lsm/inputs"].value
        assert "the partitions read are unchanged" in event.metadata["lsm/inputs"].value
    with pytest.raises(dg.Failure) as failure:
        daily.run(1, "b")
    assert "snapshot 4 has changed rows that are read" in failure.value.description
    daily.run(0, "b")
    daily.run(1, "b")
    assert daily.seen["b"] == 3
    inputs = daily.wired["lsm"].existing_table("shop.event_counts").latest_snapshot().properties
    assert '"shop.events"' in inputs["lsm.inputs"]


def test_a_partition_is_read_at_its_own_version(daily: Daily) -> None:
    daily.run(0, "a")
    daily.table.upsert(of_day("a", 7, 8))  # not reported
    daily.run(0, "b")
    daily.run(1, "a")
    assert daily.seen["a"] == 2
    daily.table.rollback_to(1)
    daily.run(1, "a")
    assert daily.seen["a"] == 2
    with pytest.raises(dg.Failure, match=r"snapshot 3 was rolled back.*Materialise shop/events"):
        daily.run(1, "b")


def test_a_rollback_moves_the_versions_of_the_partitions_that_it_takes_back(
    daily: Daily,
) -> None:
    daily.run(0, "a")
    daily.run(0, "b")
    key = dg.AssetKey(["shop", "events"])
    before = recorded_versions(daily.instance, key)
    daily.table.rollback_to(1)
    state: dict[str, str] = {}
    declaration = replace(ORDERS, name="shop.events")
    lineage = daily.wired["lsm"].catalog.lineage
    events = version_events(daily.instance, declaration, daily.table, lineage, state)
    assert [event.partition for event in events] == ["b"]
    for event in events:
        daily.instance.report_runless_asset_event(event)
    after = recorded_versions(daily.instance, key)
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert version_events(daily.instance, declaration, daily.table, lineage, {}) == []
    daily.run(1, "b")
    assert daily.seen["b"] == 0
