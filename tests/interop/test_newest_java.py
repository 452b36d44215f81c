"""Java 1.4.2 beside us: options, bytes of rows, names of partitions and tags, removals.

`LSM_NEWEST_JAVA=40` asks 10,000 random rows.
"""

import datetime as dt
import random
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.ddl.create import create_table
from lsm_engine.format.binary_row import encode_stored
from lsm_engine.format.partition_path import partition_path
from lsm_engine.kernels.buckets import murmur32
from lsm_engine.options import core_options
from lsm_engine.options.foreign import Verdict, other_option
from lsm_engine.planning.tags import TagPeriods
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.warehouse import open_directory
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import DataField, Root, ScalarType, parse_type
from tests.interop.newest_java import CASES, NewestJava
from tests.interop.random_values import MAKERS, made, spelled_row

pytestmark = pytest.mark.interop


def test_every_option_is_sorted(newest: NewestJava) -> None:
    keys = newest.ask("options")
    assert len(keys) > 290
    assert [
        key
        for key in keys
        if core_options.find(key) is None and other_option(key).verdict is Verdict.UNKNOWN
    ] == []


def test_rows_have_the_same_bytes_and_hashes(newest: NewestJava) -> None:
    draw = random.Random(1)
    for _ in range(CASES // 25):
        names = draw.choices(list(MAKERS), k=draw.randint(1, 9))
        types = [parse_type(name) for name in names]
        rows = [[made(name, draw, null_share=0.2) for name in names] for _ in range(25)]
        arrays = [
            pa.array(list(column), arrow_type(kind))
            for column, kind in zip(zip(*rows, strict=True), types, strict=True)
        ]
        ours = encode_stored(arrays, types, reserve_null_wide=True)
        hashes = [
            int(murmur32(np.frombuffer(row[4:], np.uint8), np.array([0, len(row) - 4]))[0])
            for row in ours
        ]
        theirs = newest.ask("rows", types=names, rows=[spelled_row(row) for row in rows])
        assert [[row[4:].hex(), found] for row, found in zip(ours, hashes, strict=True)] == theirs


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize(
    "name", ["TIME(0)", "TIME(1)", "TIME(2)", "TIME(3)", "DOUBLE", "FLOAT", "DATE"]
)
def test_partition_values_have_the_same_text(name: str, legacy: bool, newest: NewestJava) -> None:
    draw, kind = random.Random(4), parse_type(name)
    assert isinstance(kind, ScalarType)
    values: list[Any] = [draw.randint(0, 86_399_999) for _ in range(20)] + [1000, 28_150, 28_100, 5]
    if name == "DATE":
        values = [0, -1, 19_000, 2_932_896, -719_528]
    if kind.root in (Root.FLOAT, Root.DOUBLE):
        values = [5e-324, 1e-323, 3e-323, 4.9e-320] if name == "DOUBLE" else [1e-45, 3e-45]
        values += [0.0, 1e-3, 1e7, 1.5e30, 0.1, -100.0]
        values = [float(np.float32(value)) if name == "FLOAT" else value for value in values]
    arrow = pa.array(
        values, pa.int32() if kind.root in (Root.TIME, Root.DATE) else arrow_type(kind)
    )
    columns = [arrow.cast(arrow_type(kind))]
    field = DataField(id=0, name="p", type=kind)
    ours = [
        partition_path(stored, [field], legacy_name=legacy).removeprefix("p=")
        for stored in encode_stored(columns, [kind])
    ]
    theirs = newest.ask("partitions", type=name, legacy=legacy, values=values)
    assert [unquote(text) for text in ours] == theirs


KEY = pa.field("k", pa.int32(), nullable=False)


def new_table(path: Path, columns: list[pa.Field], options: dict[str, str]) -> str:
    """A table of ours in an empty directory."""
    create_table(
        open_directory(str(path)), pa.schema(columns), primary_key=("k",), partitioned_by=(),
        options={"bucket": "1", **options}, comment=None, clock=SystemClock(),
    )  # fmt: skip
    return str(path)


def ours_of(path: str, snapshot_id: int | None = None) -> list[list[Any]]:
    rows = lsm.open_table(path).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(list(row.values()) for row in rows)


REMOVALS: dict[str, tuple[dict[str, str], list[list[Any]], list[Any], list[Any]]] = {
    "aggregation": (
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum",
         "aggregation.remove-record-on-delete": "true"},
        [["+I", [1, 10, 0]], ["-D", [1, 10, 0]], ["+I", [1, 3, 0]]],
        [1, 3, 0], [1, 13, 0],
    ),
    "partial-update": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        [["+I", [1, 9, 0]], ["-D", [1, 5, 0]], ["+I", [1, None, 0]]],
        [1, None, 0], [1, 5, 0],
    ),
    "aggregation, deleted by key alone": (
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum",
         "aggregation.remove-record-on-delete": "true"},
        [["+I", [1, 10, 0]], ["-D", [1, None, None]], ["+I", [1, 3, 0]]],
        [1, 3, 0], [1, 3, 0],
    ),
    "partial-update, deleted by key alone": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        [["+I", [1, 9, 0]], ["-D", [1, None, None]], ["+I", [1, None, 0]]],
        [1, None, 0], [1, None, 0],
    ),
    "late row of a removed group": (
        {"merge-engine": "partial-update", "fields.g.sequence-group": "v",
         "partial-update.remove-record-on-sequence-group": "g"},
        [["+I", [1, 5, 1]], ["-D", [1, None, 4]], ["+I", [1, 7, 0]]],
        [1, None, 4], [1, None, 4],
    ),
    "payload of a removed group": (
        {"merge-engine": "partial-update", "fields.g.sequence-group": "v",
         "partial-update.remove-record-on-sequence-group": "g"},
        [["+I", [1, 5, 1]], ["-D", [1, 5, 4]], ["+I", [1, 7, 0]]],
        [1, None, 4], [1, 5, 4],
    ),
}  # fmt: skip


