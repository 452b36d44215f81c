"""polars and DuckDB over a table: what they hand down changes what is read, and never the answer."""

import datetime as dt
import random
import subprocess
import sys
from decimal import Decimal

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lsm_engine as lsm
from lsm_engine.read import scan, split
from lsm_engine.read.engines import ArrowDataset, ArrowScanner

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tiny", pa.int8()),
        ("number", pa.int32()),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("flag", pa.bool_()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("local", pa.timestamp("us")),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
UTC_NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
NOON = UTC_NOON.replace(tzinfo=None)


def _rows(ids, seed):
    chance = random.Random(seed)

    def one(n):
        row = {
            "tiny": chance.randint(-128, 127),
            "number": chance.choice([0, 1, n, -(2**31), 2**31 - 1]),
            "real": chance.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), float(n)]),
            "single": chance.choice([0.5, float("nan"), -1.0]),
            "flag": chance.random() < 0.5,
            "name": chance.choice(["", "a", "ab", "ä", "'", "x" * 40]),
            "raw": chance.choice([b"", b"\x00", b"\xff\x00"]),
            "day": dt.date(1969, 12, 30) + dt.timedelta(days=chance.randint(0, 4)),
            "price": Decimal(chance.randint(-300, 300)) / 100,
            "local": NOON + dt.timedelta(microseconds=chance.randint(-2, 2)),
            "instant": UTC_NOON + dt.timedelta(hours=chance.randint(-2, 2)),
            "tags": chance.choice([[], ["a", None], ["b"]]),
        }
        return {"id": n} | {k: None if chance.random() < 0.15 else v for k, v in row.items()}

    return pa.Table.from_pylist([one(n) for n in ids], schema=SCHEMA)


@pytest.fixture(params=["two runs", "replaced", "compacted", "vectors"])
def table(request, tmp_path, monkeypatch):
    if request.param == "replaced":  # merged once: later reads leave the rows out that it found
        monkeypatch.setattr(split, "_ROWS_WORTH_IT", 0)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        vectors = "true" if request.param == "vectors" else "false"
        made = catalog.create_table(
            "db.t", SCHEMA, primary_key="id", options={"deletion-vectors.enabled": vectors}
        )
        made.upsert(_rows(range(120), 1))
        made.upsert(_rows(range(60, 200, 3), 2))
        made.delete([{"id": n} for n in range(0, 200, 17)])
        if request.param == "compacted":
            made.compact(full=True)
        yield made


c = pl.col
POLARS = [
    c("id") > 100, c("id").is_between(5, 90), c("id") == 7, c("id") < 2**40, c("tiny") >= -3,
    c("tiny") == 1000, c("number") != 0, c("number").is_in([0, 1]), c("real") > 1.0, c("real") <= 1.5,
    c("real").is_nan(), c("single") < 1, c("flag"), ~c("flag"), c("flag") == False,  # noqa: E712
    c("name") == "ab", c("name") > "a", c("name").str.starts_with("a"), c("name").is_null(),
    c("name").is_not_null() & (c("id") < 50), c("raw") == b"\x00", c("day") >= dt.date(1970, 1, 1),
    c("price") > Decimal("0.5"), c("price") == 1, c("local") == NOON, c("local") < NOON,
    c("instant") >= UTC_NOON, (c("id") < 10) | (c("name") == "a"), (c("id") < 10) | (c("real") > 2),
    (c("id") < 10) & (c("real") > 2), c("tags").list.len() == 1, c("name") == c("name"),
    ~((c("id") > 9) & (c("name") == "a")), c("id") * 2 > 100, c("number").is_null() | c("flag"),
]  # fmt: skip


def _sorted(frame):
    return frame.sort("id") if "id" in frame.columns else frame


