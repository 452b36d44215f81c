"""Predicates as users write them in Python: exact against any value, with SQL's answer for nulls."""

import datetime as dt
import operator
import pickle
from decimal import Decimal
from fractions import Fraction
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.filter.expression import matches, tree_of
from lsm_engine.filter.predicate import And, Compare, Comparison, IsIn, Or

UTC = dt.UTC
MAY = dt.datetime(2024, 5, 1, 8)  # noqa: DTZ001  a wall clock
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 2**53 + 1, None], pa.int64()),
        "small": pa.array([1, -1, 127, None, 0], pa.int8()),
        "price": pa.array([Decimal("1.50"), Decimal("-2.00"), Decimal("3.25"), None, Decimal("0.00")], pa.decimal128(10, 2)),
        "half": pa.array([0.5, float("nan"), None, 0.1, 2.0], pa.float32()),
        "ratio": pa.array([0.5, float("nan"), None, 0.1, 2.0**53], pa.float64()),
        "name": pa.array(["Ada", "Bo", "O'Neil", "100%", None]),
        "day": pa.array([dt.date(2024, 5, 1), dt.date(2024, 5, 2), None, dt.date(1969, 12, 31), dt.date(1, 1, 1)], pa.date32()),
        "at": pa.array([MAY, MAY + dt.timedelta(milliseconds=1), None, dt.datetime(1969, 12, 31), MAY], pa.timestamp("ms")),  # noqa: DTZ001
        "fine": pa.array([0, 1, 2, None, 999], pa.timestamp("ns")),
        "instant": pa.array([MAY, MAY + dt.timedelta(milliseconds=1), None, MAY, MAY], pa.timestamp("ms", "UTC")),
        "clock": pa.array([dt.time(8), dt.time(8, 0, 0, 1000), None, dt.time(0), dt.time(23)], pa.time32("ms")),
        "paid": pa.array([True, False, None, True, False]),
        "raw": pa.array([b"\x00\xff", b"", None, b"a", b"b"], pa.binary()),
        "tags": pa.array([["a"], None, [], ["b"], None], pa.list_(pa.string())),
    }
)  # fmt: skip
c = lsm.col


def kept(predicate: object) -> str:
    mask = matches(tree_of(predicate, ROWS.schema), ROWS)
    return "".join(str(row) for row in np.flatnonzero(mask))


