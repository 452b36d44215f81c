"""Names from other libraries: the error of whoever types one from habit says what it is called here."""

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATH = "__fspath__"
"""What `pyarrow.dataset.dataset(x)` asks `x` for."""


class NamedElsewhere:
    """A class whose AttributeErrors name what to use instead.

    `_called`: what an instance is in a sentence, such as "a table". `_elsewhere`: a name that other
    libraries have → what to write here.
    """

    __slots__ = ()
    _called: ClassVar[str]
    _elsewhere: ClassVar[Mapping[str, str]]

    if not TYPE_CHECKING:  # a checker shall go on refusing names that are none

        def __getattr__(self, name: str) -> Any:
            """Raise an AttributeError that says what is called `name` elsewhere.

            A TypeError for what a path has: pyarrow asks for that first, and would not say what to pass.
            """
            if name == PATH and name in self._elsewhere:
                raise TypeError(f"{self._called} is no path: use {self._elsewhere[name]}")
            message = no_such(self._called, name, self._elsewhere, dir(type(self)))
            raise AttributeError(message, name=name, obj=self)


class StaysHere:
    """A class of open things: pickling one, for another process, fails with what to send instead.

    `_sent`: that, as the end of a sentence.
    """

    __slots__ = ()
    _called: ClassVar[str]
    _sent: ClassVar[str]

    def __getstate__(self) -> NoReturn:
        """Refuse."""
        raise TypeError(f"{self._called} is not pickled or copied: {self._sent}")


def no_such(called: str, name: str, elsewhere: Mapping[str, str], known: Iterable[str]) -> str:
    """Return the message for a name that is not there: what it is called here, or one much like it."""
    if name in elsewhere:
        return f"{called} has no {name!r}: use {elsewhere[name]}"
    public = [] if name.startswith("_") else [each for each in known if not each.startswith("_")]
    near = difflib.get_close_matches(name, public, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}?" if near else "help() of it lists what there is"
    return f"{called} has no {name!r}; {hint}"


def keywords(elsewhere: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function's TypeError for an argument of another library say what to write here.

    `elsewhere`: the argument's name there → what to write. The function itself takes none of them.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> R:
            for name in given:
                if name in elsewhere:
                    raise TypeError(
                        f"{function.__name__}() has no argument {name!r}: write {elsewhere[name]}"
                    )
            return function(*args, **given)

        return checked

    return decorate
