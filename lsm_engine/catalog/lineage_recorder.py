"""Writing lineage inside a transaction: facts become rows of the catalog's tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, or_, select, update

from lsm_engine.catalog.catalog_statements import (
    FROM_ADDITIONS,
    RECORDED_DELTAS,
    TABLE_ID,
    added,
    replacing,
    run_added,
)
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.facts import (
    CommitFacts,
    ExpiryFacts,
    Fact,
    InheritedFiles,
    RemovalFacts,
    RollbackFacts,
    TagDeletion,
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
_Other = InheritedFiles | TagFacts | TagDeletion | ExpiryFacts | RollbackFacts | RemovalFacts

ROWS_PER_STATEMENT = 2_000
IDS_PER_STATEMENT = 500


class Recorder:
    """Writes rows inside a transaction. Every insert handles a row that is already there."""

    def __init__(self, database: Database, catalog_key: str) -> None:
        self._database = database
        self._catalog_key = catalog_key

    def table_id(self, connection: Connection, table: TableName) -> int:
        """Return the number of a table; a new table gets one."""
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

    def facts(self, connection: Connection, facts: Iterable[Fact | InheritedFiles]) -> None:
        """Write facts of any tables, in their order; successive commits are written together."""
        of_tables: dict[TableName, list[Fact | InheritedFiles]] = {}
        for fact in facts:
            of_tables.setdefault(fact.table, []).append(fact)
        for table, of_table in of_tables.items():
            table_id = self.table_id(connection, table)
            for commits, other_fact in _runs(of_table):
                if commits:
                    self._commits(connection, table_id, commits)
                if other_fact is not None:
                    self._record_other(connection, table_id, other_fact)

    def _record_other(self, connection: Connection, table_id: int, fact: _Other) -> None:
        match fact:
            case InheritedFiles():
                self._inherited(connection, table_id, fact)
            case TagFacts():
                self.tag(connection, table_id, fact.tag)
            case TagDeletion():
                self._tag_deletion(connection, table_id, fact)
            case ExpiryFacts():
                self._expiry(connection, table_id, fact)
            case RollbackFacts():
                self._rollback(connection, table_id, fact)
            case RemovalFacts():
                self._removal(connection, table_id, fact)

    def _commits(
        self, connection: Connection, table_id: int, commits: Sequence[CommitFacts]
    ) -> None:
        """Write all rows of snapshots of ascending ids."""
        self._forget_others(connection, table_id, commits)
        lists, manifests, inputs, columns = [], [], [], []
        for facts in commits:
            of_lists, of_manifests = manifest_list_rows(
                table_id, facts.snapshot, facts.manifest_lists
            )
            lists += of_lists
            manifests += of_manifests
            of_datasets, of_columns = input_rows(table_id, facts)
            inputs += of_datasets
            columns += of_columns
        runs = {tuple(row.values()): row for row in map(run_row, commits)}
        connection.execute(run_added(self._database.dialect), list(runs.values()))
        self._add(connection, SNAPSHOTS, [snapshot_row(table_id, facts) for facts in commits])
        self._add(connection, MANIFEST_LISTS, lists)
        self._add(connection, MANIFESTS, manifests)
        self._add(connection, INPUTS, inputs)
        self._add(connection, COLUMN_INPUTS, columns)
        self._add(connection, COMPACTIONS, _rows_of_commits(compaction_rows, table_id, commits))
        edges = (edge_rows(table_id, facts.snapshot, facts.edges) for facts in commits)
        self._add(connection, FILE_EDGES, chain.from_iterable(edges))
        # A deletion may be recorded before the addition: either makes the row, the addition fills it.
        self._upsert(
            connection, FILES, _rows_of_commits(added_file_rows, table_id, commits), FROM_ADDITIONS
        )
        self._upsert(
            connection,
            FILES,
            _rows_of_commits(deleted_file_rows, table_id, commits),
            ("deleted_by",),
        )
        for facts in commits:
            for tag in facts.tags:
                self.tag(connection, table_id, tag)

    def _inherited(self, connection: Connection, table_id: int, files: InheritedFiles) -> None:
        """Write files whose adding snapshot is unknown."""
        rows = (file_row(table_id, entry, files.partitions, DATA) for entry in files.entries)
        self._add(connection, FILES, rows)

    def tag(self, connection: Connection, table_id: int, tag: Tag) -> None:
        """Write a tag, in place of an older one of the same name."""
        replaced = ("snapshot_id", "created", "retained_millis", "deleted")
        self._upsert(connection, TAGS, [tag_row(table_id, tag)], replaced)

    def _tag_deletion(self, connection: Connection, table_id: int, fact: TagDeletion) -> None:
        rows = and_(TAGS.c.table_id == table_id, TAGS.c.tag_name == fact.tag_name)
        connection.execute(update(TAGS).where(rows).values(deleted=True))

    def _expiry(self, connection: Connection, table_id: int, fact: ExpiryFacts) -> None:
        """Mark snapshots as expired and files as removed."""
        self._set_state(connection, table_id, sorted(fact.snapshot_ids), EXPIRED)
        for batch in pieces(sorted(fact.removed_files), IDS_PER_STATEMENT):
            rows = and_(FILES.c.table_id == table_id, FILES.c.file_name.in_(batch))
            connection.execute(update(FILES).where(rows).values(removed=True))

    def _rollback(self, connection: Connection, table_id: int, fact: RollbackFacts) -> None:
        """Forget the snapshots after that one, but for later ones than the rollback."""
        condition = SNAPSHOTS.c.snapshot_id > fact.to_snapshot_id
        if fact.at_millis is not None:
            condition = and_(condition, SNAPSHOTS.c.time_millis <= fact.at_millis)
        self._forget(connection, table_id, condition)

    def _removal(self, connection: Connection, table_id: int, fact: RemovalFacts) -> None:
        row = {
            "table_id": table_id,
            "removal_id": fact.removal_id,
            "kind": fact.kind,
            "reason": fact.reason,
            "at_millis": fact.at_millis,
            "snapshot_ids": ",".join(map(str, fact.snapshot_ids)),
            "tags": "\n".join(fact.tags),
            "file_count": fact.file_count,
            "freed_bytes": fact.freed_bytes,
        }
        self._add(connection, REMOVALS, [row])

    def reconcile(
        self,
        connection: Connection,
        table_id: int,
        states: dict[int, str],
        tags: Sequence[Tag],
        before: Mapping[int, str],
    ) -> None:
        """Set the states of snapshots and tags from the table's files, after a rebuild.

        Snapshots newer than all in `states` may have been committed meanwhile and are retained, unless they
        were recorded `before` the files were read. Then they were rolled back, and are forgotten.
        """
        newest = max(states, default=0)
        taken_back = [name for number, name in before.items() if number > newest]
        for batch in pieces(taken_back, IDS_PER_STATEMENT):
            self._forget(connection, table_id, SNAPSHOTS.c.delta_manifest_list.in_(batch))
        recorded = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.state).where(
            SNAPSHOTS.c.table_id == table_id, SNAPSHOTS.c.snapshot_id <= newest
        )
        changes: dict[str, list[int]] = {LIVE: [], EXPIRED: []}
        for snapshot_id, state in connection.execute(recorded):
            if states.get(snapshot_id, EXPIRED) != state:
                changes[states.get(snapshot_id, EXPIRED)].append(snapshot_id)
        for state, ids in changes.items():
            self._set_state(connection, table_id, ids, state)
        connection.execute(update(TAGS).where(TAGS.c.table_id == table_id).values(deleted=True))
        for tag in tags:
            self.tag(connection, table_id, tag)

    def _set_state(
        self, connection: Connection, table_id: int, ids: Sequence[int], state: str
    ) -> None:
        for batch in pieces(ids, IDS_PER_STATEMENT):
            rows = and_(SNAPSHOTS.c.table_id == table_id, SNAPSHOTS.c.snapshot_id.in_(batch))
            connection.execute(update(SNAPSHOTS).where(rows).values(state=state))

    def clear(self, connection: Connection, table_id: int) -> None:
        """Forget all lineage of a table."""
        for model in OF_A_TABLE:
            connection.execute(delete(model).where(model.c.table_id == table_id))
        self._drop_idle_runs(connection)

    def _forget(
        self, connection: Connection, table_id: int, condition: ColumnElement[bool]
    ) -> None:
        """Forget the snapshots that meet `condition`, and their changes of files."""
        ids = select(SNAPSHOTS.c.snapshot_id).where(SNAPSHOTS.c.table_id == table_id, condition)
        for batch in pieces(connection.scalars(ids).all(), IDS_PER_STATEMENT):
            for model in (*OF_A_SNAPSHOT, TAGS, SNAPSHOTS):
                rows = and_(model.c.table_id == table_id, model.c.snapshot_id.in_(batch))
                connection.execute(delete(model).where(rows))
            files = FILES.c.table_id == table_id
            connection.execute(delete(FILES).where(files, FILES.c.added_by.in_(batch)))
            connection.execute(
                update(FILES).where(files, FILES.c.deleted_by.in_(batch)).values(deleted_by=None)
            )
        self._drop_idle_runs(connection)

    def _forget_others(
        self, connection: Connection, table_id: int, commits: Sequence[CommitFacts]
    ) -> None:
        """Forget snapshots whose id a new snapshot with another content has: they were rolled back."""
        recorded: dict[int, str] = {}
        for batch in pieces([facts.snapshot.id for facts in commits], IDS_PER_STATEMENT):
            parameters = {"table_id": table_id, "snapshot_ids": batch}
            rows = connection.execute(RECORDED_DELTAS, parameters)
            recorded.update((number, name) for number, name in rows)
        for snapshot in (facts.snapshot for facts in commits):
            recorded_list = recorded.get(snapshot.id)
            if recorded_list is None or recorded_list == snapshot.delta_manifest_list:
                continue
            # Successors of the new one may be recorded already; they are not older than it.
            older = and_(
                SNAPSHOTS.c.snapshot_id > snapshot.id,
                SNAPSHOTS.c.time_millis < snapshot.time_millis,
            )
            self._forget(connection, table_id, or_(SNAPSHOTS.c.snapshot_id == snapshot.id, older))

    def _drop_idle_runs(self, connection: Connection) -> None:
        busy = select(SNAPSHOTS.c.run_id).where(
            SNAPSHOTS.c.run_id == RUNS.c.run_id, SNAPSHOTS.c.asset_key == RUNS.c.asset_key
        )
        connection.execute(delete(RUNS).where(~busy.exists()))

    def _add(self, connection: Connection, model: Table, rows: Iterable[Row]) -> None:
        """Insert rows; existing rows are retained."""
        statement = added(self._database.dialect, model)
        for batch in pieces(rows, ROWS_PER_STATEMENT):
            connection.execute(statement, batch)

    def _upsert(
        self, connection: Connection, model: Table, rows: Iterable[Row], replaced: tuple[str, ...]
    ) -> None:
        """Insert rows; of existing rows, replace the columns `replaced`."""
        statement = replacing(self._database.dialect, model, replaced)
        for batch in pieces(rows, ROWS_PER_STATEMENT):
            connection.execute(statement, batch)


def _runs(
    facts: Iterable[Fact | InheritedFiles],
) -> Iterator[tuple[list[CommitFacts], _Other | None]]:
    """Split facts of a table after each that is no commit, and between commits of falling ids."""
    commits: list[CommitFacts] = []
    for fact in facts:
        if not isinstance(fact, CommitFacts):
            yield commits, fact
            commits = []
            continue
        if commits and fact.snapshot.id <= commits[-1].snapshot.id:
            yield commits, None
            commits = []
        commits.append(fact)
    yield commits, None


def _rows_of_commits(
    rows: Callable[[int, CommitFacts], Iterable[Row]], table_id: int, commits: Iterable[CommitFacts]
) -> Iterator[Row]:
    return chain.from_iterable(rows(table_id, facts) for facts in commits)


def pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` items."""
    source = iter(items)
    while piece := list(islice(source, size)):
        yield piece
