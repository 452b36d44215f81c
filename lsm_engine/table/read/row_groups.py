"""Which row groups of an open file may hold a row that a filter wants, from the file's own footer."""

import numpy as np
import pyarrow as pa

from lsm_engine.io.data_file_reader import DataFileReader
from lsm_engine.prune.predicate import Predicate, columns_of
from lsm_engine.prune.stats import ColumnBounds, may_match


def matching_row_groups(reader: DataFileReader, predicate: Predicate) -> list[int]:
    """Return the row groups to read, in order; whatever is not known of a column may match."""
    bounds = {}
    for name in columns_of(predicate).intersection(reader.schema.names):
        found = reader.bounds(name)
        if found is not None:
            bounds[name] = ColumnBounds(
                mins=found.lower,
                maxs=found.upper,
                null_counts=pa.array(found.null_counts, pa.int64()),
            )
    row_counts = pa.array(reader.row_group_rows, pa.int64())
    return [int(at) for at in np.flatnonzero(may_match(predicate, bounds, row_counts))]
