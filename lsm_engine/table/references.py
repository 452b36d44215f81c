"""The references that retain files, what each names, and the removal of what none names."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import chain, islice

import pyarrow as pa

from lsm_engine.base.errors import (
    CommitConflictError,
    CorruptFileError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.format.commit_message import RecordedIdentifiers
from lsm_engine.format.manifest import BucketScope, ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.metadata.snapshots import delete_states
from lsm_engine.metadata.trash import TrashRecord, TrashStore, kept_by_record
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.commit import lists_to_fetch, new_manifests
from lsm_engine.planning.commit_identifiers import (
    ChainIdentifiers,
    Limits,
    has_property,
    recorded_before,
    rolled_back,
)
from lsm_engine.planning.expire import DeadFile, ExpirePlan, MetadataNames, RetainedFiles
from lsm_engine.planning.snapshot_chain import follows, is_of_another_client, rollback_target
from lsm_engine.planning.tags import is_lock
from lsm_engine.storage.bulk import sync_directory
from lsm_engine.table.components import CommittedFiles
from lsm_engine.table.live_files import joined
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema

# -- Files that a commit published -----------------------------------------------------------------


def committed_files(session: TableSession, snapshot: Snapshot) -> CommittedFiles:
    """Read again what a commit published."""
    manifests = session.manifests
    delta = tuple(session.manifest_list(snapshot, snapshot.delta_manifest_list))
    try:
        changelog_list = snapshot.changelog_manifest_list
        changelog = (
            () if changelog_list is None else tuple(session.manifest_list(snapshot, changelog_list))
        )
    except NotFoundError:
        changelog = ()  # it goes with its snapshot, though a tag keeps the rest
    return CommittedFiles(
        snapshot=snapshot,
        schema=(
            session.schema
            if snapshot.schema_id == session.schema.id
            else session.schemas.load(snapshot.schema_id)
        ),
        base_manifests=tuple(session.manifest_list(snapshot, snapshot.base_manifest_list)),
        delta_manifests=delta,
        changelog_manifests=changelog,
        delta=tuple(_entries(delta, manifests.read_entries)),
        changelog=tuple(_entries(changelog, manifests.read_entries)),
    )


def _entries(
    metas: Iterable[ManifestFileMeta],
    read: Callable[[ManifestFileMeta], Iterable[ManifestEntry]],
) -> Iterator[ManifestEntry]:
    for meta in metas:
        yield from read(meta)


# -- Files that retained references name -----------------------------------------------------------
#
# Its manifests, lists, index files, and the entries it can read.
#
# Maintenance deletes only what no retained reference names, so one that cannot be read ends it before it
# begins. Retained references are the snapshots, tags and long-lived changelogs of main and of every branch,
# and the records of the trash.

Buckets = Collection[tuple[bytes, int]] | None
"""Partition and bucket of the entries that are asked for; None: all."""
_TOGETHER = 16  # snapshots whose lists are fetched at once
_EXPECTED = 32  # manifests of them
_ENTRIES = 4096  # made at once, about


def branches(session: TableSession) -> list[TableSession]:
    """Return the table's branches: main, and every branch directory there is.

    Directories of branches that are half made or half deleted count: their files are retained references too.
    """
    main = open_branch(session, "")
    branches = BranchStore(session.file_io, main.paths).directories()
    return [main, *(open_branch(session, name) for name in branches)]


def _branch_marks(session: TableSession) -> Mapping[str, object]:
    return BranchStore(session.file_io, open_branch(session, "").paths).marks()


def other_branches(session: TableSession) -> list[TableSession]:
    """Return the branches besides the session's own."""
    own = session.paths.branch_name
    return [branch for branch in branches(session) if branch.paths.branch_name != own]


def open_branch(session: TableSession, branch: str) -> TableSession:
    """Return a branch by the name of its directory; "" is main."""
    branch_session = TableSession(session.name, session.components, session.schema, branch=branch)
    if branch != session.paths.branch_name:
        branch_session.schema = _own_schema(branch_session)
    branch_session.manifests = session.manifests  # what one branch has read, the others need not
    return branch_session


