"""MERGE, UPDATE and DELETE on Spark: by DataFrames, or by the driver if the table is small."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SqlColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types
from pyspark.storagelevel import StorageLevel
from sqlglot import exp

from lsm_engine.api.table import Table
from lsm_engine.base.record import record
from lsm_engine.dml.merge import (
    LOOKED_UP_SHARE,
    SOURCE,
    TARGET,
    Action,
    Clause,
    Computed,
    Frame,
    Match,
    MergePlan,
    ambiguous_match,
    check_merge,
    direct_source,
    key_conflict,
    moved_keys,
    quoted_source,
    staged,
)
from lsm_engine.dml.write import StageOn, stage
from lsm_engine.filter.where import AllOf, AnyOf, Column, Predicate, col
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.lookup.locate import INSERT
from lsm_engine.merge.function import deleted_columns
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.spark.jobs import collected, collected_by
from lsm_engine.spark.jvm import referenced_columns
from lsm_engine.spark.lookups import joined_at, locate_dataframe
from lsm_engine.spark.merge_columns import (
    CLAUSE,
    Sides,
    chosen,
    columns_of,
    sql_name,
    stored_columns,
    whole_row,
    with_blanks,
)
from lsm_engine.spark.parquet_rows import parquet_frame, scanned_frame
from lsm_engine.spark.rows import driver_bytes, few_rows, is_plain, local_bytes, plain_files
from lsm_engine.spark.session import check_shared, set_meanwhile
from lsm_engine.spark.splits import bytes_per_row
from lsm_engine.spark.statement import SparkSql, conjuncts, parsed_expression
from lsm_engine.spark.types import arrow_schema_of, char_length, fitter, quoted, spark_schema
from lsm_engine.table.incoming import ROW_KIND_COLUMN
from lsm_engine.table.session import TableSession

# -- Conditions that need no Spark -----------------------------------------------------------------
#
# Comparisons of columns with literals, of which both make the same.
#
# `a % 10 = 3 AND day < DATE '2024-05-01'`: AND, OR, NOT, comparisons, IN, BETWEEN and IS NULL over columns of whole numbers,
# texts and days. Casts, functions, fractions, times and subqueries stay with Spark, whose rules they go by.

Values = Callable[[Frame], Any]
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_COMPARED: Mapping[type[exp.Expr], tuple[Callable[[Any, Any], Any], str, str]] = {
    exp.EQ: (pc.equal, "__eq__", "__eq__"),
    exp.NEQ: (pc.not_equal, "__ne__", "__ne__"),
    exp.LT: (pc.less, "__lt__", "__gt__"),
    exp.LTE: (pc.less_equal, "__le__", "__ge__"),
    exp.GT: (pc.greater, "__gt__", "__lt__"),
    exp.GTE: (pc.greater_equal, "__ge__", "__le__"),
}
"""How values are compared, and what a column does the same by as a filter, first or second."""


class _NotPlainError(Exception):
    """Arrow and Spark may compute an expression differently."""


@record
class _Part:
    """A condition, or a value. `prefilter`: for rows of the table, a filter that keeps all for which it is true.

    `is_exact`: it keeps no others.
    """

    evaluate: Values
    kind: pa.DataType
    prefilter: Predicate | None = None
    is_exact: bool = True
    column: Column | None = None
    literal: Any = None


def plain_condition(
    condition: Any, sides: Sides, schemas: Mapping[str, sql_types.StructType], match: Match
) -> Computed | None:
    """Return a condition that Arrow can compute, from SQL text; None if Spark has to compute it.

    Raises InvalidInputError for a name that neither side has.
    """
    if not isinstance(condition, str | SparkSql):
        return None
    expression = sides.spark_sql(condition, match)
    if expression.tree is None or "\\" in expression.text:  # text between quotes may be escaped
        return None
    try:
        reader = _Reader(sides, schemas)
        part = reader.condition(expression.tree)
    except (_NotPlainError, RecursionError):
        # Not an error of the statement: Spark computes what Arrow may compute differently.
        return None
    return Computed(evaluate=part.evaluate, needs=frozenset(reader.needs), prefilter=part.prefilter)


def prefilter_of(condition: str, schema: sql_types.StructType) -> Predicate | None:
    """Return a filter that keeps all rows of a table for which Spark's SQL text is true; None without one.

    Columns may have any qualifier: all of them are the table's.
    """
    tree = parsed_expression(condition)
    if tree is None or "\\" in condition:
        return None
    sides = Sides(target=TARGET, source=SOURCE, columns={}, lengths={})
    # Spark pads what it compares with CHAR(n), by rules of its own.
    fields = [field for field in schema.fields if char_length(field) is None]
    reader = _Reader(
        sides, {TARGET: sql_types.StructType(fields), SOURCE: sql_types.StructType([])}
    )
    for column in tree.find_all(exp.Column):
        column.replace(exp.column(column.this))
    prefilters = []
    for part in conjuncts(tree):
        try:
            prefilters.append(reader.condition(part).prefilter)
        except _NotPlainError:  # of this part alone every row is kept
            continue
    parts = tuple(prefilter for prefilter in prefilters if prefilter is not None)
    return AllOf(parts=parts) if parts else None


class _Reader:
    def __init__(self, sides: Sides, schemas: Mapping[str, sql_types.StructType]) -> None:
        self._sides = sides
        self._schemas = schemas
        self.needs: set[str] = set()

    def condition(self, node: exp.Expr) -> _Part:
        """Return an expression as a condition."""
        if type(node) in _COMPARED:
            return self._compared(type(node), self._value(node.this), self._value(node.expression))
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.Boolean():
                return _condition(lambda frame: pa.repeat(pa.scalar(node.this), frame.count), None)
            case exp.And() | exp.Or():
                return self._joined(node)
            case exp.Not():
                part = self.condition(node.this)
                prefilter = (
                    ~part.prefilter if part.prefilter is not None and part.is_exact else None
                )
                return _condition(lambda frame: pc.invert(part.evaluate(frame)), prefilter)
            case exp.Between() if not set(node.args) - {"this", "low", "high", "symmetric"}:
                value = self._value(node.this)
                low, high = self._value(node.args["low"]), self._value(node.args["high"])
                above = self._compared(exp.GTE, value, low)
                return _both(above, self._compared(exp.LTE, value, high))
            case exp.In() if node.expressions and not node.args.get("query"):
                return self._is_in(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                value = self._column(node.this)
                prefilter = None if value.column is None else value.column.is_null()
                return _condition(lambda frame: pc.is_null(value.evaluate(frame)), prefilter)
        raise _NotPlainError

    def _joined(self, node: exp.Expr) -> _Part:
        left, right = self.condition(node.this), self.condition(node.expression)
        if isinstance(node, exp.And):
            return _both(left, right)
        has_prefilters = left.prefilter is not None and right.prefilter is not None
        prefilter = AnyOf(parts=(left.prefilter, right.prefilter)) if has_prefilters else None  # type: ignore[arg-type]
        exact = left.is_exact and right.is_exact
        return _condition(
            lambda frame: pc.or_kleene(left.evaluate(frame), right.evaluate(frame)),
            prefilter,
            is_exact=exact,
        )

    def _compared(self, operator: type[exp.Expr], left: _Part, right: _Part) -> _Part:
        compare, forwards, backwards = _COMPARED[operator]
        left, right = _as(left, right.kind), _as(right, left.kind)
        if left.kind != right.kind or (left.literal is not None and right.literal is not None):
            raise _NotPlainError
        prefilter = None
        if left.column is not None and right.literal is not None:
            prefilter = getattr(left.column, forwards)(right.literal)
        elif right.column is not None and left.literal is not None:
            prefilter = getattr(right.column, backwards)(left.literal)
        return _condition(
            lambda frame: compare(left.evaluate(frame), right.evaluate(frame)), prefilter
        )

    def _is_in(self, node: exp.In) -> _Part:
        value = self._value(node.this)
        operands = [_as(self._value(operand), value.kind) for operand in node.expressions]
        if value.literal is not None or any(
            operand.literal is None or operand.kind != value.kind for operand in operands
        ):
            raise _NotPlainError
        literals = [operand.literal for operand in operands]
        among = pa.array(literals, value.kind)

        def is_member(frame: Frame) -> Any:
            rows = value.evaluate(frame)
            return pc.if_else(pc.is_null(rows), pa.scalar(None, pa.bool_()), pc.is_in(rows, among))

        return _condition(is_member, None if value.column is None else value.column.is_in(literals))

    def _value(self, node: exp.Expr) -> _Part:
        match node:
            case exp.Paren():
                return self._value(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal() | exp.Neg() | exp.Cast():
                return _literal(node)
            case exp.Mod():
                value, by = self._value(node.this), self._value(node.expression)
                if value.kind != pa.int64() or value.literal is not None or (by.literal or 0) <= 0:
                    raise _NotPlainError
                return _Part(
                    evaluate=lambda frame: _remainder(value.evaluate(frame), by.literal),
                    kind=value.kind,
                )
            case _:
                raise _NotPlainError

    def _column(self, node: exp.Expr) -> _Part:
        if not isinstance(node, exp.Column) or node.args.get("db"):
            raise _NotPlainError
        called = {self._sides.target.lower(): TARGET, self._sides.source.lower(): SOURCE}
        side = called.get(node.table.lower()) if node.table else None
        if node.table and side is None:
            raise _NotPlainError
        matches = [
            (candidate, field)
            for candidate in ((TARGET, SOURCE) if side is None else (side,))
            for field in self._schemas[candidate].fields
            if field.name.lower() == node.name.lower()
        ]
        if len(matches) != 1:
            raise _NotPlainError
        ((side, field),) = matches
        match field.dataType:
            case (
                sql_types.ByteType()
                | sql_types.ShortType()
                | sql_types.IntegerType()
                | sql_types.LongType()
            ):
                kind = pa.int64()
            case sql_types.DateType():
                kind = pa.date32()
            case sql_types.StringType() if field.dataType == sql_types.StringType():
                kind = pa.string()
            case _:
                raise _NotPlainError
        column = None
        if side == TARGET:
            self.needs.add(field.name)
            column = col(field.name)
        name = field.name
        return _Part(
            evaluate=lambda frame: frame.column(side, name).cast(kind), kind=kind, column=column
        )


def _condition(evaluate: Values, prefilter: Predicate | None, *, is_exact: bool = True) -> _Part:
    return _Part(evaluate=evaluate, kind=pa.bool_(), prefilter=prefilter, is_exact=is_exact)


def _both(left: _Part, right: _Part) -> _Part:
    parts = tuple(part.prefilter for part in (left, right) if part.prefilter is not None)
    prefilter = AllOf(parts=parts) if len(parts) == 2 else next(iter(parts), None)
    exact = len(parts) == 2 and left.is_exact and right.is_exact
    return _condition(
        lambda frame: pc.and_kleene(left.evaluate(frame), right.evaluate(frame)),
        prefilter,
        is_exact=exact,
    )


def _as(value: _Part, kind: pa.DataType) -> _Part:
    """Return a day that is written as a text as one; any other value as it is."""
    text = value.literal
    if kind != pa.date32() or not isinstance(text, str):
        return value
    return _day(text)


def _day(text: str) -> _Part:
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None:
        raise _NotPlainError
    return _constant(day, pa.date32())


def _literal(node: exp.Expr) -> _Part:
    if isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.BIGINT:
        node = node.this  # 5L
    if isinstance(node, exp.Cast):
        text = node.this.this if isinstance(node.this, exp.Literal) else None
        if node.to.this is not exp.DataType.Type.DATE or not isinstance(text, str):
            raise _NotPlainError
        return _day(text)
    sign, node = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(node, exp.Literal) and node.is_string and sign > 0:
        return _constant(node.this, pa.string())
    if isinstance(node, exp.Literal) and node.this.isdecimal() and int(node.this) < 1 << 63:
        return _constant(sign * int(node.this), pa.int64())
    raise _NotPlainError


def _constant(value: Any, kind: pa.DataType) -> _Part:
    scalar = pa.scalar(value, kind)
    return _Part(evaluate=lambda _: scalar, kind=kind, literal=value)


def _remainder(values: Any, by: int) -> Any:
    """Return the remainder with the sign of the dividend, as Java has it: Arrow's division of integers cuts off."""
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))


