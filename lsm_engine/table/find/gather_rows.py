"""Gather the rows of a lookup from many stores at once, in the order of the keys."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.routing import group_rows
from lsm_engine.kernels.row_kinds import retracts
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, locate
from lsm_engine.lookup.lookup_levels import LookupLevels, Versions
from lsm_engine.plan.scan import ReadMode
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.ground.merge_rules import MergeRules, merge_rules, read_mode
from lsm_engine.table.read.merge_stream import merge_runs

_SOURCES_MAX = 60_000


@record
class KeyRows:
    """Keys of one bucket in key order, and the input row of each key."""

    batch: KeyBatch
    rows: Longs

    @staticmethod
    def from_keys(keys: pa.RecordBatch, rows: Longs, schema: TableSchema) -> "KeyRows":
        """Sort keys; `rows` are their row numbers in the input."""
        fields = schema.select(schema.trimmed_primary_keys)
        columns = [keys.column(field.name) for field in fields]
        batch, places = KeyBatch.from_columns(columns, [field.type for field in fields])
        return KeyRows(batch=batch, rows=rows[places])


class FoundRows:
    """Collects the rows that were found for one input, and builds one table of them."""

    def __init__(
        self, schema: TableSchema, rules: MergeRules, count: int, names: Sequence[str]
    ) -> None:
        self._rules = rules
        self._names = list(names)
        self._stored = [*dict.fromkeys((*names, VALUE_KIND))]
        self._table = schema
        self._needed = [
            *(name for name in schema.names if name in rules.needs(names)),
            SEQUENCE_NUMBER,
            VALUE_KIND,
        ]
        everything = schema.key_value_arrow
        self._schema = pa.schema([everything.field(name) for name in self._stored])
        self._is_alone = True
        # Source 0 is a row of nulls: what was not found points at it.
        self._sources = [_null_row(self._schema)]
        self._run: npt.NDArray[np.uint16] = np.zeros(count, np.uint16)
        self._row: npt.NDArray[np.int32] = np.zeros(count, np.int32)

    def add(self, keys: KeyRows, levels: LookupLevels, *, is_alone: bool = True) -> None:
        """Look keys up in a bucket. Unless `is_alone`, its deletes do not hide rows of other buckets."""
        self._is_alone = is_alone
        if is_first_hit_newest(self._table, levels):
            self._add_first_hits(keys, levels)
        else:
            self._add_merged(keys, levels)

    def table(self) -> tuple[pa.Table, Bools]:
        """Return the requested columns, one row per input row, and the mask of the rows that were found."""
        is_found: Bools = self._run > 0
        kinds = gather(self._selected([VALUE_KIND]), self._run, self._row).column(0)
        retracted = _retracted(kinds)
        if retracted.any():
            is_found &= ~retracted
            self._run[retracted], self._row[retracted] = 0, 0
        return gather(self._selected(self._names), self._run, self._row), is_found

    def _selected(self, names: list[str]) -> list[pa.RecordBatch]:
        return [source.select(names) for source in self._sources]

    def _add_first_hits(self, keys: KeyRows, levels: LookupLevels) -> None:
        hits = levels.find(keys.batch)
        groups = group_rows(hits.store + 1, len(hits.stores) + 1)
        for number, start, stop in groups.stretches():
            if number == 0:
                continue
            hit_rows = groups.order[start:stop]
            fetched = hits.stores[number - 1].fetch(hits.handle[hit_rows], self._stored)
            self._take(keys.rows[hit_rows], fetched.sources, fetched.run, fetched.row)

    def _add_merged(self, keys: KeyRows, levels: LookupLevels) -> None:
        """Merge all versions of the keys, as a scan does."""
        key_versions = list(levels.versions(keys.batch))[::-1]
        runs = [self._rows_of(versions) for versions in key_versions]
        ages = (
            [version.file.level for version in key_versions] if self._rules.newest_stands else None
        )
        merged = list(merge_runs(runs, self._rules, drop_deletes=True, ages=ages))
        for rows in merged:
            batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
            for batch in batches:
                search_keys = SearchKeys.from_sort_keys(self._rules.keys(batch))
                everything = np.arange(len(keys.batch), dtype=np.int64)
                row = locate(search_keys, keys.batch.search, everything).last
                hit = row >= 0
                run = np.zeros(int(hit.sum()), np.uint16)
                self._take(keys.rows[hit], [batch], run, row[hit].astype(np.int32))

    def _rows_of(self, versions: Versions) -> list[pa.RecordBatch]:
        fetched = versions.store.fetch(versions.handles, self._needed)
        rows = gather(fetched.sources, fetched.run, fetched.row)
        batches: list[pa.RecordBatch] = rows.to_batches()
        return batches

    def _take(
        self,
        rows: Longs,
        sources: Sequence[pa.RecordBatch],
        run: npt.NDArray[np.uint16],
        row: npt.NDArray[np.int32],
    ) -> None:
        if len(self._sources) + len(sources) > _SOURCES_MAX:
            self._compact()
        if not self._is_alone:
            kinds = gather([batch.select([VALUE_KIND]) for batch in sources], run, row).column(0)
            is_taken = ~_retracted(kinds) | (self._run[rows] == 0)
            rows, run, row = rows[is_taken], run[is_taken], row[is_taken]
        first = len(self._sources)
        self._run[rows] = run + np.uint16(first)
        self._row[rows] = row
        for source in sources:
            columns = [source.column(name) for name in self._stored]
            self._sources.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _compact(self) -> None:
        """Copy the rows found so far into one source: positions address sources with 16 bits."""
        rows = np.flatnonzero(self._run)
        copies = (
            gather(self._sources, self._run[rows], self._row[rows]).combine_chunks().to_batches()
        )
        assert len(copies) <= 1, (
            "found rows of one column exceed 2 GB; look up fewer keys at a time"
        )
        self._sources = [self._sources[0], *copies]
        self._run[rows] = 1
        self._row[rows] = np.arange(len(rows), dtype=np.int32)


def is_first_hit_newest(schema: TableSchema, levels: LookupLevels) -> bool:
    """Whether the newest version of a key is its row, so that no merge is needed."""
    if levels.run_count <= 1 or read_mode(schema) is ReadMode.ABOVE_LEVEL_0:
        return True  # above level 0 of such tables a key has one row that is not deleted
    engine = schema.options[core_options.MERGE_ENGINE]
    ignores = schema.options[core_options.IGNORE_DELETE]
    if not engine.policy.keeps_newest_row or schema.sequence_fields or ignores:
        return False
    return levels.first_hit_is_newest


def _retracted(kinds: pa.ChunkedArray) -> Bools:
    """Return which rows are deletes; a row that was not found has a null kind."""
    return retracts(kinds.fill_null(int(RowKind.INSERT)).to_numpy())


def found_rows(schema: TableSchema, count: int, names: Sequence[str]) -> FoundRows:
    """Return a collector for `count` keys."""
    return FoundRows(schema, merge_rules(schema), count, names)


def _null_row(schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
