"""Go back in a table's history, branch it, move and expire its tags, know who reads its changes."""

from typing import Any

import click

from lsm_engine import millis_of
from lsm_engine.cli.call import DRY_RUN, YES, Call
from lsm_engine.cli.commands.maintain import tag, tag_facts, without_undo
from lsm_engine.cli.commands.write import committed
from lsm_engine.cli.output import code, counted, words
from lsm_engine.cli.progress import writing
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import VerbGroup, confirm, table_verb

# --- rollback ------------------------------------------------------------------------------------


@table_verb(
    "lsm rollback shop.orders --to-snapshot 12 --dry-run",
    "lsm rollback shop.orders --to-tag monday --as-latest",
    'lsm rollback shop.orders --to-time "2024-05-01 08:00:00" --yes',
)
@click.option("--to-snapshot", type=int, metavar="ID", help="Go back to this snapshot.")
@click.option("--to-tag", metavar="NAME", help="Go back to a tag; its snapshot may have expired.")
@click.option("--to-time", metavar="TIME", help="Go back to the newest snapshot at or before; UTC.")
@click.option("--to-watermark", type=int, metavar="MILLIS",
              help="Go back to the newest snapshot with a watermark at or before.")  # fmt: skip
@click.option("--as-latest", is_flag=True,
              help="Commit that state as the newest; nothing is deleted, and writers may go on.")  # fmt: skip
