"""Change feeds: apply the changes of an upstream table to another table exactly once.

1. `changes_to_feed` finds the consumer offset of the table (`find_consumer_offset`) and reads the upstream changes after it.
   A crash before the commit leaves the offset as it was: the next run reads the same changes.
2. The writer's commit carries the rows and the new offset. Both become visible together.
3. The commit user contains the previous offset. Of two concurrent runs with the same offset one commits; the commit of
   the other is a replay, and its step is retried.
4. `acknowledge` moves a consumer of the upstream table, which retains snapshots that are not applied yet. A crash
   before it only delays expiry."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest
from typing import Any, TypeAlias, cast

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_assets.commits import EMPTY_VERSION, is_rolled_back, lineage_commits
from lsm_assets.dagster_core import StepExecutionContext, step_context
from lsm_assets.keys import AssetKind, TableKeys
from lsm_assets.resource import LsmResource
from lsm_assets.versions import Pin, TableVersion, parse_version, version_from_snapshot
from lsm_engine import (
    RESTORED,
    CommitKind,
    ExpiredError,
    Lineage,
    LsmError,
    NotFoundError,
    Snapshot,
    TableName,
    TreeRun,
    core_options,
    given_options,
    record,
)

# -- The consumer offset of a table that is fed from another one -----------------------------------
#
# The last upstream commit whose changes it has applied.
#
# The offset is a property of the commit that applied the changes, so that both become visible
# together. It holds for the rows of that commit. Compactions and further appends keep it. An
# overwrite without an offset of its own ends it. A restore brings back the offset of the
# restored state.

OFFSET_PROPERTY = "lsm.fed."
"""Prefix, before the name of an upstream table, of the snapshot property with the applied upstream version."""
PREVIOUS_OFFSET_PROPERTY = "lsm.fed-on."
"""Prefix of the snapshot property with the commit that had the previous offset; 0 for the first one."""

_PAGE_SIZE = 1_000
"""Commits per query of the lineage."""


@record
class ConsumerOffset:
    """The applied upstream version, and the commit that reports it.

    A restore reports the offset of the restored state. Both are EMPTY_VERSION if no commit has applied changes.
    """

    upstream_version: TableVersion = EMPTY_VERSION
    reported_by: TableVersion = EMPTY_VERSION


@record
class _Commit:
    version: TableVersion
    kind: str
    properties: Mapping[str, str]


def find_consumer_offset(table: lsm.Table, upstream: str, lineage: Lineage) -> ConsumerOffset:
    """Return the offset of a table's newest rows. Expired commits are read from the lineage.

    Raises dagster.Failure if expired commits are missing in the lineage, or if a commit without an offset has
    overwritten the rows: the applied changes are then not known, and a guess would count rows twice.

    Args:
        table: The table that is fed.
        upstream: Name of the upstream table.
        lineage: Lineage of the catalog.
    """
    restored_id: int | None = None
    restored_by: TableVersion | None = None
    compaction_offset: ConsumerOffset | None = None
    for commit in _commits_newest_first(table, lineage):
        if commit is None:
            break
        # A restore has undone the commits between itself and the snapshot that it restored.
        if restored_id is not None and commit.version.snapshot_id > restored_id:
            continue
        upstream_version = parse_version(commit.properties.get(OFFSET_PROPERTY + upstream, ""))
        if upstream_version is not None:
            offset = ConsumerOffset(
                upstream_version=upstream_version, reported_by=restored_by or commit.version
            )
            if commit.kind != CommitKind.COMPACT.value:
                return offset
            # A compaction repeats the offset of an older commit. Look for that one: concurrent runs must name the
            # same commit, whether or not a compaction came between them.
            compaction_offset = compaction_offset or offset
        if commit.kind == CommitKind.OVERWRITE.value:
            if RESTORED not in commit.properties:
                raise dg.Failure(
                    _overwrite_message(table.name, upstream, commit), allow_retries=False
                )
            restored_id, restored_by = (
                int(commit.properties[RESTORED]),
                restored_by or commit.version,
            )
    else:
        return compaction_offset or ConsumerOffset(reported_by=restored_by or EMPTY_VERSION)
    # The lineage ends, but a compaction has repeated the offset.
    if compaction_offset is not None:
        return compaction_offset
    raise dg.Failure(
        f"how far {table.name} was fed from {upstream} is not known any more, as commits of it have "
        "expired that the catalog's lineage has no record of: drop it, or roll it back to a commit "
        "with a record, then run this again",
        allow_retries=False,
    )


def _overwrite_message(table: str, upstream: str, commit: _Commit) -> str:
    number = commit.version.snapshot_id
    return (
        f"snapshot {number} has overwritten {table} without telling what of {upstream} its rows hold: "
        f"roll {table} back to before it, or drop it, then run this again. A commit that overwrites a "
        f"fed table tells it by the property {OFFSET_PROPERTY}{upstream}"
    )


def _commits_newest_first(table: lsm.Table, lineage: Lineage) -> Iterator[_Commit | None]:
    """Yield the live commits, then the expired ones with an offset or an overwrite, newest first.

    Yields None and ends where the lineage lacks commits.
    """
    oldest = 1
    for snapshot in table.newest_snapshots():
        yield _Commit(
            version=version_from_snapshot(snapshot),
            kind=snapshot.commit_kind.value,
            properties=snapshot.properties or {},
        )
        oldest = snapshot.id
    newest = oldest - 1
    # Each question would read the files of the table again.
    lineage = lineage.synced(TableName.parse(table.name)) if newest else lineage
    while newest > 0:
        try:
            page = lineage.snapshots(TableName.parse(table.name), upto=newest, limit=_PAGE_SIZE)
        except NotFoundError:
            # The lineage does not know the table, and older commits have expired: the offset may be in one of them.
            yield None
            return
        ids = page["snapshot_id"].to_numpy()
        contiguous_count = int((ids == newest - np.arange(len(ids))).cumprod().sum())
        page = page.slice(0, contiguous_count)
        # Filtered in Arrow: of thousands of commits only a few have an offset or are overwrites.
        has_offset = pc.match_substring(page["properties"], OFFSET_PROPERTY)
        overwrites = pc.equal(page["commit_kind"], CommitKind.OVERWRITE.value)
        for row in page.filter(pc.or_kleene(has_offset, overwrites)).to_pylist():
            snapshot_id = row["snapshot_id"]
            yield _Commit(
                version=lineage_commits(table, lineage, snapshot_id - 1, snapshot_id + 1)[
                    0
                ].version,
                kind=row["commit_kind"],
                properties=json.loads(row["properties"] or "{}"),
            )
        # A gap in the ids may hide the commit with the offset.
        if not contiguous_count:
            yield None
            return
        newest -= contiguous_count


# -- Change feeds: apply the changes of an upstream table to another table exactly once ------------

log = logging.getLogger(__name__)

_BucketKey: TypeAlias = tuple[str, int]  # partition path, bucket


@record
class Changes:
    """Changes of an upstream table in the snapshots (`after`, `upto`].

    Apply them by one commit, which applies changes of no other table, then call `acknowledge`. Without a commit the
    next call returns the same changes again.

    Attributes:
        rows: The changes, with the column `_row_kind` and the requested columns.
        after: The last snapshot that was applied before; 0 for none.
        upto: The last snapshot with changes in `rows`.
        properties: Snapshot properties for the commit. They hold the new offset.
        acknowledge: Lets the upstream table expire the applied snapshots.
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
    """Return the changes of an upstream table that `table` has not applied yet, or None.

    Overwrites and restores count as changes. If the first changes have expired, a table without an offset gets the
    upstream rows as inserts (+I). The lineage of the commit names the changes as its input.

    Args:
        context: Context of the running asset.
        key: Asset key of the upstream table. A table with a primary key needs a `changelog-producer`.
        table: The table that applies the changes.
        columns: Columns of the changes; None for all.

    Raises dagster.Failure, with the remedy, if applied changes were rolled back upstream, if changes are lost, if the
    offset is not known any more, or if all new changes wait for a compaction of the upstream table.
    """
    resource: LsmResource = context.resources.lsm
    upstream, lineage = resource.upstream_table(key), resource.catalog.lineage
    _require_changelog(upstream)
    newest, offset = upstream.latest_snapshot(), find_consumer_offset(table, upstream.name, lineage)
    applied = offset.upstream_version
    if is_rolled_back(upstream, lineage, applied):
        raise dg.Failure(
            f"{table.name} was fed from {upstream.name} up to snapshot {applied.snapshot_id}, which is no "
            f"longer part of it: roll {table.name} back to before that, or drop it, then run this again",
            allow_retries=False,
        )
    # A table without snapshots has no changes.
    if newest is None:
        return None
    rows = _read_changes(table.name, upstream, applied, newest, columns)
    unemitted = _unemitted_rows(upstream, newest)
    if unemitted and (
        rows is None
        or not rows.num_rows
        or _is_partially_emitted(upstream, applied, newest, unemitted)
    ):
        raise dg.Failure(_compaction_message(upstream))
    if rows is None or not rows.num_rows:
        return None
    step = step_context(context).step.key
    # If reads skip level 0, rows of level 0 are not part of the recorded data version: the changes are complete.
    is_partial = bool(unemitted) and not upstream.hides_level_0
    resource.pins[step, key] = Pin(
        snapshot_id=newest.id, after=applied.snapshot_id, is_partial=is_partial
    )
    return Changes(
        rows=rows,
        after=applied.snapshot_id,
        upto=newest.id,
        properties={
            OFFSET_PROPERTY + upstream.name: version_from_snapshot(newest).text,
            PREVIOUS_OFFSET_PROPERTY + upstream.name: offset.reported_by.text,
        },
        acknowledge=lambda: _advance_consumer(table, upstream, lineage),
    )


