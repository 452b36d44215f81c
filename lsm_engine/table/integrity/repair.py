"""Repair operations: each returns its plan, and acts only with `dry_run=False`."""

from collections.abc import Callable, Sequence
from functools import partial

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.modes import CommitKind
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.io.paths import EARLIEST, LATEST
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import adds_up, follows
from lsm_engine.plan.proposal import CommitIdentity, LiveChange, Proposal, overwriting
from lsm_engine.plan.retention import NO_LIMIT, Retention
from lsm_engine.plan.tags import without_changelog
from lsm_engine.store.listing import stable_listing
from lsm_engine.store.trash import TrashStore
from lsm_engine.store.verified_files import VerifiedFileStore
from lsm_engine.table.commit.commit import propose
from lsm_engine.table.ground.components import Removal
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history import expire, expire_changelogs
from lsm_engine.table.integrity.newest import (
    found_readable,
    is_readable,
    lost_newest,
    newest_tagged,
    stands,
)
from lsm_engine.table.integrity.stakes import FileStake, stake_of
from lsm_engine.table.integrity.verify import verify
from lsm_engine.table.tags import branch, tag


@record
class RepairReport:
    """What a repair did, or with `dry_run` would do. `found` are the things it is about, by name.

    `lost`: what the files held that are given up, as the manifests know it. Rows are stored versions: of
    a key that other files hold too, these remain, and an older version may show again. `back_to`: the snapshot that
    is the newest then.
    """

    what: str
    found: tuple[str, ...]
    dry_run: bool
    snapshot: Snapshot | None = None
    lost: tuple[FileStake, ...] = ()
    back_to: str | None = None

    def __str__(self) -> str:
        if not self.found:
            return f"{self.what}: nothing to take care of"
        would = "would be " if self.dry_run else ""
        text = f"{self.what}: {len(self.found)} {would}taken care of"
        text += "" if self.back_to is None else f"; {self.back_to} {would or 'is '}the newest"
        if not self.lost:
            return text
        places = {(str(stake.partition), stake.bucket) for stake in self.lost}
        lost = counted(self.lost_row_count, "row")
        return f"{text}; {lost} of {counted(len(places), 'bucket')} are lost"

    @property
    def lost_row_count(self) -> int:
        """How many stored rows are lost with the files."""
        return sum(stake.row_count for stake in self.lost)


def remove_unexisting_files(
    session: TableSession, identity: CommitIdentity, *, dry_run: bool
) -> RepairReport:
    """Remove entries of missing data files from the newest state, so that the rest can be read.

    A file counts as missing only if the storage reports so twice: it is not there, and its
    directory, listed until two answers agree, does not have it.
    """
    session.options.require_writable()
    base = session.snapshots.latest()
    lost = [] if base is None else _lost(session, base)
    names = {entry.identity for entry in lost}

    def missing(on: Snapshot | None) -> Sequence[ManifestEntry]:
        return [] if on is None else [e for e in _lost(session, on) if e.identity in names]

    return _given_up(session, identity, "missing files", lost, missing, dry_run=dry_run)


def remove_damaged_files(
    session: TableSession, identity: CommitIdentity, *, dry_run: bool
) -> RepairReport:
    """Let go of data files of the newest state that are missing, or that deep verification finds damaged.

    `restore_files` gives back what it can; this is for what is left. Older snapshots and tags keep
    naming the files.
    """
    session.options.require_writable()
    base = session.snapshots.latest()
    files = () if base is None else verify(session, snapshot_id=base.id, deep=True).damaged_files
    bad = {file.path for file in files if file.stake is not None}

    def damaged(on: Snapshot | None) -> list[ManifestEntry]:
        live = [] if on is None else session.live_entries(on)
        return [entry for entry in live if session.data_path(entry) in bad]

    return _given_up(session, identity, "damaged files", damaged(base), damaged, dry_run=dry_run)


