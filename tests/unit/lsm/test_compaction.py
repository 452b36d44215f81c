"""What compactions pick and plan, over any bucket: invariants of sections, units and steps."""

from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.lsm.levels import Levels, SortedRun, newest_first, sections
from lsm_engine.lsm.rewrite_plan import Rewrite, Upgrade, bulk_load, plan_rewrite
from lsm_engine.lsm.universal import (
    CompactUnit,
    EarlyFull,
    ForceUpLevelZero,
    PickReason,
    UniversalCompaction,
    pick_full,
)
from lsm_engine.options import core_options
from lsm_engine.options.table_options import given_options
from tests import shapes
from tests.unit.lsm.buckets import SIZES, buckets


def depth_at(files, key):
    return sum(file.min_key <= shapes.key_of(key) <= file.max_key for file in files)


@given(buckets())
def test_sections_are_disjoint_and_hold_the_fewest_runs(files):
    cut = sections(files, shapes.key_order)
    flat = [file.file_name for runs in cut for run in runs for file in run.files]
    assert sorted(flat) == sorted(file.file_name for file in files)
    end = b""
    for runs in cut:
        inside = [file for run in runs for file in run.files]
        assert min(file.min_key for file in inside) > end or not end
        end = max(file.max_key for file in inside)
        # No run can be spared: some key lies in as many files as there are runs.
        assert len(runs) == max(depth_at(inside, key) for key in range(41))
        for run in runs:
            for one, other in zip(run.files, run.files[1:], strict=False):
                assert one.max_key < other.min_key


@given(buckets(), st.data())
def test_files_whose_numbers_tie_stand_in_the_order_of_their_age(files, data):
    few = st.integers(0, 3)
    files = [
        replace(
            file,
            min_sequence_number=min(numbers),
            max_sequence_number=max(numbers),
            creation_millis=data.draw(few),
        )
        for file in files
        if (numbers := data.draw(st.lists(few, min_size=1, max_size=2)))
    ]
    for runs in sections(files, shapes.key_order):
        for older, newer in combinations(runs, 2):
            for one, other in product(older.files, newer.files):
                shares_keys = one.min_key <= other.max_key and other.min_key <= one.max_key
                low = max(one.min_sequence_number, other.min_sequence_number)
                if shares_keys and low <= min(one.max_sequence_number, other.max_sequence_number):
                    assert (one.level, newest_first(one)) > (other.level, newest_first(other))
        for run in runs:
            for one, other in pairwise(run.files):
                assert one.max_key < other.min_key


def unit_of(tree, trigger, ratio, amplification):
    strategy = UniversalCompaction(
        max_size_amplification_percent=amplification,
        size_ratio_percent=ratio,
        run_count_trigger=trigger,
    )
    return strategy.pick(tree.runs, max_level=tree.max_level)


def by_the_book(runs, max_level, trigger, ratio, amplification):
    """The rules of format section 13, written as they are told."""
    sizes = [run.size for run in runs]
    count = 0
    if len(runs) >= trigger and runs:
        if 100 * sum(sizes[:-1]) > amplification * sizes[-1]:
            count = len(runs)
        else:
            first = grown(sizes, 1, ratio)
            if first > 1:
                count = first
            elif len(runs) > trigger:
                count = grown(sizes, len(runs) - trigger + 1, ratio)
    if count == 0:
        return None
    if count < len(runs) and runs[count].level > 1:
        return count, runs[count].level - 1
    while count < len(runs):  # level 0 takes no result: swallow it, and the level below
        count += 1
        if runs[count - 1].level > 0:
            break
    return (count, max_level) if count == len(runs) else (count, runs[count - 1].level)


def grown(sizes, count, ratio):
    while count < len(sizes) and sum(sizes[:count]) * (100 + ratio) / 100 >= sizes[count]:
        count += 1
    return count


@given(buckets(), st.integers(1, 7), st.sampled_from([0, 1, 50]), st.sampled_from([0, 25, 200]))
def test_universal_picks_by_the_book(files, trigger, ratio, amplification):
    tree = Levels.from_files(files, level_count=6, key_order=shapes.key_order)
    unit = unit_of(tree, trigger, ratio, amplification)
    wanted = by_the_book(tree.runs, tree.max_level, trigger, ratio, amplification)
    if unit is None:
        assert wanted is None or (wanted[0] == 1 and len(tree.runs[0].files) == 1)
        return
    assert unit.runs == tree.runs[: len(unit.runs)]
    assert (len(unit.runs), unit.output_level) == wanted
    assert unit.output_level >= max(run.level for run in unit.runs)
    if len(unit.runs) < len(tree.runs):
        assert unit.output_level < tree.runs[len(unit.runs)].level


