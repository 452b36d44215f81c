"""Java 1.4.2 beside us: options, bytes, picks, sections, removals, and tables that both write in turns.

`LSM_NEWEST_JAVA=40` asks so many times as many random cases as the sample does.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base import core_options
from lsm_engine.base.other_options import Verdict, other_option
from lsm_engine.codec.binary_row import encode_stored
from lsm_engine.codec.partition_path import partition_path, unescape
from lsm_engine.io.clock import SystemClock
from lsm_engine.io.warehouse import open_directory
from lsm_engine.kernels.hashing import murmur32
from lsm_engine.mergetree.sections import sections
from lsm_engine.mergetree.sorted_run import LevelSortedRun, SortedRun
from lsm_engine.mergetree.universal import UniversalCompaction
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import DataField, Root, ScalarType, parse_type
from lsm_engine.table.ddl.create import create_table
from tests import shapes
from tests.interop.newest_java import NewestJava, why_not

pytestmark = pytest.mark.interop

TIMES = int(os.environ.get("LSM_NEWEST_JAVA", "1"))
CASES = 250 * TIMES
HISTORIES = 2 * TIMES


@pytest.fixture(scope="module")
def newest() -> Iterator[NewestJava]:
    """The newest Java, or a skip that gives the reason."""
    if os.environ.get("LSM_INTEROP") == "off":
        pytest.skip("LSM_INTEROP=off")
    if reason := why_not():
        pytest.skip(reason)
    with NewestJava() as java:
        yield java


def test_every_option_is_sorted(newest: NewestJava) -> None:
    keys = newest.ask("options")
    assert len(keys) > 290
    assert [
        key
        for key in keys
        if core_options.find(key) is None and other_option(key).verdict is Verdict.UNKNOWN
    ] == []


COLUMNS: dict[str, Any] = {
    "BOOLEAN": lambda draw: draw.random() < 0.5,
    "TINYINT": lambda draw: draw.randint(-128, 127),
    "SMALLINT": lambda draw: draw.randint(-(1 << 15), (1 << 15) - 1),
    "INT": lambda draw: draw.randint(-(1 << 31), (1 << 31) - 1),
    "BIGINT": lambda draw: draw.randint(-(1 << 63), (1 << 63) - 1),
    "DOUBLE": lambda draw: draw.choice([0.0, -0.0, 5e-324, 1e308, draw.gauss(0, 1e9)]),
    "STRING": lambda draw: "".join(draw.choices("aß水🙂 ", k=draw.randint(0, 20))),
}


def test_rows_have_the_same_bytes_and_hashes(newest: NewestJava) -> None:
    draw = random.Random(1)
    for _ in range(CASES // 25):
        names = draw.choices(list(COLUMNS), k=draw.randint(1, 9))
        types = [parse_type(name) for name in names]
        rows = [
            [None if draw.random() < 0.2 else COLUMNS[name](draw) for name in names]
            for _ in range(25)
        ]
        arrays = [
            pa.array(column, ARROW_TYPES[name])
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        ]
        ours = encode_stored(arrays, types)
        hashes = [
            int(murmur32(np.frombuffer(row[4:], np.uint8), np.array([0, len(row) - 4]))[0])
            for row in ours
        ]
        theirs = newest.ask("rows", types=names, rows=rows)
        assert [[row[4:].hex(), found] for row, found in zip(ours, hashes, strict=True)] == theirs


ARROW_TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(),
    "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string(),
}  # fmt: skip


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
    assert [unescape(text) for text in ours] == theirs


def some_files(draw: random.Random, levels: int) -> list[DataFileMeta]:
    """Newest first: any files on level 0, at most one on each level below."""
    (template,) = shapes.files("L0:1")
    places = [0] * draw.randint(0, 6) + [at for at in range(1, levels) if draw.random() < 0.6]
    made = []
    for at, level in enumerate(places):
        low, high = sorted((draw.randint(0, 40), draw.randint(0, 40)))
        made.append(
            replace(
                template,
                file_name=f"file-{at:02}",
                file_size=int(10 ** draw.uniform(0, 4)),
                level=level,
                min_key=shapes.key_of(low),
                max_key=shapes.key_of(high),
                min_sequence_number=1000 - 10 * at,
                max_sequence_number=1000 - 10 * at,
            )
        )
    return made


def facts_of(file: DataFileMeta) -> list[Any]:
    """A file as PaimonCases.java takes it."""
    keys = [int.from_bytes(key, "big") for key in (file.min_key, file.max_key)]
    numbers = [file.min_sequence_number, file.max_sequence_number]
    return [file.file_name, file.file_size, *keys, *numbers, file.level]


def test_universal_picks_are_the_same(newest: NewestJava) -> None:
    draw, picked = random.Random(2), 0
    for _ in range(CASES):
        levels = draw.randint(3, 7)
        files = some_files(draw, levels)
        settings = [draw.choice([50, 200]), draw.choice([0, 1, 30]), draw.randint(2, 6)]
        runs = [LevelSortedRun(level=one.level, run=SortedRun.of_one(one)) for one in files]
        ours = UniversalCompaction(
            max_size_amplification_percent=settings[0],
            size_ratio_percent=settings[1],
            run_count_trigger=settings[2],
        )._pick(runs, levels - 1)
        theirs = newest.ask(
            "pick", runs=[facts_of(one) for one in files], levels=levels,
            amplification=settings[0], ratio=settings[1], trigger=settings[2],
        )  # fmt: skip
        found = ours and [ours.output_level, [one.file_name for one in ours.files]]
        assert found == theirs, (files, settings)
        picked += found is not None
    assert picked > CASES // 5


def test_sections_are_the_same(newest: NewestJava) -> None:
    draw = random.Random(3)
    for _ in range(CASES):
        files = some_files(draw, 6)
        ours = [
            [[one.file_name for one in run.files] for run in section]
            for section in sections(files, shapes.key_order)
        ]
        theirs = newest.ask("sections", files=[facts_of(one) for one in files])
        # Of runs that end with the same key either may take the next file.
        assert [shape_of(section) for section in ours] == [shape_of(one) for one in theirs], files


def shape_of(section: list[list[str]]) -> tuple[int, list[str]]:
    return len(section), sorted(name for run in section for name in run)


KEY = pa.field("k", pa.int32(), nullable=False)


def made(path: Path, columns: list[pa.Field], options: dict[str, str]) -> str:
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
    path = made(tmp_path / "t", columns, {"write-only": "true", **options})
    for kind, values in steps:
        if writer == "java":
            newest.ask("write", path=path, rows=[[kind, values]])
        else:
            row = dict(zip("kvg", values, strict=True))
            lsm.open_table(path).upsert([{**row, "_row_kind": kind}])
    assert ours_of(path) == [ours]
    assert newest.ask("read", path=path) == [theirs]


HISTORY_OPTIONS: list[dict[str, str]] = [
    {},
    {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "lookup", "file.format": "avro"},
    {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    {"merge-engine": "partial-update", "file.format": "orc", "file.compression": "zstd"},
    {"merge-engine": "first-row"},
]


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("options", HISTORY_OPTIONS, ids=str)
def test_both_take_turns_on_one_table(
    options: dict[str, str], seed: int, newest: NewestJava, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    columns = [KEY, pa.field("v", pa.int32()), pa.field("s", pa.string())]
    path = made(tmp_path / "t", columns, {"num-sorted-run.compaction-trigger": "3", **options})
    kinds = ["+I", "+I", "-D"] if "merge-engine" not in options else ["+I"]
    for _ in range(7):
        rows = [
            [
                draw.choice(kinds),
                [draw.randint(0, 9), draw.choice([None, 1, 7]), draw.choice("xyz")],
            ]
            for _ in range(draw.randint(1, 8))
        ]
        turn = draw.choice(["ours", "java", "java full", "ours full", "ours forget"])
        if turn == "ours forget":
            key = [{"k": draw.randint(0, 9)}]
            report = lsm.open_table(path).forget(key, dry_run=False, unreferenced_older_than="0 s")
            assert report.is_clean, report
        elif turn.startswith("java"):
            full = {"full": True} if turn == "java full" else {}
            newest.ask("write", path=path, rows=rows, **full)
        else:
            table = lsm.open_table(path)
            table.upsert(
                [
                    dict(zip("kvs", values, strict=True)) | {"_row_kind": kind}
                    for kind, values in rows
                ]
            )
            if turn == "ours full":
                table.compact(full=True)
        assert ours_of(path) == sorted(newest.ask("read", path=path)), turn
    table = lsm.open_table(path)
    assert table.verify().problems == ()
    table.expire_snapshots(retain_min=2, retain_max=4, older_than="0 s")
    for number in table.system("snapshots").column("snapshot_id").to_pylist():
        theirs = newest.ask("read", path=path, snapshot=number)
        assert ours_of(path, number) == sorted(theirs), number
