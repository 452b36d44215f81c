"""What CI promises to have installed: without it a test fails there, and is skipped elsewhere."""

import os
from typing import NoReturn

import pytest


def missing(what: str, reason: str) -> NoReturn:
    """Skip the test with the reason, or fail it where `LSM_PROMISED` names what is missing."""
    if what in os.environ.get("LSM_PROMISED", "").split():
        pytest.fail(f"CI has to install {what} (.ci/run): {reason}")
    pytest.skip(reason)
