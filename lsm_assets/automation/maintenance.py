"""Maintenance jobs of one table: orphan removal, verification, snapshot diff; and their schedules.

Jobs that delete files have two steps: the first reports its plan on the page of `files`, the second deletes. With
`dry_run` in the run's config only the plan is reported. Schedules start stopped.
"""

from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.checks.contents import (
    contents_evaluation,
    damage_metadata,
    damage_text,
    scrub,
)
from lsm_assets.model import details
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.markdown import markdown_table
from lsm_assets.model.metadata import Metadata

ORPHANS_WEEKLY = "30 4 * * 0"
VERIFY_NIGHTLY = "45 2 * * *"
PATHS_SHOWN = 20


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
    # The job has no asset of its own: the check's evaluation is reported for the asset `snapshots`.
    context.instance.report_runless_asset_event(contents_evaluation(declaration, report))
    if not report.is_clean:
        raise dg.Failure(
            f"{declaration.name} is damaged: {damage_text(declaration.name, report)}",
            metadata=damage_metadata(declaration.name, report),
            allow_retries=False,
        )


def diff_job(declaration: TableDeclaration) -> dg.JobDefinition:
    """Return the job that reports the difference of two snapshots on the page of `snapshots`."""
    keys = declaration.keys

    @dg.op(name=keys.op("compare_snapshots"), required_resource_keys={"lsm"})
    def compare(context: dg.OpExecutionContext, config: DiffConfig) -> None:
        table = find_table(context, declaration)
        if table is None:
            return
        diff = table.diff_snapshots(config.first, config.second)
        metadata = details.diff_metadata(diff)
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
