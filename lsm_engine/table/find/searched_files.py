"""Live files for a key search: columns for all files, an entry object for the current one.

Ten thousand entry objects take tens of megabytes; the columns that a search needs take two or three.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.codec.manifest import entries_of
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.plan.tag_location import KeySpan
from lsm_engine.table.ground.live_files import (
    BUCKET,
    CREATION_TIME,
    FILE_NAME,
    MAX_KEY,
    MAX_SEQUENCE_NUMBER,
    MIN_KEY,
    MIN_SEQUENCE_NUMBER,
    SCHEMA_ID,
    TOTAL_BUCKETS,
    bucket_pairs,
)

_ENTRIES_AT_ONCE = 128


@record
class FilePlace:
    """The partition, bucket and name of a data file."""

    partition: bytes
    bucket: int
    file_name: str


class BucketFiles:
    """The live files of one bucket, the newest first."""

    def __init__(self, partition: bytes, bucket: int, rows: pa.Table) -> None:
        self.partition = partition
        self.bucket = bucket
        self.total_buckets: int = rows.column(TOTAL_BUCKETS)[0].as_py()
        self._rows = rows.take(_newest_first(rows)).combine_chunks()
        self.newest: Longs = self._rows.column(MAX_SEQUENCE_NUMBER).to_numpy()
        """The greatest sequence number of each file."""
        self.is_apart = are_apart(self._rows.column(MIN_SEQUENCE_NUMBER).to_numpy(), self.newest)
        """Whether all rows of a file are older, or all newer, than any row of another file."""
        self._made: tuple[int, list[ManifestEntry]] = (0, [])

    def __len__(self) -> int:
        return len(self.newest)

    def entry(self, index: int) -> ManifestEntry:
        """Return one file's entry. Entries are decoded in small batches; only the last batch is cached."""
        begin, entries = self._made
        if not begin <= index < begin + len(entries):
            begin = index - index % _ENTRIES_AT_ONCE
            entries = entries_of(self._rows.slice(begin, _ENTRIES_AT_ONCE))
            self._made = begin, entries
        return entries[index - begin]

    def spans(self, key_order: Callable[[bytes], bytes]) -> "Spans":
        """Return the key ranges of the files."""
        return Spans(self._rows, key_order)


def are_apart(oldest: Longs, newest: Longs) -> Bools:
    """Return which ranges, given by their ends, do not overlap any other range."""
    order = np.argsort(oldest, kind="stable")
    lows, highs = oldest[order], newest[order]
    apart: Bools = np.ones(len(order), np.bool_)
    apart[1:] = np.maximum.accumulate(highs)[:-1] < lows[1:]
    apart[:-1] &= highs[:-1] < lows[1:]
    result = np.empty_like(apart)
    result[order] = apart
    return result


class Spans:
    """The key ranges of some files, created on iteration."""

    def __init__(self, rows: pa.Table, key_order: Callable[[bytes], bytes]) -> None:
        self._rows = rows
        self._key_order = key_order

    def __len__(self) -> int:
        count: int = self._rows.num_rows
        return count

    def __iter__(self) -> Iterator[KeySpan]:
        order = self._key_order
        columns = (self._rows.column(name) for name in (FILE_NAME, MIN_KEY, MAX_KEY))
        for name, low, high in zip(*columns, strict=True):
            yield KeySpan(
                file_name=name.as_py(), lowest=order(low.as_py()), highest=order(high.as_py())
            )


def with_buckets(rows: pa.Table | None) -> pa.Table | None:
    """Drop files whose rows wait for a bucket: no reader sees them."""
    if rows is None or not rows.num_rows or pc.min(rows.column(BUCKET)).as_py() >= 0:
        return rows
    return rows.filter(pc.greater_equal(rows.column(BUCKET), 0))


def files_at(rows: pa.Table, numbers: Longs) -> pa.Table:
    """Return some files by ascending row numbers; all files are returned without a copy."""
    return rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))


def by_bucket(rows: pa.Table) -> list[tuple[bytes, int, Longs]]:
    """Return each partition and bucket of files given as columns, in order, with its row numbers."""
    if not rows.num_rows:
        return []
    pairs, of_row = bucket_pairs(rows)
    order = np.argsort(of_row, kind="stable")
    starts = np.searchsorted(of_row[order], np.arange(len(pairs) + 1))
    return sorted(
        (partition, bucket, order[starts[index] : starts[index + 1]])
        for index, (partition, bucket) in enumerate(pairs)
    )


def _newest_first(rows: pa.Table) -> pa.Array:
    """Return the order of files, as `mergetree.levels.newest_first` defines it."""
    facts = {name: rows.column(name) for name in _ORDERED_BY}
    facts[CREATION_TIME] = pc.fill_null(rows.column(CREATION_TIME).cast(pa.int64()), -1)
    return pc.sort_indices(pa.table(facts), sort_keys=list(_ORDERED_BY.items()))


_ORDERED_BY = {
    MAX_SEQUENCE_NUMBER: "descending",
    MIN_SEQUENCE_NUMBER: "ascending",
    CREATION_TIME: "ascending",
    FILE_NAME: "ascending",
}


def schema_ids_of(rows: pa.Table) -> list[int]:
    """Return the ids of the schemas that files were written with."""
    ids: list[int] = pc.unique(rows.column(SCHEMA_ID)).to_pylist()
    return ids
