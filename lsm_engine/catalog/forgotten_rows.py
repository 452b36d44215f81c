"""Keys in the catalog: the least and greatest of data files, and partitions that are gone.

The history stays, without the keys: which files there were, which snapshot and run made them, how many
rows they had. Rows about a partition that is gone, and whose value was a key, go as a whole.
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
"""Stored keys by the partition that they are in; None: in any."""
_WITH_PARTITIONS = (FILES, COMPACTIONS, FILE_EDGES)
HOLDING = tuple(table.name for table in (*_WITH_PARTITIONS, SNAPSHOTS))
"""Tables whose rows may hold keys."""
_VALUES_PER_STATEMENT = 500
_PIECE = 8 << 20
_TableFilter = Sequence[ColumnElement[bool]]


@record
class HeldKeys:
    """What a table's rows are to forget: stored keys, partitions that are gone, and texts."""

    keys: KeysByPartition
    emptied_partitions: Sequence[bytes] = ()
    texts: Sequence[bytes] = ()


def count_rows(connection: Connection, of_table: _TableFilter, held: HeldKeys) -> int:
    """Return how many rows hold one of some keys, or a partition that is gone.

    A table of PostgreSQL that could not be written anew since some went counts as one.
    """
    ids = select(TABLES.c.table_id).where(*of_table)
    conditions = (*_of_files(ids, held), *_of_partitions(ids, held), *_of_properties(ids, held))
    rows = sum(
        connection.scalar(select(func.count()).select_from(table).where(condition)) or 0
        for table, condition in conditions
    )
    return rows + count_marked(connection, HOLDING)


def forget_rows(connection: Connection, of_table: _TableFilter, held: HeldKeys) -> None:
    """Blank the keys in rows about files, and properties of snapshots that have expired; delete the
    rows of partitions that are gone.
    """
    ids = select(TABLES.c.table_id).where(*of_table)
    for table, condition in _of_partitions(ids, held):
        connection.execute(delete(table).where(condition))
    for table, condition in _of_files(ids, held):
        blank = update(table).where(condition)
        connection.execute(blank.values(min_key=EMPTY_ROW, max_key=EMPTY_ROW))
    for table, condition in _of_properties(ids, held):
        connection.execute(update(table).where(condition).values(properties=None))
    mark_tables(connection, HOLDING)


_Conditions = Iterator[tuple[Table, ColumnElement[bool]]]


def _of_files(ids: Select[tuple[int]], held_keys: HeldKeys) -> _Conditions:
    for partition, stored in held_keys.keys:
        for some in _pieces(sorted(stored)):
            held = or_(FILES.c.min_key.in_(some), FILES.c.max_key.in_(some))
            if partition is not None:
                held = and_(FILES.c.partition == partition, held)
            yield FILES, and_(FILES.c.table_id.in_(ids), held)


def _of_properties(ids: Select[tuple[int]], held: HeldKeys) -> _Conditions:
    own = and_(SNAPSHOTS.c.table_id.in_(ids), SNAPSHOTS.c.state == EXPIRED)
    for text in held.texts:
        shown = text.decode("utf-8", "replace")
        yield SNAPSHOTS, and_(own, SNAPSHOTS.c.properties.contains(shown, autoescape=True))


def _of_partitions(ids: Select[tuple[int]], held: HeldKeys) -> _Conditions:
    for some in _pieces(list(held.emptied_partitions)):
        for table in _WITH_PARTITIONS:
            yield table, and_(table.c.table_id.in_(ids), table.c.partition.in_(some))


def _pieces(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(values), _VALUES_PER_STATEMENT):
        yield values[start : start + _VALUES_PER_STATEMENT]


# --- as bytes ------------------------------------------------------------------------------------


@record
class Beside:
    """The files of a directory whose names begin alike: a database's, with its logs."""

    file_io: FileIO
    prefix: str = ""


def texts_in(places: Iterable[Beside], texts: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the files that hold one of some texts, and the text."""
    for place in places:
        for status in place.file_io.list(""):
            if status.is_directory or not status.name.startswith(place.prefix):
                continue
            for text in _found(place.file_io, status.path, status.size, texts):
                yield status.path, text


def _found(file_io: FileIO, path: str, size: int, texts: Sequence[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    longest = max(map(len, texts), default=0)
    before = b""
    for offset in range(0, size, _PIECE):
        try:
            window = before + file_io.read(path, offset, _PIECE)
        except NotFoundError:
            return found
        found |= {text for text in texts if text in window}
        before = window[-longest:]
    return found
