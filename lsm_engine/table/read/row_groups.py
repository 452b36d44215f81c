"""Row groups of a file: those that may hold a row that a filter wants, and parts to be read each by itself."""

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
"""What a decoded value takes, about."""


class MatchingGroups:
    """The row groups of one file that may match a filter, worked out once for all of its parts.

    Threads may share one: two that begin at once both work it out, to the same end.
    """

    def __init__(self, predicate: Predicate | None) -> None:
        self._predicate = predicate
        self._groups: frozenset[int] = frozenset()
        self._firsts: frozenset[int] | None = None

    def among(self, groups: Sequence[int], reader: DataFileReader) -> list[int]:
        """Return which of some row groups to read; whatever is not known of a column may match."""
        if self._predicate is None:
            return list(groups)
        if self._firsts is None:
            self._groups = frozenset(_matching(reader, self._predicate))
            firsts = tuple(accumulate(reader.row_group_rows, initial=0))
            self._firsts = frozenset(firsts[group] for group in self._groups)
        return [group for group in groups if group in self._groups]

    def are_none_in(self, part: range) -> bool:
        """Whether it is known already that no row group that begins in a part of the file matches."""
        return self._firsts is not None and not any(first in part for first in self._firsts)


def _matching(reader: DataFileReader, predicate: Predicate) -> list[int]:
    bounds = {}
    for name in columns_of(predicate).intersection(reader.schema.names):
        found = reader.bounds(name)
        if found is not None:
            bounds[name] = ColumnBounds(
                mins=found.lower,
                maxs=found.upper,
                null_counts=pa.array(found.null_counts, pa.int64()),
            )
    row_counts = pa.array(reader.row_group_rows, pa.int64())
    return [int(at) for at in np.flatnonzero(may_match(predicate, bounds, row_counts))]


def file_parts(file: DataFileMeta, max_bytes: int | None, column_count: int = 0) -> list[range]:
    """Cut the rows of a file into parts of about so many decoded bytes, and not below a row group.

    `column_count`: columns that are decoded wholly, as values that repeat take next to nothing in the file.
    Opening a file again for each part is cheap where its footer lists the row groups.
    """
    whole = range(file.row_count)
    if max_bytes is None or format_of(file.file_name).policy.decodes_whole:
        return [whole]
    stored = DECODED_BYTES_PER_STORED_BYTE * file.file_size // max(1, len(whole))
    row_bytes = max(1, stored, _VALUE_BYTES * column_count)
    step = max(ROW_GROUP_ROWS, max_bytes // row_bytes)
    return [whole[first : first + step] for first in whole[::step]]
