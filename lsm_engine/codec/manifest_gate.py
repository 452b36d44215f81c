"""Facts in metadata that only features of newer clients leave behind, refused by name.

Refused whatever the table's options are: rows read past such a fact would be wrong, and files
written beside it would make other clients refuse the table.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.base.modes import FileFormat
from lsm_engine.meta.index_file import DELETION_VECTORS, HASH, IndexManifestEntry
from lsm_engine.meta.manifest import ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot

_FILE_NAME = "_FILE._FILE_NAME"
_VECTOR_FILE = ".vector."
GATE_COLUMNS = (
    _FILE_NAME, "_FILE._FIRST_ROW_ID", "_FILE._WRITE_COLS", "_FILE._EXTERNAL_PATH",
)  # fmt: skip
"""Columns of a manifest that `refuse_foreign_entries` looks at."""

_ROW_TRACKING = "row tracking (row-tracking.enabled)"
_DATA_EVOLUTION = "data evolution (data-evolution.enabled)"
_EXTERNAL_PATHS = "files outside the table (data-file.external-paths)"
_EXTENSIONS = tuple(f".{file_format.value}" for file_format in FileFormat)
_OTHER_CONTAINERS = {b"ORC": "orc", b"PAR1": "parquet"}
"""How files of other formats than Avro begin, as `manifest.format` names them."""


def refuse_foreign_container(data: bytes, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for metadata that is stored as ORC or Parquet and not as Avro."""
    for magic, name in _OTHER_CONTAINERS.items():
        if data.startswith(magic):
            raise _refusal(f"metadata in another format (manifest.format={name})", file_name, table)


def refuse_row_id_entries(entries: pa.Table, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for entries whose files have row ids, or only some of the columns.

    For tables whose options know nothing of it.
    """
    names = entries.column(_FILE_NAME)
    for column, feature in (
        ("_FILE._FIRST_ROW_ID", _ROW_TRACKING),
        ("_FILE._WRITE_COLS", _DATA_EVOLUTION),
        ("_FILE._EXTERNAL_PATH", _EXTERNAL_PATHS),
    ):
        values = entries.column(column)
        if values.null_count < len(values):
            raise _refusal(feature, _first(names, pc.is_valid(values)), table, manifest=file_name)


def refuse_foreign_entries(entries: pa.Table, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for entries, of GATE_COLUMNS at least, whose files we do not read."""
    names = entries.column(_FILE_NAME)
    vectors = pc.match_substring(names, _VECTOR_FILE)
    if entries.num_rows and pc.any(vectors).as_py():
        raise _refusal(
            "vector columns in files of their own",
            _first(names, vectors),
            table,
            manifest=file_name,
        )
    has_extension = pc.ends_with(names, pattern=_EXTENSIONS[0])
    for extension in _EXTENSIONS[1:]:
        has_extension = pc.or_(has_extension, pc.ends_with(names, pattern=extension))
    if entries.num_rows and not pc.all(has_extension).as_py():
        raise _refusal(
            "data files in another format than parquet, orc and avro",
            _first(names, pc.invert(has_extension)),
            table,
            manifest=file_name,
        )


def _first(names: pa.ChunkedArray, mask: pa.ChunkedArray) -> str:
    return str(names.filter(mask)[0].as_py())


def refuse_row_id_list(metas: Sequence[ManifestFileMeta], *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for a manifest list that counts row ids."""
    for meta in metas:
        if meta.min_row_id is not None:
            raise _refusal(_ROW_TRACKING, file_name, table, manifest=meta.file_name)


def refuse_foreign_indexes(
    entries: Sequence[IndexManifestEntry], *, file_name: str, table: str
) -> None:
    """Raise UnsupportedError for index files of a kind that we would not keep right."""
    for entry in entries:
        kind = entry.index_file.index_type
        if kind not in (HASH, DELETION_VECTORS):
            raise _refusal(
                f"index files of type {kind!r}",
                entry.index_file.file_name,
                table,
                manifest=file_name,
            )
        if entry.index_file.external_path is not None:
            raise _refusal(_EXTERNAL_PATHS, entry.index_file.file_name, table, manifest=file_name)


def refuse_row_ids(snapshot: Snapshot, *, table: str) -> None:
    """Raise UnsupportedError for a snapshot after which new rows would have to be given ids."""
    if snapshot.next_row_id:
        raise _refusal(_ROW_TRACKING, f"snapshot-{snapshot.id}", table)


def _refusal(feature: str, file_name: str, table: str, **facts: object) -> UnsupportedError:
    return UnsupportedError(
        f"this version does not support {feature}; nothing was read or written",
        kind=ErrorKind.UNSUPPORTED_FORMAT,
        table=table,
        file=file_name,
        **facts,
    )