def _own_schema(branch: TableSession) -> TableSchema:
    """Return the newest schema of a branch, or the one it has been given, as that of no file here.

    So where the branch is half made, half deleted or damaged: its partitions are those of the others.
    """
    fallback = replace(branch.schema, read_from=None)
    with suppress(CorruptFileError, NotFoundError):
        return branch.schemas.latest() or fallback
    return fallback


class References:
    """The files that the retained references of one branch name, or those of the whole table."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._read_tags: set[bytes | None] = set()
        self._read_snapshots: dict[int, Snapshot] = {}

    def metadata_names(self, snapshot: Snapshot) -> MetadataNames:
        """Return all metadata files that a snapshot names; NotFoundError if a list is missing."""
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        if snapshot.changelog_manifest_list is not None:
            lists.append(snapshot.changelog_manifest_list)
        names = [self._list_names(snapshot, name) for name in lists]
        return MetadataNames.union([*names, self._index_names(snapshot)])

    def tag_names(self, snapshot: Snapshot) -> MetadataNames:
        """Return all metadata files that a tag names. Nothing reads a changelog through a tag."""
        names = self._list_names(snapshot, snapshot.base_manifest_list)
        names |= self._list_names(snapshot, snapshot.delta_manifest_list)
        return names | self._index_names(snapshot)

    def expiring_names(self, snapshot: Snapshot) -> MetadataNames:
        """Return what an expiring snapshot names, but what a killed expiry has deleted."""
        names = MetadataNames()
        lists = (
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            snapshot.changelog_manifest_list,
        )
        for name in lists:
            if name is not None:
                names |= MetadataNames(manifest_lists=frozenset([name]))
                names |= self._names_if_there(snapshot, name)
        try:
            return names | self._index_names(snapshot)
        except NotFoundError:
            # A killed expiry deletes index manifests before lists: what can still be read is
            # enough.
            return names

    def _list_names(self, snapshot: Snapshot, name: str) -> MetadataNames:
        metas = self._session.manifest_list(snapshot, name)
        return MetadataNames(
            manifest_lists=frozenset([name]),
            manifests=frozenset(meta.file_name for meta in metas),
        )

    def _names_if_there(self, snapshot: Snapshot, name: str) -> MetadataNames:
        try:
            return self._list_names(snapshot, name)
        except NotFoundError:
            # A killed expiry has deleted the list, and with it the need to know its manifests.
            return MetadataNames()

    def _index_names(self, snapshot: Snapshot) -> MetadataNames:
        statistics = frozenset([snapshot.statistics] if snapshot.statistics else [])
        entries = self._session.index_entries(snapshot)
        if snapshot.index_manifest is None:
            return MetadataNames(statistics=statistics)
        return MetadataNames(
            index_manifests=frozenset([snapshot.index_manifest]),
            index_files=frozenset(entry.index_file.file_name for entry in entries),
            statistics=statistics,
        )

    def prefetched(self, snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
        """Yield snapshots; on a remote store their lists and new manifests are fetched some at a time."""
        if not self._session.file_io.facts.is_remote:
            yield from snapshots
            return
        remaining = iter(snapshots)
        while batch := list(islice(remaining, _TOGETHER)):
            self.expect(batch)
            added = [
                meta.file_name for snapshot in batch for meta in self._metas_if_there(snapshot)
            ]
            self._session.manifests.expect(added[:_EXPECTED])
            yield from batch

    def expect(self, snapshots: Iterable[Snapshot]) -> None:
        """Have the lists of the first snapshots fetched from a remote store, and what else their names show."""
        if self._session.file_io.facts.is_remote:
            batch = list(islice(snapshots, _TOGETHER))
            lists = map(lists_to_fetch, batch)
            added = islice(chain.from_iterable(map(new_manifests, batch)), _EXPECTED)
            self._session.manifests.expect([*chain.from_iterable(lists), *added])

    def _metas_if_there(self, snapshot: Snapshot) -> Sequence[ManifestFileMeta]:
        try:
            return self._session.manifest_list(snapshot, snapshot.delta_manifest_list)
        except NotFoundError:
            # It is only advice what to fetch; a reader of the list gets the error.
            return ()

    def delta_entries(
        self, snapshots: Iterable[Snapshot], *, keeps: bool = True
    ) -> Iterator[ManifestEntry]:
        """Yield the entries of delta lists; those that a killed expiry has deleted are left out.

        `keeps`: they may be asked for again; what goes would only drive out what stays.
        """
        read_snapshots = self.prefetched(snapshots)
        lists = ((snapshot, snapshot.delta_manifest_list) for snapshot in read_snapshots)
        yield from self._entries(lists, keeps=keeps)

    def changelog_entries(
        self, snapshots: Iterable[Snapshot], *, keeps: bool = True
    ) -> Iterator[ManifestEntry]:
        """Yield the entries of changelog lists; deleted ones are left out. `keeps`: as above."""
        lists = ((snapshot, snapshot.changelog_manifest_list) for snapshot in snapshots)
        yield from self._entries(
            ((snapshot, name) for snapshot, name in lists if name), keeps=keeps
        )

    def _entries(
        self, lists: Iterable[tuple[Snapshot, str]], *, keeps: bool = True
    ) -> Iterator[ManifestEntry]:
        """Yield the entries of manifest lists that are there, those of small manifests made in one go."""
        for table in joined(self._tables(lists, keeps=keeps), _ENTRIES):
            yield from entries_of(table)

    def _tables(self, lists: Iterable[tuple[Snapshot, str]], *, keeps: bool) -> Iterator[pa.Table]:
        for snapshot, name in lists:
            # A killed expiry deletes lists and manifests of snapshots whose files still exist.
            with suppress(NotFoundError):
                for meta in self._session.manifest_list(snapshot, name):
                    with suppress(NotFoundError):
                        yield self._session.manifests.read(meta, keeps=keeps)

    def fed_by_deltas(self, changelog: Snapshot) -> bool:
        """Whether a changelog's rows are the snapshot's own new files, as no others were written."""
        # Compactions and overwrites emit nothing without a changelog of their own.
        if changelog.changelog_manifest_list or changelog.commit_kind is not CommitKind.APPEND:
            return False
        with suppress(NotFoundError):  # of a branch that is deleted: what there is stays
            options = self._session.schemas.load(changelog.schema_id).options
            return options[core_options.CHANGELOG_PRODUCER].policy.reads_delta
        return True

    def retained_by_all(
        self,
        snapshots: Iterable[Snapshot],
        buckets: Buckets = None,
        *,
        changelogs: Iterable[Snapshot] | None = None,
        besides: Iterable[str] = (),
    ) -> Iterator[RetainedFiles]:
        """Yield every retained reference: tags, `snapshots` and changelogs of this branch, and
        all of the other branches and the trash.

        `changelogs` None: those there are. `besides`: tags of this branch that go. One is
        held at a time: there may be tens of thousands.
        """
        feeds = self._session.changelogs.all() if changelogs is None else changelogs
        besides = tuple(besides)
        # Before anything is read: a branch that is deleted before its turn may have become main's state.
        marks = _branch_marks(self._session)
        yield from self.retained_by_tags(buckets, besides=besides)
        yield from self.retained_by_snapshots(snapshots, buckets)
        yield from self.retained_by_changelogs(feeds)
        lines = retained_lines(self._session, buckets, own=self, besides=besides, marks=marks)
        for _, retained in lines:
            yield from retained
        yield from self.retained_by_trash(buckets)

    def retained_since(
        self, buckets: Buckets, besides: Collection[str], *, is_expiring: bool
    ) -> Iterator[RetainedFiles]:
        """Yield the tags and snapshots that came since this read the others; `besides`: tags that go.

        `is_expiring`: what is below the first snapshot that was read expires, and is left out.
        """
        first = min(self._read_snapshots, default=0) if is_expiring else -1
        paths = self._session.paths
        now = References(self._session.asking_anew(paths.snapshot_directory, paths.tag_directory))
        tags = now._session.tags.stable_listing()
        yield from now._retained_by_tags(
            (tag for tag in tags if tag.name not in besides and tag.content not in self._read_tags),
            buckets,
        )
        yield from now.retained_by_snapshots(
            (
                snapshot
                for snapshot in now._session.snapshots.stable_listing()
                if snapshot.id > first and snapshot != self._read_snapshots.get(snapshot.id)
            ),
            buckets,
        )

    def retained_by_branch(self, buckets: Buckets = None) -> Iterator[RetainedFiles]:
        """Yield the retained references of a branch that nothing is taken from."""
        snapshots = self._session.snapshots.stable_listing()
        yield from self.retained_by_tags(buckets)
        yield from self.retained_by_snapshots(snapshots, buckets)
        yield from self.retained_by_changelogs(self._session.changelogs.all())
        # Changelog files of snapshots are named by no state: without this they would be free.
        yield RetainedFiles(
            name=self._shown("changelogs of snapshots"),
            entries=(),
            names=MetadataNames(),
            changelog=self.changelog_entries(snapshots),
        )

    def retained_by_snapshots(
        self, snapshots: Iterable[Snapshot], buckets: Buckets = None
    ) -> Iterator[RetainedFiles]:
        """Yield `snapshots` as retained references: the first with its whole state, the others with their deltas.

        Behind a gap, and for a rollback marker, the whole state is yielded again. Of snapshots
        below the EARLIEST hint, which an expiry that died has begun to delete, whatever is still there
        is kept.
        """
        marked = self._session.snapshots.earliest_hint() or 0
        before: Snapshot | None = None
        for snapshot in self.prefetched(snapshots):
            self._read_snapshots[snapshot.id] = snapshot
            name = self._shown(f"snapshot {snapshot.id}")
            # Half deleted: its lists may be missing, and what is left of them is kept for the next
            # expiry.
            if snapshot.id < marked:
                lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
                entries = list(self._entries((snapshot, manifest_list) for manifest_list in lists))
                yield RetainedFiles(
                    name=name, entries=entries, names=self._remaining_names(snapshot)
                )
                continue
            names = self.metadata_names(snapshot)
            # With the one before it kept, a delta names every file that a snapshot adds to it.
            goes_on = before is not None and follows(snapshot, before)
            before = snapshot
            entries = (
                self._live(snapshot, buckets)
                if not goes_on or rollback_target(snapshot) is not None
                else list(
                    self._delta(self._session.manifest_list(snapshot, snapshot.delta_manifest_list))
                )
            )
            yield RetainedFiles(name=name, entries=entries, names=names)

    def _remaining_names(self, snapshot: Snapshot) -> MetadataNames:
        """Return the metadata of a half-deleted snapshot: what it names and what those name."""
        return self.expiring_names(snapshot) | MetadataNames(
            index_manifests=frozenset([snapshot.index_manifest] if snapshot.index_manifest else []),
            statistics=frozenset([snapshot.statistics] if snapshot.statistics else []),
        )

    def retained_by_tags(
        self, buckets: Buckets = None, *, besides: Iterable[str] = ()
    ) -> Iterator[RetainedFiles]:
        """Yield tags as retained references, but those named `besides`."""
        removed = set(besides)
        listed = self._session.tags.stable_listing()
        yield from self._retained_by_tags(
            (tag for tag in listed if tag.name not in removed), buckets
        )

    def _retained_by_tags(self, tags: Iterable[Tag], buckets: Buckets) -> Iterator[RetainedFiles]:
        for tag in tags:
            self._read_tags.add(tag.content)
            # A maker of one looks for an expiry after it, and gives up, or was killed before that.
            with suppress(NotFoundError) if is_lock(tag.name) else nullcontext():
                yield self._retained_by_tag(tag, buckets)

    def _retained_by_tag(self, tag: Tag, buckets: Buckets) -> RetainedFiles:
        return RetainedFiles(
            name=self._shown(f"tag {tag.name!r}"),
            entries=self._live(tag.snapshot, buckets),
            names=self.tag_names(tag.snapshot),
        )

    def retained_by_changelogs(self, changelogs: Iterable[Snapshot]) -> Iterator[RetainedFiles]:
        """Yield long-lived changelogs as retained references: their changelog files, or the snapshot's new files.

        Of those below their EARLIEST hint, as of snapshots, whatever is still there.
        """
        marked = self._session.changelogs.earliest_hint() or 0
        for changelog in changelogs:
            names = MetadataNames()
            entries: list[ManifestEntry] = []
            feed: list[ManifestEntry] = []
            listed = changelog.changelog_manifest_list
            if listed is not None and changelog.id < marked:
                names = MetadataNames(manifest_lists=frozenset([listed]))
                names |= self._names_if_there(changelog, listed)
                feed = list(self._entries([(changelog, listed)]))
            elif listed is not None:
                names = self._list_names(changelog, listed)
                feed = list(self._delta(self._session.manifest_list(changelog, listed)))
            elif self.fed_by_deltas(changelog):
                names = self._names_if_there(changelog, changelog.delta_manifest_list)
                entries = list(self._entries([(changelog, changelog.delta_manifest_list)]))
            yield RetainedFiles(
                name=self._shown(f"changelog {changelog.id}"),
                entries=entries,
                names=names,
                changelog=feed,
            )

    def retained_by_trash(self, buckets: Buckets) -> Iterator[RetainedFiles]:
        """Yield what the records of the trash hold as retained references: it may be asked back."""
        for trash_record in TrashStore(self._session.file_io, self._session.paths).list():
            yield from self.retained_by_record(trash_record, buckets)

    def retained_by_record(
        self, trash_record: TrashRecord, buckets: Buckets = None
    ) -> Iterator[RetainedFiles]:
        """Yield one record as retained references: its files by name, and the states of its snapshots and tags."""
        names, file_names = kept_by_record(trash_record)
        yield RetainedFiles(name=trash_record.name, entries=(), names=names, file_names=file_names)
        own = References(open_branch(self._session, trash_record.branch))
        of_record = chain(
            own.retained_by_snapshots(trash_record.snapshots, buckets),
            (own._retained_by_tag(tag, buckets) for tag in trash_record.tags),
            own.retained_by_changelogs(trash_record.changelogs),
        )
        for retained in of_record:
            yield replace(retained, name=f"{retained.name} in {trash_record.name}")

    def _live(self, snapshot: Snapshot, buckets: Buckets) -> list[ManifestEntry]:
        holds = None if buckets is None else BucketScope(buckets=frozenset(buckets))
        return self._session.live_entries(snapshot, holds)

    def _delta(self, metas: Iterable[ManifestFileMeta]) -> Iterator[ManifestEntry]:
        for meta in metas:  # of what stays: the next plan asks for them again
            yield from self._session.manifests.fact(meta, entries_of)

    def _shown(self, name: str) -> str:
        branch = self._session.paths.branch_name
        return f"{name} of branch {branch!r}" if branch else name


_ROUNDS = 10  # times that branches are read which others keep moving


def retained_lines(
    session: TableSession,
    buckets: Buckets = None,
    *,
    own: References | None = None,
    besides: Collection[str] = (),
    marks: Mapping[str, object] | None = None,
) -> Iterator[tuple[TableSession, Iterator[RetainedFiles]]]:
    """Yield main and the branches, each with its retained references, which are read one line after the other.

    `own`: what has read the session's own line before, which is left out; `besides`: tags of that line that go;
    `marks`: those of the branches before that. What moves meanwhile is read under its new name, too. A rename makes the
    new branch whole before it deletes the old one, and a fast-forward makes main's snapshots and tags before the branch,
    or a tag of it, may go. Without branches nothing moves, and nothing is asked twice. Raises StorageError where others
    keep moving branches.
    """
    own_name = None if own is None else session.paths.branch_name
    main = open_branch(session, "")
    reads_main = own is None or bool(own_name)
    of_main = References(main) if reads_main or own is None else own
    marks = _branch_marks(session) if marks is None else marks
    if reads_main:
        yield main, of_main.retained_by_branch(buckets)
    before: Mapping[str, object] = {}
    for _ in range(_ROUNDS):
        moved = [name for name in marks if name not in before or marks[name] != before[name]]
        for name in moved:
            if name != own_name:
                branch = open_branch(session if not before else session.asking_anew(), name)
                branch = branch.gathered()
                yield branch, References(branch).retained_by_branch(buckets)
        if not moved:
            break
        before, marks = marks, _branch_marks(session.asking_anew())
    else:
        raise StorageError(
            "branches keep being renamed or made while they are read; nothing was deleted, try again",
            directory=main.paths.branch_directory,
        )
    if before:
        of_all = () if reads_main else besides
        yield main, of_main.retained_since(buckets, of_all, is_expiring=not reads_main)


# -- Deletion of what maintenance has planned ------------------------------------------------------
#
# Files are deleted in an order that a kill may cut anywhere.
#
# With `maintenance.trash-retained` the files are kept, and a record protects them from others.

_BESIDE = 500
"""So many files go while the first snapshot is looked at, which is to be deleted a round later."""


def carry_out(
    session: TableSession,
    plan: ExpirePlan,
    *,
    kind: str = "expire-snapshots",
    again: Callable[[], ExpirePlan] | None = None,
) -> bool:
    """Delete what a plan names, in its order. A file that is already deleted is no error.

    A plan has one tag at most. False, and nothing is deleted, if that has changed since it was read, or is
    deleted. `again` plans anew once it is deleted: another tag of it that was made meanwhile is a retained reference then, or its
    maker has seen that it was deleted.
    """
    # Changelogs and the record come first: a stop after them leaves too much, never too little.
    _keep_changelogs(session, plan)
    trash_record = keep_in_trash(session, plan)
    # A tag that has changed may name the planned files again.
    if not all(map(session.tags.delete, plan.tags)):
        if trash_record is not None:
            TrashStore(session.file_io, session.paths).delete(trash_record.name)
        return False
    durable: bool = session.options[core_options.COMMIT_FSYNC]
    if plan.tags and durable:
        # After a power cut a tag must not be back without its files.
        sync_directory(session.file_io, session.paths.tag_directory)
    # Another tag of the snapshot may have been made since the first plan.
    if again is not None and not trash_record:
        plan = again()
    directories: set[str] = set()

    def delete_files() -> None:
        if not trash_record:
            directories.update(_delete_files(session, plan))

    if trash_record is not None:
        _delete_recorded(session, plan)
    # So many deletions take so long that a look at the first snapshot would be old after them.
    elif sum(1 for _ in islice(planned_paths(session, plan), _BESIDE + 1)) > _BESIDE:
        delete_files()
        delete_states(session.file_io, session.snapshots, plan.expired)
    else:
        delete_states(session.file_io, session.snapshots, plan.expired, files=delete_files)
    for changelog in plan.expired_changelogs:
        _delete_changelog(session, changelog)
    if session.options[core_options.SNAPSHOT_CLEAN_EMPTY_DIRECTORIES]:
        for directory in sorted(directories):
            session.file_io.remove_empty_directory(directory)
    notify_removed(session, plan, kind)
    return True


def _delete_changelog(session: TableSession, changelog: Snapshot) -> None:
    """Delete a changelog's file as it was read. Raises CommitConflictError where it was restored since."""
    if session.changelogs.delete_unchanged(changelog):
        return
    if session.changelogs.exists(changelog.id):
        raise CommitConflictError(
            f"changelog {changelog.id} was given back from the trash while it expired; nothing more was deleted, "
            "expire again if it is to go",
            snapshot_id=changelog.id,
            table=session.name,
        )


