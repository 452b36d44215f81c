"""Another number of buckets: the same rows, each where readers and writers will look for it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.compact import rescale
from lsm_engine.planning.buckets import source_buckets
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

COLUMNS = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def rows(first: int, count: int, value: int) -> pa.Table:
    keys = np.arange(first, first + count)
    parts = pa.array([f"p{key % 2}" for key in keys.tolist()])
    return pa.table([parts, pa.array(keys), pa.array(np.full(count, value))], schema=COLUMNS)


def created(catalog: lsm.Catalog, **options: str) -> lsm.Table:
    return catalog.create_table(
        "db.t", COLUMNS, primary_key=["p", "k"], partitioned_by=["p"],
        options={"bucket": "2", **options},
    )  # fmt: skip


def state(table: lsm.Table) -> pa.Table:
    return table.scan().to_arrow().sort_by([("p", "ascending"), ("k", "ascending")])


@given(
    hash_value=st.integers(-(2**31), 2**31 - 1),
    old=st.integers(1, 60),
    new=st.integers(1, 60),
)
def test_a_new_bucket_reads_every_old_one_that_it_needs(
    hash_value: int, old: int, new: int
) -> None:
    where = abs(hash_value) % new
    assert abs(hash_value) % old in source_buckets(where, old_total=old, new_total=new)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge-engine": "partial-update"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        {"merge-engine": "first-row"},
        {"sequence.field": "v"},
        {"file.format": "avro"},
    ],
    ids=lambda options: "-".join(options.values()) or "deduplicate",
)
def test_rows_stay_and_lie_where_they_are_looked_for(
    catalog: lsm.Catalog, options: dict[str, str]
) -> None:
    table = created(catalog, **options)
    for turn in range(4):
        table.upsert(rows(turn * 30, 100, turn))
    if not options:
        table.delete(rows(0, 25, 0).select(["p", "k"]))
    before = state(table)
    for count in (5, 1, 3):
        made = table.rescale(count)
        assert made is not None
        assert made.commit_kind is lsm.CommitKind.OVERWRITE
        assert table.options.texts["bucket"] == str(count)
        assert state(table).equals(before)
        key = {"p": "p1", "k": 61}
        assert table.lookup([key]).column("_found").to_pylist() == [True]
        assert table.scan(where=(pc.field("k") == 61)).count() == 1
        assert table.rescale(count) is None
        if options.get("file.format") != "avro":
            check_invariants(StoredTable(table.session.file_io))
    assert table.verify().is_clean
    table.upsert(rows(500, 20, 9))
    assert len(state(table)) == len(before) + 20


def totals(table: lsm.Table) -> dict[str, int]:
    """The number of buckets of each partition, by its files."""
    latest = table.session.snapshots.latest()
    assert latest is not None
    path = table.session.context().partition_path
    return {
        path(entry.partition): entry.total_buckets for entry in table.session.live_entries(latest)
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
        {"merge-engine": "first-row", "changelog-producer": "lookup"},
        {"changelog-producer": "input", "write.skip-unchanged": "true"},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_partitions_left_out_are_read_and_written_by_their_own_number(
    catalog: lsm.Catalog, options: dict[str, str]
) -> None:
    table = created(catalog, **options)
    table.upsert(rows(0, 100, 0))
    table.rescale(4, [{"p": "p0"}])
    assert totals(table) == {"p=p0": 4, "p=p1": 2}
    for turn in (1, 2):
        table.upsert(rows(10, 20, turn))
        for key in range(0, 40, 3):
            assert table.scan(where=pc.field("k") == key).count() == 1
            found = table.lookup([{"p": f"p{key % 2}", "k": key}])
            assert found.column("_found").to_pylist() == [True]
    first = options.get("merge-engine") == "first-row"
    kept = [0] * 100 if first else [0] * 10 + [2] * 20 + [0] * 70
    assert dict(zip(range(100), kept, strict=True)) == {
        row["k"]: row["v"] for row in state(table).to_pylist()
    }
    table.compact(full=True)
    if not first:
        table.delete(rows(0, 10, 0).select(["p", "k"]))
    table.upsert(rows(200, 10, 3))
    assert totals(table) == {"p=p0": 4, "p=p1": 2}
    assert table.verify(deep=True).is_clean
    assert table.rescale(4) is not None
    assert totals(table) == {"p=p0": 4, "p=p1": 4}
    table.upsert(rows(0, 10, 1))
    assert table.scan().count() == 110
    check_invariants(StoredTable(table.session.file_io))


def test_a_table_that_was_opened_before_a_rescale_writes_where_rows_are(
    catalog: lsm.Catalog,
) -> None:
    table = created(catalog)
    table.upsert(rows(0, 40, 0))
    other = lsm.open_table(table.location)
    table.rescale(5)
    other.upsert(rows(0, 40, 1))
    other.upsert(pa.table([["p9"], [900], [9]], schema=COLUMNS))
    assert state(table)["v"].to_pylist() == [1] * 40 + [9]
    assert totals(table) == {"p=p0": 5, "p=p1": 5, "p=p9": 2}
    assert table.verify(deep=True).is_clean


def test_a_new_partition_has_the_number_of_the_option(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(0, 20, 0))
    table.rescale(4, [{"p": "p0"}])
    table.upsert(pa.table([["p9"], [900], [9]], schema=COLUMNS))
    assert totals(table) == {"p=p0": 4, "p=p1": 2, "p=p9": 4}


def test_doctor_names_partitions_with_another_number_than_the_option(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(0, 20, 0))
    assert lsm.doctor(table).is_healthy
    table.rescale(3, [{"p": "p0"}])
    for depth in ("shallow", "whole"):
        (finding,) = [
            one for one in lsm.doctor(table, depth=depth).findings if one.kind == "buckets"
        ]
        assert "1 of 2 partitions has another number of buckets" in finding.what
        assert finding.command == ("rescale", finding.table, "3")
    table.rescale(3)
    assert not [one for one in lsm.doctor(table).findings if one.kind == "buckets"]


def test_a_rescale_that_gives_up_leaves_the_option_as_it_was(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))
    other = lsm.open_table(table.location)
    turns = []
    real = rescale.propose

    def commit(*args: object, **more: object) -> object:
        turns.append(other.upsert(rows(10 * len(turns), 10, 1)))
        return real(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(rescale, "propose", commit)
        with pytest.raises(lsm.CommitConflictError):
            table.rescale(3)
    assert len(turns) == 5
    assert table.options.texts["bucket"] == "2"
    table = lsm.open_table(table.location)
    assert table.schema.id == 0
    table.upsert(rows(0, 100, 2))
    assert table.rescale(3) is not None
    assert state(table)["v"].to_pylist() == [2] * 100


NUMBERED = {"commit_user": "the-job", "commit_identifier": 7}


def test_a_replay_publishes_the_option_that_the_first_try_did_not(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))

    def broken(*_: object, **__: object) -> None:
        raise lsm.StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rescale, "_published", broken)
        with pytest.raises(lsm.StorageError):
            table.rescale(3, **NUMBERED)
    table = lsm.open_table(table.location)
    assert table.options.texts["bucket"] == "2"
    table.upsert(rows(0, 50, 1))
    made = table.rescale(3, **NUMBERED)
    assert made is not None
    assert made.commit_kind is lsm.CommitKind.OVERWRITE
    assert table.options.texts["bucket"] == "3"
    assert lsm.open_table(table.location).options.texts["bucket"] == "3"
    assert state(table)["v"].to_pylist() == ([1] * 25 + [0] * 25) * 2


def test_a_replay_leaves_the_option_where_others_have_rescaled_since(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))
    with monkeypatch.context() as patch:
        patch.setattr(rescale, "_published", lambda session, *_: session.schema)
        table.rescale(3, **NUMBERED)
    lsm.open_table(table.location).rescale(8, [{"p": "p1"}])
    table = lsm.open_table(table.location)
    table.rescale(3, **NUMBERED)
    assert table.options.texts["bucket"] == "8"
    assert totals(table) == {"p=p0": 3, "p=p1": 8}


def test_a_rescale_that_is_rolled_back_before_its_option_is_a_conflict(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))
    other = lsm.open_table(table.location)
    real = rescale.propose

    def commit(*args: object, **more: object) -> object:
        made = real(*args, **more)
        other.rollback_to(1)
        return made

    monkeypatch.setattr(rescale, "propose", commit)
    with pytest.raises(lsm.CommitConflictError, match="rolled back"):
        table.rescale(3)
    assert lsm.open_table(table.location).options.texts["bucket"] == "2"
    table.upsert(rows(0, 100, 1))
    assert totals(table) == {"p=p0": 2, "p=p1": 2}


def test_an_overwrite_takes_the_new_number_too(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))
    table.rescale(4, [{"p": "p0"}])
    table.overwrite(rows(0, 10, 1).filter(pc.field("p") == "p1"), {"p": "p1"})
    table.upsert(rows(0, 10, 2))
    assert table.scan().count() == 55
    check_invariants(StoredTable(table.session.file_io))


def test_a_partition_that_was_emptied_takes_rows_in_the_new_number(catalog: lsm.Catalog) -> None:
    """It has no file to rescale: what its files were written for once does not count."""
    table = created(catalog)
    table.upsert(rows(0, 20, 1))
    table.overwrite([], {"p": "p0"})
    table.rescale(3)
    table.upsert(rows(0, 20, 2))
    assert state(table)["v"].to_pylist() == [2] * 20
    assert table.rescale(3) is None


def test_rows_of_others_are_a_conflict_and_it_starts_again(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))
    other = lsm.open_table(table.location)
    acts = [lambda: other.upsert(rows(90, 30, 1)), lambda: other.compact(full=True)]
    real = rescale.propose

    def commit(*args: object, **more: object) -> object:
        if acts:
            acts.pop(0)()
        return real(*args, **more)

    monkeypatch.setattr(rescale, "propose", commit)
    assert table.rescale(3) is not None
    assert not acts
    assert table.scan().count() == 120
    check_invariants(StoredTable(table.session.file_io))


@pytest.mark.parametrize(
    "options",
    [
        {"changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"changelog-producer": "lookup", "merge-engine": "first-row"},
        {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup", "lookup-compact": "gentle"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_rows_that_the_changelog_does_not_hold_yet_are_told_first(
    catalog: lsm.Catalog, options: dict[str, str]
) -> None:
    table = created(catalog, **options, **{"write-only": "true"})
    table.upsert(rows(0, 40, 0))
    table.compact()
    table.upsert(rows(30, 30, 1))
    table.upsert(rows(55, 10, 2))
    table.rescale(3)
    table = lsm.open_table(table.location)
    assert replayed(table) == {row["k"]: row["v"] for row in state(table).to_pylist()}
    assert len(replayed(table)) == 65
    snapshots = len(table.snapshots())
    table.rescale(5)
    assert len(table.snapshots()) == snapshots + 1, "nothing waited: no compaction came first"


def test_only_partitions_that_are_rescaled_are_compacted_before(catalog: lsm.Catalog) -> None:
    table = created(catalog, **{"changelog-producer": "lookup", "write-only": "true"})
    table.upsert(rows(0, 20, 0))
    table.rescale(3, partitions=[{"p": "p0"}])
    assert sorted(replayed(lsm.open_table(table.location))) == list(range(0, 20, 2))


def replayed(table: lsm.Table) -> dict[int, int]:
    """The rows that the changelog leaves standing."""
    found: dict[int, int] = {}
    for change in table.changelog().to_pylist():
        if change["_row_kind"] in ("+I", "+U"):
            found[change["k"]] = change["v"]
        else:
            assert found.pop(change["k"]) == change["v"]
    return found


def test_a_writer_of_the_old_number_is_told(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))
    other = lsm.open_table(table.location)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 5, 2).to_batches()
        other.rescale(5)

    with pytest.raises(lsm.CommitConflictError, match="buckets"):
        table.upsert(pa.RecordBatchReader.from_batches(COLUMNS, batches()))
    check_invariants(StoredTable(table.session.file_io))
    table = lsm.open_table(table.location)
    table.upsert(rows(0, 5, 2))
    assert table.scan().count() == 100


def test_what_broke_half_way_goes_on(catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(catalog)
    table.upsert(rows(0, 100, 0))

    def broken(*_: object, **__: object) -> None:
        raise lsm.StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rescale, "propose", broken)
        with pytest.raises(lsm.StorageError):
            table.rescale(3)
    assert table.scan().count() == 100
    again = lsm.open_table(table.location)
    assert again.rescale(3) is not None
    again.upsert(rows(0, 5, 2))
    assert again.scan().count() == 100


def test_append_tables_keep_order(catalog: lsm.Catalog) -> None:
    options = {"bucket": "2", "bucket-key": "k"}
    table = catalog.create_table("db.a", COLUMNS, options=options)
    for turn in range(3):
        table.append(rows(0, 20, turn))
    table.rescale(3)
    found = table.scan().to_arrow()
    assert found.num_rows == 60
    for key in range(20):
        assert found.filter(pc.field("k") == key).column("v").to_pylist() == [0, 1, 2]
    check_invariants(StoredTable(table.session.file_io))


def test_bad_numbers_and_other_tables_are_refused(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(0, 10, 0))
    for number in (0, -1, -2, 40_000, True, "4", 2.5):
        with pytest.raises(lsm.InvalidInputError):
            table.rescale(number)
    with pytest.raises(lsm.InvalidOptionError, match="rescale"):
        table.alter(lsm.SetOption(key="bucket", value="4"))
    for bucket, key in (("-1", ["p", "k"]), ("-1", [])):
        name = f"db.x{len(key)}"
        dynamic = catalog.create_table(
            name, COLUMNS, primary_key=key, partitioned_by=["p"], options={"bucket": bucket}
        )
        with pytest.raises(lsm.InvalidOptionError, match="bucket"):
            dynamic.rescale(4)
    assert table.options.texts["bucket"] == "2"
