"""Plan which files are deleted with expired snapshots or a deleted tag: those that no other retained reference names.

Every retained reference has to be handed in, and read in full: one that cannot be read ends the expiry before
it begins (the caller's duty). Files are identified by partition, bucket and name, never by level: a
file that was upgraded keeps its name and its bytes."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Protocol

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.format.manifest import FileIdentity, ManifestEntry, PhysicalFile
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.format.unfinished_upload import UnfinishedUpload
from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.retention import ExpiryChoice


@record
class DeadFile:
    """A data or changelog file to be deleted, with its sidecars beside it."""

    partition: bytes
    bucket: int
    file_name: str
    file_size: int
    extra_files: tuple[str, ...] = ()
    external_path: str | None = None


@record
class MetadataNames:
    """Metadata files that retained references name, by bare name."""

    manifest_lists: frozenset[str] = frozenset()
    manifests: frozenset[str] = frozenset()
    index_manifests: frozenset[str] = frozenset()
    index_files: frozenset[str] = frozenset()
    statistics: frozenset[str] = frozenset()

    @staticmethod
    def union(several: Iterable["MetadataNames"]) -> "MetadataNames":
        """Return what any of them names, in time that follows their sum."""
        sets: dict[str, set[str]] = {field.name: set() for field in fields(MetadataNames)}
        for names in several:
            for kind, file_names in sets.items():
                file_names |= getattr(names, kind)
        return MetadataNames(**{kind: frozenset(name_set) for kind, name_set in sets.items()})

    def __or__(self, other: "MetadataNames") -> "MetadataNames":
        return MetadataNames.union((self, other))

    def __sub__(self, other: "MetadataNames") -> "MetadataNames":
        return MetadataNames(
            manifest_lists=self.manifest_lists - other.manifest_lists,
            manifests=self.manifests - other.manifests,
            index_manifests=self.index_manifests - other.index_manifests,
            index_files=self.index_files - other.index_files,
            statistics=self.statistics - other.statistics,
        )


@record
class RetainedFiles:
    """The files that one retained reference names. `name`: of the reference, for people.

    `entries` are the ADD entries of everything that the retained reference can still read; for a kept snapshot
    after the first one its delta is enough, as the state before it belongs to the one before.
    Entries outside of the buckets of the candidates may be left out. `changelog` are the entries of
    changelog lists that it can still read, `file_names` data files that it keeps by name alone.
    """

    name: str
    entries: Iterable[ManifestEntry]
    names: MetadataNames
    changelog: Iterable[ManifestEntry] = ()
    file_names: frozenset[str] = frozenset()


@record
class ExpirePlan:
    """The files that an expiry deletes.

    Order: tags, data files, changelog files, manifests, index files, manifest lists, then the files of snapshots
    and changelogs, oldest first. The snapshot file comes last because a crash then leads to the same plan again.
    The changelogs of the `outlived` snapshots, which outlive them, are written before anything is deleted.
    """

    reason: str
    expired: tuple[Snapshot, ...] = ()
    data_files: tuple[DeadFile, ...] = ()
    changelog_files: tuple[DeadFile, ...] = ()
    metadata: MetadataNames = MetadataNames()
    kept_by: tuple[tuple[str, int], ...] = ()
    tags: tuple[Tag, ...] = ()
    outlived: tuple[Snapshot, ...] = ()
    expired_changelogs: tuple[Snapshot, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        files = self.data_files or self.changelog_files or self.metadata != MetadataNames()
        return not (self.expired or self.expired_changelogs or self.tags or files)

    @property
    def freed_bytes(self) -> int:
        """Bytes of the data and changelog files to delete."""
        return sum(file.file_size for file in (*self.data_files, *self.changelog_files))


def snapshots_to_replay(choice: ExpiryChoice) -> tuple[Snapshot, ...]:
    """Return the snapshots whose deltas may have taken files from expired ones, oldest first.

    That is every expired snapshot but the first, and the first kept one.
    """
    return (*choice.expired, *choice.retained[:1])[1:]


def dead_candidates(deltas: Iterable[ManifestEntry]) -> dict[PhysicalFile, DeadFile]:
    """Return the files that deltas, oldest first, take away and do not bring back at another level.

    `deltas`: all entries of the delta lists of `snapshots_to_replay`.
    """
    deleted: dict[PhysicalFile, DeadFile] = {}
    standing: dict[FileIdentity, PhysicalFile] = {}
    for entry in deltas:
        if entry.kind is EntryKind.ADD:
            standing[entry.identity] = entry.physical_file
        else:
            standing.pop(entry.identity, None)
            deleted[entry.physical_file] = _dead(entry)
    for upgraded in standing.values():
        deleted.pop(upgraded, None)
    return deleted


def candidate_buckets(candidates: Iterable[PhysicalFile]) -> frozenset[tuple[bytes, int]]:
    """Return the buckets whose entries retained references have to be asked for."""
    return frozenset((partition, bucket) for partition, bucket, _ in candidates)


def plan_expiry(
    choice: ExpiryChoice,
    candidates: dict[PhysicalFile, DeadFile],
    *,
    changelogs: Iterable[ManifestEntry],
    names: MetadataNames,
    retained: Iterable[RetainedFiles],
    outlived: Sequence[Snapshot] = (),
) -> ExpirePlan:
    """Plan the removal of `choice.expired`.

    `changelogs`: entries of the changelog lists of the expired snapshots, `names`: the metadata that
    they name. `retained` must hold every retained reference: all of `choice.retained`, every tag, branch,
    long-lived changelog, those of `outlived` included. Tags do not pin changelog files: nothing reads
    a changelog through a tag.
    """
    assert choice.retained or not choice.expired, "the newest snapshot never expires"
    unreferenced = _unreferenced(candidates, changelogs, retained)
    return ExpirePlan(
        expired=choice.expired,
        data_files=unreferenced.data_files if choice.expired else (),
        changelog_files=unreferenced.changelog_files,
        metadata=names - unreferenced.names if choice.expired else MetadataNames(),
        reason=choice.reason,
        kept_by=unreferenced.kept_by,
        outlived=tuple(outlived),
    )


def plan_tag_removal(
    state: Iterable[ManifestEntry],
    names: MetadataNames,
    retained: Iterable[RetainedFiles],
    *,
    reason: str,
    tags: Sequence[Tag] = (),
) -> ExpirePlan:
    """Plan the files to delete with tags: those that they name (`state`: their live entries) and no other retained reference does.

    `retained` must hold every other tag and every snapshot; of the snapshots the first one's whole state
    and the deltas of the rest. The tag files go first, so that no tag is ever without files.
    """
    unreferenced = _unreferenced(
        {entry.physical_file: _dead(entry) for entry in state}, (), retained
    )
    return ExpirePlan(
        data_files=unreferenced.data_files,
        metadata=names - unreferenced.names,
        reason=reason,
        kept_by=unreferenced.kept_by,
        tags=tuple(tags),
    )


def plan_changelog_expiry(
    expired: Sequence[Snapshot],
    data: Iterable[ManifestEntry],
    changelogs: Iterable[ManifestEntry],
    *,
    names: MetadataNames,
    retained: Iterable[RetainedFiles],
    reason: str,
) -> ExpirePlan:
    """Plan the removal of changelogs that had outlived their snapshots.

    `data`: data files that only they still kept readable, `changelogs`: entries of their changelog
    lists. `retained` must hold every retained reference, the other changelogs included.
    """
    unreferenced = _unreferenced(
        {entry.physical_file: _dead(entry) for entry in data}, changelogs, retained
    )
    return ExpirePlan(
        data_files=unreferenced.data_files,
        changelog_files=unreferenced.changelog_files,
        metadata=names - unreferenced.names,
        reason=reason,
        kept_by=unreferenced.kept_by,
        expired_changelogs=tuple(expired),
    )


@record
class _Unreferenced:
    """Candidates that no retained reference names; how many each of these saved; all metadata that they name."""

    data_files: tuple[DeadFile, ...]
    changelog_files: tuple[DeadFile, ...]
    kept_by: tuple[tuple[str, int], ...]
    names: MetadataNames


def _unreferenced(
    candidates: dict[PhysicalFile, DeadFile],
    changelogs: Iterable[ManifestEntry],
    retained: Iterable[RetainedFiles],
) -> _Unreferenced:
    unreferenced = dict(candidates)
    changelog_files = {entry.physical_file: _dead(entry) for entry in changelogs}
    kept_by: list[tuple[str, int]] = []

    def kept_names() -> Iterator[MetadataNames]:
        for reference in retained:
            saved = _take_kept(reference, unreferenced, changelog_files)
            if saved:
                kept_by.append((reference.name, saved))
            yield reference.names

    names = MetadataNames.union(kept_names())
    return _Unreferenced(
        data_files=tuple(unreferenced[key] for key in sorted(unreferenced)),
        changelog_files=tuple(changelog_files[key] for key in sorted(changelog_files)),
        kept_by=tuple(kept_by),
        names=names,
    )


def _take_kept(
    reference: RetainedFiles,
    unreferenced: dict[PhysicalFile, DeadFile],
    changelog_files: dict[PhysicalFile, DeadFile],
) -> int:
    """Take what a retained reference names out of the files to delete; return how many."""
    before = len(unreferenced) + len(changelog_files)
    for entry in reference.entries:
        if entry.kind is EntryKind.ADD:
            unreferenced.pop(entry.physical_file, None)
    if changelog_files:
        for entry in reference.changelog:
            changelog_files.pop(entry.physical_file, None)
    if reference.file_names:
        for files in (unreferenced, changelog_files):
            for key in [key for key in files if key[2] in reference.file_names]:
                del files[key]
    return before - len(unreferenced) - len(changelog_files)


def _dead(entry: ManifestEntry) -> DeadFile:
    return DeadFile(
        partition=entry.partition,
        bucket=entry.bucket,
        file_name=entry.file.file_name,
        file_size=entry.file.file_size,
        extra_files=entry.file.extra_files,
        external_path=entry.file.external_path,
    )


# -- Orphan files: listed, minus reachable, minus young --------------------------------------------

DAY_MILLIS = 86_400_000


class ListedFile(Protocol):
    """A file in a listing (`storage/file_io`: `FileStatus`)."""

    @property
    def path(self) -> str:
        """Relative to the table, with forward slashes."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def modified_millis(self) -> int:
        """By the storage's own clock."""
        ...

    @property
    def is_directory(self) -> bool:
        """Directories are never orphans."""
        ...


