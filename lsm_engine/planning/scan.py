"""Cut the live files of a snapshot into splits, each read by one task, merged or raw."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import VectorPlace
from lsm_engine.format.manifest import Bucket, ManifestEntry, by_bucket
from lsm_engine.lsm.levels import KeyOrder, sections
from lsm_engine.planning.row_ids import column_groups

Run = tuple[DataFileMeta, ...]
"""Files in key order that do not overlap."""
Section = tuple[Run, ...]
"""Runs whose keys overlap: they are merged together, and with nothing else."""
VectorPlaces = Mapping[tuple[bytes, int], Mapping[str, VectorPlace]]
"""Per (partition, bucket) and data file, where its deletion vector is."""


class ReadMode(Enum):
    """Which files a batch read sees, and whether their rows still have to be merged."""

    MERGE = "merge"
    """All files; overlapping ones are merged."""
    ABOVE_LEVEL_0 = "above-level-0"
    """Not level 0, and nothing is merged: deletion vectors or first-row make that unnecessary."""
    NO_KEY = "no-key"
    """All files, as they are: an append table."""
    ROW_ID = "row-id"
    """All files; those of the same rows are joined column by column (`data-evolution.enabled`)."""


class Reach(Enum):
    """Which levels of a bucket a read takes into account, whatever its mode."""

    ALL = "all"
    ABOVE_LEVEL_0 = "above-level-0"
    DEEPEST = "deepest"
    """The deepest level with files, not level 0: nothing of it has to be merged."""


@record
class Split:
    """The input of one reader task: sections of one bucket, in key order; without value statistics.

    `raw`: every section is one file whose rows can be read as they are, without a look at their
    kind; what is not raw is merged by key, or joined by row id. A filter on key columns must still be applied to the rows of a raw split: the files that
    could have replaced rows outside of it may have been pruned. `vectors`: where the deletion
    vectors of its files are; rows that they name are not there, whether raw or merged. `branch`: the
    branch whose files these are, where the read falls back on one. `waiting`: files of rows that wait for a
    bucket, in the order of their commits; those with keys of this bucket are newer than its own.
    """

    snapshot_id: int | None
    partition: bytes
    bucket: int
    total_buckets: int
    sections: tuple[Section, ...]
    raw: bool
    reason: str
    vectors: tuple[VectorPlace, ...] = ()
    branch: str | None = None
    waiting: tuple[DataFileMeta, ...] = ()

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files, section by section."""
        return tuple(file for section in self.sections for run in section for file in run)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size for file in (*self.files, *self.waiting))

    @property
    def row_count(self) -> int:
        """Rows before merging; for a raw split, the rows there are if `is_counted`."""
        deleted_rows = sum(place.vector.cardinality or 0 for place in self.vectors)
        return sum(file.row_count for file in (*self.files, *self.waiting)) - deleted_rows

    @property
    def is_counted(self) -> bool:
        """Whether the index manifest counts the rows of every deletion vector."""
        return all(place.vector.cardinality is not None for place in self.vectors)


@record
class Packing:
    """How sections share splits, in bytes. A file weighs at least what opening it costs."""

    target_size_bytes: int = 128 << 20
    open_file_cost_bytes: int = 4 << 20

    def weight(self, section: Section) -> int:
        """The bytes that a section adds to a split."""
        return sum(
            max(file.file_size, self.open_file_cost_bytes) for run in section for file in run
        )


