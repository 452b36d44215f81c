"""Rows of a folder: Parquet files, or a Delta table as its log says."""

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from lsm_engine import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.cli.row_files import RowSource

DELTA_LOG = "_delta_log"
_OTHER_LOGS = ("metadata", ".hoodie", "snapshot")


class FolderRows(NamedTuple):
    """The rows of a folder, and their number."""

    data: ds.Dataset
    row_count: int

    def source(self) -> RowSource:
        """Return the rows in batches."""
        return RowSource(reader=self.data.scanner().to_reader(), row_count=self.row_count)

    def files(self, folder: str) -> list[str]:
        """Return where the files lie that hold them."""
        is_within = isinstance(self.data.filesystem, SubTreeFileSystem)
        return [str(Path(folder if is_within else "", path)) for path in self.data.files]

    def require_columns(self, names: Collection[str], folder: str) -> None:
        """Raise InvalidInputError for columns that a table of these names would leave out.

        Folders named column=value hold columns of which the files below them have nothing.
        """
        extra = [name for name in self.data.schema.names if name not in names]
        if extra:
            raise InvalidInputError(
                f"no column {extra[0]!r} in the table: add it with lsm alter, or leave what holds it out",
                kind=ErrorKind.INVALID_ROWS,
                folder=folder,
                columns=extra,
            )


def folder_rows(folder: str) -> FolderRows:
    """Return the rows of a folder; its files stay as they are.

    Those of a Delta table are those of its newest version. Else they are those of all Parquet files
    below the folder, with all columns that any of them has. Raises InvalidInputError for a table of
    another format, whose log says which of its files count; UnsupportedError without the extra
    `delta`, and for Delta tables with deletion vectors or mapped columns, which it does not read.
    """
    if Path(folder, DELTA_LOG).is_dir():
        return _delta_rows(folder)
    logs = [name for name in _OTHER_LOGS if Path(folder, name).is_dir()]
    if logs:
        raise InvalidInputError(
            f"{folder} is a table with a log of its own ({logs[0]}): some of its files may not count; export "
            "its rows with its own client, and import those",
            kind=ErrorKind.INVALID_NAME,
        )
    try:
        dataset = ds.dataset(folder, format="parquet", partitioning="hive")
        own = [fragment.physical_schema for fragment in dataset.get_fragments()]
        return _counted(dataset.replace_schema(pa.unify_schemas([dataset.schema, *own])))
    except pa.ArrowException as cause:
        raise InvalidInputError(f"cannot read {folder} as Parquet files: {cause}") from cause


def _delta_rows(folder: str) -> FolderRows:
    try:
        deltalake = import_module("deltalake")
        errors = import_module("deltalake.exceptions")
    except ImportError as cause:
        raise UnsupportedError(
            f"{folder} is a Delta table, whose log deltalake reads: pip install 'lsm-assets[delta]'",
            extra="delta",
        ) from cause
    try:
        # Its log alone by deltalake: files read through its own file system now and then end the
        # process by an abort.
        files = SubTreeFileSystem(folder, LocalFileSystem())
        return _counted(deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=files))
    except (errors.DeltaError, pa.ArrowException, OSError) as cause:
        raise UnsupportedError(
            f"cannot read the Delta table {folder}: {cause}; export its rows with Spark, and import those"
        ) from cause


def _counted(data: ds.Dataset) -> FolderRows:
    return FolderRows(data, data.count_rows())
