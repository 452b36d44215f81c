"""Keys looked up and located by Spark say what the same verbs say in one process."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.lookup.locate import locate_rows
from lsm_engine.spark import locate_dataframe, lookup_join
from lsm_engine.spark.lookups import KeyRouting, key_routing
from tests.spark.rows import ROWS, row, rows

pytestmark = [pytest.mark.slow, pytest.mark.spark]
SIMPLE = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int64())])


def listed(frame):
    return sorted((tuple(r) for r in frame.collect()), key=str)


def frame_of(spark, table):
    return spark.createDataFrame(table).repartition(3)


def test_a_lookup_join_equals_lookup(spark, new_table):
    table = new_table("joined")
    table.upsert(rows(0, 200))
    table.upsert(rows(100, 50, "newer"))
    table.delete(rows(10, 5).select(["id", "day"]))
    asked = pa.Table.from_pylist(
        [{"id": n, "day": row(n, "")["day"], "mark": f"m{n}"} for n in [*range(5, 30), 120, 500, 7]]
        + [{"id": None, "day": None, "mark": "none"}]
    )
    frame = frame_of(spark, asked)
    got = lookup_join(frame, table, columns=["note", "small"])
    assert got.columns == ["id", "day", "mark", "note", "small"]
    valid = asked.filter(pa.compute.is_valid(asked["id"]))
    found = table.lookup(valid.select(["id", "day"]), ["note", "small"])
    wanted = [
        (*(a[name] for name in ("id", "day", "mark")), f["note"], f["small"])
        for a, f in zip(valid.to_pylist(), found.to_pylist(), strict=True)
    ] + [(None, None, "none", None, None)]
    assert listed(got) == sorted(wanted, key=str)
    inner = lookup_join(frame, table, columns=["note"], how="inner")
    there = [w for w, f in zip(wanted, found["_found"].to_pylist(), strict=False) if f]
    assert sorted(r["mark"] for r in inner.collect()) == sorted(w[2] for w in there)
    everything = lookup_join(frame.select("id", "day"), table)
    assert set(everything.columns) == set(ROWS.names)


def test_keys_of_other_names_and_an_empty_table(spark, new_table):
    table = new_table("named", schema=SIMPLE, partitioned_by=())
    frame = spark.createDataFrame(pa.table({"order": [1, 2, 2], "v": [7, 8, 9]}))
    got = lookup_join(frame, table, on={"id": "order"}, columns=["day"])
    assert listed(got) == [(1, 7, None), (2, 8, None), (2, 9, None)]
    table.upsert(pa.table({"id": [2], "day": ["x"], "v": [0]}))
    got = lookup_join(frame, table, on=["order"], columns=["day"])
    assert listed(got) == [(1, 7, None), (2, 8, "x"), (2, 9, "x")]
    table.create_tag("before")
    table.upsert(pa.table({"id": [1, 2], "day": ["y", "y"], "v": [0, 0]}))
    for at in ({"snapshot_id": 1}, {"tag": "before"}):
        then = lookup_join(frame, table, on=["order"], columns=["day"], **at)
        assert listed(then) == listed(got)
    with pytest.raises(lsm.NotFoundError):
        lookup_join(frame, table, on=["order"], columns=["day"], snapshot_id=9)


def test_a_key_that_many_rows_share_is_merged_once(spark, new_table):
    """Each of a key's versions counts once in a sum, however many rows are joined with it."""
    options = {"merge_engine": "aggregation", "write_only": "true"}
    options["fields.v.aggregate-function"] = "sum"
    table = new_table("summed", schema=SIMPLE, partitioned_by=(), **options)
    for value in (1, 2, 3):
        table.upsert(pa.table({"id": [7], "day": ["x"], "v": [value]}))
    frame = spark.createDataFrame(pa.table({"id": [7] * 5, "mark": list(range(5))}))
    got = lookup_join(frame, table, columns=["v"])
    assert listed(got) == [(7, mark, 6) for mark in range(5)]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"on": ["order", "v"]}, "whole primary key"),
        ({"on": {"id": "nothing"}}, "lacks key columns"),
        ({"on": ["order"]}, "both have these columns"),
        ({"on": ["order"], "columns": ["w"]}, "no column 'w'"),
        ({"on": ["text"], "columns": ["day"]}, "'id' takes int64"),
        ({"on": ["order"], "columns": ["day"], "how": "outer"}, "'left' or 'inner'"),
    ],
)
def test_bad_joins_are_refused_before_a_job(options, match, spark, new_table):
    table = new_table("refused", schema=SIMPLE, partitioned_by=())
    frame = spark.createDataFrame(pa.table({"order": [1], "v": [7], "text": ["a"]}))
    with pytest.raises((lsm.InvalidInputError, lsm.NotFoundError), match=match):
        lookup_join(frame, table, **options)


