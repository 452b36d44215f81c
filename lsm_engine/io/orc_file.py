"""Data files in ORC: read stripe by stripe, written where every known reader agrees."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.units import counted
from lsm_engine.io.formats import FIELD_ID
from lsm_engine.io.orc_footer import read_orc_footer
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import take

_COMPRESSION = {"none": "uncompressed", "gzip": "zlib"}
_STRIPE_BYTES = 16 << 20  # PyArrow's 64 MB would be held by every run of a merge
_BATCH_ROWS = 1024
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MILLIS_MAX = (2**63 - 1) // 1_000_000 - 1  # PyArrow reads ORC's times as nanoseconds
_SECONDS_MAX = _MILLIS_MAX // 1000


class OrcOutput:
    """One ORC file being written; PyArrow decides where stripes end."""

    def __init__(
        self, sink: Any, schema: pa.Schema, *, compression: str, stripe_bytes: int
    ) -> None:
        self._gate = WriteGate(sink)
        self._stored = pa.schema([_stored(field) for field in schema])
        self._writer = orc.ORCWriter(
            self._gate,
            batch_size=_BATCH_ROWS,
            compression=_COMPRESSION.get(compression, compression),
            stripe_size=min(stripe_bytes, _STRIPE_BYTES),
        )

    def append(self, rows: pa.Table) -> None:
        """Write rows of exactly the file's schema.

        Raises UnsupportedError, naming column and count, for times that ORC's readers disagree on:
        before 1970 with a part of a second, and beyond what 64 bits of nanoseconds hold.
        """
        for field, column in zip(rows.schema, rows.columns, strict=True):
            if _has_times(field.type):
                _refuse_unsafe(field.name, column)
        for piece in self._pieces(rows):
            columns = [
                _as_stored(column, field.type)
                for field, column in zip(self._stored, piece.columns, strict=True)
            ]
            self._writer.write(pa.Table.from_arrays(columns, schema=self._stored))

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        # PyArrow 26 loses values of structures that do not begin where its own batches do.
        if not any(pa.types.is_nested(field.type) for field in self._stored):
            yield rows
            return
        for first in range(0, rows.num_rows, _BATCH_ROWS):
            yield rows.slice(first, _BATCH_ROWS).combine_chunks()

    def close(self) -> None:
        """Write the last stripe and the footer; the sink stays open."""
        self._writer.close()
        self._gate.shut = True

    def abandon(self) -> None:
        """Forget the file: nothing more reaches the sink, not even when this is collected."""
        self._gate.shut = True
        self._writer.is_open = False


class OrcFile:
    """One ORC file being read; a row group is a stripe, without bounds."""

    def __init__(self, source: Any, path: str) -> None:
        footer = read_orc_footer(source)
        for millis in (footer.least_millis, footer.greatest_millis):
            if millis is not None and abs(millis) > _MILLIS_MAX:
                raise UnsupportedError(
                    "an ORC file holds times outside the years 1678 to 2261, which are not read; "
                    "rewrite it as parquet with the writer it is from",
                    kind=ErrorKind.UNSUPPORTED_FORMAT,
                    file=path,
                    millis=millis,
                )
        source.seek(0)
        self._file = orc.ORCFile(source)
        self.schema: pa.Schema = self._file.schema
        self.group_rows = footer.stripe_rows
        # Blanks at the end of a CHAR are its writer's padding.
        self._padded = frozenset(footer.char_columns)
        if self._file.nstripes != len(footer.stripe_rows):
            raise CorruptFileError("the footer does not list the file's stripes", file=path)

    def keep_dictionaries(self) -> None:
        """There are none to be had (StoredFile)."""

    def read_group(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of one stripe."""
        stripe = self._file.read_stripe(group, columns=list(names))
        columns = [
            pc.utf8_rtrim(column, characters=" ") if name in self._padded else column
            for name, column in zip(stripe.schema.names, stripe.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, names=stripe.schema.names)

    def read_rows(self, group: int, names: Sequence[str], rows: Longs) -> pa.Table:
        """Return columns of some rows of one group (StoredFile)."""
        return take(self.read_group(group, names), rows)

    def bounds(self, _: str) -> None:
        """PyArrow does not expose the statistics of stripes."""
        return


def _as_stored(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    chunks = column.chunks
    if pa.types.is_nested(target):
        # PyArrow 26 writes a slice of a structure as if it were the rows before it: copy them out.
        chunks = [chunk.take(np.arange(len(chunk))) for chunk in chunks]
    if column.type != target:
        chunks = [chunk.view(target) for chunk in chunks]
    return pa.chunked_array(chunks, target)


def _stored(field: pa.Field) -> pa.Field:
    """Return how a column is stored: TIME as INT, field ids as attributes by the format's name."""
    number = (field.metadata or {}).get(FIELD_ID)
    return field.with_type(_stored_type(field.type)).with_metadata(
        None if number is None else {b"paimon.id": number}
    )


def _stored_type(value: pa.DataType) -> pa.DataType:
    if pa.types.is_time32(value):
        return pa.int32()
    if pa.types.is_map(value):
        return pa.map_(_stored(value.key_field), _stored(value.item_field))
    if pa.types.is_list(value):
        return pa.list_(_stored(value.value_field))
    if pa.types.is_struct(value):
        return pa.struct([_stored(field) for field in value])
    return value


# Times.


def _has_times(value: pa.DataType) -> bool:
    return pa.types.is_timestamp(value) or any(
        _has_times(value.field(i).type) for i in range(value.num_fields)
    )


def _refuse_unsafe(name: str, column: pa.ChunkedArray) -> None:
    leaves = [leaf for chunk in column.chunks for leaf in _timestamps(chunk)]
    count = sum(_unsafe_count(leaf) for leaf in leaves)
    if count:
        raise UnsupportedError(
            f"column {name!r} has {counted(count, 'time')} before 1970 with a part of a second, or outside the "
            "years 1678 to 2261; readers of ORC disagree on them: choose another file.format",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            column=name,
            count=count,
        )


def _timestamps(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the timestamps inside an array, none of null parents."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        yield values
    elif pa.types.is_struct(kind):
        for member in values.flatten():
            yield from _timestamps(member)
    elif pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        yield from _timestamps(values.view(pa.list_(pa.field("entries", entries, nullable=False))))
    elif pa.types.is_list(kind):
        yield from _timestamps(values.flatten())


def _unsafe_count(times: pa.Array) -> int:
    unit = _PER_SECOND[times.type.unit]
    numbers = times.view(pa.int64()).drop_null()
    seconds = pc.divide(numbers, unit)  # toward zero
    fraction = pc.not_equal(pc.multiply(seconds, unit), numbers)
    unsafe = pc.or_(
        pc.and_(pc.less(numbers, 0), fraction),
        pc.or_(pc.greater(seconds, _SECONDS_MAX), pc.less(seconds, -_SECONDS_MAX)),
    )
    return int(pc.sum(unsafe).as_py() or 0)


class WriteGate:
    """Passes writes on to a sink until it is `shut`, and then drops them. The sink stays open."""

    closed = False  # what PyArrow asks of a file

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.shut = False

    def write(self, data: Any) -> int:
        """Write, or, when shut, drop the data and return its length."""
        return len(data) if self.shut else int(self._sink.write(data))

    def flush(self) -> None:
        """Flush the sink unless the gate is shut."""
        if not self.shut:
            self._sink.flush()

    def close(self) -> None:
        """The file itself is closed by its owner."""
