"""What time it is by the clock that stamps a table's files."""

from lsm_engine.table.ground.session import TableSession


def storage_now(session: TableSession) -> int:
    """Ask the storage, by writing a file and looking at its stamp: milliseconds since 1970 UTC."""
    path = session.paths.at(f".clock.{session.ids.new_id()}.tmp")
    session.file_io.write_new(path, b"")
    try:
        return session.file_io.status(path).modified_millis
    finally:
        session.file_io.delete(path)
