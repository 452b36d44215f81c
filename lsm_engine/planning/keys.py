"""Where keys are searched: partitions, buckets and files that may hold them, and tasks that share the search."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import CorruptFileError, InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.format.manifest import ManifestEntry, by_bucket
from lsm_engine.kernels.arrow_views import Longs as ArrowViewsLongs
from lsm_engine.kernels.keys import SortKeys, lower_bound, upper_bound
from lsm_engine.options import core_options
from lsm_engine.options.modes import MergeEngine
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.table_schema import TableSchema

# -- Buckets to search for keys --------------------------------------------------------------------


def remembered_buckets(
    entries: Iterable[ManifestEntry], *, since_millis: int
) -> frozenset[tuple[bytes, int]]:
    """Return the (partition, bucket) pairs with a file made at `since_millis` or later.

    A file without a creation time counts as new: nothing is forgotten by mistake.
    """
    return frozenset(
        (entry.partition, entry.bucket)
        for entry in entries
        if entry.file.creation_millis is None or entry.file.creation_millis >= since_millis
    )


# -- Keys that may move between partitions ---------------------------------------------------------
#
# What becomes of rows whose key is in another one already.
#
# Rows stand sorted by key, and within a key in the order in which they came. Everything is an
# array with one value per row; partitions and buckets are numbers, -1 means none.

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@record
class SortedRows:
    """Rows by key. `heads`: the first row of each key; `known_*`: where each key is, per row.

    `own` is the partition that a row's values give, `adds` whether it is no retract.
    """

    heads: Bools
    own: Longs
    adds: Bools
    known_partition: Longs
    known_bucket: Longs


@record
class MovedKeys:
    """The rows to write. A row goes to partition `target`; -1: it is dropped.

    It has the bucket of row `root`, itself or an earlier one, whose bucket is `bucket`; -1: a new key
    of the target. `left_partition`: the partition that the row takes its key away from, -1: none; the key's
    bucket there is `left_bucket` or, where that is -1, the one that the row before has.
    """

    target: Longs
    root: Longs
    bucket: Longs
    left_partition: Longs
    left_bucket: Longs


def moves_records(options: TableOptions) -> bool:
    """Whether a record found in another partition is deleted there and inserted here."""
    index = options[core_options.INDEX_TYPE].policy
    if index.is_global and index.reads_blooms:
        return options[core_options.INDEX_BLOOM_UPDATE_PARTITION_PATH]
    return options[core_options.INDEX_SIMPLE_UPDATE_PARTITION_PATH]


def keys_move(schema: TableSchema) -> bool:
    """Whether a key of a table may leave one partition for another: one commit writes to both."""
    engine = schema.options[core_options.MERGE_ENGINE]
    return schema.bucket_mode.policy.crosses_partitions and engine.policy.keeps_newest_row


def emits_moves(schema: TableSchema) -> bool:
    """Whether compactions emit that a key moves: the partition that it leaves and the other one belong together."""
    return keys_move(schema) and schema.options[core_options.CHANGELOG_PRODUCER].policy.compares


def check_moves_delete(options: TableOptions) -> None:
    """Raise InvalidOptionError where a key moves between partitions and its delete is ignored.

    The move writes a -D to the old partition; every reader would ignore it and find the key twice.
    """
    engine = options[core_options.MERGE_ENGINE]
    ignores = options[core_options.IGNORE_DELETE]
    if not (engine.policy.keeps_newest_row and ignores and moves_records(options)):
        return
    engine_key, key = core_options.MERGE_ENGINE.key, core_options.IGNORE_DELETE.key
    raise InvalidOptionError(
        f"{key!r} = true does not go with {engine_key!r} = {engine.value!r} and a key that lacks "
        "partition columns: a key that moves to another partition is deleted in the old one, and "
        "would be in both; create a table without it, or with the partition columns in the primary "
        "key",
        key=key,
        value=True,
    )


def moves(
    rows: SortedRows, engine: MergeEngine, *, deletes: bool, keeps: bool = False
) -> MovedKeys:
    """Return what becomes of each row, as the merge engine has it.

    deduplicate: the key leaves its old partition and comes to the new one; partial-update and
    aggregation: the row goes to the partition where its key is; first-row: a row whose key is
    anywhere is dropped. With `deletes` rows name keys only, and go where the key is. With `keeps` a
    key of a deduplicate table keeps its partition, too.
    """
    if engine.policy.keeps_first_row:
        return _first_stays(rows)
    if engine.policy.keeps_newest_row and not keeps:
        return _newest_moves(rows)
    return _all_stay(rows, deletes=deletes)


def _newest_moves(rows: SortedRows) -> MovedKeys:
    before = np.roll(np.where(rows.adds, rows.own, -1), 1)
    left_partition = np.where(rows.heads, rows.known_partition, before)
    same_partition = left_partition == np.where(rows.adds, rows.own, left_partition)
    stays = same_partition & (left_partition >= 0)
    # If the row before has moved the key to this partition, the row has the bucket of that one.
    begins = rows.heads | ~stays
    return MovedKeys(
        target=np.where(rows.adds, rows.own, left_partition),
        root=np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0)),
        bucket=np.where(rows.heads & stays, rows.known_bucket, -1),
        left_partition=np.where(rows.adds & ~same_partition, left_partition, -1),
        left_bucket=np.where(rows.heads, rows.known_bucket, -1),
    )


def _first_stays(rows: SortedRows) -> MovedKeys:
    count = len(rows.own)
    comes = rows.heads & rows.adds & (rows.known_partition < 0)
    return _without_leaving(
        target=np.where(comes, rows.own, -1),
        root=np.arange(count, dtype=np.int64),
        bucket=np.full(count, -1, np.int64),
    )


def _all_stay(rows: SortedRows, *, deletes: bool) -> MovedKeys:
    count = len(rows.own)
    places = np.arange(count, dtype=np.int64)
    heads = np.flatnonzero(rows.heads)
    of_key = np.cumsum(rows.heads) - 1
    # A key that is nowhere comes to the partition of its first row that adds it.
    first_add = np.minimum.reduceat(np.where(rows.adds, places, count), heads)
    leader = np.where(first_add < count, first_add, heads)[of_key]
    nowhere = rows.known_partition < 0
    new = np.full(count, -1, np.int64) if deletes else rows.own[leader]
    return _without_leaving(
        target=np.where(nowhere, new, rows.known_partition),
        root=heads[of_key],
        bucket=np.where(nowhere, -1, rows.known_bucket),
    )


def _without_leaving(*, target: Longs, root: Longs, bucket: Longs) -> MovedKeys:
    unknown = np.full(len(target), -1, np.int64)
    return MovedKeys(
        target=target, root=root, bucket=bucket, left_partition=unknown, left_bucket=unknown
    )


def fill_buckets(
    counts: Longs, new: int, *, target_rows: int, bucket_limit: int
) -> tuple[Longs, Longs] | None:
    """Return the buckets of `new` keys, and the keys of each bucket afterwards: first non-full first.

    `counts` are the keys of each bucket by now. Beyond `bucket_limit` buckets keys spread over all;
    None where even that is no bucket.
    """
    room = np.maximum(target_rows - counts, 0)
    missing = new - int(room.sum())
    added_buckets = min(max(0, -(-missing // target_rows)), max(0, bucket_limit - len(counts)))
    counts = np.concatenate([counts, np.zeros(added_buckets, np.int64)])
    room = np.concatenate([room, np.full(added_buckets, target_rows, np.int64)])
    ends = np.minimum(np.cumsum(room), new)
    bucket_rows = np.diff(ends, prepend=0)
    buckets = np.repeat(np.arange(len(counts), dtype=np.int64), bucket_rows)
    remaining = new - len(buckets)
    if remaining and not len(counts):
        return None
    if remaining:
        buckets = np.concatenate([buckets, np.arange(remaining, dtype=np.int64) % len(counts)])
    return buckets, counts + np.bincount(buckets, minlength=len(counts))


# -- Which files may hold which of a batch's keys, by their key ranges -----------------------------
#
# Slices of sorted keys, not pairs.
#
# With the keys sorted, a file's candidates are one slice of them. A thousand files and a
# hundred thousand keys are then a thousand pairs of numbers, whatever the ranges.

USELESS_SHARE = 0.9
"""Ranges that leave more than this share of all pairs are passed over: what they spare is less than
they vary by. A slice costs nothing once it is known, so that half of the pairs is much to spare.
"""


@record
class KeySpan:
    """The smallest and the greatest key of a file, as bytes that compare; None: not known."""

    file_name: str
    lowest: bytes | None
    highest: bytes | None


class KeySpans(Protocol):
    """The key ranges of some files, gone through once."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[KeySpan]: ...


