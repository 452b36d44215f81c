"""Tables that this engine writes for the real clients to read: one function per story.

Each leaves several snapshots, and where it says so tags, behind.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import lsm_engine as lsm
from tests.interop.canonical import Row, canonical_rows

NASTY = (
    "plain", "a/b", "a=b", "100%", "%2F", "x:y", "q?", "#1", "*", "back\\slash", "[x]", "{y}", "^",
    "it's", 'say "hi"', "tab\there", "line\nbreak", "\x01\x1f\x7f", "two words", " lead", "trail ",
    "ünïcødé 日本 😀", "..", ".", "~", "a.b", "dt=1/k=2", "__DEFAULT_PARTITION__", "", "&;|$!`",
)  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 -- a TIMESTAMP has no zone


def at_micros(micros: int) -> dt.datetime:
    """A wall clock time, by its microseconds since 1970."""
    return EPOCH + dt.timedelta(microseconds=micros)


def create(
    warehouse: Path,
    schema: pa.Schema | Sequence[tuple[str, pa.DataType]],
    *,
    primary_key: Sequence[str],
    partitioned_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    name: str = "db.t",
) -> lsm.Table:
    """A new table of ours, opened by its directory."""
    url = f"sqlite:///{warehouse / 'catalog.db'}"
    with lsm.open_catalog(url, warehouse=str(warehouse)) as catalog:
        catalog.create_database(name.split(".")[0], ignore_if_exists=True)
        made = catalog.create_table(
            name,
            pa.schema(schema),
            primary_key=primary_key,
            partitioned_by=partitioned_by,
            options=dict(options or {}),
        )
        return lsm.open_table(made.location)


def rows_of(table: lsm.Table, **asked: Any) -> list[Row]:
    """What our own scan gives, in the fixtures' spelling."""
    return canonical_rows(table.scan(**asked).to_arrow())


# ---- types

EDGES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "c_bool": (pa.bool_(), [True, False]),
    "c_tiny": (pa.int8(), [-128, 127, 0]),
    "c_small": (pa.int16(), [-(2**15), 2**15 - 1]),
    "c_int": (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "c_big": (pa.int64(), [-(2**63), 2**63 - 1, 1]),
    "c_float": (pa.float32(), [float("-inf"), float("inf"), 1.5, -0.0, float("nan"), 3.4028235e38]),
    "c_double": (pa.float64(), [float("nan"), float("inf"), -2.25e-300, -0.0, 5e-324]),
    "c_dec9": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01"), Decimal("9999999.99")]),
    "c_dec18": (pa.decimal128(18, 3), [Decimal("-999999999999999.999"), Decimal("0.001")]),
    "c_dec19": (pa.decimal128(19, 0), [Decimal("-9999999999999999999"), Decimal(1)]),
    "c_dec38": (
        pa.decimal128(38, 10),
        [Decimal("-9999999999999999999999999999.9999999999"), Decimal("1E-10"), Decimal(10**27)],
    ),
    "c_str": (pa.string(), ["", "seven77", "eight888", "日本語 😀", "x" * 5000, "\x00zero", "'\"\\"]),
    "c_bin": (pa.binary(), [b"", b"\x00\xff" * 9, b"\x80", bytes(range(256))]),
    "c_date": (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    ),
    "c_time": (pa.time32("ms"), [dt.time(0, 0), dt.time(23, 59, 59, 999000)]),
    "c_ts0": (pa.timestamp("s"), [at_micros(0), at_micros(-1_000_000)]),
    "c_ts3": (pa.timestamp("ms"), [at_micros(-1000), at_micros(253_402_300_799_999_000)]),
    "c_ts6": (pa.timestamp("us"), [at_micros(-1), at_micros(1_700_000_000_123_456)]),
    "c_ltz3": (pa.timestamp("ms", "UTC"), [at_micros(-1000), at_micros(86_399_999_000)]),
    "c_ltz6": (pa.timestamp("us", "UTC"), [at_micros(-1), at_micros(1_700_000_000_123_456)]),
}  # fmt: skip


