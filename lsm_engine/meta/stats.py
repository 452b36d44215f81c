"""Column statistics of a file or a manifest: min, max and null counts."""

from lsm_engine.base.record import record

EMPTY_ROW = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
"""The stored form of a row without fields: the partition of an unpartitioned table."""


@record
class SimpleStats:
    """Stored rows of minima and maxima, one field per covered column (null: unknown).

    `null_counts` holds a count or None per column; a None in place of the whole means that the
    writer stored no array at all.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...] | None


EMPTY_STATS = SimpleStats(min_values=EMPTY_ROW, max_values=EMPTY_ROW, null_counts=())
"""Statistics that cover no column."""