@record
class Candidates:
    """File i may hold the sorted keys from `starts[i]` to `stops[i]`. `text` explains why."""

    starts: ArrowViewsLongs
    stops: ArrowViewsLongs
    pruned: bool
    text: str


def candidates_by_range(spans: KeySpans, keys: SortKeys, *, enabled: bool = True) -> Candidates:
    """Return which keys each file may hold, both ends of its range included.

    A file without a range may hold all. Where ranges overlap so much that they leave most pairs, as
    those of random keys do, they are not used, which `text` states. Raises CorruptFileError,
    naming the file, for a range the wrong way round.
    """
    count, files = len(keys), len(spans)
    starts, stops = np.zeros(files, np.int64), np.full(files, count, np.int64)
    everything = files * count
    if not enabled:
        return Candidates(
            starts=starts, stops=stops, pruned=False, text="ranges not used: switched off"
        )
    for index, span in enumerate(spans):
        if span.lowest is None or span.highest is None:
            continue
        if span.lowest > span.highest:
            raise CorruptFileError(
                "a file's smallest key is above its greatest; restore it, or run verify",
                file=span.file_name,
            )
        starts[index] = lower_bound(keys, span.lowest)
        stops[index] = upper_bound(keys, span.highest)
    pair_count = int((stops - starts).sum())
    share = pair_count / everything if everything else 0.0
    if share > USELESS_SHARE and files > 1:
        return Candidates(
            starts=np.zeros(files, np.int64),
            stops=np.full(files, count, np.int64),
            pruned=False,
            text=f"ranges not used: they leave {share:.0%} of the pairs of keys and files",
        )
    return Candidates(
        starts=starts,
        stops=stops,
        pruned=True,
        text=f"ranges leave {pair_count} of {everything} pairs of keys and files",
    )