def _delete_recorded(session: TableSession, plan: ExpirePlan) -> None:
    """Delete the snapshot files that a record of the trash holds, each only as it was read.

    What is restored meanwhile has another content. Raises CommitConflictError then.
    """
    for snapshot in plan.expired:
        if session.snapshots.delete_unchanged(snapshot):
            continue
        if session.snapshots.find_now(snapshot.id) is not None:  # and not deleted by another expiry
            raise CommitConflictError(
                f"snapshot {snapshot.id} was given back from the trash while it expired; nothing more was "
                "deleted, expire again if it is to go",
                snapshot_id=snapshot.id,
                table=session.name,
            )


def notify_removed(session: TableSession, plan: ExpirePlan, kind: str) -> None:
    """Notify listeners which snapshots and tags a plan removed, and why; not of the lock tag of a read."""
    snapshots = (*plan.expired, *plan.expired_changelogs)
    files = (*plan.data_files, *plan.changelog_files)
    is_lock_alone = bool(plan.tags) and all(is_lock(tag.name) for tag in plan.tags)
    if is_lock_alone and not snapshots and not files:
        return
    session.notify_removed(
        kind,
        plan.reason,
        branch=session.paths.branch_name,
        snapshot_ids=tuple(snapshot.id for snapshot in snapshots),
        tags=tuple(tag.name for tag in plan.tags),
        files=tuple(file.file_name for file in files),
        freed_bytes=plan.freed_bytes,
    )


