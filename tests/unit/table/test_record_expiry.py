"""record-level.expire-time: rows past their time go as they are compacted, and never come back."""

import datetime
import time

import pyarrow as pa
import pytest

import lsm_engine as lsm

HOUR = 3_600_000
FIELDS = {
    "int": (pa.int32(), lambda millis: millis // 1000),
    "seconds": (pa.int64(), lambda millis: millis // 1000),
    "millis": (pa.int64(), lambda millis: millis),
    "timestamp": (
        pa.timestamp("us"),
        lambda millis: datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC).replace(
            tzinfo=None
        ),
    ),
}


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        yield catalog


def made(catalog, kind, **options):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("t", FIELDS[kind][0])])
    return catalog.create_table(
        "default.t",
        schema,
        primary_key=["k"],
        options={
            "bucket": "1",
            "write-only": "true",
            "record-level.expire-time": "1 h",
            "record-level.time-field": "t",
            **options,
        },
    )


def put(table, kind, *rows):
    """Upsert rows: (key, value, hours before now or None)."""
    make, now = FIELDS[kind][1], time.time() * 1000
    times = [None if age is None else make(int(now - age * HOUR)) for _, _, age in rows]
    arrays = [[key for key, _, _ in rows], [value for _, value, _ in rows], times]
    table.upsert(pa.table(arrays, schema=table.schema.arrow.remove_metadata()))


def values(table):
    read = table.scan().to_arrow().to_pydict()
    return dict(zip(read["k"], read["v"], strict=True))


@pytest.mark.parametrize("kind", FIELDS)
def test_rows_past_their_time_go_with_a_full_compaction(catalog, kind):
    table = made(catalog, kind)
    put(table, kind, (1, "old", 2), (2, "new", 0.5), (3, "timeless", None))
    assert len(values(table)) == 3
    table.compact(full=True)
    assert values(table) == {2: "new", 3: "timeless"}


def test_an_expired_row_hides_what_lies_below_it(catalog):
    table = made(catalog, "millis", **{"num-sorted-run.compaction-trigger": "2"})
    put(table, "millis", *((key, "below" * 100, 0.1) for key in range(500)))
    table.compact(full=True)
    put(table, "millis", (1, "old", 2), (2, "new", 0))
    put(table, "millis", (3, "newer", 0))
    table.compact()
    assert any(0 < run.level < 5 for run in table.tree()[0].runs)
    read = values(table)
    assert 1 not in read
    assert (read[2], read[3], len(read)) == ("new", "newer", 499)


def test_files_on_the_last_level_are_rewritten_once_rows_expire(catalog):
    table = made(catalog, "millis", **{"record-level.expire-time": "10 h"})
    put(table, "millis", (1, "new", 0), (3, "old", 5))
    table.compact(full=True)
    assert table.compact(full=True) is None
    table.alter(lsm.SetOption(key="record-level.expire-time", value="1 h"))
    assert table.compact(full=True) is not None
    assert values(table) == {1: "new"}
    assert table.compact(full=True) is None


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_engines_that_compute_drop_a_row_only_when_nothing_is_below(catalog, engine):
    table = made(
        catalog, "millis", **{"merge-engine": engine, "num-sorted-run.compaction-trigger": "2"}
    )
    put(table, "millis", *((key, "below" * 100, 0.1) for key in range(500)))
    table.compact(full=True)
    put(table, "millis", (1, "old", 2))
    put(table, "millis", (3, "newer", 0))
    table.compact()
    assert values(table)[1] == "old"
    table.compact(full=True)
    assert 1 not in values(table)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"record-level.time-field": "missing"}, "missing"),
        ({"record-level.time-field": "v"}, "'record-level.time-field'"),
    ],
)
def test_times_that_cannot_be_told_are_refused(catalog, options, named):
    with pytest.raises(lsm.InvalidOptionError, match=named):
        made(catalog, "millis", **options)


def test_an_age_without_a_time_is_refused(catalog):
    with pytest.raises(lsm.InvalidOptionError, match=r"record-level\.expire-time"):
        catalog.create_table(
            "default.t",
            pa.schema([("k", pa.int64())]),
            primary_key=["k"],
            options={"record-level.expire-time": "1 h"},
        )
