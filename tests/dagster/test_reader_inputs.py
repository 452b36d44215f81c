"""Readers whose inputs have changed say so: by time, of many partitions, of the I/O manager, beside outside commits."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from lsm_assets.dagster_core import check_target, unevaluated_checks
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.sensors import io_sync_sensor
from lsm_assets.staleness import (
    Reader,
    changed_inputs,
    inputs_changed,
    reader_definitions,
    readers_from_assets,
)
from lsm_engine import InvalidInputError
from tests.dagster.lake import MARKS, ORDERS, SCHEMA, Lake, answer, rows

pytestmark = MARKS
DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-06-01")
UPSTREAM, READER = dg.AssetKey("upstream"), dg.AssetKey("reader")


def report(
    instance: dg.DagsterInstance, key: dg.AssetKey, version: str, partition: str | None = None
) -> None:
    tags = {"dagster/data_version": version}
    instance.report_runless_asset_event(
        dg.AssetMaterialization(asset_key=key, partition=partition, tags=tags)
    )


def materialised(instance: dg.DagsterInstance, definition: Any, mapping: Any = None) -> Any:
    """Return the reader of an upstream asset after a run of it."""
    upstream = dg.AssetSpec(UPSTREAM, partitions_def=definition)

    @dg.asset(key=READER, deps=[dg.AssetDep(upstream, partition_mapping=mapping)])
    def reader() -> None:
        pass

    dg.materialize([reader, upstream], selection=[reader], instance=instance)
    return reader


@pytest.mark.parametrize(
    "definition",
    [DAYS, dg.StaticPartitionsDefinition([str(number) for number in range(120)])],
    ids=["partitions by time", "120 partitions"],
)
def test_a_reader_of_all_partitions_is_out_of_date_once_one_of_them_has_changed(
    definition: Any,
) -> None:
    """Dagster's own dot compares neither of these edges."""
    reader = Reader(key=READER, upstream=(UPSTREAM,))
    keys = definition.get_partition_keys()
    with dg.DagsterInstance.ephemeral() as instance:
        assert changed_inputs(instance, reader) is None
        for key in keys[:3]:
            report(instance, UPSTREAM, "1", key)
        materialised(instance, definition, dg.AllPartitionMapping())
        assert changed_inputs(instance, reader) == []
        report(instance, UPSTREAM, "1", keys[1])
        assert changed_inputs(instance, reader) == [], "an event with the same version is no change"
        report(instance, UPSTREAM, "2", keys[1])
        report(instance, UPSTREAM, "1", keys[3])
        (change,) = changed_inputs(instance, reader) or []
        assert change.partitions == (keys[1], keys[3])
        materialised(instance, definition, dg.AllPartitionMapping())
        assert changed_inputs(instance, reader) == []


def test_a_reader_by_partitions_is_out_of_date_where_its_own_partition_has_changed() -> None:
    reader = Reader(key=READER, upstream=(UPSTREAM,), is_partitioned=True)
    upstream = dg.AssetSpec(UPSTREAM, partitions_def=DAYS)

    @dg.asset(key=READER, deps=[upstream], partitions_def=DAYS)
    def by_day() -> None:
        pass

    with dg.DagsterInstance.ephemeral() as instance:
        for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
            report(instance, UPSTREAM, "1", day)
            if day != "2024-01-03":
                chosen = {"instance": instance, "partition_key": day}
                dg.materialize([by_day, upstream], selection=[by_day], **chosen)
        assert changed_inputs(instance, reader) == [], "a partition that was never read is missing"
        report(instance, UPSTREAM, "2", "2024-01-02")
        (change,) = changed_inputs(instance, reader) or []
        assert change.partitions == ("2024-01-02",)


def test_a_reader_by_partitions_of_an_asset_without_any_is_out_of_date_as_a_whole() -> None:
    reader = Reader(key=READER, upstream=(UPSTREAM,), is_partitioned=True)
    with dg.DagsterInstance.ephemeral() as instance:
        report(instance, UPSTREAM, "1")
        report(instance, READER, "x", "a")
        assert changed_inputs(instance, reader) == []
        report(instance, UPSTREAM, "1")
        assert changed_inputs(instance, reader) == []
        report(instance, UPSTREAM, "2")
        report(instance, READER, "x", "b")
        (change,) = changed_inputs(instance, reader) or []
        assert change.partitions == ("a",)


def test_the_condition_runs_a_reader_whose_check_has_found_a_change() -> None:
    definition = DAYS
    with dg.DagsterInstance.ephemeral() as instance:
        report(instance, UPSTREAM, "1", "2024-01-01")
        upstream = dg.AssetSpec(UPSTREAM, partitions_def=definition)

        @dg.asset(
            key=READER,
            deps=[dg.AssetDep(upstream, partition_mapping=dg.AllPartitionMapping())],
            automation_condition=inputs_changed(READER),
        )
        def reader() -> None:
            pass

        own = dg.Definitions(assets=[reader, upstream])
        definitions = dg.Definitions.merge(own, reader_definitions([reader]))
        sensor = definitions.get_repository_def().get_sensor_def("lsm_readers")
        cursors: dict[str, Any] = {"sensor": None, "condition": None}

        def requested() -> int:
            """Tick the sensor of readers, then evaluate the condition."""
            with dg.build_sensor_context(instance=instance, cursor=cursors["sensor"]) as context:
                told = sensor.evaluate_tick(context)
            cursors["sensor"] = told.cursor
            answer(instance, told)
            evaluation = dg.evaluate_automation_conditions(
                defs=definitions,
                instance=instance,
                asset_selection=dg.AssetSelection.assets(READER),
                cursor=cursors["condition"],
            )
            cursors["condition"] = evaluation.cursor
            return evaluation.total_requested

        def run() -> None:
            dg.materialize([reader, upstream], selection=[reader], instance=instance)

        run()
        assert requested() == 0
        report(instance, UPSTREAM, "2", "2024-01-01")
        assert requested() == 1
        run()
        assert requested() == 0
        assert requested() == 0


