"""The documentation site: one command builds it without a warning, every link leads somewhere, nothing is fetched."""

import collections
import importlib.util
import inspect
import json
import math
import os
import re
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
    place = next(path.parent for path in site if path.name == "api.html")
    pages = {path.name: page for path, page in site.items() if path.parent == place / "api"}
    named = set().union(*(page.ids for page in pages.values()))
    assert {f"lsm_engine.Table.{name}" for name in ("upsert", "scan")} <= pages["table.html"].ids
    assert "lsm_engine.Table.create_tag" not in named
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


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_every_parameter_of_the_reference_is_described() -> None:
    path = ROOT / "lsm_engine" / "docs" / "site" / "hooks.py"
    spec = importlib.util.spec_from_file_location("site_hooks", path)
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    descriptions, used, undescribed, listed = hooks.parameters(), set(), [], 0
    names = [name for _, names in hooks.API.values() for name in names]
    for name in names:
        # A name of a module is not imported with the package: `dml.merge_builder.Merge`.
        module, _, last = f"lsm_engine.{name}".rpartition(".")
        value = getattr(importlib.import_module(module), last)
        hidden = [re.compile(text[1:]) for text in json.loads(hooks.filters(f"lsm_engine.{name}"))]
        members = vars(value).items() if inspect.isclass(value) else [(last, value)]
        for member, function in members:
            function = getattr(function, "__func__", function)
            if not inspect.isfunction(function) or any(part.search(member) for part in hidden):
                continue
            owner = last if inspect.isclass(value) else "lsm_engine"
            parameters = inspect.signature(function).parameters.keys() - set(hooks.SELF)
            documented = "Args:" in (function.__doc__ or "")
            listed += bool(parameters)
            for parameter in () if documented else sorted(parameters):
                scopes = [
                    key for key in hooks.scopes(owner, member, parameter) if key in descriptions
                ]
                used |= set(scopes[:1])
                undescribed += [] if scopes else [f"{owner}.{member}: {parameter}"]
    assert undescribed == []
    assert descriptions.keys() - used == set()
    assert listed > 140


QUESTIONS = {
    "load a csv file": "files.html",
    "read excel": "files.html",
    "null values in csv": "files.html",
    "csv delimiter": "files.html",
    "skip bad lines rejects": "files.html",
    "export to csv": "files.html",
    "standard input jsonl": "files.html",
    "add a column": "schema-changes.html",
    "rename a column": "schema-changes.html",
    "change the type of a column": "schema-changes.html",
    "drop a column": "schema-changes.html",
    "data types decimal timestamp": "types.html",
    "arrow type of timestamp": "types.html",
    "python types of columns": "types.html",
    "cron": "maintenance.html",
    "systemd timer": "maintenance.html",
    "deployment without dagster": "maintenance.html",
    "schedule compaction": "maintenance.html",
    "two writers at the same time": "guarantees.html",
    "concurrency": "guarantees.html",
    "is a commit atomic": "guarantees.html",
    "error kind": "troubleshooting.html",
    "reads get slower": "troubleshooting.html",
    "CommitConflictError what to do": ("troubleshooting.html", "guarantees.html"),
    "how many buckets": ("buckets.html", "sizing.html"),
    "how much memory": "sizing.html",
    "time travel": "history.html",
    "tags": ("history.html", "recipes/releases.html"),
    "rollback": "history.html",
    "expire snapshots": ("history.html", "maintenance.html"),
    "filters like between": "filters.html",
    "year function in a filter": "filters.html",
    "lookup by key": ("rows-by-key.html", "recipes/web-service.html"),
    "follow changes": ("changelog-producers.html", "recipes/exactly-once.html"),
    "exactly once": "recipes/exactly-once.html",
    "debezium": "recipes/debezium.html",
    "postgresql changes": "recipes/postgresql-changes.html",
    "import a delta table": ("recipes/import.html", "spark.html"),
    "s3 credentials": "object-stores.html",
    "spark merge into": ("spark.html", "spark-clusters.html"),
    "polars": ("python.html", "types.html", "iceberg.html"),
    "gdpr erase a person": "forget.html",
    "install extras": "installing.html",
    "iceberg duckdb": "iceberg.html",
    "dbt": "recipes/dbt.html",
    "dbt incremental merge snapshot": "recipes/dbt.html",
    "backup and restore": "operators.html",
    "compact all tables": "maintenance.html",
    "cast a parquet column": "files.html",
    "spark branch": ("spark.html", "spark-clusters.html"),
}
"""What newcomers type, and the page, or the pages, of which one is to come first."""
WORD = re.compile(r"[a-z0-9_]+")


def stem(word: str) -> str:
    """A plain likeness of the search's stemmer: cuts the endings of plurals and verbs."""
    for ending in ("ies", "ing", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def first_page(query: str, entries: list[dict]) -> str:
    """The page that the search would show first: BM25, with the weights of titles and pages of the theme."""
    counted = [
        (entry["location"].partition("#")[0], entry.get("boost", 1), [
            (weight, collections.Counter(map(stem, WORD.findall(entry[field].lower()))))
            for field, weight in (("title", 1000), ("text", 1))
        ])
        for entry in entries
    ]  # fmt: skip
    mean = sum(sum(fields[1][1].values()) for _, _, fields in counted) / len(counted)
    words = list(dict.fromkeys(map(stem, WORD.findall(query.lower()))))
    rarity = {}
    for word in words:
        holders = sum(any(word in counts for _, counts in fields) for _, _, fields in counted)
        rarity[word] = math.log(1 + (len(counted) - holders + 0.5) / (holders + 0.5))
    scores: dict[str, float] = collections.defaultdict(float)
    for place, boost, fields in counted:
        score = 0.0
        for word in words:
            for weight, counts in fields:
                if count := counts[word]:
                    length = 0.25 + 0.75 * sum(counts.values()) / mean
                    score += boost * weight * rarity[word] * 2.2 * count / (1.2 * length + count)
        scores[place] = max(scores[place], score)
    return max(scores, key=lambda place: scores[place])


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_search_answers_questions_of_newcomers_by_guides(site: dict[Path, Page]) -> None:
    place = next(path.parent for path in site if path.name == "api.html")
    entries = json.loads((place / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert not [entry for entry in entries if entry["location"].startswith("decisions/")]
    answers = {query: first_page(query, entries) for query in QUESTIONS}
    wrong = {
        query: page
        for query, page in answers.items()
        if page not in (QUESTIONS[query], *(QUESTIONS[query] if isinstance(QUESTIONS[query], tuple) else ()))
    }  # fmt: skip
    assert not wrong
    assert len(QUESTIONS) >= 40


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
    # Decisions are for those who change the project, at a desk.
    guides = (path for path in site if path.name != "404.html" and path.parent.name != "decisions")
    pages = [path.relative_to(place).as_posix() for path in guides]
    (place / "empty.html").write_text("<!doctype html><body>", "utf-8")
    script = ON_A_PHONE.replace("PAGES", json.dumps(sorted(pages)))
    found = acted(place / "empty.html", script, budget=60_000)
    assert len(found) > 40
    assert {page: max(ends) for page, ends in found.items() if max(ends) > 390} == {}
