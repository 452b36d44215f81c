"""The two forms of every kernel, whatever the size of its input."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from lsm_engine.kernels.compiled import Kernel


def _compile(kernel: Kernel, *arguments: Any) -> Any:
    return kernel.compiled()(*arguments)


FORMS = {"interpreted": Kernel.interpret, "compiled": _compile}
ASKED = [form for form in os.environ.get("LSM_KERNEL_FORMS", "").split(",") if form] or ["as usual"]
"""The forms in which tests of whole codecs and merges run: as rows are many or few, unless asked."""


@contextmanager
def in_form(form: str) -> Iterator[None]:
    """Run all kernels interpreted, or all compiled; any other form leaves the choice to them."""
    if form not in FORMS:
        yield
        return
    with mock.patch.object(Kernel, "__call__", FORMS[form]):
        yield
