"""File schema → read schema: columns by id, casts, nested structures."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.casts import can_cast, cast_values, check_cast, may_lose_values
from lsm_engine.types.mapping import apply_mapping, conform, map_fields
from lsm_engine.types.types import DataField, parse_field, parse_type


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


NAN, INF = float("nan"), float("inf")
BEFORE = datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
CUT = datetime(1969, 12, 31, 23, 59, 59, 999_000)  # noqa: DTZ001
LOSING = [
    ("BIGINT", "INT", [2**40 + 5, -1, None, 2**31], [5, -1, None, -(2**31)]),
    ("INT", "TINYINT", [300, -129, None], [44, 127, None]),
    ("BIGINT", "DOUBLE", [2**53 + 1, None], [float(2**53), None]),
    ("INT", "FLOAT", [2**24 + 1], [float(2**24)]),
    ("DOUBLE", "FLOAT", [0.5, 1e300, -1e300, None], [0.5, INF, -INF, None]),
    ("DOUBLE", "INT", [1.9, -1.9, NAN, 1e20, -INF, None], [1, -1, 0, 2**31 - 1, -(2**31), None]),
    ("DOUBLE", "BIGINT", [2.0**62, INF, -1e300], [2**62, 2**63 - 1, -(2**63)]),
    ("FLOAT", "SMALLINT", [1.5, 65_536.0 + 7, INF], [1, 7, -1]),
    ("BOOLEAN", "INT", [True, False, None], [1, 0, None]),
    ("BOOLEAN", "DOUBLE", [True, None], [1.0, None]),
    ("INT", "BOOLEAN", [0, -5, None], [False, True, None]),
    (
        "DECIMAL(10, 2)", "DECIMAL(4, 1)",
        [Decimal("1.25"), Decimal("-1.25"), Decimal("999.94"), Decimal("999.95"), None],
        [Decimal("1.3"), Decimal("-1.3"), Decimal("999.9"), None, None],
    ),
    (
        "DECIMAL(38, 0)", "DECIMAL(38, 38)",
        [Decimal("9" * 38), Decimal(0)], [None, Decimal(0)],
    ),
    ("DECIMAL(38, 38)", "DECIMAL(38, 0)", [Decimal("0." + "9" * 38)], [Decimal(1)]),
    ("BIGINT", "DECIMAL(5, 2)", [999, -1_000, None], [Decimal("999.00"), None, None]),
    ("DECIMAL(10, 2)", "INT", [Decimal("1.99"), Decimal("-1.99"), None], [1, -1, None]),
    ("DECIMAL(38, 0)", "BIGINT", [Decimal(2**64 + 3)], [3]),
    ("DECIMAL(10, 2)", "FLOAT", [Decimal("1.25"), None], [1.25, None]),
    ("STRING", "VARCHAR(2)", ["a\u00e4\U0010ffff", None, "x"], ["a\u00e4", None, "x"]),
    ("VARCHAR(9)", "VARCHAR(5)", ["abcdefg"], ["abcde"]),
    ("BYTES", "VARBINARY(2)", [b"abc", b"", None], [b"ab", b"", None]),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [BEFORE, None], [CUT, None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target", "stored", "wanted"), LOSING, ids=[f"{c[0]}->{c[1]}" for c in LOSING]
)
def test_changes_that_may_lose_something(source, target, stored, wanted):
    source, target = parse_type(source), parse_type(target)
    assert may_lose_values(source, target)
    assert not can_cast(source, target)
    check_cast("c", source, target)
    values = pa.array(stored, arrow_type(source))
    assert not map_fields([DataField(id=1, name="c", type=source)],
                          [DataField(id=1, name="c", type=target)])[0].orders_alike  # fmt: skip
    for column in (values, pa.chunked_array([values, values[:0]]), values[1:]):
        made = cast_values(column, source, target)
        assert made.type == arrow_type(target)
        assert made.to_pylist() == (wanted if len(column) == len(wanted) else wanted[1:])


REFUSED = [
    ("DOUBLE", "STRING"),
    ("DOUBLE", "DECIMAL(10, 2)"),
    ("DECIMAL(10, 2)", "DECIMAL(10, 4) NOT NULL"),
    ("DECIMAL(10, 2)", "STRING"),
    ("STRING", "INT"),
    ("STRING", "CHAR(5)"),
    ("TIMESTAMP(6)", "TIMESTAMP(4)"),
    ("TIMESTAMP(6)", "DATE"),
    ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("STRING", "BYTES"),
    ("BOOLEAN", "DATE"),
    ("DATE", "BIGINT"),
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


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"type": "ARRAY", "element": "STRING"}, {"type": "ARRAY", "element": "VARCHAR(2)"}),
        (
            {"type": "MAP", "key": "VARCHAR(9) NOT NULL", "value": "INT"},
            {"type": "MAP", "key": "VARCHAR(5) NOT NULL", "value": "INT"},
        ),
        (
            {"type": "ARRAY", "element": row((1, "x", "BYTES"))},
            {"type": "ARRAY", "element": row((1, "x", "VARBINARY(2)"))},
        ),
    ],
)
def test_nothing_inside_lists_and_maps_gets_shorter(source, target):
    """Nobody would cut the values: they would be longer than their type says."""
    source, target = parse_type(source), parse_type(target)
    check_cast("c", target, source)
    with pytest.raises(UnsupportedError):
        check_cast("c", source, target)


OLD_ROW = row((1, "x", "INT NOT NULL"), (2, "y", "STRING"))
NEW_ROW = row((2, "z", "STRING"), (3, "y", "STRING"), (1, "x", "BIGINT"))


@pytest.mark.parametrize(
    "inside",
    [lambda one: one, lambda one: {"type": "ARRAY", "element": one}],
    ids=["once", "twice"],
)
def test_structures_inside_lists_and_maps_are_matched_by_nested_id(inside):
    def kinds(one):
        return {"type": "ARRAY", "element": inside(one)}, {
            "type": "MAP", "key": "STRING NOT NULL", "value": inside(one),
        }  # fmt: skip

    deep = inside(OLD_ROW) is not OLD_ROW
    one = [{"x": 1, "y": "a"}, None] if deep else {"x": 1, "y": "a"}
    read = {"z": "a", "y": None, "x": 1}
    became = [read, None] if deep else read
    values = [[one, None], [], None, [one]]
    wanted = [[became, None], [], None, [became]]
    for old, new, is_map in zip(kinds(OLD_ROW), kinds(NEW_ROW), (False, True), strict=True):
        (mapping,) = map_fields([field(0, "c", old)], [field(0, "c", new)])
        pairs = [list(enumerate(each or ())) for each in values]
        given = [
            None if each is None else [(str(at), it) for at, it in pair] if is_map else each
            for each, pair in zip(values, pairs, strict=True)
        ]
        expected = [
            None
            if each is None
            else [(str(at), it) for at, it in enumerate(each)]
            if is_map
            else each
            for each in wanted
        ]
        stored = pa.array(given, arrow_type(mapping.source.type))
        for column in (stored, pa.chunked_array([stored, stored[:0]])):
            made = apply_mapping(mapping, column, 4)
            made.validate(full=True)
            assert made.type == arrow_type(mapping.target.type)
            assert made.to_pylist() == expected
        assert apply_mapping(mapping, stored[1:], 3).to_pylist() == expected[1:]


def test_fields_that_cannot_be_read_are_refused_wherever_they_are():
    for old, new in (("INT", "BYTES"), ("BIGINT", "INT")):
        rows = row((1, "x", old)), row((1, "x", new))
        lists = [field(0, "a", {"type": "ARRAY", "element": one}) for one in rows]
        with pytest.raises(UnsupportedError, match="'x' cannot change"):
            map_fields([lists[0]], [lists[1]])
    with pytest.raises(UnsupportedError):
        map_fields([field(0, "r", row((1, "x", "INT")))], [field(0, "r", row((1, "x", "BYTES")))])


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
        (pa.array([1], pa.int32()), pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        (pa.array([1], pa.int32()), pa.list_(pa.field("element", pa.int32(), nullable=False))),
        (pa.array(["x"]), pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        (pa.array([[1]]), pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        (
            pa.array([{"a": 1}]),
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        ),
    ],
)
def test_columns_that_are_not_what_they_should_be(stored, wanted):
    with pytest.raises(CorruptFileError) as caught:
        conform(stored, wanted, file_name="f", column="c")
    assert caught.value.facts == {"file": "f", "column": "c"}
