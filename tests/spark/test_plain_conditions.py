"""Conditions that Arrow computes in Spark's place: the same rows, or they are left to Spark."""

import os
import random
from datetime import date, timedelta

import pyarrow as pa
import pytest

from lsm_engine.dml.merge import SOURCE, TARGET, Frame, Match, holds
from lsm_engine.spark.merge import FrameMerge, plain_condition
from lsm_engine.spark.merge_columns import Sides
from lsm_engine.spark.session import DRIVER_BYTES
from lsm_engine.spark.statement import SparkSql
from lsm_engine.spark.types import spark_schema

pytestmark = pytest.mark.spark
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.int64()),
        pa.field("b", pa.int8()),
        pa.field("s", pa.string()),
        pa.field("d", pa.date32()),
        pa.field("x", pa.float64()),
    ]
)
SIDES = Sides(target="t", source="s2", columns={"t": ["id", *"absdx"], "s2": ["id", "a"]}, lengths={})  # fmt: skip


@pytest.fixture
def table(new_table):
    made = new_table("t", schema=SCHEMA, partitioned_by=(), bucket="1")
    chance = random.Random(5)
    made.upsert(
        [
            {
                "id": at,
                "a": chance.choice([None, -(2**63), 2**63 - 1, *range(-12, 13)]),
                "b": chance.choice([None, -128, 127, *range(-5, 6)]),
                "s": chance.choice([None, "", "a", "b", "ba", "Ä", "z'"]),
                "d": chance.choice([None, date(1, 1, 1), *(date(2024, 2, 27) + timedelta(n) for n in range(4))]),
                "x": chance.choice([None, 0.5, float("nan")]),
            }
            for at in range(300)
        ]
    )  # fmt: skip
    return made


def made(table, text):
    schemas = {TARGET: spark_schema(table.schema.fields), SOURCE: spark_schema([])}
    return plain_condition(SparkSql.parsed(text), SIDES, schemas, Match.NOT_MATCHED_BY_SOURCE)


def condition(chance, depth=0):
    """A random condition of those that Arrow computes."""
    if depth < 3 and chance.random() < 0.5:
        parts = [condition(chance, depth + 1) for _ in range(2)]
        joined = f" {chance.choice(['AND', 'OR'])} ".join(f"({part})" for part in parts)
        return f"NOT ({joined})" if chance.random() < 0.3 else joined
    name, values = chance.choice(
        [
            ("a", ["0", "-3", "7", "9223372036854775807"]),
            ("t.b", ["0", "-3", "127", "1000"]),
            ("a % 5", ["0", "3", "-3"]),
            ("MOD(b, 3)", ["1", "-1"]),
            ("s", ["''", "'a'", "'b'", "'Ä'"]),
            ("`D`", ["DATE '2024-02-28'", "'2024-02-29'", "DATE '0001-01-01'"]),
        ]
    )
    one, two = chance.choice(values), chance.choice(values)
    return chance.choice(
        [
            f"{name} {chance.choice(['=', '<>', '!=', '<', '<=', '>', '>=', '=='])} {one}",
            f"{one} {chance.choice(['=', '<', '>='])} {name}",
            f"{name} BETWEEN {one} AND {two}",
            f"{name} NOT BETWEEN {one} AND {two}",
            f"{name} IN ({one}, {two})",
            f"{name} NOT IN ({one}, {two})",
            f"NOT {name} = {one}",
            f"{name.removeprefix('MOD(').partition(',')[0].partition(' ')[0]} IS {chance.choice(['', 'NOT '])}NULL",
        ]
    )  # fmt: skip


