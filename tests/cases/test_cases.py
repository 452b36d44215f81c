"""Decisions about the shape of a bucket, as text tables."""

from lsm_engine.lsm.levels import Levels, runs_by_age, sections
from lsm_engine.lsm.rewrite_plan import Rewrite, plan_rewrite
from lsm_engine.lsm.universal import (
    CompactUnit,
    ForceUpLevelZero,
    PickReason,
    UniversalCompaction,
    pick_full,
    with_all_older,
)
from tests import shapes


def pick(case):
    runs = shapes.runs(case["runs"].removeprefix("none"))
    max_level = int(case.get("max-level", 3))
    if case.get("strategy") == "full":
        wanted = case.get("must-rewrite", "").split()
        unit = pick_full(
            runs, max_level=max_level, must_rewrite=lambda file: file.file_name in wanted
        )
    else:
        strategy = UniversalCompaction(
            max_size_amplification_percent=int(case.get("amplification", 25)),
            size_ratio_percent=int(case.get("ratio", 1)),
            run_count_trigger=int(case.get("trigger", 3)),
        )
        if case.get("strategy") == "with-all-older":
            taken = CompactUnit(
                runs=tuple(runs[: int(case["take"])]), output_level=1, reason=PickReason.RUN_COUNT
            )
            unit = with_all_older(taken, runs, max_level=max_level)
        elif case.get("strategy") == "force-up-level-0":
            interval = int(case["max-interval"]) if "max-interval" in case else None
            forced = ForceUpLevelZero(universal=strategy, max_interval=interval)
            skipped = int(case.get("skipped", 0))
            unit = forced.pick(
                runs, max_level=max_level, is_due=lambda interval: skipped + 1 >= interval
            )
        else:
            unit = strategy.pick(runs, max_level=max_level)
    if unit is None:
        return "nothing"
    return f"{unit.reason.value}: {shapes.show_all(unit.files)} -> L{unit.output_level}"


def cut(case):
    found = sections(shapes.files(case["files"].removeprefix("none")), shapes.key_order)
    if "settled-from" in case:
        aged = (
            runs_by_age([run.files for run in section], int(case["settled-from"]))
            for section in found
        )
        return "\n".join(
            " | ".join(f"age {age}: {shapes.show_all(files)}" for age, files in runs)
            for runs in aged
        )
    lines = [" | ".join(shapes.show_all(run.files) for run in section) for section in found]
    return "\n".join(lines) if found else "nothing"


def plan(case):
    files = shapes.files(f"{case['take']} {case.get('keep', '')}")
    taken = files[: len(case["take"].split())]
    levels = Levels.from_files(files, level_count=6, key_order=shapes.key_order)
    unit = CompactUnit(
        runs=Levels.from_files(taken, level_count=6, key_order=shapes.key_order).runs,
        output_level=int(case.get("output", 5)),
        reason=PickReason.FULL,
    )
    wanted = case.get("must-rewrite", "").split()
    steps = plan_rewrite(
        unit,
        levels,
        target_file_size=100,
        must_rewrite=lambda file: file.file_name in wanted,
        has_deletion_vectors="deletion-vectors" in case,
        compacted_from=int(case["settled-from"]) if "settled-from" in case else None,
    )
    return "\n".join(map(show_step, steps)) or "nothing"


def show_step(step):
    if not isinstance(step, Rewrite):
        return f"upgrade to L{step.output_level}: {shapes.show_all(step.files)}"
    parts = (
        "(" + " | ".join(shapes.show_all(run.files) for run in section) + ")"
        for section in step.sections
    )
    deletes = "dropping deletes" if step.drop_deletes else "keeping deletes"
    new = "" if step.compacted_from is None else f", new above L{step.compacted_from}"
    return f"rewrite to L{step.output_level}, {deletes}{new}: {' '.join(parts)}"


def test_compaction_pick(check_cases):
    check_cases("compaction_pick", pick)


def test_sections(check_cases):
    check_cases("sections", cut)


def test_rewrite_plan(check_cases):
    check_cases("rewrite_plan", plan)
