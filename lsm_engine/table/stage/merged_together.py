"""Sort and merge small buffers of many buckets in one call.

A sort and a merge cost about a millisecond before their first row. If a write has a few rows for each of many
buckets, that is a third of its time. So one sort takes all rows, with the bucket number as the first key column.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lsm_engine.kernels.arrow_views import fixed_values, one_array
from lsm_engine.kernels.merge_runs import RowRanks
from lsm_engine.kernels.order import sort_orders
from lsm_engine.table.ground.merge_rules import MergeRules
from lsm_engine.table.stage.write_buffer import WriteBuffer


def merge_together(buffers: Sequence[WriteBuffer], rules: MergeRules) -> None:
    """Merge the rows of several buffers, with the same result as one merge per buffer.

    The merge function must select rows unchanged, and no buffer may have spilled rows.
    """
    assert rules.function.keeps_rows, "a merged row may be none of its versions"
    buffered = [buffer.take() for buffer in buffers]
    counts = [sum(batch.num_rows for batch in batches) for batches in buffered]
    numbers = pa.array(np.repeat(np.arange(len(buffered), dtype=np.int32), counts))
    rows = pa.Table.from_batches(
        [batch for batches in buffered for batch in batches]
    ).combine_chunks()
    ranks = rules.ranks(rows)
    if ranks.newest is None:  # numbers of several buckets do not compare; rows are in their order
        ranks = RowRanks(sequence=np.arange(len(numbers), dtype=np.int64))
    order = sort_orders([rules.keys(rows, numbers)], [ranks])
    name = "_" * (1 + max(map(len, rows.column_names)))
    merged = rules.function.merge(order, [rows.add_column(0, name, numbers)])
    of_row = fixed_values(one_array(merged.column(name)), np.int32)
    ends = np.searchsorted(of_row, np.arange(1, len(buffered) + 1)).tolist()
    begin = 0
    for buffer, end in zip(buffers, ends, strict=True):
        buffer.put_merged(merged.slice(begin, end - begin).drop_columns(name))
        begin = end
