"""Rows that newer runs replace, by position: found once for a section, they make a merge a plain read.

Lazy frames and relations are asked several times about one state, each time for a few columns or rows. A
merge reads the keys of all rows first, and then every column of every row. What it decides is the same each
time, so it is kept: later reads leave those rows out, as they would those of a deletion vector, on several
threads and without what filters, limits and statistics rule out.
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
"""Smaller sections are merged faster than their files are read one by one."""
_REPLACED_MAX = 2_000_000
"""Rows of a section beside its largest run, of which no more can be replaced."""
_KEPT_BYTES = 64 << 20

_ROWS_AT_ONCE = 4_000_000
"""Rows of a section up to which a read of all keys merges them first, for the reads to come."""
_MERGED_KNOWN = 1024

Replaced = dict[str, DeletionVector]
Name = tuple[object, ...]


class ReplacedRows:
    """What is known of the sections of one table's states, at most 64 MB of it. Threads may share it."""

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
        whole: bool,
        small: bool = False,
    ) -> bool:
        """Whether a section is read without its replaced rows, instead of being merged.

        `whole`: the read wants all keys. What wants few of them, or may stop early, does not pay for a
        merge of all; and of large sections only those count that somebody has read to their end. `small`:
        files are preferred also where a merge of rows would take less time.
        """
        if split.vectors or bucket.context.file_io.facts.is_far or not leaves_out(bucket.schema):
            return False
        rows = [sum(file.row_count for file in run) for run in section]
        if (sum(rows) < _ROWS_WORTH_IT and not small) or sum(rows) - max(rows) > _REPLACED_MAX:
            return False
        name = _name(bucket, section)
        with self._lock:
            few = sum(rows) <= _ROWS_AT_ONCE or name in self._merged
            return name in self._kept or (whole and few)

    def of(self, bucket: BucketReader, section: Section) -> Replaced:
        """Return what is replaced in each file that has such rows; a merge of keys, the first time."""
        name = _name(bucket, section)
        with self._lock:
            found = self._kept.get(name)
            if found is None:
                found = _replaced(bucket, section)
                with suppress(ValueError):  # larger than all that may be kept
                    self._kept[name] = found
            return found

    def merged(
        self, bucket: BucketReader, section: Section, rows: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of a section, and note that all were taken."""
        yield from rows
        with self._lock:
            self._merged[_name(bucket, section)] = True


def leaves_out(schema: TableSchema) -> bool:
    """Whether one of the rows of a key stands for all, so that the others can be left out."""
    return not schema.options[core_options.MERGE_ENGINE].policy.combines_versions


def _name(bucket: BucketReader, section: Section) -> Name:
    """Return what a section is known by: files never change, and rules of merging may."""
    return (bucket.rules, *(file.file_name for run in section for file in run))


def _bytes_of(found: Replaced) -> int:
    return 1 + sum(rows.positions.nbytes for rows in found.values())


def _replaced(bucket: BucketReader, section: Section) -> Replaced:
    rules = bucket.rules
    assert isinstance(rules.function, SelectingFunction), "one of the rows of a key stands for all"
    names = (*rules.key_columns, *rules.sequence.columns, SEQUENCE_NUMBER, VALUE_KIND)
    limit = MergeLimits.of(bucket.schema.options, section).batch_rows
    names = tuple(dict.fromkeys(names))
    seen = np.zeros(len(section), np.int64)
    deleted: list[list[Longs]] = [[] for _ in section]
    exact = bucket.needs_numbers(section)
    runs = [bucket.run(run, names, max_rows=limit, exact=exact) for run in section]
    for parts in merge_slices(runs, rules):
        rows = [part.rows for part in parts]
        ends = np.cumsum([0, *(one.num_rows for one in rows)])
        if len(parts) == 1:
            stays = adds(fixed_values(rows[0].column(VALUE_KIND), np.int8))
        else:
            chosen = rules.function.chosen(order_of(parts, rules), rows, drop_deletes=True)
            stays = np.zeros(ends[-1], np.bool_)
            stays[ends[chosen.run] + chosen.row] = True
        lost = np.flatnonzero(~stays)
        for at, part in enumerate(parts):
            low, high = np.searchsorted(lost, ends[at : at + 2])
            deleted[part.run].append(lost[low:high] - ends[at] + seen[part.run])
            seen[part.run] += rows[at].num_rows
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
        file.file_name: DeletionVector(positions[cuts[at] : cuts[at + 1]] - ends[at])
        for at, file in enumerate(run)
        if cuts[at] < cuts[at + 1]
    }
