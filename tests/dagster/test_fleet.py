"""Many tables: one set of sensors, jobs and schedules, ticks and cursors in bounds, and what they owe."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import (
    DefinitionsLoadContext,
    DefinitionsLoadType,
)
from dagster._core.definitions.repository_definition import RepositoryLoadData
from dagster.components import DefsStateConfigArgs
from dagster.components.testing import create_defs_folder_sandbox

import lsm_engine as lsm
from lsm_assets import warehouse_component
from lsm_assets.component import LsmTableComponent
from lsm_assets.dagster_core import checks_to_renew
from lsm_assets.factory import lsm_table_assets
from lsm_assets.io_manager import LsmIOManager
from lsm_assets.metadata import INLINE_CHARACTERS_MAX
from lsm_assets.resource import resources_from
from lsm_assets.sensors import (
    UNCOMPRESSED_MAX,
    read_cursor,
    tables_in_turn,
    tick_interval,
    write_cursor,
)
from lsm_assets.settings import CATALOG_URL, EXECUTOR, WAREHOUSE, settings_from
from lsm_assets.warehouse_component import (
    LsmWarehouseComponent,
    _findings_metadata,
    health_key,
    match_tables,
    warehouse_definitions,
    watched_tables,
)
from lsm_engine import InvalidInputError, type_text
from tests.dagster.lake import MARKS, ORDERS, rows
from tests.dagster.test_component import ORDERS_YAML, resources

pytestmark = [
    *MARKS,
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
]


NO_CONTEXT: Any = None
"""What the component takes from its place in a project: nothing."""


def tables(count: int) -> list[Any]:
    return [replace(ORDERS, name=f"shop.t{number}") for number in range(count)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


def test_tables_take_turns_and_none_is_left_out() -> None:
    declarations, states, seen = tables(100), {"shop.t1": {"snapshot": 1}}, []
    for _ in range(20):
        states = read_cursor(write_cursor(states))
        turn = [
            each.name for each in tables_in_turn(declarations, states, seconds=1.0, clock=Clock())
        ]
        assert 5 <= len(turn) <= 15
        seen += turn
    names = [each.name for each in declarations]
    assert seen[:100] == names
    assert min(map(seen.count, names)) >= 1
    assert states["shop.t1"] == {"snapshot": 1}


def test_few_tables_are_looked_at_by_every_tick() -> None:
    states: dict[str, dict[str, Any]] = {}
    declarations = tables(20)
    assert list(tables_in_turn(declarations, states, clock=Clock())) == declarations
    assert states == {}
    assert tick_interval(declarations, 30) == 30
    assert tick_interval(tables(1_000), 30) == 5


def test_a_cursor_of_a_thousand_tables_stays_small() -> None:
    states = {
        each.name: {
            "tags": ["monday"],
            "version": f"{number}-9f3a11c0",
            "commits": {"7": f"{number * 2654435761 % 2**32:08x}"},
        }
        for number, each in enumerate(tables(1_000))
    }
    text = write_cursor(states)
    assert len(text) < 30_000
    assert read_cursor(text) == states
    assert read_cursor("z:no such text") == {}
    assert write_cursor({"a": {}}) == '{"a":{}}'
    assert len(write_cursor({"a": {}})) < UNCOMPRESSED_MAX


def test_patterns_name_tables() -> None:
    found = match_tables(tables(12), ["shop.t1*", "shop.t7"])
    assert [each.name for each in found] == ["shop.t1", "shop.t7", "shop.t10", "shop.t11"]


@dataclass
class Warehouse:
    definitions: dg.Definitions
    catalog: lsm.Catalog
    instance: dg.DagsterInstance

    def run(self, job: str, **config: Any) -> dg.ExecuteInProcessResult:
        op = {f"{job}_tables": {"config": config}}
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, run_config={"ops": op}, raise_on_error=False
        )


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """A component with one declared table, and two that others have made."""
    lake = tmp_path / "lake"
    with (
        lsm.open_catalog(lake) as catalog,
        dg.DagsterInstance.ephemeral() as instance,
        create_defs_folder_sandbox() as sandbox,
    ):
        for name in ("others.a", "others.b", "private.c"):
            options = {
                "bucket": "1",
                "write-only": "true",
                "snapshot.num-retained.min": "1",
                "snapshot.num-retained.max": "1",
            }
            made = catalog.create_table(name, ORDERS.schema, primary_key=["id"], options=options)
            for number in range(7):
                made.upsert(rows(number))
        declared = dict(ORDERS_YAML["attributes"])
        yaml = {
            "type": "lsm_assets.warehouse_component.LsmWarehouseComponent",
            "attributes": {
                "warehouse": str(lake),
                "executor": "local",
                "tables": [declared],
                "watch": ["others.*"],
                "owners": ["team:data"],
            },
        }
        path = sandbox.scaffold_component(
            component_cls=LsmWarehouseComponent, defs_path="lake", defs_yaml_contents=yaml
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, built):
            yield Warehouse(built, catalog, instance)


def test_one_component_looks_after_a_warehouse(warehouse: Warehouse) -> None:
    repository = warehouse.definitions.get_repository_def()
    graph = repository.asset_graph
    found = {key.to_user_string() for key in graph.get_all_asset_keys() if "." not in key.path[-1]}
    assert found == {"shop/orders", "others/a", "others/b", "lsm/health"}
    assert graph.get(dg.AssetKey(["others", "a"])).owners == ["team:data"]
    assert {each.name for each in repository.sensor_defs} == {
        "lsm_automation",
        "lsm_compaction",
        "lsm_sync",
    }
    assert {each.name for each in repository.get_all_jobs()} >= {
        "lsm_expire",
        "lsm_verify",
        "lsm_orphans",
        "lsm_compact",
    }
    job = warehouse.definitions.resolve_job_def("lsm_compact")
    assert len(job.asset_layer.selected_asset_keys) == 3
    assert not any("shop__orders__expire" in each.name for each in repository.get_all_jobs())


def test_a_job_goes_on_with_the_others_where_one_table_fails(warehouse: Warehouse) -> None:
    table = warehouse.catalog.table("others.a")
    (file,) = table.system("files", 7)["file_path"].to_pylist()[-1:]
    path = Path(file if file.startswith("/") else f"{table.location}/{file}")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)
    done = warehouse.run("lsm_verify", tables=["others.*"])
    assert not done.success
    (failure,) = done.get_step_failure_events()
    told = failure.step_failure_data.error.message
    assert "1 of 2 tables failed: others.a" in told
    assert warehouse.run("lsm_verify", tables=["others.b"]).success

    assert warehouse.run("lsm_expire", tables=["others.b"], dry_run=True).success
    assert len(warehouse.catalog.table("others.b").snapshot_ids()) == 7
    assert warehouse.run("lsm_expire", tables=["others.b"]).success
    assert len(warehouse.catalog.table("others.b").snapshot_ids()) == 1


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        ("lsm_expire", {"tables", "dry_run", "keep_recorded"}),
        ("lsm_verify", {"tables", "incremental"}),
        ("lsm_orphans", {"tables", "dry_run", "older_than"}),
    ],
)
def test_a_launchpad_offers_what_its_job_reads(
    warehouse: Warehouse, job: str, fields: set[str]
) -> None:
    (op,) = warehouse.definitions.resolve_job_def(job).nodes
    assert set(op.definition.config_schema.config_type.fields) == fields
    schedule = warehouse.definitions.resolve_schedule_def(f"{job}_schedule")
    assert schedule.description


def test_the_page_of_health_ranks_what_tables_owe(warehouse: Warehouse) -> None:
    job = warehouse.definitions.get_repository_def().get_implicit_job_def_for_assets([health_key()])
    done = job.execute_in_process(instance=warehouse.instance, asset_selection=[health_key()])
    (event,) = done.asset_materializations_for_node("lsm_health")
    shown = event.metadata["lsm/health"].value
    assert "others.a" in shown
    assert "[compaction](/assets/others/a.compaction)" in shown
    assert event.metadata["lsm/tables"].value == "2 of 3 exist"
    assert "hours since" in event.metadata["lsm/oldest_commits"].value
    (check,) = done.get_asset_check_evaluations()
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN  # debt alone
    assert "; the worst: others." in check.description


def health_of(warehouse: Warehouse) -> tuple[dg.AssetMaterialization, dg.AssetCheckEvaluation]:
    """Return the event of a health run with the default depth, and its check."""
    job = warehouse.definitions.get_repository_def().get_implicit_job_def_for_assets([health_key()])
    done = job.execute_in_process(instance=warehouse.instance, asset_selection=[health_key()])
    checks = {check.check_name: check for check in done.get_asset_check_evaluations()}
    (event,) = done.asset_materializations_for_node("lsm_health")
    return event, checks["nothing_owed"]


def test_health_finds_a_lost_file_by_default(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.catalog.table("others.b")
    (file,) = table.system("files", 7)["file_path"].to_pylist()[-1:]
    path = Path(file if file.startswith("/") else f"{table.location}/{file}")
    lost = path.rename(path.with_suffix(".lost"))
    event, check = health_of(warehouse)
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.ERROR
    assert path.name in event.metadata["lsm/health"].value
    assert "job lsm_verify" in event.metadata["lsm/health"].value
    key = dg.AssetCheckKey(dg.AssetKey(["others", "b"]), "references")
    assert (key, None) in checks_to_renew(warehouse.instance, [key]), (
        "the table's own check says it"
    )
    # One table a run: they take turns, and the lost file is found by one of them.
    monkeypatch.setattr(warehouse_component, "LISTING_SECONDS", 0.0)
    passed = []
    for _ in range(2):
        event, check = health_of(warehouse)
        assert event.metadata["lsm/tables_listed"].value == 1
        passed.append(path.name in event.metadata["lsm/health"].value)
    assert sorted(passed) == [False, True]
    lost.rename(path)
    monkeypatch.setattr(warehouse_component, "LISTING_SECONDS", 60.0)
    event, _ = health_of(warehouse)
    assert path.name not in event.metadata["lsm/health"].value


def test_what_only_reads_runs_by_itself(warehouse: Warehouse) -> None:
    schedules = warehouse.definitions.get_repository_def().schedule_defs
    running = {
        schedule.name
        for schedule in schedules
        if schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    }
    assert running == {"lsm_health_hourly"}


def test_health_can_be_read_on_its_page(warehouse: Warehouse) -> None:
    """Three columns, commands as a shell takes them, and no table without a commit that seems fresh."""
    warehouse.catalog.create_table("shop.orders", ORDERS.schema, primary_key=["id"])
    file = warehouse.catalog.table("others.a").system("files")["file_path"][0].as_py()
    (Path(warehouse.catalog.table("others.a").location) / file).unlink()
    job = warehouse.definitions.get_repository_def().get_implicit_job_def_for_assets([health_key()])
    config = {"ops": {"lsm_health": {"config": {"depth": "whole"}}}}
    done = job.execute_in_process(
        instance=warehouse.instance, run_config=config, asset_selection=[health_key()]
    )
    (event,) = done.asset_materializations_for_node("lsm_health")
    head, _, *lines = event.metadata["lsm/health"].value.splitlines()
    assert head == "| table | finding | mended by |"
    assert lines[0].startswith("| others.a | error, damage: ")
    assert "| lsm repair others.a damaged-files --act --yes; this loses " in lines[0]
    assert "lsm/all_findings" not in event.metadata  # lsm/health has room for all of them
    (check,) = done.get_asset_check_evaluations()
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.ERROR
    _, _, first, *_ = event.metadata["lsm/oldest_commits"].value.splitlines()
    assert first == "| shop.orders | never |  |"


@pytest.mark.parametrize(("depth", "kind"), [("shallow", "manifest"), ("deep", "data")])
def test_files_that_are_lost_or_damaged_are_an_error(
    warehouse: Warehouse, depth: str, kind: str
) -> None:
    """They were a warning, as a debt is."""
    table = warehouse.catalog.table("others.a")
    if kind == "manifest":
        name = table.system("manifests")["file_name"][0].as_py()
        (Path(table.location) / "manifest" / name).unlink()
    else:
        path = Path(table.location) / table.system("files")["file_path"][0].as_py()
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 255
        path.write_bytes(data)
    job = warehouse.definitions.get_repository_def().get_implicit_job_def_for_assets([health_key()])
    done = job.execute_in_process(
        instance=warehouse.instance,
        run_config={"ops": {"lsm_health": {"config": {"depth": depth}}}},
        asset_selection=[health_key()],
    )
    checks = {check.check_name: check for check in done.get_asset_check_evaluations()}
    check = checks["nothing_owed"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "others.a" in check.description


def test_findings_that_are_cut_are_all_behind_a_button() -> None:
    few = [("shop.a", "error, damage: a file is gone", "lsm repair shop.a")]
    assert list(_findings_metadata(few)) == ["lsm/health"]
    many = [(f"shop.t{at}", "warning, debt: 9 sorted runs", "job") for at in range(300)]
    found = {key: value.value for key, value in _findings_metadata(many).items()}
    assert len(found["lsm/health"]) < INLINE_CHARACTERS_MAX < len(found["lsm/all_findings"])
    assert "shop.t299" in found["lsm/all_findings"]
    assert "more" in found["lsm/health"]


def test_patterns_watch_what_the_catalog_has(tmp_path: Path) -> None:
    settings = settings_from({WAREHOUSE: str(tmp_path), EXECUTOR: "local"})
    with lsm.open_catalog(tmp_path) as catalog:
        columns = ORDERS.schema.set(1, ORDERS.schema.field(1).with_metadata({"comment": "whose"}))
        catalog.create_table("shop.one", columns, primary_key=["id"], comment="One.")
        catalog.create_table("other.two", ORDERS.schema, primary_key=["id"])
    (found,) = watched_tables(settings, ["shop.*", "none.*"])
    assert (found.name, found.comment, found.primary_key) == ("shop.one", "One.", ("id",))
    assert found.schema.field("name").metadata == {b"comment": b"whose"}
    assert watched_tables(settings, []) == []


def loaded(attributes: dict[str, Any]) -> LsmTableComponent:
    return LsmTableComponent.resolve_from_dict({**ORDERS_YAML["attributes"], **attributes})


def test_yaml_says_all_that_a_declaration_can(tmp_path: Path) -> None:
    component = loaded(
        {
            "partitions": {"every": "daily", "start": "2024-01-01", "timezone": "Europe/Berlin"},
            "partition_columns": {"dt": "{key}"},
            "retries": 2,
            "automation": "eager",
            "fresh_within_minutes": 90,
            "column_lineage": {"amount": ["shop/lines:price"]},
            "deps": ["shop/lines"],
            "single_run": True,
        }
    )
    (table, *_) = component.assets(with_jobs=False).assets
    (spec,) = table.specs
    assert isinstance(spec.partitions_def, dg.DailyPartitionsDefinition)
    assert spec.partitions_def.timezone == "Europe/Berlin"
    assert spec.automation_condition is not None
    assert spec.freshness_policy is not None
    assert spec.freshness_policy.fail_window.to_timedelta() == timedelta(days=1, minutes=90)
    assert table.op.retry_policy.max_retries == 2
    assert table.backfill_policy == dg.BackfillPolicy.single_run()
    schema = spec.metadata["dagster/column_schema"].value
    assert schema.columns[0].description == "who"
    assert component.declaration().options == {"bucket": "2", "write-only": "true"}


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"columns": [{"name": "order_id", "type": "BIGNIT"}]}, "BIGNIT"),
        ({"options": {"bukcet": 1}}, "did you mean 'bucket'"),
        ({"options": {"bucket": "two"}}, "bucket"),
        ({"table": "orders"}, "table"),
        ({"retries": -1}, "retries"),
        ({"partitions": {"every": "yearly", "start": "2024"}}, "yearly"),
        ({"partitions": {"every": "daily", "start": "soon"}}, "soon"),
        ({"partitions": {"keys": ["a"], "start": "2024-01-01"}}, "'every' with a 'start'"),
        ({"partitions": {"keys": ["a"], "timezone": "Europe/Berlin"}}, "'every' with a 'start'"),
        (
            {"partitions": {"every": "daily", "start": "2024-01-01", "timezone": "Berlin"}},
            "no time zone 'Berlin'",
        ),
        ({"partitions": {"dynamic": "x", "end": "2024-01-01"}}, "'every' with a 'start'"),
        ({"fresh_within_minutes": 0.5}, "fresh_within_minutes"),
        ({"columns": [{"name": "order_id", "type": "TIMESTAMP(0)"}]}, "would become"),
        ({"automation": "eagr"}, "eagr"),
        ({"writer": "no.such:writer"}, "no.such:writer"),
        ({"translator": "json:nothing"}, "json:nothing"),
        (
            {"primary_key": ["order"]},
            "primary_key names 'order', and there are the columns order_id",
        ),
        ({"partitioned_by": ["day"]}, "partitioned_by names 'day'"),
        ({"partition_columns": {"day": "{key}"}}, "partition_columns names 'day'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_with_its_line(attributes: dict[str, Any], told: str) -> None:
    with pytest.raises(Exception) as failure:  # noqa: PT011 -- Dagster's own, of several kinds
        loaded(attributes)
    text, cause = "", failure.value
    while cause is not None:
        text, cause = f"{text}\n{cause}", cause.__cause__
    assert told in text
    assert any(f":{line}" in text or f"line {line}" in text for line in range(1, 40)), text


@pytest.mark.parametrize("field", ["warehouse", "catalog_url", "executor"])
def test_a_component_without_the_resource_names_no_warehouse(field: str) -> None:
    given = {"resource": False, field: "local"}
    with pytest.raises(Exception) as failure:  # noqa: PT011 -- Dagster's own
        LsmWarehouseComponent.resolve_from_dict(given)
    assert f"leave out {field}" in str(failure.value.__cause__ or failure.value)
    with pytest.raises(InvalidInputError, match=f"leave out {field}"):
        LsmWarehouseComponent(**given).build_defs(NO_CONTEXT)


def test_lengths_of_columns_are_those_of_the_yaml(tmp_path: Path) -> None:
    types = ["VARCHAR(10)", "CHAR(3) NOT NULL", "VARBINARY(7)", "DECIMAL(5, 1)", "TIMESTAMP(3)"]
    columns = [
        {"name": f"c{number}", "type": text, "comment": "what"} for number, text in enumerate(types)
    ]
    declaration = loaded(
        {"columns": columns, "primary_key": ["c1"], "partitioned_by": []}
    ).declaration()
    settings = settings_from({WAREHOUSE: str(tmp_path), EXECUTOR: "local"})
    table = resources_from(settings)["lsm"].table(declaration)
    stored = [f"{type_text(each.type)}" for each in table.schema.fields]
    assert stored == types
    assert {each.description for each in table.schema.fields} == {"what"}


@pytest.mark.parametrize("kind", ["LEGACY_CODE_SERVER_SNAPSHOTS", "LOCAL_FILESYSTEM"])
def test_a_run_opens_no_watched_table_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lake = tmp_path / "lake"
    with lsm.open_catalog(lake) as catalog:
        options = {"deletion-vectors.enabled": "true"}
        catalog.create_table("shop.one", ORDERS.schema, primary_key=["id"], options=options)
    component = LsmWarehouseComponent(
        warehouse=str(lake),
        executor="local",
        watch=["shop.*"],
        defs_state=DefsStateConfigArgs(management_type=kind),
    )
    project: Any = SimpleNamespace(project_root=tmp_path)
    module = f"watched_{kind.lower()}"
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(f'[tool.dg.project]\ndefs_module = "{module}"\n')
    monkeypatch.syspath_prepend(tmp_path)

    def facts(kind: DefinitionsLoadType, data: RepositoryLoadData | None = None) -> dict[str, str]:
        load = DefinitionsLoadContext(kind, data)
        with DefinitionsLoadContext.scoped(load):
            specs = component.build_defs(project).resolve_all_asset_specs()
            pending.update(load.get_pending_reconstruction_metadata())
            states.append(load.accessed_defs_state_info)
        return {spec.key.to_user_string(): str(spec.metadata) for spec in specs}

    pending: dict[str, Any] = {}
    states: list[Any] = []
    if kind == "LOCAL_FILESYSTEM":
        assert "shop/one" not in facts(DefinitionsLoadType.INITIALIZATION), "not refreshed yet"
        asyncio.run(component.refresh_state(tmp_path))
    else:
        assert "shop/one" in facts(DefinitionsLoadType.INITIALIZATION)
    monkeypatch.setattr(warehouse_component, "watched_tables", None)
    data = RepositoryLoadData(
        cacheable_asset_data={}, reconstruction_metadata=pending, defs_state_info=states[-1]
    )
    again = facts(DefinitionsLoadType.RECONSTRUCTION, data)
    assert "deletion-vectors.enabled" in again["shop/one"]
    if kind == "LOCAL_FILESYSTEM":
        assert facts(DefinitionsLoadType.INITIALIZATION) == again, (
            "the code location opens no table"
        )


def test_an_asset_with_settings_of_a_table_needs_an_io_manager_of_tables(tmp_path: Path) -> None:
    """Dagster's own would pickle the frame into a file, and its readers would look for a table."""

    @dg.asset(key=["shop", "orders"], metadata={"lsm/primary_key": "id"})
    def orders() -> Any:
        return rows(1)

    @dg.asset
    def report() -> str:
        return "no table"

    settings = settings_from({WAREHOUSE: str(tmp_path), EXECUTOR: "local"})
    tables = lsm_table_assets(replace(ORDERS, name="shop.a"), with_jobs=False)
    others = lsm_table_assets(replace(ORDERS, name="shop.b"), with_jobs=False)
    project = dg.Definitions.merge(others.definitions("local"), dg.Definitions([orders, report]))

    def loaded(**resources: Any) -> dg.Definitions:
        own = dg.Definitions.merge(project, dg.Definitions(resources=resources))
        return warehouse_definitions([tables], settings, project=own)

    with pytest.raises(dg.DagsterInvalidDefinitionError) as caught:
        loaded()
    assert "asset 'shop/orders' has metadata 'lsm/primary_key'" in str(caught.value)
    assert 'resources={"io_manager": LsmIOManager(lsm=' in str(caught.value)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Dagster's for files"):
        loaded(io_manager=dg.FilesystemIOManager(base_dir=str(tmp_path)))
    manager = LsmIOManager(lsm=resources_from(settings)["lsm"])
    definitions = loaded(io_manager=manager)
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert {dg.AssetKey(["shop", "orders"]), dg.AssetKey("report")} <= set(keys)


