"""Recording lineage: after a commit, after maintenance, or all of it anew from a table's files.

Every method may be called again with the same facts, late, out of order, and by several processes at
once; the rows come out the same. The files are the truth: whoever cannot record goes on, and a
rebuild adds what is missing. Failures are a LineageError, never anything else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from lsm_engine.base.errors import LsmError
from lsm_engine.catalog.catalog_statements import (
    FROM_ADDITIONS,
    RECORDED_DELTA,
    TABLE_ID,
    added,
    replacing,
    run_added,
)
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.facts import (
    CommitFacts,
    InheritedFiles,
    LineageError,
    RemovalFacts,
    TagFacts,
)
from lsm_engine.catalog.lineage_rows import (
    Row,
    added_file_rows,
    compaction_rows,
    deleted_file_rows,
    edge_rows,
    file_row,
    input_rows,
    manifest_list_rows,
    run_row,
    snapshot_row,
    tag_row,
)
from lsm_engine.catalog.lineage_tables import LineageTables
from lsm_engine.catalog.models import (
    COLUMN_INPUTS,
    COMPACTIONS,
    DATA,
    EXPIRED,
    FILE_EDGES,
    FILES,
    INPUTS,
    LIVE,
    MANIFEST_LISTS,
    MANIFESTS,
    OF_A_SNAPSHOT,
    OF_A_TABLE,
    REMOVALS,
    RUNS,
    SNAPSHOTS,
    TABLES,
    TAGS,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.meta.tag import Tag

T = TypeVar("T")

ROWS_PER_STATEMENT = 2_000
IDS_PER_STATEMENT = 500
FACTS_PER_TRANSACTION = 64
# What recording may meet: the database, or facts that do not fit into it.
_FAILURES = (LsmError, SQLAlchemyError, OSError, ValueError, TypeError, KeyError, OverflowError)


class Lineage(LineageTables):
    """What was made from what, by which run. Questions are answered by `LineageQueries`,
    `LineageOrigins` and `LineageTables`."""

    def __init__(
        self,
        database: Database,
        *,
        catalog_key: str,
        before_reading: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(database, catalog_key=catalog_key, before_reading=before_reading)
        self._recorder = _Recorder(database, catalog_key)

    def record_commit(self, facts: CommitFacts) -> None:
        """Record one snapshot.

        A snapshot of the same id but another content was rolled back: it goes, and with it the
        older ones that followed it.
        """
        self._record(facts.table, [facts])

    def record_tag(self, facts: TagFacts) -> None:
        """Record a tag, new or replaced."""
        self._write(
            facts.table, lambda connection, table: self._recorder.tag(connection, table, facts.tag)
        )

    def record_tag_deletion(self, table: TableName, tag_name: str) -> None:
        """Record that a tag is gone; its row is kept as history."""
        self._write(
            table,
            lambda connection, table_id: connection.execute(
                update(TAGS)
                .where(TAGS.c.table_id == table_id, TAGS.c.tag_name == tag_name)
                .values(deleted=True)
            ),
        )

    def record_expiry(
        self, table: TableName, snapshot_ids: Iterable[int], removed_files: Iterable[str] = ()
    ) -> None:
        """Record that snapshots expired and, by name, which data files went with them."""
        ids, names = sorted(snapshot_ids), sorted(removed_files)
        self._write(
            table,
            lambda connection, table_id: self._recorder.expiry(connection, table_id, ids, names),
        )

    def record_rollback(
        self, table: TableName, to_snapshot_id: int, *, until_millis: int | None = None
    ) -> None:
        """Forget every snapshot after `to_snapshot_id`, as the table itself has.

        With `until_millis` those of a later time stay: they were committed after the rollback.
        """
        gone = SNAPSHOTS.c.snapshot_id > to_snapshot_id
        if until_millis is not None:
            gone = and_(gone, SNAPSHOTS.c.time_millis <= until_millis)
        self._write(
            table,
            lambda connection, table_id: self._recorder.forget(connection, table_id, gone),
        )

    def record_removal(self, facts: RemovalFacts) -> None:
        """Record what maintenance took, and why."""
        row = {
            "removal_id": facts.removal_id,
            "kind": facts.kind,
            "reason": facts.reason,
            "at_millis": facts.at_millis,
            "snapshot_ids": ",".join(map(str, facts.snapshot_ids)),
            "tags": "\n".join(facts.tags),
            "file_count": facts.file_count,
            "freed_bytes": facts.freed_bytes,
        }
        new = added(self._database.dialect, REMOVALS)
        self._write(
            facts.table,
            lambda connection, table_id: connection.execute(new, [{"table_id": table_id, **row}]),
        )

    def rebuild(
        self,
        table: TableName,
        facts: Iterable[CommitFacts | InheritedFiles],
        tags: Iterable[TagFacts] = (),
        *,
        keep_history: bool = True,
    ) -> int:
        """Record all facts in a table's files; return the number of snapshots recorded.

        `facts` may stream; they are written in pieces, so that others can write in between, and a
        rebuild that died is finished by the next. Snapshots and tags that the files no longer know
        stay as expired and deleted, unless `keep_history` is false: then the table starts empty.
        """
        if not keep_history:
            self._write(table, self._recorder.clear)
        states: dict[int, str] = {}
        for piece in _pieces(facts, FACTS_PER_TRANSACTION):
            self._record(table, piece)
            for fact in piece:
                if isinstance(fact, CommitFacts):
                    states[fact.snapshot.id] = EXPIRED if fact.expired else LIVE
        known_tags = [fact.tag for fact in tags]
        self._write(
            table,
            lambda connection, table_id: self._recorder.reconcile(
                connection, table_id, states, known_tags
            ),
        )
        return len(states)

    def _record(self, table: TableName, facts: Sequence[CommitFacts | InheritedFiles]) -> None:
        def work(connection: Connection, table_id: int) -> None:
            for fact in facts:
                if isinstance(fact, CommitFacts):
                    self._recorder.commit(connection, table_id, fact)
                else:
                    self._recorder.inherited(connection, table_id, fact)

        self._write(table, work)

    def _write(self, table: TableName, work: Callable[[Connection, int], object]) -> None:
        def whole(connection: Connection) -> None:
            work(connection, self._recorder.table_id(connection, table))

        try:
            self._database.write(whole)
        except _FAILURES as error:
            raise LineageError(
                "lineage was not recorded; the table itself is in order; rebuild the lineage later",
                table=table.text,
                catalog=self._database.shown_url,
            ) from error


class _Recorder:
    """Writes rows inside a transaction. Every insert handles a row that is already there."""

    def __init__(self, database: Database, catalog_key: str) -> None:
        self._database = database
        self._catalog_key = catalog_key

    def table_id(self, connection: Connection, table: TableName) -> int:
        """Return the number of a table, given now if it has none."""
        identity = {
            "catalog_key": self._catalog_key,
            "database_name": table.database,
            "table_name": table.table,
            "branch": table.branch,
        }
        number = connection.scalar(TABLE_ID, identity)
        if number is None:
            connection.execute(added(self._database.dialect, TABLES), [identity])
            number = connection.scalars(TABLE_ID, identity).one()
        return int(number)

    def commit(self, connection: Connection, table_id: int, facts: CommitFacts) -> None:
        """Write all rows of one snapshot."""
        snapshot = facts.snapshot
        self._forget_other(connection, table_id, facts)
        connection.execute(run_added(self._database.dialect), [run_row(facts)])
        self._add(connection, SNAPSHOTS, [snapshot_row(table_id, facts)])
        lists, manifests = manifest_list_rows(table_id, snapshot, facts.manifest_lists)
        datasets, columns = input_rows(table_id, facts)
        self._add(connection, MANIFEST_LISTS, lists)
        self._add(connection, MANIFESTS, manifests)
        self._add(connection, INPUTS, datasets)
        self._add(connection, COLUMN_INPUTS, columns)
        self._add(connection, COMPACTIONS, compaction_rows(table_id, facts))
        self._add(connection, FILE_EDGES, edge_rows(table_id, snapshot, facts.edges))
        # A deletion may be recorded before the addition: either makes the row, the addition fills it.
        self._put(connection, FILES, added_file_rows(table_id, facts), FROM_ADDITIONS)
        self._put(connection, FILES, deleted_file_rows(table_id, facts), ("deleted_by",))
        for tag in facts.tags:
            self.tag(connection, table_id, tag)

    def inherited(self, connection: Connection, table_id: int, files: InheritedFiles) -> None:
        """Write files that nobody known has added."""
        rows = (file_row(table_id, entry, files.partitions, DATA) for entry in files.entries)
        self._add(connection, FILES, rows)

    def tag(self, connection: Connection, table_id: int, tag: Tag) -> None:
        """Write a tag, in place of an older one of the same name."""
        replaced = ("snapshot_id", "created", "retained_millis", "deleted")
        self._put(connection, TAGS, [tag_row(table_id, tag)], replaced)

    def expiry(
        self, connection: Connection, table_id: int, ids: Sequence[int], names: Sequence[str]
    ) -> None:
        """Mark snapshots as expired and files as removed."""
        self._set_state(connection, table_id, ids, EXPIRED)
        for some in _pieces(names, IDS_PER_STATEMENT):
            rows = and_(FILES.c.table_id == table_id, FILES.c.file_name.in_(some))
            connection.execute(update(FILES).where(rows).values(removed=True))

    def reconcile(
        self, connection: Connection, table_id: int, states: dict[int, str], tags: Sequence[Tag]
    ) -> None:
        """After a rebuild: states of snapshots and tags as the files have them.

        Snapshots newer than all in `states` may have been committed meanwhile: left alone.
        """
        newest = max(states, default=0)
        known = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.state).where(
            SNAPSHOTS.c.table_id == table_id, SNAPSHOTS.c.snapshot_id <= newest
        )
        changed: dict[str, list[int]] = {LIVE: [], EXPIRED: []}
        for snapshot_id, state in connection.execute(known):
            if states.get(snapshot_id, EXPIRED) != state:
                changed[states.get(snapshot_id, EXPIRED)].append(snapshot_id)
        for state, ids in changed.items():
            self._set_state(connection, table_id, ids, state)
        connection.execute(update(TAGS).where(TAGS.c.table_id == table_id).values(deleted=True))
        for tag in tags:
            self.tag(connection, table_id, tag)

    def _set_state(
        self, connection: Connection, table_id: int, ids: Sequence[int], state: str
    ) -> None:
        for some in _pieces(ids, IDS_PER_STATEMENT):
            rows = and_(SNAPSHOTS.c.table_id == table_id, SNAPSHOTS.c.snapshot_id.in_(some))
            connection.execute(update(SNAPSHOTS).where(rows).values(state=state))

    def clear(self, connection: Connection, table_id: int) -> None:
        """Forget all lineage of a table."""
        for model in OF_A_TABLE:
            connection.execute(delete(model).where(model.c.table_id == table_id))
        self._drop_idle_runs(connection)

    def forget(self, connection: Connection, table_id: int, gone: ColumnElement[bool]) -> None:
        """Forget the snapshots that `gone` holds for, and what they did to files."""
        ids = select(SNAPSHOTS.c.snapshot_id).where(SNAPSHOTS.c.table_id == table_id, gone)
        for some in _pieces(connection.scalars(ids).all(), IDS_PER_STATEMENT):
            for model in (*OF_A_SNAPSHOT, TAGS, SNAPSHOTS):
                rows = and_(model.c.table_id == table_id, model.c.snapshot_id.in_(some))
                connection.execute(delete(model).where(rows))
            files = FILES.c.table_id == table_id
            connection.execute(delete(FILES).where(files, FILES.c.added_by.in_(some)))
            connection.execute(
                update(FILES).where(files, FILES.c.deleted_by.in_(some)).values(deleted_by=None)
            )
        self._drop_idle_runs(connection)

    def _forget_other(self, connection: Connection, table_id: int, facts: CommitFacts) -> None:
        snapshot = facts.snapshot
        which = {"table_id": table_id, "snapshot_id": snapshot.id}
        recorded = connection.scalar(RECORDED_DELTA, which)
        if recorded is None or recorded == snapshot.delta_manifest_list:
            return
        # Successors of the new one may be recorded already; they are not older than it.
        older = and_(
            SNAPSHOTS.c.snapshot_id > snapshot.id, SNAPSHOTS.c.time_millis < snapshot.time_millis
        )
        self.forget(connection, table_id, or_(SNAPSHOTS.c.snapshot_id == snapshot.id, older))

    def _drop_idle_runs(self, connection: Connection) -> None:
        busy = select(SNAPSHOTS.c.run_id).where(
            SNAPSHOTS.c.run_id == RUNS.c.run_id, SNAPSHOTS.c.asset_key == RUNS.c.asset_key
        )
        connection.execute(delete(RUNS).where(~busy.exists()))

    def _add(self, connection: Connection, model: Table, rows: Iterable[Row]) -> None:
        """Insert rows; those that are there are kept."""
        statement = added(self._database.dialect, model)
        for some in _pieces(rows, ROWS_PER_STATEMENT):
            connection.execute(statement, some)

    def _put(
        self, connection: Connection, model: Table, rows: Iterable[Row], replaced: tuple[str, ...]
    ) -> None:
        """Insert rows; of those that are there, replace the columns named."""
        statement = replacing(self._database.dialect, model, replaced)
        for some in _pieces(rows, ROWS_PER_STATEMENT):
            connection.execute(statement, some)


def _pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while piece := list(islice(source, size)):
        yield piece
