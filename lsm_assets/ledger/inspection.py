"""Look at a table once and keep what assets, checks and sensors report about it."""

from collections.abc import Mapping, Sequence
from dataclasses import field

import dagster as dg

import lsm_engine as lsm
from lsm_assets.ledger.details import read_maintenance_metadata
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import TableKeys
from lsm_assets.model.metadata import Metadata, compaction_metadata
from lsm_assets.model.tree import TreeFacts, count_tree
from lsm_engine import CommitKind, Snapshot, record

HISTORY_LENGTH = 40
"""Snapshots that a sparkline goes back."""


@record
class TableInspection:
    """A table at one snapshot. `history` holds the last snapshots up to it, oldest first.

    `prospects`: metadata of what expiry takes next, and of branches.
    """

    snapshot: Snapshot
    tree: TreeFacts
    level_count: int
    history: tuple[Snapshot, ...]
    maintenance: Mapping[str, dg.MetadataValue] = field(default_factory=dict)


def inspect_table(table: lsm.Table, snapshot: Snapshot) -> TableInspection:
    """Count the files of `snapshot`; no data file is opened."""
    return TableInspection(
        snapshot=snapshot,
        tree=count_tree(table.tree(snapshot)),
        level_count=table.options.level_count,
        history=tuple(recent_snapshots(table)),
        maintenance=read_maintenance_metadata(table),
    )


def compaction_page_metadata(
    table: lsm.Table,
    keys: TableKeys,
    snapshot: Snapshot | None,
    before: TableInspection,
    after: TableInspection,
    reason: str,
) -> Metadata:
    """Return what the page of compactions shows; no snapshot: there was nothing to do."""
    return compaction_metadata(
        keys,
        snapshot,
        before=before.tree,
        after=after.tree,
        level_count=after.level_count,
        reason=reason,
        cost=table.amplification(HISTORY_LENGTH),
    )


def recent_snapshots(table: lsm.Table, limit: int = HISTORY_LENGTH) -> list[Snapshot]:
    """Return the newest snapshots, oldest first; what a table's age costs nothing to ask."""
    return list(table.newest_snapshots(limit))[::-1]


def row_count(table: lsm.Table, declaration: TableDeclaration, snapshot: Snapshot) -> int | None:
    """Count the rows that a reader of `snapshot` sees, None if that would cost too much."""
    if (snapshot.total_record_count or 0) >= declaration.exact_row_count_below:
        return None
    return int(table.scan(snapshot_id=snapshot.id).count())


def changes_rows(table: lsm.Table, snapshot: Snapshot) -> bool:
    """Whether readers of a snapshot may see other rows than those of the one before it.

    A compaction's do not, unless reads leave level 0 out: then rows are seen once they are taken up.
    """
    if table.hides_level_0:
        return table.changed_partitions(snapshot) != frozenset()
    return snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE)


def manifest_counts(table: lsm.Table, snapshot: Snapshot) -> Mapping[str, Sequence[int]]:
    """Per kind of manifest list: manifests, and the files that they add and delete."""
    return {
        row["kind"]: (row["manifest_count"], row["num_added_files"], row["num_deleted_files"])
        for row in table.system("manifest_lists", snapshot.id).to_pylist()
    }
