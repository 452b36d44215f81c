"""Pages show what is inside: changes, manifests, calendars, what expiry takes; upkeep plans first."""

import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

import lsm_engine as lsm
from lsm_assets.inspection import tag_calendar
from lsm_assets.keys import AssetKind
from lsm_assets.maintenance import JOB
from lsm_assets.metadata import INLINE_CHARACTERS_MAX
from lsm_assets.versions import version_from_snapshot
from lsm_engine.format.tag import Tag
from tests.dagster.lake import KEYS, MARKS, Lake, rows

pytestmark = MARKS


def observations(lake: Lake, kind: AssetKind = AssetKind.FILES) -> list[dg.AssetObservation]:
    wanted = dg.AssetRecordsFilter(asset_key=KEYS.asset(kind))
    records = lake.instance.fetch_observations(wanted, limit=100).records
    return [record.asset_observation for record in reversed(records)]


def run(lake: Lake, act: str, config: object = None) -> dg.ExecuteInProcessResult:
    job = lake.definitions.resolve_job_def(KEYS.op(act))
    return job.execute_in_process(instance=lake.instance, run_config=config)


def test_a_snapshot_tells_what_it_changed_and_where_to_follow_it(lake: Lake) -> None:
    lake.write(rows(1, 2), rows(2, 3))
    whole = {"ops": {KEYS.op("compact"): {"config": {"full": True}}}}
    lake.materialise(AssetKind.COMPACTION, run_config=whole)
    first, second, third = lake.events(AssetKind.SNAPSHOTS)
    assert first.metadata["lsm/compared_with"].value == "the beginning"
    assert "| L0 | 1 | 0 |" in second.metadata["lsm/files_changed"].value
    assert "| L0 | 0 | 2 |" in third.metadata["lsm/files_changed"].value
    url = third.metadata["lsm/lineage"].value
    assert url == f"file://{lake.warehouse}/lineage.html#shop.orders/3"

    page = Path(lake.lsm.catalog.write_lineage_page())
    assert page.as_uri() == url.partition("#")[0]
    assert "shop.orders" in page.read_text()
    done = lake.definitions.resolve_job_def(JOB).execute_in_process(instance=lake.instance)
    assert done.success


