"""Verify that snapshots follow each other: ids without gaps, and totals that add up."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import adds_up
from lsm_engine.table.integrity.findings import Finding


def wrong_total(snapshot: Snapshot, rows: int) -> Iterator[Finding]:
    """Yield that a snapshot counts other rows than its files have, if it does."""
    total = snapshot.total_record_count
    if total is not None and rows != total:
        yield Finding(text=f"totalRecordCount is {total}, its files hold {rows} rows")


def wrong_between(snapshots: Sequence[Snapshot], there: frozenset[int]) -> Iterator[str]:
    """Yield gaps between snapshots, and totals that are not the one before plus the delta.

    `there`: ids of snapshots that are there, damaged ones among them.
    """
    for older, newer in pairwise(snapshots):
        if newer.id != older.id + 1:
            if there.issuperset(range(older.id, newer.id)):
                continue
            yield f"snapshots {older.id + 1} to {newer.id - 1} are missing"
            continue
        if adds_up(newer, older) is False:
            yield (
                f"snapshot {newer.id}: totalRecordCount is {newer.total_record_count}, "
                f"not {older.total_record_count} + {newer.delta_record_count}"
            )
