"""Kinds of tables that differ, how each comes to be, and every operation on what has a name in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.api.catalog import Catalog
from lsm_engine.api.table import Table
from lsm_engine.base.errors import CommitConflictError
from lsm_engine.commit import commit as publisher
from lsm_engine.commit import publish as commit
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.maintenance import branches
from lsm_engine.planning.proposal import CommitOutcome
from lsm_engine.table.branches import on_branch
from lsm_engine.table.session import TableSession
from lsm_engine.types.schema_changes import AddColumn, SetOption
from tests.fault.doubles import ManualClock
from tests.fault.paused_lakes import LakeDisk
from tests.fault.paused_stores import TABLE, Actor, Disk, MemoryDisk, ObjectDisk
from tests.model.world import START_MILLIS

DAY = 86_400_000
PREPARING = Actor(1, START_MILLIS, (2024, 2, 29, 12, 34, 56, 0))
OURS = Actor(2, START_MILLIS + 2 * DAY, (2024, 6, 1, 0, 0, 0, 0))
JUDGE = Actor(9, START_MILLIS + 2 * DAY + 40_000_000, (2024, 6, 1, 12, 0, 0, 0))
STORES: Mapping[str, Callable[[ManualClock], Disk]] = {
    "memory": MemoryDisk,
    "objects": ObjectDisk,
    "lake": LakeDisk,
}
COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("v", pa.string())]
)  # fmt: skip
OLD_DAY, NEW_DAY = "2023-11-01", "2023-11-16"


def actor_of_theirs(number: int) -> Actor:
    """Return the process that does the operation of a number among those that break in."""
    return Actor(3 + number, OURS.millis + 5_000_000 * (1 + number), OURS.local_time)


@dataclass(frozen=True)
class Kind:
    """A kind of table: its options, and whether it has a key and partitions."""

    options: Mapping[str, str]
    has_key: bool = True
    is_partitioned: bool = False


WRITE_ONLY = {"write-only": "true"}
KINDS = {
    "plain": Kind({"bucket": "1", **WRITE_ONLY}),
    "changelog": Kind({"bucket": "1", "changelog-producer": "input", **WRITE_ONLY}),
    "long changelog": Kind(
        {
            "bucket": "1",
            "changelog-producer": "input",
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": "1",
            "changelog.num-retained.min": "3",
            "changelog.num-retained.max": "3",
            "changelog.time-retained": "1 h",
            **WRITE_ONLY,
        }
    ),
    "vectors": Kind(
        {"bucket": "1", "deletion-vectors.enabled": "true", "changelog-producer": "lookup"}
    ),
    "append": Kind({"bucket": "-1", **WRITE_ONLY}, has_key=False),
    "partitioned": Kind(
        {"bucket": "1", "partition.expiration-time": "5 d", **WRITE_ONLY}, is_partitioned=True
    ),
    "trash": Kind({"bucket": "1", "maintenance.trash-retained": "1 d", **WRITE_ONLY}),
    "index": Kind({"bucket": "-1", "dynamic-bucket.target-row-num": "3", **WRITE_ONLY}),
    "automatic tags": Kind(
        {
            "bucket": "1",
            "tag.automatic-creation": "process-time",
            "tag.num-retained-max": "2",
            "consumer.expiration-time": "1 h",
            **WRITE_ONLY,
        }
    ),
}


def rows(first: int, number: int, value: str) -> pa.Table:
    """Rows of two days."""
    return pa.Table.from_pylist(
        [
            {"k": key, "day": OLD_DAY if key % 2 else NEW_DAY, "v": value}
            for key in range(first, first + number)
        ],
        schema=COLUMNS,
    )


def write(table: Table, first: int, number: int, value: str) -> object:
    """Commit rows; those of a table without a key are added."""
    data = rows(first, number, value)
    return table.upsert(data) if table.schema.has_primary_key else table.append(data)


def expire(table: Table) -> object:
    return table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 ms")


@cache
def _prepared(store: str, name: str) -> Disk:
    kind = KINDS[name]
    disk = STORES[store](ManualClock(START_MILLIS))
    disk.create(
        PREPARING,
        COLUMNS,
        primary_key=(("k", "day") if kind.is_partitioned else ("k",)) if kind.has_key else (),
        partitioned_by=("day",) if kind.is_partitioned else (),
        options=kind.options,
    )
    table = disk.opened(PREPARING)
    clock: Any = table.session.clock
    write(table, 1, 6, "first")
    table.create_tag("early")
    table.create_branch("apart", "early")
    table.delete_tag("early")
    write(table, 4, 5, "second")
    table.create_tag("held", table.snapshots()[-1].id)
    clock.advance(1_000_000)
    table.compact(full=True)
    write(table, 20, 2, "third")
    clock.advance(1_000_000)
    expire(table)  # the snapshot of `held` goes; the oldest has no tag
    write(table, 26, 2, "loose")
    table.create_tag("mid")
    write(table, 22, 2, "fourth")
    table.create_tag("live")
    table.create_tag("brief", table.snapshots()[-1].id, "1 s")
    table.create_branch("side", "live")
    write(table.branch("side"), 30, 2, "side")
    write(table.branch("side"), 32, 2, "side")
    table.branch("side").create_tag("done")
    clock.advance(1_000_000)
    write(table, 24, 2, "fifth")
    table.create_tag("top")
    table.create_branch("ahead", "top")
    write(table.branch("ahead"), 34, 2, "ahead")
    table.reset_consumer("reader", table.snapshots()[-1].id)
    assert table.snapshots()[0].id == _oldest(table)
    assert table.tag("live").snapshot.id == _live(table)
    table.session.file_io.write_new("manifest/manifest-stray-0", b"stray")
    disk.clock.millis = OURS.millis
    return disk


def prepared(store: str, kind: str) -> Disk:
    """Return a disk with a table of a kind, of one's own."""
    return _prepared(store, kind).clone()


