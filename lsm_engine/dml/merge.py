"""MERGE: match rows of a source with rows of the table, and apply the clauses in one commit.

The source is held in memory. Rows of the table are looked up by key if the source has the whole key and only matches
matter. Otherwise the table is scanned in batches, so that memory is bounded by the source and the changed rows."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.base.names import nearest
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.dml.write import is_same, stage, write_looked_up
from lsm_engine.filter.expression import matches, refuse_triple, tree_of
from lsm_engine.filter.where import AnyOf, Filter, Predicate
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.kernels.arrow_views import Bools, one_array, one_zero
from lsm_engine.lookup.locate import locate_rows
from lsm_engine.lookup.lookup import FOUND, TableQuery
from lsm_engine.merge.function import deleted_columns
from lsm_engine.options import core_options
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.table.incoming import ROW_KIND_COLUMN, check_type, fitted, values_array
from lsm_engine.table.session import TableSession
from lsm_engine.types.arrow_types import char_length
from lsm_engine.types.declared_lengths import compared_values
from lsm_engine.types.table_schema import TableSchema

if TYPE_CHECKING:
    from lsm_engine.filter.sql import SqlValue


# -- MERGE as values -------------------------------------------------------------------------------
#
# What is to happen to rows that match, that only the source has, or only the table.

SOURCE, TARGET = "source", "target"
_NEARLY = 0.75
SIDES = {"source": SOURCE, "s": SOURCE, "target": TARGET, "t": TARGET}


@record
class Computed:
    """An expression that an engine such as Spark computes for each row. `evaluate` returns one value for each row of a `Frame`.

    `needs`: the columns of the table that it looks at. `prefilter`: a filter on them that keeps no fewer rows, if there is one.
    """

    evaluate: Callable[["Frame"], pa.ChunkedArray]
    needs: frozenset[str]
    prefilter: Predicate | None = None


class Match(Enum):
    """Which rows a clause is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(Enum):
    """The action of a clause on its rows."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"

    @property
    def row_kind(self) -> str:
        """The kind of the rows that it writes."""
        return {Action.INSERT: "+I", Action.UPDATE: "+U", Action.DELETE: "-D"}[self]


@record
class Clause:
    """One WHEN of a MERGE. `values` None: all columns that source and table share.

    A value is SQL text, an Arrow expression, what is `Computed`, or anything else: itself, for every row.
    """

    match: Match
    action: Action
    condition: Filter | Computed | None = None
    values: Mapping[str, Any] | None = None

    def assignments(
        self, table: Iterable[str], source: Iterable[str], *, any_case: bool = False
    ) -> Mapping[str, Any]:
        """Return the value of each column that it sets. `any_case`: columns of the source are found in any letters."""
        if self.action is Action.DELETE:
            return {}
        if self.values is not None:
            return self.values
        alike = str.lower if any_case else str
        theirs = {alike(name): name for name in source}
        return {name: quoted_source(theirs[alike(name)]) for name in table if alike(name) in theirs}


class Frame:
    """Rows side by side: those of the table, of the source, or of both, row by row."""

    def __init__(self, target: pa.Table | None, source: pa.Table | None) -> None:
        self.sides = {TARGET: target, SOURCE: source}
        self.count = next(side.num_rows for side in (target, source) if side is not None)

    def filter(self, mask: Bools) -> "Frame":
        """Return some of the rows."""
        selection = pa.array(mask)
        cut = {name: side and side.filter(selection) for name, side in self.sides.items()}
        return Frame(cut[TARGET], cut[SOURCE])

    def char_length(self, side: str | None, name: str, quoted: bool = True) -> int | None:  # noqa: FBT001, FBT002 -- as `column`
        """Return n of a column that is CHAR(n), which the table's rows know; None of any other."""
        rows, place = self._place(side, name, quoted=quoted)
        return char_length(rows.schema.field(place))

    def column(self, side: str | None, name: str, quoted: bool = True) -> pa.ChunkedArray:  # noqa: FBT001, FBT002 -- as `Resolve`
        """Return a column of one side, or of the only side that has it; InvalidInputError."""
        rows, column_name = self._place(side, name, quoted=quoted)
        return rows.column(column_name)

    def _place(self, side: str | None, name: str, *, quoted: bool) -> tuple[pa.Table, str]:
        """Return the rows that have a column, and its name there."""
        if side is not None:
            chosen = SIDES.get(side.lower())
            if chosen is None:
                raise _unknown(f"{side}.{name}", "qualify a column with source. or target.")
            rows = self.sides[chosen]
            if rows is None:
                # A merge without a source has only one side.
                raise _unknown(f"{side}.{name}", f"these rows have no {chosen}")
            column_name = _name_in(rows, name, quoted=quoted)
            if column_name is None:
                raise _unknown(f"{side}.{name}", f"there are {', '.join(rows.column_names)}")
            return rows, column_name
        candidates = [
            (rows, column_name)
            for rows in self.sides.values()
            if rows is not None and (column_name := _name_in(rows, name, quoted=quoted)) is not None
        ]
        # A name that both sides have is ambiguous, and one that none has is unknown.
        if len(candidates) != 1:
            sides = [rows for rows in self.sides.values() if rows is not None]
            suggestion = nearest(
                name, [other_name for rows in sides for other_name in rows.column_names]
            )
            hint = f"did you mean {suggestion!r}? " if suggestion else ""
            hint += "A text is written in quotes of its own, as \"'text'\""
            raise _unknown(name, "write source. or target. before it" if candidates else hint)
        return candidates[0]

    def flat(self) -> pa.Table:
        """Return the columns as "target.x" and "source.x", and as "x" where only one side has it."""
        present = {side: rows for side, rows in self.sides.items() if rows is not None}
        name_counts = Counter(name for rows in present.values() for name in rows.column_names)
        columns: dict[str, pa.ChunkedArray] = {}
        fields: dict[str, pa.Field] = {}
        for side, rows in present.items():
            for field, values in zip(rows.schema, rows.columns, strict=True):
                names = (f"{side}.{field.name}", field.name)
                for name in names[: 2 if name_counts[field.name] == 1 else 1]:
                    columns.setdefault(name, values)
                    fields.setdefault(name, field.with_name(name))
        return pa.Table.from_arrays([*columns.values()], schema=pa.schema([*fields.values()]))


