"""Live files become splits, and a scan explains itself."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.planning.scan import (
    Packing,
    PruneCounts,
    Reach,
    ReadMode,
    ScanExplanation,
    Split,
    SplitPlanner,
    prune_counts,
    read_files,
)
from tests.unit.planning.facts import entry, key_order

PACKING = Packing(target_size_bytes=100, open_file_cost_bytes=1)


def bucket(shape: str, *, size: int = 10, bucket: int = 0) -> list[ManifestEntry]:
    """ "0:1-5 5:6-9d": level, first and last key; d: with deletes, ?: that does not say."""
    entries = []
    for number, word in enumerate(shape.split()):
        level, _, keys = word.partition(":")
        deletes = {"d": 1, "?": None}.get(keys[-1], 0)
        low, _, high = keys.rstrip("d?").partition("-")
        entries.append(
            entry(f"f{number}", int(low), int(high), level=int(level), deletes=deletes, size=size,
                  bucket=bucket, sequence=100 * number)
        )  # fmt: skip
    return entries


def plan(live: list[ManifestEntry], **how) -> tuple[Split, ...]:
    how = {"packing": PACKING, "snapshot_id": 7, "key_order": key_order} | how
    return SplitPlanner(**how).plan(live)


def told(splits: tuple[Split, ...]) -> str:
    """Each split as raw or merged, its sections in brackets, runs separated by |."""
    return " ".join(
        ("raw" if split.raw else "merged")
        + "".join(
            "[" + "|".join(" ".join(file.file_name for file in run) for run in section) + "]"
            for section in split.sections
        )
        for split in splits
    )


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("", ""),
        ("0:1-5", "raw[f0]"),
        ("0:1-5d", "merged[f0]"),
        ("5:1-5?", "merged[f0]"),
        ("5:1-5 5:6-9", "raw[f0][f1]"),
        ("5:1-5 0:6-9", "raw[f0][f1]"),  # no shared keys: levels do not matter
        ("5:1-5 0:5-9", "merged[f0|f1]"),
        ("5:1-5 5:6-9 0:5-6", "merged[f0 f1|f2]"),
        ("5:1-3 5:4-9 0:5-6", "raw[f0] merged[f1|f2]"),
        ("5:1-3 5:4-5d 5:6-9", "raw[f0][f2] merged[f1]"),
        ("0:1-9 0:1-9 0:1-9", "merged[f0|f1|f2]"),
    ],
)
def test_splits(shape: str, expected: str) -> None:
    assert told(plan(bucket(shape))) == expected


def of_rows(first: int, size: int, name: str) -> ManifestEntry:
    """A file of the rows with ids `first` to `first` + 9."""
    made = entry(name, size=size)
    return replace(made, file=replace(made.file, first_row_id=first))


def test_files_of_the_same_rows_are_joined_and_others_read_as_they_are() -> None:
    live = [of_rows(0, 10, "a"), of_rows(0, 10, "b"), of_rows(10, 10, "c"), of_rows(20, 10, "d")]
    found = plan(live, mode=ReadMode.ROW_ID)
    assert told(found) == "raw[c][d] merged[a|b]"
    assert [split.reason for split in found] == [
        "raw: 2 files of whole rows", "joined: 2 files of the same rows",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("matching", "expected"),
    [("abc", "raw[c] merged[a|b]"), ("ac", "raw[c]"), ("b", ""), ("ab", "merged[a|b]")],
)
def test_each_file_of_the_same_rows_alone_can_rule_them_out(matching: str, expected: str) -> None:
    live = [of_rows(0, 10, "a"), of_rows(0, 10, "b"), of_rows(10, 10, "c")]
    match = {"value_match": lambda file: file.file_name in matching}
    for keeps in (False, True):
        found = plan(live, mode=ReadMode.ROW_ID, merge_keeps_rows=keeps, **match)
        assert told(found) == expected


@pytest.mark.parametrize(
    ("shape", "mode", "expected"),
    [
        ("0:1-9 5:1-5 4:3-9", ReadMode.ABOVE_LEVEL_0, "raw[f1][f2]"),
        ("0:1-9 5:1-5d 4:3-9", ReadMode.ABOVE_LEVEL_0, "raw[f2] merged[f1]"),
        ("0:1-9", ReadMode.ABOVE_LEVEL_0, ""),
        ("0:0-0 0:0-0 0:0-0", ReadMode.NO_KEY, "raw[f0][f1][f2]"),
        ("0:0-0d", ReadMode.NO_KEY, "raw[f0]"),
    ],
)
def test_modes_without_merging(shape: str, mode: ReadMode, expected: str) -> None:
    assert told(plan(bucket(shape), mode=mode)) == expected


@pytest.mark.parametrize(
    ("shape", "reach", "expected"),
    [
        ("5:1-5 4:3-9 0:1-9", Reach.ALL, "merged[f0|f1|f2]"),
        ("5:1-5 4:3-9 0:1-9", Reach.ABOVE_LEVEL_0, "merged[f0|f1]"),
        ("5:1-5 4:3-9 0:1-9", Reach.DEEPEST, "raw[f0]"),
        ("4:3-9 0:1-9", Reach.DEEPEST, "raw[f0]"),  # written with fewer levels
        ("0:1-9", Reach.DEEPEST, ""),
    ],
)
def test_levels_out_of_reach(shape: str, reach: Reach, expected: str) -> None:
    assert told(plan(bucket(shape), reach=reach)) == expected


def test_sections_fill_splits_and_are_never_cut() -> None:
    shape = " ".join(f"5:{n}-{n}" for n in range(5))
    assert told(plan(bucket(shape, size=40))) == "raw[f0][f1] raw[f2][f3] raw[f4]"
    assert told(plan(bucket(shape, size=500))) == "raw[f0] raw[f1] raw[f2] raw[f3] raw[f4]"
    costly = Packing(target_size_bytes=100, open_file_cost_bytes=50)
    assert told(plan(bucket(shape, size=1), packing=costly)) == "raw[f0][f1] raw[f2][f3] raw[f4]"
    assert told(plan(bucket("0:1-9 0:1-9 0:1-9", size=90))) == "merged[f0|f1|f2]"


def test_buckets_share_no_split() -> None:
    live = bucket("5:1-2", bucket=1) + bucket("5:1-2", bucket=0)
    assert [split.bucket for split in plan(live)] == [0, 1]


def named(*names: str):
    return lambda file: file.file_name in names


@pytest.mark.parametrize(
    ("shape", "matching", "keeps_rows", "expected"),
    [
        ("5:1-3 5:4-9", ("f1",), False, "raw[f1]"),
        ("5:1-3 0:2-9", (), False, "merged[f0|f1]"),  # merged values may match yet
        ("5:1-3 0:2-9", (), True, ""),
        ("5:1-3 0:2-9", ("f0",), True, "merged[f0|f1]"),  # f1 may replace what matches in f0
        ("5:1-3d", (), False, "merged[f0]"),
        ("5:1-3d", (), True, ""),
    ],
)
def test_value_statistics(
    shape: str, matching: tuple[str, ...], keeps_rows: bool, expected: str
) -> None:
    planner = SplitPlanner(
        key_order=key_order, packing=PACKING, snapshot_id=1,
        value_match=named(*matching), merge_keeps_rows=keeps_rows,
    )  # fmt: skip
    made = planner.plan(bucket(shape))
    assert told(made) == expected


def test_a_split_travels_light() -> None:
    (split,) = plan(bucket("5:1-5 0:5-9"))
    assert pickle.loads(pickle.dumps(split)) == split
    assert all(not file.value_stats.min_values for file in split.files)
    assert (split.size_bytes, split.row_count, split.snapshot_id) == (20, 20, 7)


files = st.tuples(
    st.integers(0, 3), st.sets(st.integers(0, 30), min_size=1, max_size=5), st.booleans()
)


@given(st.lists(files, max_size=8), st.integers(1, 200))
def test_reading_splits_is_reading_the_bucket(
    made: list[tuple[int, set[int], bool]], target: int
) -> None:
    """Keys with their newest file, over files of any level; the oldest file comes first."""
    live, keys = [], {}
    for number, (level, held, deletes) in enumerate(made):
        name = f"f{number}"
        keys[name] = held
        live.append(
            entry(name, min(held), max(held), level=level, sequence=1000 * number, size=10,
                  deletes=len(held) if deletes else 0, rows=len(held))
        )  # fmt: skip
    deleted = {f"f{n}" for n, (_, _, deletes) in enumerate(made) if deletes}
    newest: dict[int, str] = {}
    for one in live:
        newest |= dict.fromkeys(keys[one.file.file_name], one.file.file_name)
    expected = {key: name for key, name in newest.items() if name not in deleted}

    def rows_of(split: Split) -> list[tuple[int, str]]:
        def merged(parts: list[DataFileMeta]) -> dict[int, str]:
            winners: dict[int, str] = {}
            for file in sorted(parts, key=lambda file: file.min_sequence_number):
                winners |= dict.fromkeys(keys[file.file_name], file.file_name)
            return winners

        if split.raw:
            return [(key, file.file_name) for file in split.files for key in keys[file.file_name]]
        found = []
        for section in split.sections:
            winners = merged([file for run in section for file in run])
            found += [(key, name) for key, name in winners.items() if name not in deleted]
        return found

    splits = plan(live, packing=Packing(target_size_bytes=target, open_file_cost_bytes=1))
    read = [row for split in splits for row in rows_of(split)]
    assert len(read) == len({key for key, _ in read})
    assert dict(read) == expected


def test_an_explanation_reads_well() -> None:
    splits = plan(bucket("5:1-3 5:4-9 0:5-6"))
    explanation = ScanExplanation(
        snapshot_id=7, pushed_filter="(k > 3)", residual_filter=None,
        manifests=prune_counts(9, [("by_partition", 4), ("by_bucket", 3)]),
        files=PruneCounts(total=40, by_partition=20, by_bucket=8, by_key_range=5, by_stats=4),
        splits=splits,
    )  # fmt: skip
    assert explanation.text().splitlines() == [
        "scan of snapshot 7",
        "  filter below the merge: (k > 3)",
        "  filter after the merge: none",
        "  reads 3 of 9 manifests (5 by partition, 1 by bucket pruned)",
        "  reads 3 of 40 data files (20 by partition, 8 by bucket, 5 by key range, 4 by statistics pruned)",
        "  reads 30 rows, 30 B, in 2 splits (1 raw, 1 merged)",
        "  bucket 0 L5: raw: 1 file, no keys shared, no deletes (10 rows, 10 B)",
        "  bucket 0 L0, L5: merged: 2 files share keys, in up to 2 runs (20 rows, 20 B)",
    ]
    assert explanation.text(split_lines_max=1).splitlines()[-1] == "  … and 1 more split"


def test_an_empty_table_explains_itself() -> None:
    nothing = PruneCounts(total=0)
    explanation = ScanExplanation(
        snapshot_id=None, pushed_filter=None, residual_filter=None, manifests=nothing,
        files=nothing, splits=(),
    )  # fmt: skip
    assert "scan of an empty table" in explanation.text()
    assert explanation.row_count == explanation.size_bytes == 0


@pytest.mark.parametrize(
    ("mode", "reach", "seen"),
    [
        (ReadMode.MERGE, Reach.ALL, [0, 1, 3, 0]),
        (ReadMode.MERGE, Reach.ABOVE_LEVEL_0, [1, 3]),
        (ReadMode.ABOVE_LEVEL_0, Reach.ALL, [1, 3]),
        (ReadMode.MERGE, Reach.DEEPEST, [3]),
    ],
)
def test_files_below_the_first_level_of_a_read_are_left_out(mode, reach, seen) -> None:
    """The deepest level is that of each bucket; a bucket with level 0 alone has none above it."""
    first, other = [entry("a", level=level) for level in (0, 1, 3)], entry("b", level=0, bucket=1)
    found, unseen = read_files([*first, other], mode, reach)
    assert [one.file.level for one in found] == seen
    assert len(found) + len(unseen) == 4
