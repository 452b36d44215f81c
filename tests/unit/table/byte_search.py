"""Searches a folder for bytes and values by other people's decoders alone, none of this project's.

Every file counts, whoever names it: raw bytes; Avro records, decoded by fastavro; every column of Parquet
and ORC files, decoded by PyArrow; rows of SQLite files by sqlite3, and their raw pages and logs.
"""

import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq


def files_with(folder: Path, *needles: bytes) -> list[str]:
    """The files that hold one of some byte strings, in their bytes, values or name."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder)).encode()
        contents = [name, *(_contents(path) if path.is_file() else ())]
        if any(needle in content for content in contents for needle in needles):
            found.append(name.decode())
    return found


def files_with_row(folder: Path, key: dict[str, Any]) -> list[str]:
    """The data and changelog files that have a row of a key, whatever its types."""
    found = []
    for path in sorted(folder.rglob("*")):
        rows = _rows(path) if path.is_file() else None
        if rows is not None and any(
            all(row.get(name) == value for name, value in key.items()) for row in rows.to_pylist()
        ):
            found.append(str(path.relative_to(folder)))
    return found


def least_keys(folder: Path) -> set[bytes]:
    """The stored least keys of all manifest entries below a folder."""
    return {
        record["_FILE"]["_MIN_KEY"]
        for path in folder.rglob("manifest-*")
        if "manifest-list" not in path.name
        for record in _records(path.read_bytes())
    }


def _contents(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield data
    if data[:4] == b"Obj\x01":
        yield from _flat(_records(data))
    rows = _rows(path)
    if rows is not None:
        yield from _flat(rows.to_pylist())
    if path.suffix == ".db":
        with sqlite3.connect(path) as connection:
            tables = connection.execute("select name from sqlite_master where type = 'table'")
            for (table,) in tables.fetchall():
                yield from _flat(connection.execute(f'select * from "{table}"').fetchall())
        connection.close()


def _rows(path: Path) -> pa.Table | None:
    if not path.name.startswith(("data-", "changelog-")):
        return None
    match path.suffix:
        case ".parquet":
            return pq.read_table(path, partitioning=None)
        case ".orc":
            return orc.read_table(path)
        case ".avro":
            return pa.Table.from_pylist(_records(path.read_bytes()))
    return None


def _records(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


def _flat(value: Any) -> Iterator[bytes]:
    """Every bytes and text within a value."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, dict):
        for each in value.values():
            yield from _flat(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
