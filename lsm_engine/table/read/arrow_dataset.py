"""A table as others expect a pyarrow dataset: what they ask of one, with columns and filters pushed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from lsm_engine.prune.where import Filter
from lsm_engine.table.read.scan import Scan

OpenScan = Callable[[Sequence[str] | None, Filter | None, int | None], Scan]


class ArrowDataset:
    """One state of a table, for whoever takes a `pyarrow.dataset.Dataset` by what it can do.

    Columns, filters and limits reach the scan. Arguments that only steer how pyarrow reads files
    (`batch_size`, `use_threads`, `memory_pool`, readahead) are taken and need no heeding.
    """

    def __init__(self, schema: pa.Schema, open_scan: OpenScan) -> None:
        self.schema = schema
        self._open_scan = open_scan

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, **_: Any
    ) -> pa.Table:
        """Return the rows that a filter keeps."""
        return self._scan(columns, filter).to_arrow()

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, **_: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield those rows in batches."""
        return self._scan(columns, filter).to_batches()

    def to_reader(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None
    ) -> pa.RecordBatchReader:
        """Return those rows as a stream."""
        return self._scan(columns, filter).to_reader()

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, **_: Any
    ) -> "pa.dataset.Scanner":
        """Return a pyarrow Scanner over those rows; it can be read once."""
        import pyarrow.dataset as ds  # noqa: PLC0415 -- costs start-up, and few ask for it

        return ds.Scanner.from_batches(self.to_reader(columns, filter))

    def head(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        **_: Any,
    ) -> pa.Table:
        """Return the first rows that are found."""
        return self._scan(columns, filter, num_rows).to_arrow()

    def count_rows(self, filter: Filter | None = None, **_: Any) -> int:
        """Return how many rows a filter keeps."""
        return self._scan(None, filter).count()

    def _scan(
        self, columns: Sequence[str] | None, where: Filter | None, limit: int | None = None
    ) -> Scan:
        return self._open_scan(columns, where, limit)
