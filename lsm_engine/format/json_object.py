"""Strict reading of JSON, one bounded object with typed members, and its writing."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

from lsm_engine.base.errors import CorruptFileError, unwritable_text
from lsm_engine.base.record import record
from lsm_engine.base.units import LONG_MAX
from lsm_engine.format.checksum import FORM, checksum_of, checksum_text

# -- Members of a JSON document whose names were damaged -------------------------------------------
#
# Unknown members are ignored, these are not.
#
# Newer writers add members, so an unknown name is no error by itself. One flipped bit in a name
# makes a member unknown, too: it is then taken for the member that it resembles, which is
# missing.

OWN_NAME = "lsmName"
"""Member of tags and consumers: whose file it is, as nothing else in it says so."""
OWN_BRANCH = "lsmBranch"
"""Member of a branch's tags: which branch wrote it."""
OWN_ID = "lsmTagId"
"""Member of tags: another one with each change, so that no two contents of a tag are the same."""
OWN_CONSUMER_ID = "lsmConsumerId"
"""Member of consumers: another one with each move, as of tags."""
TAG_ONLY_MEMBERS = frozenset({"tagCreateTime", "tagTimeRetained", OWN_NAME, OWN_BRANCH, OWN_ID})
SCHEMA_MEMBERS = frozenset(
    {
        "version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options",
        "comment", "timeMillis",
    }
)  # fmt: skip
FIELD_MEMBERS = frozenset({"id", "name", "type", "description", "defaultValue"})
CONSUMER_MEMBERS = frozenset({"nextSnapshot", OWN_NAME, OWN_CONSUMER_ID})
_SHORT = 4
"""Names of up to so many characters resemble another only where one character differs."""


def refuse_damaged_names(
    members: Mapping[str, Any], expected_names: Collection[str], *, file_name: str
) -> None:
    """Raise CorruptFileError for an unknown member whose name resembles a known one that is missing."""
    unknown = members.keys() - expected_names
    if not unknown:
        return
    missing = sorted(set(expected_names) - members.keys())
    for name in sorted(unknown):
        for missing_name in missing:
            if _resembles(name, missing_name):
                raise CorruptFileError(
                    f"member {name!r} seems to be {missing_name!r} with damage to its name; restore the file",
                    file=file_name,
                    member=name,
                )


def _resembles(name: str, missing_name: str) -> bool:
    """Whether a few flipped bits, other case or swapped characters lead from one name to the other."""
    if name.lower() == missing_name.lower():
        return True
    if len(name) != len(missing_name):
        return False
    differing = sum(
        character != expected for character, expected in zip(name, missing_name, strict=True)
    )
    if len(missing_name) <= _SHORT:
        return differing == 1
    return differing <= 2 or sorted(name) == sorted(missing_name)


# -- JSON read with suspicion: one object, bounded, typed member by member; and written plainly ----

T = TypeVar("T")
SIZE_MAX = 64 << 20
READ_MAX = SIZE_MAX + 1
"""Bytes to read of a document at most: enough to see that it is too large, however large it is."""
CHECKSUM = "lsmChecksum"
_A_CHECKSUM = re.compile(rf"{FORM}:[0-9a-f]{{8}}")
_LAST_MEMBER = f',\n  "{CHECKSUM}"'.encode()


class _BadJson(ValueError):
    """An error that the hooks of this module raise while the parser runs."""


