"""Checks of the arguments of public functions, by their annotations."""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.other_libraries import unknown_argument
from lsm_engine.base.units import LONG_MAX

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_NAMES: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number of 64 bits",
    float: "a number",
    str: "text",
    Mapping: "a mapping, {name: value}",
    Sequence: "a list",
    Iterable: "a list",
}
_MISMATCH = object()
"""The result of a converter for a value that is not of its kind."""


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise InvalidInputError for an argument that does not match its annotation.

    NumPy's numbers and truths become Python's: those of NumPy wrap, so that a retention of 8 bits
    would expire too much. The text of an enumeration that has `parse` becomes its member. Arguments
    with annotations that no converter knows (Any, protocols) are checked by the function itself.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    kinds = {name: function.__annotations__.get(name) for name in names}
    usage = functools.partial(_usage, function)
    keyword_names = None if code.co_flags & inspect.CO_VARKEYWORDS else frozenset(names)
    checks = {
        name: check
        for name, kind in kinds.items()
        if (check := _check_of(name, kind, usage)) is not None
    }
    if not checks:
        return function  # a call costs nothing more
    # Resolved once per function: a call only converts its values.
    places = [
        (place, name) for place, name in enumerate(names[: code.co_argcount]) if name in checks
    ]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if keyword_names is not None and not keyword_names.issuperset(kwargs):
            raise unknown_argument(
                function.__name__, next(name for name in kwargs if name not in keyword_names)
            )
        values: list[Any] = [*args]
        for place, name in places:
            if place >= len(values):
                break
            values[place] = checks[name](values[place])
        keywords: dict[str, Any] = {
            name: checks[name](value) if name in checks else value for name, value in kwargs.items()
        }
        return function(*values, **keywords)

    return checked


