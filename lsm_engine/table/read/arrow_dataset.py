"""A pyarrow dataset over a table, for engines that push columns and filters into one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.prune.where import Filter
from lsm_engine.table.read.scan import Scan

OpenScan = Callable[[Sequence[str] | None, Filter | None, int | None], Scan]


class ArrowDataset(ds.Dataset):  # type: ignore[misc]
    """One state of a table with the methods of a `pyarrow.dataset.Dataset`.

    Columns, filters and limits reach the scan. Arguments that only steer how pyarrow reads files
    (`batch_size`, `use_threads`, `memory_pool`, readahead) are accepted and ignored.
    """

    def __init__(self, schema: pa.Schema, open_scan: OpenScan) -> None:
        self._schema = schema  # what pyarrow's own class would hold is never made
        self._open_scan = open_scan

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

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
        """Yield the rows in batches."""
        return self._scan(columns, filter).to_batches()

    def to_reader(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self._scan(columns, filter).to_reader()

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, **_: Any
    ) -> ds.Scanner:
        """Return the rows as a pyarrow Scanner."""
        return ArrowScanner(self._scan(columns, filter))

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

    def filter(self, expression: Filter) -> "ArrowDataset":
        """Return the rows that a filter keeps, as a dataset."""
        scan = self._scan(None, expression)
        return ArrowDataset(scan.schema, scan.narrowed)

    def take(self, indices: Any, **_: Any) -> pa.Table:
        """Return rows by their place; all are read."""
        return self.to_table().take(indices)

    def sort_by(self, sorting: Any, **_: Any) -> pa.Table:
        """Return all rows in an order."""
        return self.to_table().sort_by(sorting)

    @property
    def partition_expression(self) -> pc.Expression:
        """The expression that all rows satisfy: always true, as no partition is promised."""
        return pc.scalar(value=True)

    def get_fragments(self, filter: Filter | None = None) -> Iterator["ArrowFragment"]:
        """Yield the only fragment, with the rows that a filter keeps."""
        yield ArrowFragment(self if filter is None else self.filter(filter))

    def _get_fragments(self, filter: Filter | None) -> Iterator["ArrowFragment"]:
        return self.get_fragments(filter)

    def _not_here(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError("a table's dataset cannot do this; read it first: to_table()")

    join = join_asof = replace_schema = _scanner_options = _scan_options = _not_here
    __reduce__ = __reduce_cython__ = __setstate_cython__ = _not_here

    def _scan(
        self, columns: Sequence[str] | None, row_filter: Filter | None, limit: int | None = None
    ) -> Scan:
        return self._open_scan(columns, row_filter, limit)


class ArrowScanner(ds.Scanner):  # type: ignore[misc]
    """A scan with the methods of a pyarrow Scanner. The caller's thread reads rows as it consumes them.

    PyArrow's own scanner pulls rows in a background thread. That thread goes on after a reader has reached its limit,
    and aborts the process if the interpreter ends meanwhile.
    """

    def __init__(self, scan: Scan) -> None:
        self._read = scan  # what pyarrow's own class would hold is never made

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns that are read."""
        return self._read.schema

    projected_schema = dataset_schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self._read.to_reader()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        return self._read.to_batches()

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Yield the rows in batches, each with its fragment: the only one."""
        fragment = ArrowFragment(ArrowDataset(self._read.schema, self._read.narrowed))
        return (ds.TaggedRecordBatch(batch, fragment) for batch in self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return self._read.to_arrow()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows that are found."""
        return self._read.narrowed(None, None, num_rows).to_arrow()

    def take(self, indices: Any) -> pa.Table:
        """Return rows by their place; all are read."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self._read.count()


class ArrowFragment:
    """The only fragment of a dataset, for engines that read fragment by fragment."""

    def __init__(self, dataset: ArrowDataset) -> None:
        self._dataset = dataset
        self.physical_schema = dataset.schema
        self.partition_expression = dataset.partition_expression

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> ds.Scanner:
        """Return a pyarrow Scanner; `schema` is the dataset's."""
        return self._dataset.scanner(**options)

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Return the rows; `schema` is the dataset's."""
        return self._dataset.to_table(**options)

    def count_rows(self, **options: Any) -> int:
        """Return how many rows there are."""
        return self._dataset.count_rows(**options)
