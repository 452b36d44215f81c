"""Keys that may move between partitions: what becomes of rows whose key is in another one already.

Rows stand sorted by key, and within a key in the order in which they came. Everything is an array
with one value per row; partitions and buckets are numbers, -1 means none.
"""

import numpy as np
import numpy.typing as npt

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.modes import MergeEngine
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.schema.table_schema import TableSchema

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
    """What to write. A row goes to partition `target`; -1: it is dropped.

    It has the bucket of row `root`, itself or an earlier one, whose bucket is `bucket`; -1: a new key
    of the target. `left`: the partition that the row takes its key away from, -1: none; the key's
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
    # A row that finds its key where the row before it has put it has the bucket of that one.
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
    nobody = np.full(len(target), -1, np.int64)
    return MovedKeys(
        target=target, root=root, bucket=bucket, left_partition=nobody, left_bucket=nobody
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