def test_random_conditions_hold_for_the_rows_that_spark_finds(spark, table):
    rows = table.scan().to_arrow()
    frame = spark.createDataFrame(rows).alias("t").cache()
    chance = random.Random(20261127)
    for _ in range(int(os.environ.get("LSM_PREDICATES", "50"))):
        text = condition(chance)
        plain = made(table, text)
        assert plain is not None, text
        wanted = {row[0] for row in frame.where(text).select("id").collect()}
        found = rows.filter(pa.array(holds(plain, Frame(rows, None))))["id"].to_pylist()
        assert set(found) == wanted, text
        if plain.prefilter is not None:
            kept = table.scan(columns=["id"], where=plain.prefilter).to_arrow()["id"].to_pylist()
            assert wanted <= set(kept), text
    frame.unpersist()


@pytest.mark.parametrize(
    "text",
    [
        "x > 0", "a = 1.5", "a = '1'", "s = 1", "a + 1 = 2", "a % 0 = 1", "a % -3 = 1", "upper(s) = 'A'",
        "s LIKE 'a%'", "d = '2024-2-9'", "d < '2024-02-30'", "a IN (1, NULL)", "a IN (SELECT 1)", "a <=> 1",
        "CAST(a AS STRING) = '1'", "s = 'a\\'b'", "s = 'z''x'", "s2.a = 1 OR zz.a = 1", "EXISTS (SELECT 1)",
        "1 = 1", "d > current_date()", "a = 9223372036854775808", "s RLIKE 'a'", "t.s[0] = 'a'",
    ],
)  # fmt: skip
def test_what_goes_by_rules_of_spark_is_left_to_it(table, text):
    assert made(table, text) is None


def test_a_column_that_both_sides_have_is_left_to_spark_to_refuse(table):
    both = {TARGET: spark_schema(table.schema.fields), SOURCE: spark_schema(table.schema.fields)}
    assert plain_condition(SparkSql.parsed("a = 1"), SIDES, both, Match.MATCHED) is None
    found = plain_condition(SparkSql.parsed("s2.a = 1 AND t.b < s2.a"), SIDES, both, Match.MATCHED)
    assert found.needs == {"b"}


def test_a_delete_of_a_larger_table_needs_no_executors_where_its_condition_needs_no_spark(
    run, spark, monkeypatch
):
    run(
        "CREATE TABLE shop.t (id BIGINT, s STRING) USING lsm TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1', 'changelog-producer' = 'lookup')"
    )
    run("INSERT INTO shop.t SELECT id, uuid() FROM range(2000)")
    spark.conf.set(DRIVER_BYTES, "1kb")  # the table's files are larger than eight times that
    called = []
    monkeypatch.setattr(FrameMerge, "__call__", lambda merge, _: called.append(merge))
    try:
        assert run("DELETE FROM shop.t WHERE id < 500")[0][3] == 500
        assert not called
        run("DELETE FROM shop.t WHERE upper(s) = 'A'")
        assert called
    finally:
        spark.conf.unset(DRIVER_BYTES)
    assert run("SELECT count(*) FROM shop.t") == [(1500,)]


def test_deletes_and_updates_by_sql_read_no_more_than_they_need(run, monkeypatch):
    run("CREATE TABLE shop.t (id BIGINT, a BIGINT, s STRING) USING lsm TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')")  # fmt: skip
    run("INSERT INTO shop.t SELECT id, id % 7, concat('n', id) FROM range(100)")
    monkeypatch.setattr(
        "lsm_engine.spark.merge.Condition.__init__",
        lambda *_: pytest.fail("Spark was asked"),
    )
    assert run("DELETE FROM shop.t WHERE a % 3 = 1 AND id < 50")[0][3] == sum(
        n % 7 % 3 == 1 for n in range(50)
    )
    run("UPDATE shop.t AS c SET s = 'changed' WHERE c.a = 2 OR id BETWEEN 90 AND 91")
    found = dict(run("SELECT id, s FROM shop.t"))
    assert found == {
        n: "changed" if n % 7 == 2 or n in (90, 91) else f"n{n}"
        for n in range(100)
        if n >= 50 or n % 7 % 3 != 1
    }
