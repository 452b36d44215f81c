"""Compactions that tell what changed, and that hide older rows: short stories, file by file."""

import gc
import pickle
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.compact.plan import plan_compaction
from lsm_engine.ddl.create import create_table
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lookup.lookup import process_cache
from lsm_engine.read.split import BucketReader
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from tests.model.world import components, reopen

KINDS = ("+I", "-U", "+U", "-D")
COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}
VECTORS = {"deletion-vectors.enabled": "true"}


def table_of(columns: pa.Schema = COLUMNS, **options: str) -> lsm.Table:
    parts = components(MemoryFileIO())
    create_table(
        parts.file_io,
        columns,
        primary_key=("k",),
        partitioned_by=(),
        options={"bucket": "1"} | options,
        comment=None,
        clock=parts.clock,
    )
    return reopen(parts)


def row(key: int, value: str | None, kind: str = "+I") -> dict[str, Any]:
    return {"k": key, "v": value, "_row_kind": kind}


def files_told(table: lsm.Table, snapshot: Snapshot | None) -> list[list[tuple[str, int, Any]]]:
    """Kind, key and value of each row of each changelog file of a snapshot."""
    assert snapshot is not None
    if snapshot.changelog_manifest_list is None:
        return []
    session = table.session
    found = []
    for meta in session.manifests.read_list(snapshot.changelog_manifest_list):
        for entry in session.manifests.read_entries(meta):
            names = (*table.schema.names, SEQUENCE_NUMBER, VALUE_KIND)
            reader = BucketReader(session.context(), entry.partition, entry.bucket)
            batches = list(reader.file(entry.file, names))
            rows = pa.Table.from_batches(batches).to_pylist()
            found.append([(KINDS[one[VALUE_KIND]], one["k"], one["v"]) for one in rows])
    count = sum(map(len, found))
    assert snapshot.changelog_record_count == count
    return found


def told(table: lsm.Table, snapshot: Snapshot | None = None) -> list[tuple[str, int, Any]]:
    files = files_told(table, snapshot or table.latest_snapshot())
    return [change for file in files for change in file]


def levels(table: lsm.Table) -> list[int]:
    return sorted(entry.file.level for entry in live(table))


def live(table: lsm.Table):
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return table.session.live_entries(snapshot)


def marked(table: lsm.Table) -> dict[str, int]:
    """How many rows of each data file are hidden."""
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return {
        vector.data_file_name: vector.cardinality or 0
        for files in table.session.vector_files(snapshot).values()
        for file in files
        for vector in file.deletion_vectors or ()
    }


def rows_of(table: lsm.Table) -> dict[int, Any]:
    return {one["k"]: one["v"] for one in table.scan().to_arrow().to_pylist()}