@DRY_RUN
@YES
def rollback(
    call: Call,
    *,
    table: str,
    to_snapshot: int | None,
    to_tag: str | None,
    to_time: str | None,
    to_watermark: int | None,
    as_latest: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Go back to a former state. Later snapshots and tags are deleted, and their ids are used again.

    Concurrent commits are deleted, too, or come after it; --as-latest keeps all. Shows the plan, and asks
    before it acts.
    """
    handle = call.table(table)
    target: dict[str, Any] = {
        "snapshot_id": to_snapshot,
        "tag": to_tag,
        "as_of_millis": None if to_time is None else millis_of(to_time),
        "watermark": to_watermark,
    }
    # The plan also checks that the target exists.
    planned = handle.rollback_to(dry_run=True, **target)
    if as_latest:
        if dry_run:
            call.out.report(
                f"would make snapshot {planned.plan.target.id} the newest of {handle.name}",
                {"target": planned.plan.target.id, "dry_run": True},
            )
            return
        with writing(handle, "rollback") as identity:
            committed_snapshot = handle.rollback_to_as_latest(**target, **identity)
        text = (
            "it is the newest already"
            if committed_snapshot is None
            else f"snapshot {committed_snapshot.id} has its state"
        )
        call.out.report(text, {"target": planned.plan.target.id, **committed(committed_snapshot)})
        return
    if not dry_run and not planned.plan.is_empty:
        if not yes:
            call.out.text(str(planned))
        question = f"Roll {handle.name} back to snapshot {planned.plan.target.id}"
        confirm(f"{question}{without_undo(handle)}?", yes=yes)
        # The state may have changed since the plan was shown, so it is planned again.
        planned = handle.rollback_to(**target)
    call.out.report(
        str(planned),
        {
            "dry_run": planned.dry_run,
            "target": planned.plan.target.id,
            "snapshots": [item.id for item in planned.plan.snapshots],
            "tags": [item.name for item in planned.plan.tags],
        },
    )


# --- tags ----------------------------------------------------------------------------------------


@table_verb("lsm tag rename shop.orders monday before-fix", name="rename", group=tag)
@click.argument("name")
@click.argument("new_name")
def tag_rename(call: Call, *, table: str, name: str, new_name: str) -> None:
    """Give a tag another name."""
    renamed = call.table(table).rename_tag(name, new_name)
    call.out.report(f"tag {name} is called {renamed.name} now", tag_facts(renamed))


@table_verb(
    'lsm tag replace shop.orders stable --snapshot 12 --retained "7 d"', name="replace", group=tag
)
@click.argument("name")
@click.option("--snapshot", "snapshot_id", type=int, metavar="ID",
              help="Name this snapshot.  [default: newest]")  # fmt: skip
@click.option("--retained", metavar="TIME", help='Keep the tag this long, such as "7 d".')
def tag_replace(
    call: Call, *, table: str, name: str, snapshot_id: int | None, retained: str | None
) -> None:
    """Move a tag to another snapshot, in one step; files that only it named are deleted."""
    replaced = call.table(table).replace_tag(name, snapshot_id, retained)
    call.out.report(
        f"tag {replaced.name} names snapshot {replaced.snapshot.id}", tag_facts(replaced)
    )


@table_verb(
    "lsm tag expire shop.orders --dry-run",
    'lsm tag expire shop.orders --older-than "90 d"',
    name="expire",
    group=tag,
)
@click.option("--older-than", metavar="AGE", help="Also delete tags that are older than this.")
@DRY_RUN
@YES
def tag_expire(call: Call, *, table: str, older_than: str | None, dry_run: bool, yes: bool) -> None:
    """Delete tags whose lifetime is over, with the files that nothing else names."""
    target = call.table(table)
    report = target.expire_tags(dry_run=True, older_than=older_than)
    if report.names and not dry_run:
        confirm(f"Delete {counted(len(report.names), 'tag')}: {', '.join(report.names)}?", yes=yes)
        report = target.expire_tags(older_than=older_than)
    call.out.report(str(report), {"dry_run": report.dry_run, "tags": list(report.names)})


@table_verb("lsm tag due shop.orders --dry-run", name="due", group=tag)
@DRY_RUN
def tag_due(call: Call, *, table: str, dry_run: bool) -> None:
    """Create the tags that 'tag.automatic-creation' asks for and no commit has made yet."""
    report = call.table(table).create_due_tags(dry_run=dry_run)
    facts = {
        "dry_run": dry_run,
        "created": list(report.created),
        "removed": list(report.removed),
    }
    call.out.report(str(report), facts)


# --- branches ------------------------------------------------------------------------------------


@click.group(cls=VerbGroup)
def branch() -> None:
    """Work on branches: create, list, rename, fast-forward, delete.

    A branch is read and written as TABLE@BRANCH: lsm scan shop.orders@fix.
    """


@table_verb(
    "lsm branch create shop.orders fix --tag monday",
    "lsm branch create shop.orders new",
    name="create",
    group=branch,
)
@click.argument("name")
@click.option("--tag", "from_tag", metavar="NAME", help="Begin at this tag.  [default: empty]")
def branch_create(call: Call, *, table: str, name: str, from_tag: str | None) -> None:
    """Make a branch from a tag, or an empty one."""
    created = call.table(table).create_branch(name, from_tag)
    begins = "empty" if from_tag is None else f"at tag {from_tag}"
    call.out.report(f"branch {created.name} begins {begins}", {"branch": name, "tag": from_tag})


@table_verb("lsm branch list shop.orders", name="list", group=branch)
def branch_list(call: Call, *, table: str) -> None:
    """List branches with their newest snapshots."""
    target = call.table(table)
    rows = []
    for name in target.branches():
        latest = target.branch(name).latest_snapshot()
        rows.append(
            {
                "branch": name,
                "snapshot_id": None if latest is None else latest.id,
                "committed": None if latest is None else utc_text(latest.time_millis),
            }
        )
    columns = [
        words("branch"), code("snapshot_id", "newest snapshot"), words("committed", "committed (UTC)"),
    ]  # fmt: skip
    call.out.rows(columns, rows, empty="no branches")


@table_verb("lsm branch rename shop.orders fix repair", name="rename", group=branch)
@click.argument("name")
@click.argument("new_name")
def branch_rename(call: Call, *, table: str, name: str, new_name: str) -> None:
    """Give a branch another name."""
    call.table(table).rename_branch(name, new_name)
    call.out.report(f"branch {name} is called {new_name} now", {"branch": new_name})


@table_verb(
    "lsm branch fast-forward shop.orders fix --dry-run",
    "lsm branch fast-forward shop.orders fix --force --yes",
    name="fast-forward",
    group=branch,
)
@click.argument("name")
@click.option("--force", is_flag=True, help="Drop the table's own commits since the branch began.")
@DRY_RUN
@YES
def branch_fast_forward(
    call: Call, *, table: str, name: str, force: bool, dry_run: bool, yes: bool
) -> None:
    """Put the snapshots of a branch in place of the table's since the branch began."""
    target = call.table(table)
    report = target.fast_forward(name, force=force, dry_run=True)
    if not dry_run and (report.plan.snapshots or report.plan.dropped):
        if not yes:
            call.out.text(str(report))
        confirm(f"Bring {target.name} to where branch {name} is?", yes=yes)
        report = target.fast_forward(name, force=force)
    dropped = report.plan.dropped
    facts = {
        "dry_run": report.dry_run,
        "snapshots": [item.id for item in report.plan.snapshots],
        "tags": [item.name for item in report.plan.tags],
        "dropped": [] if dropped is None else [item.id for item in dropped.snapshots],
    }
    call.out.report(str(report), facts)


@table_verb("lsm branch delete shop.orders fix --yes", name="delete", group=branch)
@click.argument("name")
@YES
def branch_delete(call: Call, *, table: str, name: str, yes: bool) -> None:
    """Delete a branch; 'lsm orphans' deletes the files that only it named."""
    target = call.table(table)
    confirm(f"Delete branch {name} of {target.name}?", yes=yes)
    target.delete_branch(name)
    call.out.report(f"branch {name} is gone", {"deleted": name})


# --- consumers -----------------------------------------------------------------------------------


@click.group(cls=VerbGroup)
def consumer() -> None:
    """List and reset the named readers of changes, which retain unread snapshots."""


@table_verb("lsm consumer list shop.orders", name="list", group=consumer)
def consumer_list(call: Call, *, table: str) -> None:
    """List consumers and the snapshot that each reads next."""
    columns = [words("consumer"), code("next_snapshot_id", "next"), words("moved", "moved (UTC)")]
    rows = [
        {
            "consumer": item.name,
            "next_snapshot_id": item.next_snapshot_id,
            "moved": utc_text(item.modified_millis),
        }
        for item in call.table(table).consumers()
    ]
    call.out.rows(columns, rows, empty="no consumers")


@table_verb(
    "lsm consumer reset shop.orders etl --next 12",
    "lsm consumer reset shop.orders etl",
    name="reset",
    group=consumer,
)
@click.argument("name")
@click.option("--next", "next_id", type=click.IntRange(1), metavar="ID",
              help="The snapshot that it reads next.  [default: forget the consumer]")  # fmt: skip
def consumer_reset(call: Call, *, table: str, name: str, next_id: int | None) -> None:
    """Put a consumer at a snapshot, forwards or back; or forget it."""
    moved = call.table(table).reset_consumer(name, next_id)
    text = (
        f"consumer {name} is forgotten"
        if moved is None
        else f"consumer {name} reads {next_id} next"
    )
    call.out.report(text, {"consumer": name, "next_snapshot_id": next_id})


@table_verb('lsm consumer clear shop.orders --matching "etl-*"', name="clear", group=consumer)
@click.option("--matching", default="*", metavar="PATTERN", help="Forget consumers of such names.",
              show_default=True)  # fmt: skip
@click.option("--besides", default="", metavar="PATTERN", help="But not of such names.")
@YES
def consumer_clear(call: Call, *, table: str, matching: str, besides: str, yes: bool) -> None:
    """Forget consumers by the pattern of their names."""
    target = call.table(table)
    confirm(f"Forget consumers {matching!r} of {target.name}?", yes=yes)
    removed = target.clear_consumers(matching, besides)
    call.out.report(f"forgot {counted(len(removed), 'consumer')}", {"consumers": list(removed)})


# --- commit users --------------------------------------------------------------------------------


@click.group(name="commit-user", cls=VerbGroup)
def commit_user() -> None:
    """Show or set the last commit identifier of a commit user, by which replays are recognised."""


@table_verb("lsm commit-user show shop.turnover turnover-feed", name="show", group=commit_user)
@click.argument("name")
def commit_user_show(call: Call, *, table: str, name: str) -> None:
    """Print the last commit identifier of a user."""
    last = call.table(table).last_commit_identifier(name)
    text = f"{name} has committed under no number" if last is None else f"{name}: {last}"
    call.out.report(text, {"commit_user": name, "commit_identifier": last})


@table_verb(
    "lsm commit-user set shop.turnover turnover-feed 12",
    "lsm commit-user set shop.turnover turnover-feed 0 --others-are-new",
    name="set",
    group=commit_user,
)
@click.argument("name")
@click.argument("number", type=int)
@click.option("--others-are-new", is_flag=True,
              help="Treat unknown users as new: they have not committed.")  # fmt: skip
def commit_user_set(
    call: Call, *, table: str, name: str, number: int, others_are_new: bool
) -> None:
    """Set the last identifier whose rows are in the table, by an empty commit.

    Greater numbers are applied from then on, and the others are not.
    """
    result = call.table(table).set_commit_identifier(name, number, others_are_new=others_are_new)
    facts = {"commit_user": name, "commit_identifier": number, "snapshot_id": result.id}
    call.out.report(f"the last number of {name} is {number}: snapshot {result.id}", facts)