# --- operations -----------------------------------------------------------------------------------

Act = Callable[[Table], object]


@dataclass(frozen=True)
class Operation:
    """An operation. `kinds`: of tables that it is for; none: of all.

    `is_stepwise`: each of its names changes in one step, and they change one after the other. `is_deletion`: what
    another has deleted meanwhile counts as deleted. `is_of_catalog`: it is done with a catalog, not with a table. `gives_back`: names are as they were.
    `steps`: operations that it does one after the other; others may come between, and one that gives up has done the first ones.
    """

    act: Callable[[Any], object]
    kinds: frozenset[str] = frozenset()
    is_stepwise: bool = False
    is_deletion: bool = False
    is_of_catalog: bool = False
    gives_back: bool = False
    steps: tuple[str, ...] = ()

    def is_for(self, kind: str) -> bool:
        """Return whether it is for a kind of table."""
        return not self.kinds or kind in self.kinds


def _oldest(table: Table) -> int:
    """Return the snapshot that was the oldest when others began; no tag holds it."""
    return 4 if table.options.texts.get("write-only") else 7


def _live(table: Table) -> int:
    """Return the snapshot that tags and a branch begin at."""
    return 6 if table.options.texts.get("write-only") else 11


def _forget(table: Table) -> object:
    return table.forget(
        pa.table({"k": [4], "day": [NEW_DAY]}) if table.schema.partition_keys else [{"k": 4}],
        dry_run=False,
        rewrite_tags=True,
        rewrite_branches=True,
        move_consumers=True,
    )


KEYED = frozenset(name for name, kind in KINDS.items() if kind.has_key)
NO_KIND = frozenset({"none"})
FIXED = frozenset(name for name, kind in KINDS.items() if kind.options["bucket"] == "1")


def _of(kinds: frozenset[str], act: Act, **facts: Any) -> Operation:
    return Operation(act, kinds, **facts)


def _of_catalog(act: Callable[[Catalog], object], **facts: Any) -> Operation:
    return Operation(act, is_of_catalog=True, **facts)


def _create(catalog: Catalog) -> Table:
    return catalog.create_table(TABLE, COLUMNS)


def _append(table: Table) -> object:
    return table.append(rows(96, 1, "anew"))


def _drop_and_create(catalog: Catalog) -> object:
    catalog.drop_table(TABLE)
    return _append(_create(catalog))


def _make_branch_anew(table: Table) -> object:
    table.delete_branch("side")
    return table.create_branch("side", "live")


def _follow(table: Table) -> list[object]:
    return [
        item.snapshot_id for item in table.changes.follow(consumer_id="reader", poll_millis=None)
    ]


class _Staged(BaseException):
    """In the place of the publish of a client's snapshot, whose files are written by then."""


