"""Dagster definitions of one table from its declaration, and of a code location."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg

from lsm_assets.checks import contents_spec, shape_spec, table_checks
from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import AssetKind
from lsm_assets.maintenance import (
    asset_jobs,
    diff_job,
    expiry_job,
    expiry_schedule,
    lineage_page_job,
    lineage_page_schedule,
    maintenance_schedules,
    orphans_job,
    tag_schedule,
    verify_job,
)
from lsm_assets.resource import resources_from
from lsm_assets.sensors import table_sensors
from lsm_assets.settings import ExecutorName, Settings
from lsm_assets.table_assets import (
    CompactionConfig,
    InspectConfig,
    TagConfig,
    Writer,
    change_tag,
    compact_table,
    inspect_snapshots,
    write_table,
)
from lsm_assets.translator import LsmTranslator, executed_by
from lsm_engine import record


@record
class LsmTableAssets:
    """The definitions of one table. Sensors are for several tables: see `lsm_assets/sensors.py`."""

    declaration: TableDeclaration
    assets: tuple[dg.AssetsDefinition | dg.AssetSpec, ...]
    checks: tuple[dg.AssetChecksDefinition, ...]
    jobs: tuple[Any, ...]
    schedules: tuple[dg.ScheduleDefinition, ...]

    def definitions(self, executor: ExecutorName | None = None) -> dg.Definitions:
        """Return the definitions, without sensors and resources. `executor`, if known, becomes a kind of the assets."""
        return dg.Definitions(
            assets=[
                asset.map_asset_specs(partial(executed_by, executor=executor))
                if executor is not None and isinstance(asset, dg.AssetsDefinition)
                else asset
                for asset in self.assets
            ],
            asset_checks=self.checks,
            jobs=self.jobs,
            schedules=self.schedules,
        )


def lsm_table_assets(
    declaration: TableDeclaration,
    writer: Writer | None = None,
    *,
    partitions_def: dg.PartitionsDefinition | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    required_resource_keys: Sequence[str] = (),
    tag_daily: bool = False,
    translator: LsmTranslator | None = None,
    with_jobs: bool = True,
) -> LsmTableAssets:
    """Build the assets, checks, jobs and schedules of one table.

    Args:
        declaration: The table.
        writer: Called with (context, table). Returns or yields changes: rows with `__arrow_c_stream__`, a Spark
            DataFrame, or `Upsert`, `Delete` and `Overwrite`. Each change becomes one commit. Without a writer the table
            is an external asset, and the sync sensor reports the commits of other clients.
        partitions_def: Partitions of the table asset; they replace those of the declaration.
            `TableDeclaration.partition_columns` says how the table stores them.
        backfill_policy: Backfill policy of the table asset.
        retry_policy: Retry policy of the table asset.
        automation_condition: Automation condition of the table asset.
        required_resource_keys: Resources of the writer, in addition to `lsm`.
        tag_daily: Whether to add a schedule that tags the newest snapshot every day.
        translator: Derives specs of assets; by default `LsmTranslator`.
        with_jobs: Whether to add maintenance jobs and schedules. False if jobs for all tables exist (`fleet_jobs`).
    """
    names = translator or LsmTranslator()
    if partitions_def is not None:
        declaration = replace(declaration, partitions_def=partitions_def)
    resources = {"lsm", *required_resource_keys}
    spec = names.spec(declaration, AssetKind.TABLE).replace_attributes(
        automation_condition=automation_condition
    )
    table: dg.AssetsDefinition | dg.AssetSpec = spec
    if writer is not None:
        table = _table_asset(declaration, spec, writer, resources, backfill_policy, retry_policy)
    jobs, schedules = _maintenance(declaration) if with_jobs else ((), ())
    return LsmTableAssets(
        declaration=declaration,
        assets=(
            table,
            names.spec(declaration, AssetKind.FILES),
            _snapshots_asset(declaration, names),
            _tags_asset(declaration, names),
            _compaction_asset(declaration, names),
            *(names.view(declaration, name) for name in declaration.views),
        ),
        checks=tuple(table_checks(declaration)),
        jobs=jobs,
        schedules=(*schedules, *([tag_schedule(declaration)] if tag_daily else [])),
    )


def _maintenance(
    declaration: TableDeclaration,
) -> tuple[tuple[Any, ...], tuple[dg.ScheduleDefinition, ...]]:
    expiry = expiry_job(declaration)
    orphans, verify = orphans_job(declaration), verify_job(declaration)
    schedules = (
        expiry_schedule(declaration, expiry),
        *maintenance_schedules(declaration, orphans, verify),
    )
    return (expiry, orphans, verify, diff_job(declaration), *asset_jobs(declaration)), schedules


def _table_asset(
    declaration: TableDeclaration,
    spec: dg.AssetSpec,
    writer: Writer,
    resources: set[str],
    backfill_policy: dg.BackfillPolicy | None,
    retry_policy: dg.RetryPolicy | None,
) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=declaration.keys.op(""),
        specs=[spec],
        required_resource_keys=resources,
        pool=declaration.keys.pool,
        backfill_policy=backfill_policy,
        retry_policy=retry_policy,
    )
    def write(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from write_table(context, declaration, writer)

    return write


def _snapshots_asset(declaration: TableDeclaration, names: LsmTranslator) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=declaration.keys.op("inspect"),
        specs=[
            names.spec(declaration, AssetKind.MANIFEST_LISTS),
            names.spec(declaration, AssetKind.SNAPSHOTS),
        ],
        check_specs=[shape_spec(declaration), contents_spec(declaration)],
        can_subset=True,
        required_resource_keys={"lsm"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def inspect(context: dg.AssetExecutionContext, config: InspectConfig) -> Iterator[Any]:
        yield from inspect_snapshots(context, declaration, config)

    return inspect


def _tags_asset(declaration: TableDeclaration, names: LsmTranslator) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=declaration.keys.op("tag"),
        specs=[names.spec(declaration, AssetKind.TAGS)],
        required_resource_keys={"lsm"},
    )
    def tag(context: dg.AssetExecutionContext, config: TagConfig) -> Iterator[Any]:
        yield from change_tag(context, declaration, config)

    return tag


def _compaction_asset(declaration: TableDeclaration, names: LsmTranslator) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=declaration.keys.op("compact"),
        specs=[names.spec(declaration, AssetKind.COMPACTION)],
        required_resource_keys={"lsm"},
        pool=declaration.keys.pool,
    )
    def compact(context: dg.AssetExecutionContext, config: CompactionConfig) -> Iterator[Any]:
        yield from compact_table(context, declaration, config)

    return compact


# -- The definitions of a code location ------------------------------------------------------------


def lsm_definitions(
    tables: Sequence[LsmTableAssets], settings: Settings, *, jobs: Sequence[Any] = ()
) -> dg.Definitions:
    """Return the definitions of a code location whose tables are all in one warehouse.

    Args:
        tables: Tables, from `lsm_table_assets`.
        settings: Warehouse, catalog and executor.
        jobs: Further jobs.
    """
    page = lineage_page_job()
    return dg.Definitions.merge(
        *(table.definitions(settings.executor) for table in tables),
        dg.Definitions(
            jobs=[*jobs, page],
            schedules=[lineage_page_schedule(page)],
            sensors=table_sensors([table.declaration for table in tables]),
            resources=resources_from(settings),
            # One process per run, hence one JVM for all of its steps.
            executor=dg.in_process_executor,
        ),
    )
