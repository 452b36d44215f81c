"""The pages as HTML: the list of tables, and a table with its tree, files, keys and snapshots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lsm_engine import (
    KEY_VERSION_FACTS,
    BucketTree,
    HealthReport,
    Snapshot,
    Tag,
    TreeRun,
    format_millis,
    record,
)
from lsm_engine.cli.commands.explain import CHANGE_COLUMNS, VERSION_COLUMNS
from lsm_engine.cli.commands.look import FILE_COLUMNS, MANIFEST_LIST_COLUMNS, snapshot_facts
from lsm_engine.cli.output import (
    code,
    count_text,
    counted,
    largest_run,
    listed,
    number,
    size,
    size_text,
    words,
)
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.ui import parts
from lsm_engine.ui.parts import Html, address, element, joined, lineage_address, table_address

# -- The first page: all tables with debt and health, and the page of one table --------------------

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

    `pending`: it is being examined. `debt_bytes`: what a full compaction of all buckets would read; `due_buckets`: buckets whose compaction is due.
    """

    name: str
    pending: bool = False
    report: HealthReport | None = None
    problem: str | None = None
    newest: Snapshot | None = None
    debt_bytes: int | None = None
    due_buckets: int | None = None


@record
class TableList:
    """One page of the tables whose names contain the searched text."""

    warehouse: str
    searched: str
    matching: int
    number: int
    page_size: int
    tables: Sequence[TableState]


