"""The units of a scan's work: parts of splits, and batches of small sections of many buckets.

A merge costs about a millisecond before its first row. For many small buckets that is most of a read,
so one call merges their sections, with the bucket number as the first key column.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.kernels.merge_runs import merge_order
from lsm_engine.plan.scan import Section, Split
from lsm_engine.table.ground.merge_rules import MergeRules, merge_rules
from lsm_engine.table.read.read_ahead import Part
from lsm_engine.table.read.replaced_rows import Replaced, ReplacedRows
from lsm_engine.table.read.row_groups import MatchingGroups, file_parts
from lsm_engine.table.read.split_read import (
    BucketReader,
    SplitSource,
    merged_rows,
    raw_rows,
    split_parts,
)

_ROWS = 32 * 1024
_FILES = 64
_BYTES = 16 << 20
"""The most stored bytes of sections that one call merges."""

_FAR_FILES = 8
"""The same limit for remote files: the prefetch cache holds only so many."""


@record
class BucketSection:
    """A section to merge, and the reader of its bucket."""

    bucket: BucketReader
    section: Section


def scan_parts(
    source: SplitSource,
    splits: Iterable[Split],
    *,
    max_bytes: int | None = None,
    replaced: ReplacedRows | None = None,
    to_end: bool = True,
) -> Iterator[Part]:
    """Yield the parts of a scan in the order of the splits, as `split_parts` does.

    Adjacent small sections are one part, if the merge selects rows unchanged. With `replaced`, large
    sections are read file by file without their replaced rows. `to_end`: the caller reads all rows.
    """
    group = _Group(source, replaced)
    for split in splits:
        own = source.source_of(split)
        joins = not split.raw and _joins(own)
        if not joins or group.source is not own:
            yield from group.parts()
            group = _Group(own, replaced)
        if not joins:
            yield from split_parts(own.context, own.rows, split, max_bytes=max_bytes)
            continue
        bucket = BucketReader(own.context, split.partition, split.bucket, split.vectors)
        for section in split.sections:
            all_keys = to_end and own.wants_all_keys
            if replaced is not None and replaced.serves(bucket, split, section, all_keys=all_keys):
                yield from group.parts()
                group = _Group(own, replaced)
                deleted = cache(partial(replaced.positions, bucket, section))
                yield from _files_less(own, bucket, section, deleted, max_bytes)
                continue
            added = BucketSection(bucket=bucket, section=section)
            if not group.takes(added):
                yield from group.parts()
                group = _Group(own, replaced)
                group.takes(added)
    yield from group.parts()


def _files_less(
    source: SplitSource,
    bucket: BucketReader,
    section: Section,
    deleted: Callable[[], Replaced],
    max_bytes: int | None,
) -> Iterator[Part]:
    """Yield the reads of a section's files without deleted rows, largest file first."""
    names = source.rows.needed(source.context.schema)
    files = [file for run in section for file in run]
    for file in sorted(files, key=lambda file: -file.row_count):
        groups = MatchingGroups(source.rows.predicate)
        for part in file_parts(file, max_bytes):
            yield partial(raw_rows, bucket, source.rows, names, file, part, groups, deleted)


def _joins(source: SplitSource) -> bool:
    """Whether one call may merge sections of several buckets."""
    schema = source.context.schema
    return schema.has_primary_key and merge_rules(schema).function.keeps_rows


class _Group:
    """Adjacent sections that one call merges."""

    def __init__(self, source: SplitSource, replaced: ReplacedRows | None) -> None:
        self.source = source
        self._replaced = replaced
        self._is_far = source.context.file_io.facts.is_far
        self._sections: list[BucketSection] = []
        self._extent = np.zeros(3, np.int64)

    def takes(self, added: BucketSection) -> bool:
        """Add a section unless the group becomes too large; a single section always fits."""
        files = [file for run in added.section for file in run]
        stored = sum(file.file_size for file in files)
        rows = sum(file.row_count for file in files)
        extent = self._extent + np.array([rows, len(files), stored], np.int64)
        most = (_ROWS, _FAR_FILES if self._is_far else _FILES, _BYTES)
        if self._sections and (extent > most).any():
            return False
        self._sections.append(added)
        self._extent = extent
        return True

    def parts(self) -> Iterator[Part]:
        """Yield the part that reads the sections, if there are any."""
        if len(self._sections) == 1:
            (only,) = self._sections
            read = partial(merged_rows, only.bucket, self.source.rows, only.section)
            noted = self._replaced is not None and self.source.wants_all_keys
            yield partial(self._noted, only, read) if noted else read
        elif self._sections:
            yield partial(_joined, self.source, self._sections)

    def _noted(self, only: BucketSection, read: Part) -> Iterator[pa.RecordBatch]:
        assert self._replaced is not None
        yield from self._replaced.merged(only.bucket, only.section, read())


def _joined(source: SplitSource, sections: Sequence[BucketSection]) -> Iterator[pa.RecordBatch]:
    rules, rows = merge_rules(source.context.schema), source.rows
    names = rows.to_merge(source.context.schema, rules)
    runs: list[list[pa.RecordBatch]] = []
    numbers: list[list[int]] = []
    buckets: dict[BucketReader, int] = {}
    for bucket_section in sections:
        number = buckets.setdefault(bucket_section.bucket, len(buckets))
        exact = bucket_section.bucket.needs_numbers(bucket_section.section)
        for index, run in enumerate(bucket_section.section):
            if index == len(runs):
                runs.append([])
                numbers.append([])
            for batch in bucket_section.bucket.run(
                run, names, matching=rows.key_predicate, exact=exact
            ):
                runs[index].append(batch)
                numbers[index].append(number)
    merged = merge_joined(runs, numbers, rules)
    if merged is not None:
        yield from rows.finish(merged)


def merge_joined(
    runs: Sequence[Sequence[pa.RecordBatch]], numbers: Sequence[Sequence[int]], rules: MergeRules
) -> pa.Table | None:
    """Return the merged rows of several buckets, without deletes; None if no run has rows.

    `runs`: batches of each run, by bucket and then by key; on a tie the later run wins. `numbers`: the
    bucket of each batch. Rows come by bucket and then by key. The merge function must select rows
    unchanged.
    """
    assert rules.function.keeps_rows, "a merged row may be none of its versions"
    sources, keys, ranks = [], [], []
    for batches, of_batches in zip(runs, numbers, strict=True):
        if not batches:
            continue
        rows = pa.Table.from_batches(batches).combine_chunks()
        counts = [batch.num_rows for batch in batches]
        before = pa.array(np.repeat(np.array(of_batches, np.int32), counts))
        sources.append(rows)
        keys.append(rules.keys(rows, before))
        ranks.append(rules.ranks(rows))
    if not sources:
        return None
    return rules.function.merge(merge_order(keys, ranks), sources, drop_deletes=True)
