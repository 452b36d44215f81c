"""The shipped code location loads, its graph is what was reviewed, and nobody needs Spark to see it."""

import json
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from lsm_assets.definitions import defs
from lsm_assets.factory import lsm_definitions, lsm_table_assets
from lsm_assets.home import open_instance, prepare_home, ui_command, ui_environment
from lsm_assets.keys import AssetKind
from lsm_assets.sample.run import main
from lsm_assets.sample.tables import DAYS, FLIGHTS
from lsm_assets.settings import EXECUTOR, WAREHOUSE, ExecutorName, settings_from
from tests.dagster.lake import MARKS, ORDERS

pytestmark = MARKS
ROOT = Path(__file__).parent.parent.parent
GRAPH = Path(__file__).parent / "graph.json"


def test_the_code_location_loads() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_workspace_points_at_it() -> None:
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert entry["python_module"]["module_name"] == "lsm_assets.definitions"


def test_the_graph_is_as_reviewed(rewrite: bool) -> None:
    """Keys, groups, dependencies, checks and pools; run with --rewrite after a deliberate change."""
    graph = defs.get_repository_def().asset_graph
    found = {
        node.key.to_user_string(): {
            "group": node.group_name,
            "deps": sorted(key.to_user_string() for key in node.parent_keys),
            "external": node.is_external,
            "partitions": type(node.partitions_def).__name__ if node.partitions_def else None,
            "checks": sorted(key.name for key in node.check_keys),
            "pools": sorted(node.pools or []),
        }
        for node in graph.asset_nodes
    }
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if rewrite:
        GRAPH.write_text(text)
    assert text == GRAPH.read_text()


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_a_selection_takes_the_compactions_of_all_tables_or_the_parts_of_one() -> None:
    graph = defs.get_repository_def().asset_graph

    def names(text: str) -> set[str]:
        return {key.path[-1] for key in dg.AssetSelection.from_string(text).resolve(graph)}

    compactions = names('tag:"lsm/kind"=compaction')
    assert len(compactions) == 9
    assert all(name.endswith(".compaction") for name in compactions)
    parts = ("", ".manifest_lists", ".snapshots", ".tags", ".compaction")
    assert names('tag:"lsm/table"=flights__flights') == {f"flights{part}" for part in parts}


def test_sensors_run_by_themselves_and_schedules_wait_for_a_decision() -> None:
    repository = defs.get_repository_def()
    assert {each.name: each.default_status for each in repository.sensor_defs} == dict.fromkeys(
        ("lsm_automation", "lsm_compaction", "lsm_sync"), dg.DefaultSensorStatus.RUNNING
    )
    running = {
        each.name
        for each in repository.schedule_defs
        if each.default_status is dg.DefaultScheduleStatus.RUNNING
    }
    assert running == {"lsm_health_hourly"}, "it only reads"
    assert "flights__flights__tag_daily" in {each.name for each in repository.schedule_defs}


def test_every_day_of_the_year_is_a_partition() -> None:
    days = DAYS.get_partition_keys()
    assert (days[0], days[-1], len(days)) == ("2013-01-01", "2013-12-31", 365)


def test_names_in_the_graph_are_short() -> None:
    assert FLIGHTS.keys.asset(AssetKind.SNAPSHOTS).path[-1] == "flights.snapshots"


def test_dagsters_home_is_made_once(tmp_path: Path) -> None:
    settings = settings_from({WAREHOUSE: str(tmp_path / "lake")})
    home = prepare_home(settings)
    shipped = (home / "dagster.yaml").read_text()
    told = yaml.safe_load(shipped)
    assert told["telemetry"] == {"enabled": False}
    assert told["concurrency"]["pools"] == {"granularity": "op", "default_limit": 1}
    (home / "dagster.yaml").write_text(shipped + "# mine\n")
    prepare_home(settings)
    assert (home / "dagster.yaml").read_text().endswith("# mine\n")
    with open_instance(settings) as instance:
        assert not instance.telemetry_enabled


def test_the_ui_listens_on_this_machine_only(tmp_path: Path) -> None:
    settings = settings_from({WAREHOUSE: str(tmp_path)})
    command = ui_command(settings)
    assert command[command.index("-h") + 1] == "127.0.0.1"
    assert ui_environment(settings)["DAGSTER_HOME"] == str(tmp_path / "dagster")
    prepare_home(settings)
    made = yaml.safe_load(Path(command[command.index("-w") + 1]).read_text())
    assert made == yaml.safe_load((ROOT / "workspace.yaml").read_text())


def test_help_says_what_the_sample_does() -> None:
    told = CliRunner().invoke(main, ["--help"])
    assert told.exit_code == 0
    assert "--days" in told.output


def test_wrong_settings_are_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_EXECUTOR", "cluster")
    told = CliRunner().invoke(main, ["--days", "1"])
    assert told.exit_code == 1
    assert "LSM_EXECUTOR" in told.output


@pytest.mark.parametrize(("executor", "kind"), [("spark", "spark"), ("local", "arrow")])
def test_kinds_say_the_format_and_what_does_the_work(
    tmp_path: Path, executor: ExecutorName, kind: str
) -> None:
    settings = settings_from({WAREHOUSE: str(tmp_path), EXECUTOR: executor})
    orc = replace(ORDERS, name="shop.orc", options={"file.format": "ORC"})
    written = lsm_table_assets(ORDERS, lambda context, table: None)
    found = lsm_definitions([written, lsm_table_assets(orc)], settings)
    kinds = {spec.key.path[-1]: spec.kinds for spec in found.resolve_all_asset_specs()}
    assert kinds["orders"] == {"table", "paimon", kind}
    assert kinds["orders.compaction"] == {"paimon", kind}
    assert kinds["orders.files"] == {"parquet"}
    assert kinds["orc"] == {"table", "paimon"}  # others write it
    assert kinds["orc.files"] == {"orc"}
