"""Changes as Spark takes them: their columns, and the rows of one split."""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lsm_engine.base.record import record
from lsm_engine.plan.incremental import ChangeSplit
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.spark.arrow_rows import fitter, spark_schema
from lsm_engine.spark.jobs import Batches
from lsm_engine.table.changes.read_changes import ROW_KIND, SNAPSHOT_ID, ChangedRows, read_changes
from lsm_engine.table.ground.bucket_context import BucketContext

_BATCH_ROWS = 64 * 1024
_CHANGE_TYPES = (
    StructField(SNAPSHOT_ID, LongType(), nullable=False),
    StructField(ROW_KIND, StringType(), nullable=False),
)


def change_schema(schema: TableSchema) -> StructType:
    """Return the columns of changes: `_snapshot_id`, `_row_kind`, and the table's."""
    return StructType([*_CHANGE_TYPES, *spark_schema(schema.read_fields).fields])


@record
class ChangeReader:
    """How the splits of changes are read. `schema`: the columns as Spark takes them."""

    rows: ChangedRows
    schema: pa.Schema

    def batches(self, context: BucketContext, split: ChangeSplit) -> Batches:
        """Yield the changes of a split, in order."""
        yield from _fitted(self.schema, read_changes(context, self.rows, split))


def _fitted(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Batches:
    fit = fitter(schema)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield fit(batch.slice(start, _BATCH_ROWS))
