"""Each kind of asset materialises, and what it records leads from one to the next."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.resource import LsmResource
from lsm_assets.testing import warehouse_under_test
from lsm_assets.versions import Delete, Overwrite, Upsert
from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError, StorageError
from tests.dagster.lake import KEYS, MARKS, ORDERS, Lake, rows, version_id

pytestmark = MARKS


def data_versions(events: list[dg.AssetMaterialization]) -> list[str]:
    return [str(version_id(event.tags["dagster/data_version"])) for event in events]


def test_each_change_becomes_a_commit_with_partitions_of_its_own(lake: Lake) -> None:
    lake.write(
        Upsert(rows=rows(1, 2, 3), label="first orders"),
        rows(3, 4, name="y"),
        Delete(keys=rows(1).select(["id"])),
    )
    assert lake.snapshots == ["1", "2", "3"]
    table = lake.lsm.existing_table("shop.orders")
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 2, "name": "x"}, {"id": 3, "name": "y"}, {"id": 4, "name": "y"}]

    for kind in (AssetKind.SNAPSHOTS, AssetKind.MANIFEST_LISTS):
        events = lake.events(kind)
        assert [event.partition for event in events] == ["1", "2", "3"]
        assert data_versions(events) == ["1", "2", "3"]
    assert lake.events(AssetKind.SNAPSHOTS)[0].metadata["lsm/label"].value == "first orders"
    (files,) = lake.events(AssetKind.FILES)
    assert files.metadata["lsm/files"].value == 3
    (told,) = lake.events(AssetKind.TABLE)
    assert data_versions([told]) == ["3"]
    assert told.metadata["dagster/row_count"].value == 3
    assert "snapshot 3" in told.metadata["lsm/snapshot"].value


def test_a_commit_tells_which_run_made_it(lake: Lake) -> None:
    run = lake.write(rows(1))
    snapshot = lake.lsm.existing_table("shop.orders").latest_snapshot()
    assert snapshot.properties["lsm.run.dagster-id"] == run.run_id
    assert snapshot.properties["lsm.run.asset"] == "shop/orders"
    (event,) = lake.events(AssetKind.SNAPSHOTS)
    assert event.metadata["lsm/run"].value == run.run_id


def test_a_writer_with_nothing_to_say_commits_nothing(lake: Lake) -> None:
    lake.write()
    assert data_versions(lake.events(AssetKind.TABLE)) == ["0"]
    lake.write(rows(1))
    lake.write()
    assert data_versions(lake.events(AssetKind.TABLE)) == ["0", "1", "1"]
    assert lake.snapshots == ["1"]


def test_an_overwrite_replaces(lake: Lake) -> None:
    lake.write(rows(1, 2))
    lake.write(Overwrite(rows=rows(9)))
    table = lake.lsm.existing_table("shop.orders")
    assert table.scan().to_arrow()["id"].to_pylist() == [9]


def test_a_compaction_leaves_the_table_as_it_was(lake: Lake) -> None:
    lake.write(*(rows(1, number) for number in range(6)))
    written = len(lake.events(AssetKind.TABLE))
    lake.materialise(AssetKind.COMPACTION)
    (event,) = lake.events(AssetKind.COMPACTION)
    assert event.metadata["lsm/sorted_runs_before"].value == 6
    assert event.metadata["lsm/sorted_runs_after"].value == 1
    assert len(lake.events(AssetKind.TABLE)) == written
    assert lake.snapshots == [str(number) for number in range(1, 8)]
    assert lake.events(AssetKind.SNAPSHOTS)[-1].metadata["lsm/commit_kind"].value == "COMPACT"
    files = lake.events(AssetKind.FILES)[-1]
    assert files.metadata["lsm/sorted_runs_max"].value == 1
    assert files.metadata["lsm/tree"].value.startswith("![LSM tree](data:image/svg+xml")

    lake.write()  # the next look at the table still knows which snapshot changed its rows
    assert data_versions(lake.events(AssetKind.TABLE))[-1] == "6"

    lake.materialise(AssetKind.COMPACTION)
    assert len(lake.snapshots) == 7


def test_a_full_compaction_is_asked_for_by_config(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    config = {"ops": {KEYS.op("compact"): {"config": {"full": True}}}}
    lake.materialise(AssetKind.COMPACTION, run_config=config)
    assert lake.events(AssetKind.COMPACTION)[-1].metadata["lsm/sorted_runs_after"].value == 1


def test_of_a_table_that_owes_no_compaction_nothing_looks_unfinished(lake: Lake) -> None:
    lake.write(rows(1))
    (told,) = lake.events(AssetKind.COMPACTION)
    assert told.metadata["lsm/reason"].value == "no compaction has been due so far"
    assert told.metadata["lsm/sorted_runs_after"].value == 1
    lake.write(rows(2))
    assert len(lake.events(AssetKind.COMPACTION)) == 1


@pytest.mark.parametrize(("commits", "told"), [(1, 1), (6, 0)])
def test_what_others_wrote_owes_a_compaction_or_does_not(
    lake: Lake, commits: int, told: int
) -> None:
    table = lake.lsm.table(ORDERS)
    for number in range(commits):
        table.upsert(rows(number))
    lake.sync()
    assert len(lake.events(AssetKind.COMPACTION)) == told


def test_a_snapshot_is_read_again_and_checked(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    lake.materialise(AssetKind.MANIFEST_LISTS, AssetKind.SNAPSHOTS, partition_key="1")
    lake.materialise(AssetKind.SNAPSHOTS, partition_key="2")
    assert [event.partition for event in lake.events(AssetKind.SNAPSHOTS)] == ["1", "2", "1", "2"]
    assert [event.partition for event in lake.events(AssetKind.MANIFEST_LISTS)] == ["1", "2", "1"]


def test_a_damaged_snapshot_fails_and_says_what_is_gone(lake: Lake) -> None:
    lake.write(rows(1))
    (data_file,) = lake.warehouse.rglob("data-*.parquet")
    data_file.unlink()
    run = lake.materialise(AssetKind.SNAPSHOTS, partition_key="1", raise_on_error=False)
    assert not run.success
    (failure,) = [event for event in run.all_events if event.is_step_failure]
    assert data_file.name in str(failure.step_failure_data.user_failure_data)


def test_a_snapshot_that_never_was_fails_without_retries(lake: Lake) -> None:
    lake.write(rows(1))
    for partition in ("17", "by-hand"):
        lake.instance.add_dynamic_partitions("shop.orders$snapshots", [partition])
        run = lake.materialise(AssetKind.SNAPSHOTS, partition_key=partition, raise_on_error=False)
        assert not run.success


def test_a_tag_is_made_by_materialising_its_partition(lake: Lake) -> None:
    lake.write(rows(1))
    lake.write(rows(2))
    lake.add_tag_partition("v1")
    lake.materialise(AssetKind.TAGS, partition_key="v1")
    table = lake.lsm.existing_table("shop.orders")
    assert [(tag.name, tag.snapshot.id) for tag in table.tags()] == [("v1", 2)]

    lake.add_tag_partition("old")
    config = {"ops": {KEYS.op("tag"): {"config": {"snapshot_id": 1, "retained": "30 d"}}}}
    lake.materialise(AssetKind.TAGS, partition_key="old", run_config=config)
    event = lake.events(AssetKind.TAGS)[-1]
    assert (event.partition, event.metadata["lsm/retained"].value) == ("old", "30 days")

    lake.write(rows(3))
    lake.materialise(AssetKind.TAGS, partition_key="v1")  # reported, not moved
    assert lake.events(AssetKind.TAGS)[-1].tags["dagster/data_version"] == "2"


def test_a_tag_run_adds_the_partition_that_nobody_added(lake: Lake) -> None:
    lake.write(rows(1))
    lake.materialise(AssetKind.TAGS, tags={"dagster/partition": "v1"})  # as a launched run
    assert lake.tags == ["v1"]
    assert [event.partition for event in lake.events(AssetKind.TAGS)] == ["v1"]


def test_a_tag_is_never_moved_in_silence(lake: Lake) -> None:
    lake.write(rows(1))
    lake.write(rows(2))
    lake.add_tag_partition("v1")
    lake.materialise(AssetKind.TAGS, partition_key="v1")
    config = {"ops": {KEYS.op("tag"): {"config": {"snapshot_id": 1}}}}
    run = lake.materialise(
        AssetKind.TAGS, partition_key="v1", run_config=config, raise_on_error=False
    )
    assert not run.success


def test_the_checks_pass_on_a_sound_table_and_name_a_missing_file(lake: Lake) -> None:
    lake.write(rows(1), rows(2))
    names = {check.check_name: check for check in run_checks(lake)}
    assert sorted(names) == ["references", "sorted_runs", "totals"]
    assert all(check.passed for check in names.values())

    gone = next(lake.warehouse.rglob("data-*.parquet"))
    gone.unlink()
    names = {check.check_name: check for check in run_checks(lake)}
    assert not names["references"].passed
    assert gone.name in names["references"].description


def test_too_many_sorted_runs_are_a_warning(lake: Lake) -> None:
    lake.write(*(rows(number) for number in range(9)))
    (check,) = [each for each in run_checks(lake) if each.check_name == "sorted_runs"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)


def run_checks(lake: Lake) -> list[dg.AssetCheckEvaluation]:
    selection = dg.AssetSelection.checks_for_assets(
        KEYS.asset(AssetKind.TABLE), KEYS.asset(AssetKind.FILES)
    )
    job = dg.define_asset_job("checks", selection=selection)
    definitions = dg.Definitions.merge(lake.definitions, dg.Definitions(jobs=[job]))
    run = definitions.resolve_job_def("checks").execute_in_process(instance=lake.instance)
    return run.get_asset_check_evaluations()


def test_only_an_absent_table_is_created(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that cannot be opened for any other reason is left alone, whatever the reason."""
    errors = [
        StorageError("the disk failed"),
        NotFoundError("a schema file is missing", kind=ErrorKind.NO_SUCH_FILE),
        NotFoundError("expired", kind=ErrorKind.EXPIRED),
        PermissionError("denied"),
    ]
    for error in errors:
        resource = lake.lsm
        created = []

        class Broken:
            def table(self, name: str, error: Exception = error) -> None:
                raise error

            def create_table(self, *args: object, made: list = created, **more: object) -> None:
                made.append(args)

            create_database = create_table

        broken = Broken()
        monkeypatch.setattr(LsmResource, "catalog", property(lambda self, found=broken: found))
        with pytest.raises(type(error)):
            resource.table(ORDERS)
        assert not created


