"""The check on `files`: every bucket is below the number of sorted runs at which writers wait."""

from collections.abc import Sequence

import dagster as dg

import lsm_engine as lsm
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.tree import BucketTree, TreeFacts

SORTED_RUNS = "sorted_runs"


def sorted_runs_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check; the compaction's automation condition waits for its failure."""
    return dg.AssetCheckSpec(
        name=SORTED_RUNS,
        asset=declaration.keys.asset(AssetKind.FILES),
        description="Every bucket has fewer sorted runs than num-sorted-run.stop-trigger.",
    )


def sorted_runs_evaluation(
    declaration: TableDeclaration, tree: TreeFacts, *, stop_trigger: int
) -> dg.AssetCheckEvaluation:
    """Judge a tree; made by the check itself, and by every run that changes files."""
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
    """Judge a tree."""
    over = [bucket for bucket in tree.buckets if bucket.runs >= stop_trigger]
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.FILES),
        check_name=SORTED_RUNS,
        passed=not over,
        severity=dg.AssetCheckSeverity.WARN,
        description=_verdict(over, tree, stop_trigger),
        metadata={
            "lsm/sorted_runs_max": dg.MetadataValue.int(tree.runs_max),
            "lsm/stop_trigger": dg.MetadataValue.text(str(stop_trigger)),
            # The page of a check shows Markdown only behind a button.
            "lsm/deepest_buckets": dg.MetadataValue.text(
                ", ".join(f"{bucket.label}: {bucket.runs}" for bucket in tree.buckets[:5])
            ),
        },
    )


def _verdict(over: Sequence[BucketTree], tree: TreeFacts, stop_trigger: int) -> str:
    if over:
        return (
            f"{len(over)} of {len(tree.buckets)} buckets reached {stop_trigger} sorted runs; "
            f"{over[0].label} has {over[0].runs}"
        )
    return f"at most {tree.runs_max} sorted runs in {len(tree.buckets)} buckets"


def stop_trigger_of(table: lsm.Table) -> int:
    """Return the number of sorted runs at which writers wait."""
    return table.options.stop_trigger