CASES = [
    (c("id") == 1, "0"),
    (1 < c("id"), "123"),  # noqa: SIM300
    (c("id") != 2, "023"),
    (~(c("id") != 2), "1"),
    (c("id") > 1.5, "123"),
    (c("id") == 2.0**53, ""),
    (c("id") > 2.0**53, "3"),
    (c("id") == 2**53 + 1, "3"),
    (c("id") < Decimal("2.000000000000000000000000000001"), "01"),
    (c("id") < 10**30, "0123"),
    (c("id") < float("inf"), "0123"),
    (c("id") == np.int32(2), "1"),
    (c("id") == pa.scalar(2, pa.uint8()), "1"),
    (c("small") >= -1000, "0124"),
    (~(c("small") >= -1000), ""),
    (c("price") == 1.5, "0"),
    (c("price") == Decimal("1.505"), ""),
    (c("price") > Decimal("1.499"), "02"),
    (c("price") <= 10**20, "0124"),
    (c("half") == 0.5, "0"),
    (c("half") == 0.1, ""),  # the float nearest to 0.1 is a little more
    (c("half") > 0.1, "034"),
    (c("ratio") == 0.1, "3"),
    (c("ratio") > 0.1, "04"),
    (c("ratio") == 2**53 + 1, ""),
    (c("ratio") < 2**53 + 1, "034"),
    (c("ratio") >= 2**53 + 1, ""),
    (c("ratio") != 2**53 + 1, "0134"),
    (~(c("ratio") < 1), "14"),
    (c("ratio").is_in([0.1, float("nan")]), "3"),
    (c("half").is_in([0.1, 0.5]), "0"),
    (c("id").is_in([1, 2.5, 10**30]), "0"),
    (~c("id").is_in([1, 2.5, 10**30]), "123"),
    (c("id").is_in(pa.array([2, 3], pa.int8())), "12"),
    (c("id").is_in(np.array([2, 3])), "12"),
    (c("id").is_in(pa.chunked_array([[1], [3]])), "02"),
    (c("small").is_in([1, 1000]), "0"),
    (c("name").is_in({"Ada", "Bo"}), "01"),
    (c("name").is_in([]), ""),
    (~c("name").is_in([]), "0123"),
    (c("name").is_null(), "4"),
    (c("name").is_not_null(), "0123"),
    (~c("name").is_null(), "0123"),
    (c("tags").is_null(), "14"),
    (c("name").like("A%"), "0"),
    (~c("name").like("A%"), "123"),
    (c("name").like("_o"), "1"),
    (c("name").like("Bo"), "1"),
    (c("name").like("%0\\%"), "3"),
    (c("name").starts_with("O'"), "2"),
    (~c("name").starts_with("O'"), "013"),
    (c("name").between("A", "B"), "0"),
    (c("day") == dt.date(2024, 5, 1), "0"),
    (c("day") == "2024-05-01", "0"),
    (c("day") > MAY, "1"),
    (c("day") >= MAY, "1"),
    (c("day") == MAY, ""),
    (c("day") < dt.date(1000, 1, 1), "4"),
    (c("at") == MAY, "04"),
    (c("at") > MAY + dt.timedelta(microseconds=1), "1"),
    (c("at") <= MAY + dt.timedelta(microseconds=1), "034"),
    (c("at") != MAY + dt.timedelta(microseconds=1), "0134"),
    (c("at") < dt.date(2024, 5, 1), "3"),
    (c("at") == pa.scalar(MAY, pa.timestamp("ns")), "04"),
    (c("at") == np.datetime64("2024-05-01T08:00"), "04"),
    (c("at") >= "2024-05-01 08:00:00.001", "1"),
    (c("fine") == pa.scalar(2, pa.timestamp("ns")), "2"),
    (c("fine") < dt.datetime(1970, 1, 1, 0, 0, 0, 1), "0124"),  # noqa: DTZ001
    (c("fine") < dt.datetime(9999, 1, 1), "0124"),  # noqa: DTZ001
    (c("instant") == MAY.replace(tzinfo=UTC), "034"),
    (c("instant") == dt.datetime(2024, 5, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=2))), "034"),
    (c("instant") > "2024-05-01 10:00:00+02:00", "1"),
    (c("clock") > dt.time(8), "14"),
    (c("clock") <= dt.time(8, 0, 0, 500), "03"),
    (c("paid"), "03"),
    (~c("paid"), "14"),
    (c("paid") == False, "14"),  # noqa: E712
    (c("raw") == b"a", "3"),
    (c("id") < c("small"), "2"),
    (c("id") >= c("small"), "01"),
    (~(c("id") < c("small")), "01"),
    ((c("id") == 1) | (c("id") == 3) & c("name").is_not_null(), "02"),
    (~((c("id") == 1) | c("name").is_null()), "123"),
]  # fmt: skip