def values_needed(
    condition: Filter | Computed | None,
    clauses: Iterable[Clause],
    schema: TableSchema,
    source: Collection[str],
) -> set[str]:
    """Return the columns of matching rows of the table that the outcome depends on, at most.

    Its partition columns too, and all columns where rows expire by a column of their own.
    """
    target = schema.names
    if schema.options[core_options.RECORD_LEVEL_EXPIRE_TIME] is not None:
        # The expiry column decides which rows are visible at all.
        return {*target}
    needed = {*schema.partition_keys, *_referenced(condition, target, source)}
    for clause in clauses:
        if clause.match is Match.NOT_MATCHED:
            # These clauses see rows of the source only.
            continue
        needed |= {*_referenced(clause.condition, target, source)}
        if clause.action is Action.DELETE:
            needed |= {*deleted_columns(schema)}
            # A delete needs no values beyond those that its record stores.
            continue
        needed |= {*target} - clause.assignments(target, source).keys()
        for value in (clause.values or {}).values():
            needed |= {*_referenced(value, target, source)}
    return needed


def rows_needed(clauses: Sequence[Clause] | None, schema: TableSchema) -> ScanRequest:
    """Return what clauses without a source need of the table: no other columns, and hardly any other rows.

    None: all of it.
    """
    if clauses is None:
        # An unknown filter may need every column.
        return ScanRequest(is_batch=False)
    needed = values_needed(None, clauses, schema, ()) | {*schema.primary_keys}
    columns = tuple(name for name in schema.names if name in needed)
    filters = [_prefilter(clause.condition, schema.compared) for clause in clauses]
    # One clause without a filter may take any row.
    if any(part is None for part in filters):
        return ScanRequest(is_batch=False, columns=columns)
    either = AnyOf(parts=tuple(part for part in filters if part is not None))
    return ScanRequest(is_batch=False, columns=columns, where=either)


def _prefilter(condition: Filter | Computed | None, columns: pa.Schema) -> Predicate | None:
    """Return a filter that keeps all rows for which a condition is true; None where none is known."""
    parsed = condition.prefilter if isinstance(condition, Computed) else condition
    # It may be more than a filter may be, or have a literal that the column has no room for.
    try:
        if isinstance(parsed, str):
            parser = import_module("lsm_engine.filter.sql")
            parsed = parser.parse_filter(parsed, columns)
        if not isinstance(parsed, Predicate):
            # Other conditions are evaluated row by row.
            return None
        tree_of(parsed, columns)
    except InvalidInputError:
        # Some conditions compare with the source; those cannot choose files of the table alone.
        return None
    return parsed