def test_a_lookup_tells_every_change_with_the_commit_that_made_it() -> None:
    table = table_of(**LOOKUP)
    table.upsert([row(1, "a"), row(2, "b"), row(3, "c")])
    assert told(table) == [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")]
    table.upsert([row(2, "B", "+U"), row(3, None, "-D"), row(4, "d"), row(9, None, "-D")])
    assert told(table) == [("-U", 2, "b"), ("+U", 2, "B"), ("-D", 3, "c"), ("+I", 4, "d")]
    table.upsert([row(3, "c")])
    assert told(table) == [("+I", 3, "c")]
    assert rows_of(table) == {1: "a", 2: "B", 3: "c", 4: "d"}


def test_a_compaction_without_new_rows_tells_nothing() -> None:
    table = table_of(**LOOKUP, **{"num-sorted-run.compaction-trigger": "9"})
    for number in range(3):
        table.upsert([row(key, f"{number}") for key in range(5 * 4**number)])
    assert 0 not in levels(table)
    made = table.compact(full=True)
    if made is not None:
        assert made.changelog_manifest_list is None


def test_a_lone_file_is_rewritten_where_it_has_to_be_told() -> None:
    table = table_of(**LOOKUP, **{"write-only": "true", "target-file-size": "1 b"})
    table.upsert([row(1, "a")])
    made = table.compact(full=True)
    assert told(table, made) == [("+I", 1, "a")]


def test_full_compaction_tells_the_difference_of_last_levels() -> None:
    table = table_of(**FULL, **{"write-only": "true"})
    table.upsert([row(1, "a"), row(2, "b"), row(3, "c")])
    assert told(table, table.compact(full=True)) == [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")]
    table.upsert([row(1, "x")])
    table.upsert([row(1, "y"), row(2, None, "-D"), row(5, None, "-D")])
    table.upsert([row(4, "d"), row(5, "e")])
    table.upsert([row(5, None, "-D")])
    made = table.compact(full=True)
    assert told(table, made) == [("-U", 1, "a"), ("+U", 1, "y"), ("-D", 2, "b"), ("+I", 4, "d")]
    assert table.compact(full=True) is None


@pytest.mark.parametrize(
    ("key", "value"), [("num-levels", "9"), ("num-sorted-run.compaction-trigger", "9")]
)
def test_levels_that_are_added_let_nothing_be_told_twice(key: str, value: str) -> None:
    """The last level of before is what was told, wherever the last one is by now."""
    table = table_of(**FULL, **{"write-only": "true"})
    table.upsert([row(1, "a"), row(2, "b"), row(3, "c")])
    table.compact(full=True)
    table.alter(lsm.SetOption(key=key, value=value))
    begun = next(table.follow("latest-full", poll_millis=None))
    assert begun.to_arrow()["k"].to_pylist() == [1, 2, 3]
    table.upsert([row(1, "x"), row(2, None, "-D")])
    made = table.compact(full=True)
    assert told(table, made) == [("-U", 1, "a"), ("+U", 1, "x"), ("-D", 2, "b")]
    assert levels(table) == [table.options.level_count - 1]


@pytest.mark.parametrize("producer", [LOOKUP, FULL])
def test_an_overwrite_tells_the_rows_that_it_brings_and_none_that_go(
    producer: dict[str, str],
) -> None:
    """Rows that nobody was told of go untold; whoever knows others has to look (decisions/0021)."""
    table = table_of(**producer, **{"write-only": "true"})
    table.upsert([row(1, "told"), row(2, "told")])
    table.compact(full=True)
    table.upsert([row(2, None, "-D"), row(3, "nobody knows")])
    made = table.overwrite(pa.table({"k": [1, 4], "v": ["new", "new"]}))
    assert told(table, made) == []
    assert told(table, table.compact(full=True)) == [("+I", 1, "new"), ("+I", 4, "new")]
    changes = table.changelog()
    assert changes["_row_kind"].to_pylist() == ["+I"] * 4
    assert "nobody knows" not in changes["v"].to_pylist()
    assert rows_of(table) == {1: "new", 4: "new"}


@pytest.mark.parametrize(("patience", "full_after"), [(1, [1, 1, 1, 1]), (2, [0, 1, 0, 1])])
def test_commits_between_full_compactions_are_counted(patience: int, full_after: list[int]) -> None:
    options = {"full-compaction.delta-commits": str(patience)}
    table = table_of(**FULL, **options, **{"num-sorted-run.compaction-trigger": "50"})
    last = table.options.level_count - 1
    seen = []
    for number in range(4):
        table.upsert([row(number, "a"), row(7, f"{number}")])
        seen.append(int(set(levels(table)) == {last}))
    assert seen == full_after
    table = lsm.Table(table.session, "t")  # what was counted is in the snapshots
    table.upsert([row(1, "z")])
    assert (set(levels(table)) == {last}) is bool(full_after[0])


def test_pairs_of_equal_rows_are_left_out() -> None:
    table = table_of(**LOOKUP, **{"changelog-producer.row-deduplicate": "true"})
    table.upsert([row(1, "a"), row(2, None)])
    made = table.upsert([row(1, "a", "+U"), row(2, None, "+U")])
    assert made is not None
    assert told(table) == []
    table.upsert([row(1, None), row(2, "b")])
    assert told(table) == [("-U", 1, "a"), ("+U", 1, None), ("-U", 2, None), ("+U", 2, "b")]


def test_a_pair_is_never_parted() -> None:
    options = {"target-file-size": "1 kb", "file.block-size": "1 kb", "write-buffer-size": "1 gb"}
    table = table_of(**LOOKUP, **options)
    table.upsert([row(key, "a" * 20) for key in range(4_999)])
    # 9,999 rows make ten groups of 1,000: one insert in front, and pairs stand across their ends.
    table.upsert([row(key, "b" * 20) for key in range(-1, 4_999)])
    files = files_told(table, table.latest_snapshot())
    assert len(files) > 1
    assert files[0].pop(0) == ("+I", -1, "b" * 20)
    for file in files:
        assert [kind for kind, _, _ in file] == ["-U", "+U"] * (len(file) // 2)
    assert sum(map(len, files)) == 9_998


@pytest.mark.parametrize("extension", ["avro", "orc", "parquet"])
def test_changelog_files_have_options_of_their_own(extension: str) -> None:
    options = {
        "changelog-file.format": extension,
        "changelog-file.compression": "none",
        "changelog-file.stats-mode": "none",
        "file.format.per.level": "0:avro",
    }
    table = table_of(**LOOKUP, **options)
    table.upsert([row(1, "a")])
    table.upsert([row(1, "b")])
    assert told(table) == [("-U", 1, "a"), ("+U", 1, "b")]
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    (meta,) = table.session.manifests.read_list(snapshot.changelog_manifest_list or "")
    (entry,) = table.session.manifests.read_entries(meta)
    assert entry.file.file_name.startswith("changelog-")
    assert entry.file.file_name.endswith(extension)
    assert not any(entry.file.value_stats.null_counts or ())


def test_replaced_rows_are_marked_and_deletes_are_not_kept() -> None:
    table = table_of(**VECTORS, **LOOKUP, **{"compaction.size-ratio": "0"})
    table.upsert([row(key, "a" * 50) for key in range(100)])
    (old,) = live(table)
    table.upsert([row(5, "b"), row(6, None, "-D"), row(200, None, "-D")])
    assert told(table) == [("-U", 5, "a" * 50), ("+U", 5, "b"), ("-D", 6, "a" * 50)]
    assert marked(table) == {old.file.file_name: 2}
    assert rows_of(table)[5] == "b"
    assert len(rows_of(table)) == 99
    assert all(entry.file.delete_row_count == 0 for entry in live(table))
    assert sum(entry.file.row_count for entry in live(table)) == 101


def test_what_comes_again_as_it_was_is_there_once() -> None:
    table = table_of(**VECTORS, **LOOKUP)
    table.upsert([row(key, "a") for key in range(20)])
    for _ in range(3):
        table.upsert([row(7, None, "-D")])
        assert told(table) == [("-D", 7, "a")]
        table.upsert([row(7, "a")])
        assert told(table) == [("+I", 7, "a")]
        assert rows_of(table) == dict.fromkeys(range(20), "a")


def test_a_bucket_has_one_index_file_which_goes_with_the_files_it_marks() -> None:
    table = table_of(**VECTORS, **{"compaction.size-ratio": "0"})
    large = [sha256(bytes([key % 256])).hexdigest() for key in range(300)]  # nothing to compress
    table.upsert([row(key, text) for key, text in enumerate(large)])
    for number in range(3):
        table.upsert([row(key, "b") for key in range(number, number + 2)])
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    (files,) = table.session.vector_files(snapshot).values()
    assert len(files) == 1
    assert marked(table)
    made = table.compact(full=True)
    assert made is not None
    assert marked(table) == {}
    assert len(live(table)) == 1
    assert len(rows_of(table)) == 300
    assert table.compact(full=True) is None


def test_full_compaction_rewrites_a_last_level_that_hides_rows() -> None:
    table = table_of(**VECTORS)
    table.upsert([row(key, "a" * 50) for key in range(300)])
    table.compact(full=True)
    table.upsert([row(3, None, "-D")])
    assert set(levels(table)) == {table.options.level_count - 1}
    assert sum(marked(table).values()) == 1
    table.compact(full=True)
    (entry,) = live(table)
    assert entry.file.row_count == 299
    assert marked(table) == {}


def test_work_travels_light() -> None:
    options = {"write-only": "true", "target-file-size": "1 kb", "file.block-size": "1 kb"}
    table = table_of(**LOOKUP, **options)
    table.upsert([row(key, f"{key:040}") for key in range(50_000)])
    table.compact(full=True)
    assert len(live(table)) > 20
    table.upsert([row(17, "new")])
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    (work,) = plan_compaction(table.session, snapshot)
    assert len(work.older) == 1, "only files that may hold the new keys"
    shipped = pickle.dumps(work)
    assert pickle.loads(shipped) == work
    assert len(shipped) < 10_000
    table.compact()
    assert told(table) == [("-U", 17, f"{17:040}"), ("+U", 17, "new")]


def test_sums_are_not_counted_twice() -> None:
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    sums = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = table_of(columns, **LOOKUP, **sums, **{"compaction.size-ratio": "0"})
    table.upsert([row(key, 1) for key in range(300)])  # type: ignore[arg-type]
    for number in range(2, 5):
        table.upsert([row(1, 1), row(2, 1)])  # type: ignore[arg-type]
        assert told(table) == [
            (kind, key, value)
            for key in (1, 2)
            for kind, value in (("-U", number - 1), ("+U", number))
        ]
        assert len(set(levels(table))) > 1, "the older rows are still below"
        assert rows_of(table)[1] == rows_of(table)[2] == number
        with table.query() as query:
            assert query.get({"k": 1}) == {"k": 1, "v": number}
        assert table.explain_key({"k": 1}).row == {"k": 1, "v": number}
    assert sum(rows_of(table).values()) == 306
    table.compact(full=True)
    assert sum(rows_of(table).values()) == 306


def test_lookup_files_go_with_what_they_were_made_from() -> None:
    table = table_of(**LOOKUP, **{"compaction.size-ratio": "0"})
    before = {(entry.owner, entry.name) for entry in process_cache().entries()}

    def made() -> list[str]:
        now = {(entry.owner, entry.name) for entry in process_cache().entries()}
        return [name for _, name in now - before]

    table.upsert([row(key, "a" * 50) for key in range(300)])
    (old,) = live(table)
    assert made() == [], "nothing was there to be looked up"
    for number in range(3):
        table.upsert([row(number, "b")])
        assert any(old.file.file_name in name for name in made())
    table.compact(full=True)
    table.upsert([row(3, "b")])
    assert not any(old.file.file_name in name for name in made())
    assert len(made()) == 1
    del table
    gc.collect()
    assert made() == [], "and with the last table of its storage"


def test_first_rows_that_go_because_of_their_age_are_told() -> None:
    columns = pa.schema(
        [pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("t", pa.int64())]
    )
    table = table_of(
        columns, **LOOKUP,
        **{"merge-engine": "first-row", "write-only": "true", "record-level.expire-time": "1 h",
           "record-level.time-field": "t"},
    )  # fmt: skip
    clock = table.session.clock
    hour = 3_600_000

    def put(full: bool, *rows: tuple[int, str, int]) -> list[tuple[str, int, Any]]:
        now = clock.now_millis()
        values = [{"k": key, "v": value, "t": now - age * hour} for key, value, age in rows]
        table.upsert(values)
        return told(table, table.compact(full=full))

    assert put(True, (1, "a", 0), (2, "b", 2), (3, "c", 0)) == [("+I", 1, "a"), ("+I", 3, "c")]
    assert put(False, (1, "again", 0), (4, "d", 0)) == [("+I", 4, "d")]
    clock.advance(2 * hour)  # type: ignore[attr-defined]
    changes = put(True, (3, "late", 0), (5, "e", 0))
    assert changes == [("-D", 1, "a"), ("-D", 3, "c"), ("-D", 4, "d"), ("+I", 5, "e")]
    assert rows_of(table) == {5: "e"}
    assert put(True, (3, "anew", 0)) == [("+I", 3, "anew")]
    assert rows_of(table) == {3: "anew", 5: "e"}


@pytest.mark.parametrize("producer", [LOOKUP, FULL])
def test_what_goes_because_of_its_age_is_told(producer: dict[str, str]) -> None:
    columns = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            ("v", pa.string()),
            ("t", pa.timestamp("ms")),
        ]
    )
    options = {"record-level.expire-time": "1 h", "record-level.time-field": "t"}
    table = table_of(columns, **producer, **options, **{"write-only": "true"})
    clock = table.session.clock
    now = clock.now_millis()

    def put(*rows: tuple[int, str, int]) -> list[tuple[str, int, Any]]:
        values = {"k": [r[0] for r in rows], "v": [r[1] for r in rows], "t": [r[2] for r in rows]}
        table.upsert(pa.table(values).cast(columns))
        return told(table, table.compact(full=True))

    young, old = now, now - 2 * 3_600_000
    assert put((1, "a", young), (2, "b", old), (3, "c", young)) == [("+I", 1, "a"), ("+I", 3, "c")]
    clock.advance(2 * 3_600_000)  # type: ignore[attr-defined]
    changes = put((1, "A", now + 2 * 3_600_000), (4, "d", old))
    assert changes == [("-U", 1, "a"), ("+U", 1, "A"), ("-D", 3, "c")]
    assert rows_of(table) == {1: "A"}