# -- Which task looks into which data files, so that tasks have about the same to read -------------


@record
class FileShare:
    """Data files of one bucket that one task looks into, and how many rows they hold."""

    partition: bytes
    bucket: int
    entries: tuple[ManifestEntry, ...]
    row_count: int


def file_shares(
    entries: Sequence[ManifestEntry], *, task_count: int, task_rows_max: int | None
) -> tuple[FileShare, ...]:
    """Cut live files into shares of one bucket each, none larger than a task's part of all rows.

    With `task_rows_max` None a bucket is never cut; otherwise a share has at most so many rows, if
    its files are not larger. Files that lie side by side in the order given stay together.
    """
    total = sum(entry.file.row_count for entry in entries)
    most = total
    if task_rows_max is not None:
        most = max(1, min(task_rows_max, -(-total // task_count)))
    shares = []
    for (partition, bucket), files in sorted(by_bucket(entries).items()):
        for part in _cut(files, most):
            rows = sum(entry.file.row_count for entry in part)
            shares.append(
                FileShare(partition=partition, bucket=bucket, entries=tuple(part), row_count=rows)
            )
    return tuple(shares)


def _cut(files: Sequence[ManifestEntry], most: int) -> list[list[ManifestEntry]]:
    parts: list[list[ManifestEntry]] = [[]]
    size = 0
    for entry in files:
        if parts[-1] and size + entry.file.row_count > most:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += entry.file.row_count
    return parts


def balanced(costs: Sequence[int], task_count: int) -> tuple[int, ...]:
    """Return the task of each item: the costliest first, each to the task that has least so far.

    No task gets more than 4/3 of what the best of all ways would give its busiest one.
    """
    tasks = [(0, number) for number in range(task_count)]
    chosen = [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda item: (-costs[item], item)):
        cost, number = heapq.heappop(tasks)
        chosen[item] = number
        heapq.heappush(tasks, (cost + costs[item], number))
    return tuple(chosen)


# -- How many tasks share many items of work, and which task takes which items ---------------------

TASK_COUNT_MAX = 2_000
"""No job has more tasks: a scheduler spends some 10 ms on each."""
_ITEM_COST_BYTES = 1 << 20
"""The weight of an item besides its bytes: opening files costs as much as reading about so many."""
_TASK_BYTES_MIN = 4 << 20
_TASK_BYTES_MAX = 128 << 20


def packed(
    sizes: Sequence[int], *, task_goal: int, in_order: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Return the items of each task, in ascending order; `sizes`: the bytes that each item reads.

    There are about `task_goal` tasks, enough to keep all cores busy: fewer where the items are small, for a
    task has 4 MiB at least, and more where there is much, for it has 128 MiB at most unless one item has more.
    No item is parted, and an item more costs as much as 1 MiB. `in_order`: the items of a task all come before
    those of the next one; without it tasks are more alike.
    """
    weights = [size + _ITEM_COST_BYTES for size in sizes]
    total = sum(weights)
    share = min(_TASK_BYTES_MAX, max(_TASK_BYTES_MIN, -(-total // max(1, task_goal))))
    # A larger one is a task by itself.
    ends = list(accumulate(min(weight, share) for weight in weights))
    filled = ends[-1] if ends else 0
    count = min(len(sizes), TASK_COUNT_MAX, -(-filled // share))
    chosen: Sequence[int] = balanced(weights, count)
    if in_order:
        chosen = [begin * count // filled for begin in (0, *ends)[: len(ends)]]
    tasks: list[list[int]] = [[] for _ in range(count)]
    for item, task in enumerate(chosen):
        tasks[task].append(item)
    return tuple(tuple(items) for items in tasks if items)
