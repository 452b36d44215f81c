"""The checks of a table: all files of its newest snapshot exist, and the record counts are consistent."""

import dagster as dg

import lsm_engine as lsm
from lsm_assets.checks.contents import damage_metadata, damage_text
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.tree import TreeFacts
from lsm_engine import Snapshot

REFERENCES = "references"
TOTALS = "totals"


def table_check_specs(declaration: TableDeclaration) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks of a table."""
    table = declaration.keys.asset(AssetKind.TABLE)
    return [
        dg.AssetCheckSpec(
            name=REFERENCES,
            asset=table,
            description="Every manifest and data file that the newest snapshot names exists.",
        ),
        dg.AssetCheckSpec(
            name=TOTALS,
            asset=table,
            description="The record counts of the newest snapshot are those of its files.",
        ),
    ]


def references_result(
    declaration: TableDeclaration, table: lsm.Table, snapshot: Snapshot
) -> dg.AssetCheckResult:
    """Return the result of the check that every file of `snapshot` exists."""
    report = table.verify(snapshot_id=snapshot.id)
    clean_message = f"snapshot {snapshot.id} is whole"
    metadata = {} if report.is_clean else damage_metadata(declaration.name, report)
    metadata["lsm/problem_count"] = dg.MetadataValue.int(len(report.problems))
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.TABLE),
        check_name=REFERENCES,
        passed=report.is_clean,
        description=clean_message if report.is_clean else damage_text(declaration.name, report),
        metadata=metadata,
    )


def totals_result(
    declaration: TableDeclaration, snapshot: Snapshot, before: Snapshot | None, tree: TreeFacts
) -> dg.AssetCheckResult:
    """Return the result of comparing the record counts of a snapshot with its files and with the previous snapshot."""
    problems = []
    if snapshot.total_record_count not in (None, tree.rows):
        problems.append(
            f"snapshot {snapshot.id} counts {snapshot.total_record_count} records in total, "
            f"its files hold {tree.rows}"
        )
    counts = [snapshot.total_record_count, snapshot.delta_record_count]
    # Other clients may leave counts out, and the previous snapshot may have expired: then only the files count.
    if before is not None and before.id == snapshot.id - 1:
        counts.append(before.total_record_count)
        known_counts = [count for count in counts if count is not None]
        if len(known_counts) == 3 and known_counts[0] != known_counts[2] + known_counts[1]:
            problems.append(
                f"snapshot {snapshot.id} counts {known_counts[0]} records, which is not the {known_counts[2]} of "
                f"snapshot {before.id} and {known_counts[1]} more"
            )
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.TABLE),
        check_name=TOTALS,
        passed=not problems,
        description="; ".join(problems) or f"{tree.rows:,} records in {tree.files:,} files",
        metadata={
            "lsm/records_in_files": dg.MetadataValue.int(tree.rows),
            "lsm/data_files": dg.MetadataValue.int(tree.files),
        },
    )
