"""Every type at its ends, through tables of each format, wherever the process thinks it is.

`LSM_TYPE_ZONES` = all tries each type in each format and time zone; by default it has one of each.
"""

import datetime as dt
import os
import random
import time
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.api.table import Table
from lsm_engine.ddl.create import create_table
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.world import components, reopen

ZONES = (
    "UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Europe/Berlin",
)  # fmt: skip
FORMATS = ("parquet", "orc", "avro")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
dice = random.Random("types")


def whole(bits: int) -> list[int]:
    edge = 1 << bits - 1
    return [-edge, -edge + 1, -1, 0, 1, edge - 2, edge - 1] + [
        dice.randrange(-edge, edge) for _ in range(50)
    ]


def decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    digits = [-most, -most + 1, -1, 0, 1, most - 1, most]
    digits += [dice.randint(-most, most) for _ in range(50)]
    return [Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)) for number in digits]


def seconds_at(moment: tuple[int, ...], zone: dt.tzinfo) -> int:
    year, month, day, *clock = moment
    there = dt.datetime(year, month, day, *clock, tzinfo=zone)
    return (there - EPOCH) // dt.timedelta(seconds=1)


# Years that calendars, words of 32 bits and formats begin or end with, and hours that zones skip or
# have twice.
MOMENTS = [
    (1, 1, 1), (1582, 10, 4, 23, 59, 59), (1582, 10, 15), (1899, 12, 31, 23, 59, 59), (1900, 1, 1),
    (1927, 12, 31, 15, 54, 8), (1969, 12, 31, 23, 59, 59), (1970, 1, 1), (2011, 12, 30, 12),
    (2024, 3, 10, 2, 30), (2024, 11, 3, 1, 30), (2024, 3, 31, 2, 30), (2024, 10, 27, 2, 30),
    (2038, 1, 19, 3, 14, 8), (9999, 12, 31, 23, 59, 59),
]  # fmt: skip