# -- MERGE of a DataFrame on Spark -----------------------------------------------------------------
#
# Nothing is collected but counts, and one commit holds all of it.
#
# target      the keys' rows, looked up on executors, or a read of the pinned state and Spark's join
# changes     each row that some clause takes, as it will be; kept by Spark, since it is used twice
# checks      one job: counts, keys that change, keys that several rows change
# stage       the write path of every DataFrame, on top of the pinned state

_SHOWN = 3
_MOVED = "_lsm_key_changes"
_JOINS = {
    (False, False): "inner",
    (True, False): "left",
    (False, True): "right",
    (True, True): "full",
}
"""Spark's join, by whether rows matter that only the source has, and that only the table has."""
_Counted = tuple[Sequence[CommitMessage], RowCounts]


@record
class FrameMerge:
    """One MERGE, staged again on each state that a commit is tried on. `source` None: no rows."""

    session: TableSession
    source: DataFrame | None
    plan: MergePlan
    sides: Sides
    spark: Any

    def __call__(self, base: Snapshot | None) -> _Counted | None:
        """Look at a state and write files on top of it; None where no row changes."""
        joined = self._joined(base)
        if joined is None:
            return None
        # Two jobs read the changes, one to check and one to write; the source may not be deterministic.
        changes = self._changes(joined).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts, returns = self._checked(changes, base)
            if counts == RowCounts():
                return None
            rows = self._deletions_first(changes) if returns else changes
            return stage(self.session, rows.drop(_MOVED), base), counts
        finally:
            changes.unpersist()

    @property
    def _keys(self) -> list[str]:
        return list(self.session.schema.primary_keys)

    def _joined(self, base: Snapshot | None) -> DataFrame | None:
        """Return the joined rows: a column with the row of the table, and one with the row of the source, or null."""
        if self.source is None:
            target = self._target(base)
            return target and target.withColumn(self.sides.source, sql.lit(None))
        source = self.sides.widened(self.source.select(whole_row(self.source, self.sides.source)))
        target = self._target(base)
        if base is None or target is None:
            # An empty table: every row of the source is without a match.
            none = sql.lit(None).cast(self.spark_schema)
            return self.sides.widened(source.withColumn(self.sides.target, none))
        by_key = self.plan.matches_on(self._keys) and not self.plan.needs_table
        if (
            by_key
            and self.plan.condition is None
            and self._keeps_keys
            and self._has_small_source(base)
        ):
            # Few keys: a lookup reads some blocks of the table, and a join would read all of it.
            return self.sides.widened(self._looked_up(self.source, base))
        kinds = self.spark_schema
        on = [
            self.sides.column(self.sides.target, mine)
            == with_blanks(self.sides.column(self.sides.source, theirs), kinds[mine])
            for mine, theirs in self.plan.on
        ]
        if self.plan.condition is not None:
            on.append(self.sides.condition(self.plan.condition))
        inserts = any(clause.action is Action.INSERT for clause in self.plan.clauses)
        join_type = _JOINS[inserts, self.plan.needs_table]
        return source.join(target, reduce(SqlColumn.__and__, on), join_type)

    @property
    def _keeps_keys(self) -> bool:
        """Whether no key of the source becomes another one as the column's type, by `try_cast`.

        1.5 would be 1, a time its day. A number that is too great becomes null, which is no key.
        """
        if self.source is None:
            return True
        source_types = {field.name: field.dataType for field in self.source.schema.fields}
        kinds = {field.name: field.dataType for field in self.spark_schema.fields}
        return all(_keeps(source_types[theirs], kinds[mine]) for mine, theirs in self.plan.on)

    def _has_small_source(self, base: Snapshot) -> bool:
        assert self.source is not None
        most = (base.total_record_count or 0) // LOOKED_UP_SHARE
        # With the limit Spark stops once there are too many rows.
        return self.source.limit(most + 1).count() <= most

    def _looked_up(self, source: DataFrame, base: Snapshot) -> DataFrame:
        """Look up the keys of the source on the executors, which read only the matching rows of the table."""
        arrow = self.session.schema.arrow
        kinds = {field.name: field.dataType for field in self.spark_schema.fields}
        key_names = {
            mine: f"_lsm_key_{position}" for position, (mine, _) in enumerate(self.plan.on)
        }
        rows = source.select(
            whole_row(source, "_lsm_source"),
            *(
                sql.expr(f"try_cast({quoted(theirs)} AS {sql_name(kinds[mine])})").alias(
                    key_names[mine]
                )
                for mine, theirs in self.plan.on
            ),
        )
        joined = joined_at(rows, self._table, key_names, arrow.names, base)
        matched = sql.col(quoted(self._keys[0])).isNotNull()
        target = sql.struct(*(sql.col(quoted(name)) for name in arrow.names))
        return joined.select(
            sql.col("_lsm_source").alias(self.sides.source),
            sql.when(matched, target).alias(self.sides.target),
        )

    def _target(self, base: Snapshot | None) -> DataFrame | None:
        if base is None:
            return None
        # Not by the snapshot's id: that would be the past, with the columns of its time.
        scan = Scan(self.session.with_level_0(), ScanRequest(is_batch=False), base)
        frame = scanned_frame(scan, self.spark_schema, self.spark)
        return self.sides.widened(frame.select(whole_row(frame, self.sides.target)))

    @property
    def spark_schema(self) -> sql_types.StructType:
        """The table's columns as Spark has them."""
        return spark_schema(self.session.schema.read_fields)

    @property
    def _table(self) -> Table:
        return Table(self.session.with_level_0(), self.session.name)

    @property
    def source_schema(self) -> sql_types.StructType:
        """The source's columns; none without one."""
        return sql_types.StructType() if self.source is None else self.source.schema

    def _changes(self, joined: DataFrame) -> DataFrame:
        """Return the rows that clauses take: the table's columns, the kind, whether a key changes."""
        number = chosen(self.plan, self.sides)
        kind = reduce(
            lambda cases, numbered: cases.when(
                sql.col(CLAUSE) == numbered[0], numbered[1].action.row_kind
            ),
            enumerate(self.plan.clauses[1:], start=1),
            sql.when(sql.col(CLAUSE) == 0, self.plan.clauses[0].action.row_kind),
        )
        taken_rows = joined.withColumn(CLAUSE, number).where(sql.col(CLAUSE).isNotNull())
        columns = columns_of(
            self.plan, self.sides, self.spark_schema, self.source_schema, taken_rows
        )
        moved = [
            ~columns[name].eqNullSafe(self.sides.column(self.sides.target, name))
            for name in self._keys
        ]
        changes = reduce(SqlColumn.__or__, moved)
        return taken_rows.select(
            *(column.alias(name) for name, column in columns.items()),
            kind.alias(ROW_KIND_COLUMN),
            sql.when(kind == "+U", changes).otherwise(False).alias(_MOVED),  # noqa: FBT003
        )

    def _checked(self, changes: DataFrame, base: Snapshot | None) -> tuple[RowCounts, bool]:
        """Return the counts, and whether keys are inserted that go at the same time."""
        totals = self._counted(changes)
        # The keys of a merge are checked before a file is written: a refusal leaves nothing behind.
        if totals["_lsm_moved"]:
            raise moved_keys([totals["_lsm_moved_key"].asDict()])
        if totals["_lsm_many"]:
            raise ambiguous_match(totals["_lsm_many"], [totals["_lsm_many_key"].asDict()])
        if totals["_lsm_twice"]:
            key = totals["_lsm_twice_key"].asDict()
            raise key_conflict("of the same key as another", totals["_lsm_twice"], [key])
        counts = RowCounts(
            inserted=totals["_lsm_i"] or 0,
            updated=totals["_lsm_u"] or 0,
            deleted=totals["_lsm_d"] or 0,
        )
        # A merge on the key has seen every row of its keys, so an inserted key is new.
        is_free = self.plan.inserts_what_it_matches_on(self._keys) and self._keeps_keys
        if counts.inserted and base is not None and not is_free:
            self._refuse_taken(changes)
        return counts, bool(totals["_lsm_back"])

    def _counted(self, changes: DataFrame) -> Row:
        """Return how many rows are inserted, updated and deleted, and how many keys are wrong, each with one."""
        kind = sql.col(ROW_KIND_COLUMN)
        keys = [quoted(name) for name in self._keys]
        by_key = changes.groupBy(*keys).agg(
            sql.count_if(kind == "+I").alias("_lsm_i"),
            sql.count_if(kind == "+U").alias("_lsm_u"),
            sql.count_if(kind == "-D").alias("_lsm_d"),
            sql.bool_or(_MOVED).alias("_lsm_m"),
        )
        i, u, d = (sql.col(name) for name in ("_lsm_i", "_lsm_u", "_lsm_d"))
        wrong = {
            "_lsm_moved": sql.col("_lsm_m"),
            "_lsm_many": u + d > 1,
            "_lsm_twice": (i > 1) | (i * u > 0),
        }
        summed = by_key.agg(
            *(sql.sum(name).alias(name) for name in ("_lsm_i", "_lsm_u", "_lsm_d")),
            sql.count_if(i * d > 0).alias("_lsm_back"),
            *(sql.count_if(test).alias(name) for name, test in wrong.items()),
            *(
                sql.min(sql.when(test, sql.struct(*keys))).alias(f"{name}_key")
                for name, test in wrong.items()
            ),
        )
        (totals,) = collected(summed, label=f"merge into {self.session.name}")
        return totals

    def _refuse_taken(self, changes: DataFrame) -> None:
        kind = sql.col(ROW_KIND_COLUMN)
        keys = list(map(quoted, self._keys))
        new = changes.where(kind == "+I")
        existing = locate_dataframe(self._table, new.select(*_columns_to_locate(self.session)))
        existing = existing.where(sql.col("_action") != INSERT).select(*keys)
        existing = existing.join(changes.where(kind == "-D").select(*keys), self._keys, "left_anti")
        label = f"merge into {self.session.name}"
        rows = [row.asDict() for row in collected(existing.limit(_SHOWN), label=label)]
        if rows:
            raise key_conflict("with keys that are there already", existing.count(), rows)

    def _deletions_first(self, changes: DataFrame) -> DataFrame:
        """Order rows so that the insertion of a key comes after its deletion, and counts."""
        return changes.orderBy(sql.col(ROW_KIND_COLUMN) != "-D", *map(quoted, self._keys))


