"""Row groups of a Parquet file as they are stored, to become part of another file without being encoded again."""

from contextlib import closing

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.io.file_checksum import check_whole, footer_with_trailer
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.parquet_file import open_parquet
from lsm_engine.io.parquet_footer import has_columns_of, only_file_of, read_footer
from lsm_engine.io.parquet_output import ParquetEncoding, ParquetGroup
from lsm_engine.io.thrift_compact import Struct
from lsm_engine.meta.data_file import DataFileMeta


@record
class StoredGroups:
    """The row groups of one data file, all of whose bytes are those that were written."""

    file_io: FileIO
    path: str
    footer: Struct
    encoding: ParquetEncoding

    @staticmethod
    def of(
        file_io: FileIO, path: str, file: DataFileMeta, encoding: ParquetEncoding
    ) -> "StoredGroups | None":
        """Read all of a file; None if its columns are not stored as `encoding` stores them.

        Raises CorruptFileError if its checksum is not the one that its manifest entry has, and
        NotFoundError if it is missing.
        """
        with closing(file_io.open_input(path, size=file.file_size)) as source:
            check_whole(source, file.checksum, file_name=path)
            footer = read_footer(footer_with_trailer(source))
        if not has_columns_of(footer, encoding.footer):
            return None
        return StoredGroups(file_io=file_io, path=path, footer=footer, encoding=encoding)

    def group(self, number: int, columns: pa.Schema) -> tuple[pa.Table, ParquetGroup]:
        """Return some columns of a row group, and the whole of it as an output appends it."""
        with closing(self.file_io.open_input(self.path)) as source:
            made = pa.py_buffer(only_file_of(source, self.footer, number, self.encoding.footer))
        file = open_parquet(pa.BufferReader(made), None, verify_checksums=True)
        has_dots = any("." in name for name in file.schema_arrow.names)  # to PyArrow a path
        rows = file.read_row_group(0, None if has_dots else columns.names, use_threads=False)
        stored = ParquetGroup(
            file=made, footer=file.metadata, row_count=rows.num_rows, shares_keys=False
        )
        return rows.select(columns.names).cast(columns), stored
