"""A connection to the catalog's database: SQLite by default, PostgreSQL by URL.

SQLite runs in WAL mode: readers never wait, writers wait for each other. Waits for locks are bounded, in
PostgreSQL too, and so are waits for a server that does not answer. Every write takes the write
lock at its start, so that it cannot fail halfway because of another writer; a refused transaction is
retried as a whole until well after `busy_timeout_millis`. `write` and `read` therefore take a
function that may run more than once."""

import logging
import os
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.pool import Pool, QueuePool

from lsm_engine.base.errors import (
    HIDDEN,
    AlreadyExistsError,
    CorruptFileError,
    InvalidOptionError,
    LsmError,
    StorageError,
    UnsupportedError,
    is_secret,
    unwritable_text,
)
from lsm_engine.storage.clock import SystemClock, SystemIds
from lsm_engine.storage.file_io import check_path_text

# -- PostgreSQL tables without the bytes of rows that were deleted or replaced ---------------------
#
# Nothing old may still read them.
#
# VACUUM FULL writes a table anew, but keeps each dead row that an older transaction could see,
# and does not say so. Samples of values stand in the statistics of its planner, a table of
# its own.

log = logging.getLogger(__name__)

_NOW = text("SELECT pg_current_xact_id()::xid::text")
_OLDER = text(
    """
    SELECT 'process ' || pid FROM pg_stat_activity
     WHERE pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
       AND greatest(age(backend_xmin), age(backend_xid)) > age(CAST(:now AS xid))
    UNION ALL
    SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
     WHERE database = current_database() AND age(transaction) > age(CAST(:now AS xid))
    UNION ALL
    SELECT 'replication slot ' || slot_name FROM pg_replication_slots
     WHERE (database = current_database() OR database IS NULL)
       AND greatest(age(xmin), age(catalog_xmin)) > age(CAST(:now AS xid))
    """
)
_MAY_REWRITE_STATISTICS = text(
    "SELECT rolsuper OR oid = (SELECT datdba FROM pg_database WHERE datname = current_database()) "
    "FROM pg_roles WHERE rolname = current_user"
)


class OlderTransactionError(StorageError):
    """An older transaction may still see what was deleted: try again when it is done."""


def rewrite_tables(connection: Connection, tables: Iterable[str], shown_url: str) -> None:
    """Write tables and the statistics of their values anew. `connection` commits each statement by itself.

    Raises OlderTransactionError, naming who keeps dead rows alive: then nothing is proved to be gone.
    """
    _require_unread(connection, shown_url)
    for name in tables:
        connection.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {name}")
        connection.exec_driver_sql(f"COMMENT ON TABLE {name} IS NULL")
    if connection.scalar(_MAY_REWRITE_STATISTICS):
        _require_unread(connection, shown_url)
        connection.exec_driver_sql("VACUUM FULL pg_catalog.pg_statistic")
    else:
        log.warning(
            "catalog=%s samples of what was deleted may stand in its planner's statistics: have the owner of the "
            "database run VACUUM FULL pg_catalog.pg_statistic",
            shown_url,
        )


def _require_unread(connection: Connection, shown_url: str) -> None:
    now = connection.scalar(_NOW)
    older = connection.scalars(_OLDER, {"now": now}).all()
    if older:
        raise OlderTransactionError(
            "another session may still read rows that were deleted from the catalog; end it, and run this again",
            held_by=", ".join(older)[:300],
            catalog=shown_url,
        )


# --- what still has to be written anew ------------------------------------------------------------

_MARK = "holds bytes of deleted rows until it is written anew"
_MARKED = text(
    "SELECT count(*) FROM pg_class WHERE relname = ANY(:tables) AND relnamespace = current_schema()::regnamespace "
    "AND obj_description(oid, 'pg_class') = :mark"
)


