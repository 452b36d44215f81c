"""What each root of a table names: its manifests, lists, index files, and the entries it can read.

Maintenance deletes only what no root names, so a root that cannot be read ends it before it begins.
Roots are the snapshots, tags and long-lived changelogs of main and of every branch, and the records of
the trash.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from lsm_engine.base import core_options
from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.meta.trash import TrashRecord
from lsm_engine.plan.expire import KeptRoot, MetadataNames
from lsm_engine.plan.live_snapshots import follows, rollback_target
from lsm_engine.store.branches import BranchStore
from lsm_engine.store.trash import TrashStore, kept_by_record
from lsm_engine.table.ground.session import TableSession

Holds = Callable[[bytes, int], bool]
_TOGETHER = 16  # snapshots whose lists are fetched at once
_EXPECTED = 32  # manifests of them


def branches(session: TableSession) -> list[TableSession]:
    """Return the table's branches: main, and every branch directory there is.

    Directories of branches that are half made or half deleted count: their files are roots too.
    """
    main = _branch(session, "")
    branches = BranchStore(session.file_io, main.paths).directories()
    return [main, *(_branch(session, name) for name in branches)]


def other_branches(session: TableSession) -> list[TableSession]:
    """Return the branches besides the session's own."""
    own = session.paths.branch_name
    return [branch for branch in branches(session) if branch.paths.branch_name != own]


def _branch(session: TableSession, branch: str) -> TableSession:
    opened = TableSession(session.name, session.components, session.schema, branch=branch)
    opened.manifests = session.manifests  # what one branch has read, the others need not
    return opened


def _shown(session: TableSession, what: str) -> str:
    branch = session.paths.branch_name
    return f"{what} of branch {branch!r}" if branch else what


# --- what one root names -------------------------------------------------------------------------


def metadata_names(session: TableSession, snapshot: Snapshot) -> MetadataNames:
    """Return all metadata files that a snapshot names; NotFoundError if a list is missing."""
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    if snapshot.changelog_manifest_list is not None:
        lists.append(snapshot.changelog_manifest_list)
    names = [_list_names(session, snapshot, name) for name in lists]
    return MetadataNames.union([*names, _index_names(session, snapshot)])


def tag_names(session: TableSession, snapshot: Snapshot) -> MetadataNames:
    """Return all metadata files that a tag names. Nothing reads a changelog through a tag."""
    names = _list_names(session, snapshot, snapshot.base_manifest_list)
    names |= _list_names(session, snapshot, snapshot.delta_manifest_list)
    return names | _index_names(session, snapshot)


def expiring_names(session: TableSession, snapshot: Snapshot) -> MetadataNames:
    """Return what an expiring snapshot names; what an earlier, killed expiry deleted is left out."""
    names = MetadataNames()
    lists = (
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
    )
    for name in lists:
        if name is not None:
            names |= MetadataNames(manifest_lists=frozenset([name]))
            names |= _names_if_there(session, snapshot, name)
    try:
        return names | _index_names(session, snapshot)
    except NotFoundError:
        return names


def _list_names(session: TableSession, snapshot: Snapshot, name: str) -> MetadataNames:
    metas = session.manifest_list(snapshot, name)
    return MetadataNames(
        manifest_lists=frozenset([name]),
        manifests=frozenset(meta.file_name for meta in metas),
    )


def _names_if_there(session: TableSession, snapshot: Snapshot, name: str) -> MetadataNames:
    try:
        return _list_names(session, snapshot, name)
    except NotFoundError:
        return MetadataNames()


def _index_names(session: TableSession, snapshot: Snapshot) -> MetadataNames:
    statistics = frozenset([snapshot.statistics] if snapshot.statistics else [])
    entries = session.index_entries(snapshot)
    if snapshot.index_manifest is None:
        return MetadataNames(statistics=statistics)
    return MetadataNames(
        index_manifests=frozenset([snapshot.index_manifest]),
        index_files=frozenset(entry.index_file.file_name for entry in entries),
        statistics=statistics,
    )


