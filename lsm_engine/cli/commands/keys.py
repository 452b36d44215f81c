"""Rows by key: look them up, locate what rows would replace, insert only, update only, forget."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from lsm_engine import FOUND_COLUMN as FOUND
from lsm_engine import (
    ForgetReport,
    InvalidInputError,
    RowCounts,
    Table,
    TableSchema,
    WriteResult,
    parse_texts,
    plain_rows,
    read_files,
    row_counts_of,
)
from lsm_engine.cli.call import COLUMNS, YES, Call, read_options, split_names
from lsm_engine.cli.commands.catalog import pairs_of
from lsm_engine.cli.commands.write import committed, hint
from lsm_engine.cli.exit_codes import REFUSED
from lsm_engine.cli.output import Column, counted, words
from lsm_engine.cli.progress import row_progress, writing
from lsm_engine.cli.verb import confirm, table_verb

KEY_OPTION = click.option(
    "--key", "pairs", metavar="COLUMN=VALUE", multiple=True,
    help="One key, column by column; repeatable.",
)  # fmt: skip


@table_verb(
    "lsm lookup shop.orders --key order_id=17",
    "lsm lookup shop.orders wanted.csv --columns price,customer --json",
)
@click.argument("files", nargs=-1)
@KEY_OPTION
@COLUMNS
@read_options
def lookup(
    call: Call,
    /,
    *,
    table: str,
    files: Sequence[str],
    pairs: Sequence[str],
    columns: str | None,
    **form: Any,
) -> None:
    """Print the newest row of each key, in the order of the keys, and whether it is there.

    Data files that may hold a key become local files first, which the next lookup of one process
    finds ready: for many keys in one go, or in a program. For a row or two, lsm scan --where does.
    """
    target = call.table(table)
    names = split_names(columns) or None
    rows = target.lookup(keys_given(target, files, pairs, form), names)
    shown = [Column(name=name, heading=name) for name in rows.schema.names if name != FOUND]
    call.out.rows([words(FOUND, "found"), *shown], plain_rows(rows), empty="no keys")


@table_verb(
    "lsm locate shop.orders --key order_id=17",
    "lsm locate shop.orders tonight.parquet --json | jq .action",
)
@click.argument("files", nargs=-1)
@KEY_OPTION
@read_options
def locate(
    call: Call, /, *, table: str, files: Sequence[str], pairs: Sequence[str], **form: Any
) -> None:
    """Show for each row whether it is an insert or an update, and the file of the replaced row.

    How records are found is the table's index.type; see docs/options.md.
    """
    target = call.table(table)
    rows = target.locate(keys_given(target, files, pairs, form))
    columns = [words("action"), words("partition"), words("bucket"), words("file_name", "file")]
    call.out.rows(columns, plain_rows(rows), empty="no rows")


@table_verb("lsm insert shop.orders new.parquet", "lsm insert shop.orders all.csv --existing skip")
@click.argument("files", nargs=-1, required=True)
@click.option("--existing", type=click.Choice(["refuse", "skip"]), default="refuse",
              show_default=True, help="Refuse or skip rows whose key exists.")  # fmt: skip
@read_options
def insert(call: Call, *, table: str, files: Sequence[str], existing: str, **form: Any) -> None:
    """Insert rows whose keys do not exist; one commit, which never replaces a row."""
    target = call.table(table)
    _write(
        call, target, files, form, "insert",
        lambda rows, identity: target.insert(rows, existing, **identity),
    )  # fmt: skip


@table_verb(
    "lsm update shop.orders corrections.csv",
    "lsm update shop.orders corrections.csv --missing skip",
    'lsm update shop.orders --set "price=price * 0.9" --set "note=\'sale\'" --where "price > 100"',
)
@click.argument("files", nargs=-1)
@click.option("--missing", type=click.Choice(["refuse", "skip"]), default="refuse",
              show_default=True, help="Refuse or skip rows whose key does not exist.")  # fmt: skip
@click.option("--set", "sets", metavar="COLUMN=SQL", multiple=True,
              help="Set a column of the rows that --where matches; repeatable.")  # fmt: skip
@click.option("--where", "row_filter", metavar="FILTER", help="Rows for --set.  [default: all]")
@read_options
def update(
    call: Call, *, table: str, files: Sequence[str], missing: str, sets: Sequence[str],
    row_filter: str | None, **form: Any,
) -> None:  # fmt: skip
    """Replace rows whose keys exist by those of files, or --set columns; one commit, which never adds a key."""
    if bool(files) == bool(sets) or (files and row_filter is not None):
        raise click.UsageError("give either FILES with rows, or --set COLUMN=SQL and --where")
    target = call.table(table)
    if files:
        _write(
            call, target, files, form, "update",
            lambda rows, identity: target.update(rows, missing, **identity),
        )  # fmt: skip
        return
    with writing(target, "update") as identity:
        result = target.update(set=pairs_of(sets), where=row_filter, **identity)
    _report(call, target, "update", result, 0)


def _write(
    call: Call,
    table: Table,
    files: Sequence[str],
    form: dict[str, Any],
    verb: str,
    write: Callable[[Any, dict[str, Any]], WriteResult | None],
) -> None:
    source = read_files(files, table, **form)
    with (
        writing(table, verb, files) as identity,
        row_progress(call, source, f"{verb.capitalize()} into {table.name}") as rows,
    ):
        result = write(rows.reader, identity)
    _report(call, table, verb, result, rows.count)


def _report(call: Call, table: Table, verb: str, result: WriteResult | None, count: int) -> None:
    """Report what an insert or an update did; without a commit all `count` rows were skipped."""
    counts = (None if result is None else row_counts_of(result.properties)) or RowCounts()
    done = counts.inserted + counts.updated
    facts = {
        "table": table.name,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "skipped": counts.skipped if result is not None else count,
        "at_most": counts.at_most,
        **committed(result),
    }
    if result is None:
        call.out.report("nothing to commit", facts)
        return
    skipped_text = f", {counted(counts.skipped, 'row')} skipped" if counts.skipped else ""
    word = "inserted" if verb == "insert" else "updated"
    call.out.report(
        f"{'at most ' * counts.at_most}{counted(done, 'row')} {word}{skipped_text}{hint(result)}: snapshot {result.id} of {table.name}",
        facts,
    )


def keys_given(
    table: Table, files: Sequence[str], pairs: Sequence[str], form: dict[str, Any]
) -> pa.RecordBatchReader:
    """Return the keys of files, or the one that is given column by column."""
    # Both together would leave open which keys count.
    if bool(files) == bool(pairs):
        raise click.UsageError("give either FILES with keys, or --key column=value")
    if files and not (Path(files[0]).exists() or Path(files[0]).suffix or files[0] == "-"):
        key = (
            files[0]
            if "=" in files[0]
            else f"{(table.schema.primary_keys or table.schema.names)[0]}={files[0]}"
        )
        raise click.UsageError(f"there is no file {files[0]}; a key is given as --key {key}")
    if files:
        return read_files(files, table, **form).reader
    return _one_key(table.schema, pairs).to_reader()


def _one_key(schema: TableSchema, pairs: Sequence[str]) -> pa.Table:
    """Return a single key from column=value, as the columns' types read it."""
    texts = dict(pair.partition("=")[::2] for pair in pairs)
    columns = {}
    for name, text in texts.items():
        # A table without a primary key is matched by any of its columns.
        key_names = schema.primary_keys or schema.names
        if name not in key_names:
            raise InvalidInputError(
                f"{name!r} is no key column; the key is {', '.join(key_names)}",
                column=name,
            )
        try:
            columns[name] = parse_texts(pa.array([text]), schema.arrow.field(name).type)
        except pa.ArrowException as cause:
            raise InvalidInputError(
                f"{text!r} is no value of column {name!r}: {cause}", column=name
            ) from cause
    return pa.table(columns)


