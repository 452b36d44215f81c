"""The clauses of a MERGE as columns of Spark: the clause that applies to a row, and the values that it sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types
from sqlglot import exp

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.dml.merge import SIDES, Clause, Match, MergePlan, direct_source
from lsm_engine.filter.sql import parsed_sql
from lsm_engine.filter.where import Predicate
from lsm_engine.spark.statement import SparkSql, replaced
from lsm_engine.spark.types import char_length, quoted, spark_schema
from lsm_engine.types.table_schema import TableSchema

# -- Values of a query in the types of a table's columns -------------------------------------------
#
# Spark's ANSI rules of store assignment.
#
# https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html, "Store assignment". FLOAT
# and DOUBLE take any number, rounded to what they hold, under these rules too. Any other cast
# that could change a value without an error is left out where the session is not ANSI; such
# values are then checked when they are written.

_TEXT = (sql_types.StringType, sql_types.CharType, sql_types.VarcharType)
_TIMES = (sql_types.TimestampType, sql_types.TimestampNTZType)
_FLOATS = (sql_types.FloatType, sql_types.DoubleType)
_TIME_OF_DAY = [sql_types.TimeType] if hasattr(sql_types, "TimeType") else []  # since PySpark 4.1
_CHECKED_WHEN_WRITTEN: list[type] = [sql_types.IntegralType, *_TIME_OF_DAY]


def assigned(
    frame: DataFrame, schema: sql_types.StructType, *, by_position: bool = False
) -> DataFrame:
    """Return rows cast to the types of the columns of the same names, where Spark would do so by itself.

    Names are compared without case, and come out as the table writes them; columns that the table does not have stay.
    `by_position`: fields of a struct too whose names are all others, as those of struct(1, 2), col1 and col2.
    """
    is_ansi = uses_ansi(frame.sparkSession)
    fields_by_name = {field.name.lower(): field for field in schema.fields}
    columns = []
    for field in frame.schema.fields:
        target = fields_by_name.get(field.name.lower())
        column = sql.col(quoted(field.name))
        if target is not None:
            kind = target.dataType
            is_same = field.dataType.simpleString() == kind.simpleString()
            if not is_same and _may_store(
                field.dataType, kind, is_ansi=is_ansi, by_position=by_position
            ):
                column = column.cast(kind)
            column = column.alias(target.name)
        columns.append(column)
    return frame.select(*columns)


def stored(
    value: Column, value_type: sql_types.DataType, field: sql_types.StructField, *, is_ansi: bool
) -> Column:
    """Return the value of a clause cast to the type of its column. Text is read as what the column holds.

    Whole numbers, where the session is not ANSI, and times of day of another precision are left as they are: what does
    not fit is refused when it is written. Raises InvalidInputError for what neither fits.
    """
    kind = field.dataType
    if value_type.simpleString() == kind.simpleString():  # may differ in what can be null
        return value
    if _may_store(value_type, kind, is_ansi=is_ansi):
        return value.cast(kind)
    if is_ansi and isinstance(value_type, _TEXT) and isinstance(kind, sql_types.AtomicType):
        return value.cast(kind)
    if any(
        isinstance(value_type, family) and isinstance(kind, family)
        for family in _CHECKED_WHEN_WRITTEN
    ):
        return value
    raise InvalidInputError(
        f"column {field.name!r} takes {kind.simpleString()}, not {value_type.simpleString()}; cast it first",
        kind=ErrorKind.INVALID_ROWS,
        column=field.name,
        given=value_type.simpleString(),
        wanted=kind.simpleString(),
    )


def sql_name(kind: sql_types.DataType) -> str:
    """Return a type as SQL names it; a plain TIMESTAMP is never used, because the session decides what it is."""
    return (
        "timestamp_ltz" if isinstance(kind, sql_types.TimestampType) else str(kind.simpleString())
    )


def uses_ansi(spark: SparkSession) -> bool:
    """Whether a cast that does not fit fails in a session, rather than give null or another number."""
    return (spark.conf.get("spark.sql.ansi.enabled", "true") or "").lower() == "true"


def _may_store(
    source_type: sql_types.DataType,
    target_type: sql_types.DataType,
    *,
    is_ansi: bool,
    by_position: bool = False,
) -> bool:
    match source_type, target_type:
        case sql_types.NullType(), _:
            return True
        case sql_types.ArrayType(), sql_types.ArrayType():
            return _may_store_all(
                [(source_type.elementType, target_type.elementType)],
                is_ansi=is_ansi,
                by_position=by_position,
            )
        case sql_types.MapType(), sql_types.MapType():
            pairs = [
                (source_type.keyType, target_type.keyType),
                (source_type.valueType, target_type.valueType),
            ]
            return _may_store_all(pairs, is_ansi=is_ansi, by_position=by_position)
        case sql_types.StructType(), sql_types.StructType():
            source_names, target_names = (
                [name.lower() for name in struct.names] for struct in (source_type, target_type)
            )
            unnamed = (
                by_position
                and len(source_names) == len(target_names)
                and not {*source_names} & {*target_names}
            )
            pairs = [
                (field.dataType, target_field.dataType)
                for field, target_field in zip(source_type.fields, target_type.fields, strict=False)
            ]
            return (source_names == target_names or unnamed) and _may_store_all(
                pairs, is_ansi=is_ansi, by_position=by_position
            )
        case sql_types.NumericType(), sql_types.NumericType():
            return is_ansi or isinstance(target_type, _FLOATS)
        case sql_types.DateType(), _:
            return isinstance(target_type, (*_TIMES, *_TEXT))
        case _:
            if isinstance(source_type, _TIMES) and isinstance(target_type, _TIMES):
                return True
            is_plain = isinstance(source_type, sql_types.AtomicType)
            return (
                isinstance(target_type, _TEXT)
                and is_plain
                and source_type != sql_types.BinaryType()
            )


def _may_store_all(
    pairs: Sequence[tuple[sql_types.DataType, sql_types.DataType]],
    *,
    is_ansi: bool,
    by_position: bool,
) -> bool:
    return all(
        source == target or _may_store(source, target, is_ansi=is_ansi, by_position=by_position)
        for source, target in pairs
    )


# -- The clauses of a MERGE as Spark's columns -----------------------------------------------------

CLAUSE = "_lsm_clause"


_TEXT_MAX = 2_147_483_647
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In)


@record
class Sides:
    """The names of the rows of the table and of the source in expressions, and those of their columns.

    `columns`: those of the rows of either name. `lengths`: n of those that are CHAR(n), by side and name in small
    letters. `full_names`: what else the two are called, shop.orders, each with its name here.
    """

    target: str
    source: str
    columns: Mapping[str, Sequence[str]]
    lengths: Mapping[tuple[str, str], int]
    full_names: tuple[tuple[tuple[str, ...], str], ...] = ()

    @staticmethod
    def from_columns(
        schema: TableSchema,
        source: sql_types.StructType,
        target_name: str = "target",
        name: str = "source",
        full_names: tuple[tuple[tuple[str, ...], str], ...] = (),
    ) -> "Sides":
        """Return sides with a table's columns, and these of a source."""
        sides = {name: source, target_name: spark_schema(schema.read_fields)}
        columns = {side: kind.names for side, kind in sides.items()}
        lengths = {
            (side, field.name.lower()): length
            for side, kind in sides.items()
            for field in kind
            if (length := char_length(field)) is not None
        }
        return Sides(
            target=target_name,
            source=name,
            columns=columns,
            lengths=lengths,
            full_names=full_names,
        )

    @property
    def unqualified(self) -> dict[str, str]:
        """The columns that one side alone has, by name, and that side; they need no qualifier."""
        sides = [(column, side) for side, names in self.columns.items() for column in names]
        counts = Counter(column.lower() for column, _ in sides)
        hidden = {self.target.lower(), self.source.lower(), CLAUSE}
        return {
            column: side
            for column, side in sides
            if counts[column.lower()] == 1 and column.lower() not in hidden
        }

    def side_alone(self, match: Match) -> str | None:
        """Return the only side that rows have; None where they have both."""
        return {Match.NOT_MATCHED: self.source, Match.NOT_MATCHED_BY_SOURCE: self.target}.get(match)

    def place(self, column: exp.Column, match: Match = Match.MATCHED) -> tuple[str, str] | None:
        """Return the side of a column and its name there; None for a field of one, and for any other name."""
        parts = [part.name.lower() for part in column.parts]
        side_called, length = self._called(column)
        *qualifiers, name = (side_called.lower(), *parts[length:]) if side_called else parts
        alone = self.side_alone(match)
        if len(qualifiers) > 1:
            return None
        for side, names in self.columns.items():
            lower_names = [column_name.lower() for column_name in names]
            if qualifiers:
                is_of_side = qualifiers[0] == side.lower()
            elif alone is not None:
                is_of_side = side == alone
            else:
                is_of_side = name in map(str.lower, self.unqualified)
            if is_of_side and name in lower_names:
                return side, names[lower_names.index(name)]
        return None

    def widened(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns that need no qualifier beside them."""
        added = {name: side for name, side in self.unqualified.items() if name not in rows.columns}
        return rows.select(
            "*",
            *(
                self.column(side, name).alias(name)
                for name, side in added.items()
                if side in rows.columns
            ),
        )

    def column(self, side: str, name: str) -> Column:
        """Return a column of one side."""
        return sql.col(f"{quoted(side)}.{quoted(name)}")

    def value(self, value: Any, match: Match = Match.MATCHED) -> Column:
        """Return a value, or a condition, as a column: SQL text of the filters' dialect, or a value itself.

        `match`: which rows it is about; where they have one side only, that needs no qualifier.
        """
        match value:
            case SparkSql() | str():
                return sql.expr(self.spark_sql(value, match).text)
            case Column():
                return value
            case Predicate() | pc.Expression():
                raise UnsupportedError(
                    "on Spark conditions and values are SQL text or Spark columns; write the text",
                    given=repr(value),
                )
            case pa.Scalar():
                return sql.lit(value.as_py())
            case _:
                return sql.lit(value)

    def condition(self, condition: Any, match: Match = Match.MATCHED) -> Column:
        """Return the conjunction of the parts of a condition; None is true."""
        if condition is None:
            return sql.lit(True)  # noqa: FBT003
        if not isinstance(condition, list | tuple):
            return self.value(condition, match)
        conjunction = sql.lit(True)  # noqa: FBT003
        for part in condition:
            conjunction = conjunction & self.value(part, match)
        return conjunction

    def _called(self, column: exp.Column) -> tuple[str, int]:
        """Return the side that a column has the full name of before it, and how many parts that has; "" for none."""
        parts = tuple(part.name.lower() for part in column.parts)
        for full_name, side in self.full_names:
            length = len(full_name)
            if parts[:length] == full_name and len(parts) > length:
                query = column.find_ancestor(exp.Query)
                while query is not None:  # the table of a subquery, which has no other name there
                    tables = query.find_all(exp.Table)
                    if any(t.name.lower() == full_name[-1] and not t.alias for t in tables):
                        return "", 0
                    query = query.find_ancestor(exp.Query)
                return side, length
        return "", 0

    def spark_sql(self, expression: SparkSql | str, match: Match) -> SparkSql:
        """Return an expression in Spark's dialect with names of one meaning, literals beside CHAR(n) with n letters.

        Rows of both sides are structures here: Spark pads literals beside columns, and not beside fields of those.
        """
        if isinstance(expression, str):
            expression = SparkSql.parsed(self.spark_text(expression, match))
        pieces: dict[int, tuple[int, int, str]] = {}
        nodes = () if expression.tree is None else expression.tree.find_all(exp.Column, *_COMPARED)
        for node in nodes:
            if isinstance(node, exp.Column):
                pieces = self._qualifier(node, match) | pieces
                continue
            # Spark pads by its own rules within a subquery.
            if node.find_ancestor(exp.Query) is not None:
                continue
            lengths = {}
            for column in (node.this, node.expression):
                place = self.place(column, match) if isinstance(column, exp.Column) else None
                length = place and self.lengths.get((place[0], place[1].lower()))
                if place and length:
                    pieces |= _padded_literals(expression.text, node, length)
                    lengths[column] = (length, place)
            for column, (length, (side, name)) in lengths.items():
                longest = max(lengths.values())[0]
                if length < longest:
                    start, end = (
                        column.parts[0].meta["start"],
                        column.parts[-1].meta["end"] + 1,
                    )
                    padded = f"rpad({quoted(side)}.{quoted(name)}, {longest}, ' ')"
                    pieces[start] = (start, end, padded)
        if not pieces:
            return expression
        return SparkSql.parsed(
            replaced(expression.text, [pieces[start] for start in sorted(pieces)])
        )

    def _qualifier(self, column: exp.Column, match: Match) -> dict[int, tuple[int, int, str]]:
        """Return what stands before a column: in the place of a full name, or where both sides have one of its name."""
        first, *inner = column.parts
        start = first.meta["start"]
        side, length = self._called(column)
        if side:
            return {start: (start, column.parts[length - 1].meta["end"] + 1, quoted(side))}
        # The other names of a subquery are its own.
        if column.find_ancestor(exp.Query) is not None:
            return {}
        name, alone = first.name.lower(), self.side_alone(match)
        if alone is None or (inner and name in (self.target.lower(), self.source.lower())):
            return {}
        if name in map(str.lower, self.unqualified):
            return {}
        if name not in map(str.lower, self.columns[alone]):
            return {}
        return {start: (start, start, f"{quoted(alone)}.")}

    def spark_text(self, text: str, match: Match) -> str:
        """Return SQL text of the filters' dialect in that of Spark; InvalidInputError for names of no side."""
        node = parsed_sql(text).copy()
        alone = self.side_alone(match)
        for column in node.find_all(exp.Column):
            if not column.table and alone is not None:
                column.set("table", exp.to_identifier(alone, quoted=True))
            elif column.table:
                side = SIDES.get(column.table.lower())
                if side is None:
                    raise InvalidInputError(
                        f"no column {column.table}.{column.name!r}: qualify a column with source. or target.",
                        kind=ErrorKind.NO_SUCH_COLUMN,
                        column=column.name,
                    )
                column.set("table", exp.to_identifier(getattr(self, side), quoted=True))
        # Halves go to the even neighbour, as where Arrow computes.
        node = node.transform(
            lambda expression: (
                exp.Anonymous(
                    this="BROUND", expressions=[expression.this, expression.args.get("decimals")]
                )
                if isinstance(expression, exp.Round) and expression.args.get("decimals")
                else exp.Anonymous(this="BROUND", expressions=[expression.this])
                if isinstance(expression, exp.Round)
                else expression
            )
        )
        return node.sql(dialect="spark")


def _padded_literals(text: str, node: exp.Expr, length: int) -> dict[int, tuple[int, int, str]]:
    """Return the texts in quotes that a comparison has, padded to a length: by their start, with start and end."""
    operands = node.expressions if isinstance(node, exp.In) else (node.this, node.expression)
    pieces = {}
    for literal in operands:
        if isinstance(literal, exp.Literal) and literal.is_string:
            start, end = literal.meta["start"], literal.meta["end"]
            content, quote = text[start:end], text[end]
            beyond = len(literal.this) - length
            if beyond > 0 and content.endswith(" " * beyond):
                content = content[:-beyond]
            content += " " * -beyond
            pieces[start] = (start, end + 1, content + quote)
    return pieces


def whole_row(frame: DataFrame, name: str) -> Column:
    """Return each row as one column; of a row that a join does not find it is null."""
    return sql.struct(*(sql.col(quoted(column)) for column in frame.columns)).alias(name)


def chosen(plan: MergePlan, sides: Sides) -> Column:
    """Return the number of the clause that takes a row; null where none does."""
    mine, theirs = sql.col(quoted(sides.target)), sql.col(quoted(sides.source))
    guards = {
        Match.MATCHED: mine.isNotNull() & theirs.isNotNull(),
        Match.NOT_MATCHED: mine.isNull() & theirs.isNotNull(),
        Match.NOT_MATCHED_BY_SOURCE: mine.isNotNull() & theirs.isNull(),
    }
    number = sql.lit(None).cast("int")
    for position, clause in reversed([*enumerate(plan.clauses)]):
        takes = guards[clause.match] & sides.condition(clause.condition, clause.match)
        number = sql.when(takes, sql.lit(position)).otherwise(number)
    return number


def columns_of(
    plan: MergePlan,
    sides: Sides,
    schema: sql_types.StructType,
    source: sql_types.StructType,
    joined: DataFrame,
) -> dict[str, Column]:
    """Return the table's columns after the clauses. A column that no clause sets keeps its value, or is null.

    `joined`: the rows of both sides. Raises InvalidInputError as `stored_columns` does.
    """
    columns = {name: sides.column(sides.target, name) for name in schema.names}
    for position, clause in reversed([*enumerate(plan.clauses)]):
        for name, value in stored_columns(clause, sides, schema, source, joined).items():
            fitting = with_blanks(value, schema[name])  # as a key that is compared with others
            columns[name] = sql.when(sql.col(CLAUSE) == position, fitting).otherwise(columns[name])
    return columns


def with_blanks(value: Column, field: sql_types.StructField) -> Column:
    """Return a text as a column of CHAR(n) stores it, padded to n or cut of blanks beyond; as it is where too long."""
    length = char_length(field)
    if length is None:
        return value
    beyond = sql.substring(value, length + 1, _TEXT_MAX)
    return (
        sql.when(sql.char_length(value) < length, sql.rpad(value, length, " "))
        .when(sql.rtrim(beyond) == "", sql.substring(value, 1, length))
        .otherwise(value)
    )


def stored_columns(
    clause: Clause,
    sides: Sides,
    schema: sql_types.StructType,
    source: sql_types.StructType,
    rows: DataFrame,
) -> dict[str, Column]:
    """Return the columns that a clause sets, each as it is stored. `rows`: of both sides, or of none.

    Each value is brought to its column's type by itself: were Spark to find a type for all of them, a BIGINT that
    no clause changes would become a DOUBLE because another row's clause sets one. Raises InvalidInputError for a value that
    Spark would not store in its column.
    """
    values = clause.assignments(schema.names, source.names, any_case=True)
    if not values:
        return {}
    columns = {
        name: sides.value(value, clause.match)
        if (column := direct_source(value, source.names)) is None
        else sides.column(sides.source, column)
        for name, value in values.items()
    }
    # A struct of them, because Spark refuses a generator within another expression, beside what each row has, because it
    # refuses what is one value of many rows.
    of_row = sql.col(quoted(sides.target)).isNull()
    kind = rows.select(of_row, sql.struct(*columns.values()).alias("")).schema[-1].dataType
    assert isinstance(kind, sql_types.StructType)
    is_ansi = uses_ansi(rows.sparkSession)
    return {
        name: stored(value, field.dataType, schema[name], is_ansi=is_ansi)
        for (name, value), field in zip(columns.items(), kind.fields, strict=True)
    }
