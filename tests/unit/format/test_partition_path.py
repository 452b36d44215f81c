"""Partition directories: what real clients named theirs, and the texts Java gives values."""

import datetime as dt
from decimal import Decimal
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.format.binary_row import encode_row
from lsm_engine.format.partition_path import date_text, escape, floating_text, partition_path
from lsm_engine.types.types import DataField, parse_type


def local(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001  # the format's plain timestamps have no zone


def path(text: str, value: object, *, legacy_name: bool = True, name: str = "p") -> str:
    kind = parse_type(text)
    fields = [DataField(id=0, name=name, type=kind)]
    return partition_path(encode_row([value], [kind]), fields, legacy_name=legacy_name)


LEGACY = [
    ("DATE", dt.date(2024, 1, 2), "p=19724", "p=2024-01-02"),
    ("DATE", dt.date(1969, 12, 31), "p=-1", "p=1969-12-31"),
    ("BOOLEAN", True, "p=true", "p=true"),
    ("BOOLEAN", False, "p=false", "p=false"),
    ("SMALLINT", -3, "p=-3", "p=-3"),
    ("DECIMAL(10, 2)", Decimal("-0.05"), "p=-0.05", "p=-0.05"),
    ("DECIMAL(10, 2)", Decimal("12.30"), "p=12.30", "p=12.30"),
    ("DECIMAL(30, 8)", Decimal("0E-8"), "p=0.00000000", "p=0.00000000"),
    ("TIMESTAMP(3)", local(2024, 1, 2, 3, 4, 5, 678_000),
     "p=2024-01-02T03%3A04%3A05.678", "p=2024-01-02 03%3A04%3A05.678"),
    ("TIMESTAMP(3)", local(1999, 1, 1), "p=1999-01-01T00%3A00",
     "p=1999-01-01 00%3A00%3A00.000"),
    ("TIMESTAMP(6)", local(1960, 1, 1, 0, 0, 1, 5),
     "p=1960-01-01T00%3A00%3A01.000005", "p=1960-01-01 00%3A00%3A01.000005"),
    ("TIMESTAMP(0)", local(2024, 1, 2, 3, 4, 5), "p=2024-01-02T03%3A04%3A05",
     "p=2024-01-02 03%3A04%3A05"),
    ("TIMESTAMP(9)", 1, "p=1970-01-01T00%3A00%3A00.000000001",
     "p=1970-01-01 00%3A00%3A00.000000001"),
    ("TIME(3)", dt.time(1, 2, 3, 40_000), "p=3723040", "p=01%3A02%3A03.04"),
    ("TIME(0)", dt.time(1, 2, 3), "p=3723000", "p=01%3A02%3A03"),
    ("STRING", "a/b", "p=a%2Fb", "p=a%2Fb"),
    ("STRING", "a b", "p=a b", "p=a b"),
    ("STRING", "uni-é中", "p=uni-é中", "p=uni-é中"),
    ("STRING", "..", "p=..", "p=.."),
    ("STRING", "", "p=__DEFAULT_PARTITION__", "p=__DEFAULT_PARTITION__"),
    ("STRING", " \t", "p=__DEFAULT_PARTITION__", "p=__DEFAULT_PARTITION__"),
    ("STRING", None, "p=__DEFAULT_PARTITION__", "p=__DEFAULT_PARTITION__"),
    ("INT", None, "p=__DEFAULT_PARTITION__", "p=__DEFAULT_PARTITION__"),
    ("DOUBLE", 1.0, "p=1.0", "p=1.0"),
    ("DOUBLE", 5e-324, "p=4.9E-324", "p=4.9E-324"),
    ("FLOAT", 1e-45, "p=1.4E-45", "p=1.4E-45"),
    ("DOUBLE", 1e-323, "p=1.0E-323", "p=1.0E-323"),
    ("TIME(3)", dt.time(0, 0, 28, 150_000), "p=28150", "p=00%3A00%3A28.15"),
    ("TIME(3)", dt.time(0, 0, 28), "p=28000", "p=00%3A00%3A28.0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "legacy", "cast"), LEGACY)
def test_values_as_directories(text: str, value: object, legacy: str, cast: str) -> None:
    assert path(text, value) == legacy
    assert path(text, value, legacy_name=False) == cast


def test_several_columns_in_order_and_none() -> None:
    kinds = [parse_type("INT"), parse_type("STRING")]
    fields = [DataField(id=i, name=name, type=kinds[i]) for i, name in enumerate(("a=", "b"))]
    stored = encode_row([1, None], kinds)
    assert partition_path(stored, fields, default_name="none") == "a%3D=1/b=none"
    assert partition_path(encode_row([], []), []) == ""


def test_binary_has_no_legacy_name() -> None:
    with pytest.raises(UnsupportedError, match="legacy"):
        path("BYTES", b"x")
    assert path("BYTES", b"x", legacy_name=False) == "p=x"


def test_binary_that_is_no_text_names_no_directory() -> None:
    with pytest.raises(UnsupportedError, match=r"no UTF-8 text.*value='fffe'"):
        path("BYTES", b"\xff\xfe", legacy_name=False)


FLOATS = [
    (0.0, "0.0"), (-0.0, "-0.0"), (1e7, "1.0E7"), (9_999_999.0, "9999999.0"), (0.001, "0.001"),
    (0.00099, "9.9E-4"), (-1.25e-10, "-1.25E-10"), (1e300, "1.0E300"), (float("nan"), "NaN"),
    (float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (123456.789, "123456.789"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), FLOATS)
def test_floating_text(value: float, text: str) -> None:
    assert floating_text(value, single=False) == text


def test_single_precision_prints_its_own_shortest_digits() -> None:
    assert floating_text(0.10000000149011612, single=True) == "0.1"


@given(st.dates())
def test_dates(day: dt.date) -> None:
    assert date_text((day - dt.date(1970, 1, 1)).days) == day.isoformat()


def test_years_that_python_has_not() -> None:
    assert date_text(2_932_897) == "+10000-01-01"
    assert date_text(-719_529) == "-0001-12-31"


@given(st.text())
def test_escaping_comes_back(text: str) -> None:
    escaped = escape(text)
    assert unquote(escaped) == text
    assert not set(escaped) & set("/\\:\x00")
