"""Partitions and manifests that a filter, or a delete, can leave alone."""

import datetime as dt
import decimal
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.filter.expression import from_expression
from lsm_engine.filter.partition import (
    manifest_mask,
    manifests_holding,
    partition_mask,
    partition_predicate,
)
from lsm_engine.format.binary_row import encode_row
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, SimpleStats
from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.types.arrow_types import arrow_schema
from lsm_engine.types.types import DataField, parse_type

FIELDS = (
    DataField(id=0, name="day", type=parse_type("DATE")),
    DataField(id=1, name="region", type=parse_type("STRING")),
)
TYPES = [field.type for field in FIELDS]
SCHEMA = arrow_schema((*FIELDS, DataField(id=2, name="v", type=parse_type("INT"))))
DAY, REGION, V = pc.field("day"), pc.field("region"), pc.field("v")


def day(number: int) -> dt.date:
    return dt.date(2024, 1, number)


def stored(number: int | None, region: str | None) -> bytes:
    return encode_row([None if number is None else day(number), region], TYPES)


PARTITIONS = [
    stored(1, "eu"),
    stored(2, "eu"),
    stored(2, "us"),
    stored(None, "eu"),
    stored(3, None),
]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (day(2) == DAY, [1, 2]),
        ((day(2) == DAY) & (V > 3), [1, 2]),
        ((day(2) == DAY) | (V > 3), [0, 1, 2, 3, 4]),
        (((day(2) == DAY) & (V > 3)) | (REGION == "us"), [1, 2]),
        (~(day(2) == DAY), [0, 4]),
        (~((day(2) == DAY) & (V > 3)), [0, 1, 2, 3, 4]),
        (DAY.is_null(), [3]),
        (REGION.isin(["us", None]), [2, 4]),
        (pc.match_like(REGION, "%s"), [2]),
        (V == 1, [0, 1, 2, 3, 4]),
    ],
)
def test_partitions(expression: pc.Expression, expected: list[int]) -> None:
    mask = partition_mask(from_expression(expression, SCHEMA), pa.array(PARTITIONS), FIELDS)
    assert np.flatnonzero(mask).tolist() == expected


def test_a_table_without_partitions_has_one() -> None:
    predicate = from_expression(V == 1, SCHEMA)
    assert partition_mask(predicate, pa.array([EMPTY_ROW]), ()).tolist() == [True]


def test_static_partitions() -> None:
    def covered(values: dict[str, object]) -> list[int]:
        mask = partition_mask(partition_predicate(values, FIELDS), pa.array(PARTITIONS), FIELDS)
        return np.flatnonzero(mask).tolist()

    assert covered({}) == [0, 1, 2, 3, 4]
    assert covered({"day": day(2)}) == [1, 2]
    assert covered({"day": "2024-01-02", "region": "us"}) == [2]
    assert covered({"region": None}) == [4]


