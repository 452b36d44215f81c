"""A MERGE in the manner of Delta and Iceberg: clause by clause, then `execute`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.dml.merge import Action, Clause, Match, MergePlan, merge
from lsm_engine.dml.write import Write, counts_changes, upsert, write_looked_up
from lsm_engine.filter.where import Filter
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.lookup.key_search import KeySearch
from lsm_engine.lookup.keys import keys_by_name, keys_of
from lsm_engine.lookup.locate import find_records, newest_decides
from lsm_engine.merge.function import retract_rule
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.table.incoming import conformed, open_rows
from lsm_engine.table.names import names_of
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema


@checks_all_arguments
@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Merge:
    """A MERGE that is being built, as `table.merge(…)` returns it. Each `when_…` adds a clause; `execute` runs it.

    Clauses are asked in the order given, and the first whose condition holds decides about a row. Conditions are
    SQL text, predicates or Arrow expressions; columns are called `source.x` and `target.x`, or plain
    where only one side has them. A value to set is SQL text ("target.n + 1", "'text'"), an Arrow
    expression, or a Python value that is no text. On Spark (`lsm_engine.spark.merge_dataframe`) they are
    SQL text, Spark columns or Python values, and executors do the work.
    """

    session: TableSession
    source: Any
    plan: MergePlan
    identity: CommitIdentity

    def __repr__(self) -> str:
        clauses = [f"{clause.match.value} {clause.action.value}" for clause in self.plan.clauses]
        return f"<Merge into {self.session.name!r}, done by execute(): {', '.join(clauses) or 'no clause'}>"

    def when_matched_update(self, set: Mapping[str, Any], where: Filter | None = None) -> "Merge":
        """Set columns of rows that match."""
        return self._with(Match.MATCHED, Action.UPDATE, where, set)

    def when_matched_update_all(self, where: Filter | None = None) -> "Merge":
        """Set every column that both have, in rows that match. One that is misspelled is refused."""
        return self._with(Match.MATCHED, Action.UPDATE, where)

    def when_matched_delete(self, where: Filter | None = None) -> "Merge":
        """Delete rows that match."""
        return self._with(Match.MATCHED, Action.DELETE, where)

    def when_not_matched_insert(
        self, values: Mapping[str, Any], where: Filter | None = None
    ) -> "Merge":
        """Insert rows of the source that match none; columns left out are null, or have their default."""
        return self._with(Match.NOT_MATCHED, Action.INSERT, where, values)

    def when_not_matched_insert_all(self, where: Filter | None = None) -> "Merge":
        """Insert rows of the source that match none, with every column that both have; as above."""
        return self._with(Match.NOT_MATCHED, Action.INSERT, where)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Any], where: Filter | None = None
    ) -> "Merge":
        """Set columns of rows of the table that no row of the source matches."""
        return self._with(Match.NOT_MATCHED_BY_SOURCE, Action.UPDATE, where, set)

    def when_not_matched_by_source_delete(self, where: Filter | None = None) -> "Merge":
        """Delete rows of the table that no row of the source matches."""
        return self._with(Match.NOT_MATCHED_BY_SOURCE, Action.DELETE, where)

    def execute(self) -> WriteResult | None:
        """Do it, in one commit; None if no row changes.

        The result's `properties` hold the counts (`lsm.row_counts_of`). What was found holds for the
        state that is committed on: where others change rows meanwhile, it is looked at again. Raises
        InvalidInputError, with nothing written, where several rows of the source would change one row,
        a key would change, or a new row's key is there; CommitConflictError as `upsert`.
        """
        if not self.plan.clauses:
            raise InvalidInputError(
                "a merge without a clause changes nothing; add when_matched_… or when_not_matched_…"
            )
        staged = self.session.components.executor.merging(self.session, self.source, self.plan)
        # An executor such as Spark's may run the merge by itself.
        if staged is not None:
            return write_looked_up(self.session, self.identity, staged)
        return merge(
            self.session, held_rows(self.source, self.session.schema), self.plan, self.identity
        )

    def _with(
        self,
        match: Match,
        action: Action,
        condition: Filter | None,
        values: Mapping[str, Any] | None = None,
    ) -> "Merge":
        clause = Clause(match=match, action=action, condition=condition, values=values)
        # The builder itself: a clause whose result is not assigned counts, too.
        self.plan = replace(self.plan, clauses=(*self.plan.clauses, clause))
        return self


def merge_into(
    session: TableSession,
    source: Any,
    on: str | Sequence[str] | Mapping[str, str] | None,
    condition: Filter | None,
    identity: CommitIdentity,
) -> Merge:
    """Return the beginning of a MERGE; see `Table.merge`."""
    pairs = _pairs(session, on)
    return Merge(
        session=session,
        source=source,
        plan=MergePlan(on=pairs, condition=condition, clauses=()),
        identity=identity,
    )


def changed_where(
    session: TableSession,
    action: Action,
    where: Filter | None,
    identity: CommitIdentity,
    values: Mapping[str, Any] | None = None,
) -> WriteResult | None:
    """Update or delete the rows that a condition keeps: a MERGE with nothing."""
    clause = Clause(
        match=Match.NOT_MATCHED_BY_SOURCE, action=action, condition=where, values=values
    )
    plan = MergePlan(on=(), condition=None, clauses=(clause,))
    return merge(session, held_rows([], session.schema), plan, identity)


def deleted_keys(session: TableSession, keys: Any, identity: CommitIdentity) -> WriteResult | None:
    """Delete rows by key: unseen, or as they are now where a -D has to hold more than `keys` do.

    That is so for columns that may not be null, and for `sequence.field`, as a null would be older than any row.
    Rows are looked up too where changes are counted. Keys of which none is there are no commit, if
    that is known.
    """
    schema, rule = session.schema, retract_rule(session.schema)
    keys = keys_by_name(keys, schema.primary_keys)
    key_columns = {*schema.primary_keys, schema.options[core_options.ROWKIND_FIELD]}
    required = {field.name for field in schema.fields if not field.type.nullable} - key_columns
    clocks = {*schema.sequence_fields} - key_columns
    # A null in these columns would be refused, or would lose against every row.
    if required or clocks:
        names = _names(keys, schema)
        required, clocks = required.difference(names), clocks.difference(names)
    takes_back = bool(rule.delete_needs)
    if takes_back and required:
        raise InvalidInputError("rows lack columns that may not be null", columns=sorted(required))
    # Keys alone make a complete delete here, so no row is looked up.
    waits = (
        schema.bucket_mode.policy.is_postponed
        and not schema.options[core_options.POSTPONE_BATCH_WRITE_FIXED_BUCKET]
    )
    looks = required or clocks or (counts_changes(schema) and not waits)
    if takes_back or not looks or RowKind.DELETE in rule.dropped | rule.refused:
        crosses = schema.bucket_mode.policy.crosses_partitions  # the write looks by itself
        # A look does not find rows that wait for a bucket: the delete is written after them.
        sees_all = not schema.options[core_options.POSTPONE_MERGE_ON_READ]
        if not waits and not crosses and sees_all and newest_decides(schema):
            keys, held_keys = _held_in_memory(keys, schema)
            present = None if held_keys is None else _present_keys(session, held_keys)
            if present is not None and not present.count:
                return Write(session, identity).replayed()
            return Write(session, identity, count=present).committed(keys, deletes=True)
        return upsert(session, keys, identity, deletes=True)
    if waits:
        raise InvalidInputError(
            "rows may wait for a bucket, where no look finds them: give the keys with these columns",
            columns=sorted(required | clocks),
        )
    source = (
        keys.select(*schema.primary_keys).distinct()
        if hasattr(keys, "sparkSession")
        else _unique(keys, schema)
    )
    return merge_into(session, source, None, None, identity).when_matched_delete().execute()


_FEW_KEYS = 1_000
"""Keys up to which a delete looks for each; a look for more reads most of the key columns."""
_SEARCHED_ROWS_MAX = 1_000_000
"""Rows of a table whose keys take about as long to read as a commit; a delete of more keys may read more."""
_SEARCHED_ROWS_PER_KEY = 16
_COUNTED_ROWS_MAX = 65_536
"""Rows of a table on a local disk in which a look for all keys costs little more than one for the first."""


def _held_in_memory(keys: Any, schema: TableSchema) -> tuple[Any, pa.Table | None]:
    """Return the keys for the write and, if memory holds them all, as a table."""
    reader = getattr(keys, "reader", keys)
    if isinstance(reader, pa.RecordBatchReader):
        # A stream of few keys is read to its end; one of many goes on where it was left.
        batches: list[pa.RecordBatch] = []
        key_count = 0
        for batch in reader:
            batches.append(batch)
            key_count += batch.num_rows
            if key_count > _FEW_KEYS:
                remaining_keys = pa.RecordBatchReader.from_batches(
                    reader.schema, chain(batches, reader)
                )
                return remaining_keys, None
        keys = pa.Table.from_batches(batches, schema=reader.schema)
    elif not hasattr(keys, "__len__") or hasattr(keys, "sparkSession"):
        return keys, None
    else:
        keys = open_rows(keys, schema).read_all()
    # Rows of nothing may lack the columns of the key.
    return keys, keys if keys.num_rows else None


@record
class PresentKeys:
    """How many of the keys of a delete a snapshot has; its counts of rows, if it is committed on that snapshot."""

    snapshot: Snapshot | None
    count: int

    def __call__(self, base: Snapshot | None, delta: Sequence[ManifestEntry]) -> dict[str, str]:
        # Another writer may have added or deleted one of the keys since.
        return RowCounts(deleted=self.count).properties if base == self.snapshot else {}


def _present_keys(session: TableSession, keys: pa.Table) -> PresentKeys | None:
    """Return how many of some keys the newest rows have.

    None: one at least may be there. The others are not looked for, or a look would cost more than a commit.
    """
    schema = session.schema
    # Other clients may have stored zeros of both signs, which are one key to a merge.
    if any(pa.types.is_floating(schema.arrow.field(name).type) for name in schema.primary_keys):
        return None
    # Rows of the fallback branch are rows of the table, and no file of the table holds them.
    if schema.options[core_options.SCAN_FALLBACK_BRANCH] is not None:
        return None
    # Not the one of a moment ago, as for a write: a delete of nothing creates nothing that finds out.
    snapshot = session.snapshots.latest()
    if snapshot is None:
        # The keys are checked as those of any delete.
        _conformed(keys, schema)
        return PresentKeys(snapshot=None, count=0)
    if keys.num_rows <= _FEW_KEYS:
        keys = _unique(keys, schema)
    # Other clients may leave the total out.
    total_rows = snapshot.total_record_count or sys.maxsize
    counts_all = total_rows <= _COUNTED_ROWS_MAX and not session.file_io.facts.is_remote
    affordable_rows = _SEARCHED_ROWS_MAX + _SEARCHED_ROWS_PER_KEY * keys.num_rows
    try:
        # The first key is asked alone: mostly it is there, and one key costs a row group of a few files.
        if not counts_all:
            first_count = _count_present(session, snapshot, keys.slice(0, 1))
            if keys.num_rows == 1:
                return PresentKeys(snapshot=snapshot, count=first_count)
            is_costly = keys.num_rows > _FEW_KEYS and total_rows > affordable_rows
            if first_count or is_costly:
                return None
        return PresentKeys(snapshot=snapshot, count=_count_present(session, snapshot, keys))
    except NotFoundError:
        # The snapshot has expired, or was rolled back, while it was read: the delete is committed unseen.
        return None


def _count_present(session: TableSession, snapshot: Snapshot, keys: pa.Table) -> int:
    """Return how many of some keys the files of a snapshot have; one that is given twice counts once."""
    schema = session.schema
    search = KeySearch(schema, keys_of(schema, _conformed(keys, schema), with_partitions=True))
    find_records(session, search, snapshot, everywhere=False)
    present = pa.Table.from_batches([search.keys.filter(pa.array(search.is_there))])
    count: int = present.group_by(list(schema.primary_keys)).aggregate([]).num_rows
    return count


def _names(keys: Any, schema: TableSchema) -> Sequence[str]:
    """Return the columns of rows, which may come once: nothing is read but a list."""
    names = getattr(getattr(keys, "schema", None), "names", None) or getattr(keys, "columns", None)
    names = names() if callable(names) else names
    return list(names) if names is not None else open_rows(keys, schema).schema.names


def _unique(keys: Any, schema: TableSchema) -> pa.Table:
    """Return each key once, checked as those of a delete that looks at no row."""
    return _conformed(keys, schema).group_by(list(schema.primary_keys)).aggregate([])


def _conformed(keys: Any, schema: TableSchema) -> pa.Table:
    """Return keys as the table stores them."""
    batches = [
        incoming.rows for incoming in conformed(open_rows(keys, schema), schema, deletes=True)
    ]
    return pa.Table.from_batches(batches, schema=None if batches else schema.arrow)


def _pairs(
    session: TableSession, on: str | Sequence[str] | Mapping[str, str] | None
) -> tuple[tuple[str, str], ...]:
    # The primary key is what a merge usually matches on.
    if on is None:
        on = session.schema.primary_keys
    # A mapping gives pairs whose names differ.
    if isinstance(on, Mapping):
        return tuple((str(target), str(source)) for target, source in on.items())
    names = names_of(on, "on")
    # Text of a condition is a usual mistake here.
    if any("=" in name for name in names):
        raise InvalidInputError(
            "on= takes columns, such as on=['id'], or {table's: source's}; what else has to hold is "
            "condition=",
            given=names,
        )
    if not names:
        raise InvalidInputError("a merge needs columns to match on; give on=['id']")
    return tuple((name, name) for name in names)


def held_rows(source: Any, table: TableSchema) -> pa.Table:
    """Return a source's rows in memory: anything that `upsert` takes, a Spark DataFrame included."""
    collect = getattr(source, "toArrow", None)
    if callable(collect):
        source = collect()
    # An empty list has no columns that Arrow could infer.
    if isinstance(source, list) and not source:
        return pa.table({})
    return open_rows(source, table).read_all()
