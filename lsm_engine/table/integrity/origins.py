"""The commit that made a data file, and other retained references that hold versions of its rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lsm_engine.base.errors import LsmError
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.meta.manifest import BucketScope, ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.trash import TrashStore
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Root, readable
from lsm_engine.table.tags import roots

Identity = tuple[bytes, int, str]


@record
class Origin:
    """The commit that made a file, in one bucket.

    `entry`: the file's entry in it. `inputs`: what a compaction merged; `outputs`: what it wrote;
    `changelog`: files with the rows as they were written, where the producer keeps them.
    """

    snapshot: Snapshot
    entry: ManifestEntry
    inputs: tuple[ManifestEntry, ...]
    outputs: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...]


def identity(entry: ManifestEntry) -> Identity:
    """Return what a file is known by, on whatever level it is."""
    return entry.partition, entry.bucket, entry.file.file_name


def every_root(
    session: TableSession, *, rolled_back: bool = True
) -> Iterator[tuple[TableSession, Root, Snapshot]]:
    """Yield what can be read of snapshots, tags and the trash of all branches, newest ids first.

    `rolled_back`: also what rollbacks have left in the trash.
    """
    retained: list[tuple[TableSession, Root, Snapshot]] = []
    for branch in roots.branches(session):
        name = branch.paths.branch_name
        for number, snapshot in readable(branch.snapshots.listed_ids(), branch.snapshots.find):
            retained.append((branch, Root(kind="snapshot", name=number, branch=name), snapshot))
        for tag_name, tag in readable(branch.tags.names(), branch.tags.find):
            retained.append((branch, Root(kind="tag", name=tag_name, branch=name), tag.snapshot))
    retained += _of_trash(session, rolled_back=rolled_back)
    yield from sorted(retained, key=lambda item: -item[2].id)


def own_roots(session: TableSession) -> Iterator[tuple[TableSession, Root, Snapshot]]:
    """Yield those of a branch's own history: nothing that was rolled back, and what others share with it.

    Another branch shares the snapshots up to the newest that both have. All else may hold rows that this
    one never had, or no longer has.
    """
    own, all_roots = session.paths.branch_name, list(every_root(session, rolled_back=False))
    mine = {snapshot.id: snapshot for _, root, snapshot in all_roots if root.branch == own}
    mine |= {
        snapshot.id: snapshot
        for _, root, snapshot in all_roots
        if (root.kind, root.branch) == ("snapshot", own)
    }
    shared: dict[str, int] = {}
    for _, root, snapshot in all_roots:
        if same_state(mine.get(snapshot.id), snapshot):
            shared[root.branch] = max(shared.get(root.branch, 0), snapshot.id)
    for branch, root, snapshot in all_roots:
        is_mine = same_state(mine.get(snapshot.id, snapshot), snapshot)
        if is_mine and snapshot.id <= shared.get(root.branch, 0):
            yield branch, root, snapshot


def _of_trash(
    session: TableSession, *, rolled_back: bool
) -> list[tuple[TableSession, Root, Snapshot]]:
    try:
        records = TrashStore(session.file_io, session.paths).list()
    except LsmError:
        return []
    return [
        (
            session,
            Root(kind=f"snapshot {snapshot.id} in trash", name=trashed.name, branch=trashed.branch),
            snapshot,
        )
        for trashed in records
        if rolled_back or not trashed.was_rolled_back
        for snapshot in (*trashed.snapshots, *(tag.snapshot for tag in trashed.tags))
    ]


def origins_of(session: TableSession, identities: Iterable[Identity]) -> Mapping[Identity, Origin]:
    """Return the commits that made some files, as far as their snapshots are still there."""
    missing = set(identities)
    origins: dict[Identity, Origin] = {}
    visited_lists: set[str] = set()
    for branch, _, snapshot in every_root(session):
        if not missing:
            break
        if snapshot.delta_manifest_list in visited_lists:
            continue
        visited_lists.add(snapshot.delta_manifest_list)
        delta = _entries(branch, snapshot, snapshot.delta_manifest_list)
        removed = {identity(entry) for entry in delta if entry.kind is EntryKind.DELETE}
        for entry in delta:
            key = identity(entry)
            if entry.kind is EntryKind.ADD and key in missing and key not in removed:
                origins[key] = _origin(branch, snapshot, entry, delta)
                missing.discard(key)
    return origins


def _origin(
    session: TableSession,
    snapshot: Snapshot,
    file_entry: ManifestEntry,
    delta: Sequence[ManifestEntry],
) -> Origin:
    def of_bucket(entries: Iterable[ManifestEntry], kind: EntryKind) -> tuple[ManifestEntry, ...]:
        return tuple(
            entry
            for entry in entries
            if entry.kind is kind and identity(entry)[:2] == identity(file_entry)[:2]
        )

    merged = snapshot.commit_kind is CommitKind.COMPACT
    listed = snapshot.changelog_manifest_list
    changelog = [] if merged or listed is None else _entries(session, snapshot, listed)
    return Origin(
        snapshot=snapshot,
        entry=file_entry,
        inputs=of_bucket(delta, EntryKind.DELETE) if merged else (),
        outputs=of_bucket(delta, EntryKind.ADD),
        changelog=of_bucket(changelog, EntryKind.ADD),
    )


def _entries(session: TableSession, snapshot: Snapshot, name: str) -> list[ManifestEntry]:
    try:
        metas = session.manifest_list(snapshot, name)
        return [entry for meta in metas for entry in session.manifests.read_entries(meta)]
    except LsmError:
        return []


def is_there(session: TableSession, entry: ManifestEntry) -> bool:
    """Whether a file is in its place and has its size."""
    try:
        return session.file_io.status(session.data_path(entry)).size == entry.file.file_size
    except LsmError:
        return False


def older_versions(
    session: TableSession, lost: ManifestEntry, bad: frozenset[str]
) -> tuple[Root, Snapshot, tuple[ManifestEntry, ...]] | None:
    """Return the newest own root that can be read without damaged files, its files of a lost file's keys.

    Of these only such as may hold rows that the lost file was made of: other live files than now.
    """
    order = session.key_order
    if order is None:
        return None
    newest = session.snapshots.latest()
    bucket = (lost.partition, lost.bucket)
    live = {identity(candidate) for candidate in _live(session, newest, bucket) or ()}
    for branch, root, snapshot in own_roots(session):
        entries = _live(branch, snapshot, bucket)
        if entries is None:
            continue
        overlapping = [
            entry
            for entry in entries
            if order(entry.file.min_key) <= order(lost.file.max_key)
            and order(lost.file.min_key) <= order(entry.file.max_key)
        ]
        versions = tuple(entry for entry in overlapping if identity(entry) not in live)
        paths = {session.data_path(entry) for entry in overlapping}
        is_whole = not paths & bad and all(is_there(session, entry) for entry in overlapping)
        if (
            versions
            and is_whole
            and identity(lost) not in {identity(candidate) for candidate in overlapping}
        ):
            return root, snapshot, versions
    return None


def _live(
    session: TableSession, snapshot: Snapshot | None, bucket: tuple[bytes, int]
) -> list[ManifestEntry] | None:
    if snapshot is None:
        return []
    try:
        return session.live_entries(snapshot, BucketScope(buckets=frozenset({bucket})))
    except LsmError:
        return None