def feed_commit_user(properties: Mapping[str, str]) -> str | None:
    """Return the commit user of a commit that applies changes, or None if it applies none.

    All runs that continue from the same offset have the same commit user, so that a second commit is a replay.
    Raises dagster.Failure for changes of two upstream tables: two runs may combine them differently.
    """
    previous_offsets = {
        name: text for name, text in properties.items() if name.startswith(PREVIOUS_OFFSET_PROPERTY)
    }
    if len(previous_offsets) > 1:
        names = ", ".join(
            sorted(name.removeprefix(PREVIOUS_OFFSET_PROPERTY) for name in previous_offsets)
        )
        raise dg.Failure(
            f"one commit carries over changes of {names}: yield one change for each of them",
            allow_retries=False,
        )
    return next(
        (
            f"feed-{name.removeprefix(PREVIOUS_OFFSET_PROPERTY)}-{previous_commit}"
            for name, previous_commit in previous_offsets.items()
        ),
        None,
    )


def concurrent_feed_commit(
    table: lsm.Table, properties: Mapping[str, str], lineage: Lineage
) -> TableVersion | None:
    """Return the commit that reports the offset now, if it is not the one that `properties` continue from; else None."""
    ((name, text),) = (
        (name, text)
        for name, text in properties.items()
        if name.startswith(PREVIOUS_OFFSET_PROPERTY)
    )
    reported_by = find_consumer_offset(
        table, name.removeprefix(PREVIOUS_OFFSET_PROPERTY), lineage
    ).reported_by
    return None if reported_by.text == text else reported_by