def keep_in_trash(
    session: TableSession, plan: ExpirePlan, *, paths: Iterable[str] | None = None
) -> TrashRecord | None:
    """Write a record of what a plan takes, if the table has a trash; None without one.

    `paths`: the files to keep, by default all that the plan would delete.
    """
    if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is None:
        return None
    now = session.clock.now_millis()
    record = TrashRecord(
        name=f"trash-{now:013d}-{session.ids.new_id()}",
        created_millis=now,
        reason=plan.reason,
        branch=session.paths.branch_name,
        snapshots=plan.expired,
        changelogs=plan.expired_changelogs,
        tags=plan.tags,
        paths=tuple(planned_paths(session, plan) if paths is None else paths),
    )
    TrashStore(session.file_io, session.paths).write(record)
    return record


def planned_paths(session: TableSession, plan: ExpirePlan) -> Iterator[str]:
    """Yield the files that a plan deletes, in the order of deletion: data before metadata."""
    for file in chain(plan.data_files, plan.changelog_files):
        yield from _paths_of(session, file)
    yield from _metadata_paths(session, plan)


def _keep_changelogs(session: TableSession, plan: ExpirePlan) -> None:
    """Write the changelogs that outlive their snapshots, before their files are deleted.

    EARLIEST names the first of all before it is there, so that one that is lost is missed.
    """
    if not plan.outlived:
        return
    changelogs = session.changelogs
    session.identity.require_there()
    marked = changelogs.earliest_hint()
    if marked is None or not changelogs.exists(marked):
        ids = changelogs.ids()
        if marked is None or not ids:
            changelogs.hint_earliest(min([*ids, plan.outlived[0].id]))
    written = [snapshot for snapshot in plan.outlived if changelogs.publish(snapshot)]
    if session.identity.is_dropped():
        # What they name is in no table that was made here meanwhile.
        for snapshot in written:
            changelogs.delete_unchanged(snapshot)
        raise session.identity.dropped()
    changelogs.hint_latest(plan.outlived[-1].id)


