"""Positions of rows that newer runs replace, cached per section: they turn a merge into a plain read.

Lazy frames and relations read one state several times, each time a few columns or rows of it. A merge reads the
keys of all rows first, and then every column of every row. Its outcome is the same each time, so it is cached:
later reads skip the replaced rows like those of a deletion vector, on several threads, and apply filters, limits
and statistics.
"""

from collections.abc import Iterator
from contextlib import suppress
from threading import Lock

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from lsm_engine.base import core_options
from lsm_engine.codec.deletion_vector import DeletionVector
from lsm_engine.kernels.arrow_views import Longs, fixed_values
from lsm_engine.kernels.row_kinds import adds
from lsm_engine.merge.selection import SelectingFunction
from lsm_engine.plan.scan import Run, Section, Split
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.read.merge_stream import MergeLimits, merge_slices, order_of
from lsm_engine.table.read.split_read import BucketReader

_ROWS_WORTH_IT = 32 * 1024
"""Sections with fewer rows are merged faster than their files are read one by one."""
_REPLACED_MAX = 2_000_000
"""The most rows of a section outside its largest run; no more rows than these can be replaced."""
_KEPT_BYTES = 64 << 20

_ROWS_AT_ONCE = 4_000_000
"""Up to so many rows of a section, a read of all keys computes the replaced rows for later reads."""
_MERGED_KNOWN = 1024

Replaced = dict[str, DeletionVector]
Name = tuple[object, ...]


class ReplacedRows:
    """A cache of the replaced rows of one table's sections, at most 64 MB. Threads may share it."""

    def __init__(self) -> None:
        self._kept: LRUCache[Name, Replaced] = LRUCache(_KEPT_BYTES, _bytes_of)
        self._merged: LRUCache[Name, bool] = LRUCache(_MERGED_KNOWN)
        self._lock = Lock()

    def serves(
        self,
        bucket: BucketReader,
        split: Split,
        section: Section,
        *,
        all_keys: bool,
        small: bool = False,
    ) -> bool:
        """Whether a section is read without its replaced rows, instead of being merged.

        `all_keys`: the read needs all keys. A read of few keys, or one that may stop early, does not pay for
        a merge of all keys; a large section qualifies only once a read has reached its end. `small`: prefer
        files also where merging rows would be faster.
        """
        if split.vectors or bucket.context.file_io.facts.is_far or not leaves_out(bucket.schema):
            return False
        rows = [sum(file.row_count for file in run) for run in section]
        if (sum(rows) < _ROWS_WORTH_IT and not small) or sum(rows) - max(rows) > _REPLACED_MAX:
            return False
        name = _name(bucket, section)
        with self._lock:
            is_small = sum(rows) <= _ROWS_AT_ONCE or name in self._merged
            return name in self._kept or (all_keys and is_small)

    def positions(self, bucket: BucketReader, section: Section) -> Replaced:
        """Return the replaced rows by file name; the first call merges the keys of the section."""
        name = _name(bucket, section)
        with self._lock:
            replaced = self._kept.get(name)
            if replaced is None:
                replaced = _replaced(bucket, section)
                with suppress(ValueError):  # a value larger than the cache is not cached
                    self._kept[name] = replaced
            return replaced

    def merged(
        self, bucket: BucketReader, section: Section, rows: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of a section, and record that a read reached its end."""
        yield from rows
        with self._lock:
            self._merged[_name(bucket, section)] = True


def leaves_out(schema: TableSchema) -> bool:
    """Whether the merge selects one row of a key, so that the others can be left out."""
    return not schema.options[core_options.MERGE_ENGINE].policy.combines_versions


def _name(bucket: BucketReader, section: Section) -> Name:
    """Return the cache key of a section: its files, which never change, and the merge rules, which may."""
    return (bucket.rules, *(file.file_name for run in section for file in run))


def _bytes_of(replaced: Replaced) -> int:
    return 1 + sum(rows.positions.nbytes for rows in replaced.values())


def _replaced(bucket: BucketReader, section: Section) -> Replaced:
    rules = bucket.rules
    assert isinstance(rules.function, SelectingFunction), "one of the rows of a key stands for all"
    names = (*rules.key_columns, *rules.sequence.columns, SEQUENCE_NUMBER, VALUE_KIND)
    limit = MergeLimits.from_options(bucket.schema.options, section).batch_rows
    names = tuple(dict.fromkeys(names))
    starts = np.zeros(len(section), np.int64)
    deleted: list[list[Longs]] = [[] for _ in section]
    exact = bucket.needs_numbers(section)
    runs = [bucket.run(run, names, max_rows=limit, exact=exact) for run in section]
    for parts in merge_slices(runs, rules):
        rows = [part.rows for part in parts]
        ends = np.cumsum([0, *(batch.num_rows for batch in rows)])
        if len(parts) == 1:
            stays = adds(fixed_values(rows[0].column(VALUE_KIND), np.int8))
        else:
            chosen = rules.function.chosen(order_of(parts, rules), rows, drop_deletes=True)
            stays = np.zeros(ends[-1], np.bool_)
            stays[ends[chosen.run] + chosen.row] = True
        lost = np.flatnonzero(~stays)
        for index, part in enumerate(parts):
            low, high = np.searchsorted(lost, ends[index : index + 2])
            deleted[part.run].append(lost[low:high] - ends[index] + starts[part.run])
            starts[part.run] += rows[index].num_rows
    return {
        name: vector
        for run, positions in zip(section, deleted, strict=True)
        if positions
        for name, vector in _by_file(run, np.concatenate(positions)).items()
    }


def _by_file(run: Run, positions: Longs) -> Replaced:
    """Return positions in a run as those in its files."""
    ends = np.cumsum([0, *(file.row_count for file in run)])
    cuts = np.searchsorted(positions, ends)
    return {
        file.file_name: DeletionVector(positions[cuts[index] : cuts[index + 1]] - ends[index])
        for index, file in enumerate(run)
        if cuts[index] < cuts[index + 1]
    }
