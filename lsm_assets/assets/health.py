"""The health of a warehouse: which tables owe what, the worst first, and the job that mends each."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind, asset_link
from lsm_assets.model.pictures import markdown_table, without_html

SHOWN = 200
HOURLY = "25 * * * *"
_CHECK = "nothing_owed"


class HealthConfig(dg.Config):
    """How closely tables are looked at."""

    depth: str = Field(
        default="shallow", description="shallow: newest snapshots; whole: every root, orphans; deep"
    )


def health_key(prefix: str = "lsm") -> dg.AssetKey:
    """Return the key of the asset of a warehouse's health."""
    return dg.AssetKey([prefix, "health"])


def health_asset(
    declarations: Sequence[TableDeclaration], *, prefix: str = "lsm"
) -> dg.AssetsDefinition:
    """Return the asset whose page ranks debt, damage, retention pins, freshness and small files."""
    keys = {declaration.name: declaration.keys for declaration in declarations}
    health_of = health_key(prefix)

    @dg.multi_asset(
        name=f"{prefix}_health",
        specs=[
            dg.AssetSpec(
                key=health_of,
                group_name=prefix,
                description="What the tables of this warehouse owe, the worst first, and what mends it.",
            )
        ],
        check_specs=[dg.AssetCheckSpec(name=_CHECK, asset=health_of)],
        required_resource_keys={"lsm"},
    )
    def health(context: dg.AssetExecutionContext, config: HealthConfig) -> Iterator[Any]:
        catalog: lsm.Catalog = context.resources.lsm.catalog
        there = set(catalog.list_tables())  # damaged ones too, of which the report has findings
        names = [name for name in keys if name in there]
        report = lsm.doctor(catalog, names, depth=config.depth) if names else None
        found = sorted(report.findings, key=_rank) if report is not None else []
        compactions = {name: asset_link(keys[name].asset(AssetKind.COMPACTION)) for name in names}
        rows = [_row(each, compactions.get(each.table, ""), prefix) for each in found[:SHOWN]]
        headings = ["table", "what", "severity", "finding", "cost", "mended by"]
        oldest = sorted(_ages_hours(catalog, names), reverse=True)[:10]
        shown = markdown_table(headings, rows) if rows else "nothing is owed"
        yield dg.MaterializeResult(
            asset_key=health_of,
            metadata={
                "lsm/health": dg.MetadataValue.md(shown),
                **_all_of(found[:SHOWN]),
                "lsm/findings": len(found),
                "lsm/tables": dg.MetadataValue.text(f"{len(names)} of {len(keys)} exist"),
                "lsm/oldest": dg.MetadataValue.md(
                    markdown_table(
                        ["table", "hours since its last commit"],
                        [(name, f"{age:.1f}") for age, name in oldest],
                    )
                ),
            },
        )
        yield dg.AssetCheckResult(
            asset_key=health_of,
            check_name=_CHECK,
            passed=report is None or report.is_healthy,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"findings: {len(found)}, tables: {len(names)}"
            + (report.left_out if report is not None else ""),
        )

    return health


def health_schedule(asset: dg.AssetsDefinition, *, prefix: str = "lsm") -> dg.ScheduleDefinition:
    """Return the schedule that looks at all tables every hour; off until somebody turns it on."""
    return dg.ScheduleDefinition(
        name=f"{prefix}_health_hourly",
        target=dg.AssetSelection.assets(*asset.keys),
        cron_schedule=HOURLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Rank what tables owe.",
    )


def _all_of(found: Sequence[Any]) -> dict[str, dg.MetadataValue[Any]]:
    """Return all findings as a table: what a page shows inline is cut."""
    if not found:
        return {}
    records = [
        dg.TableRecord({key: str(fact) for key, fact in each.facts().items()}) for each in found
    ]
    columns = [dg.TableColumn(name=name) for name in records[0].data]
    schema = dg.TableSchema(columns=columns)
    return {"lsm/all_findings": dg.MetadataValue.table(records=records, schema=schema)}


def _rank(finding: Any) -> tuple[int, str, str]:
    return -finding.severity.value, finding.table, finding.kind


def _row(finding: Any, compaction: str, prefix: str) -> tuple[str, ...]:
    mends = {
        "debt": f"[compaction]({compaction})",
        "small-files": f"[compaction]({compaction})",
        "retention": f"job {prefix}_expire",
        "orphans": f"job {prefix}_orphans",
    }
    command = f"lsm {' '.join(finding.command)}" if finding.command else ""
    mended = mends.get(finding.kind) or command
    told = (finding.table, finding.kind, finding.severity.name.lower(), finding.what, finding.cost)
    return (*map(without_html, told), mended)


def _ages_hours(catalog: lsm.Catalog, names: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield hours since its last commit of each table that can be read."""
    for name in names:
        try:
            table = catalog.table(name)
            newest = table.latest_snapshot()
        except lsm.LsmError:
            continue
        yield table.age_millis(newest) / 3_600_000 if newest is not None else 0.0, name
