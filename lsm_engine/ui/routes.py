"""The routes: the reply to a path and a query, errors included."""

import base64
import hashlib
import logging
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pyarrow as pa

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
    Tag,
    col,
    doctor,
    lineage_page,
    plain_rows,
    record,
    type_text,
)
from lsm_engine.cli.commands.explain import key_of
from lsm_engine.cli.commands.look import schema_rows, system_rows
from lsm_engine.ui.pages import (
    History,
    KeyAnswer,
    KeyFacts,
    SnapshotFacts,
    TableFacts,
    TableList,
    TableState,
    TreeFacts,
    files_page,
    history_page,
    key_page,
    keys_text,
    overview_page,
    snapshot_page,
    tables_page,
    tree_page,
)
from lsm_engine.ui.parts import error_page, lineage_address, moment, table_address

# -- Health of many tables, examined concurrently with requests ------------------------------------

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.5
"""What a page waits for tables that are being examined; those that are not done come with the next one."""
FRESH_SECONDS = 15
"""From this age on a table is examined again, its last state being shown meanwhile."""


class HealthBoard:
    """The cache of the states of tables; `examine` reads a table, up to `at_once` tables concurrently."""

    def __init__(self, examine: Callable[[str], TableState], at_once: int = 2) -> None:
        self._examine = examine
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="lsm-ui-health")
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, TableState]] = {}
        self._running: dict[str, Future[None]] = {}

    def states(self, names: Sequence[str]) -> list[TableState]:
        """Return the states of tables, in their order; pending if not examined yet."""
        oldest = time.monotonic() - FRESH_SECONDS
        with self._lock:
            for name in names:
                cached = self._known.get(name)
                if name not in self._running and (cached is None or cached[0] < oldest):
                    self._running[name] = self._pool.submit(self._examined, name)
            running = [self._running[name] for name in names if name in self._running]
        # Most tables are examined within this time; the page shows the others as pending and asks again.
        wait(running, timeout=WAIT_SECONDS)
        with self._lock:
            return [
                self._known[name][1] if name in self._known else TableState(name=name, pending=True)
                for name in names
            ]

    def close(self) -> None:
        """Stop examining tables."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _examined(self, name: str) -> None:
        try:
            state = self._examine(name)
        except Exception as error:
            # In a thread of the pool no caller would see it, and the page would stay pending.
            log.warning("examining %s failed", name, exc_info=error)
            state = TableState(name=name, problem=f"{type(error).__name__}: {error}")
        # The state and the end of the run change together, so no second run starts between.
        with self._lock:
            self._known[name] = time.monotonic(), state
            del self._running[name]


# -- The facts of pages, read from a catalog -------------------------------------------------------
#
# A table opened per request, in as few reads as a page needs.

TABLES_PER_PAGE = 50
SNAPSHOTS_PER_PAGE = 100
BUCKETS_PER_PAGE = 40
ROWS_MAX = 500
"""Files that one page lists."""
IN_FLIGHT = 16
"""Small files of an object store that are read together: most of the time is spent on waiting."""


def table_of_name(catalog: Catalog, name: str) -> Table:
    """Open a table by its name in the catalog, "shop.orders@fix" at a branch; never by a path."""
    table, _, branch = name.partition("@")
    main_table = catalog.table(table)
    return main_table.branch(branch) if branch else main_table


def list_of_tables(
    catalog: Catalog, searched: str, page: int, states: Callable[[list[str]], list[TableState]]
) -> TableList:
    """Return a page of the tables whose names hold `searched`; `states` looks at those of the page."""
    if catalog.is_in_memory:
        catalog.register_found_tables()  # names of tables that came since
    names = [name for name in catalog.list_tables() if searched.lower() in name.lower()]
    page = min(page, max(0, len(names) - 1) // TABLES_PER_PAGE)
    shown = names[page * TABLES_PER_PAGE :][:TABLES_PER_PAGE]
    return TableList(
        warehouse=catalog.warehouse,
        searched=searched,
        matching=len(names),
        number=page,
        page_size=TABLES_PER_PAGE,
        tables=states(shown),
    )


def state_of(catalog: Catalog, name: str) -> TableState:
    """Return a table's newest state and health; of one that cannot be read, why."""
    try:
        return _state(table_of_name(catalog, name), name)
    except LsmError as error:
        # The page of a damaged table still has its name and the reason.
        return TableState(name=name, problem=error.message)


