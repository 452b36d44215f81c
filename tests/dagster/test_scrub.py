"""Materialising does the work that it names: snapshots are scrubbed, manifests compacted, tags changed."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.utils import make_new_run_id

import lsm_engine as lsm
from lsm_assets import sensors, table_assets
from lsm_assets.checks import CONTENTS, damage_text
from lsm_assets.dagster_core import checks_to_renew, failed_attempts
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.recording import recorded_versions
from tests.dagster.lake import KEYS, MARKS, ORDERS, Lake, rows
from tests.dagster.test_run_pauses import DAYS

pytestmark = MARKS

CHECK = dg.AssetCheckKey(KEYS.asset(AssetKind.SNAPSHOTS), "contents")
INSPECT = KEYS.op("inspect")
FLIPPED = int(os.environ.get("LSM_FLIPS", "40"))
"""Bytes of a file that are flipped, at most: a bloom filter is some 50 KB that look all alike."""


def backfill_tags(
    instance: dg.DagsterInstance, graph: BaseAssetGraph[Any], assets: list[dg.AssetKey]
) -> dict[str, str]:
    """Return the tags of the runs of a backfill of all partitions of some assets."""
    backfill = PartitionBackfill.from_asset_partitions(
        backfill_id=make_new_run_id(),
        asset_graph=graph,
        partition_names=None,
        asset_selection=assets,
        backfill_timestamp=0.0,
        tags={},
        dynamic_partitions_store=instance,
        all_partitions=True,
        title=None,
        description=None,
        run_config=None,
    )
    instance.add_backfill(backfill)
    return {"dagster/backfill": backfill.backfill_id}


def check_of(lake: Lake, partition: str | None = None) -> dg.AssetCheckEvaluation:
    storage = lake.instance.event_log_storage
    chosen = None if partition is None else PartitionKeyFilter(key=partition)
    record = storage.get_latest_asset_check_execution_by_key([CHECK], chosen)[CHECK]
    assert record.event is not None
    event = record.event.dagster_event
    assert event is not None
    found = event.event_specific_data
    assert isinstance(found, dg.AssetCheckEvaluation)
    return found


def passed_partitions(lake: Lake) -> set[str | None]:
    """Return the partitions of the check that Dagster shows as passed."""
    infos = lake.instance.event_log_storage.get_asset_check_partition_info([CHECK])
    return {
        info.partition_key
        for info in infos
        if info.is_current and info.latest_execution_status.value == "SUCCEEDED"
    }


def orders(lake: Lake) -> lsm.Table:
    return lake.lsm.existing_table("shop.orders")


def data_files(lake: Lake) -> list[Path]:
    return sorted(lake.warehouse.rglob("data-*"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


def scrub(lake: Lake, *ids: int, **config: object) -> bool:
    tags = {
        "dagster/asset_partition_range_start": str(ids[0]),
        "dagster/asset_partition_range_end": str(ids[-1]),
    }
    how = {"ops": {INSPECT: {"config": config}}} if config else None
    return lake.materialise(
        AssetKind.SNAPSHOTS, tags=tags, run_config=how, raise_on_error=False
    ).success


@pytest.mark.parametrize("place", [4, 0.3, 0.6, -5])
def test_flipped_bytes_turn_the_check_red_and_name_the_file_and_its_rows(
    lake: Lake, place: float
) -> None:
    lake.write(rows(*range(50)), rows(*range(50, 90)))
    assert scrub(lake, 2)
    assert check_of(lake).passed
    path = data_files(lake)[0]
    size = path.stat().st_size
    flip(path, int(size * place) if isinstance(place, float) else int(place) % size)
    assert not scrub(lake, 2)
    found = check_of(lake)
    assert not found.passed
    assert path.name in found.description
    assert " rows" in found.description
    assert "keys {" in found.description or "keys " in found.description
    assert "lsm repair shop.orders restore" in found.description
    assert path.name in found.metadata["lsm/damaged"].value


@pytest.mark.parametrize(
    "options",
    [{}, {"deletion-vectors.enabled": "true"}, {"file.format": "orc"}, {"index.type": "bloom"}],
    ids=str,
)
def test_wherever_a_byte_of_a_live_file_is_flipped_the_check_is_red(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Bytes all over a live data file, in headers, pages, statistics, filters and footers alike."""
    with lsm.open_catalog(tmp_path) as catalog:
        table = catalog.create_table(
            "shop.orders", ORDERS.schema, primary_key=["id"], options={"bucket": "1", **options}
        )
        table.upsert(rows(*range(60)))
        table.upsert(rows(*range(50, 90), name="y"))
        (first, *_) = table.system("files")["file_path"].to_pylist()
        (path,) = tmp_path.rglob(first.rsplit("/", 1)[-1])
        sound, passed = path.read_bytes(), []
        for at in range(0, len(sound), max(7, len(sound) // FLIPPED)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 0xFF]) + sound[at + 1 :])
            report = table.verify(deep=True)
            told = damage_text("shop.orders", report)
            if report.is_clean or path.name not in told or " rows" not in told:
                passed.append((at, told))
        assert not passed
        path.write_bytes(sound)
        assert table.verify(deep=True).is_clean


def test_a_range_is_one_run_that_reads_each_file_once(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(4)))
    assert scrub(lake, 1, 2, 3, 4)
    # Every file of the newest snapshot has been read with an older one.
    assert check_of(lake, "4").metadata["lsm/files_read"].value == 1
    assert check_of(lake, "4").metadata["lsm/files_read_before"].value == 3
    pages = [event for event in lake.events(AssetKind.SNAPSHOTS) if "lsm/levels" in event.metadata]
    assert sorted(str(event.partition) for event in pages) == list("1234")
    assert scrub(lake, 4)
    assert check_of(lake).metadata["lsm/files_read"].value == 0
    assert scrub(lake, 4, read_again=True)
    assert check_of(lake).metadata["lsm/files_read"].value == 4


def test_materialize_all_of_a_group_reads_the_newest_snapshot_and_keeps_earlier_results(
    lake: Lake,
) -> None:
    lake.write(*(rows(number) for number in range(4)))
    assert scrub(lake, 2)
    group = [KEYS.asset(kind) for kind in AssetKind if kind is not AssetKind.FILES]
    tags = backfill_tags(lake.instance, lake.repository.asset_graph, group)
    whole = {
        "dagster/asset_partition_range_start": "1",
        "dagster/asset_partition_range_end": "4",
    }
    assert lake.materialise(AssetKind.SNAPSHOTS, tags={**tags, **whole}).success
    assert passed_partitions(lake) == {"2", "4"}
    pages = {event.partition: event.metadata for event in lake.events(AssetKind.SNAPSHOTS)}
    assert pages["1"]["lsm/read"].value.startswith("not yet")
    alone = backfill_tags(lake.instance, lake.repository.asset_graph, group[1:3])
    assert lake.materialise(AssetKind.SNAPSHOTS, tags={**alone, **whole}).success
    assert passed_partitions(lake) == {"1", "2", "3", "4"}


def test_materialize_all_of_a_group_writes_only_partitions_that_are_due(tmp_path: Path) -> None:
    days = replace(DAYS, deps=(dg.AssetKey("source"),))
    written: list[str] = []

    def writer(context: dg.AssetExecutionContext, table: lsm.Table) -> object:
        written.append(context.partition_key)
        return pa.table({"id": [1], "name": ["x"], "day": [context.partition_key]})

    assets = lsm_table_assets(days, writer)
    key = days.keys.asset(AssetKind.TABLE)
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [assets])
        job = lake.repository.get_implicit_job_def_for_assets([key])
        group = [days.keys.asset(kind) for kind in AssetKind if kind is not AssetKind.FILES]
        tags = backfill_tags(instance, lake.repository.asset_graph, group)

        def run(day: str, run_tags: dict[str, str]) -> list[str]:
            written.clear()
            chosen = {"asset_selection": [key], "partition_key": day, "tags": run_tags}
            assert job.execute_in_process(instance=instance, **chosen).success
            return list(written)

        def report(version: str) -> None:
            source = {"dagster/data_version": version}
            instance.report_runless_asset_event(dg.AssetMaterialization("source", tags=source))

        report("1")
        assert run("a", tags) == ["a"], "it is missing"
        before = recorded_versions(instance, key)
        assert run("a", tags) == []
        assert recorded_versions(instance, key) == before
        assert run("a", {}) == ["a"], "a run of the table alone writes"
        report("2")
        assert run("a", tags) == ["a"], "its input has changed"