def test_a_table_declared_otherwise_is_not_written(lake: Lake) -> None:
    lake.write(rows(1))
    other = ORDERS.__class__(
        name=ORDERS.name,
        schema=ORDERS.schema,
        primary_key=("id", "name"),
        options=ORDERS.options,
    )
    with pytest.raises(InvalidInputError, match="primary_key"):
        lake.lsm.table(other)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_writer_that_is_tried_again_counts_no_row_twice(tmp_path: Path, keyed: bool) -> None:
    tries = []

    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[pa.Table]:
        for number in range(2):
            yield pa.table({"id": [number], "n": [5]})
        tries.append(number)
        if len(tries) == 1:
            raise dg.RetryRequested(max_retries=1)

    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    sums = TableDeclaration(
        name="shop.sums",
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())]),
        primary_key=("id",) if keyed else (),
        options=options if keyed else {},
    )
    with warehouse_under_test(tmp_path) as warehouse:
        warehouse.materialize([lsm_table_assets(sums, write).assets[0]])
        rows = warehouse.catalog.table("shop.sums").to_arrow().to_pylist()
    assert len(tries) == 2
    assert sorted(rows, key=str) == [{"id": 0, "n": 5}, {"id": 1, "n": 5}]


def test_a_number_that_versions_another_asset_is_no_snapshot(tmp_path: Path) -> None:
    @dg.asset(key=["raw", "orders.csv"])
    def source() -> dg.MaterializeResult:
        return dg.MaterializeResult(data_version=dg.DataVersion("20240101"))

    declared = replace(ORDERS, deps=(dg.AssetKey(["raw", "orders.csv"]),))
    with warehouse_under_test(tmp_path) as warehouse:
        orders = lsm_table_assets(declared, lambda context, table: rows(1)).assets[0]
        warehouse.materialize([source, orders])
        assert warehouse.inputs("shop.orders") == {"raw/orders.csv": None}
