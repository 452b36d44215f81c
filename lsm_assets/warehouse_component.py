"""LsmWarehouseComponent: the tables of a warehouse with one set of sensors, jobs and schedules."""

import json
import logging
import math
import os
import shlex
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
import pyarrow as pa
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.checks import references_evaluation, table_readers
from lsm_assets.component import LsmTable, tables_schema
from lsm_assets.dagster_core import definitions_context
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.keys import AssetKind, asset_link
from lsm_assets.maintenance import (
    NIGHTLY,
    ORPHANS_WEEKLY,
    VERIFY_NIGHTLY,
    OrphansConfig,
    VerifyConfig,
    compaction_job,
    expire_table,
    plan_expiry,
    plan_orphans,
    remove_orphans,
    verify_table,
)
from lsm_assets.metadata import Metadata, counted, markdown_table, schema_with_comments
from lsm_assets.resource import resources_from
from lsm_assets.sensors import table_sensors
from lsm_assets.settings import CATALOG_URL, EXECUTOR, WAREHOUSE, Settings, settings_from
from lsm_assets.staleness import changed_inputs
from lsm_assets.storage import ASSET_KEYS
from lsm_engine import ErrorKind, InvalidInputError, LsmError, record

# -- The health asset of a warehouse ---------------------------------------------------------------
#
# Findings about its tables, most severe first, with the job that repairs each.

HOURLY = "25 * * * *"
_CHECK = "nothing_owed"
_HEADINGS = ("table", "finding", "mended by")  # more columns than these are cut on the page
_CHARACTERS_MAX = 100_000
_OLDEST = 10
_NEXT_TABLE = "lsm/next_table"
LISTING_SECONDS = 60.0
"""Seconds that a run of the depth `shallow` spends on listing files. The next run goes on with the other tables."""


class HealthConfig(dg.Config):
    """Options of a health check."""

    depth: str = Field(
        default="shallow",
        description="shallow: newest snapshots, and their files in turn; whole: every root, orphans; deep",
    )


def health_key(prefix: str = "lsm") -> dg.AssetKey:
    """Return the key of a warehouse's health asset."""
    return dg.AssetKey([prefix, "health"])


def health_asset(
    declarations: Sequence[TableDeclaration], *, prefix: str = "lsm"
) -> dg.AssetsDefinition:
    """Return the asset whose page ranks compaction debt, damage, retention, freshness and small files of tables."""
    keys = {declaration.name: declaration.keys for declaration in declarations}
    asset_key = health_key(prefix)

    @dg.multi_asset(
        name=f"{prefix}_health",
        specs=[
            dg.AssetSpec(
                key=asset_key,
                group_name=prefix,
                kinds={"paimon", "table"},
                description="What the tables of this warehouse owe, the worst first, and what mends it.",
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                name=_CHECK,
                asset=asset_key,
                description="No table owes anything, a warning, and no file is lost or damaged, an error.",
            )
        ],
        required_resource_keys={"lsm"},
    )
    def health(context: dg.AssetExecutionContext, config: HealthConfig) -> Iterator[Any]:
        catalog: lsm.Catalog = context.resources.lsm.catalog
        existing = set(
            catalog.list_tables()
        )  # with damaged tables, which the report has findings of
        names = [name for name in keys if name in existing]
        report = lsm.doctor(catalog, names, depth=config.depth) if names else None
        findings = sorted(report.findings, key=_rank) if report is not None else []
        compactions = {name: asset_link(keys[name].asset(AssetKind.COMPACTION)) for name in names}
        rows = [_row(finding, compactions.get(finding.table, ""), prefix) for finding in findings]
        # The other depths follow every reference of every table.
        listing = (
            _list_files(catalog, names, _next_table(context.instance, asset_key))
            if config.depth == "shallow"
            else Listing()
        )
        reported = {finding.table for finding in findings if finding.kind == "damage"}
        rows = [
            *(
                _lost_row(table, table_report, prefix)
                for table, table_report in listing.damaged
                if table not in reported
            ),
            *rows,
        ]
        stale = list(_stale_readers(context.instance, declarations))
        yield dg.MaterializeResult(
            asset_key=asset_key,
            metadata={
                **_findings_metadata(rows),
                **listing.metadata,
                **_stale_metadata(stale),
                "lsm/findings": len(rows),
                "lsm/tables": dg.MetadataValue.text(f"{len(names)} of {len(keys)} exist"),
                "lsm/oldest_commits": dg.MetadataValue.md(_oldest_tables(catalog, names)),
            },
        )
        yield dg.AssetCheckResult(
            asset_key=asset_key,
            check_name=_CHECK,
            passed=not listing.damaged and (report is None or report.is_healthy),
            severity=dg.AssetCheckSeverity.ERROR if listing.damaged else _severity(findings),
            description=f"findings: {len(rows)}, tables: {len(names)}"
            + (f"; the worst: {rows[0][0]}: {rows[0][1]}" if rows else "")
            + (report.left_out if report is not None else ""),
        )
        for table, table_report in listing.damaged:
            # The table's own check says so as well, until a tick of the sync sensor finds it mended.
            yield references_evaluation(context.instance, keys[table], table_report)

    return health