def test_a_snapshot_of_another_client_is_recorded_in_the_lineage(lake: Lake) -> None:
    lake.write(rows(1))
    lsm.open_table(orders(lake).location).upsert(rows(2))
    lake.instance.add_dynamic_partitions("shop.orders$snapshots", ["2"])
    assert scrub(lake, 2)
    lineage = lake.lsm.catalog.lineage
    assert lineage.snapshots(lsm.TableName.parse("shop.orders")).column(
        "snapshot_id"
    ).to_pylist() == [
        2,
        1,
    ]


def test_the_verify_job_reads_what_no_time_of_change_gives_away(lake: Lake) -> None:
    lake.write(rows(1))
    job = lake.repository.get_job(KEYS.op("verify"))
    assert job.execute_in_process(instance=lake.instance).success
    assert check_of(lake).passed
    flip(data_files(lake)[0], 40)
    assert not job.execute_in_process(instance=lake.instance, raise_on_error=False).success
    assert not check_of(lake).passed


def test_many_manifests_are_compacted(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(4)))
    lake.materialise(AssetKind.MANIFEST_LISTS, partition_key="4")
    assert orders(lake).latest_snapshot().id == 4
    table = orders(lake)
    table.alter(lsm.SetOption("manifest.merge-min-count", "3"))
    lake.materialise(AssetKind.MANIFEST_LISTS, partition_key="3")
    assert orders(lake).latest_snapshot().id == 4
    lake.materialise(AssetKind.MANIFEST_LISTS, partition_key="4")
    assert orders(lake).system("manifests").num_rows == 1
    assert lake.snapshots[-1] == "5"
    assert not lake.sync().asset_events