@record
class JsonObject:
    """The members of one JSON object, with the name of the file they came from.

    Members without a getter call are ignored: newer writers add some. Every getter raises
    CorruptFileError, naming the file and the member, for a value of another type.
    """

    members: Mapping[str, Any]
    file_name: str

    def long(self, name: str) -> int:
        """Return a required 64-bit number."""
        return self._required(name, self.optional_long(name))

    def optional_long(self, name: str) -> int | None:
        """Return a 64-bit number; None where the member is null or missing."""
        value = self.members.get(name)
        if value is None or (type(value) is int and -LONG_MAX - 1 <= value <= LONG_MAX):
            return value
        raise self._refusal(name, "a whole number of 64 bits")

    def text(self, name: str) -> str:
        """Return a required text."""
        return self._required(name, self.optional_text(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text; None where the member is null or missing."""
        value = self.members.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._refusal(name, "a text")

    def flag(self, name: str) -> bool:
        """Return whether a member is true; False where it is null or missing."""
        value = self.members.get(name)
        if value is None or isinstance(value, bool):
            return value or False
        raise self._refusal(name, "true or false")

    def name(self, name: str) -> str:
        """Return a required bare file name."""
        return self._required(name, self.optional_name(name))

    def optional_name(self, name: str) -> str | None:
        """Return a bare file name, which leads to no other directory."""
        value = self.optional_text(name)
        if value is not None and not is_bare_name(value):
            raise self._refusal(name, "a bare file name")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty where the member is null or missing."""
        return tuple(self._list(name, str, "a list of texts") or ())

    def objects(self, name: str) -> "list[JsonObject]":
        """Return a required list of objects."""
        expected = "a list of objects"
        items = self._list(name, dict, expected)
        if items is None:
            raise self._refusal(name, expected)
        return [JsonObject(members=item, file_name=self.file_name) for item in items]

    def text_map(self, name: str) -> dict[str, str] | None:
        """Return an object of texts; None where the member is null or missing."""
        return self._map(name, str, "an object of texts")

    def long_map(self, name: str) -> dict[str, int] | None:
        """Return an object of numbers; None where the member is null or missing."""
        return self._map(name, int, "an object of whole numbers")

    def object_map(self, name: str) -> "dict[str, JsonObject] | None":
        """Return an object of objects; None where the member is null or missing."""
        members = self._map(name, dict, "an object of objects")
        if members is None:
            return None
        return {
            key: JsonObject(members=item, file_name=self.file_name) for key, item in members.items()
        }

    def _list(self, name: str, kind: type[T], expected: str) -> list[T] | None:
        value = self.members.get(name)
        if value is None or (isinstance(value, list) and all(type(item) is kind for item in value)):
            return value
        raise self._refusal(name, expected)

    def _map(self, name: str, kind: type[T], expected: str) -> dict[str, T] | None:
        value = self.members.get(name)
        if value is None or (
            isinstance(value, dict) and all(type(item) is kind for item in value.values())
        ):
            return value
        raise self._refusal(name, expected)

    def optional_count(self, name: str) -> int | None:
        """Return a 64-bit number that is not negative; None where the member is null or missing."""
        value = self.optional_long(name)
        if value is not None and value < 0:
            raise self._refusal(name, "a count")
        return value

    def _required(self, name: str, value: T | None) -> T:
        if value is None:
            raise self._refusal(name, "there")
        return value

    def _refusal(self, name: str, expected: str) -> CorruptFileError:
        return CorruptFileError(
            f"member {name!r} is not {expected}; restore the file",
            file=self.file_name,
            member=name,
            value=repr(self.members.get(name))[:80],
        )


def is_bare_name(text: str) -> bool:
    """Whether a text names a file in the directory it is looked for in, and nothing else."""
    return bool(text) and not {"/", "\\", "\0"} & set(text) and text not in (".", "..")


def parse_object(data: bytes, *, file_name: str) -> JsonObject:
    """Return the one JSON object that a file holds.

    Fractions come as Decimal. Raises CorruptFileError for anything else, for more than 64 MiB, for
    a member given twice, for NaN and for nesting that no honest writer needs.
    """
    if len(data) > SIZE_MAX:
        raise CorruptFileError(
            "the file is far too large for its kind; restore it", file=file_name, bytes_max=SIZE_MAX
        )
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_once_each,
            parse_constant=_no_constant,
            parse_float=Decimal,
        )
        if b"\\u" in data:
            _compact(
                value
            ).encode()  # escapes can spell halves of characters, which no name may hold
    except (ValueError, RecursionError, ArithmeticError) as cause:
        raise CorruptFileError(
            f"the file is not the JSON it should be: {str(cause)[:120]}; restore it", file=file_name
        ) from cause
    if not isinstance(value, dict):
        raise CorruptFileError("the file holds no JSON object; restore it", file=file_name)
    _check_itself(data, value, file_name)
    return JsonObject(members=value, file_name=file_name)


def _check_itself(data: bytes, members: dict[str, Any], file_name: str) -> None:
    """Compare a document with the checksum in its last member, and take that out.

    Other clients that write a document anew leave the member out: then nothing is known.
    """
    stored = members.pop(CHECKSUM, None)
    if stored is None:
        refuse_damaged_names(members, (CHECKSUM,), file_name=file_name)
        for name, value in members.items():
            if name != "comment" and isinstance(value, str) and _A_CHECKSUM.fullmatch(value):
                raise CorruptFileError(
                    f"member {name!r} is a checksum, and {CHECKSUM!r} is missing; restore the file",
                    file=file_name,
                    member=name,
                )
        return
    end = data.rfind(_LAST_MEMBER)
    if end < 0 or data[end:] != _closing(data[:end]):
        raise CorruptFileError(
            "the document is damaged: its checksum differs; restore the file, or if it was edited on "
            f"purpose take member {CHECKSUM!r} out of it",
            file=file_name,
            expected=str(stored)[:40],
        )


def _closing(text: bytes) -> bytes:
    """Return the end of a document: its last member, a checksum of all that comes before."""
    return _LAST_MEMBER + f' : "{FORM}:{checksum_text(checksum_of(text))}"\n}}'.encode()


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _BadJson("a member is given twice")
    return members


def _no_constant(text: str) -> NoReturn:
    raise _BadJson(f"{text} is no number")


def object_text(members: Mapping[str, Any], *, raw: Mapping[str, str] | None = None) -> bytes:
    """Return a JSON object, one member to a line; members that are None are left out.

    The last member is a checksum of the text before it, which `parse_object` compares.

    Raises InvalidInputError for texts that are no Unicode.

    `raw` members are appended as they are, for numbers that need a certain spelling.
    """
    lines = [
        f"  {_compact(name)} : {_value_text(value)}"
        for name, value in members.items()
        if value is not None
    ]
    lines += [f"  {_compact(name)} : {text}" for name, text in (raw or {}).items()]
    try:
        text = ("{\n" + ",\n".join(lines)).encode()
    except UnicodeEncodeError as cause:
        raise unwritable_text(cause) from cause
    return text + _closing(text)


def _value_text(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[ " + ",\n    ".join(_compact(item) for item in value) + " ]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