@record
class SplitPlanner:
    """Cuts the live files of a scan into splits.

    `value_match` returns whether a file's own statistics allow a match of the whole filter; None: no
    filter. A raw file without a match is skipped. An overlapping section may be skipped only if none
    of its files has a match and `merge_keeps_rows`, that is, if merging returns one of the rows as it
    is (deduplicate, first-row): the newest version of a key may lie in a file that does not match.
    `vectors`: where the deletion vectors of the snapshot are. `waiting`: the files of rows that wait for a
    bucket, by partition.
    """

    key_order: KeyOrder
    packing: Packing
    snapshot_id: int | None
    mode: ReadMode = ReadMode.MERGE
    value_match: Callable[[DataFileMeta], bool] | None = None
    merge_keeps_rows: bool = False
    vectors: VectorPlaces = field(default_factory=dict)
    reach: Reach = Reach.ALL
    waiting: Mapping[bytes, Sequence[DataFileMeta]] = field(default_factory=dict)

    def plan(self, live: Sequence[ManifestEntry]) -> tuple[Split, ...]:
        """Return the splits that read `live`, the entries left after pruning."""
        splits: list[Split] = []
        buckets = by_bucket(live)
        for bucket, entries in sorted(buckets.items()):
            if bucket[0] in self.waiting:
                continue
            sections = self._sections_of(entries)
            raw = [section for section in sections if _is_raw(section, self.mode)]
            merged = [section for section in sections if not _is_raw(section, self.mode)]
            kept_raw, kept_merged = _matching(raw, self.value_match, any), self._remaining(merged)
            places = self.vectors.get(bucket, {})
            for is_raw, section_group in ((True, kept_raw), (False, kept_merged)):
                splits += (
                    _split(entries[0], packed, self.snapshot_id, self.mode, places, raw=is_raw)
                    for packed in _pack(section_group, self.packing)
                )
        for partition in self.waiting:
            splits += self._with_waiting(partition, buckets)
        return tuple(splits)

    def _sections_of(self, entries: Sequence[ManifestEntry]) -> list[Section]:
        """Return the sections of a bucket's files that are read."""
        lowest = first_level(self.mode, self.reach, max(entry.file.level for entry in entries))
        files = [entry.file for entry in entries if entry.file.level >= lowest]
        return _sections(files, self.key_order, self.mode)

    def _with_waiting(
        self, partition: bytes, buckets: Mapping[Bucket, Sequence[ManifestEntry]]
    ) -> Iterator[Split]:
        """Yield one split for each bucket that rows of a partition wait for; for a partition without files, one in all."""
        entries = [
            entry for place, stored in buckets.items() if place[0] == partition for entry in stored
        ]
        total = max((entry.total_buckets for entry in entries), default=1)
        waiting = tuple(file.without_stats() for file in self.waiting[partition])
        for bucket in range(total):
            stored = buckets.get((partition, bucket), ())
            sections = self._sections_of(stored) if stored else []
            places = self.vectors.get((partition, bucket), {})
            names = [file.file_name for section in sections for run in section for file in run]
            yield Split(
                snapshot_id=self.snapshot_id,
                partition=partition,
                bucket=bucket,
                total_buckets=total,
                sections=_without_stats(sections),
                raw=False,
                reason=f"merged: {counted(len(names), 'file')} and {len(waiting)} whose rows wait for a bucket",
                vectors=tuple(places[name] for name in names if name in places),
                waiting=waiting,
            )

    def _remaining(self, merged: Sequence[Section]) -> list[Section]:
        """Return the overlapping sections that may hold a match."""
        if self.mode is ReadMode.ROW_ID:  # each file alone can rule all of their rows out
            return _matching(merged, self.value_match, all)
        return _matching(merged, self.value_match if self.merge_keeps_rows else None, any)


def first_level(mode: ReadMode, reach: Reach, deepest: int) -> int:
    """Return the first level of a bucket that is read. `deepest`: the last one with files.

    Options may speak of more levels than there were when that was written, or of fewer.
    """
    if reach is Reach.DEEPEST:
        return max(deepest, 1)
    return int(ReadMode.ABOVE_LEVEL_0 is mode or reach is Reach.ABOVE_LEVEL_0)


def read_files(
    live: Iterable[ManifestEntry], mode: ReadMode, reach: Reach
) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """Return the live files that a read sees, and those on levels that it does not reach."""
    matched: list[ManifestEntry] = []
    unseen: list[ManifestEntry] = []
    for _, entries in sorted(by_bucket(live).items()):
        lowest = first_level(mode, reach, max(entry.file.level for entry in entries))
        for entry in entries:
            (matched if entry.file.level >= lowest else unseen).append(entry)
    return matched, unseen


