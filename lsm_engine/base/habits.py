"""Names from other libraries: the error of whoever types one from habit says what it is called here."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from types import FunctionType, MethodType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from lsm_engine.base.errors import InvalidInputError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OTHERWISE = "help() of it lists what there is"

PATH = "__fspath__"
"""What `pyarrow.dataset.dataset(x)` asks `x` for."""


class NamedElsewhere:
    """A class whose AttributeErrors name what to use instead.

    `_called`: what an instance is in a sentence, such as "a table". `_elsewhere`: a name that other
    libraries have → what to write here. `_otherwise`: what is said of any other name.
    """

    __slots__ = ()
    _called: ClassVar[str]
    _elsewhere: ClassVar[Mapping[str, str]] = {}
    _otherwise: ClassVar[str] = OTHERWISE

    if not TYPE_CHECKING:  # a checker shall go on refusing names that are none

        def __getattr__(self, name: str) -> Any:
            """Raise an AttributeError that says what is called `name` elsewhere.

            A TypeError for what a path has: pyarrow asks for that first, and would not say what to pass.
            """
            if name == PATH and name in self._elsewhere:
                raise TypeError(f"{self._called} is no path: use {self._elsewhere[name]}")
            message = no_such(self._called, name, self._elsewhere, dir(type(self)), self._otherwise)
            raise AttributeError(message, name=name, obj=self)


class _Itself(type):
    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):  # what Python and its tools ask of any class
                raise AttributeError(name)
            message = no_such(cls.__name__, name, cls._elsewhere, dir(cls), cls._otherwise)
            raise AttributeError(message, name=name, obj=cls)


class ItselfNamedElsewhere(NamedElsewhere, metaclass=_Itself):
    """The same, and asked itself, as `Table.from_pandas(rows)`, the class says what to use as well."""

    __slots__ = ()


class Listed(NamedElsewhere, list[T]):
    """What a verb lists. By a name, as mappings of other libraries are asked, it says what takes one.

    `one`: that, with {} for the name.
    """

    _called, _elsewhere = (
        "this list",
        dict.fromkeys(("keys", "values", "items", "get"), "its items"),
    )

    def __init__(self, items: Iterable[T], one: str) -> None:
        super().__init__(items)
        self._one = one

    def __getitem__(self, at: Any) -> Any:
        """Return an item, or several, by place."""
        if isinstance(at, str):
            raise TypeError(
                f"this is a list, which has no names: write {self._one.format(repr(at))}"
            )
        return super().__getitem__(at)


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


def no_such(
    called: str,
    name: str,
    elsewhere: Mapping[str, str],
    known: Iterable[str],
    otherwise: str = OTHERWISE,
) -> str:
    """Return the message for a name that is not there: what it is called here, or one much like it."""
    if name in elsewhere:
        return f"{called} has no {name!r}: use {elsewhere[name]}"
    public = [] if name.startswith("_") else [each for each in known if not each.startswith("_")]
    nearest_name = difflib.get_close_matches(name, public, n=1, cutoff=0.7)
    hint = f"did you mean {nearest_name[0]!r}?" if nearest_name else otherwise
    return f"{called} has no {name!r}; {hint}"


def keywords(
    elsewhere: Mapping[str, str], instead: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the errors of a function that is called wrongly say what to write.

    `elsewhere`: an argument's name in other libraries, or of one of its own that is given a wrong value → what
    to write here. `instead`: what to write in its place, if nobody is to call it. A TypeError names that for one
    of those, else the arguments that there are; an InvalidInputError a value that is not of the one plain
    type its argument is declared with. NumPy's numbers and truths, and text for what has `parse`, become that type.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        plain = _plain_arguments(function)
        call: Callable[..., R] = function

        @functools.wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> R:
            placed: list[Any] = [*args]
            for place, name, kind in plain:
                value = placed[place] if place < len(placed) else given.get(name)
                if value is None or type(value) is kind:
                    continue
                taken = _taken(value, name, kind)
                if taken is None:
                    raise InvalidInputError(
                        f"{name} is {_KINDS[kind]}, not {value!r}: write "
                        f"{elsewhere.get(name) or _usage(function)}",
                        argument=name,
                    )
                if place < len(placed):
                    placed[place] = taken
                else:
                    given[name] = taken
            try:
                return call(*placed, **given)
            except TypeError as wrong:
                called = wrong.__traceback__
                if called is None or called.tb_next is not None:
                    raise  # it was called, and something in it failed
                message = _wrong_call(function, given, elsewhere, str(wrong), instead)
            raise TypeError(message)

        return checked

    return decorate


def verbs_of_it(elsewhere: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a method that is an object with verbs elsewhere, `table.tags.create("v1")`, raise a TypeError on each.

    `elsewhere`: such a verb → what to write here.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        for verb, instead in elsewhere.items():
            setattr(function, verb, _refusal(f"{_named(function)}.{verb}", instead))
        return function

    return decorate


class _Uncalled:
    """A verb of an instance, bound and not yet called. Asked as what it returns, it says what to write."""

    def __init__(self, verb: "_Verb", instance: object) -> None:
        self._verb = verb
        self.__self__ = instance
        self.__func__ = self.__wrapped__ = verb.function
        self.__name__, self.__doc__ = verb.function.__name__, verb.function.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(MethodType(self.__func__, self.__self__))

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self.__func__(self.__self__, *args, **given)

    def __repr__(self) -> str:
        return f"<{self.__name__}() of {self.__self__!r}, not called>"

    def _refused(self, instead: str) -> TypeError:
        return TypeError(f"{self.__name__} is called: write {instead}")

    def __getitem__(self, at: object) -> NoReturn:
        form = self._verb.by_name if isinstance(at, str) else self._verb.item
        raise self._refused((form or f"{self.__name__}()").format(at))

    def __len__(self) -> int:
        raise self._refused(f"len({self.__name__}())")

    def __iter__(self) -> NoReturn:
        raise self._refused(f"{self.__name__}()")

    def __contains__(self, given: object) -> NoReturn:
        raise self._refused(f"{given!r} in {self.__name__}()")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in self.__func__.__dict__:  # a verb that is one of it elsewhere: `tags.create`
                return getattr(self.__func__, name)
            instead = self._verb.attribute.format(name) or f"{self.__name__}()"
            raise AttributeError(f"{self.__name__} is called: write {instead}", name=name, obj=self)


@dataclass(frozen=True)
class _Verb:
    """A method whose instances are told to call it where they do not; see `called`."""

    function: Callable[..., Any]
    item: str
    by_name: str
    attribute: str

    def __get__(self, instance: object, owner: type) -> Any:
        return self.function if instance is None else _Uncalled(self, instance)


def called(
    *, item: str = "", by_name: str = "", attribute: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a method that is an attribute elsewhere, `table.snapshots[0]`, say what to write where nobody calls it.

    What to write, with {0} for what was asked for: `item` by a place, `by_name` by text, `attribute` by a dot.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        verb: Any = _Verb(function, item, by_name, attribute)
        return cast("Callable[P, R]", verb)

    return decorate


def _refusal(typed: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise TypeError(f"there is no {typed}(): write {instead}")

    return refuse


def explained(cls: type[T]) -> type[T]:
    """Let the errors of every public method of a class, inherited ones too, say what to write; see `keywords`."""
    for name in dir(cls):
        method = getattr(cls, name)
        is_own = isinstance(method, FunctionType) and not hasattr(method, "__wrapped__")
        if is_own and not name.startswith("_"):
            verb = inspect.getattr_static(cls, name)
            checked = keywords({})(method)
            setattr(
                cls, name, replace(verb, function=checked) if isinstance(verb, _Verb) else checked
            )
    return cls


_KINDS: dict[type, str] = {
    bool: "True or False",
    int: "a whole number",
    str: "text",
    Mapping: "a mapping, {name: value}",
}


def _taken(value: Any, name: str, kind: Any) -> Any:
    """Return a value as its argument takes it; None if it is of another kind.

    Numbers are Python's from here on: those of NumPy wrap, so that a retention of 8 bits would expire too much.
    Milliseconds may have fractions, as those of `time.time() * 1000`.
    """
    if isinstance(value, kind):
        if kind is int:
            return None if isinstance(value, bool) else int(value)
        return value
    if kind is bool:
        return bool(value) if type(value).__name__ in ("bool", "bool_") else None  # NumPy's truth
    if kind is int and isinstance(value, Real):
        number: Any = value
        if isinstance(value, Integral) or float(value).is_integer():
            return int(number)
        return value if name.endswith("millis") else None
    return kind.parse(value) if hasattr(kind, "parse") else None


def _plain_arguments(function: Callable[..., Any]) -> list[tuple[int, str, Any]]:
    """Return place, name and type of the arguments that are declared with one of `_KINDS`, or with what has `parse`.

    The place of one that is given by name alone is beyond all others.
    """
    code = function.__code__
    found = []
    for place, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        declared = function.__annotations__.get(name)
        parts = get_args(declared) if isinstance(declared, UnionType) else (declared,)
        kinds = {get_origin(part) or part for part in parts} - {NoneType}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind in _KINDS or hasattr(kind, "parse"):
            found.append((place if place < code.co_argcount else 1 << 30, name, kind))
    return found


def _wrong_call(
    function: Callable[..., Any],
    given: Iterable[str],
    elsewhere: Mapping[str, str],
    otherwise: str,
    instead: str,
) -> str:
    """Return the message for a call that a function does not take."""
    named = _named(function)
    known = inspect.signature(function).parameters
    usage = instead or _usage(function)
    takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
    unknown = [] if takes_any else [name for name in given if name not in known]
    for name in unknown:
        if name in elsewhere:
            return f"{named}() has no argument {name!r}: write {elsewhere[name]}"
    for name in unknown[:1]:
        nearest_name = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        hint = (
            f"did you mean {nearest_name[0]}=?"
            if nearest_name and not instead
            else f"write {usage}"
        )
        return f"{named}() has no argument {name!r}; {hint}"
    return f"{otherwise.replace(f'{function.__qualname__}()', f'{named}()')}: write {usage}"


def _named(function: Callable[..., Any]) -> str:
    """Return what is called: a class by its own name."""
    *_, owner, name = ("", *function.__qualname__.split("."))
    return owner if name == "__init__" else name


def _usage(function: Callable[..., Any]) -> str:
    """Return how a function is called, such as "create_tag(name, snapshot_id=, retained=)"."""
    shown = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            shown.append(str(parameter).split(":", maxsplit=1)[0])
        elif name != "self":
            shown.append(name if parameter.default is parameter.empty else f"{name}=")
    return f"{_named(function)}({', '.join(shown)})"
