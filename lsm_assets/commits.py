"""Read a table's commits: live ones from its snapshots, expired ones from the catalog's lineage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import lsm_engine as lsm
from lsm_assets.inspection import changes_rows
from lsm_assets.storage import comparable
from lsm_assets.versions import (
    ChangedRanges,
    CommitFacts,
    Range,
    RetainedReference,
    TableVersion,
    version_from_manifest,
    version_from_snapshot,
)
from lsm_engine import (
    RUN_DAGSTER_ID,
    CommitKind,
    ExpiredError,
    IcebergState,
    Lineage,
    LsmError,
    NotFoundError,
    Snapshot,
    TableName,
)

EMPTY_VERSION = TableVersion(snapshot_id=0)
"""The version of a table without a snapshot."""

_PAGE_SIZE = 1_000
"""Commits per query of the lineage."""
_ROWS_UNCHANGED = (CommitKind.COMPACT.value, CommitKind.ANALYZE.value)


def data_version(
    table: lsm.Table, lineage: Lineage, since: tuple[TableVersion, TableVersion] | None = None
) -> TableVersion:
    """Return the last commit that changed rows, live or expired; EMPTY_VERSION if no commit ever did.

    If that commit has expired and the lineage has no record of it, the oldest live snapshot replaces it.

    Args:
        table: The table.
        lineage: Lineage of the catalog.
        since: A commit, and the data version that an earlier call returned for it. Older commits are not read again.
    """
    oldest: Snapshot | None = None
    for snapshot in table.newest_snapshots():
        # Older commits were examined by the call that returned this version.
        if since is not None and version_from_snapshot(snapshot) == since[0]:
            return since[1]
        if changes_rows(table, snapshot):
            return version_from_snapshot(snapshot)
        oldest = snapshot
    # A table without snapshots has no version.
    if oldest is None:
        return EMPTY_VERSION
    # No live commit changed rows. Go on with the expired ones, as long as the lineage has every id.
    expected = oldest.id
    while expected > 1:
        page = lineage_commits(table, lineage, expected - 1 - _PAGE_SIZE, expected)
        for commit in reversed(page):
            # A gap in the ids may hide a commit that changed rows.
            if commit.version.snapshot_id != expected - 1:
                return version_from_snapshot(oldest)
            if commit.partitions != frozenset():
                return commit.version
            expected -= 1
        # The lineage ends before the first commit.
        if not page:
            return version_from_snapshot(oldest)
    return EMPTY_VERSION


def iceberg_version(table: lsm.Table, lineage: Lineage, state: IcebergState) -> TableVersion:
    """Return the last commit that changed the rows which readers of the Iceberg metadata see.

    If that commit has expired, the oldest live snapshot replaces it; EMPTY_VERSION without metadata.
    """
    sees_each_commit = not table.schema.primary_keys or table.hides_level_0
    if sees_each_commit and not state.lag:
        return data_version(table, lineage)
    version = EMPTY_VERSION
    for snapshot in table.newest_snapshots():
        if snapshot.id <= (state.snapshot_id or 0):
            version = version_from_snapshot(snapshot)
            # New rows reach the files that are read without a merge by a compaction or an overwrite.
            if (
                changes_rows(table, snapshot)
                if sees_each_commit
                else snapshot.commit_kind is not CommitKind.APPEND
            ):
                break
    return version


def live_versions(table: lsm.Table) -> dict[int, TableVersion]:
    """Return the versions of the live snapshots by id, oldest first."""
    return {snapshot.id: version_from_snapshot(snapshot) for snapshot in table.snapshots()}


def find_references(table: lsm.Table, recorded: TableVersion) -> Iterator[RetainedReference]:
    """Yield the tags that retain a commit, and for each branch its snapshot with the same id."""
    for tag in table.tags():
        version = version_from_snapshot(tag.snapshot)
        if version.is_same(recorded):
            yield RetainedReference(version=version, tag=tag.name)
    for name in table.branches():
        with suppress(NotFoundError, ExpiredError):
            version = version_from_snapshot(table.branch(name).snapshot(recorded.snapshot_id))
            yield RetainedReference(version=version, branch=name)


def commits_since(
    table: lsm.Table, lineage: Lineage, snapshot_id: int, column: str | None = None
) -> Iterator[CommitFacts]:
    """Yield the commits after a snapshot, oldest first. Live commits are read one by one as the caller iterates.

    `column` is a column whose ranges in the changed rows are read as well.
    """
    live = table.snapshot_ids()
    if not live:
        return
    yield from lineage_commits(table, lineage, snapshot_id, live[0], column)
    for number in live:
        if number > snapshot_id:
            # A snapshot that expires meanwhile leaves a gap, which callers treat as an unknown change.
            with suppress(NotFoundError, ExpiredError):
                yield _commit_facts(table, table.snapshot(number), column)


def _commit_facts(table: lsm.Table, snapshot: Snapshot, column: str | None) -> CommitFacts:
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
    # The ranges of this column are not known.
    if rows is None:
        return {}
    ends = zip(*(comparable(bounds) for bounds in rows.columns[1:]), strict=True)
    return _ranges_by_partition(partitions, zip(rows[0].to_pylist(), ends, strict=True))


def _ranges_by_partition(
    partitions: Iterable[str], parts: Iterable[tuple[str, Range]]
) -> ChangedRanges:
    """Return the ranges of each partition; None for a partition with a file whose range is not known."""
    ranges_by_path: dict[str, set[Range]] = {path: set() for path in partitions}
    for path, part in parts:
        ranges_by_path[path].add(part)
    return {
        path: None if any(None in part for part in ranges) else frozenset(ranges)
        for path, ranges in ranges_by_path.items()
    }


def is_rolled_back(table: lsm.Table | None, lineage: Lineage, recorded: TableVersion) -> bool:
    """Whether a commit is no longer in the table's history: it was rolled back, or the table was dropped."""
    newest = table.latest_snapshot() if table is not None else None
    if table is None or newest is None or recorded.snapshot_id > newest.id:
        # A newer id than the table has can only come from a history that was undone.
        return recorded != EMPTY_VERSION
    with suppress(NotFoundError, ExpiredError):
        return not version_from_snapshot(table.snapshot(recorded.snapshot_id)).is_same(recorded)
    # The snapshot has expired. The lineage tells whether its id belonged to another commit by then.
    number = recorded.snapshot_id
    recorded_here = lineage_commits(table, lineage, number - 1, number + 1)
    return bool(recorded_here) and not recorded_here[0].version.is_same(recorded)


