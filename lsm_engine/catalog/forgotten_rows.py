"""Removal of keys from the catalog: the least and greatest keys of data files, and emptied partitions.

The history is retained without the keys: the files, their snapshots and runs, and their row counts. Rows
about an emptied partition, whose value was a key, are deleted.
"""

from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    delete,
    func,
    or_,
    select,
    update,
)

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.record import record
from lsm_engine.catalog.models import COMPACTIONS, EXPIRED, FILE_EDGES, FILES, SNAPSHOTS, TABLES
from lsm_engine.catalog.rewritten_tables import count_marked, mark_tables
from lsm_engine.io.file_io import FileIO
from lsm_engine.meta.stats import EMPTY_ROW

KeysByPartition = Iterable[tuple[bytes | None, frozenset[bytes]]]
"""Stored keys by their partition; None: any partition."""
_WITH_PARTITIONS = (FILES, COMPACTIONS, FILE_EDGES)
HOLDING = tuple(table.name for table in (*_WITH_PARTITIONS, SNAPSHOTS))
"""Tables whose rows may hold keys."""
_VALUES_PER_STATEMENT = 500
_PIECE = 8 << 20
_TableFilter = Sequence[ColumnElement[bool]]


@record
class HeldKeys:
    """The keys, emptied partitions and texts to remove from the rows of a table."""

    keys: KeysByPartition
    emptied_partitions: Sequence[bytes] = ()
    texts: Sequence[bytes] = ()


def count_rows(connection: Connection, of_table: _TableFilter, forgotten: HeldKeys) -> int:
    """Return the number of rows that hold one of the keys, or an emptied partition.

    A table of PostgreSQL that still has to be rewritten after a deletion counts as one.
    """
    ids = select(TABLES.c.table_id).where(*of_table)
    conditions = (
        *_of_files(ids, forgotten),
        *_of_partitions(ids, forgotten),
        *_of_properties(ids, forgotten),
    )
    rows = sum(
        connection.scalar(select(func.count()).select_from(table).where(condition)) or 0
        for table, condition in conditions
    )
    return rows + count_marked(connection, HOLDING)


def forget_rows(connection: Connection, of_table: _TableFilter, forgotten: HeldKeys) -> None:
    """Blank keys of files and properties of expired snapshots; delete rows of emptied partitions."""
    ids = select(TABLES.c.table_id).where(*of_table)
    for table, condition in _of_partitions(ids, forgotten):
        connection.execute(delete(table).where(condition))
    for table, condition in _of_files(ids, forgotten):
        blank = update(table).where(condition)
        connection.execute(blank.values(min_key=EMPTY_ROW, max_key=EMPTY_ROW))
    for table, condition in _of_properties(ids, forgotten):
        connection.execute(update(table).where(condition).values(properties=None))
    mark_tables(connection, HOLDING)


_Conditions = Iterator[tuple[Table, ColumnElement[bool]]]


def _of_files(ids: Select[tuple[int]], held_keys: HeldKeys) -> _Conditions:
    for partition, stored in held_keys.keys:
        for batch in _pieces(sorted(stored)):
            condition = or_(FILES.c.min_key.in_(batch), FILES.c.max_key.in_(batch))
            if partition is not None:
                condition = and_(FILES.c.partition == partition, condition)
            yield FILES, and_(FILES.c.table_id.in_(ids), condition)


def _of_properties(ids: Select[tuple[int]], forgotten: HeldKeys) -> _Conditions:
    own = and_(SNAPSHOTS.c.table_id.in_(ids), SNAPSHOTS.c.state == EXPIRED)
    for text in forgotten.texts:
        shown = text.decode("utf-8", "replace")
        yield SNAPSHOTS, and_(own, SNAPSHOTS.c.properties.contains(shown, autoescape=True))


def _of_partitions(ids: Select[tuple[int]], forgotten: HeldKeys) -> _Conditions:
    for batch in _pieces(list(forgotten.emptied_partitions)):
        for table in _WITH_PARTITIONS:
            yield table, and_(table.c.table_id.in_(ids), table.c.partition.in_(batch))


def _pieces(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(values), _VALUES_PER_STATEMENT):
        yield values[start : start + _VALUES_PER_STATEMENT]


# --- as bytes ------------------------------------------------------------------------------------


@record
class Beside:
    """The files of a directory whose names share a prefix: a database and its logs."""

    file_io: FileIO
    prefix: str = ""


def texts_in(places: Iterable[Beside], texts: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the files that hold one of the texts, and the text."""
    for place in places:
        for status in place.file_io.list(""):
            if status.is_directory or not status.name.startswith(place.prefix):
                continue
            for text in _texts_of_file(place.file_io, status.path, status.size, texts):
                yield status.path, text


def _texts_of_file(file_io: FileIO, path: str, size: int, texts: Sequence[bytes]) -> set[bytes]:
    matches: set[bytes] = set()
    longest = max(map(len, texts), default=0)
    before = b""
    for offset in range(0, size, _PIECE):
        try:
            window = before + file_io.read(path, offset, _PIECE)
        except NotFoundError:  # deleted meanwhile: it holds nothing any more
            return matches
        matches |= {text for text in texts if text in window}
        before = window[-longest:]
    return matches
