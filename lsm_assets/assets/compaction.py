"""The compaction asset: merges sorted runs, and shows the LSM trees before and after."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from dagster._core.storage.tags import (
    AUTO_MATERIALIZE_TAG,
    AUTOMATION_CONDITION_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
)
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.checks.tree import sorted_runs_evaluation
from lsm_assets.ledger.inspection import TableInspection, compaction_page_metadata, inspect_table
from lsm_assets.ledger.recording import files_event, record_commit, run_properties
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import REASON_TAG
from lsm_engine import Snapshot


class CompactionConfig(dg.Config):
    """What to compact; by default the buckets that are due by the table's options."""

    full: bool = Field(default=False, description="Merge every bucket into one run")
    partitions: list[dict[str, Any]] = Field(
        default_factory=list, description="Only these partitions, as {column: value}; empty: all"
    )


def compact_table(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: CompactionConfig
) -> Iterator[Any]:
    """Compact a table, record the snapshot and the files, and evaluate the check of sorted runs.

    The table asset gets no event: a compaction changes no rows, so that readers stay up to date. If reads skip level 0,
    the sync sensor reports the new data version. Raises dagster.Failure for a table without a snapshot.
    """
    # The declaration is not checked: other clients may have altered columns, which does not matter here.
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    newest = None if table is None else table.latest_snapshot()
    if table is None or newest is None:
        raise dg.Failure(f"{declaration.name} holds nothing to compact yet", allow_retries=False)
    before = inspect_table(table, newest)
    snapshot = _compact(context, declaration, table, config)
    after = before
    if snapshot is not None:
        yield from record_commit(context, table, declaration.keys, snapshot)
        after = inspect_table(table, snapshot)
        yield files_event(declaration.keys, after)
    yield sorted_runs_evaluation(declaration, after.tree, stop_trigger=table.options.stop_trigger)
    yield _result(context, declaration, table, snapshot, before, after)


def _compact(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    config: CompactionConfig,
) -> Snapshot | None:
    snapshot = table.compact(
        full=config.full,
        partitions=config.partitions or None,
        commit_user=f"dagster-{context.run.run_id}-{context.retry_number}",
        properties=run_properties(context, declaration.keys, AssetKind.COMPACTION),
    )
    if snapshot is None:
        context.log.info("nothing to compact table=%s", declaration.name)
    else:
        context.log.info("compacted table=%s snapshot=%s", declaration.name, snapshot.id)
    return snapshot


def compaction_reason(tags: Mapping[str, str]) -> str:
    """Return why a compaction was requested, from the run's tags."""
    if REASON_TAG in tags:
        return tags[REASON_TAG]
    if AUTOMATION_CONDITION_TAG in tags or AUTO_MATERIALIZE_TAG in tags:
        return "asked for by its automation condition"
    for tag, origin in ((SENSOR_NAME_TAG, "sensor"), (SCHEDULE_NAME_TAG, "schedule")):
        if tag in tags:
            return f"asked for by the {origin} {tags[tag]}"
    return "asked for by hand"


def _result(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot | None,
    before: TableInspection,
    after: TableInspection,
) -> dg.MaterializeResult[Any]:
    newest = snapshot or after.snapshot
    return dg.MaterializeResult(
        asset_key=declaration.keys.asset(AssetKind.COMPACTION),
        data_version=dg.DataVersion(str(newest.id)),
        metadata=compaction_page_metadata(
            table, declaration.keys, snapshot, before, after, compaction_reason(context.run.tags)
        ),
    )
