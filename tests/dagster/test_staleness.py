"""Exactly the readers whose input partitions were written are stale, whoever wrote them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.recording import recorded_versions
from tests.dagster.lake import MARKS, ORDERS, SCHEMA, Lake, rows
from tests.dagster.staleness_layouts import LAYOUTS
from tests.dagster.staleness_model import READER, History
from tests.interop.clients import Client
from tests.interop.conftest import java as java
from tests.interop.conftest import pypaimon as pypaimon

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

HISTORIES = int(os.environ.get("LSM_STALENESS", "1"))
"""Histories per layout."""
STEPS = 12 if HISTORIES > 1 else 6
DAYS = dg.StaticPartitionsDefinition(["a"])


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_random_history(tmp_path: Path, name: str, seed: int) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        history = History(tmp_path / "lake", instance, LAYOUTS[name], seed)
        for _ in range(STEPS):
            history.step()
            history.check()


@pytest.mark.interop
@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("name", LAYOUTS if HISTORIES > 1 else ["static"])
def test_a_random_history_with_another_client(
    tmp_path: Path, name: str, seed: int, pypaimon: Client, java: Client
) -> None:
    # Not both: this pypaimon reads no manifest that this Java has written.
    client = [pypaimon, java][seed % 2]
    with dg.DagsterInstance.ephemeral() as instance:
        history = History(tmp_path / "lake", instance, LAYOUTS[name], seed, [client])
        for _ in range(STEPS):
            history.step()
            history.check()


def test_a_commit_of_another_client_is_known_after_it_has_expired(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        history = History(tmp_path / "lake", instance, LAYOUTS["static"], 0)
        for key in ("a", "d"):
            history.dagster_run([key], 1)
        for value in (2, 3):
            lsm.open_table(history.table.location).upsert(history.rows(["d"], value))
        history.sync()
        history.expire()
        assert history.table.snapshot_ids() == [4]
        lineage = history.lake.lsm.catalog.lineage
        known = lineage.commits_of_table(lsm.TableName.parse("shop.events"), after=2, before=5)
        assert known.column("snapshot_id").to_pylist() == [3, 4]
        history.run(READER, partition_key="a")
        assert history.seen == [1]


@pytest.mark.parametrize("template", ["{day}", "{key:", "{key.nothing}", "{0}"])
def test_a_template_that_fits_no_partition_is_named(tmp_path: Path, template: str) -> None:
    declaration = replace(
        ORDERS, partitioned_by=("name",), partitions_def=DAYS, partition_columns={"name": template}
    )
    assert declaration.templates is not None
    with pytest.raises(lsm.InvalidInputError, match=r"may use \{key\}"):
        declaration.templates.values("a")


def test_templates_are_of_columns_of_the_table() -> None:
    with pytest.raises(lsm.InvalidInputError, match="does not have"):
        replace(ORDERS, partition_columns={"nmae": "{key}"})


def test_of_a_run_that_changed_some_partitions_the_others_keep_their_version(
    tmp_path: Path,
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        history = History(tmp_path / "lake", instance, LAYOUTS["static"], 0)
        for key in ("a", "b/c", "d"):
            history.dagster_run([key], 1)
        before = recorded_versions(instance, history.key)
        rows = [history.rows(["a", "d"], 1), history.rows(["b/c"], 2)]
        history.lake.to_write[:] = [pa.concat_tables(rows)]
        tags = {
            "dagster/asset_partition_range_start": "a",
            "dagster/asset_partition_range_end": "d",
        }
        history.run(history.key, tags=tags)
        after = recorded_versions(instance, history.key)
        assert {key for key in before if before[key] != after[key]} == {"b/c"}
        assert after["b/c"].snapshot_id == 4
        assert not history.lake.sync().asset_events

        history.table.rollback_to(3)
        history.lake.sync()
        back = recorded_versions(instance, history.key)
        assert {key for key in back if back[key] != after[key]} == {"b/c"}


def test_directories_of_partitions_are_worked_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = dg.HourlyPartitionsDefinition("2024-01-01-00:00", "2024-03-01-00:00")
    columns = [("hour", pa.timestamp("ms")), ("id", pa.int64())]
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])
    declaration = replace(
        ORDERS,
        schema=schema,
        primary_key=("hour", "id"),
        partitioned_by=("hour",),
        partitions_def=hours,
        partition_columns={"hour": "{key:%Y-%m-%d %H:00:00}"},
    )
    spelled = lsm.Table.partition_paths
    calls: list[int] = []

    def counted(self: lsm.Table, given: Mapping[str, Sequence[object]]) -> list[str]:
        calls.append(len(given["hour"]))
        return spelled(self, given)

    monkeypatch.setattr(lsm.Table, "partition_paths", counted)
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(declaration)])
        table = lake.lsm.table(declaration)
        for hour in range(3):
            at = datetime(2024, 1, 2, hour)  # noqa: DTZ001 -- as the column has none
            table.upsert(pa.table({"hour": [at], "id": [1]}, schema=schema))
            lake.sync()
        known = recorded_versions(instance, declaration.keys.asset(AssetKind.TABLE))
    found = {key: version.snapshot_id for key, version in known.items()}
    assert found == {"2024-01-02-00:00": 1, "2024-01-02-01:00": 2, "2024-01-02-02:00": 3}
    assert calls == [60 * 24]


def test_an_asset_that_has_no_partitions_yet_is_looked_at(tmp_path: Path) -> None:
    places = dg.DynamicPartitionsDefinition(name="places")
    declaration = replace(
        ORDERS,
        primary_key=("id", "name"),
        schema=pa.schema([SCHEMA.field(0), SCHEMA.field(1).with_nullable(False)]),
        partitioned_by=("name",),
        partitions_def=places,
        partition_columns={"name": "{key}"},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(declaration)])
        lake.lsm.table(declaration).upsert(rows(1))
        assert lake.sync().asset_events