def _sections(files: Sequence[DataFileMeta], key_order: KeyOrder, mode: ReadMode) -> list[Section]:
    match mode:
        case ReadMode.MERGE:
            return [
                tuple(tuple(run.files) for run in section) for section in sections(files, key_order)
            ]
        case ReadMode.ABOVE_LEVEL_0:
            ordered = sorted(files, key=lambda file: (key_order(file.min_key), file.level))
        case ReadMode.ROW_ID:
            return [tuple((file,) for file in group) for group in column_groups(files)]
        case ReadMode.NO_KEY:
            ordered = sorted(files, key=lambda file: (file.min_sequence_number, file.file_name))
    return [((file,),) for file in ordered]


def _is_raw(section: Section, mode: ReadMode) -> bool:
    """One file alone holds each key once; without retract rows it needs no look at row kinds."""
    if mode is ReadMode.ROW_ID:
        return _file_count(section) == 1
    if mode is not ReadMode.MERGE:
        # No writer leaves deletes above level 0 where nothing is merged; if one did, they show.
        return mode is ReadMode.NO_KEY or not section[0][0].delete_row_count
    return _file_count(section) == 1 and not section[0][0].may_hold_deletes


def _file_count(section: Section) -> int:
    return sum(map(len, section))


def _matching(
    sections: Sequence[Section],
    value_match: Callable[[DataFileMeta], bool] | None,
    decide: Callable[[Iterable[bool]], bool],
) -> list[Section]:
    if value_match is None:
        return list(sections)
    return [
        section
        for section in sections
        if decide(value_match(file) for run in section for file in run)
    ]


def _pack(sections: Sequence[Section], packing: Packing) -> list[list[Section]]:
    """Fill splits in key order; a section is never cut."""
    packed: list[list[Section]] = []
    weight = 0
    for section in sections:
        added = packing.weight(section)
        if not packed or weight + added > packing.target_size_bytes:
            packed.append([])
            weight = 0
        packed[-1].append(section)
        weight += added
    return packed


def _split(
    entry: ManifestEntry,
    packed: Sequence[Section],
    snapshot_id: int | None,
    mode: ReadMode,
    places: Mapping[str, VectorPlace],
    *,
    raw: bool,
) -> Split:
    files = [file for section in packed for run in section for file in run]
    vectors = tuple(places[file.file_name] for file in files if file.file_name in places)
    return Split(
        snapshot_id=snapshot_id,
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        sections=_without_stats(packed),
        raw=raw,
        reason=_reason(packed, mode, vectors, raw=raw),
        vectors=vectors,
    )


def _without_stats(sections: Sequence[Section]) -> tuple[Section, ...]:
    # Tasks are sent to other machines: statistics are most of a file's facts, and of no use there.
    return tuple(
        tuple(tuple(file.without_stats() for file in run) for run in section)
        for section in sections
    )


def _reason(
    packed: Sequence[Section], mode: ReadMode, vectors: Sequence[VectorPlace], *, raw: bool
) -> str:
    files = sum(map(_file_count, packed))
    count = f"{files} file{'s' if files > 1 else ''}"
    if vectors:
        deleted_rows = sum(place.vector.cardinality or 0 for place in vectors)
        all_counted = all(place.vector.cardinality is not None for place in vectors)
        count += f" less {deleted_rows if all_counted else 'some'} deleted rows"
    match mode:
        case ReadMode.NO_KEY:
            return f"raw: {count} of a table without a key"
        case ReadMode.ROW_ID:
            return f"raw: {count} of whole rows" if raw else f"joined: {count} of the same rows"
        case ReadMode.ABOVE_LEVEL_0 if raw:
            return f"raw: {count} above level 0, where nothing is left to merge"
        case ReadMode.MERGE if raw:
            return f"raw: {count}, no keys shared, no deletes"
        case ReadMode.MERGE | ReadMode.ABOVE_LEVEL_0:
            runs = max(len(section) for section in packed)
            if runs > 1:
                return f"merged: {count} share keys, in up to {runs} runs"
            return f"merged: {count} may hold deletes"


# -- Explanation of a scan -------------------------------------------------------------------------