def test_a_table_that_is_dropped_under_an_expiry_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["shop.a", "shop.b"]
    assets = [lsm_table_assets(replace(ORDERS, name=name), with_jobs=False) for name in names]
    settings = settings_from({WAREHOUSE: str(tmp_path), EXECUTOR: "local"})
    definitions = warehouse_definitions(assets, settings)
    resource = resources_from(settings)["lsm"]
    for name in names:
        resource.table(replace(ORDERS, name=name)).upsert(rows(1))
    expired: list[str] = []

    def drops(self: lsm.Table, **how: Any) -> str:
        expired.append(self.name)
        if self.name == "shop.a" and not how:
            resource.catalog.drop_table("shop.a")
            raise AttributeError("what nobody expects of a table that is gone")
        return "nothing"

    monkeypatch.setattr(lsm.Table, "expire_snapshots", drops)
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def("lsm_expire")
        run = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not run.success
    assert expired == ["shop.a", "shop.a", "shop.b", "shop.b"]


def test_dg_finds_the_components(tmp_path: Path) -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module = project["project"]["entry-points"]["dagster_dg_cli.registry_modules"]["lsm_assets"]
    listed = __import__(module, fromlist=["__all__"])
    assert {getattr(listed, name) for name in listed.__all__} == {
        LsmTableComponent,
        LsmWarehouseComponent,
    }