def test_a_polars_query_answers_as_on_the_rows_themselves(table):
    whole, lazy = pl.from_arrow(table.to_arrow()), table.to_polars()
    assert lazy.collect_schema() == whole.schema
    for condition in POLARS:
        found = _sorted(lazy.filter(condition).collect())
        assert found.equals(_sorted(whole.filter(condition))), condition
        names = lazy.filter(condition).select("id", "name").collect()
        assert _sorted(names).equals(_sorted(whole.filter(condition).select("id", "name"))), (
            condition
        )
        few = lazy.filter(condition).head(3).collect()
        assert few.height == min(3, found.height), condition
    assert lazy.select(pl.len()).collect().item() == whole.height
    assert lazy.head(0).collect().height == 0
    assert lazy.head(7).select("name").collect().height == 7
    grouped = lazy.group_by("flag").agg(c("id").sum()).sort("flag").collect()
    assert grouped.equals(whole.group_by("flag").agg(c("id").sum()).sort("flag"))


DUCKDB = [
    "id > 100", "id BETWEEN 5 AND 90", "7 = id", "tiny >= -3", "number <> 0", "number IN (0, 1)",
    "real > 1.0", "real <= 1.5", "isnan(real)", "single >= 0.5", "flag", "NOT flag", "name = 'ab'",
    "name > 'a'", "name LIKE 'a%'", "name IS NULL", "name IS NOT NULL AND id < 50", "raw = '\\x00'::BLOB",
    "day >= DATE '1970-01-01'", "price > 0.5", "price = 1", "local = TIMESTAMP '2024-02-29 12:00:00'",
    "instant >= TIMESTAMPTZ '2024-02-29 12:00:00+00'", "id < 10 OR name = 'a'", "id < 10 OR real > 2",
    "len(tags) = 1", "NOT (id > 9 AND name = 'a')", "id * 2 > 100",
]  # fmt: skip


def test_the_module_of_duckdb_is_a_connection_as_well(table):
    assert table.to_duckdb(duckdb).count("*").fetchone() == table.to_duckdb().count("*").fetchone()


def test_a_duckdb_query_answers_as_on_the_rows_themselves(table):
    with duckdb.connect() as connection:
        rows = table.to_arrow()  # noqa: F841 -- DuckDB finds it by its name
        lazy = table.to_duckdb(connection)
        dataset = table.to_dataset()  # noqa: F841 -- as above
        assert connection.sql("from dataset").columns == SCHEMA.names
        connection.sql("create table plain as from rows")
        plain = connection.table("plain")
        assert (lazy.columns, lazy.types) == (plain.columns, plain.types)
        for condition in DUCKDB:
            wanted = connection.sql(f"select * from plain where {condition} order by id").fetchall()
            found = lazy.filter(condition).order("id").fetchall()
            assert str(found) == str(wanted), condition  # as text: NaN differs from itself
        total = connection.sql("select count(*), sum(id) from lazy").fetchone()
        assert total == connection.sql("select count(*), sum(id) from plain").fetchone()
        assert len(connection.sql("select name from lazy limit 7").fetchall()) == 7


def test_filters_and_columns_reach_the_scan_and_what_is_compacted_is_read_as_files(
    tmp_path, monkeypatch
):
    asked = []
    original = lsm.Scan.to_batches

    def noted(scan):
        asked.append((scan._request.columns, scan._predicate))
        return original(scan)

    monkeypatch.setattr(lsm.Scan, "to_batches", noted)
    with lsm.open_catalog(tmp_path / "lake") as catalog, duckdb.connect() as connection:
        made = catalog.create_table("db.t", SCHEMA, primary_key="id")
        made.upsert(_rows(range(50), 1))
        made.upsert(_rows(range(50), 2))
        made.to_polars().filter(pl.col("id") > 40).select("name").collect()
        made.to_duckdb(connection).filter("id > 40").select("name").fetchall()
        assert [sorted(columns) for columns, _ in asked] == [["id", "name"], ["id", "name"]]
        assert all(predicate is not None for _, predicate in asked)
        asked.clear()
        made.compact(full=True)
        assert made.to_polars().filter(pl.col("id") > 40).collect().height == 9
        assert len(made.to_duckdb(connection).filter("id > 40").fetchall()) == 9
        assert asked == []
        past = made.to_polars(version=1)
        assert past.collect().height == 50
        made.alter(lsm.AddColumn("more", "INT"))  # files of an older schema are converted
        assert made.to_polars().select("more").collect().height == 50
        assert made.to_duckdb(connection, where="id < 5").aggregate("count(*)").fetchone() == (5,)