def record_partial_inputs(step: StepExecutionContext, resource: LsmResource) -> None:
    """Make Dagster record an old version for inputs whose changes were read only in part.

    A later compaction emits the rest and does not change the data version. With the true version recorded, Dagster
    would show the table as up to date and would not run it again.
    """
    # A dict behind a Mapping: Dagster has no other way to record what a step has really read.
    records = cast(dict[dg.AssetKey, Any], step.input_asset_records)
    for (step_key, key), pin in resource.pins.items():
        # Pins of other steps belong to other inputs.
        if step_key != step.step.key or not pin.is_partial:
            continue
        input_info = step.maybe_fetch_and_get_input_asset_version_info(key)
        if input_info is not None:
            # Storage id 1 is the first event of the instance: all events of the upstream asset are newer.
            version = dg.DataVersion(EMPTY_VERSION.text)
            records[key] = replace(input_info, storage_id=1, data_version=version)


def _require_changelog(upstream: lsm.Table) -> None:
    producer = upstream.options[core_options.CHANGELOG_PRODUCER]
    if upstream.schema.primary_keys and producer.policy.reads_delta:
        raise dg.Failure(
            f"{upstream.name} has a primary key and no changelog, so that the rows that its "
            "upserts replaced are unknown: set its option changelog-producer to lookup (exact changes of each "
            "commit), full-compaction, or input if its writers give -U and -D themselves",
            allow_retries=False,
        )


def _read_changes(
    table: str,
    upstream: lsm.Table,
    applied: TableVersion,
    newest: Snapshot,
    columns: Sequence[str] | None,
) -> pa.Table | None:
    """Return the changes after the applied version; None if the upstream table has no later snapshot."""
    # The newest snapshot is applied already.
    if newest.id <= applied.snapshot_id:
        return None
    names = None if columns is None else ["_row_kind", *columns]
    obstacle = _missing_changes(upstream, applied, newest)
    if not obstacle:
        try:
            return upstream.changelog(
                after=applied.snapshot_id, upto=newest.id, columns=names, overwrites=True
            )
        except ExpiredError as error:
            # A consumer retains unapplied snapshots, but a table that was never fed has none yet.
            obstacle = error.message
    if applied != EMPTY_VERSION:
        raise dg.Failure(
            f"not all changes of {upstream.name} after snapshot {applied.snapshot_id} can be read ({obstacle}): "
            f"drop {table}, then run this again; it is then fed from the present rows",
            allow_retries=False,
        )
    # Only rows whose changes were emitted. Compactions emit the changes of the others later.
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