def mark_tables(connection: Connection, tables: Iterable[str]) -> None:
    """Note that tables hold deleted rows, in the transaction that deletes them: a rewrite that fails is missed."""
    for name in tables if connection.dialect.name == "postgresql" else ():
        connection.exec_driver_sql(f"COMMENT ON TABLE {name} IS '{_MARK}'")


def count_marked(connection: Connection, tables: Iterable[str]) -> int:
    """Return the number of tables that were not rewritten since rows were deleted from them.

    None of SQLite, whose file is searched as bytes.
    """
    # SQLite keeps no such count.
    if connection.dialect.name != "postgresql":
        return 0
    marked = connection.scalar(_MARKED, {"tables": list(tables), "mark": _MARK})
    return int(marked or 0)


# -- A connection to the catalog's database: SQLite by default, PostgreSQL by URL ------------------

T = TypeVar("T")
Rows = list[dict[str, Any]]

BUSY_TIMEOUT_MILLIS = 30_000
_BEGIN = "lsm_begin"
_READ, _WRITE = "BEGIN", "BEGIN IMMEDIATE"
_RETRY_FIRST_MILLIS, _RETRY_MAX_MILLIS = 5, 500
# A lock held for just as long as one attempt waits gets a second attempt.
_PATIENCE = 1.5
_PRAGMAS = ("foreign_keys = ON", "trusted_schema = OFF", "synchronous = FULL")
_SQLITE_DAMAGED = (
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_ERROR,  # our statements are fixed: one that is refused meets another schema
)  # fmt: skip
_SQLITE_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_SQLITE_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# serialization_failure, deadlock_detected, lock_not_available
_POSTGRESQL_BUSY = ("40001", "40P01", "55P03")
_POSTGRESQL = "postgresql+psycopg"
"""The driver that is meant where a URL names none; versions of SQLAlchemy differ in that."""
_JDBC_SQLITE = re.compile(r"^jdbc:sqlite:(file:)?(?=[^:])")
_CONNECT_SECONDS_MAX = 10
_UNACKNOWLEDGED_MILLIS = 20_000
"""After that a connection whose bytes are not acknowledged is given up."""
_POSTGRESQL_NOT_THERE = ("42P01",)  # undefined_table

_CLOCK, _IDS = SystemClock(), SystemIds()

_LOOKS_AT_EMPTY, _LOOK_MILLIS = 3, 20

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_inherited: list[Pool] = []


def _leave_connections_to_the_parent() -> None:
    """After a fork: a child neither uses nor closes the connections of its parent."""
    for engine in list(_engines):
        _inherited.append(engine.pool)
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_connections_to_the_parent)


