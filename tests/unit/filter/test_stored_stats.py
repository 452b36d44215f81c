"""Stored statistics become bounds: by field id, whatever the file's own schema covered."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.filter.expression import from_expression
from lsm_engine.filter.stats import (
    CoveredColumn,
    StoredStats,
    covered_columns,
    stored_bounds,
    stored_mask,
)
from lsm_engine.format.binary_row import encode_row
from lsm_engine.types.arrow_types import arrow_schema
from lsm_engine.types.types import DataField, parse_type


def field(id: int, name: str, text: str) -> DataField:
    return DataField(id=id, name=name, type=parse_type(text))


OLD = (field(0, "k", "INT NOT NULL"), field(1, "v", "STRING"), field(2, "w", "INT"))
#  w is called v now, v is gone and was added anew, k may be null, x is new, w was widened
NOW = (field(0, "k", "INT"), field(3, "v", "STRING"), field(2, "w", "BIGINT"), field(4, "x", "INT"))
INT, TEXT, BIG = (parse_type(text) for text in ("INT", "STRING", "BIGINT"))


def test_columns_are_found_by_id_and_type() -> None:
    assert [column.name for column in covered_columns(OLD, NOW)] == ["k", None, None]
    assert [column.name for column in covered_columns(OLD, OLD)] == ["k", "v", "w"]
    renamed = (OLD[0], field(1, "w", "STRING"), field(2, "v", "INT"))
    assert [column.name for column in covered_columns(OLD, renamed)] == ["k", "w", "v"]
    assert covered_columns(OLD, OLD, listed=["w", "k"]) == (
        CoveredColumn(type=OLD[2].type, name="w"),
        CoveredColumn(type=OLD[0].type, name="k"),
    )
    assert covered_columns(OLD, OLD, listed=[]) == ()
    assert [column.name for column in covered_columns(OLD, OLD, hidden={1})] == ["k", None, "w"]


def test_null_counts_that_are_missing_are_unknown() -> None:
    """Of a list that is null, or shorter than the row, nothing is known; its neighbours' counts stay."""
    files = stats(
        ([1, "a"], [2, "b"], [4, 5]), ([1, "a"], [2, "b"], None), ([1, "a"], [2, "b"], [6]),
        ([1, "a"], [2, "b"], [7, 8]), ([1, "a"], [2, "b"], []),
    )  # fmt: skip
    found = stored_bounds(files, COVERED, ["k", "v"])
    assert found["k"].null_counts.to_pylist() == [4, None, 6, 7, None]
    assert found["v"].null_counts.to_pylist() == [5, None, None, 8, None]


def stats(*files: tuple[list, list, list[int | None] | None], types=(INT, TEXT)) -> StoredStats:
    return StoredStats(
        min_values=pa.array([encode_row(low, types) for low, _, _ in files], pa.binary()),
        max_values=pa.array([encode_row(high, types) for _, high, _ in files], pa.binary()),
        null_counts=pa.array([nulls for _, _, nulls in files], pa.list_(pa.int64())),
        row_counts=pa.array([10] * len(files), pa.int64()),
    )


COVERED = (CoveredColumn(type=INT, name="k"), CoveredColumn(type=TEXT, name="v"))
SCHEMA = arrow_schema((field(0, "k", "INT"), field(1, "v", "STRING"), field(2, "z", "INT")))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pc.field("k") == 3, [True, False, True, True]),
        (pc.field("v") == "b", [True, True, True, True]),
        (pc.field("v") == "z", [False, False, True, True]),
        (pc.field("v").is_null(), [False, True, True, True]),
        (pc.field("k").is_null(), [False, False, True, True]),
        (pc.field("z") == 3, [True, True, True, True]),
    ],
)
def test_masks(expression: pc.Expression, expected: list[bool]) -> None:
    files = stats(
        ([1, "a"], [5, "b"], [0, 0]),
        ([6, "a"], [9, "c"], [0, 2]),
        ([None, None], [None, None], None),
        ([None, None], [None, None], [None]),
    )
    assert stored_mask(from_expression(expression, SCHEMA), files, COVERED).tolist() == expected


def test_sliced_null_counts_are_read_at_their_place() -> None:
    files = stats(
        ([1, "a"], [1, "a"], [7, 8]), ([1, "a"], [1, "a"], [1, 2]), ([1, "a"], [1, "a"], [3, 4])
    )
    cut = StoredStats(
        min_values=files.min_values[1:], max_values=files.max_values[1:],
        null_counts=files.null_counts[1:], row_counts=files.row_counts[1:],
    )  # fmt: skip
    bounds = stored_bounds(cut, COVERED, ("k", "v"))
    assert bounds["k"].null_counts.to_pylist() == [1, 3]
    assert bounds["v"].null_counts.to_pylist() == [2, 4]


def test_rows_of_another_layout_are_corrupt() -> None:
    files = stats(([1], [1], [0]), types=(INT,))
    with pytest.raises(CorruptFileError):
        stored_bounds(files, COVERED, ("k",))


def test_listed_columns_that_are_gone_cover_nothing() -> None:
    assert [column.name for column in covered_columns(OLD, OLD, listed=["gone", "w"])] == ["w"]


def test_only_wanted_columns_have_bounds_and_nested_ones_never() -> None:
    assert set(stored_bounds(stats(([1, "a"], [2, "b"], [0, 0])), COVERED, ["k"])) == {"k"}
    for nested in (
        parse_type({"type": "ARRAY", "element": "INT"}),
        parse_type({"type": "MAP", "key": "INT NOT NULL", "value": "INT"}),
        parse_type({"type": "ROW", "fields": [{"id": 9, "name": "x", "type": "INT"}]}),
    ):
        covered = (CoveredColumn(type=INT, name="k"), CoveredColumn(type=nested, name="n"))
        found = stats(([1, None], [2, None], [0, 0]), types=(INT, nested))
        assert set(stored_bounds(found, covered, ["k", "n"])) == {"k"}
