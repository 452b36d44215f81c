"""The consumer offset of a table that is fed from another one: the last upstream commit whose changes it has applied.

The offset is a property of the commit that applied the changes, so that both become visible together. It holds for the
rows of that commit. Compactions and further appends keep it. An overwrite without an offset of its own ends it. A
restore brings back the offset of the restored state.
"""

import json
from collections.abc import Iterator, Mapping

import dagster as dg
import numpy as np
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_assets.ledger.commits import EMPTY_VERSION, lineage_commits
from lsm_assets.model.versions import TableVersion, parse_version, version_from_snapshot
from lsm_engine import RESTORED, CommitKind, Lineage, NotFoundError, TableName, record

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
    if compaction_offset is not None:
        return compaction_offset
    raise dg.Failure(
        f"how far {table.name} was fed from {upstream} is not known any more, as commits of it have "
        "expired that the catalog's lineage has no record of: drop it, or roll it back to a commit "
        "that tells, then run this again",
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
        if not contiguous_count:
            yield None
            return
        newest -= contiguous_count
