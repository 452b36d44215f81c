"""The sample of a long list of seeds that CI runs; `-m sweep` runs the rest."""

import pytest


def seeds(in_ci: int, count: int) -> list[object]:
    """Seeds from 0 on; those from `in_ci` on are left to the sweep."""
    rest = pytest.mark.sweep
    return [pytest.param(seed, marks=() if seed < in_ci else rest) for seed in range(count)]
