"""Maintenance jobs of one table: orphan removal, verification, snapshot diff; and their schedules.

Jobs that delete files have two steps: the first reports its plan on the page of `files`, the second deletes. With
`dry_run` in the run's config only the plan is reported. Schedules start stopped."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets import metadata as metadata_lsm_assets
from lsm_assets.checks import (
    CONTENTS,
    damage_metadata,
    damage_text,
    scrub,
    snapshot_evaluation,
    table_checks_to_renew,
)
from lsm_assets.dagster_core import report_evaluation
from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import (
    AssetKind,
    differences,
    partition_set_name,
    snapshot_partition,
    snapshot_partitions,
    tag_partitions,
)
from lsm_assets.metadata import Metadata, markdown_table, retention_metadata
from lsm_assets.partitions import oldest_required_snapshot
from lsm_assets.recording import remove_partitions
from lsm_assets.settings import lineage_page_url
from lsm_engine import VerifyReport

ORPHANS_WEEKLY = "30 4 * * 0"
VERIFY_NIGHTLY = "45 2 * * *"
PATHS_SHOWN = 20
REPORTED_MAX = 100
"""Newest snapshots of which a verification reports the check `contents`: an event takes about 0.05 s."""


class OrphansConfig(dg.Config):
    """Options of orphan removal."""

    dry_run: bool = Field(default=False, description="Only report what would be removed")
    older_than: str = Field(default="1 d", description="Only files older than this")


class VerifyConfig(dg.Config):
    """Options of verification."""

    incremental: bool = Field(
        default=False, description="Without files found sound before that have not changed since"
    )


class DiffConfig(dg.Config):
    """The two snapshots to compare."""

    first: int = Field(description="The snapshot to start from")
    second: int | None = Field(default=None, description="The other one; default the newest")


def orphans_job(declaration: TableDeclaration) -> dg.JobDefinition:
    """Return the job that lists and then removes files that no snapshot, tag or branch references."""
    keys = declaration.keys

    @dg.op(name=keys.op("plan_orphans"), required_resource_keys={"lsm"}, pool=keys.pool)
    def plan(context: dg.OpExecutionContext, config: OrphansConfig) -> dict[str, Any]:
        has_orphans = plan_orphans(context, declaration, config.older_than)
        return {"act": has_orphans and not config.dry_run, "older_than": config.older_than}

    @dg.op(name=keys.op("remove_orphans"), required_resource_keys={"lsm"}, pool=keys.pool)
    def act(context: dg.OpExecutionContext, planned: dict[str, Any]) -> None:
        if planned["act"]:
            remove_orphans(context, declaration, planned["older_than"])
        else:
            context.log.info("nothing to remove table=%s", declaration.name)

    @dg.job(
        name=keys.op("orphans"),
        description=f"Remove files of {declaration.name} that no snapshot, tag or branch names.",
        tags={"lsm/table": keys.identifier},
    )
    def job() -> None:
        act(plan())

    return job


def plan_orphans(
    context: dg.OpExecutionContext, declaration: TableDeclaration, older_than: str
) -> bool:
    """Report orphan files on the page of the table's files; return whether there are any."""
    table = find_table(context, declaration)
    if table is None:
        return False
    report = table.remove_orphan_files(dry_run=True, older_than=older_than)
    rows = [(path, lsm.format_bytes(size)) for path, size in report.plan.orphans]
    metadata: Metadata = {
        "lsm/orphans": dg.MetadataValue.text(str(report)),
        "lsm/orphan_files": dg.MetadataValue.md(
            markdown_table(["file", "size"], rows[:PATHS_SHOWN])
        ),
    }
    log_observation(context, declaration, "orphan files, as planned", metadata)
    return not report.plan.is_empty


def remove_orphans(
    context: dg.OpExecutionContext, declaration: TableDeclaration, older_than: str
) -> None:
    """Remove files that no snapshot, tag or branch references."""
    # The plan is computed again: a commit may reference a planned file by now.
    table = find_table(context, declaration)
    if table is None:
        return
    report = table.remove_orphan_files(dry_run=False, older_than=older_than)
    context.log.info("orphans table=%s %s", declaration.name, report)
    done: Metadata = {"lsm/orphans": dg.MetadataValue.text(str(report))}
    log_observation(context, declaration, "orphan files, removed", done)