def _delete_files(session: TableSession, plan: ExpirePlan) -> set[str]:
    """Delete files; return the directories that data files went from."""
    directories = set()

    def data_paths() -> Iterator[str]:
        for file in chain(plan.data_files, plan.changelog_files):
            for path in _paths_of(session, file):
                directories.add(path.rpartition("/")[0])
                yield path

    metadata = list(_metadata_paths(session, plan))
    for path in metadata:
        session.manifests.forget(path.rpartition("/")[2])
    if not session.file_io.facts.has_directories:  # batches, in this order
        session.file_io.delete_many(chain(data_paths(), metadata))
        return directories
    session.file_io.delete_many(data_paths())
    lists_at = len(metadata) - len(plan.metadata.manifest_lists)
    # Lists name the others: the next attempt finds by them what an error left.
    for paths in (metadata[:lists_at], metadata[lists_at:]):
        session.file_io.delete_many(paths)
    return directories


def _metadata_paths(session: TableSession, plan: ExpirePlan) -> Iterator[str]:
    names, paths = plan.metadata, session.paths
    yield from map(paths.manifest, sorted(names.manifests | names.index_manifests))
    yield from map(paths.index_file, sorted(names.index_files))
    yield from map(paths.statistics_file, sorted(names.statistics))
    yield from map(paths.manifest, sorted(names.manifest_lists))


