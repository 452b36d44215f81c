"""Row groups of a Parquet file that another file takes over without encoding them again."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import decode_row
from lsm_engine.io.file_checksum import check_whole, footer_with_trailer
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.parquet_file import open_parquet
from lsm_engine.io.parquet_footer import has_columns_of, read_footer, stored_chunks
from lsm_engine.io.parquet_output import ParquetEncoding, StoredChunks
from lsm_engine.io.parquet_stats import column_bounds, leaf_positions
from lsm_engine.io.thrift_compact import Struct
from lsm_engine.io.written_file import FileLayout, RowGroup
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.stats import EMPTY_ROW
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER


@record
class StoredGroups:
    """The row groups of one data file without deletes, all of whose bytes are those that were written.

    `decoded`: floating point columns that may hold NaN, which the statistics of a footer leave out.
    """

    file_io: FileIO
    path: str
    footer: Struct
    metadata: "pq.FileMetaData"
    layout: FileLayout
    decoded: tuple[str, ...]

    @staticmethod
    def read(
        file_io: FileIO, path: str, file: DataFileMeta, layout: FileLayout
    ) -> "StoredGroups | None":
        """Read the row groups of a file; None if its columns are not stored as files of `layout` store them.

        `file`: of the layout's schema. Raises CorruptFileError if its checksum is not the one that its
        manifest entry has, and NotFoundError if it is missing.
        """
        assert isinstance(layout.encoding, ParquetEncoding), "only files in Parquet take copies"
        with closing(file_io.open_input(path, size=file.file_size)) as source:
            check_whole(source, file.checksum, file_name=path)
            stored = footer_with_trailer(source)
        footer = read_footer(stored)
        if not has_columns_of(footer, layout.encoding.footer):
            return None
        return StoredGroups(
            file_io=file_io,
            path=path,
            footer=footer,
            metadata=pq.read_metadata(pa.BufferReader(stored)),
            layout=layout,
            decoded=_may_have_nan(file, layout),
        )

    def group(self, number: int) -> RowGroup:
        """Return a row group as an output appends it; only columns without statistics are decoded."""
        keys = self.layout.key_names
        ends = self._bounds(number, keys[0]) if len(keys) == 1 else None
        sequences = self._bounds(number, SEQUENCE_NUMBER)
        names = [*self.decoded]
        names += () if ends is not None else keys
        names += () if sequences is not None else (SEQUENCE_NUMBER,)
        with closing(self.file_io.open_input(self.path)) as source:
            chunks = stored_chunks(source, self.footer, number)
            rows = self._read(source, number, names) if names else pa.table({})
        if ends is None:
            of_keys = rows.select(keys)
            pair = pa.concat_tables([of_keys.slice(0, 1), of_keys.slice(len(rows) - 1)])
        else:
            pair = pa.Table.from_arrays([ends], schema=self._schema(keys))
        numbers = rows.column(SEQUENCE_NUMBER) if sequences is None else sequences
        low, high = pc.min_max(numbers).as_py().values()
        row_count = self.metadata.row_group(number).num_rows
        return RowGroup(
            rows=rows,
            row_count=row_count,
            ends=pair,
            sequences=(low, high),
            delete_count=0,
            stored=StoredChunks(chunks=chunks, row_count=row_count),
            record_keys=None,
        )

    def _bounds(self, number: int, name: str) -> pa.Array | None:
        """Return the least and the greatest value of a column in a row group; None where its footer knows none."""
        columns = self.layout.columns
        leaf = leaf_positions(columns)[name]
        stored = columns.field(name).type
        bounds = column_bounds([self.metadata.row_group(number)], leaf, stored)
        if not all(bounds.is_known) or bounds.lower.null_count or bounds.upper.null_count:
            return None
        return pa.concat_arrays([bounds.lower, bounds.upper])

    def _read(self, source: Any, number: int, names: Sequence[str]) -> pa.Table:
        # The checksum of the whole file was right: pages need not be compared with theirs.
        file = open_parquet(source, self.metadata, verify_checksums=False)
        has_dots = any("." in name for name in file.schema_arrow.names)  # to PyArrow a path
        columns = None if has_dots else list(names)
        rows = file.read_row_group(number, columns, use_threads=False).select(names)
        return rows.cast(self._schema(names))

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.layout.columns.field(name) for name in names])


def _may_have_nan(file: DataFileMeta, layout: FileLayout) -> tuple[str, ...]:
    """Return the floating point columns for which a file's manifest entry has no bounds, as where it has NaN."""
    floating = [field.name for field in layout.columns if pa.types.is_floating(field.type)]
    stored = layout.stored
    if (
        not floating
        or file.value_stats_columns is not None
        or file.value_stats.max_values == EMPTY_ROW
    ):
        return tuple(floating)
    bounds = decode_row(file.value_stats.max_values, [field.type for field in stored.fields])
    bounded = {name for name, bound in zip(stored.names, bounds, strict=True) if bound is not None}
    return tuple(name for name in floating if name not in bounded)