def _commit_of_client(table: Table) -> None:
    """Commit as `lsm serve` does for a client of the REST catalog, which has written the files and the snapshot."""
    staged: list[tuple[Snapshot, Snapshot | None]] = []
    ids = table.session.components.ids

    def publish(session: TableSession, snapshot: Snapshot, base: Snapshot | None) -> CommitOutcome:
        # Others that break in commit by themselves.
        if session.components.ids is not ids:
            return commit.publish(session, snapshot, base)
        staged.append((replace(snapshot, properties={}, writer_version="other-1.0"), base))
        raise _Staged

    with pytest.MonkeyPatch.context() as patch, suppress(_Staged):
        patch.setattr(publisher, "publish", publish)
        write(table, 60, 2, "client")
    ((snapshot, base),) = staged
    if not publisher.commit_snapshot(table.session, snapshot, base and base.uuid):
        raise CommitConflictError(
            "made on another snapshot than the newest", snapshot_id=snapshot.id
        )


def _take_first_over(table: Table) -> None:
    """Fast-forward main by force as far as the first snapshot of a branch, as readers see it on the way."""
    session = table.session
    branch = on_branch(session, "side")
    plan = branches._plan(session, branch, "side", force=True)
    first = replace(plan, snapshots=plan.snapshots[:1])
    branches._carry_out(session, branch, first, force=True)


