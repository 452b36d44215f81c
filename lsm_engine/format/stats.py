"""Column statistics of the rows of a new file: minima, maxima and null counts (format section 5).

An unsafe bound is left out: readers skip files by their bounds, and must never skip a match.
"""

import re
from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.format.binary_row import encode_stored
from lsm_engine.format.data_file import SimpleStats
from lsm_engine.options import core_options
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import BINARY, TIMESTAMPS, DataType, ScalarType

Column: TypeAlias = pa.Array | pa.ChunkedArray


STATS_BYTES_MAX = 1 << 20
"""Bytes of minima and maxima of one file beyond which none are kept: entries have to stay readable."""


class StatsKind(Enum):
    """The statistics that a file stores for a column."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


_TRUNCATE = re.compile(r"truncate\s*\(\s*(\d+)\s*\)")


@record
class StatsMode:
    """The statistics mode of a column; `length` is the code points of text that TRUNCATE keeps."""

    kind: StatsKind
    length: int | None = None

    @classmethod
    @cache
    def parse(cls, text: str) -> "StatsMode":
        """Return the mode that an option's text names; raises InvalidOptionError for other text."""
        word = text.strip().lower()
        if match := _TRUNCATE.fullmatch(word):
            length = int(match[1])
            if length > 0:
                return cls(kind=StatsKind.TRUNCATE, length=length)
        elif word in ("none", "counts", "full"):
            return cls(kind=StatsKind(word))
        raise InvalidOptionError(
            f"statistics mode {text!r} is not none, counts, truncate(n) or full", value=text
        )

    @property
    def has_bounds(self) -> bool:
        """Whether minima and maxima are stored."""
        return self.kind in (StatsKind.TRUNCATE, StatsKind.FULL)


def stats_modes(schema: TableSchema) -> tuple[StatsMode, ...]:
    """Return the mode of every column: `fields.<column>.stats-mode`, else `metadata.stats-mode`."""
    general = StatsMode.parse(schema.options[core_options.STATS_MODE])
    own = (schema.options.of_field(name, "stats-mode") for name in schema.names)
    return tuple(general if text is None else StatsMode.parse(text) for text in own)


@record
class ColumnExtremes:
    """The extremes and null counts of one column in several files, one entry per file.

    `least` and `greatest` are of the column's type, without NaN, and null where nothing is known.
    """

    least: pa.Array
    greatest: pa.Array
    null_counts: Sequence[int | None]


def stats_of_each(
    types: Sequence[DataType],
    modes: Sequence[StatsMode],
    columns: Sequence[ColumnExtremes],
    *,
    file_count: int,
) -> list[SimpleStats]:
    """Return the statistics of each file, of all files at once; no bound where none is safe."""
    extremes = [
        _limited_extremes(*arguments) for arguments in zip(types, modes, columns, strict=True)
    ]
    pairs = [pa.concat_arrays([column.least, column.greatest]) for column in extremes]
    stored = encode_stored(pairs, types, row_count=2 * file_count)
    least, greatest = stored[:file_count], stored[file_count:]
    too_long = [
        index
        for index, (low, high) in enumerate(zip(least, greatest, strict=True))
        if len(low) + len(high) > STATS_BYTES_MAX
    ]
    if too_long:
        # Manifests would grow by bounds that save little: such a row has none.
        null_row = encode_stored([pa.nulls(1, arrow_type(kind)) for kind in types], types)
        for row in too_long:
            least[row] = greatest[row] = null_row[0]
    counts = [
        tuple(column.null_counts[index] for column in extremes) for index in range(file_count)
    ]
    return [
        SimpleStats(min_values=low, max_values=high, null_counts=nulls)
        for low, high, nulls in zip(least, greatest, counts, strict=True)
    ]


def _limited_extremes(kind: DataType, mode: StatsMode, column: ColumnExtremes) -> ColumnExtremes:
    """Return the extremes of a column that the format and a mode store."""
    count = len(column.null_counts)
    counts = column.null_counts if _is_counted(kind, mode) else [None] * count
    if not _keeps_bounds(kind, mode):
        nulls = pa.nulls(count, arrow_type(kind))
        return ColumnExtremes(least=nulls, greatest=nulls, null_counts=counts)
    least, greatest = column.least, column.greatest
    if pa.types.is_floating(least.type):
        # -0.0 and 0.0 are equal but have two orders; take the wider range.
        least, greatest = _with_zero(least, -0.0), _with_zero(greatest, 0.0)
    if mode.length is not None and pa.types.is_string(least.type):
        uppers = [truncated_upper(text, mode.length) for text in greatest.to_pylist()]
        least = pc.utf8_slice_codeunits(least, 0, mode.length)
        greatest = pa.array(uppers, greatest.type)
    if least.null_count or greatest.null_count:
        has_both = pc.and_(least.is_valid(), greatest.is_valid())
        unknown = pa.scalar(None, least.type)
        least, greatest = (pc.if_else(has_both, bounds, unknown) for bounds in (least, greatest))
    return ColumnExtremes(least=least, greatest=greatest, null_counts=counts)


