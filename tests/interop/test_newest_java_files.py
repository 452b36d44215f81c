"""Lookup files, their bloom filters and statistics of columns beside Java 1.4.2, byte for byte.

`LSM_NEWEST_JAVA=40` asks 10,000 random cases of each.
"""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.data_files.reader import POSITION
from lsm_engine.filter.file_index import matching_rows
from lsm_engine.filter.predicate import Compare, Comparison, IsNull, IsValid, Predicate
from lsm_engine.format.binary_row import decode_row
from lsm_engine.format.bloom import build_bloom, key_hashes
from lsm_engine.format.column_index import IndexBuilder, indexed_type
from lsm_engine.format.file_index import FileIndexes, encode_indexes
from lsm_engine.format.stats import StatsCollector, StatsMode
from lsm_engine.kernels.gather import gather
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.sorted_stores import BlockCache, SortStore, write_sorted
from lsm_engine.lookup.store import RowLayout, StoredValue, StoreSettings
from lsm_engine.options.modes import FileIndexType, LookupFileType
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from lsm_engine.types.types import DataField, parse_type
from tests.bench.tables import new_table
from tests.interop.clients import Client
from tests.interop.newest_java import CASES, NewestJava
from tests.interop.random_values import MAKERS, made, spelled, spelled_row
from tests.unit.format.test_file_index import part_of

pytestmark = pytest.mark.interop

KINDS = ["+I", "-U", "+U", "-D"]


# ---- lookup files


class LookupCase:
    """Rows of one lookup file in key order, and keys that it may lack."""

    def __init__(self, draw: random.Random) -> None:
        names = [name for name in MAKERS if name not in ("BOOLEAN", "BYTES", "FLOAT", "DOUBLE")]
        self.keys = draw.sample(names, draw.randint(1, 2))
        self.columns = self.keys + draw.choices(list(MAKERS), k=draw.randint(0, 4))
        types = [parse_type(name) for name in self.columns]
        self.names = [f"c{at}" for at in range(len(types))]
        self.kind_of = dict(zip(self.names, map(arrow_type, types), strict=True))
        count = draw.randint(1, 40)
        rows = {
            tuple(made(name, draw) for name in self.keys): [
                made(name, draw, null_share=0.2) for name in self.columns[len(self.keys) :]
            ]
            for _ in range(count)
        }
        there = [[*key, *values] for key, values in rows.items() if draw.random() < 0.7]
        there = there or [[*key, *values] for key, values in list(rows.items())[:1]]
        self.asked = [list(key) for key in rows]
        key_names = self.names[: len(self.keys)]
        table = pa.table(
            [
                pa.array(list(column), kind)
                for column, kind in zip(
                    zip(*there, strict=True), self.kind_of.values(), strict=True
                )
            ],
            names=self.names,
        ).sort_by([(name, "ascending") for name in key_names])
        self.numbers = [MAKERS["BIGINT"](draw) for _ in there]
        self.kinds = [draw.randrange(4) for _ in there]
        self.rows = [list(row.values()) for row in table.to_pylist()]
        table = table.append_column(SEQUENCE_NUMBER, pa.array(self.numbers, pa.int64()))
        self.table = table.append_column(VALUE_KIND, pa.array(self.kinds, pa.int8()))
        self.compression = draw.choice(["none", "zstd"])
        self.fpp = draw.choice([None, 0.01, 0.05, 0.3])
        self.block = draw.choice([64, 256, 1024, 65536])
        stored = [*((name, self.kind_of[name]) for name in self.names)]
        self.layout = RowLayout(
            key_names=tuple(key_names),
            key_types=tuple(types[: len(self.keys)]),
            column_names=tuple(self.names),
            column_types=tuple(types),
            value=StoredValue.ROW,
            schema=pa.schema([*stored, (SEQUENCE_NUMBER, pa.int64()), (VALUE_KIND, pa.int8())]),
        )
        assert POSITION not in self.layout.stored_names

    def facts(self) -> dict[str, Any]:
        """What PaimonFiles.java wants to know of the store."""
        return {
            "keyTypes": self.keys, "types": self.columns, "block": self.block,
            "compression": self.compression, "fpp": self.fpp,
        }  # fmt: skip

    def to_write(self) -> dict[str, Any]:
        width = len(self.keys)
        rows = [
            [spelled_row(row[:width]), spelled_row(row), number, KINDS[kind]]
            for row, number, kind in zip(self.rows, self.numbers, self.kinds, strict=True)
        ]
        return self.facts() | {"rows": rows}

    def written(self) -> bytes:
        """The file as we write it."""
        settings = StoreSettings(
            file_type=LookupFileType.SORT, value=StoredValue.ROW, bloom_fpp=self.fpp,
            hash_load_factor=0.75, block_size=self.block, compressed=self.compression != "none",
            decoded_blocks_bytes=1 << 20,
        )  # fmt: skip
        sink = io.BytesIO()
        batches = self.table.combine_chunks().to_batches()
        write_sorted(sink, iter(batches), self.layout, settings, data_file="x")
        return sink.getvalue()

    def found(self, file: bytes) -> list[Any]:
        """What we find in a file for every key asked: [row, sequence number, kind], or None."""
        store = SortStore(pa.py_buffer(file), "java", self.layout, BlockCache(1 << 20))
        columns = [
            pa.array(list(column), arrow_type(kind))
            for column, kind in zip(
                zip(*self.asked, strict=True), self.layout.key_types, strict=True
            )
        ]
        batch, places = KeyBatch.from_columns(columns, list(self.layout.key_types))
        handles = store.find(batch, np.arange(len(batch), dtype=np.int64)).last
        hit = handles >= 0
        fetched = store.fetch(handles[hit], self.layout.stored_names)
        rows = gather(fetched.sources, fetched.run, fetched.row).to_pylist()
        answers: list[Any] = [None] * len(self.asked)
        for at, row in zip(np.asarray(places)[hit].tolist(), rows, strict=True):
            *values, number, kind = row.values()
            answers[at] = [spelled_row(values), number, KINDS[kind]]
        return answers

    def wanted(self) -> list[Any]:
        """What there is to be found."""
        there = {repr(row[0][: len(self.keys)]): row for row in self._all()}
        return [there.get(repr(spelled_row(key))) for key in self.asked]

    def _all(self) -> list[Any]:
        return [
            [spelled_row(row), number, KINDS[kind]]
            for row, number, kind in zip(self.rows, self.numbers, self.kinds, strict=True)
        ]


