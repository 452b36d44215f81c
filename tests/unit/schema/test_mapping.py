"""File schema → read schema: columns by id, casts, nested structures."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.evolution import can_cast, cast_values, check_cast
from lsm_engine.schema.mapping import apply_mapping, conform, map_fields
from lsm_engine.schema.types import parse_field, parse_type


def field(id_, name, type_):
    return parse_field({"id": id_, "name": name, "type": type_})


NOON = datetime(2024, 1, 2, 12)  # noqa: DTZ001 -- a wall clock without a zone
ALLOWED = [
    ("TINYINT", "BIGINT", [1, None, -128], [1, None, -128]),
    ("INT", "DOUBLE", [2**31 - 1], [2147483647.0]),
    ("INT", "DECIMAL(12, 2)", [5], [Decimal("5.00")]),
    ("BIGINT", "STRING", [-7, None], ["-7", None]),
    ("FLOAT", "DOUBLE", [1.5], [1.5]),
    ("DECIMAL(5, 2)", "DECIMAL(20, 4)", [Decimal("1.25")], [Decimal("1.2500")]),
    ("DATE", "STRING", [date(2024, 1, 2)], ["2024-01-02"]),
    ("DATE", "TIMESTAMP(6)", [date(1, 1, 1)], [datetime(1, 1, 1)]),  # noqa: DTZ001
    ("BOOLEAN", "STRING", [True, False], ["true", "false"]),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", [NOON], [NOON]),
    ("VARCHAR(5)", "STRING", ["x"], ["x"]),
    ("VARCHAR(5)", "VARCHAR(9)", ["x"], ["x"]),
    ("VARBINARY(5)", "BYTES", [b"x"], [b"x"]),
    ("INT NOT NULL", "INT", [1], [1]),
]


@pytest.mark.parametrize(
    ("source", "target", "stored", "wanted"), ALLOWED, ids=[f"{c[0]}->{c[1]}" for c in ALLOWED]
)
def test_allowed_changes(source, target, stored, wanted):
    source, target = parse_type(source), parse_type(target)
    assert can_cast(source, target)
    values = pa.array(stored, arrow_type(source))
    for column in (values, pa.chunked_array([values, values[:0]])):
        made = cast_values(column, source, target)
        assert made.type == arrow_type(target)
        assert made.to_pylist() == wanted


REFUSED = [
    ("BIGINT", "INT"),
    ("INT", "FLOAT"),
    ("BIGINT", "DOUBLE"),
    ("INT", "DECIMAL(5, 0)"),
    ("DOUBLE", "FLOAT"),
    ("DOUBLE", "STRING"),
    ("DECIMAL(10, 2)", "DECIMAL(10, 4)"),
    ("STRING", "INT"),
    ("STRING", "VARCHAR(5)"),
    ("VARCHAR(9)", "VARCHAR(5)"),
    ("TIMESTAMP(6)", "TIMESTAMP(3)"),
    ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("STRING", "BYTES"),
    ("BOOLEAN", "INT"),
    ("INT", "BOOLEAN"),
]


@pytest.mark.parametrize(("source", "target"), REFUSED, ids=[f"{a}->{b}" for a, b in REFUSED])
def test_refused_changes(source, target):
    with pytest.raises(UnsupportedError) as caught:
        check_cast("c", parse_type(source), parse_type(target))
    assert caught.value.facts["column"] == "c"


def test_columns_are_matched_by_id():
    old = [field(0, "k", "INT"), field(1, "a", "INT"), field(2, "b", "STRING")]
    new = [field(0, "k", "BIGINT"), field(2, "renamed", "STRING"), field(3, "a", "INT")]
    key, renamed, added_again = map_fields(old, new)
    assert (key.source.name, key.is_identity, key.orders_alike) == ("k", False, True)
    assert (renamed.source.name, renamed.is_identity) == ("b", True)
    assert added_again.source is None
    assert not added_again.orders_alike
    assert apply_mapping(added_again, None, 2).to_pylist() == [None, None]
    assert apply_mapping(key, pa.array([1, 2], pa.int32()), 2) == pa.array([1, 2], pa.int64())


def test_numbers_read_as_text_order_otherwise():
    (mapping,) = map_fields([field(0, "a", "INT")], [field(0, "a", "STRING")])
    assert not mapping.orders_alike


def row(*fields):
    return {"type": "ROW", "fields": [{"id": i, "name": n, "type": t} for i, n, t in fields]}


def test_structures_are_matched_by_nested_id():
    old = [field(0, "r", row((1, "x", "INT"), (2, "y", "STRING")))]
    new = [field(0, "r", row((2, "renamed", "STRING"), (1, "x", "BIGINT"), (3, "y", "STRING")))]
    (mapping,) = map_fields(old, new)
    values = pa.array([{"x": 1, "y": "a"}, None], arrow_type(old[0].type))
    for column in (values, pa.chunked_array([values])):
        made = apply_mapping(mapping, column, 2)
        assert made.to_pylist() == [{"renamed": "a", "x": 1, "y": None}, None]


def test_a_nested_field_added_again_starts_as_null():
    (mapping,) = map_fields(
        [field(0, "r", row((1, "x", "INT")))], [field(0, "r", row((2, "x", "INT")))]
    )
    assert not mapping.is_identity
    values = pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
    assert apply_mapping(mapping, values, 1).to_pylist() == [{"x": None}]


def test_structures_inside_lists_do_not_change():
    old = {"type": "ARRAY", "element": row((1, "x", "INT"))}
    new = {"type": "ARRAY", "element": row((2, "x", "INT"))}
    with pytest.raises(UnsupportedError):
        map_fields([field(0, "a", old)], [field(0, "a", new)])
    with pytest.raises(UnsupportedError):
        map_fields([field(0, "r", row((1, "x", "INT")))], [field(0, "r", row((1, "x", "BOOLEAN")))])


NANOS = [1, None, -1]
CONFORMING = [
    (pa.array([1, -1], pa.int32()), pa.int8()),
    (pa.array([b"a"], pa.binary(1)), pa.binary()),
    (pa.array([b"a"], pa.binary()), pa.string()),
    (pa.array(["a"], pa.large_string()), pa.string()),
    (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.decimal128(10, 1)),
    (pa.array(NANOS, pa.timestamp("ns")), pa.timestamp("ns", "UTC")),
    (pa.array(NANOS, pa.timestamp("ns", "UTC")), pa.timestamp("ns")),
    (
        pa.array([[1], None], pa.list_(pa.field("item", pa.int32()))),
        pa.list_(pa.field("element", pa.int32())),
    ),
]


@pytest.mark.parametrize(
    ("stored", "wanted"), CONFORMING, ids=[f"{c[0].type}->{c[1]}" for c in CONFORMING]
)
def test_other_writers_columns_conform(stored, wanted):
    for values in (stored, pa.chunked_array([stored])):
        assert conform(values, wanted, file_name="f", column="c").type == wanted


def test_time_zones_are_labels():
    values = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    assert (
        conform(values, pa.timestamp("us"), file_name="f", column="c").cast("int64")[0].as_py() == 0
    )


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.array([300], pa.int32()), pa.int8()),
        (pa.array([b"\xff"], pa.binary()), pa.string()),
        (pa.array([1], pa.int32()), pa.list_(pa.int32())),
    ],
)
def test_columns_that_are_not_what_they_should_be(stored, wanted):
    with pytest.raises(CorruptFileError) as caught:
        conform(stored, wanted, file_name="f", column="c")
    assert caught.value.facts == {"file": "f", "column": "c"}
