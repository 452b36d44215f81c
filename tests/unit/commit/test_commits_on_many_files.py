"""A commit reads and writes what it touches, however many files the table has."""

import random

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError
from lsm_engine.metadata.manifests import ManifestStore
from tests.bench.many_files import COLUMNS, many_files
from tests.samples import seeds
from tests.unit.table.history_tables import Story

NAMES = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int64(), nullable=False)]
)


def row(day, number):
    texts = {name: "a" for name in COLUMNS.names if COLUMNS.field(name).type == pa.string()}
    return {"id": number, **texts, "dt": day}


@pytest.fixture
def read_columns(monkeypatch):
    """Which manifests were decoded, and what of them: (entries, columns or None for all)."""
    seen = []
    decode = ManifestStore._kept_or

    def note(self, name, how, *rest, **more):
        if name.startswith("manifest-") and not name.startswith("manifest-list"):
            columns = getattr(how, "keywords", {}).get("columns")
            count = getattr(how, "keywords", {}).get("expected_count")
            if self._kept.find(name) is None:
                seen.append((count, columns))
        return decode(self, name, how, *rest, **more)

    monkeypatch.setattr(ManifestStore, "_kept_or", note)
    return seen


def test_a_commit_reads_the_manifests_of_its_partitions_alone(tmp_path, read_columns):
    made = many_files(tmp_path, 145_000)  # 29 manifests of 5,000 files, 145 days
    table = lsm.open_table(made.path)
    read_columns.clear()
    table.upsert([row("2030-01-01", 1)])  # a day that is not there yet
    assert read_columns == []
    lsm.open_table(made.path).upsert([row(made.day, 1)])
    large = [columns for count, columns in read_columns if count > 256]
    assert len(large) <= 2, read_columns
    assert all(columns is not None and len(columns) < 12 for columns in large)


def test_what_is_known_of_many_manifests_is_not_read_again(tmp_path, read_columns):
    made = many_files(tmp_path, 145_000)
    table = lsm.open_table(made.path)
    rows = [row(f"2030-01-{day:02}", day) for day in range(1, 20)]  # so many that all are looked at
    table.upsert(rows)
    read_columns.clear()
    for number in range(5):
        table.upsert([row("2030-01-03", number), row("2031-01-03", number)])
    assert [count for count, _ in read_columns if count > 256] == []
    assert {
        one["id"] for one in table.scan(where="dt = '2031-01-03'").to_arrow().to_pylist()
    } == set(range(5))


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_merged_manifests_hold_the_same_files(seed):
    """Some hundred buckets, so that merged manifests are copied; a third of the steps compact."""
    chance = random.Random(seed)
    options = {
        "bucket": "20", "manifest.merge-min-count": "2", "write-only": "true",
        "manifest.full-compaction-threshold-size": chance.choice(["1 b", "16 mb"]),
        "manifest.target-file-size": chance.choice(["8 kb", "8 mb"]),
    }  # fmt: skip
    story = Story(NAMES, key=("id", "p"), partitioned_by=("p",), options=options)
    expected = {}
    for _ in range(7):
        story.clock.advance(1000)
        rows = [{"id": number, "p": number % 9} for number in chance.sample(range(4000), 600)]
        story.table.upsert(rows)
        expected |= {(one["id"], one["p"]): one for one in rows}
        if chance.random() < 0.35:
            story.table.compact(full=chance.random() < 0.5)
        if chance.random() < 0.2:
            story.table.delete(rows[:100])
            for one in rows[:100]:
                expected.pop((one["id"], one["p"]))
        table = story.reopened()
        found = {(one["id"], one["p"]): one for one in table.scan().to_arrow().to_pylist()}
        assert found == expected
    assert table.verify(deep=True).is_clean
    metas = table.session.manifest_metas(table.session.snapshots.latest())
    for meta in metas:
        entries = table.session.manifests.read_entries(meta)
        added = [one for one in entries if not one.kind.value]
        assert (len(added), len(entries)) == (
            meta.added_file_count, meta.added_file_count + meta.deleted_file_count,
        )  # fmt: skip
        assert min(one.bucket for one in entries) == meta.min_bucket
        assert max(one.file.level for one in entries) == meta.max_level
        assert {one.total_buckets for one in entries} == {meta.total_buckets}


def test_a_deletion_of_what_nobody_added_is_damage(monkeypatch):
    """Found by a merge of everything, also where entries are copied."""
    story = Story(
        NAMES, key=("id", "p"), partitioned_by=("p",),
        options={"bucket": "300", "write-only": "true", "manifest.full-compaction-threshold-size": "1 b"},
    )  # fmt: skip
    story.table.upsert([{"id": number, "p": 0} for number in range(4000)])
    story.table.compact(full=True)
    table = story.reopened()
    metas = table.session.manifest_metas(table.session.snapshots.latest())
    assert metas[0].added_file_count > 256
    monkeypatch.setattr(
        type(table.session), "manifest_metas",
        lambda self, snapshot: [meta for meta in metas if meta.deleted_file_count],
    )  # fmt: skip
    with pytest.raises(CorruptFileError, match="no manifest added"):
        table.upsert([{"id": 1, "p": 0}])