def tag(lake: Lake, name: str, **config: object) -> bool:
    how = {"ops": {KEYS.op("tag"): {"config": config}}}
    return lake.materialise(
        AssetKind.TAGS, partition_key=name, run_config=how, raise_on_error=False
    ).success


def test_tags_are_created_replaced_extended_and_deleted(lake: Lake) -> None:
    lake.write(rows(1), rows(2), rows(3))
    lake.add_tag_partition("v1")
    assert tag(lake, "v1", snapshot_id=1, retained="1 d")
    assert not tag(lake, "v1", snapshot_id=2)
    assert tag(lake, "v1", action="REPLACE", snapshot_id=2)
    assert orders(lake).tag("v1").snapshot.id == 2
    orders(lake).expire_snapshots(retain_min=1, retain_max=1, older_than="0 ms", everything=True)
    assert tag(lake, "v1", action="EXTEND", retained="9 d")
    found = orders(lake).tag("v1")
    assert (found.snapshot.id, found.retained_millis) == (2, 9 * 86_400_000)
    assert orders(lake).scan(tag="v1").count() == 2
    lake.sync()
    assert tag(lake, "v1", action="DELETE")
    assert orders(lake).tag_names() == []
    lake.sync()
    assert lake.tags == []
    lake.add_tag_partition("v2")
    assert not tag(lake, "v2", action="DELETE")
    assert lake.tags == [], "nothing is shown of a tag that does not exist"
    lake.add_tag_partition("v3")
    assert tag(lake, "v3")
    assert tag(lake, "v3", action="DELETE")
    assert lake.tags == [], "no tick has seen it"