def _state(table: Table, name: str) -> TableState:
    report = doctor(table, depth="shallow")
    newest = None
    try:
        newest = table.latest_snapshot()
        buckets = table.pressure()
    except LsmError as error:  # the doctor's finding, which goes into more detail
        return TableState(name=name, report=report, newest=newest, problem=error.message)
    return TableState(
        name=name,
        report=report,
        newest=newest,
        debt_bytes=sum(bucket.debt_bytes for bucket in buckets),
        due_buckets=sum(bucket.compactable for bucket in buckets),
    )


def overview(table: Table, name: str) -> TableFacts:
    """Return the facts of a table's own page."""
    schema = table.schema
    facts: dict[str, object] = {
        "location": table.location,
        "comment": schema.comment,
        "primary_key": keys_text(schema.primary_keys),
        "partitioned_by": keys_text(schema.partition_keys),
    }
    if "@" not in name and schema.options.writes_iceberg:
        facts["iceberg"] = _iceberg_text(table)
    return TableFacts(
        state=_state(table, name),
        facts=facts,
        schema=schema_rows(schema),
        options=[{"key": key, "value": text} for key, text in sorted(schema.options.texts.items())],
        branches=() if "@" in name else table.branches(),
        consumers=[
            {
                "consumer": consumer.name,
                "next": consumer.next_snapshot_id,
                "since": moment(consumer.modified_millis),
            }
            for consumer in table.consumers()
        ],
    )


def _iceberg_text(table: Table) -> str:
    try:
        return str(table.inspect.iceberg())
    except LsmError as error:  # the page of a damaged table has its other facts
        return f"cannot be read: {error.message}"


def history(table: Table, name: str, newest: int | None) -> History:
    """Return the page of snapshots that begins at `newest` and goes back; only those are read."""
    ids = table.snapshot_ids()[::-1]
    start = 0 if newest is None else sum(1 for number in ids if number > newest)
    shown = ids[start : start + SNAPSHOTS_PER_PAGE]
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="lsm-ui") as pool:
        read = list(pool.map(lambda snapshot_id: _snapshot_or_problem(table, snapshot_id), shown))
    tags: Sequence[Tag] = ()
    problems = [item for item in read if isinstance(item, str)]
    try:
        tags = table.tags()
    except LsmError as error:  # the snapshots are shown without their tags
        problems.append(f"tags cannot be read: {error}")
    after = start + SNAPSHOTS_PER_PAGE
    return History(
        table=name,
        snapshots=[item for item in read if isinstance(item, Snapshot)],
        tags=tags,
        problems=problems,
        total=len(ids),
        newer=ids[max(0, start - SNAPSHOTS_PER_PAGE)] if start else None,
        older=ids[after] if after < len(ids) else None,
    )


def _snapshot_or_problem(table: Table, snapshot_id: int) -> Snapshot | str | None:
    try:
        return table.snapshot(snapshot_id)
    except NotFoundError:  # expired since it was listed
        return None
    except LsmError as error:
        return f"snapshot {snapshot_id} cannot be read: {error}"


def snapshot_facts(table: Table, name: str, snapshot: Snapshot) -> SnapshotFacts:
    """Return a snapshot with its tags, manifest lists and the files that it changed."""
    ids = table.snapshot_ids()
    older = [snapshot_id for snapshot_id in ids if snapshot_id < snapshot.id]
    newer = [snapshot_id for snapshot_id in ids if snapshot_id > snapshot.id]
    count, changes, problem = 0, None, None
    lists: list[dict[str, Any]] = []
    try:
        if snapshot.id in ids and (snapshot.id == 1 or (older and older[-1] == snapshot.id - 1)):
            diff = table.diff_snapshots(snapshot.id - 1 or None, snapshot.id)
            kinds = (("added", diff.added), ("removed", diff.removed), ("moved", diff.moved))
            count = sum(rows.num_rows for _, rows in kinds)
            changes = [
                {"change": word, **row}
                for word, rows in kinds
                for row in plain_rows(rows[:ROWS_MAX])
            ]
        if snapshot.id in ids:
            lists = list(plain_rows(table.system("manifest_lists", snapshot_id=snapshot.id)))
    except LsmError as error:  # its own facts are shown even if its files cannot be read
        problem = str(error)
    return SnapshotFacts(
        table=name,
        snapshot=snapshot,
        tags=[tag.name for tag in table.tags() if tag.snapshot.id == snapshot.id],
        manifest_lists=lists,
        changes=changes,
        change_count=count,
        problem=problem,
        before=max(older, default=None),
        after=min(newer, default=None),
    )


