"""Moves a damaged catalog file aside, so that a rebuilt one can take its place."""

import os
from pathlib import Path

from sqlalchemy import Connection, select

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.catalog.database import Database, open_url
from lsm_engine.catalog.migrations import open_database
from lsm_engine.catalog.models import METADATA
from lsm_engine.io.storage_errors import to_storage_error

_ENDINGS = (".db", ".sqlite", ".sqlite3")
_BESIDE = ("", "-wal", "-shm", "-journal")


def set_damaged_file_aside(url: str) -> str | None:
    """Move the file of a damaged SQLite catalog to "<file>.damaged-1", -2, …; return that path.

    None, and nothing moved, for a sound catalog, one that does not exist yet, and one on a server.
    Every page is checked. Raises CorruptFileError for a file that is no database and is not named like
    one, and what opening raises for a database of something else, or of a newer version.
    """
    database = Database(open_url(url))
    if database.path is None or not os.path.exists(database.path):
        return None
    try:
        open_database(database)
        database.read(_check_pages)
    except CorruptFileError:
        if not database.path.endswith(_ENDINGS):
            raise
    else:
        return None
    finally:
        database.close()
    return _moved(database.path)


def _check_pages(connection: Connection) -> None:
    result = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
    if result != "ok":
        raise CorruptFileError("the catalog's pages do not agree with each other", cause=result)
    for table in METADATA.sorted_tables:
        connection.execute(select(table).limit(1)).all()


def _moved(path: str) -> str:
    number = 1
    while os.path.lexists(f"{path}.damaged-{number}"):
        number += 1
    aside = f"{path}.damaged-{number}"
    try:
        for suffix in _BESIDE:
            if Path(f"{path}{suffix}").exists():
                os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    except OSError as cause:
        raise to_storage_error(path, cause) from cause
    return aside
