"""Schemas and rows for tests of data files."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.data_files.reader import ReadColumns, open_data_file
from lsm_engine.data_files.writer import DataFileWriter, NewFiles
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.options.table_options import given_options
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.types.types import parse_field
from tests.fault.doubles import ManualClock, NumberedIds


def schema(*columns, keys=("k",), partition=(), id_=0, **options):
    """`schema(("k", "INT NOT NULL"), ("v", "STRING"))`; a third member is the field id."""
    fields = tuple(
        parse_field({"id": rest[0] if rest else at, "name": name, "type": type_})
        for at, (name, type_, *rest) in enumerate(columns)
    )
    return TableSchema(
        id=id_,
        fields=fields,
        highest_field_id=max(field.id for field in fields),
        partition_keys=tuple(partition),
        primary_keys=tuple(keys),
        options=given_options({key.replace("_", "-"): value for key, value in options.items()}),
    )


def rows(of, columns, sequence=0, kinds=None):
    """Rows of `of.key_value_arrow` from Python lists; sequence numbers count from `sequence`."""
    count = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[name], of.key_value_arrow.field(name).type)
        if not isinstance(columns[name], pa.Array)
        else columns[name]
        for name in of.names
    ]
    if of.has_primary_key:
        arrays += [
            pa.array(range(sequence, sequence + count), pa.int64()),
            pa.array(kinds or [0] * count, pa.int8()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=of.key_value_arrow)
    return pa.RecordBatch.from_arrays(arrays, schema=of.arrow)


def writer(disk, of, **more):
    """A writer into bucket-0 whose ids and clock are the tests'."""
    first = more.pop("first_sequence_number", 0)
    files = NewFiles(schema=of, directory="bucket-0", **more)
    return DataFileWriter(
        disk, files, ids=NumberedIds(), clock=ManualClock(), first_sequence_number=first
    )


def write(disk, of, *batches, **more):
    """Write batches to bucket-0 and return the files."""
    made = writer(disk, of, **more)
    for batch in batches:
        made.write(batch)
    return made.close()


def read_back(disk, meta, file_schema, read_schema=None, **more):
    """Return an open reader of a file in bucket-0."""
    columns = ReadColumns(
        file_schema=file_schema,
        read_schema=read_schema or file_schema,
        names=more.pop("names", None),
        with_positions=more.pop("with_positions", False),
    )
    return open_data_file(disk, f"bucket-0/{meta.file_name}", meta, columns, **more)


def foreign(table, *, name="data-foreign-0.parquet", **how):
    """Return a disk with a file as somebody else wrote it, and a meta for it."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    disk = MemoryFileIO()
    disk.write_new(f"bucket-0/{name}", sink.getvalue())
    meta = DataFileMeta(
        file_name=name, file_size=len(sink.getvalue()), row_count=table.num_rows,
        min_key=EMPTY_ROW, max_key=EMPTY_ROW, key_stats=EMPTY_STATS, value_stats=EMPTY_STATS,
        min_sequence_number=0, max_sequence_number=0, schema_id=0, level=0,
    )  # fmt: skip
    return disk, meta


__all__ = [
    "SEQUENCE_NUMBER",
    "VALUE_KIND",
    "foreign",
    "read_back",
    "rows",
    "schema",
    "write",
    "writer",
]
