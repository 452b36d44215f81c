"""Drop what is old, free what nothing names, mend what is broken, and give back what was taken."""

from dataclasses import asdict
from typing import Any

import click

from lsm_engine import OrphanReport, RepairReport, Table, format_bytes
from lsm_engine.cli.call import DRY_RUN, YES, Call
from lsm_engine.cli.output import counted, number, size, words
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import VerbGroup, confirm, table_verb


@table_verb("lsm orphans shop.orders --dry-run", 'lsm orphans shop.orders --older-than "3 d" --yes')
@click.option("--older-than", default="1 d", metavar="AGE", show_default=True,
              help="Keep younger files: a writer may not have committed them yet.")  # fmt: skip
@click.option("--force", is_flag=True, help="Allow ages below a day; only while no process writes.")
@DRY_RUN
@YES
def orphans(
    call: Call, *, table: str, older_than: str, force: bool, dry_run: bool, yes: bool
) -> None:
    """Delete files that no snapshot, tag, changelog or branch names. Writers that died leave some.

    Shows the plan, and asks before it acts.
    """
    target = call.table(table)
    report = target.remove_orphan_files(older_than=older_than, force=force)
    if not report.plan.is_empty and not dry_run:
        if not yes:
            _show_orphans(call, report)
        size_text = format_bytes(report.plan.freed_bytes)
        uploads = len(report.plan.uploads)
        uploads_text = f" and abort {counted(uploads, 'unfinished upload')}" if uploads else ""
        confirm(
            f"Delete {counted(len(report.plan.orphans), 'file')} ({size_text}){uploads_text}?",
            yes=yes,
        )
        report = target.remove_orphan_files(dry_run=False, older_than=older_than, force=force)
    elif not call.as_json:
        _show_orphans(call, report)
    facts = {
        "dry_run": report.dry_run,
        "files": [path for path, _ in report.plan.orphans],
        "uploads": [upload.path for upload in report.plan.uploads],
        "uploads_unknown": report.uploads_unknown,
        "freed_bytes": report.plan.freed_bytes,
        "listed": report.plan.listed_count,
        "young": report.plan.young_count,
    }
    call.out.report(str(report), facts)


def _show_orphans(call: Call, report: OrphanReport) -> None:
    rows: list[dict[str, Any]] = [
        {"file": path, "size": length} for path, length in report.plan.orphans
    ]
    if rows and not call.as_json:
        call.out.rows([words("file"), size("size")], rows, empty="")


@table_verb(
    "lsm expire-partitions shop.orders --dry-run",
    'lsm expire-partitions shop.orders --older-than "90 d" --yes',
    name="expire-partitions",
)
@click.option("--older-than", metavar="AGE",
              help="Delete older partitions.  [default: partition.expiration-time]")  # fmt: skip
@DRY_RUN
@YES
def expire_partitions(
    call: Call, *, table: str, older_than: str | None, dry_run: bool, yes: bool
) -> None:
    """Delete old partitions in one commit; older snapshots and tags keep them."""
    target = call.table(table)
    report = target.expire_partitions(dry_run=True, older_than=older_than)
    if report.partitions and not dry_run:
        shown = ", ".join(report.partitions[:5]) + (", …" if len(report.partitions) > 5 else "")
        confirm(f"Drop {counted(len(report.partitions), 'partition')}: {shown}?", yes=yes)
        report = target.expire_partitions(older_than=older_than)
    facts = {
        "dry_run": report.dry_run,
        "partitions": list(report.partitions),
        "snapshot_id": None if report.snapshot is None else report.snapshot.id,
    }
    call.out.report(str(report), facts)
    if not call.as_json:
        for path in report.partitions if report.dry_run else ():
            call.out.text(path)


# --- repair --------------------------------------------------------------------------------------

_REPAIRS = {
    "missing-files": Table.remove_unexisting_files,
    "damaged-files": Table.remove_damaged_files,
    "manifests": Table.compact_manifest,
    "earliest": Table.repair_earliest_snapshot,
    "latest": Table.repair_latest_snapshot,
    "records": Table.remove_broken_records,
    "purge": Table.purge_files,
}


@table_verb(
    "lsm repair shop.orders restore --act",
    "lsm repair shop.orders missing-files",
    "lsm repair shop.orders earliest --act",
    "lsm repair shop.orders purge --act --yes",
)
@click.argument("what", type=click.Choice(["restore", *_REPAIRS]))
@click.option("--act", is_flag=True, help="Act; without this, only show the plan.")
@YES
def repair(call: Call, *, table: str, what: str, act: bool, yes: bool) -> None:
    """Repair a table: shows the plan; acts with --act.

    restore: give back what damaged and missing data files held, from the compaction or the changelog
    that made them, or older rows of snapshots and tags. missing-files: take data files that are gone
    out of the newest state, so that the rest reads. damaged-files: the same, and files that 'lsm
    verify --deep' finds damaged.
    manifests: write the manifests of the newest state anew, fewer and smaller, and count its rows. earliest: take
    away broken snapshots below the oldest whole one. latest: where the newest is lost, go back to the newest that
    can be read or that a tag holds, and mend LATEST. records: take away what cannot be read of the trash, of the record of verified
    files, and of changelogs that have outlived their snapshots. purge: empty the table for good, history and all.
    """
    target = call.table(table)
    if what == "restore":
        _restore(call, target, act=act, yes=yes)
        return
    tool = _REPAIRS[what]
    report: RepairReport = tool(target, dry_run=True)
    if act and report.found:
        if what == "purge" or not call.as_json:
            confirm(f"{report}. Go on?", yes=yes or what == "manifests")
        report = tool(target, dry_run=False)
    facts = {
        "dry_run": report.dry_run,
        "what": report.what,
        "found": list(report.found),
        "snapshot_id": None if report.snapshot is None else report.snapshot.id,
        "lost_row_count": report.lost_row_count,
        "lost": [asdict(stake) for stake in report.lost],
    }
    call.out.report(str(report), facts)
    if not call.as_json:
        about = {stake.path: f" ({stake})" for stake in report.lost}
        for name in report.found:
            call.out.text(f"{name}{about.get(name, '')}")


