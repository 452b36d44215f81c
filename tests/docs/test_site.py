"""The documentation site: one command builds it without a warning, every link leads somewhere, nothing is fetched."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import lsm_engine as lsm
from tests.browser.chromium import acted
from tests.docs.blocks import ROOT, blocks
from tests.promised import missing

FETCHING = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    """Ids, links and fetched addresses of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = {"", "__skip"}
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := named.get(key))}
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if (address := named.get(FETCHING.get(tag, ""))) and named.get("rel") != "canonical":
            self.fetched.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages that README's command builds, by their path."""
    if importlib.util.find_spec("mkdocs") is None:
        missing("mkdocs", "needs the extra docs")
    _, text = blocks(ROOT / "README.md", "Documentation")[0]
    command = shlex.split(text.partition("&& ")[2])
    assert command[:4] == [".venv/bin/python", "-m", "mkdocs", "build"]
    assert "--strict" in command
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, *command[1:], "-d", str(place)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "WARNING" not in printed, printed
    return {path: Page(path) for path in place.rglob("*.html")}


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_every_link_leads_somewhere(site: dict[Path, Page]) -> None:
    wrong = []
    for path, page in site.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            ids = site[target].ids if target in site else {parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in ids:
                wrong.append(f"{path.name}: {link}")
    assert not wrong
    assert len(site) > 40


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_nothing_is_fetched_from_elsewhere(site: dict[Path, Page]) -> None:
    foreign = {link for page in site.values() for link in page.fetched if urlsplit(link).netloc}
    assert not foreign


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_references_are_whole(site: dict[Path, Page]) -> None:
    (place,) = {path.parent for path in site if path.name == "api.html"}
    named = site[place / "api.html"].ids
    classes = {name for name in lsm.__all__ if isinstance(getattr(lsm, name), type)}
    assert {f"lsm_engine.{name}" for name in classes} <= named
    owners = (
        lsm.Table,
        lsm.Tags,
        lsm.Branches,
        lsm.Consumers,
        lsm.Changes,
        lsm.Inspect,
        lsm.Maintenance,
    )
    methods = {
        f"lsm_engine.{owner.__name__}.{name}"
        for owner in owners
        for name, method in vars(owner).items()
        if name[0] != "_" and callable(method) and method.__qualname__ == f"{owner.__name__}.{name}"
    }
    named_only_in_code = {f"lsm_engine.Inspect.{name}" for name in lsm.SYSTEM_TABLES}
    assert methods - named_only_in_code <= named
    assert len(methods) > 90
    assert {"lsm_engine.spark.sql", "lsm_assets.factory.lsm_table_assets"} <= named
    assert {"lsm-upsert", "lsm-show-tree", "lsm-doctor"} <= site[place / "commands.html"].ids


ON_A_PHONE = """
const found = {};
for (const page of PAGES) {
  const frame = document.createElement('iframe');
  Object.assign(frame, {width: 390, height: 844, src: page});
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const inside = frame.contentDocument;
  found[page] = [inside.documentElement.scrollWidth];
  for (const table of inside.querySelectorAll('.md-typeset table'))
    if (!table.querySelector('th:nth-child(4)')) found[page].push(table.getBoundingClientRect().right);
  frame.remove();
}
return found;
"""


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_pages_and_tables_of_three_columns_fit_a_phone(site: dict[Path, Page]) -> None:
    place = next(path.parent for path in site if path.name == "api.html")
    pages = [path.relative_to(place).as_posix() for path in site if path.name != "404.html"]
    (place / "empty.html").write_text("<!doctype html><body>", "utf-8")
    script = ON_A_PHONE.replace("PAGES", json.dumps(sorted(pages)))
    found = acted(place / "empty.html", script, budget=60_000)
    assert len(found) > 40
    assert {page: max(ends) for page, ends in found.items() if max(ends) > 390} == {}
