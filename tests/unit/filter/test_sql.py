"""Filters of SQL against a plain reading of them, with SQL's third answer for nulls."""

import math
import pickle
import re
from contextlib import suppress
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.filter.expression import matches, tree_of
from lsm_engine.filter.sql import FUNCTIONS, SqlCondition

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, None], pa.int64()),
        "small": pa.array([1, -1, 127, None, 0], pa.int8()),
        "price": pa.array([Decimal("1.50"), Decimal("-2.00"), Decimal("3.25"), None, Decimal("0.00")], pa.decimal128(10, 2)),
        "ratio": pa.array([0.5, float("nan"), None, -1.0, 2.0], pa.float64()),
        "name": pa.array(["Ada", "Bo", "O'Neil", "100%", None]),
        "day": pa.array([date(2024, 5, 1), date(2024, 5, 2), None, date(1969, 12, 31), date(2024, 5, 1)], pa.date32()),
        "at": pa.array([0, 1_714_550_400_123, None, -1, 1_714_550_400_000], pa.timestamp("ms")),
        "instant": pa.array([0, 1_714_550_400_123, None, -1, 1_714_550_400_000], pa.timestamp("ms", "UTC")),
        "clock": pa.array([0, 28_800_000, None, 1, 2], pa.time32("ms")),
        "paid": pa.array([True, False, None, True, False]),
        "raw": pa.array([b"\x00\xff", b"", None, b"a", b"b"], pa.binary()),
        "two words": pa.array([1, 2, 3, 4, 5], pa.int32()),
        "order": pa.array([5, 4, 3, 2, 1], pa.int32()),
        "date": pa.array([1, 2, 3, 4, 5], pa.int32()),
    }
)  # fmt: skip

CASES = [
    ("id = 1", "0"),
    ("id == 1", "0"),
    ("id <> 1", "123"),
    ("id != 1 AND id != 2", "23"),
    ("1 < id", "123"),
    ("3 >= id", "012"),
    ("id > 1.5", "123"),
    ("id = 1.0", "0"),
    ("small > 1000", ""),
    ("small < 1000", "0124"),
    ("price = 1.5", "0"),
    ("price > 1", "02"),
    ("price < 1.555", "014"),
    ("price > 1.499999999999999999999", "02"),
    ("price = 1.500000000000000000001", ""),
    ("id < 9007199254740993.5", "0123"),
    ("at < TIMESTAMP '1970-01-01 00:00:00.0001'", "03"),
    ("at >= '1970-01-01 00:00:00.000000001'", "14"),
    ("instant IN ('1970-01-01 00:00:00.0001', '1970-01-01')", "0"),
    ("clock > TIME '08:00:00.0005'", ""),
    ("clock < '08:00:00.0005'", "0134"),
    ("price IN (1.5, 3.25)", "02"),
    ("price BETWEEN -2 AND 0", "14"),
    ("ratio >= .5", "04"),
    ("ratio = 5e-1", "0"),
    ("name = 'Ada'", "0"),
    ("name = 'O''Neil'", "2"),
    ("name LIKE 'A%'", "0"),
    ("name NOT LIKE 'A%'", "123"),
    ("name LIKE '_o'", "1"),
    ("name LIKE '%0%'", "3"),
    (r"name LIKE '100\%'", "3"),
    ("name like '%'", "0123"),
    ("name IN ('Ada', 'Bo')", "01"),
    ("name NOT IN ('Ada', 'Bo')", "23"),
    ("NOT (name IN ('Ada', 'Bo') OR id = 3)", "3"),
    ("id IN (1, 2.5)", "0"),
    ("id NOT IN (1, 2.5)", "123"),
    ("small IN (1, 1000)", "0"),
    ("id NOT BETWEEN 2 AND 3", "03"),
    ("name IS NULL", "4"),
    ("name IS NOT NULL AND NOT name IS NULL", "0123"),
    ("day = '2024-05-01'", "04"),
    ("day = DATE '2024-05-01'", "04"),
    ("day < DATE '1970-01-01'", "3"),
    ("at > TIMESTAMP '2024-05-01 08:00:00'", "1"),
    ("at >= '2024-05-01T08:00:00'", "14"),
    ("at >= DATE '2024-05-01'", "14"),
    ("instant = TIMESTAMP '2024-05-01 08:00:00'", "4"),
    ("instant = '2024-05-01T10:00:00+02:00'", "4"),
    ("instant = '2024-05-01 08:00:00Z'", "4"),
    ("instant >= DATE '2024-05-01'", "14"),
    ("instant < '2024-05-01'", "03"),
    ("instant = '2024-05-01 06:00:00-02'", "4"),
    ("clock = TIME '08:00:00'", "1"),
    ("clock < '00:00:00.002'", "03"),
    ("paid", "03"),
    ("NOT paid", "14"),
    ("paid = false", "14"),
    ("raw = X'00ff'", "0"),
    ('"two words" = 3', "2"),
    ("id < small", "2"),
    ("order = 5", "0"),
    ("date = 2", "1"),
    ("ID = 1 AND Name = 'Ada'", "0"),
    ("TRUE", "01234"),
    ("NOT FALSE AND id = 1", "0"),
    ("id = 99999999999999999999", ""),
    ("id < 99999999999999999999", "0123"),
    ("NOT id > 1.5", "0"),
    ("price = 1.500", "0"),
    ("price < 3.2500001", "0124"),
    ("price > 1e999999999", ""),
    ("price < 1e-999999999", "14"),
    ("at < '2024-05-01 08:00:00.0005'", "034"),
    ("at = '2024-05-01 08:00:00.0005'", ""),
    ("day > TIMESTAMP '2024-05-01 00:00:01'", "1"),
    ("day <= TIMESTAMP '2024-05-01 23:59:59.999999999'", "034"),
    ("day > '1500-01-01'", "0134"),
    ("ratio != 0.5", "134"),
    ("NOT ratio = 0.5", "134"),
    ("NOT ratio < 1", "14"),
    ("ratio NOT IN (0.5, 2)", "13"),
    ('name = "name"', "0123"),
    ("name > 'A' AND\n  id <> 2", "02"),
    ("id=1or id=2and paid=true", "0"),
    ("(id = 1 OR id = 2) AND NOT (paid)", "1"),
    ("not not id = 1", "0"),
]