def verify_job(declaration: TableDeclaration) -> dg.JobDefinition:
    """Return the job that reads every page of every referenced file. Its run fails if a file is damaged."""
    keys = declaration.keys

    @dg.op(name=keys.op("walk_roots"), required_resource_keys={"lsm"})
    def walk(context: dg.OpExecutionContext, config: VerifyConfig) -> None:
        verify_table(context, declaration, incremental=config.incremental)

    @dg.job(
        name=keys.op("verify"),
        description=f"Check every file that snapshots and tags of {declaration.name} name.",
        tags={"lsm/table": keys.identifier},
    )
    def job() -> None:
        walk()

    return job


def verify_table(
    context: dg.OpExecutionContext, declaration: TableDeclaration, *, incremental: bool
) -> None:
    """Read all files that a snapshot or tag references; raises dagster.Failure, with files and rows, on damage."""
    table = find_table(context, declaration)
    if table is None:
        return
    report = scrub(context.resources.lsm, table, None, incremental=incremental)
    metadata: Metadata = {"lsm/verified": dg.MetadataValue.text(str(report)[:500])}
    log_observation(context, declaration, "every root, verified", metadata)
    # The job has no asset of its own: the evaluations are reported for the partitions of `snapshots`.
    _report_contents(context, declaration, table, report)
    if not report.is_clean:
        raise dg.Failure(
            f"{declaration.name} is damaged: {damage_text(declaration.name, report)}",
            metadata=damage_metadata(declaration.name, report),
            allow_retries=False,
        )


def _report_contents(
    context: dg.OpExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    report: VerifyReport,
) -> None:
    """Report the check `contents` of the newest snapshot, of damaged snapshots, and of those that were damaged."""
    damaged = {number for file in report.own_damaged_files for number in file.snapshots}
    unsettled = {
        partition
        for check, partition in table_checks_to_renew(context.instance, declaration)
        if check.name == CONTENTS
    }
    live = table.snapshot_ids()
    reported = {
        number for number in live if number in damaged or snapshot_partition(number) in unsettled
    }
    # Problems without a file are those of metadata, which every snapshot may need.
    is_metadata = not report.is_clean and not report.damaged_files
    for number in sorted({*reported, *live[-1:]})[-REPORTED_MAX:]:
        sound = replace(report, problems=(), damaged_files=(), own_damaged_files=())
        own = report if number in damaged or is_metadata else sound
        evaluation = snapshot_evaluation(context.instance, declaration, CONTENTS, number, own)
        report_evaluation(context.instance, evaluation, context.run_id)


def diff_job(declaration: TableDeclaration) -> dg.JobDefinition:
    """Return the job that reports the difference of two snapshots on the page of `snapshots`."""
    keys = declaration.keys

    @dg.op(name=keys.op("compare_snapshots"), required_resource_keys={"lsm"})
    def compare(context: dg.OpExecutionContext, config: DiffConfig) -> None:
        table = find_table(context, declaration)
        if table is None:
            return
        diff = table.diff_snapshots(config.first, config.second)
        metadata = metadata_lsm_assets.diff_metadata(diff)
        log_observation(
            context, declaration, diff.text().splitlines()[0], metadata, AssetKind.SNAPSHOTS
        )
        context.log.info("%s", diff)

    @dg.job(
        name=keys.op("diff"),
        description=f"Report what changed between two snapshots of {declaration.name}.",
        tags={"lsm/table": keys.identifier},
        config={"ops": {keys.op("compare_snapshots"): {"config": {"first": 1}}}},
    )
    def job() -> None:
        compare()

    return job


def asset_jobs(declaration: TableDeclaration) -> tuple[Any, ...]:
    """Return the jobs that materialise assets of one table: `<table>__compact_due` and `<table>__read_snapshots`.

    One job takes assets of the same partitions only. Partitions of the table itself are launched on its page.
    """
    keys = declaration.keys
    return (
        compaction_job([declaration], keys.op("compact_due")),
        dg.define_asset_job(
            keys.op("read_snapshots"),
            selection=dg.AssetSelection.assets(
                keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
            ),
            description=f"Read and check snapshots of {declaration.name}, by partition.",
            tags={"lsm/table": keys.identifier},
        ),
    )


def compaction_job(declarations: Sequence[TableDeclaration], name: str) -> Any:
    """Return the job that compacts the due buckets of tables."""
    keys = [declaration.keys.asset(AssetKind.COMPACTION) for declaration in declarations]
    tables = declarations[0].name if len(declarations) == 1 else "every table"
    return dg.define_asset_job(
        name,
        selection=dg.AssetSelection.assets(*keys),
        description=f"Compact the due buckets of {tables}.",
    )


