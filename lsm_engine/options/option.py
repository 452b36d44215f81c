"""One declaration per table option: key, parser, default, meaning, and what is supported."""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.base.units import LONG_MAX, parse_millis
from lsm_engine.options.modes import ExternalAccess

T = TypeVar("T")
D = TypeVar("D")
_FIELDS = "fields."


@record
class Option(Generic[T]):
    """A table option. `supported` None means that every parsed value is.

    A value that `supported` refuses is an error that names the option: always when a table is
    created or altered, when another client's table is opened if `guards` is READ, and before the
    first write to it otherwise.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    doc: str
    default_text: str | None = None
    immutable: bool = False
    supported: Callable[[T], bool] | None = None
    guards: ExternalAccess = ExternalAccess.WRITE
    aliases: tuple[str, ...] = ()

    def parsed(self, text: str) -> T:
        """Return the value of `text`; raises InvalidOptionError naming the key."""
        try:
            return self.parse(text)
        except ValueError as cause:
            raise InvalidOptionError(
                f"option {self.key!r} cannot be {text!r}: {cause}", key=self.key, value=text
            ) from cause

    def is_supported(self, value: T) -> bool:
        """Whether this version does what `value` asks for."""
        return self.supported is None or value == self.default or self.supported(value)


@record
class FieldOption:
    """An option set per column: `<prefix><column>.<suffix>`."""

    suffix: str
    doc: str
    supported: bool = True
    guards: ExternalAccess = ExternalAccess.WRITE
    prefix: str = _FIELDS

    @property
    def needs_key(self) -> bool:
        """Whether the option is about versions of a key."""
        return self.prefix == _FIELDS and self.suffix != "stats-mode"

    @property
    def index_type(self) -> str:
        """The type of the file index that the option is about; of other options nothing."""
        return self.prefix.removeprefix("file-index.").rstrip(".") if self.prefix != _FIELDS else ""

    def column_of(self, key: str) -> str | None:
        """Return the column that a key names; None for a key of another option."""
        end = f".{self.suffix}"
        if not (key.startswith(self.prefix) and key.endswith(end)):
            return None
        return key[len(self.prefix) : -len(end)] or None


@overload
def one_of(values: type[T]) -> Callable[[str], T]: ...
@overload
def one_of(values: tuple[str, ...]) -> Callable[[str], str]: ...
def one_of(values: type[T] | tuple[str, ...]) -> Callable[[str], T] | Callable[[str], str]:
    """Return a parser for a closed vocabulary, an Enum by value or a tuple of words."""
    if isinstance(values, tuple):
        words = values

        def word(text: str) -> str:
            if text.lower() not in words:
                raise ValueError(f"choose one of {', '.join(words)}")
            return text.lower()

        return word
    members = {str(member.value): member for member in values}  # type: ignore[attr-defined]

    def member_of(text: str) -> T:
        parsed: T | None = members.get(text.lower().replace("_", "-"))
        if parsed is None:
            raise ValueError(f"choose one of {', '.join(members)}")
        return parsed

    return member_of


def parse_bool(text: str) -> bool:
    """Return true or false; anything else is a ValueError."""
    if text.lower() not in ("true", "false"):
        raise ValueError("choose true or false")
    return text.lower() == "true"


def between(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `lowest` to `highest`, both included."""
    parse_number = at_least(lowest)

    def parse(text: str) -> int:
        number = parse_number(text)
        if number > highest:
            raise ValueError(f"give a number of at most {highest}")
        return number

    return parse


def at_least(lowest: int) -> Callable[[str], int]:
    """Return a parser of whole numbers that are not below `lowest`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("give a whole number") from None
        if number < lowest:
            raise ValueError(f"give a number of at least {lowest}")
        if number > LONG_MAX:
            raise ValueError(f"give a number of at most {LONG_MAX}")
        return number

    return parse


def bounded_or_unlimited(text: str) -> int:
    """Return a number of at least 1, or -1 for no limit; anything else is a ValueError."""
    try:
        number = int(text)
    except ValueError:
        raise ValueError("give a whole number") from None
    if number < 1 and number != -1:
        raise ValueError("give a number of at least 1, or -1 for no limit")
    return number


@record
class LagBound:
    """How far one state may be behind another: by a number of commits, or by milliseconds."""

    commits: int | None = None
    millis: int | None = None

    def is_exceeded(self, commits: int, millis: int) -> bool:
        """Whether a lag is beyond the bound."""
        if self.commits is not None:
            return commits > self.commits
        return self.millis is not None and millis > self.millis


def parse_lag(text: str) -> LagBound:
    """Return a bound of a number of commits, or of a duration with its unit; anything else is a ValueError."""
    if text.strip().isdigit():
        return LagBound(commits=at_least(0)(text))
    return LagBound(millis=parse_millis(text))


def fraction(text: str) -> float:
    """Return a number above 0 and below 1; anything else is a ValueError."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError("give a number between 0 and 1") from None
    if not 0 < number < 1:
        raise ValueError("give a number between 0 and 1")
    return number


def names(text: str) -> tuple[str, ...]:
    """Return a comma-separated list of names, spaces around them removed."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def single_name(text: str) -> str:
    """Return the name of a database or table; several of them, or a path, are a ValueError."""
    name = text.strip()
    if not name or any(character in name for character in "./\\;,$"):
        raise ValueError("give one name, without dots, slashes and semicolons")
    return name


def per_level(parse: Callable[[str], T]) -> Callable[[str], tuple[tuple[int, T], ...]]:
    """Return a parser of `level:value,level:value`; a level may be named once."""

    def parse_all(text: str) -> tuple[tuple[int, T], ...]:
        values: dict[int, T] = {}
        for part in names(text):
            level, colon, value = (word.strip() for word in part.partition(":"))
            if not colon or not level.isdecimal() or int(level) in values:
                raise ValueError("give level:value pairs such as 0:avro,5:parquet, each level once")
            values[int(level)] = parse(value)
        return tuple(sorted(values.items()))

    return parse_all


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return `parse` typed as giving possibly nothing, for options without a default."""
    return parse
