"""Every page below lsm_engine/docs has its place on the documentation site, and decisions have one form."""

import re
from pathlib import Path

import pytest
import yaml

import lsm_engine

DOCS = Path(lsm_engine.__file__).parent / "docs"


def test_every_page_is_under_nav() -> None:
    config = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())
    listed = [
        page if isinstance(page, str) else next(iter(page.values()))
        for section in config["nav"]
        for page in next(iter(section.values()))
    ]
    unlisted = {path.name for path in DOCS.glob("*.md")} - set(listed)
    assert not unlisted, f"add a line under nav in lsm_engine/docs/site/mkdocs.yml: {unlisted}"
    assert len(listed) == len(set(listed))


DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))


def test_the_index_has_a_line_for_every_decision() -> None:
    index = (DOCS / "decisions" / "index.md").read_text()
    lines = re.findall(r"^\| \[(\d+)\]\((\S+?)\) \| .+ \|$", index, re.M)
    assert sorted(page for _, page in lines) == [path.name for path in DECISIONS]
    assert all(page.startswith(f"{int(number):04d}-") for number, page in lines)


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name[:4])
def test_a_decision_has_context_alternatives_and_consequences(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {int(path.name[:4])}. ")
    parts = re.findall(r"^\*\*(Context|Decision|Not chosen|Consequences)\b", text, re.M)
    assert list(dict.fromkeys(parts)) == ["Context", "Decision", "Not chosen", "Consequences"]