def edge_columns(
    row_count: int, edges: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = EDGES
) -> dict[str, pa.Array]:
    """Every type at its edges, over and over, with a null after each round."""
    columns = {}
    for name, (kind, values) in edges.items():
        cycle = [*values, None]
        picked = [cycle[i % len(cycle)] for i in range(row_count)]
        if pa.types.is_timestamp(kind) and kind.tz:
            picked = [value and value.replace(tzinfo=dt.UTC) for value in picked]
        columns[name] = pa.array(picked, kind)
    return columns


def all_types(warehouse: Path) -> lsm.Table:
    """Every scalar type that Arrow has, nulls included, rewritten by updates and a compaction."""
    fields = [("k", pa.int32()), *((name, kind) for name, (kind, _) in EDGES.items())]
    table = create(warehouse, fields, primary_key=["k"], options={"bucket": "2"})
    count = 24
    keys = pa.array(range(count), pa.int32())
    rows = pa.table({"k": keys, **edge_columns(count)})
    table.upsert(rows)
    table.upsert(rows.slice(5, 9).set_column(0, "k", keys.slice(0, 9)))
    table.create_tag("merged")
    table.compact(full=True)
    return table


def nanoseconds(warehouse: Path) -> lsm.Table:
    """TIMESTAMP(9), stored as INT96. Java 0.9.0 reads no part of a millisecond before 1970."""
    nanos = [0, 1, 999_999_999, 1_700_000_000_123_456_789, -1_000_000, None]
    fields = [("k", pa.int32()), ("t", pa.timestamp("ns")), ("z", pa.timestamp("ns", "UTC"))]
    table = create(warehouse, fields, primary_key=["k"])
    keys = pa.array(range(len(nanos)), pa.int32())
    table.upsert(
        pa.table(
            {
                "k": keys,
                "t": pa.array(nanos, pa.timestamp("ns")),
                "z": pa.array(nanos[::-1], pa.timestamp("ns", "UTC")),
            }
        )
    )
    table.upsert(pa.table({"k": keys.slice(1, 1), "t": pa.array([7], pa.timestamp("ns"))}))
    # pypaimon cuts them to microseconds where it has to merge.
    table.compact(full=True)
    return table


def key_types(warehouse: Path) -> lsm.Table:
    """A key of many types, in an order of its own, over several buckets."""
    names = ["c_bool", "c_tiny", "c_small", "c_int", "c_big", "c_dec9", "c_dec38", "c_str", "c_bin",
             "c_date", "c_time", "c_ts3", "c_ts6", "c_ltz6"]  # fmt: skip
    fields = [("v", pa.int64()), *((name, EDGES[name][0]) for name in names)]
    key = names[::-1]
    table = create(warehouse, fields, primary_key=key, options={"bucket": "5"})
    count = 60
    columns = {}
    for place, name in enumerate(names):
        kind, values = EDGES[name]
        picked = [values[(i + place) % len(values)] for i in range(count)]
        if pa.types.is_timestamp(kind) and kind.tz:
            picked = [value.replace(tzinfo=dt.UTC) for value in picked]
        columns[name] = pa.array(picked, kind)
    rows = pa.table({"v": pa.array(range(count), pa.int64()), **columns})
    table.upsert(rows.slice(0, 40))
    table.upsert(rows.slice(20))
    table.delete(rows.slice(0, 7))
    table.compact(full=True)
    table.upsert(rows.slice(3, 2))
    return table


# ---- partitions


def nasty_partitions(warehouse: Path) -> lsm.Table:
    """Partition values that no file system likes as they are."""
    fields = [("p", pa.string()), ("k", pa.int32()), ("v", pa.string())]
    table = create(warehouse, fields, primary_key=["p", "k"], partitioned_by=["p"])
    rows = [{"p": p, "k": k, "v": f"{k}-{p}"} for p in NASTY for k in (1, 2)]
    table.upsert(rows)
    table.upsert([row | {"v": "new"} for row in rows[::4]])
    table.delete(rows[1::6])
    table.create_tag("before")
    table.compact(full=True)
    return table