def test_a_state_is_planned_once_and_a_new_one_is_seen(tmp_path, monkeypatch):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.t", {"id": int, "v": str}, primary_key="id")
        made.upsert([{"id": k, "v": "a"} for k in range(9)])
        plans = []
        original = lsm.Scan._planned.func
        monkeypatch.setattr(
            lsm.Scan,
            "_planned",
            property(lambda scan: plans.append(1) or original(scan)),
        )
        for _ in range(3):
            assert made.to_polars().filter(pl.col("id") > 3).collect().height == 5
            assert made.to_duckdb().filter("id > 3").count("*").fetchone() == (5,)
        once = len(plans)
        assert once <= 2
        assert made.to_polars("v").collect().columns == ["v"]
        assert len(plans) > once  # other columns are another question
        made.upsert([{"id": 9, "v": "b"}])
        made.compact(full=True)
        assert made.to_polars().collect().height == made.to_duckdb().count("*").fetchone()[0] == 10
        assert made.to_polars(version=1).collect().height == 9
        made.delete(where="id < 5")
        assert made.to_polars().collect().height == 5
        made.alter(lsm.AddColumn("w", "INT"))
        assert made.to_polars().collect().columns == ["id", "v", "w"]


def test_all_rows_less_replaced_ones_are_planned_once_and_read_without_threads(
    tmp_path, monkeypatch
):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table(
            "a.t", {"id": int, "v": int, "w": int}, primary_key="id", options={"write-only": "true"}
        )
        count = 40_000
        rows = pa.table({name: pa.array(range(count)) for name in ("id", "v", "w")})
        made.upsert(rows)
        made.upsert(rows.slice(0, 10).set_column(1, "v", pa.array([-1] * 10)))
        plans = []
        planned = scan.plan_scan
        monkeypatch.setattr(scan, "plan_scan", lambda *a, **k: plans.append(1) or planned(*a, **k))
        monkeypatch.setattr(scan, "read_ahead", None)
        want = sum(range(10, count)) - 10
        for column, total in [("v", want), ("w", sum(range(count))), ("v", want)]:
            assert made.to_duckdb().aggregate(f"sum({column})").fetchone() == (total,)
            assert made.to_dataset().to_table([column]).num_rows == count
        assert len(plans) == 2  # which files there are, and which rows
        assert made.to_duckdb().filter("v < 0").count("*").fetchone() == (10,)
        made.delete([{"id": 11}])
        assert made.to_duckdb().aggregate("sum(v)").fetchone() == (want - 11,)
        assert made.to_duckdb(version=2).aggregate("sum(v)").fetchone() == (want,)
        made.alter(lsm.AddColumn("x", "INT"), lsm.DropColumn("w"))
        assert made.to_duckdb().aggregate("sum(v), count(x), count(*)").fetchone() == (want - 11, 0, count - 1)  # fmt: skip


