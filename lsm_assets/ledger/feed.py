"""Feed a table from another one's changes: each change once, whatever dies, and expiry waits for the feed.

How far a feed has come is a property of the commit that carried the changes over, so that both are there or
neither is. A consumer of the upstream table keeps its expiry away from what has not been carried over.
"""

from collections.abc import Callable, Mapping, Sequence

import dagster as dg
import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.ledger.commits import NOTHING, is_taken_back
from lsm_assets.model.keys import TableKeys, keys_of
from lsm_assets.model.pins import Pin
from lsm_assets.model.versions import TableVersion, parse_version, version_of
from lsm_assets.resources import LsmResource
from lsm_engine import record

FED = "lsm.fed."
"""With the name of an upstream table: the snapshot property that says up to where it was read."""


@record
class Changes:
    """Changes of an upstream table in (`after`, `upto`]: `rows` with `_row_kind` and the columns asked for.

    Commit what is made of them with these `properties`, all of it in one commit, then call
    `acknowledge`.
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

    The upstream table needs a `changelog-producer`; what its dedicated compaction has not told yet comes
    with the next call. The lineage of the commit names the changes as its input. Raises dagster.Failure,
    with what to do, where changes that were carried over have been rolled back upstream.
    """
    resource: LsmResource = context.resources.lsm
    upstream = resource.catalog.table(keys_of(key).name)
    newest, fed = upstream.latest_snapshot(), fed_upto(table, upstream.name)
    if is_taken_back(upstream, resource.catalog.lineage, fed):
        raise dg.Failure(
            f"{table.name} was fed from {upstream.name} up to snapshot {fed.snapshot_id}, which is no "
            f"longer part of it: roll {table.name} back to before that, or drop it, then run this again",
            allow_retries=False,
        )
    if newest is None or newest.id <= fed.snapshot_id:
        return None
    names = None if columns is None else ["_row_kind", *columns]
    rows = upstream.changelog(after=fed.snapshot_id, upto=newest.id, columns=names)
    if not rows.num_rows:
        return None
    step = context.get_step_execution_context().step.key
    resource.pins[step, key] = Pin(snapshot_id=newest.id, after=fed.snapshot_id)
    consumer, upto = TableKeys(name=table.name).identifier, newest.id
    return Changes(
        rows=rows,
        after=fed.snapshot_id,
        upto=upto,
        properties={FED + upstream.name: version_of(newest).text},
        acknowledge=lambda: _move(upstream, consumer, upto),
    )


def fed_upto(table: lsm.Table, upstream: str) -> TableVersion:
    """Return up to which version of an upstream table the commits of a table have carried it over."""
    for snapshot in table.newest_snapshots():
        found = parse_version((snapshot.properties or {}).get(FED + upstream, ""))
        if found is not None:
            return found
    return NOTHING


def _move(upstream: lsm.Table, consumer: str, upto: int) -> None:
    upstream.reset_consumer(consumer, upto + 1)
