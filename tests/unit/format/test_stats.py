"""Statistics: what they say is true of every value, and where it might not be they say nothing."""

import math
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.data_file import EMPTY_STATS
from lsm_engine.format.stats import (
    StatsCollector,
    StatsKind,
    StatsMode,
    stats_modes,
    truncated_upper,
)
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, parse_type
from tests.unit.format.row_cases import column_of, plain, types, values_of


def collected(kind: str | Any, *batches: list[Any], mode: str = "full") -> tuple[Any, Any, Any]:
    known = parse_type(kind) if isinstance(kind, str) else kind
    collector = StatsCollector([known], [StatsMode.parse(mode)])
    for batch in batches:
        collector.update([column_of(batch, known)])
    stats = collector.result()
    bounds = pa.array([stats.min_values, stats.max_values], pa.binary())
    least, greatest = plain(decode_columns(bounds, [known])[0], known)
    assert stats.null_counts is not None
    return least, greatest, stats.null_counts[0]


MODES = [("none", (None, None, None)), ("counts", (None, None, 1)), ("full", ("a", "b" * 20, 1)),
         ("truncate(16)", ("a", "b" * 15 + "c", 1)), ("Truncate( 20 )", ("a", "b" * 20, 1))]  # fmt: skip


@pytest.mark.parametrize(("mode", "expected"), MODES)
def test_modes(mode: str, expected: tuple) -> None:
    assert collected("STRING", ["b" * 20, None], ["a"], mode=mode) == expected


@pytest.mark.parametrize("text", ["", "some", "truncate", "truncate(0)", "truncate(-1)"])
def test_other_modes_are_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="truncate"):
        StatsMode.parse(text)


def test_modes_of_a_table() -> None:
    schema = TableSchema(
        id=0,
        fields=tuple(
            DataField(id=i, name=name, type=parse_type("INT")) for i, name in enumerate("ab")
        ),
        highest_field_id=1,
        partition_keys=(),
        primary_keys=(),
        options=TableOptions(texts=MappingProxyType({"fields.b.stats-mode": "none"})),
    )
    assert stats_modes(schema) == (
        StatsMode(kind=StatsKind.TRUNCATE, length=16),
        StatsMode(kind=StatsKind.NONE),
    )


def test_columns_without_bounds_have_counts() -> None:
    array = pa.array([[1], None], pa.list_(pa.int32()))
    nested = parse_type({"type": "ARRAY", "element": "INT"})
    collector = StatsCollector([nested], [StatsMode.parse("full")])
    collector.update([array])
    assert collector.result().null_counts == (None,)
    assert collected("BYTES", [b"a", None]) == (None, None, 1)
    assert collected("TIMESTAMP(9)", [1, None]) == (None, None, 1)
    assert collected("TIMESTAMP(6)", [1, None])[0] is not None


def test_nan_has_no_place() -> None:
    assert collected("DOUBLE", [1.0], [math.nan], [2.0]) == (None, None, 0)
    assert collected("FLOAT", [1.0, 2.0]) == (1.0, 2.0, 0)


def test_zeros_cover_each_other() -> None:
    for batch in ([0.0], [-0.0], [0.0, -0.0]):
        least, greatest, _ = collected("DOUBLE", batch)
        assert math.copysign(1, least) == -1
        assert math.copysign(1, greatest) == 1


def test_nothing_known_of_no_rows_and_of_nulls() -> None:
    assert collected("INT") == (None, None, 0)
    assert collected("INT", [None, None], []) == (None, None, 2)


def test_no_columns() -> None:
    assert StatsCollector([], []).result() == EMPTY_STATS


UPPERS = [
    ("abc", 3, "abc"), ("abcd", 3, "abd"), ("ab\U0010ffffd", 3, "ac"), ("\U0010ffff" * 3, 2, None),
    ("a\ud7ffx", 2, "a\ue000"), ("a\U0001f600\U0001f600", 2, "a\U0001f601"), ("é" * 17, 16, "é" * 15 + "ê"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "length", "upper"), UPPERS, ids=range(len(UPPERS)))
def test_upper_bounds(text: str, length: int, upper: str | None) -> None:
    assert truncated_upper(text, length) == upper


def test_both_bounds_go_when_the_upper_one_cannot_be() -> None:
    assert collected("STRING", ["a", "\U0010ffff" * 3], mode="truncate(2)") == (None, None, 0)


any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(any_text, min_size=1), st.integers(1, 4))
def test_truncated_bounds_hold(texts: list[str], length: int) -> None:
    least, greatest, _ = collected("STRING", texts, mode=f"truncate({length})")
    if least is None:
        return
    assert len(least) <= length
    assert len(greatest) <= length
    assert all(least.encode() <= text.encode() <= greatest.encode() for text in texts)


@given(types, st.data())
def test_bounds_hold_in_any_batching(kind: Any, data: st.DataObject) -> None:
    values = st.lists(st.none() | values_of(kind), max_size=4)
    batches = data.draw(st.lists(values, max_size=3))
    least, greatest, nulls = collected(kind, *batches)
    whole = [value for batch in batches for value in batch]
    assert nulls == whole.count(None)
    assert collected(kind, whole)[:2] == (least, greatest)
    if least is None:
        return
    assert all(least <= value <= greatest for value in whole if value is not None)