def snapshot_at(table: Table, query: Mapping[str, str]) -> tuple[Snapshot | None, str]:
    """Return the snapshot that `snapshot` or `tag` of an address names, else the newest; and words for it."""
    tag, number = query.get("tag"), query.get("snapshot")
    if tag:
        tagged: Tag = table.tag(tag)
        return tagged.snapshot, f"tag {tag}, snapshot {tagged.snapshot.id}"
    snapshot = (
        table.snapshot(whole_number("snapshot", number)) if number else table.latest_snapshot()
    )
    return snapshot, "nothing committed yet" if snapshot is None else f"snapshot {snapshot.id}"


def whole_number(name: str, text: str) -> int:
    """Return a number of an address; InvalidInputError if it is none of at most 18 digits."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInputError(f"{name} has to be a whole number, not {text!r}", given=text)
    return int(text)


def tree(table: Table, name: str, query: Mapping[str, str], page: int) -> TreeFacts:
    """Return a page of a table's buckets."""
    snapshot, state_text = snapshot_at(table, query)
    trees = [] if snapshot is None else table.tree(snapshot)
    start = page * BUCKETS_PER_PAGE
    most = sorted(trees, key=lambda bucket: -len(bucket.runs))[start : start + BUCKETS_PER_PAGE]
    return TreeFacts(
        table=name,
        state=state_text,
        query={key: query[key] for key in ("snapshot", "tag") if key in query},
        buckets=most,
        total=len(trees),
        size_bytes=sum(bucket_tree.size_bytes for bucket_tree in trees),
        page=page,
        page_size=BUCKETS_PER_PAGE,
    )


def files(table: Table, query: Mapping[str, str]) -> tuple[str, str, list[dict[str, Any]], int]:
    """Return words for the snapshot and the bucket of an address, its files by level, and their number."""
    snapshot, state_text = snapshot_at(table, query)
    partition, bucket = query.get("partition", ""), whole_number("bucket", query["bucket"])
    selection = (
        {"tag": query["tag"]} if query.get("tag") else {"snapshot_id": snapshot and snapshot.id}
    )
    condition = (col("bucket") == bucket) & (col("partition") == partition)
    rows: pa.Table = table.system("files", where=condition, **selection)
    ordered = rows.sort_by([("level", "ascending"), ("max_sequence_number", "descending")])
    return state_text, f"{partition} bucket {bucket}".strip(), _rows(ordered), rows.num_rows


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: Iterable[dict[str, Any]] = system_rows(table[:ROWS_MAX])
    return [{**row, "file_path": str(row["file_path"]).rpartition("/")[2]} for row in rows]


def key(table: Table, name: str, query: Mapping[str, str]) -> KeyFacts:
    """Return the versions of the key in an address, or the problem of a key that does not fit."""
    schema = table.schema
    columns = {
        field.name: type_text(field.type)
        for field in schema.fields
        if field.name in schema.primary_keys
    }
    state = {
        column_name: query[column_name]
        for column_name in ("snapshot", "tag")
        if column_name not in columns and query.get(column_name)
    }
    key_texts = {column_name: query[column_name] for column_name in columns if column_name in query}
    question = KeyFacts(table=name, columns=columns, key_texts=key_texts, state=state)
    # The form is shown until each key column has a value.
    if not columns or set(key_texts) != set(columns):
        return question
    number = whole_number("snapshot", state["snapshot"]) if "snapshot" in state else None
    try:
        typed = key_of(table, [f"{column_name}={text}" for column_name, text in key_texts.items()])
        explanation = table.explain_key(typed, snapshot_id=number, tag=state.get("tag"))
    except (
        InvalidInputError
    ) as error:  # the form stays, with what was typed and why it does not fit
        return KeyFacts(
            table=name, columns=columns, key_texts=key_texts, state=state, problem=error.message
        )
    answer = KeyAnswer(
        rule=explanation.rule,
        column_rules=explanation.column_rules,
        verdict=explanation.verdict,
        names=explanation.versions.schema.names,
        versions=list(plain_rows(explanation.versions)),
    )
    return KeyFacts(table=name, columns=columns, key_texts=key_texts, state=state, answer=answer)


# -- Routes: path and query to a page --------------------------------------------------------------

