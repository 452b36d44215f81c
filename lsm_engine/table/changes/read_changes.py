"""Read one split of changes → batches with `_snapshot_id`, `_row_kind` and the columns asked for."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Longs, fixed_values, one_array
from lsm_engine.kernels.before_after import (
    CREATED,
    REMOVED,
    REPLACED,
    UNCHANGED,
    lay_out_changes,
)
from lsm_engine.kernels.equality import equal_rows
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.merge_runs import MergeOrder, merge_order
from lsm_engine.kernels.row_kinds import adds
from lsm_engine.merge.sequence import Rows, UserSequence
from lsm_engine.plan.incremental import ChangedKeys, ChangeSplit, StatePart
from lsm_engine.schema.table_schema import VALUE_KIND
from lsm_engine.table.changes.change_range import raise_if_deleted
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.merge_rules import MergeRules, merge_rules
from lsm_engine.table.ground.row_kinds import kind_symbols
from lsm_engine.table.read.merge_stream import Part, merge_slices, order_of
from lsm_engine.table.read.row_groups import MatchingGroups
from lsm_engine.table.read.split_read import BucketReader, ReadRows

SNAPSHOT_ID = "_snapshot_id"
ROW_KIND = "_row_kind"
_NOWHERE = -1


@record
class ChangedRows:
    """The output columns and the filter of changes. `names` may include `_snapshot_id` and `_row_kind`.

    `rows` names the columns of the table to read, and the filter part that can skip row groups.
    """

    names: tuple[str, ...]
    rows: ReadRows


def read_changes(
    context: BucketContext, selection: ChangedRows, split: ChangeSplit
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one split, in order, filtered and projected.

    Raises ExpiredError where a file is missing because its snapshot has expired meanwhile.
    """
    finish = replace(selection.rows, names=selection.names).finish
    try:
        for rows in _changes(context, selection.rows, split):
            yield from finish(_as_changes(rows, split.snapshot_id))
    except NotFoundError as cause:
        raise_if_deleted(context.snapshots, split.named_by, cause)
        raise


def _changes(context: BucketContext, rows: ReadRows, split: ChangeSplit) -> Iterator[Rows]:
    if split.keys is not ChangedKeys.ALL:
        rules = _by_arrival(context)
        for changes in _whole_keys(context, rows, split, rules):
            yield _of_keys(split.keys, changes, rules)
        return
    names = rows.needed(context.schema)
    reader = BucketReader(context, split.partition, split.bucket)
    if context.schema.has_primary_key:
        names = (*names, VALUE_KIND)
    for file in split.files:
        yield from reader.file(file, names, matching=MatchingGroups(rows.predicate))
    yield from _combined(context, reader, rows, split)


def _combined(
    context: BucketContext, reader: BucketReader, rows: ReadRows, split: ChangeSplit
) -> Iterator[Rows]:
    for section in split.sections:
        yield from reader.merged(section, rows, drop_deletes=False)
    for before, after in split.states:
        yield from _compared(context, split, before, after)


def _as_changes(rows: Rows, snapshot_id: int) -> pa.Table:
    table = _table(rows)
    count = table.num_rows
    if VALUE_KIND in table.column_names:
        kinds = kind_symbols().take(one_array(table.column(VALUE_KIND)).cast(pa.int32()))
        table = table.drop_columns([VALUE_KIND])
    else:  # a table without a key takes new rows only
        kinds = pa.repeat(RowKind.INSERT.symbol, count)
    ids = pa.array(np.full(count, snapshot_id, np.int64))
    return table.append_column(SNAPSHOT_ID, ids).append_column(ROW_KIND, kinds)


def _table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


def _by_arrival(context: BucketContext) -> MergeRules:
    """Return merge rules that order rows of a key by arrival."""
    return replace(merge_rules(context.schema), sequence=UserSequence())


# --- keys that move -------------------------------------------------------------------------------


def _whole_keys(
    context: BucketContext, rows: ReadRows, split: ChangeSplit, rules: MergeRules
) -> Iterator[Rows]:
    """Yield the changes of a split in key order, and in order within a key."""
    reader = BucketReader(context, split.partition, split.bucket)
    names = rows.to_merge(context.schema, rules)
    files = [
        reader.file(file, names, matching=MatchingGroups(rows.predicate)) for file in split.files
    ]
    for parts in merge_slices([_uncut(file, rules) for file in files], rules):
        order = order_of(parts, rules)
        yield gather([part.rows for part in parts], order.run, order.row)
    yield from _combined(context, reader, rows, split)


