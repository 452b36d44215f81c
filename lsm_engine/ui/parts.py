"""The parts that pages share: the frame, tables of rows, lists of facts, findings and bars."""

import html
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from lsm_engine import HealthReport
from lsm_engine.cli.output import Column, count_text, counted, size_text
from lsm_engine.cli.safe_text import cell_text, utc_text

# -- HTML made of values ---------------------------------------------------------------------------
#
# Whatever is not markup already is escaped, and links stay on this server.

_VOID = frozenset({"input", "link", "meta"})
_ADDRESSES = frozenset({"href", "src", "action"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return a value as markup: nothing for None, its escaped text if it is not markup already.

    Control characters, and those that turn text round, are spelt out.
    """
    # Markup that was built here is escaped already.
    if isinstance(value, Html):
        return value
    return Html("" if value is None else html.escape(cell_text(value)))


def joined(children: Iterable[object]) -> Html:
    """Return values one after another, lists among them spread."""
    return Html(
        "".join(
            joined(child) if isinstance(child, list | tuple) else escaped(child)
            for child in children
        )
    )


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. Of an attribute `class_` means class, `aria_label` aria-label.

    None and False leave an attribute out, True gives it no value; lists among the children are spread.
    Raises ValueError for an address that leads elsewhere.
    """
    pairs = "".join(_attribute(key, value) for key, value in attributes.items())
    # Void elements have no closing tag.
    if name in _VOID:
        return Html(f"<{name}{pairs}>")
    return Html(f"<{name}{pairs}>{joined(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    # An absent attribute is how HTML writes false.
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    # A link to another host could carry a table's name out.
    if name in _ADDRESSES and not _is_here(str(value)):
        raise ValueError(f"an address has to begin with one slash or #: {value!r}")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'


def _is_here(url: str) -> bool:
    return url.startswith("#") or (url.startswith("/") and not url.startswith(("//", "/\\")))


def address(*parts: object, query: Mapping[str, object] | None = None, fragment: str = "") -> str:
    """Return the address of a page: parts are encoded one by one; `at` is encoded after "#"."""
    path = "/" + "/".join(quote(str(part), safe="@") for part in parts)
    parameters = {key: value for key, value in (query or {}).items() if value not in (None, "")}
    return (
        path
        + (f"?{urlencode(parameters)}" if parameters else "")
        + (f"#{fragment}" if fragment else "")
    )


def table_address(name: str, *parts: object, query: Mapping[str, object] | None = None) -> str:
    """Return the address of a page of a table: `/t/shop.orders/snapshot/12`."""
    return address("t", name, *parts, query=query)


def lineage_address(name: str, snapshot_id: int | None = None, *, window: int | None = None) -> str:
    """Return the address of a table's or branch's lineage, opened at a snapshot if one is given; `window`: about which."""
    fragment = "" if snapshot_id is None else f"{quote(name, safe='')}/{snapshot_id}"
    return address("lineage", query={"table": name, "at": window}, fragment=fragment)


# -- Common parts of pages -------------------------------------------------------------------------

Links = Mapping[str, Callable[[Mapping[str, Any]], str | None]]
_TABS = (("Overview", ""), ("Snapshots", "snapshots"), ("Tree", "tree"), ("Key", "key"))
NO_LINKS: Links = {}
PENDING = element("span", "being examined…", class_="chip note")
_LINE_MAX = 60
"""Characters of a cell from which on its text is wrapped."""
_WRAPPED = {"comment", "file_path"}
"""Columns whose text is wrapped however short it is."""


def page(title: str, *content: object, tabs: Html | None = None, again: bool = False) -> Html:
    """Return a whole page. `again`: the browser asks for it again a second later."""
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="refresh", content="1") if again else None,
        element("title", f"{title} · lsm"),
        element("link", rel="icon", href="/icon.svg"),
        element("link", rel="stylesheet", href="/ui.css"),
        element("script", src="/ui.js", defer=True),
    )
    search = element(
        "form",
        element("input", type="search", name="q", placeholder="Find a table ( / )",
                aria_label="Find a table", autocomplete="off"),
        action="/", role="search",
    )  # fmt: skip
    links = element(
        "nav",
        link("Tables", "/"),
        link("Lineage", "/lineage"),
        aria_label="Pages",
    )
    body = element(
        "body",
        element("a", "Skip to the content", class_="skip", href="#main"),
        element("header", element("b", "lsm"), links, search),
        element("main", element("h1", title), tabs, list(content), id="main"),
    )
    return joined([Html("<!doctype html>"), element("html", head, body, lang="en")])


def table_page(name: str, tab: str, heading: str, *content: object) -> Html:
    """Return a page of one table, with the tabs that lead to the others; `tab` is the one shown."""
    shown = [
        link(text, table_address(name, *filter(None, [part])), current=text == tab)
        for text, part in _TABS
    ]
    tabs = element(
        "nav", shown, link("Lineage", lineage_address(name)), class_="tabs", aria_label=name
    )
    title = element("h2", heading) if heading else None
    return page(name, title, list(content), tabs=tabs)


def link(text: object, url: str, *, current: bool = False) -> Html:
    """Return a link to another page of this server."""
    return element("a", text, href=url, aria_current="page" if current else None)


def rows_table(
    columns: Sequence[Column],
    rows: Iterable[Mapping[str, Any]],
    *,
    empty: str,
    links: Links = NO_LINKS,
) -> Html:
    """Return rows as a table that scrolls sideways where it is wider than the window."""
    heads = [_cell("th", column, column.heading, scope="col") for column in columns]
    lines = [element("tr", [_shown(column, row, links) for column in columns]) for row in rows]
    if not lines:
        return element("p", empty, class_="dim")
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", heads)),
            element("tbody", lines),
        ),
        class_="wide", tabindex="0", role="region", aria_label="rows",
    )  # fmt: skip


