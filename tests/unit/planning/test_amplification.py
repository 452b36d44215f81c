"""What a tree costs: counted by hand."""

from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.planning.compaction import amplification
from tests.unit.planning.facts import entry


def gone(name, **facts):
    return entry(name, kind=EntryKind.DELETE, **facts)


def test_bytes_are_counted_once_where_they_were_written():
    commits = [
        (CommitKind.APPEND, [entry("a", size=100)]),
        (CommitKind.APPEND, [entry("b", size=60), entry("c", size=40, bucket=1)]),
        (
            CommitKind.COMPACT,
            [gone("a", size=100), gone("b", size=60), entry("ab", size=150, level=5)],
        ),
        (
            CommitKind.COMPACT,
            [gone("c", size=40, bucket=1), entry("c", size=40, bucket=1, level=5)],
        ),
        (CommitKind.APPEND, [entry("d", size=30)]),
    ]
    live = [
        entry("ab", size=150, level=5),
        entry("c", size=40, bucket=1, level=5),
        entry("d", size=30),
    ]
    found = amplification(commits, live)
    assert (found.commit_count, found.compaction_count) == (3, 2)
    assert (found.written_bytes, found.compacted_bytes, found.compaction_read_bytes) == (
        230,
        150,
        160,
    )
    assert found.write == (230 + 150) / 230
    assert found.read == (2 + 1) / 2
    assert found.space == 220 / 190


def test_an_empty_table_has_no_cost():
    found = amplification([], [])
    assert (found.write, found.read, found.space) == (None, None, None)


def test_files_of_one_level_are_one_run_and_without_levels_the_largest_counts():
    live = [entry("a", size=10, level=5), entry("b", size=20, level=5)]
    assert amplification([], live).read == 1
    flat = [entry("a", size=10), entry("b", size=30)]
    assert (amplification([], flat).read, amplification([], flat).space) == (2, 40 / 30)