@given(buckets(), SIZES, st.booleans(), st.integers(1, 6), st.data())
def test_a_plan_leaves_a_sound_tree(files, target, full, trigger, data):
    tree = Levels.from_files(files, level_count=6, key_order=shapes.key_order)
    looked_at = (
        data.draw(st.sets(st.sampled_from([file.file_name for file in files]))) if files else set()
    )
    unit = (
        pick_full(tree.runs, max_level=tree.max_level) if full else unit_of(tree, trigger, 1, 200)
    )
    if unit is None:
        return
    steps = plan_rewrite(
        unit, tree, target_file_size=target, must_rewrite=lambda file: file.file_name in looked_at
    )
    stepped = [file for step in steps for file in step.files]
    assert len({file.file_name for file in stepped}) == len(stepped)
    assert {file.file_name for file in stepped} <= {file.file_name for file in unit.files}
    after = tree.update(
        stepped, [file for at, step in enumerate(steps) for file in outcome(step, at)]
    )
    assert after.level_count == tree.level_count
    # Every key of the unit is now on the output level or was there, and nowhere above it.
    left = [file for file in after.files if file.file_name in {f.file_name for f in unit.files}]
    assert all(file.level == unit.output_level for file in left)
    assert looked_at & {file.file_name for file in unit.files} <= {
        file.file_name for step in steps if isinstance(step, Rewrite) for file in step.files
    }
    if unit.output_level == tree.max_level:
        for step in steps:
            if isinstance(step, Upgrade):
                assert not any(file.may_hold_deletes for file in step.files)
            else:
                assert step.drop_deletes


def outcome(step, at):
    """Carry out a step on facts: upgraded files, or one file for the keys of each section."""
    if isinstance(step, Upgrade):
        return [file.upgrade(step.output_level) for file in step.files]
    return [
        replace(
            section[0].files[0],
            file_name=f"out-{at}-{number}",
            level=step.output_level,
            min_key=min(file.min_key for run in section for file in run.files),
            max_key=max(file.max_key for run in section for file in run.files),
        )
        for number, section in enumerate(step.sections)
    ]


@given(buckets())
def test_deletes_stay_while_something_older_is_left(files):
    tree = Levels.from_files(files, level_count=6, key_order=shapes.key_order)
    unit = unit_of(tree, 2, 1, 200)
    if unit is None:
        return
    older = tree.runs[len(unit.runs) :]
    for step in plan_rewrite(unit, tree, target_file_size=10**9):
        if isinstance(step, Rewrite):
            assert step.drop_deletes == (not older)


def test_repeated_compaction_comes_to_rest():
    files = shapes.files("L0:10 L0:10 L0:10 L0:10 L0:10 L1:10 L5:100")
    tree = Levels.from_files(files, level_count=6, key_order=shapes.key_order)
    for _ in range(10):
        unit = unit_of(tree, 3, 1, 200)
        if unit is None:
            break
        steps = plan_rewrite(unit, tree, target_file_size=1000)
        stepped = [file for step in steps for file in step.files]
        tree = tree.update(stepped, [f for at, step in enumerate(steps) for f in outcome(step, at)])
    assert unit_of(tree, 3, 1, 200) is None
    assert pick_full(levels_fully(tree).runs, max_level=tree.max_level) is None


def levels_fully(tree):
    unit = pick_full(tree.runs, max_level=tree.max_level)
    if unit is None:
        return tree
    steps = plan_rewrite(unit, tree, target_file_size=1000)
    stepped = [file for step in steps for file in step.files]
    return tree.update(stepped, [f for at, step in enumerate(steps) for f in outcome(step, at)])


def test_files_picked_one_by_one_are_rewritten():
    tree = shapes.levels("L5:80[0-9] L5:80[10-19]=x L5:5[20-29]=y", level_count=6)
    unit = pick_full(tree.runs, max_level=5, must_rewrite=lambda file: file.file_name in ("x", "y"))
    assert unit is not None
    assert not unit.is_pointless
    steps = plan_rewrite(unit, tree, target_file_size=100)
    assert [[file.file_name for file in step.files] for step in steps] == [["x"], ["y"]]
    assert all(isinstance(step, Rewrite) for step in steps)


def test_one_file_in_place_is_no_work():
    (run,) = shapes.runs("L3:5")
    assert CompactUnit(runs=(run,), output_level=3, reason=PickReason.FULL).is_pointless
    assert not CompactUnit(runs=(run,), output_level=4, reason=PickReason.FULL).is_pointless
    forced = CompactUnit(runs=(run,), output_level=3, reason=PickReason.FULL, must_rewrite=True)
    assert not forced.is_pointless
    both = CompactUnit(runs=(run, run), output_level=3, reason=PickReason.FULL)
    assert not both.is_pointless


def test_options_reach_the_strategy():
    strategy = UniversalCompaction.from_options(
        given_options(
            {
                core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER.key: 7,
                core_options.COMPACTION_SIZE_RATIO.key: 3,
                core_options.COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT.key: 150,
            }
        ),
        hour=12,
    )
    assert strategy == UniversalCompaction(
        max_size_amplification_percent=150, size_ratio_percent=3, run_count_trigger=7
    )
    assert UniversalCompaction.from_options(given_options({}), hour=0).run_count_trigger == 5


