"""Codec of commit messages as JSON, between tasks and the driver.

A table never stores them. A record becomes an object with the same member names, and bytes become base64. The
declared types of the records decide how the text is read: it names no class, and builds no other.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.json_object import parse_object

T = TypeVar("T")


def encode_message(message: object) -> bytes:
    """Return a record of format/commit_message.py (or any part of one) as compact JSON."""
    return _WRITER.encode(message).encode()


def decode_message(data: bytes, kind: type[T]) -> T:
    """Return the record of class `kind` that `encode_message` turned into `data`.

    Raises CorruptFileError where the text is no such record.
    """
    document = parse_object(data, file_name=kind.__name__)
    try:
        message = _from_json(dict(document.members), kind)
    except (TypeError, ValueError, KeyError, AssertionError, RecursionError) as cause:
        if isinstance(cause, CorruptFileError):  # it names the member already
            raise
        raise CorruptFileError(
            f"the text is no {kind.__name__}: {str(cause)[:120]}", message_kind=kind.__name__
        ) from cause
    assert isinstance(message, kind)
    return message


def _members(kind: type) -> tuple[str, ...] | None:
    """Return the names of a record's members; None: a class that is no record."""
    return tuple(member.name for member in fields(kind)) if is_dataclass(kind) else None


_members_of = cast(
    Callable[[type], tuple[str, ...] | None], cache(_members)
)  # mypy: type is Hashable


def _to_json(value: Any) -> Any:
    """Return a value that the JSON writer can write, in place of one that it does not know."""
    names = _members_of(type(value))  # first, as nearly all are records
    if names is not None:
        return {
            name: _to_json(member) if isinstance(member, dict) else member
            for name in names
            if (member := getattr(value, name)) is not None
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {
            _to_json(key) if isinstance(key, bytes | Enum) else key: item
            for key, item in value.items()
        }
    raise TypeError(f"{value!r} cannot be part of a message")


_WRITER = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False, default=_to_json
)


def _from_json(value: Any, kind: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        options = [option for option in get_args(kind) if option is not NoneType]
        return None if value is None else _from_json(value, options[0])
    if origin is tuple:
        item = get_args(kind)[0]
        return tuple(_from_json(part, item) for part in _expected(value, list))
    if origin is not None and issubclass(origin, Mapping):
        name, item = get_args(kind)
        members = _expected(value, dict).items()
        return {_from_json(key, name): _from_json(part, item) for key, part in members}
    if is_dataclass(kind):
        return _record(_expected(value, dict), kind)
    if issubclass(kind, Enum):
        return kind(value)
    if kind is bytes:
        try:
            return base64.b64decode(_expected(value, str), validate=True)
        except binascii.Error as cause:
            raise ValueError("bytes are not in base64") from cause
    return _expected(value, kind)


def _record(members: dict[str, Any], kind: Any) -> Any:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for member in fields(kind):
        if member.name in members:
            values[member.name] = _from_json(members[member.name], hints[member.name])
        elif member.default is MISSING and member.default_factory is MISSING:
            # None is left out when written; a member without default may still be None.
            values[member.name] = _from_json(None, hints[member.name])
        elif NoneType in get_args(hints[member.name]):
            values[member.name] = None
    return kind(**values)


def _expected(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
