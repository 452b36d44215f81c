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
    """What an engine such as Spark computes for each row. `of`: the values, one for each row of a `Frame`.

    `needs`: the columns of the table that it looks at. `where`: a filter on them that keeps no fewer rows, if there is one.
    """

    of: Callable[["Frame"], pa.ChunkedArray]
    needs: frozenset[str]
    where: Predicate | None = None


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
        kept = pa.array(mask)
        cut = {name: side and side.filter(kept) for name, side in self.sides.items()}
        return Frame(cut[TARGET], cut[SOURCE])

    def char_length(self, side: str | None, name: str, quoted: bool = True) -> int | None:  # noqa: FBT001, FBT002 -- as `column`
        """Return n of a column that is CHAR(n), which the table's rows know; None of any other."""
        rows, found = self._place(side, name, quoted=quoted)
        return char_length(rows.schema.field(found))

    def column(self, side: str | None, name: str, quoted: bool = True) -> pa.ChunkedArray:  # noqa: FBT001, FBT002 -- as `Resolve`
        """Return a column of one side, or of the only side that has it; InvalidInputError."""
        rows, found = self._place(side, name, quoted=quoted)
        return rows.column(found)

    def _place(self, side: str | None, name: str, *, quoted: bool) -> tuple[pa.Table, str]:
        """Return the rows that have a column, and its name there."""
        if side is not None:
            chosen = SIDES.get(side.lower())
            if chosen is None:
                raise _unknown(f"{side}.{name}", "qualify a column with source. or target.")
            rows = self.sides[chosen]
            if rows is None:
                raise _unknown(f"{side}.{name}", f"these rows have no {chosen}")
            found = _name_in(rows, name, quoted=quoted)
            if found is None:
                raise _unknown(f"{side}.{name}", f"there are {', '.join(rows.column_names)}")
            return rows, found
        held = [
            (rows, found)
            for rows in self.sides.values()
            if rows is not None and (found := _name_in(rows, name, quoted=quoted)) is not None
        ]
        if len(held) != 1:
            sides = [rows for rows in self.sides.values() if rows is not None]
            near = nearest(name, [each for rows in sides for each in rows.column_names])
            hint = f"did you mean {near!r}? " if near else ""
            hint += "A text is written in quotes of its own, as \"'text'\""
            raise _unknown(name, "write source. or target. before it" if held else hint)
        return held[0]

    def flat(self) -> pa.Table:
        """Return the columns as "target.x" and "source.x", and as "x" where only one side has it."""
        there = {side: rows for side, rows in self.sides.items() if rows is not None}
        held = Counter(name for rows in there.values() for name in rows.column_names)
        columns: dict[str, pa.ChunkedArray] = {}
        fields: dict[str, pa.Field] = {}
        for side, rows in there.items():
            for field, values in zip(rows.schema, rows.columns, strict=True):
                names = (f"{side}.{field.name}", field.name)
                for name in names[: 2 if held[field.name] == 1 else 1]:
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
    needed = {*schema.partition_keys, *_named(condition, target, source)}
    for clause in clauses:
        if clause.match is Match.NOT_MATCHED:
            continue
        needed |= {*_named(clause.condition, target, source)}
        if clause.action is Action.DELETE:
            needed |= {*deleted_columns(schema)}
            continue
        needed |= {*target} - {*(source if clause.values is None else clause.values)}
        for value in (clause.values or {}).values():
            needed |= {*_named(value, target, source)}
    return needed


def rows_needed(clauses: Sequence[Clause] | None, schema: TableSchema) -> ScanRequest:
    """Return what clauses without a source need of the table: no other columns, and hardly any other rows.

    None: all of it.
    """
    if clauses is None:
        return ScanRequest(is_batch=False)
    needed = values_needed(None, clauses, schema, ()) | {*schema.primary_keys}
    columns = tuple(name for name in schema.names if name in needed)
    where = [_kept(clause.condition, schema.compared) for clause in clauses]
    if any(part is None for part in where):
        return ScanRequest(is_batch=False, columns=columns)
    either = AnyOf(parts=tuple(part for part in where if part is not None))
    return ScanRequest(is_batch=False, columns=columns, where=either)


def _kept(given: Filter | Computed | None, columns: pa.Schema) -> Predicate | None:
    """Return a filter that keeps all rows for which a condition is true; None where none is known."""
    made = given.where if isinstance(given, Computed) else given
    # It may be more than a filter may be, or have a literal that the column has no room for.
    try:
        if isinstance(made, str):
            parser = import_module("lsm_engine.prune.sql")
            made = parser.parse_filter(made, columns)
        if not isinstance(made, Predicate):
            return None
        tree_of(made, columns)
    except InvalidInputError:
        return None
    return made


