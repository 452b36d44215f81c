"""bucket = -1 with a key: a key keeps its bucket, whoever writes, and whoever wrote at the same time."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.commit import commit
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.maintenance.verify_references import BucketVerification
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

COLUMNS = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
SMALL = {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def rows(keys: range, value: int, partition: str = "x") -> pa.Table:
    columns = [[partition] * len(keys), list(keys), [value] * len(keys)]
    return pa.table(columns, schema=COLUMNS)


def created(catalog: lsm.Catalog, **options: str) -> lsm.Table:
    return catalog.create_table(
        "db.t", COLUMNS, primary_key=["p", "k"], partitioned_by=["p"],
        options={**SMALL, **{key.replace("_", "-"): value for key, value in options.items()}},
    )  # fmt: skip


def found(table: lsm.Table) -> dict[tuple[str, int], int]:
    rows = table.scan().to_arrow().to_pylist()
    made = {(row["p"], row["k"]): row["v"] for row in rows}
    assert len(made) == len(rows), "a key was read twice"
    return made


class Interrupted:
    """Rows whose stream ends after somebody else has acted."""

    def __init__(self, table: pa.Table, act: Callable[[], object]) -> None:
        self.table, self.act = table, act

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from self.table.to_batches()
            self.act()

        reader = pa.RecordBatchReader.from_batches(self.table.schema, batches())
        return reader.__arrow_c_stream__(requested_schema)


def check(table: lsm.Table) -> None:
    check_invariants(StoredTable(table.session.file_io))
    assert table.verify().is_clean


def test_buckets_fill_one_after_the_other(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(50), 0))
    table.upsert(rows(range(30, 70), 1))
    assert found(table) == {("x", k): int(k >= 30) for k in range(70)}
    assert set(table.system("files").column("bucket").to_pylist()) == {0, 1, 2, 3}
    table.delete(rows(range(10), 0).select(["p", "k"]))
    table.upsert(rows(range(10), 2))
    table.compact(full=True)
    assert found(table)["x", 3] == 2
    check(table)


def test_other_options_move_no_key(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(100), 0))
    table.alter(
        lsm.SetOption(key="dynamic-bucket.initial-buckets", value="3"),
        lsm.SetOption(key="dynamic-bucket.max-buckets", value="2"),
        lsm.SetOption(key="dynamic-bucket.target-row-num", value="7"),
    )
    table.upsert(rows(range(50, 150), 1))
    assert found(table) == {("x", k): int(k >= 50) for k in range(150)}
    check(table)


def test_a_partition_that_is_overwritten_begins_anew(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(100), 0, "x"))
    table.upsert(rows(range(100), 0, "y"))
    table.overwrite(rows(range(90, 120), 1, "x"))
    table.upsert(rows(range(80, 130), 2, "x"))
    wanted = {("x", k): 2 for k in range(80, 130)} | {("y", k): 0 for k in range(100)}
    assert found(table) == wanted
    indexes = {
        (entry.partition, entry.bucket)
        for entry in table.session.index_entries(table.latest_snapshot())
    }
    assert len(indexes) == 3 + 5
    check(table)


@pytest.mark.parametrize("theirs", [range(90), range(60, 150), range(200, 230)])
@pytest.mark.parametrize("is_new", [True, False])
def test_whoever_lands_later_takes_over_the_buckets(
    catalog: lsm.Catalog, theirs: range, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    if not is_new:
        table.upsert(rows(range(95, 105), 0))
    other = lsm.open_table(table.location)
    rewritten = []
    real = commit.staging_on
    monkeypatch.setattr(commit, "staging_on", lambda *args: rewritten.append(1) or real(*args))
    ours = range(40, 120)
    table.upsert(Interrupted(rows(ours, 2), lambda: other.upsert(rows(theirs, 1))))
    wanted = {("x", k): 0 for k in range(95, 105)} if not is_new else {}
    wanted |= {("x", k): 1 for k in theirs} | {("x", k): 2 for k in ours}
    assert found(table) == wanted
    assert rewritten, "nothing was written again: the race was none"
    check(table)


def test_buckets_taken_over_are_compacted_where_readers_wait_for_that(
    catalog: lsm.Catalog,
) -> None:
    table = created(catalog, merge_engine="first-row")
    other = lsm.open_table(table.location)
    both = pa.concat_tables([rows(range(15), 2, "x"), rows(range(5), 2, "z")])
    table.upsert(Interrupted(both, lambda: other.upsert(rows(range(100, 120), 1))))
    wanted = {("x", k): 1 for k in range(100, 120)} | {("x", k): 2 for k in range(15)}
    assert found(table) == wanted | {("z", k): 2 for k in range(5)}
    files = table.system("files")
    assert set(files.column("bucket").to_pylist()) == {0, 1}, "ours went elsewhere than at first"
    check(table)


def test_another_partition_is_no_race(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    other = lsm.open_table(table.location)
    monkeypatch.setattr(commit, "staging_on", None)
    both = pa.concat_tables([rows(range(30), 2, "x"), rows(range(5), 2, "z")])
    table.upsert(Interrupted(both, lambda: other.upsert(rows(range(30), 1, "y"))))
    assert len(found(table)) == 65
    check(table)


def test_a_race_with_deletes_and_kinds(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(10), 0))
    other = lsm.open_table(table.location)
    kinds = pa.array(["-D" if k % 2 else "+U" for k in range(5, 60)])
    ours = rows(range(5, 60), 2).append_column("_row_kind", kinds)
    table.upsert(Interrupted(ours, lambda: other.upsert(rows(range(55, 5, -1), 1))))
    wanted = {("x", k): 0 for k in range(5)} | {("x", k): 2 for k in range(6, 60, 2)}
    assert found(table) == wanted
    check(table)


def test_a_race_with_a_key_that_goes_and_comes_again(catalog: lsm.Catalog) -> None:
    """Its deletion lies in an older layer of the flush, whose sequence numbers overlap the newer one's."""
    removes = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"}
    table = created(catalog, **removes, **{"aggregation.remove_record_on_delete": "true"})
    table.upsert(rows(range(10), 100))
    other = lsm.open_table(table.location)
    ours = pa.concat_tables([rows(range(8), 1), rows(range(8, 10), 100), rows(range(8, 40), 2)])
    kinds = ["+I"] * 8 + ["-D"] * 2 + ["+I"] * 32
    ours = ours.append_column("_row_kind", pa.array(kinds))
    table.upsert(Interrupted(ours, lambda: other.upsert(rows(range(55, 40, -1), 5))))
    wanted = {("x", k): 101 for k in range(8)} | {("x", k): 2 for k in range(8, 40)}
    assert found(table) == wanted | {("x", k): 5 for k in range(41, 56)}
    check(table)