def _missing_changes(upstream: lsm.Table, applied: TableVersion, newest: Snapshot) -> str:
    """Return why live commits after the applied version have no complete changes; "" if they have."""
    has_key = bool(upstream.schema.primary_keys)
    schemas_without_changelog = _schemas_without_changelog(upstream) if has_key else frozenset()
    for commit in upstream.newest_snapshots():
        if commit.id <= applied.snapshot_id:
            break
        if commit.id > newest.id:
            continue
        if not has_key and commit.commit_kind is CommitKind.OVERWRITE:
            return f"snapshot {commit.id} has overwritten rows, which have no key"
        if (
            commit.schema_id in schemas_without_changelog
            and commit.commit_kind is CommitKind.APPEND
        ):
            return f"snapshot {commit.id} was made without a changelog-producer"
    return ""


def _schemas_without_changelog(upstream: lsm.Table) -> frozenset[int]:
    schema_ids = set()
    for row in upstream.system("schemas").to_pylist():
        options = given_options(dict(row["options"]))
        if options[core_options.CHANGELOG_PRODUCER].policy.reads_delta:
            schema_ids.add(int(row["schema_id"]))
    return frozenset(schema_ids)


def _unemitted_rows(upstream: lsm.Table, snapshot: Snapshot) -> dict[_BucketKey, int]:
    """Return the least sequence number, by bucket, of rows whose changes only a later compaction emits."""
    producer = upstream.options[core_options.CHANGELOG_PRODUCER]
    # Other producers emit changes with the commit itself.
    if not producer.policy.compares:
        return {}
    unemitted = {}
    for bucket, runs in _runs_by_bucket(upstream, snapshot).items():
        # `lookup` emits when rows leave level 0, `full-compaction` when they reach the last level.
        first_emitted_level = (
            1 if producer.value == "lookup" else max([1, *(run.level for run in runs)])
        )
        if sequence_numbers := [
            run.min_sequence_number for run in runs if run.level < first_emitted_level
        ]:
            unemitted[bucket] = min(sequence_numbers)
    return unemitted


def _is_partially_emitted(
    upstream: lsm.Table,
    applied: TableVersion,
    newest: Snapshot,
    unemitted: Mapping[_BucketKey, int],
) -> bool:
    """Whether the changelog has the deletes of an overwrite, but not yet its inserts.

    True for a bucket from which an overwrite removed files, and that has unemitted rows no newer than the overwrite.
    """
    later_snapshots = takewhile(
        lambda snapshot: snapshot.id >= applied.snapshot_id, upstream.newest_snapshots()
    )
    commits = [snapshot for snapshot in later_snapshots if snapshot.id <= newest.id]
    for commit, previous in zip_longest(commits, commits[1:]):
        if commit.id == applied.snapshot_id or commit.commit_kind is not CommitKind.OVERWRITE:
            continue
        # The changes of a restore are computed from both states, and are complete.
        if RESTORED in (commit.properties or {}):
            continue
        runs, previous_runs = (
            _runs_by_bucket(upstream, commit),
            _runs_by_bucket(upstream, previous) if previous else {},
        )
        for bucket in unemitted.keys() & runs.keys():
            removed_runs = previous is None or set(previous_runs.get(bucket, ())) - set(
                runs[bucket]
            )
            if removed_runs and unemitted[bucket] <= max(
                run.max_sequence_number for run in runs[bucket]
            ):
                return True
    return False


def _runs_by_bucket(
    upstream: lsm.Table, snapshot: Snapshot
) -> dict[_BucketKey, tuple[TreeRun, ...]]:
    return {(tree.partition, tree.bucket): tree.runs for tree in upstream.tree(snapshot)}


def _compaction_message(upstream: lsm.Table) -> str:
    asset = TableKeys(name=upstream.name).asset(AssetKind.COMPACTION).to_user_string()
    return (
        f"what changed in {upstream.name} waits for a compaction, which tells it "
        f"(changelog-producer): materialise {asset} with full: true, then run this again"
    )


def _advance_consumer(table: lsm.Table, upstream: lsm.Table, lineage: Lineage) -> None:
    """Move the upstream table's consumer to the applied version, which retains that snapshot and all later ones.

    The offset is read again, because changes that result in no rows make no commit. The applied snapshot itself is
    retained, because a later overwrite is compared with it. An error is logged: the changes are committed, and only
    expiry waits longer.
    """
    try:
        applied = find_consumer_offset(table, upstream.name, lineage).upstream_version
        if applied != EMPTY_VERSION:
            upstream.reset_consumer(TableKeys(name=table.name).identifier, applied.snapshot_id)
    except (LsmError, dg.Failure) as error:
        log.warning("expiry of %s waits for its feed to be acknowledged: %s", upstream.name, error)