def together(session: TableSession, snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
    """Yield snapshots; from afar their manifest lists and new manifests are fetched some at a time."""
    if not session.file_io.facts.is_far:
        yield from snapshots
        return
    rest = iter(snapshots)
    while some := list(islice(rest, _TOGETHER)):
        lists = ((one.base_manifest_list, one.delta_manifest_list) for one in some)
        session.manifests.expect(chain.from_iterable(lists))
        added = [meta.file_name for one in some for meta in _metas_if_there(session, one)]
        session.manifests.expect(added[:_EXPECTED])
        yield from some


def _metas_if_there(session: TableSession, snapshot: Snapshot) -> Sequence[ManifestFileMeta]:
    try:
        return session.manifest_list(snapshot, snapshot.delta_manifest_list)
    except NotFoundError:
        return ()


def delta_entries(
    session: TableSession, snapshots: Iterable[Snapshot], *, keeps: bool = True
) -> Iterator[ManifestEntry]:
    """Yield the entries of delta lists; those that a killed expiry has deleted are left out.

    `keeps`: they may be asked for again; what goes would only drive out what stays.
    """
    for snapshot in together(session, snapshots):
        yield from _entries_if_there(session, snapshot, snapshot.delta_manifest_list, keeps=keeps)


def changelog_entries(
    session: TableSession, snapshots: Iterable[Snapshot], *, keeps: bool = True
) -> Iterator[ManifestEntry]:
    """Yield the entries of changelog lists; those already deleted are left out. `keeps`: as above."""
    for snapshot in snapshots:
        if snapshot.changelog_manifest_list is not None:
            yield from _entries_if_there(
                session, snapshot, snapshot.changelog_manifest_list, keeps=keeps
            )


def _entries_if_there(
    session: TableSession, snapshot: Snapshot, name: str, *, keeps: bool = True
) -> Iterator[ManifestEntry]:
    try:
        metas = session.manifest_list(snapshot, name)
    except NotFoundError:
        return
    for meta in metas:
        try:
            yield from session.manifests.read_entries(meta, keeps=keeps)
        except NotFoundError:
            continue


def fed_by_deltas(session: TableSession, changelog: Snapshot) -> bool:
    """Whether a changelog's rows are the snapshot's own new files, as nobody wrote others."""
    return (
        changelog.changelog_manifest_list is None
        and changelog.commit_kind is CommitKind.APPEND
        and session.options[core_options.CHANGELOG_PRODUCER].policy.reads_delta
    )


# --- roots that are kept -----------------------------------------------------------------------------


def kept_roots(
    session: TableSession,
    kept: Iterable[Snapshot],
    holds: Holds,
    *,
    changelogs: Iterable[Snapshot] | None = None,
    besides: Iterable[str] = (),
) -> Iterator[KeptRoot]:
    """Yield every root that is kept: tags, `kept` snapshots and changelogs of the session's branch, and
    all of the other branches and the trash.

    `changelogs` None: those there are. `besides`: tags of the session's branch that go. One root is
    held at a time: there may be tens of thousands.
    """
    feeds = session.changelogs.all() if changelogs is None else changelogs
    yield from kept_tags(session, holds, besides=besides)
    yield from kept_snapshots(session, kept, holds)
    yield from kept_changelogs(session, feeds)
    for branch in (one.gathered() for one in other_branches(session)):
        snapshots = branch.snapshots.stable_listing()
        yield from kept_tags(branch, holds)
        yield from kept_snapshots(branch, snapshots, holds)
        yield from kept_changelogs(branch, branch.changelogs.all())
        yield KeptRoot(
            name=_shown(branch, "changelogs of snapshots"),
            entries=(),
            names=MetadataNames(),
            changelog=changelog_entries(branch, snapshots),
        )
    yield from kept_trash(session, holds)


def kept_snapshots(
    session: TableSession, kept: Iterable[Snapshot], holds: Holds
) -> Iterator[KeptRoot]:
    """Yield kept snapshots as roots: the first with its whole state, the others with their deltas.

    Behind a gap, and for the seal of a rollback, the whole state is yielded again. Of snapshots below the EARLIEST hint,
    which an expiry that died has begun to delete, whatever is still there is kept.
    """
    marked = session.snapshots.earliest_hint() or 0
    before: Snapshot | None = None
    for snapshot in together(session, kept):
        name = _shown(session, f"snapshot {snapshot.id}")
        if snapshot.id < marked:
            lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
            entries = [
                entry for one in lists for entry in _entries_if_there(session, snapshot, one)
            ]
            yield KeptRoot(name=name, entries=entries, names=_whats_left(session, snapshot))
            continue
        names = metadata_names(session, snapshot)
        goes_on = before is not None and follows(snapshot, before)
        before = snapshot
        entries = (
            session.live_entries(snapshot, holds)
            if not goes_on or rollback_target(snapshot) is not None
            else list(
                _delta(session, session.manifest_list(snapshot, snapshot.delta_manifest_list))
            )
        )
        yield KeptRoot(name=name, entries=entries, names=names)


def _whats_left(session: TableSession, snapshot: Snapshot) -> MetadataNames:
    """Return the metadata of a half-deleted snapshot: what it names and what those name."""
    return expiring_names(session, snapshot) | MetadataNames(
        index_manifests=frozenset([snapshot.index_manifest] if snapshot.index_manifest else []),
        statistics=frozenset([snapshot.statistics] if snapshot.statistics else []),
    )


def kept_tags(
    session: TableSession, holds: Holds, *, besides: Iterable[str] = ()
) -> Iterator[KeptRoot]:
    """Yield tags as roots, but those named `besides`."""
    removed = set(besides)
    for tag in session.tags.stable_listing():
        if tag.name not in removed:
            yield _tag_root(session, tag, holds)


def _tag_root(session: TableSession, tag: Tag, holds: Holds) -> KeptRoot:
    return KeptRoot(
        name=_shown(session, f"tag {tag.name!r}"),
        entries=session.live_entries(tag.snapshot, holds),
        names=tag_names(session, tag.snapshot),
    )


def kept_changelogs(session: TableSession, changelogs: Iterable[Snapshot]) -> Iterator[KeptRoot]:
    """Yield long-lived changelogs as roots: their changelog files, or the new files of the snapshot.

    Of those below their EARLIEST hint, as of snapshots, whatever is still there.
    """
    marked = session.changelogs.earliest_hint() or 0
    for one in changelogs:
        names = MetadataNames()
        entries: list[ManifestEntry] = []
        feed: list[ManifestEntry] = []
        listed = one.changelog_manifest_list
        if listed is not None and one.id < marked:
            names = MetadataNames(manifest_lists=frozenset([listed]))
            names |= _names_if_there(session, one, listed)
            feed = list(_entries_if_there(session, one, listed))
        elif listed is not None:
            names = _list_names(session, one, listed)
            feed = list(_delta(session, session.manifest_list(one, listed)))
        elif fed_by_deltas(session, one):
            names = _names_if_there(session, one, one.delta_manifest_list)
            entries = list(_entries_if_there(session, one, one.delta_manifest_list))
        yield KeptRoot(
            name=_shown(session, f"changelog {one.id}"),
            entries=entries,
            names=names,
            changelog=feed,
        )


def kept_trash(session: TableSession, holds: Holds) -> Iterator[KeptRoot]:
    """Yield what the records of the trash hold as roots: it may be asked back."""
    for one in TrashStore(session.file_io, session.paths).list():
        yield from record_roots(session, one, holds)


def record_roots(session: TableSession, one: TrashRecord, holds: Holds) -> Iterator[KeptRoot]:
    """Yield one record as roots: its files by name, and the states of its snapshots and tags."""
    names, file_names = kept_by_record(one)
    yield KeptRoot(name=one.name, entries=(), names=names, file_names=file_names)
    roots = chain(
        kept_snapshots(session, one.snapshots, holds),
        (_tag_root(session, tag, holds) for tag in one.tags),
        kept_changelogs(session, one.changelogs),
    )
    for root in roots:
        yield replace(root, name=f"{root.name} in {one.name}")


def _delta(session: TableSession, metas: Iterable[ManifestFileMeta]) -> Iterator[ManifestEntry]:
    for meta in metas:
        yield from session.manifests.read_entries(meta)
