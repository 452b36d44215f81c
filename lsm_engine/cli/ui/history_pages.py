"""Snapshots and tags on a time line, and the pages of one snapshot and one tag."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lsm_engine import Snapshot, Tag, format_millis, record
from lsm_engine.cli.commands.explain import CHANGE_COLUMNS
from lsm_engine.cli.commands.look import MANIFEST_LIST_COLUMNS, snapshot_facts
from lsm_engine.cli.output import code, count_text, counted, number, words
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.ui import parts
from lsm_engine.cli.ui.markup import Html, address, element, lineage_address, table_address

_SNAPSHOTS = [
    code("snapshot_id", "snapshot"), words("committed", "committed (UTC)"), words("kind"),
    number("rows", "rows in files"), number("change"), words("tags"), words("by"), words("operation"),
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
            None if shown.newer is None else _page(name, shown.newer),
            span + counted(shown.total, "snapshot"),
            None if shown.older is None else _page(name, shown.older),
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


def _page(name: str, newest: int) -> str:
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
            "committed": utc_text(snapshot.time_millis),
            "kind": element("span", snapshot.commit_kind.value, class_=snapshot.commit_kind.value),
            "rows": snapshot.total_record_count,
            "change": snapshot.delta_record_count,
            "tags": _tag_links(name, tagged[snapshot.id]) if snapshot.id in tagged else None,
            "by": snapshot.commit_user,
            "operation": snapshot.operation,
        }
        for snapshot in snapshots
    ]


def _tag_links(name: str, tags: Iterable[str]) -> Html:
    """Return links to the first of a snapshot's tags, and how many more there are."""
    names = list(tags)
    links = [[parts.link(tag, table_address(name, "tag", tag)), " "] for tag in names[:TAGS_NAMED]]
    rest_text = f"and {len(names) - TAGS_NAMED:,} more" if len(names) > TAGS_NAMED else None
    return element("div", links, rest_text, class_="tags")


def _tag_row(tag: Tag) -> dict[str, Any]:
    retained = tag.retained_millis
    return {
        "tag": tag.name,
        "snapshot_id": tag.snapshot.id,
        "committed": utc_text(tag.snapshot.time_millis),
        "kept": "for ever" if retained is None else f"for {format_millis(retained)}",
    }


def _time_line(name: str, snapshots: Sequence[Snapshot], tags: Iterable[Tag]) -> Html | None:
    """Draw snapshots as dots, oldest left, a step apart each: bursts of commits stay apart."""
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
            fits = x >= free["flag"]
            flags.append(_flag(name, tagged[snapshot.id], x, shows_name=fits))
            free["flag"] = x + _FLAG if fits else free["flag"]
        if x >= free["time"]:
            moment = (utc_text(snapshot.time_millis) or "")[:19].replace("T", " ")
            times.append(element("text", moment, x=f"{x:.1f}", y="92", class_="time"))
            free["time"] = x + 150
    axis = element("line", x1=_LEFT, x2=_WIDTH - _LEFT, y1="64", y2="64", class_="axis")
    drawing = element("svg", axis, flags, dots, times, viewBox=f"0 0 {_WIDTH + 130} 100",
                      role="img", aria_label="Snapshots and tags, the oldest left")  # fmt: skip
    return element("div", drawing, class_="timeline")


def _dot(name: str, snapshot: Snapshot, x: float) -> Html:
    kind = snapshot.commit_kind.value
    description = f"snapshot {snapshot.id}, {kind}, {utc_text(snapshot.time_millis)}"
    change = count_text(snapshot.delta_record_count)
    return element(
        "a",
        element(
            "circle",
            element("title", f"{description}, change {change}"),
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
