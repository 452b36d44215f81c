"""Why things are as they are: what a scan reads, a key's versions, a file's life, retention, debt."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import pyarrow as pa

from lsm_engine import KEY_VERSION_FACTS as FACTS
from lsm_engine import (
    ErrorKind,
    FileExplanation,
    InvalidInputError,
    RetentionSimulation,
    Table,
    parse_texts,
    plain_rows,
    type_text,
)
from lsm_engine import FileCommit as Commit
from lsm_engine.cli.call import AS_OF_SNAPSHOT, AS_OF_TAG, RETAIN_MAX, RETAIN_MIN, Call
from lsm_engine.cli.output import code, number, size, words
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import VerbGroup, table_verb

_FLAGS = ("--json", "--quiet", "-q", "--debug")
_WITH_VALUE = ("--catalog", "--warehouse")
VERSION_COLUMNS = [
    # Verdicts count versions from 1.
    replace(code("_position", "version"), show=lambda position: str(position + 1)),
    words("_row_kind", "kind"), code("_sequence_number", "sequence"),
    code("_snapshot_id", "snapshot"), code("_level", "level"), code("_run", "run"),
    words("_verdict", "outcome"), words("_file_name", "file"),
]  # fmt: skip
_STAGES = [
    code("level"), code("added_by", "added by snapshot"), words("added_kind", "kind"),
    code("deleted_by", "taken out by"), words("deleted_kind", "kind "),
]  # fmt: skip
_PINS = [
    words("root", "kept by"), number("files"), size("size_bytes", "size"),
    number("only_files", "files it alone keeps"), size("only_size_bytes", "size of those"),
]  # fmt: skip
CHANGE_COLUMNS = [
    words("change"), words("partition"), code("bucket"), code("level"),
    number("record_count", "rows"), size("file_size_in_bytes", "size"), words("file_path", "file"),
]  # fmt: skip


class ExplainGroup(VerbGroup):
    """`lsm explain TABLE` explains a scan, as ever; table names hold a dot or a slash, verbs do not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Go on with the verb `scan` where none is named."""
        index = 0
        while index < len(args) and (
            args[index] in _FLAGS or args[index].partition("=")[0] in _WITH_VALUE
        ):
            index += 2 if args[index] in _WITH_VALUE else 1
        first_words = (*self.homes, "-h", "--help")
        is_named = index < len(args) and args[index] in first_words
        return super().parse_args(ctx, args if is_named or not args else ["scan", *args])


@click.group(
    cls=ExplainGroup,
    homes={
        "scan": "read:explain",
        "debt": "look:debt",
        **{name: f"explain:{name}" for name in ("key", "file", "retention", "diff")},
    },
)
def explain() -> None:
    """Explain what a scan reads (the default), a key, a file, retention, debt, a difference."""


@table_verb(
    "lsm show key shop.orders order_id=2",
    "lsm show key shop.flights dt=2013-01-01 flight=1545 --tag monday --json",
    name="key",
)
@click.argument("key", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@AS_OF_SNAPSHOT
@AS_OF_TAG
def key(
    call: Call, *, table: str, key: Sequence[str], snapshot_id: int | None, tag: str | None
) -> None:
    """Show every stored version of a key in merge order, and the rule that decided.

    Each version with its file, level, run, sequence number, and the snapshot that wrote it.
    """
    target = call.table(table)
    explanation = target.explain_key(key_of(target, key), snapshot_id=snapshot_id, tag=tag)
    versions = list(plain_rows(explanation.versions))
    if call.as_json:
        rows = () if explanation.row is None else plain_rows(_single_row(target, explanation.row))
        call.out.facts(
            {
                "snapshot_id": explanation.snapshot_id,
                "row": next(iter(rows), None),
                "verdict": explanation.verdict,
                "rule": explanation.rule,
                "column_rules": dict(explanation.column_rules),
                "versions": versions,
            }
        )
        return
    call.out.text(explanation.rule)
    if explanation.column_rules:
        rules = [{"column": name, "rule": text} for name, text in explanation.column_rules.items()]
        call.out.rows([words("column"), words("rule")], rules, empty="")
    names = [name for name in explanation.versions.schema.names if name not in FACTS.names]
    values = [words(name, name) for name in names if name not in explanation.key]
    call.out.rows(
        [*VERSION_COLUMNS[:3], *values, *VERSION_COLUMNS[3:]], versions, empty="no version"
    )
    call.out.text(explanation.verdict)


def key_of(table: Table, words_: Sequence[str]) -> dict[str, Any]:
    """Return the key that `column=value` words spell, typed as the table's columns are."""
    values: dict[str, Any] = {}
    for word in words_:
        name, equals, text = word.partition("=")
        if not equals or name not in table.schema.primary_keys:
            keys = ", ".join(table.schema.primary_keys) or "none"
            raise InvalidInputError(
                f"a key is written column=value; the key columns are: {keys}",
                kind=ErrorKind.INVALID_KEY,
                given=word,
            )
        kind = table.schema.arrow.field(name).type
        try:
            values[name] = parse_texts(pa.array([text]), kind)[0].as_py()
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"{name} is {type_text(table.schema.field(name).type)}, which {text!r} does not fit",
                kind=ErrorKind.INVALID_KEY,
                given=word,
            ) from error
    return values


