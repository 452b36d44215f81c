"""Inspect a table once, for the metadata that assets, checks and sensors report."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import lsm_engine as lsm
from lsm_assets import metadata as metadata_lsm_assets
from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import AssetKind, TableKeys, asset_link
from lsm_assets.metadata import (
    INLINE_CHARACTERS_MAX,
    Metadata,
    TreeFacts,
    compaction_metadata,
    count_tree,
    level_table,
    markdown_image,
    markdown_table,
)
from lsm_engine import CommitKind, LsmError, Snapshot, Tag, record

# -- Calendars of a table's tags, as images that the UI shows inline -------------------------------

WEEKS = 26
_STEP = 10  # pixels from day to day, and from week to week
_DAYS_DRAWN_MAX = 40  # more days make the Markdown longer than INLINE_CHARACTERS_MAX


def day_of(tag: Tag) -> date:
    """Return the day (UTC) on which the tagged snapshot was committed."""
    return datetime.fromtimestamp(tag.snapshot.time_millis / 1000, UTC).date()


def tag_calendar(tags: Iterable[Tag]) -> str:
    """Return a calendar as a Markdown image, "" without tags.

    It has a column for each of the last `WEEKS` weeks up to the newest tag, Monday on top. Days with a tag are filled.
    """
    days = sorted({day_of(tag) for tag in tags}, reverse=True)
    # Without tags the calendar would be empty.
    if not days:
        return ""
    monday = days[0] - timedelta(days=days[0].weekday())
    first = monday - timedelta(weeks=WEEKS - 1)
    shown = [day for day in days if day >= first][:_DAYS_DRAWN_MAX]
    width, height = WEEKS * _STEP, 7 * _STEP
    dots = "".join(
        f"M{(day - first).days // 7 * _STEP} {day.weekday() * _STEP + 4}h8" for day in shown
    )
    grid = "".join(f"M0 {row * _STEP + 4}H{width}" for row in range(7))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'stroke-width="8"><path stroke="#8882" d="{grid}"/>'
        f'<path stroke="#4aa383" d="{dots}"/></svg>'
    )
    picture = markdown_image(svg, f"tags from {first} to {days[0]}")
    assert len(picture) <= INLINE_CHARACTERS_MAX, len(picture)
    return picture


def tag_table(tags: Sequence[Tag], link: str) -> str:
    """Return a Markdown table of tags, newest first. `link` is a format string for the URL of a snapshot id."""
    rows = [
        (tag.name, f"[{tag.snapshot.id}]({link.format(tag.snapshot.id)})", day_of(tag))
        for tag in sorted(tags, key=lambda tag: -tag.snapshot.time_millis)
    ]
    return markdown_table(["tag", "snapshot", "day"], rows)


# -- Details ---------------------------------------------------------------------------------------
#
# Read details of a table for the pages of its assets, unless reading costs too much for every
# commit.

FILES_MAX = 20_000
"""Files of a snapshot up to which its change is read."""

SNAPSHOTS_MAX = 100
"""Snapshots up to which expiry is simulated on every commit. A simulation reads the delta of each snapshot."""


def read_changes_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return the files that a snapshot added and removed; empty for more than FILES_MAX files."""
    manifests = _read_manifests(table, snapshot)
    files = sum(row["num_added_files"] - row["num_deleted_files"] for row in manifests)
    # A change of so many files is too large for a page.
    if files > FILES_MAX:
        return {}
    before = snapshot.id - 1 if snapshot.id > 1 else None
    try:
        return metadata_lsm_assets.diff_metadata(table.diff_snapshots(before, snapshot.id))
    except LsmError:
        return {}  # the one before has expired, or this one is about to


def read_manifests_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return the manifests of a snapshot with the statistics that scans prune them by."""
    return metadata_lsm_assets.manifests_metadata(_read_manifests(table, snapshot))


def _read_manifests(table: lsm.Table, snapshot: Snapshot) -> list[dict[str, Any]]:
    rows = table.system("manifests", snapshot.id).to_pylist()
    lists = table.system("manifest_lists", snapshot.id).to_pylist()
    kinds = [
        manifest_list["kind"]
        for manifest_list in lists
        for _ in range(manifest_list["manifest_count"])
    ]
    return [{**row, "list": kind} for row, kind in zip(rows, kinds, strict=False)]


def read_maintenance_metadata(table: lsm.Table) -> Metadata:
    """Return the snapshots that expire next, and the branches; parts that cannot be read are left out."""
    metadata: Metadata = {}
    try:
        if len(table.snapshot_ids()) <= SNAPSHOTS_MAX:
            metadata |= metadata_lsm_assets.retention_metadata(table.simulate_retention())
        metadata |= metadata_lsm_assets.branches_metadata(
            [(name, _newest_id(table.branch(name))) for name in table.branches()]
        )
    except LsmError:
        # A damaged branch or tag must not fail the commit whose page this is.
        return metadata
    return metadata


def _newest_id(branch: lsm.Table) -> int | None:
    newest = branch.latest_snapshot()
    return None if newest is None else newest.id


def read_calendar_metadata(table: lsm.Table, keys: TableKeys) -> Metadata:
    """Return the calendar and the list of a table's tags."""
    tags = table.tags()
    # Without tags the page has no calendar.
    if not tags:
        return {}
    link = asset_link(keys.asset(AssetKind.SNAPSHOTS)) + "?view=partitions&partition={}"
    return metadata_lsm_assets.calendar_metadata(tag_calendar(tags), tag_table(tags, link))


def read_contents_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return the levels and the partitions of a snapshot. Reads all of its manifests."""
    levels = level_table(count_tree(table.tree(snapshot)).levels)
    rows = table.system("partitions", snapshot.id).to_pylist()
    return metadata_lsm_assets.contents_metadata(
        levels, rows if table.schema.partition_keys else []
    )


# -- Inspect a table once, for the metadata that assets, checks and sensors report -----------------

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
    """

    snapshot: Snapshot
    tree: TreeFacts
    level_count: int
    history: tuple[Snapshot, ...]


def inspect_table(table: lsm.Table, snapshot: Snapshot) -> TableInspection:
    """Return an inspection of `snapshot`. Reads manifests and opens no data file."""
    return TableInspection(
        snapshot=snapshot,
        tree=count_tree(table.tree(snapshot)),
        level_count=table.options.level_count,
        history=tuple(recent_snapshots(table)),
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
    # A large table would be read whole for one number.
    if (snapshot.total_record_count or 0) >= declaration.exact_row_count_below:
        return None
    return int(table.scan(snapshot_id=snapshot.id).count())


def changes_rows(table: lsm.Table, snapshot: Snapshot) -> bool:
    """Whether readers of a snapshot may see other rows than readers of the previous one.

    A compaction does not change rows, unless reads skip level 0: then it makes rows visible.
    """
    # With level 0 hidden, a compaction can make rows visible.
    if table.hides_level_0:
        return table.changed_partitions(snapshot) != frozenset()
    return snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE)


def manifest_counts(table: lsm.Table, snapshot: Snapshot) -> Mapping[str, Sequence[int]]:
    """Return, by kind of manifest list, the numbers of manifests, of files that they add, and of files they delete."""
    return {
        row["kind"]: (row["manifest_count"], row["num_added_files"], row["num_deleted_files"])
        for row in table.system("manifest_lists", snapshot.id).to_pylist()
    }
