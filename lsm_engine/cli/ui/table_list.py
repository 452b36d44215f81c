"""The first page: all tables with debt and health, and the page of one table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lsm_engine import HealthReport, Snapshot, record
from lsm_engine.cli.commands.look import snapshot_facts
from lsm_engine.cli.output import code, counted, listed, number, size, words
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.ui import parts
from lsm_engine.cli.ui.markup import Html, address, element, joined, table_address

_COLUMNS = [
    words("table"), words("health", "health, at a glance"), size("debt_bytes", "to merge"), number("due", "buckets due"),
    code("snapshot_id", "snapshot"), words("committed", "committed (UTC)"),
    number("rows", "rows in files"),
]  # fmt: skip
_SCHEMA = [
    code("id"), words("column"), words("type"), words("roles"), words("comment"),
]  # fmt: skip


@record
class TableState:
    """A table as the list shows it. `report` None: it cannot be opened, `problem` is why.

    `pending`: it is being examined. `debt_bytes`: what a full compaction of all buckets would read; `due`: buckets whose compaction is due.
    """

    name: str
    pending: bool = False
    report: HealthReport | None = None
    problem: str | None = None
    newest: Snapshot | None = None
    debt_bytes: int | None = None
    due: int | None = None


@record
class TableList:
    """One page of the tables whose names hold what was searched for."""

    warehouse: str
    searched: str
    found: int
    number: int
    page_size: int
    tables: Sequence[TableState]


def tables_page(shown: TableList, line: Callable[[str], str]) -> Html:
    """Return the list of tables. `line` completes a command with what names this catalog."""
    query = {"q": shown.searched}
    last = max(0, (shown.found - 1) // shown.page_size)
    position = f"{counted(shown.found, 'table')}, page {shown.number + 1} of {last + 1}"
    empty_text = (
        "no table's name holds that" if shown.searched else "no tables yet; lsm create makes one"
    )
    return parts.page(
        f"Tables with {shown.searched!r}" if shown.searched else "Tables",
        element("p", shown.warehouse, class_="dim"),
        parts.rows_table(
            _COLUMNS,
            [_row(state) for state in shown.tables],
            empty=empty_text,
            links={
                "table": lambda row: table_address(row["table"]),
                "health": lambda row: address("t", row["table"], fragment="health"),
                "due": lambda row: table_address(row["table"], "tree"),
                "snapshot_id": lambda row: table_address(
                    row["table"], "snapshot", row["snapshot_id"]
                ),
            },
        ),
        parts.pager(
            address(query={**query, "page": shown.number - 1}) if shown.number else None,
            position,
            address(query={**query, "page": shown.number + 1}) if shown.number < last else None,
            ("before", "after"),
        ),
        parts.looked_at(line) if shown.tables else None,
        again=any(state.pending for state in shown.tables),
    )


def _row(state: TableState) -> dict[str, Any]:
    newest = state.newest
    return {
        "table": state.name,
        "health": parts.PENDING
        if state.pending
        else parts.health_chip(state.report, state.problem),
        "debt_bytes": state.debt_bytes,
        "due": state.due,
        "snapshot_id": None if newest is None else newest.id,
        "committed": None if newest is None else utc_text(newest.time_millis),
        "rows": None if newest is None else newest.total_record_count,
    }


@record
class TableFacts:
    """A table as its own page shows it; `schema` and `options` as rows by name."""

    state: TableState
    facts: Mapping[str, object]
    schema: Sequence[Mapping[str, Any]]
    options: Sequence[Mapping[str, Any]]
    branches: Sequence[str]
    consumers: Sequence[Mapping[str, Any]]


def overview_page(shown: TableFacts, line: Callable[[str], str]) -> Html:
    """Return the page of one table. `line` completes a command with what names this catalog."""
    name = shown.state.name
    report = shown.state.report
    branches = [
        element("li", parts.link(branch, table_address(f"{name.partition('@')[0]}@{branch}")))
        for branch in shown.branches
    ]
    return parts.table_page(
        name,
        "Overview",
        "",
        parts.fact_list(shown.facts),
        element("h2", "Health, at a glance", id="health"),
        parts.findings(report, line) if report else None,
        parts.looked_at(line, name.partition("@")[0]),
        element("h2", "Newest snapshot"),
        _newest(shown.state),
        element("h2", "Columns"),
        parts.rows_table(_SCHEMA, shown.schema, empty="no columns"),
        element("h2", "Options"),
        parts.rows_table(
            [words("key"), words("value")], shown.options, empty="all are the defaults"
        ),
        joined([element("h2", "Branches"), element("ul", branches)]) if branches else None,
        _consumers(shown.consumers),
    )


def _newest(state: TableState) -> Html:
    newest = state.newest
    if newest is None:
        empty_text = "nothing has been committed yet"
        text = f"cannot be read: {state.problem}" if state.problem else empty_text
        return element("p", text, class_="dim")
    number_ = parts.link(newest.id, table_address(state.name, "snapshot", newest.id))
    chosen = ("committed", "commit_kind", "commit_user", "total_record_count", "operation")
    facts = snapshot_facts(newest)
    return parts.fact_list({"snapshot": number_, **{key: facts.get(key) for key in chosen}})


def _consumers(consumers: Sequence[Mapping[str, Any]]) -> Html | None:
    if not consumers:
        return None
    columns = [words("consumer"), code("next", "reads next"), words("since", "since (UTC)")]
    return joined([element("h2", "Consumers"), parts.rows_table(columns, consumers, empty="")])


def keys_text(names: Sequence[str]) -> str | None:
    """Return names of columns as one text, None if there are none."""
    return listed("").show(names) or None