class Database:
    """Runs functions inside transactions. Threads and forked processes may share one."""

    def __init__(self, url: URL, *, busy_timeout_millis: int = BUSY_TIMEOUT_MILLIS) -> None:
        self.url = url
        self.dialect = url.get_backend_name()
        self._busy_timeout_millis = busy_timeout_millis
        self._engine = _engine(url, busy_timeout_millis)
        self._file: tuple[int, int] | None = None
        self._makes_file = self.path is not None and not os.path.exists(self.path)
        _engines.add(self._engine)

    def __repr__(self) -> str:
        return f"Database({self.shown_url!r})"

    def __reduce__(self) -> NoReturn:
        # Whatever holds a catalog's lineage or listeners ends here: connections belong to their process.
        raise TypeError(
            "cannot pickle 'Database' object: send the catalog's url and warehouse, and call "
            "lsm.open_catalog(url, warehouse=warehouse) there"
        )

    @property
    def shown_url(self) -> str:
        """The URL without its password and other secrets, which drivers also take as parameters."""
        hidden = {name: HIDDEN for name in self.url.query if is_secret(name)}
        return self.url.update_query_dict(hidden).render_as_string(hide_password=True)

    def waiting(self, busy_timeout_millis: int) -> "Database":
        """Return the same database with another patience; one in memory has one connection only."""
        # Another connection to memory would be another, empty database.
        if self.is_in_memory:
            return self
        return Database(self.url, busy_timeout_millis=busy_timeout_millis)

    @property
    def is_in_memory(self) -> bool:
        """Whether the database ends with this process."""
        return self.dialect == "sqlite" and self.path is None

    @property
    def path(self) -> str | None:
        """The file of a SQLite database; None for one in memory and for other databases."""
        return sqlite_path(self.url)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, seeing one state of the database throughout."""
        return self._run(work, _READ)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, all of its changes made or none. `work` may run again."""
        return self._run(work, _WRITE)

    def close(self) -> None:
        """Close idle connections; later work opens new ones."""
        self._engine.dispose()

    def switch_to_wal(self) -> None:
        """Turn the write-ahead log on; it is part of the file from then on.

        SQLite goes on without one if it cannot have one (no shared memory).
        """

        def attempt() -> None:
            with self._engine.connect() as pooled:
                connection = pooled.execution_options(**{_BEGIN: ""})
                if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")

        self.patiently(attempt)

    def write_anew(self, tables: Iterable[str]) -> None:
        """Rewrite the database's files without deleted and replaced bytes.

        SQLite: the whole file, and its write-ahead log is emptied. PostgreSQL: the tables named, once no
        older transaction can see what was deleted. Raises StorageError while another connection prevents that.
        """

        def attempt() -> None:
            with self._engine.connect() as pooled:
                if self.dialect == "postgresql":
                    connection = pooled.execution_options(isolation_level="AUTOCOMMIT")
                    # PostgreSQL refuses VACUUM within a transaction.
                    rewrite_tables(connection, tables, self.shown_url)
                    return
                connection = pooled.execution_options(**{_BEGIN: ""})
                connection.exec_driver_sql("VACUUM")
                busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").first()
            if busy is not None and busy[0]:
                raise StorageError(
                    "another process reads the catalog, so that its log could not be emptied; close other "
                    "programs and run it again",
                    catalog=self.shown_url,
                )

        if not self.is_in_memory:
            self.patiently(attempt)

    def _run(self, work: Callable[[Connection], T], begin: str) -> T:
        def attempt() -> T:
            self._follow_file()
            with self._engine.connect() as pooled:
                options: dict[str, Any] = {_BEGIN: begin}
                if self.dialect == "postgresql" and begin == _READ:
                    options["isolation_level"] = "REPEATABLE READ"  # else each statement sees anew
                connection = pooled.execution_options(**options)
                with connection.begin():
                    return work(connection)

        return self.patiently(attempt)

    def _follow_file(self) -> None:
        """Drop connections to a file that was replaced: SQLite would write to the old one."""
        # A database in memory and PostgreSQL have no file.
        if self.path is None:
            return
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise StorageError(
                "the catalog's file is missing, or cannot be reached; 'lsm catalog rebuild' makes it anew "
                "from the warehouse",
                catalog=self.shown_url,
            ) from error
        # Another inode under the same name is another file.
        if self._file not in (None, (status.st_dev, status.st_ino)):
            self._engine.dispose()
        self._file = (status.st_dev, status.st_ino)

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Run `attempt` until the database is not busy; its failures become LsmErrors."""
        until = _CLOCK.monotonic_millis() + _PATIENCE * self._busy_timeout_millis
        longest = _RETRY_FIRST_MILLIS
        while True:
            # SQLite would wait for a lock that is never released. A file that is being made anew beside the log of
            # one that was deleted is empty for a moment, too: it is looked at again.
            if self._is_emptied() and not self._is_being_made():
                raise self._emptied()
            try:
                answer = attempt()
                self._makes_file = self._makes_file and self._is_emptied()
                return answer
            except (exc.SQLAlchemyError, sqlite3.Error) as error:
                # Any other error stays the same however long this waits.
                if not _is_busy(error) or _CLOCK.monotonic_millis() >= until:
                    raise self._explained(error) from error
            except OlderTransactionError:
                if _CLOCK.monotonic_millis() >= until:
                    raise
            except UnicodeEncodeError as error:
                raise unwritable_text(error) from error
            # Jitter: waiters for one lock do not all retry at the same time.
            _CLOCK.sleep_millis(round(longest * _IDS.fraction()))
            longest = min(2 * longest, _RETRY_MAX_MILLIS)

    def _is_being_made(self) -> bool:
        """Whether an empty file is new: SQLite creates it shortly before its first page."""
        for _ in range(_LOOKS_AT_EMPTY):
            _CLOCK.sleep_millis(_LOOK_MILLIS)
            if not self._is_emptied():
                return True
        return self._makes_file

    def _is_emptied(self) -> bool:
        """Whether the catalog's file is empty while a log lies beside it, which is made after the file."""
        if self.path is None:
            return False
        try:
            return os.stat(self.path).st_size == 0 and os.path.exists(f"{self.path}-shm")
        except OSError:
            return False  # the next attempt reports a file that is gone

    def _emptied(self) -> CorruptFileError:
        return CorruptFileError(
            "the catalog's file is empty: it was truncated while programs had it open; end them, and run "
            "'lsm catalog rebuild', which makes it anew from the warehouse",
            catalog=self.shown_url,
        )

    def _explained(self, error: exc.SQLAlchemyError | sqlite3.Error) -> LsmError:
        original = getattr(error, "orig", None) or error
        code = _sqlite_code(error)
        facts: dict[str, Any] = {"catalog": self.shown_url, "cause": type(original).__name__}
        # A busy database is in order, so the caller only has to retry.
        if _is_busy(error):
            return StorageError(
                "the catalog is busy: another process keeps it locked; retry when it is done",
                busy_timeout_millis=self._busy_timeout_millis,
                **facts,
            )
        # A constraint fails where another process inserted the same name first.
        if isinstance(error, exc.IntegrityError):
            return AlreadyExistsError("another process was faster; look again", **facts)
        no_text = "decode to UTF-8" in str(original)
        if code in _SQLITE_DAMAGED or no_text or _lacks_a_table(error):
            return CorruptFileError(
                "the catalog is damaged or not a database; 'lsm catalog rebuild' moves it aside and "
                "makes it anew from the warehouse",
                **facts,
            )
        if code in _SQLITE_UNWRITABLE:
            return StorageError(
                "this user may not write to the catalog's file or its directory, which SQLite does even to read: give "
                "the user access, or use a catalog of its own: open_catalog('sqlite:///own.db', warehouse=…), then "
                "catalog.register_found_tables()",
                code=getattr(original, "sqlite_errorname", None),
                **facts,
            )
        return StorageError(
            "the catalog's database refused; see the cause above",
            code=getattr(original, "sqlite_errorname", None) or _sqlstate(error),
            **facts,
        )