def test_a_dataset_never_falls_through_to_what_pyarrow_would_hold(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("db.t", {"id": int}, primary_key="id")
        made.upsert([{"id": n} for n in range(4)])
        dataset = made.to_dataset()
    assert isinstance(dataset, ds.Dataset)
    public = {name for name in vars(ds.Dataset) if not name.startswith("__") or "reduce" in name}
    assert public <= vars(ArrowDataset).keys()
    (fragment,) = dataset.get_fragments(filter=ds.field("id") > 1)
    assert fragment.scanner(columns=["id"]).to_table().num_rows == fragment.count_rows() == 2
    assert dataset.filter(ds.field("id") < 3).filter(ds.field("id") > 0).count_rows() == 2
    assert dataset.sort_by([("id", "descending")])["id"].to_pylist() == [3, 2, 1, 0]
    assert dataset.take([0]).num_rows == 1
    with pytest.raises(lsm.UnsupportedError, match="to_table"):
        dataset.join(dataset, "id")


def test_a_scanner_never_falls_through_to_what_pyarrow_would_hold(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("db.t", {"id": int}, primary_key="id")
        made.upsert([{"id": n} for n in range(4)])
        scanner = made.to_dataset().scanner(columns=["id"], filter=ds.field("id") > 1)
    assert isinstance(scanner, ds.Scanner)
    ways = {"from_batches", "from_dataset", "from_fragment"}  # these make one of pyarrow's own
    public = {name for name in vars(ds.Scanner) if not name.startswith("__")} - ways
    assert public <= vars(ArrowScanner).keys()
    assert scanner.projected_schema.names == scanner.dataset_schema.names == ["id"]
    (tagged,) = scanner.scan_batches()
    for rows in (scanner.to_table(), pa.table(scanner), tagged.record_batch, scanner.take([0, 1])):
        assert rows.column("id").to_pylist() == [2, 3]
    assert (scanner.head(1).num_rows, scanner.count_rows()) == (1, 2)
    assert sum(batch.num_rows for batch in scanner.to_batches()) == 2


_ENDS_EARLY = """
import sys
import duckdb, pyarrow as pa, lsm_engine as lsm
with lsm.open_catalog(sys.argv[1]) as catalog:
    made = catalog.create_table("db.t", {"id": int, "v": float}, primary_key="id")
    for value in (1.0, 2.0):
        made.upsert(pa.table({"id": range(400_000), "v": [value] * 400_000}))
    assert len(duckdb.from_arrow(made.to_dataset()).limit(100).fetchall()) == 100
"""


def test_a_process_ends_well_after_a_query_with_a_limit(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_EARLY, str(tmp_path)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_datafusion_asks_the_dataset_and_gets_the_same(table):
    conditions = ("id = 51", "id > 150 and number <= 1", "price between -1 and 1", "flag", "raw = X'00'",
                  "name in ('a', 'ab')", "name like 'x%'", "day >= DATE '1970-01-01'", "tiny is null", "not flag")  # fmt: skip
    rows = {row["id"] for row in table.to_arrow("id").to_pylist()}
    context = datafusion.SessionContext()
    context.register_dataset("t", table.to_dataset())
    for condition in conditions:
        found = context.sql(f"select id from t where {condition}").to_pydict().get("id", [])
        assert sorted(found) == sorted(
            row
            for (row,) in duckdb.from_arrow(table.to_arrow())
            .filter(condition.replace("X'00'", r"'\x00'::blob"))
            .project("id")
            .fetchall()
        ), condition
    assert set(context.sql("select id from t").to_pydict()["id"]) == rows
    assert context.sql("select id from t limit 3").to_arrow_table().num_rows == 3


def test_a_connection_that_takes_bytes_for_text_still_gives_the_types_of_the_table(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog, duckdb.connect() as connection:
        made = catalog.create_table("db.t", {"id": int, "raw": bytes})
        made.append([{"id": 1, "raw": b"\xff"}])
        connection.execute("SET binary_as_string = true")
        assert made.to_duckdb(connection).fetchall() == [(1, b"\xff")]


NAN = float("nan")
NESTED = pa.schema(
    [("k", pa.int32()), ("s", pa.struct([("x", pa.float64()), ("t", pa.timestamp("ns"))]))]
)


@pytest.mark.parametrize("key", ["k", ()])
def test_duckdb_filters_nan_inside_of_rows_as_in_its_own_table(tmp_path, key):
    nanos = 1_700_000_000_000_000_001
    rows = pa.table(
        {
            "k": pa.array([1, 2, 3, 4], pa.int32()),
            "s": pa.array(
                [{"x": 1.0, "t": nanos}, {"x": NAN, "t": nanos + 1}, {"x": None, "t": None}, None],
                NESTED.field("s").type,
            ),
        }
    )
    with lsm.open_catalog(tmp_path / "lake") as catalog, duckdb.connect() as connection:
        made = catalog.create_table("db.t", NESTED, primary_key=key)
        (made.upsert if key else made.append)(rows)
        connection.execute("create table plain as from rows")
        stamp = f"s.t = make_timestamp_ns({nanos})"
        for condition in ("s.x <> 1", "s.x > 1", "s.x <= 1", "s.x is null", "s is null", stamp):
            wanted = connection.table("plain").filter(condition).project("k").fetchall()
            assert made.to_duckdb(connection).filter(condition).project("k").fetchall() == wanted


def test_sets_of_values_of_another_unit_or_width_are_compared_exactly(tmp_path):
    """DuckDB and polars hand them down as they have them."""
    columns = {"k": "INT", "t": "TIME(3)", "m": "TIMESTAMP(3)", "f": "FLOAT", "d": "DECIMAL(38, 2)"}
    day = UTC_NOON.replace(tzinfo=None, hour=0)
    with lsm.open_catalog(tmp_path / "lake") as catalog, duckdb.connect() as connection:
        made = catalog.create_table("db.t", columns, primary_key="k", options={"bucket": "1"})
        row = {"t": dt.time(1, 2, 3), "m": day, "f": 0.5, "d": Decimal("1.50")}
        nothing = dict.fromkeys(row)
        for rows in ([{"k": 1, **nothing}], [{"k": 1, **row}, {"k": 2, **nothing}]):
            made.upsert(pa.Table.from_pylist(rows, schema=made.to_arrow().schema))
        lazy, dataset = made.to_duckdb(connection), made.to_dataset()
        for condition in (
            "t in (TIME '01:02:03', TIME '01:02:04')",
            "m in (TIMESTAMP '2024-02-29', TIMESTAMP '2024-02-29 00:00:00.000001')",
            "f in (0.5::float, 0.1::float)",
            "d in (1.5, 2.5)",
        ):
            assert lazy.filter(condition).project("k").fetchall() == [(1,)], condition
        exact = {"f": pa.array([0.5, 0.1]), "m": pa.array([day, day.replace(microsecond=1)])}
        for name, values in exact.items():
            assert dataset.to_table(["k"], pc.field(name).isin(values))["k"].to_pylist() == [1]
            outside = dataset.to_table(["k"], ~pc.field(name).isin(values.slice(1)))
            assert outside["k"].to_pylist() == [1, 2]  # to pyarrow null is outside of a set
        days = pl.Series([day], dtype=pl.Datetime("ms")).implode()
        scanned = pl.scan_pyarrow_dataset(dataset).filter(pl.col("m").is_in(days))
        assert scanned.select("k").collect().rows() == [(1,)]


def test_a_decimal_of_38_digits_is_handed_down_by_polars_as_it_is(tmp_path):
    most = Decimal("9" * 28 + "." + "9" * 10)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("db.t", {"k": int, "d": "DECIMAL(38, 10)"}, primary_key="k")
        made.upsert([{"k": 1, "d": most}, {"k": 2, "d": most.copy_negate()}])
        made.upsert([{"k": 3, "d": most}])
        lazy = made.to_polars()
        assert sorted(lazy.filter(pl.col("d") >= most).collect()["k"]) == [1, 3]
        assert lazy.filter(pl.col("d") == most.copy_negate()).collect()["k"].to_list() == [2]


def test_polars_filters_times_in_every_layout(tmp_path):
    """On Parquet files with a TIME column it panics."""
    times = [dt.time(1, 2, 3), dt.time(23, 59, 59, 999_000), None]
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        for key in ("k", ()):
            made = catalog.create_table(
                f"db.t{len(key)}", {"k": int, "t": "TIME(3)"}, primary_key=key
            )
            rows = [{"k": at, "t": time} for at, time in enumerate(times)]
            (made.upsert if key else made.append)(rows)
            for state in ("written", "compacted"):
                if state == "compacted":
                    made.compact(full=True)
                lazy = made.to_polars()
                assert lazy.filter(pl.col("t") == times[0]).collect()["k"].to_list() == [0]
                assert lazy.filter(pl.col("t") > times[0]).collect()["k"].to_list() == [1]
                assert lazy.select("k").filter(pl.col("k") > 1).collect()["k"].to_list() == [2]


def test_directories_of_partitions_give_engines_no_values(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog, duckdb.connect() as connection:
        made = catalog.create_table("db.t", {"p": str, "k": int}, partitioned_by="p")
        made.append([{"p": p, "k": k} for k, p in enumerate(["1", "2", "3"])])
        made.append([{"p": p, "k": k} for k, p in enumerate([None, "02", "a b/c"], 3)])
        wanted = sorted(map(repr, made.to_arrow().to_pylist()))
        rows = made.to_duckdb(connection).to_arrow_table().to_pylist()
        assert sorted(map(repr, rows)) == wanted
        assert sorted(map(repr, made.to_polars().collect().to_dicts())) == wanted
        assert made.to_duckdb(connection).filter("p = '02'").fetchall() == [("02", 4)]
