"""Repair operations: each returns its plan, and acts only with `dry_run=False`."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, takewhile
from operator import attrgetter

import pyarrow as pa

from lsm_engine.base.errors import (
    CommitConflictError,
    CorruptFileError,
    LsmError,
    NotFoundError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.commit.commit import propose
from lsm_engine.commit.metadata_writer import rewrite_manifests
from lsm_engine.compact.bucket import GroupCopier, run_tasks
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.commit_message import CommitMessage, CompactIncrement
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.maintenance import expire
from lsm_engine.maintenance.findings import (
    DamagedFile,
    FileStake,
    VerifiedFileStore,
    readable,
    stake_of,
)
from lsm_engine.maintenance.recovery import (
    Origin,
    entries_at,
    merged_files,
    older_rows,
    origins_of,
    reader_of,
    rebuilt_from,
    sections_of,
    write_older_rows,
)
from lsm_engine.maintenance.rollback import ROLLING_BACK
from lsm_engine.maintenance.verify import verify
from lsm_engine.metadata.publishing import deleted, stable_listing
from lsm_engine.metadata.snapshots import current_content
from lsm_engine.metadata.trash import TrashStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.planning.commit import plan_rewrite
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.proposal import (
    CommitIdentity,
    LiveChange,
    Proposal,
    RewrittenBase,
    overwriting,
)
from lsm_engine.planning.retention import NO_LIMIT, Retention
from lsm_engine.planning.snapshot_chain import (
    adds_up,
    follows,
    is_built_on,
    named_base,
    rollback_target,
)
from lsm_engine.planning.tags import without_changelog
from lsm_engine.storage.paths import EARLIEST, LATEST
from lsm_engine.table import branches, tags
from lsm_engine.table.live_files import (
    IDENTITY_COLUMNS,
    KIND,
    ROW_COUNT,
    deletes_of,
    live_rows,
)
from lsm_engine.table.session import TableSession

# -- Find the newest readable snapshot if the newest one is lost or damaged ------------------------


def is_readable(session: TableSession) -> bool:
    """Whether there is a newest state, or none yet; False if its snapshot or manifests are lost or damaged."""
    try:
        base = session.snapshots.latest()
    except CorruptFileError:
        # Only a lost newest snapshot matters here: a damaged older one leaves the newest state as
        # it is.
        ids = session.snapshots.listed_ids()
        if lost_newest(session, ids) != ([], None):
            return False
        base = session.snapshots.find(ids[-1])
    return base is None or is_whole(session, base)


def lost_newest(session: TableSession, ids: Sequence[int]) -> tuple[list[int], int | None]:
    """Return the newest snapshots, of `ids`, that do not count, newest first, and what LATEST names that is not there.

    Neither if the newest can be read, or would be if an older one were.
    """
    try:
        session.snapshots.latest()
    except CorruptFileError:
        broken = [*takewhile(lambda number: not stands(session, number), reversed(ids))]
        return broken, session.snapshots.stray_latest(max(ids, default=0))
    return [], None


def newest_tagged(session: TableSession, above: int, upto: int) -> Tag | None:
    """Return the newest tag of a snapshot between two ids whose manifests can be read, if there is one."""
    tags = readable(session.tags.names(), session.tags.find, CorruptFileError)
    for _, tag in sorted(tags, key=lambda item: -item[1].snapshot.id):
        if above < tag.snapshot.id <= upto and is_whole(session, tag.snapshot):
            return tag
    return None


def is_whole(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether the manifests of a snapshot are there and undamaged; any other error is raised."""
    try:
        session.live_entries(snapshot)
    except (CorruptFileError, NotFoundError):
        return False
    return True