def typed_partitions(warehouse: Path) -> lsm.Table:
    """Partition columns that are no text."""
    fields = [
        ("k", pa.int32()), ("d", pa.date32()), ("i", pa.int32()), ("b", pa.bool_()),
        ("dc", pa.decimal128(10, 2)), ("l", pa.int64()), ("ts", pa.timestamp("ms")),
        ("t6", pa.timestamp("us")), ("v", pa.string()),
    ]  # fmt: skip
    parts = ["d", "i", "b", "dc", "l", "ts", "t6"]
    table = create(
        warehouse, fields, primary_key=["k", *parts], partitioned_by=parts, options={"bucket": "2"}
    )
    rows = [
        {
            "k": k,
            "d": dt.date(1969, 12, 30 + k % 2),
            "i": -(k % 3),
            "b": k % 2 == 0,
            "dc": Decimal("-1.50") if k % 2 else Decimal("0.00"),
            "l": 2**40 if k % 2 else -1,
            "ts": at_micros(-1000 if k % 2 else 1_700_000_000_000_000),
            "t6": at_micros(-1 if k % 2 else 1_700_000_000_100_000),
            "v": str(k),
        }
        for k in range(12)
    ]
    made = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    table.upsert(made)
    table.delete(made.slice(0, 3))
    table.compact(full=True)
    table.upsert(made.slice(2, 4))
    return table


# ---- lives

NUMBERS = [("k", pa.int64()), ("v", pa.string()), ("n", pa.int32()), ("x", pa.float64())]


def numbers(keys: Sequence[int], mark: str = "") -> pa.Table:
    """Rows of the tables that are about what happens to rows, not about their types."""
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array([None if key % 7 == 0 else f"{mark}{key}" for key in keys], pa.string()),
            "n": pa.array([key % 100 for key in keys], pa.int32()),
            "x": pa.array([key / 4 for key in keys], pa.float64()),
        }
    )


def long_life(warehouse: Path) -> lsm.Table:
    """Updates, deletes, tags, minor and full compactions, then more of both over several buckets."""
    options = {"bucket": "3", "num-sorted-run.compaction-trigger": "3", "target-file-size": "4 kb"}
    table = create(warehouse, NUMBERS, primary_key=["k"], options=options)
    table.upsert(numbers(range(300)))
    table.create_tag("first")
    for turn in range(5):
        table.upsert(numbers(range(turn * 40, turn * 40 + 60), f"t{turn}-"))
        table.delete(numbers(range(turn * 31, turn * 31 + 9)))
        table.compact()
    table.create_tag("minor")
    table.compact(full=True)
    table.create_tag("full")
    table.delete(numbers(range(100, 140)))
    table.upsert(numbers(range(120, 130), "back-"))
    return table


def expired(warehouse: Path) -> lsm.Table:
    """The same, its old snapshots gone and only the tags left of them."""
    table = long_life(warehouse)
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
    return table


def forgotten(life: Callable[[Path], lsm.Table]) -> Callable[[Path], lsm.Table]:
    """A life of which keys were forgotten, in its tags too: the least and greatest of files among them."""

    def story(warehouse: Path) -> lsm.Table:
        table = life(warehouse)
        keys = [{"k": key} for key in (0, 42, 57, 58, 125, 150, 299)]
        report = table.forget(keys, dry_run=False, rewrite_tags=True, unreferenced_older_than="0 s")
        assert report.is_clean, report
        return table

    return story


