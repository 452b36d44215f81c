"""Upkeep of many tables by one set of jobs and schedules: each job looks after those that a pattern names."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import dagster as dg
from pydantic import Field

from lsm_assets.automation.expiry import NIGHTLY, expire_table, plan_expiry
from lsm_assets.automation.upkeep import (
    ORPHANS_WEEKLY,
    VERIFY_NIGHTLY,
    plan_orphans,
    remove_orphans,
    verify_table,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_engine import LsmError


class FleetConfig(dg.Config):
    """Which tables, and whether to act."""

    tables: list[str] = Field(default=["*"], description="Names or patterns, such as shop.*")
    dry_run: bool = Field(default=False, description="Only show what would be done")
    keep_recorded: bool = Field(
        default=False, description="expire: keep what readers may ask for by what Dagster recorded"
    )
    incremental: bool = Field(default=False, description="verify: without files found sound before")
    older_than: str = Field(default="1 d", description="orphans: only files older than this")


Act = Callable[[dg.OpExecutionContext, TableDeclaration, FleetConfig], None]


def fleet_jobs(
    declarations: Sequence[TableDeclaration], *, prefix: str = "lsm"
) -> list[dg.JobDefinition]:
    """Return the jobs expire, verify and orphans for many tables, one after the other.

    What fails with one table does not keep the others from their turn; the run fails in the end, and
    names them. A pattern that names no table fails before anything is done.
    """
    acts: dict[str, tuple[Act, str]] = {
        "expire": (_expire, "Take snapshots that are past retention."),
        "verify": (_verify, "Read every page of every file that snapshots and tags name."),
        "orphans": (_orphans, "Remove files that no snapshot, tag or branch names."),
    }
    return [_job(f"{prefix}_{name}", act, text, declarations) for name, (act, text) in acts.items()]


def fleet_schedules(jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each job of a fleet; off until somebody turns it on, as they delete files."""
    times = {"expire": NIGHTLY, "verify": VERIFY_NIGHTLY, "orphans": ORPHANS_WEEKLY}
    return [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=times[job.name.rpartition("_")[2]],
            default_status=dg.DefaultScheduleStatus.STOPPED,
        )
        for job in jobs
    ]


def matching(
    declarations: Iterable[TableDeclaration], patterns: Iterable[str]
) -> list[TableDeclaration]:
    """Return the tables that any of some patterns names."""
    wanted = list(patterns)
    return [
        each for each in declarations if any(fnmatchcase(each.name, pattern) for pattern in wanted)
    ]


def _job(
    name: str, act: Act, description: str, declarations: Sequence[TableDeclaration]
) -> dg.JobDefinition:
    @dg.op(name=f"{name}_tables", required_resource_keys={"lsm"})
    def over_tables(context: dg.OpExecutionContext, config: FleetConfig) -> None:
        failed: dict[str, str] = {}
        idle = [
            each for each in config.tables if each != "*" and not matching(declarations, [each])
        ]
        if idle:
            raise dg.Failure(
                f"no table is named {', '.join(idle)}; nothing was done. Name tables, or patterns of "
                "tables, that this code location declares or watches",
                allow_retries=False,
            )
        chosen = matching(declarations, config.tables)
        for declaration in chosen:
            try:
                act(context, declaration, config)
            except Exception as error:  # one table keeps no other from its turn
                failed[declaration.name] = str(error)
                is_bug = not isinstance(error, LsmError | dg.Failure)
                context.log.error("%s: %s", declaration.name, error, exc_info=is_bug)
        context.log.info("looked after %s tables, %s failed", len(chosen), len(failed))
        if failed:
            raise dg.Failure(
                f"{len(failed)} of {len(chosen)} tables failed: {', '.join(sorted(failed))}",
                metadata={table: dg.MetadataValue.text(text) for table, text in failed.items()},
                allow_retries=False,
            )

    @dg.job(name=name, description=f"{description} Tables are named by the run's config.")
    def job() -> None:
        over_tables()

    return job


def _expire(
    context: dg.OpExecutionContext, declaration: TableDeclaration, config: FleetConfig
) -> None:
    keep, dry_run = config.keep_recorded, config.dry_run
    if plan_expiry(context, declaration, keep_recorded=keep, dry_run=dry_run):
        expire_table(context, declaration)


def _verify(
    context: dg.OpExecutionContext, declaration: TableDeclaration, config: FleetConfig
) -> None:
    verify_table(context, declaration, incremental=config.incremental)


def _orphans(
    context: dg.OpExecutionContext, declaration: TableDeclaration, config: FleetConfig
) -> None:
    if plan_orphans(context, declaration, config.older_than) and not config.dry_run:
        remove_orphans(context, declaration, config.older_than)
