"""Join files that hold columns of the same rows: each column comes from the newest file that has it.

Tables with `data-evolution.enabled` have such files: rows are appended whole, and new values of some columns
are stored in files of their own with the same row ids (plan/row_ids).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.schema.table_schema import TableSchema

ReadFile = Callable[[DataFileMeta, Sequence[str]], Iterator[pa.RecordBatch]]
"""Reads columns of one file, in the order of its rows."""


def newest_holders(
    files: Sequence[DataFileMeta], schema: TableSchema, schemas: Mapping[int, TableSchema]
) -> dict[int, int]:
    """Return, by column id, the index of the newest file that has the column. `files` come newest first."""
    holders: dict[int, int] = {}
    for index, file in enumerate(files):
        written = schemas.get(file.schema_id, schema).written_fields(file.write_columns)
        for field in written:
            holders.setdefault(field.id, index)
    return holders


def replaced_columns(
    files: Sequence[DataFileMeta], schema: TableSchema, schemas: Mapping[int, TableSchema]
) -> dict[str, frozenset[int]]:
    """Return, by file name, the columns that a newer file of the same rows replaces."""
    holders = newest_holders(files, schema, schemas)
    return {
        file.file_name: frozenset(number for number, holder in holders.items() if holder < index)
        for index, file in enumerate(files)
    }


def joined_rows(
    read: ReadFile,
    files: Sequence[DataFileMeta],
    names: Sequence[str],
    schema: TableSchema,
    schemas: Mapping[int, TableSchema],
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the rows that `files`, newest first, share; a column that none has is null.

    `_ROW_ID` and `_SEQUENCE_NUMBER` are the newest file's. Raises CorruptFileError where a column that
    is NOT NULL is in none of the files.
    """
    holders = newest_holders(files, schema, schemas)
    chosen: dict[int, list[str]] = {}
    for name in names:
        index = 0
        if name not in schema.tracking_names:
            field = schema.field(name)
            if field.id not in holders and not field.type.nullable:
                raise CorruptFileError(
                    f"no file of these rows has column {name!r}, which is NOT NULL; run verify",
                    file=files[0].file_name,
                    column=name,
                )
            index = holders.get(field.id, 0)
        chosen.setdefault(index, []).append(name)
    if len(chosen) == 1:
        ((index, only),) = chosen.items()
        yield from read(files[index], only)
        return
    streams = [
        _Stream(files[index], read(files[index], column_names))
        for index, column_names in chosen.items()
    ]
    while counts := {stream.fetched() for stream in streams} - {0}:
        count = min(counts)
        if not all(stream.waiting for stream in streams):
            short = next(stream for stream in streams if not stream.waiting)
            raise CorruptFileError(
                "files of the same row ids have different numbers of rows; run verify",
                file=short.file.file_name,
            )
        columns = {
            field.name: (field, column)
            for stream in streams
            for field, column in stream.take(count)
        }
        yield pa.RecordBatch.from_arrays(
            [columns[name][1] for name in names],
            schema=pa.schema([columns[name][0] for name in names]),
        )


class _Stream:
    """The batches of one file, sliced to the length that all files of a group have loaded."""

    def __init__(self, file: DataFileMeta, batches: Iterator[pa.RecordBatch]) -> None:
        self.file = file
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    @property
    def waiting(self) -> int:
        return 0 if self._batch is None else int(self._batch.num_rows)

    def fetched(self) -> int:
        """Fetch the next batch if the last one is used up; return the number of waiting rows."""
        while not self.waiting:
            self._batch = next(self._batches, None)
            if self._batch is None:
                break
        return self.waiting

    def take(self, count: int) -> list[tuple[pa.Field, pa.Array]]:
        assert self._batch is not None, "asked for rows that are not there"
        piece, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return list(zip(piece.schema, piece.columns, strict=True))
