"""Exactly the readers whose input partitions were written are stale, whoever wrote them."""

import os
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.ledger.recording import recorded_versions
from tests.dagster.lake import MARKS, ORDERS
from tests.dagster.staleness_model import LAYOUTS, READER, History
from tests.interop.clients import Client
from tests.interop.conftest import java as java
from tests.interop.conftest import pypaimon as pypaimon

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

HISTORIES = int(os.environ.get("LSM_STALENESS", "1"))
"""Histories per layout."""
STEPS = 12
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
@pytest.mark.parametrize("seed", range(HISTORIES if HISTORIES > 1 else 0))
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_random_history_with_other_clients(
    tmp_path: Path, name: str, seed: int, pypaimon: Client, java: Client
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        history = History(tmp_path / "lake", instance, LAYOUTS[name], seed, [pypaimon, java])
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


def test_templates_are_of_partition_columns() -> None:
    with pytest.raises(lsm.InvalidInputError, match="not partitioned by"):
        replace(ORDERS, partition_columns={"name": "{key}"})


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
