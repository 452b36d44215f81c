"""Errors, grouped by what the caller can do about them.

LsmError
├── CommitConflictError      nothing is visible: reload the table and try again
├── CommitUnknownError       it may or may not be visible: look it up before trying again
├── NotFoundError            (also KeyError) no such name or id
│   └── ExpiredError         it existed and retention took it: choose a newer one, or a tag
├── AlreadyExistsError       (also ValueError) the name is taken: choose another
├── InvalidOptionError       (also ValueError) fix the configuration
├── InvalidInputError        (also ValueError) fix the rows, keys or names handed in
├── UnsupportedError         (also NotImplementedError) a known feature that this version refuses
├── CorruptFileError         stored bytes are wrong: restore or re-create the file
├── UnsafePathError          a path leaves the table's directory: nothing was touched
└── StorageError             (also OSError) the disk or the store failed: free space, then retry

A message states what is wrong and what to do, in lower case, without a full stop; the facts follow as
`name=value`. Facts are kept in `facts`, the machine-readable reason in `kind`. Secrets of URLs are in none
of them."""

import re
from enum import Enum
from typing import Any

# -- Texts without the secrets that URLs in them carry: passwords, keys, tokens, signatures --------

SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "sig")
"""Parts of names of URL parameters whose values are not shown."""
HIDDEN = "***"
_USER_INFO = re.compile(r"([A-Za-z][\w+.-]*://[^/?#\s'\"@:]*):(?!\d{1,5}/)[^\s'\"]*@")
"""A password ends at the last "@", as it may hold "@" and "/" itself. Digits before a slash are a port."""
_PARAMETER = re.compile(r"([?&;])([^=&;?#\s'\"]+)=([^&;#\s'\"]*)")


def is_secret(name: str) -> bool:
    """Whether a value of this name is secret, and not shown."""
    return any(word in name.lower() for word in SECRET_WORDS)


def without_secrets(text: str) -> str:
    """Return a text with the passwords and secret parameters of URLs in it replaced by "***"."""
    if "://" not in text:  # most texts have no URL
        return text
    return _PARAMETER.sub(_shown, _USER_INFO.sub(rf"\1:{HIDDEN}@", text))


def _shown(match: re.Match[str]) -> str:
    value = HIDDEN if is_secret(match[2]) else match[3]
    return f"{match[1]}{match[2]}={value}"


def hidden_in(value: object) -> object:
    """Return a value whose texts are without secrets, those in mappings, lists and tuples too."""
    if isinstance(value, str):
        return without_secrets(value)
    if type(value) is dict:
        return {name: hidden_in(item) for name, item in value.items()}
    if type(value) is list:
        return [hidden_in(item) for item in value]
    if type(value) is tuple:
        return tuple(hidden_in(item) for item in value)
    return value


# -- Errors, grouped by what the caller can do about them ------------------------------------------


class ErrorKind(Enum):
    """The reason of an error. Append-only: programs compare these codes."""

    CONFLICT = "conflict"
    RETRIES_EXHAUSTED = "retries-exhausted"
    COMMIT_UNKNOWN = "commit-unknown"
    NO_SUCH_DATABASE = "no-such-database"
    NO_SUCH_TABLE = "no-such-table"
    NO_SUCH_SNAPSHOT = "no-such-snapshot"
    NO_SUCH_TAG = "no-such-tag"
    NO_SUCH_COLUMN = "no-such-column"
    NO_SUCH_FILE = "no-such-file"
    EXPIRED = "expired"
    EXISTS = "exists"
    UNKNOWN_OPTION = "unknown-option"
    INVALID_OPTION = "invalid-option"
    IMMUTABLE_OPTION = "immutable-option"
    INVALID_ROWS = "invalid-rows"
    INVALID_KEY = "invalid-key"
    INVALID_NAME = "invalid-name"
    INVALID_SCHEMA = "invalid-schema"
    INVALID_FILTER = "invalid-filter"
    UNSUPPORTED_OPTION = "unsupported-option"
    UNSUPPORTED_FORMAT = "unsupported-format"
    UNSUPPORTED_TYPE = "unsupported-type"
    CORRUPT = "corrupt"
    UNSAFE_PATH = "unsafe-path"
    STORAGE = "storage"
    ROW_EXISTS = "row-exists"
    ROW_MISSING = "row-missing"
    ROWS_CHANGED = "rows-changed"
    STAGED_FILES_GONE = "staged-files-gone"
    LOSSY_CAST = "lossy-cast"
    NOT_SHARED = "not-shared"
    UNKNOWN_IDENTIFIER = "unknown-identifier"
    INVALID_STATEMENT = "invalid-statement"


class LsmError(Exception):
    """Base of every error the engine raises on purpose."""

    default_kind = ErrorKind.STORAGE

    def __init__(self, message: str, *, kind: ErrorKind | None = None, **facts: object) -> None:
        self.message = without_secrets(message)
        self.kind = kind or self.default_kind
        self.facts = {name: hidden_in(value) for name, value in facts.items()}
        super().__init__(self.message)

    def __str__(self) -> str:
        facts = "".join(f" {name}={value!r}" for name, value in self.facts.items())
        return f"{self.message} [{self.kind.value}]{facts}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.facts)


def _rebuild(
    cls: type[LsmError], message: str, kind: ErrorKind, facts: dict[str, object]
) -> LsmError:
    return cls(message, kind=kind, **facts)


class CommitConflictError(LsmError):
    """Nothing is visible: reload the table and try again."""

    default_kind = ErrorKind.CONFLICT


class CommitUnknownError(LsmError):
    """The commit may or may not be visible: look for it before trying again."""

    default_kind = ErrorKind.COMMIT_UNKNOWN


class NotFoundError(LsmError, KeyError):
    """No such name or id."""

    default_kind = ErrorKind.NO_SUCH_FILE


class ExpiredError(NotFoundError):
    """It existed, and retention has taken it."""

    default_kind = ErrorKind.EXPIRED


class AlreadyExistsError(LsmError, ValueError):
    """The name is taken."""

    default_kind = ErrorKind.EXISTS


class InvalidOptionError(LsmError, ValueError):
    """The configuration is wrong."""

    default_kind = ErrorKind.INVALID_OPTION


class InvalidInputError(LsmError, ValueError):
    """The rows, keys or names of the caller are wrong; nothing was written."""

    default_kind = ErrorKind.INVALID_ROWS


class UnsupportedError(LsmError, NotImplementedError):
    """A known feature that this version refuses rather than guesses at."""

    default_kind = ErrorKind.UNSUPPORTED_OPTION


class CorruptFileError(LsmError):
    """Stored bytes are wrong."""

    default_kind = ErrorKind.CORRUPT


class UnsafePathError(LsmError):
    """A path leaves the directory it has to stay in; nothing was touched."""

    default_kind = ErrorKind.UNSAFE_PATH


class StorageError(LsmError, OSError):
    """The disk or the store failed."""

    default_kind = ErrorKind.STORAGE

    def __init__(self, message: str, *, kind: ErrorKind | None = None, **facts: object) -> None:
        LsmError.__init__(self, message, kind=kind, **facts)

    def __str__(self) -> str:
        return LsmError.__str__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return LsmError.__reduce__(self)


def unwritable_text(cause: UnicodeEncodeError) -> InvalidInputError:
    """Return the error of a text with half of a surrogate pair in it, which UTF-8 cannot hold."""
    return InvalidInputError(
        "a text holds half of a character, which no file can; correct it",
        text=cause.object[max(cause.start - 20, 0) : cause.end + 20],
    )