@record
class PruneCounts:
    """The number of files or manifests, and how many each kind of pruning dropped, in this order."""

    total: int
    by_partition: int = 0
    by_bucket: int = 0
    by_key_range: int = 0
    by_stats: int = 0
    by_file_index: int = 0
    by_level: int = 0

    @property
    def kept(self) -> int:
        """The number that remains to be read."""
        pruned = self.by_partition + self.by_bucket + self.by_key_range + self.by_stats
        return self.total - pruned - self.by_file_index - self.by_level

    def text(self, noun: str) -> str:
        """Return the counts as one line: "12 of 40 data files (20 by partition, 8 by bucket)"."""
        causes = (
            ("partition", self.by_partition),
            ("bucket", self.by_bucket),
            ("key range", self.by_key_range),
            ("statistics", self.by_stats),
            ("file index", self.by_file_index),
            ("level", self.by_level),
        )
        pruned = ", ".join(f"{count} by {cause}" for cause, count in causes if count)
        return f"{self.kept} of {counted(self.total, noun)}" + (
            f" ({pruned} pruned)" if pruned else ""
        )


@record
class ScanExplanation:
    """One planned scan. Filters are given as text; None: no filter."""

    snapshot_id: int | None
    pushed_filter: str | None
    residual_filter: str | None
    manifests: PruneCounts
    files: PruneCounts
    splits: Sequence[Split]
    fallback: "ScanExplanation | None" = None
    """Of the branch that gives the partitions which are not here; its splits are among these."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the data files to be read, before column projection."""
        return sum(split.size_bytes for split in self.splits)

    @property
    def row_count(self) -> int:
        """Rows to be read, before merging and filtering."""
        return sum(split.row_count for split in self.splits)

    def text(self, *, split_lines_max: int = 20) -> str:
        """Render for people; equal reasons beyond `split_lines_max` splits are counted, not listed."""
        state = "an empty table" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        raw = sum(split.raw for split in self.splits)
        lines = [
            f"scan of {state}",
            f"  filter below the merge: {self.pushed_filter or 'none'}",
            f"  filter after the merge: {self.residual_filter or 'none'}",
            f"  reads {self.manifests.text('manifest')}",
            f"  reads {self.files.text('data file')}",
            f"  reads {counted(self.row_count, 'row')}, {format_bytes(self.size_bytes)}, in "
            f"{counted(len(self.splits), 'split')} ({raw} raw, {len(self.splits) - raw} merged)",
        ]
        indexed_count = sum(bool(file.extra_files) for split in self.splits for file in split.files)
        if indexed_count and (self.pushed_filter or self.residual_filter):
            lines.append(
                f"  asks the file index of {counted(indexed_count, 'data file')} before it opens them"
            )
        if self.fallback is not None:
            branch_snapshot = self.fallback.snapshot_id
            lines += [
                f"  falls back on {'an empty branch' if branch_snapshot is None else f'a branch, snapshot {branch_snapshot}'}",
                f"    reads {self.fallback.manifests.text('manifest')}",
                f"    reads {self.fallback.files.text('data file')}",
            ]
        lines += [_split_line(split) for split in self.splits[:split_lines_max]]
        if len(self.splits) > split_lines_max:
            lines.append(f"  … and {counted(len(self.splits) - split_lines_max, 'more split')}")
        return "\n".join(lines)


def _split_line(split: Split) -> str:
    levels = sorted({file.level for file in split.files})
    levels_text = ", ".join(f"L{level}" for level in levels)
    return (
        f"  {f'branch {split.branch} ' if split.branch else ''}bucket {split.bucket} {levels_text}: {split.reason} "
        f"({counted(split.row_count, 'row')}, {format_bytes(split.size_bytes)})"
    )


def prune_counts(total: int, kept_after: Sequence[tuple[str, int]]) -> PruneCounts:
    """Build counts from what was left after each step, in order: [("by_partition", 40), …]."""
    counts: dict[str, int] = {}
    remaining = total
    for step, step_remaining in kept_after:
        counts[step] = counts.get(step, 0) + remaining - step_remaining
        remaining = step_remaining
    return PruneCounts(total=total, **counts)