def _referenced(operand: Any, target: Collection[str], source: Collection[str]) -> Collection[str]:
    """Return which columns of the table a condition or a value looks at; all where that is not known."""
    if isinstance(operand, Computed):
        return operand.needs
    if isinstance(operand, Predicate | pc.Expression | list | tuple):
        return target
    if not isinstance(operand, str):
        # A plain value refers to no column.
        return ()
    references = sql_value(operand).columns()
    unqualified = {name for side, name, _ in references if side is None} - {*source}
    # Where the source has columns too these are of the table, or they are in other letters, as below.
    if unqualified - (set() if source else {*target}):
        return target
    of_table = {name for side, name, _ in references if side and SIDES.get(side.lower()) != SOURCE}
    return unqualified | of_table if of_table <= {*target} else target


def holds(condition: Filter | Computed | None, frame: Frame) -> Bools:
    """Return for which rows a condition is true; null is not."""
    # A clause without a condition takes every row.
    if condition is None:
        return np.ones(frame.count, np.bool_)
    # A condition of the table alone is a filter, with the semantics of all filters.
    if isinstance(condition, str) and frame.sides[SOURCE] is None:  # as every other filter reads it
        parsed = _prefilter(condition, frame.flat().schema)
        condition = condition if parsed is None else parsed
    if isinstance(condition, str | Computed):
        value = (
            condition.evaluate(frame)
            if isinstance(condition, Computed)
            else sql_value(condition).evaluate(frame.column, frame.count, frame.char_length)
        )
        if not pa.types.is_boolean(value.type) and not pa.types.is_null(value.type):
            raise InvalidInputError(
                f"{condition!r} is no condition: it gives {value.type}",
                kind=ErrorKind.INVALID_FILTER,
            )
        # In SQL a condition that is null does not hold.
        true: Bools = pc.fill_null(value.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        return true
    if isinstance(condition, list | tuple):
        refuse_triple(condition)
        parts = [holds(part, frame) for part in condition]
        return np.logical_and.reduce(parts) if parts else holds(None, frame)
    rows = frame.flat()
    return matches(tree_of(condition, rows.schema), rows)


def computed(expression: Any, frame: Frame, field: pa.Field) -> pa.Array:
    """Return what a column is set to, in the column's type; InvalidInputError names the column."""
    try:
        if isinstance(expression, str):
            value = sql_value(expression).evaluate(frame.column, frame.count, frame.char_length)
        elif isinstance(expression, pc.Expression):
            value = _projected(expression, frame.flat())
        elif isinstance(expression, Computed):
            value = expression.evaluate(frame)
        else:
            value = fitted(field.name, _single_value(expression, field), field.type)
            # One value serves all rows, so it is checked once.
            return value.take(pa.array(np.zeros(frame.count, np.int64)))
        value = one_array(value)
        if pa.types.is_nested(field.type):
            check_type(field.name, value.type, field.type)
        if pa.types.is_decimal(field.type) and pa.types.is_decimal(value.type):
            value = pc.round(value, field.type.scale, "half_towards_infinity")  # as SQL assigns
        return fitted(field.name, value, field.type)
    except (pa.ArrowException, OverflowError) as cause:
        raise InvalidInputError(
            f"column {field.name!r} ({field.type}) cannot be set to {expression!r}: {cause}",
            kind=ErrorKind.INVALID_ROWS,
            column=field.name,
        ) from cause


def chosen_clauses(
    clauses: Iterable[Clause], match: Match, frame: Frame
) -> list[tuple[Clause, Bools]]:
    """Return each clause of a kind with the rows that it takes: the first that holds for a row does."""
    remaining = np.ones(frame.count, np.bool_)
    chosen = []
    for clause in clauses:
        # Rows that an earlier clause took are not evaluated again.
        if clause.match is not match or not remaining.any():
            continue
        mine = np.zeros(frame.count, np.bool_)
        mine[remaining] = holds(clause.condition, frame.filter(remaining))
        remaining &= ~mine
        chosen.append((clause, mine))
    return chosen


def check_source(
    table: Sequence[str],
    source: Sequence[str],
    on: Sequence[tuple[str, str]],
    condition: Any,
    clauses: Sequence[Clause],
    *,
    any_case: bool,
) -> None:
    """Raise where a source lacks a column to match on, or has one whose name is nearly that of one that it lacks.

    The latter where all columns are taken that both have: it would be left out. Not where the merge mentions
    it. Any other column is ignored, as Delta does.
    """
    missing = sorted({name for _, name in on} - set(source))
    if missing:
        raise InvalidInputError(
            f"the source has no column {missing[0]!r} to match on; it has {', '.join(source)}",
            kind=ErrorKind.NO_SUCH_COLUMN,
            column=missing[0],
        )
    # Only clauses that copy all columns could leave one out by its name.
    if not any(clause.values is None and clause.action is not Action.DELETE for clause in clauses):
        return
    alike = str.lower if any_case else str
    ours, theirs = ({alike(name): name for name in names} for names in (table, source))
    mentioned = repr([on, condition, *((clause.condition, clause.values) for clause in clauses)])
    lacking = [ours[clause] for clause in ours if clause not in theirs]
    for name in (theirs[clause] for clause in theirs if clause not in ours):
        suggestion = nearest(name, lacking, _NEARLY)
        if suggestion and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", mentioned):
            raise InvalidInputError(
                f"the source's column {name!r} would be left out: the table has no such column, but {suggestion!r}, "
                "which the source lacks; rename it in the source, or leave it out there",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=name,
            )


def check_values(
    target: pa.Schema, source: pa.Table, condition: Filter | None, clauses: Iterable[Clause]
) -> None:
    """Raise for names and types of conditions and values, which no row may ever get to.

    Columns taken from the source as they are have to fit as rows of an upsert do.
    """
    ours, theirs = target.empty_table(), source.slice(0, 0)
    holds(condition, Frame(ours, theirs))
    for clause in clauses:
        frame = Frame(
            None if clause.match is Match.NOT_MATCHED else ours,
            None if clause.match is Match.NOT_MATCHED_BY_SOURCE else theirs,
        )
        holds(clause.condition, frame)
        if clause.values is None and clause.action is not Action.DELETE:
            for field in target:
                if field.name in source.column_names:
                    check_type(field.name, source.schema.field(field.name).type, field.type)
        if clause.action is Action.UPDATE and clause.values is not None and not clause.values:
            raise InvalidInputError("an update sets columns, {column: value}, and none is given")
        for name, expression in (clause.values or {}).items():
            computed(expression, frame, target.field(name))


def _projected(expression: pc.Expression, rows: pa.Table) -> pa.ChunkedArray:
    import pyarrow.acero as acero  # noqa: PLC0415 -- few set columns to Arrow expressions

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.ProjectNodeOptions([expression], ["value"])
    result = acero.Declaration("project", project, inputs=[source]).to_table(use_threads=False)
    return result.column("value")


def _single_value(literal: Any, field: pa.Field) -> pa.Array:
    """Return a value as an array of one, checked as a row of an upsert is."""
    if isinstance(literal, pa.Scalar):
        value = pa.repeat(literal, 1)
    else:
        try:
            value = values_array(field.name, [literal], field.type)
        except InvalidInputError as cause:
            raise InvalidInputError(
                f"column {field.name!r} is set to SQL text, such as '{field.name} + 1', to an Arrow expression "
                f"or to a plain value, not to {literal!r}: {cause.message}",
                column=field.name,
            ) from cause
    check_type(field.name, value.type, field.type)
    return value


def _name_in(rows: pa.Table, name: str, *, quoted: bool) -> str | None:
    # The exact name wins over one that differs in its letters' case.
    if name in rows.column_names:
        return name
    alike = [
        column_name for column_name in rows.column_names if column_name.lower() == name.lower()
    ]
    # Two names that differ in case only make the reference ambiguous.
    return alike[0] if len(alike) == 1 and not quoted else None


def _unknown(name: str, hint: str) -> InvalidInputError:
    return InvalidInputError(
        f"no column {name!r}: {hint}", kind=ErrorKind.NO_SUCH_COLUMN, column=name
    )


def sql_value(text: str) -> "SqlValue":
    """Return SQL text as an expression; the parser takes a while to load."""
    value: SqlValue = import_module("lsm_engine.filter.sql").SqlValue(text)
    return value


def quoted_source(name: str) -> str:
    """Return the SQL text of a column of the source."""
    return 'source."' + name.replace('"', '""') + '"'


def direct_source(value: Any, source: Iterable[str]) -> str | None:
    """Return the column of the source that a clause sets a column to as it is; None for any other value."""
    if not isinstance(value, str):
        return None
    return next((name for name in source if value in (f"source.{name}", quoted_source(name))), None)


# -- MERGE: match rows of a source with rows of the table, and apply the clauses in one commit -----

Rows = npt.NDArray[np.int64]
_SHOWN = 3
_ROWS_AT_ONCE = 1 << 16
LOOKED_UP_SHARE = 10
"""Looking keys up pays where the source has at most a tenth of the table's rows."""


@record
class MergePlan:
    """A MERGE: `on` pairs columns of the table with those of the source that have to be equal, and
    `condition` is what else has to hold for two rows to match."""

    on: tuple[tuple[str, str], ...]
    condition: Filter | None
    clauses: tuple[Clause, ...]

    @property
    def needs_table(self) -> bool:
        """Whether rows matter that only the table has."""
        return any(clause.match is Match.NOT_MATCHED_BY_SOURCE for clause in self.clauses)

    def matches_on(self, keys: Sequence[str]) -> bool:
        """Whether the columns to match on are exactly `keys` of the table."""
        return sorted(target for target, _ in self.on) == sorted(keys)

    def inserts_what_it_matches_on(self, keys: Sequence[str]) -> bool:
        """Whether a new row has the very key by which the source was looked for, and nothing else matters."""
        # A further condition decides on more than the key.
        if not self.matches_on(keys) or self.condition is not None:
            return False
        return all(
            direct_source(clause.assignments((target,), (source,)).get(target), (source,))
            is not None
            for clause in self.clauses
            for target, source in self.on
            if clause.match is Match.NOT_MATCHED
        )


def merge(
    session: TableSession, source: pa.Table, plan: MergePlan, identity: CommitIdentity
) -> WriteResult | None:
    """Carry a MERGE out; None if no row changes. Counts are in the result's properties.

    Raises InvalidInputError, before anything is written, where several rows of the source would change
    one row, where a key would be changed or is inserted twice; UnsupportedError for updates in tables
    whose merge engine makes something else of a row than its newest version.
    """
    if not source.column_names:  # an empty list names no columns
        source = session.schema.arrow.empty_table()

    def check(newest_session: TableSession) -> None:
        check_merge(newest_session, plan, source.column_names)
        check_values(newest_session.schema.arrow, source, plan.condition, plan.clauses)

    def stage_on(
        current: TableSession, base: Snapshot | None
    ) -> tuple[Sequence[CommitMessage], RowCounts] | None:
        if current.schema.id != session.schema.id:
            check(current)  # others may have dropped or renamed what is named
        return staged(current, source, plan, base)

    check(session)
    return write_looked_up(session, identity, stage_on)


def check_merge(
    session: TableSession, plan: MergePlan, source: Sequence[str], *, any_case: bool = False
) -> None:
    """Raise as `merge` does for a table, or columns of a source, that a MERGE cannot be done with.

    `any_case`: the source's columns are found in any letters.
    """
    schema = session.schema
    engine = session.options[core_options.MERGE_ENGINE]
    updates = any(clause.action is Action.UPDATE for clause in plan.clauses)
    if not schema.has_primary_key:
        raise UnsupportedError(
            "rows of a table without a primary key cannot be merged or updated; use delete() with the option "
            "'deletion-vectors.enabled' and append(), or make the table with a key",
            table=session.name,
        )
    if updates and not engine.policy.keeps_newest_row:
        raise UnsupportedError(
            f"'merge-engine' = {engine.value} makes something else of an updated row than its newest "
            "version; upsert the rows that shall be merged",
            option=core_options.MERGE_ENGINE.key,
            table=session.name,
        )
    names = {name for name, _ in plan.on}.union(*(clause.values or () for clause in plan.clauses))
    for name in sorted(names):
        schema.field(name)
    check_source(schema.names, source, plan.on, plan.condition, plan.clauses, any_case=any_case)
    for clause in plan.clauses:
        values = clause.assignments(schema.names, source, any_case=any_case)
        lacking = [name for name in schema.primary_keys if name not in values]
        if clause.action is Action.INSERT and lacking:
            raise InvalidInputError(
                f"inserted rows need a value for key column {lacking[0]!r}",
                kind=ErrorKind.INVALID_KEY,
                column=lacking[0],
            )


def staged(
    session: TableSession,
    source: pa.Table,
    plan: MergePlan,
    base: Snapshot | None,
    *,
    target: pa.Table | None = None,
    rows_at_once: int = _ROWS_AT_ONCE,
) -> tuple[Sequence[CommitMessage], RowCounts] | None:
    """Stage what `merge` does on one state; None where no row changes.

    `target`: those rows of that state that clauses take, where the caller knows them already.
    `rows_at_once`: how many rows of a table that is scanned expressions are computed for at a time.
    """
    changes = _Changes(session, source, plan, base, rows_at_once, target)
    first = next(batches := changes.batches(), None)
    if first is None:
        return None
    rows = (batch for table in chain([first], batches) for batch in table.to_batches())
    messages = stage(session, pa.RecordBatchReader.from_batches(first.schema, rows), base)
    return messages, changes.counts


class _Changes:
    """The rows that a MERGE writes, with their kinds, and how many there are of each."""

    def __init__(
        self,
        session: TableSession,
        source: pa.Table,
        plan: MergePlan,
        base: Snapshot | None,
        rows_at_once: int,
        target: pa.Table | None = None,
    ) -> None:
        self._session = session
        self._source = source
        self._plan = plan
        self._base = base
        self._rows_at_once = rows_at_once
        self._target = target
        self._columns = session.schema.arrow
        self._kinds = {field.name: field.type for field in session.schema.read_fields}
        self._keys = list(session.schema.primary_keys)
        self._is_matched = np.zeros(source.num_rows, np.bool_)
        self.counts = RowCounts()

    def batches(self) -> Iterator[pa.Table]:
        """Yield what to write: first what the table's rows become, then what is new."""
        deleted: list[pa.Table] = []
        for target in map(self._comparable, self._targets()):
            for action, rows in self._changed_rows(target):
                if action is Action.DELETE:
                    deleted.append(self._key_table(rows))
                yield self._written(rows, action)
        yield from self._inserted(deleted)

    def _comparable(self, target: pa.Table) -> pa.Table:
        """Return rows of the table whose columns of CHAR know their length, for conditions."""
        compared_schema = self._session.schema.compared
        names = [name for name in target.column_names if name in compared_schema.names]
        fields = [
            field.with_metadata(compared_schema.field(field.name).metadata)
            if field.name in names
            else field
            for field in target.schema
        ]
        return pa.Table.from_arrays(target.columns, schema=pa.schema(fields))

    def _targets(self) -> Iterator[pa.Table]:
        base = self._base
        # Another scan has found the rows of this state already.
        if self._target is not None:
            yield self._target
            return
        # A table without commits has no rows to match.
        if base is None:
            return
        is_by_key = self._plan.matches_on(self._keys)
        source_is_small = self._source.num_rows * LOOKED_UP_SHARE <= (base.total_record_count or 0)
        if (
            is_by_key
            and source_is_small
            and not self._plan.needs_table
            and FOUND not in self._columns.names
        ):
            yield self._looked_up(base)
            return
        # Not by the snapshot's id: that would be the past, with the columns of its time.
        clauses = None if self._plan.on or self._source.num_rows else self._plan.clauses
        scan = Scan(self._session.with_level_0(), rows_needed(clauses, self._session.schema), base)
        waiting: list[pa.RecordBatch] = []
        for batch in scan.to_batches():
            waiting.append(batch)
            # Rows are computed in portions, which bounds the memory of expressions.
            if sum(batch_waiting.num_rows for batch_waiting in waiting) >= self._rows_at_once:
                yield pa.Table.from_batches(waiting)
                waiting = []
        if waiting:
            yield pa.Table.from_batches(waiting)

    def _looked_up(self, base: Snapshot) -> pa.Table:
        keys = pa.table(
            {target: one_zero(self._cast(source, target)) for target, source in self._plan.on}
        ).drop_null()
        distinct = keys.group_by(keys.column_names, use_threads=False).aggregate([])
        schema, source_names = self._session.schema, self._source.column_names
        # The key alone answers the clauses, so no row is read.
        if values_needed(self._plan.condition, self._plan.clauses, schema, source_names) <= {
            *self._keys
        }:
            locations = locate_rows(self._session.with_level_0(), distinct, base)
            return distinct.filter(pa.array(locations.is_there))
        with TableQuery(self._session.with_level_0(), snapshot=base) as query:
            rows = query.lookup(distinct.select(self._keys))
        return rows.filter(rows.column(FOUND)).drop_columns([FOUND])

    def _cast(self, source: str, target: str) -> pa.ChunkedArray:
        """Return a column of the source as the table compares it: the same values, or none are equal."""
        field = self._columns.field(target)
        values = self._source.column(source)
        check_type(f"{target} = source.{source}", values.type, field.type)
        try:
            return compared_values(self._kinds[target], values.cast(field.type))
        except pa.ArrowException as cause:
            raise InvalidInputError(
                f"column {source!r} of the source does not fit column {target!r} ({field.type}): {cause}",
                kind=ErrorKind.INVALID_KEY,
                column=source,
            ) from cause

    def _changed_rows(self, target: pa.Table) -> Iterator[tuple[Action, pa.Table]]:
        """Yield the rows of one batch of the table that change, as they will be."""
        ours, theirs = self._pairs(target)
        frame = Frame(target.take(pa.array(ours)), self._source.take(pa.array(theirs)))
        if self._plan.condition is not None:
            is_match = holds(self._plan.condition, frame)
            ours, theirs, frame = ours[is_match], theirs[is_match], frame.filter(is_match)
        self._is_matched[theirs] = True
        chosen = chosen_clauses(self._plan.clauses, Match.MATCHED, frame)
        self._refuse_ambiguous(target, ours, chosen)
        for clause, mask in chosen:
            yield from self._clause_rows(clause, frame.filter(mask))
        if self._plan.needs_table:
            alone = np.ones(target.num_rows, np.bool_)
            alone[ours] = False
            unmatched = Frame(target.filter(pa.array(alone)), None)
            for clause, mask in chosen_clauses(
                self._plan.clauses, Match.NOT_MATCHED_BY_SOURCE, unmatched
            ):
                yield from self._clause_rows(clause, unmatched.filter(mask))

    def _pairs(self, target: pa.Table) -> tuple[Rows, Rows]:
        """Return the rows of the table and of the source whose columns to match on are equal."""
        # Without keys or rows every row pairs with every source row, or with none.
        if not self._plan.on or not self._source.num_rows or not target.num_rows:
            source_rows = np.arange(0 if self._plan.on else self._source.num_rows)
            rows = np.arange(target.num_rows)
            return np.repeat(rows, len(source_rows)), np.tile(source_rows, len(rows))
        names = [f"{index}" for index, _ in enumerate(self._plan.on)]
        target_keys = {
            name: one_zero(target.column(t))
            for name, (t, _) in zip(names, self._plan.on, strict=True)
        }
        source_keys = {
            name: one_zero(self._cast(s, t))
            for name, (t, s) in zip(names, self._plan.on, strict=True)
        }
        target_keys["ours"] = pa.chunked_array([np.arange(target.num_rows)])
        source_keys["theirs"] = pa.chunked_array([np.arange(self._source.num_rows)])
        pairs = pa.table(target_keys).join(
            pa.table(source_keys), names, join_type="inner", use_threads=False
        )
        # A join returns rows in any order, and the result must not depend on threads.
        order = np.lexsort((pairs.column("theirs").to_numpy(), pairs.column("ours").to_numpy()))
        return pairs.column("ours").to_numpy()[order], pairs.column("theirs").to_numpy()[order]

    def _refuse_ambiguous(
        self, target: pa.Table, ours: Rows, chosen: Sequence[tuple[Clause, Bools]]
    ) -> None:
        acted = np.zeros(len(ours), np.bool_)
        for _, mask in chosen:
            acted |= mask
        places, counts = np.unique(ours[acted], return_counts=True)
        twice = places[counts > 1]
        if len(twice):
            keys = target.select(self._keys).take(pa.array(twice[:_SHOWN])).to_pylist()
            raise ambiguous_match(len(twice), keys)

    def _clause_rows(self, clause: Clause, frame: Frame) -> Iterator[tuple[Action, pa.Table]]:
        # A clause without rows would evaluate its expressions for nothing.
        if not frame.count:
            return
        rows = frame.sides["target"]
        assert rows is not None
        if clause.action is Action.UPDATE:
            rows = self._updated(clause, frame, rows)
        yield clause.action, rows

    def _updated(self, clause: Clause, frame: Frame, rows: pa.Table) -> pa.Table:
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for name, expression in self._values(clause).items():
            value = self._value(name, expression, frame)
            if name in self._keys:
                is_moved = pc.invert(is_same(value, one_array(rows.column(name))))
                if pc.any(is_moved).as_py():
                    raise moved_keys(self._shown(rows.filter(is_moved))[1], name)
            columns[name] = value
        return pa.table(columns)

    def _value(self, name: str, expression: Any, frame: Frame) -> pa.Array:
        """Return what a column is set to, as it will be stored: keys are compared before they are written."""
        return compared_values(
            self._kinds[name], computed(expression, frame, self._columns.field(name))
        )

    def _values(self, clause: Clause) -> Mapping[str, Any]:
        return clause.assignments(self._columns.names, self._source.column_names)

    def _inserted(self, deleted: Sequence[pa.Table]) -> Iterator[pa.Table]:
        frame = Frame(None, self._source.filter(pa.array(~self._is_matched)))
        tables = []
        for clause, mask in chosen_clauses(self._plan.clauses, Match.NOT_MATCHED, frame):
            new = frame.filter(mask)
            if new.count:
                columns = {
                    name: self._value(name, expression, new)
                    for name, expression in self._values(clause).items()
                }
                tables.append(pa.table(columns))
        if not tables:
            return
        rows = pa.concat_tables(tables, promote_options="default")
        self._refuse_taken(rows, deleted)
        yield self._written(rows, Action.INSERT)

    def _refuse_taken(self, rows: pa.Table, deleted: Sequence[pa.Table]) -> None:
        """Refuse keys that two new rows have, or that are in the table and stay there."""
        keys = self._key_table(rows)
        # Two new rows of one key would overwrite each other.
        counted = keys.group_by(self._keys, use_threads=False).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted.column("count_all"), 1))
        if twice.num_rows:
            raise key_conflict("of the same key as another", *self._shown(twice))
        if self._plan.inserts_what_it_matches_on(self._keys):
            return  # a key that is there has matched
        is_there = locate_rows(self._session, rows, self._base).is_there
        # A key whose row this merge deletes is free again.
        if deleted and is_there.any():
            freed_keys = pa.concat_tables(deleted).append_column(
                "freed",
                pa.repeat(pa.scalar(True), sum(table.num_rows for table in deleted)),  # noqa: FBT003
            )
            numbered_keys = keys.append_column("at", pa.array(np.arange(keys.num_rows)))
            freed = (
                numbered_keys.join(freed_keys, self._keys, join_type="inner")
                .column("at")
                .to_numpy()
            )
            is_there[freed] = False
        if is_there.any():
            existing = keys.filter(pa.array(is_there))
            raise key_conflict("with keys that are there already", *self._shown(existing))

    def _key_table(self, rows: pa.Table) -> pa.Table:
        """Return the keys of rows for joins and groups."""
        return pa.table({name: one_zero(rows.column(name)) for name in self._keys})

    def _shown(self, keys: pa.Table) -> tuple[int, list[dict[str, Any]]]:
        return keys.num_rows, keys.select(self._keys).slice(0, _SHOWN).to_pylist()

    def _written(self, rows: pa.Table, action: Action) -> pa.Table:
        n = rows.num_rows
        self.counts += RowCounts(
            inserted=n * (action is Action.INSERT),
            updated=n * (action is Action.UPDATE),
            deleted=n * (action is Action.DELETE),
        )
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(n, field.type)
            for field in self._columns
        ]
        nullable = pa.schema([field.with_nullable(True) for field in self._columns])  # noqa: FBT003
        table = pa.Table.from_arrays(columns, schema=nullable)
        return table.append_column(ROW_KIND_COLUMN, pa.repeat(pa.scalar(action.row_kind), n))


def ambiguous_match(count: int, keys: Sequence[Mapping[str, Any]]) -> InvalidInputError:
    """Return the error for rows of the table that several rows of the source would change; `keys` are some of them."""
    return InvalidInputError(
        f"several rows of the source would change {counted(count, 'row')} of the table that they match; keep one row of "
        "the source for each, or add a condition",
        kind=ErrorKind.INVALID_ROWS,
        keys=[*keys],
    )


def moved_keys(keys: Sequence[Mapping[str, Any]], column: str = "") -> InvalidInputError:
    """Return the error for updates that would change keys; `keys` are some of them, `column` one that changes, if known."""
    subject = f"key column {column!r}" if column else "a key"
    return InvalidInputError(
        f"an update would change {subject}; delete the row and insert another",
        kind=ErrorKind.INVALID_KEY,
        keys=[*keys],
    )


def key_conflict(message: str, count: int, keys: Sequence[Mapping[str, Any]]) -> InvalidInputError:
    """Return the error for rows to insert whose keys are not free, and why; `keys` are some of them."""
    return InvalidInputError(
        f"{counted(count, 'row')} to insert, {message}; nothing was written",
        kind=ErrorKind.ROW_EXISTS,
        keys=[*keys],
    )
