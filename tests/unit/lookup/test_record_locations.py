"""Rows located for writers: which record, in which file, at which row; and rows of any file by key."""

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.data_files.reader import ReadColumns, open_data_file
from lsm_engine.lookup.locate import locate_rows, matching_rows

SCHEMA = pa.schema([("k", pa.int64()), ("dt", pa.string()), ("v", pa.int64())])
ENGINES = [
    {},
    {"index.type": "bloom"},
    {"sequence.field": "v"},
    {"merge-engine": "partial-update"},
    {"merge-engine": "partial-update", "lookup.local-file-type": "hash"},
    {"deletion-vectors.enabled": "true"},
    {"sequence.field": "v", "lookup.local-file-type": "sort"},
]


def create(tmp_path, primary_key=("k", "dt"), **options):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    return catalog.create_table(
        "d.t", SCHEMA, primary_key=list(primary_key), partitioned_by=["dt"],
        options={"bucket": "2", "commit.fsync": "false", **options},
    )  # fmt: skip


def rows_of(numbers, value=0, day=0):
    numbers = [int(n) for n in numbers]
    days = [f"d{(n + day) % 3}" for n in numbers]
    return pa.table({"k": numbers, "dt": days, "v": [value] * len(numbers)}, schema=SCHEMA)


def row_at(table, entry, position):
    """The row of a data file at a position, as the file holds it."""
    context = table.session.context([entry.file.schema_id])
    columns = ReadColumns(
        file_schema=context.schemas[entry.file.schema_id], read_schema=table.schema
    )
    path = context.data_file(entry.partition, entry.bucket, entry.file.file_name)
    with open_data_file(context.file_io, path, entry.file, columns) as reader:
        return reader.read().slice(position, 1).to_pylist()[0]


def history(table, rng):
    for step in range(5):
        numbers = rng.permutation(60)[: rng.integers(5, 40)]
        table.upsert(rows_of(numbers, step))
        if step == 2 and "merge-engine" not in table.options.texts:
            table.delete(rows_of(rng.permutation(60)[:10], 99))


@pytest.mark.parametrize(
    ("options", "everywhere"),
    [(options, True) for options in ENGINES] + [(options, False) for options in ENGINES[:3]],
    ids=str,
)
def test_positions_are_those_of_the_newest_version(options, everywhere, tmp_path):
    table = create(tmp_path, **options)
    history(table, np.random.default_rng(5))
    asked = pa.concat_tables([rows_of(range(80)), rows_of(range(20), day=1)])
    tags = locate_rows(table.session, asked, table.latest_snapshot(), everywhere=everywhere)
    there = {(r["k"], r["dt"]): r for r in table.scan().to_arrow().to_pylist()}
    elsewhere = dict(list(there))
    live = table.session.live_entries(table.latest_snapshot())
    files = {entry.file.file_name: entry for entry in live}
    seen = set()
    for number, row in enumerate(asked.to_pylist()):
        found = there.get((row["k"], row["dt"]))
        if found is None and everywhere:
            found = there.get((row["k"], elsewhere.get(row["k"])))
        assert tags.is_there[number] == (found is not None)
        if found is not None:
            entry = files[tags.places[tags.place[number]].file_name]
            stored = row_at(table, entry, int(tags.position[number]))
            assert (stored["k"], stored["dt"]) == (found["k"], found["dt"])
            assert entry.bucket == tags.buckets[number]
            assert is_elsewhere(tags)[number] == (found["dt"] != row["dt"])
            if "merge-engine" not in options:
                assert stored["v"] == found["v"]
            seen.add(bool(is_elsewhere(tags)[number]))
    assert seen == ({False, True} if everywhere else {False})
    assert tags.steps


def is_elsewhere(tags):
    """Which rows replace a record of another partition."""
    if not tags.places:
        return np.zeros(len(tags.is_there), np.bool_)
    own = np.array([*tags.partitions, b""], object)[tags.partition_of]
    there = np.array([place.partition for place in tags.places], object)[tags.place]
    return tags.is_there & (own != there).astype(np.bool_)


