"""Changelogs replayed over engines, producers, and with and without deletion vectors.

`LSM_REPLAYS` says how many histories of each are tried (default 1).
"""

import os

import pytest

from tests.model.changelog_histories import combinations, run_history


@pytest.mark.parametrize("seed", range(int(os.environ.get("LSM_REPLAYS", "1"))))
@pytest.mark.parametrize(("name", "producer", "vectors"), combinations())
def test_the_changelog_replayed_is_the_table(
    name: str, producer: str, seed: int, *, vectors: bool
) -> None:
    run_history(name, producer, seed, vectors=vectors)
