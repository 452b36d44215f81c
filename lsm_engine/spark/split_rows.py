"""The rows of one split, in Spark's Arrow types: what a reading task yields."""

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.plan.scan import Split
from lsm_engine.spark.arrow_rows import fitter
from lsm_engine.spark.jobs import Batches
from lsm_engine.table.read import SplitSource

_BATCH_ROWS = 64 * 1024
"""Rows of a batch that goes to the JVM, which holds it whole, outside its heap."""


@record
class SplitReader:
    """How the splits of one scan are read. `schema`: the columns as Spark takes them."""

    source: SplitSource
    schema: pa.Schema

    def batches(self, split: Split) -> Batches:
        """Yield the rows of a split, merged, filtered, projected."""
        fit = fitter(self.schema)
        for batch in self.source.batches(split):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield fit(batch.slice(start, _BATCH_ROWS))
