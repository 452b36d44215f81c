"""Filters with literals finer or larger than the column: handed down or not, the same rows."""

import datetime as dt
import os
import random
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import lsm_engine as lsm
from lsm_engine.spark import register

pytestmark = [pytest.mark.slow, pytest.mark.spark]
UTC, MICRO = dt.UTC, dt.timedelta(microseconds=1)
TOGETHER = 40  # filters in one job, as a job costs more than a filter
START = dt.datetime(1970, 1, 1)  # noqa: DTZ001 -- wall clocks have no zone
STEPS = [None, -1_000_000, -1000, -1, 0, 1, 1000, 2000, 1_000_000]
TIMES = {
    "n0": ("TIMESTAMP(0)", 0),
    "n3": ("TIMESTAMP(3)", 3),
    "n6": ("TIMESTAMP(6)", 6),
    "z3": ("TIMESTAMP_LTZ(3)", 3),
}
UNITS = {0: "s", 3: "ms", 6: "us"}
LITERALS = ["00:00:00", "00:00:00.000001", "00:00:00.001", "00:00:00.0015", "00:00:01.5"]


def filters() -> list[str]:
    """SQL conditions on every column."""
    found = []
    for name in TIMES:
        kind, zone = ("timestamp", "Z") if name[0] == "z" else ("timestamp_ntz", "")
        given = [f"{kind}'1970-01-01 {each}{zone}'" for each in LITERALS]
        found += [f"{name} {sign} {given[3]}" for sign in ("<", "<=", "=", "<>", ">=", ">", "<=>")]
        found += [f"{name} < {each}" for each in given]
        found += [f"{name} in ({given[3]}, {given[2]})", f"{name} not in ({given[3]}, {given[2]})"]
    found += [f"i {sign} 1.5" for sign in ("<", "=", ">")] + ["i < 5000000000", "i not in (1, 2)"]
    found += [
        "not (i in (1, 2, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16))",
        "i = 1e0",
        "i <> 3000000000",
    ]
    found += ["d > 1.005", "d = 1.10", "d < 1e10", "d in (1.10, 1.105)", "d >= -99999"]
    found += ["f = 0.1", "f > 0.1", "f = cast('NaN' as float)", "f = -0.0", "x < 0.1", "x = 'NaN'"]
    for name in ("f", "x"):
        found += [f"{name} {sign} {literal}" for sign in ("<", "<=", "=", "<>", ">", ">=", "<=>")
                  for literal in ("1.5f", "0f", "-1d", "float('NaN')")]  # fmt: skip
        found += [
            f"{name} in (1.5f, 3f)",
            f"{name} in (0f, 3f)",
            f"{name} not in (1.5f, float('NaN'))",
        ]
    found += [
        "s LIKE 'a%'",
        "s LIKE '%a'",
        "s NOT LIKE 'a%'",
        "s IN ('a', 'ä')",
        "id = 1 OR id = 7",
    ]
    found += [
        "startswith(s, 'a')",
        "NOT contains(s, 'a')",
        "b IN (X'61', X'')",
        "id IN (1, 2, null)",
    ]
    found += [
        "day < timestamp_ntz'1970-01-02 12:00:00'",
        "s = 'a '",
        "s < 'a'",
        "b = X'61'",
        "b > X''",
    ]
    return found


def combined(plain: list[str]) -> list[str]:
    """Return random conditions of two and three of them; `LSM_PREDICATES` says how many."""
    rng = random.Random(13)
    tests = [*plain, "s LIKE 'a%'", "s LIKE '%a%'", "day IS NULL", "d BETWEEN 1 AND 1.105"]
    found = []
    for _ in range(int(os.environ.get("LSM_PREDICATES", "0"))):
        parts = [rng.choice(["", "NOT "]) + f"({each})" for each in rng.sample(tests, 3)]
        found.append(f"({parts[0]} {rng.choice(['AND', 'OR'])} {parts[1]}) AND {parts[2]}")
    return found


def test_filters_with_any_literal_find_the_same_rows(pushing, tmp_path):
    spark = pushing
    register(spark)
    count = len(STEPS)
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int64())}
    fields = [pa.field("id", pa.int64(), nullable=False)]
    for name, (_, precision) in TIMES.items():
        moments = [None if step is None else START + step * MICRO for step in STEPS]
        zoned = pa.array(moments, pa.timestamp("us", "UTC" if name[0] == "z" else None))
        kind = pa.timestamp(UNITS[precision], zoned.type.tz)
        columns[name] = zoned.cast(kind, safe=False)
    columns |= {
        "i": pa.array([None, 0, 1, 2, -1, 2**31 - 1, 3, 4, 5], pa.int32()),
        "d": pa.array([None, *map(Decimal, ("0", "1.00", "1.01", "1.10", "1.11", "99.99", "-1", "-99.99"))], pa.decimal128(4, 2)),
        "f": pa.array([None, 0.1, 0.2, float("nan"), 0.0, -0.0, 1.5, -1, 3], pa.float32()),
        "x": pa.array([None, 0.1, 0.2, float("nan"), 0.0, -0.0, 1.5, -1, 3], pa.float64()),
        "day": pa.array([None, 0, 1, 2, 3, 4, 5, 6, 7], pa.date32()),
        "s": pa.array([None, "", "a", "a ", "b", "ä", "aa", "A", "z"]),
        "b": pa.array([None, b"", b"a", b"a ", b"b", b"\xff", b"aa", b"A", b"z"]),
    }  # fmt: skip
    fields += [pa.field(name, columns[name].type) for name in columns if name != "id"]
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "shop.literals",
            pa.schema(fields),
            primary_key=["id"],
            options={"file.block-size": "1 kb"},
        )
    rows = pa.table(columns)
    for at in range(0, count, 3):  # files that statistics can leave out
        table.upsert(rows.slice(at, 3))
    # CI asks every fifth one; with LSM_PREDICATES, were it 0, all of them are asked.
    asked = [*filters()[:: 1 if "LSM_PREDICATES" in os.environ else 5], *combined(filters())]
    frame = spark.read.format("lsm").load(table.location)

    def once():
        return spark.read.format("lsm").option("push-filters", "true").load(table.location)

    for first in range(0, len(asked), TOGETHER):
        some = list(enumerate(asked[first : first + TOGETHER], first))
        unpushed = frame.selectExpr("id", *(f"({each}) as c{at}" for at, each in some)).collect()
        pushed = [once().where(each).selectExpr("id", f"{at} as at") for at, each in some]
        found = {(row["at"], row["id"]) for row in reduce(DataFrame.unionAll, pushed).collect()}
        for at, each in some:
            wanted = {row["id"] for row in unpushed if row[f"c{at}"]}
            assert {each_id for number, each_id in found if number == at} == wanted, each
