"""Verify manifest lists without a checksum, which other clients write, by their snapshots."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from lsm_engine.base.errors import LsmError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.units import counted
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Finding, finding_of
from lsm_engine.table.integrity.verify_levels import identities_of, identity_of

EXCHANGED = "it is not the manifest list of its snapshot"


def entries_in(session: TableSession, snapshot: Snapshot, name: str) -> Sequence[ManifestEntry]:
    """Return what the manifests of one list of a snapshot add and delete."""
    metas = session.manifest_list(snapshot, name)
    return [entry for meta in metas for entry in session.manifests.read_entries(meta)]


def wrong_rows(
    path: str, entries: Iterable[ManifestEntry], expected: int | None
) -> Iterator[Finding]:
    """Yield that the entries of a list add other rows than its snapshot counts, where that is known."""
    signed = ((entry.kind is EntryKind.ADD, entry.file.row_count) for entry in entries)
    rows = sum(count if is_added else -count for is_added, count in signed)
    if expected is not None and rows != expected:
        text = f"{EXCHANGED}: it adds {counted(rows, 'row')}, and not {expected}"
        yield Finding(text=text, path=path)


class ListVerification:
    """Lists are those that their snapshot was made with: by their sizes, rows, and the snapshot below.

    Lists that were exchanged, with each other or with those of another snapshot, may hold as many files
    and rows together as before.
    """

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._below: tuple[int, pa.Table] | None = None

    def problems(self, snapshot: Snapshot, live: pa.Table, *, in_line: bool) -> Iterator[Finding]:
        """Yield what is wrong with the lists of a root, whose `live` files these are.

        `in_line`: it is a snapshot of the table, and no tag; these come in the order of their ids.
        """
        below, self._below = self._below, (snapshot.id, live) if in_line else None
        lists = (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        )
        if all(snapshot.checksum_of(name) is not None for name, _ in lists):
            return
        try:
            for name, size in lists:
                path = self._session.paths.manifest(name)
                stored_size = self._session.file_io.status(path).size
                if size is not None and stored_size != size:
                    yield Finding(text=f"{EXCHANGED}: {stored_size} bytes, not {size}", path=path)
            follows = below[1] if in_line and below and below[0] == snapshot.id - 1 else None
            yield from self._wrong_delta(snapshot, follows, live)
        except LsmError as error:
            yield finding_of(error)

    def _wrong_delta(
        self, snapshot: Snapshot, below: pa.Table | None, live: pa.Table
    ) -> Iterator[Finding]:
        path = self._session.paths.manifest(snapshot.delta_manifest_list)
        entries = entries_in(self._session, snapshot, snapshot.delta_manifest_list)
        miscounted = list(wrong_rows(path, entries, snapshot.delta_record_count))
        yield from miscounted
        if below is None or miscounted:
            return
        files = set(identities_of(below))
        files -= {identity_of(entry) for entry in entries if entry.kind is not EntryKind.ADD}
        files |= {identity_of(entry) for entry in entries if entry.kind is EntryKind.ADD}
        if files != set(identities_of(live)):
            text = (
                f"{EXCHANGED}, or the other one is not: it does not lead there from the one below"
            )
            yield Finding(text=text, path=path)