def stands(session: TableSession, number: int) -> bool:
    """Whether a snapshot can be read, and the one that it was made on is below it, expired, torn, or lost.

    It is lost where LATEST names the one above, whose manifests are whole: else that one may be what a rollback has cut off.
    """
    snapshot = found_readable(session, number)
    if snapshot is None or named_base(snapshot) is None:
        return snapshot is not None
    # EARLIEST names it, so that its base has expired.
    if session.snapshots.earliest_hint() == number:
        return True
    try:
        below = session.snapshots.find(number - 1)
    except CorruptFileError:
        # A torn file below shows that a snapshot was there.
        return True
    if below is None:
        return session.snapshots.latest_hint() == number and is_whole(session, snapshot)
    return is_built_on(snapshot, below)


def found_readable(session: TableSession, number: int) -> Snapshot | None:
    """Return a snapshot whose file is there and undamaged, or None."""
    return dict(readable([number], session.snapshots.find, CorruptFileError)).get(number)


# -- Repair operations: each returns its plan, and acts only with `dry_run=False` ------------------


@record
class RepairReport:
    """The result of a repair, or with `dry_run` of its plan. `found`: the names of the repaired things.

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
    """Remove data files from the newest state that are missing, or that deep verification finds damaged.

    `restore_files` gives back what it can; this is for what is left. Older snapshots and tags keep
    naming the files.
    """
    session.options.require_writable()
    base = session.snapshots.latest()
    files = () if base is None else verify(session, snapshot=base.id, deep=True).damaged_files
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
        # Two kinds of requests have to agree, as entries are taken out for good.
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
    if (
        base is not None
        and not dry_run
        and (stale or len(metas) > 1 or _is_miscounted(session, base))
    ):
        rewrite = _ManifestRewrite(session)
        # Before the commit, which keeps writers of this machine from taking turns meanwhile.
        rewrite.write(metas)
        try:
            committed = propose(
                session, Proposal(identity=identity, kind=CommitKind.COMPACT, choose=rewrite.choose)
            )
        finally:
            rewrite.discard_unused()
    return RepairReport(what="manifests", found=names, dry_run=dry_run, snapshot=committed)


def _is_miscounted(session: TableSession, snapshot: Snapshot) -> bool:
    below = found_readable(session, snapshot.id - 1)
    if below is not None and adds_up(snapshot, below) is False:
        return True
    columns = (KIND, *IDENTITY_COLUMNS, ROW_COUNT)
    live = live_rows(session.manifests, session.manifest_metas(snapshot), columns=columns)
    row_count = 0 if live is None else int(live.column(ROW_COUNT).to_numpy().sum())
    return snapshot.total_record_count not in (None, row_count)


class _ManifestRewrite:
    """The manifests of a base, written anew by the tasks of the table's executor.

    Manifests that other commits add meanwhile stay as they are, so that a lost race costs no second rewrite.
    """

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._rewritten: RewrittenBase | None = None
        self._row_count = 0
        self._is_handed_over = False

    def write(self, metas: Sequence[ManifestFileMeta]) -> RewrittenBase:
        """Write the live entries of the manifests, in their order."""
        session = self._session
        columns = (KIND, *IDENTITY_COLUMNS)
        with_deletes = [meta for meta in metas if meta.deleted_file_count]
        parts = [
            deletes
            for meta in session.manifests.ahead(with_deletes, columns=columns)
            if (deletes := deletes_of(session.manifests.read(meta, columns, keeps=False)))
            is not None
        ]
        deletes = pa.concat_tables(parts) if parts else None
        groups = plan_rewrite(
            metas, target_size_bytes=session.options[core_options.MANIFEST_TARGET_FILE_SIZE]
        )
        context = session.context()
        work = partial(rewrite_manifests, context, deletes)
        messages = run_tasks(session, context, work, groups, verb="rewrite manifests")
        written = [message.rewritten for message in messages if message.rewritten is not None]
        written.sort(key=attrgetter("group"))
        self._rewritten = RewrittenBase(
            sources=frozenset(meta.file_name for meta in metas),
            manifests=tuple(meta for group in written for meta in group.manifests),
        )
        self._row_count = sum(group.row_count for group in written)
        self._is_handed_over = False
        return self._rewritten

    def choose(self, base: Snapshot | None) -> LiveChange:
        """Return the change on a base: the manifests that were written, or on quite another base new ones."""
        metas = [] if base is None else self._session.manifest_metas(base)
        rewritten = self._rewritten
        if rewritten is None or not self._stands(rewritten, metas):
            self.discard_unused()
            rewritten = self.write(metas)
        self._is_handed_over = True
        added = [meta for meta in metas if meta.file_name not in rewritten.sources]
        return LiveChange(
            rewritten=rewritten, base_record_count=self._row_count + self._rows_added(added)
        )

    def discard_unused(self) -> None:
        """Delete what was written for no attempt of a commit; files of an attempt are the commit's."""
        if self._rewritten is not None and not self._is_handed_over:
            paths = self._session.paths
            self._session.delete_quietly(
                paths.manifest(meta.file_name) for meta in self._rewritten.manifests
            )

    def _stands(self, rewritten: RewrittenBase, metas: Sequence[ManifestFileMeta]) -> bool:
        """Whether a base has the manifests that were read, and those that were written are there.

        A commit that fails to prepare an attempt deletes its files, and may try again.
        """
        if not rewritten.sources <= {meta.file_name for meta in metas}:
            return False
        session = self._session
        return not self._is_handed_over or all(
            session.file_io.exists(session.paths.manifest(meta.file_name))
            for meta in rewritten.manifests
        )

    def _rows_added(self, metas: Sequence[ManifestFileMeta]) -> int:
        """Return how many rows some manifests add, less those that they delete."""
        manifests, columns = self._session.manifests, (KIND, ROW_COUNT)
        count = 0
        for entries in (manifests.read(meta, columns) for meta in manifests.ahead(metas)):
            rows = entries.column(ROW_COUNT).to_numpy()
            is_delete = entries.column(KIND).to_numpy() == EntryKind.DELETE
            count += int(rows.sum() - 2 * rows[is_delete].sum())
        return count


