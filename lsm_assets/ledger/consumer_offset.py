"""The mark of a feed: up to where the commits of a table have carried another table's changes over.

A mark is a property of the commit that carried changes over, so that both are there or neither is. What
it says holds for the rows of that commit: compactions and further appends leave it, an overwrite of the
table that says nothing itself ends it, and a restore has the mark of the state that it brought back.
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
"""With the name of an upstream table: the snapshot property that says up to where it was read."""
PREVIOUS_OFFSET_PROPERTY = "lsm.fed-on."
"""With that name: the commit of the fed table whose mark this one goes on from; 0 is none."""

_PAGE_SIZE = 1_000
"""Commits that the lineage is asked for at a time."""


@record
class ConsumerOffset:
    """Up to which version of the upstream table a table has its changes, and which commit says so.

    Of a state that was brought back it is the commit that brought it. Both NOTHING if none of all commits
    carried any over.
    """

    upstream_version: TableVersion = EMPTY_VERSION
    reported_by: TableVersion = EMPTY_VERSION


@record
class _Commit:
    version: TableVersion
    kind: str
    properties: Mapping[str, str]


def find_consumer_offset(table: lsm.Table, upstream: str, lineage: Lineage) -> ConsumerOffset:
    """Return the mark of a table's newest rows; expired commits count as well, as the lineage has them.

    Raises dagster.Failure where commits have expired of which the lineage knows nothing, and where the
    rows were overwritten by a commit that does not tell what of the upstream table they hold.
    """
    restored_id: int | None = None
    restored_by: TableVersion | None = None
    compaction_offset: ConsumerOffset | None = None
    for commit in _commits_newest_first(table, lineage):
        if commit is None:
            break
        if restored_id is not None and commit.version.snapshot_id > restored_id:
            continue
        upstream_version = parse_version(commit.properties.get(OFFSET_PROPERTY + upstream, ""))
        if upstream_version is not None:
            offset = ConsumerOffset(
                upstream_version=upstream_version, reported_by=restored_by or commit.version
            )
            if commit.kind != CommitKind.COMPACT.value:
                return offset
            # It repeats the mark of the commit below, which is asked, so that all name the same one.
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
    """Yield the commits of a table that may matter, live ones and expired; None: here nothing is known."""
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
            yield None
            return
        ids = page["snapshot_id"].to_numpy()
        contiguous_count = int((ids == newest - np.arange(len(ids))).cumprod().sum())
        page = page.slice(0, contiguous_count)
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
