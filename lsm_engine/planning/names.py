"""Names that people give to tags, branches and consumers, each of which becomes one file's name."""

import re
import unicodedata

from lsm_engine.base.errors import ErrorKind, InvalidInputError

NAME_BYTES_MAX = 200  # leaves room for a prefix and a temporary file's uuid within 255
MAIN_BRANCH = "main"

_SEPARATORS = re.compile(r"[/\\]")
_UNWRITABLE = ("Cc", "Cs", "Zl", "Zp")
BIDI_CONTROLS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that change the direction of text, so that a name looks like another."""


def checked_name(kind: str, name: str, *, numeric: bool = False) -> str:
    """Return `name` if a `kind` ("tag", "branch", "consumer") may be called so.

    Raises InvalidInputError for blank names, path separators, control characters, marks that turn
    text round, names with blanks around them or a leading dot, and names over 200 bytes. `numeric`
    allows numbers, which else read as snapshot ids wherever a version is named.
    """
    objection = _objection(name, numeric=numeric)
    if objection is not None:
        raise InvalidInputError(
            f"the {kind} name {objection}; choose another",
            kind=ErrorKind.INVALID_NAME,
            name=name[:80],
        )
    return name


def checked_tag_name(name: str, *, numeric: bool = False) -> str:
    """Return `name` if a tag may be called so; see `checked_name`."""
    return checked_name("tag", name, numeric=numeric)


def checked_branch_name(name: str) -> str:
    """Return `name` if a new branch may be called so; see `checked_name`. "main" is taken."""
    if name == MAIN_BRANCH:
        raise InvalidInputError(
            "the branch name is that of the table itself; choose another",
            kind=ErrorKind.INVALID_NAME,
            name=name,
        )
    return checked_name("branch", name)


def _objection(name: str, *, numeric: bool) -> str | None:
    return (
        "is blank" if not name.strip()
        else "has blanks around it" if name != name.strip()
        else "holds a path separator" if _SEPARATORS.search(name)
        else "holds a character that cannot be written" if _is_unwritable(name)
        else "begins with a dot" if name.startswith(".")
        else "is only a number, which reads as a snapshot id" if name.isdecimal() and not numeric
        else f"is longer than {NAME_BYTES_MAX} bytes" if len(name.encode()) > NAME_BYTES_MAX
        else None
    )  # fmt: skip


def _is_unwritable(name: str) -> bool:
    """Control characters, halves of a surrogate pair, line breaks, marks that turn text round."""
    return any(unicodedata.category(mark) in _UNWRITABLE or mark in BIDI_CONTROLS for mark in name)
