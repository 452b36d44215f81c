"""The check of `files`: every bucket has fewer sorted runs than the number at which writers wait."""

from collections.abc import Sequence

import dagster as dg

import lsm_engine as lsm
from lsm_assets.ledger.inspection import compaction_page_metadata, inspect_table
from lsm_assets.ledger.recording import DATA_VERSION_TAG, files_event
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.tree import BucketTree, TreeFacts
from lsm_engine import Snapshot

SORTED_RUNS = "sorted_runs"


def sorted_runs_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check. Its failure triggers the automation condition of compactions."""
    return dg.AssetCheckSpec(
        name=SORTED_RUNS,
        asset=declaration.keys.asset(AssetKind.FILES),
        description="Every bucket has fewer sorted runs than num-sorted-run.stop-trigger.",
    )


def files_events(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> list[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Return the event of the asset `files` and the evaluation of its check, after commits up to `snapshot`.

    A table without a due compaction also gets an event for its compaction asset. Without one the UI would show that
    asset as never materialised.
    """
    inspection = inspect_table(table, snapshot)
    verdict = sorted_runs_evaluation(
        declaration, inspection.tree, stop_trigger=table.options.stop_trigger
    )
    compaction = declaration.keys.asset(AssetKind.COMPACTION)
    if instance.get_latest_materialization_event(compaction) is not None or table.due_buckets():
        return [files_event(declaration.keys, inspection), verdict]
    reason = "no compaction has been due so far"
    metadata = compaction_page_metadata(
        table, declaration.keys, None, inspection, inspection, reason
    )
    nothing_due = dg.AssetMaterialization(
        asset_key=compaction, metadata=metadata, tags={DATA_VERSION_TAG: str(snapshot.id)}
    )
    return [files_event(declaration.keys, inspection), verdict, nothing_due]


def sorted_runs_evaluation(
    declaration: TableDeclaration, tree: TreeFacts, *, stop_trigger: int
) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the check for LSM trees, for runs that change files."""
    result = sorted_runs_result(declaration, tree, stop_trigger=stop_trigger)
    return dg.AssetCheckEvaluation(
        asset_key=declaration.keys.asset(AssetKind.FILES),
        check_name=SORTED_RUNS,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
        description=result.description,
    )


def sorted_runs_result(
    declaration: TableDeclaration, tree: TreeFacts, *, stop_trigger: int
) -> dg.AssetCheckResult:
    """Return the result of the check for LSM trees."""
    full_buckets = [bucket for bucket in tree.buckets if bucket.runs >= stop_trigger]
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.FILES),
        check_name=SORTED_RUNS,
        passed=not full_buckets,
        severity=dg.AssetCheckSeverity.WARN,
        description=_verdict(full_buckets, tree, stop_trigger),
        metadata={
            "lsm/sorted_runs_max": dg.MetadataValue.int(tree.runs_max),
            "lsm/stop_trigger": dg.MetadataValue.text(str(stop_trigger)),
            # The page of a check shows Markdown only behind a button.
            "lsm/deepest_buckets": dg.MetadataValue.text(
                ", ".join(f"{bucket.label}: {bucket.runs}" for bucket in tree.buckets[:5])
            ),
        },
    )


def _verdict(full_buckets: Sequence[BucketTree], tree: TreeFacts, stop_trigger: int) -> str:
    if full_buckets:
        return (
            f"{len(full_buckets)} of {len(tree.buckets)} buckets reached {stop_trigger} sorted runs; "
            f"{full_buckets[0].label} has {full_buckets[0].runs}"
        )
    return f"at most {tree.runs_max} sorted runs in {len(tree.buckets)} buckets"