COMPUTED = [
    ("id + 1 = 2", lambda row: row["id"] + 1 == 2),
    ("id * small > 2 AND id < 9", lambda row: row["id"] * row["small"] > 2),
    ("upper(name) = 'ADA'", lambda row: row["name"].upper() == "ADA"),
    ("'ADA' = upper(Name)", lambda row: row["name"].upper() == "ADA"),
    ("NOT lower(name) = 'ada'", lambda row: row["name"].lower() != "ada"),
    ("lower(name) IN ('ada', 'bo')", lambda row: row["name"].lower() in ("ada", "bo")),
    ("name ILIKE 'a%'", lambda row: row["name"].lower().startswith("a")),
    ("length(name) BETWEEN 1 AND 3", lambda row: 1 <= len(row["name"]) <= 3),
    ("substring(name, 1, 1) = 'A'", lambda row: row["name"][:1] == "A"),
    ("starts_with(name, 'A')", lambda row: row["name"].startswith("A")),
    ("year(day) = 2024", lambda row: row["day"].year == 2024),
    ("extract(month from day) = 5", lambda row: row["day"].month == 5),
    ("date_trunc('month', day) = '2024-05-01'", lambda row: row["day"].replace(day=1) == date(2024, 5, 1)),
    ("date(at) = '2024-05-01'", lambda row: row["at"].date() == date(2024, 5, 1)),
    ("coalesce(name, 'none') = 'none'", None),
    ("coalesce(name, 'a  b') = 'a  b'", lambda row: row["name"] is None),  # every blank counts
    ("cast(id AS string) = '2'", lambda row: row["id"] == 2),
    ("regexp_like(name, '^[Aa]')", lambda row: row["name"][:1] in ("A", "a")),
    ("name RLIKE 'da$'", lambda row: row["name"].endswith("da")),
    ("price * 2 > 3", lambda row: row["price"] * 2 > 3),
    ("id % 2 = 1", lambda row: row["id"] % 2 == 1),
    ("CASE WHEN id > 1 THEN 'a' ELSE 'b' END = 'a'", lambda row: row["id"] > 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "test"), COMPUTED, ids=[text for text, _ in COMPUTED])
def test_a_filter_computes(text: str, test) -> None:
    """A row that lacks a value of the expression is not kept, nor by the opposite."""
    expected = ""
    for place, row in enumerate(ROWS.to_pylist()):
        if test is None:
            expected += str(place) * (row["name"] in (None, "none"))
            continue
        with suppress(TypeError, AttributeError):
            expected += str(place) * bool(test(row))
    if "CASE" not in text:
        assert kept(text) == expected
    assert pickle.loads(pickle.dumps(tree_of(text, ROWS.schema))) == tree_of(text, ROWS.schema)