@record
class OrphanPlan:
    """Orphans by path, and how many files were listed, reachable, or too young to judge.

    `uploads`: those that were begun and never completed, of writers that died; the young ones are counted.
    """

    orphans: tuple[tuple[str, int], ...]  # path, size in bytes
    listed_count: int
    reachable_count: int
    young_count: int
    uploads: tuple[UnfinishedUpload, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove or abort."""
        return not self.orphans and not self.uploads

    @property
    def freed_bytes(self) -> int:
        """Bytes that removing the orphans frees."""
        return sum(size for _, size in self.orphans)


def plan_orphans(
    listed: Iterable[ListedFile],
    reachable: Collection[str],
    *,
    store_now_millis: int,
    older_than_millis: int,
    force: bool = False,
    uploads: Iterable[UnfinishedUpload] = (),
) -> OrphanPlan:
    """Return the listed files that no retained reference reaches, and the uploads, that are older than an age.

    `listed` must have been gathered before `reachable`: a file that a commit adds in between is then
    reachable or not listed, never an orphan. `reachable` holds the paths that any snapshot,
    changelog, tag or branch names, schema files, hints and consumers included. `store_now_millis` is
    the storage's clock, the one that stamps files. Raises InvalidInputError for an age below one day
    without `force`: the files of a commit that is being written are reached by nothing yet.
    """
    if older_than_millis < DAY_MILLIS and not force:
        raise InvalidInputError(
            "orphans younger than a day may belong to a commit that is being written; use force if "
            "no process writes",
            kind=ErrorKind.INVALID_OPTION,
            older_than_millis=older_than_millis,
        )
    orphans: dict[str, int] = {}
    listed_count = reachable_count = young_count = 0
    for file in listed:
        if file.is_directory:
            continue
        listed_count += 1
        if file.path in reachable:
            reachable_count += 1
        elif store_now_millis - file.modified_millis <= older_than_millis:
            young_count += 1
        else:
            orphans[file.path] = file.size
    begun = tuple(uploads)
    dead = [
        upload for upload in begun if store_now_millis - upload.begun_millis > older_than_millis
    ]
    return OrphanPlan(
        orphans=tuple(sorted(orphans.items())),
        listed_count=listed_count,
        reachable_count=reachable_count,
        young_count=young_count + len(begun) - len(dead),
        uploads=tuple(dead),
    )
