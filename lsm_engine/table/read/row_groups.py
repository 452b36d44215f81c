"""Row groups of a file: pruning by a filter, and cutting a file into parts that are read separately."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from lsm_engine.io.data_file_reader import DataFileReader
from lsm_engine.io.data_file_writer import ROW_GROUP_ROWS
from lsm_engine.io.data_formats import format_of
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.prune.predicate import Predicate, columns_of
from lsm_engine.prune.stats import ColumnBounds, may_match
from lsm_engine.table.read.merge_stream import DECODED_BYTES_PER_STORED_BYTE

_VALUE_BYTES = 8
"""The approximate bytes of a decoded value."""


class MatchingGroups:
    """The row groups of one file that may match a filter, computed once for all parts of the file.

    Threads may share it: two that begin concurrently both compute it, with the same result.
    """

    def __init__(self, predicate: Predicate | None) -> None:
        self._predicate = predicate
        self._groups: frozenset[int] = frozenset()
        self._firsts: frozenset[int] | None = None

    def among(self, groups: Sequence[int], reader: DataFileReader) -> list[int]:
        """Return which of some row groups to read; a column without statistics may match."""
        if self._predicate is None:
            return list(groups)
        if self._firsts is None:
            self._groups = frozenset(_matching(reader, self._predicate))
            firsts = tuple(accumulate(reader.row_group_rows, initial=0))
            self._firsts = frozenset(firsts[group] for group in self._groups)
        return [group for group in groups if group in self._groups]

    def are_none_in(self, part: range) -> bool:
        """Whether no row group that begins in a part of the file matches, as far as computed already."""
        return self._firsts is not None and not any(first in part for first in self._firsts)


def _matching(reader: DataFileReader, predicate: Predicate) -> list[int]:
    bounds = {}
    for name in columns_of(predicate).intersection(reader.schema.names):
        group_bounds = reader.bounds(name)
        if group_bounds is not None:
            bounds[name] = ColumnBounds(
                mins=group_bounds.lower,
                maxs=group_bounds.upper,
                null_counts=pa.array(group_bounds.null_counts, pa.int64()),
            )
    row_counts = pa.array(reader.row_group_rows, pa.int64())
    return [int(group) for group in np.flatnonzero(may_match(predicate, bounds, row_counts))]


def file_parts(file: DataFileMeta, max_bytes: int | None, column_count: int = 0) -> list[range]:
    """Cut the rows of a file into parts of about `max_bytes` decoded bytes, at least a row group each.

    `column_count`: the number of decoded columns; repeated values take almost no space in the file but full size
    in memory. Opening a file again for each part is cheap if its footer lists the row groups.
    """
    all_rows = range(file.row_count)
    if max_bytes is None or format_of(file.file_name).policy.decodes_whole:
        return [all_rows]
    stored = DECODED_BYTES_PER_STORED_BYTE * file.file_size // max(1, len(all_rows))
    row_bytes = max(1, stored, _VALUE_BYTES * column_count)
    step = max(ROW_GROUP_ROWS, max_bytes // row_bytes)
    return [all_rows[first : first + step] for first in all_rows[::step]]
