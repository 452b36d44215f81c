"""What each root of a table names: its manifests, lists, index files, and the entries it can read.

Maintenance deletes only what no root names, so a root that cannot be read ends it before it begins.
Roots are the snapshots, tags and long-lived changelogs of main and of every branch, and the records of
the trash.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import chain, islice

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import CorruptFileError, NotFoundError
from lsm_engine.base.modes import CommitKind
from lsm_engine.codec.manifest import entries_of
from lsm_engine.meta.manifest import BucketScope, ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.meta.trash import TrashRecord
from lsm_engine.plan.expire import KeptRoot, MetadataNames
from lsm_engine.plan.live_snapshots import follows, rollback_target
from lsm_engine.plan.named_manifests import lists_to_fetch, new_manifests
from lsm_engine.plan.tags import is_lock
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.store.branches import BranchStore
from lsm_engine.store.trash import TrashStore, kept_by_record
from lsm_engine.table.ground.live_files import joined
from lsm_engine.table.ground.session import TableSession

Buckets = Collection[tuple[bytes, int]] | None
"""Partition and bucket of the entries that are asked for; None: all."""
_TOGETHER = 16  # snapshots whose lists are fetched at once
_EXPECTED = 32  # manifests of them
_ENTRIES = 4096  # made at once, about


def branches(session: TableSession) -> list[TableSession]:
    """Return the table's branches: main, and every branch directory there is.

    Directories of branches that are half made or half deleted count: their files are roots too.
    """
    main = open_branch(session, "")
    branches = BranchStore(session.file_io, main.paths).directories()
    return [main, *(open_branch(session, name) for name in branches)]


def other_branches(session: TableSession) -> list[TableSession]:
    """Return the branches besides the session's own."""
    own = session.paths.branch_name
    return [branch for branch in branches(session) if branch.paths.branch_name != own]


def open_branch(session: TableSession, branch: str) -> TableSession:
    """Return a branch by the name of its directory; "" is main."""
    opened = TableSession(session.name, session.components, session.schema, branch=branch)
    if branch != session.paths.branch_name:
        opened.schema = _own_schema(opened)
    opened.manifests = session.manifests  # what one branch has read, the others need not
    return opened


def _own_schema(branch: TableSession) -> TableSchema:
    """Return the newest schema of a branch, or the one it has been given, as that of no file here.

    So where the branch is half made, half deleted or damaged: its partitions are those of the others.
    """
    given = replace(branch.schema, read_from=None)
    with suppress(CorruptFileError, NotFoundError):
        return branch.schemas.latest() or given
    return given


