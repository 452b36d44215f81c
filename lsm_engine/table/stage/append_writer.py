"""Append: rows for a table without a primary key; nothing is sorted, merged or replaced."""

import pyarrow as pa

from lsm_engine.base.modes import FileSource
from lsm_engine.io.data_file_writer import DataFileWriter
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.stage.written_bucket import WrittenBucket


class AppendWriter:
    """Writes the rows of one bucket of an append table (AppendOnlyWriter). Runs in any process.

    `first_sequence_number` numbers the first row; the numbers stand in manifests only.
    """

    def __init__(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        *,
        total_buckets: int,
        first_sequence_number: int,
    ) -> None:
        self._place = (partition, bucket, total_buckets)
        self._writer: DataFileWriter = context.new_files(
            partition,
            bucket,
            level=0,
            source=FileSource.APPEND,
            first_sequence_number=first_sequence_number,
        )

    @property
    def byte_count(self) -> int:
        """Bytes held in memory."""
        return self._writer.waiting_bytes

    def write(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Take rows of this bucket; all are new ones, so that kinds do not matter."""
        del kinds
        self._writer.write(rows)

    def relieve(self) -> None:
        """Give up the memory."""
        self._writer.relieve()

    def finish(self) -> WrittenBucket:
        """Write the remaining rows and return the files of the bucket."""
        partition, bucket, total_buckets = self._place
        return WrittenBucket(
            partition=partition,
            bucket=bucket,
            total_buckets=total_buckets,
            files=self._writer.finish(),
        )

    def abort(self) -> None:
        """Delete what was written; nothing of it was visible."""
        self._writer.abort()