def _single_row(table: Table, row: Any) -> pa.Table:
    return pa.Table.from_pylist([dict(row)], schema=table.schema.arrow)


@table_verb("lsm show file shop.orders data-5f5c…-0.parquet", name="file")
@click.argument("file")
def file(call: Call, *, table: str, file: str) -> None:
    """Show which commit added a data file, which compaction took it, and what pins it.

    Reads the table's own metadata; `lsm show life` also remembers what has expired.
    """
    explanation = call.table(table).explain_file(file)
    stages = [
        {
            "level": stage.level,
            **_commit("added", stage.added_by),
            **_commit("deleted", stage.deleted_by),
        }
        for stage in explanation.stages
    ]
    if call.as_json:
        call.out.facts({**_file_facts(explanation), "stages": stages})
        return
    call.out.facts(_file_facts(explanation))
    call.out.heading("where it lay")
    call.out.rows(_STAGES, stages, empty="")


def _commit(verb: str, commit: Commit | None) -> dict[str, Any]:
    return {
        f"{verb}_by": None if commit is None else commit.snapshot_id,
        f"{verb}_kind": None if commit is None else commit.kind,
        f"{verb}_at": None if commit is None else utc_text(commit.time_millis),
    }


def _file_facts(explanation: FileExplanation) -> dict[str, Any]:
    return {
        "file": explanation.file.file_name,
        "path": explanation.path,
        "content": explanation.content,
        "stored": explanation.is_stored,
        "live": explanation.is_live,
        "partition": explanation.partition or None,
        "bucket": explanation.bucket,
        "rows": explanation.file.row_count,
        "size_bytes": explanation.file.file_size,
        "made_from": list(explanation.made_from),
        "became": list(explanation.became),
        "pinned_by": list(explanation.pinned_by),
        "verdict": explanation.verdict,
    }


@table_verb(
    "lsm show retention shop.orders",
    'lsm show retention shop.orders --retain-max 5 --older-than "0 s"',
    'lsm show retention shop.orders --later "7 d" --json',
    name="retention",
)
@RETAIN_MIN
@RETAIN_MAX
@click.option("--older-than", metavar="AGE", help='Only what is older, such as "1 d".')
@click.option("--later", default="0 ms", metavar="AGE", help="As if so much time had passed.")
def retention(call: Call, /, *, table: str, later: str, **rules: Any) -> None:
    """Simulate a retention: what can still be read, what is freed, and what pins what.

    Touches nothing. Without rules, the table's own options count.
    """
    simulation = call.table(table).simulate_retention(later=later, **rules)
    pins = [
        {
            "root": pin.name,
            "files": pin.file_count,
            "size_bytes": pin.size_bytes,
            "only_files": pin.only_file_count,
            "only_size_bytes": pin.only_size_bytes,
        }
        for pin in simulation.pins
    ]
    if call.as_json:
        call.out.facts({**_retention_facts(simulation), "pins": pins})
        return
    call.out.text("\n".join(simulation.text().splitlines()[:4]))
    call.out.heading("history that retained references keep on disk")
    call.out.rows(_PINS, pins, empty="none: only the newest snapshot's files are there")


def _retention_facts(simulation: RetentionSimulation) -> dict[str, Any]:
    return {
        "at": utc_text(simulation.at_millis),
        "readable_snapshots": list(simulation.readable),
        "readable_tags": list(simulation.tags),
        "expired_snapshots": list(simulation.expired),
        "expired_tags": list(simulation.expired_tags),
        "freed_files": simulation.freed_file_count,
        "freed_bytes": simulation.freed_bytes,
        "reason": simulation.plan.reason,
    }


@table_verb("lsm show diff shop.orders 3", "lsm show diff shop.orders 3 7 --json", name="diff")
@click.argument("first", type=click.IntRange(0))
@click.argument("second", type=int, required=False)
def diff(call: Call, *, table: str, first: int, second: int | None) -> None:
    """Show which files were added and removed from one snapshot (0: from nothing) to another, or the newest."""
    comparison = call.table(table).diff_snapshots(first or None, second)
    changes = (
        ("added", comparison.added),
        ("removed", comparison.removed),
        ("moved", comparison.moved),
    )
    files = [{"change": word, **row} for word, rows in changes for row in plain_rows(rows)]
    if call.as_json:
        facts = {
            "first": comparison.first_id,
            "second": comparison.second_id,
            "row_change": comparison.row_change,
        }
        call.out.facts({**facts, "byte_change": comparison.byte_change, "files": files})
        return
    call.out.text(comparison.text())
    call.out.rows(CHANGE_COLUMNS, files, empty="the same files")