def frame_merge(
    session: TableSession, source: DataFrame | None, plan: MergePlan, sides: Sides, spark: Any
) -> FrameMerge:
    """Return a MERGE on Spark, to be staged; raises as `dml.merge.merge` does."""
    arrow = session.schema.arrow if source is None else arrow_schema_of(source.schema)
    check_merge(session, plan, arrow.names, any_case=True)
    check_shared(spark, session.file_io)
    return FrameMerge(session=session, source=source, plan=plan, sides=sides, spark=spark)


def _keeps(source_type: sql_types.DataType, column_type: sql_types.DataType) -> bool:
    if source_type.simpleString() == column_type.simpleString():
        return True
    match source_type, column_type:
        case sql_types.DecimalType(), sql_types.DecimalType():
            return bool(source_type.scale == column_type.scale)
        case _:
            return isinstance(source_type, sql_types.IntegralType) and isinstance(
                column_type, sql_types.IntegralType
            )


def _columns_to_locate(session: TableSession) -> list[str]:
    schema = session.schema
    return [quoted(name) for name in dict.fromkeys((*schema.primary_keys, *schema.partition_keys))]


# -- MERGE, UPDATE and DELETE on the driver --------------------------------------------------------
#
# Spark computes expressions alone.
#
# The rows are those of `table.write.merge`: keys looked up or the table scanned in this
# process. Of them only the columns that an expression needs go to the JVM, in one job of one
# stage for each clause that has any; columns that are taken from the source as they are never
# do.

