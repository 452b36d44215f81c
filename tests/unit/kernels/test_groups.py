"""Groups of equal values."""

import numpy as np
import pytest

from lsm_engine.kernels.groups import distinct

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize(
    "values",
    [
        np.array([], np.int64),
        np.array([7]),
        np.array([7, 7]),
        np.arange(100),
        np.arange(100)[::-1],
        np.concatenate([np.arange(0, 90, 3), np.arange(0, 90, 2)]),
        RANDOM.integers(-50, 50, 1_000),
        np.array([2**63 - 1, -(2**63), 0, -(2**63)]),
    ],
)
def test_each_value_once_in_order(values):
    given = values.copy()
    assert distinct(values).tolist() == sorted(set(values.tolist()))
    assert (values == given).all()