OPERATIONS: Mapping[str, Operation] = {
    # rows and schemas
    "upsert": Operation(lambda table: write(table, 70, 2, "upserted")),
    "delete": _of(KEYED, lambda table: table.delete(rows(5, 1, "").select(table.schema.primary_keys))),
    "overwrite": Operation(lambda table: table.overwrite(rows(80, 2, "over"))),
    "compact": Operation(lambda table: table.compact(full=True)),
    "compact manifests": Operation(lambda table: table.compact_manifest(dry_run=False)),
    "add a column": Operation(lambda table: table.alter(AddColumn("extra", "INT"))),
    "set an option": Operation(lambda table: table.alter(SetOption(key="snapshot.time-retained", value="2 h"))),
    "rescale": _of(FIXED, lambda table: table.rescale(2)),
    "expire partitions": _of(frozenset({"partitioned"}), lambda table: table.expire_partitions()),
    "commit of a client": _of(frozenset(KINDS) - {"vectors"}, _commit_of_client),
    # tags
    "tag the newest": Operation(lambda table: table.create_tag("new"), is_stepwise=True),
    "tag the oldest": Operation(lambda table: table.create_tag("new", _oldest(table))),
    "tag what a tag holds": Operation(lambda table: table.create_tag("new", from_millis=0)),
    "move a tag": Operation(lambda table: table.replace_tag("mid"), is_stepwise=True),
    "move a tag that holds": Operation(lambda table: table.replace_tag("held"), is_stepwise=True),
    "prolong a tag": Operation(lambda table: table.replace_tag("brief", _live(table), "1000 d")),
    "prolong a tag that holds": Operation(
        lambda table: table.replace_tag("held", table.tag("held").snapshot.id, "1000 d")
    ),
    "rename a tag": Operation(lambda table: table.rename_tag("mid", "renamed")),
    "rename a tag that holds": Operation(lambda table: table.rename_tag("held", "renamed")),
    "delete a tag": Operation(lambda table: table.delete_tag("mid"), is_deletion=True),
    "delete a tag that holds": Operation(lambda table: table.delete_tag("held"), is_deletion=True),
    "expire tags": Operation(lambda table: table.expire_tags(), is_stepwise=True),
    "create due tags": _of(frozenset({"automatic tags"}), lambda table: table.create_due_tags(), is_stepwise=True),
    # branches
    "branch from a tag": Operation(lambda table: table.create_branch("new", "mid")),
    "branch from a tag that holds": Operation(lambda table: table.create_branch("new", "held")),
    "branch without rows": Operation(lambda table: table.create_branch("new")),
    "rename a branch": Operation(lambda table: table.rename_branch("side", "new")),
    "delete a branch": Operation(lambda table: table.delete_branch("side"), is_deletion=True),
    "delete another branch": Operation(lambda table: table.delete_branch("ahead"), is_deletion=True),
    "commit on a branch": Operation(lambda table: write(table.branch("side"), 90, 2, "on the branch")),
    "commit on a new branch": Operation(lambda table: write(table.branch("new"), 92, 2, "on the new branch")),
    "tag on a branch": Operation(lambda table: table.branch("side").create_tag("new")),
    "move a tag on a branch": Operation(lambda table: table.branch("side").replace_tag("done", _live(table))),
    "rename a tag on a branch": Operation(lambda table: table.branch("side").rename_tag("done", "renamed")),
    "delete a tag on a branch": Operation(lambda table: table.branch("side").delete_tag("done"), is_deletion=True),
    "alter a branch": Operation(lambda table: table.branch("side").alter(AddColumn("extra", "INT"))),
    "create a consumer on a branch": Operation(lambda table: table.branch("side").reset_consumer("new", _live(table))),
    "make a branch anew": Operation(_make_branch_anew, is_stepwise=True, steps=("delete a branch", "make it again")),
    "make it again": _of(NO_KIND, lambda table: table.create_branch("side", "live")),
    "expire a branch": Operation(lambda table: expire(table.branch("side")), is_stepwise=True),
    "roll a branch back": Operation(lambda table: table.branch("side").rollback_to(tag="live")),
    "fast-forward": Operation(lambda table: table.fast_forward("ahead"), is_stepwise=True),
    "fast-forward by force": Operation(
        lambda table: table.fast_forward("side", force=True), is_stepwise=True, steps=("take the first over", "take the rest over")
    ),
    "take the first over": _of(NO_KIND, _take_first_over),
    "take the rest over": _of(NO_KIND, lambda table: table.fast_forward("side", force=True)),
    # consumers
    "create a consumer": Operation(lambda table: table.reset_consumer("new", _oldest(table))),
    "move a consumer": Operation(lambda table: table.reset_consumer("reader", _oldest(table))),
    "follow": _of(frozenset({"changelog", "append"}), _follow, is_stepwise=True),
    "delete a consumer": Operation(lambda table: table.reset_consumer("reader", None), is_deletion=True),
    "clear consumers": Operation(lambda table: table.clear_consumers(), is_stepwise=True),
    # history
    "expire": Operation(expire, is_stepwise=True),
    "roll back": Operation(lambda table: table.rollback_to(_live(table)), is_stepwise=True),
    "roll back to a tag that holds": Operation(lambda table: table.rollback_to(tag="held"), is_stepwise=True),
    "restore": Operation(lambda table: table.rollback_to_as_latest(_oldest(table))),
    "restore a tag that holds": Operation(lambda table: table.rollback_to_as_latest(tag="held")),
    "forget": Operation(_forget, is_stepwise=True),
    "remove orphans": Operation(
        lambda table: table.remove_orphan_files(dry_run=False, older_than="1 d")
    ),
    "undo maintenance": _of(frozenset({"trash"}), lambda table: table.undo_maintenance(), is_stepwise=True, gives_back=True),
    "empty the trash": _of(frozenset({"trash"}), lambda table: table.empty_trash(everything=True)),
    # repairs
    "remove damaged files": Operation(lambda table: table.remove_damaged_files(dry_run=False)),
    "remove unexisting files": Operation(lambda table: table.remove_unexisting_files(dry_run=False)),
    "restore files": Operation(lambda table: table.restore_files(dry_run=False)),
    "repair the earliest": Operation(lambda table: table.repair_earliest_snapshot(dry_run=False)),
    "repair the latest": Operation(lambda table: table.repair_latest_snapshot(dry_run=False)),
    "remove broken records": Operation(lambda table: table.remove_broken_records(dry_run=False)),
    # the catalog
    "create a table": _of_catalog(lambda catalog: catalog.create_table("db.new", COLUMNS)),
    "rename the table": _of_catalog(lambda catalog: catalog.rename_table(TABLE, "db.new")),
    "drop the table": _of_catalog(lambda catalog: catalog.drop_table(TABLE)),
    "drop and create": _of_catalog(_drop_and_create, is_stepwise=True, steps=("drop the table", "create it", "append to it")),
    "create it": Operation(_create, NO_KIND, is_of_catalog=True),
    "append to it": _of(NO_KIND, _append),
    "append to a new table": _of_catalog(lambda catalog: catalog["db.new"].append(rows(95, 1, "new"))),
    "drop a new table": _of_catalog(lambda catalog: catalog.drop_table("db.new")),
    "unregister the table": _of_catalog(lambda catalog: catalog.unregister_table(TABLE)),
    "register what is found": _of_catalog(lambda catalog: catalog.register_found_tables(), is_stepwise=True),
}  # fmt: skip


def operations_for(store: str, kind: str) -> list[str]:
    """Return the names of the operations that a kind of table has on a store."""
    return [
        name
        for name, operation in OPERATIONS.items()
        if operation.is_for(kind) and (store == "lake" or not operation.is_of_catalog)
    ]
