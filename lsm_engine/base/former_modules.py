"""Former names of public modules, which go on working with a DeprecationWarning."""

import sys
import warnings
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any


def alias_former_modules(package: str, modules: Mapping[str, str]) -> None:
    """Let `from package.former import name` give what `package.present` has now.

    `modules`: the former name → the present one, both below `package`. Nothing is loaded before a
    name is asked for.
    """
    for former, present in modules.items():
        parts = former.split(".")
        for length in range(1, len(parts) + 1):
            name = ".".join([package, *parts[:length]])
            if name in sys.modules:
                continue
            module = ModuleType(name, f"The former name of `{package}.{present}`.")
            module.__path__ = []  # a package, so that modules below it can be imported
            if length == len(parts):
                vars(module)["__getattr__"] = partial(_attribute, name, f"{package}.{present}")
            sys.modules[name] = module


def _attribute(former: str, present: str, name: str) -> Any:
    if name.startswith("__"):  # the import system asks for some of them
        raise AttributeError(name)
    value = getattr(import_module(present), name)
    warnings.warn(f"{former} is {present} now", DeprecationWarning, stacklevel=3)
    return value