def test_tables_files_and_tags_lead_to_a_lineage_that_is_served(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is reached by the page of the snapshot alone: browsers follow links to files only from files."""
    monkeypatch.setenv("LSM_LINEAGE_URL", "http://127.0.0.1:8577/lineage")
    lake.write(rows(1, 2))
    url = "http://127.0.0.1:8577/lineage?table=shop.orders&at=1#shop.orders/1"
    assert lake.events(AssetKind.SNAPSHOTS)[0].metadata["lsm/lineage"].value == url
    told = [lake.events(AssetKind.TABLE)[0], *observations(lake), *lake.events(AssetKind.FILES)]
    assert len(told) > 1
    for each in told:
        assert each.metadata["lsm/snapshot"].value.endswith(f" · [lineage]({url})")


def test_an_inspected_snapshot_shows_its_contents_and_its_manifests_their_statistics(lake) -> None:
    lake.write(rows(1, 2), rows(2, 3))
    lake.materialise(AssetKind.SNAPSHOTS, AssetKind.MANIFEST_LISTS, partition_key="2")
    told = lake.events(AssetKind.SNAPSHOTS)[-1]
    assert "| L0 | 2 | 2 |" in told.metadata["lsm/levels"].value
    table = lake.events(AssetKind.MANIFEST_LISTS)[-1].metadata["lsm/manifest_table"]
    records = [record.data for record in table.records]
    assert [record["list"] for record in records] == ["base", "delta"]
    assert {record["levels"] for record in records} == {"0"}
    # What tells manifests of one commit apart stands at the end of their names.
    assert all(re.fullmatch(r"manifest-\w{8}….{3}-\d", record["manifest"]) for record in records)
    assert all(record["size"].endswith(" KB") for record in records)


def test_the_files_page_foretells_expiry_and_names_branches(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    told = lake.events(AssetKind.FILES)[-1].metadata
    assert told["lsm/expires_next"].value == "nothing"
    assert told["lsm/readable_snapshots"].value == "snapshots 1-2"
    table = lake.lsm.existing_table("shop.orders")
    table.create_tag("fork", 1)
    table.create_branch("work", tag="fork")
    lake.write(rows(3))
    assert "| work | 1 |" in lake.events(AssetKind.FILES)[-1].metadata["lsm/branches"].value


def test_tags_come_with_a_calendar(lake: Lake) -> None:
    lake.write(rows(1))
    lake.add_tag_partition("monday")
    lake.materialise(AssetKind.TAGS, partition_key="monday")
    (event,) = lake.events(AssetKind.TAGS)
    assert event.metadata["lsm/calendar"].value.startswith("![tags from")
    assert "| monday | [1](" in event.metadata["lsm/tags"].value


def test_a_calendar_of_many_tags_is_still_drawn_in_place(lake: Lake) -> None:
    lake.write(rows(1))
    snapshot = lake.lsm.existing_table("shop.orders").latest_snapshot()
    start = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1000)
    tags = [
        Tag(name=f"t{day}", snapshot=_at(snapshot, start + day * 86_400_000)) for day in range(365)
    ]
    assert len(tag_calendar(tags)) <= INLINE_CHARACTERS_MAX
    assert tag_calendar([]) == ""


def _at(snapshot, millis):
    return replace(snapshot, time_millis=millis)


def test_expiry_shows_its_plan_before_it_acts(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(13)))
    table = lake.lsm.existing_table("shop.orders")
    table.alter(lsm.SetOption(key="snapshot.time-retained", value="1 ms"))
    config = {"ops": {KEYS.op("plan_expiry"): {"config": {"dry_run": True}}}}
    run(lake, "expire", config)
    (plan,) = observations(lake)
    assert plan.metadata["lsm/expires_next"].value.startswith("snapshots 1-3:")
    assert len(lake.lsm.existing_table("shop.orders").snapshots()) == 13
    run(lake, "expire")
    assert len(lake.lsm.existing_table("shop.orders").snapshots()) == 10
    assert lake.snapshots == [str(number) for number in range(4, 14)]
    assert len(lake.events(AssetKind.SNAPSHOTS)) == 13


def test_orphans_are_named_before_they_go_and_young_ones_stay(lake: Lake) -> None:
    lake.write(rows(1))
    table = lake.lsm.existing_table("shop.orders")
    bucket = next((lake.warehouse / "shop.db" / "orders").glob("bucket-*"))
    old, young = bucket / "data-old-0.parquet", bucket / "data-young-0.parquet"
    for file in (old, young):
        file.write_bytes(b"x")
    long_ago = time.time() - 3 * 86_400
    os.utime(old, (long_ago, long_ago))
    run(lake, "orphans", {"ops": {KEYS.op("plan_orphans"): {"config": {"dry_run": True}}}})
    assert old.exists()
    assert "data-old-0.parquet" in observations(lake)[-1].metadata["lsm/orphan_files"].value
    run(lake, "orphans")
    assert not old.exists()
    assert young.exists()
    assert table.scan().to_arrow().num_rows == 1


def test_the_verify_job_fails_on_what_is_gone(lake: Lake) -> None:
    lake.write(rows(1))
    assert run(lake, "verify").success
    assert observations(lake)[-1].metadata["lsm/verified"].value.startswith("clean")
    table = lake.lsm.existing_table("shop.orders")
    (path,) = table.system("files")["file_path"].to_pylist()
    (lake.warehouse / "shop.db" / "orders" / path).unlink()
    with pytest.raises(dg.Failure, match="damaged"):
        run(lake, "verify")


def test_two_snapshots_are_compared_on_request(lake: Lake) -> None:
    lake.write(rows(1), rows(2), rows(3))
    name = KEYS.op("compare_snapshots")
    job = lake.definitions.resolve_job_def(KEYS.op("diff"))
    assert job.execute_in_process(instance=lake.instance).success  # configured: 1 to the newest
    (told,) = observations(lake, AssetKind.SNAPSHOTS)
    assert "| L0 | 2 | 0 |" in told.metadata["lsm/files_changed"].value
    assert name in {node.name for node in job.nodes}


def test_a_rollback_is_told_of_even_when_ids_are_given_again(lake: Lake) -> None:
    lake.write(rows(1), rows(2), rows(3))
    lake.sync()
    table = lake.lsm.existing_table("shop.orders")
    table.rollback_to(snapshot_id=1)
    lake.sync()
    assert lake.snapshots == ["1"]
    table = lake.lsm.existing_table("shop.orders")
    table.upsert(rows(7))
    table.upsert(rows(8))
    lake.sync()
    table.rollback_to(snapshot_id=2)
    table = lake.lsm.existing_table("shop.orders")
    table.upsert(rows(9))
    before = len(lake.events(AssetKind.SNAPSHOTS))
    lake.sync()
    assert lake.snapshots == ["1", "2", "3"]
    told = lake.events(AssetKind.SNAPSHOTS)[before:]
    assert [event.partition for event in told] == ["3"]
    assert lake.sync().asset_events == []


def test_a_recorded_commit_that_no_tick_has_seen_may_be_rolled_back(lake: Lake) -> None:
    """Its id is given again, so that its partition would go on showing the commit that is gone."""
    lake.write(rows(1), rows(2))
    table = lake.lsm.existing_table("shop.orders")
    table.rollback_to(snapshot_id=1)
    newest = lake.lsm.existing_table("shop.orders").upsert(rows(9))
    assert newest.id == 2
    before = len(lake.events(AssetKind.SNAPSHOTS))
    lake.sync()
    reported = lake.events(AssetKind.SNAPSHOTS)[before:]
    assert [event.partition for event in reported] == ["2"]
    assert reported[0].tags["dagster/data_version"] == version_from_snapshot(newest).text
    assert lake.sync().asset_events == []
