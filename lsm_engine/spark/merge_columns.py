"""The clauses of a MERGE as columns of Spark: the clause that applies to a row, and the values that it sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.dml.merge import SIDES, Action, Clause, Match, MergePlan, quoted_source
from lsm_engine.filter.sql import parsed_sql
from lsm_engine.filter.where import Predicate
from lsm_engine.spark.statement import Statement, parsed_expression, replaced
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
_SIGNS = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"})
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In)


@record
class SparkSql:
    """An expression in Spark's own SQL, as it was written."""

    text: str


@record
class Sides:
    """The names of the rows of the table and of the source in expressions.

    `unqualified`: columns that one side alone has, by name, and that side; they need no qualifier. `lengths`: n of the
    table's columns that are CHAR(n), by name in small letters.
    """

    target: str
    source: str
    unqualified: Mapping[str, str]
    lengths: Mapping[str, int]

    @staticmethod
    def from_columns(
        schema: TableSchema,
        source: Sequence[str],
        target_name: str = "target",
        name: str = "source",
    ) -> "Sides":
        """Return sides with a table's columns, and these of a source."""
        table = schema.names
        char_lengths = {
            field.name: char_length(field) for field in spark_schema(schema.read_fields)
        }
        lengths = {
            name.lower(): length for name, length in char_lengths.items() if length is not None
        }
        lower = [column.lower() for column in (*table, *source)]
        unqualified = {
            column: side
            for side, columns in ((target_name, table), (name, source))
            for column in columns
            if lower.count(column.lower()) == 1
            and column.lower() not in (target_name.lower(), name.lower(), CLAUSE)
        }
        return Sides(target=target_name, source=name, unqualified=unqualified, lengths=lengths)

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
                return sql.expr(self.text_of(value, match))
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

    def text_of(self, expression: "SparkSql | str", match: Match) -> str:
        """Return SQL text in Spark's dialect, its literals beside columns of CHAR(n) with n letters.

        Spark pads them beside columns, and not beside fields of structures, which rows of both sides are here.
        """
        text = (
            expression.text
            if isinstance(expression, SparkSql)
            else self.spark_text(expression, match)
        )
        statement = Statement.from_text(text) if self.lengths else None
        tree = None if statement is None else parsed_expression(text)
        if statement is None or tree is None:
            return text
        pieces: dict[int, tuple[int, int, str]] = {}
        for node in tree.find_all(*_COMPARED):
            for column in (node.this, node.expression):
                length = self._char_length(column)
                if length is not None:
                    pieces |= _padded_literals(statement, column, length)
        return replaced(text, [pieces[start] for start in sorted(pieces)])

    def _char_length(self, column: exp.Expr | None) -> int | None:
        """Return n of an expression that is a column of CHAR(n) of the table, not one within a subquery."""
        if not isinstance(column, exp.Column) or column.find_ancestor(exp.Query) is not None:
            return None
        *qualifiers, name = (part.name.lower() for part in column.parts)
        side = qualifiers[0] if len(qualifiers) == 1 else ""
        if not qualifiers:
            sides_by_name = {key.lower(): owner for key, owner in self.unqualified.items()}
            side = sides_by_name.get(name, "").lower()
        return self.lengths.get(name) if side == self.target.lower() else None

    def spark_text(self, text: str, match: Match) -> str:
        """Return SQL text of the filters' dialect in that of Spark; InvalidInputError for names of no side."""
        node = parsed_sql(text).copy()
        alone = {Match.NOT_MATCHED: self.source, Match.NOT_MATCHED_BY_SOURCE: self.target}
        for column in node.find_all(exp.Column):
            if not column.table and match in alone:
                column.set("table", exp.to_identifier(alone[match], quoted=True))
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


def _padded_literals(
    statement: Statement, column: exp.Column, length: int
) -> dict[int, tuple[int, int, str]]:
    """Return the texts in quotes that stand beside a column, padded to a length: by their start, with start and end."""
    tokens = statement.tokens
    starts = {token.start: index for index, token in enumerate(tokens)}
    ends = {token.end: index for index, token in enumerate(tokens)}
    first = starts.get(column.parts[0].meta.get("start", -1))
    last = ends.get(column.parts[-1].meta.get("end", -1))
    if first is None or last is None:
        return {}
    statement.at = last + 1
    literal_indexes = [first - 2] if first > 1 and tokens[first - 1].text in _SIGNS else []
    if statement.takes("IN") or statement.takes("NOT", "IN"):
        closing = next(
            (index for index in range(last, len(tokens)) if tokens[index].text == ")"), last
        )
        literal_indexes += range(statement.at, closing)
    elif tokens[min(last + 1, len(tokens) - 1)].text in _SIGNS:
        literal_indexes.append(last + 2)
    pieces = {}
    for token in (tokens[index] for index in literal_indexes if index < len(tokens)):
        if token.token_type is TokenType.STRING:
            raw = statement.text[token.start : token.end + 1]
            content, quote = raw[:-1], raw[-1]
            beyond = len(token.text) - length
            if beyond > 0 and content.endswith(" " * beyond):
                content = content[:-beyond]
            content += " " * -beyond
            pieces[token.start] = (token.start, token.end + 1, content + quote)
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
    source: list[str],
    joined: DataFrame,
) -> dict[str, Column]:
    """Return the table's columns after the clauses. A column that no clause sets keeps its value, or is null.

    Each value is brought to its column's type by itself: were Spark to find a type for all of them, a BIGINT that
    no clause changes would become a DOUBLE because another row's clause sets one. `joined`: the rows of both sides.
    Raises InvalidInputError for a value that Spark would not store in its column.
    """
    columns = {name: sides.column(sides.target, name) for name in schema.names}
    assignments = [
        (position, name, value)
        for position, clause in reversed([*enumerate(plan.clauses)])
        for name, value in set_columns(clause, sides, schema.names, source).items()
    ]
    types = joined.select(
        *(value.alias(str(n)) for n, (_, _, value) in enumerate(assignments))
    ).schema
    is_ansi = uses_ansi(joined.sparkSession)
    for (position, name, value), kind in zip(assignments, types.fields, strict=True):
        fitting = stored(value, kind.dataType, schema[name], is_ansi=is_ansi)
        fitting = with_blanks(fitting, schema[name])  # as a key that is compared with others
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


def direct_source(clause: Clause, name: str, source: Sequence[str]) -> str | None:
    """Return the plain name of a source's column that a clause sets a column to; None for any other value."""
    if clause.values is None:
        return quoted_source(name) if name in source else None
    value = clause.values[name]
    forms = (form for column in source for form in (f"source.{column}", quoted_source(column)))
    return value if isinstance(value, str) and value in forms else None


def set_columns(
    clause: Clause, sides: Sides, table: list[str], source: list[str]
) -> dict[str, Column]:
    """Return the columns that a clause sets. All columns are those that both sides have, compared without case as in Spark."""
    if clause.action is Action.DELETE:
        return {}
    if clause.values is None:
        source_names = {name.lower(): name for name in source}
        both = [name for name in table if name.lower() in source_names]
        return {name: sides.column(sides.source, source_names[name.lower()]) for name in both}
    return {name: sides.value(value, clause.match) for name, value in clause.values.items()}
