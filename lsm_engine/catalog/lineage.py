"""Recording of lineage, after a commit or maintenance, and its rebuild from a table's files.

Every method is idempotent: late, out of order and concurrent calls with the same facts give the same
rows. The files are the truth: a caller that cannot record goes on, and a rebuild adds the missing rows. Failures are a LineageError, never anything else.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import LsmError
from lsm_engine.catalog.catalog_statements import live_deltas
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.facts import CommitFacts, Fact, InheritedFiles, LineageError, TagFacts
from lsm_engine.catalog.lineage_recorder import Recorder, pieces
from lsm_engine.catalog.lineage_tables import LineageTables
from lsm_engine.catalog.models import EXPIRED, LIVE
from lsm_engine.catalog.names import TableName

FACTS_PER_TRANSACTION = 64
# Errors of the database, and of facts that do not fit into it.
_FAILURES = (LsmError, SQLAlchemyError, OSError, ValueError, TypeError, KeyError, OverflowError)


@checks_all_arguments
class Lineage(LineageTables):
    """The lineage of a catalog: inputs, runs and files of commits. `LineageQueries`, `LineageOrigins` and
    `LineageTables` have the queries."""

    def __init__(
        self,
        database: Database,
        *,
        catalog_key: str,
        before_reading: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(database, catalog_key=catalog_key, before_reading=before_reading)
        self._recorder = Recorder(database, catalog_key)

    def record(self, *facts: Fact) -> None:
        """Record facts, all or none.

        A snapshot of the same id but another content was rolled back: it goes, and with it the
        older ones that followed it.
        """
        self._write(
            lambda connection: self._recorder.facts(connection, facts),
            table=", ".join(sorted({fact.table.text for fact in facts})),
        )

    def record_loaded(self, load: Callable[[], Iterable[Fact]]) -> None:
        """Record the facts that `load` returns, all or none. It runs, maybe again, under the write lock."""
        self._write(lambda connection: self._recorder.facts(connection, load()))

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
        stay as expired and deleted; those above the newest, which others rolled back, are forgotten.
        Unless `keep_history` the table starts empty.
        """
        if not keep_history:
            self._of_table(table, self._recorder.clear)
        before: dict[int, str] = {}
        self._of_table(
            table,
            lambda connection, table_id: before.update(live_deltas(connection, table_id)),
        )
        states: dict[int, str] = {}
        for piece in pieces(facts, FACTS_PER_TRANSACTION):
            self._record_piece(piece)
            for fact in piece:
                if isinstance(fact, CommitFacts):
                    states[fact.snapshot.id] = EXPIRED if fact.expired else LIVE
        known_tags = [fact.tag for fact in tags]
        self._of_table(
            table,
            lambda connection, table_id: self._recorder.reconcile(
                connection, table_id, states, known_tags, before
            ),
        )
        return len(states)

    def _record_piece(self, piece: list[CommitFacts | InheritedFiles]) -> None:
        self._write(lambda connection: self._recorder.facts(connection, piece))

    def _of_table(self, table: TableName, work: Callable[[Connection, int], object]) -> None:
        self._write(lambda connection: work(connection, self._recorder.table_id(connection, table)))

    def _write(self, work: Callable[[Connection], object], **about: Any) -> None:
        try:
            self._database.write(work)
        except _FAILURES as error:
            raise LineageError(
                "lineage was not recorded; the table itself is in order; rebuild the lineage later",
                catalog=self._database.shown_url,
                **about,
            ) from error