def _uncut(batches: Iterable[pa.RecordBatch], rules: MergeRules) -> Iterator[pa.RecordBatch]:
    """Yield sorted rows in batches that end at a key boundary."""
    pending: pa.RecordBatch | None = None
    for batch in (piece for piece in batches if piece.num_rows):
        both = [batch] if pending is None else [pending, batch]
        (rows,) = pa.Table.from_batches(both).combine_chunks().to_batches()
        begins = int(order_of([Part(run=0, rows=rows, keys=None)], rules).starts[-1])
        if begins:
            yield rows.slice(0, begins)
        pending = rows.slice(begins)
    if pending is not None:
        yield pending


def _of_keys(keys: ChangedKeys, rows: Rows, rules: MergeRules) -> pa.Table:
    """Return the rows of keys whose last row deletes them, or of those whose last row adds them."""
    starts = merge_order([rules.keys(rows)], [rules.ranks(rows)]).starts
    ends = np.append(starts[1:], rows.num_rows)
    kinds = fixed_values(one_array(rows.column(VALUE_KIND)), np.int8)
    chosen = adds(kinds[ends - 1]) == (keys is ChangedKeys.HERE)
    return _table(rows).filter(pa.array(np.repeat(chosen, ends - starts)))


# --- states --------------------------------------------------------------------------------------


def _compared(
    context: BucketContext, split: ChangeSplit, before: StatePart, after: StatePart
) -> Iterator[pa.Table]:
    """Yield the changes from one state of a key range to the other, in key order."""
    # Each state has one row per key, so the order within a key does not matter.
    rules = _by_arrival(context)
    streams = [_state(context, split, part) for part in (before, after)]
    for parts in merge_slices(streams, rules):
        sources = [part.rows for part in parts]
        sides = np.array([part.run for part in parts], np.int64)
        order = order_of(parts, rules)
        differences = _differences(order, sides[order.run], sources, rules)
        if differences is not None:
            yield differences


def _state(context: BucketContext, split: ChangeSplit, part: StatePart) -> Iterator[pa.RecordBatch]:
    reader = BucketReader(context, split.partition, split.bucket, part.vectors)
    for section in part.sections:
        for rows in reader.merged(section):
            yield from _batches(rows)


def _batches(rows: Rows) -> Iterable[pa.RecordBatch]:
    return rows.to_batches() if isinstance(rows, pa.Table) else [rows]


def _differences(
    order: MergeOrder, side: Longs, sources: list[pa.RecordBatch], rules: MergeRules
) -> pa.Table | None:
    """`side`, per row of the order: 0 it was there before, 1 it is there after."""
    keys = len(order.starts)
    key_of = np.repeat(np.arange(keys), np.diff(order.starts, append=len(order)))
    before, after = np.full(keys, _NOWHERE, np.int64), np.full(keys, _NOWHERE, np.int64)
    was, is_now = np.flatnonzero(side == 0), np.flatnonzero(side == 1)
    before[key_of[was]], after[key_of[is_now]] = was, is_now
    codes = np.where(before < 0, CREATED, np.where(after < 0, REMOVED, REPLACED)).astype(np.int8)
    newer_order = order.take(np.where(after < 0, 0, after))
    now = gather(sources, newer_order.run, newer_order.row)
    both = np.flatnonzero(codes == REPLACED)
    if len(both):
        names = [name for name in now.column_names[:-2] if name not in rules.key_columns]
        older_order = order.take(before[both])
        old = gather([source.select(names) for source in sources], older_order.run, older_order.row)
        new = now.select(names).take(pa.array(both))
        codes[both[equal_rows(old.columns, new.columns, len(both))]] = UNCHANGED
    count = int(np.count_nonzero(codes)) + int(np.count_nonzero(codes == REPLACED))
    if not count:
        return None
    runs: npt.NDArray[np.uint16] = np.empty(count, np.uint16)
    rows: npt.NDArray[np.int32] = np.empty(count, np.int32)
    kinds = np.empty(count, np.int8)
    lay_out_changes(codes, before, order.run, order.row, len(sources), runs, rows, kinds)
    changes = gather([*sources, now], runs, rows)
    index = changes.schema.get_field_index(VALUE_KIND)
    return changes.set_column(index, changes.schema.field(index), pa.array(kinds))
