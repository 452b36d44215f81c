"""Keep a table in shape: compact it, tag snapshots, expire old ones."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from lsm_engine import (
    ExpiryReport,
    InvalidInputError,
    LsmError,
    Table,
    Tag,
    format_bytes,
    format_millis,
    millis_of,
    parse_millis,
)
from lsm_engine.cli.call import DRY_RUN, PARTITIONS, RETAIN_MAX, RETAIN_MIN, YES, Call
from lsm_engine.cli.commands.write import committed, partition_of
from lsm_engine.cli.output import code, counted, number, words
from lsm_engine.cli.progress import BucketProgress, writing
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import VerbGroup, confirm, report_error, table_verb, verb

_ALL_TABLES = click.option("--all-tables", is_flag=True, help="Every table of the catalog.")
_TABLES = click.argument("names", nargs=-1, metavar="TABLE|DATABASE...")


def _each_table(
    call: Call, names: Sequence[str], *, all_tables: bool, work: Callable[[str], None]
) -> None:
    """Do work for each table that names stand for; a failure is reported, and the others go on.

    Ends with the exit code of the first failure.
    """
    if bool(names) is all_tables:
        raise click.UsageError("name tables or databases, or give --all-tables")
    tables = call.catalog().list_tables() if all_tables else call.tables_named(names)
    codes = []
    for table in tables:
        try:
            work(table)
        except LsmError as error:
            # One table that is damaged, or that others change, must not keep the others from their upkeep.
            if len(tables) > 1:
                error.facts.setdefault("table", table)
            codes.append(report_error(call, error))
    if codes:
        raise click.exceptions.Exit(codes[0])


@verb(
    "lsm compact shop.orders",
    "lsm compact shop.orders --full --partition dt=2024-05-01",
    "lsm compact shop web.clicks --quiet",
    "lsm compact --all-tables",
)
@_TABLES
@_ALL_TABLES
@click.option("--full", is_flag=True, help="Merge all of each bucket into one sorted run.")
@PARTITIONS
@click.option("--bucket", "buckets", metavar="N", multiple=True,
              help="Only buckets of this number, or of ranges such as 0-3,8; repeatable.")  # fmt: skip
def compact(
    call: Call, *, names: Sequence[str], all_tables: bool, full: bool,
    partitions: Sequence[str], buckets: Sequence[str],
) -> None:  # fmt: skip
    """Merge sorted runs of due buckets. Rows stay the same; reads become cheaper.

    In a table without a primary key small files are joined. Rows that wait for a bucket (bucket = -2)
    get one, and can be seen. If a table fails, the others are compacted all the same, and the exit code is that of
    the first failure.
    """
    executor = BucketProgress(call)

    def compact_table(name: str) -> None:
        target = call.table(name, executor=executor)
        noun = "sorted run" if target.schema.has_primary_key else "file"
        before, former = _runs(target), (executor.bucket_count, executor.size_bytes)
        with writing(target, "compact") as identity:
            result = target.compact(
                full,
                [partition_of(target, [pair]) for pair in partitions] or None,
                ",".join(buckets) or None,
                **identity,
            )
        after = _runs(target) if result else before
        bucket_count = executor.bucket_count - former[0]
        size_bytes = executor.size_bytes - former[1]
        facts = {
            "table": target.name,
            "buckets": bucket_count,
            "size_bytes": size_bytes,
            "runs_before": before,
            "runs_after": after,
            **committed(result),
        }
        if result is None:
            text = f"nothing to compact in {target.name}: {counted(before, noun)}, none due"
        else:
            text = (
                f"compacted {counted(bucket_count, 'bucket')} ({format_bytes(size_bytes)}): "
                f"{counted(before, noun)} before, {after} now, snapshot {result.id} of {target.name}"
            )
        call.out.report(text, facts)

    _each_table(call, names, all_tables=all_tables, work=compact_table)


@table_verb("lsm rescale shop.orders 16", "lsm rescale shop.orders 16 --partition dt=2024-05-01")
@click.argument("buckets", type=click.IntRange(1))
@PARTITIONS
def rescale(call: Call, *, table: str, buckets: int, partitions: Sequence[str]) -> None:
    """Give a table another number of buckets: all rows are rewritten, in one commit.

    Partitions left out keep their number; Java writes no rows there before they are rescaled as well.
    """
    executor = BucketProgress(call)
    target = call.table(table, executor=executor)
    with writing(target, "rescale") as identity:
        result = target.rescale(
            buckets, [partition_of(target, [pair]) for pair in partitions] or None, **identity
        )
    facts = {"table": target.name, "buckets": buckets, **committed(result)}
    if result is None:
        call.out.report(f"nothing to rescale: {counted(buckets, 'bucket')} already", facts)
        return
    call.out.report(
        f"{target.name} has {counted(buckets, 'bucket')} now ({format_bytes(executor.size_bytes)} "
        f"read): snapshot {result.id}",
        facts,
    )


def _runs(table: Table) -> int:
    # A table without a key has no runs, so its files are counted.
    if not table.schema.has_primary_key:
        return len(table.system("files"))
    return sum(bucket.run_count for bucket in table.pressure())


@click.group(cls=VerbGroup)
def tag() -> None:
    """Name snapshots, so that expiry keeps their files: create, list, move, rename, expire, delete."""


@table_verb(
    "lsm tag create shop.orders monday",
    'lsm tag create shop.orders before-fix --snapshot 12 --retained "7 d"',
    name="create",
    group=tag,
)
@click.argument("name")
@click.option(
    "--snapshot",
    "snapshot_id",
    type=int,
    metavar="ID",
    help="Tag this snapshot.  [default: newest]",
)
@click.option("--from-time", metavar="TIME", help="Tag the first snapshot at or after; UTC.")
@click.option(
    "--retained", metavar="TIME", help='Keep the tag this long, such as "7 d".  [default: for ever]'
)
def tag_create(
    call: Call,
    *,
    table: str,
    name: str,
    snapshot_id: int | None,
    from_time: str | None,
    retained: str | None,
) -> None:
    """Create a tag of a snapshot; its files stay as long as the tag does."""
    created = call.table(table).create_tag(
        name,
        snapshot_id,
        retained,
        from_millis=None if from_time is None else millis_of(from_time),
    )
    call.out.report(f"tag {created.name} names snapshot {created.snapshot.id}", tag_facts(created))


@table_verb("lsm tag list shop.orders", "lsm tag list shop.orders --json", name="list", group=tag)
def tag_list(call: Call, *, table: str) -> None:
    """List tags and the snapshots that they keep."""
    columns = [
        words("tag"), code("snapshot_id", "snapshot"), words("committed", "committed (UTC)"),
        number("rows", "rows in files"), words("retained"),
    ]  # fmt: skip
    rows = [tag_facts(item) for item in call.table(table).tags()]
    call.out.rows(columns, rows, empty="no tags")


@table_verb("lsm tag delete shop.orders monday", name="delete", group=tag)
@click.argument("name")
def tag_delete(call: Call, *, table: str, name: str) -> None:
    """Delete a tag, and the files that only it named."""
    call.table(table).delete_tag(name)
    call.out.report(f"tag {name} is gone", {"deleted": name})


def tag_facts(tag: Tag) -> dict[str, Any]:
    """Return what people and programs want to know of a tag."""
    retained_millis = tag.retained_millis
    return {
        "tag": tag.name,
        "snapshot_id": tag.snapshot.id,
        "committed": utc_text(tag.snapshot.time_millis),
        "rows": tag.snapshot.total_record_count,
        "retained": "for ever" if retained_millis is None else format_millis(retained_millis),
    }


@verb(
    "lsm expire shop.orders --dry-run",
    'lsm expire shop.orders --retain-max 20 --older-than "1 d" --yes',
    "lsm expire --all-tables --all --yes --quiet",
)
@_TABLES
@_ALL_TABLES
@DRY_RUN
@YES
@RETAIN_MIN
@RETAIN_MAX
@click.option(
    "--older-than",
    metavar="AGE",
    help='Expire older snapshots, such as "1 h".  [default: the table\'s]',
)
@click.option("--all", "everything", is_flag=True,
              help="Expire all due snapshots, not only 'snapshot.expire.limit' of them.")  # fmt: skip
def expire(
    call: Call,
    *,
    names: Sequence[str],
    all_tables: bool,
    dry_run: bool,
    yes: bool,
    **rules: Any,
) -> None:
    """Delete old snapshots, and the files that only they name. Tags keep theirs.

    Shows the plan of each table, and asks before it acts. If a table fails, the others are expired all the same, and
    the exit code is that of the first failure.
    """
    if rules["older_than"] is not None:
        _checked_age(rules["older_than"])

    def expire_table(name: str) -> None:
        target = call.table(name)
        planned = target.expire_snapshots(dry_run=True, **rules)
        # A plan that deletes nothing needs no consent.
        if dry_run or planned.is_empty:
            if call.as_json or dry_run or not call.quiet:
                _show_plan(call, target, planned)
            return
        if not call.as_json and not (yes and call.quiet):
            _show_plan(call, target, planned)
        confirm(f"Delete {_summary(planned)} of {target.name}{without_undo(target)}?", yes=yes)
        done = target.expire_snapshots(**rules)
        if call.as_json:
            call.out.facts(_facts(target, done))
        else:
            call.out.report(f"gone from {target.name}: {_summary(done)}", {})

    _each_table(call, names, all_tables=all_tables, work=expire_table)


def without_undo(table: Table) -> str:
    """Return what a question adds where the trash keeps nothing of what is deleted."""
    key = "maintenance.trash-retained"
    return "" if table.options.texts.get(key) else f", without undo ({key!r} is not set)"


def _checked_age(text: str) -> None:
    try:
        parse_millis(text)
    except ValueError as cause:
        raise InvalidInputError(f"an age is written '1 h' or '7 d', not {text!r}") from cause


def _show_plan(call: Call, table: Table, report: ExpiryReport) -> None:
    if call.as_json:
        call.out.facts(_facts(table, report))
        return
    plan = report.plan
    if not plan.is_empty:
        rows = [
            {
                "snapshot_id": snapshot.id,
                "committed": utc_text(snapshot.time_millis),
                "kind": snapshot.commit_kind.value,
                "rows": snapshot.total_record_count,
            }
            for snapshot in plan.expired
        ]
        call.out.heading(f"snapshots of {table.name} that go")
        columns = [code("snapshot_id", "snapshot"), words("committed", "committed (UTC)")]
        call.out.rows([*columns, words("kind"), number("rows")], rows, empty="")
        call.out.text(f"\nwith them: {_summary(report)}")
    else:
        call.out.text(f"nothing to expire in {table.name}")
    for noun, names in (("tags", report.tags), ("consumers", report.consumers)):
        if names:
            call.out.text(f"{noun} whose time is over: {', '.join(names)}")
    call.out.text(f"why no more: {plan.reason}")
    for name, count in plan.kept_by:
        call.out.text(f"kept: {name} keeps {count} of their files")


def _summary(report: ExpiryReport) -> str:
    plan = report.plan
    files = len(plan.data_files) + len(plan.changelog_files)
    feed = () if report.changelogs is None else report.changelogs.expired_changelogs
    other_items = (("changelog", feed), ("tag", report.tags), ("consumer", report.consumers))
    suffix = "".join(f", {counted(len(items), noun)}" for noun, items in other_items if items)
    return (
        f"{counted(len(plan.expired), 'snapshot')}{suffix}, {counted(files, 'data file')} "
        f"({format_bytes(plan.freed_bytes)}), {counted(len(plan.metadata.manifests), 'manifest')}"
    )


def _facts(table: Table, report: ExpiryReport) -> dict[str, Any]:
    plan = report.plan
    return {
        "table": table.name,
        "dry_run": report.dry_run,
        "snapshots": list(report.snapshot_ids),
        "data_files": [file.file_name for file in plan.data_files],
        "changelog_files": [file.file_name for file in plan.changelog_files],
        "manifests": sorted(plan.metadata.manifests),
        "freed_bytes": plan.freed_bytes,
        "tags": list(report.tags),
        "consumers": list(report.consumers),
        "changelogs": []
        if report.changelogs is None
        else [changelog.id for changelog in report.changelogs.expired_changelogs],
        "reason": plan.reason,
        "kept_by": dict(plan.kept_by),
    }