def test_a_lookup_compaction_is_patient_only_if_it_is_gentle():
    radical = ForceUpLevelZero.from_options(given_options({}), hour=0)
    assert radical.max_interval is None
    gentle = {
        core_options.LOOKUP_COMPACT.key: "gentle",
        core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER.key: 4,
    }
    assert (
        ForceUpLevelZero.from_options(given_options(gentle), hour=0).max_interval == 8
    )  # twice the trigger


def test_impossible_units_and_runs_are_bugs():
    (run,) = shapes.runs("L3:5")
    with pytest.raises(AssertionError):
        CompactUnit(runs=(run,), output_level=0, reason=PickReason.FULL)
    with pytest.raises(AssertionError):
        CompactUnit(runs=(), output_level=1, reason=PickReason.FULL)
    with pytest.raises(AssertionError):
        SortedRun(files=())
    assert run.run.row_count == 5


@pytest.mark.parametrize(
    ("shape", "moved"),
    [
        ("L0:100[0-9]@1=a L0:100[10-19]@2=b L0:30[20-29]@3=end L0:90[0-29]@9", ["a", "b"]),
        ("L0:100[0-9]@1=a L0:90[0-29]@9", ["a"]),
        ("L0:100[0-9]@1d1=a L0:100[10-19]@2 L0:90[0-29]@9", []),
        ("L0:100[0-9]@1d?=a L0:90[0-29]@9", []),
        ("L0:60[0-9]@1=small L0:30[0-29]@8 L0:30[0-29]@9", []),
        ("L0:60[0-9]@1=small L0:30[0-29]@8 L0:20[0-29]@9", ["small"]),
        ("L0:60[0-9]@1=small L0:50[10-19]@8", ["small"]),
        ("L0:100[0-9]@2=a L0:90[0-29]@9 L3:100[50]@1", []),
    ],
)
def test_a_large_first_load_may_move_to_the_last_level(shape, moved):
    """The oldest files of level 0, as far as they are disjoint, hold no deletes and are large."""
    levels = Levels.from_files(shapes.files(shape), level_count=6, key_order=shapes.key_order)
    assert [file.file_name for file in bulk_load(levels, target_file_size=100)] == moved


@pytest.mark.parametrize(
    ("start", "end", "off_peak"),
    [
        (2, 5, [2, 3, 4]),
        (0, 2, [0, 1]),
        (22, 1, [22, 23, 0]),
        (-1, 5, []),
        (7, 7, []),
    ],
)
def test_off_peak_hours_add_to_the_size_ratio(start, end, off_peak):
    options = given_options(
        {
            core_options.COMPACTION_OFFPEAK_START_HOUR.key: start,
            core_options.COMPACTION_OFFPEAK_END_HOUR.key: end,
            core_options.COMPACTION_OFFPEAK_RATIO.key: 50,
        }
    )
    ratios = [
        UniversalCompaction.from_options(options, hour=hour).size_ratio_percent
        for hour in range(24)
    ]
    assert ratios == [51 if hour in off_peak else 1 for hour in range(24)]


@pytest.mark.parametrize(
    ("shape", "early", "asks"),
    [
        ("L0:10 L5:50", EarlyFull(interval_millis=1000, total_bytes=None, incremental_bytes=None), 9000),
        ("L0:10 L4:50", EarlyFull(interval_millis=1000, total_bytes=None, incremental_bytes=None), 0),
        ("L5:50", EarlyFull(interval_millis=0, total_bytes=99, incremental_bytes=0), None),
        ("L0:10 L5:50", EarlyFull(interval_millis=None, total_bytes=61, incremental_bytes=None), 0),
        ("L0:10 L5:50", EarlyFull(interval_millis=None, total_bytes=60, incremental_bytes=None), None),
        ("L0:10 L3:5 L5:50", EarlyFull(interval_millis=None, total_bytes=None, incremental_bytes=14), 0),
        ("L0:10 L3:5 L5:50", EarlyFull(interval_millis=None, total_bytes=None, incremental_bytes=15), None),
        ("L0:10 L3:50", EarlyFull(interval_millis=None, total_bytes=None, incremental_bytes=59), 0),
        ("L0:10 L5:50", EarlyFull.from_options(given_options({})), None),
    ],
)  # fmt: skip
def test_early_full_compaction_is_asked_for(shape, early, asks):
    """`asks`: from how long after the last level was written on; None: never."""
    written = 1_000_000
    files = [replace(file, creation_millis=written) for file in shapes.files(shape)]
    runs = Levels.from_files(files, level_count=6, key_order=shapes.key_order).runs
    for age in (0, 1000, 9000):
        asked = early.asks(runs, max_level=5, now_millis=written + age)
        assert asked == (asks is not None and age >= asks)


def test_early_full_compaction_is_asked_for_by_any_of_its_options():
    nothing = {"interval_millis": None, "total_bytes": None, "incremental_bytes": None}
    assert not EarlyFull(**nothing).is_asked
    for name in nothing:
        assert EarlyFull(**{**nothing, name: 0}).is_asked
