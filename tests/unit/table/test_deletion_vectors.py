"""Tables with deletion vectors: what is read, what is refused, and what keeps their files alive."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.commit.commit import propose
from lsm_engine.format.commit_message import CommitMessage, CompactIncrement
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.manifests import DeletionVectorStore
from lsm_engine.planning.proposal import CommitIdentity, Proposal
from lsm_engine.table.deletion_vectors import BucketDeletions, VectorChange

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("n", pa.int64()), ("s", pa.string())]
)
COUNT = 30_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as opened:
        yield opened


def rows(keys: Any, shift: int = 0) -> pa.Table:
    keys = np.asarray(keys, np.int64)
    return pa.table({"k": keys, "n": keys + shift, "s": [f"text {key}" for key in keys]})


def one_file(catalog: lsm.Catalog, name: str = "db.one", **options: str) -> lsm.Table:
    """A table with one big file of several row groups, at the deepest level."""
    table = catalog.create_table(
        name, COLUMNS, primary_key=["k"],
        options={"bucket": "1", "write-only": "true", "file.block-size": "64 kb", **options},
    )  # fmt: skip
    table.upsert(rows(np.arange(COUNT)))
    table.compact(full=True)
    return table


def mark(
    table: lsm.Table, positions: Any, *, on: Snapshot | None = None, lie: bool = False
) -> VectorChange:
    """Delete rows of the table's only file, as a compaction does."""
    session = table.session
    base = session.snapshots.latest() if on is None else on
    assert base is not None
    (entry,) = session.live_entries(base)
    files = session.vector_files(base).get((entry.partition, entry.bucket), ())
    deletions = BucketDeletions(session.context(), files)
    deletions.add("data-nobody.parquet" if lie else entry.file.file_name, np.asarray(positions))
    change = deletions.write()
    message = CommitMessage(
        partition=entry.partition, bucket=entry.bucket, total_buckets=entry.total_buckets,
        compact=CompactIncrement(new_index_files=change.new, deleted_index_files=change.deleted),
    )  # fmt: skip
    propose(
        session,
        Proposal(
            identity=CommitIdentity(commit_user="marker"), messages=(message,), planned_on=base
        ),
    )
    return change


GONE = {
    "none": [],
    "few": [0, 5, COUNT - 1],
    "spread": list(range(0, COUNT, 7)),
    "a stretch": list(range(9_000, 21_000)),
    "all": list(range(COUNT)),
}


@pytest.mark.parametrize(
    ("file_format", "gone"),
    [*(("parquet", gone) for gone in GONE), ("orc", "spread"), ("avro", "spread")],
)
def test_deleted_positions_are_physical_whatever_is_asked_for(
    catalog: lsm.Catalog, file_format: str, gone: str
) -> None:
    table = one_file(catalog, **{"file.format": file_format})
    if GONE[gone]:
        mark(table, GONE[gone])
    left = rows(np.setdiff1d(np.arange(COUNT), GONE[gone]))
    assert table.scan().to_arrow().sort_by("k") == left.cast(COLUMNS)
    assert table.scan().count() == left.num_rows
    assert table.scan(limit=10).to_arrow().num_rows == min(10, left.num_rows)
    for where in (
        pc.field("k") == 9_003,
        pc.field("k").isin([5, 20_999, 21_000]),
        (pc.field("n") > 20_990) & (pc.field("n") <= 21_010),
        pc.field("s") == "text 14",
        pc.field("k") >= COUNT - 2,
    ):
        scan = table.scan(where=where, columns=["s"])
        assert scan.to_arrow() == left.cast(COLUMNS).filter(where).select(["s"])
        assert scan.count() == left.filter(where).num_rows
    assert table.verify().problems == ()
    (split,) = table.scan().splits()
    assert split.raw
    assert bool(split.vectors) == bool(GONE[gone])


