"""Expiry of snapshots by a table's retention options: a plan that the table's page shows, then the deletion."""

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.automation.maintenance import find_table, log_observation
from lsm_assets.ledger.asset_partitions import oldest_required_snapshot
from lsm_assets.ledger.recording import remove_partitions
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.details import retention_metadata
from lsm_assets.model.partitions import (
    differences,
    partition_set_name,
    snapshot_partition,
    snapshot_partitions,
)

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