def test_lookup_files_are_the_same_both_ways(newest: NewestJava) -> None:
    """Uncompressed the bytes are the same; compressed each finds in the other's what there is."""
    draw = random.Random(6)
    for _ in range(CASES // 50):
        cases = [LookupCase(draw) for _ in range(50)]
        theirs = newest.ask_each("lookupWrite", [case.to_write() for case in cases])
        ours = [case.written() for case in cases]
        asked = [
            case.facts() | {"file": file.hex(), "keys": [spelled_row(key) for key in case.asked]}
            for case, file in zip(cases, ours, strict=True)
        ]
        answers = newest.ask_each("lookupRead", asked)
        for case, mine, other, answer in zip(cases, ours, theirs, answers, strict=True):
            if case.compression == "none":
                assert mine.hex() == other, case.to_write()
            assert answer == case.wanted(), case.to_write()
            assert case.found(bytes.fromhex(other)) == case.wanted(), case.to_write()


def test_lookup_blooms_are_the_same(newest: NewestJava) -> None:
    draw = random.Random(7)
    cases, filters = [], []
    for _ in range(CASES):
        keys = [draw.randbytes(draw.randint(0, 20)) for _ in range(draw.randint(1, 30))]
        others = [draw.randbytes(draw.randint(0, 20)) for _ in range(5)]
        entries, fpp = len(keys) + draw.choice([0, 0, 5, 1000]), draw.choice([0.5, 0.1, 0.05, 1e-4])
        cases.append({
            "keys": [key.hex() for key in keys], "others": [key.hex() for key in others],
            "entries": entries, "fpp": fpp,
        })  # fmt: skip
        bloom = build_bloom(hashes(keys), entries=entries, fpp=fpp)
        filters.append([bloom.bits.tobytes().hex(), bloom.may_hold(hashes(others)).tolist()])
    assert filters == newest.ask_each("bloom", cases)


def hashes(keys: list[bytes]) -> Any:
    offsets = np.cumsum([0, *map(len, keys)]).astype(np.int64)
    return key_hashes(np.frombuffer(b"".join(keys), np.uint8), offsets)


# ---- statistics

RESERVES_WHEN_NULL = ("DECIMAL(30, 4)", "TIMESTAMP(6)")
"""Java 1.4.2 keeps room for nulls of these: other bytes, the same values."""


def test_statistics_are_the_same(newest: NewestJava) -> None:
    draw = random.Random(8)
    cases, found = [], []
    for _ in range(CASES):
        names = draw.choices(list(MAKERS), k=draw.randint(1, 6))
        modes = [
            draw.choice(["none", "counts", "full", "truncate(1)", "truncate(3)", "truncate(16)"])
            for _ in names
        ]
        null_share = draw.choice([0.0, 0.3, 1.0])
        rows = [
            [made(name, draw, null_share=null_share) for name in names]
            for _ in range(draw.randint(1, 8))
        ]
        types = [parse_type(name) for name in names]
        collector = StatsCollector(types, [StatsMode.parse(mode) for mode in modes])
        columns = [
            pa.array(list(column), arrow_type(kind))
            for column, kind in zip(zip(*rows, strict=True), types, strict=True)
        ]
        collector.update(columns)
        cases.append({"types": names, "modes": modes, "rows": [spelled_row(row) for row in rows]})
        found.append((collector.result(), types))
    answers = newest.ask_each("stats", cases)
    for case, (ours, types), theirs in zip(cases, found, answers, strict=True):
        least, greatest, nulls, *values = theirs
        assert list(ours.null_counts or ()) == nulls, case
        bounds = [decode_row(one, types) for one in (ours.min_values, ours.max_values)]
        if newest.release == "2.0.0" and "BYTES" in case["types"]:
            # Decision 49: 2.0.0 has bounds of bytes.
            for row in values:
                row[:] = [
                    None if name == "BYTES" else value
                    for name, value in zip(case["types"], row, strict=True)
                ]
            assert [spelled_row(row) for row in bounds] == values, case
            continue
        assert [spelled_row(row) for row in bounds] == values, case
        if not set(case["types"]) & set(RESERVES_WHEN_NULL) or None not in values[0]:
            stored = [ours.min_values[4:].hex(), ours.max_values[4:].hex()]
            assert stored == [least, greatest], case


def test_decision_0049_bounds_that_differ(newest: NewestJava) -> None:
    """Ours are wider around zero, and none beyond microseconds, which INT96 columns cannot keep."""
    zero, late = pa.array([0.0]), pa.array([1_000_000], pa.timestamp("us"))
    types = [parse_type("DOUBLE"), parse_type("TIMESTAMP(9)")]
    collector = StatsCollector(types, [StatsMode.parse("full")] * 2)
    collector.update([zero, late.cast(pa.timestamp("ns"))])
    ours = collector.result()
    bounds = [decode_row(one, types) for one in (ours.min_values, ours.max_values)]
    assert [str(row) for row in bounds] == ["(-0.0, None)", "(0.0, None)"]
    (theirs,) = newest.ask_each(
        "stats",
        [{"types": ["DOUBLE", "TIMESTAMP(9)"], "modes": ["full"] * 2, "rows": [[0.0, 1_000_000]]}],
    )
    assert [str(row) for row in theirs[3:]] == ["[0.0, 1000000]"] * 2


# ---- thin files


def test_thin_files_are_read_and_compacted(
    java_2: NewestJava, rust: Client, pypaimon: Client, tmp_path: Path
) -> None:
    schema = pa.schema([("k", pa.int64()), ("u", pa.string()), ("v", pa.int64())])
    options = {"bucket": "2", "data-file.thin-mode": "true", "write-only": "true"}
    table = new_table(tmp_path, schema, key=("k", "u"), options=options)
    for turn in range(1, 4):
        keys = np.arange(turn * 20, turn * 20 + 60)
        texts = [f"u{key}" for key in keys]
        table.upsert(pa.table([keys, texts, keys * turn], schema=schema))
    table.delete(pa.table([[21, 60], ["u21", "u60"]], names=["k", "u"]))
    wanted = [tuple(row.values()) for row in table.to_arrow().sort_by("k").to_pylist()]
    assert len(wanted) == 98
    for client in (rust, pypaimon):
        found = client.read(table.location)
        assert found.num_rows == 98
        assert [tuple(row.values()) for row in found.sort_by("k").to_pylist()] == wanted
    rows = sorted(tuple(row) for row in java_2.ask("read", path=table.location))
    assert rows == wanted
    java_2.ask("compact", path=table.location, full=True)
    after = lsm.open_table(table.location)
    assert [run.level for bucket in after.tree() for run in bucket.runs] == [5, 5]
    assert [tuple(row.values()) for row in after.to_arrow().sort_by("k").to_pylist()] == wanted
    assert after.verify().is_clean


# ---- file indexes

INDEX_OPTIONS = {
    FileIndexType.BLOOM_FILTER: [{"items": "20"}, {"items": "7", "fpp": "0.01"}],
    FileIndexType.BITMAP: [{}, {"version": "1"}, {"index-block-size": "200 b"}],
    FileIndexType.BSI: [{}],
    FileIndexType.RANGE_BITMAP: [{}, {"chunk-size": "90 b"}],
}
QUESTIONS = ["=", "<>", "<", "<=", ">", ">=", "null", "there"]


def test_file_indexes_are_read_both_ways(newest: NewestJava) -> None:
    """Each answers every question from the other's bytes as the values themselves do."""
    draw = random.Random(9)
    cases, columns = [], []
    for _ in range(CASES):
        kind, name = draw.choice(list(FileIndexType)), draw.choice(list(MAKERS))
        stored = indexed_type(parse_type(name), kind)
        if stored is None:
            continue
        values = [made(name, draw, null_share=0.2) for _ in range(draw.randint(1, 40))]
        values += draw.choices(values, k=draw.choice([0, 5, 60]))
        # Java fails to write the bits of the least BIGINT.
        values = [None if value == -(2**63) else value for value in values]
        known = [value for value in values if value is not None] or [made(name, draw)]
        asked = [(draw.choice(QUESTIONS), draw.choice([draw.choice(known), made(name, draw)]))]
        asked += [("=", draw.choice(known)), ("<=", draw.choice(known))]
        asked = [(question, 0 if value == -(2**63) else value) for question, value in asked]
        options = draw.choice(INDEX_OPTIONS[kind])
        texts = {f"file-index.{kind.value}.columns": "c"}
        texts |= {f"file-index.{kind.value}.c.{key}": text for key, text in options.items()}
        (column,) = TableOptions(texts=texts).indexed_columns
        builder = IndexBuilder(column, stored)
        built = builder.built([builder.piece(pa.array(values, arrow_type(parse_type(name))))])
        assert built is not None
        cases.append({
            "types": [name], "kind": kind.value, "options": options, "values": spelled_row(values),
            "other": encode_indexes({"c": {kind: built}}).hex(),
            "asked": [[question, spelled(value)] for question, value in asked],
        })  # fmt: skip
        columns.append((values, asked))
    for case, (values, asked), (file, *answers) in zip(
        cases, columns, newest.ask_each("fileIndex", cases), strict=True
    ):
        ours = [index_answer(bytes.fromhex(file), case, values, *pair) for pair in asked]
        theirs = [index_answer(bytes.fromhex(case["other"]), case, values, *pair) for pair in asked]
        for pair, mine, own, answer in zip(asked, ours, theirs, answers, strict=True):
            rows = [row for row, value in enumerate(values) if matches(value, *pair)]
            # An index that does not know lets every row through.
            answered = None if answer is True else answer or []
            if (case["kind"], pair[0]) == ("bitmap", "<>") and answered is not None:
                # Java's answer holds the nulls, which its readers filter out.
                answered = [row for row in answered if values[row] is not None]
            for found in (mine, own, answered):
                exact = case["kind"] != "bloom-filter" and found is not None
                assert found is None or set(rows) <= set(found), (case, pair)
                assert not exact or found == rows, (case, pair)
            assert (mine is None) == (own is None), (case, pair)
            if case["kind"] == "bloom-filter":
                assert file[-16:] == case["other"][-16:], case


def matches(value: Any, question: str, asked: Any) -> bool:
    """Whether a row with a value is one of the answer."""
    if question in ("null", "there"):
        return (value is None) == (question == "null")
    if value is None:
        return False
    return bool(
        value == asked if question == "="
        else value != asked if question == "<>"
        else (value < asked or (question == "<=" and value == asked)) if question[0] == "<"
        else (value > asked or (question == ">=" and value == asked))
    )  # fmt: skip


def index_answer(
    file: bytes, case: dict[str, Any], values: list[Any], question: str, asked: Any
) -> list[int] | None:
    """The rows that an index file gives for a question by our code; None: it does not know."""
    column = DataField(id=0, name="c", type=parse_type(case["types"][0]))
    value = pa.scalar(asked, arrow_type(column.type))
    comparison = {
        "=": Comparison.EQUAL, "<>": Comparison.NOT_EQUAL, "<": Comparison.LESS,
        "<=": Comparison.LESS_EQUAL, ">": Comparison.GREATER, ">=": Comparison.GREATER_EQUAL,
    }  # fmt: skip
    predicate: Predicate
    if question in comparison:
        predicate = Compare(column="c", comparison=comparison[question], value=value)
    else:
        predicate = IsNull(column="c") if question == "null" else IsValid(column="c")
    indexes = FileIndexes(part_of(file), row_count=len(values), file_name="f")
    rows = matching_rows(indexes, predicate, stored=[column], read=[column])
    return None if rows is None else list(rows)


@pytest.mark.parametrize(
    ("kind", "threshold"),
    list(zip(FileIndexType, ["1 b", "1 mb", "1 mb", "1 b"], strict=True)),
)
def test_tables_with_file_indexes_are_read_both_ways(
    java_2: NewestJava, tmp_path: Path, kind: FileIndexType, threshold: str
) -> None:
    """With deletion vectors, as each finds rows by their position in the file."""
    options = {
        "bucket": "1", "deletion-vectors.enabled": "true", f"file-index.{kind.value}.columns": "v",
        "file-index.in-manifest-threshold": threshold,
    }  # fmt: skip
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    table = new_table(tmp_path, schema, key=("k",), options=options)
    path = table.location
    for turn in range(3):
        rows = [{"k": key, "v": key * 7 % 50 + 100 * turn} for key in range(turn, 400, turn + 1)]
        if turn % 2:
            table.upsert(pa.Table.from_pylist(rows, schema))
        else:
            written = [["+I", list(row.values())] for row in rows]
            java_2.ask("write", path=path, rows=written, full=False)
        kinds = set(table.inspect.file_indexes().column("index_kind").to_pylist())
        assert kinds == {"embedded" if threshold == "1 mb" else "sidecar"}
        everything = table.scan().to_arrow()
        for value in (0, 7, 107, 203, 349, 999):
            condition = pc.field("v") == value
            rows = everything.filter(condition).sort_by("k").to_pylist()
            assert table.scan(where=condition).to_arrow().sort_by("k").to_pylist() == rows
            theirs = java_2.ask("read", path=path, equal=["v", value])
            assert sorted(theirs) == [list(row.values()) for row in rows]
    assert table.maintenance.verify(deep=True).problems == ()


# ---- a directory of data files


def test_files_in_a_directory_of_their_own_are_written_and_compacted_by_both(
    java_2: NewestJava, tmp_path: Path
) -> None:
    schema = pa.schema([("k", pa.int64()), ("day", pa.string()), ("v", pa.int64())])
    options = {"bucket": "1", "data-file.path-directory": "data/files"}
    table = new_table(tmp_path, schema, key=("k", "day"), partitioned_by=("day",), options=options)
    table.upsert([{"k": key, "day": "d0", "v": key} for key in range(9)])
    theirs = [["+I", [key, f"d{key % 2}", 10 * key]] for key in range(5, 12)]
    java_2.ask("write", path=table.location, rows=theirs, full=False)
    java_2.ask("compact", path=table.location, full=True)
    table.upsert([{"k": 0, "day": "d0", "v": 7}])
    table.compact(full=True)
    found = sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())
    assert (0, "d0", 7) in found
    assert (11, "d1", 110) in found
    assert found == sorted(map(tuple, java_2.ask("read", path=table.location)))
    places = {
        path.relative_to(table.location).parts[:2]
        for path in Path(table.location).rglob("*.parquet")
    }
    assert places == {("data", "files")}
    assert table.verify(deep=True).is_clean


