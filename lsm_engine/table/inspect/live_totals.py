"""Totals of the live files of many tables; their manifests are decoded in one pass."""

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import LsmError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.named_manifests import lists_to_fetch
from lsm_engine.store.manifests_together import joined_entries, keep_lists
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, KIND, LEVEL, PARTITION, ROW_COUNT
from lsm_engine.table.ground.session import TableSession

_SIZE = "_FILE._FILE_SIZE"
_OWNER = "owner"
_IDENTITY = [_OWNER, PARTITION, BUCKET, LEVEL, FILE_NAME]
_COLUMNS = frozenset({KIND, PARTITION, BUCKET, LEVEL, FILE_NAME, ROW_COUNT, _SIZE})

Newest = Mapping[str, tuple[TableSession, Snapshot]]
"""Tables and their newest snapshots, by name."""


@record
class LiveTotals:
    """Of a snapshot's live files: rows before merging, bytes, and how many files."""

    rows: int
    size_bytes: int
    files: int


def keep_newest_lists(tables: Newest) -> None:
    """Have the manifest lists of newest snapshots read and kept, for `manifest_metas` to return."""
    keep_lists(
        (session.manifests, list_name, newest.checksum_of(list_name))
        for session, newest in tables.values()
        for list_name in lists_to_fetch(newest)
    )


def live_totals(tables: Newest) -> dict[str, LiveTotals]:
    """Return the totals of newest snapshots, by the name of their table.

    Those are left out that have to be looked at one by one: with large or damaged manifests, and tables
    that take partitions from a fallback branch.
    """
    keep_newest_lists(tables)
    manifests, owners, lacking = [], [], {}
    for owner, (session, snapshot) in enumerate(tables.values()):
        if session.options[core_options.SCAN_FALLBACK_BRANCH] is not None:
            continue
        with suppress(LsmError):
            metas = session.manifest_metas(snapshot)
            manifests += [(session.manifests, meta) for meta in metas]
            owners += [owner] * len(metas)
            lacking[owner] = len(metas)
    of_manifest = np.array(owners, np.int64)
    joined = []
    for entries, of_entry, places in joined_entries(manifests, _COLUMNS):
        joined.append(entries.append_column(_OWNER, pa.array(of_manifest[of_entry])))
        for place in places:
            lacking[owners[place]] -= 1
    sums = _sums(pa.concat_tables(joined), len(tables)) if joined else [(0, 0, 0)] * len(tables)
    return {
        name: LiveTotals(rows=rows, size_bytes=size, files=files)
        for owner, (name, (rows, size, files)) in enumerate(zip(tables, sums, strict=True))
        if lacking.get(owner) == 0
    }


def _sums(entries: pa.Table, count: int) -> list[tuple[int, int, int]]:
    """Return rows, bytes and number of the files of each owner that were added and not deleted."""
    kinds = entries.column(KIND)
    live = entries.filter(pc.not_equal(kinds, EntryKind.DELETE.value))
    deleted = entries.filter(pc.equal(kinds, EntryKind.DELETE.value))
    if deleted.num_rows:
        live = live.join(deleted.select(_IDENTITY), _IDENTITY, join_type="left anti")
    owners = live.column(_OWNER).to_numpy()

    def summed(values: Longs | None) -> list[int]:
        return [int(value) for value in np.bincount(owners, values, minlength=count)]

    rows, sizes = (summed(live.column(name).to_numpy()) for name in (ROW_COUNT, _SIZE))
    return list(zip(rows, sizes, summed(None), strict=True))
