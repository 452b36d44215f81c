"""Python on the pages of the site runs as it stands: the blocks of a page one after another."""

import re
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.docs.blocks import DOCS, blocks

PAGES = (
    *("index", "the-tree", "buckets", "rows-by-key", "changelog-producers"),
    *(
        "long-lived-writers",
        "iceberg",
        "file-indexes",
        "schema-changes",
        "types",
        "maintenance",
        "guarantees",
    ),
    *("troubleshooting", "sizing", "site/api-examples"),
)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = [text for language, text in blocks(DOCS / f"{page}.md") if language == "python"]
    assert examples
    exec("\n".join(examples), {})


def test_trees_on_the_page_are_those_of_the_tour() -> None:
    """Each drawn line has the shape that `lsm show tree` draws."""
    drawn = [text for language, text in blocks(DOCS / "the-tree.md") if language == "text"]
    assert [len(re.findall(r"^  L\d  █+.? +[\d.]+ KB +3 rows", text, re.M)) for text in drawn] == [2, 1]  # fmt: skip


def test_troubleshooting_has_a_line_for_every_kind_of_error() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    named = set(re.findall(r"`([a-z-]+)`", text.partition("## By kind")[2]))
    assert {kind.value for kind in lsm.ErrorKind} <= named
