"""Lookups equal scans after any history, whatever the options, the keys and the kind of file."""

import decimal

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.samples import seeds
from tests.unit.lookup.stores import KINDS, assert_lookups_equal_scan, query_of

KEYS = {
    "long": [("k", pa.int64())],
    "text": [("k", pa.string())],
    "text-and-int": [("k", pa.string()), ("n", pa.int32())],
    "decimal": [("k", pa.decimal128(25, 2))],
    "stamp-and-flag": [("k", pa.timestamp("us")), ("n", pa.bool_())],
    "bytes": [("k", pa.binary())],
}
OPTIONS = [
    {},
    {"sequence.field": "w"},
    {"merge-engine": "partial-update"},
    {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    {"merge-engine": "first-row"},
    {"ignore-delete": "true"},
]


def value_of(kind, number):
    if pa.types.is_string(kind):
        return ["", "a", "a\0", "x" * 7, "x" * 16, "x" * 17, "ü" * 20][number % 7] + "y" * (
            number // 7
        )
    if pa.types.is_binary(kind):
        return bytes(range(255, 255 - number % 30, -1)) + bytes(number % 3)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(number - 20) * decimal.Decimal("12345678901234567890.01")
    if pa.types.is_timestamp(kind):
        return (number - 20) * 1_000_003
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    return number - 20


def rows_of(numbers, key, rng, with_dt):
    columns = {name: pa.array([value_of(kind, n) for n in numbers], kind) for name, kind in key}
    if with_dt:
        columns["dt"] = pa.array([f"2024-01-0{1 + n % 3}" for n in numbers])
    count = len(numbers)
    columns["v"] = pa.array(rng.integers(0, 100, count), mask=rng.random(count) < 0.3)
    columns["w"] = pa.array(rng.integers(0, 5, count), mask=rng.random(count) < 0.2)
    columns["s"] = pa.array(["", None, "tail"] * count)[:count]
    return pa.table(columns)


@pytest.mark.parametrize("seed", seeds(12, 36))
def test_lookups_equal_scans(seed, tmp_path):
    rng = np.random.default_rng(seed)
    key = list(KEYS.values())[seed % len(KEYS)]
    options = OPTIONS[(seed // 2) % len(OPTIONS)]
    engine = options.get("merge-engine", "deduplicate")
    with_dt = bool(rng.integers(2))
    names = [name for name, _ in key]
    fields = [*key, *([("dt", pa.string())] if with_dt else []), ("v", pa.int64()), ("w", pa.int64()), ("s", pa.string())]  # fmt: skip
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table(
        "d.t",
        pa.schema(fields),
        primary_key=[*names, *(["dt"] if with_dt else [])],
        partitioned_by=["dt"] if with_dt else [],
        options={"bucket": str(rng.integers(1, 4)), "num-sorted-run.compaction-trigger": "3",
                 "write-only": str(engine == "first-row" or bool(rng.integers(2))).lower(), "file.block-size": "2 kb",
                 "target-file-size": "3 kb", **options},
    )  # fmt: skip
    queries = {
        kind: query_of(
            table, kind, tmp_path,
            cache_page_size=str(rng.integers(1, 3) * 200),
            lookup__cache__bloom__filter__enabled=str(bool(rng.integers(2))).lower(), lookup__cache_spill_compression=["zstd", "none"][rng.integers(2)],
        )
        for kind in KINDS
    }  # fmt: skip
    absent = rows_of(range(1000, 1040), key, rng, with_dt).select(list(table.schema.primary_keys))
    if any(pa.types.is_boolean(kind) or pa.types.is_binary(kind) for _, kind in key):
        absent = None
    for _ in range(rng.integers(2, 7)):
        numbers = rng.permutation(60)[: rng.integers(1, 60)].tolist()
        if rng.random() < 0.25 and engine == "deduplicate":
            table.delete(
                rows_of(numbers, key, rng, with_dt).select(list(table.schema.primary_keys))
            )
        else:
            table.upsert(rows_of(numbers, key, rng, with_dt))
        if rng.random() < 0.4:
            table.compact(full=engine == "first-row" or bool(rng.integers(2)))
        for query in queries.values():
            query.refresh()
            assert_lookups_equal_scan(query, table, absent, seed)
    for query in queries.values():
        query.close()
    assert not list(tmp_path.rglob("*.lookup"))


def test_front_door(tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table(
        "d.t", pa.schema([("k", pa.int64()), ("v", pa.string())]), primary_key=["k"]
    )
    assert table.lookup([{"k": 1}]).to_pylist() == [{"k": 1, "v": None, "_found": False}]
    table.upsert([{"k": 1, "v": "a"}, {"k": 2, "v": None}])
    asked = pa.table({"k": [2, 1, 9, 1]})
    assert table.lookup(asked).to_pylist() == [
        {"k": 2, "v": None, "_found": True}, {"k": 1, "v": "a", "_found": True},
        {"k": 9, "v": None, "_found": False}, {"k": 1, "v": "a", "_found": True},
    ]  # fmt: skip
    assert table.lookup(asked, columns=["v"]).column_names == ["v", "_found"]
    table.delete([{"k": 1}])
    assert table.lookup(asked, columns=[]).column("_found").to_pylist() == [
        True,
        False,
        False,
        False,
    ]
    assert table.lookup([]).num_rows == 0
    assert table.lookup(pa.table({"k": pa.array([], pa.int64())})).num_rows == 0
    assert table.lookup(pa.table({"k": [2], "v": ["ignored"]})).column("v").to_pylist() == [None]


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ([{"k": None}], "without a value in key column 'k'"),
        ([{"v": "x"}], "lack columns"),
        ([{"k": "one"}], "column 'k' takes int64"),
        ([{"k": 1.5}], "column 'k' takes int64"),
        ([{"k": 1, "other": 2}], "no column 'other'"),
        (pa.table({"k": pa.array([2**63], pa.uint64())}), "do not fit int64"),
        ("1", "column 'k' takes int64"),
        (object(), "Arrow data"),
    ],
)
def test_bad_keys_are_refused_by_name(keys, match, tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table(
        "d.t", pa.schema([("k", pa.int64()), ("v", pa.string())]), primary_key=["k"]
    )
    with pytest.raises(lsm.InvalidInputError, match=match):
        table.lookup(keys)
    with pytest.raises(lsm.NotFoundError, match="nothing"):
        table.lookup([{"k": 1}], columns=["nothing"])