def test_a_race_with_an_overwrite(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(100), 0))
    other = lsm.open_table(table.location)
    theirs = rows(range(70, 130), 1)
    table.upsert(Interrupted(rows(range(20, 80), 2), lambda: other.overwrite(theirs)))
    wanted = {("x", k): 1 for k in range(70, 130)} | {("x", k): 2 for k in range(20, 80)}
    assert found(table) == wanted
    check(table)
    other.overwrite(Interrupted(rows(range(3), 3), lambda: table.upsert(rows(range(200), 4))))
    assert found(table) == {("x", k): 3 for k in range(3)}
    table.upsert(rows(range(150), 5))
    assert len(found(table)) == 150
    check(table)


def test_a_bucket_without_an_index_is_read(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(60), 0))
    session = table.session
    base = table.latest_snapshot()
    # As a writer leaves it that keeps no index: the same files, and no index manifest.
    path = session.paths.snapshot_file(base.id)
    Path(table.location, path).write_bytes(encode_snapshot(replace(base, index_manifest=None)))
    table = lsm.open_table(table.location)
    assert table.latest_snapshot().index_manifest is None
    table.upsert(rows(range(80), 1))
    assert found(table) == {("x", k): 1 for k in range(80)}
    assert table.verify().is_clean


def test_a_broken_index_is_named(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(60), 0))
    (broken, *_) = Path(table.location, "index").iterdir()
    broken.write_bytes(broken.read_bytes()[:-3])
    before = {str(path) for path in Path(table.location).rglob("*")}
    with pytest.raises(lsm.LsmError, match=broken.name):
        table.upsert(rows(range(5), 1))
    assert {str(path) for path in Path(table.location).rglob("*")} == before


def test_more_buckets_than_other_clients_count_are_refused(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    table = created(catalog, **{"dynamic-bucket.target-row-num": "1"})
    keys = np.arange(33_000)
    many = pa.table([pa.array(["x"] * len(keys)), pa.array(keys), pa.array(keys)], schema=COLUMNS)
    with pytest.raises(lsm.InvalidOptionError, match="target-row-num"):
        table.upsert(many)
    assert table.latest_snapshot() is None
    assert not list(Path(table.location).glob("index/*"))


def test_what_was_logged_is_logged_once(catalog: lsm.Catalog) -> None:
    """Rows that move to other buckets take their changelog along, every row as it came."""
    table = created(catalog, changelog_producer="input")
    table.upsert(rows(range(10), 0))
    other = lsm.open_table(table.location)
    ours = pa.concat_tables([rows(range(5, 60), 2), rows(range(5, 20), 3)])
    made = table.upsert(Interrupted(ours, lambda: other.upsert(rows(range(70, 5, -1), 1))))
    assert made is not None
    wanted = {("x", k): 0 for k in range(5)} | {("x", k): 1 for k in range(60, 71)}
    wanted |= {("x", k): 3 if k < 20 else 2 for k in range(5, 60)}
    assert found(table) == wanted
    told = table.changelog(after=made.id - 1, upto=made.id).to_pylist()
    assert sorted((row["k"], row["v"]) for row in told) == sorted(
        zip(ours["k"].to_pylist(), ours["v"].to_pylist(), strict=True)
    )
    check(table)


def test_verify_sees_a_key_in_two_buckets(catalog: lsm.Catalog) -> None:
    """As two writers leave it that did not look at each other."""
    table = created(catalog)
    table.upsert(rows(range(40), 0))
    indexes = {
        entry.bucket: Path(table.location, "index", entry.index_file.file_name)
        for entry in table.session.index_entries(table.latest_snapshot())
    }
    assert table.verify().is_clean
    first, second = indexes[0].read_bytes(), indexes[1].read_bytes()
    indexes[1].write_bytes(first[:4] + second[4:])
    (problem,) = lsm.open_table(table.location).verify().problems
    assert "its checksum differs" in problem
    entries = [  # as a writer leaves it that keeps no checksums
        replace(entry, index_file=replace(entry.index_file, checksum=None))
        for entry in table.session.index_entries(table.latest_snapshot())
    ]
    (problem,) = BucketVerification(table.session).problems(entries)
    assert "1 key of p=x listed for two dynamic buckets" in problem.text
    indexes[1].write_bytes(second[:-4])
    assert not lsm.open_table(table.location).verify().is_clean
