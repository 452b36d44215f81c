"""The rows of one split, in Spark's Arrow types: what a reading task yields."""

import pyarrow as pa

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.scan import Split
from lsm_engine.spark.arrow_rows import fitter
from lsm_engine.spark.jobs import Batches
from lsm_engine.store.snapshots import SnapshotStore
from lsm_engine.table.ground.time_travel import raise_if_expired
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.split_read import SplitSource

_BATCH_ROWS = 64 * 1024
"""Rows of a batch that goes to the JVM, which holds it whole, outside its heap."""


@record
class SplitReader:
    """How the splits of one scan are read. `schema`: the columns as Spark takes them.

    `untagged`: the snapshot that is read, unless by a tag, which keeps its files.
    """

    source: SplitSource
    schema: pa.Schema
    untagged: Snapshot | None

    @staticmethod
    def of(scan: Scan, schema: pa.Schema) -> "SplitReader":
        """Return what the splits of a scan's plan are read with."""
        return SplitReader(source=scan.plan.source, schema=schema, untagged=scan.untagged)

    def batches(self, split: Split) -> Batches:
        """Yield the rows of a split, merged, filtered, projected.

        Raises ExpiredError where a file is missing because the snapshot has expired meanwhile.
        """
        try:
            yield from self._batches(split)
        except NotFoundError as cause:
            if self.untagged is not None:
                context = self.source.context
                snapshots = SnapshotStore(context.file_io, context.paths)
                raise_if_expired(snapshots, self.untagged, cause)
            raise

    def _batches(self, split: Split) -> Batches:
        fit = fitter(self.schema)
        for batch in self.source.batches(split):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield fit(batch.slice(start, _BATCH_ROWS))
