"""What each row of a column of row kinds does: put a row there, or take one away."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lsm_engine.base.modes import RowKind
from lsm_engine.kernels.arrow_views import Bools

Kinds: TypeAlias = NDArray[np.int8]


def adds(kinds: Kinds) -> Bools:
    """Return which row kinds put a row there (+I, +U) rather than take it away."""
    flags: Bools = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
    return flags


def retracts(kinds: Kinds) -> Bools:
    """Return which row kinds take a row away (-U, -D); a mark that is no row kind does not."""
    flags: Bools = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return flags
