"""Forget a key: show where it is kept, take it out of all of that, and prove it."""

from collections.abc import Sequence
from typing import Any

import click

from lsm_engine import ForgetReport
from lsm_engine.cli.call import YES, Call, read_options
from lsm_engine.cli.commands.keys import KEY_OPTION, keys_given
from lsm_engine.cli.exit_codes import REFUSED
from lsm_engine.cli.output import counted
from lsm_engine.cli.verb import confirm, table_verb


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
