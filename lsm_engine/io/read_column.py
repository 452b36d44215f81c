"""One column of a read: where a file stores it, how it is read, and what rows have that store nothing."""

from functools import lru_cache
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.base.modes import FileSource
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.declared_lengths import holds_char, padded_values, upper_bounds
from lsm_engine.schema.mapping import ColumnMapping, map_fields
from lsm_engine.schema.nested_values import nulls
from lsm_engine.schema.table_schema import (
    ROW_ID,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    SameSchema,
    TableSchema,
)

SYSTEM = {SEQUENCE_NUMBER: pa.int64(), VALUE_KIND: pa.int8(), ROW_ID: pa.int64()}


class ReadColumn:
    """One column to read. `source` None: it is nowhere stored.

    `constant` is what rows have that store none; with `counted` their number in the file is added. `pads`: CHAR(n)
    is read with blanks up to n.
    """

    def __init__(
        self,
        name: str,
        source: str | None,
        mapping: ColumnMapping | None,
        *,
        constant: int | None = None,
        counted: bool = False,
        pads: bool = False,
    ) -> None:
        self.name = name
        self.pads = pads
        self.type = SYSTEM[name] if mapping is None else arrow_type(mapping.target.type)
        self.source = source
        self.mapping = mapping
        self.constant = constant
        self.counted = counted
        nullable = mapping is not None and mapping.target.type.nullable
        self.field = pa.field(name, self.type, nullable)
        self.orders_alike = constant is None and (mapping is None or mapping.orders_alike)
        self.reads_as_is = mapping is None or mapping.is_identity

    @classmethod
    def tracking(
        cls, name: str, path: str, meta: DataFileMeta, stored_names: frozenset[str]
    ) -> Self:
        """Return `_ROW_ID` or `_SEQUENCE_NUMBER` of a table that tracks rows.

        A file that rows were moved to stores them; a null there, and every row of other files, has
        what the manifest records. Raises CorruptFileError for a file whose rows have no ids.
        """
        source = name if name in stored_names else None
        if name == SEQUENCE_NUMBER:
            return cls(name, source, None, constant=meta.max_sequence_number)
        if source is None and meta.first_row_id is None:
            raise CorruptFileError(
                "the table tracks rows, but neither this file nor its manifest entry has row ids; "
                "restore it from a client that wrote them",
                file=path,
            )
        return cls(name, source, None, constant=meta.first_row_id, counted=True)

    def unstored(self, count: int, positions: pa.ChunkedArray | None) -> pa.Array:
        """Return what rows have of a column that is nowhere stored: one value, or none.

        `positions`: their numbers in the file, where the column is `counted`.
        """
        if self.constant is None:
            return nulls(count, self.type)
        if self.counted:
            return pc.add(positions, pa.scalar(self.constant, self.type))
        return pa.repeat(pa.scalar(self.constant, self.type), count)

    def upper(self, bounds: pa.Array) -> pa.Array:
        """Return upper bounds of what is read, given those of what is stored; lower ones are bounds of both."""
        kind = None if self.mapping is None else self.mapping.target.type
        return upper_bounds(kind, bounds) if self.pads and kind is not None else bounds

    def filled(self, values: pa.ChunkedArray, positions: pa.ChunkedArray | None) -> pa.ChunkedArray:
        """Return stored values with the blanks of CHAR(n), or with nulls replaced by what the manifest records."""
        if self.pads and self.mapping is not None:
            return padded_values(self.mapping.target.type, values)
        if self.constant is None or not values.null_count:
            return values
        return pc.coalesce(values, self.unstored(len(values), positions))


@lru_cache(maxsize=64)
def plain_columns(
    names: tuple[str, ...],
    file_schema: SameSchema,
    read_schema: SameSchema,
    write_columns: tuple[str, ...] | None,
) -> dict[str, ReadColumn]:
    """Return how columns are read from any file of a layout: all but those that its manifest entry fills.

    System columns are stored under their name. Worked out once for all files of a scan.
    """
    own = [name for name in names if name not in SYSTEM]
    stored = file_schema.schema.written_fields(write_columns)
    mappings = map_fields(stored, read_schema.schema.select(own))
    by_name = {mapping.target.name: mapping for mapping in mappings}
    columns = {}
    for name in names:
        mapping = by_name.get(name)
        source = name if mapping is None else mapping.source.name if mapping.source else None
        pads = (
            mapping is not None
            and holds_char(mapping.target.type)
            and name not in read_schema.schema.unpadded_keys
        )
        columns[name] = ReadColumn(name, source, mapping, pads=pads)
    return columns


def number_of_all(
    path: str, meta: DataFileMeta, names: tuple[str, ...], read_schema: TableSchema
) -> int | None:
    """Return the sequence number of every row, where the commit gave it; None: rows have their own.

    That is so for new rows of tables with `sequence.snapshot-ordering` (plan/snapshot_order).
    """
    if not read_schema.orders_by_snapshot or SEQUENCE_NUMBER not in names:
        return None
    if meta.file_source is None:
        raise UnsupportedError(
            "a file does not record whether a writer or a compaction made it, so its rows have no "
            "place in the order of snapshots; copy the rows to a new table",
            option=core_options.SEQUENCE_SNAPSHOT_ORDERING.key,
            file=path,
        )
    return meta.min_sequence_number if meta.file_source is FileSource.APPEND else None
