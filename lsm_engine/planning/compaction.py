"""Compactions beside those of one bucket: small files of append tables, pressure, forecast and amplification."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lsm_engine.base.record import record
from lsm_engine.base.units import format_bytes
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import ManifestEntry, by_bucket
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.planning.row_ids import column_groups, row_ids_of

FULL_COMPACTION = "lsm.full-compaction"
"""Property of the snapshots of full compactions of a whole table; other clients ignore it."""

# -- Which small files of an append table become one: nothing is merged, so only sizes decide ------

_SMALL = 0.7
"""A file below this part of the target size is small, as in an LSM tree."""


@record
class AppendSizes:
    """The options of a compaction: `target_file_size` in bytes; `min_file_count` small files make a group due."""

    target_file_size: int
    min_file_count: int

    def is_small(self, file: DataFileMeta) -> bool:
        """Whether a file should be joined with others."""
        return file.file_size < _SMALL * self.target_file_size


def append_groups(
    files: Iterable[DataFileMeta],
    sizes: AppendSizes,
    *,
    in_order: bool,
    full: bool = False,
    must_rewrite: frozenset[str] = frozenset(),
) -> list[tuple[DataFileMeta, ...]]:
    """Return groups of files of one bucket, each to be rewritten as one, oldest rows first.

    `in_order`: rows of the bucket have an order that a rewrite keeps (a fixed bucket), so that only
    neighbours are joined. A group is due when it fills a file, or when it has `min_file_count` files
    of which none outweighs the others together: a row is then rewritten a number of times that grows
    with the logarithm of the table's size. With `full` all small files are joined, and files in
    `must_rewrite` are rewritten even alone.
    """
    arranged = sorted(files, key=_age)
    groups: list[tuple[DataFileMeta, ...]] = []
    for stretch in _stretches(arranged, sizes, in_order=in_order, must_rewrite=must_rewrite):
        for group in _filled(stretch, sizes):
            chosen = tuple(group) if full else _is_worth_it(group, sizes, in_order=in_order)
            if len(chosen) > 1 or (full and any(file.file_name in must_rewrite for file in chosen)):
                groups.append(tuple(sorted(chosen, key=_age)))
    return groups


def row_range_groups(
    files: Iterable[DataFileMeta], sizes: AppendSizes, *, full: bool = False
) -> list[tuple[DataFileMeta, ...]]:
    """Return groups of files whose rows' ids follow each other, each to be rewritten as one.

    For `data-evolution.enabled`: one file holds one range of ids, whole. Neighbours are joined up to the
    target size, and column files with the rows that they belong to. A group is due when it has
    `min_file_count` files and no range in it outweighs those after it together, as in `append_groups`;
    so is a range alone that has as many. With `full` every group of two files is.
    """
    stretches: list[list[tuple[DataFileMeta, ...]]] = []
    size, end = 0, -1
    for group in column_groups(files):
        added = _size(group)
        starts_anew = row_ids_of(group[0]).start != end or size + added > sizes.target_file_size
        if not stretches or starts_anew:
            stretches.append([])
            size = 0
        stretches[-1].append(group)
        size, end = size + added, row_ids_of(group[0]).stop
    least = 2 if full else sizes.min_file_count
    groups = []
    for stretch in stretches:
        heavy, light = ([], stretch) if full else _split_off(stretch)
        parts = [*heavy, tuple(file for group in light for file in group)]
        groups += [part for part in parts if len(part) >= least]
    return groups


def _size(group: Iterable[DataFileMeta]) -> int:
    return sum(file.file_size for file in group)


def _split_off(
    stretch: Sequence[tuple[DataFileMeta, ...]],
) -> tuple[Sequence[tuple[DataFileMeta, ...]], Sequence[tuple[DataFileMeta, ...]]]:
    """Part the ranges up to the last one that outweighs all after it from the others."""
    total, start = sum(map(_size, stretch)), 0
    for index, group in enumerate(stretch[:-1]):
        total -= _size(group)
        if _size(group) > total:
            start = index + 1
    return stretch[:start], stretch[start:]


def _age(file: DataFileMeta) -> tuple[int, int, str]:
    return (file.min_sequence_number, file.creation_millis or 0, file.file_name)


def _stretches(
    files: Sequence[DataFileMeta],
    sizes: AppendSizes,
    *,
    in_order: bool,
    must_rewrite: frozenset[str],
) -> Iterator[list[DataFileMeta]]:
    """Yield files that may be joined: neighbours in order, or all that are small, largest first."""

    def chosen(file: DataFileMeta) -> bool:
        return sizes.is_small(file) or file.file_name in must_rewrite

    if not in_order:
        small = [file for file in files if chosen(file)]
        yield sorted(small, key=lambda file: (-file.file_size, _age(file)))
        return
    stretch: list[DataFileMeta] = []
    for file in files:
        if chosen(file):
            stretch.append(file)
        else:
            yield stretch
            stretch = []
    yield stretch


def _filled(
    stretch: Sequence[DataFileMeta], sizes: AppendSizes
) -> Iterator[Sequence[DataFileMeta]]:
    """Cut a stretch where a target file is full."""
    group: list[DataFileMeta] = []
    size = 0
    for file in stretch:
        group.append(file)
        size += file.file_size
        if size >= sizes.target_file_size:
            yield group
            group, size = [], 0
    if group:
        yield group


def _is_worth_it(
    group: Sequence[DataFileMeta], sizes: AppendSizes, *, in_order: bool
) -> tuple[DataFileMeta, ...]:
    total = sum(file.file_size for file in group)
    if len(group) > 1 and total >= sizes.target_file_size:
        return tuple(group)
    # Drop what outweighs all that comes after it: it was rewritten when it was that large.
    start = 0
    for index, file in enumerate(group):
        total -= file.file_size
        if file.file_size > total and len(group) - index > 1:
            start = index + 1
        elif not in_order:
            break
    tail = tuple(group[start:])
    return tail if len(tail) >= sizes.min_file_count else ()


# -- Which buckets want a compaction, and how badly ------------------------------------------------


@record
class BucketPressure:
    """The compaction debt of one bucket. Sizes in bytes; runs are sorted runs.

    `debt_bytes`: what a full compaction would read, all but files that already lie alone in the
    lowest level; 0 if the bucket is one run without deletes. `compactable`: a compaction is due, as the
    strategy picks some of the runs now; of rows that wait for a bucket (below 0), their files have reached
    `run_trigger`. `stopping`: runs are above the stop trigger, so that writers wait.
    """

    partition: bytes
    bucket: int
    run_count: int
    level0_file_count: int
    file_count: int
    size_bytes: int
    debt_bytes: int
    delete_row_count: int
    run_trigger: int
    stop_trigger: int
    reason: str
    compactable: bool

    @property
    def stopping(self) -> bool:
        """Whether writers wait for a compaction."""
        return self.run_count > self.stop_trigger


def pressures(
    live: Iterable[ManifestEntry],
    *,
    run_trigger: int,
    stop_trigger: int,
    picked: Collection[tuple[bytes, int]],
) -> tuple[BucketPressure, ...]:
    """Return the pressure of every bucket with live files, the most urgent first.

    `picked`: the buckets, with their partition, in which the compaction strategy picks something now.
    """
    pressures = [
        pressure_of(
            *bucket,
            [entry.file for entry in entries],
            run_trigger=run_trigger,
            stop_trigger=stop_trigger,
            is_picked=bucket in picked,
        )
        for bucket, entries in by_bucket(live).items()
    ]
    return tuple(
        sorted(
            pressures,
            key=lambda bucket_pressure: (
                -bucket_pressure.run_count,
                -bucket_pressure.debt_bytes,
                bucket_pressure.partition,
                bucket_pressure.bucket,
            ),
        )
    )


def pressure_of(
    partition: bytes,
    bucket: int,
    files: Iterable[DataFileMeta],
    *,
    run_trigger: int,
    stop_trigger: int,
    is_picked: bool,
) -> BucketPressure:
    """Return the pressure of one bucket: each level-0 file is a run, each deeper level is one."""
    listed = tuple(files)
    level0 = sum(file.level == 0 for file in listed)
    deeper = {file.level for file in listed} - {0}
    run_count = level0 + len(deeper)
    size = sum(file.file_size for file in listed)
    deletes = sum(file.delete_row_count or 0 for file in listed)
    compacted = run_count <= 1 and not any(file.may_hold_deletes for file in listed)
    compactable = is_picked or (bucket < 0 and run_count >= run_trigger)
    pressure = BucketPressure(
        partition=partition,
        bucket=bucket,
        run_count=run_count,
        level0_file_count=level0,
        file_count=len(listed),
        size_bytes=size,
        debt_bytes=0 if compacted else size,
        delete_row_count=deletes,
        run_trigger=run_trigger,
        stop_trigger=stop_trigger,
        reason="",
        compactable=compactable,
    )
    return replace(pressure, reason=_reason(pressure, compacted=compacted))


def _reason(pressure: BucketPressure, *, compacted: bool) -> str:
    run_count, run_trigger = pressure.run_count, pressure.run_trigger
    runs = f"{run_count} sorted run{'s' if run_count != 1 else ''}"
    debt = f"{format_bytes(pressure.size_bytes)} to merge"
    if pressure.stopping:
        return f"writers wait: {runs}, above the stop trigger {pressure.stop_trigger}; {debt}"
    if pressure.compactable:
        return f"due: {runs}, trigger {run_trigger}; {debt}"
    if compacted:
        return f"in shape: {runs}"
    if run_count >= run_trigger:
        return (
            f"not due: {runs}, trigger {run_trigger}, of sizes that are not worth a merge; {debt}"
        )
    missing = run_trigger - run_count
    missing_text = f"{missing} more run{'s' if missing != 1 else ''}"
    return f"{missing_text} until due: {runs}, trigger {run_trigger}; {debt}"


# -- Pressure forecast -----------------------------------------------------------------------------
#
# When a bucket's compaction will be due, and when its writers would wait, at the pace seen so
# far.

_HOUR = 3_600_000


@record
class Arrivals:
    """Level-0 files that writers added to one bucket in a span of time."""

    file_count: int
    size_bytes: int


@record
class BucketForecast:
    """A bucket's debt, and its forecast if writers continue as in the last `span_millis`.

    `read_amplification`: sorted runs that a read of the bucket merges. Times are from now on; None:
    not in sight, as nothing is written. 0: now.
    """

    pressure: BucketPressure
    span_millis: int
    runs_per_hour: float
    bytes_per_hour: float
    due_in_millis: int | None
    stops_in_millis: int | None

    @property
    def read_amplification(self) -> int:
        """Sorted runs that a read merges."""
        return self.pressure.run_count

    @property
    def due_text(self) -> str:
        """When a compaction is due: "now", "in 3 hours", "never"."""
        return _in(self.due_in_millis)

    @property
    def stops_text(self) -> str:
        """When writers would wait."""
        return _in(self.stops_in_millis)

    @property
    def reason(self) -> str:
        """The forecast as a sentence."""
        pace = f"{self.runs_per_hour:.3g} runs and {format_bytes(int(self.bytes_per_hour))} an hour"
        if not self.runs_per_hour:
            return f"{self.pressure.reason}; nothing was written to it of late"
        if self.stops_in_millis == 0:
            return f"{self.pressure.reason}; {pace}"
        return (
            f"{self.pressure.reason}; {pace}: due {self.due_text}, without a compaction writers "
            f"would wait {self.stops_text}"
        )


def arrivals_of(
    deltas: Iterable[ManifestEntry],
) -> dict[tuple[bytes, int], Arrivals]:
    """Return what writers added per bucket; `deltas`: entries of commits that are no compactions."""
    counts: dict[tuple[bytes, int], Arrivals] = {}
    for entry in deltas:
        if entry.kind is EntryKind.ADD and entry.file.level == 0:
            place = (entry.partition, entry.bucket)
            before = counts.get(place, Arrivals(file_count=0, size_bytes=0))
            counts[place] = Arrivals(
                file_count=before.file_count + 1,
                size_bytes=before.size_bytes + entry.file.file_size,
            )
    return counts


def forecasts(
    pressures: Sequence[BucketPressure],
    arrivals: Mapping[tuple[bytes, int], Arrivals],
    *,
    span_millis: int,
) -> tuple[BucketForecast, ...]:
    """Return the forecast of each bucket, those whose writers would wait soonest first."""
    none = Arrivals(file_count=0, size_bytes=0)
    forecasts = [
        _forecast(pressure, arrivals.get((pressure.partition, pressure.bucket), none), span_millis)
        for pressure in pressures
    ]
    never = 1 << 62
    return tuple(
        sorted(
            forecasts,
            key=lambda forecast: (
                never if forecast.stops_in_millis is None else forecast.stops_in_millis,
                -forecast.pressure.debt_bytes,
                forecast.pressure.partition,
                forecast.pressure.bucket,
            ),
        )
    )


def _forecast(pressure: BucketPressure, arrivals: Arrivals, span_millis: int) -> BucketForecast:
    hours = span_millis / _HOUR
    pace = arrivals.file_count / hours if hours else 0.0
    return BucketForecast(
        pressure=pressure,
        span_millis=span_millis,
        runs_per_hour=pace,
        bytes_per_hour=arrivals.size_bytes / hours if hours else 0.0,
        # Runs that have reached the trigger and are not due wait for at least one more.
        due_in_millis=0
        if pressure.compactable
        else _until(max(pressure.run_trigger - pressure.run_count, 1), pace),
        stops_in_millis=_until(pressure.stop_trigger + 1 - pressure.run_count, pace),
    )


def _until(missing: int, per_hour: float) -> int | None:
    if missing <= 0:
        return 0
    return int(missing / per_hour * _HOUR) if per_hour else None


def _in(millis: int | None) -> str:
    if millis is None:
        return "never"
    if millis == 0:
        return "now"
    for unit, factor in (("days", 24 * _HOUR), ("hours", _HOUR), ("minutes", 60_000)):
        if millis >= 2 * factor:
            return f"in {millis // factor} {unit}"
    return f"in {millis // 1000} seconds"


# -- Read, write and space amplification -----------------------------------------------------------
#
# Bytes written again, runs read together, bytes kept twice.
#
# The three amplifications of O'Neil et al., The Log-Structured Merge-Tree (1996), as RocksDB's
# tuning guide names them.


@record
class Amplification:
    """Counts over some commits and the state after them. Sizes are bytes of data files.

    `written_bytes`: by writers. `compacted_bytes`: written by compactions, which read
    `compaction_read_bytes` for it; files that only changed their level count nowhere. `run_counts`:
    sorted runs of each bucket. `live_bytes`: of all files; `last_level_bytes`: of the deepest run
    of each bucket.
    """

    commit_count: int
    compaction_count: int
    written_bytes: int
    compacted_bytes: int
    compaction_read_bytes: int
    run_counts: tuple[int, ...]
    live_bytes: int
    last_level_bytes: int

    @property
    def write(self) -> float | None:
        """Bytes written in all, per byte that a writer wrote; None: no writer did."""
        if not self.written_bytes:
            return None
        return (self.written_bytes + self.compacted_bytes) / self.written_bytes

    @property
    def read(self) -> float | None:
        """Sorted runs that a read of a bucket merges, in the mean; None: there is no bucket."""
        return sum(self.run_counts) / len(self.run_counts) if self.run_counts else None

    @property
    def space(self) -> float | None:
        """Bytes kept per byte of the deepest runs; None: there are none."""
        return self.live_bytes / self.last_level_bytes if self.last_level_bytes else None


def amplification(
    commits: Iterable[tuple[CommitKind, Sequence[ManifestEntry]]], live: Iterable[ManifestEntry]
) -> Amplification:
    """Return what commits, each with the files that it added and deleted, and their outcome cost."""
    commit_count = compaction_count = written = compacted = read = 0
    for kind, entries in commits:
        added = {entry.file.file_name for entry in entries if entry.kind is EntryKind.ADD}
        deleted = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
        new = _size_of_files(entries, EntryKind.ADD, added - deleted)
        if kind is CommitKind.COMPACT:
            compaction_count += 1
            compacted += new
            read += _size_of_files(entries, EntryKind.DELETE, deleted - added)
        else:
            commit_count += 1
            written += new
    buckets: dict[tuple[bytes, int], dict[int | str, int]] = {}
    for entry in live:
        runs = buckets.setdefault((entry.partition, entry.bucket), {})
        run = entry.file.level or entry.file.file_name  # each file of level 0 is a run
        runs[run] = runs.get(run, 0) + entry.file.file_size
    return Amplification(
        commit_count=commit_count,
        compaction_count=compaction_count,
        written_bytes=written,
        compacted_bytes=compacted,
        compaction_read_bytes=read,
        run_counts=tuple(len(runs) for runs in buckets.values()),
        live_bytes=sum(size for runs in buckets.values() for size in runs.values()),
        last_level_bytes=sum(_deepest(runs) for runs in buckets.values()),
    )


def _size_of_files(entries: Sequence[ManifestEntry], kind: EntryKind, names: set[str]) -> int:
    return sum(
        entry.file.file_size
        for entry in entries
        if entry.kind is kind and entry.file.file_name in names
    )


def _deepest(runs: dict[int | str, int]) -> int:
    """Bytes of the deepest level, or of the largest file where all are on level 0."""
    levels = [level for level in runs if isinstance(level, int)]
    return runs[max(levels)] if levels else max(runs.values())
