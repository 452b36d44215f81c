"""Read an upstream table at the version that Dagster has recorded as the input of the step."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.commits import (
    EMPTY_VERSION,
    commits_since,
    find_references,
    lineage_commits,
    live_versions,
)
from lsm_assets.dagster_core import StepExecutionContext, step_context
from lsm_assets.declaration import PartitionLayout, TableDeclaration
from lsm_assets.keys import table_keys
from lsm_assets.metadata import escape_html, snapshot_link
from lsm_assets.recording import recorded_versions
from lsm_assets.resource import LsmResource
from lsm_assets.versions import (
    Pin,
    StateLost,
    TableVersion,
    parse_version,
    resolve_pin,
    version_from_snapshot,
)
from lsm_engine import ExpiredError, Lineage, NotFoundError, record
from lsm_engine import LineageInput as Input


@record
class PinnedTable:
    """A table, or a branch of it, and the state to read: `table.scan(**at)`.

    `at` has the argument `snapshot_id` or `tag` of `scan` and `read_dataframe`; it is empty for the newest state.
    """

    table: lsm.Table
    at: Mapping[str, Any]
    pin: Pin | None = None


def pinned_table(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    partitions: Iterable[Mapping[str, Any]] | None = None,
) -> PinnedTable:
    """Return an upstream table at the version that Dagster has recorded as the input of this run.

    Dagster records the versions of all inputs when a step starts. If the recorded snapshot has expired, the rows are
    read from a tag or a branch that retains them, else at the newest snapshot in which they are unchanged. The log and
    the page of the output say which. An asset that was never materialised is read at its newest snapshot.

    Args:
        context: Context of the running asset.
        key: Asset key of the upstream table.
        partitions: The partitions that are read, each as {column: value}; None for the complete table.

    Raises dagster.Failure, with the remedy, if no state has the recorded rows.
    """
    step = step_context(context)
    return pin_input(step, context.resources.lsm, key, partitions)


def input_snapshot(context: dg.AssetExecutionContext, key: dg.AssetKey) -> int | None:
    """Return the id of the upstream snapshot that `pinned_table` reads, for the complete table.

    None if the upstream asset is no table or was never materialised. Raises dagster.Failure also if only a tag or a
    branch has the recorded rows.
    """
    step = step_context(context)
    if recorded_input(step, key) is None:
        return None
    pin = pinned_table(context, key).pin
    if pin is not None and (pin.tag or pin.branch):
        raise dg.Failure(f"{pin.reason}: use pinned_table, which reads tags and branches")
    return None if pin is None else pin.snapshot_id


def pin_input(
    step: StepExecutionContext,
    resource: LsmResource,
    key: dg.AssetKey,
    partitions: Iterable[Mapping[str, Any]] | PartitionLayout | None = None,
) -> PinnedTable:
    """Return the same as `pinned_table`, for callers with a step and a resource, such as an I/O manager.

    `partitions` may also be the layout of the asset partitions that are read.
    """
    table = resource.upstream_table(key)
    recorded = recorded_input(step, key)
    if recorded is None or (recorded.is_same(EMPTY_VERSION) and table.latest_snapshot() is None):
        return PinnedTable(table=table, at={})
    if partitions is not None and not isinstance(partitions, PartitionLayout):
        paths = dict.fromkeys(map(table.partition_path, partitions))
        positions = range(len(table.schema.partition_keys))
        partitions = PartitionLayout({path: path for path in paths}, positions)
    remedy = (
        f"Materialise {key.to_user_string()} again, for a partitioned asset the partitions that this "
        "run reads, or wait until the sensor lsm_sync has reported the table's present version; "
        "then run this again."
    )
    return pin_version(step, resource, key, table, recorded, partitions, remedy=remedy)


def pin_version(
    step: StepExecutionContext,
    resource: LsmResource,
    key: dg.AssetKey,
    table: lsm.Table,
    recorded: TableVersion,
    layout: PartitionLayout | None = None,
    *,
    remedy: str,
) -> PinnedTable:
    """Return a table at a recorded version, and register the pin as an input of the step.

    Raises dagster.Failure, with the remedy, if no state has the recorded rows.
    """
    pin = find_pin(table, resource.catalog.lineage, recorded, layout)
    if isinstance(pin, StateLost):
        raise dg.Failure(
            f"The rows of {table.name} that Dagster records as the input of this run are nowhere: "
            f"{pin.reason}. {remedy}"
        )
    if pin.reason:
        step.log.warning("%s: %s", table.name, pin.reason)
    resource.pins[step.step.key, key] = pin
    if pin.tag is not None:
        return PinnedTable(table=table, at={"tag": pin.tag}, pin=pin)
    source = table.branch(pin.branch) if pin.branch is not None else table
    return PinnedTable(table=source, at={"snapshot_id": pin.snapshot_id}, pin=pin)


def find_pin(
    table: lsm.Table,
    lineage: Lineage,
    recorded: TableVersion,
    layout: PartitionLayout | None = None,
) -> Pin | StateLost:
    """Return the state that has the rows of a recorded version.

    `layout` is the layout of the partitions that are read; None for the complete table.
    """
    snapshot_id = recorded.snapshot_id
    try:
        pin = resolve_pin(
            recorded, live={snapshot_id: version_from_snapshot(table.snapshot(snapshot_id))}
        )
    except (NotFoundError, ExpiredError):
        # Usually the snapshot is live and one read decides. Only now are all references and commits listed.
        pin = None
    if isinstance(pin, Pin):
        return pin
    live = live_versions(table)
    expired_commits = lineage_commits(table, lineage, snapshot_id - 1, snapshot_id + 1)
    return resolve_pin(
        recorded,
        live=live,
        references=list(find_references(table, recorded)),
        expired_commit=expired_commits[0] if expired_commits else None,
        later_commits=commits_since(
            table, lineage, snapshot_id, layout.column if layout is not None else None
        ),
        find_read_partitions=layout.partitions_in if layout is not None else None,
    )


def recorded_input(step: StepExecutionContext, key: dg.AssetKey) -> TableVersion | None:
    """Return the recorded version of an upstream table for this step; None if it has none.

    Dagster gives several upstream partitions one hash, or the version that was recorded last. The newest of the
    partitions' versions has the rows of all of them, and is returned instead.
    """
    input_info = step.maybe_fetch_and_get_input_asset_version_info(key)
    if input_info is None or input_info.data_version is None:
        return None
    table_version = parse_version(input_info.data_version.value)
    name = step.job_def.asset_layer.get_node_input_name(step.node_handle, key)
    if name is None or not step.has_asset_partitions_for_input(name):
        return table_version
    subset = step.asset_partitions_subset_for_input(name, require_valid_partitions=False)
    partition_versions = recorded_versions(step.instance, key, list(subset.get_partition_keys()))
    return max(
        partition_versions.values(), key=lambda version: version.snapshot_id, default=table_version
    )


def run_inputs(
    context: dg.AssetExecutionContext, declaration: TableDeclaration
) -> tuple[Input, ...]:
    """Return the inputs of this run, for the properties of its snapshots.

    An input that the writer has read by `pinned_table` has that snapshot, other tables the recorded version.
    """
    return tuple(_inputs(context, declaration))


def pinned_inputs(step: StepExecutionContext, resource: LsmResource) -> tuple[Input, ...]:
    """Return the tables that a step has read by a pin, as inputs of its commits."""
    return tuple(
        Input(dataset=table_keys(key).name, snapshot_id=pin.snapshot_id)
        for key, pin in _step_pins(step, resource).items()
    )


def pin_reasons(step: StepExecutionContext, resource: LsmResource) -> dict[str, str]:
    """Return, by table, the reason why a step has read another state than the recorded snapshot."""
    return {
        table_keys(key).name: pin.reason
        for key, pin in _step_pins(step, resource).items()
        if pin.reason
    }


def inputs_markdown(inputs: Iterable[Input], reasons: Mapping[str, str] | None = None) -> str:
    """Return as Markdown which snapshots were read, with `pin_reasons`; "" for none."""
    shown = []
    for read in inputs:
        dataset = escape_html(read.dataset)
        if read.snapshot_id is None:
            version = f" @ {escape_html(read.version)}" if read.version else ""
            shown.append(f"- {dataset}{version}")
        else:
            key = dg.AssetKey(read.dataset.split("."))
            link = snapshot_link(table_keys(key), read.snapshot_id)
            reason = (reasons or {}).get(read.dataset)
            shown.append(f"- {dataset} at {link}" + (f" ({escape_html(reason)})" if reason else ""))
    return "\n".join(shown)


def _inputs(context: dg.AssetExecutionContext, declaration: TableDeclaration) -> Iterable[Input]:
    step = step_context(context)
    pins = _step_pins(step, context.resources.lsm)
    for key in declaration.deps:
        pin, recorded = pins.get(key), recorded_input(step, key)
        # Data versions of other assets may be numbers, too. Only versions of tables have a commit hash.
        recorded_id = (
            recorded.snapshot_id if recorded is not None and recorded.commit_hash else None
        )
        snapshot_id = recorded_id if pin is None else pin.snapshot_id
        columns = tuple(
            (column, name)
            for column, sources in declaration.column_lineage.items()
            for source, name in sources
            if source == key
        )
        dataset = table_keys(key).name if snapshot_id is not None else key.to_user_string()
        yield Input(
            dataset=dataset,
            snapshot_id=snapshot_id,
            after_snapshot_id=None if pin is None else pin.after,
            columns=columns,
        )


def _step_pins(step: StepExecutionContext, resource: LsmResource) -> Mapping[dg.AssetKey, Pin]:
    return {key: pin for (step_key, key), pin in resource.pins.items() if step_key == step.step.key}