def checks_all_arguments(cls: type[T]) -> type[T]:
    """Let every public method of a class, inherited ones too, check its arguments."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if isinstance(method, FunctionType) and (not name.startswith("_") or name == "__call__"):
            setattr(cls, name, checks_arguments(method))
    return cls


def checked_options(options: Mapping[str, Any], kinds: type) -> dict[str, Any]:
    """Return options that match the annotations of a TypedDict; InvalidInputError for one that does not."""
    checked = {}
    for name, value in options.items():
        check = _check_of(name, kinds.__annotations__.get(name), lambda: kinds.__name__)
        checked[name] = value if check is None else check(value)
        for text in value if isinstance(value, list | tuple) else ():
            _require_whole_characters(name, text)
    return checked


def _check_of(name: str, annotation: Any, usage: Callable[[], str]) -> Callable[[Any], Any] | None:
    """Return the function that checks and converts one argument; None if its annotation is not checked."""
    parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    kinds = [part for part in parts if part is not NoneType]
    converters = [_converter_of(kind, name) for kind in kinds]
    if not converters or None in converters:
        # One unknown kind may take any value, so none can be refused.
        return None
    is_path = any(_is_path(kind) for kind in kinds)
    takes_none = len(kinds) < len(parts)

    def check(value: Any) -> Any:
        if value is None and takes_none:
            return None
        for converter in converters:
            converted = _MISMATCH if converter is None else converter(value)
            if converted is not _MISMATCH:
                if isinstance(converted, str) and not is_path:
                    _require_whole_characters(name, converted)
                return converted
        expected = " or ".join(dict.fromkeys(map(_name_of, kinds)))
        raise InvalidInputError(
            f"{name} is {expected}, not {_shown(value)}: {usage()}",
            argument=name,
            given=type(value).__name__,
        )

    return check


def _require_whole_characters(name: str, text: str) -> None:
    # Paths may have halves of surrogate pairs, which stand for bytes that are not UTF-8. Other texts
    # are stored as UTF-8, which cannot hold them.
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise InvalidInputError(
            f"{name} has half of a surrogate pair, which UTF-8 cannot hold: {_shown(text)}",
            argument=name,
        ) from cause


def _converter_of(kind: Any, name: str) -> Callable[[Any], Any] | None:
    """Return the function that converts a value to a kind, or returns _MISMATCH; None for a kind that is not checked."""
    origin, items = get_origin(kind) or kind, get_args(kind)
    if kind is int:
        return functools.partial(_whole_number, may_have_fraction=name.endswith("millis"))
    if kind in _CONVERTERS:
        return _CONVERTERS[kind]
    if origin is Literal:
        return functools.partial(_one_of, values=items)
    if origin is Mapping:
        kinds = [item if isinstance(item, type) and item is not Any else object for item in items]
        key_kind, value_kind = kinds or (object, object)
        return functools.partial(_mapping, key_kind=key_kind, value_kind=value_kind)
    if origin in (Sequence, Iterable):
        item = items[0] if items else object
        item_kind = object if item is Any else get_origin(item) or item
        if isinstance(item, UnionType) or not isinstance(item_kind, type):
            return None  # such as a filter that is a list of filters
        return functools.partial(_list_of, item_kind=item_kind, takes_iterables=origin is Iterable)
    if hasattr(kind, "parse"):
        return functools.partial(_parsed, kind=kind)
    is_checked = isinstance(origin, type) and origin not in (object, Any, type)
    if not is_checked or getattr(origin, "_is_protocol", False):
        return None
    return functools.partial(_instance, kind=origin)


def _whole_number(value: Any, *, may_have_fraction: bool) -> Any:
    if isinstance(value, bool):
        return _MISMATCH
    if isinstance(value, Integral):
        whole = int(value)
        return whole if -LONG_MAX - 1 <= whole <= LONG_MAX else _MISMATCH
    number = _number(value)
    if number is _MISMATCH or math.isnan(number) or abs(number) > LONG_MAX:
        return _MISMATCH
    if number.is_integer():
        return int(number)
    # Milliseconds may have fractions, as those of `time.time() * 1000`.
    return value if may_have_fraction else _MISMATCH


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        return _MISMATCH
    try:
        return float(value)
    except OverflowError:  # a whole number or a fraction beyond all floats
        return _MISMATCH


def _truth(value: Any) -> Any:
    is_numpy = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    return bool(value) if isinstance(value, bool) or is_numpy else _MISMATCH


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _MISMATCH


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {float: _number, bool: _truth, str: _text}


def _one_of(value: Any, *, values: tuple[Any, ...]) -> Any:
    return value if isinstance(value, str | int) and value in values else _MISMATCH


def _mapping(value: Any, *, key_kind: type, value_kind: type) -> Any:
    if not isinstance(value, Mapping):
        return _MISMATCH
    has_keys = all(isinstance(key, key_kind) for key in value)
    has_values = all(isinstance(item, value_kind) for item in value.values())
    return value if has_keys and has_values else _MISMATCH


def _list_of(value: Any, *, item_kind: type, takes_iterables: bool) -> Any:
    """Return a list of a kind. One text is none: its letters would be taken for items."""
    if isinstance(value, str | bytes):
        return _MISMATCH
    if isinstance(value, Sequence) or (takes_iterables and hasattr(value, "__len__")):
        return value if all(isinstance(item, item_kind) for item in value) else _MISMATCH
    # What can be gone through only once is checked by who goes through it.
    return value if takes_iterables and isinstance(value, Iterable) else _MISMATCH


def _parsed(value: Any, *, kind: Any) -> Any:
    return value if isinstance(value, kind) else kind.parse(value)


def _instance(value: Any, *, kind: type) -> Any:
    return value if isinstance(value, kind) else _MISMATCH


def _name_of(kind: Any) -> str:
    origin, items = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, items))
    if origin in (Sequence, Iterable) and items == (str,):
        return "a list of texts"
    if _is_path(kind):
        return "a path"
    return _NAMES.get(origin) or f"a {origin.__name__}"


def _is_path(kind: Any) -> bool:
    # By name: this module is imported by pure ones, which do not import `os`.
    return getattr(get_origin(kind) or kind, "__name__", "") == "PathLike"


def _usage(function: Callable[..., Any]) -> str:
    """Return how a function is called, such as "create_tag(name, snapshot_id=, retained=)"."""
    parameters = inspect.signature(function).parameters.values()
    shown = [
        str(parameter).split(":", maxsplit=1)[0]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        else f"{parameter.name}{'' if parameter.default is parameter.empty else '='}"
        for parameter in parameters
        if parameter.name != "self"
    ]
    # A class is called by its own name.
    name = function.__name__
    if name == "__init__":
        name = function.__qualname__.split(".")[-2]
    return f"{name}({', '.join(shown)})"


def _shown(value: Any) -> str:
    """Return a value as an error shows it: whole if it is short."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
