"""`LSM_KERNEL_FORMS=interpreted,compiled`: every test here once in each form of the kernels."""

from collections.abc import Iterator

import pytest

from tests.kernel_forms import ASKED, in_form


@pytest.fixture(scope="module", autouse=True, params=ASKED)
def kernel_form(request: pytest.FixtureRequest) -> Iterator[None]:
    with in_form(request.param):
        yield
