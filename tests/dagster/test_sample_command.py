"""What `lsm-sample` says where it cannot go on, and what its release of airports is recorded to have read."""

import os
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from lsm_assets import home
from lsm_assets.keys import AssetKind
from lsm_assets.resource import create_table, resources_from
from lsm_assets.sample import run
from lsm_assets.sample.definitions import sample_definitions
from lsm_assets.sample.release import KEY, SECOND_RELEASE
from lsm_assets.sample.run import SamplePipeline
from lsm_assets.sample.tables import AIRPORTS, FLIGHTS
from lsm_assets.settings import CATALOG_URL, EXECUTOR, WAREHOUSE, Settings, settings_from
from lsm_assets.versions import version_from_snapshot
from lsm_engine import open_catalog
from tests.dagster.lake import MARKS

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

AGAIN = "run the command again"


def settings_at(lake: Path) -> Settings:
    return settings_from({WAREHOUSE: str(lake), EXECUTOR: "local"})


def sample(lake: Path, *more: str, days: int = 1) -> tuple[int, str]:
    """Return how the command ended, and what it said on one line."""
    given = ["--days", str(days), "--warehouse", str(lake), "--executor", "local", *more]
    before = dict(os.environ)
    told = CliRunner().invoke(run.main, given)
    assert dict(os.environ) == before  # other commands of the process lead where they did
    return told.exit_code, " ".join(told.output.split())


@pytest.mark.parametrize("what", ["columns", "options"])
def test_a_lake_of_another_version_of_the_sample_is_left_alone(tmp_path: Path, what: str) -> None:
    lsm = resources_from(settings_at(tmp_path))["lsm"]
    lsm.catalog.create_database(FLIGHTS.keys.database)
    without = {"index.type", "partial-update.remove-record-on-sequence-group"}
    lsm.catalog.create_table(
        FLIGHTS.name,
        FLIGHTS.schema.append(pa.field("status", pa.string()))
        if what == "columns"
        else FLIGHTS.schema,
        primary_key=FLIGHTS.primary_key,
        partitioned_by=FLIGHTS.partitioned_by,
        options={key: text for key, text in FLIGHTS.options.items() if key not in without},
    )
    code, told = sample(tmp_path)
    assert code == 1
    assert (
        "was made by another version of the sample: name a new directory with --warehouse" in told
    )
    assert FLIGHTS.name in told
    assert AGAIN not in told
    assert lsm.catalog.list_tables() == [FLIGHTS.name]


def test_a_lake_of_this_version_is_gone_on_with(tmp_path: Path) -> None:
    lsm = resources_from(settings_at(tmp_path))["lsm"]
    create_table(lsm.catalog, FLIGHTS)
    run.check_tables(lsm, str(tmp_path))


def test_the_failure_of_a_run_is_shown_as_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise dg.Failure("materialise something first")

    monkeypatch.setattr(run, "_run_all", fails)
    code, told = sample(tmp_path)
    assert code == 1
    assert "The sample stopped: materialise something first" in told
    assert AGAIN in told


def test_the_ui_asks_a_server_and_the_command_ends_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(_: object, __: object, environment: dict[str, str]) -> int:
        with open_catalog(environment[CATALOG_URL], token=environment["LSM_TOKEN"]) as catalog:
            databases.append(catalog.list_databases())
        return 3

    databases: list[list[str]] = []
    monkeypatch.setattr(home, "SERVER_PORT", 0)
    monkeypatch.setattr(run, "run_with_companion", asks)
    assert sample(tmp_path, "--ui", days=0)[0] == 3
    assert len(databases) == 1


def test_the_release_of_airports_is_fresh_right_after_it_was_made(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    definitions = sample_definitions(settings)
    with dg.DagsterInstance.ephemeral() as instance:
        SamplePipeline(definitions, instance).load_references(lambda what: None)
        graph = definitions.get_repository_def().asset_graph
        status = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        assert status.get_status(KEY) is StaleStatus.FRESH
        assert status.get_status(AIRPORTS.keys.asset(AssetKind.TABLE)) is StaleStatus.FRESH
        event = instance.get_latest_materialization_event(KEY)
        table = resources_from(settings)["lsm"].catalog.table(AIRPORTS.name)
        second = table.tag(SECOND_RELEASE).snapshot
        version = event.asset_materialization.tags["dagster/data_version"]
        assert version == version_from_snapshot(second).text
