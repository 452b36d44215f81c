"""The health asset of a warehouse: findings about its tables, most severe first, with the job that repairs each."""

import math
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind, asset_link
from lsm_assets.model.markdown import markdown_table
from lsm_assets.model.metadata import Metadata

HOURLY = "25 * * * *"
_CHECK = "nothing_owed"
_HEADINGS = ("table", "finding", "mended by")  # more columns than these are cut on the page
_CHARACTERS_MAX = 100_000
_OLDEST = 10


class HealthConfig(dg.Config):
    """Options of a health check."""

    depth: str = Field(
        default="shallow", description="shallow: newest snapshots; whole: every root, orphans; deep"
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
        yield dg.MaterializeResult(
            asset_key=asset_key,
            metadata={
                **_findings_metadata(rows),
                "lsm/findings": len(findings),
                "lsm/tables": dg.MetadataValue.text(f"{len(names)} of {len(keys)} exist"),
                "lsm/oldest": dg.MetadataValue.md(_oldest_tables(catalog, names)),
            },
        )
        yield dg.AssetCheckResult(
            asset_key=asset_key,
            check_name=_CHECK,
            passed=report is None or report.is_healthy,
            severity=_severity(findings),
            description=f"findings: {len(findings)}, tables: {len(names)}"
            + (f"; the worst: {findings[0].table}: {findings[0].what}" if findings else "")
            + (report.left_out if report is not None else ""),
        )

    return health


def health_schedule(asset: dg.AssetsDefinition, *, prefix: str = "lsm") -> dg.ScheduleDefinition:
    """Return the schedule that checks all tables every hour. It starts stopped."""
    return dg.ScheduleDefinition(
        name=f"{prefix}_health_hourly",
        target=dg.AssetSelection.assets(*asset.keys),
        cron_schedule=HOURLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Rank what tables owe.",
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
    return finding.table, description, remedies.get(finding.kind) or _command(finding)


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