def repair_earliest_snapshot(session: TableSession, *, dry_run: bool) -> RepairReport:
    """Find the oldest snapshot from which on all are whole; delete the files of broken ones below it.

    EARLIEST names it then, also where it named a newer one: no expiry may run. Data is not touched, and of the
    newest snapshot only manifests have to be whole: files of rows are taken out of it by `remove_damaged_files`.
    Raises CorruptFileError if they are not: go back to a snapshot that is whole.
    """
    session.options.require_writable()
    ids = session.snapshots.listed_ids()
    snapshots, orphan_snapshots = session.snapshots.stable_listing_with_orphans(
        partial(found_readable, session)
    )
    by_id, left_out = {item.id: item for item in snapshots}, {item.id for item in orphan_snapshots}
    oldest_whole: int | None = None
    for number in reversed([number for number in ids if number not in left_out]):
        if number not in by_id or (oldest_whole is not None and number != oldest_whole - 1):
            break
        found_wrong = verify(session, snapshot=by_id[number])
        lost = [item for item in found_wrong.damaged_files if item.stake is None]
        if lost or (oldest_whole is not None and not found_wrong.is_clean):
            break
        if oldest_whole is not None and not follows(by_id[oldest_whole], by_id[number]):
            break
        oldest_whole = number
    if ids and oldest_whole is None:
        _refuse_changed(session, ids)
        raise CorruptFileError(
            "the newest snapshot is broken itself; roll back to one that verify finds whole",
            file=session.paths.snapshot_file(ids[-1]),
        )
    broken = [number for number in ids if oldest_whole is not None and number < oldest_whole]
    paths = [session.paths.snapshot_file(number) for number in broken]
    hint = session.snapshots.earliest_hint()
    is_wrong = oldest_whole is not None and hint is not None and hint != oldest_whole
    if oldest_whole is not None and not dry_run:
        files = _files_of_now(session, paths)
        # A rollback returns to what is below its marker, and gives ids to others.
        _refuse_while_rolled_back(session, snapshots[-1])
        session.notify_removing()
        # EARLIEST moves first, as in an expiry: a stop leaves smaller ids passed.
        session.snapshots.lower_earliest(oldest_whole)
        # A rollback creates its sign, then reads EARLIEST: one of the two sees the other.
        _refuse_while_rolled_back(session, snapshots[-1])
        _delete_as_read(session, files)
        _notify(session, "snapshots below the oldest whole one", broken)
    if not paths and is_wrong:
        paths.append(session.paths.snapshot_hint(EARLIEST))
    return RepairReport(what="broken snapshots", found=tuple(paths), dry_run=dry_run)


