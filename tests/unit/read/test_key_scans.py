"""A scan whose filter names keys gives the rows of a scan, whether it reads pages or looks keys up."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.api.open_table import open_table
from lsm_engine.base.errors import StorageError
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.read.scan import Scan
from tests.bench.tables import new_table

SCHEMA = pa.schema(
    [
        pa.field("p", pa.int32(), nullable=False),
        pa.field("k", pa.string(), nullable=False),
        ("v", pa.int64()),
        ("s", pa.string()),
    ]
)
DEDUPLICATE: dict[str, str] = {}
OPTIONS: dict[str, dict[str, str]] = {
    "deduplicate": DEDUPLICATE,
    "sequence field": {"sequence.field": "v"},
    "sums": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "partial update": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "dynamic buckets": {"bucket": "-1"},
}


def rows(seed: int, count: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    picked = np.sort(chance.choice(900, count, replace=False))
    values = chance.integers(0, 50, count)
    return pa.table(
        [
            pa.array((picked % 3).astype(np.int32)),
            pc.cast(pa.array(picked), pa.string()),
            pa.array(values, mask=values % 7 == 0),
            pc.cast(pa.array(values), pa.string()),
        ],
        schema=SCHEMA,
    )


def table_of(folder: Path, options: Mapping[str, str] = DEDUPLICATE) -> lsm.Table:
    """3 partitions; upserts that overlap, a compaction, and more upserts and deletes above it."""
    given = {"bucket": "2", "write-only": "true", **options}
    table = new_table(folder, SCHEMA, key=("p", "k"), options=given, partitioned_by=("p",))
    for seed in range(3):
        table.upsert(rows(seed, 300))
    table.compact(full=True)
    table.upsert(rows(3, 200))
    table.delete(rows(0, 300).slice(0, 60).select(["p", "k"]))
    if "deletion-vectors.enabled" in options:
        table.compact()
    return table


@pytest.fixture
def looked_up() -> Iterator[Callable[[], int]]:
    """How many scans were answered by lookups so far."""
    answered = []
    plain = TableQuery.lookup_at

    def watched(self: TableQuery, *given: object) -> tuple[pa.Table | None, int]:
        found = plain(self, *given)  # type: ignore[arg-type]
        answered.append(found[0] is not None)
        return found

    with mock.patch.object(TableQuery, "lookup_at", watched):
        yield lambda: sum(answered)


def scanned(table: lsm.Table, columns: list[str] | None, where: object) -> pa.Table:
    """What the splits of a scan hold, which no lookup answers for."""
    scan = table.scan(columns, where=where)
    plan = scan.plan
    batches = [batch for split in plan.splits for batch in plan.source.batches(split)]
    return ordered(pa.Table.from_batches(batches, schema=scan.schema))


def ordered(found: pa.Table) -> pa.Table:
    return found.sort_by([(name, "ascending") for name in found.column_names])


FILTERS: tuple[tuple[list[str] | None, object], ...] = (
    (None, "p = 1 and k = '4'"),
    (["v"], "p = 2 and k in ('5', '8', '11', 'nowhere')"),
    (["s", "p"], "p in (0, 1, 2) and k in ('3', '4', '5', '6', '7', '8') and v > 10"),
    (None, "(p = 0 and k = '3') or (p = 1 and k = '7' and v is null)"),
    (["k"], pc.field("k").isin(["10", "13", "16", "19"]) & (pc.field("p") == 1)),
    (None, "p = 1 and k = '4' and k = '5'"),
    (None, "p = 1 and k in ('4', '7') and not (s = '12')"),
    (["k", "v"], f"p = 0 and k in ({', '.join(repr(str(n)) for n in range(0, 900, 3))})"),
)


@pytest.mark.parametrize("name", OPTIONS)
def test_lookups_answer_as_scans_do(
    tmp_path: Path, looked_up: Callable[[], int], name: str
) -> None:
    table = table_of(tmp_path, OPTIONS[name])
    hits = 0
    for again in range(4):
        for columns, where in FILTERS:
            found = table.scan(columns, where=where).to_arrow()
            expected = scanned(table, columns, where)
            assert found.schema.equals(expected.schema)
            assert ordered(found).equals(expected), where
            assert table.count(where) == expected.num_rows
            hits += expected.num_rows
        if again == 2:
            table.upsert(rows(9, 250))  # another snapshot is read from then on
    assert hits > 500
    assert looked_up() > len(FILTERS)


def test_few_scans_make_no_lookup_files(tmp_path: Path, looked_up: Callable[[], int]) -> None:
    table = new_table(tmp_path, SCHEMA, key=("p", "k"), options={"bucket": "1"})
    count = 100_000
    numbers = pa.array(np.arange(count))
    columns = [
        pa.array(np.zeros(count, np.int32)),
        pc.cast(numbers, pa.string()),
        numbers,
        pc.cast(numbers, pa.string()),
    ]
    table.upsert(pa.table(columns, schema=SCHEMA))
    table.compact(full=True)
    answers = []
    for number in range(9):
        where = f"p = 0 and k = '{number * 1_000}'"
        assert table.scan(["v"], where=where).to_arrow().to_pylist() == [{"v": number * 1_000}]
        answers.append(looked_up())
    assert answers[3] == 0  # less was decoded than all rows
    assert answers[8] >= 2
    another = lsm.open_table(table.location)
    assert another.scan(where="p = 0 and k = '7'").count() == 1
    assert looked_up() == answers[8]


def test_the_past_and_what_names_no_keys_is_scanned(
    tmp_path: Path, looked_up: Callable[[], int]
) -> None:
    table = table_of(tmp_path)
    table.lookup([{"p": 1, "k": "4"}])
    before = table.latest_snapshot()
    assert before is not None
    for where in ("p = 1", "k = '4'", "p = 1 and k > '4'", "p = 1 and k = '4' or v = 3", "v = 3"):
        for _ in range(5):
            table.scan(where=where).to_arrow()
    found = table.scan(where="p = 1 and k = '4'", snapshot_id=before.id)
    for _ in range(5):
        found.to_arrow()
    assert looked_up() == 0


def test_a_scan_stays_at_its_snapshot(tmp_path: Path, looked_up: Callable[[], int]) -> None:
    table = table_of(tmp_path)
    where = "p = 1 and k in ('4', '7')"
    for _ in range(20):
        table.scan(where=where).to_arrow()
    assert looked_up()
    scan, before = table.scan(where=where), scanned(table, None, where)
    table.upsert([{"p": 1, "k": key, "v": -1, "s": "new"} for key in ("4", "7")])
    table.lookup([{"p": 1, "k": "4"}])
    assert ordered(scan.to_arrow()).equals(before)
    assert table.scan(["v"], where=where).to_arrow()["v"].to_pylist() == [-1, -1]


def test_columns_added_since_are_there(tmp_path: Path, looked_up: Callable[[], int]) -> None:
    table = table_of(tmp_path)
    where = "p = 1 and k = '4'"
    for _ in range(20):
        table.scan(where=where).to_arrow()
    table.alter(lsm.AddColumn(name="more", type="string"))
    table.upsert([{"p": 1, "k": "4", "v": 1, "s": "s", "more": "yes"}])
    assert table.lookup([{"p": 1, "k": "4"}])["more"].to_pylist() == ["yes"]
    before = looked_up()
    for _ in range(20):
        assert table.scan(["more"], where=where).to_arrow().to_pylist() == [{"more": "yes"}]
    assert looked_up() > before


def test_a_full_disk_makes_no_scan_fail(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    where = "p = 1 and k = '4'"
    expected = scanned(table, None, where)
    full = mock.Mock(side_effect=StorageError("the disk is full", file="lookup"))
    with mock.patch("lsm_engine.cache.disk.DiskCache.get", full):
        for _ in range(20):
            assert table.scan(where=where).to_arrow().equals(expected)
    assert full.called


def test_frames_ask_for_keys_too(tmp_path: Path, looked_up: Callable[[], int]) -> None:
    pl = pytest.importorskip("polars")
    table = table_of(tmp_path)
    asked = (pl.col("p") == 1) & (pl.col("k") == "4")
    expected = table.to_polars().collect().filter(asked)
    for _ in range(20):
        assert table.to_polars().filter(asked).collect().equals(expected)
    assert looked_up()


def test_a_limit_holds(tmp_path: Path, looked_up: Callable[[], int]) -> None:
    table = table_of(tmp_path)
    where = "p = 1 and k in ('4', '7', '10', '13', '16', '19', '22')"
    whole = table.scan(where=where).count()
    assert whole > 2
    for _ in range(20):
        assert table.scan(where=where, limit=2).to_arrow().num_rows == 2
        assert Scan.count(table.scan(where=where, limit=2)) == 2
    assert looked_up()


def test_rows_without_columns_are_counted(tmp_path: Path, looked_up: Callable[[], int]) -> None:
    table = table_of(tmp_path)
    where = "p = 1 and k in ('4', '7', '10', '13', '16', '19', '22')"
    whole = scanned(table, None, where).num_rows
    assert whole > 2
    asked = (pc.field("p") == 1) & pc.field("k").isin(["4", "7", "10", "13", "16", "19", "22"])
    for _ in range(20):
        table.scan(["v"], where=where).to_arrow()
        assert table.scan([], where=where).count() == whole
        assert table.scan([], where=where).to_arrow().num_rows == whole
        assert table.to_dataset().to_table(columns=[], filter=asked).num_rows == whole
        assert table.to_dataset().count_rows(filter=asked) == whole
    assert looked_up()


def test_a_limit_of_nothing_stays_when_a_scan_is_narrowed(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert table.scan(limit=0).narrowed(None, None, 5).to_arrow().num_rows == 0
    assert table.scan(limit=7).narrowed(None, None, 5).to_arrow().num_rows == 5
    assert table.scan(limit=3).narrowed(["v"], None, 5).to_arrow().num_rows == 3
    assert table.scan().narrowed(None, None, 0).to_arrow().num_rows == 0
    assert table.scan(limit=3).narrowed(None, None, None).to_arrow().num_rows == 3


def test_damage_in_a_newer_snapshot_leaves_a_scan_of_the_older_one(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    where = "p = 1 and k in ('4', '7')"
    expected = scanned(table, None, where)
    scans = [table.scan(where=where) for _ in range(20)]
    writer = open_table(next(tmp_path.rglob("snapshot")).parent)
    writer.upsert(rows(9, 250))
    newest = writer.latest_snapshot()
    assert newest is not None
    (damaged,) = tmp_path.rglob(newest.delta_manifest_list)
    damaged.write_bytes(damaged.read_bytes()[:20])
    with pytest.raises(lsm.CorruptFileError):
        table.lookup([{"p": 1, "k": "4"}])
    for scan in scans:
        assert ordered(scan.to_arrow()).equals(expected)
