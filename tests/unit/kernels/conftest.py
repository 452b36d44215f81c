"""Every test of a kernel runs twice: with the loops interpreted, and with them compiled."""

from collections.abc import Iterator

import pytest

from tests.kernel_forms import FORMS, in_form


@pytest.fixture(scope="module", autouse=True, params=sorted(FORMS))
def kernel_form(request: pytest.FixtureRequest) -> Iterator[None]:
    with in_form(request.param):
        yield