@pytest.mark.parametrize("is_made", [True, False])
def test_a_run_that_was_killed_leaves_a_partition_only_of_a_tag_that_it_has_made(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    lake.write(rows(1))
    lake.add_tag_partition("v1")
    lake.add_tag_partition("to come")
    create = table_assets._create_tag

    def killed(*given: Any) -> None:
        if is_made:
            create(*given)
        raise ValueError("as if the process had ended here")

    monkeypatch.setattr(table_assets, "_create_tag", killed)
    assert not tag(lake, "v1")
    lake.sync()
    assert lake.tags == (["v1", "to come"] if is_made else ["to come"])
    assert failed_attempts(lake.instance, KEYS.asset(AssetKind.TAGS)) == (
        set() if is_made else {"v1"}
    )
    assert not lake.sync().asset_events


def test_a_refused_change_leaves_a_tag_green(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    lake.add_tag_partition("v1")
    lake.add_tag_partition("missing")
    assert tag(lake, "v1", snapshot_id=1)
    assert not tag(lake, "v1", snapshot_id=2)
    assert not tag(lake, "missing", snapshot_id=77)
    assert lake.tags == ["v1"]
    failed = lake.instance.event_log_storage.get_latest_asset_partition_materialization_attempts_without_materializations(
        KEYS.asset(AssetKind.TAGS)
    )
    assert "v1" not in failed
    (event,) = lake.events(AssetKind.TAGS)[-1:]
    assert event.partition == "v1"


def test_what_a_tag_pins_is_read_first_and_a_damaged_snapshot_is_not_tagged(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    lake.add_tag_partition("v1")
    assert tag(lake, "v1", snapshot_id=1)
    assert passed_partitions(lake) == {"1"}
    (event,) = lake.events(AssetKind.TAGS)
    assert event.metadata["lsm/verified"].value == "1 file read, 0 read before: all as written"
    newest = max(data_files(lake), key=lambda file: file.stat().st_mtime_ns)
    flip(newest, 40)
    lake.add_tag_partition("v2")
    assert not tag(lake, "v2")
    assert shown_failures(lake) == {("contents", "2")}
    assert orders(lake).tag_names() == lake.tags == ["v1"]
    lake.add_tag_partition("v2")
    assert tag(lake, "v2", verify=False)
    assert orders(lake).tag("v2").snapshot.id == 2


def test_a_snapshot_that_a_tag_read_before_it_was_recorded_stays_green(lake: Lake) -> None:
    lake.lsm.table(ORDERS).upsert(rows(1))  # another client's, which no tick has seen
    lake.add_tag_partition("v1")
    assert tag(lake, "v1")
    assert passed_partitions(lake) == {"1"}
    for _ in range(2):
        lake.sync()
        assert lake.snapshots == ["1"]
    assert passed_partitions(lake) == {"1"}


def shown_failures(lake: Lake) -> set[tuple[str, str | None]]:
    """Return the checks, with their partitions, that Dagster shows as failed."""
    keys = [
        CHECK,
        dg.AssetCheckKey(KEYS.asset(AssetKind.MANIFEST_LISTS), "shape"),
        *(dg.AssetCheckKey(KEYS.asset(AssetKind.TABLE), name) for name in ("references", "totals")),
    ]
    return {
        (key.name, partition)
        for (key, partition), failure in checks_to_renew(lake.instance, keys).items()
        if failure.is_shown
    }


def check_table(lake: Lake) -> None:
    key = KEYS.asset(AssetKind.TABLE)
    job = lake.repository.get_implicit_job_def_for_assets([key])
    checks = [dg.AssetCheckKey(key, name) for name in ("references", "totals")]
    subset = job.get_subset(asset_check_selection=set(checks), asset_selection=set())
    subset.execute_in_process(instance=lake.instance)


def test_a_snapshot_that_failed_stays_red_until_it_is_mended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "RENEWAL_WAIT", 0)  # however slow the machine is
    lake.write(rows(1), rows(2), rows(3))
    path = min(data_files(lake), key=lambda file: file.stat().st_mtime_ns)
    sound = path.read_bytes()
    flip(path, 40)
    assert not scrub(lake, 1)
    assert not scrub(lake, 2), "the second snapshot names the same file"
    assert shown_failures(lake) == {("contents", "1"), ("contents", "2")}
    lake.write(rows(4))
    orders(lake).upsert(rows(5))
    lake.sync()
    lake.materialise(AssetKind.COMPACTION)
    lake.sync()
    assert shown_failures(lake) == {("contents", "1"), ("contents", "2")}
    assert not lake.sync().asset_events, "a failure that is shown is not reported again"
    path.write_bytes(sound)
    lake.sync()
    assert shown_failures(lake) == set()
    assert check_of(lake).passed


def test_a_lost_file_stays_red_over_commits_and_turns_green_when_it_is_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "RENEWAL_WAIT", 0)  # however slow the machine is
    lake.write(rows(1), rows(2))
    path = data_files(lake)[0]
    lost = path.rename(path.with_suffix(".lost"))
    check_table(lake)
    lake.materialise(AssetKind.MANIFEST_LISTS, partition_key="2", raise_on_error=False)
    red = {("references", None), ("shape", "2")}
    assert shown_failures(lake) == red
    lake.write(rows(3))
    assert shown_failures(lake) == red, "the commit evaluates what its event would hide"
    orders(lake).upsert(rows(4))
    for _ in range(2):
        lake.sync()
    assert shown_failures(lake) == red
    lost.rename(path)
    lake.sync()
    assert shown_failures(lake) == set()


def test_the_verify_job_marks_the_snapshots_that_name_a_damaged_file(lake: Lake) -> None:
    lake.write(rows(1), rows(2), rows(3))
    newest = max(data_files(lake), key=lambda file: file.stat().st_mtime_ns)
    sound = newest.read_bytes()
    flip(newest, 40)
    job = lake.repository.get_job(KEYS.op("verify"))
    assert not job.execute_in_process(instance=lake.instance, raise_on_error=False).success
    assert shown_failures(lake) == {(CONTENTS, "3")}
    newest.write_bytes(sound)
    assert job.execute_in_process(instance=lake.instance).success
    assert shown_failures(lake) == set()


def test_a_recorded_snapshot_is_told_from_one_that_was_read(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    assert scrub(lake, 2)
    pages = {event.partition: event.metadata for event in lake.events(AssetKind.SNAPSHOTS)}
    assert pages["1"]["lsm/read"].value == "not yet: recorded by its commit"
    assert "1 read" in pages["2"]["lsm/read"].value or "2 read" in pages["2"]["lsm/read"].value