# -- Forget keys -----------------------------------------------------------------------------------


@table_verb(
    "lsm forget shop.customers --key customer_id=4711 --plan",
    "lsm forget shop.customers --key customer_id=4711 --rewrite-tags",
    "lsm forget shop.customers requests.csv --rewrite-tags --rewrite-branches --yes --json",
)
@click.argument("files", nargs=-1)
@KEY_OPTION
@click.option("--plan", "only_plan", is_flag=True, help="Show the plan and stop.")
@click.option("--rewrite-tags", is_flag=True, help="Write tags that hold a key anew, without it.")
@click.option("--rewrite-branches", is_flag=True,
              help="The same for branches, whose history goes as well.")  # fmt: skip
@click.option("--move-consumers", is_flag=True,
              help="Move consumers past changes that they have not read.")  # fmt: skip
@click.option("--unreferenced-older-than", default="1 d", metavar="AGE", show_default=True,
              help='Delete files that nothing names from this age on; "0 s" while no process writes.')  # fmt: skip
@YES
@read_options
def forget(
    call: Call,
    /,
    *,
    table: str,
    files: Sequence[str],
    pairs: Sequence[str],
    only_plan: bool,
    rewrite_tags: bool,
    rewrite_branches: bool,
    move_consumers: bool,
    unreferenced_older_than: str,
    yes: bool,
    **form: Any,
) -> None:
    """Erase keys from all files of a table and from the catalog, then search for them.

    Every stored version goes: from data files, changelogs, manifests, statistics, indexes, the trash,
    lookup files and the catalog. All snapshots but the newest state expire, so time travel is lost but
    to tags. Shows the plan first, and asks. Tags, branches and consumers in the way are named and
    refuse, unless the options allow to change them. Backups and other systems are not reached:
    docs/forget.md. Exit code 1 if a key is left, or came back.
    """
    target = call.table(table)
    keys = keys_given(target, files, pairs, form).read_all()

    def run(*, dry_run: bool) -> ForgetReport:
        return target.forget(
            keys,
            dry_run,
            rewrite_tags=rewrite_tags,
            rewrite_branches=rewrite_branches,
            move_consumers=move_consumers,
            unreferenced_older_than=unreferenced_older_than,
        )

    report = run(dry_run=True)
    if only_plan or (not yes and not call.as_json):
        call.out.report(str(report), report.facts())
    # The plan has been shown, and nothing may change.
    if only_plan:
        return
    # A plan that is empty or refused needs no consent.
    if not report.plan.is_empty and not report.plan.refusals:
        question = f"Forget {counted(keys.num_rows, 'key')} for good, with all history but tags?"
        confirm(question, yes=yes)
    report = run(dry_run=False)
    call.out.report(str(report), report.facts())
    if not report.is_clean:
        raise click.exceptions.Exit(REFUSED)
