"""What is known of a table's commits: the live ones from the table, expired ones from the lineage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import lsm_engine as lsm
from lsm_assets.ledger.survey import changes_rows
from lsm_assets.model.pinned_inputs import ChangedRanges, CommitFacts, Range, RetainedReference
from lsm_assets.model.storage import comparable
from lsm_assets.model.versions import TableVersion, version_from_manifest, version_from_snapshot
from lsm_engine import (
    RUN_DAGSTER_ID,
    CommitKind,
    ExpiredError,
    Lineage,
    LsmError,
    NotFoundError,
    Snapshot,
    TableName,
)

NOTHING = TableVersion(snapshot_id=0)
"""The version of a table without a snapshot."""

_LOOKED_BACK = 1_000
"""Commits that the lineage is asked for at a time."""
_ROWS_UNCHANGED = (CommitKind.COMPACT.value, CommitKind.ANALYZE.value)


def data_version(
    table: lsm.Table, lineage: Lineage, since: tuple[TableVersion, TableVersion] | None = None
) -> TableVersion:
    """Return the last commit that changed rows, live or expired; NOTHING where no row was ever seen.

    Where it has expired and nothing recorded it, the oldest snapshot that is left stands for it. `since`:
    a commit, and the version at it, as an earlier call told: no commit up to it is looked at again.
    """
    oldest: Snapshot | None = None
    for each in table.newest_snapshots():
        if since is not None and version_from_snapshot(each) == since[0]:
            return since[1]
        if changes_rows(table, each):
            return version_from_snapshot(each)
        oldest = each
    if oldest is None:
        return NOTHING
    expected = oldest.id
    while expected > 1:
        page = recorded_commits(table, lineage, expected - 1 - _LOOKED_BACK, expected)
        for commit in reversed(page):
            if commit.version.snapshot_id != expected - 1:
                return version_from_snapshot(oldest)
            if commit.partitions != frozenset():
                return commit.version
            expected -= 1
        if not page:
            return version_from_snapshot(oldest)
    return NOTHING


def live_versions(table: lsm.Table) -> dict[int, TableVersion]:
    """Return the versions of the snapshots that are there, by id, oldest first."""
    return {snapshot.id: version_from_snapshot(snapshot) for snapshot in table.snapshots()}


def holders(table: lsm.Table, recorded: TableVersion) -> Iterator[RetainedReference]:
    """Yield the tags and branches that hold a commit."""
    for tag in table.tags():
        held = version_from_snapshot(tag.snapshot)
        if held.is_same(recorded):
            yield RetainedReference(version=held, tag=tag.name)
    for name in table.branches():
        with suppress(NotFoundError, ExpiredError):
            held = version_from_snapshot(table.branch(name).snapshot(recorded.snapshot_id))
            yield RetainedReference(version=held, branch=name)


def commits_since(
    table: lsm.Table, lineage: Lineage, snapshot_id: int, column: str | None = None
) -> Iterator[CommitFacts]:
    """Yield what is known of the commits after a snapshot, oldest first; live ones as they are asked for.

    `column`: whose ranges in the changed rows are told as well.
    """
    live = table.snapshot_ids()
    if not live:
        return
    yield from recorded_commits(table, lineage, snapshot_id, live[0], column)
    for number in live:
        if number > snapshot_id:
            with suppress(NotFoundError, ExpiredError):
                yield _facts_of(table, table.snapshot(number), column)


def _facts_of(table: lsm.Table, snapshot: Snapshot, column: str | None) -> CommitFacts:
    partitions = table.changed_partitions(snapshot)
    return CommitFacts(
        version=version_from_snapshot(snapshot),
        partitions=partitions,
        dagster_run_id=(snapshot.properties or {}).get(RUN_DAGSTER_ID),
        ranges=_ranges(table, snapshot, column, partitions) if column and partitions else {},
    )


def _ranges(
    table: lsm.Table, snapshot: Snapshot, column: str, partitions: Iterable[str]
) -> ChangedRanges:
    rows = table.changed_ranges(snapshot, column)
    if rows is None:
        return {}
    ends = zip(*(comparable(each) for each in rows.columns[1:]), strict=True)
    return _by_directory(partitions, zip(rows[0].to_pylist(), ends, strict=True))


def _by_directory(partitions: Iterable[str], parts: Iterable[tuple[str, Range]]) -> ChangedRanges:
    """Return the ranges in each directory; None: any, as one of them is not known."""
    found: dict[str, set[Range]] = {path: set() for path in partitions}
    for path, part in parts:
        found[path].add(part)
    return {
        path: None if any(None in part for part in ranges) else frozenset(ranges)
        for path, ranges in found.items()
    }


def is_taken_back(table: lsm.Table | None, lineage: Lineage, recorded: TableVersion) -> bool:
    """Whether a commit is not part of the table any more: rolled back, or of a table that was dropped."""
    newest = table.latest_snapshot() if table is not None else None
    if table is None or newest is None or recorded.snapshot_id > newest.id:
        return recorded != NOTHING
    with suppress(NotFoundError, ExpiredError):
        return not version_from_snapshot(table.snapshot(recorded.snapshot_id)).is_same(recorded)
    number = recorded.snapshot_id
    past = recorded_commits(table, lineage, number - 1, number + 1)
    return bool(past) and not past[0].version.is_same(recorded)


def recorded_commits(
    table: lsm.Table, lineage: Lineage, after: int, before: int, column: str | None = None
) -> list[CommitFacts]:
    """Return what the lineage has of the commits between two ids, oldest first.

    It keeps no statistics: of `column` it tells the ranges where the table is partitioned by it, or it
    is the first of the key.
    """
    is_first = column in table.schema.trimmed_primary_keys[:1]
    if not is_first and column not in table.schema.partition_keys:
        column = None
    try:
        found = lineage.commits_of_table(
            TableName.parse(table.name),
            after=after,
            before=before,
            hides_level_0=table.hides_level_0,
            with_keys=is_first,
        )
    except NotFoundError:
        return []
    known = []
    for number, group in groupby(found.to_pylist(), key=lambda row: int(row["snapshot_id"])):
        rows = list(group)
        paths = frozenset(
            row["partition_path"] for row in rows if row["partition_path"] is not None
        )
        by_vectors = not table.schema.primary_keys and rows[0]["index_manifest"] is not None
        is_change = rows[0]["commit_kind"] not in _ROWS_UNCHANGED
        known.append(
            CommitFacts(
                version=version_from_manifest(number, rows[0]["delta_manifest_list"]),
                partitions=None if is_change and by_vectors else paths,
                dagster_run_id=rows[0]["dagster_run_id"],
                ranges=_recorded_ranges(table, rows, column, paths) if column else {},
            )
        )
    return known


def _recorded_ranges(
    table: lsm.Table, rows: Sequence[Mapping[str, Any]], column: str, partitions: Iterable[str]
) -> ChangedRanges:
    """Return the ranges of a column as the lineage has them: of a partition column, and of the first of a key."""
    files = [row for row in rows if row["partition_path"] is not None]
    parts: Iterator[Range]
    with suppress(LsmError):  # of a table that had the name before
        if column in table.schema.partition_keys:
            at = comparable(table.partition_rows([row["partition"] for row in files])[column])
            files = [row for row, value in zip(files, at, strict=True) if value is not None]
            at = [value for value in at if value is not None]
            parts = zip(at, at, strict=True)
        else:
            keys = ([row[name] for row in files] for name in ("min_key", "max_key"))
            first, last = (comparable(table.key_rows(each)[column]) for each in keys)
            parts = zip(first, last, strict=True)
        paths = (row["partition_path"] for row in files)
        return _by_directory(partitions, zip(paths, parts, strict=True))
    return {}