def open_url(url: str) -> URL:
    """Return `url` parsed, a SQLite path made absolute; typed errors for what we cannot open.

    Also URLs as Java and pypaimon spell them: jdbc:sqlite:lake.db, jdbc:postgresql://host/db?user=me.
    """
    text = _JDBC_SQLITE.sub("sqlite:///", url).removeprefix("jdbc:")
    try:
        parsed = make_url(text)
    except (exc.ArgumentError, ValueError):
        parsed = None
    if parsed is None:  # raised here, as the error that is handled above may repeat a password
        raise InvalidOptionError("this is not a database URL; write 'sqlite:///path/to/catalog.db'")
    if parsed.get_backend_name() != "sqlite" and _cuts_password(text):
        raise InvalidOptionError(
            "the user name or password of the database URL holds '@', '/' or '?', so that a part of it would be "
            "taken for the host; write these as %40, %2F and %3F"
        )
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise UnsupportedError(
            "this database cannot hold a catalog; use sqlite or postgresql, or give the path of a directory "
            "as it is",
            database=parsed.get_backend_name(),
        )
    if parsed.get_backend_name() != "sqlite":
        if parsed.drivername in ("postgresql", _POSTGRESQL) and find_spec("psycopg") is None:
            raise UnsupportedError(
                "the driver of PostgreSQL is not installed: pip install 'lsm-assets[postgresql]'"
            )
        return parsed.set(drivername=_POSTGRESQL) if parsed.drivername == "postgresql" else parsed
    if parsed.query or (parsed.database or "").startswith("file:"):
        raise InvalidOptionError(
            "a sqlite URL takes no parameters; write 'sqlite:///path/to/catalog.db'"
        )
    if parsed.host:
        raise InvalidOptionError(
            "a sqlite URL has three slashes before a path: write 'sqlite:///path/to/catalog.db'"
        )
    path = sqlite_path(parsed)
    if path is not None:
        check_path_text(path)
    return parsed if path is None else parsed.set(database=os.path.abspath(path))