@pytest.mark.parametrize(
    ("values", "message"),
    [({"v": 1}, "'v' is not a partition column; there are: day, region"), ({"day": "x"}, "'day' is date32"),
     ({"day": dt.datetime(2024, 1, 2, 10, tzinfo=dt.UTC)}, "'day' is date32")],
)  # fmt: skip
def test_static_partitions_refuse(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        partition_predicate(values, FIELDS)


def test_static_partitions_are_those_that_are_named_and_no_near_ones() -> None:
    price = (DataField(id=0, name="price", type=parse_type("DECIMAL(5, 2)")),)
    partitions = pa.array([encode_row([decimal.Decimal("1.23")], [price[0].type])])
    for value in (1.23, "1.23", decimal.Decimal("1.230")):
        assert partition_mask(partition_predicate({"price": value}, price), partitions, price).all()
    for value in (1.2345, decimal.Decimal("1.2345")):
        with pytest.raises(InvalidInputError, match="cannot be"):
            partition_predicate({"price": value}, price)
    share = (DataField(id=0, name="share", type=parse_type("FLOAT")),)
    partitions = pa.array([encode_row([0.1], [share[0].type])])
    assert partition_mask(partition_predicate({"share": 0.1}, share), partitions, share).all()


def manifest_of(
    partitions: list[bytes], rows: list[tuple[dt.date | None, str | None]]
) -> ManifestFileMeta:
    columns = list(zip(*rows, strict=True))
    known = [[value for value in column if value is not None] for column in columns]
    stats = SimpleStats(
        min_values=encode_row([min(column, default=None) for column in known], TYPES),
        max_values=encode_row([max(column, default=None) for column in known], TYPES),
        null_counts=tuple(column.count(None) for column in columns),
    )
    return ManifestFileMeta(
        file_name="m", file_size=1, added_file_count=len(rows), deleted_file_count=0,
        partition_stats=stats, schema_id=0,
    )  # fmt: skip


values = st.tuples(
    st.none() | st.integers(1, 5).map(day), st.none() | st.sampled_from(["", "a", "b", "ü"])
)


@given(
    st.lists(st.lists(values, min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(values, max_size=3),
)
def test_manifests_that_hold_a_partition_are_found(held, asked) -> None:
    def row(value):
        return encode_row(value, TYPES)

    manifests = [manifest_of([row(value) for value in rows], rows) for rows in held]
    found = manifests_holding(manifests, [row(value) for value in asked], FIELDS)
    for rows, may in zip(held, found, strict=True):
        assert may or not set(rows) & set(asked)
        if not any(None in value for value in rows) and any(None in v for v in asked) and not any(None not in v for v in asked):  # fmt: skip
            assert not may  # nulls are counted


def test_manifests_out_of_range_are_left_alone() -> None:
    manifests = [manifest_of([], [(day(a), "eu"), (day(b), "us")]) for a, b in ((1, 2), (3, 5))]
    assert manifests_holding(manifests, [stored(4, "fr")], FIELDS) == [False, True]
    assert manifests_holding(manifests, [stored(4, "zz")], FIELDS) == [False, False]
    assert manifests_holding(manifests, [stored(1, "eu"), stored(3, "us")], FIELDS) == [True, True]
    assert manifests_holding(manifests, [], FIELDS) == [False, False]
    predicate = from_expression((day(2) < DAY) & (V == 1), SCHEMA)
    assert manifest_mask(predicate, manifests, FIELDS).tolist() == [False, True]


def test_deleted_files_of_a_manifest_count_in_its_range() -> None:
    """One ADD and one DELETE, of which one has no day: the other may be of any day in the range."""
    both = manifest_of([], [(day(2), "eu"), (None, "eu")])
    moved = replace(both, added_file_count=1, deleted_file_count=1)
    for asked, may in ((day(2) == DAY, True), (day(3) == DAY, False), (DAY.is_null(), True)):
        predicate = from_expression(asked, SCHEMA)
        assert manifest_mask(predicate, [moved], FIELDS).tolist() == [may]


def test_every_type_of_partition_has_a_range() -> None:
    samples = {
        "BOOLEAN": (False, True), "TINYINT": (1, 2), "INT": (1, 2), "BIGINT": (1, 2), "DOUBLE": (1.0, 2.0),
        "DECIMAL(10, 2)": (decimal.Decimal("1.00"), decimal.Decimal("2.00")),
        "DECIMAL(30, 2)": (decimal.Decimal("1.00"), decimal.Decimal("2.00")),
        "TIMESTAMP(3)": (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)),  # noqa: DTZ001
        "BYTES": (b"a", b"b"), "STRING": ("a", "b"), "DATE": (day(1), day(2)),
    }  # fmt: skip
    for text, (low, high) in samples.items():
        field = DataField(id=0, name="p", type=parse_type(text))
        rows = [encode_row([value], [field.type]) for value in (low, high)]
        stats = SimpleStats(min_values=rows[0], max_values=rows[0], null_counts=(0,))
        manifest = ManifestFileMeta(
            file_name="m", file_size=1, added_file_count=1, deleted_file_count=0,
            partition_stats=stats, schema_id=0,
        )  # fmt: skip
        assert manifests_holding([manifest], rows[:1], [field]) == [True], text
        assert manifests_holding([manifest], rows[1:], [field]) == [text == "DOUBLE"], text


def test_a_table_without_partitions_names_none() -> None:
    with pytest.raises(InvalidInputError, match="there are: none"):
        partition_predicate({"day": day(1)}, ())


def test_manifests_that_hold_some_of_no_partitions() -> None:
    some = [
        ManifestFileMeta(
            file_name="m", file_size=1, added_file_count=1, deleted_file_count=0, schema_id=0,
            partition_stats=SimpleStats(
                min_values=stored(1, "eu"), max_values=stored(2, "eu"), null_counts=(0, 0)
            ),
        )
    ]  # fmt: skip
    assert manifests_holding(some, [], FIELDS) == [False]
    assert manifests_holding([], [stored(1, "eu")], FIELDS) == []
    whole = [replace(some[0], partition_stats=EMPTY_STATS)]
    assert manifests_holding(whole, [EMPTY_ROW], ()) == [True]
    both = [stored(3, "eu"), stored(2, "eu")]
    assert manifests_holding(some, both, FIELDS) == [True], "one of them is enough"
