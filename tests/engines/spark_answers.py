"""Spark, asked many conditions by one job: a table by `read_dataframe` and by `format("lsm")`, and rows in memory."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from lsm_engine.api.table import Table
from lsm_engine.spark import read_dataframe, register
from tests.engines.answers import Engine
from tests.engines.conditions import COMPARED, KEYS_BELOW, Condition
from tests.engines.kinds import Kind
from tests.engines.layouts import KEY

_NUMBERS = {pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
            pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean"}  # fmt: skip
_QUESTIONS_MAX = 25
"""Conditions that one job answers."""


class SparkFrame(Engine):
    name = "Spark, read_dataframe"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        register(spark)

    def of_table(self, table: Table, kind: Kind) -> DataFrame:
        return read_dataframe(table, self.columns(kind), spark=self.spark)

    def of_rows(self, rows: pa.Table) -> DataFrame:
        for at, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):  # Spark's are microseconds
                rows = rows.set_column(
                    at, field.name, rows[at].cast(pa.timestamp("us", field.type.tz))
                )
        return self.spark.createDataFrame(rows)

    def condition(self, kind: Kind, asked: Condition) -> Column:
        column = sql.col(kind.name)
        match asked.positive:
            case "is null":
                made = column.isNull()
            case "in":
                made = column.isin(*(self.literal(kind, value) for value in asked.values))
            case "between":
                made = column.between(*(self.literal(kind, value) for value in asked.values))
            case "like":
                made = column.like(asked.values[0])
            case "starts with":
                made = column.startswith(asked.values[0])
            case comparison:
                made = COMPARED[comparison](column, self.literal(kind, asked.values[0]))
        made = ~made if asked.negated else made
        return made | (sql.col(KEY) < KEYS_BELOW) if asked.or_key else made

    def literal(self, kind: Kind, value: Any) -> Column:
        """Return a value as Spark has it."""
        arrow = kind.arrow
        if pa.types.is_timestamp(arrow):
            micros = sql.timestamp_micros(sql.lit(value * {"ms": 1000, "us": 1}[arrow.unit]))
            return micros if arrow.tz else micros.cast("timestamp_ntz")
        if pa.types.is_date(arrow):
            return sql.date_from_unix_date(sql.lit(value))
        literal = sql.lit(value)
        return literal.cast(_NUMBERS[arrow]) if arrow in _NUMBERS else literal

    def all_keys(self, source: DataFrame, forms: Sequence[Column]) -> list[list[int]]:
        """Ask all at once: a job for each would take longer than all else."""
        found: list[list[int]] = []
        for first in range(0, len(forms), _QUESTIONS_MAX):
            parts = [
                source.where(form).select(sql.lit(at).alias("question"), KEY)
                for at, form in enumerate(forms[first : first + _QUESTIONS_MAX])
            ]
            keys: list[list[int]] = [[] for _ in parts]
            for row in reduce(DataFrame.unionAll, parts).collect():
                keys[row["question"]].append(row[KEY])
            found += map(sorted, keys)
        return found

    def summaries(self, source: DataFrame, kind: Kind) -> Mapping[str, list[Any]]:
        """See Engine."""
        column = sql.col(kind.name)
        if not kind.is_ordered:
            return {}
        ordered = source.select(column)
        asked = {
            "whole": source.agg(
                sql.min(column), sql.max(column), sql.count(column), sql.count_distinct(column)
            ),
            "first": ordered.orderBy(column.asc_nulls_first()).limit(7),
            "last": ordered.orderBy(column.desc_nulls_last()).limit(7),
        }
        return {
            name: [value for row in frame.collect() for value in row]
            for name, frame in asked.items()
        }


class SparkFormat(SparkFrame):
    name = 'Spark, format("lsm")'

    def of_table(self, table: Table, kind: Kind) -> DataFrame:
        return self.spark.read.format("lsm").load(table.location).select(*self.columns(kind))