DECIMALS = pa.table(
    {
        "price": pa.array([Decimal("2.50"), Decimal("-3.10"), Decimal("99999999.99")], pa.decimal128(10, 2)),
        "fine": pa.array([Decimal("1.123456789123456789")] * 3, pa.decimal128(38, 18)),
        "id": pa.array([1, 2, 3], pa.int64()),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("price / 3 > 0.5", lambda price, fine, id: price / 3 > Fraction(1, 2)),
        ("price / id BETWEEN -2 AND 3", lambda price, fine, id: -2 <= price / id <= 3),
        ("price / 2.5 IN (1, -1.24)", lambda price, fine, id: price / Fraction(5, 2) in (1, Fraction(-31, 25))),
        ("coalesce(price, 0) > 2", lambda price, fine, id: price > 2),
        ("greatest(price, id) = id", lambda price, fine, id: max(price, id) == id),
        ("CASE WHEN id > 1 THEN price ELSE 0 END < 0", lambda price, fine, id: id > 1 and price < 0),
        ("price % 3 = -0.1", lambda price, fine, id: math.fmod(price * 100, 300) == -10),
        ("fine % id = 0.123456789123456789", lambda price, fine, id: id == 1),
        ("fine + price > 99999999", lambda price, fine, id: fine + price > 99999999),
        ("price * fine > 2.8", lambda price, fine, id: price * fine > Fraction(14, 5)),
        ("fine / id > 1", lambda price, fine, id: fine / id > 1),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_decimals_are_computed_beyond_38_digits(text: str, test) -> None:
    rows = DECIMALS.to_pylist()
    expected = [test(*map(Fraction, row.values())) for row in rows]
    assert {*expected} == {True, False}
    condition = SqlCondition(text, DECIMALS.schema)
    assert condition.flags(DECIMALS.combine_chunks()).to_pylist() == expected


def test_a_decimal_that_no_type_holds_says_what_to_do() -> None:
    with pytest.raises(InvalidInputError, match="cast a side to a DECIMAL of fewer digits"):
        SqlCondition("fine * fine > 1", DECIMALS.schema).flags(DECIMALS)


def test_an_unknown_function_lists_those_that_there_are() -> None:
    with pytest.raises(InvalidInputError, match="functions are abs, round"):
        tree_of("day > add_months(day, 1)", ROWS.schema)
    with pytest.raises(InvalidInputError, match="write the day itself"):
        SqlCondition("day > current_date", ROWS.schema).flags(ROWS)
    page = (Path(lsm.__file__).parent / "docs" / "filters.md").read_text()
    for name in re.findall(r"\w+", FUNCTIONS.removesuffix("CASE and CAST")):
        assert f"`{name}" in page, name


def test_simple_parts_of_a_filter_that_computes_prune_files(tmp_path) -> None:
    table = lsm.open_catalog(tmp_path).create_table("s.t", {"id": int, "name": str}, "id")
    for key in range(3):
        table.upsert([{"id": key, "name": f"Name {key}"}])
    scan = table.scan(where="id = 1 AND lower(name) = 'name 1'")
    assert scan.to_arrow().to_pylist() == [{"id": 1, "name": "Name 1"}]
    explained = scan.explain()
    assert (explained.files.kept, explained.files.by_key_range) == (1, 2)
    assert "LOWER(name) = 'name 1'" in str(explained.residual_filter)
    assert table.count("id + 1 = 3 OR upper(name) = 'NAME 0'") == 2
    table.delete(where="id % 2 = 0")
    assert table.to_arrow("id")["id"].to_pylist() == [1]


def kept(text: str) -> str:
    mask = matches(tree_of(text, ROWS.schema), ROWS)
    return "".join(str(row) for row in np.flatnonzero(mask))


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_filter(text: str, expected: str) -> None:
    assert kept(text) == expected


WRONG = [
    ("", "write one condition"),
    ("id", "column 'id' is int64: write a test of it"),
    ("id =", "something is missing, at 'id ='"),
    ("id = 1 id = 2", "Unexpected token, at 'id = 1 id ='"),
    ("id = 1\nAND id = 2 3", "Unexpected token"),
    ("(id = 1", "Expecting ), at '(id = 1'"),
    (
        "id = 'one'",
        "column 'id' is int64 and cannot be compared with 'one'; write numbers without quotes",
    ),
    ("name = 5", "write text in single quotes"),
    ("name = Ada", "names column 'Ada'"),
    ("nam = 'x'", "did you mean 'name'"),
    ('"no such" = 1', "names column 'no such'"),
    ('"ID" = 1', "names column 'ID'"),
    ("orders.id = 1", "in place of orders.id"),
    ("name = 'x", "a quote is not closed"),
    ("id = NULL", "write IS NULL"),
    ("id IN (1, NULL)", "write IS NULL"),
    ("id IN ()", "IN takes a list of values"),
    ("id IN (SELECT 1)", "IN takes a list of values"),
    ("id BETWEEN 1", "something is missing, at 'id BETWEEN 1'"),
    ("id LIKE '1%'", "LIKE compares a text column"),
    ("name LIKE 5", "LIKE compares a text column"),
    ("day = '2024-13-01'", "column 'day' is date32[day] and cannot be compared with '2024-13-01'"),
    ("at = '2024-05-01 08:00:00Z'", "with an offset only where the column is an instant"),
    ("at = TIME '08:00:00'", "cannot be compared with TIME '08:00:00'"),
    ("id = DATE '2024-05-01'", "cannot be compared with DATE '2024-05-01'"),
    ("paid = 1", "column 'paid' is bool and cannot be compared with 1"),
    ("raw = 'x'", "X'00ff'"),
    ("raw = X'0'", "two hexadecimal digits"),
    ("id < name", "column 'id' is int64 and cannot be compared with col('name')"),
    ("1 = 1", "one side of 1 = 1 has to be a column"),
    ("id + 1", "is no test of a column"),
    ("id + nosuch = 2", "names column 'nosuch'"),
    ("id + name = 2", "cannot be computed"),
    ("upper(name)", "is no test of a column"),
    ("nosuch(name) = 'x'", "is no expression that is computed here"),
    ("id NOT = 1", "at 'id NOT'"),
    ("id IS 1", "after IS comes NULL or NOT NULL"),
    ("__import__('os')", "is no test of a column"),
    ("SELECT 1", "is no test of a column"),
    ("id = 1; drop", "write one condition"),
    ("id = 1 -- all of them", "Unexpected token"),
    ("(" * 600 + "id = 1" + ")" * 600, "nested too deeply"),
    ("id = 1 OR " * 3000 + "id = 1", "at most 20000 characters"),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[text[:30] for text, _ in WRONG])
def test_what_is_no_filter_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as told:
        tree_of(text, ROWS.schema)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


class Told:
    """A filter's text beside what it says of each row: True, False, or None for "cannot know"."""

    def __init__(self, text: str, answers: list[bool | None]) -> None:
        self.text = text
        self.answers = answers

    def __repr__(self) -> str:
        return self.text


def told(text: str, test) -> Told:
    ids = ROWS["id"].to_pylist()
    return Told(text, [None if value is None else test(value) for value in ids])


numbers = st.integers(-1, 6)
tests = st.one_of(
    numbers.map(lambda n: told(f"id < {n}", lambda v: v < n)),
    numbers.map(lambda n: told(f"id = {n}", lambda v: v == n)),
    st.lists(numbers, min_size=1, max_size=3).map(
        lambda some: told(f"id IN ({', '.join(map(str, some))})", lambda v: v in some)
    ),
    st.tuples(numbers, numbers).map(
        lambda pair: told(f"id BETWEEN {pair[0]} AND {pair[1]}", lambda v: pair[0] <= v <= pair[1])
    ),
    st.just(Told("id IS NULL", [False] * 4 + [True])),
)


def opposite(one: Told) -> Told:
    return Told(f"NOT ({one.text})", [None if a is None else not a for a in one.answers])


def joined(word: str, decides: bool):
    def join(pair: tuple[Told, Told]) -> Told:
        answers = []
        for both in zip(pair[0].answers, pair[1].answers, strict=True):
            unknown = None if None in both else not decides
            answers.append(decides if decides in both else unknown)
        return Told(f"({pair[0].text}) {word} ({pair[1].text})", answers)

    return join


conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        inner.map(opposite),
        st.tuples(inner, inner).map(joined("AND", False)),
        st.tuples(inner, inner).map(joined("OR", True)),
    ),
    max_leaves=8,
)


@given(conditions)
def test_any_filter_keeps_the_rows_that_sql_would(condition: Told) -> None:
    expected = "".join(str(row) for row, answer in enumerate(condition.answers) if answer is True)
    assert kept(condition.text) == expected


@given(st.text(alphabet="id name=<>()'\"andornotin1,X%", max_size=40))
def test_any_text_is_a_filter_or_a_clear_refusal(text: str) -> None:
    with suppress(InvalidInputError):
        tree_of(text, ROWS.schema)
