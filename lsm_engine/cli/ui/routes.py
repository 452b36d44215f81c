"""Addresses → pages: what a browser gets for a path and a query, errors included."""

import base64
import hashlib
import logging
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from lsm_engine import (
    RUN_DAGSTER_ID,
    Catalog,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    Snapshot,
    Table,
    TableName,
    lineage_page,
    record,
)
from lsm_engine.cli.ui import table_facts
from lsm_engine.cli.ui.health_board import HealthBoard
from lsm_engine.cli.ui.history_pages import SnapshotFacts, history_page, snapshot_page
from lsm_engine.cli.ui.key_page import key_page
from lsm_engine.cli.ui.markup import lineage_address, table_address
from lsm_engine.cli.ui.parts import error_page
from lsm_engine.cli.ui.table_list import overview_page, tables_page
from lsm_engine.cli.ui.tree_pages import files_page, tree_page

log = logging.getLogger(__name__)

Query = Mapping[str, str]
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""What pages may load and run: nothing but what this server sends as a file of its own."""
LINEAGE_TABLES_MAX = 20
"""Tables that the lineage shows where none is named: those of the newest commits."""
_ACTIVITY = 1_000
_FIELDS_MAX = 100
_HTML = "text/html; charset=utf-8"
_ASSETS = {
    "ui.css": "text/css; charset=utf-8",
    "ui.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


@record
class Reply:
    """What is sent for one request."""

    status: int
    body: bytes
    content_type: str = _HTML
    policy: str = POLICY
    location: str | None = None


class Site:
    """The pages of a catalog. `line` completes a command with the options that name this catalog.

    `dagster`: the address of the webserver to which pages of runs and assets lead; None: they do not.
    """

    def __init__(
        self, catalog: Catalog, line: Callable[[str], str], dagster: str | None = None
    ) -> None:
        self._catalog = catalog
        self._line = line
        self._dagster = dagster
        # On a disk, threads would only wait for each other, and requests for them.
        at_once = table_facts.IN_FLIGHT if "://" in catalog.warehouse else 2
        self._board = HealthBoard(lambda name: table_facts.state_of(catalog, name), at_once)

    def close(self) -> None:
        """Read nothing more."""
        self._board.close()

    def reply(self, target: str) -> Reply:
        """Return what there is at the target of a request; a failure is a page that helps."""
        parts: list[str] = []
        try:
            parts, query = _parsed(target)
            return self._page(parts, query)
        except LsmError as error:
            return self._failure(error, parts)
        except Exception as error:
            log.warning("the page %s failed", target, exc_info=error)
            message = f"{type(error).__name__}: {error}"
            return _html(error_page("This should not have happened", message, {}, {}), 500)

    def _page(self, parts: list[str], query: Query) -> Reply:
        match parts:
            case []:
                searched, page = query.get("q", "").strip(), _page_number(query)
                shown = table_facts.list_of_tables(
                    self._catalog, searched, page, self._board.states
                )
                return _html(tables_page(shown, self._line))
            case ["lineage"]:
                return self._lineage(query)
            case ["dagster", "runs" | "assets" as kind, *rest] if self._dagster and rest:
                path = "/".join(quote(part, safe="") for part in [kind, *rest])
                return _elsewhere(f"{self._dagster}/{path}")
            case [name] if name in _ASSETS:
                return Reply(status=200, body=_asset(name), content_type=_ASSETS[name])
            case ["t", name, *rest] if name:
                return _html(self._table_page(name, rest, query))
            case _:
                raise NotFoundError(f"there is no page /{'/'.join(parts)}")

    def _table_page(self, name: str, segments: list[str], query: Query) -> str:
        table = table_facts.table_of_name(self._catalog, name)
        match segments:
            case []:
                return overview_page(table_facts.overview(table, name), self._line)
            case ["snapshots"]:
                newest = query.get("from")
                start = table_facts.whole_number("from", newest) if newest else None
                return history_page(table_facts.history(table, name, start))
            case ["snapshot", number]:
                snapshot = table.snapshot(table_facts.whole_number("snapshot", number))
                return snapshot_page(self._snapshot_facts(table, name, snapshot))
            case ["tag", tag_name]:
                tag = table.tag(tag_name)
                return snapshot_page(self._snapshot_facts(table, name, tag.snapshot), tag)
            case ["tree"]:
                return _tree(table, name, query)
            case ["key"]:
                return key_page(table_facts.key(table, name, query))
            case _:
                raise NotFoundError(f"a table has no page {'/'.join(segments)}", table=name)

    def _snapshot_facts(self, table: Table, name: str, snapshot: Snapshot) -> SnapshotFacts:
        facts = table_facts.snapshot_facts(table, name, snapshot)
        run = (snapshot.properties or {}).get(RUN_DAGSTER_ID)
        return replace(facts, dagster_run=run) if self._dagster else facts

    def _lineage(self, query: Query) -> Reply:
        lineage = self._catalog.lineage
        chosen = recorded = lineage.tables()
        if query.get("table"):
            table_facts.table_of_name(
                self._catalog, query["table"]
            )  # raises, with what it may have meant
            chosen = [name for name in recorded if name.text == query["table"]]
        if not chosen:
            message = (
                "The catalog has recorded no commit yet. Of tables that others made, or without a "
                f"catalog: {self._line('catalog rebuild')} records what their files know."
            )
            facts = {"table": query.get("table")}
            return _html(error_page("No lineage yet", message, facts, {"Tables": "/"}))
        if not query.get("table") and len(recorded) > LINEAGE_TABLES_MAX:
            recent = lineage.recent_activity(limit=_ACTIVITY).column("table_name").to_pylist()
            names = list(dict.fromkeys(recent))[:LINEAGE_TABLES_MAX]
            chosen = [name for name in recorded if name.text in names]
        snapshot_id = table_facts.whole_number("at", query["at"]) if query.get("at") else None
        if len(chosen) == 1 and query.get("find"):
            snapshot_id = self._snapshot_about(chosen[0], query["find"])
            return _elsewhere(lineage_address(chosen[0].text, snapshot_id, window=snapshot_id))
        page = lineage_page(
            lineage, chosen, served=True, at=snapshot_id, has_dagster=bool(self._dagster)
        )
        return Reply(status=200, body=page.encode(), policy=_policy_of(page))

    def _snapshot_about(self, table: TableName, text: str) -> int:
        """Return the newest snapshot that a text is about, anywhere in a table's history."""
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
        snapshot_id = number or self._catalog.lineage.newest_about(table, text)
        if snapshot_id is None:
            raise NotFoundError(
                "nothing in this table's history has that in the name of a run, asset, tag or file",
                table=table.text,
                searched=text,
            )
        return snapshot_id

    def _failure(self, error: LsmError, parts: list[str]) -> Reply:
        status, heading = 500, "This cannot be shown"
        if isinstance(error, NotFoundError):
            status, heading = 404, "Not found"
        elif isinstance(error, InvalidInputError | InvalidOptionError):
            status, heading = 400, "Not understood"
        links = {"All tables": "/"}
        if len(parts) > 2 and parts[0] == "t":
            name = parts[1]
            links = {
                f"Snapshots and tags of {name}": table_address(name, "snapshots"),
                f"Overview of {name}": table_address(name),
                **links,
            }
        facts = {key: str(fact) for key, fact in error.facts.items()}
        if status == 500 and parts[:1] == ["t"]:
            facts["what says more"] = self._line(shlex.join(["doctor", parts[1].partition("@")[0]]))
        return _html(error_page(heading, error.message, facts, links), status)


