"""Plans of very many files: the same splits as of few, made bucket by bucket."""

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.format.data_file import EMPTY_STATS, DataFileMeta
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_columns import narrowed, rows_of, widened
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.options.modes import EntryKind
from lsm_engine.read import scan_plan
from lsm_engine.table import live_files
from lsm_engine.table.components import LocalExecutor
from lsm_engine.table.live_files import bucket_pairs
from tests.bench.many_files import IDS_PER_FILE, many_files
from tests.unit.table.history_tables import Story


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    made = many_files(tmp_path_factory.mktemp("many"), 3_500)
    return lsm.open_table(made.path)


def test_metadata_made_by_stamping_is_metadata(table) -> None:
    report = table.system("files")
    assert report.num_rows == 3_500
    assert len(set(report["file_path"].to_pylist())) == 3_500
    row = report.to_pylist()[1]
    assert row["min_key"] == str(IDS_PER_FILE)
    assert '"id": 1000' in row["min_value_stats"]
    assert table.system("partitions")["file_count"].to_pylist() == [1_000, 1_000, 1_000, 500]


def test_many_splits_are_those_of_few(table, monkeypatch) -> None:
    few = tuple(lsm.open_table(table.location).scan().splits())
    monkeypatch.setattr(scan_plan, "MANY_FILES", 1_000)
    scan = lsm.open_table(table.location).scan()
    many = scan.splits()
    assert isinstance(many, live_files.ManySplits)
    listed = list(many)
    assert [[file.file_name for file in split.files] for split in listed] == [
        [file.file_name for file in split.files] for split in few
    ]
    assert len(many) == len(few)
    assert (many[0], many[-1], many[3:5]) == (listed[0], listed[-1], tuple(listed[3:5]))
    assert bool(many)
    with pytest.raises(IndexError):
        many[len(many)]
    told = scan.explain()
    assert (told.files.kept, told.files.total) == (3_500, 3_500)
    assert told.row_count == 3_500 * IDS_PER_FILE
    assert scan.count() == 3_500 * IDS_PER_FILE


ENTRY = ManifestEntry(
    kind=EntryKind.ADD, partition=b"p", bucket=0, total_buckets=1, file=DataFileMeta(
        file_name="a", file_size=0, row_count=0, min_key=b"", max_key=b"", key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS, min_sequence_number=0, max_sequence_number=0, schema_id=0, level=0,
    ),
)  # fmt: skip
SIZES = st.sampled_from([0, 1, 127, 128, 2**31, 2**32, 2**63 - 1])
ENTRIES = st.builds(
    lambda partition, bucket, size, deletes, path: replace(
        ENTRY,
        partition=partition,
        bucket=bucket,
        file=replace(
            ENTRY.file, file_size=size, delete_row_count=deletes, external_path=path, checksum=size
        ),
    ),
    st.sampled_from([b"p", b"q", b""]),
    st.sampled_from([-2, 0, 127, 2**31 - 1]),
    SIZES,
    st.none() | SIZES,
    st.none() | st.just("elsewhere"),
)


@given(st.lists(st.lists(ENTRIES, min_size=1, max_size=3), min_size=1, max_size=3))
def test_narrowed_entries_are_the_same(manifests: list[list[ManifestEntry]]) -> None:
    wide = [rows_of(entries, with_stats=True) for entries in manifests]
    kept = pa.concat_tables(map(narrowed, wide), promote_options="permissive")
    expected = pa.concat_tables(wide)
    assert entries_of(kept) == entries_of(expected)
    pairs, of_row = bucket_pairs(kept)
    assert [pairs[one] for one in of_row.tolist()] == [
        (entry.partition, entry.bucket) for entries in manifests for entry in entries
    ]
    assert len(set(pairs)) == len(pairs)
    assert sorted(pairs) == sorted(bucket_pairs(expected)[0])


def test_a_filter_on_partition_and_key_finds_its_files(table) -> None:
    where = (pc.field("dt") == "day-000002") & (pc.field("id") >= 5_500) & (pc.field("id") < 7_000)
    told = table.scan(where=where).explain()
    assert told.files.kept == 2 * 10
    assert told.manifests.kept == 1


def test_going_through_plans_each_bucket_once(table, monkeypatch) -> None:
    monkeypatch.setattr(scan_plan, "MANY_FILES", 1_000)
    splits = lsm.open_table(table.location).scan().splits()
    planned = []
    plan_bucket = splits._plan_bucket
    splits._plan_bucket = lambda entries: (planned.append(len(entries)), plan_bucket(entries))[1]
    done = list(LocalExecutor(threads=2).ordered(lambda split: len(split.files), splits))
    assert sum(done) == sum(planned) == 3_500
    planned.clear()
    assert len(splits[:5]) == 5
    assert sum(planned) <= 100
    assert splits[-2:] == tuple(splits)[-2:]


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_counted_as_in_a_small_table(seed, monkeypatch) -> None:
    """Buckets in one level, in several, with deletes, under vectors and in level 0 alone."""
    chance = random.Random(seed)
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("id", "p")])
    options = {"bucket": "2", "write-only": "true"}
    if seed % 3 == 1:
        options["merge-engine"] = "first-row"
    if seed % 3 == 2:
        options |= {"deletion-vectors.enabled": "true"}
    story = Story(schema, key=("id", "p"), partitioned_by=("p",), options=options)
    for _ in range(8):
        story.clock.advance(1000)
        rows = [{"id": chance.randrange(60), "p": chance.randrange(5)} for _ in range(12)]
        story.table.upsert(rows)
        if chance.random() < 0.4:
            story.table.compact(full=chance.random() < 0.6)
        if seed % 3 != 1 and chance.random() < 0.4:
            story.table.delete(rows[:5])
        few = story.reopened().scan()
        with monkeypatch.context() as patched:
            patched.setattr(scan_plan, "MANY_FILES", 0)
            many = story.reopened().scan()
            counts = [many.count(), many.count(), story.reopened().scan(limit=7).count()]
            counts.append(story.reopened().scan(where=f"p = {rows[0]['p']}").count())
        found = few.to_arrow()
        assert isinstance(many.splits(), live_files.ManySplits)
        assert counts[:3] == [found.num_rows, found.num_rows, min(7, found.num_rows)]
        assert counts[3] == found["p"].to_pylist().count(rows[0]["p"])


@pytest.mark.parametrize(
    "numbers",
    [(-1, 2**60 + 1), (-1, 2**33), (-(2**63), 2**63 - 1), (-129, 0), (0, 2**63 - 1), (-1, 1)],
)
def test_numbers_with_a_sign_stay_numbers(numbers) -> None:
    columns = ["_FILE._MAX_SEQUENCE_NUMBER"]
    narrow = narrowed(pa.table([pa.array(numbers, pa.int64())], names=columns))
    assert pa.types.is_integer(narrow.schema.field(0).type)
    assert widened(narrow, columns)["_FILE._MAX_SEQUENCE_NUMBER"].to_pylist() == list(numbers)