def test_files_that_java_puts_outside_of_the_table_are_read(
    java_2: NewestJava, tmp_path: Path
) -> None:
    outside = [tmp_path / "fast", tmp_path / "slow"]
    options = {
        "bucket": "1", "data-file.external-paths": ",".join(f"file://{path}" for path in outside),
        "data-file.external-paths.strategy": "round-robin", "deletion-vectors.enabled": "true",
        "data-file.path-directory": "data", "changelog-producer": "lookup",
        "file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b",
    }  # fmt: skip
    path = java_2.ask(
        "create", catalog={"warehouse": str(tmp_path / "w")}, name="d.t", keys=["k", "day"], parts=["day"],
        fields=[["k", "INT NOT NULL"], ["day", "STRING NOT NULL"], ["v", "INT"]], options=options,
    )  # fmt: skip
    for turn in range(3):
        rows = [["+I", [k, f"d{k % 2}", k + turn]] for k in range(10 - turn)]
        java_2.ask("write", path=path, rows=[*rows, ["-D", [turn, f"d{turn % 2}", 0]]])
    table = lsm.open_table(path)
    theirs = sorted(java_2.ask("read", path=path))
    assert [*map(list, sorted(table.to_duckdb().fetchall()))] == theirs
    assert sorted(map(list, table.to_polars().collect().rows())) == theirs
    assert sorted([*row.values()] for row in table.scan().to_arrow().to_pylist()) == theirs
    found = table.scan(where="v = 7").to_arrow().to_pylist()
    assert [[*row.values()] for row in found] == [row for row in theirs if row[2] == 7]
    assert table.lookup([{"k": 5, "day": "d1"}]).column("v").to_pylist() == [7]
    newest = table.snapshots()[-1].id
    changes = java_2.ask("changes", path=path, of=newest, mode="CHANGELOG")
    ours = table.changes(after=newest - 1).to_arrow().to_pylist()
    assert sorted((row["_row_kind"], row["k"], row["v"]) for row in ours) == sorted(
        (kind, values[0], values[2]) for kind, values in changes
    )
    assert table.maintenance.verify(deep=True).problems == ()
    assert not [*Path(path).rglob("data-*")]
    with pytest.raises(lsm.UnsupportedError, match=r"data-file\.external-paths"):
        table.upsert([{"k": 1, "day": "d1", "v": 0}])