def _cuts_password(url: str) -> bool:
    """Whether a URL has an "@" that is not the one before its host."""
    location = url.partition("://")[2]
    before_query = location.partition("?")[0]
    if "@" in re.split("[/?]", location, maxsplit=1)[0]:
        return before_query.count("@") > 1
    return "@" in before_query or "@" in location.partition("/")[0]


def sqlite_path(url: URL) -> str | None:
    """Return the file that a SQLite URL names, None for memory and for other databases."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return url.database


def _engine(url: URL, busy_timeout_millis: int) -> Engine:
    # PostgreSQL has connections of its own, each checked before it is used.
    if url.get_backend_name() != "sqlite":
        engine = create_engine(
            url,
            hide_parameters=True,
            connect_args=_unanswered(url, busy_timeout_millis),
            pool_pre_ping=True,
            pool_timeout=max(1.0, busy_timeout_millis / 1000),
        )
        event.listen(engine, "connect", partial(_prepare_postgresql, busy_timeout_millis))
        return engine
    in_memory = sqlite_path(url) is None
    engine = create_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": busy_timeout_millis / 1000, "check_same_thread": False},
        poolclass=QueuePool,
        # A database in memory lives in its one connection, which threads take in turns.
        pool_size=1 if in_memory else 5,
        max_overflow=0 if in_memory else 10,
        pool_timeout=max(1.0, busy_timeout_millis / 1000),
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _unanswered(url: URL, busy_timeout_millis: int) -> dict[str, int]:
    """Return how long to wait for a server or a network that says nothing, where the URL does not tell.

    In libpq's names. Without it an unreachable host, or a connection that the network dropped, costs minutes.
    """
    connect_seconds = min(_CONNECT_SECONDS_MAX, max(2, busy_timeout_millis // 1000))
    bounds = {
        "connect_timeout": connect_seconds,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": _UNACKNOWLEDGED_MILLIS,
    }
    return {name: bound for name, bound in bounds.items() if name not in url.query}


def _prepare_postgresql(busy_timeout_millis: int, connection: Any, _record: object) -> None:
    """Bound waits for locks, which PostgreSQL would wait for without end, as SQLite's are."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {int(busy_timeout_millis)}")
    connection.commit()


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions; _begin_sqlite does
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    begin = connection.get_execution_options().get(_BEGIN, "BEGIN")
    if begin:
        connection.exec_driver_sql(begin)


def _sqlite_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code, without the extension in its higher bits."""
    code = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _sqlstate(error: BaseException) -> str | None:
    original = getattr(error, "orig", None)
    return getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)


def _is_busy(error: BaseException) -> bool:
    return _sqlite_code(error) in _SQLITE_BUSY or _sqlstate(error) in _POSTGRESQL_BUSY


def _lacks_a_table(error: BaseException) -> bool:
    # SQLite has one code for every kind of wrong SQL, so its words decide.
    missing = "no such table" in str(getattr(error, "orig", ""))
    return missing or _sqlstate(error) in _POSTGRESQL_NOT_THERE
