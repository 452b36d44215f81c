"""Clocks, ids, and where files live."""

import pickle
import uuid

import pytest

from lsm_engine.base.errors import UnsafePathError
from lsm_engine.storage.clock import SystemClock, SystemIds
from lsm_engine.storage.paths import SNAPSHOT_PREFIX, TablePaths, numbered


def test_system_clock():
    clock = pickle.loads(pickle.dumps(SystemClock()))
    before = clock.now_millis()
    clock.sleep_millis(2)
    clock.sleep_millis(-1)
    assert clock.now_millis() >= before + 2
    year, month, day, hour, minute, second, nanos = clock.local_time()
    assert year >= 2024
    assert 1 <= month <= 12
    assert 1 <= day <= 31
    assert 0 <= hour < 24
    assert 0 <= minute < 60
    assert 0 <= second <= 60
    assert 0 <= nanos < 1_000_000_000


def test_system_ids():
    ids = pickle.loads(pickle.dumps(SystemIds()))
    made = {ids.new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(str(uuid.UUID(each)) == each for each in made)
    assert all(0 <= ids.fraction() < 1 for _ in range(100))


PATHS = TablePaths(root="shop.db/orders")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PATHS.schema_file(0), "schema/schema-0"),
        (PATHS.snapshot_file(7), "snapshot/snapshot-7"),
        (PATHS.snapshot_hint("LATEST"), "snapshot/LATEST"),
        (PATHS.changelog_file(7), "changelog/changelog-7"),
        (PATHS.changelog_hint("EARLIEST"), "changelog/EARLIEST"),
        (PATHS.manifest("manifest-list-u-0"), "manifest/manifest-list-u-0"),
        (PATHS.index_file("index-u-0"), "index/index-u-0"),
        (PATHS.statistics_file("stat-u-0"), "statistics/stat-u-0"),
        (PATHS.tag_file("v1"), "tag/tag-v1"),
        (PATHS.branch("b").snapshot_file(1), "branch/branch-b/snapshot/snapshot-1"),
        (PATHS.consumer_file("c"), "consumer/consumer-c"),
        (PATHS.data_file("a=1/b=x", 3, "data-u-0.parquet"), "a=1/b=x/bucket-3/data-u-0.parquet"),
        (PATHS.data_file("", 0, "data-u-0.parquet"), "bucket-0/data-u-0.parquet"),
        (PATHS.bucket_directory("", -2), "bucket-postpone"),
    ],
)
def test_layout(path, expected):
    assert path == f"shop.db/orders/{expected}"


def test_a_table_can_be_the_root():
    assert TablePaths().data_file("", 0, "x") == "bucket-0/x"


@pytest.mark.parametrize("name", ["../x", "a/b", "", "..", "a\0", "a\\b"])
def test_stored_names_are_one_path_part(name):
    for place in (PATHS.manifest, PATHS.index_file, PATHS.statistics_file):
        with pytest.raises(UnsafePathError):
            place(name)
    with pytest.raises(UnsafePathError):
        PATHS.data_file("", 0, name)


def test_names_with_paths_make_no_tag_or_branch():
    for place in (PATHS.tag_file, PATHS.branch, PATHS.consumer_file):
        with pytest.raises(UnsafePathError):
            place("x/../../evil")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("snapshot-1", 1),
        ("snapshot-9223372036854775807", 9223372036854775807),
        ("snapshot-", None),
        ("snapshot-01", None),
        ("snapshot--1", None),
        ("snapshot-1.tmp", None),
        ("snapshot-\u0661", None),
        ("snapshot-" + "9" * 30, None),
        ("LATEST", None),
        (".snapshot-1.x.tmp", None),
    ],
)
def test_numbered(name, number):
    assert numbered(name, SNAPSHOT_PREFIX) == number