@record
class Listing:
    """The result of a bounded listing of tables: damaged tables with their reports, and where the next one begins."""

    damaged: tuple[tuple[str, lsm.VerifyReport], ...] = ()
    listed_count: int = 0
    next_table: str = ""

    @property
    def metadata(self) -> Metadata:
        """Metadata from which the next run goes on; empty if no table was listed."""
        if not self.listed_count:
            return {}
        listed: Metadata = {"lsm/tables_listed": dg.MetadataValue.int(self.listed_count)}
        if self.next_table:
            listed[_NEXT_TABLE] = dg.MetadataValue.text(self.next_table)
        return listed


def _list_files(catalog: lsm.Catalog, names: Sequence[str], first: str) -> Listing:
    """Compare the files that newest snapshots name with the stored ones, for tables in turn from `first` on.

    At least one table is listed, and no further one begins after LISTING_SECONDS.
    """
    ordered = sorted(names)
    start = next((index for index, name in enumerate(ordered) if name >= first), 0)
    turn = ordered[start:] + ordered[:start]
    deadline = time.monotonic() + LISTING_SECONDS
    damaged: list[tuple[str, lsm.VerifyReport]] = []
    for position, name in enumerate(turn):
        if position and time.monotonic() >= deadline:
            return Listing(damaged=tuple(damaged), listed_count=position, next_table=name)
        try:
            table = catalog.table(name)
            newest = table.latest_snapshot()
            report = table.verify(snapshot_id=newest.id) if newest is not None else None
        except LsmError:
            continue  # the report has a finding for a table that cannot be read
        if report is not None and not report.is_clean:
            damaged.append((name, report))
    return Listing(damaged=tuple(damaged), listed_count=len(turn))


