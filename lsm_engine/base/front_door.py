"""The module `lsm_engine` itself: the errors of whoever asks it for what is not there say what to use.

It loads what it needs for that when it is asked.
"""

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import NoReturn


class Package(ModuleType):
    """A package below `lsm_engine`. Some are called as verbs are elsewhere: `lsm.catalog("lake")`."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        instead = _elsewhere().get(self.__name__.rpartition(".")[2], "what it holds")
        raise TypeError(f"{self.__name__} is a package: use {instead}")


class FrontDoor(ModuleType):
    """A module that is given each package below it once that is loaded."""

    def __setattr__(self, name: str, value: object) -> None:
        if type(value) is ModuleType:
            value.__class__ = Package
        super().__setattr__(name, value)


def watch_packages(name: str) -> None:
    """Let packages below a module say what to use when they are called."""
    sys.modules[name].__class__ = FrontDoor


def no_such_name(name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that `lsm_engine` has not."""
    message = import_module("lsm_engine.base.habits").no_such
    return AttributeError(message("lsm_engine", name, _elsewhere(), known))


def _elsewhere() -> Mapping[str, str]:
    names = import_module("lsm_engine.table.ground.names_elsewhere")
    return {**names.MODULE, **names.PACKAGES}
