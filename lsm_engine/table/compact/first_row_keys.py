"""First-row: keys that older levels hold already. A rewrite drops their rows instead of merging them.

Readers of a first-row table merge nothing, so above level 0 a key may be in one file only. A rewrite
that leaves older levels out reads their keys, in its own key range, as the oldest run; a row that
loses to such a key goes.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lsm_engine.mergetree.levels import Levels
from lsm_engine.mergetree.sections import sections
from lsm_engine.mergetree.sorted_run import KeyOrder
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.plan.scan import Run
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, TableSchema

COMPACTED = 126
"""In place of a row kind, and even as those of adds are: the row is of an older level."""


def older_than(taken: Iterable[DataFileMeta], levels: Levels) -> tuple[DataFileMeta, ...]:
    """Return the files of a bucket that a compaction of `taken`, its newest runs, leaves out."""
    names = {file.file_name for file in taken}
    return tuple(file for file in levels.files if file.file_name not in names)


def overlaps(file: DataFileMeta, others: Iterable[DataFileMeta], key_order: KeyOrder) -> bool:
    """Whether some of the others may hold a key of a file."""
    low, high = key_order(file.min_key), key_order(file.max_key)
    return any(
        key_order(other.min_key) <= high and low <= key_order(other.max_key) for other in others
    )


def may_hold_older_keys(
    file: DataFileMeta, compacted: Iterable[DataFileMeta], key_order: KeyOrder
) -> bool:
    """Whether a file has to be rewritten to leave level 0, as it may hold compacted keys."""
    return file.level == 0 and overlaps(file, compacted, key_order)


def older_key_runs(
    section: Iterable[Run], older: Sequence[DataFileMeta], key_order: KeyOrder
) -> list[Run]:
    """Return the older files that may hold a key of a section, as sorted runs."""
    files = [file for run in section for file in run]
    near = [other for other in older if overlaps(other, files, key_order)]
    return [run.files for one in sections(near, key_order) for run in one]


def older_key_batches(
    schema: TableSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield keys and sequence numbers as rows of the table, marked COMPACTED, other columns null."""
    arrow = schema.key_value_arrow
    for batch in batches:
        count = batch.num_rows
        columns = [
            batch.column(field.name)
            if field.name in batch.schema.names
            else pa.nulls(count, field.type)
            for field in arrow
        ]
        marks = pa.array(np.full(count, COMPACTED, np.int8))
        yield pa.RecordBatch.from_arrays([*columns[:-1], marks], schema=arrow)


def older_key_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return what has to be read of an older file."""
    keys = tuple(name for name in schema.names if name in schema.trimmed_primary_keys)
    return (*keys, SEQUENCE_NUMBER)
