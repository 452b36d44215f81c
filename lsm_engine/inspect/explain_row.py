"""Explain a row: the commits that are in it, with their runs, and the input snapshots they read."""

from collections.abc import Mapping
from typing import Any

from lsm_engine.base.record import record
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.catalog.lineage.queries import Origin
from lsm_engine.catalog.names import TableName
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.inspect.explain import explain_key
from lsm_engine.planning.history import KeyExplanation
from lsm_engine.table.session import TableSession


@record
class RowOrigin:
    """One row: its versions (`explanation`), and where those that count came from (`origin`)."""

    explanation: KeyExplanation
    origin: Origin


def row_origin(
    session: TableSession,
    snapshot: Snapshot | None,
    key: Mapping[str, Any],
    lineage: Lineage,
    table: TableName,
) -> RowOrigin:
    """Return which runs and input snapshots a row is made of, in a snapshot.

    A version counts if it gave the row a value. Commits that have expired are known from the
    lineage; a version of which even that knows nothing has no commit.
    """
    explanation = explain_key(session, snapshot, key)
    commits = set()
    for version in explanation.versions.to_pylist():
        if not version["_gives"]:
            continue
        writer = version["_snapshot_id"]
        if writer is None:
            writer = _remembered(lineage, table, version)
        if writer is not None:
            commits.add(writer)
    return RowOrigin(explanation=explanation, origin=lineage.origin_of_commits(table, commits))


def _remembered(lineage: Lineage, table: TableName, version: Mapping[str, Any]) -> int | None:
    sequence = [version["_sequence_number"]]
    return lineage.writers_of(table, version["_partition"], version["_bucket"], sequence)[0]