def _paths_of(session: TableSession, file: DeadFile) -> Iterator[str]:
    """Yield the paths of a file; one outside of the table (`external_path`) belongs to its owner."""
    if file.external_path is None:
        context = session.context()
        for name in (file.file_name, *file.extra_files):
            yield context.data_file(file.partition, file.bucket, name)


# --- commit identifiers -----------------------------------------------------------------------

Changed = Callable[[RecordedIdentifiers | None], RecordedIdentifiers | None]


def limits_of(session: TableSession) -> Limits:
    """Return how much the options of a table keep."""
    options = session.options
    return Limits(
        users=options[core_options.COMMIT_IDENTIFIER_NUM_RETAINED],
        seconds=options[core_options.COMMIT_IDENTIFIER_TIME_RETAINED] // 1000,
    )


def now_seconds(session: TableSession) -> int:
    """Return the time by the table's clock, in seconds since 1970."""
    return session.clock.now_millis() // 1000


def change_file(session: TableSession, content_after: Changed) -> None:
    """Change the file, durably: what rests on it may not outlive it in a power cut."""
    session.commit_identifiers.change(content_after)
    if session.options[core_options.COMMIT_FSYNC]:
        session.file_io.sync([session.paths.commit_identifier_file])


def keep_identifiers(session: TableSession, snapshots: Sequence[Snapshot], count: int) -> None:
    """Write down what the first `count` of some snapshots, oldest first, witness before they expire.

    Nothing has to be written where one of those that stay carries the commit identifiers. Else they are of
    other clients, and the next numbered commit reads them down to the oldest, and then the file.
    """
    if not count or any(map(has_property, snapshots[count:])):
        return
    is_ours = any(
        snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER and not is_of_another_client(snapshot)
        for snapshot in snapshots
    )
    if (
        not is_ours
        and not any(map(has_property, snapshots))
        and not session.commit_identifiers.read()
    ):
        return
    # Up to the newest, as a replay is looked up from there.
    newest = snapshots[-1]
    snapshot_chain = session.commit_identifiers.up_to(newest)
    change_file(session, lambda recorded: _up_to(session, snapshot_chain, recorded, newest))


