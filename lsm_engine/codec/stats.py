"""Column statistics of what is being written: minima, maxima and null counts (format section 5).

A bound that is not safe is left out: readers skip files by these, and must never skip a match.
"""

import re
from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import encode_stored
from lsm_engine.meta.stats import SimpleStats
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.types import BINARY, TIMESTAMPS, DataType, ScalarType

Column: TypeAlias = pa.Array | pa.ChunkedArray


STATS_BYTES_MAX = 1 << 20
"""Bytes of minima and maxima of one file beyond which none are kept: entries have to stay readable."""


class StatsKind(Enum):
    """How much is kept of a column."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


_TRUNCATE = re.compile(r"truncate\s*\(\s*(\d+)\s*\)")


@record
class StatsMode:
    """How much is kept of a column; `length` is the code points of text that TRUNCATE keeps."""

    kind: StatsKind
    length: int | None = None

    @classmethod
    @cache
    def parse(cls, text: str) -> "StatsMode":
        """Return the mode that an option's text names; raises InvalidOptionError for other text."""
        word = text.strip().lower()
        if found := _TRUNCATE.fullmatch(word):
            length = int(found[1])
            if length > 0:
                return cls(kind=StatsKind.TRUNCATE, length=length)
        elif word in ("none", "counts", "full"):
            return cls(kind=StatsKind(word))
        raise InvalidOptionError(
            f"statistics mode {text!r} is not none, counts, truncate(n) or full", value=text
        )

    @property
    def has_bounds(self) -> bool:
        """Whether minima and maxima are kept."""
        return self.kind in (StatsKind.TRUNCATE, StatsKind.FULL)


def stats_modes(schema: TableSchema) -> tuple[StatsMode, ...]:
    """Return the mode of every column: `fields.<column>.stats-mode`, else `metadata.stats-mode`."""
    general = StatsMode.parse(schema.options[core_options.STATS_MODE])
    own = (schema.options.of_field(name, "stats-mode") for name in schema.names)
    return tuple(general if text is None else StatsMode.parse(text) for text in own)


class StatsCollector:
    """Collects the statistics of columns batch by batch; one collector per file or manifest."""

    def __init__(self, types: Sequence[DataType], modes: Sequence[StatsMode]) -> None:
        assert len(types) == len(modes), (len(types), len(modes))
        self._types = tuple(types)
        self._columns = [_ColumnStats(kind, mode) for kind, mode in zip(types, modes, strict=True)]

    def update(self, columns: Sequence[Column]) -> None:
        """Take in one batch: a column for each type, in order."""
        for stats, column in zip(self._columns, columns, strict=True):
            stats.update(column)

    def set_extremes(self, pairs: Sequence[pa.Array]) -> None:
        """Take in all there is: [minimum, maximum] of each column in its type, free of NaN, or nulls."""
        for stats, pair in zip(self._columns, pairs, strict=True):
            stats.set_extremes(pair)

    def result(self) -> SimpleStats:
        """Return the statistics so far, one field per column; no bound where none is safe."""
        bounds = [stats.bounds() for stats in self._columns]
        least, greatest = encode_stored(bounds, self._types, row_count=2)
        if len(least) + len(greatest) > STATS_BYTES_MAX:
            nothing = [pa.nulls(2, arrow_type(kind)) for kind in self._types]
            least, greatest = encode_stored(nothing, self._types, row_count=2)
        return SimpleStats(
            min_values=least,
            max_values=greatest,
            null_counts=tuple(stats.null_count for stats in self._columns),
        )


class _ColumnStats:
    def __init__(self, kind: DataType, mode: StatsMode) -> None:
        self.kind = kind
        self.mode = mode
        # Of nested columns no client counts nulls; files shall not differ by who wrote them.
        is_counted = mode.kind is not StatsKind.NONE and isinstance(kind, ScalarType)
        self.null_count: int | None = 0 if is_counted else None
        self._keeps_bounds = mode.has_bounds and _has_safe_bounds(kind)
        self._extremes: pa.Array | None = None  # minimum and maximum so far

    def update(self, column: Column) -> None:
        if self.null_count is not None:
            self.null_count += column.null_count
        if not self._keeps_bounds or column.null_count == len(column):
            return
        wanted = arrow_type(self.kind)
        if pa.types.is_floating(wanted) and pc.any(pc.is_nan(column)).as_py():
            # Engines disagree on where NaN sorts, so no bound holds for all of them.
            self._keeps_bounds = False
            return
        if column.type != wanted:
            column = column.cast(wanted)
        found = pc.min_max(column)
        pair = pa.array([found["min"], found["max"]], wanted)
        if self._extremes is not None:
            both = pc.min_max(pa.concat_arrays([self._extremes, pair]))
            pair = pa.array([both["min"], both["max"]], wanted)
        self._extremes = pair

    def set_extremes(self, pair: pa.Array) -> None:
        if self._keeps_bounds and not pair.null_count:
            self._extremes = pair

    def bounds(self) -> pa.Array:
        """Return [minimum, maximum]; both null if there is none."""
        if not self._keeps_bounds or self._extremes is None:
            return pa.nulls(2, arrow_type(self.kind))
        pair = self._extremes
        if pa.types.is_floating(pair.type):
            # -0.0 and 0.0 are equal but have two orders; take the wider range.
            pair = _wider_zeros(pair)
        if self.mode.length is not None and pa.types.is_string(pair.type):
            least, greatest = pair.to_pylist()
            upper = truncated_upper(greatest, self.mode.length)
            if upper is None:
                return pa.nulls(2, pair.type)
            pair = pa.array([least[: self.mode.length], upper], pair.type)
        return pair


def _has_safe_bounds(kind: DataType) -> bool:
    """Whether the format keeps bounds for a type: not for bytes, nested and INT96 columns."""
    if not isinstance(kind, ScalarType) or kind.root in BINARY:
        return False
    return not (kind.root in TIMESTAMPS and (kind.precision or 0) > 6)


def _wider_zeros(pair: pa.Array) -> pa.Array:
    least, greatest = pair.to_pylist()
    return pa.array([-0.0 if least == 0 else least, 0.0 if greatest == 0 else greatest], pair.type)


def truncated_upper(text: str, length: int) -> str | None:
    """Return a text of at most `length` code points that no text beginning like `text` exceeds.

    The text itself if it is short enough; otherwise its beginning with the last code point that can
    be raised raised by one, and nothing behind that. None when none can.
    """
    if len(text) <= length:
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