def test_a_scaffolded_table_loads_as_it_is(tmp_path: Path) -> None:
    asked = {
        "table": "shop.lines",
        "columns": "id BIGINT NOT NULL; price DOUBLE",
        "primary_key": "id",
    }
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LsmTableComponent, defs_path="lines", scaffold_params=asked
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, built):
            assert [column.name for column in component.columns] == ["id", "price"]
            merged = dg.Definitions.merge(built, dg.Definitions(resources=resources(tmp_path)))
            dg.Definitions.validate_loadable(merged)


def test_a_pattern_that_names_no_table_fails_the_run(warehouse: Warehouse) -> None:
    done = warehouse.run("lsm_expire", tables=["others.b", "otherz.*"])
    (failure,) = done.get_step_failure_events()
    assert "no table is named otherz.*" in failure.step_failure_data.error.message
    assert len(warehouse.catalog.table("others.b").snapshot_ids()) == 7
    assert warehouse.run("lsm_verify").success


def test_a_damaged_table_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_from({WAREHOUSE: str(tmp_path), EXECUTOR: "local"})
    with lsm.open_catalog(tmp_path) as catalog:
        for name in ("shop.one", "shop.two"):
            catalog.create_table(name, ORDERS.schema, primary_key=["id"])
    (tmp_path / "shop.db" / "one" / "schema" / "schema-0").write_text("{")
    (found,) = watched_tables(settings, ["shop.*"])
    assert found.name == "shop.two"
    assert "shop.one is left out" in caplog.text