def _given_up(
    session: TableSession,
    identity: CommitIdentity,
    label: str,
    lost: Sequence[ManifestEntry],
    choose: Callable[[Snapshot | None], Sequence[ManifestEntry]],
    *,
    dry_run: bool,
) -> RepairReport:
    """Take files out of the newest state, as `choose` then finds them, and report what they held."""
    stakes = tuple(stake_of(entry, session.schema, session.data_path(entry)) for entry in lost)
    committed = propose(session, _taking(identity, choose)) if lost and not dry_run else None
    paths = tuple(stake.path for stake in stakes)
    return RepairReport(what=label, found=paths, dry_run=dry_run, snapshot=committed, lost=stakes)


def _taking(
    identity: CommitIdentity, choose: Callable[[Snapshot | None], Sequence[ManifestEntry]]
) -> Proposal:
    return Proposal(identity=identity, kind=CommitKind.OVERWRITE, choose=overwriting(choose))


def _lost(session: TableSession, snapshot: Snapshot) -> list[ManifestEntry]:
    """Return the live entries whose files do not exist; any doubt raises."""
    listed: dict[str, set[str]] = {}
    lost = []
    for entry in session.live_entries(snapshot):
        path = session.data_path(entry)
        if session.file_io.exists(path):
            continue
        directory = path.rpartition("/")[0]
        if directory not in listed:
            listed[directory] = {
                status.path for status in stable_listing(session.file_io, directory)
            }
        if path not in listed[directory] and not session.file_io.exists(path):
            lost.append(entry)
    return lost


def compact_manifest(
    session: TableSession, identity: CommitIdentity, *, dry_run: bool
) -> RepairReport:
    """Write the manifests of the newest state anew, without entries of missing files, and count its rows anew."""
    session.options.require_writable()
    base = session.snapshots.latest()
    metas = [] if base is None else session.manifest_metas(base)
    stale = sum(meta.deleted_file_count for meta in metas)
    names = tuple(meta.file_name for meta in metas)
    committed = None

    def anew(on: Snapshot | None) -> LiveChange:
        live = [] if on is None else session.live_entries(on)
        return LiveChange(
            rewrites_manifests=True, base_record_count=sum(entry.file.row_count for entry in live)
        )

    def is_miscounted(on: Snapshot) -> bool:
        below = found_readable(session, on.id - 1)
        return (below is not None and adds_up(on, below) is False) or (
            on.total_record_count not in (None, anew(on).base_record_count)
        )

    if base is not None and not dry_run and (stale or len(metas) > 1 or is_miscounted(base)):
        committed = propose(
            session, Proposal(identity=identity, kind=CommitKind.COMPACT, choose=anew)
        )
    return RepairReport(what="manifests", found=names, dry_run=dry_run, snapshot=committed)


def repair_earliest_snapshot(session: TableSession, *, dry_run: bool) -> RepairReport:
    """Find the oldest snapshot from which on all are whole; the files of broken ones below it go.

    EARLIEST names it then, also where it named a newer one: nobody may be expiring. Data is not touched, and of the
    newest snapshot only manifests have to be whole: files of rows are taken out of it by `remove_damaged_files`.
    Raises CorruptFileError if they are not: go back to a snapshot that is whole.
    """
    session.options.require_writable()
    ids = session.snapshots.listed_ids()
    snapshots, ghosts = session.snapshots.stable_listing_with_ghosts(
        partial(found_readable, session)
    )
    by_id, left_out = {item.id: item for item in snapshots}, {item.id for item in ghosts}
    oldest_whole: int | None = None
    for number in reversed([number for number in ids if number not in left_out]):
        if number not in by_id or (oldest_whole is not None and number != oldest_whole - 1):
            break
        found_wrong = verify(session, snapshot_id=number, held=by_id[number])
        lost = [item for item in found_wrong.damaged_files if item.stake is None]
        if lost or (oldest_whole is not None and not found_wrong.is_clean):
            break
        if oldest_whole is not None and not follows(by_id[oldest_whole], by_id[number]):
            break
        oldest_whole = number
    if ids and oldest_whole is None:
        raise CorruptFileError(
            "the newest snapshot is broken itself; roll back to one that verify finds whole",
            file=session.paths.snapshot_file(ids[-1]),
        )
    broken = [number for number in ids if oldest_whole is not None and number < oldest_whole]
    hint = session.snapshots.earliest_hint()
    is_wrong = oldest_whole is not None and hint is not None and hint != oldest_whole
    if oldest_whole is not None and not dry_run:
        session.snapshots.hint_earliest(oldest_whole)
        for number in broken:
            session.snapshots.delete(number)
        _notify(session, "snapshots below the oldest whole one", broken)
    paths = [session.paths.snapshot_file(number) for number in broken]
    if not paths and is_wrong:
        paths.append(session.paths.snapshot_hint(EARLIEST))
    return RepairReport(what="broken snapshots", found=tuple(paths), dry_run=dry_run)


