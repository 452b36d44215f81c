"""How each engine is asked for the keys of rows that meet a condition, over a table of ours and over plain Arrow."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import lsm_engine as lsm
from lsm_engine.api.table import Table
from tests.engines.conditions import COMPARED, KEYS_BELOW, Condition
from tests.engines.kinds import Kind
from tests.engines.layouts import KEY


def answer(ask: Callable[[], Any]) -> Any:
    """Return what an engine answers, or how it fails, as text."""
    try:
        return ask()
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 -- a panic of Rust is no Exception
        return f"{type(error).__name__}: {str(error)[:200]}"


class Unasked(Exception):
    """The engine has no such condition."""


class Engine:
    """One way of asking, by its name."""

    name: ClassVar[str]

    def of_table(self, table: Table, kind: Kind) -> Any:
        """Return the keys and one column of a table, as the engine takes them."""
        raise NotImplementedError

    def of_rows(self, rows: pa.Table) -> Any:
        """Return rows that are in memory, as the engine takes them in the same way."""
        raise NotImplementedError

    def condition(self, kind: Kind, asked: Condition) -> Any:
        """Return a condition in the engine's words."""
        raise NotImplementedError

    def keys(self, source: Any, condition: Any) -> list[int]:
        """Return the keys of the rows that a condition keeps, in order."""
        raise NotImplementedError

    def all_keys(self, source: Any, forms: Sequence[Any]) -> list[Any]:
        """Return the keys for each of several conditions, or how the engine fails."""
        return [answer(lambda form=form: self.keys(source, form)) for form in forms]

    def summaries(self, source: Any, kind: Kind) -> Mapping[str, list[Any]]:
        """Return values of a column that engines take from statistics, or filter by while they go on."""
        del source, kind
        return {}

    def columns(self, kind: Kind) -> list[str]:
        return [KEY, kind.name]


class _Sql(Engine):
    def condition(self, kind: Kind, asked: Condition) -> str:
        name = f'"{kind.name}"'
        texts = [self.literal(kind, value) for value in asked.values]
        match asked.positive:
            case "is null":
                text = f"{name} IS NULL"
            case "in":
                text = f"{name} IN ({', '.join(texts)})"
            case "between":
                text = f"{name} BETWEEN {texts[0]} AND {texts[1]}"
            case "like":
                text = f"{name} LIKE {self.text(asked.values[0])}" + self.escape
            case "starts with":
                text = f"starts_with({name}, {self.text(asked.values[0])})"
            case comparison:
                text = f"{name} {comparison} {texts[0]}"
        text = f"NOT ({text})" if asked.negated else text
        return f"({text}) OR k < {KEYS_BELOW}" if asked.or_key else text

    escape = ""

    def summaries(self, source: Any, kind: Kind) -> Mapping[str, list[Any]]:
        """Do what Engine says, by `column`."""
        if not kind.is_ordered:
            return {"count": self.column(source, f'SELECT count("{kind.name}") FROM {{}}')}
        name = f'"{kind.name}"'
        literals = ", ".join(f"({self.literal(kind, value)})" for value in kind.values[::2])
        return {
            question: self.column(source, f"SELECT {text}")
            for question, text in {
                "least": f"min({name}) FROM {{}}",
                "greatest": f"max({name}) FROM {{}}",
                "count": f"count({name}) FROM {{}}",
                "distinct": f"count(DISTINCT {name}) FROM {{}}",
                "first": f"{name} FROM {{}} ORDER BY {name} NULLS FIRST LIMIT 7",
                "last": f"{name} FROM {{}} ORDER BY {name} DESC NULLS LAST LIMIT 7",
                "joined": f"k FROM {{}} JOIN (VALUES {literals}) others(v) ON {name} = v",
            }.items()
        }

    def column(self, source: Any, text: str) -> list[Any]:
        """Return the only column of an SQL text in which `{}` stands for a source."""
        raise NotImplementedError

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def literal(self, kind: Kind, value: Any) -> str:
        raise NotImplementedError


