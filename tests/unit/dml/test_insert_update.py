"""Insert only and update only: what is refused, what is skipped, what is counted, also under races."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind
from lsm_engine.dml import update
from lsm_engine.dml.write import FirstRowCounter
from lsm_engine.format.documents import COMMIT_IDENTIFIERS
from lsm_engine.format.snapshot import STARTED, RowCounts, row_counts_of
from lsm_engine.planning.snapshot_chain import BASE

ENGINES = [
    {},
    {"sequence.field": "v"},
    {"merge-engine": "partial-update"},
    {"merge-engine": "first-row"},
    {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    {"deletion-vectors.enabled": "true"},
]


def create(tmp_path, **options):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    schema = pa.schema([("k", pa.int64()), ("dt", pa.string()), ("v", pa.int64())])
    return catalog.create_table(
        "d.t", schema, primary_key=["k", "dt"], partitioned_by=["dt"],
        options={"bucket": "2", "commit.fsync": "false", **options},
    )  # fmt: skip


def rows_of(numbers, value=0):
    numbers = list(numbers)
    return pa.table({
        "k": pa.array(numbers, pa.int64()), "dt": ["a" if n % 2 else "b" for n in numbers],
        "v": pa.array([value] * len(numbers), pa.int64()),
    })  # fmt: skip


def keys_of(table):
    return sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist())


def merged_by(options, counts):
    """First-row changes no row that is there; of a sequence field nobody knows yet whether it does."""
    if options.get("merge-engine") == "first-row":
        return replace(counts, updated=0, skipped=counts.skipped + counts.updated)
    return replace(counts, at_most="sequence.field" in options and counts.updated > 0)


@pytest.mark.parametrize("options", ENGINES, ids=lambda o: "-".join(o.values()) or "plain")
def test_inserts_and_updates(options, tmp_path):
    table = create(tmp_path, **options)
    first = table.insert(rows_of([1, 2, 3]))
    assert first.row_counts == RowCounts(inserted=3)
    assert first.operation_name == "insert"
    with pytest.raises(lsm.InvalidInputError, match="2 rows to insert") as refused:
        table.insert(rows_of([2, 3, 4]))
    assert refused.value.kind is ErrorKind.ROW_EXISTS
    assert refused.value.facts["keys"] == [{"k": 2, "dt": "b"}, {"k": 3, "dt": "a"}]
    made = table.insert(rows_of([2, 3, 4, 4], 7), existing="skip")
    assert row_counts_of(made.properties) == RowCounts(inserted=1, skipped=3)
    assert keys_of(table) == [1, 2, 3, 4]
    with pytest.raises(lsm.InvalidInputError, match="1 row to update") as refused:
        table.update(rows_of([4, 5], 9))
    assert refused.value.kind is ErrorKind.ROW_MISSING
    made = table.update(rows_of([4, 5, 5], 9), missing="skip")
    assert row_counts_of(made.properties) == merged_by(options, RowCounts(updated=1, skipped=2))
    assert table.update(rows_of([5]), missing="skip") is None
    assert table.insert(rows_of([1]), existing="skip") is None
    assert keys_of(table) == [1, 2, 3, 4]
    assert table.verify().problems == ()


def test_deleted_keys_may_be_inserted_again(tmp_path):
    table = create(tmp_path)
    table.insert(rows_of(range(10)))
    table.delete(rows_of([4, 5]).select(["k", "dt"]))
    with pytest.raises(lsm.InvalidInputError, match="1 row to update"):
        table.update(rows_of([4]))
    table.insert(rows_of([4], 1))
    assert keys_of(table) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("bad", ["replace", ""])
def test_words_that_are_none(bad, tmp_path):
    with pytest.raises(lsm.InvalidInputError, match="'refuse' or 'skip'"):
        create(tmp_path).insert(rows_of([1]), existing=bad)


def test_rows_that_retract_are_refused(tmp_path):
    rows = rows_of([1]).append_column("_row_kind", pa.array(["-D"]))
    with pytest.raises(lsm.InvalidInputError, match="insert takes rows to write"):
        create(tmp_path).insert(rows)


def test_a_replay_is_no_second_insert(tmp_path):
    table = create(tmp_path)
    first = table.insert(rows_of([1, 2]), commit_user="job", commit_identifier=7)
    again = table.insert(rows_of([1, 2]), commit_user="job", commit_identifier=7)
    assert again.id == first.id
    with pytest.raises(lsm.InvalidInputError):
        table.insert(rows_of([1, 2]), commit_user="job", commit_identifier=8)


@pytest.mark.parametrize("meanwhile", ["upsert", "compact", "delete"])
def test_what_others_write_meanwhile_counts(meanwhile, tmp_path, monkeypatch):
    """Between the look and the commit another writer inserts the same key, or only compacts."""
    table = create(tmp_path, **{"write-only": "true"})
    table.upsert(rows_of([1]))
    table.upsert(rows_of([3]))
    other, done = lsm.open_table(table.location), []
    stage = update.stage

    def slow(*args):
        if not done:
            done.append(True)
            if meanwhile == "upsert":
                other.upsert(rows_of([7], 70))
            elif meanwhile == "compact":
                other.compact(full=True)
            else:
                other.delete(rows_of([3]).select(["k", "dt"]))
        return stage(*args)

    monkeypatch.setattr(update, "stage", slow)
    if meanwhile == "upsert":
        made = table.insert(rows_of([7, 9]), existing="skip")
        assert row_counts_of(made.properties) == RowCounts(inserted=1, skipped=1)
        assert keys_of(table) == [1, 3, 7, 9]
        values = {r["k"]: r["v"] for r in table.scan().to_arrow().to_pylist()}
        assert values[7] == 70
    elif meanwhile == "compact":
        made = table.insert(rows_of([7, 9]))
        assert row_counts_of(made.properties) == RowCounts(inserted=2)
    else:
        with pytest.raises(lsm.InvalidInputError, match="1 row to update"):
            table.update(rows_of([1, 3], 5))
        assert keys_of(table) == [1]
    assert table.verify().problems == ()


@pytest.mark.parametrize(
    ("options", "buffer"),
    [(ENGINES[0], "1 kb"), (ENGINES[1], "256 mb"), (ENGINES[3], "1 kb"), (ENGINES[5], "256 mb")],
    ids=["plain", "sequence", "first-row", "vectors"],
)
def test_upserts_are_counted(options, buffer, tmp_path):
    """Against a dictionary; a small buffer makes several files with the same keys in one commit."""
    table = create(tmp_path, **options, **{
        "write.count-changes": "true", "write-buffer-size": buffer,
        "write-buffer-spillable": "false", "num-sorted-run.compaction-trigger": "2",
    })  # fmt: skip
    rng, there = random.Random(3), set()
    may_delete = not options or "deletion-vectors.enabled" in options
    for step in range(5):
        numbers = [rng.randrange(60) for _ in range(50)]
        if may_delete and step % 3 == 2:
            made = table.delete(rows_of(numbers).select(["k", "dt"]))
            gone = there & set(numbers)
            there -= gone
            wanted = RowCounts(deleted=len(gone))
        else:
            made = table.upsert(rows_of(numbers, step))
            old = there & set(numbers)
            wanted = RowCounts(inserted=len(set(numbers) - old), updated=len(old))
            wanted = merged_by(options, wanted)
            there |= set(numbers)
        assert row_counts_of(made.properties) == wanted
        assert keys_of(table) == sorted(there)


def test_what_a_sequence_field_leaves_as_it_was_is_counted_as_unknown(tmp_path):
    """A lesser value of it changes nothing, in update, upsert and MERGE; None of a delete that is ignored."""
    catalog = lsm.open_catalog("sqlite://", warehouse=str(tmp_path / "lake"))
    table = catalog.create_table(
        "a.t", {"k": "BIGINT", "s": "INT"}, primary_key="k",
        options={"sequence.field": "s", "write.count-changes": "true", "ignore-delete": "true"},
    )  # fmt: skip
    first = table.upsert([{"k": 1, "s": 9}])
    assert row_counts_of(first.properties) == RowCounts(inserted=1)
    lesser = [{"k": 1, "s": 3}]
    for made in (
        table.update(lesser),
        table.upsert(lesser),
        table.merge(lesser).when_matched_update_all().execute(),
        table.update(set={"s": "s - 1"}),
    ):
        assert row_counts_of(made.properties) == RowCounts(updated=1, at_most=True)
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "s": 9}]
    assert table.delete([{"k": 1}]) is None
    assert table.count() == 1


def test_deletes_that_only_take_values_back_are_counted_as_updates(tmp_path):
    catalog = lsm.open_catalog("sqlite://", warehouse=str(tmp_path / "lake"))
    table = catalog.create_table(
        "a.t", {"k": "BIGINT", "s": "INT"}, primary_key="k",
        options={"merge-engine": "aggregation", "fields.s.aggregate-function": "sum",
                 "write.count-changes": "true"},
    )  # fmt: skip
    table.upsert([{"k": 1, "s": 9}])
    made = table.upsert([{"k": 1, "s": 4, "_row_kind": "-D"}])
    assert row_counts_of(made.properties) == RowCounts(updated=1)
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "s": 5}]


def test_first_rows_of_two_writers_are_counted_once(tmp_path, monkeypatch):
    table = create(tmp_path)
    counts_first_rows = FirstRowCounter.__call__
    results = []

    def overtaken(counter, base, delta):
        monkeypatch.undo()
        counted = counts_first_rows(counter, base, delta)
        results.append(lsm.open_table(table.location).upsert(rows_of([1])))
        return counted

    monkeypatch.setattr(FirstRowCounter, "__call__", overtaken)
    late = table.upsert(rows_of([1, 2]))
    assert (results[0].row_counts, late.row_counts) == (RowCounts(inserted=1), None)


def test_no_counts_unless_asked_for_and_nonsense_is_none(tmp_path):
    table = create(tmp_path)
    made = table.upsert(rows_of([1]), properties={"mine": "x"})
    assert made.row_counts == RowCounts(inserted=1)  # the first rows are new
    assert table.upsert(rows_of([1]), properties={"mine": "x"}).row_counts is None
    assert row_counts_of({"lsm.rows.inserted": "many"}) is None
    table = lsm.open_table(table.location)
    table.alter(lsm.SetOption(key="write.count-changes", value="true"))
    made = table.upsert(rows_of([1, 3]), properties={"mine": "x"})
    kept = {
        "mine": "x",
        "lsm.operation": "upsert",
        COMMIT_IDENTIFIERS: "1",
        **RowCounts(inserted=1, updated=1).properties,
    }
    assert {
        key: text for key, text in made.properties.items() if key not in (BASE, STARTED)
    } == kept