class Roots:
    """What each root of one branch names, and every root that is kept."""

    def __init__(self, session: TableSession) -> None:
        self._session = session

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

    def together(self, snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
        """Yield snapshots; from afar their lists and new manifests are fetched some at a time."""
        if not self._session.file_io.facts.is_far:
            yield from snapshots
            return
        rest = iter(snapshots)
        while some := list(islice(rest, _TOGETHER)):
            self.expect(some)
            added = [meta.file_name for one in some for meta in self._metas_if_there(one)]
            self._session.manifests.expect(added[:_EXPECTED])
            yield from some

    def expect(self, snapshots: Iterable[Snapshot]) -> None:
        """Have the lists of the first snapshots fetched from afar, and what else their names show."""
        if self._session.file_io.facts.is_far:
            some = list(islice(snapshots, _TOGETHER))
            lists = map(lists_to_fetch, some)
            added = islice(chain.from_iterable(map(new_manifests, some)), _EXPECTED)
            self._session.manifests.expect([*chain.from_iterable(lists), *added])

    def _metas_if_there(self, snapshot: Snapshot) -> Sequence[ManifestFileMeta]:
        try:
            return self._session.manifest_list(snapshot, snapshot.delta_manifest_list)
        except NotFoundError:
            return ()

    def delta_entries(
        self, snapshots: Iterable[Snapshot], *, keeps: bool = True
    ) -> Iterator[ManifestEntry]:
        """Yield the entries of delta lists; those that a killed expiry has deleted are left out.

        `keeps`: they may be asked for again; what goes would only drive out what stays.
        """
        seen = self.together(snapshots)
        lists = ((one, one.delta_manifest_list) for one in seen)
        yield from self._entries(lists, keeps=keeps)

    def changelog_entries(
        self, snapshots: Iterable[Snapshot], *, keeps: bool = True
    ) -> Iterator[ManifestEntry]:
        """Yield the entries of changelog lists; deleted ones are left out. `keeps`: as above."""
        lists = ((one, one.changelog_manifest_list) for one in snapshots)
        yield from self._entries(((one, name) for one, name in lists if name), keeps=keeps)

    def _entries(
        self, lists: Iterable[tuple[Snapshot, str]], *, keeps: bool = True
    ) -> Iterator[ManifestEntry]:
        """Yield the entries of manifest lists that are there, those of small manifests made in one go."""
        for table in joined(self._tables(lists, keeps=keeps), _ENTRIES):
            yield from entries_of(table)

    def _tables(self, lists: Iterable[tuple[Snapshot, str]], *, keeps: bool) -> Iterator[pa.Table]:
        for snapshot, name in lists:
            with suppress(NotFoundError):
                for meta in self._session.manifest_list(snapshot, name):
                    with suppress(NotFoundError):
                        yield self._session.manifests.read(meta, keeps=keeps)

    def fed_by_deltas(self, changelog: Snapshot) -> bool:
        """Whether a changelog's rows are the snapshot's own new files, as nobody wrote others."""
        if changelog.changelog_manifest_list or changelog.commit_kind is not CommitKind.APPEND:
            return False
        with suppress(NotFoundError):  # of a branch that is deleted: what there is stays
            options = self._session.schemas.load(changelog.schema_id).options
            return options[core_options.CHANGELOG_PRODUCER].policy.reads_delta
        return True

    def kept_roots(
        self,
        kept: Iterable[Snapshot],
        buckets: Buckets = None,
        *,
        changelogs: Iterable[Snapshot] | None = None,
        besides: Iterable[str] = (),
    ) -> Iterator[KeptRoot]:
        """Yield every root that is kept: tags, `kept` snapshots and changelogs of this branch, and
        all of the other branches and the trash.

        `changelogs` None: those there are. `besides`: tags of this branch that go. One root is
        held at a time: there may be tens of thousands.
        """
        feeds = self._session.changelogs.all() if changelogs is None else changelogs
        yield from self.kept_tags(buckets, besides=besides)
        yield from self.kept_snapshots(kept, buckets)
        yield from self.kept_changelogs(feeds)
        for branch in (one.gathered() for one in other_branches(self._session)):
            yield from Roots(branch).of_other_branch(buckets)
        yield from self.kept_trash(buckets)

    def of_other_branch(self, buckets: Buckets) -> Iterator[KeptRoot]:
        """Yield the roots of a branch that nothing is taken from."""
        snapshots = self._session.snapshots.stable_listing()
        yield from self.kept_tags(buckets)
        yield from self.kept_snapshots(snapshots, buckets)
        yield from self.kept_changelogs(self._session.changelogs.all())
        yield KeptRoot(
            name=self._shown("changelogs of snapshots"),
            entries=(),
            names=MetadataNames(),
            changelog=self.changelog_entries(snapshots),
        )

    def kept_snapshots(
        self, kept: Iterable[Snapshot], buckets: Buckets = None
    ) -> Iterator[KeptRoot]:
        """Yield kept snapshots as roots: the first with its whole state, the others with their deltas.

        Behind a gap, and for the seal of a rollback, the whole state is yielded again. Of snapshots
        below the EARLIEST hint, which an expiry that died has begun to delete, whatever is still there
        is kept.
        """
        marked = self._session.snapshots.earliest_hint() or 0
        before: Snapshot | None = None
        for snapshot in self.together(kept):
            name = self._shown(f"snapshot {snapshot.id}")
            if snapshot.id < marked:
                lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
                entries = list(self._entries((snapshot, one) for one in lists))
                yield KeptRoot(name=name, entries=entries, names=self._whats_left(snapshot))
                continue
            names = self.metadata_names(snapshot)
            goes_on = before is not None and follows(snapshot, before)
            before = snapshot
            entries = (
                self._live(snapshot, buckets)
                if not goes_on or rollback_target(snapshot) is not None
                else list(
                    self._delta(self._session.manifest_list(snapshot, snapshot.delta_manifest_list))
                )
            )
            yield KeptRoot(name=name, entries=entries, names=names)

    def _whats_left(self, snapshot: Snapshot) -> MetadataNames:
        """Return the metadata of a half-deleted snapshot: what it names and what those name."""
        return self.expiring_names(snapshot) | MetadataNames(
            index_manifests=frozenset([snapshot.index_manifest] if snapshot.index_manifest else []),
            statistics=frozenset([snapshot.statistics] if snapshot.statistics else []),
        )

    def kept_tags(
        self, buckets: Buckets = None, *, besides: Iterable[str] = ()
    ) -> Iterator[KeptRoot]:
        """Yield tags as roots, but those named `besides`."""
        removed = set(besides)
        for tag in self._session.tags.stable_listing():
            if tag.name in removed:
                continue
            # Whoever makes one of what has expired looks then, and gives up, or was killed before that.
            with suppress(NotFoundError) if is_lock(tag.name) else nullcontext():
                root = self._tag_root(tag, buckets)
                yield root

    def _tag_root(self, tag: Tag, buckets: Buckets) -> KeptRoot:
        return KeptRoot(
            name=self._shown(f"tag {tag.name!r}"),
            entries=self._live(tag.snapshot, buckets),
            names=self.tag_names(tag.snapshot),
        )

    def kept_changelogs(self, changelogs: Iterable[Snapshot]) -> Iterator[KeptRoot]:
        """Yield long-lived changelogs as roots: their changelog files, or the snapshot's new files.

        Of those below their EARLIEST hint, as of snapshots, whatever is still there.
        """
        marked = self._session.changelogs.earliest_hint() or 0
        for one in changelogs:
            names = MetadataNames()
            entries: list[ManifestEntry] = []
            feed: list[ManifestEntry] = []
            listed = one.changelog_manifest_list
            if listed is not None and one.id < marked:
                names = MetadataNames(manifest_lists=frozenset([listed]))
                names |= self._names_if_there(one, listed)
                feed = list(self._entries([(one, listed)]))
            elif listed is not None:
                names = self._list_names(one, listed)
                feed = list(self._delta(self._session.manifest_list(one, listed)))
            elif self.fed_by_deltas(one):
                names = self._names_if_there(one, one.delta_manifest_list)
                entries = list(self._entries([(one, one.delta_manifest_list)]))
            yield KeptRoot(
                name=self._shown(f"changelog {one.id}"),
                entries=entries,
                names=names,
                changelog=feed,
            )

    def kept_trash(self, buckets: Buckets) -> Iterator[KeptRoot]:
        """Yield what the records of the trash hold as roots: it may be asked back."""
        for one in TrashStore(self._session.file_io, self._session.paths).list():
            yield from self.record_roots(one, buckets)

    def record_roots(self, one: TrashRecord, buckets: Buckets = None) -> Iterator[KeptRoot]:
        """Yield one record as roots: its files by name, and the states of its snapshots and tags."""
        names, file_names = kept_by_record(one)
        yield KeptRoot(name=one.name, entries=(), names=names, file_names=file_names)
        own = Roots(open_branch(self._session, one.branch))
        roots = chain(
            own.kept_snapshots(one.snapshots, buckets),
            (own._tag_root(tag, buckets) for tag in one.tags),
            own.kept_changelogs(one.changelogs),
        )
        for root in roots:
            yield replace(root, name=f"{root.name} in {one.name}")

    def _live(self, snapshot: Snapshot, buckets: Buckets) -> list[ManifestEntry]:
        holds = None if buckets is None else BucketScope(buckets=frozenset(buckets))
        return self._session.live_entries(snapshot, holds)

    def _delta(self, metas: Iterable[ManifestFileMeta]) -> Iterator[ManifestEntry]:
        for meta in metas:  # of what stays: the next plan asks for them again
            yield from self._session.manifests.fact(meta, entries_of)

    def _shown(self, what: str) -> str:
        branch = self._session.paths.branch_name
        return f"{what} of branch {branch!r}" if branch else what