def test_one_full_compaction_removes_every_marked_row(catalog: lsm.Catalog) -> None:
    """A marked file apart from the keys of newer runs was left, and the next full one rewrote it."""
    table = catalog.create_table(
        "db.one", COLUMNS, primary_key=["k"],
        options={"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true",
                 "target-file-size": "1 kb"},
    )  # fmt: skip
    for key in (1, 2):
        table.upsert(rows([key]))
        table.compact(full=True)
    table.delete(rows([1]))
    table.compact()
    table.upsert(rows([2], shift=2))
    assert table.system("table_indexes").num_rows
    assert table.compact(full=True) is not None
    assert table.system("table_indexes").num_rows == 0
    assert table.compact(full=True) is None
    assert table.scan().to_arrow() == rows([2], shift=2).cast(COLUMNS)


def test_places_travel_and_not_bitmaps(catalog: lsm.Catalog) -> None:
    table = one_file(catalog)
    before = len(pickle.dumps(table.scan().splits()))
    mark(table, np.random.default_rng(1).integers(0, COUNT, 9_000))
    scan = table.scan()
    assert len(pickle.dumps(scan.splits())) < before + 600
    assert "deleted rows" in scan.explain().text()
    assert f"less {COUNT - scan.count()} deleted rows" in scan.splits()[0].reason


@pytest.mark.parametrize(
    ("store", "index"), [("columnar", "bucket"), ("sort", "bloom"), ("hash", "simple")]
)
def test_lookups_do_not_find_deleted_rows(catalog: lsm.Catalog, store: str, index: str) -> None:
    options = {"lookup.local-file-type": store, "index.type": index}
    table = one_file(catalog, **options, **{"deletion-vectors.enabled": "true"})
    query = table.query()
    assert query.get({"k": 5})
    mark(table, [5, 6, 700])
    query.refresh()
    assert query.get({"k": 5}) is None
    assert query.get({"k": 7}) == {"k": 7, "n": 7, "s": "text 7"}
    found = table.lookup([{"k": key} for key in (4, 5, 6, 7, 700)])
    assert found.column("_found").to_pylist() == [True, False, False, True, False]
    tags = table.locate(rows([4, 5, 700]))
    assert tags.column("action").to_pylist() == ["update", "insert", "insert"]


def test_history_of_a_table_that_marks_what_it_replaces(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "db.marks", COLUMNS, primary_key=["k"],
        options={"bucket": "2", "deletion-vectors.enabled": "true", "file.format.per.level": "3:orc"},
    )  # fmt: skip
    random = np.random.default_rng(5)
    model: dict[int, int] = {}
    for at in range(5):
        keys = random.integers(0, 200, 60)
        table.upsert(rows(keys, shift=at))
        model |= {int(key): int(key) + at for key in keys}
        dead = random.integers(0, 200, 9)
        table.delete(rows(dead))
        model = {key: n for key, n in model.items() if key not in dead}
        got = table.scan().to_arrow()
        assert dict(zip(got["k"].to_pylist(), got["n"].to_pylist(), strict=True)) == model
        assert got.num_rows == table.scan().count() == len(model)
        found = table.lookup([{"k": key} for key in range(200)])
        assert [key for key in range(200) if found["_found"][key].as_py()] == sorted(model)
        where = pc.field("n") > 100 + at
        assert table.scan(where=where).count() == sum(n > 100 + at for n in model.values())
        assert table.verify().problems == ()
    assert any(split.vectors for split in table.scan().splits())
    assert table.system("table_indexes").num_rows > 0
    table.compact(full=True)
    assert table.scan().count() == len(model)
    assert table.verify().problems == ()


@pytest.mark.parametrize("merges", [False, True])
def test_level_0_is_seen_if_readers_merge(catalog: lsm.Catalog, *, merges: bool) -> None:
    table = catalog.create_table(
        "db.seen", COLUMNS, primary_key=["k"],
        options={"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true",
                 "deletion-vectors.merge-on-read": str(merges).lower()},
    )  # fmt: skip
    table.upsert(rows([1, 2, 3]))
    assert table.scan().count() == (3 if merges else 0)
    table.compact(full=True)
    table.upsert(rows([2, 9], shift=100))
    got = dict(zip(*table.scan(columns=["k", "n"]).to_arrow().to_pydict().values(), strict=True))
    assert got == ({1: 1, 2: 102, 3: 3, 9: 109} if merges else {1: 1, 2: 2, 3: 3})
    # Level 0 is there to be seen all the same.
    assert 0 in table.system("files").column("level").to_pylist()


