"""All pairs of two changes, and chains of ten.

`LSM_SCHEMA_CHAINS` says how many chains are run; with it all pairs are, not a sample of them.
"""

import os

import pytest

from tests.model.schema_chains import CHANGES, run_chain, run_pair

CHAINS = int(os.environ.get("LSM_SCHEMA_CHAINS", "0"))
PAIRS = [(first, second) for first in CHANGES for second in CHANGES]


@pytest.mark.parametrize(("first", "second"), PAIRS if CHAINS else PAIRS[::13])
def test_two_changes(first: str, second: str) -> None:
    run_pair(first, second, seed=0)


@pytest.mark.parametrize("seed", range(CHAINS or 8))
def test_ten_changes(seed: int) -> None:
    run_chain(seed)