class _DuckDB(_Sql):
    escape = " ESCAPE '\\'"

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'")

    def literal(self, kind: Kind, value: Any) -> str:
        arrow = kind.arrow
        if pa.types.is_binary(arrow):
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        if pa.types.is_string(arrow):
            return self.text(value)
        if pa.types.is_timestamp(arrow):
            micros = "make_timestamp_ns" if arrow.unit == "ns" else "make_timestamp"
            count = value * {"ms": 1000, "us": 1, "ns": 1}[arrow.unit]
            made = f"{micros}({count})"
            if arrow.tz:
                return f"({made})::TIMESTAMPTZ"
            return {"ms": f"({made})::TIMESTAMP_MS", "us": made, "ns": made}[arrow.unit]
        if pa.types.is_floating(arrow):
            return f"'{value!r}'::{'FLOAT' if pa.types.is_float32(arrow) else 'DOUBLE'}"
        plain = str(kind.scalar(value))
        sql = {"boolean": "BOOLEAN", "date": "DATE", "time": "TIME"}.get(kind.name)
        return (
            f"'{plain}'::{sql}"
            if sql
            else plain
            if "decimal" not in kind.name
            else f"{plain}::{kind.sql}"
        )


class DuckDBRelation(_DuckDB):
    """A relation, and beside it a table of DuckDB's own."""

    name = "DuckDB relation"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return table.to_duckdb(self.connection, columns=self.columns(kind))

    def column(self, source: Any, text: str) -> list[Any]:
        """See _Sql."""
        return [value for (value,) in source.query("source", text.format("source")).fetchall()]

    def of_rows(self, rows: pa.Table) -> Any:
        self.connection.execute("CREATE OR REPLACE TABLE plain AS FROM rows")
        return self.connection.table("plain")

    def keys(self, source: Any, condition: str) -> list[int]:
        return sorted(key for (key,) in source.filter(condition).project(KEY).fetchall())


class DuckDBDataset(_DuckDB):
    name = "DuckDB, a dataset by name"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return table.to_dataset(self.columns(kind))

    def of_rows(self, rows: pa.Table) -> Any:
        return ds.dataset(rows)

    def keys(self, source: Any, condition: str) -> list[int]:
        return sorted(self.column(source, f"SELECT k FROM {{}} WHERE {condition}"))

    def column(self, source: Any, text: str) -> list[Any]:
        """See _Sql; DuckDB finds `source` by its name."""
        return [value for (value,) in self.connection.sql(text.format("source")).fetchall()]