def marked(warehouse: Path) -> lsm.Table:
    """Rows hidden by deletion vectors, some of them back as they were, and a changelog of it all."""
    options = {
        "bucket": "2",
        "deletion-vectors.enabled": "true",
        "changelog-producer": "lookup",
        "target-file-size": "4 kb",
    }
    table = create(warehouse, NUMBERS, primary_key=["k"], options=options)
    table.upsert(numbers(range(300)))
    table.upsert(numbers(range(40, 60), "new-"))
    table.delete(numbers(range(55, 90)))
    table.create_tag("deleted")
    table.upsert(numbers(range(60, 70)))
    table.compact(full=True)
    table.delete(numbers(range(10)))
    return table


def marked_later(warehouse: Path) -> lsm.Table:
    """A table without a key that has rows before it has deletion vectors."""
    table = create(warehouse, NUMBERS, primary_key=(), options={"bucket": "-1"})
    table.append(numbers(range(100)))
    table.alter(lsm.SetOption("deletion-vectors.enabled", "true"))
    table.append(numbers(range(100, 200)))
    table.delete(where="k < 10 or k > 190")
    return table


def summed(warehouse: Path) -> lsm.Table:
    """Sums above sums: a compaction has merged each key with its older row, which is still there."""
    options = {
        "bucket": "1",
        "changelog-producer": "lookup",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "compaction.size-ratio": "0",
    }
    table = create(warehouse, NUMBERS, primary_key=["k"], options=options)
    table.upsert(numbers(range(1000)))
    for turn in range(3):
        table.upsert(numbers(range(turn, 7), f"{turn}-"))
    return table


def overwritten(warehouse: Path) -> lsm.Table:
    """One partition replaced, then those that new rows touch, then the whole table and more."""
    fields = [("p", pa.int32()), ("k", pa.int32()), ("v", pa.string())]
    table = create(warehouse, fields, primary_key=["p", "k"], partitioned_by=["p"])
    table.upsert([{"p": p, "k": k, "v": "old"} for p in range(4) for k in range(5)])
    table.overwrite([{"p": 1, "k": 9, "v": "one"}], {"p": 1})
    table.overwrite([{"p": 2, "k": 8, "v": "two"}, {"p": 5, "k": 8, "v": "five"}])
    table.upsert([{"p": 1, "k": 9, "v": "again"}, {"p": 0, "k": 0, "v": "new"}])
    table.create_tag("after")
    table.overwrite([], {"p": 0})
    return table


def sequence_fields(warehouse: Path) -> lsm.Table:
    """Rows that come late and lose, ties that the later wins, nulls that are oldest."""
    fields = [("k", pa.int32()), ("s", pa.int64()), ("t", pa.timestamp("ms")), ("v", pa.string())]
    table = create(
        warehouse, fields, primary_key=["k"], options={"bucket": "2", "sequence.field": "s,t"}
    )
    late, later = at_micros(1_000_000), at_micros(2_000_000)

    def put(rows: list[tuple[int, int | None, Any, str]]) -> None:
        names = [name for name, _ in fields]
        made = [dict(zip(names, row, strict=True)) for row in rows]
        table.upsert(pa.Table.from_pylist(made, schema=pa.schema(fields)))

    put([(1, 5, late, "a"), (2, 5, late, "a"), (3, None, None, "a"), (4, 1, later, "a")])
    put(
        [(1, 4, later, "older"), (2, 5, late, "tie"), (3, None, None, "tie"), (4, 1, late, "older")]
    )
    put(
        [
            (1, 5, later, "newer"),
            (2, None, later, "null"),
            (3, -1, None, "newer"),
            (5, 0, None, "b"),
        ]
    )
    table.compact(full=True)
    put([(1, 0, late, "oldest"), (5, 0, late, "newer"), (6, 1, late, "c"), (6, 0, later, "lost")])
    return table


def deleted_to_the_last(warehouse: Path) -> lsm.Table:
    """A table whose every row is gone again, at first as deletes and then without a file."""
    table = create(warehouse, NUMBERS, primary_key=["k"], options={"bucket": "2"})
    table.upsert(numbers(range(10)))
    table.delete(numbers(range(10)))
    table.create_tag("deletes")
    table.compact(full=True)
    return table