def _elsewhere(location: str) -> Reply:
    """Lead to another page: the address is of this server, or begins with that of Dagster."""
    return Reply(status=303, body=b"", location=location)


def _html(page: str, status: int = 200) -> Reply:
    return Reply(status=status, body=page.encode("utf-8", "replace"))


def _tree(table: Table, name: str, query: Query) -> str:
    if "bucket" not in query:
        return tree_page(table_facts.tree(table, name, query, _page_number(query)))
    state_text, place, rows, total = table_facts.files(table, query)
    return files_page(name, state_text, place, rows, total)


def _page_number(query: Query) -> int:
    return table_facts.whole_number("page", query["page"]) if query.get("page") else 0


def _parsed(target: str) -> tuple[list[str], Query]:
    """Return the parts of a path and the query of a request's target."""
    if not target.startswith("/") or target.startswith("//"):
        raise NotFoundError("an address begins with one slash", given=target)
    split = urlsplit(target)
    try:
        parts = [unquote(part, errors="strict") for part in split.path.split("/")[1:]]
        pairs = parse_qsl(
            split.query, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except ValueError as error:
        raise InvalidInputError(f"the address cannot be decoded: {error}", given=target) from None
    return parts[:-1] if parts[-1] == "" else parts, dict(pairs)


@cache
def _asset(name: str) -> bytes:
    return resources.files("lsm_engine.cli.ui").joinpath(f"assets/{name}").read_bytes()


def _policy_of(page: str) -> str:
    """Return the policy for a page with a style and a script inside: these two, by their hashes."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in _INLINE.findall(page)
    }
    return f"{POLICY}; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'"
