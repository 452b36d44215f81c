"""A small lake: its definitions on an instance, and what a daemon does with them; no Spark."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.utils import make_new_run_id

from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import LsmTableAssets, lsm_definitions
from lsm_assets.keys import AssetKind, partition_set_name, snapshot_partitions, tag_partitions
from lsm_assets.resource import LsmResource, resources_from
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from lsm_assets.versions import parse_version

MARKS = [
    pytest.mark.dagster,
    # Dagster calls what it has deprecated itself.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning"),
]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
ORDERS = TableDeclaration(
    name="shop.orders",
    schema=SCHEMA,
    primary_key=("id",),
    options={"bucket": "1", "write-only": "true"},
)
KEYS = ORDERS.keys


def rows(*ids: int, name: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=SCHEMA)


def version_id(version: str) -> int:
    """Return the snapshot of a data version; its mark tells commits of one id apart."""
    found = parse_version(version)
    assert found is not None, version
    return found.snapshot_id


def answer(instance: dg.DagsterInstance, told: Any) -> None:
    """Do what the daemon does with what a sensor has told: report events, add and delete partitions."""
    for event in told.asset_events:
        instance.report_runless_asset_event(event)
    for request in told.dynamic_partitions_requests or []:
        name, keys = request.partitions_def_name, list(request.partition_keys)
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(name, keys)
        else:
            for key in keys:
                instance.delete_dynamic_partition(name, key)


@dataclass
class Lake:
    """One warehouse, its definitions, and an instance that they run on."""

    warehouse: Path
    instance: dg.DagsterInstance
    tables: list[LsmTableAssets]
    to_write: list[Any] = field(default_factory=list)
    cursors: dict[str, str | None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    kept: LsmResource | None = None
    """A resource that every tick uses, with its catalog open; None: each tick opens its own, as a daemon does."""

    def __post_init__(self) -> None:
        variables = {WAREHOUSE: str(self.warehouse), EXECUTOR: "local", **self.variables}
        settings = settings_from(variables)
        self.definitions = lsm_definitions(self.tables, settings)
        self.repository = self.definitions.get_repository_def()
        self.settings = settings

    @property
    def lsm(self) -> LsmResource:
        return resources_from(self.settings)["lsm"]

    def materialise(
        self, *kinds: AssetKind, raise_on_error: bool = True, **how: Any
    ) -> dg.ExecuteInProcessResult:
        selection = [KEYS.asset(kind) for kind in kinds]
        job = self.repository.get_implicit_job_def_for_assets(selection)
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=selection,
            raise_on_error=raise_on_error,
            **how,
        )

    def write(self, *changes: Any) -> dg.ExecuteInProcessResult:
        self.to_write[:] = list(changes)
        return self.materialise(AssetKind.TABLE)

    def tick(self, name: str) -> Any:
        sensor = self.repository.get_sensor_def(name)
        opened = dg.ResourceDefinition.hardcoded_resource(self.kept) if self.kept else self.lsm
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursors.get(name),
            definitions=self.definitions,
            sensor_name=name,
            resources={"lsm": opened},
        ) as context:
            told = sensor.evaluate_tick(context)
        self.cursors[name] = told.cursor
        return told

    def run_of(self, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
        """Record a run that the daemon has launched for a request, and how it ended just now."""
        run_key = {"dagster/run_key": request.run_key or ""}
        run = dg.DagsterRun("__ASSET_JOB", make_new_run_id(), tags={**request.tags, **run_key})
        self.instance.add_run(run)
        kind = {
            dg.DagsterRunStatus.FAILURE: dg.DagsterEventType.RUN_FAILURE,
            dg.DagsterRunStatus.SUCCESS: dg.DagsterEventType.RUN_SUCCESS,
            dg.DagsterRunStatus.CANCELED: dg.DagsterEventType.RUN_CANCELED,
        }[status]
        self.instance.report_dagster_event(dg.DagsterEvent(kind.value, run.job_name), run.run_id)

    def sync(self) -> Any:
        """Tick the sync sensor, and do what the daemon does with its answer."""
        told = self.tick("lsm_sync")
        answer(self.instance, told)
        return told

    def events(self, kind: AssetKind) -> list[dg.AssetMaterialization]:
        """Return an asset's materialisations, oldest first."""
        wanted = dg.AssetRecordsFilter(asset_key=KEYS.asset(kind))
        found = self.instance.fetch_materializations(wanted, limit=1000).records
        return [record.asset_materialization for record in reversed(found)]

    @property
    def snapshots(self) -> list[str]:
        name = partition_set_name(snapshot_partitions(KEYS))
        return list(self.instance.get_dynamic_partitions(name))

    @property
    def tags(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(partition_set_name(tag_partitions(KEYS))))

    def add_tag_partition(self, name: str) -> None:
        self.instance.add_dynamic_partitions(partition_set_name(tag_partitions(KEYS)), [name])