Query = Mapping[str, str]
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""The content security policy of pages: they load and run only files of this server."""
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
    """The reply to one request."""

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
        at_once = IN_FLIGHT if "://" in catalog.warehouse else 2
        self._board = HealthBoard(lambda name: state_of(catalog, name), at_once)

    def close(self) -> None:
        """Stop reading tables."""
        self._board.close()

    def reply(self, target: str) -> Reply:
        """Return the reply to the target of a request; an error is a page that helps."""
        parts: list[str] = []
        try:
            parts, query = _parsed(target)
            return self._page(parts, query)
        except LsmError as error:
            # The error page keeps the links of the table that the address names.
            return self._failure(error, parts)
        except Exception as error:  # a defect: the server goes on, and the page names it
            log.warning("the page %s failed", target, exc_info=error)
            message = f"{type(error).__name__}: {error}"
            return _html(error_page("This should not have happened", message, {}, {}), 500)

    def _page(self, parts: list[str], query: Query) -> Reply:
        match parts:
            case []:
                searched, page = query.get("q", "").strip(), _page_number(query)
                shown = list_of_tables(self._catalog, searched, page, self._board.states)
                return _html(tables_page(shown, self._line))
            case ["lineage"]:
                return self._lineage(query)
            # Links lead here and not to Dagster itself, whose address the pages then need not have.
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
        table = table_of_name(self._catalog, name)
        match segments:
            case []:
                return overview_page(overview(table, name), self._line)
            case ["snapshots"]:
                newest = query.get("from")
                start = whole_number("from", newest) if newest else None
                return history_page(history(table, name, start))
            case ["snapshot", number]:
                snapshot = table.snapshot(whole_number("snapshot", number))
                return snapshot_page(self._snapshot_facts(table, name, snapshot))
            case ["tag", tag_name]:
                tag = table.tag(tag_name)
                return snapshot_page(self._snapshot_facts(table, name, tag.snapshot), tag)
            case ["tree"]:
                return _tree(table, name, query)
            case ["key"]:
                return key_page(key(table, name, query))
            case _:
                raise NotFoundError(f"a table has no page {'/'.join(segments)}", table=name)

    def _snapshot_facts(self, table: Table, name: str, snapshot: Snapshot) -> SnapshotFacts:
        facts = snapshot_facts(table, name, snapshot)
        run = (snapshot.properties or {}).get(RUN_DAGSTER_ID)
        return replace(facts, dagster_run=run) if self._dagster else facts

    def _lineage(self, query: Query) -> Reply:
        table_name = None
        if query.get("table"):
            # Of a table that does not exist the page would be empty, as of one without commits.
            table_of_name(self._catalog, query["table"])  # raises, with what it may have meant
            # A branch is recorded with its table, which is what the catalog names.
            table_name = TableName.parse(query["table"].partition("@")[0])
        # Of a warehouse of many tables a page of one reads the files of that one.
        lineage = self._catalog.lineage.synced(table_name)
        chosen = recorded = lineage.tables()
        if query.get("table"):
            chosen = [name for name in recorded if name.text == query["table"]]
        if not chosen:
            message = "The catalog has recorded no commit yet: no table has one that can be read."
            facts = {"table": query.get("table")}
            return _html(error_page("No lineage yet", message, facts, {"Tables": "/"}))
        if not query.get("table") and len(recorded) > LINEAGE_TABLES_MAX:
            recent = lineage.recent_activity(limit=_ACTIVITY).column("table_name").to_pylist()
            names = list(dict.fromkeys(recent))[:LINEAGE_TABLES_MAX]
            chosen = [name for name in recorded if name.text in names]
        snapshot_id = whole_number("at", query["at"]) if query.get("at") else None
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
        # An address without a bucket shows all trees.
        return tree_page(tree(table, name, query, _page_number(query)))
    state_text, place, rows, total = files(table, query)
    return files_page(name, state_text, place, rows, total)


def _page_number(query: Query) -> int:
    return whole_number("page", query["page"]) if query.get("page") else 0


def _parsed(target: str) -> tuple[list[str], Query]:
    """Return the parts of a path and the query of a request's target."""
    if not target.startswith("/") or target.startswith("//"):
        # Two slashes begin the name of another host.
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
    return resources.files("lsm_engine.ui").joinpath(f"assets/{name}").read_bytes()


def _policy_of(page: str) -> str:
    """Return the policy for a page with a style and a script inside: these two, by their hashes."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in _INLINE.findall(page)
    }
    return f"{POLICY}; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'"
