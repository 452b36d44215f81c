"""Runs the machines of append tables and of keys that move between partitions.

More histories: HYPOTHESIS_PROFILE=nightly python -m pytest tests/model -q
"""

from hypothesis import settings

from tests.model.other_tables import AppendMachine, MovingKeysMachine

# A fifth of the LSM machine's histories: there are fewer options to combine.
_SETTINGS = settings(
    stateful_step_count=15, max_examples=max(5, settings.default.max_examples // 5)
)

TestAppendTables = AppendMachine.TestCase
TestAppendTables.settings = _SETTINGS
TestMovingKeys = MovingKeysMachine.TestCase
TestMovingKeys.settings = _SETTINGS