def tables_page(shown: TableList, line: Callable[[str], str]) -> Html:
    """Return the list of tables. `line` completes a command with the options of this catalog."""
    query = {"q": shown.searched}
    last = max(0, (shown.matching - 1) // shown.page_size)
    position = f"{counted(shown.matching, 'table')}, page {shown.number + 1} of {last + 1}"
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
        "due": state.due_buckets,
        "snapshot_id": None if newest is None else newest.id,
        "committed": None if newest is None else parts.moment(newest.time_millis),
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
    """Return the page of one table. `line` completes a command with the options of this catalog."""
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
    # A table without a snapshot may be new or damaged.
    if newest is None:
        empty_text = "nothing has been committed yet"
        text = f"cannot be read: {state.problem}" if state.problem else empty_text
        return element("p", text, class_="dim")
    number_ = parts.link(newest.id, table_address(state.name, "snapshot", newest.id))
    chosen = ("committed", "commit_kind", "commit_user", "total_record_count", "operation")
    facts = snapshot_facts(newest)
    return parts.fact_list({"snapshot": number_, **{key: facts.get(key) for key in chosen}})


def _consumers(consumers: Sequence[Mapping[str, Any]]) -> Html | None:
    # Without consumers the heading would stand alone.
    if not consumers:
        return None
    columns = [words("consumer"), code("next", "reads next"), words("since", "since (UTC)")]
    return joined([element("h2", "Consumers"), parts.rows_table(columns, consumers, empty="")])


def keys_text(names: Sequence[str]) -> str | None:
    """Return names of columns as one text, None if there are none."""
    return listed("").show(names) or None


# -- The tree of a table ---------------------------------------------------------------------------
#
# Buckets with their levels and sorted runs, and the files of one bucket.

_COLOURS = 6


@record
class TreeFacts:
    """One page of a table's buckets, those with most runs first, out of `total`.

    `state`: the snapshot in words; `query`: what of the address names it.
    """

    table: str
    state: str
    query: Mapping[str, object]
    buckets: Sequence[BucketTree]
    total: int
    size_bytes: int
    page: int
    page_size: int


def tree_page(shown: TreeFacts) -> Html:
    """Return the page of a table's trees."""
    name = shown.table
    if not shown.buckets:
        text = element("p", "nothing has been committed yet, or no such page", class_="dim")
        return parts.table_page(name, "Tree", shown.state, text)
    largest = largest_run(shown.buckets)
    last = (shown.total - 1) // shown.page_size
    totals = f"{counted(shown.total, 'bucket')}, {size_text(shown.size_bytes)}"
    return parts.table_page(
        name,
        "Tree",
        shown.state,
        element("p", f"{totals}. A read merges all runs of a bucket that share keys; those with most come first.",
                class_="dim"),
        [_bucket(shown, bucket, largest) for bucket in shown.buckets],
        parts.pager(
            _page(shown, shown.page - 1) if shown.page else None,
            f"page {shown.page + 1} of {last + 1}",
            _page(shown, shown.page + 1) if shown.page < last else None,
            ("before", "after"),
        ),
    )  # fmt: skip


def _page(shown: TreeFacts, page: int) -> str:
    return table_address(shown.table, "tree", query={**shown.query, "page": page})


def bucket_address(name: str, partition: str, bucket: int, query: Mapping[str, object]) -> str:
    """Return the address of a bucket's files."""
    place = {"partition": partition, "bucket": bucket}
    return table_address(name, "tree", query={**query, **place})


def _bucket(shown: TreeFacts, tree: BucketTree, largest: int) -> Html:
    label = f"{tree.partition} bucket {tree.bucket}" if tree.partition else f"bucket {tree.bucket}"
    sums = f"{counted(len(tree.runs), 'sorted run')}, {size_text(tree.size_bytes)}, {counted(tree.row_count, 'row')}"
    url = bucket_address(shown.table, tree.partition, tree.bucket, shown.query)
    return element(
        "section",
        element("h3", parts.link(label, url), " ", element("small", sums, class_="dim")),
        element("ol", [_run(run, largest) for run in tree.runs], class_="runs"),
        class_="bucket",
    )


def _run(run: TreeRun, largest: int) -> Html:
    facts = [
        size_text(run.size_bytes),
        counted(run.row_count, "row"),
        counted(run.file_count, "file"),
    ]
    if run.delete_row_count:
        facts.append(counted(run.delete_row_count, "delete"))
    return element(
        "li",
        element("b", f"L{run.level}"),
        parts.bar(run.size_bytes, largest, f"level{min(run.level, _COLOURS - 1)}"),
        element("span", ", ".join(facts)),
    )


def files_page(
    name: str, state_text: str, place: str, files: Sequence[Mapping[str, Any]], total: int
) -> Html:
    """Return the page of a bucket's files, by level and key; `total` of them if not all are shown."""
    cut = f", {len(files):,} of {total:,}" if len(files) < total else ""
    return parts.table_page(
        name,
        "Tree",
        f"Files of {place}, {state_text}{cut}",
        parts.rows_table(
            FILE_COLUMNS,
            files,
            empty="no files in this bucket; the tree lists the buckets of each partition",
        ),
    )


# -- A key's history: every stored version, which snapshot wrote it, and which one counts ----------


@record
class KeyAnswer:
    """The result of `explain_key`, with versions as rows of plain values; `names`: all their columns."""

    rule: str
    column_rules: Mapping[str, str]
    verdict: str
    names: Sequence[str]
    versions: Sequence[Mapping[str, Any]]


@record
class KeyFacts:
    """The key columns of a table with their types, the key of the form, and its answer or problem, if any."""

    table: str
    columns: Mapping[str, str]
    key_texts: Mapping[str, str]
    state: Mapping[str, str]
    answer: KeyAnswer | None = None
    problem: str | None = None


def key_page(shown: KeyFacts) -> Html:
    """Return the form that asks for a key, and its history once one is given."""
    if not shown.columns:
        text = element("p", "This table has no primary key, so no row has versions.", class_="dim")
        return parts.table_page(shown.table, "Key", "", text)
    fields = [
        element("label", element("span", f"{name} ", element("small", kind, class_="dim")),
                element("input", name=name, value=shown.key_texts.get(name, ""), required=True,
                        autocomplete="off", autofocus=position == 0 and shown.answer is None))
        for position, (name, kind) in enumerate(shown.columns.items())
    ]  # fmt: skip
    times = [
        element("label", element("span", name, element("small", " optional", class_="dim")),
                element("input", name=name, value=shown.state.get(name, ""), autocomplete="off"))
        for name in ("snapshot", "tag")
        if name not in shown.columns
    ]  # fmt: skip
    form = element(
        "form", fields, times, element("button", "Show its history"),
        action=table_address(shown.table, "key"), class_="key",
    )  # fmt: skip
    problem = element("p", shown.problem, class_="problem", role="alert") if shown.problem else None
    answer = _history(shown, shown.answer) if shown.answer else None
    return parts.table_page(shown.table, "Key", "", form, problem, answer)


def _history(shown: KeyFacts, answer: KeyAnswer) -> list[Html]:
    rules = [{"column": name, "rule": text} for name, text in answer.column_rules.items()]
    facts = set(KEY_VERSION_FACTS.names)
    values = [words(name, name) for name in answer.names if name not in facts | set(shown.columns)]
    return [
        element("h2", "Verdict"),
        element("p", answer.verdict),
        element("p", answer.rule, class_="dim"),
        *([parts.rows_table([words("column"), words("rule")], rules, empty="")] if rules else []),
        element("h2", "Versions, in merge order"),
        parts.rows_table(
            [*VERSION_COLUMNS[:3], *values, *VERSION_COLUMNS[3:]],
            answer.versions,
            empty="no version",
            links={
                "_snapshot_id": lambda row: table_address(
                    shown.table, "snapshot", row["_snapshot_id"]
                )
            },
        ),
    ]


# -- Snapshots and tags on a time line, and the pages of one snapshot and one tag ------------------

_SNAPSHOTS = [
    code("snapshot_id", "snapshot"), words("committed", "committed (UTC)"), words("kind"),
    number("rows", "rows in files"), words("change"), words("tags"), words("operation"), words("by"),
]  # fmt: skip
_TAGS = [
    words("tag"), code("snapshot_id", "snapshot"), words("committed", "committed (UTC)"),
    words("kept"),
]  # fmt: skip
_LEFT, _WIDTH, _FLAG = 20, 1000, 110
"""Of the time line, in its own units: the margin, the width, what a tag's name takes at most."""
_NAME_MAX = 16
TAGS_MAX = 200
"""Tags that a page lists, those of the newest snapshots."""
TAGS_NAMED = 5
"""Tags of one snapshot that are named beside it."""


@record
class History:
    """One page of a table's snapshots, newest first, out of `total`; `tags` are those of all.

    `problems`: what of it cannot be read.
    """

    table: str
    snapshots: Sequence[Snapshot]
    tags: Sequence[Tag]
    total: int
    newer: int | None
    older: int | None
    problems: Sequence[str] = ()


def history_page(shown: History) -> Html:
    """Return the page of a table's snapshots and tags. `newer`, `older`: where those pages begin."""
    name, snapshots = shown.table, shown.snapshots
    tags = sorted(shown.tags, key=lambda tag: -tag.snapshot.id)
    span = f"{snapshots[-1].id} to {snapshots[0].id} of " if snapshots else ""
    rows = _snapshot_rows(name, snapshots, tags)
    columns = [column for column in _SNAPSHOTS if any(row[column.name] is not None for row in rows)]
    cut = f", the newest {TAGS_MAX} of {len(tags):,}" if len(tags) > TAGS_MAX else ""
    return parts.table_page(
        name,
        "Snapshots",
        "",
        [element("p", problem, class_="problem") for problem in shown.problems],
        _time_line(name, snapshots, tags),
        parts.rows_table(
            columns,
            rows,
            empty="" if shown.problems else "nothing has been committed yet",
            links={"snapshot_id": lambda row: table_address(name, "snapshot", row["snapshot_id"])},
        ),
        parts.pager(
            None if shown.newer is None else _history_page(name, shown.newer),
            span + counted(shown.total, "snapshot"),
            None if shown.older is None else _history_page(name, shown.older),
            ("newer", "older"),
        ),
        element("h2", f"Tags{cut}"),
        parts.rows_table(
            _TAGS,
            map(_tag_row, tags[:TAGS_MAX]),
            empty="" if shown.problems else "no tags",
            links={
                "tag": lambda row: table_address(name, "tag", row["tag"]),
                "snapshot_id": lambda row: table_address(name, "snapshot", row["snapshot_id"]),
            },
        ),
    )


def _history_page(name: str, newest: int) -> str:
    return table_address(name, "snapshots", query={"from": newest})


def _by_snapshot(tags: Iterable[Tag]) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for tag in tags:
        names.setdefault(tag.snapshot.id, []).append(tag.name)
    return names


def _snapshot_rows(
    name: str, snapshots: Iterable[Snapshot], tags: Iterable[Tag]
) -> list[dict[str, Any]]:
    tagged = _by_snapshot(tags)
    return [
        {
            "snapshot_id": snapshot.id,
            "committed": parts.moment(snapshot.time_millis),
            "kind": element("span", snapshot.commit_kind.value, class_=snapshot.commit_kind.value),
            "rows": snapshot.total_record_count,
            "change": _change_text(snapshot),
            "tags": _tag_links(name, tagged[snapshot.id]) if snapshot.id in tagged else None,
            "by": snapshot.commit_user,
            "operation": snapshot.operation_name,
        }
        for snapshot in snapshots
    ]


def _change_text(snapshot: Snapshot) -> str:
    """Return what a commit changed: a compaction files, and others rows."""
    compacted = snapshot.compacted_files
    return count_text(snapshot.delta_record_count) if compacted is None else str(compacted)


def _tag_links(name: str, tags: Iterable[str]) -> Html:
    """Return links to the first tags of a snapshot, and the number of the others."""
    names = list(tags)
    links = [[parts.link(tag, table_address(name, "tag", tag)), " "] for tag in names[:TAGS_NAMED]]
    rest_text = f"and {len(names) - TAGS_NAMED:,} more" if len(names) > TAGS_NAMED else None
    return element("div", links, rest_text, class_="tags")


def _tag_row(tag: Tag) -> dict[str, Any]:
    retained = tag.retained_millis
    return {
        "tag": tag.name,
        "snapshot_id": tag.snapshot.id,
        "committed": parts.moment(tag.snapshot.time_millis),
        "kept": "for ever" if retained is None else f"for {format_millis(retained)}",
    }


def _time_line(name: str, snapshots: Sequence[Snapshot], tags: Iterable[Tag]) -> Html | None:
    """Draw snapshots as dots, oldest left, one step apart, so that bursts of commits can be told apart."""
    # Without snapshots the line has no ends.
    if not snapshots:
        return None
    tagged = _by_snapshot(tags)
    step = (_WIDTH - 2 * _LEFT) / max(1, len(snapshots) - 1)
    dots: list[Html] = []
    flags: list[Html] = []
    times: list[Html] = []
    free = {"flag": 0.0, "time": 0.0}
    for position, snapshot in enumerate(reversed(snapshots)):
        x = _LEFT + position * step
        dots.append(_dot(name, snapshot, x))
        if snapshot.id in tagged:
            # A name that would cover its neighbour is left out.
            fits = x >= free["flag"]
            flags.append(_flag(name, tagged[snapshot.id], x, shows_name=fits))
            free["flag"] = x + _FLAG if fits else free["flag"]
        if x >= free["time"]:
            moment = parts.moment(snapshot.time_millis)
            times.append(element("text", moment, x=f"{x:.1f}", y="92", class_="time"))
            free["time"] = x + 150
    axis = element("line", x1=_LEFT, x2=_WIDTH - _LEFT, y1="64", y2="64", class_="axis")
    drawing = element("svg", axis, flags, dots, times, viewBox=f"0 0 {_WIDTH + 130} 100",
                      role="img", aria_label="Snapshots and tags, the oldest left")  # fmt: skip
    return element("div", drawing, class_="timeline")


def _dot(name: str, snapshot: Snapshot, x: float) -> Html:
    kind = snapshot.commit_kind.value
    description = f"snapshot {snapshot.id}, {kind}, {utc_text(snapshot.time_millis)}"
    return element(
        "a",
        element(
            "circle",
            element("title", f"{description}, change {_change_text(snapshot)}"),
            cx=f"{x:.1f}", cy="64", r="6", class_=kind,
        ),
        href=table_address(name, "snapshot", snapshot.id), tabindex="-1",
    )  # fmt: skip


def _flag(name: str, tags: Sequence[str], x: float, *, shows_name: bool) -> Html:
    count_suffix = f" +{len(tags) - 1}" if len(tags) > 1 else ""
    text = tags[0] if len(tags[0]) <= _NAME_MAX else f"{tags[0][: _NAME_MAX - 1]}…"
    pole = element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1="24", y2="58", class_="pole")
    label = (
        element("text", text + count_suffix, x=f"{x + 4:.1f}", y="32", class_="flag")
        if shows_name
        else None
    )
    return element(
        "a", element("title", ", ".join(tags)), pole, label,
        href=table_address(name, "tag", tags[0]), tabindex="-1",
    )  # fmt: skip