def repair_latest_snapshot(session: TableSession, *, dry_run: bool) -> RepairReport:
    """Find the newest snapshot that can be read and stands on the one below; the files of those above it go.

    Only where the newest is lost: until then nobody can read the table or commit to it, so that no commit is taken
    from anybody; files of rows are left to the removal of orphans. A newer one that a tag holds comes back, with
    the changelogs below it. LATEST names what is the newest then: other clients go by that.
    Raises CorruptFileError if no snapshot and no tag can be read.
    """
    session.options.require_writable()
    snapshots, label = session.snapshots, "broken newest snapshots"
    ids = snapshots.listed_ids()
    broken, stray = lost_newest(session, ids)
    if not broken and stray is None:
        return RepairReport(what=label, found=(), dry_run=dry_run)
    newest = None if len(broken) == len(ids) else ids[-1 - len(broken)]
    tagged = newest_tagged(session, newest or 0, stray or max(broken, default=0))
    if tagged is None and newest is None:
        raise CorruptFileError(
            "no snapshot and no tag can be read: bring one back from a backup, or let go of all rows: "
            "table.purge_files, or lsm repair TABLE purge",
            file=session.paths.snapshot_file(stray or broken[0]),
        )
    back_to, begins_anew = f"snapshot {newest}", False
    if tagged is not None:
        below = None if newest is None else found_readable(session, newest)
        begins_anew = below is None or not follows(tagged.snapshot, below)
        broken = [*reversed(ids)] if begins_anew else broken
        back_to = f"snapshot {tagged.snapshot.id} of tag {tagged.name!r}"
        back_to += ", with which the table begins," if begins_anew else ""
    if not dry_run:
        # What LATEST names and is not there yet keeps everybody out.
        snapshots.hint_latest(tagged.snapshot.id if tagged else newest or 0, may_skip=False)
        for number in broken:  # from the top, so that no gap is ever below what can be read
            if begins_anew or not stands(session, number):
                snapshots.delete(number)
        if tagged is not None:
            _bring_back(session, tagged.snapshot, begins_anew=begins_anew)
        _notify(session, "snapshots above the newest readable one", broken)
    paths = [session.paths.snapshot_file(number) for number in broken]
    paths += [] if stray is None else [session.paths.snapshot_hint(LATEST)]
    return RepairReport(what=label, found=tuple(paths), dry_run=dry_run, back_to=back_to)


def _bring_back(session: TableSession, snapshot: Snapshot, *, begins_anew: bool) -> None:
    """Make a tag's snapshot the newest; `begins_anew`: and the oldest."""
    for number in [
        changelog_id for changelog_id in session.changelogs.ids() if changelog_id >= snapshot.id
    ]:
        session.changelogs.delete(number)
    if begins_anew:
        session.snapshots.hint_earliest(snapshot.id)
    session.snapshots.publish_only(without_changelog(snapshot))