def _with_zero(values: pa.Array, zero: float) -> pa.Array:
    return pc.if_else(pc.equal(values, pa.scalar(0.0, values.type)), zero, values).cast(values.type)


class StatsCollector:
    """Collects the statistics of columns batch by batch; one collector per file or manifest."""

    def __init__(self, types: Sequence[DataType], modes: Sequence[StatsMode]) -> None:
        assert len(types) == len(modes), (len(types), len(modes))
        self._types = tuple(types)
        self._modes = tuple(modes)
        self._columns = [_ColumnStats(kind, mode) for kind, mode in zip(types, modes, strict=True)]

    def update(self, columns: Sequence[Column]) -> None:
        """Take in one batch: a column for each type, in order."""
        for stats, column in zip(self._columns, columns, strict=True):
            stats.update(column)

    def result(self) -> SimpleStats:
        """Return the statistics so far, one field per column; no bound where none is safe."""
        columns = [stats.extremes() for stats in self._columns]
        return stats_of_each(self._types, self._modes, columns, file_count=1)[0]


class _ColumnStats:
    def __init__(self, kind: DataType, mode: StatsMode) -> None:
        self.kind = kind
        self.null_count = 0
        self._keeps_bounds = _keeps_bounds(kind, mode)
        self._extremes: pa.Array | None = None  # minimum and maximum so far

    def update(self, column: Column) -> None:
        self.null_count += column.null_count
        if not self._keeps_bounds or column.null_count == len(column):
            return
        target_type = arrow_type(self.kind)
        if pa.types.is_floating(target_type) and pc.any(pc.is_nan(column)).as_py():
            # Engines disagree on where NaN sorts, so no bound holds for all of them.
            self._keeps_bounds = False
            return
        if column.type != target_type:
            column = column.cast(target_type)
        min_max = pc.min_max(column)
        pair = pa.array([min_max["min"], min_max["max"]], target_type)
        if self._extremes is not None:
            both = pc.min_max(pa.concat_arrays([self._extremes, pair]))
            pair = pa.array([both["min"], both["max"]], target_type)
        self._extremes = pair

    def extremes(self) -> ColumnExtremes:
        """Return minimum and maximum; null if they are not known."""
        extremes = self._extremes if self._keeps_bounds else None
        pair = pa.nulls(2, arrow_type(self.kind)) if extremes is None else extremes
        return ColumnExtremes(
            least=pair.slice(0, 1), greatest=pair.slice(1), null_counts=[self.null_count]
        )


def _is_counted(kind: DataType, mode: StatsMode) -> bool:
    # Of nested columns no client counts nulls; files shall not differ by who wrote them.
    return mode.kind is not StatsKind.NONE and isinstance(kind, ScalarType)


def _keeps_bounds(kind: DataType, mode: StatsMode) -> bool:
    return mode.has_bounds and _has_safe_bounds(kind)


def _has_safe_bounds(kind: DataType) -> bool:
    """Whether the format keeps bounds for a type: not for bytes, nested and INT96 columns."""
    if not isinstance(kind, ScalarType) or kind.root in BINARY:
        return False
    return not (kind.root in TIMESTAMPS and (kind.precision or 0) > 6)


def truncated_upper(text: str | None, length: int) -> str | None:
    """Return a text of at most `length` code points that no text beginning like `text` exceeds.

    The text itself if it is short enough; otherwise its beginning with the last code point that can
    be raised raised by one, and nothing behind that. None when none can, and for None.
    """
    if text is None or len(text) <= length:
        return text
    for end in range(length, 0, -1):
        raised = ord(text[end - 1]) + 1
        if raised == _FIRST_SURROGATE:
            raised = _LAST_SURROGATE + 1  # halves of pairs are not text
        if raised <= _LAST_CODE_POINT:
            return text[: end - 1] + chr(raised)
    return None


_FIRST_SURROGATE = 0xD800
_LAST_SURROGATE = 0xDFFF
_LAST_CODE_POINT = 0x10FFFF