@record
class SnapshotFacts:
    """One snapshot: its tags, its manifest lists, and the files that changed, `cut` if not all are shown.

    `changes` None: the snapshot before it has expired, so that they are not known from files.
    """

    table: str
    snapshot: Snapshot
    tags: Sequence[str]
    manifest_lists: Sequence[Mapping[str, Any]]
    changes: Sequence[Mapping[str, Any]] | None
    change_count: int
    before: int | None
    after: int | None
    dagster_run: str | None = None
    problem: str | None = None


def snapshot_page(shown: SnapshotFacts, tag: Tag | None = None) -> Html:
    """Return the page of one snapshot, or of the tag that holds it."""
    name, snapshot = shown.table, shown.snapshot
    facts: dict[str, object] = {
        **snapshot_facts(snapshot),
        "tags": _tag_links(name, shown.tags) if shown.tags else None,
    }
    facts.pop("properties", None)  # a table of their own
    properties = [
        {"key": key, "value": text} for key, text in sorted((snapshot.properties or {}).items())
    ]
    heading = f"Snapshot {snapshot.id}"
    if tag is not None:
        heading = f"Tag {tag.name}"
        facts = {"tag": tag.name, "kept": _tag_row(tag)["kept"], **facts}
    before, after = (
        None if neighbour is None else table_address(name, "snapshot", neighbour)
        for neighbour in (shown.before, shown.after)
    )
    query = {"tag": tag.name} if tag is not None else {"snapshot": snapshot.id}
    return parts.table_page(
        name,
        "Snapshots",
        heading,
        element(
            "p",
            parts.link("Tree", table_address(name, "tree", query=query)), " · ",
            parts.link("Key", table_address(name, "key", query=query)), " · ",
            parts.link("Lineage", lineage_address(name, snapshot.id, window=snapshot.id)),
            [" · ", parts.link("Run in Dagster", address("dagster", "runs", shown.dagster_run))]
            if shown.dagster_run else None,
        ),
        parts.fact_list(facts),
        _changes(shown),
        [element("h2", "Properties"), parts.rows_table([words("key"), words("value")], properties, empty="")]
        if properties else None,
        element("h2", "Manifest lists"),
        parts.rows_table(MANIFEST_LIST_COLUMNS[1:], shown.manifest_lists, empty="none"),
        parts.pager(before, "", after, ("snapshot before", "snapshot after")),
    )  # fmt: skip


def _changes(shown: SnapshotFacts) -> list[Html]:
    # An expired predecessor leaves nothing to compare with.
    if shown.changes is None:
        text = (
            "The snapshot before this one cannot be read, so what changed is not known from files."
        )
        why = element("p", shown.problem or text, class_="problem" if shown.problem else "dim")
        return [element("h2", "Files that changed"), why]
    cut = f", {len(shown.changes):,} of {shown.change_count:,}"
    heading = "Files that changed" + (cut if len(shown.changes) < shown.change_count else "")
    return [
        element("h2", heading),
        parts.rows_table(CHANGE_COLUMNS, shown.changes, empty="the same files"),
    ]