def maintenance_schedules(
    declaration: TableDeclaration, orphans: dg.JobDefinition, verify: dg.JobDefinition
) -> tuple[dg.ScheduleDefinition, ...]:
    """Return the schedules of orphan removal and verification. Both start stopped."""
    keys = declaration.keys
    return (
        dg.ScheduleDefinition(
            name=keys.op("orphans_weekly"),
            job=orphans,
            cron_schedule=ORPHANS_WEEKLY,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=f"Remove orphan files of {declaration.name} every week.",
        ),
        dg.ScheduleDefinition(
            name=keys.op("verify_nightly"),
            job=verify,
            cron_schedule=VERIFY_NIGHTLY,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=f"Verify {declaration.name} every night.",
        ),
    )


def find_table(context: dg.OpExecutionContext, declaration: TableDeclaration) -> lsm.Table | None:
    """Return a table; None, with a log message, if it does not exist yet."""
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    if table is None:
        context.log.info("not created yet table=%s", declaration.name)
    return table


def log_observation(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    declaration: TableDeclaration,
    description: str,
    metadata: Metadata,
    kind: AssetKind = AssetKind.FILES,
) -> None:
    """Log an observation with metadata for the table's asset `files`, or for another of its assets."""
    key = declaration.keys.asset(kind)
    context.log_event(
        dg.AssetObservation(asset_key=key, description=description, metadata=metadata)
    )


# -- Expiry of snapshots by a table's retention options --------------------------------------------
#
# A plan that the table's page shows, then the deletion.

NIGHTLY = "15 3 * * *"


class ExpiryConfig(dg.Config):
    """Options of an expiry run. The table's options decide which snapshots are retained."""

    dry_run: bool = Field(default=False, description="Only show what would go")
    keep_recorded: bool = Field(
        default=False,
        description="Keep what Dagster has recorded and readers may ask for, although it has changed since",
    )


CONSUMER = "dagster-recorded"
"""The consumer that retains snapshots which Dagster has recorded."""


def expiry_job(declaration: TableDeclaration) -> dg.JobDefinition:
    """Return the job that expires snapshots. Tagged snapshots stay readable."""
    keys = declaration.keys

    @dg.op(name=keys.op("plan_expiry"), required_resource_keys={"lsm"}, pool=keys.pool)
    def plan(context: dg.OpExecutionContext, config: ExpiryConfig) -> bool:
        return plan_expiry(
            context, declaration, keep_recorded=config.keep_recorded, dry_run=config.dry_run
        )

    @dg.op(name=keys.op("expire_snapshots"), required_resource_keys={"lsm"}, pool=keys.pool)
    def expire(context: dg.OpExecutionContext, planned: bool) -> None:  # noqa: FBT001 -- an op's input
        if planned:
            expire_table(context, declaration)
        else:
            context.log.info("left at the plan table=%s", declaration.name)

    @dg.job(
        name=keys.op("expire"),
        description=f"Take the snapshots of {declaration.name} that are past retention.",
        tags={"lsm/table": keys.identifier},
    )
    def job() -> None:
        expire(plan())

    return job


def plan_expiry(
    context: dg.OpExecutionContext,
    declaration: TableDeclaration,
    *,
    keep_recorded: bool = False,
    dry_run: bool = False,
) -> bool:
    """Report the planned expiry on the page of the table's files; return whether to expire.

    Args:
        context: Context of the op.
        declaration: Declaration of the table.
        keep_recorded: Retain, by a consumer of the table, the snapshots that steps may read when they run again.
        dry_run: Only report. The consumer is left as it was.
    """
    table = find_table(context, declaration)
    if table is None:
        return False
    lineage = context.resources.lsm.catalog.lineage
    required = (
        oldest_required_snapshot(context.instance, declaration, table, lineage)
        if keep_recorded
        else None
    )
    previous = next(
        (consumer.next_snapshot_id for consumer in table.consumers() if consumer.name == CONSUMER),
        None,
    )
    planned = previous if dry_run and not keep_recorded else required
    # The plan is computed by the engine, which sees the consumer only if it is set: also a dry run sets it for a while.
    if planned != previous:
        table.reset_consumer(CONSUMER, planned)
    try:
        metadata = retention_metadata(table.simulate_retention())
        report = table.expire_snapshots(dry_run=True)
    finally:
        # A dry run changes nothing, also if the plan fails.
        if dry_run and planned != previous:
            table.reset_consumer(CONSUMER, previous)
    if required is not None:
        metadata["lsm/kept_for_readers"] = dg.MetadataValue.text(
            f"from snapshot {required} on: Dagster has recorded it, and its rows have changed since"
        )
    log_observation(context, declaration, "expiry, as planned", metadata)
    context.log.info("expiry plan table=%s %s", declaration.name, report)
    return not dry_run