@pytest.mark.parametrize("writer", ["ours", "java"])
@pytest.mark.parametrize("name", REMOVALS)
def test_decision_0037_what_is_left_of_a_removed_record(
    name: str, writer: str, newest: NewestJava, tmp_path: Path
) -> None:
    options, steps, ours, theirs = REMOVALS[name]
    columns = [KEY, pa.field("v", pa.int32()), pa.field("g", pa.int32())]
    path = new_table(tmp_path / "t", columns, {"write-only": "true", **options})
    for kind, values in steps:
        if writer == "java":
            newest.ask("write", path=path, rows=[[kind, values]])
        else:
            row = dict(zip("kvg", values, strict=True))
            lsm.open_table(path).upsert([{**row, "_row_kind": kind}])
    assert ours_of(path) == [ours]
    assert newest.ask("read", path=path) == [theirs]


@pytest.mark.parametrize(
    "formatter", ["with_dashes", "without_dashes", "without_dashes_and_spaces"]
)
@pytest.mark.parametrize("period", ["daily", "hourly", "two-hours", "90 min"])
def test_automatic_tags_have_the_same_names(
    period: str, formatter: str, newest: NewestJava
) -> None:
    draw = random.Random(period)
    minutes = 90 if "min" in period else None
    periods = TagPeriods.from_options(
        "daily" if minutes else period, length_millis=minutes and minutes * 60_000,
        formatter=formatter, delay_millis=0,
    )  # fmt: skip
    start = dt.datetime(2024, 2, 27, tzinfo=dt.UTC)
    times = [start + dt.timedelta(seconds=draw.randrange(86_400 * 400)) for _ in range(50)]
    options = {"tag.period-formatter": formatter} | (
        {"tag.creation-period-duration": period} if minutes else {"tag.creation-period": period}
    )
    theirs = newest.ask(
        "tagNames", options=options, times=[f"{one:%Y-%m-%dT%H:%M:%S}" for one in times]
    )
    assert [periods.name_of(periods.closed_before(one)) for one in times] == theirs


GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"}
ENDED_WITH_2_0 = ("listagg of a blank", "a sequence of -0.0 after one of 0.0")
"""Differences from Java 1.4.2 alone."""
DIFFERENCES: dict[str, tuple[dict[str, str], pa.DataType, list[list[Any]], Any, Any]] = {
    "first_non_null_value after an older null": (
        GROUP | {"fields.v.aggregate-function": "first_non_null_value"}, pa.int32(),
        [["+I", [1, 5, 3]], ["+I", [1, None, 1]], ["+I", [1, 7, 4]]], [1, 5, 4], [1, None, 4],
    ),
    "an older retract of last_non_null_value": (
        GROUP | {"fields.v.aggregate-function": "last_non_null_value"}, pa.int32(),
        [["+I", [1, 5, 3]], ["-D", [1, 4, 1]]], [1, 5, 3], [1, None, 3],
    ),
    "listagg of a blank": (
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}, pa.string(),
        [["+I", [1, "a", 0]], ["+I", [1, " ", 0]], ["+I", [1, "b", 0]]],
        [1, "a,b", 0], [1, "a, ,b", 0],
    ),
    "a sequence of -0.0 after one of 0.0": (
        {"sequence.field": "v"}, pa.float64(),
        [["+I", [1, 0.0, 1]], ["+I", [1, -0.0, 2]]], [1, 0.0, 1], [1, -0.0, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_decision_0049_where_rows_differ(name: str, newest: NewestJava, tmp_path: Path) -> None:
    options, kind, steps, ours, theirs = DIFFERENCES[name]
    columns = [KEY, pa.field("v", kind), pa.field("g", pa.int32())]
    path = new_table(tmp_path / "t", columns, {"write-only": "true", **options})
    for change, values in steps:
        row = dict(zip("kvg", values, strict=True))
        lsm.open_table(path).upsert([{**row, "_row_kind": change}])
    assert ours_of(path) == [ours]
    has_ended = newest.release == "2.0.0" and name in ENDED_WITH_2_0
    assert newest.ask("read", path=path) == [ours if has_ended else theirs]


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_least_and_greatest_zero_are_those_of_java(
    first: float, newest: NewestJava, tmp_path: Path
) -> None:
    functions = {"fields.v.aggregate-function": "min", "fields.g.aggregate-function": "max"}
    options = {"merge-engine": "aggregation", "write-only": "true", **functions}
    columns = [KEY, pa.field("v", pa.float64()), pa.field("g", pa.float64())]
    path = new_table(tmp_path / "t", columns, options)
    for zero in (first, -first):
        lsm.open_table(path).upsert([{"k": 1, "v": zero, "g": zero}])
    assert str(ours_of(path)) == str(newest.ask("read", path=path)) == "[[1, -0.0, 0.0]]"


def test_decision_0049_only_we_take_every_name_of_a_day_for_a_tag_by_hand(
    newest: NewestJava,
) -> None:
    periods = TagPeriods.from_options(
        "daily", length_millis=None, formatter="with_dashes", delay_millis=0
    )
    names = ["2024-05-09", "2024-05-09 before the move", "before the move"]
    assert [periods.start_of(name) is not None for name in names] == [True, False, False]
    assert newest.ask("automatic", options={}, names=names) == [True, True, False]