def _restore(call: Call, target: Table, *, act: bool, yes: bool) -> None:
    report = target.restore_files()
    if act and report.files:
        if not call.as_json:
            confirm(f"{report}. Go on?", yes=yes)
        report = target.restore_files(dry_run=False)
    facts = {
        "dry_run": report.dry_run,
        "what": "restore",
        "snapshot_id": None if report.snapshot is None else report.snapshot.id,
        "lost_row_count": report.lost_row_count,
        "files": [asdict(file) for file in report.files],
        "left": [asdict(file) for file in report.left],
    }
    call.out.report(str(report), facts)
    if not call.as_json:
        for file in report.files:
            call.out.text(f"{file.stake.path} ({file})")
        for lost_file in report.left:
            call.out.text(
                f"{lost_file.path}: nothing to restore it from; {'; '.join(lost_file.sources)}"
            )


# --- trash ---------------------------------------------------------------------------------------


@click.group(cls=VerbGroup)
def trash() -> None:
    """Undo maintenance: tables with 'maintenance.trash-retained' keep deleted states for that time."""


@table_verb("lsm trash list shop.orders", name="list", group=trash)
def trash_list(call: Call, *, table: str) -> None:
    """List the records that can be undone."""
    columns = [
        words("record"), words("taken", "taken (UTC)"), words("reason"), number("snapshots"),
        number("tags"), number("files"),
    ]  # fmt: skip
    rows = [
        {
            "record": trashed.name,
            "taken": utc_text(trashed.created_millis),
            "reason": trashed.reason,
            "snapshots": len(trashed.snapshots),
            "tags": len(trashed.tags),
            "files": len(trashed.paths),
        }
        for trashed in call.table(table).trash()
    ]
    call.out.rows(columns, rows, empty="the trash is empty")


@table_verb("lsm trash undo shop.orders", name="undo", group=trash)
@click.argument("record", required=False)
def trash_undo(call: Call, *, table: str, record: str | None) -> None:
    """Restore the content of one RECORD, by default the newest."""
    restored = call.table(table).undo_maintenance(record)
    facts = {
        "record": restored.name,
        "snapshots": [item.id for item in restored.snapshots],
        "tags": [item.name for item in restored.tags],
    }
    text = f"{counted(len(restored.snapshots), 'snapshot')} and {counted(len(restored.tags), 'tag')} are back"
    call.out.report(text, facts)


@table_verb("lsm trash empty shop.orders --all --yes", name="empty", group=trash)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also records that are younger than the option allows.",
)
@DRY_RUN
@YES
def trash_empty(call: Call, *, table: str, everything: bool, dry_run: bool, yes: bool) -> None:
    """Delete the files of old records for good."""
    target = call.table(table)
    report = target.empty_trash(dry_run=True, everything=everything)
    if report.records and not dry_run:
        confirm(f"Delete {counted(len(report.paths), 'file')} for good?", yes=yes)
        report = target.empty_trash(everything=everything)
    facts = {
        "dry_run": report.dry_run,
        "records": list(report.records),
        "files": list(report.paths),
    }
    call.out.report(str(report), facts)


# --- Iceberg metadata ----------------------------------------------------------------------------


@click.group(cls=VerbGroup)
def iceberg() -> None:
    """Show and rebuild the Iceberg metadata of tables with 'metadata.iceberg.storage'."""


@table_verb("lsm iceberg show shop.orders", name="show", group=iceberg)
def iceberg_show(call: Call, *, table: str) -> None:
    """Show the snapshot of the metadata, its location, and omitted parts with the reason."""
    state = call.table(table).inspect.iceberg()
    call.out.report(str(state), state.facts())


@table_verb(
    "lsm iceberg sync shop.orders",
    "lsm iceberg sync shop.orders --rebuild",
    name="sync",
    group=iceberg,
)
@click.option("--rebuild", is_flag=True, help="Write all of it anew, from the newest state.")
def iceberg_sync(call: Call, *, table: str, rebuild: bool) -> None:
    """Write the metadata of the newest snapshot, as each commit does: after damage, and commits of other clients."""
    state = call.table(table).maintenance.sync_iceberg(rebuild=rebuild)
    call.out.report(str(state), state.facts())
