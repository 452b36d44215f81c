"""System tables of what verification finds wrong, by metadata alone or by reading every page."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import DamagedFile
from lsm_engine.table.integrity.verify import verify

_TEXTS = pa.list_(pa.string())
_IDS = pa.list_(pa.int64())
DAMAGED_FILES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False),
        ("problems", _TEXTS),
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("level", pa.int32()),
        ("record_count", pa.int64()),
        ("delete_row_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("snapshots", _IDS),
        ("tags", _TEXTS),
        ("changelogs", _IDS),
        ("branches", _TEXTS),
        ("sources", _TEXTS),
    ]
)


def damaged_files(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the files that are missing, or whose documents, sizes or references are wrong."""
    del snapshot  # every root is looked at
    return _rows(verify(session).damaged_files)


def deep_damaged_files(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the same, and data files with a page or a row that is wrong: reads the whole table."""
    del snapshot
    return _rows(verify(session, deep=True).damaged_files)


def _rows(files: tuple[DamagedFile, ...]) -> pa.Table:
    return pa.Table.from_pylist([_row(file) for file in files], schema=DAMAGED_FILES)


def _row(file: DamagedFile) -> dict[str, object]:
    stake = file.stake
    row: dict[str, object] = {
        "file_path": file.path,
        "problems": file.problems,
        "snapshots": file.snapshots,
        "tags": file.tags,
        "changelogs": file.changelogs,
        "branches": file.branches,
        "sources": file.sources,
    }
    if stake is None:
        return row
    return row | {
        "partition": _text(stake.partition),
        "bucket": stake.bucket,
        "level": stake.level,
        "record_count": stake.row_count,
        "delete_row_count": stake.delete_count,
        "file_size_in_bytes": stake.byte_count,
        "min_key": _text(stake.min_key),
        "max_key": _text(stake.max_key),
    }


def _text(values: Mapping[str, object] | None) -> str | None:
    if values is None:
        return None
    return ", ".join(f"{name}={value}" for name, value in values.items())


MADE: Mapping[str, tuple[pa.Schema, Callable[[TableSession, Snapshot | None], pa.Table]]] = {
    "damaged_files": (DAMAGED_FILES, damaged_files),
    "damaged_files_deep": (DAMAGED_FILES, deep_damaged_files),
}