_ROW = "_lsm_row"
_TABLE_SHARE = 8
"""How many times the bytes of `spark.lsm.driver-bytes` the files of a table may have for the driver to merge."""
LOCAL_BYTES = "spark.sql.execution.arrow.localRelationThreshold"
"""Spark's own setting: rows in Arrow of fewer bytes become rows of the plan."""
_FEW_BYTES = "64kb"
_ROWS_AT_ONCE = 1 << 19
"""Rows of a table that one job of Spark computes expressions for."""


def driver_plan(
    plan: MergePlan,
    sides: Sides,
    spark: SparkSession,
    schemas: Mapping[str, sql_types.StructType],
    label: str,
) -> MergePlan:
    """Return a plan whose conditions and values are computed by Spark. `schemas`: of both sides, by TARGET and SOURCE.

    Raises what Spark does for an expression that it cannot read, whether or not a row ever gets to it.
    """
    rows = FrameRows(sides=sides, spark=spark, schemas=schemas, label=label)
    clauses = tuple(_clause(clause, rows) for clause in plan.clauses)
    condition = None
    if plan.condition is not None:
        condition = _driver_condition(plan.condition, rows, Match.MATCHED)
    return replace(plan, condition=condition, clauses=clauses)


def _clause(clause: Clause, rows: "FrameRows") -> Clause:
    condition = None
    if clause.condition is not None:
        condition = _driver_condition(clause.condition, rows, clause.match)
    if clause.action is Action.DELETE:
        return replace(clause, condition=condition)
    target, source = rows.schemas[TARGET], rows.schemas[SOURCE]
    columns = stored_columns(clause, rows.sides, target, source, rows.template())
    as_they_are = {
        name: quoted_source(column)
        for name, value in clause.assignments(target.names, source.names, any_case=True).items()
        if (column := direct_source(value, source.names)) is not None
        and source[column].dataType.simpleString() == target[name].dataType.simpleString()
    }
    expressions = Expressions(
        rows, {name: value for name, value in columns.items() if name not in as_they_are}
    )
    needs = frozenset(expressions.columns)
    computed = {
        name: Computed(evaluate=partial(expressions, name=name), needs=needs) for name in columns
    }
    return replace(clause, condition=condition, values=computed | as_they_are)