def test_a_catalog_out_of_reach_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://me:geheim@127.0.0.1:1/lake"
    settings = settings_from({WAREHOUSE: str(tmp_path), CATALOG_URL: url})
    with pytest.raises(
        lsm.StorageError, match=r"cannot list tables of postgresql://me:\*\*\*@"
    ) as told:
        watched_tables(settings, ["shop.*"])
    assert "geheim" not in str(told.value)


def test_several_components_share_a_project(tmp_path: Path) -> None:
    orders, names = ORDERS_YAML["attributes"], ("sales", "stock")
    with create_defs_folder_sandbox() as sandbox:
        for name in names:
            attributes = {
                "name": name,
                "resource": name == "sales",
                "tables": [{**orders, "table": f"{name}.orders"}],
            }
            if name == "sales":
                attributes |= {"warehouse": str(tmp_path / "lake"), "executor": "local"}
            yaml = {
                "type": "lsm_assets.warehouse_component.LsmWarehouseComponent",
                "attributes": attributes,
            }
            path = sandbox.scaffold_component(
                component_cls=LsmWarehouseComponent, defs_path=name, defs_yaml_contents=yaml
            )
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, second):
            assert second.executor is None
            assert not second.resources
        with sandbox.build_all_defs() as built:
            dg.Definitions.validate_loadable(built)
            repository = built.get_repository_def()
    keys = repository.asset_graph.get_all_asset_keys()
    assert {health_key(name) for name in names} <= set(keys)
    assert {each.name for each in repository.sensor_defs} == {
        f"{name}_{what}" for name in names for what in ("automation", "compaction", "sync")
    }
    jobs = {each.name for each in repository.get_all_jobs()}
    assert {f"{name}_verify" for name in names} <= jobs
