"""The shape of a bucket beside Java 1.4.2: picks, sections, what a compaction rewrites and what it moves.

`LSM_NEWEST_JAVA=40` asks 10,000 random cases of each.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.lsm.levels import Levels, sections
from lsm_engine.lsm.rewrite_plan import Upgrade, plan_rewrite
from lsm_engine.lsm.universal import (
    CompactUnit,
    EarlyFull,
    ForceUpLevelZero,
    PickReason,
    UniversalCompaction,
    pick_full,
    unit_of,
)
from tests import shapes
from tests.interop.newest_java import CASES, NewestJava

pytestmark = pytest.mark.interop


def some_files(draw: random.Random, levels: int) -> list[DataFileMeta]:
    """Newest first: any files on level 0, disjoint ones on each level below."""
    (template,) = shapes.files("L0:1")
    ranges = [(0, *sorted(draw.choices(range(40), k=2))) for _ in range(draw.randint(0, 6))]
    for level in range(1, levels):
        if draw.random() < 0.6:
            # An even number of different keys, cut into pairs.
            cuts = sorted(draw.sample(range(40), 2 * draw.randint(1, 4)))
            ranges += [(level, *pair) for pair in zip(cuts[::2], cuts[1::2], strict=True)]
    return [
        replace(
            template,
            file_name=f"file-{at:02}",
            file_size=int(10 ** draw.uniform(0, 4)),
            level=level,
            min_key=shapes.key_of(low),
            max_key=shapes.key_of(high),
            min_sequence_number=1000 - 10 * at,
            max_sequence_number=1000 - 10 * at + draw.randint(0, 9),
            delete_row_count=draw.choice([0, 0, 0, 1, None]),
        )
        for at, (level, low, high) in enumerate(ranges)
    ]


def facts_of(file: DataFileMeta) -> list[Any]:
    """A file as PaimonShapes.java takes it."""
    keys = [int.from_bytes(key, "big") for key in (file.min_key, file.max_key)]
    numbers = [file.min_sequence_number, file.max_sequence_number]
    return [file.file_name, file.file_size, *keys, *numbers, file.level, file.delete_row_count]


def levels_of(files: list[DataFileMeta], count: int) -> Levels:
    return Levels.from_files(files, level_count=count, key_order=shapes.key_order)


def names(unit: CompactUnit | None) -> list[Any] | None:
    return unit and [unit.output_level, sorted(one.file_name for one in unit.files)]


def picked(levels: Levels, case: dict[str, Any]) -> CompactUnit | None:
    """What our strategies pick, in the order in which a compaction asks them."""
    if case["full"]:
        return pick_full(levels.runs, max_level=levels.max_level)
    early = EarlyFull(
        interval_millis=None, total_bytes=case["total"], incremental_bytes=case["above"]
    )
    if early.asks(levels.runs, max_level=levels.max_level, now_millis=0):
        return pick_full(levels.runs, max_level=levels.max_level)
    universal = UniversalCompaction(
        max_size_amplification_percent=case["amplification"],
        size_ratio_percent=case["ratio"],
        run_count_trigger=case["trigger"],
    )
    strategy = ForceUpLevelZero(universal=universal) if case["forced"] else universal
    return strategy.pick(levels.runs, max_level=levels.max_level)


@pytest.mark.parametrize("kind", ["universal", "early", "forced", "full"])
def test_picks_are_the_same(kind: str, newest: NewestJava) -> None:
    draw = random.Random(kind)
    cases, units = [], []
    for _ in range(CASES):
        count = draw.randint(3, 7)
        files = some_files(draw, count)
        if kind == "forced" and newest.release == "1.4.2":
            # Level 1 counts from 2.0.0 on when level 2 is asked to follow (decision 41).
            files = [file for file in files if file.level != 1]
        case: dict[str, Any] = {
            "files": [facts_of(file) for file in files], "levels": count,
            "amplification": draw.choice([50, 200]), "ratio": draw.choice([0, 1, 30]),
            "trigger": draw.randint(2, 6), "forced": kind == "forced", "full": kind == "full",
            "total": None, "above": None,
        }  # fmt: skip
        if kind == "early" and files:
            case["total"] = draw.choice([None, int(10 ** draw.uniform(2, 5))])
            case["above"] = draw.choice([None, int(10 ** draw.uniform(2, 5))])
        cases.append(case)
        units.append(names(picked(levels_of(files, count), case)))
    for case, ours, theirs in zip(cases, units, newest.ask_each("pick", cases), strict=True):
        unit = theirs and [theirs[0], sorted(theirs[1])]
        assert ours == (None if is_pointless(unit, case) else unit), case
    assert sum(unit is not None for unit in units) > CASES // 5


def is_pointless(unit: list[Any] | None, case: dict[str, Any]) -> bool:
    """Java leaves out what would change nothing after the pick, in its manager."""
    if unit is None or case["full"]:
        return False
    levels = {facts[0]: facts[6] for facts in case["files"]}
    return len(unit[1]) == 1 and levels[unit[1][0]] == unit[0]


def shape_of(section: list[list[str]]) -> tuple[int, list[str]]:
    """Of runs that end with the same key either may take the next file."""
    return len(section), sorted(name for run in section for name in run)


def test_sections_are_the_same(newest: NewestJava) -> None:
    draw = random.Random(3)
    found, cases = [], []
    for _ in range(CASES):
        files = some_files(draw, 6)
        cases.append({"files": [facts_of(one) for one in files]})
        found.append([
            shape_of([[one.file_name for one in run.files] for run in section])
            for section in sections(files, shapes.key_order)
        ])  # fmt: skip
    theirs = newest.ask_each("sections", cases)
    assert found == [[shape_of(section) for section in one] for one in theirs]


def test_the_same_files_are_rewritten_and_moved(newest: NewestJava) -> None:
    draw = random.Random(5)
    cases, found, moved = [], [], 0
    for _ in range(CASES):
        count = draw.randint(3, 7)
        levels = levels_of(some_files(draw, count), count)
        if not levels.runs:
            continue
        taken = draw.randint(1, len(levels.runs))
        unit = unit_of(levels.runs, taken, levels.max_level, PickReason.SIZE_RATIO)
        target = int(10 ** draw.uniform(1, 5))
        cases.append({
            "files": [facts_of(one) for one in levels.files], "levels": count,
            "unit": [one.file_name for one in unit.files], "output": unit.output_level,
            "target": f"{target} b",
        })  # fmt: skip
        found.append([] if unit.is_pointless else steps_of(levels, unit, target))
        moved += sum("moved" in step for step in found[-1])
    answers = newest.ask_each("compactBucket", cases)
    for case, ours, theirs in zip(cases, found, answers, strict=True):
        for step in theirs:
            if "sections" in step:
                step["sections"] = [shape_of(section) for section in step["sections"]]
        assert sorted(ours, key=repr) == sorted(theirs, key=repr), case
    assert moved > CASES // 20


def steps_of(levels: Levels, unit: CompactUnit, target: int) -> list[dict[str, Any]]:
    """Our plan as PaimonShapes.java spells it."""
    steps: list[dict[str, Any]] = []
    for step in plan_rewrite(unit, levels, target_file_size=target):
        if isinstance(step, Upgrade):
            steps += [{"level": step.output_level, "moved": one.file_name} for one in step.files]
        else:
            found = [
                shape_of([[one.file_name for one in run.files] for run in section])
                for section in step.sections
            ]
            steps.append(
                {"level": step.output_level, "drops": step.drop_deletes, "sections": found}
            )
    return steps
