"""MERGE as values: what is to happen to rows that match, that only the source has, or only the table."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.near_names import nearest
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, one_array
from lsm_engine.merge.retracts import deleted_columns
from lsm_engine.prune.expression import matches, refuse_triple, tree_of
from lsm_engine.prune.where import AnyOf, Filter, Predicate
from lsm_engine.schema.arrow_types import char_length
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.fit import check_type, fitted, values_array
from lsm_engine.table.read.scan_plan import ScanRequest

if TYPE_CHECKING:
    from lsm_engine.prune.sql_values import SqlValue

SOURCE, TARGET = "source", "target"
_NEARLY = 0.75
SIDES = {"source": SOURCE, "s": SOURCE, "target": TARGET, "t": TARGET}


@record
class Computed:
    """What an engine such as Spark computes for each row. `evaluate` returns one value for each row of a `Frame`.

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
    """What a clause does to them."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@record
class Clause:
    """One WHEN of a MERGE. `values` None: all columns that source and table share.

    A value is SQL text, an Arrow expression, what is `Computed`, or anything else: itself, for every row.
    """

    match: Match
    action: Action
    condition: Filter | Computed | None = None
    values: Mapping[str, Any] | None = None


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
        return {*target}
    needed = {*schema.partition_keys, *_referenced(condition, target, source)}
    for clause in clauses:
        if clause.match is Match.NOT_MATCHED:
            continue
        needed |= {*_referenced(clause.condition, target, source)}
        if clause.action is Action.DELETE:
            needed |= {*deleted_columns(schema)}
            continue
        needed |= {*target} - {*(source if clause.values is None else clause.values)}
        for value in (clause.values or {}).values():
            needed |= {*_referenced(value, target, source)}
    return needed


def rows_needed(clauses: Sequence[Clause] | None, schema: TableSchema) -> ScanRequest:
    """Return what clauses without a source need of the table: no other columns, and hardly any other rows.

    None: all of it.
    """
    if clauses is None:
        return ScanRequest(is_batch=False)
    needed = values_needed(None, clauses, schema, ()) | {*schema.primary_keys}
    columns = tuple(name for name in schema.names if name in needed)
    filters = [_prefilter(clause.condition, schema.compared) for clause in clauses]
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
            parser = import_module("lsm_engine.prune.sql")
            parsed = parser.parse_filter(parsed, columns)
        if not isinstance(parsed, Predicate):
            return None
        tree_of(parsed, columns)
    except InvalidInputError:
        return None
    return parsed


def _referenced(operand: Any, target: Collection[str], source: Collection[str]) -> Collection[str]:
    """Return which columns of the table a condition or a value looks at; all where that is not known."""
    if isinstance(operand, Computed):
        return operand.needs
    if isinstance(operand, Predicate | pc.Expression | list | tuple):
        return target
    if not isinstance(operand, str):
        return ()
    references = _sql_value(operand).columns()
    unqualified = {name for side, name, _ in references if side is None} - {*source}
    # Where the source has columns too these are of the table, or they are in other letters, as below.
    if unqualified - (set() if source else {*target}):
        return target
    of_table = {name for side, name, _ in references if side and SIDES.get(side.lower()) != SOURCE}
    return unqualified | of_table if of_table <= {*target} else target


def holds(condition: Filter | Computed | None, frame: Frame) -> Bools:
    """Return for which rows a condition is true; null is not."""
    if condition is None:
        return np.ones(frame.count, np.bool_)
    if isinstance(condition, str) and frame.sides[SOURCE] is None:  # as every other filter reads it
        parsed = _prefilter(condition, frame.flat().schema)
        condition = condition if parsed is None else parsed
    if isinstance(condition, str | Computed):
        value = (
            condition.evaluate(frame)
            if isinstance(condition, Computed)
            else _sql_value(condition).evaluate(frame.column, frame.count, frame.char_length)
        )
        if not pa.types.is_boolean(value.type) and not pa.types.is_null(value.type):
            raise InvalidInputError(
                f"{condition!r} is no condition: it gives {value.type}",
                kind=ErrorKind.INVALID_FILTER,
            )
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
            value = _sql_value(expression).evaluate(frame.column, frame.count, frame.char_length)
        elif isinstance(expression, pc.Expression):
            value = _projected(expression, frame.flat())
        elif isinstance(expression, Computed):
            value = expression.evaluate(frame)
        else:
            value = fitted(field.name, _single_value(expression, field), field.type)
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
    if name in rows.column_names:
        return name
    alike = [
        column_name for column_name in rows.column_names if column_name.lower() == name.lower()
    ]
    return alike[0] if len(alike) == 1 and not quoted else None


def _unknown(name: str, hint: str) -> InvalidInputError:
    return InvalidInputError(
        f"no column {name!r}: {hint}", kind=ErrorKind.NO_SUCH_COLUMN, column=name
    )


def _sql_value(text: str) -> "SqlValue":
    """Return SQL text as an expression; the parser takes a while to load."""
    value: SqlValue = import_module("lsm_engine.prune.sql_values").SqlValue(text)
    return value


def quoted_source(name: str) -> str:
    """Return the SQL text of a column of the source."""
    return 'source."' + name.replace('"', '""') + '"'
