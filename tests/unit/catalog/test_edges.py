"""Which file went into which, from the entries of a compaction."""

from lsm_engine.catalog.lineage.facts import bucket_compactions, file_edges
from tests.unit.catalog.stories import add, data_file, drop, key_order

FIRST, SECOND = data_file("f1", keys=(0, 50)), data_file("f2", keys=(60, 99))
LOW, HIGH = data_file("c1", level=5, keys=(0, 55)), data_file("c2", level=5, keys=(56, 99))
ENTRIES = [drop(FIRST), drop(SECOND), add(LOW), add(HIGH)]


def shown(edges):
    return [
        f"{edge.source_name}@{edge.source_level} {edge.kind} {edge.target_name}@{edge.target_level}"
        for edge in edges
    ]


def test_rewrites_meet_where_keys_meet():
    edges = file_edges(bucket_compactions(ENTRIES), key_order)
    assert shown(edges) == ["f1@0 rewrite c1@5", "f2@0 rewrite c2@5"]


def test_without_an_order_everything_meets():
    edges = file_edges(bucket_compactions(ENTRIES))
    assert shown(edges) == [f"f{n}@0 rewrite c{m}@5" for n in (1, 2) for m in (1, 2)]


def test_an_upgrade_is_the_same_file():
    lone = data_file("f3")
    (bucket,) = bucket_compactions([drop(lone, bucket=1), add(lone.upgrade(5), bucket=1)])
    assert (bucket.read, bucket.written, bucket.output_level) == ((), (), 5)
    assert shown(file_edges([bucket], key_order)) == ["f3@0 upgrade f3@5"]


def test_buckets_and_partitions_do_not_mix():
    entries = [drop(FIRST), add(LOW, bucket=1), drop(SECOND, partition=b"p"), add(HIGH)]
    buckets = bucket_compactions(entries)
    assert [(one.partition == b"p", one.bucket) for one in buckets] == [
        (False, 0),
        (False, 1),
        (True, 0),
    ]
    assert shown(file_edges(buckets)) == ["f1@0 rewrite c2@5"]


def test_everything_cancelled_out():
    (bucket,) = bucket_compactions([drop(FIRST), drop(SECOND)])
    assert bucket.output_level is None
    assert file_edges([bucket]) == ()
