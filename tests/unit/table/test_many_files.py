"""Plans of very many files: the same splits as of few, made bucket by bucket."""

import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.table.ground import many_splits
from lsm_engine.table.ground.executor import LocalExecutor
from lsm_engine.table.read import prune_files
from tests.bench.many_files import IDS_PER_FILE, many_files


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
    monkeypatch.setattr(prune_files, "MANY_FILES", 1_000)
    scan = lsm.open_table(table.location).scan()
    many = scan.splits()
    assert isinstance(many, many_splits.ManySplits)
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


def test_a_filter_on_partition_and_key_finds_its_files(table) -> None:
    where = (pc.field("dt") == "day-000002") & (pc.field("id") >= 5_500) & (pc.field("id") < 7_000)
    told = table.scan(where=where).explain()
    assert told.files.kept == 2 * 10
    assert told.manifests.kept == 1


def test_going_through_plans_each_bucket_once(table, monkeypatch) -> None:
    monkeypatch.setattr(prune_files, "MANY_FILES", 1_000)
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
