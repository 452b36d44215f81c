"""Maintenance of many tables by one set of jobs and schedules. The run's config selects tables by patterns."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import dagster as dg
from pydantic import Field

from lsm_assets.automation.expiry import NIGHTLY, expire_table, plan_expiry
from lsm_assets.automation.maintenance import (
    ORPHANS_WEEKLY,
    VERIFY_NIGHTLY,
    OrphansConfig,
    VerifyConfig,
    plan_orphans,
    remove_orphans,
    verify_table,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_engine import LsmError, record


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
                f"{len(failed)} of {len(selected)} tables failed: {', '.join(sorted(failed))}",
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