def only_keys(warehouse: Path) -> lsm.Table:
    """No column beside the key, declared in another order than the columns."""
    fields = [("a", pa.int32()), ("b", pa.string())]
    table = create(warehouse, fields, primary_key=["b", "a"], options={"bucket": "4"})
    table.upsert([{"a": a, "b": str(a % 3)} for a in range(30)])
    table.delete([{"a": a, "b": str(a % 3)} for a in range(0, 30, 4)])
    return table


def large_row_groups(warehouse: Path) -> lsm.Table:
    """Several row groups a file, encoded apart; large ones, in which the pages of keys stand twice."""
    fields = [("name", pa.string()), ("part", pa.int32()), ("v", pa.float64()), ("t", pa.string())]
    table = create(
        warehouse,
        fields,
        primary_key=["name", "part"],
        options={"bucket": "1", "file.block-size": "512 kb"},
    )

    def put(keys: Sequence[int], mark: str) -> None:
        table.upsert(
            pa.table(
                [
                    [f"name-{key // 16:09}" for key in keys],
                    pa.array([key % 16 for key in keys], pa.int32()),
                    [key / 7 for key in keys],
                    [f"{mark}{key % 50}" for key in keys],
                ],
                names=[name for name, _ in fields],
            )
        )

    put(range(0, 20_000, 2), "even ")
    put(range(0, 20_000, 3), "third ")
    table.create_tag("two runs")
    table.compact(full=True)
    put(range(9_000, 9_100, 5), "later ")
    table.compact(full=True)  # copies the row groups around these
    put(range(9_000, 15_000, 5), "later ")
    return table


def never_written(warehouse: Path) -> lsm.Table:
    """A schema and nothing else."""
    return create(warehouse, NUMBERS, primary_key=["k"])


# ---- formats

ORC_TIMES = {  # no time before 1970 with a part of a second, none beyond what nanoseconds reach
    "c_ts3": [at_micros(-1_000_000), at_micros(1_700_000_000_123_000)],
    "c_ts6": [at_micros(-2_000_000), at_micros(1_700_000_000_123_456)],
    "c_ltz3": [at_micros(-1_000_000), at_micros(86_399_999_000)],
    "c_ltz6": [at_micros(0), at_micros(1_700_000_000_123_456)],
}


def all_types_in(form: str, **options: str) -> Callable[[Path], lsm.Table]:
    """Every scalar type in one format, or in several by level."""

    def story(warehouse: Path) -> lsm.Table:
        edges = {
            name: (kind, ORC_TIMES.get(name, values) if form == "orc" else values)
            for name, (kind, values) in EDGES.items()
        }
        fields = [("k", pa.int32()), *((name, kind) for name, (kind, _) in edges.items())]
        chosen = {"bucket": "2", "file.format": form} | options
        table = create(warehouse, fields, primary_key=["k"], options=chosen)
        keys = pa.array(range(24), pa.int32())
        rows = pa.table({"k": keys, **edge_columns(24, edges)})
        table.upsert(rows)
        table.upsert(rows.slice(5, 9).set_column(0, "k", keys.slice(0, 9)))
        table.delete(rows.slice(20, 2))
        table.create_tag("merged")
        table.compact(full=True)
        table.upsert(rows.slice(3, 9).set_column(0, "k", keys.slice(9, 9)))
        return table

    return story


INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])
NESTED = [
    ("k", pa.int32()),
    ("arr", pa.list_(pa.int32())),
    ("mp", pa.map_(pa.string(), pa.int64())),
    ("rw", INNER),
    ("rows", pa.list_(INNER)),
    ("arrs", pa.list_(pa.list_(pa.string()))),
]