def roll_identifiers_back(
    session: TableSession, target: Snapshot, require: Callable[[], None]
) -> None:
    """Remove commit identifiers that a rollback removes: a replay of it is a new commit.

    `require` is called once the file was read, and raises where it may not be changed.
    """
    if session.commit_identifiers.read() is None:
        return
    snapshot_chain = session.commit_identifiers.up_to(target)

    def content_after(recorded: RecordedIdentifiers | None) -> RecordedIdentifiers | None:
        if recorded is None:
            return None
        require()
        return _up_to(
            session, snapshot_chain, rolled_back(recorded, snapshot_chain, target.id), target
        )

    change_file(session, content_after)


def recorded_at(session: TableSession, snapshot: Snapshot) -> RecordedIdentifiers | None:
    """Return what the file of a branch holds that begins with a snapshot; None: it needs none."""
    return _recorded(session, snapshot, rolls_back=True)


def identifiers_up_to(branch: TableSession, newest: Snapshot) -> RecordedIdentifiers | None:
    """Return the commit identifiers of a branch up to a snapshot, for main; None: its snapshots have them all."""
    return _recorded(branch, newest, rolls_back=False)


def _recorded(
    session: TableSession, snapshot: Snapshot, *, rolls_back: bool
) -> RecordedIdentifiers | None:
    identifiers = session.commit_identifiers
    snapshot_chain, recorded = identifiers.up_to(snapshot), identifiers.read()
    if recorded is None and not snapshot_chain.identifiers.has_file:
        return None
    if recorded is not None and rolls_back:
        recorded = rolled_back(recorded, snapshot_chain, snapshot.id)
    return _up_to(session, snapshot_chain, recorded, snapshot)


