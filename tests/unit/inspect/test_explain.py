"""Explain: the versions of a key, the life of a file, what a retention would do, and where debt goes."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lsm_engine as lsm

COLUMNS = pa.schema(
    [("dt", pa.string()), ("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())]
)


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as opened:
        yield opened


def made(catalog, name="db.t", **options) -> Any:
    return catalog.create_table(
        name,
        COLUMNS,
        primary_key=["dt", "id"],
        partitioned_by=["dt"],
        options={"bucket": 2, **{key.replace("_", "-"): text for key, text in options.items()}},
    )


def row(key, a=None, b=None, dt="x", **more) -> dict[str, Any]:
    return {"dt": dt, "id": key, "a": a, "b": b, **more}


def test_every_version_of_a_key_with_who_wrote_it_and_who_wins(catalog) -> None:
    table = made(catalog)
    table.upsert([row(1, 10), row(2, 20), row(1, 99, dt="y")])
    table.upsert([row(1, 11), row(3, 30)])
    table.delete([row(2)])
    table.upsert([row(1, 12)])

    told = table.explain_key({"dt": "x", "id": 1})
    assert told.versions["a"].to_pylist() == [10, 11, 12]
    assert told.versions["_snapshot_id"].to_pylist() == [1, 2, 4]
    assert told.versions["_file_snapshot_id"].to_pylist() == [1, 2, 4]
    assert told.versions["_partition"].to_pylist() == ["dt=x"] * 3
    assert told.versions["_verdict"].to_pylist() == [
        "replaced by version 3", "replaced by version 3", "is the row",
    ]  # fmt: skip
    assert told.row == row(1, 12)
    assert "greater sequence number" in told.rule
    assert "snapshot 4" in str(told)

    gone = table.explain_key({"dt": "x", "id": 2})
    assert gone.row is None
    assert gone.versions["_row_kind"].to_pylist() == ["+I", "-D"]
    assert gone.verdict == "version 2 takes the key away"

    assert table.explain_key({"dt": "x", "id": 2}, snapshot_id=2).row == row(2, 20)
    never = table.explain_key({"dt": "z", "id": 1})
    assert never.row is None
    assert never.versions.num_rows == 0
    assert "not there" in never.verdict


def test_a_merged_version_keeps_its_number_and_so_its_commit(catalog) -> None:
    table = made(catalog)
    table.upsert([row(1, 10), row(2, 20)])
    table.upsert([row(1, 11)])
    compacted = table.compact(full=True)
    table.upsert([row(2, 21)])
    told = table.explain_key({"dt": "x", "id": 2})
    first = told.versions.to_pylist()[0]
    assert (first["_snapshot_id"], first["_file_snapshot_id"]) == (1, compacted.id)
    assert first["_level"] > 0
    assert told.row == row(2, 21)


def test_the_greatest_sequence_field_wins_whatever_came_last(catalog) -> None:
    table = made(catalog, **{"sequence.field": "a"})
    table.upsert([row(1, 10, "new")])
    table.upsert([row(1, 3, "old")])
    told = table.explain_key({"dt": "x", "id": 1})
    assert told.versions["b"].to_pylist() == ["old", "new"]
    assert told.row["b"] == "new"
    assert "a greater a is newer" in told.rule


def test_partial_rows_say_which_column_each_settles(catalog) -> None:
    table = made(catalog, merge_engine="partial-update")
    table.upsert([row(1, 10, "one")])
    table.upsert([row(1, None, "two")])
    table.upsert([row(1, 30, None)])
    told = table.explain_key({"dt": "x", "id": 1})
    assert told.versions["_gives"].to_pylist() == [[], ["b"], ["a"]]
    assert told.row == row(1, 30, "two")
    assert told.column_rules == dict.fromkeys("ab", "the newest value that is not null")


def test_sums_name_the_function_of_each_column(catalog) -> None:
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    table = made(catalog, **options)
    table.upsert([row(1, 10, "one")])
    table.upsert([row(1, 5, "one")])
    told = table.explain_key({"dt": "x", "id": 1})
    assert told.row == row(1, 15, "one")
    assert told.column_rules == {"a": "sum", "b": "last_non_null_value"}
    assert told.versions["_gives"].to_pylist() == [["b"], ["a"]]


def test_a_first_row_waits_on_level_0_until_it_is_compacted(catalog) -> None:
    table = made(catalog, merge_engine="first-row")
    table.upsert([row(1, 10)])
    told = table.explain_key({"dt": "x", "id": 1})
    expected = table.scan().to_arrow().to_pylist()
    assert [told.row] == expected if told.row else expected == []


def test_keys_of_floats_and_wrong_keys(catalog) -> None:
    columns = pa.schema([("f", pa.float64()), ("v", pa.int64())])
    table = catalog.create_table("db.floats", columns, primary_key=["f"])
    table.upsert([{"f": math.nan, "v": 1}, {"f": 0.0, "v": 2}])
    table.upsert([{"f": math.nan, "v": 3}, {"f": -0.0, "v": 4}])
    assert table.explain_key({"f": math.nan}).versions["v"].to_pylist() == [1, 3]
    zero = table.explain_key({"f": 0.0})
    assert zero.row is not None
    assert (
        zero.row["v"] == table.scan(where=pa.compute.field("f") == 0.0).to_arrow()["v"][0].as_py()
    )
    with pytest.raises(lsm.InvalidInputError, match="f"):
        table.explain_key({})
    with pytest.raises(lsm.InvalidInputError):
        table.explain_key({"f": None})


def test_a_deletion_vector_takes_versions_out(catalog) -> None:
    table = made(catalog, **{"deletion-vectors.enabled": "true"})
    table.upsert([row(1, 10), row(2, 20)])
    table.compact(full=True)
    table.upsert([row(1, 11)])
    table.delete([row(2)])
    table.compact()
    for key in (1, 2):
        told = table.explain_key({"dt": "x", "id": key})
        expected = [each for each in table.scan().to_arrow().to_pylist() if each["id"] == key]
        assert ([] if told.row is None else [told.row]) == expected
    verdicts = table.explain_key({"dt": "x", "id": 1}).versions["_verdict"].to_pylist()
    assert verdicts == ["is the row", "a deletion vector has taken it out"]


ENGINES = st.sampled_from(["deduplicate", "partial-update", "aggregation", "first-row"])
STEPS = st.lists(
    st.one_of(
        st.lists(
            st.builds(
                row, st.integers(0, 3), st.none() | st.integers(0, 5), st.none() | st.text("pq")
            ),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from(["compact", "full"]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=20)
@given(engine=ENGINES, steps=STEPS)
def test_an_explanation_ends_in_the_row_that_a_scan_gives(tmp_path_factory, engine, steps) -> None:
    root = tmp_path_factory.mktemp("explained")
    with lsm.open_catalog("sqlite://", warehouse=str(root)) as catalog:
        table = made(catalog, merge_engine=engine)
        for step in steps:
            if isinstance(step, str):
                table.compact(full=step == "full")
            else:
                table.upsert(pa.Table.from_pylist(step, schema=COLUMNS))
        rows = {each["id"]: each for each in table.scan().to_arrow().to_pylist()}
        for key in range(4):
            assert table.explain_key({"dt": "x", "id": key}).row == rows.get(key)


def test_the_life_of_a_file(catalog) -> None:
    table = made(catalog)
    table.upsert([row(1, 10)])
    table.upsert([row(1, 11)])
    first = table.system("files", snapshot_id=1)["file_path"][0].as_py()
    table.create_tag("kept", 1)
    table.compact(full=True)

    told = table.explain_file(first)
    assert [(s.level, s.added_by.snapshot_id, s.deleted_by.snapshot_id) for s in told.stages] == [
        (0, 1, 3)
    ]
    merged = table.system("files")["file_path"][0].as_py().rpartition("/")[2]
    assert told.became == (merged,)
    assert table.explain_file(merged).made_from == tuple(
        sorted(
            path.rpartition("/")[2]
            for path in table.system("files", snapshot_id=2)["file_path"].to_pylist()
        )
    )
    assert (told.snapshots, told.tags, told.is_live, told.is_stored) == (
        (1, 2),
        ("kept",),
        False,
        True,
    )
    assert told.pinned_by == ("snapshots 1-2", "tag 'kept'")

    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 ms")
    told = table.explain_file(first)
    assert told.pinned_by == ("tag 'kept'",)
    assert told.is_stored
    table.delete_tag("kept")
    told = table.explain_file(first)
    assert (told.pinned_by, told.is_stored) == ((), False)
    assert told.verdict.startswith("gone")
    with pytest.raises(lsm.NotFoundError, match="no snapshot, tag or branch"):
        table.explain_file("data-nobody-0.parquet")
    assert table.explain_file(merged).is_live


def test_a_simulated_retention_is_what_expiry_then_does(catalog) -> None:
    table = made(catalog)
    for at in range(8):
        table.upsert([row(1, at), row(2, at)])
        table.compact(full=True)
    table.create_tag("pin", 4)
    wanted = {"retain_min": 1, "retain_max": 3}
    told = table.simulate_retention(**wanted)
    assert told.tags == ("pin",)
    pin = next(each for each in told.pins if each.name == "tag 'pin'")
    assert {each.name for each in told.pins} == {"tag 'pin'", "snapshots"}
    assert pin.only_file_count == pin.file_count > 0
    done = table.expire_snapshots(**wanted)
    assert told.expired == done.snapshot_ids
    assert told.plan.data_files == done.plan.data_files
    assert told.readable == tuple(snapshot.id for snapshot in table.snapshots())
    again = table.simulate_retention(**wanted)
    assert again.expired == ()
    assert "would free: 0 files" in str(again)


def test_time_passes_in_a_simulation_and_nowhere_else(catalog) -> None:
    table = made(catalog, **{"snapshot.time-retained": "1 d", "snapshot.num-retained.min": 1})
    for at in range(3):
        table.upsert([row(1, at)])
    assert table.simulate_retention().expired == ()
    assert table.simulate_retention(later="2 d").expired == (1, 2)
    assert len(table.snapshots()) == 3
    assert table.system("snapshots").num_rows == 3


def test_debt_is_foretold_from_the_pace_of_writes(catalog) -> None:
    table = made(catalog, **{"num-sorted-run.compaction-trigger": 50})
    assert table.forecast() == []
    for at in range(4):
        table.upsert([row(1, at)])
    (one,) = table.forecast()
    assert one.read_amplification == 4
    assert one.runs_per_hour > 0
    assert 0 < one.due_in_millis < one.stops_in_millis
    assert "without a compaction" in one.reason


def test_a_branch_pins_what_main_has_let_go(catalog) -> None:
    table = made(catalog)
    table.upsert([row(1, 10)])
    table.create_tag("fork")
    (path,) = table.system("files")["file_path"].to_pylist()
    table.create_branch("work", tag="fork")
    table.delete_tag("fork")
    table.upsert([row(1, 11)])
    table.compact(full=True)
    wanted = {"retain_max": 1, "older_than": "0 ms"}
    assert any("branch 'work'" in pin.name for pin in table.simulate_retention(**wanted).pins)
    table.expire_snapshots(**wanted)
    # The snapshots that took the file away may have expired as well.
    for at in range(12, 14):
        table.upsert([row(1, at)])
        table.compact(full=True)
    table.expire_snapshots(retain_min=1, everything=True, **wanted)
    assert len(table.snapshots()) == 1
    pins = table.simulate_retention(**wanted).pins
    assert {pin.name for pin in pins} == {
        "snapshots of branch 'work'",
        "tag 'fork' of branch 'work'",
    }
    assert all(pin.file_count == 1 and pin.size_bytes > 0 for pin in pins)
    told = table.explain_file(path)
    assert told.branches == ("work",)
    assert told.pinned_by == ("branch 'work'",)
    assert told.is_stored
