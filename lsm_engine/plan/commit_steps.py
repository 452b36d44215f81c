"""Which snapshots a committable asks for: APPEND or OVERWRITE, then COMPACT (format section 14)."""

from collections.abc import Iterable, Mapping, Sequence

from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.meta.commit_message import CommitMessage, Committable
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import IndexFileMeta, IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry


@record
class CommitStep:
    """One snapshot that a committable asks for, before a base is known.

    `uuid` is the same for every attempt at this step; the published snapshot carries it, so that a
    lost answer can be resolved. DELETE entries come before ADD entries.
    """

    kind: CommitKind
    uuid: str
    commit_user: str
    commit_identifier: int
    delta: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...] = ()
    index_changes: tuple[IndexManifestEntry, ...] = ()
    properties: Mapping[str, str] | None = None
    watermark: int | None = None


def steps_of(
    committable: Committable,
    *,
    uuids: Sequence[str],
    first: CommitKind = CommitKind.APPEND,
    force: bool = False,
) -> tuple[CommitStep, ...]:
    """Return the snapshots that a committable asks for, in the order in which they are published.

    `uuids`: two fresh ones, for the first and the second step. `first` is the kind of the first. If
    that is no APPEND it is always there, as it may change what is on the base without adding any
    file; an overwrite publishes no changelog of its own. With `force` an empty committable still has
    one (empty) step.
    """
    steps: list[CommitStep] = []
    data = _data_step(committable, first, uuids[0])
    if first is not CommitKind.APPEND or not _is_empty_step(data):
        steps.append(data)
    compact = _compact_step(committable, uuids[1])
    if not _is_empty_step(compact):
        steps.append(compact)
    return tuple(steps) or ((data,) if force else ())


def _data_step(committable: Committable, kind: CommitKind, uuid: str) -> CommitStep:
    deleted: list[ManifestEntry] = []
    new: list[ManifestEntry] = []
    changelog: list[ManifestEntry] = []
    index: list[IndexManifestEntry] = []
    for message in committable.messages:
        data = message.data
        deleted += _entries(EntryKind.DELETE, message, data.deleted_files)
        new += _entries(EntryKind.ADD, message, data.new_files)
        index += _index_entries(message, data.deleted_index_files, data.new_index_files)
        if kind is not CommitKind.OVERWRITE:
            changelog += _entries(EntryKind.ADD, message, data.changelog_files)
    return _step(committable, kind, uuid, (*deleted, *new), changelog, index)


def _compact_step(committable: Committable, uuid: str) -> CommitStep:
    deleted: list[ManifestEntry] = []
    new: list[ManifestEntry] = []
    changelog: list[ManifestEntry] = []
    index: list[IndexManifestEntry] = []
    for message in committable.messages:
        compact = message.compact
        # A file that keeps its level must not be named: DELETE and ADD of one identity in one
        # commit is read as "gone" by clients that do not look at the order of entries.
        unmoved = set(compact.before) & set(compact.after)
        deleted += _entries(EntryKind.DELETE, message, compact.before, besides=unmoved)
        new += _entries(EntryKind.ADD, message, compact.after, besides=unmoved)
        index += _index_entries(message, compact.deleted_index_files, compact.new_index_files)
        changelog += _entries(EntryKind.ADD, message, compact.changelog_files)
    return _step(committable, CommitKind.COMPACT, uuid, (*deleted, *new), changelog, index)


def _step(
    committable: Committable,
    kind: CommitKind,
    uuid: str,
    delta: tuple[ManifestEntry, ...],
    changelog: Sequence[ManifestEntry],
    index_changes: Sequence[IndexManifestEntry],
) -> CommitStep:
    return CommitStep(
        kind=kind,
        uuid=uuid,
        commit_user=committable.commit_user,
        commit_identifier=committable.commit_identifier,
        delta=delta,
        changelog=tuple(changelog),
        index_changes=tuple(index_changes),
        properties=committable.properties,
        watermark=committable.watermark,
    )


def _is_empty_step(step: CommitStep) -> bool:
    return not (step.delta or step.changelog or step.index_changes)


def _entries(
    kind: EntryKind,
    message: CommitMessage,
    files: Iterable[DataFileMeta],
    *,
    besides: frozenset[DataFileMeta] | set[DataFileMeta] = frozenset(),
) -> list[ManifestEntry]:
    return [
        ManifestEntry(
            kind=kind,
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            file=file,
        )
        for file in files
        if file not in besides
    ]


def _index_entries(
    message: CommitMessage, deleted: Iterable[IndexFileMeta], new: Iterable[IndexFileMeta]
) -> list[IndexManifestEntry]:
    return [
        IndexManifestEntry(
            kind=kind, partition=message.partition, bucket=message.bucket, index_file=file
        )
        for kind, files in ((EntryKind.DELETE, deleted), (EntryKind.ADD, new))
        for file in files
    ]