@pytest.mark.parametrize("bucket", ["-1", "2"])
def test_a_table_without_a_key_gets_them_later(catalog: lsm.Catalog, bucket: str) -> None:
    options = {"bucket": bucket} | ({} if bucket == "-1" else {"bucket-key": "k"})
    table = catalog.create_table("db.later", COLUMNS, options=options)
    table.append(rows(range(100)))
    table.append(rows([3, 4]))
    with pytest.raises(lsm.InvalidInputError, match="once it has the option"):
        table.delete(where="k < 5")
    table.alter(lsm.SetOption("deletion-vectors.enabled", "true"))
    table.delete(where="k < 5")
    assert sorted(table.to_arrow("k")["k"].to_pylist()) == [*range(5, 100)]
    assert table.scan(version=2).count() == 102
    table.compact(full=True)
    assert table.count() == 95
    assert table.maintenance.verify(deep=True).is_clean
    with pytest.raises(lsm.InvalidOptionError, match="copy the rows"):
        table.alter(lsm.RemoveOption("deletion-vectors.enabled"))


def test_mode_is_fixed_once_there_is_data(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.fixed", COLUMNS, primary_key=["k"])
    table.alter(lsm.SetOption(key="deletion-vectors.enabled", value="true"))
    table.alter(lsm.SetOption(key="deletion-vectors.enabled", value="false"))
    table.upsert(rows([1]))
    with pytest.raises(lsm.InvalidOptionError, match=r"deletion-vectors\.enabled") as caught:
        table.alter(lsm.SetOption(key="deletion-vectors.enabled", value="true"))
    assert "copy the rows" in str(caught.value)
    with pytest.raises(lsm.UnsupportedError, match="modifiable"):
        table.alter(lsm.SetOption(key="deletion-vectors.modifiable", value="true"))
    for options in (
        {"merge-engine": "first-row"},
        {"changelog-producer": "full-compaction"},
    ):
        with pytest.raises(lsm.InvalidOptionError, match=r"deletion-vectors\.enabled"):
            catalog.create_table(
                "db.no", COLUMNS, primary_key=["k"],
                options={"deletion-vectors.enabled": "true", **options},
            )  # fmt: skip


def index_file(table: lsm.Table) -> Path:
    name = table.system("table_indexes").column("file_name")[0].as_py()
    return Path(table.location, "index", name)


@pytest.mark.parametrize("harm", ["truncated", "bent", "emptied", "gone"])
def test_damaged_index_files_are_named(catalog: lsm.Catalog, harm: str) -> None:
    table = one_file(catalog)
    mark(table, [1, 2, 3])
    path = index_file(table)
    data = bytearray(path.read_bytes())
    match harm:
        case "truncated":
            path.write_bytes(data[:-1])
        case "bent":
            data[-8] ^= 4
            path.write_bytes(data)
        case "emptied":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
    expected = lsm.NotFoundError if harm == "gone" else lsm.CorruptFileError
    for read in (table.scan().to_arrow, lambda: table.lookup([{"k": 1}])):
        with pytest.raises(expected, match=path.name):
            read()
    assert any(path.name in problem for problem in table.verify().problems)


def test_positions_beyond_the_file_are_refused(catalog: lsm.Catalog) -> None:
    table = one_file(catalog)
    mark(table, [3, COUNT])
    with pytest.raises(lsm.CorruptFileError, match="does not have"):
        table.scan().to_arrow()
    assert "which has 30000" in str(table.verify())


def test_expiry_and_orphans_know_index_files(catalog: lsm.Catalog) -> None:
    table = one_file(catalog)
    mark(table, [1])
    table.create_tag("kept")
    kept = index_file(table)
    mark(table, [2])
    middle = index_file(table)
    mark(table, [3])
    assert len({kept, middle, index_file(table)}) == 3
    assert table.scan().count() == COUNT - 3
    table.expire_snapshots(retain_max=1, older_than="0 s")
    assert [path.exists() for path in (kept, index_file(table), middle)] == [True, True, False]
    assert table.scan(tag="kept").count() == COUNT - 1
    stray = kept.with_name("index-stray-0")
    stray.write_bytes(b"\x01")
    os.utime(stray, (1, 1))
    report = table.remove_orphan_files(dry_run=False, older_than="1 h", force=True)
    assert [path for path, _ in report.plan.orphans] == ["index/index-stray-0"]
    assert table.verify().problems == ()
    table.delete_tag("kept")
    assert not kept.exists()
    assert table.verify().problems == ()


def test_conflicts_over_one_file(catalog: lsm.Catalog) -> None:
    table = one_file(catalog)
    base = table.latest_snapshot()
    mark(table, [1])
    before = set(Path(table.location, "index").iterdir())
    # Two that marked on one base; one that rewrote a file without knowing of the mark.
    with pytest.raises(lsm.CommitConflictError, match="deleted by another commit"):
        mark(table, [2], on=base)
    rewriting = one_file(catalog, "db.two")
    base = rewriting.latest_snapshot()
    assert base is not None
    (entry,) = rewriting.session.live_entries(base)
    mark(rewriting, [1])
    message = CommitMessage(
        partition=entry.partition, bucket=entry.bucket, total_buckets=entry.total_buckets,
        compact=CompactIncrement(before=(entry.file,), after=(entry.file.rename("data-new"),)),
    )  # fmt: skip
    with pytest.raises(lsm.CommitConflictError, match="while it was rewritten"):
        propose(
            rewriting.session,
            Proposal(
                identity=CommitIdentity(commit_user="c"), messages=(message,), planned_on=base
            ),
        )
    assert rewriting.scan().count() == COUNT - 1
    # What was staged is gone again.
    assert set(Path(table.location, "index").iterdir()) == before


def test_mark_on_a_file_that_is_gone_is_a_conflict(catalog: lsm.Catalog) -> None:
    table = one_file(catalog)
    base = table.latest_snapshot()
    table.upsert(rows([1]))
    table.compact(full=True)
    with pytest.raises(lsm.CommitConflictError, match="not live any more"):
        mark(table, [2], on=base)


def test_deletions_of_a_bucket(catalog: lsm.Catalog) -> None:
    table = one_file(catalog)
    context = table.session.context()
    deletions = BucketDeletions(context, ())
    assert deletions.write() == VectorChange()
    assert deletions.add("a", np.array([3, 1])) == 2
    assert deletions.add("a", np.array([1, 9])) == 1
    assert deletions.add("b", np.array([4])) == 1
    first = deletions.write()
    assert first.deleted == ()
    assert len(first.new) == 1
    again = BucketDeletions(context, first.new)
    assert again.add("a", np.array([1, 3])) == 0
    assert again.write() == VectorChange()
    again.forget(["b", "nobody"])
    second = again.write()
    assert second.deleted == first.new
    assert DeletionVectorStore(context.file_io, context.paths).read_file(second.new[0]).keys() == {
        "a"
    }
    last = BucketDeletions(context, second.new)
    last.forget(["a"])
    assert last.write() == VectorChange(deleted=second.new)
    again.abort()
    assert not table.session.file_io.exists(context.paths.index_file(second.new[0].file_name))


def test_append_tables_replace_only_index_files_that_change(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "db.append", COLUMNS,
        options={"deletion-vectors.enabled": "true", "deletion-vector.index-file.target-size": "1 kb"},
    )  # fmt: skip
    context = table.session.context()
    deletions = BucketDeletions(context, ())
    for name in "abcd":
        deletions.add(name, np.arange(0, 600, 2))
    first = deletions.write().new
    assert [[v.data_file_name for v in file.deletion_vectors or ()] for file in first] == [
        ["a"], ["b"], ["c"], ["d"],
    ]  # fmt: skip
    more = BucketDeletions(context, first)
    more.add("b", np.array([1]))
    change = more.write()
    assert change.deleted == (first[1],)
    assert [v.cardinality for file in change.new for v in file.deletion_vectors or ()] == [301]
