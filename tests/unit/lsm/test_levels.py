"""Levels: order of runs, growth, replacement, candidates."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.lsm.levels import Levels, runs_are_apart
from tests import shapes
from tests.shapes import key_of, levels, show_all
from tests.unit.lsm.buckets import buckets


def names(files):
    return [file.file_name for file in files]


def test_runs_are_newest_first():
    tree = levels("L0:1@5=b L0:1@9=a L2:3[0-4]=d L2:3[5-9]=e L1:2=c")
    assert [(run.level, names(run.files)) for run in tree.runs] == [
        (0, ["a"]),
        (0, ["b"]),
        (1, ["c"]),
        (2, ["d", "e"]),
    ]
    assert names(tree.files) == ["a", "b", "c", "d", "e"]
    assert tree.highest_non_empty_level == 2
    assert names(tree.files_of(0)) == ["a", "b"]
    assert names(tree.files_of(2)) == ["d", "e"]
    assert tree.files_of(3) == tree.files_of(9) == ()


def test_ties_on_level_0_are_told_apart():
    one, two, three, four, five = shapes.files(
        "L0:1@3-9=z L0:1@4-9=y L0:1@4-9=x L0:1@4-9=w L0:1@4-9=v"
    )
    files = [
        five,
        replace(four, creation_millis=7),
        replace(three, creation_millis=7),
        replace(two, creation_millis=6),
        one,
    ]
    for order in (files, files[::-1]):
        tree = Levels.from_files(order, level_count=3, key_order=shapes.key_order)
        assert names(tree.level_zero) == ["z", "v", "y", "w", "x"]


def test_a_deep_file_raises_the_number_of_levels():
    assert levels("L0:1", level_count=3).level_count == 3
    tree = levels("L7:1", level_count=3)
    assert tree.level_count == 8
    assert tree.max_level == 7
    assert tree.update(tree.files, ()).level_count == 8


def test_an_empty_bucket():
    tree = levels("")
    assert tree.runs == tree.files == ()
    assert tree.highest_non_empty_level == -1
    assert list(tree.candidates(key_of(1))) == []


@pytest.mark.parametrize("shape", ["L1:1[0-5] L1:1[5-9]", "L3:1[0-9] L3:1[3-4]", "L2:1[1] L2:1[1]"])
def test_overlap_below_level_0_is_corrupt(shape):
    with pytest.raises(CorruptFileError, match="overlap"):
        levels(shape)
    levels(shape.replace("L1", "L0").replace("L2", "L0").replace("L3", "L0"))


def test_the_error_names_the_files_that_overlap():
    with pytest.raises(CorruptFileError, match=r"left.*right"):
        levels("L1:5[0-3]=left L1:5[3-9]=right")


def test_a_file_without_a_creation_time_stands_before_one_of_the_epoch():
    one, other = shapes.files("L0:1@5=b L0:1@5=a")
    made = Levels.from_files(
        [replace(other, creation_millis=0), one], level_count=2, key_order=shapes.key_order
    )
    assert [file.file_name for file in made.level_zero] == ["b", "a"]


def test_update_replaces_inputs_by_outputs():
    tree = levels("L0:1[0-3]=a L0:1[2-9]=b L1:5[0-9]=c")
    (merged,) = shapes.files("L2:6[0-9]=d")
    after = tree.update([file for file in tree.files if file.file_name != "a"], [merged])
    assert names(after.files) == ["a", "d"]


def test_an_upgrade_keeps_the_name():
    tree = levels("L0:1[0-3]=a L1:5[4-9]=c")
    file = tree.level_zero[0]
    after = tree.update([file], [file.upgrade(1)])
    assert show_all(after.files) == "L1:1[0-3] L1:5[4-9]"


def test_an_input_that_is_not_there_is_a_bug():
    tree = levels("L0:1=a")
    with pytest.raises(AssertionError):
        tree.update(shapes.files("L0:1=b"), ())


@given(buckets(), st.integers(0, 40), st.integers(0, 7))
def test_candidates_are_the_files_whose_range_holds_the_key(files, key, from_level):
    tree = Levels.from_files(files, level_count=6, key_order=shapes.key_order)
    found = list(tree.candidates(key_of(key), from_level=from_level))
    wanted = [
        file
        for file in tree.files
        if file.level >= from_level and file.min_key <= key_of(key) <= file.max_key
    ]
    assert found == wanted


@given(buckets())
def test_levels_keep_every_file_in_order(files):
    tree = Levels.from_files(files, level_count=3, key_order=shapes.key_order)
    assert sorted(names(tree.files)) == sorted(names(files))
    assert tree.level_count >= 3
    assert [run.level for run in tree.runs] == sorted(run.level for run in tree.runs)
    sequences = [file.max_sequence_number for file in tree.level_zero]
    assert sequences == sorted(sequences, reverse=True)
    for run in tree.runs:
        for one, other in zip(run.files, run.files[1:], strict=False):
            assert one.max_key < other.min_key


@pytest.mark.parametrize(
    ("runs", "are_apart"),
    [
        (["L0:1@1-3", "L0:1@4-6", "L0:1@7-9"], True),
        (["L0:1@7-9", "L0:1@1-3", "L0:1@4-6"], True),  # whatever their order
        (["L0:1@1-3", "L0:1@4-6", "L0:1@6-9"], False),  # of two pairs one shares a number
        (["L0:1@1-4", "L0:1@4-6", "L0:1@7-9"], False),
        (["L1:1@1-3 L1:2@8-9", "L0:1@4-6"], False),  # between the files of a run
        (["L0:1@1-3"], True),
        ([], True),
    ],
)
def test_runs_are_apart_if_each_is_older_or_newer_than_every_other(runs, are_apart):
    assert runs_are_apart([shapes.files(text) for text in runs]) is are_apart
