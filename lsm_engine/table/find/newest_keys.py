"""Read keys of the newest snapshot: lookups, locations, and scans whose filter names keys.

A scan of a few keys decodes a page of every column for each file that may hold them. A lookup is much cheaper, but
each lookup file costs the decoding of a whole data file once. So scans read pages until the decoded rows equal the
cost of the lookup files, and look keys up from then on. The total cost is at most twice that of the better choice,
whatever the number of scans.
"""

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.kernels.arrow_views import bool_values
from lsm_engine.kernels.selection import keep
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.prune.bucket import candidate_values
from lsm_engine.prune.predicate import Predicate
from lsm_engine.table.find.locate import Locator
from lsm_engine.table.find.lookup import FOUND, TableQuery
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.replaced_rows import ReplacedRows
from lsm_engine.table.read.scan_plan import PlannedScan

_KEYS_MAX = 1_000
"""Keys of one scan up to which it may be a lookup."""
_PAGE_ROWS = 20_000
_SCAN_ROWS = 2_000
"""The cost of a scan of a few keys in decoded rows: at most a page of each file, and its plan."""
_LISTED_ROWS = 100
"""The cost, in decoded rows, of one more file in the view of a lookup."""


class NewestKeys:
    """The query and the locator of a table, created on first use. Threads may share them."""

    def __init__(self, session: TableSession) -> None:
        self.session = session
        self._schema = session.schema
        self.replaced = ReplacedRows()
        self._file_count = 0
        # Racing threads may lose an addition: then lookup files are built a little later.
        self._paid_rows = 0

    @cached_property
    def query(self) -> TableQuery:
        """The query for lookups; its callers refresh it."""
        return TableQuery(self.session)

    @cached_property
    def locator(self) -> Locator:
        """The locator of records."""
        return Locator(self.session)

    def named_by(self, predicate: Predicate) -> pa.RecordBatch | None:
        """Return the keys that a filter restricts rows to, in order; None if it does not name them all."""
        schema = self._schema
        fields = schema.select(schema.primary_keys)
        kinds = [schema.arrow.field(field.name).type for field in fields]
        if any(map(pa.types.is_floating, kinds)) or FOUND in schema.names:
            return None  # zeros are equal, and one key
        if not set(schema.partition_keys) <= set(schema.primary_keys):
            return None
        values = candidate_values(predicate, fields, _KEYS_MAX)
        if values is None:
            return None
        keys = pa.RecordBatch.from_arrays(values, names=list(schema.primary_keys))
        by = [(name, "ascending") for name in schema.primary_keys]
        return keys.take(pc.sort_indices(keys, sort_keys=by))

    def rows(
        self, snapshot: Snapshot, keys: pa.RecordBatch, names: Sequence[str]
    ) -> pa.Table | None:
        """Return columns of the rows that have these keys in a snapshot; None if a scan is cheaper."""
        if "query" not in self.__dict__ or self.query.snapshot != snapshot:
            price = _SCAN_ROWS + _LISTED_ROWS * self._file_count
            if self._paid_rows < price:
                return None
            self._paid_rows -= price
            try:
                self.query.refresh()
            except LsmError:  # tables that are scanned only, and damage in a newer snapshot
                return None
        result, built = self.query.lookup_at(snapshot, keys, names, self._paid_rows)
        self._paid_rows -= built
        return None if result is None else keep(result, bool_values(result.column(FOUND)))

    def scanned(self, plan: PlannedScan) -> None:
        """Add the cost of a scan of a few keys."""
        files = [file for split in plan.splits for file in split.files]
        self._file_count = plan.explanation.files.total
        self._paid_rows += _SCAN_ROWS + sum(min(file.row_count, _PAGE_ROWS) for file in files)