def _next_table(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    """Return the table at which the listing of the last run has stopped."""
    entry = instance.get_latest_materialization_event(key)
    event = entry.asset_materialization if entry is not None else None
    value = event.metadata.get(_NEXT_TABLE) if event is not None else None
    return str(value.value) if value is not None else ""


def _lost_row(table: str, report: lsm.VerifyReport, prefix: str) -> tuple[str, ...]:
    """Return the finding in few words, as a page's column is narrow: the table's check has all of them."""
    files = report.damaged_files
    subject = files[0].path.rsplit("/", 1)[-1] if files else report.problems[0]
    suffix = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return (
        table,
        f"error, damage: lost or damaged: {subject}{suffix}",
        f"job {prefix}_verify, then lsm repair {table}",
    )


def _stale_readers(
    instance: dg.DagsterInstance, declarations: Sequence[TableDeclaration]
) -> Iterator[tuple[str, str]]:
    """Yield the tables whose inputs have changed since they were written, and these inputs."""
    for reader in table_readers(declarations):
        if changes := changed_inputs(instance, reader):
            yield (
                f"[{reader.key.to_user_string()}]({asset_link(reader.key)})",
                ", ".join(str(change) for change in changes),
            )


def _stale_metadata(stale: Sequence[tuple[str, str]]) -> Metadata:
    """Return a table of readers that are out of date; empty without any."""
    table = markdown_table(("reader", "changed since it was read"), stale)
    return {"lsm/stale_readers": dg.MetadataValue.md(table)} if stale else {}


def health_schedule(asset: dg.AssetsDefinition, *, prefix: str = "lsm") -> dg.ScheduleDefinition:
    """Return the schedule that checks all tables every hour. It starts running: it only reads."""
    return dg.ScheduleDefinition(
        name=f"{prefix}_health_hourly",
        target=dg.AssetSelection.assets(*asset.keys),
        cron_schedule=HOURLY,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Rank what tables owe, and look for lost files.",
    )


def _findings_metadata(rows: Sequence[tuple[str, ...]]) -> Metadata:
    """Return the most severe findings as a short table, and all findings as a second table if the first is cut."""
    if not rows:
        return {"lsm/health": dg.MetadataValue.md("nothing is owed")}
    worst = markdown_table(_HEADINGS, rows)
    metadata: Metadata = {"lsm/health": dg.MetadataValue.md(worst)}
    all_findings = markdown_table(_HEADINGS, rows, characters_max=_CHARACTERS_MAX)
    return (
        metadata
        if all_findings == worst
        else {**metadata, "lsm/all_findings": dg.MetadataValue.md(all_findings)}
    )


def _severity(findings: Sequence[Any]) -> dg.AssetCheckSeverity:
    """Return ERROR if files are lost, damaged or cannot be read; WARN for maintenance that is due."""
    is_lost = any(
        finding.severity.name == "ERROR" and finding.kind != "debt" for finding in findings
    )
    return dg.AssetCheckSeverity.ERROR if is_lost else dg.AssetCheckSeverity.WARN


def _rank(finding: Any) -> tuple[int, str, str]:
    return -finding.severity.value, finding.table, finding.kind


def _row(finding: Any, compaction: str, prefix: str) -> tuple[str, ...]:
    remedies = {
        "debt": f"[compaction]({compaction})",
        "small-files": f"[compaction]({compaction})",
        "retention": f"job {prefix}_expire",
        "orphans": f"job {prefix}_orphans",
    }
    cost = f"; {finding.cost}" if finding.cost else ""
    description = f"{finding.severity.name.lower()}, {finding.kind}: {finding.what}{cost}"
    remedy = remedies.get(finding.kind) or _command(finding)
    if finding.kind == "damage":
        remedy = f"{remedy}; then job {prefix}_verify"
    return finding.table, description, remedy


def _command(finding: Any) -> str:
    loses = f"; this loses {finding.loses}" if finding.loses else ""
    return shlex.join(["lsm", *finding.command]) + loses if finding.command else ""


def _oldest_tables(catalog: lsm.Catalog, names: Sequence[str]) -> str:
    """Return a table of the tables with the oldest last commit. Tables without a commit come first."""
    ages = sorted(_table_ages(catalog, names), key=lambda age: -age[0])[:_OLDEST]
    rows = [
        (name, committed_at, f"{hours:,.1f}" if committed_at != "never" else "")
        for hours, name, committed_at in ages
    ]
    return markdown_table(("table", "last commit (UTC)", "hours since"), rows)


def _table_ages(catalog: lsm.Catalog, names: Sequence[str]) -> Iterator[tuple[float, str, str]]:
    """Yield the hours since the last commit, the name and the time of that commit, for each table."""
    for name in names:
        try:
            table = catalog.table(name)
            newest = table.latest_snapshot()
        except lsm.LsmError:
            continue  # the report has a finding for a table that cannot be read
        if newest is None:
            yield math.inf, name, "never"
            continue
        committed_at = datetime.fromtimestamp(newest.time_millis / 1000, UTC)
        yield table.age_millis(newest) / 3_600_000, name, f"{committed_at:%Y-%m-%d %H:%M}"


# -- Maintenance of many tables by one set of jobs and schedules -----------------------------------
#
# The run's config selects tables by patterns.


class FleetConfig(dg.Config):
    """Selection of tables."""

    tables: list[str] = Field(default=["*"], description="Names or patterns, such as shop.*")


class ExpireTablesConfig(FleetConfig):
    """Selection of tables, and options of expiry."""

    dry_run: bool = Field(default=False, description="Only show what would be expired")
    keep_recorded: bool = Field(
        default=False, description="Keep what readers may ask for by what Dagster recorded"
    )


class VerifyTablesConfig(FleetConfig, VerifyConfig):
    """Selection of tables, and options of verification."""


class OrphansTablesConfig(FleetConfig, OrphansConfig):
    """Selection of tables, and options of orphan removal."""


@record
class _Maintenance:
    """A kind of maintenance: its function for one table, its config, its schedule and its description."""

    run: Callable[[dg.OpExecutionContext, TableDeclaration, Any], None]
    config: type[FleetConfig]
    cron: str
    description: str


def fleet_jobs(
    declarations: Sequence[TableDeclaration], *, prefix: str = "lsm"
) -> list[dg.JobDefinition]:
    """Return the jobs expire, verify and orphans, which process tables one after the other.

    An error of one table does not stop the others; the run fails at the end and names the failed tables. A pattern
    that matches no table fails the run before anything is done.
    """
    return [
        _job(f"{prefix}_{name}", kind, declarations) for name, kind in _maintenance_kinds().items()
    ]


def fleet_schedules(jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each job. Schedules start stopped, because jobs delete files."""
    kinds = _maintenance_kinds()
    return [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=kind.cron,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=f"{kind.description} All tables, in turn.",
        )
        for job in jobs
        for kind in (kinds[job.name.rpartition("_")[2]],)
    ]


def _maintenance_kinds() -> dict[str, _Maintenance]:
    """Return the kinds of maintenance by the name of the job without its prefix."""
    return {
        "expire": _Maintenance(
            run=_expire,
            config=ExpireTablesConfig,
            cron=NIGHTLY,
            description="Take snapshots that are past retention.",
        ),
        "verify": _Maintenance(
            run=_verify,
            config=VerifyTablesConfig,
            cron=VERIFY_NIGHTLY,
            description="Read every page of every file that snapshots and tags name.",
        ),
        "orphans": _Maintenance(
            run=_orphans,
            config=OrphansTablesConfig,
            cron=ORPHANS_WEEKLY,
            description="Remove files that no snapshot, tag or branch names.",
        ),
    }


def match_tables(
    declarations: Iterable[TableDeclaration], patterns: Iterable[str]
) -> list[TableDeclaration]:
    """Return the tables whose names match one of the patterns."""
    pattern_list = list(patterns)
    return [
        declaration
        for declaration in declarations
        if any(fnmatchcase(declaration.name, pattern) for pattern in pattern_list)
    ]


def _job(
    name: str, kind: _Maintenance, declarations: Sequence[TableDeclaration]
) -> dg.JobDefinition:
    @dg.op(
        name=f"{name}_tables",
        required_resource_keys={"lsm"},
        config_schema=kind.config.to_fields_dict(),
    )
    def over_tables(context: dg.OpExecutionContext) -> None:
        config = kind.config(**context.op_config)
        failed: dict[str, str] = {}
        unmatched = [
            pattern
            for pattern in config.tables
            if pattern != "*" and not match_tables(declarations, [pattern])
        ]
        if unmatched:
            raise dg.Failure(
                f"no table is named {', '.join(unmatched)}; nothing was done. Name tables, or patterns of "
                "tables, that this code location declares or watches",
                allow_retries=False,
            )
        selected = match_tables(declarations, config.tables)
        for declaration in selected:
            try:
                kind.run(context, declaration, config)
            except Exception as error:
                # A damaged table must not stop the maintenance of the others. The run fails at the end.
                failed[declaration.name] = str(error)
                is_bug = not isinstance(error, LsmError | dg.Failure)
                context.log.error("%s: %s", declaration.name, error, exc_info=is_bug)
        context.log.info("looked after %s tables, %s failed", len(selected), len(failed))
        if failed:
            raise dg.Failure(
                f"{len(failed)} of {counted(len(selected), 'table')} failed: {', '.join(sorted(failed))}",
                metadata={table: dg.MetadataValue.text(text) for table, text in failed.items()},
                allow_retries=False,
            )

    @dg.job(name=name, description=f"{kind.description} Tables are named by the run's config.")
    def job() -> None:
        over_tables()

    return job


def _expire(
    context: dg.OpExecutionContext, declaration: TableDeclaration, config: ExpireTablesConfig
) -> None:
    keep, dry_run = config.keep_recorded, config.dry_run
    if plan_expiry(context, declaration, keep_recorded=keep, dry_run=dry_run):
        expire_table(context, declaration)


def _verify(
    context: dg.OpExecutionContext, declaration: TableDeclaration, config: VerifyTablesConfig
) -> None:
    verify_table(context, declaration, incremental=config.incremental)


def _orphans(
    context: dg.OpExecutionContext, declaration: TableDeclaration, config: OrphansTablesConfig
) -> None:
    if plan_orphans(context, declaration, config.older_than) and not config.dry_run:
        remove_orphans(context, declaration, config.older_than)


# -- LsmWarehouseComponent -------------------------------------------------------------------------

log = logging.getLogger(__name__)


def _is_own(context: dg.ResolutionContext, model: Any) -> bool:
    is_own = bool(context.resolve_value(model.resource))
    _require_own_resource(model.warehouse, model.catalog_url, model.executor, has_resource=is_own)
    return is_own


def _require_own_resource(*values: str | None, has_resource: bool) -> None:
    """Raise InvalidInputError if a component without its own resource sets a warehouse, a catalog or an executor."""
    names = ("warehouse", "catalog_url", "executor")
    own = [name for name, value in zip(names, values, strict=True) if value]
    if own and not has_resource:
        raise InvalidInputError(
            "with 'resource: false' the component with the resource decides where tables are kept, or the "
            f"environment ({WAREHOUSE}, {CATALOG_URL}, {EXECUTOR}): leave out {', '.join(own)}",
            kind=ErrorKind.INVALID_NAME,
            fields=own,
        )


class LsmWarehouseComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """A warehouse: its resource, its tables, and one set of sensors, jobs, schedules and a health asset.

    The watched tables are its state. Processes of runs, and with the management type LOCAL_FILESYSTEM the code location too,
    load them from there and open no table.
    """

    name: str = Field(
        default="lsm",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="What its jobs, schedules, sensors and asset of health begin with; of several "
        "components in one project each needs its own",
    )
    warehouse: str | None = Field(
        default=None, description="Directory or s3://…; default LSM_WAREHOUSE, or ./lake"
    )
    catalog_url: str | None = Field(default=None, description="Default LSM_CATALOG_URL, or in it")
    executor: Literal["spark", "local"] | None = Field(default=None, description="Default spark")
    tables: Sequence[LsmTable] = Field(default=(), json_schema_extra=tables_schema())
    watch: Sequence[str] = Field(
        default=(),
        description="Patterns, such as shop.*: tables that the catalog has, and that others write",
    )
    owners: Sequence[str] = Field(default=(), description="Owners of the watched tables")
    resource: Annotated[bool, dg.Resolver.from_model(_is_own, model_field_type=bool)] = Field(
        default=True,
        description="Whether to define the resources lsm, pyspark, and the executor: of one component",
    )
    defs_state: ResolvedDefsStateConfig = Field(
        default_factory=DefsStateConfigArgs.legacy_code_server_snapshots
    )

    def settings(self) -> Settings:
        """Return the settings of the component. The environment has the defaults."""
        attributes = {
            WAREHOUSE: self.warehouse,
            CATALOG_URL: self.catalog_url,
            EXECUTOR: self.executor,
        }
        variables = {name: value for name, value in attributes.items() if value}
        return settings_from({**_environment(with_catalog=not self.warehouse), **variables})

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the declarations of watched tables are kept; by default the code location lists them as it loads."""
        return DefsStateConfig.from_args(
            self.defs_state, default_key=f"LsmWarehouseComponent[{self.name}]"
        )

    def write_state_to_path(self, state_path: Path) -> None:
        """Write the declarations of the watched tables."""
        declarations = watched_tables(self.settings(), self.watch, tuple(self.owners))
        state_path.write_text(_to_json(declarations))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of all tables, with sensors, jobs and schedules."""
        _require_own_resource(
            self.warehouse, self.catalog_url, self.executor, has_resource=self.resource
        )
        # Without watched tables there is no state to be kept.
        if not self.watch:
            return self.build_defs_from_state(context, None)
        with definitions_context():
            return super().build_defs(context)

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """Return the definitions of the declared tables, and of the watched ones in the state."""
        if self.watch and state_path is None:
            log.warning("no watched table is shown: run 'dg utils refresh-defs-state' first")
        declared = [table.assets(with_jobs=False) for table in self.tables]
        declared_names = {table.declaration.name for table in declared}
        discovered = [
            lsm_table_assets(declaration, with_jobs=False)
            for declaration in (_from_json(state_path.read_text()) if state_path else ())
            if declaration.name not in declared_names
        ]
        return warehouse_definitions(
            [*declared, *discovered], self.settings(), name=self.name, with_resources=self.resource
        )


def warehouse_definitions(
    tables: Sequence[LsmTableAssets],
    settings: Settings,
    *,
    name: str = "lsm",
    with_resources: bool = True,
    project: dg.Definitions | None = None,
) -> dg.Definitions:
    """Return the definitions of tables with one set of sensors, jobs and schedules, and a health asset.

    Raises dagster.DagsterInvalidDefinitionError, with the remedy, for an asset of `project` that names a key or another
    setting of its table while no I/O manager of tables stores it.

    Args:
        tables: Tables, from `lsm_table_assets`.
        settings: Warehouse, catalog and executor.
        name: Prefix of the names of sensors, jobs, schedules and of the health asset.
        with_resources: Whether to define resources and executor. A project must do so once.
        project: The other definitions of the project, which become a part of the result.
    """
    declarations = [table.declaration for table in tables]
    jobs = fleet_jobs(declarations, prefix=name)
    compaction = [compaction_job(declarations, f"{name}_compact")] if declarations else []
    health = health_asset(declarations, prefix=name)
    merged = dg.Definitions.merge(
        *([] if project is None else [project]),
        *(table.definitions(settings.executor) for table in tables),
        dg.Definitions(
            assets=[health],
            jobs=[*jobs, *compaction],
            schedules=[*fleet_schedules(jobs), health_schedule(health, prefix=name)],
            sensors=table_sensors(declarations, prefix=name) if declarations else [],
            resources=resources_from(settings) if with_resources else {},
            executor=dg.in_process_executor if with_resources else None,
        ),
    )
    if project is not None:
        _require_table_io_managers(project, merged.resources or {})
    return merged


def _require_table_io_managers(project: dg.Definitions, resources: Mapping[str, Any]) -> None:
    """Refuse assets with settings of a table that Dagster's I/O manager of files would pickle, and nobody find."""
    assets = [own for own in project.assets or () if isinstance(own, dg.AssetsDefinition)]
    keyed_assets = [(own, key) for own in assets for key in own.keys]
    for asset, key in keyed_assets:
        settings = [name for name in asset.metadata_by_key.get(key, {}) if name in ASSET_KEYS]
        manager = asset.get_io_manager_key_for_asset_key(key)
        # Without a resource of that name Dagster takes its manager of files.
        is_file_manager = isinstance(resources.get(manager), dg.FilesystemIOManager | None)
        if settings and is_file_manager:
            raise dg.DagsterInvalidDefinitionError(
                f"asset {key.to_user_string()!r} has metadata {settings[0]!r}, but its I/O manager {manager!r} is "
                "Dagster's for files, so that no table would get its rows: add to the definitions "
                f'resources={{"{manager}": LsmIOManager(lsm=resources_from(current_settings())["lsm"])}}'
            )


def watched_tables(
    settings: Settings, patterns: Sequence[str], owners: Sequence[str] = ()
) -> list[TableDeclaration]:
    """Return declarations of the catalog's tables that match a pattern. A table that cannot be read is left out.

    Raises StorageError, with the catalog's URL, if the tables cannot be listed.
    """
    if not patterns:
        return []
    try:
        with lsm.open_catalog(settings.catalog_url, warehouse=settings.warehouse) as catalog:
            names = [
                name
                for name in catalog.list_tables()
                if any(fnmatchcase(name, pattern) for pattern in patterns)
            ]
            declarations = (_read_declaration(catalog, name, tuple(owners)) for name in names)
            return [declaration for declaration in declarations if declaration is not None]
    except lsm.LsmError as error:
        # The message of the engine's error hides the password of a URL.
        raise lsm.StorageError(
            f"cannot list tables of {settings.catalog_url}: {error.message}", kind=error.kind
        ) from error


def _read_declaration(
    catalog: lsm.Catalog, name: str, owners: tuple[str, ...]
) -> TableDeclaration | None:
    try:
        table = catalog.table(name)
    except lsm.LsmError as error:
        # One damaged table must not make the code location, with all other tables, fail to load.
        log.warning("%s is left out: it cannot be read: %s", name, error)
        return None
    return TableDeclaration(
        name=table.name,
        schema=schema_with_comments(table.schema),
        primary_key=tuple(table.schema.primary_keys),
        partitioned_by=tuple(table.schema.partition_keys),
        options=table.options.texts,
        comment=table.schema.comment,
        owners=owners,
    )


def _to_json(declarations: Sequence[TableDeclaration]) -> str:
    """Return declarations as JSON, for `_from_json`."""
    return json.dumps(
        [
            {
                "name": declaration.name,
                "schema": b64encode(declaration.schema.serialize()).decode(),
                "primary_key": declaration.primary_key,
                "partitioned_by": declaration.partitioned_by,
                "options": dict(declaration.options),
                "comment": declaration.comment,
                "owners": declaration.owners,
            }
            for declaration in declarations
        ]
    )


def _from_json(text: str) -> list[TableDeclaration]:
    return [
        TableDeclaration(
            name=row["name"],
            schema=pa.ipc.read_schema(pa.py_buffer(b64decode(row["schema"]))),
            primary_key=tuple(row["primary_key"]),
            partitioned_by=tuple(row["partitioned_by"]),
            options=row["options"],
            comment=row["comment"],
            owners=tuple(row["owners"]),
        )
        for row in json.loads(text)
    ]


def _environment(*, with_catalog: bool) -> dict[str, str]:
    """Return the environment, without the catalog if the component has its own warehouse."""
    return {name: text for name, text in os.environ.items() if with_catalog or name != CATALOG_URL}