# ---- rows that wait for a bucket


WAITING: dict[str, dict[str, str]] = {
    "by a clock": {"sequence.field": "c"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "sums": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "vectors": {"deletion-vectors.enabled": "true"},
}  # fmt: skip


@pytest.mark.parametrize("engine", WAITING)
def test_rows_that_wait_for_a_bucket_are_merged_as_java_merges_them(
    engine: str, java_2: NewestJava, tmp_path: Path
) -> None:
    draw = random.Random(engine)
    schema = pa.schema([("k", pa.int32()), ("p", pa.int32()), ("v", pa.int32()), ("c", pa.int32())])
    options = {
        "bucket": "-2", "postpone.default-bucket-num": "3", "postpone.merge-on-read": "true",
        "postpone.batch-write-fixed-bucket": "false", **WAITING[engine],
    }  # fmt: skip
    table = new_table(tmp_path, schema, key=("k", "p"), partitioned_by=("p",), options=options)
    # Java orders the files of one writer and none of several: each of its commits is one, and all of ours are.
    for turn, act in enumerate(["java", "compact", "we", "we", "we", "compact", "java"]):
        if act == "compact":
            table.compact(full=bool(draw.randrange(2)))
            continue
        rows = [
            [k, draw.randrange(2), draw.choice([None, turn, 50 - k]), draw.randrange(9)]
            for k in draw.choices(range(30), k=20)
        ]
        kind = "+I" if engine == "sums" else draw.choice(["+I", "+U", "-D"])
        if act == "we":
            batch = [dict(zip(schema.names, row, strict=True)) for row in rows]
            table.upsert([row | {"_row_kind": kind} for row in batch])
        else:
            java_2.ask("write", path=table.location, rows=[[kind, row] for row in rows])
        read = table.scan().to_arrow().to_pylist()
        ours = sorted(([*row.values()] for row in read), key=str)
        assert ours == sorted(java_2.ask("readWaiting", path=table.location), key=str), turn
    assert ours


# ---- columns of types that are not read


def test_beside_blobs_and_variants_of_java_the_other_columns_are_read(
    java_2: NewestJava, tmp_path: Path
) -> None:
    """Blobs lie in files of their own, of which the other columns know nothing; variants beside them."""
    tracked = {
        "bucket": "-1", "row-tracking.enabled": "true", "data-evolution.enabled": "true",
        "blob-field": "e",
    }  # fmt: skip
    cases = (("blobs", "BLOB", [], tracked), ("variants", "VARIANT", ["k"], {"bucket": "1"}))
    for name, kind, keys, options in cases:
        path = java_2.ask(
            "create", catalog={"warehouse": str(tmp_path)}, name=f"d.{name}", keys=keys, parts=[],
            fields=[["k", "INT NOT NULL"], ["e", kind], ["v", "STRING"]], options=options,
        )  # fmt: skip
        for start in (0, 10):
            rows = [["+I", [k, str(10 + k), f"v{k}"]] for k in range(start, start + 10)]
            java_2.ask("write", path=path, rows=rows)
        table = lsm.open_table(path)
        found = table.scan().to_arrow().sort_by("k").to_pylist()
        assert found == [{"k": row[0], "v": row[2]} for row in java_2.ask("read", path=path)]
        assert table.scan(where="v = 'v17'").to_arrow().to_pylist() == [{"k": 17, "v": "v17"}]
        assert table.scan().count() == table.to_polars().collect().height == 20
        assert table.verify(deep=True).problems == ()
        with pytest.raises(lsm.UnsupportedError, match=kind):
            table.compact(full=True)


# ---- tables that only Java 2.0.0 makes

NEWER_TABLES: dict[str, tuple[list[list[Any]], dict[str, str], str | None]] = {
    "b-tree of the primary key": ([], {"deletion-vectors.enabled": "true", "pk-btree.index.columns": "v"}, "pk-btree.index.columns"),
    "bitmap of the primary key": ([], {"deletion-vectors.enabled": "true", "pk-bitmap.index.columns": "v"}, "pk-bitmap.index.columns"),
    "vectors": ([["e", {"type": "VECTOR", "element": "FLOAT", "length": 3}]], {}, "VECTOR"),
    "numbers from snapshots": ([], {"write-only": "true", "write.sequence-number-init-mode": "snapshot"}, None),
}  # fmt: skip
"""Further columns, options, and what a write is refused for (None: both write in turns)."""


@pytest.mark.parametrize("name", NEWER_TABLES)
def test_tables_of_java_2_are_read_and_written_in_turns_or_refused_by_name(
    name: str, java_2: NewestJava, tmp_path: Path
) -> None:
    columns, options, refused = NEWER_TABLES[name]
    path = java_2.ask(
        "create", catalog={"warehouse": str(tmp_path)}, name="d.t", keys=["k"], parts=[],
        fields=[["k", "INT"], ["v", "INT"], *columns], options={"bucket": "1", **options},
    )  # fmt: skip
    nulls = [None] * len(columns)
    for start in (0, 5):
        rows = [["+I", [key, key * 10 + start, *nulls]] for key in range(start, start + 10)]
        java_2.ask("write", path=path, rows=rows)
    table = lsm.open_table(path)
    wanted = {key: key * 10 + 5 * (key >= 5) for key in range(15)}
    assert {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == wanted
    assert table.scan(where="v = 95").to_arrow().to_pylist() == [{"k": 9, "v": 95}]
    if refused is not None:
        with pytest.raises(lsm.UnsupportedError, match=refused):
            table.upsert([{"k": 1, "v": 777}])
        return
    table.upsert([{"k": 1, "v": 777}])
    assert java_2.ask("read", path=path, equal=["v", 777]) == [[1, 777]]
    java_2.ask("write", path=path, rows=[["+I", [1, 778]]])
    assert lsm.open_table(path).scan(where="k = 1").to_arrow().to_pylist() == [{"k": 1, "v": 778}]
    assert lsm.open_table(path).verify(deep=True).is_clean