def instants(unit: str) -> list[int]:
    """Units since 1970 at the moments, in UTC and in each zone, with the least and most of a part."""
    per = PER_SECOND[unit]
    seconds = {seconds_at(moment, dt.UTC) for moment in MOMENTS}
    for zone in ZONES[1:]:
        seconds |= {seconds_at(moment, zoneinfo.ZoneInfo(zone)) for moment in MOMENTS[1:-1]}
    if unit == "ns":  # 64 bits reach from 1677 to 2262
        seconds = {second for second in seconds if abs(second) < 9_000_000_000}
    parts = sorted({0, per // 2, per - 1})
    return sorted(second * per + part for second in seconds for part in parts)


TYPES: dict[str, tuple[pa.Field, list[Any]]] = {
    "boolean": (pa.field("v", pa.bool_()), [True, False]),
    "tinyint": (pa.field("v", pa.int8()), whole(8)),
    "smallint": (pa.field("v", pa.int16()), whole(16)),
    "int": (pa.field("v", pa.int32()), whole(32)),
    "bigint": (pa.field("v", pa.int64()), whole(64)),
    "float": (
        pa.field("v", pa.float32()),
        [float("-inf"), -3.4028234663852886e38, -1e-45, -0.0, 0.0, 1e-45, 1.5, float("inf"), float("nan")],
    ),
    "double": (
        pa.field("v", pa.float64()),
        [float("-inf"), -1.7976931348623157e308, -5e-324, -0.0, 0.0, 5e-324, 0.1, float("inf"), float("nan")]
        + [dice.uniform(-1e9, 1e9) for _ in range(50)],
    ),
    "decimal-9": (pa.field("v", pa.decimal128(9, 2)), decimals(9, 2)),
    "decimal-18": (pa.field("v", pa.decimal128(18, 18)), decimals(18, 18)),
    "decimal-19": (pa.field("v", pa.decimal128(19, 0)), decimals(19, 0)),
    "decimal-38": (pa.field("v", pa.decimal128(38, 10)), decimals(38, 10)),
    "string": (
        pa.field("v", pa.string()),
        ["", " ", "\0", "a", "\x7f", "\u00e9", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "x" * 70_000],
    ),
    "varchar": (lsm.sql_field("v", "VARCHAR(2)"), ["", "ab", "\U0010ffff\U0010ffff"]),
    "bytes": (pa.field("v", pa.binary()), [b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 9, bytes(70_000)]),
    "date": (
        pa.field("v", pa.date32()),
        [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1900, 2, 28), dt.date(1969, 12, 31),
         dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(2038, 1, 20), dt.date(9999, 12, 31)],
    ),
    "time": (pa.field("v", pa.time32("ms")), [0, 1, 43_200_000, 86_399_999]),
    **{
        f"timestamp-{unit}": (pa.field("v", pa.timestamp(unit)), instants(unit))
        for unit in ("ms", "us", "ns")
    },
    **{
        f"instant-{unit}": (pa.field("v", pa.timestamp(unit, "UTC")), instants(unit))
        for unit in ("ms", "us", "ns")
    },
}  # fmt: skip
EVERYWHERE = [(kind, form, zone) for kind in TYPES for form in FORMATS for zone in ZONES]
CASES = [
    (kind, FORMATS[at % len(FORMATS)], ZONES[at % len(ZONES)]) for at, kind in enumerate(TYPES)
]
if os.environ.get("LSM_TYPE_ZONES") == "all":
    CASES = EVERYWHERE
PLACES = ("key", "partition")
PLACED = [
    (kind, PLACES[at % 2], zone)
    for at, (kind, _, zone) in enumerate(dict.fromkeys((kind, "", zone) for kind, _, zone in CASES))
    if kind not in ("float", "double")
]


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The zone that this process thinks it is in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def table_of(field: pa.Field, form: str, *, place: str = "value") -> Table:
    """A table that has a column of a type as its value, its key, or its partition."""
    parts = components(MemoryFileIO())
    at = {"value": (), "key": ("v",), "partition": ("v", "k")}[place]
    columns = [pa.field("k", pa.int32(), nullable=False), field.with_nullable(not at)]
    create_table(
        parts.file_io,
        pa.schema(columns),
        primary_key=at or ("k",),
        partitioned_by=("v",) if place == "partition" else (),
        options={
            "bucket": "1",
            "file.format": form,
            "metadata.stats-mode": "full",
            "partition.legacy-name": str(not pa.types.is_binary(field.type)).lower(),
        },
        comment=None,
        clock=parts.clock,
    )
    return reopen(parts)


def stored_in(kind: str, form: str) -> tuple[pa.Field, pa.Array]:
    """A type, and what of its values a format can hold."""
    field, values = TYPES[kind]
    if form == "orc" and pa.types.is_timestamp(field.type):
        per = PER_SECOND[field.type.unit]
        held = (value for value in values if value >= 0 or value % per == 0)
        values = [value for value in held if -9_214_560_000 < value // per < 9_214_646_400]
    return field, pa.array(values, field.type)


def exact(values: pa.ChunkedArray | pa.Array) -> list[str]:
    """Values so that equal ones are the same: every zero and every NaN, and parts of a microsecond."""
    numbers = pa.types.is_timestamp(values.type) or pa.types.is_time(values.type)
    plain = (
        values.cast(pa.int64() if pa.types.is_timestamp(values.type) else pa.int32())
        if numbers
        else values
    )
    return [repr(value) for value in plain.to_pylist()]


def holds(kind: str, form: str) -> bool:
    """Whether a format takes a type at all."""
    return not (form == "avro" and kind.endswith("-ns"))


@pytest.mark.parametrize(("kind", "form", "zone"), CASES, indirect=["zone"])
def test_values_come_back_as_they_were(kind: str, form: str, zone: str) -> None:
    field, values = stored_in(kind, form)
    if not holds(kind, form):
        with pytest.raises(lsm.UnsupportedError, match=r"file\.format"):
            table_of(field, form)
        return
    table = table_of(field, form)
    rows = pa.table({"k": pa.array(range(len(values) + 1), pa.int32()),
                     "v": pa.concat_arrays([values, pa.nulls(1, values.type)])})  # fmt: skip
    for part in (rows.slice(len(rows) // 2), rows.slice(0, len(rows) // 2 + 1)):
        table.upsert(part)
    wanted = exact(rows["v"])
    for _ in range(2):
        found = table.scan().to_arrow().sort_by("k")
        assert found["v"].type == rows["v"].type
        assert exact(found["v"]) == wanted
        for at in range(0, len(values), max(1, len(values) // 8)):
            one = values[at]
            where = pc.field("v") == one
            assert exact(table.scan(where=where).to_arrow()["v"]) == exact(rows.filter(where)["v"])
        assert table.scan(where=pc.field("v").is_null()).count() == 1
        table.compact(full=True)


@pytest.mark.parametrize(("kind", "place", "zone"), PLACED, indirect=["zone"])
def test_values_place_rows_as_keys_and_partitions(kind: str, place: str, zone: str) -> None:
    field, values = TYPES[kind]
    if place == "partition":
        # A directory has the value as its name: not too long, and of bytes only such as are text.
        values = [value for value in values if len(str(value)) < 100]
        values = [b"", b"\0", b"\x7f"] if kind == "bytes" else values
        values = values[:: max(1, len(values) // 6)]
    distinct = pc.unique(pa.array(values, field.type))
    table = table_of(field, "parquet", place=place)
    rows = pa.table({"k": pa.array(range(len(distinct)), pa.int32()), "v": distinct})
    table.upsert(rows)
    table.upsert(rows.slice(len(rows) // 2))
    wanted = exact(rows["v"])
    for _ in range(2):
        found = table.scan().to_arrow().sort_by("k")
        assert exact(found["v"]) == wanted
        for at in range(0, len(distinct), max(1, len(distinct) // 5)):
            hit = table.scan(where=pc.field("v") == distinct[at]).to_arrow()
            assert hit["k"].to_pylist() == [at]
        table.compact(full=True)
    assert table.verify().problems == ()
