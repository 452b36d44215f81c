"""Moments as people write them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.instant import millis_of


@pytest.mark.parametrize("moment", [pd.NaT, np.datetime64("NaT"), True, 1.5, "yesterday"])
def test_what_is_no_moment_is_refused(moment: Any) -> None:
    with pytest.raises(InvalidInputError, match="a time is"):
        millis_of(moment)


def test_moments_of_pandas_and_numpy_are_those_of_python() -> None:
    assert millis_of(pd.Timestamp("1970-01-02", tz="UTC")) == millis_of(np.datetime64("1970-01-02"))
