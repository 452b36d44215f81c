"""Tagging equals a plain join, for every index type, after any history."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.format.bloom import read_key_footer
from lsm_engine.format.data_file import SimpleStats
from lsm_engine.format.manifest_columns import rows_of as rows_of_entries
from lsm_engine.lookup import key_search
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.key_search import BucketFiles, are_apart
from lsm_engine.lookup.locate import Locator
from lsm_engine.lsm.levels import newest_first
from lsm_engine.planning.keys import KeySpan, candidates_by_range
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.types.types import parse_type
from tests.samples import seeds
from tests.unit.lookup.stores import with_options

TYPES = ["bloom", "global-bloom", "simple", "global-simple", "inmemory", "bucket"]
NOTHING = SimpleStats(min_values=b"", max_values=b"", null_counts=None)


def create(tmp_path, index_type, **options):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    return catalog.create_table(
        "d.t",
        pa.schema([("k", pa.int64()), ("t", pa.string()), ("dt", pa.string()), ("v", pa.int64())]),
        primary_key=["k", "t", "dt"], partitioned_by=["dt"],
        options={"bucket": "2", "write-only": "true", "index.type": index_type,
                 "index.bloom.num_entries": "20", "index.bloom.fpp": "0.01", **options},
    )  # fmt: skip


def rows_of(numbers, partitions):
    numbers = list(numbers)
    return pa.table({
        "k": pa.array(numbers, pa.int64()), "t": [f"t{n % 3}" for n in numbers],
        "dt": [f"d{p}" for p in partitions], "v": pa.array(numbers, pa.int64()),
    })  # fmt: skip


def joined(table, rows, is_global):
    """What the join with everything in the table says, as (action, partition)."""
    there = {}
    for row in table.scan().to_arrow().to_pylist():
        there.setdefault((row["k"], row["t"]), set()).add(row["dt"])
    answer = []
    for row in rows.to_pylist():
        found = there.get((row["k"], row["t"]), set())
        if row["dt"] in found:
            answer.append(("update", "dt=" + row["dt"]))
        elif is_global and found:
            answer.append(("move", sorted("dt=" + dt for dt in found)))
        else:
            answer.append(("insert", "dt=" + row["dt"]))
    return answer


def assert_equals_join(table, locator, rows, is_global, moves=True):
    got = locator.locate(rows, lambda: table._keys.query).table.to_pylist()
    files = {(f["partition"], f["bucket"], f["file_name"]) for f in live_files(table)}
    for one, wanted in zip(got, joined(table, rows, is_global), strict=True):
        action = wanted[0] if moves or wanted[0] != "move" else "update"
        assert one["action"] == action, (one, wanted)
        assert one["partition"] in wanted[1] if isinstance(wanted[1], list) else one["partition"] == wanted[1]  # fmt: skip
        assert (one["file_name"] is None) == (one["snapshot_id"] is None) == (action == "insert")
        if action != "insert":
            assert (one["partition"], one["bucket"], one["file_name"]) in files


def live_files(table):
    entries = table.session.live_entries(table.latest_snapshot())
    context = table.session.context()
    return [
        {"partition": context.partition_path(e.partition), "bucket": e.bucket, "file_name": e.file.file_name}
        for e in entries
    ]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(4, 8))
@pytest.mark.parametrize("written_as", ["bloom", "simple"])
def test_every_type_equals_the_join(seed, written_as, tmp_path):
    """Also those that read blooms from files that have none: such a file is always a candidate."""
    rng = np.random.default_rng(seed)
    kind = ["simple", "dynamic-v0"][seed % 2]
    table = create(tmp_path, written_as, **{"bloom.index.filter.type": kind})
    for _ in range(rng.integers(1, 6)):
        numbers = rng.permutation(80)[: rng.integers(1, 60)]
        rows = rows_of(numbers, rng.integers(0, 3, len(numbers)))
        if rng.random() < 0.3:
            table.delete(rows.select(["k", "t", "dt"]))
        else:
            table.upsert(rows)
        if rng.random() < 0.3:
            table.compact(full=bool(rng.integers(2)))
    asked_numbers = rng.integers(0, 100, 120)
    asked = rows_of(asked_numbers, rng.integers(0, 4, 120))
    for name in TYPES:
        for moves in ("true", "false"):
            session = with_options(table.session, index__type=name, bloom__index__prune__by__ranges=moves, bloom__index__update__partition__path=moves, simple__index__update__partition__path=moves)  # fmt: skip
            locator = Locator(session)
            is_global = name.startswith("global")
            if table.latest_snapshot() is not None:
                assert_equals_join(table, locator, asked, is_global, moves=moves == "true")


def test_an_empty_table_and_no_rows(tmp_path):
    table = create(tmp_path, "bloom")
    assert table.locate(rows_of([1], [0])).to_pylist() == [
        {"action": "insert", "partition": "dt=d0", "bucket": table.locate(rows_of([1], [0]))["bucket"][0].as_py(),
         "file_name": None, "snapshot_id": None}
    ]  # fmt: skip
    table.upsert(rows_of([1], [0]))
    assert table.locate([]).num_rows == 0
    assert table.locate(rows_of([1, 2], [0, 0]))["action"].to_pylist() == ["update", "insert"]
    with pytest.raises(lsm.InvalidInputError, match="without a value in key column 't'"):
        table.locate([{"k": 1, "t": None, "dt": "d0"}])


@pytest.mark.parametrize(
    ("options", "file_type"),
    [
        ({"sequence.field": "v"}, "columnar"),
        ({"sequence.field": "v"}, "sort"),
        ({"merge-engine": "partial-update"}, "hash"),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, "columnar"),
        ({"ignore-delete": "true"}, "columnar"),
        ({}, "hash"),
    ],
    ids=str,
)
def test_every_type_answers_where_versions_have_to_be_merged(options, file_type, tmp_path):
    """A row that came later but is older by its sequence replaces nothing; deletes may be ignored."""
    table = create(tmp_path, "simple", **{"lookup.local-file-type": file_type, **options})
    rng = np.random.default_rng(3)
    for step in range(4):
        numbers = rng.permutation(60)[:35]
        rows = rows_of(numbers, rng.integers(0, 3, len(numbers)))
        values = pa.array([100 - step] * len(numbers), pa.int64())
        table.upsert(rows.set_column(3, "v", values))
        if "merge-engine" not in options:
            gone = rows.slice(0, 8)
            table.delete(
                gone.set_column(3, "v", pa.array([1 if step % 2 else 200] * 8, pa.int64()))
            )
    numbers = rng.integers(0, 80, 100)
    asked = rows_of(numbers, rng.integers(0, 4, 100))
    for name in TYPES:
        locator = Locator(with_options(table.session, index__type=name))
        assert_equals_join(table, locator, asked, name.startswith("global"))
        if options or name == "bucket":
            said = locator.locate(asked, lambda: table._keys.query).how
            assert "through lookup files" in said[0]


@pytest.mark.parametrize("index_type", ["bloom", "global-simple"])
@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "partial-update", "fields.s.sequence-group": "v",
         "partial-update.remove-record-on-sequence-group": "s"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        {"sequence.field": "v"},
        {"ignore-delete": "true", "deletion-vectors.merge-on-read": "true"},
    ],
    ids=str,
)  # fmt: skip
def test_rows_that_deletion_vectors_have_left_are_found_by_the_index(options, index_type, tmp_path):
    """Compacted level by level, a file's rows are the records, whatever the merge engine."""
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    columns = {"k": int, "t": str, "dt": str, "s": int, "v": int}
    table = catalog.create_table(
        "d.t", columns, primary_key=["k", "t", "dt"], partitioned_by=["dt"],
        options={"bucket": "2", "index.type": index_type, "deletion-vectors.enabled": "true", **options},
    )  # fmt: skip
    rng, reads_blooms = np.random.default_rng(7), index_type == "bloom"
    for step in range(4):
        numbers = rng.permutation(60)[:35]
        rows = rows_of(numbers, rng.integers(0, 3, len(numbers)))
        clock = pa.array(rng.integers(0, 9, len(numbers)), pa.int64())
        rows = rows.append_column("s", clock).set_column(3, "v", clock)
        kinds = ["+I"] * 30 + ["-D" if step and "aggregation" not in options.values() else "+I"] * 5
        table.upsert(rows.append_column("_row_kind", pa.array(kinds)))
        asked = rows_of(rng.integers(0, 80, 100), rng.integers(0, 4, 100))
        found = Locator(table.session).locate(asked, lambda: table._keys.query)
        assert not any("through lookup files" in text for text in found.how)
        assert all("were read" in text for text in found.how) == reads_blooms
        assert_equals_join(table, Locator(table.session), asked, not reads_blooms)
        assert table.locate(asked).schema.metadata[b"lsm.how"].decode().splitlines()
    table.alter(lsm.SetOption("write-only", "true"))
    table.upsert(rows)  # on level 0, where nothing is merged yet
    (said,) = Locator(table.session).locate(asked, lambda: table._keys.query).how
    assert "through lookup files" in said


