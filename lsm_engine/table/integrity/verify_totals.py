"""Verify that a state can be read, and that snapshots follow each other: no gaps, totals that add up."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from lsm_engine.base.units import counted
from lsm_engine.io.paths import TablePaths
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import adds_up, follows
from lsm_engine.plan.named_manifests import copied_lists
from lsm_engine.table.ground.live_files import live_rows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Finding, Root

MISCOUNTED = "totalRecordCount is"


def live_of(session: TableSession, snapshot: Snapshot) -> pa.Table | None:
    """Return the live files of a root; manifest lists that readers take a copy of have to be there, too."""
    copied = copied_lists(snapshot)
    session.manifests.expect(copied)
    for name in copied:
        session.manifests.content(name, snapshot.checksum_of(name))
    return live_rows(session.manifests, session.manifest_metas(snapshot))


def wrong_total(snapshot: Snapshot, rows: int, manifest_list: str) -> Iterator[Finding]:
    """Yield that a snapshot counts other rows than its files have, if it does. `manifest_list`: its path."""
    total = snapshot.total_record_count
    if total is not None and rows != total:
        text = f"{MISCOUNTED} {total}, its files hold {counted(rows, 'row')}"
        yield Finding(text=text, path=manifest_list)


def wrong_between(
    snapshots: Sequence[Snapshot], listed_ids: frozenset[int], paths: TablePaths
) -> Iterator[tuple[Root, Sequence[Finding]]]:
    """Yield gaps between snapshots, those not made on the one before, and totals that are not its plus the delta.

    `there`: ids of snapshots that are there, damaged ones among them.
    """
    for older, newer in pairwise(snapshots):
        if newer.id != older.id + 1:
            for number in sorted(set(range(older.id + 1, newer.id)) - listed_ids):
                path = paths.snapshot_file(number)
                finding = Finding(text=f"{path} is missing", path=path)
                yield Root(kind="snapshot", name=number), [finding]
        elif not follows(newer, older):
            text = (
                f"it was not made on the snapshot {older.id} that is there: the file of one of the two is that of "
                "another branch, or of before a rollback; restore it"
            )
            finding = Finding(text=text, path=paths.snapshot_file(newer.id))
            yield Root(kind="snapshot", name=newer.id), [finding]
        elif adds_up(newer, older) is False:
            text = (
                f"{MISCOUNTED} {newer.total_record_count}, "
                f"not {older.total_record_count} + {newer.delta_record_count}"
            )
            finding = Finding(text=text, path=paths.manifest(newer.base_manifest_list))
            yield Root(kind="snapshot", name=newer.id), [finding]