@pytest.mark.parametrize(("predicate", "expected"), CASES, ids=range(len(CASES)))
def test_predicate(predicate: lsm.Predicate, expected: str) -> None:
    assert isinstance(predicate, lsm.Predicate)
    assert kept(predicate) == expected
    assert kept(pickle.loads(pickle.dumps(predicate))) == expected


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: c("nam") == "x", "names column 'nam'.*did you mean 'name'"),
        (lambda: c("id") == "1", "column 'id' is int64 and cannot be compared with '1'; write numbers"),
        (lambda: c("id") == True, "'id' is int64 and cannot be compared with True"),  # noqa: E712
        (lambda: c("id") == float("nan"), "'id' is int64 and cannot be compared with nan"),
        (lambda: c("id").is_in(["x"]), "'id' is int64 and cannot be compared with 'x'"),
        (lambda: c("id").is_in([True, False]), "'id' is int64 and cannot be compared with True"),
        (lambda: c("ratio") == "x", "'ratio' is double and cannot be compared"),
        (lambda: c("name") == 5, "'name' is string and cannot be compared with 5"),
        (lambda: c("at") == MAY.replace(tzinfo=UTC), "the column has no time zone: leave it out"),
        (lambda: c("instant") == MAY, "give it a time zone"),
        (lambda: c("clock") == MAY, "'clock' is time32"),
        (lambda: c("day") == 5, "'day' is date32"),
        (lambda: c("day") == "soon", "write '2024-05-01'"),
        (lambda: c("tags") == ["a"], "'tags' is list.*only whether it is null"),
        (lambda: c("id"), "column 'id' is int64: write a test of it"),
        (lambda: c("id").like("1%"), "LIKE compares a text column"),
        (lambda: c("name").like(1), "the pattern is text, not 1"),
        (lambda: c("id") == None, r"is_null\(\)"),  # noqa: E711
        (lambda: c("id") == pa.scalar(None, pa.int64()), r"is_null\(\)"),
        (lambda: c("id").is_in([1, None]), r"is_null\(\)"),
        (lambda: c("id").is_in("12"), "takes a list of values"),
        (lambda: c("id").is_in(5), "takes a list of values"),
        (lambda: 1 < c("id") < 3, r"write between\(low, high\)"),
        (lambda: c("id") > 1 and c("id") < 3, "join with & and"),
        (lambda: c("id") > 1 & c("id"), "a predicate is joined with a predicate"),
        (lambda: (c("id") > 1) & pc.field("id"), "a predicate is joined with a predicate"),
        (lambda: c("id") > pc.field("small"), "a value or a column"),
    ],
    ids=range(27),
)  # fmt: skip
def test_what_is_no_predicate_is_refused(write, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refused:
        tree_of(write(), ROWS.schema)
    assert refused.value.kind in (ErrorKind.INVALID_FILTER, ErrorKind.NO_SUCH_COLUMN)


def test_a_column_is_named_by_text() -> None:
    with pytest.raises(InvalidInputError, match="name is text, not 1"):
        c(1)


def test_parts_are_joined_flat_and_values_take_the_columns_type() -> None:
    several = reduce(operator.or_, (c("id") == number for number in range(5000)))
    found = tree_of(several, ROWS.schema)
    assert isinstance(found, Or)
    assert len(found.parts) == 5000
    found = tree_of((c("small") > 1) & c("id").is_in(range(3)) & (c("half") < 2), ROWS.schema)
    assert isinstance(found, And)
    one = pa.scalar(1, pa.int8())
    assert found.parts[0] == Compare(column="small", comparison=Comparison.GREATER, value=one)
    assert found.parts[1] == IsIn(column="id", values=pa.array([0, 1, 2], pa.int64()))


NUMBERS = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000),
)
COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@given(
    st.sampled_from(["i8", "i64", "cents"]),
    NUMBERS,
    st.sampled_from(sorted(COMPARE)),
    st.booleans(),
)
def test_a_number_of_any_fineness_is_compared_exactly(
    name: str, number: object, sign: str, negated: bool
) -> None:
    stored = {
        "i8": [-128, -1, 0, 1, 127, None],
        "i64": [-(2**63), -1, 0, 300, 2**53 + 1, 2**63 - 1, None],
        "cents": [Decimal("-99999999.99"), Decimal("-0.01"), Decimal("1.50"), Decimal("99999999.99"), None],
    }[name]  # fmt: skip
    kind = {"i8": pa.int8(), "i64": pa.int64(), "cents": pa.decimal128(10, 2)}[name]
    rows = pa.table({name: pa.array(stored, kind)})
    # A float stands for the decimal it is written as, where the column is decimal.
    exact = Fraction(repr(number)) if name == "cents" and isinstance(number, float) else Fraction(number)  # fmt: skip
    predicate = COMPARE[sign](c(name), number)
    answers = [None if v is None else COMPARE[sign](Fraction(v), exact) for v in stored]
    mask = matches(tree_of(~predicate if negated else predicate, rows.schema), rows)
    assert mask.tolist() == [answer is not None and answer != negated for answer in answers]


@given(st.datetimes(), st.sampled_from(["s", "ms", "us"]), st.sampled_from(sorted(COMPARE)))
def test_a_time_of_any_fineness_is_compared_exactly(
    moment: dt.datetime, unit: str, sign: str
) -> None:
    step = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    count = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
    stored = [count // step + offset for offset in (-1, 0, 1)]
    rows = pa.table({"t": pa.array(stored, pa.timestamp(unit))})
    mask = matches(tree_of(COMPARE[sign](c("t"), moment), rows.schema), rows)
    assert mask.tolist() == [COMPARE[sign](each * step, count) for each in stored]