def _refuse_changed(session: TableSession, ids: Sequence[int]) -> None:
    """Raise where snapshots are missing because the table was renamed, dropped or rolled back since they were listed."""
    session.identity.require_there()
    if session.snapshots.listed_ids()[-1:] != [*ids[-1:]]:
        raise _changed_error(session)


def _changed_error(session: TableSession) -> CommitConflictError:
    return CommitConflictError(
        "the table is being rolled back, or others have changed its snapshots meanwhile; nothing was deleted, try "
        "again. If that rollback died, roll back again, which finishes it",
        table=session.name or None,
    )


def _refuse_while_rolled_back(session: TableSession, newest: Snapshot) -> None:
    """Raise CommitConflictError if a rollback runs, or has taken `newest`; a damaged tag may be there."""
    names = session.tags.names()
    if any(name.startswith(ROLLING_BACK) for name in names) or rollback_target(newest) is not None:
        raise _changed_error(session)
    if not same_state(session.snapshots.find_now(newest.id), newest):
        raise _changed_error(session)
    session.identity.require_there()


def _files_of_now(session: TableSession, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of files that are there; raises NotFoundError if they may be of another table by now."""
    contents = {path: current_content(session.file_io, path) for path in paths}
    session.identity.require_there()
    return {path: content for path, content in contents.items() if content is not None}


def _delete_as_read(session: TableSession, files: Mapping[str, bytes]) -> None:
    """Delete files whose content nobody has changed: ids are used again by others, and in a table that is made anew."""
    session.snapshots.forget_newest()
    for path, content in files.items():
        # No document is as large, so that this one was not read to its end.
        if len(content) >= READ_MAX:
            session.file_io.delete(path)
        else:
            deleted(session.file_io, path, expected=content)


def repair_latest_snapshot(session: TableSession, *, dry_run: bool) -> RepairReport:
    """Find the newest snapshot that can be read and stands on the one below; delete the files of those above it.

    Only where the newest is lost: until then the table takes no read and no commit, so that none
    is lost; files of rows are left to the removal of orphans. A newer one that a tag holds comes back, with
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
    # A tag may hold a newer state than the newest readable snapshot.
    tagged = newest_tagged(session, newest or 0, stray or max(broken, default=0))
    if tagged is None and newest is None:
        raise CorruptFileError(
            "no snapshot and no tag can be read: restore one from a backup, or empty the table: "
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
    paths = [session.paths.snapshot_file(number) for number in broken]
    if not dry_run:
        session.notify_removing()
        files = _files_of_now(
            session,
            # From the top, so that no gap is ever below what can be read.
            (
                path
                for number, path in zip(broken, paths, strict=True)
                if begins_anew or not stands(session, number)
            ),
        )
        # What LATEST names and is not there yet keeps everybody out.
        snapshots.hint_latest(tagged.snapshot.id if tagged else newest or 0, may_skip=False)
        _delete_as_read(session, files)
        if tagged is not None:
            _bring_back(session, tagged.snapshot, begins_anew=begins_anew)
        _notify(session, "snapshots above the newest readable one", broken)
    paths += [] if stray is None else [session.paths.snapshot_hint(LATEST)]
    return RepairReport(what=label, found=tuple(paths), dry_run=dry_run, back_to=back_to)


def _bring_back(session: TableSession, snapshot: Snapshot, *, begins_anew: bool) -> None:
    """Make a tag's snapshot the newest; `begins_anew`: and the oldest."""
    ids = session.changelogs.ids()
    above = [session.paths.changelog_file(number) for number in ids if number >= snapshot.id]
    _delete_as_read(session, _files_of_now(session, above))
    # The snapshots below are deleted: EARLIEST may not name one of them.
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
        files = _files_of_now(
            session, (path for path in paths_removed if path != session.paths.verified_file)
        )
        if session.paths.verified_file in paths:
            verified.replace({})
        if changelogs:
            # Before the deletions, so that readers begin above them.
            session.changelogs.hint_earliest(last + 1)
        _delete_as_read(session, files)
    return RepairReport(what="broken records", found=tuple(paths_removed), dry_run=dry_run)


def _notify(session: TableSession, reason: str, ids: Sequence[int]) -> None:
    session.notify_removed(
        "repair", reason, branch=session.paths.branch_name, snapshot_ids=tuple(ids)
    )


def purge_files(session: TableSession, identity: CommitIdentity, *, dry_run: bool) -> RepairReport:
    """Empty a table for good: its rows, snapshots, tags, branches, changelogs and consumers.

    One empty snapshot is left, and the schema; of a table whose newest state is lost no snapshot, and the files of
    rows are left to the removal of orphans. Nothing but the trash, where there is one, gives
    anything back. A kill leaves part of it done; doing it again finishes.
    """
    session.options.require_writable()
    store, ids = branches.branches(session), session.snapshots.listed_ids()
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
    # The rows go by a commit first: a stop after it leaves an empty table, not a broken one.
    if can_be_read and everything(session.snapshots.latest()):
        committed = propose(session, _taking(identity, everything))
    for name in branches.branches(session).directories():
        branches.delete(session, name)
    for name in session.consumers.names():
        session.consumers.delete(name)
    for name in session.tags.names():
        tags.delete(session, name)
    if can_be_read:
        last = Retention(
            retained_min=1, retained_max=1, time_retained_millis=0, expire_limit=NO_LIMIT
        )
        expire.expire(session, last, dry_run=False)
        expire.expire_all_changelogs(session, reason="the table was purged")
    else:
        _let_go(session)
    return committed


def _let_go(session: TableSession) -> None:
    """Delete the files of snapshots whose newest state is lost: what they name is unknown."""
    ids = session.snapshots.listed_ids()
    files = _files_of_now(
        session,
        (
            *map(session.paths.changelog_file, session.changelogs.ids()),
            # While LATEST names one of them, the table does not pass for a new one.
            *map(session.paths.snapshot_file, ids),
        ),
    )
    _delete_as_read(session, files)
    for hint in (EARLIEST, LATEST):
        session.file_io.delete(session.paths.snapshot_hint(hint))
    _notify(session, "the table was purged", ids)


# -- Restore of damaged and missing data files -----------------------------------------------------
#
# A file that a compaction wrote is merged again from its inputs, and one that a writer flushed
# from the changelog of its commit; if the bytes are those that the manifest's checksum is of,
# they take the file's place, which heals every snapshot, tag and branch at once. Else older
# versions of its rows, from the newest snapshot, tag or trash record that has them, take its
# place in the newest state.

log = logging.getLogger(__name__)


@record
class RestoredFile:
    """The repair of one damaged or missing file. Rows are stored versions, as in FileStake.

    `source`: what its rows come from; None: nothing has them. `is_exact`: they are what the file held.
    """

    stake: FileStake
    source: str | None
    is_exact: bool
    row_count: int

    @property
    def lost_row_count(self) -> int:
        """How many rows no source restores; of older versions, how many more rows the file held."""
        return max(0, self.stake.row_count - self.row_count)

    def __str__(self) -> str:
        if self.source is None:
            return f"{self.stake}; nothing has them"
        rows_text = "all of it" if self.is_exact else counted(self.row_count, "older row")
        return f"{self.stake}; {rows_text} from {self.source}"


@record
class RestoreReport:
    """The result of a restore, or with `dry_run` of its plan: each damaged or missing data file.

    `left`: changelog files and such, which nothing else holds.
    """

    files: tuple[RestoredFile, ...]
    left: tuple[DamagedFile, ...]
    dry_run: bool
    snapshot: Snapshot | None = None

    @property
    def lost_row_count(self) -> int:
        """Rows that no source restores."""
        return sum(file.lost_row_count for file in self.files)

    def __str__(self) -> str:
        if not self.files and not self.left:
            return "no data file is damaged or missing"
        would = "would be " if self.dry_run else ""
        exact = sum(file.is_exact for file in self.files)
        older = sum(file.source is not None for file in self.files) - exact
        rows = sum(file.row_count for file in self.files)
        files = counted(len(self.files) + len(self.left), "damaged or missing file")
        return (
            f"{files}: {exact} {would}restored whole, "
            f"{older} from older rows; {counted(rows, 'row')} {would}back, {self.lost_row_count} have no source"
        )


def restore_files(
    session: TableSession, identity: CommitIdentity, *, dry_run: bool
) -> RestoreReport:
    """Restore what deep verification finds damaged or missing, as far as anything holds it.

    A plan counts rows as manifests do; acting checks every rebuilt file against the checksum in its
    manifest entry. What nothing holds stays as it is: `remove_damaged_files` lets go of it.
    """
    session.options.require_writable()
    damaged = verify(session, deep=True).damaged_files
    stakes = {item.path: item.stake for item in damaged if item.stake is not None}
    entries = entries_at(session, stakes)
    restore = _Restore(session, entries, dry_run=dry_run)
    done = restore.rebuild()
    newest = session.snapshots.latest()
    live = {} if newest is None else {session.data_path(e): e for e in session.live_entries(newest)}
    messages: list[CommitMessage] = []
    files: list[RestoredFile] = []
    for path, entry in entries.items():
        stake = stakes[path]
        assert stake is not None
        if path in done:
            files.append(
                RestoredFile(
                    stake=stake, source=done[path], is_exact=True, row_count=stake.row_count
                )
            )
            continue
        older = restore.older(entry) if path in live else None
        message, item = older or (None, None)
        if message is not None:
            messages.append(message)
        source, count = (None, 0) if item is None else item
        files.append(
            RestoredFile(
                stake=stake, source=source, is_exact=False, row_count=min(count, stake.row_count)
            )
        )
    committed = None
    if messages:
        committed = propose(
            session,
            Proposal(
                identity=identity,
                messages=tuple(messages),
                planned_on=newest,
                kind=CommitKind.COMPACT,
            ),
        )
    return RestoreReport(
        files=tuple(files),
        left=tuple(item for item in damaged if item.path not in entries),
        dry_run=dry_run,
        snapshot=committed,
    )


class _Restore:
    """The files that are still bad, and what becomes of them."""

    def __init__(
        self, session: TableSession, entries: Mapping[str, ManifestEntry], *, dry_run: bool
    ) -> None:
        self._session = session
        self._entries = entries
        self._dry_run = dry_run
        self._bad = set(entries)

    def rebuild(self) -> dict[str, str]:
        """Make files again, inputs of others first; return what each was made from, by path."""
        origins = origins_of(
            self._session, [entry.physical_file for entry in self._entries.values()]
        )
        done: dict[str, str] = {}
        if self._session.schema.evolves_data:
            return done  # a file has some columns of its rows
        progress = True
        while progress:
            progress = False
            for path in sorted(self._bad):
                origin = origins.get(self._entries[path].physical_file)
                if origin is None or not rebuilt_from(self._session, origin, frozenset(self._bad)):
                    continue
                if self._made_again(path, origin):
                    origin_kind = "compaction" if origin.inputs else "changelog"
                    done[path] = f"the {origin_kind} of snapshot {origin.snapshot.id}"
                    self._bad.discard(path)
                    progress = True
        return done

    def _made_again(self, path: str, origin: Origin) -> bool:
        if self._dry_run:
            return True
        session = self._session.with_schema(self._session.schemas.load(origin.entry.file.schema_id))
        try:
            # As a compaction writes it that copies what nothing overlaps, and as one that does not.
            for file, data in chain(
                _written(session, origin, copies=True), _written(session, origin, copies=False)
            ):
                if checksum_of(data) == origin.entry.file.checksum and len(data) == file.file_size:
                    self._session.file_io.replace(path, data)
                    return True
        except LsmError as error:
            # One source fails; older versions of the rows may still be restored.
            log.warning("%s could not be made again: %s", path, error)
        return False

    def older(self, entry: ManifestEntry) -> tuple[CommitMessage | None, tuple[str, int]] | None:
        """Return a commit that puts older rows in a file's place, their source and count."""
        session = self._session.rewriting([entry.file.schema_id])
        older = older_rows(session, entry, frozenset(self._bad))
        if older is None:
            return None
        if self._dry_run:
            return None, (str(older), older.row_count)
        written = write_older_rows(session, older)
        message = CommitMessage(
            partition=entry.partition,
            bucket=entry.bucket,
            total_buckets=entry.total_buckets,
            compact=CompactIncrement(before=(entry.file,), after=tuple(written)),
        )
        return message, (str(older), sum(file.row_count for file in written))


def _written(
    session: TableSession, origin: Origin, *, copies: bool
) -> Iterator[tuple[DataFileMeta, bytes]]:
    """Yield the files that merging the inputs again gives, and their bytes; none of them stays.

    With `copies` none where nothing is copied.
    """
    entry, snapshot = origin.entry, origin.snapshot
    parts = origin.inputs or origin.changelog
    deletes = entry.file.delete_row_count or 0
    base = session.snapshots.before(snapshot) if origin.inputs else None
    schema = session.schema
    is_keyed = schema.has_primary_key
    drop_deletes = bool(origin.inputs) and not deletes
    rows: Iterator[pa.Table | pa.RecordBatch] = (
        merged_files(session, entry, base, parts, drop_deletes=drop_deletes)
        if is_keyed
        else _appended(session, origin, base)
    )
    context = session.context({part.file.schema_id for part in parts})
    writer = context.new_files(
        (entry.partition, entry.bucket),
        level=entry.file.level,
        source=FileSource.COMPACT if origin.inputs else FileSource.APPEND,
        write_columns=(*schema.names, *schema.tracking_names) if schema.tracks_rows else None,
        never_roll=not is_keyed,
    )
    copier = None
    if copies and is_keyed and origin.inputs:
        reader = reader_of(session, entry, base, parts)
        copier = GroupCopier.for_bucket(context, entry.partition, entry.bucket, reader, writer)
    if copies and copier is None:
        return
    written: list[DataFileMeta] = []
    try:
        with writer:
            if copier is not None:
                for section in sections_of(session, parts):
                    copier.write(section, drop_deletes=drop_deletes)
            else:
                for batch in rows:
                    writer.write(batch)
            written = writer.close()
            for file in written:
                path = context.data_file(entry.partition, entry.bucket, file.file_name)
                yield file, session.file_io.read(path)
    finally:
        session.delete_quietly(
            context.data_file(entry.partition, entry.bucket, file.file_name) for file in written
        )


def _appended(
    session: TableSession, origin: Origin, base: Snapshot | None
) -> Iterator[pa.RecordBatch]:
    """Yield what a compaction of an append table put into one file: its share of the joined rows."""
    names = (*session.schema.names, *session.schema.tracking_names)
    reader = reader_of(session, origin.entry, base, origin.inputs)
    before = takewhile(
        lambda output: output.physical_file != origin.entry.physical_file, origin.outputs
    )
    skipped, remaining = (
        sum(output.file.row_count for output in before),
        origin.entry.file.row_count,
    )
    for part in origin.inputs:
        for rows in reader.file(part.file, names):
            own = rows.slice(skipped, remaining)
            skipped -= min(skipped, rows.num_rows)
            remaining -= own.num_rows
            if own.num_rows:
                yield own
