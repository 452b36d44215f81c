"""What callers name: one name may be given as text, several as any sequence of names."""

from collections.abc import Iterable, Mapping
from numbers import Integral

from lsm_engine.base.errors import InvalidInputError


def names_of(given: object, argument: str) -> tuple[str, ...]:
    """Return names as a tuple; InvalidInputError naming the argument for what is none."""
    if isinstance(given, str):
        return (given,)
    names = (
        tuple(given) if isinstance(given, Iterable) and not isinstance(given, Mapping) else (given,)
    )
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{argument} takes a name, or a list of names", argument=argument, value=name
            )
    return names


def is_whole(given: object) -> bool:
    """Whether somebody gave a whole number, NumPy's included; truth is none."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def only_one(given: object, argument: str, other: str) -> None:
    """Raise InvalidInputError where two arguments that both name rows are given."""
    if given is not None:
        raise InvalidInputError(f"{argument} and {other} both name rows; give one of them")
