"""Inspect a table once, for the metadata that assets, checks and sensors report."""

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
"""Snapshots of a sparkline."""


@record
class TableInspection:
    """A table at one snapshot.

    Attributes:
        snapshot: The snapshot.
        tree: Its LSM trees.
        level_count: Number of levels that the table's options allow.
        history: The last snapshots, oldest first.
        maintenance: Metadata of the next expiry and of branches.
    """

    snapshot: Snapshot
    tree: TreeFacts
    level_count: int
    history: tuple[Snapshot, ...]
    maintenance: Mapping[str, dg.MetadataValue] = field(default_factory=dict)


def inspect_table(table: lsm.Table, snapshot: Snapshot) -> TableInspection:
    """Return an inspection of `snapshot`. Reads manifests and opens no data file."""
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
    """Return the metadata of a compaction's page. `snapshot` None: no bucket was due."""
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
    """Return the newest snapshots, oldest first. The cost does not depend on the table's age."""
    return list(table.newest_snapshots(limit))[::-1]


def row_count(table: lsm.Table, declaration: TableDeclaration, snapshot: Snapshot) -> int | None:
    """Return the number of rows that a reader of `snapshot` sees; None if counting them costs too much."""
    if (snapshot.total_record_count or 0) >= declaration.exact_row_count_below:
        return None
    return int(table.scan(snapshot_id=snapshot.id).count())


def changes_rows(table: lsm.Table, snapshot: Snapshot) -> bool:
    """Whether readers of a snapshot may see other rows than readers of the previous one.

    A compaction does not change rows, unless reads skip level 0: then it makes rows visible.
    """
    if table.hides_level_0:
        return table.changed_partitions(snapshot) != frozenset()
    return snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE)


def manifest_counts(table: lsm.Table, snapshot: Snapshot) -> Mapping[str, Sequence[int]]:
    """Return, by kind of manifest list, the numbers of manifests, of files that they add, and of files they delete."""
    return {
        row["kind"]: (row["manifest_count"], row["num_added_files"], row["num_deleted_files"])
        for row in table.system("manifest_lists", snapshot.id).to_pylist()
    }
