"""Whatever a disk forgets of what was not synced, a commit that returned is there.

The trace is of real system calls on a real disk; tests/fault/power.py builds what may be left.
"""

from pathlib import Path

import pytest

from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.power import crash_states
from tests.fault.scenarios import (
    SCENARIOS,
    SHAPE,
    Scenario,
    acting,
    check_old_or_new,
    outcome,
    prepared,
    rows,
    view,
)
from tests.fault.system_calls import SystemCalls
from tests.fault.test_kill import laid_out
from tests.model.world import components, create

THOROUGHLY = (
    "first commit", "commit", "commit and compact", "overwrite", "compact fully", "create a tag",
    "delete a tag", "expire", "roll back", "delete a branch", "fast-forward",
)  # fmt: skip
MAY_COME_BACK = ("expire", "delete a tag", "rename a tag", "delete a branch")


def traced(scenario: Scenario, root: Path) -> tuple[dict[str, bytes], SystemCalls]:
    """Do the operation on a disk; return what was there before, and every system call."""
    disk, _ = prepared(scenario.name)
    before = {path: data for path, (data, _) in disk._files.items()}
    laid_out(disk, root)
    with SystemCalls(str(root)) as calls:
        scenario.act(acting(LocalFileIO(str(root))))
    return before, calls


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_power_cut_tears_a_table(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    before, calls = traced(scenario, tmp_path / "t")
    states = list(crash_states(before, calls.trace))
    cases = 30 if name in THOROUGHLY else 8
    kept = states[:: max(1, len(states) // cases)] + [
        one for one in states if one[0] == len(calls.trace)
    ]
    for done, files in kept:
        disk = holding(files)
        last = calls.trace[done - 1] if done else None
        for path, data in files.items():
            if path.startswith("snapshot/snapshot-"):
                assert data, f"{path} is empty after {last}"
        try:
            # Deletions of one expiry may be lost singly: ids that were to go may have gaps.
            check_old_or_new(scenario, disk, gaps=name == "expire")
        except Exception as wrong:
            raise AssertionError(f"power cut after call {done}, {last}: {wrong!r}") from wrong
        if done == len(calls.trace) and name not in MAY_COME_BACK:
            assert view(disk) == outcome(name), "it had returned, and is not there"


def test_no_power_cut_tears_a_tag_that_is_written_anew_without_a_key(tmp_path: Path) -> None:
    """The tag names new files, and those that it named are deleted: a cut in between may not leave it without."""
    scenario = Scenario(
        "forget",
        SCENARIOS["replace a tag"].prepare,
        lambda table: table.forget(
            rows(5, 1, "").select(["k", "p"]), dry_run=False, rewrite_tags=True
        ),
    )
    disk = MemoryFileIO()
    table = create(SHAPE, scenario.layout, components(disk))
    scenario.prepare(table)
    old = view(disk).tags
    before = {path: data for path, (data, _) in disk._files.items()}
    laid_out(disk, tmp_path / "t")
    with SystemCalls(str(tmp_path / "t")) as calls:
        scenario.act(acting(LocalFileIO(str(tmp_path / "t"))))
    states = list(crash_states(before, calls.trace))
    new = view(holding(states[-1][1])).tags
    assert new["kept"] != old["kept"]
    for done, files in states[:: max(1, len(states) // 60)]:
        now = view(holding(files)).tags
        last = calls.trace[done - 1] if done else None
        assert all(now[name] in (old[name], new[name]) for name in old), f"cut after {last}"


def holding(files: dict[str, bytes]) -> MemoryFileIO:
    """A disk that holds these files."""
    disk = MemoryFileIO()
    for path, data in files.items():
        disk.write_new(path, data)
    return disk