def nested_in(form: str) -> Callable[[Path], lsm.Table]:
    """Arrays, maps and rows, in each other, empty and null, through updates and a compaction."""

    def story(warehouse: Path) -> lsm.Table:
        options = {"bucket": "2", "file.format": form}
        table = create(warehouse, NESTED, primary_key=["k"], options=options)

        def put(keys: Sequence[int], turn: int) -> None:
            rows = [nested_row(key, turn) for key in keys]
            table.upsert(pa.Table.from_pylist(rows, schema=pa.schema(NESTED)))

        put(range(20), 0)
        put(range(5, 15), 1)
        table.create_tag("merged")
        table.compact(full=True)
        put(range(12, 25), 2)
        return table

    return story


def nested_row(key: int, turn: int) -> Row:
    """A row that is full, of empty things, or null, by turns."""
    inner = {"a": key, "b": f"{key}-{turn}"}
    kinds: list[Row] = [
        # One entry: the rust client hands out the maps of Avro files in no order.
        {"arr": [key, None, turn], "mp": [("x", None if key % 2 else key)], "rw": inner,
         "rows": [inner, {"a": None, "b": "b"}], "arrs": [["a", None], [], [str(turn)]]},
        {"arr": [], "mp": [], "rw": {"a": turn, "b": None}, "rows": [], "arrs": [[]]},
        dict.fromkeys(("arr", "mp", "rw", "rows", "arrs")),
    ]  # fmt: skip
    return {"k": key} | kinds[(key + turn) % 3]


def with_options(options: Mapping[str, str]) -> Callable[[Path], lsm.Table]:
    """A short life under options that change what is stored."""

    def story(warehouse: Path) -> lsm.Table:
        table = create(warehouse, NUMBERS, primary_key=["k"], options=options)
        for start in (0, 200, 100):
            table.upsert(numbers(range(start, start + 100), f"{start}-a long text "))
        table.delete(numbers(range(50, 60)))
        return table

    return story


STORIES: dict[str, Callable[[Path], lsm.Table]] = {
    "all_types": all_types,
    "nanoseconds": nanoseconds,
    "key_types": key_types,
    "nasty_partitions": nasty_partitions,
    "typed_partitions": typed_partitions,
    "long_life": long_life,
    "expired": expired,
    "marked": marked,
    "marked_later": marked_later,
    "forgotten": forgotten(long_life),
    "forgotten_marked": forgotten(marked),
    "summed": summed,
    "overwritten": overwritten,
    "sequence_fields": sequence_fields,
    "deleted_to_the_last": deleted_to_the_last,
    "only_keys": only_keys,
    "large_row_groups": large_row_groups,
    "never_written": never_written,
    "stats_none": with_options({"metadata.stats-mode": "none"}),
    "stats_counts": with_options({"metadata.stats-mode": "counts"}),
    "stats_truncated": with_options({"metadata.stats-mode": "truncate(3)"}),
    "stats_full": with_options({"metadata.stats-mode": "full"}),
    "types_avro": all_types_in("avro"),
    "types_orc": all_types_in("orc"),
    "types_by_level": all_types_in("parquet", **{"file.format.per.level": "0:avro"}),
    "nested_parquet": nested_in("parquet"),
    "nested_avro": nested_in("avro"),
    "nested_orc": nested_in("orc"),
    "avro_gzip": with_options({"file.format": "avro", "file.compression": "gzip"}),
    "avro_plain": with_options({"file.format": "avro", "file.compression": "none"}),
    **{
        f"orc_{codec}": with_options({"file.format": "orc", "file.compression": codec})
        for codec in ("gzip", "lz4", "snappy", "none")
    },
    "gzip": with_options({"file.compression": "gzip"}),
    "lz4": with_options({"file.compression": "lz4"}),
    "uncompressed": with_options({"file.compression": "none"}),
    "plain_manifests": with_options({"manifest.compression": "null"}),
    "deflated_manifests": with_options({"manifest.compression": "deflate"}),
    "small_row_groups": with_options({"file.block-size": "4 kb", "target-file-size": "8 kb"}),
    "merged_manifests": with_options({"manifest.merge-min-count": "2"}),
}
