"""A key's history: every stored version, which snapshot wrote it, and which one counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsm_engine import KEY_VERSION_FACTS, record
from lsm_engine.cli.commands.explain import VERSION_COLUMNS
from lsm_engine.cli.output import words
from lsm_engine.cli.ui import parts
from lsm_engine.cli.ui.markup import Html, element, table_address


@record
class KeyAnswer:
    """What `explain_key` returns, with versions as rows of plain values; `names`: all their columns."""

    rule: str
    column_rules: Mapping[str, str]
    verdict: str
    names: Sequence[str]
    versions: Sequence[Mapping[str, Any]]


@record
class KeyFacts:
    """A table's key columns with their types, what was asked for, and the answer: None before, or a problem."""

    table: str
    columns: Mapping[str, str]
    given: Mapping[str, str]
    at: Mapping[str, str]
    answer: KeyAnswer | None = None
    problem: str | None = None


def key_page(shown: KeyFacts) -> Html:
    """Return the form that asks for a key, and its history once one is given."""
    if not shown.columns:
        text = element("p", "This table has no primary key, so no row has versions.", class_="dim")
        return parts.table_page(shown.table, "Key", "", text)
    fields = [
        element("label", element("span", f"{name} ", element("small", kind, class_="dim")),
                element("input", name=name, value=shown.given.get(name, ""), required=True,
                        autocomplete="off", autofocus=position == 0 and shown.answer is None))
        for position, (name, kind) in enumerate(shown.columns.items())
    ]  # fmt: skip
    times = [
        element("label", element("span", name, element("small", " optional", class_="dim")),
                element("input", name=name, value=shown.at.get(name, ""), autocomplete="off"))
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