class _Stream:
    """Rows that are taken as an Arrow stream, and as nothing else."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class DuckDBStream(DuckDBDataset):
    name = "DuckDB, a scan by name"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return table.scan(self.columns(kind))

    def of_rows(self, rows: pa.Table) -> Any:
        return _Stream(rows)


class Polars(Engine):
    name = "polars"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return table.to_polars(self.columns(kind))

    def of_rows(self, rows: pa.Table) -> Any:
        return pl.from_arrow(rows).lazy()

    def condition(self, kind: Kind, asked: Condition) -> pl.Expr:
        column = pl.col(kind.name)
        values = [self.literal(kind, value) for value in asked.values]
        match asked.positive:
            case "is null":
                made = column.is_null()
            case "in":
                made = column.is_in(pl.from_arrow(kind.array(asked.values)).implode())
            case "between":
                made = column.is_between(*values)
            case "starts with":
                made = column.str.starts_with(asked.values[0])
            case "like":
                raise Unasked
            case comparison:
                made = COMPARED[comparison](column, values[0])
        made = ~made if asked.negated else made
        return made | (pl.col(KEY) < KEYS_BELOW) if asked.or_key else made

    def literal(self, kind: Kind, value: Any) -> pl.Expr:
        series = pl.from_arrow(kind.array([value]))
        if pa.types.is_timestamp(kind.arrow) and kind.arrow.unit == "ns":  # finer than Python's
            return pl.lit(value).cast(series.dtype)
        return pl.lit(series.item(), dtype=series.dtype)

    def summaries(self, source: Any, kind: Kind) -> Mapping[str, list[Any]]:
        """See Engine."""
        column = pl.col(kind.name)
        asked = {"count": source.select(column.count())}
        if kind.is_ordered:
            others = pl.from_arrow(pa.table({kind.name: kind.array(kind.values[::2])})).lazy()
            last = source.sort(column, descending=True, nulls_last=True)
            asked |= {
                "least": source.select(column.min()),
                "greatest": source.select(column.max()),
                "distinct": source.select(column.n_unique()),
                "first": source.sort(column).select(column).head(7),
                "last": last.select(column).head(7),
                "joined": source.join(others, on=kind.name).select(KEY),
            }
        return {name: frame.collect().to_series().to_list() for name, frame in asked.items()}

    def keys(self, source: Any, condition: pl.Expr) -> list[int]:
        return sorted(source.filter(condition).select(KEY).collect()[KEY].to_list())


class PolarsOverDataset(Polars):
    name = "polars, scan_pyarrow_dataset"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return pl.scan_pyarrow_dataset(table.to_dataset(self.columns(kind)))

    def of_rows(self, rows: pa.Table) -> Any:
        return pl.scan_pyarrow_dataset(ds.dataset(rows))


class ArrowDataset(Engine):
    name = "pyarrow dataset"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return table.to_dataset(self.columns(kind))

    def of_rows(self, rows: pa.Table) -> Any:
        return ds.dataset(rows)

    def condition(self, kind: Kind, asked: Condition) -> pc.Expression:
        column = pc.field(kind.name)
        values = [kind.scalar(value) for value in asked.values]
        match asked.positive:
            case "is null":
                made = column.is_null()
            case "in":
                made = column.isin(kind.array(asked.values))
            case "between":
                made = (column >= values[0]) & (column <= values[1])
            case "like":
                made = pc.match_like(column, asked.values[0])
            case "starts with":
                made = pc.starts_with(column, asked.values[0])
            case comparison:
                made = COMPARED[comparison](column, values[0])
        made = ~made if asked.negated else made
        return made | (pc.field(KEY) < KEYS_BELOW) if asked.or_key else made

    def keys(self, source: Any, condition: pc.Expression) -> list[int]:
        return sorted(source.to_table(columns=[KEY], filter=condition)[KEY].to_pylist())


class Scan(ArrowDataset):
    """A scan of ours; its answers are compared with the truth alone."""

    name = "scan"

    def of_table(self, table: Table, kind: Kind) -> Any:
        return table

    def condition(self, kind: Kind, asked: Condition) -> Any:
        column = lsm.col(kind.name)
        values = [kind.scalar(value) for value in asked.values]
        match asked.positive:
            case "is null":
                made = column.is_null()
            case "in":
                made = column.is_in(kind.array(asked.values))
            case "between":
                made = column.between(*values)
            case "like":
                made = column.like(asked.values[0])
            case "starts with":
                made = column.starts_with(asked.values[0])
            case comparison:
                made = COMPARED[comparison](column, values[0])
        made = ~made if asked.negated else made
        return made | (lsm.col(KEY) < KEYS_BELOW) if asked.or_key else made

    def keys(self, source: Any, condition: Any) -> list[int]:
        return sorted(source.to_arrow(KEY, where=condition)[KEY].to_pylist())


class DataFusion(_Sql):
    name = "DataFusion"

    def of_table(self, table: Table, kind: Kind) -> Any:
        context = datafusion.SessionContext()
        context.register_dataset("t", table.to_dataset(self.columns(kind)))
        return context

    def of_rows(self, rows: pa.Table) -> Any:
        context = datafusion.SessionContext()
        context.register_dataset("t", ds.dataset(rows))
        return context

    def literal(self, kind: Kind, value: Any) -> str:
        arrow = kind.arrow
        if pa.types.is_string(arrow):
            return self.text(value)
        if pa.types.is_binary(arrow):
            return f"X'{value.hex()}'"
        unit = {"ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}.get(
            getattr(arrow, "unit", "")
        )
        if pa.types.is_timestamp(arrow):
            zone = 'Some("UTC")' if arrow.tz else "None"
            return f"arrow_cast({value}, 'Timestamp({unit}, {zone})')"
        if pa.types.is_time(arrow):
            return f"arrow_cast(arrow_cast({value}, 'Int32'), 'Time32({unit})')"
        if pa.types.is_date(arrow):
            return f"arrow_cast(arrow_cast({value}, 'Int32'), 'Date32')"
        if pa.types.is_decimal(arrow):
            return f"arrow_cast('{value:f}', 'Decimal128({arrow.precision}, {arrow.scale})')"
        if pa.types.is_floating(arrow):
            return f"arrow_cast('{value!r}', 'Float{arrow.bit_width}')"
        if pa.types.is_boolean(arrow):
            return str(value).lower()
        return f"arrow_cast('{value}', 'Int{arrow.bit_width}')"

    def keys(self, source: Any, condition: str) -> list[int]:
        return sorted(self.column(source, f"SELECT k FROM {{}} WHERE {condition}"))

    def column(self, source: Any, text: str) -> list[Any]:
        """See _Sql."""
        made: list[Any] = source.sql(text.format("t")).to_arrow_table().column(0).to_pylist()
        return made


ENGINES: Mapping[str, type[Engine]] = {
    each.name: each
    for each in (
        Scan, ArrowDataset, DuckDBRelation, DuckDBDataset, DuckDBStream, Polars, PolarsOverDataset, DataFusion,
    )
}  # fmt: skip
