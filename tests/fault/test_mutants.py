"""Every mutant of the engine is noticed by the suite that is there for it (tests/fault/mutants.py)."""

import pytest

from tests.fault.mutants import MUTANTS, Mutant, is_noticed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_suite_notices(mutant: Mutant) -> None:
    assert is_noticed(mutant) is not None, f"nobody notices when {mutant.name}"