def _driver_condition(condition: Any, rows: "FrameRows", match: Match) -> Computed:
    computed = plain_condition(condition, rows.sides, rows.schemas, match)
    if computed is not None:
        return computed
    evaluator = Condition(rows, rows.sides.condition(condition, match))
    return Computed(evaluate=evaluator, needs=frozenset(evaluator.columns))


@record
class FrameRows:
    """Rows of a `Frame` as Spark has them: a struct of each side. `schemas`: of both sides, by TARGET and SOURCE."""

    sides: Sides
    spark: SparkSession
    schemas: Mapping[str, sql_types.StructType]
    label: str

    def template(self) -> DataFrame:
        """Return no rows, with all columns of both sides."""
        return self._structs(self._flat(None, self._all()), self._all(), [TARGET, SOURCE])

    def needed(self, columns: Mapping[str, SqlColumn]) -> set[str]:
        """Return which columns expressions need, named as `_flat` does."""
        if not columns:
            return set()
        projected = self.template().select(*columns.values())
        references = referenced_columns(projected)
        return self._all() if references is None else {*references} & self._all()

    def to_dataframe(self, frame: Frame, needed: set[str]) -> DataFrame:
        """Return the rows of a frame, with their numbers and the columns that are needed."""
        present_sides = [side for side in (TARGET, SOURCE) if frame.sides[side] is not None]
        return self._structs(self._flat(frame, needed), needed, present_sides)

    def matching_rows(
        self, target: DataFrame, condition: SqlColumn, needed: set[str], names: Sequence[str]
    ) -> DataFrame:
        """Return columns of those rows of the table for which a condition holds."""
        parts = (
            (
                sql.col(quoted(field.name))
                if name in needed
                else sql.lit(None).cast(field.dataType)
            ).alias(field.name)
            for name, field in self._numbered_fields(TARGET)
        )
        columns = {
            f"_lsm_kept_{position}": sql.col(quoted(name)) for position, name in enumerate(names)
        }
        struct = sql.struct(*parts).alias(self.sides.target)
        rows = target.select(*(column.alias(name) for name, column in columns.items()), struct)
        return self.sides.widened(rows).where(condition).select(*columns).toDF(*names)

    def columns(self, needed: set[str]) -> list[str]:
        """Return which columns of the table are among those that are needed."""
        return [field.name for name, field in self._numbered_fields(TARGET) if name in needed]

    def collected(self, rows: DataFrame) -> pa.Table:
        """Return rows, by one job."""
        return collected_by(rows.toArrow, self.spark, label=self.label)

    def _all(self) -> set[str]:
        return {name for side in (TARGET, SOURCE) for name, _ in self._numbered_fields(side)}

    def _numbered_fields(self, side: str) -> Iterator[tuple[str, sql_types.StructField]]:
        for position, field in enumerate(self.schemas[side].fields):
            yield f"_lsm_{side}_{position}", field

    def _flat(self, frame: Frame | None, needed: set[str]) -> DataFrame:
        """Return rows with the columns that are needed side by side, and the number of each row."""
        count = 0 if frame is None else frame.count
        columns: dict[str, Any] = {_ROW: pa.array(np.arange(count))}
        fields = [sql_types.StructField(_ROW, sql_types.LongType())]
        for side in (TARGET, SOURCE):
            rows = None if frame is None else frame.sides[side]
            for name, field in self._numbered_fields(side):
                if name not in needed or (frame is not None and rows is None):
                    continue
                fields.append(sql_types.StructField(name, field.dataType))
                if rows is not None:
                    columns[name] = rows.column(field.name)
        schema = sql_types.StructType(fields)
        if frame is None:
            return self.spark.createDataFrame([], schema)
        batches = pa.table(columns).combine_chunks().to_batches()
        fit = fitter(arrow_schema_of(schema))
        # Up to 48 MB would be rows of the plan itself, which the planner goes through one by one; in tasks they are
        # computed with the code that Spark generates.
        with set_meanwhile(self.spark, LOCAL_BYTES, _FEW_BYTES):
            return self.spark.createDataFrame(pa.Table.from_batches([*map(fit, batches)]), schema)

    def _structs(self, flat: DataFrame, needed: set[str], present_sides: list[str]) -> DataFrame:
        """Return flat rows as one struct column per side; fields that no expression needs are null."""
        columns = []
        for side in (TARGET, SOURCE):
            called = getattr(self.sides, side)
            if side in present_sides:
                parts = (
                    (sql.col(name) if name in needed else sql.lit(None).cast(field.dataType)).alias(
                        field.name
                    )
                    for name, field in self._numbered_fields(side)
                )
                columns.append(sql.struct(*parts).alias(called))
            elif self.schemas[side].fields:
                columns.append(sql.lit(None).cast(self.schemas[side]).alias(called))
            else:
                columns.append(sql.lit(None).alias(called))
        return self.sides.widened(flat.select(_ROW, *columns))