def _named(given: Any, target: Collection[str], source: Collection[str]) -> Collection[str]:
    """Return which columns of the table a condition or a value looks at; all where that is not known."""
    if isinstance(given, Computed):
        return given.needs
    if isinstance(given, Predicate | pc.Expression | list | tuple):
        return target
    if not isinstance(given, str):
        return ()
    named = _sql_value(given).columns()
    plain = {name for side, name, _ in named if side is None} - {*source}
    # Where the source has columns too these are of the table, or they are in other letters, as below.
    if plain - (set() if source else {*target}):
        return target
    of_table = {name for side, name, _ in named if side and SIDES.get(side.lower()) != SOURCE}
    return plain | of_table if of_table <= {*target} else target


def holds(condition: Filter | Computed | None, frame: Frame) -> Bools:
    """Return for which rows a condition is true; null is not."""
    if condition is None:
        return np.ones(frame.count, np.bool_)
    if isinstance(condition, str) and frame.sides[SOURCE] is None:  # as every other filter reads it
        plain = _kept(condition, frame.flat().schema)
        condition = condition if plain is None else plain
    if isinstance(condition, str | Computed):
        value = (
            condition.of(frame)
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


def computed(given: Any, frame: Frame, field: pa.Field) -> pa.Array:
    """Return what a column is set to, in the column's type; InvalidInputError names the column."""
    try:
        if isinstance(given, str):
            value = _sql_value(given).evaluate(frame.column, frame.count, frame.char_length)
        elif isinstance(given, pc.Expression):
            value = _projected(given, frame.flat())
        elif isinstance(given, Computed):
            value = given.of(frame)
        else:
            value = fitted(field.name, _one(given, field), field.type)
            return value.take(pa.array(np.zeros(frame.count, np.int64)))
        value = one_array(value)
        if pa.types.is_nested(field.type):
            check_type(field.name, value.type, field.type)
        if pa.types.is_decimal(field.type) and pa.types.is_decimal(value.type):
            value = pc.round(value, field.type.scale, "half_towards_infinity")  # as SQL assigns
        return fitted(field.name, value, field.type)
    except (pa.ArrowException, OverflowError) as cause:
        raise InvalidInputError(
            f"column {field.name!r} ({field.type}) cannot be set to {given!r}: {cause}",
            kind=ErrorKind.INVALID_ROWS,
            column=field.name,
        ) from cause


def chosen_clauses(
    clauses: Iterable[Clause], match: Match, frame: Frame
) -> list[tuple[Clause, Bools]]:
    """Return each clause of a kind with the rows that it takes: the first that holds for a row does."""
    left = np.ones(frame.count, np.bool_)
    taken = []
    for clause in clauses:
        if clause.match is not match or not left.any():
            continue
        mine = np.zeros(frame.count, np.bool_)
        mine[left] = holds(clause.condition, frame.filter(left))
        left &= ~mine
        taken.append((clause, mine))
    return taken


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
    if not any(each.values is None and each.action is not Action.DELETE for each in clauses):
        return
    alike = str.lower if any_case else str
    ours, theirs = ({alike(name): name for name in names} for names in (table, source))
    mentioned = repr([on, condition, *((each.condition, each.values) for each in clauses)])
    lacking = [ours[each] for each in ours if each not in theirs]
    for name in (theirs[each] for each in theirs if each not in ours):
        near = nearest(name, lacking, _NEARLY)
        if near and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", mentioned):
            raise InvalidInputError(
                f"the source's column {name!r} would be left out: the table has no such column, but {near!r}, "
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
        for name, given in (clause.values or {}).items():
            computed(given, frame, target.field(name))


def _projected(expression: pc.Expression, rows: pa.Table) -> pa.ChunkedArray:
    import pyarrow.acero as acero  # noqa: PLC0415 -- few set columns to Arrow expressions

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.ProjectNodeOptions([expression], ["value"])
    found = acero.Declaration("project", project, inputs=[source]).to_table(use_threads=False)
    return found.column("value")


def _one(given: Any, field: pa.Field) -> pa.Array:
    """Return a value as an array of one, checked as a row of an upsert is."""
    if isinstance(given, pa.Scalar):
        value = pa.repeat(given, 1)
    else:
        try:
            value = values_array(field.name, [given], field.type)
        except InvalidInputError as cause:
            raise InvalidInputError(
                f"column {field.name!r} is set to SQL text, such as '{field.name} + 1', to an Arrow expression "
                f"or to a plain value, not to {given!r}: {cause.message}",
                column=field.name,
            ) from cause
    check_type(field.name, value.type, field.type)
    return value


def _name_in(rows: pa.Table, name: str, *, quoted: bool) -> str | None:
    if name in rows.column_names:
        return name
    alike = [each for each in rows.column_names if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 and not quoted else None


def _unknown(name: str, hint: str) -> InvalidInputError:
    return InvalidInputError(
        f"no column {name!r}: {hint}", kind=ErrorKind.NO_SUCH_COLUMN, column=name
    )


def _sql_value(text: str) -> "SqlValue":
    """Return SQL text as an expression; the parser takes a while to load."""
    made: SqlValue = import_module("lsm_engine.prune.sql_values").SqlValue(text)
    return made


def quoted_source(name: str) -> str:
    """Return the SQL text of a column of the source."""
    return 'source."' + name.replace('"', '""') + '"'
