"""Keep a table in shape: compact it, tag snapshots, expire old ones."""

from collections.abc import Sequence
from typing import Any

import click

from lsm_engine import (
    ExpiryReport,
    InvalidInputError,
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
from lsm_engine.cli.verb import VerbGroup, confirm, table_verb


@table_verb("lsm compact shop.orders", "lsm compact shop.orders --full --partition dt=2024-05-01")
@click.option("--full", is_flag=True, help="Merge all of each bucket into one sorted run.")
@PARTITIONS
@click.option("--bucket", "buckets", metavar="N", multiple=True,
              help="Only buckets of this number, or of ranges such as 0-3,8; repeatable.")  # fmt: skip
def compact(
    call: Call, *, table: str, full: bool, partitions: Sequence[str], buckets: Sequence[str]
) -> None:
    """Merge sorted runs of due buckets. Rows stay the same; reads become cheaper.

    In a table without a primary key small files are joined. Rows that wait for a bucket (bucket = -2)
    get one, and can be seen.
    """
    executor = BucketProgress(call)
    target = call.table(table, executor=executor)
    noun = "sorted run" if target.schema.has_primary_key else "file"
    before = _runs(target)
    with writing(target, "compact") as identity:
        result = target.compact(
            full,
            [partition_of(target, [pair]) for pair in partitions] or None,
            ",".join(buckets) or None,
            **identity,
        )
    after = _runs(target) if result else before
    facts = {
        "table": target.name,
        "buckets": executor.bucket_count,
        "size_bytes": executor.size_bytes,
        "runs_before": before,
        "runs_after": after,
        **committed(result),
    }
    if result is None:
        call.out.report(f"nothing to compact: {counted(before, noun)}, none due", facts)
        return
    call.out.report(
        f"compacted {counted(executor.bucket_count, 'bucket')} ({format_bytes(executor.size_bytes)}): "
        f"{counted(before, noun)} before, {after} now, snapshot {result.id} of {target.name}",
        facts,
    )


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


@table_verb(
    "lsm expire shop.orders --dry-run",
    'lsm expire shop.orders --retain-max 20 --older-than "1 d" --yes',
)
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
    table: str,
    dry_run: bool,
    yes: bool,
    everything: bool,
    retain_min: int | None,
    retain_max: int | None,
    older_than: str | None,
) -> None:
    """Delete old snapshots, and the files that only they name. Tags keep theirs.

    Shows the plan, and asks before it acts.
    """
    target = call.table(table)
    if older_than is not None:
        _checked_age(older_than)
    rules: dict[str, Any] = {
        "retain_min": retain_min,
        "retain_max": retain_max,
        "older_than": older_than,
        "everything": everything,
    }
    planned = target.expire_snapshots(dry_run=True, **rules)
    # A plan that deletes nothing needs no consent.
    if dry_run or planned.is_empty:
        if call.as_json or dry_run or not call.quiet:
            _show_plan(call, planned)
        return
    if not call.as_json and not (yes and call.quiet):
        _show_plan(call, planned)
    confirm(f"Delete {_summary(planned)}{without_undo(target)}?", yes=yes)
    done = target.expire_snapshots(**rules)
    if call.as_json:
        call.out.facts(_facts(done))
    else:
        call.out.report(f"gone: {_summary(done)}", {})


def without_undo(table: Table) -> str:
    """Return what a question adds where the trash keeps nothing of what is deleted."""
    key = "maintenance.trash-retained"
    return "" if table.options.texts.get(key) else f", without undo ({key!r} is not set)"


def _checked_age(text: str) -> None:
    try:
        parse_millis(text)
    except ValueError as cause:
        raise InvalidInputError(f"an age is written '1 h' or '7 d', not {text!r}") from cause


def _show_plan(call: Call, report: ExpiryReport) -> None:
    if call.as_json:
        call.out.facts(_facts(report))
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
        call.out.heading("snapshots that go")
        columns = [code("snapshot_id", "snapshot"), words("committed", "committed (UTC)")]
        call.out.rows([*columns, words("kind"), number("rows")], rows, empty="")
        call.out.text(f"\nwith them: {_summary(report)}")
    else:
        call.out.text("nothing to expire")
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


def _facts(report: ExpiryReport) -> dict[str, Any]:
    plan = report.plan
    return {
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
