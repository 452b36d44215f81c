"""Lookup compaction (LookupMergeTreeCompactRewriter): finds the before image of each new row's key.

New are the rows of level 0, or with `changelog-producer` = full-compaction all above the last level.
A key's older row is looked for among the files of the step, then in those below. It is the
before image of a changelog row; where deletion vectors hide older rows, it is what they hide
(decisions/0018).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.io.spill import SpillArea
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.gather import gather
from lsm_engine.lookup.lookup_levels import Hits
from lsm_engine.lookup.lookup_store import StoredValue
from lsm_engine.merge.changes import BeforeMerge, ChangeRules
from lsm_engine.merge.record_expiry import RecordExpiry, with_deletes
from lsm_engine.merge.selection import Source, without_deletes, without_kinds
from lsm_engine.merge.sequence import Rows
from lsm_engine.mergetree.sections import runs_by_age
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.plan.scan import Section
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.compact.first_row_keys import (
    older_key_batches,
    older_key_columns,
    older_key_runs,
)
from lsm_engine.table.compact.lookup_levels import OlderRows
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.deletion_vectors import BucketDeletions
from lsm_engine.table.ground.merge_rules import MergeRules, merge_rules
from lsm_engine.table.ground.schema_keys import key_order_of
from lsm_engine.table.read.merge_stream import (
    Batches,
    MergeLimits,
    Part,
    merge_slices,
    order_of,
    spilled_runs,
)
from lsm_engine.table.read.split_read import BucketReader

_BELOW = 1 << 20
"""Age of rows that lie below the files of a step: above that of any level."""


@record
class RewrittenRows:
    """Merged rows of a stretch of keys, to be written, and the changelog rows they make."""

    rows: Rows
    changes: pa.Table | None


@record
class LookupRewrite:
    """What a lookup compaction does beside merging.

    `compacted_from`: the level from which rows are not new. `emits_changelog`: changelog rows are
    made. `looks_up`: older rows are looked up, with `whole_rows` their values too.
    """

    compacted_from: int
    emits_changelog: bool
    looks_up: bool
    whole_rows: bool

    @staticmethod
    def of(schema: TableSchema, compacted_from: int) -> "LookupRewrite":
        """Return what the rewrites of a table do."""
        options = schema.options
        producer = options[core_options.CHANGELOG_PRODUCER]
        emits_changelog = producer.policy.compares
        policy = options[core_options.MERGE_ENGINE].policy
        chooses = not policy.combines_versions and not schema.sequence_fields
        return LookupRewrite(
            compacted_from=compacted_from,
            emits_changelog=emits_changelog,
            looks_up=not policy.keeps_first_row,
            whole_rows=emits_changelog or not chooses,
        )

    def stored_value(self, *, marks: bool) -> StoredValue:
        """Return what has to be known of older rows; `marks`: they are hidden where they lie."""
        if not marks:
            return StoredValue.ROW
        return StoredValue.POSITION_AND_ROW if self.whole_rows else StoredValue.POSITION


class LookupRewriter:
    """Merges the sections of one step (LookupMergeTreeCompactRewriter). For one thread.

    `older`: files of the bucket below the step that may hold its keys. `deletions`: the bucket's
    deletion vectors, to which the older rows found are added; None: it has none. `expiry`: rows that
    expire by their age, emitted like deletes.
    """

    def __init__(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        *,
        reader: BucketReader,
        rewrite: LookupRewrite,
        older: Sequence[DataFileMeta],
        deletions: BucketDeletions | None,
        expiry: RecordExpiry | None = None,
    ) -> None:
        self._expiry = expiry
        self._schema = context.schema
        self._reader = reader
        self._rewrite = rewrite
        self._deletions = deletions
        self._rules: MergeRules = merge_rules(context.schema)
        self._change_rules = ChangeRules.from_schema(context.schema)
        self._older_files = older
        self._older: OlderRows | None = None
        if older and rewrite.looks_up:
            self._older = OlderRows(
                context,
                partition,
                bucket,
                older,
                value=rewrite.stored_value(marks=deletions is not None),
                deleted=deletions.deleted if deletions is not None else None,
            )

    def merged(self, section: Section, *, drop_deletes: bool) -> Iterator[RewrittenRows]:
        """Yield a section's merged rows in key order, and what they changed."""
        # Rows that only mark that a key is further down are not for writing.
        drop = drop_deletes or not self._rewrite.looks_up
        limits = MergeLimits.from_options(self._schema.options, section)
        names = (*self._schema.names, SEQUENCE_NUMBER, VALUE_KIND)
        ages: list[int] = []
        runs: list[Batches] = []
        for run in self._older_keys(section):
            ages.append(_BELOW)
            runs.append(run)
        for age, files in runs_by_age(section, self._rewrite.compacted_from):
            ages.append(age)
            runs.append(self._reader.run(files, names, max_rows=limits.batch_rows))
        spills = SpillArea()
        try:
            if limits.spills and self._rules.function.keeps_rows:
                old = sum(1 for age in ages if age > 0)
                new = spilled_runs(runs[old:], self._rules, spills, limits.runs_max)
                runs, ages = [*runs[:old], *new], [*ages[:old], *([0] * len(new))]
            for parts in merge_slices(runs, self._rules):
                yield from self._with_before(
                    parts, [ages[part.run] for part in parts], drop_deletes=drop
                )
        finally:
            spills.close()

    def _older_keys(self, section: Section) -> Iterable[Batches]:
        """Return the keys that older files hold, where that alone decides (first-row)."""
        order = key_order_of(self._schema)
        if self._rewrite.looks_up or order is None:
            return []
        keys = older_key_columns(self._schema)
        return [
            older_key_batches(self._schema, self._reader.run(run, keys))
            for run in older_key_runs(section, self._older_files, order)
        ]

    def _with_before(
        self, parts: Sequence[Part], ages: Sequence[int], *, drop_deletes: bool
    ) -> Iterator[RewrittenRows]:
        if len(parts) == 1 and ages[0] > 0 and self._expiry is None:
            if ages[0] != _BELOW:
                yield RewrittenRows(rows=_dropped(parts[0].rows, drop=drop_deletes), changes=None)
            return
        state, sources = self._before(parts, ages)
        hits = self._looked_up(state, sources)
        if hits is not None:
            assert self._older is not None
            self._mark(self._older.positions(hits))
            if self._rewrite.whole_rows:
                found = Part(run=-1, rows=self._older.rows(hits), keys=None)
                state, sources = self._before([found, *parts], [_BELOW, *ages])
        if not len(state.order):
            return
        merged = self._rules.function.merge(state.order, sources)
        if self._expiry is not None:
            # First-row comes here with deletes dropped: it never holds a key twice.
            expired = self._expiry.deletes(merged, is_oldest=drop_deletes)
            merged = with_deletes(merged, expired)
            state = replace(state, is_new=state.is_new | expired)
        changes = None
        if self._rewrite.emits_changelog:
            changes = self._change_rules.changes(state, sources, merged)
        yield RewrittenRows(rows=_dropped(merged, drop=drop_deletes), changes=changes)

    def _before(
        self, parts: Sequence[Part], ages: Sequence[int]
    ) -> tuple[BeforeMerge, list[Source]]:
        sources: list[Source] = [part.rows for part in parts]
        order = order_of(parts, self._rules)
        counted = without_kinds(order, sources, self._rules.function.ignored)
        return BeforeMerge.from_order(counted, ages), sources

    def _looked_up(self, state: BeforeMerge, sources: Sequence[Source]) -> Hits | None:
        """Return the older rows of keys whose rows here are all new; None: there are none."""
        unknown = state.unknown
        if self._older is None or not unknown.any():
            return None
        names = list(self._rules.key_columns)
        keys = gather(
            [source.select(names) for source in sources],
            state.order.run[state.order.starts[unknown]],
            state.order.row[state.order.starts[unknown]],
        )
        (batch,) = keys.combine_chunks().to_batches()
        hits = self._older.find(batch.columns, self._rules.keys(batch))
        return hits if hits.stores else None

    def _mark(self, positions: Iterable[tuple[DataFileMeta, Longs]]) -> None:
        """Let deletion vectors hide the older rows, which the rows written here replace."""
        if self._deletions is not None:
            for file, rows in positions:
                self._deletions.add(file.file_name, rows)


def _dropped(rows: Rows, *, drop: bool) -> Rows:
    return without_deletes(rows) if drop else rows
