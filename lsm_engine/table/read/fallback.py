"""The branch that a batch read falls back on: partitions that the read branch lacks.

Both branches are read with schemas of their own; what they share is the columns that come out, and how
rows are parted. A fallback of the fallback is not followed.
"""

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import NotFoundError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.names import MAIN_BRANCH
from lsm_engine.plan.ownership import same_state
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.live_files import (
    BUCKET,
    FILE_NAME,
    KIND,
    LEVEL,
    PARTITION,
    live_rows,
)
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_at
from lsm_engine.table.tags.branch import on_branch


@record
class Fallback:
    """A branch as a read sees it. `snapshot` None: it held nothing at that time."""

    branch: str
    session: TableSession
    snapshot: Snapshot | None


def fallback_of(session: TableSession, snapshot: Snapshot | None, *, past: bool) -> Fallback | None:
    """Return what `scan.fallback-branch` names, beside a snapshot of the table; None: nothing.

    With `past` it is the branch as it was when the snapshot was made: ids differ across branches.
    Raises NotFoundError if the branch is not there, UnsupportedError if its columns do not fit.
    """
    name = session.options[core_options.SCAN_FALLBACK_BRANCH]
    if name is None or name == (session.paths.branch_name or MAIN_BRANCH):
        return None
    try:
        other = on_branch(session, name)
    except NotFoundError as cause:
        raise NotFoundError(
            f"the table falls back on branch {name!r}, which is not there; create it, or remove "
            "'scan.fallback-branch'",
            kind=cause.kind,
            branch=name,
        ) from cause
    there = _at(other, snapshot) if past and snapshot is not None else other.snapshots.latest()
    here = session
    if past and snapshot is not None:
        here = session.as_of(snapshot)
        other = other if there is None else other.as_of(there)
    _require_fit(here.schema, other.schema, name)
    return Fallback(branch=name, session=other, snapshot=there)


def is_past(session: TableSession, snapshot: Snapshot | None) -> bool:
    """Whether a snapshot is not the newest of its branch."""
    latest = session.snapshots.latest()
    return snapshot is not None and not (latest is not None and same_state(latest, snapshot))


def held_partitions(session: TableSession, snapshot: Snapshot | None) -> frozenset[bytes]:
    """Return the partitions that hold files a reader may see, whatever the files hold.

    A partition with nothing but rows that wait for a bucket is not there yet.
    """
    if snapshot is None:
        return frozenset()
    metas = session.manifest_metas(snapshot)
    rows = live_rows(session.manifests, metas, columns=(KIND, PARTITION, BUCKET, LEVEL, FILE_NAME))
    if rows is None:
        return frozenset()
    visible = rows.filter(pc.greater_equal(rows.column(BUCKET), 0))
    return frozenset(pc.unique(visible.column(PARTITION)).to_pylist())


def outside(rows: pa.Table, hidden: frozenset[bytes]) -> pa.Table:
    """Return the entries, as columns, of partitions that are not `hidden`."""
    column = rows.column(PARTITION).cast(pa.binary())
    listed = pa.array(sorted(hidden), column.type)
    return rows.filter(pc.invert(pc.is_in(column, value_set=listed)))


def _at(session: TableSession, snapshot: Snapshot) -> Snapshot | None:
    try:
        return snapshot_at(session, snapshot.time_millis)
    except NotFoundError:
        return None  # the branch had nothing yet


def _require_fit(here: TableSchema, there: TableSchema, branch: str) -> None:
    """Raise unless every row of the branch is one that the table could hold in such a partition."""
    wrong = sorted(set(here.names) ^ set(there.names))
    for name in here.names:
        if name in wrong:
            continue
        mine, other = here.arrow.field(name), there.arrow.field(name)
        if not mine.type.equals(other.type) or (other.nullable and not mine.nullable):
            wrong.append(name)
    if wrong or here.partition_keys != there.partition_keys:
        raise UnsupportedError(
            f"branch {branch!r} has other columns or partition keys than the table that falls back "
            "on it; alter either, or remove 'scan.fallback-branch'",
            branch=branch,
            columns=wrong,
            partition_keys=list(there.partition_keys),
        )