def remove_broken_records(session: TableSession, *, dry_run: bool) -> RepairReport:
    """Find what lies beside the snapshots and cannot be read, and take it away: no row is lost with it.

    Records of the trash, which could be undone; the record of verified files; and changelogs that have
    outlived their snapshots, all up to the newest broken one, as readers follow them without gaps. Their
    files are left to the removal of orphans.
    """
    session.options.require_writable()
    trash = TrashStore(session.file_io, session.paths)
    verified = VerifiedFileStore(session.file_io, session.paths)
    report = verify(session)
    paths = {file.path for file in report.damaged_files}
    records = [name for name in trash.names() if session.paths.trash_file(name) in paths]
    own = report.own_damaged_files  # changelogs of a branch have the same ids
    last = max((number for file in own for number in file.changelogs), default=0)
    changelogs = [number for number in session.changelogs.ids() if number <= last]
    paths_removed = [
        *map(session.paths.trash_file, records),
        *([session.paths.verified_file] if session.paths.verified_file in paths else []),
        *map(session.paths.changelog_file, changelogs),
    ]
    if not dry_run:
        for name in records:
            trash.delete(name)
        if session.paths.verified_file in paths:
            verified.replace({})
        if changelogs:
            session.changelogs.hint_earliest(last + 1)
        for number in changelogs:
            session.changelogs.delete(number)
    return RepairReport(what="broken records", found=tuple(paths_removed), dry_run=dry_run)


def _notify(session: TableSession, reason: str, ids: Sequence[int]) -> None:
    if not session.components.listeners:
        return
    removal = Removal(
        removal_id=session.ids.new_id(),
        kind="repair",
        reason=reason,
        at_millis=session.clock.now_millis(),
        branch=session.paths.branch_name,
        snapshot_ids=tuple(ids),
    )
    session.notify(lambda listener: listener.removed(session.name, removal))


def purge_files(session: TableSession, identity: CommitIdentity, *, dry_run: bool) -> RepairReport:
    """Empty a table for good: its rows, snapshots, tags, branches, changelogs and consumers.

    One empty snapshot is left, and the schema; of a table whose newest state is lost no snapshot, and the files of
    rows are left to the removal of orphans. Nothing but the trash, where there is one, gives
    anything back. A kill leaves part of it done; doing it again finishes.
    """
    session.options.require_writable()
    store, ids = branch.branches(session), session.snapshots.listed_ids()
    items = [
        *(f"branch {name}" for name in store.directories()),
        *(f"tag {name}" for name in session.tags.names()),
        *(f"consumer {name}" for name in session.consumers.names()),
        *(f"changelog {number}" for number in session.changelogs.ids()),
        *(f"snapshot {number}" for number in ids),
    ]
    if not ids and lost_newest(session, ids)[1] is not None:
        items.append("LATEST and EARLIEST")
    committed = None
    if not dry_run and items:
        committed = _purge(session, identity)
    return RepairReport(what="everything", found=tuple(items), dry_run=dry_run, snapshot=committed)


def _purge(session: TableSession, identity: CommitIdentity) -> Snapshot | None:
    can_be_read = is_readable(session)

    def everything(on: Snapshot | None) -> Sequence[ManifestEntry]:
        return () if on is None else session.live_entries(on)

    committed = None
    if can_be_read and everything(session.snapshots.latest()):
        committed = propose(session, _taking(identity, everything))
    for name in branch.branches(session).directories():
        branch.delete(session, name)
    for name in session.consumers.names():
        session.consumers.delete(name)
    for name in session.tags.names():
        tag.delete(session, name)
    if can_be_read:
        last = Retention(
            retained_min=1, retained_max=1, time_retained_millis=0, expire_limit=NO_LIMIT
        )
        expire.expire(session, last, dry_run=False)
        expire_changelogs.take_all(session, reason="the table was purged")
    else:
        _let_go(session)
    return committed


def _let_go(session: TableSession) -> None:
    """Delete the files of snapshots whose newest state is lost: what they name is unknown."""
    ids = session.snapshots.listed_ids()
    for number in session.changelogs.ids():
        session.changelogs.delete(number)
    for number in ids:  # while LATEST names one of them, nobody takes the table for new
        session.snapshots.delete(number)
    for hint in (EARLIEST, LATEST):
        session.file_io.delete(session.paths.snapshot_hint(hint))
    _notify(session, "the table was purged", ids)