def expire_table(context: dg.OpExecutionContext, declaration: TableDeclaration) -> None:
    """Expire snapshots, and remove their partitions from Dagster."""
    table = context.resources.lsm.existing_table(declaration.name)
    if table is None:
        return
    report = table.expire_snapshots()
    context.log.info("expired table=%s %s", declaration.name, report)
    _remove_expired(context, declaration, table)


def _remove_expired(
    context: dg.OpExecutionContext, declaration: TableDeclaration, table: lsm.Table
) -> None:
    """Remove the partitions of expired snapshots without waiting for the sync sensor. Their events stay."""
    name = partition_set_name(snapshot_partitions(declaration.keys))
    # Partitions are read before snapshots: a partition that a writer adds in between does not look expired.
    partitions = context.instance.get_dynamic_partitions(name)
    live = [snapshot_partition(snapshot_id) for snapshot_id in table.snapshot_ids()]
    _, expired = differences(partitions, live)
    remove_partitions(context.instance, name, expired)
    context.log.info("removed partitions table=%s count=%s", declaration.name, len(expired))


def expiry_schedule(declaration: TableDeclaration, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the nightly schedule of the job. It starts stopped, because the job deletes files."""
    return dg.ScheduleDefinition(
        name=declaration.keys.op("expire_nightly"),
        job=job,
        cron_schedule=NIGHTLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Expire snapshots of {declaration.name} every night.",
    )


# -- The schedule that creates a tag every day -----------------------------------------------------

DAILY = "5 0 * * *"


def tag_name(day: datetime) -> str:
    """Return the name of a day's tag: `2013-01-31`."""
    return day.strftime("%Y-%m-%d")


def tag_schedule(declaration: TableDeclaration) -> dg.ScheduleDefinition:
    """Return the schedule that tags a table's newest snapshot every day. It starts stopped."""
    keys = declaration.keys
    tags = keys.asset(AssetKind.TAGS)

    @dg.schedule(
        name=keys.op("tag_daily"),
        cron_schedule=DAILY,
        target=dg.AssetSelection.assets(tags),
        default_status=dg.DefaultScheduleStatus.STOPPED,
        required_resource_keys={"lsm"},
        description=f"Tag the newest snapshot of {declaration.name} every day.",
    )
    def daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        table = context.resources.lsm.existing_table(declaration.name)
        if table is None or table.latest_snapshot() is None:
            return dg.SkipReason(f"{declaration.name} has no snapshot to tag yet")
        name = tag_name(context.scheduled_execution_time)
        context.instance.add_dynamic_partitions(partition_set_name(tag_partitions(keys)), [name])
        return dg.RunRequest(run_key=f"tag-{keys.name}-{name}", partition_key=name)

    return daily


# -- The job and the schedule that write the lineage page, an HTML file in the warehouse -----------

HOURLY = "10 * * * *"
JOB = "lsm_lineage_page"


def lineage_page_job() -> dg.JobDefinition:
    """Return the job that writes the page."""

    @dg.op(name="draw_lineage_page", required_resource_keys={"lsm"})
    def draw(context: dg.OpExecutionContext) -> None:
        catalog = context.resources.lsm.catalog
        page = catalog.write_lineage_page()
        context.add_output_metadata(
            {
                "lsm/lineage": dg.MetadataValue.url(lineage_page_url(catalog.warehouse)),
                "lsm/page": dg.MetadataValue.path(page),
            }
        )
        context.log.info("drew the lineage page=%s", page)

    @dg.job(name=JOB, description="Draw the lineage of all tables on one page of HTML.")
    def job() -> None:
        draw()

    return job


def lineage_page_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the hourly schedule of the job. It starts stopped."""
    return dg.ScheduleDefinition(
        name=f"{JOB}_hourly",
        job=job,
        cron_schedule=HOURLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Draw the lineage page every hour.",
    )