class Condition:
    """A condition that Spark evaluates over a `Frame`. Only the numbers of the matching rows come back."""

    def __init__(self, rows: FrameRows, value: SqlColumn) -> None:
        self._rows = rows
        self.holds = sql.lit(True) & value  # noqa: FBT003 -- what is no condition is refused
        self.needed = rows.needed({"": self.holds})

    def __call__(self, frame: Frame) -> pa.Array:
        """Return for which rows it is true."""
        true_rows = self._rows.to_dataframe(frame, self.needed).where(self.holds).select(_ROW)
        true = np.zeros(frame.count, np.bool_)
        true[self._rows.collected(true_rows).column(_ROW).to_numpy()] = True
        return pa.array(true)

    def matching_rows(self, target: DataFrame, names: Sequence[str]) -> pa.Table:
        """Return columns of those rows of the table, which `target` has some columns of, for which it is true."""
        return self._rows.collected(
            self._rows.matching_rows(target, self.holds, self.needed, names)
        )

    @property
    def columns(self) -> list[str]:
        """The columns of the table that it needs."""
        return self._rows.columns(self.needed)


class Expressions:
    """Expressions that Spark computes over a `Frame`, all of them at once."""

    def __init__(self, rows: FrameRows, columns: Mapping[str, SqlColumn]) -> None:
        self._rows = rows
        self._columns = columns
        self._needed = rows.needed(columns)
        self._frame: Frame | None = None
        self._values = pa.table({})

    @property
    def columns(self) -> list[str]:
        """The columns of the table that any of them needs."""
        return self._rows.columns(self._needed)

    def __call__(self, frame: Frame, name: str) -> pa.ChunkedArray:
        """Return the values of one of them."""
        if self._frame is not frame:  # one job for all columns of a frame
            values = (value.alias(f"_{name}") for name, value in self._columns.items())
            rows = self._rows.to_dataframe(frame, self._needed).select(_ROW, *values)
            table = self._rows.collected(rows).sort_by(_ROW)
            self._values = table.drop_columns(_ROW).rename_columns([*self._columns])
            self._frame = frame
        return self._values.column(name)


