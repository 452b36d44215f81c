"""Feed a table from another one's changes: each change once, whatever dies, and expiry waits for the feed.

How far a feed has come is a property of the commit that carried the changes over (`fed_mark`). A run
commits under a name made of the mark that it goes on from, so that of two runs at once one commits. A
consumer of the upstream table keeps its expiry away from what has not been carried over.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest
from typing import Any, TypeAlias, cast

import dagster as dg
import pyarrow as pa
from dagster._core.execution.context.system import StepExecutionContext

import lsm_engine as lsm
from lsm_assets.ledger.commits import NOTHING, is_taken_back
from lsm_assets.ledger.fed_mark import FED, FED_ON, fed_mark
from lsm_assets.model.keys import AssetKind, TableKeys
from lsm_assets.model.pinned_inputs import Pin
from lsm_assets.model.versions import TableVersion, version_from_snapshot
from lsm_assets.resources import LsmResource
from lsm_engine import (
    RESTORED,
    CommitKind,
    ExpiredError,
    Lineage,
    LsmError,
    Snapshot,
    TreeRun,
    core_options,
    given_options,
    record,
)

log = logging.getLogger(__name__)

_Place: TypeAlias = tuple[str, int]  # directory of a partition, bucket


@record
class Changes:
    """Changes of an upstream table in (`after`, `upto`]: `rows` with `_row_kind` and the columns asked for.

    Commit what is made of them with these `properties`, all of it in one commit that carries over the
    changes of no other table, then call `acknowledge`: it lets the upstream table expire what the commits
    of the table have carried over. Rows of which nothing is made, so that there is no commit, come again
    with the next call.
    """

    rows: pa.Table
    after: int
    upto: int
    properties: Mapping[str, str]
    acknowledge: Callable[[], None]


def changes_to_feed(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    table: lsm.Table,
    columns: Sequence[str] | None = None,
) -> Changes | None:
    """Return what changed in an upstream table since `table` was last fed from it; None: nothing.

    An upstream table with a primary key needs a `changelog-producer`. What overwrites and restores did
    to it is told as well. Where its first changes cannot be told any more, a table that was never fed gets
    the rows that are there instead, each as a +I. The lineage of the commit names the changes as its input.
    Raises dagster.Failure, with what to do, where changes that were carried over have been rolled back
    upstream, where changes are lost, where it is not known any more what was carried over, and where a
    compaction of the upstream table has yet to tell all that is new, or what rows were overwritten with.
    """
    resource: LsmResource = context.resources.lsm
    upstream, lineage = resource.upstream_table(key), resource.catalog.lineage
    _require_changelog(upstream)
    newest, mark = upstream.latest_snapshot(), fed_mark(table, upstream.name, lineage)
    fed = mark.upto
    if is_taken_back(upstream, lineage, fed):
        raise dg.Failure(
            f"{table.name} was fed from {upstream.name} up to snapshot {fed.snapshot_id}, which is no "
            f"longer part of it: roll {table.name} back to before that, or drop it, then run this again",
            allow_retries=False,
        )
    if newest is None:
        return None
    rows = _rows_after(table.name, upstream, fed, newest, columns)
    waits = _awaiting_compaction(upstream, newest)
    if waits and (rows is None or not rows.num_rows or _is_half_told(upstream, fed, newest, waits)):
        raise dg.Failure(_waiting(upstream))
    if rows is None or not rows.num_rows:
        return None
    step = context.get_step_execution_context().step.key
    # Where reads leave level 0 out, what waits there is no part of the version that Dagster knows.
    is_partial = bool(waits) and not upstream.hides_level_0
    resource.pins[step, key] = Pin(
        snapshot_id=newest.id, after=fed.snapshot_id, is_partial=is_partial
    )
    return Changes(
        rows=rows,
        after=fed.snapshot_id,
        upto=newest.id,
        properties={
            FED + upstream.name: version_from_snapshot(newest).text,
            FED_ON + upstream.name: mark.told_by.text,
        },
        acknowledge=lambda: _acknowledge(table, upstream, lineage),
    )


def feed_user(properties: Mapping[str, str]) -> str | None:
    """Return the name under which a commit carries changes over, None if it carries none.

    It is the same for all runs that go on from one mark, and no other: the second one is a replay.
    Raises dagster.Failure for changes of two tables, which two runs may pair differently.
    """
    found = {name: text for name, text in properties.items() if name.startswith(FED_ON)}
    if len(found) > 1:
        names = ", ".join(sorted(name.removeprefix(FED_ON) for name in found))
        raise dg.Failure(
            f"one commit carries over changes of {names}: yield one change for each of them",
            allow_retries=False,
        )
    return next((f"feed-{name.removeprefix(FED_ON)}-{at}" for name, at in found.items()), None)


def fed_meanwhile(
    table: lsm.Table, properties: Mapping[str, str], lineage: Lineage
) -> TableVersion | None:
    """Return the commit that the mark of a table is by now, if it is not the one that changes go on from."""
    ((name, text),) = ((name, text) for name, text in properties.items() if name.startswith(FED_ON))
    told_by = fed_mark(table, name.removeprefix(FED_ON), lineage).told_by
    return None if told_by.text == text else told_by


def hold_back_partial_inputs(step: StepExecutionContext, resource: LsmResource) -> None:
    """Let Dagster record that a step has read less than the newest version of what it was fed from.

    A compaction tells the rest later, and moves no data version: until then the table is to be shown
    out of date.
    """
    # A dict behind a Mapping: Dagster has no other way to record what a step has really read.
    records = cast(dict[dg.AssetKey, Any], step.input_asset_records)
    for (of, key), pin in resource.pins.items():
        if of != step.step.key or not pin.is_partial:
            continue
        known = step.maybe_fetch_and_get_input_asset_version_info(key)
        if known is not None:
            # The first event that ever was: whatever came after it is newer, of partitions as well.
            version = dg.DataVersion(NOTHING.text)
            records[key] = replace(known, storage_id=1, data_version=version)


def _require_changelog(upstream: lsm.Table) -> None:
    producer = upstream.options[core_options.CHANGELOG_PRODUCER]
    if upstream.schema.primary_keys and producer.policy.reads_delta:
        raise dg.Failure(
            f"{upstream.name} has a primary key and no changelog, so that nobody can tell what its "
            "upserts replaced: set its option changelog-producer to lookup (exact changes of each "
            "commit), full-compaction, or input if its writers tell -U and -D themselves",
            allow_retries=False,
        )


def _rows_after(
    table: str,
    upstream: lsm.Table,
    fed: TableVersion,
    newest: Snapshot,
    columns: Sequence[str] | None,
) -> pa.Table | None:
    """Return what was not carried over yet; None: no commit is."""
    if newest.id <= fed.snapshot_id:
        return None
    names = None if columns is None else ["_row_kind", *columns]
    lost = _untold(upstream, fed, newest)
    if not lost:
        try:
            return upstream.changelog(
                after=fed.snapshot_id, upto=newest.id, columns=names, overwrites=True
            )
        except ExpiredError as error:
            lost = error.message
    if fed != NOTHING:
        raise dg.Failure(
            f"not all changes of {upstream.name} after snapshot {fed.snapshot_id} can be told ({lost}): "
            f"drop {table}, then run this again; it is then fed from the rows that are there",
            allow_retries=False,
        )
    # What the changelog has emitted so far, no more: the rest is told by compactions to come.
    (state,) = upstream.follow(
        "from-snapshot-full",
        snapshot_id=newest.id,
        upto=newest.id,
        poll_millis=None,
        columns=columns,
    )
    rows = state.to_arrow()
    kinds = pa.repeat(pa.scalar("+I"), rows.num_rows)
    rows = rows.drop_columns([name for name in _CHANGE_COLUMNS if name in rows.column_names])
    return rows.add_column(0, "_row_kind", kinds)


_CHANGE_COLUMNS = ("_row_kind", "_snapshot_id")


def _untold(upstream: lsm.Table, fed: TableVersion, newest: Snapshot) -> str:
    """Return why commits after a version, among those that are there, do not tell all; "" if they do."""
    has_key = bool(upstream.schema.primary_keys)
    without = _schemas_without_changelog(upstream) if has_key else frozenset()
    for commit in upstream.newest_snapshots():
        if commit.id <= fed.snapshot_id:
            break
        if commit.id > newest.id:
            continue
        if not has_key and commit.commit_kind is CommitKind.OVERWRITE:
            return f"snapshot {commit.id} has overwritten rows, which have no key"
        if commit.schema_id in without and commit.commit_kind is CommitKind.APPEND:
            return f"snapshot {commit.id} was made without a changelog-producer"
    return ""


def _schemas_without_changelog(upstream: lsm.Table) -> frozenset[int]:
    found = set()
    for row in upstream.system("schemas").to_pylist():
        options = given_options(dict(row["options"]))
        if options[core_options.CHANGELOG_PRODUCER].policy.reads_delta:
            found.add(int(row["schema_id"]))
    return frozenset(found)


def _awaiting_compaction(upstream: lsm.Table, at: Snapshot) -> dict[_Place, int]:
    """Return the buckets with rows at a snapshot that only a later compaction tells as changes.

    With each the least sequence number of such rows.
    """
    producer = upstream.options[core_options.CHANGELOG_PRODUCER]
    if not producer.policy.compares:
        return {}
    found = {}
    for place, runs in _runs(upstream, at).items():
        told = 1 if producer.value == "lookup" else max([1, *(run.level for run in runs)])
        if waiting := [run.min_sequence_number for run in runs if run.level < told]:
            found[place] = min(waiting)
    return found


def _is_half_told(
    upstream: lsm.Table, fed: TableVersion, newest: Snapshot, waiting: Mapping[_Place, int]
) -> bool:
    """Whether of rows that were overwritten the old ones are told gone, and no compaction tells the new ones yet.

    In a bucket whose files an overwrite has taken away, rows wait that are no newer than that overwrite.
    """
    since = takewhile(lambda one: one.id >= fed.snapshot_id, upstream.newest_snapshots())
    commits = [one for one in since if one.id <= newest.id]
    for commit, before in zip_longest(commits, commits[1:]):
        if commit.id == fed.snapshot_id or commit.commit_kind is not CommitKind.OVERWRITE:
            continue
        if RESTORED in (commit.properties or {}):
            continue
        now, then = _runs(upstream, commit), _runs(upstream, before) if before else {}
        for place in waiting.keys() & now.keys():
            took = before is None or set(then.get(place, ())) - set(now[place])
            if took and waiting[place] <= max(run.max_sequence_number for run in now[place]):
                return True
    return False


def _runs(upstream: lsm.Table, at: Snapshot) -> dict[_Place, tuple[TreeRun, ...]]:
    return {(tree.partition, tree.bucket): tree.runs for tree in upstream.tree(at)}


def _waiting(upstream: lsm.Table) -> str:
    asset = TableKeys(name=upstream.name).asset(AssetKind.COMPACTION).to_user_string()
    return (
        f"what changed in {upstream.name} waits for a compaction, which tells it "
        f"(changelog-producer): materialise {asset} with full: true, then run this again"
    )


def _acknowledge(table: lsm.Table, upstream: lsm.Table, lineage: Lineage) -> None:
    """Put the consumer on what was really carried over: of zero rows there is no commit.

    The snapshot that it was carried over up to stays too: an overwrite after it is compared with it. What
    fails here is logged, as the changes are in: expiry only waits longer.
    """
    try:
        fed = fed_mark(table, upstream.name, lineage).upto
        if fed != NOTHING:
            upstream.reset_consumer(TableKeys(name=table.name).identifier, fed.snapshot_id)
    except (LsmError, dg.Failure) as error:
        log.warning("expiry of %s waits for its feed to be acknowledged: %s", upstream.name, error)
