"""Read changes: what snapshots did, row by row, now or as it comes."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
import pyarrow as pa

from lsm_engine import (
    ChangeMode,
    CommitConflictError,
    ExpiredError,
    Follower,
    InvalidInputError,
    StartMode,
    Table,
    millis_of,
)
from lsm_engine.cli.call import COLUMNS, ROWS, WHERE, Call, split_names
from lsm_engine.cli.commands.read import first_rows
from lsm_engine.cli.output import columns_of, counted
from lsm_engine.cli.progress import writing
from lsm_engine.cli.verb import table_verb

_MODES = [mode.value for mode in ChangeMode]
_STARTS = [start.value for start in StartMode]


@table_verb(
    "lsm changelog shop.orders",
    "lsm changelog shop.orders --after 12 --upto 15",
    "lsm changelog shop.orders --after monday --mode diff",
    "lsm changelog shop.orders --where \"_row_kind = '-D'\" --json",
    "lsm changelog shop.orders --follow latest --consumer etl --json",
)
@click.option(
    "--after", metavar="POINT", help="After this snapshot, tag or time.  [default: all retained]"
)
@click.option(
    "--upto", metavar="POINT", help="Up to and including this one.  [default: the newest]"
)
@click.option("--mode", type=click.Choice(_MODES), default="auto", show_default=True,
              help="Read the changelog, new rows, or the difference of two states.")  # fmt: skip
@COLUMNS
@WHERE
@ROWS
@click.option("--follow", "start", type=click.Choice(_STARTS),
              help="Wait for new changes, beginning here.")  # fmt: skip
@click.option(
    "--from", "begin", metavar="POINT", help="The snapshot or time that --follow begins at."
)
@click.option("--consumer", metavar="NAME", help="Go on where the reader of this name stopped.")
def changelog(
    call: Call,
    /,
    *,
    table: str,
    after: str | None,
    upto: str | None,
    mode: str,
    columns: str | None,
    where: str | None,
    limit: int | None,
    start: str | None,
    begin: str | None,
    consumer: str | None,
) -> None:
    """Print changes, oldest first: _snapshot_id, _row_kind (+I, -U, +U, -D) and the row.

    A POINT is the id of a snapshot, the name of a tag, or a time such as '2024-05-01 08:00:00'.
    """
    target = call.table(table)
    chosen: dict[str, Any] = {
        "mode": mode,
        "columns": split_names(columns) or None,
        "where": where,
    }
    batches: Iterator[pa.RecordBatch]
    if start is not None:
        if not call.as_json:
            raise InvalidInputError("rows are printed as they come: add --json to --follow")
        if after is not None:
            raise InvalidInputError("--follow begins at --from, not after --after", after=after)
        follower = _follower(target, start, begin, upto, consumer, chosen)
        schema = target.changes(0, 0, **chosen).schema
        batches = (batch for item in follower for batch in item.to_batches())
    else:
        if consumer is not None:
            raise InvalidInputError(
                "a consumer follows: add --follow latest-full, or another start"
            )
        changes = target.changes(**_point("after", after), **_point("upto", upto), **chosen)
        schema, batches = changes.schema, changes.to_batches()
    default = None if start is not None else call.rows_shown
    rows_max = default if limit is None else limit or None
    cut_marks: list[bool] = []
    call.out.rows(columns_of(schema), first_rows(batches, rows_max, cut_marks), empty="no changes")
    if cut_marks and limit is None:
        call.out.note(f"the first {rows_max} rows; there are more: --limit 0 shows all")


def _follower(
    table: Table,
    start: str,
    begin: str | None,
    upto: str | None,
    consumer: str | None,
    chosen: dict[str, Any],
) -> Follower:
    point = _point("at", begin)
    last = _point("upto", upto).get("upto")
    if upto is not None and not isinstance(last, int):
        raise InvalidInputError("following ends at the id of a snapshot", upto=upto)
    return table.follow(
        start,
        snapshot_id=point.get("at"),
        timestamp_millis=point.get("at_millis"),
        consumer_id=consumer,
        upto=last,
        **chosen,
    )


def _point(name: str, text: str | None) -> dict[str, Any]:
    """Return a point as an argument of `Table.changes`: an id, a tag, or a time."""
    if text is None:
        return {}
    # Digits are a snapshot id, never a tag.
    if text.isdigit():
        return {name: int(text)}
    try:
        return {f"{name}_millis": millis_of(text)}
    except InvalidInputError:
        return {name: text}


@table_verb(
    "lsm feed shop.turnover shop.orders --consumer turnover --columns customer,price",
    "lsm feed shop.large shop.orders --consumer large --where 'price > 100'",
)
@click.argument("source")
@click.option("--consumer", metavar="NAME", required=True,
              help="The reader of SOURCE, and the commit user of TABLE.")  # fmt: skip
@COLUMNS
@WHERE
def feed(
    call: Call, *, table: str, source: str, consumer: str, columns: str | None, **filters: Any
) -> None:
    """Upsert the changes of SOURCE that are new into TABLE, each once: all rows at the first call.

    SOURCE keeps which of its snapshots comes next. Each is one commit of TABLE under its number, so a
    call that died does no harm: call again. After a rollback of TABLE its changes are read again. After one of SOURCE
    below what TABLE has, nothing is fed until TABLE is rolled back, too. --where looks at each change, the
    old values of -U included.
    """
    target, origin = call.table(table), call.table(source)
    last = target.last_commit_identifier(consumer)
    _rewind(origin, target, consumer, last)
    names = split_names(columns) or tuple(origin.schema.names)
    follower = origin.follow(
        # A first call may have died between its commit and the consumer's first move.
        after=last,
        consumer_id=consumer,
        columns=("_row_kind", *names),
        **filters,
        poll_millis=None,
    )
    snapshot_ids = []
    with writing(target, "feed", [origin.location]) as identity:
        for item in follower:
            properties = {**identity["properties"], _FED: item.snapshot.delta_manifest_list}
            # A rollback of TABLE between two commits would leave out the changes that it took.
            number = {"commit_identifier": item.snapshot_id, "after_identifier": last}
            own = {"commit_user": consumer, "properties": properties, **number}
            if target.upsert(item, **(identity | own)) is not None:
                last = item.snapshot_id
                snapshot_ids.append(last)
    facts = {"table": target.name, "source": origin.name, "consumer": consumer, "fed": snapshot_ids}
    call.out.report(
        f"changes of {counted(len(snapshot_ids), 'snapshot')} of {origin.name} are in {target.name}",
        facts,
    )


_FED = "lsm.feed-snapshot"
"""Property of a commit of a feed: the delta manifest list of the snapshot of SOURCE that it holds the changes of."""


def _rewind(origin: Table, target: Table, consumer: str, last: int | None) -> None:
    """Let the consumer go on behind `last`, what TABLE has; refuse where a rollback has taken that from SOURCE."""
    if last is None:
        return
    ids = origin.snapshot_ids()
    commit = next(
        (
            snapshot
            for snapshot in target.newest_snapshots()
            if (snapshot.commit_user, snapshot.commit_identifier) == (consumer, last)
        ),
        None,
    )
    fed = None if commit is None else (commit.properties or {}).get(_FED)
    stored = None
    if fed and last in ids:
        with suppress(ExpiredError):  # an expiry has taken it since: it is compared no more
            stored = origin.snapshot(last).delta_manifest_list
    positions = {reader.name: reader.next_snapshot_id for reader in origin.consumers.list()}
    position = positions.get(consumer)
    # A consumer stands behind what was read, or at it where a call died; a rollback moves it back.
    is_behind = position is not None and position < last
    is_another = stored is not None and stored != fed
    if is_behind or is_another or not ids or ids[-1] < last:
        raise CommitConflictError(
            f"{origin.name} was rolled back below snapshot {last}, whose changes are in {target.name}; nothing was fed. Roll "
            f"{target.name} back to before its commit of that, or feed another table under another consumer",
            table=target.name,
            source=origin.name,
            snapshot_id=last,
        )
    # TABLE was rolled back, or what came since has no changes: both are read again as far as they are retained.
    if position is not None and position > last + 1 >= ids[0]:
        origin.consumers.reset(consumer, last + 1)