def lineage_commits(
    table: lsm.Table, lineage: Lineage, after: int, before: int, column: str | None = None
) -> list[CommitFacts]:
    """Return the commits that the lineage has between two ids (both exclusive), oldest first.

    The lineage has no column statistics. Ranges of `column` are known if it is a partition column or the first column
    of the primary key.
    """
    is_first = column in table.schema.trimmed_primary_keys[:1]
    if not is_first and column not in table.schema.partition_keys:
        column = None
    try:
        changes = lineage.commits_of_table(
            TableName.parse(table.name),
            after=after,
            before=before,
            hides_level_0=table.hides_level_0,
            with_keys=is_first,
        )
    except NotFoundError:
        # The lineage does not know the table: no expired commit of it was recorded.
        return []
    commits = []
    for number, group in groupby(changes.to_pylist(), key=lambda row: int(row["snapshot_id"])):
        rows = list(group)
        paths = frozenset(
            row["partition_path"] for row in rows if row["partition_path"] is not None
        )
        # Deletion vectors of an append table change rows of files that the commit does not list.
        by_vectors = not table.schema.primary_keys and rows[0]["index_manifest"] is not None
        is_change = rows[0]["commit_kind"] not in _ROWS_UNCHANGED
        commits.append(
            CommitFacts(
                version=version_from_manifest(number, rows[0]["delta_manifest_list"]),
                partitions=None if is_change and by_vectors else paths,
                dagster_run_id=rows[0]["dagster_run_id"],
                ranges=_lineage_ranges(table, rows, column, paths) if column else {},
            )
        )
    return commits


def _lineage_ranges(
    table: lsm.Table, rows: Sequence[Mapping[str, Any]], column: str, partitions: Iterable[str]
) -> ChangedRanges:
    """Return the ranges of a partition column, or of the first key column, from the files in the lineage."""
    files = [row for row in rows if row["partition_path"] is not None]
    parts: Iterator[Range]
    # Rows of an earlier table of this name do not fit the schema. Their ranges are unknown.
    with suppress(LsmError):
        if column in table.schema.partition_keys:
            values = comparable(table.partition_rows([row["partition"] for row in files])[column])
            files = [row for row, value in zip(files, values, strict=True) if value is not None]
            values = [value for value in values if value is not None]
            parts = zip(values, values, strict=True)
        else:
            keys = ([row[name] for row in files] for name in ("min_key", "max_key"))
            first, last = (comparable(table.key_rows(column_keys)[column]) for column_keys in keys)
            parts = zip(first, last, strict=True)
        paths = (row["partition_path"] for row in files)
        return _ranges_by_partition(partitions, zip(paths, parts, strict=True))
    return {}