def _shown(column: Column, row: Mapping[str, Any], links: Links) -> Html:
    value = row.get(column.name)
    shown = value if isinstance(value, Html) else column.show(value)
    url = links[column.name](row) if column.name in links and value is not None else None
    is_wrapped = len(shown) > _LINE_MAX or column.name in _WRAPPED
    is_long = is_wrapped and not isinstance(value, Html)
    return _cell("td", column, link(shown, url) if url else shown, is_long=is_long)


def _cell(
    name: str, column: Column, content: object, *, is_long: bool = False, scope: str | None = None
) -> Html:
    kind = "right" if column.right else "long" if is_long else None
    return element(name, content, class_=kind, scope=scope)


def fact_list(facts: Mapping[str, object]) -> Html:
    """Return a list of facts, without those that are None."""
    pairs = [
        (
            element("dt", name.replace("_", " ")),
            element("dd", count_text(value) if name.endswith("_count") else value),
        )
        for name, value in facts.items()
        if value is not None and value != ""
    ]
    return element("dl", [part for pair in pairs for part in pair])


def moment(millis: int | None) -> str:
    """Return an instant, milliseconds since 1970 UTC, to the second: "2024-05-01 08:00:00"."""
    text = utc_text(millis) or ""
    return text[:19].replace("T", " ") if text.endswith("Z") else text


def bar(size: int, largest: int, kind: str) -> Html:
    """Return a bar whose length is to the whole as `size` is to `largest`; never quite nothing."""
    width = max(0.5, 100 * size / max(largest, 1))
    inner = element("rect", class_=kind, width=f"{width:.1f}%", height="10", rx="2")
    return element("svg", inner, class_="bar", height="10", role="img", aria_label=size_text(size))


def health_chip(report: HealthReport | None, problem: str | None = None) -> Html:
    """Return the result of a shallow examination in a word or two, with all findings as its title."""
    # A table that cannot be examined has no findings.
    if report is None:
        return element("span", "unreadable", class_="chip error", title=problem)
    words = [finding.severity.name.lower() for finding in report.findings]
    if not words:
        title = f"no debt, newest documents can be read{report.left_out}"
        return element("span", "nothing found", class_="chip good", title=title)
    worst = next(word for word in ("error", "warning", "note") if word in words)
    text = ", ".join(counted(words.count(word), word) for word in dict.fromkeys(words))
    title_text = "; ".join(finding.what for finding in report.findings)
    return element("span", text, class_=f"chip {worst}", title=title_text)


def findings(report: HealthReport, line: Callable[[str], str]) -> Html:
    """Return the findings of the doctor, each with its cost and the command that repairs it."""
    if not report.findings:
        return element("p", health_chip(report))
    return element(
        "ul",
        [
            element(
                "li",
                element("span", finding.severity.name.lower(), class_=f"chip {finding.severity.name.lower()}"),
                " ", element("b", finding.what),
                element("p", finding.cost, class_="dim") if finding.cost else None,
                element("p", f"this loses {finding.loses}", class_="dim") if finding.loses else None,
                element("code", line(shlex.join(finding.command)), class_="command") if finding.command else None,
            )
            for finding in report.findings
        ],
        class_="findings",
    )  # fmt: skip


def looked_at(line: Callable[[str], str], name: str = "") -> Html:
    """Return the scope of a shallow examination, and the commands that go further, for a table or for all."""
    further = (
        ("all snapshots and tags, missing and damaged files, orphans", ""),
        ("the contents of data files too", " --deep"),
    )
    words = ["doctor", *filter(None, [shlex.quote(name) if name else ""])]
    return joined(
        [
            element(
                "p",
                "Looked at: the newest snapshot with its schema and manifest lists, compaction debt, options, "
                "tags, branches and consumers. The rest is what these commands look at:",
                class_="dim",
            ),
            element(
                "ul",
                [
                    element("li", f"{scope}: ", element("code", line(" ".join(words) + flags)))
                    for scope, flags in further
                ],
                class_="dim",
            ),
        ]
    )


def pager(newer: str | None, position: str, older: str | None, words: tuple[str, str]) -> Html:
    """Return links to the pages before and after this one; `ui.js` gives them the keys p and n."""
    return element(
        "nav",
        element("a", f"← {words[0]}", href=newer, rel="prev") if newer else None,
        element("span", position, class_="dim"),
        element("a", f"{words[1]} →", href=older, rel="next") if older else None,
        class_="pager", aria_label="More",
    )  # fmt: skip


def error_page(
    heading: str, message: str, facts: Mapping[str, object], links: Mapping[str, str]
) -> Html:
    """Return the page of an error, with links to go on."""
    onward = [element("li", link(text, url)) for text, url in links.items()]
    return page(heading, element("p", message), fact_list(facts), element("ul", onward))