def test_files_are_searched_newest_first_as_level_0_is_read(tmp_path):
    table = create(tmp_path, "simple", bucket="1")
    for number in range(5):
        table.upsert(rows_of([number], [0]))
    (one, *others) = table.session.live_entries(table.latest_snapshot())
    facts = [
        (7, 3, 20, "b"),
        (7, 3, 20, "a"),
        (7, 2, 30, "c"),
        (9, 1, None, "d"),
        (7, 3, None, "e"),
    ]
    entries = [
        replace(entry, file=replace(
            entry.file, max_sequence_number=newest, min_sequence_number=oldest,
            creation_millis=created, file_name=f"{name}.parquet",
        ))
        for entry, (newest, oldest, created, name) in zip([one, *others], facts, strict=True)
    ]  # fmt: skip
    files = BucketFiles(one.partition, one.bucket, rows_of_entries(entries))
    wanted = sorted(entries, key=lambda entry: newest_first(entry.file))
    made = [files.entry(at) for at in range(5)]
    assert [entry.file.file_name for entry in made] == [entry.file.file_name for entry in wanted]
    assert [replace(entry.file, key_stats=NOTHING) for entry in made] == [
        replace(entry.file.without_stats(), key_stats=NOTHING) for entry in wanted
    ]
    assert files.newest.tolist() == [9, 7, 7, 7, 7]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=7))
