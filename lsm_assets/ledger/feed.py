"""Feed a table from another one's changes: each change once, whatever dies, and expiry waits for the feed.

How far a feed has come is a property of the commit that carried the changes over, so that both are there or
neither is. A consumer of the upstream table keeps its expiry away from what has not been carried over.
"""

import json
from collections.abc import Callable, Mapping, Sequence

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_assets.ledger.commits import NOTHING, is_taken_back
from lsm_assets.model.keys import AssetKind, TableKeys, keys_of
from lsm_assets.model.pins import Pin
from lsm_assets.model.versions import TableVersion, parse_version, version_of
from lsm_assets.resources import LsmResource
from lsm_engine import (
    ExpiredError,
    Lineage,
    NotFoundError,
    Snapshot,
    TableName,
    core_options,
    record,
)

FED = "lsm.fed."
"""With the name of an upstream table: the snapshot property that says up to where it was read."""

_PAGE = 1_000
"""Commits that the lineage is asked for at a time."""


@record
class Changes:
    """Changes of an upstream table in (`after`, `upto`]: `rows` with `_row_kind` and the columns asked for.

    Commit what is made of them with these `properties`, all of it in one commit, then call
    `acknowledge`: it lets the upstream table expire what the commits of the table have carried over.
    Rows of which nothing is made, so that there is no commit, come again with the next call.
    """

    rows: pa.Table
    after: int
    upto: int
    properties: Mapping[str, str]
    acknowledge: Callable[[], None]


def changes_to_feed(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    table: lsm.Table,
    columns: Sequence[str] | None = None,
) -> Changes | None:
    """Return what changed in an upstream table since `table` was last fed from it; None: nothing.

    The upstream table needs a `changelog-producer`. Where its first changes have expired, a table that
    was never fed gets the rows that are there instead, each as a +I. The lineage of the commit names
    the changes as its input. Raises dagster.Failure, with what to do, where changes that were carried
    over have been rolled back upstream, where it is not known any more what was carried over, and
    where there is nothing to carry over until a compaction of the upstream table tells its changes.
    """
    resource: LsmResource = context.resources.lsm
    upstream, lineage = resource.catalog.table(keys_of(key).name), resource.catalog.lineage
    newest, fed = upstream.latest_snapshot(), fed_upto(table, upstream.name, lineage)
    if is_taken_back(upstream, lineage, fed):
        raise dg.Failure(
            f"{table.name} was fed from {upstream.name} up to snapshot {fed.snapshot_id}, which is no "
            f"longer part of it: roll {table.name} back to before that, or drop it, then run this again",
            allow_retries=False,
        )
    if newest is None:
        return None
    upto, rows = _rows_after(upstream, fed, newest, columns)
    if rows is None or not rows.num_rows:
        if _awaits_compaction(upstream, newest):
            raise dg.Failure(_waiting(upstream))
        return None
    step = context.get_step_execution_context().step.key
    resource.pins[step, key] = Pin(snapshot_id=upto.id, after=fed.snapshot_id)
    return Changes(
        rows=rows,
        after=fed.snapshot_id,
        upto=upto.id,
        properties={FED + upstream.name: version_of(upto).text},
        acknowledge=lambda: _acknowledge(table, upstream, lineage),
    )


def fed_upto(table: lsm.Table, upstream: str, lineage: Lineage) -> TableVersion:
    """Return up to which version of an upstream table the commits of a table have carried it over.

    Expired commits count as well, as the lineage has them; NOTHING if none of all carried any over.
    Raises dagster.Failure where commits have expired of which the lineage knows nothing.
    """
    oldest = 1
    for snapshot in table.newest_snapshots():
        found = parse_version((snapshot.properties or {}).get(FED + upstream, ""))
        if found is not None:
            return found
        oldest = snapshot.id
    expired = _fed_by_expired(TableName.parse(table.name), upstream, lineage, oldest - 1)
    if expired is None:
        raise dg.Failure(
            f"how far {table.name} was fed from {upstream} is not known any more, as commits of it have "
            "expired that the catalog's lineage has no record of: drop it, or roll it back to a commit "
            "that tells, then run this again",
            allow_retries=False,
        )
    return expired


def _fed_by_expired(
    table: TableName, upstream: str, lineage: Lineage, newest: int
) -> TableVersion | None:
    """Return what commits up to `newest` carried over; None if one that may tell is not recorded."""
    while newest > 0:
        try:
            page = lineage.snapshots(table, upto=newest, limit=_PAGE)
        except NotFoundError:
            return None
        ids = page["snapshot_id"].to_numpy()
        without_gap = int((ids == newest - np.arange(len(ids))).cumprod().sum())
        page = page.slice(0, without_gap)
        marked = page.filter(pc.match_substring(page["properties"], FED))
        for text in marked["properties"].to_pylist():
            found = parse_version(json.loads(text).get(FED + upstream, ""))
            if found is not None:
                return found
        if not without_gap:
            return None
        newest -= without_gap
    return NOTHING


def _rows_after(
    upstream: lsm.Table, fed: TableVersion, newest: Snapshot, columns: Sequence[str] | None
) -> tuple[Snapshot, pa.Table | None]:
    """Return what was not carried over yet, and up to where that goes; None: no commit is."""
    if newest.id <= fed.snapshot_id:
        return newest, None
    names = None if columns is None else ["_row_kind", *columns]
    try:
        return newest, upstream.changelog(after=fed.snapshot_id, upto=newest.id, columns=names)
    except ExpiredError:
        if fed != NOTHING:
            raise
    # Changes that wait for a compaction are told after it: a state with them would count them twice.
    for at in upstream.newest_snapshots():
        if not _awaits_compaction(upstream, at):
            rows = upstream.scan(snapshot_id=at.id, columns=columns).to_arrow()
            kinds = pa.repeat(pa.scalar("+I"), rows.num_rows)
            return at, rows.add_column(0, "_row_kind", kinds)
    raise dg.Failure(_waiting(upstream))


def _awaits_compaction(upstream: lsm.Table, at: Snapshot) -> bool:
    """Whether there are rows at a snapshot that only a later compaction tells as changes."""
    match upstream.options[core_options.CHANGELOG_PRODUCER].value:
        case "lookup":
            told = 1
        case "full-compaction":
            told = upstream.options.level_count - 1
        case _:
            return False
    return any(run.level < told for bucket in upstream.tree(at) for run in bucket.runs)


def _waiting(upstream: lsm.Table) -> str:
    asset = TableKeys(name=upstream.name).asset(AssetKind.COMPACTION).to_user_string()
    return (
        f"what changed in {upstream.name} waits for a compaction, which tells it "
        f"(changelog-producer): materialise {asset} with full: true, then run this again"
    )


def _acknowledge(table: lsm.Table, upstream: lsm.Table, lineage: Lineage) -> None:
    """Put the consumer behind what was really carried over: of zero rows there is no commit."""
    fed = fed_upto(table, upstream.name, lineage)
    if fed != NOTHING:
        consumer = TableKeys(name=table.name).identifier
        upstream.reset_consumer(consumer, fed.snapshot_id + 1)