class DriverMerge:
    """One MERGE, staged on each state that a commit is tried on: by the driver where it is small, else by executors.

    The source is evaluated once for all of them.
    """

    def __init__(self, merge: FrameMerge) -> None:
        self._merge = merge
        self._label = f"merge into {merge.session.name}"
        self._source: pa.Table | None = None
        self._plan: MergePlan | None = None
        if merge.source is None:  # an empty list names no columns
            self._source = merge.session.schema.arrow.empty_table()

    def __call__(
        self, session: TableSession, base: Snapshot | None
    ) -> tuple[Sequence[CommitMessage], RowCounts] | None:
        """Look at a state and write files on top of it; None where no row changes."""
        merge = self._on(session)
        if not self._takes(base):
            return merge(base)
        if self._source is None:
            assert merge.source is not None
            files = plain_files(merge.source, driver_bytes(merge.spark))
            self._source = (
                few_rows(merge.source, label=self._label) if files is None else files.table()
            )
            if self._source is None:
                return merge(base)
        if self._plan is None:
            schemas = {TARGET: merge.spark_schema, SOURCE: merge.source_schema}
            self._plan = driver_plan(merge.plan, merge.sides, merge.spark, schemas, self._label)
        target_rows = (
            None if base is None or merge.source is not None else self._rows_to_change(base)
        )
        if target_rows is None:
            return staged(merge.session, self._source, self._plan, base, rows_at_once=_ROWS_AT_ONCE)
        # Spark has applied the condition already, so the clause takes every row that is left.
        everywhere = tuple(replace(clause, condition=None) for clause in self._plan.clauses)
        plan = replace(self._plan, clauses=everywhere)
        return staged(merge.session, self._source, plan, base, target=target_rows)

    def _on(self, session: TableSession) -> FrameMerge:
        """Return the merge by the columns that the table has by now; raises as `frame_merge` does."""
        merge = self._merge
        if session.schema.id != merge.session.schema.id:
            # A retry after a conflict may see a newer schema: columns, types and names are bound again.
            sides = Sides.from_columns(
                session.schema,
                merge.source_schema,
                merge.sides.target,
                merge.sides.source,
                merge.sides.full_names,
            )
            self._merge = frame_merge(session, merge.source, merge.plan, sides, merge.spark)
            self._plan = None
        return self._merge

    def _rows_to_change(self, base: Snapshot) -> pa.Table | None:
        """Return the rows that the only clause changes, by Spark's own reader; None if it cannot read them.

        None too where rows are so many that no condition may be trusted to leave few enough of them.
        """
        merge, plan = self._merge, self._plan
        assert plan is not None
        (clause, *further_clauses) = plan.clauses
        if further_clauses or clause.condition is None:
            return None
        assert isinstance(clause.condition, Computed)
        condition = clause.condition.evaluate
        if not isinstance(condition, Condition):
            return None
        all_names = tuple(merge.session.schema.names)
        names = (
            deleted_columns(merge.session.schema) if clause.action is Action.DELETE else all_names
        )
        read = tuple(dict.fromkeys((*names, *condition.columns)))
        columns = self._columns(read)
        row_bytes = bytes_per_row(arrow_schema_of(columns))
        if (base.total_record_count or 0) * row_bytes > local_bytes(merge.spark):
            return None
        # Not by the snapshot's id: that would be the past, with the columns of its time.
        request = ScanRequest(is_batch=False, columns=read)
        scan = Scan(merge.session.with_level_0(), request, base)
        target = parquet_frame(scan, columns, merge.spark)
        return None if target is None else condition.matching_rows(target, names)

    def _takes(self, base: Snapshot | None) -> bool:
        """Whether the table is small, and the source, if there is one, is matched by the key as it is stored."""
        merge = self._merge
        most = driver_bytes(merge.spark) * _TABLE_SHARE
        is_light = bool(most) and base is not None and self._is_light(base)
        if is_light or not most or not is_plain(merge.spark_schema):
            # A light delete reads columns bit by bit, so the table may be large.
            return is_light
        if merge.source is not None and not (
            merge.plan.matches_on(merge.session.schema.primary_keys) and self._same_keys()
        ):
            return False
        if base is None:
            return True
        if (base.total_record_count or 0) > most:  # spares the look at the files
            return False
        return sum(entry.file.file_size for entry in merge.session.live_entries(base)) <= most

    def _is_light(self, base: Snapshot) -> bool:
        """Whether rows are deleted by a condition that needs no Spark: of the table only some columns are read, bit by bit."""
        merge = self._merge
        (clause, *further_clauses) = merge.plan.clauses
        if merge.source is not None or further_clauses or clause.action is not Action.DELETE:
            return False
        schemas = {TARGET: merge.spark_schema, SOURCE: sql_types.StructType([])}
        computed = plain_condition(clause.condition, merge.sides, schemas, clause.match)
        if computed is None:
            return False
        names = {*deleted_columns(merge.session.schema), *computed.needs}
        row_bytes = bytes_per_row(arrow_schema_of(self._columns(names)))
        return (base.total_record_count or 0) * row_bytes <= local_bytes(merge.spark) * _TABLE_SHARE

    def _columns(self, names: Iterable[str]) -> sql_types.StructType:
        return spark_schema(self._merge.session.schema.select_read(names))

    def _same_keys(self) -> bool:
        assert self._merge.source is not None
        # Zeroes and NaN of floating numbers are equal to Spark and different bytes to the engine.
        source_schema, kinds = self._merge.source.schema, self._merge.spark_schema
        return all(
            source_schema[theirs].dataType.simpleString() == kinds[mine].dataType.simpleString()
            and not isinstance(kinds[mine].dataType, sql_types.FloatType | sql_types.DoubleType)
            for mine, theirs in self._merge.plan.on
        )


def staged_merge(
    session: TableSession, source: DataFrame | None, plan: MergePlan, sides: Sides, spark: Any
) -> StageOn:
    """Return the function that stages a MERGE of a DataFrame; raises as `frame_merge` does."""
    return DriverMerge(frame_merge(session, source, plan, sides, spark))