@pytest.mark.parametrize("kind", ["bucket", "bloom", "global-simple"])
@pytest.mark.parametrize("cut", ["true", "false"])
def test_locating_equals_locate(kind, cut, spark, new_table):
    table = new_table(
        f"located-{kind}-{cut}".replace("-", "_"),
        schema=SIMPLE,
        partitioned_by=(),
        **{"index.type": kind, "write_only": "true", "bloom.index.bucketized.checking": cut},
    )
    check_located(table, spark)


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_locating_where_versions_have_to_be_merged(bucket, spark, tmp_path):
    """Rows that came later but are older by their sequence replace nothing, in any task."""
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/s.db", warehouse=str(tmp_path / "s"))
    table = catalog.create_table(
        "d.t", SIMPLE, primary_key=["id", "day"], partitioned_by=["day"],
        options={"bucket": bucket, "index.type": "bloom", "sequence.field": "v"},
    )  # fmt: skip
    for step in range(3):
        numbers = list(range(step * 10, step * 10 + 30))
        days = [f"d{n % 3}" for n in numbers]
        table.upsert(pa.table({"id": numbers, "day": days, "v": [9 - step] * 30}))
    gone = pa.table({"id": [1, 2, 25], "day": ["d1", "d2", "d1"], "v": [9, 0, 9]})
    table.delete(gone)
    asked = pa.table({"id": list(range(60)), "day": [f"d{n % 3}" for n in range(60)]})
    got = locate_dataframe(table, frame_of(spark, asked)).collect()
    wanted = table.locate(asked).to_pylist()
    assert {r["id"]: (r["_action"], r["_file_name"]) for r in got} == {
        n: (one["action"], one["file_name"]) for n, one in enumerate(wanted)
    }
    missing = [n for n, one in enumerate(wanted) if one["action"] == "insert"]
    assert missing == [1, 25, *range(50, 60)]


def test_locating_moves(spark, tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/m.db", warehouse=str(tmp_path / "m"))
    table = catalog.create_table(
        "d.t", SIMPLE, primary_key=["id", "day"], partitioned_by=["day"],
        options={"bucket": "2", "index.type": "global-bloom", "write-only": "true"},
    )  # fmt: skip
    check_located(table, spark)


def check_located(table, spark):
    def some(numbers, day=0):
        days = [f"d{(n + day) % 3}" for n in numbers]
        return pa.table({"id": pa.array(numbers, pa.int64()), "day": days, "v": numbers})

    asked = pa.concat_tables([some(range(0, 90, 2)), some(range(5)), some(range(20), day=1)])
    frame = frame_of(spark, asked)
    assert {r["_action"] for r in locate_dataframe(table, frame).collect()} == {"insert"}
    for step in range(6):
        table.upsert(some(range(step * 10, step * 10 + 30), day=step % 2))
    table.delete(some(range(12, 16)).select(list(table.schema.primary_keys)))
    got = [r.asDict() for r in locate_dataframe(table, frame).collect()]
    wanted = table.locate(asked).to_pylist()
    merged = [
        {**a, **{f"_{name}": value for name, value in w.items()}}
        for a, w in zip(asked.to_pylist(), wanted, strict=True)
    ]
    assert sorted(got, key=str) == sorted(merged, key=str)
    assert {w["action"] for w in wanted} >= {"insert", "update"}


@pytest.mark.parametrize("key", [["id", "day"], ["id"]], ids=["dynamic", "cross-partition"])
def test_keys_without_a_computed_bucket(key, spark, tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/b.db", warehouse=str(tmp_path / "b"))
    table = catalog.create_table(
        "d.t", SIMPLE, primary_key=key, partitioned_by=["day"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "20"},
    )  # fmt: skip
    for step in range(3):
        numbers = list(range(step * 20, step * 20 + 50))
        days = [f"d{(n + step) % 3}" for n in numbers]
        table.upsert(pa.table({"id": numbers, "day": days, "v": [step] * len(numbers)}))
    asked = pa.table({"id": list(range(0, 120, 3)), "day": ["d1"] * 40, "mark": list(range(40))})
    frame = frame_of(spark, asked)
    got = lookup_join(frame, table, columns=["v"])
    found = table.lookup(asked.select(key), ["v"])
    wanted = zip(
        *(asked[n].to_pylist() for n in asked.schema.names), found["v"].to_pylist(), strict=True
    )
    assert listed(got) == sorted(wanted, key=str)
    got = [r.asDict() for r in locate_dataframe(table, frame.drop("mark")).collect()]
    located = table.locate(asked.drop_columns("mark")).to_pylist()
    wanted = {n: one["action"] for n, one in zip(asked["id"].to_pylist(), located, strict=True)}
    assert {r["id"]: r["_action"] for r in got} == wanted
    assert ("move" in wanted.values()) == ("day" not in key)
    tagged = locate_rows(table.session, asked.drop_columns("mark"), table.latest_snapshot())
    assert tagged.is_there.tolist() == [action != "insert" for action in wanted.values()]


def test_every_key_has_exactly_one_home(new_table):
    """And keys of a bucket that is cut go to all of its tasks."""
    table = new_table("homes", schema=SIMPLE, partitioned_by=())
    keys = pa.RecordBatch.from_pydict(
        {"id": list(range(1000))}, schema=pa.schema([("id", pa.int64())])
    )
    routing = key_routing(table.schema, {b"\0\0\0\0": 3}, [], [])
    assert isinstance(routing, KeyRouting)
    numbers = sorted(n for _, rows in routing.route(keys) for n in rows.tolist())
    assert numbers == list(range(1000))


def test_locate_refuses_rows_that_have_a_column_it_adds(spark, new_table):
    table = new_table("taken", schema=SIMPLE, partitioned_by=())
    for name in ("_action", "_Snapshot_ID", "_there", "_there_id"):
        frame = spark.createDataFrame(pa.table({"id": [1], name: [2]}))
        with pytest.raises(lsm.InvalidInputError, match=name):
            locate_dataframe(table, frame)
