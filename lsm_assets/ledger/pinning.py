"""Read an upstream table at the very state that Dagster records as the input of this run."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg
from dagster._core.execution.context.system import StepExecutionContext

import lsm_engine as lsm
from lsm_assets.ledger.commits import (
    EMPTY_VERSION,
    commits_since,
    find_references,
    lineage_commits,
    live_versions,
)
from lsm_assets.ledger.recording import recorded_versions
from lsm_assets.model.asset_partitions import PartitionLayout
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import table_keys
from lsm_assets.model.markdown import escape_html
from lsm_assets.model.metadata import snapshot_link
from lsm_assets.model.pinned_inputs import Pin, StateLost, resolve_pin
from lsm_assets.model.versions import TableVersion, parse_version, version_from_snapshot
from lsm_assets.resources import LsmResource
from lsm_engine import ExpiredError, Lineage, NotFoundError, record
from lsm_engine import LineageInput as Input


@record
class PinnedTable:
    """A table, or its branch, and which state of it to read: `table.scan(**at)`.

    `at` has `snapshot_id` or `tag`, as `scan` and `read_dataframe` take them.
    """

    table: lsm.Table
    at: Mapping[str, Any]
    pin: Pin | None = None


def pinned_table(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    partitions: Iterable[Mapping[str, Any]] | None = None,
) -> PinnedTable:
    """Return an upstream table at the state that this run is recorded to have read.

    A table's data version is its last data-changing commit, and Dagster notes the versions of all
    inputs when a step starts. Has that snapshot expired, the state is read from a tag or a branch
    that holds it, or else at the newest snapshot in which the `partitions` that are read, each as
    {column: value}, are unchanged since; None: the whole table. Which one is logged, and shown with
    the run's inputs. Raises dagster.Failure, with what to do, where the rows are nowhere. Of an asset
    that was never materialised the newest state is read.
    """
    step = context.get_step_execution_context()
    return pin_input(step, context.resources.lsm, key, partitions)


def input_snapshot(context: dg.AssetExecutionContext, key: dg.AssetKey) -> int | None:
    """Return the upstream snapshot to read for what this run is recorded to have read.

    As `pinned_table`, for the whole table; None if the upstream asset is no table or was never
    materialised. Raises dagster.Failure also where only a tag or a branch has the state.
    """
    step = context.get_step_execution_context()
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
    """As `pinned_table`, for whoever has the step and the resource, such as an I/O manager.

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
    """Return a table at a recorded version, and note it as read; raises dagster.Failure with the remedy."""
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
    """Return where the rows of a recorded version are, looking no further than has to be.

    `layout`: of the partitions that are read; None: the whole table is.
    """
    snapshot_id = recorded.snapshot_id
    try:
        pin = resolve_pin(
            recorded, live={snapshot_id: version_from_snapshot(table.snapshot(snapshot_id))}
        )
    except (NotFoundError, ExpiredError):
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
    """Return the version of an upstream table that this step is recorded to read; None if none is.

    The versions of upstream partitions come hashed together, or as that of whichever was recorded last:
    the newest of them covers them all.
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
    """Return what this run reads, for the properties of the snapshots that it makes.

    What a writer has read by `pinned_table` is the state that it was given; of other upstream tables
    it is the recorded version.
    """
    return tuple(_inputs(context, declaration))


def pinned_inputs(step: StepExecutionContext, resource: LsmResource) -> tuple[Input, ...]:
    """Return the tables that a step has read by a pin, as inputs of what it makes."""
    return tuple(
        Input(dataset=table_keys(key).name, snapshot_id=pin.snapshot_id)
        for key, pin in _step_pins(step, resource).items()
    )


def pin_reasons(step: StepExecutionContext, resource: LsmResource) -> dict[str, str]:
    """Return, by table, why a step has read another state than the recorded snapshot."""
    return {
        table_keys(key).name: pin.reason
        for key, pin in _step_pins(step, resource).items()
        if pin.reason
    }


def inputs_markdown(inputs: Iterable[Input], reasons: Mapping[str, str] | None = None) -> str:
    """Return as Markdown which snapshots were read, with the reasons of `reasons_of`; "" for none."""
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
    step = context.get_step_execution_context()
    pins = _step_pins(step, context.resources.lsm)
    for key in declaration.deps:
        pin, recorded = pins.get(key), recorded_input(step, key)
        # Versions of other assets may be numbers too: only those of tables have a mark.
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
