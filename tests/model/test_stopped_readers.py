"""Readers that stop at each micro-batch get every change once.

`LSM_STOPPED_READERS` says how many histories of each combination are tried; by default every eighth
combination has one.
"""

import os

import pytest

from tests.model.stopped_readers import combinations, run_history

ROUNDS = int(os.environ.get("LSM_STOPPED_READERS", "0"))
TRIED = combinations() if ROUNDS else combinations()[::8]


@pytest.mark.parametrize("seed", range(max(ROUNDS, 1)))
@pytest.mark.parametrize(("name", "producer", "vectors"), TRIED)
def test_stopped_readers_get_every_change_once(
    name: str, producer: str, seed: int, *, vectors: bool
) -> None:
    run_history(name, producer, seed, vectors=vectors)
