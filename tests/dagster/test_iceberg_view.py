"""The Iceberg metadata of a table as a virtual asset: its data version, its lag, and its location in a run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from pyiceberg.table import StaticTable

import lsm_engine as lsm
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.recording import DATA_VERSION_TAG
from lsm_assets.staleness import ChangedInput, changed_inputs, readers_from_assets
from lsm_engine.table import iceberg
from tests.dagster.lake import KEYS, MARKS, ORDERS, Lake, rows

pytestmark = MARKS
STORAGE = "metadata.iceberg.storage"
VIEW, TABLE, READER = KEYS.view("iceberg"), KEYS.asset(AssetKind.TABLE), dg.AssetKey("reader")
VECTORS = {"deletion-vectors.enabled": "true"}


@pytest.fixture
def lake_with(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Lake]]:
    """Makes a lake whose table has Iceberg metadata, and the view of it."""
    with dg.DagsterInstance.ephemeral() as instance:

        def make(options: dict[str, str]) -> Lake:
            declared = {"bucket": "1", STORAGE: "table-location", **options}
            viewed = replace(ORDERS, options=declared, views=("iceberg",))
            to_write: list[Any] = []
            orders = lsm_table_assets(viewed, lambda context, table: list(to_write))
            return Lake(tmp_path / "lake", instance, [orders], to_write)

        yield make


def view_events(lake: Lake) -> list[dg.AssetMaterialization]:
    """Return the events of the view, oldest first."""
    records = lake.instance.fetch_materializations(VIEW, limit=100).records
    events = [record.asset_materialization for record in reversed(records)]
    return [event for event in events if event is not None]


def version_of(event: dg.AssetMaterialization) -> str:
    return (event.tags or {})[DATA_VERSION_TAG]


@dg.asset(key=READER, deps=[VIEW], required_resource_keys={"lsm"})
def reader(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Counts the rows that pyiceberg reads."""
    location = context.resources.lsm.iceberg_location(TABLE)
    count = StaticTable.from_metadata(location).scan().to_arrow().num_rows
    return dg.MaterializeResult(metadata={"rows": count})


def test_iceberg_metadata_is_a_virtual_asset_with_the_version_of_its_rows(lake_with) -> None:
    lake = lake_with(VECTORS)
    instance = lake.instance
    repository = dg.Definitions.merge(
        lake.definitions, dg.Definitions(assets=[reader])
    ).get_repository_def()
    assert repository.asset_graph.get(VIEW).is_virtual
    job = repository.get_implicit_job_def_for_assets([READER])
    assert job is not None
    (own,) = readers_from_assets([reader])

    def read() -> Any:
        result = job.execute_in_process(instance=instance, asset_selection=[READER])
        (event,) = result.asset_materializations_for_node("reader")
        return event.metadata["rows"].value

    def dot() -> StaleStatus:
        graph, loading = repository.asset_graph, LoadingContextForTest(instance)
        return CachingStaleStatusResolver(instance, graph, loading).get_status(READER)

    assert lake.write(rows(1, 2)).success
    lake.materialise(AssetKind.COMPACTION)
    table = lake.lsm.existing_table("shop.orders")
    assert table is not None
    table.compact(full=True)
    lake.sync()
    event = view_events(lake)[-1]
    assert event.metadata["dagster/uri"].value == table.inspect.iceberg().metadata_location
    assert event.metadata["lsm/lag"].value == event.metadata["lsm/hidden_files"].value == 0
    assert version_of(event) == version_of(lake.events(AssetKind.TABLE)[-1])
    assert read() == 2
    assert not lake.sync().asset_events, "a quiet tick reports nothing"
    assert (changed_inputs(instance, own), dot()) == ([], StaleStatus.FRESH)
    table.upsert(rows(3))  # another program
    table.compact(full=True)
    lake.sync()
    assert (changed_inputs(instance, own), dot()) == (
        [ChangedInput(upstream=VIEW)],
        StaleStatus.STALE,
    )
    assert read() == 3
    assert changed_inputs(instance, own) == []
    table.rollback_to(table.snapshot_ids()[1])
    lake.sync()
    assert changed_inputs(instance, own) == [ChangedInput(upstream=VIEW)]
    assert read() == 2


def test_iceberg_metadata_that_waits_for_a_compaction_shows_its_lag(lake_with) -> None:
    lake = lake_with({"write-only": "true"})
    lake.write(rows(1))
    full = {"ops": {KEYS.op("compact"): {"config": {"full": True}}}}
    lake.materialise(AssetKind.COMPACTION, run_config=full)
    lake.write(rows(2))
    lake.write(rows(3))
    events = view_events(lake)[1:]
    assert [event.metadata["lsm/waiting_commits"].value for event in events] == [0, 1, 2]
    assert len({version_of(event) for event in events}) == 1, "rows of the last full compaction"
    table = lake.lsm.existing_table("shop.orders")
    assert table is not None
    table.compact(full=True)
    lake.sync()
    newest = view_events(lake)[-1]
    assert newest.metadata["lsm/waiting_commits"].value == 0
    assert version_of(newest) != version_of(events[-1])


def test_iceberg_metadata_that_cannot_follow_says_why(lake_with, monkeypatch, caplog) -> None:
    lake = lake_with({"write-only": "false", **VECTORS})
    lake.write(rows(1))
    table = lake.lsm.existing_table("shop.orders")
    assert table is not None
    with monkeypatch.context() as patch:
        patch.setattr(iceberg.IcebergStore, "write", disk_full)
        table.upsert(rows(2))
        lake.sync()
        newest = view_events(lake)[-1]
        assert newest.metadata["lsm/lag"].value == 2
        assert version_of(newest) == version_of(view_events(lake)[0])
        assert lake.lsm.iceberg_location(TABLE) == newest.metadata["dagster/uri"].value
        assert "No space left" in caplog.text
    table.alter(lsm.SetOption(STORAGE, "disabled"))
    with pytest.raises(dg.Failure, match=STORAGE):
        lake.lsm.iceberg_location(TABLE)
    lake.sync()
    assert "is not set" in str(view_events(lake)[-1].metadata["lsm/iceberg"].value)


def disk_full(*_: object) -> None:
    raise OSError(28, "No space left on device")