def test_a_reader_whose_run_failed_keeps_the_result_of_its_check() -> None:
    @dg.asset(key=READER, deps=[dg.AssetSpec(UPSTREAM)])
    def reader(context: dg.AssetExecutionContext) -> None:
        if context.run.tags.get("fails"):
            raise dg.Failure

    definitions = dg.Definitions.merge(
        dg.Definitions(assets=[reader]), reader_definitions([reader])
    ).get_repository_def()
    job = definitions.get_implicit_job_def_for_assets([READER])
    sensor, check = definitions.get_sensor_def("lsm_readers"), dg.AssetCheckKey(READER, "inputs")
    with dg.DagsterInstance.ephemeral() as instance:
        report(instance, UPSTREAM, "1")
        assert job.execute_in_process(instance=instance).success
        cursor = None
        for _ in range(2):
            with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
                told = sensor.evaluate_tick(context)
            cursor = told.cursor
            answer(instance, told)
            failed = {"tags": {"fails": "yes"}, "raise_on_error": False}
            assert not job.execute_in_process(instance=instance, **failed).success
        assert unevaluated_checks(instance, [check]) == {check}
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            answer(instance, sensor.evaluate_tick(context))
        assert unevaluated_checks(instance, [check]) == set()


BY_DAY = TableDeclaration(
    name="shop.days",
    schema=SCHEMA,
    primary_key=("id",),
    options={"bucket": "1"},
    partitions_def=DAYS,
    partition_columns={"name": "{key}"},
)
TOTALS = TableDeclaration(
    name="shop.totals",
    schema=SCHEMA,
    primary_key=("id",),
    options={"bucket": "1"},
    deps=(BY_DAY.keys.asset(AssetKind.TABLE),),
)


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Lake]:
    """A table without partitions that is made of one with partitions by time, as in the sample."""
    tables = [
        lsm_table_assets(BY_DAY, lambda context, table: rows(1, name=context.partition_key)),
        lsm_table_assets(TOTALS, lambda context, table: rows(1)),
    ]
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(tmp_path / "lake", instance, tables)


def test_a_declared_table_warns_within_two_ticks_of_an_outside_commit(fed: Lake) -> None:
    def run(declaration: TableDeclaration, **how: Any) -> None:
        key = declaration.keys.asset(AssetKind.TABLE)
        job = fed.repository.get_implicit_job_def_for_assets([key])
        job.execute_in_process(instance=fed.instance, asset_selection=[key], **how)

    def warning() -> str | None:
        key = TOTALS.keys.asset(AssetKind.TABLE)
        for _ in range(2):
            fed.sync()
        check = dg.AssetCheckKey(key, "inputs")
        records = fed.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])
        evaluation = records[check].evaluation
        assert evaluation is not None
        assert evaluation.target_materialization_data == check_target(fed.instance, key)
        return None if evaluation.passed else evaluation.description

    run(BY_DAY, partition_key="2024-01-01")
    run(TOTALS)
    assert warning() is None
    assert not fed.sync().asset_events, "a quiet tick compares nothing"
    fed.lsm.existing_table("shop.days").upsert(rows(7, name="2024-01-01"))
    assert "shop/days (2024-01-01)" in (warning() or "")
    run(TOTALS)
    assert warning() is None
    run(BY_DAY, partition_key="2024-01-02")
    assert "shop/days (2024-01-02)" in (warning() or "")


def test_a_reader_of_a_view_is_out_of_date_once_its_table_has_changed(tmp_path: Path) -> None:
    viewed = replace(ORDERS, views=("ro", "branch_dev"))
    view = viewed.keys.view("branch_dev")

    @dg.asset(key=READER, deps=[view, viewed.keys.view("ro")])
    def reader() -> None:
        pass

    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(viewed)])
        definitions = dg.Definitions.merge(lake.definitions, dg.Definitions(assets=[reader]))
        repository = definitions.get_repository_def()
        table, job = lake.lsm.table(viewed), repository.get_implicit_job_def_for_assets([READER])

        def shown() -> tuple[list[str], StaleStatus]:
            """Return the inputs that have changed, and what Dagster's own dot says."""
            graph, loading = repository.asset_graph, LoadingContextForTest(instance)
            status = CachingStaleStatusResolver(instance, graph, loading).get_status(READER)
            (own,) = readers_from_assets([reader])
            return [str(change) for change in changed_inputs(instance, own) or ()], status

        table.upsert(rows(1))
        lake.sync()
        assert job.execute_in_process(instance=instance, asset_selection=[READER]).success
        assert shown() == ([], StaleStatus.FRESH)
        table.compact(full=True)
        lake.sync()
        assert shown() == ([], StaleStatus.FRESH)
        table.upsert(rows(2))
        lake.sync()
        views = ["shop/orders.branch_dev", "shop/orders.ro"]
        assert shown() == (views, StaleStatus.STALE)
    with pytest.raises(InvalidInputError, match="views are ro"):
        replace(ORDERS, views=("dev",))


def test_readers_without_upstream_assets_get_no_check() -> None:
    @dg.asset
    def alone() -> None:
        pass

    assert not reader_definitions([alone]).asset_checks
    assert io_sync_sensor([alone]).name == "lsm_io_sync"
    assert not [check for check in lsm_table_assets(ORDERS).checks if "inputs" in str(check.keys)]
