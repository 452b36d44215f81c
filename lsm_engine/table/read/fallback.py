"""The fallback branch of a batch read: it supplies partitions that the read branch lacks.

Each branch is read with its own schema. Both have the same output columns and partition keys. The fallback of a
fallback branch is ignored.
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
    """A fallback branch and the snapshot of it to read. `snapshot` None: the branch was empty at that time."""

    branch: str
    session: TableSession
    snapshot: Snapshot | None


def fallback_of(session: TableSession, snapshot: Snapshot | None, *, past: bool) -> Fallback | None:
    """Return the branch that `scan.fallback-branch` names; None if the option is not set.

    With `past` the branch is read as of the snapshot's time: snapshot ids differ across branches.
    Raises NotFoundError if the branch does not exist, UnsupportedError if its columns differ.
    """
    name = session.options[core_options.SCAN_FALLBACK_BRANCH]
    if name is None or name == (session.paths.branch_name or MAIN_BRANCH):
        return None
    try:
        branch_session = on_branch(session, name)
    except NotFoundError as cause:
        raise NotFoundError(
            f"the table falls back on branch {name!r}, which is not there; create it, or remove "
            "'scan.fallback-branch'",
            kind=cause.kind,
            branch=name,
        ) from cause
    branch_snapshot = (
        _branch_snapshot(branch_session, snapshot)
        if past and snapshot is not None
        else branch_session.snapshots.latest()
    )
    table_session = session
    if past and snapshot is not None:
        table_session = session.as_of(snapshot)
        branch_session = (
            branch_session if branch_snapshot is None else branch_session.as_of(branch_snapshot)
        )
    _require_fit(table_session.schema, branch_session.schema, name)
    return Fallback(branch=name, session=branch_session, snapshot=branch_snapshot)


def is_past(session: TableSession, snapshot: Snapshot | None) -> bool:
    """Whether a snapshot is not the newest of its branch."""
    latest = session.snapshots.latest()
    return snapshot is not None and not (latest is not None and same_state(latest, snapshot))


def held_partitions(session: TableSession, snapshot: Snapshot | None) -> frozenset[bytes]:
    """Return the partitions with files that readers see, even if the files hold no rows.

    A partition whose rows all wait for a bucket is not visible yet.
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


def _branch_snapshot(session: TableSession, snapshot: Snapshot) -> Snapshot | None:
    try:
        return snapshot_at(session, snapshot.time_millis)
    except NotFoundError:
        return None  # the branch had no snapshot yet


def _require_fit(table_schema: TableSchema, branch_schema: TableSchema, branch: str) -> None:
    """Raise UnsupportedError unless the table could hold every row of the branch."""
    wrong = sorted(set(table_schema.names) ^ set(branch_schema.names))
    for name in table_schema.names:
        if name in wrong:
            continue
        table_field, branch_field = table_schema.arrow.field(name), branch_schema.arrow.field(name)
        if not table_field.type.equals(branch_field.type) or (
            branch_field.nullable and not table_field.nullable
        ):
            wrong.append(name)
    if wrong or table_schema.partition_keys != branch_schema.partition_keys:
        raise UnsupportedError(
            f"branch {branch!r} has other columns or partition keys than the table that falls back "
            "on it; alter either, or remove 'scan.fallback-branch'",
            branch=branch,
            columns=wrong,
            partition_keys=list(branch_schema.partition_keys),
        )