def test_a_file_is_apart_where_no_other_has_a_number_among_its_own(ranges):
    ends = [(low, low + more) for low, more in ranges]
    expected = [
        all(
            high < other_low or other_high < low
            for at, (other_low, other_high) in enumerate(ends)
            if at != mine
        )
        for mine, (low, high) in enumerate(ends)
    ]
    lows, highs = np.array(ends, np.int64).T
    assert are_apart(lows, highs).tolist() == expected


@pytest.mark.parametrize("write_only", [True, False])
def test_numbers_of_files_that_are_apart_are_not_read(write_only, tmp_path, monkeypatch):
    table = create(tmp_path, "bloom", **{"write-only": str(write_only).lower()})
    for turn in range(3):
        table.upsert(rows_of(range(turn, 9), [0] * (9 - turn)))
    asked = []
    open_keys = key_search.open_keys
    monkeypatch.setattr(
        key_search,
        "open_keys",
        lambda entry, context, number: asked.append(number) or open_keys(entry, context, number),
    )
    rows = rows_of(range(12), [0] * 12)
    assert_equals_join(table, Locator(table.session), rows, is_global=False)
    assert asked
    assert None not in asked


def test_footers_hold_filter_and_bounds(tmp_path):
    table = create(tmp_path, "bloom", bucket="1")
    table.upsert(rows_of(range(50), [0] * 50))
    (path,) = (tmp_path / "wh").rglob("data-*.parquet")
    members = pq.read_metadata(path).metadata
    assert members[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
    assert members[b"hoodie_min_record_key"] == b"k:0,t:t0"
    assert members[b"hoodie_max_record_key"] == b"k:9,t:t0"
    footer = read_key_footer(members, file_name=path.name)
    assert len(footer.bloom.rows) == 3


def pair_count(found):
    """How many pairs of a key and a file are left."""
    return int((found.stops - found.starts).sum())


def test_ranges_prune_ordered_keys_and_are_passed_over_for_random_ones():
    kind = [parse_type("BIGINT NOT NULL")]

    def low(n):
        return (n + (1 << 63)).to_bytes(8, "big")

    batch, _ = KeyBatch.from_columns([pa.array(np.arange(1000))], kind)
    ordered = [
        KeySpan(file_name=f"f{n}", lowest=low(n * 100), highest=low(n * 100 + 99))
        for n in range(20)
    ]
    found = candidates_by_range(ordered, batch.keys)
    assert found.pruned
    assert pair_count(found) == 1000
    assert (found.starts[3], found.stops[3]) == (300, 400)
    random = [KeySpan(file_name=f"f{n}", lowest=low(n), highest=low(990 + n)) for n in range(20)]
    found = candidates_by_range(random, batch.keys)
    assert not found.pruned
    assert pair_count(found) == 20_000
    assert "99%" in found.text
    # Keys beyond all files are told by ranges however much these overlap: at half of all pairs, ten
    # thousand files once took twice as long for each as a thousand.
    beyond = [KeySpan(file_name=f"f{at}", lowest=low(0), highest=low(510)) for at in range(4)]
    found = candidates_by_range(beyond, batch.keys)
    assert found.pruned
    assert pair_count(found) == 4 * 511
    unknown = candidates_by_range(
        [*ordered, KeySpan(file_name="u", lowest=None, highest=None)], batch.keys
    )
    assert unknown.stops[-1] - unknown.starts[-1] == 1000
    with pytest.raises(lsm.CorruptFileError, match="bad"):
        candidates_by_range([KeySpan(file_name="bad", lowest=low(2), highest=low(1))], batch.keys)


@pytest.mark.sweep
@pytest.mark.parametrize("hundred", range(20))
def test_two_thousand_histories(hundred, tmp_path):
    """Each history with a random type, moves on or off, ranges on or off, blooms of either kind."""
    for seed in range(hundred * 100, hundred * 100 + 100):
        check_history(seed, tmp_path / str(seed))


@pytest.mark.parametrize("seed", range(2000, 2006))
def test_some_histories(seed, tmp_path):
    check_history(seed, tmp_path)


def check_history(seed, root):
    rng = np.random.default_rng(seed)
    kind = TYPES[seed % len(TYPES)]
    moves = bool(rng.integers(2))
    texts = {
        "bloom.index.filter.type": ["simple", "dynamic-v0"][rng.integers(2)],
        "bloom.index.prune.by.ranges": ["true", "false"][rng.integers(2)],
        "bloom.index.update.partition.path": str(moves).lower(),
        "simple.index.update.partition.path": str(moves).lower(),
        "commit.fsync": "false",
        "bucket": str(rng.integers(1, 4)),
    }
    root.mkdir(exist_ok=True)
    table = create(root, kind, **texts)
    for _ in range(rng.integers(1, 6)):
        numbers = rng.permutation(50)[: rng.integers(1, 40)]
        rows = rows_of(numbers, rng.integers(0, 3, len(numbers)))
        match rng.integers(5):
            case 0:
                table.delete(rows.select(["k", "t", "dt"]))
            case 1:
                table.compact(full=bool(rng.integers(2)))
            case _:
                table.upsert(rows)
        if table.latest_snapshot() is not None:
            asked = rows_of(rng.integers(0, 60, 40), rng.integers(0, 4, 40))
            locator = Locator(table.session)
            assert_equals_join(table, locator, asked, kind.startswith("global"), moves=moves)


def read_calls(monkeypatch, table, rows):
    """Locate rows; which data files were expected and opened, in order."""
    calls = []

    def noting(verb):
        act = getattr(LocalFileIO, verb)

        def called(storage, path, **known):
            if "/data-" in path:
                calls.append((verb, path))
            return act(storage, path, **known)

        return called

    with monkeypatch.context() as patched:
        for verb in ("prefetch", "open_input"):
            patched.setattr(LocalFileIO, verb, noting(verb))
        table.locate(rows)
    return calls


def test_ten_thousand_files_waited_three_times_for_each(tmp_path, monkeypatch):
    """A file that is not in memory made tagging wait for its tail, its footer and its keys."""
    table = create(tmp_path, "bloom", bucket="1")
    for start in (0, 2, 4, 6):
        table.upsert(rows_of(range(start, 400, 8), [0] * 50))
    asked = rows_of(range(201, 260, 2), [0] * 30)
    calls = read_calls(monkeypatch, table, asked)
    opened = [path for verb, path in calls if verb == "open_input"]
    assert len(opened) == len(set(opened)) == 4
    for before, after in pairwise(opened):
        assert calls.index(("prefetch", after)) < calls.index(("open_input", before))
    assert len(calls) == 4 + 3


@pytest.mark.parametrize("index_type", ["bloom", "simple"])
def test_of_large_files_and_without_filters_only_what_is_wanted_is_read(
    tmp_path, monkeypatch, index_type
):
    table = create(tmp_path, index_type, bucket="1")
    for start in (0, 2):
        table.upsert(rows_of(range(start, 400, 8), [0] * 50))
    if index_type == "bloom":
        monkeypatch.setattr(key_search, "_EXPECTED_BYTES_MAX", 100)
    calls = read_calls(monkeypatch, table, rows_of([201], [0]))
    assert [verb for verb, _ in calls] == ["open_input"] * 2
