"""Product code speaks the field's terms: some words are refused in comments, docstrings and names."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import lsm_engine

ROOT = Path(lsm_engine.__file__).parent.parent
PACKAGES = tuple(
    f"lsm_engine/{name}"
    for name in (
        "storage",
        "cache",
        "data_files",
        "lookup",
        "metadata",
        "table",
        "read",
        "write",
        "commit",
        "compact",
        "changes",
        "dml",
        "ddl",
        "maintenance",
        "inspect",
        "api",
    )
)
SPOKEN = r"tells?|told|telling|says?|said|saying"
TEXT = re.compile(rf"\b({SPOKEN}|honou?r(s|ed)?|gone|settle[sd]?|settling|whereabouts)\b", re.I)
NAME = re.compile(rf"(^|_)({SPOKEN})(_|$)", re.I)
OF_FILES = "tell"
"""What Python's files call their position; `.tell()` of files is no word about data."""


def refused(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each refused word of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for found in TEXT.finditer(token.string):
                yield token.start[0] + token.string.count("\n", 0, found.start()), found.group(0)
        elif token.type == tokenize.NAME and token.string != OF_FILES and NAME.search(token.string):
            yield token.start[0], token.string


@pytest.mark.parametrize("package", PACKAGES)
def test_code_speaks_the_terms_of_the_field(package: str) -> None:
    sources = sorted((ROOT / package).rglob("*.py"))
    assert sources
    wrong = [
        f"{path.relative_to(ROOT).as_posix()}:{line} {word}"
        for path in sources
        for line, word in refused(path.read_text())
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""What a\nmanifest says."""', [(2, "says")]),
        ("x = 1  # settled rows\n", [(1, "settled")]),
        ('raise ValueError("the file is gone")', [(1, "gone")]),
        ("def _told(): ...", [(1, "_told")]),
        ("says_where = 1", [(1, "says_where")]),
        ("size = source.tell()  # a foretelling, essays", []),
    ],
)
def test_a_refused_word_is_found(source: str, found: list[tuple[int, str]]) -> None:
    assert list(refused(source)) == found