def test_nothing_to_look_into(tmp_path):
    table = create(tmp_path)
    tags = locate_rows(table.session, rows_of([1]), None)
    assert (tags.is_there.tolist(), is_elsewhere(tags).tolist(), tags.buckets.tolist()) == (
        [False], [False], [-1],
    )  # fmt: skip
    table.upsert(rows_of([1]))
    assert len(locate_rows(table.session, rows_of([]), table.latest_snapshot()).is_there) == 0


def test_keys_unique_across_partitions_are_found_wherever_they_are(tmp_path):
    table = create(tmp_path, primary_key=["k"], bucket="-1")
    table.upsert(rows_of(range(30)))
    table.delete(rows_of([3, 4]))
    tags = locate_rows(table.session, rows_of(range(35), day=1), table.latest_snapshot())
    assert tags.is_there.tolist() == [n < 30 and n not in (3, 4) for n in range(35)]
    assert (is_elsewhere(tags) == tags.is_there).all()
    found = table.lookup([{"k": n} for n in range(35)])
    assert found["_found"].to_pylist() == tags.is_there.tolist()
    assert found["dt"].to_pylist()[:3] == ["d0", "d1", "d2"]
    with table.query() as query:
        assert query.get({"k": 2}) == {"k": 2, "dt": "d2", "v": 0}
        assert query.get({"k": 3}) is None


def test_a_key_that_left_a_partition_is_found_in_the_new_one(tmp_path):
    """The delete that it left behind must not hide it, in whatever order partitions are asked."""
    table = create(tmp_path, primary_key=["k"], bucket="-1")
    table.upsert(rows_of(range(30), 1))
    table.upsert(rows_of(range(0, 30, 2), 2, day=1))
    table.upsert(rows_of(range(0, 30, 4), 3, day=2))
    there = {r["k"]: r for r in table.scan().to_arrow().to_pylist()}
    assert len(there) == 30
    found = table.lookup([{"k": n} for n in range(30)])
    assert found["_found"].to_pylist() == [True] * 30
    assert found.drop_columns("_found").to_pylist() == [there[n] for n in range(30)]
    tags = locate_rows(table.session, rows_of(range(30)), table.latest_snapshot())
    assert tags.is_there.all()


@pytest.mark.parametrize("with_nulls", [False, True])
def test_rows_of_append_tables_by_key(with_nulls, tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table("d.t", SCHEMA, partitioned_by=["dt"], options={"bucket": "-1"})
    rng = np.random.default_rng(1)
    for _ in range(3):
        numbers = [int(n) for n in rng.integers(0, 40, 100)]
        keys = [None if with_nulls and n % 7 == 0 else n for n in numbers]
        table.append(pa.table({"k": keys, "dt": ["a"] * 100, "v": range(100)}, schema=SCHEMA))
    entries = table.session.live_entries(table.latest_snapshot())
    keys = pa.RecordBatch.from_pydict({"k": pa.array([14, 3, 99, 39, 3], pa.int64())})
    found = 0
    for match in matching_rows(table.session, keys, entries):
        assert (np.diff(match.positions) > 0).all()
        stored = [row_at(table, match.entry, int(p))["k"] for p in match.positions]
        assert stored == [keys["k"][int(n)].as_py() for n in match.keys]
        found += len(stored)
    wanted = [n for n in table.scan().to_arrow()["k"].to_pylist() if n in (14, 3, 99, 39)]
    assert found == len(wanted) > 0
    none = keys.slice(0, 0)
    assert list(matching_rows(table.session, none, entries)) == []
    deleted = lambda entry, positions: np.ones(len(positions), np.bool_)  # noqa: E731
    assert list(matching_rows(table.session, keys, entries, deleted=deleted)) == []