def take_identifiers_over(
    session: TableSession, added: RecordedIdentifiers | None, *, is_done: bool
) -> None:
    """Write down for main what a branch has, whose snapshots main takes over.

    Before that (not `is_done`) what main has of its own users stays: a fast-forward that dies has come part of the way.
    """
    if added is None:
        return

    def content_after(recorded: RecordedIdentifiers | None) -> RecordedIdentifiers:
        if recorded is None:
            return added if is_done else replace(added, snapshot_id=0, is_recorded=False)
        users = {**added.users, **recorded.users}
        if is_done:
            newer = {
                key: last
                for key, last in added.users.items()
                if key not in recorded.users or recorded.users[key].snapshot_id < last.snapshot_id
            }
            users = {**recorded.users, **newer}
        return RecordedIdentifiers(
            snapshot_id=max(recorded.snapshot_id, added.snapshot_id)
            if is_done
            else recorded.snapshot_id,
            users=users,
            pending={**added.pending, **recorded.pending},
            forgotten=recorded.forgotten | added.forgotten,
            is_recorded=recorded.is_recorded and added.is_recorded,
        )

    change_file(session, content_after)


def _up_to(
    session: TableSession,
    snapshot_chain: ChainIdentifiers,
    recorded: RecordedIdentifiers | None,
    newest: Snapshot,
) -> RecordedIdentifiers:
    return recorded_before(
        "",
        snapshot_chain,
        recorded,
        newest.id,
        limits=limits_of(session),
        now_seconds=now_seconds(session),
    )
