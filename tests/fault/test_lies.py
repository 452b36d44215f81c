"""Faults of maintenance: whatever the storage hides, nothing that a root names is deleted.

Each reading call of each operation that deletes is answered wrongly once: nothing, half, what was true
before, or an error; and each path that is read stays unreadable for good. The operation may give up or
go on; every snapshot, tag and branch reads as before. CI takes a sample of the calls, listings always.
Every call and path:

    python -m pytest tests/fault/test_lies.py -m sweep -q
"""

import pytest

from lsm_engine.base.errors import LsmError, StorageError
from tests.fault.recording_file_io import Call, Lie, Misread, RecordingFileIO
from tests.fault.scenarios import (
    SCENARIOS,
    Scenario,
    acting,
    check_old_or_new,
    check_retried,
    prepared,
)

DELETING = [scenario for scenario in SCENARIOS.values() if scenario.maintains]
HOWS = {
    "nothing": Lie.EMPTY,
    "half": Lie.SHORT,
    "stale": Lie.STALE,
    "an error": StorageError("cannot be read now", errno="EIO"),
}
READS = ("read", "open_input", "exists", "status", "list")
EXTENTS = ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]


def reads_of(scenario: Scenario, extent: str) -> list[int]:
    """Numbers of the reading calls to answer wrongly; opening the table is not among them."""
    disk, _ = prepared(scenario.name)
    storage = RecordingFileIO(disk)
    table = acting(storage)
    opened = len(storage.reads)
    scenario.act(table)
    calls = storage.reads[opened:]
    if extent == "all":
        return [call.number for call in calls]
    listings = [call.number for call in calls if call.verb == "list"]
    others = [call.number for call in calls if call.verb != "list"]
    return sorted({*listings[:: max(1, len(listings) // 3)], *others[1:2]})


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("how", list(HOWS))
@pytest.mark.parametrize("scenario", DELETING, ids=lambda scenario: scenario.name)
def test_a_wrong_answer_costs_no_live_file(scenario: Scenario, how: str, extent: str) -> None:
    for number in reads_of(scenario, extent):
        disk, _ = prepared(scenario.name)
        storage = RecordingFileIO(disk, Misread(at=number, how=HOWS[how]))
        came: object = None
        try:
            came = scenario.act(acting(storage))
        except LsmError as error:
            came = error
        where = f"{how} at {storage.reads[number - 1]}: {came!r}"
        try:
            check_old_or_new(scenario, disk)
            if extent == "all":
                check_retried(scenario, disk)
        except (AssertionError, LsmError) as wrong:
            raise AssertionError(f"{where}: {wrong}") from wrong


def paths_of(scenario: Scenario, extent: str) -> list[str]:
    """What is read or listed by the operation, the table's opening included."""
    disk, _ = prepared(scenario.name)
    storage = RecordingFileIO(disk)
    scenario.act(acting(storage))
    paths = sorted({call.path for call in storage.reads})
    return paths if extent == "all" else paths[len(scenario.name) % 7 :: max(7, len(paths) // 3)]


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("scenario", DELETING, ids=lambda scenario: scenario.name)
def test_what_stays_unreadable_costs_no_live_file(scenario: Scenario, extent: str) -> None:
    for path in paths_of(scenario, extent):

        def failing(call: Call, path: str = path) -> None:
            if call.path == path and call.verb in READS:
                raise StorageError("cannot be read", path=path, errno="EIO")

        disk, _ = prepared(scenario.name)
        came: object = None
        try:
            came = scenario.act(acting(RecordingFileIO(disk, on_call=failing)))
        except LsmError as error:
            came = error
        try:
            check_old_or_new(scenario, disk)
            check_retried(scenario, disk)
        except (AssertionError, LsmError) as wrong:
            raise AssertionError(f"{path}: {came!r}: {wrong}") from wrong
