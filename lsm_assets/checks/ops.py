"""The asset checks of one table, which users run from the UI or after a write."""

from collections.abc import Iterator

import dagster as dg

import lsm_engine as lsm
from lsm_assets.checks.references import (
    REFERENCES,
    TOTALS,
    references_result,
    table_check_specs,
    totals_result,
)
from lsm_assets.checks.tree import sorted_runs_result, sorted_runs_spec
from lsm_assets.ledger.inspection import inspect_table, recent_snapshots
from lsm_assets.model.declaration import TableDeclaration
from lsm_engine import Snapshot


def table_checks(declaration: TableDeclaration) -> list[dg.AssetChecksDefinition]:
    """Return one op for the checks of the table and one op for the check of its files."""
    keys, specs = declaration.keys, table_check_specs(declaration)

    @dg.multi_asset_check(
        name=keys.op("checks"),
        specs=specs,
        can_subset=True,
        required_resource_keys={"lsm"},
    )
    def check_table(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = {key.name for key in context.selected_asset_check_keys}
        state = _read_state(context, declaration)
        if state is None:
            yield from (_empty_table_result(spec) for spec in specs if spec.name in selected)
            return
        table, (*earlier, newest) = state
        if REFERENCES in selected:
            yield references_result(declaration, table, newest)
        if TOTALS in selected:
            before = earlier[-1] if earlier else None
            yield totals_result(declaration, newest, before, inspect_table(table, newest).tree)

    @dg.multi_asset_check(
        name=keys.op("check_files"),
        specs=[sorted_runs_spec(declaration)],
        required_resource_keys={"lsm"},
    )
    def check_files(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        state = _read_state(context, declaration)
        if state is None:
            yield _empty_table_result(sorted_runs_spec(declaration))
            return
        table, history = state
        tree = inspect_table(table, history[-1]).tree
        yield sorted_runs_result(declaration, tree, stop_trigger=table.options.stop_trigger)

    return [check_table, check_files]


def _read_state(
    context: dg.AssetCheckExecutionContext, declaration: TableDeclaration
) -> tuple[lsm.Table, list[Snapshot]] | None:
    """Return the table and its last two snapshots; None without a snapshot."""
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    history = recent_snapshots(table, limit=2) if table is not None else []
    return (table, history) if table is not None and history else None


def _empty_table_result(spec: dg.AssetCheckSpec) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=True,
        description="nothing has been committed yet",
    )
