"""Every page below lsm_engine/docs has its place on the documentation site."""

from pathlib import Path

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
