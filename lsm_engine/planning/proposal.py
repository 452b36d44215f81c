"""The proposal of a commit, as a value, before its base is known.

The engine (commit/commit) fits a proposal to the newest snapshot, and again to each newer one that takes
the id it tried for, until it has landed, is known to be lost, or its outcome is unknown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TypedDict

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.filter.partition import partition_mask
from lsm_engine.filter.predicate import Predicate
from lsm_engine.format.commit_message import CommitMessage, Committable
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta, IndexManifestEntry
from lsm_engine.format.manifest import Bucket, ManifestEntry, ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.types.types import DataField

# -- Which snapshots a committable asks for --------------------------------------------------------
#
# APPEND or OVERWRITE, then COMPACT (format section 14).


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
        index += index_entries(
            (message.partition, message.bucket), data.deleted_index_files, data.new_index_files
        )
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
        index += index_entries(
            (message.partition, message.bucket),
            compact.deleted_index_files,
            compact.new_index_files,
        )
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


def index_entries(
    bucket: Bucket, deleted: Iterable[IndexFileMeta], new: Iterable[IndexFileMeta]
) -> list[IndexManifestEntry]:
    """Return the entries by which index files of one bucket replace others."""
    return [
        IndexManifestEntry(kind=kind, partition=bucket[0], bucket=bucket[1], index_file=file)
        for kind, files in ((EntryKind.DELETE, deleted), (EntryKind.ADD, new))
        for file in files
    ]


# -- Proposals of commits --------------------------------------------------------------------------


class CommitOptions(TypedDict, total=False):
    """Who commits, and what the snapshot says about it: keyword arguments of every write.

    `commit_user`: default a new id. `commit_identifier`: a number that grows with each commit of the
    user; a commit whose number is not greater than the user's last one is a replay, and changes
    nothing. `after_identifier`: the user's last number that the table has to have, or CommitConflictError is
    raised: a rollback has taken commits that this one follows. `properties`: what the snapshot carries, as text.
    """

    commit_user: str | None
    commit_identifier: int
    after_identifier: int | None
    properties: Mapping[str, str] | None


@record
class CommitIdentity:
    """Who commits, and which of their commits it is; the pair makes a replay known.

    `watermark`: the time, in milliseconds since 1970, up to which all events of a stream are in the table
    once this is. `restates`: the identifier is stated to be the user's last one, whatever it was before; with
    `others_are_new` also that users have none of which nothing is known. `after_identifier`: the user's last one that
    a base has to have.
    """

    commit_user: str
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] | None = None
    watermark: int | None = None
    restates: bool = False
    others_are_new: bool = False
    after_identifier: int | None = None

    @property
    def is_numbered(self) -> bool:
        """Whether a replay can be known by its identifier."""
        return self.commit_identifier != BATCH_COMMIT_IDENTIFIER


@record
class RewrittenBase:
    """Manifests that take the place of those named `sources` in a base. No snapshot names them yet."""

    sources: frozenset[str]
    manifests: tuple[ManifestFileMeta, ...]

    def replaced(self, metas: Iterable[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Return the manifests of a base that has all the sources, after the replacement."""
        return [*self.manifests, *(meta for meta in metas if meta.file_name not in self.sources)]


@record
class LiveChange:
    """Existing files that a commit deletes from its base, or adds to it again.

    `state` is the former snapshot whose index manifest and watermark the new one takes over.
    `rewrites_manifests`: write the base manifests anew with ADD entries alone, so that a file that was deleted once
    may come back: readers fold entries without looking at their order. `rewritten`: that is done already, with files that
    become the commit's. `base_record_count`: the rows in the files of the base, if its own count is not used.
    `drops_statistics`: the statistics of ANALYZE are not carried over.
    """

    deleted: tuple[ManifestEntry, ...] = ()
    back: tuple[ManifestEntry, ...] = ()
    state: Snapshot | None = None
    rewrites_manifests: bool = False
    rewritten: RewrittenBase | None = None
    base_record_count: int | None = None
    drops_statistics: bool = False


NO_CHANGE = LiveChange()
# These two are functions, as which files an overwrite deletes, or how many rows a write replaced, depends on
# manifests and data files of the base, which the plan does not read. They read only what the base names, and
# change nothing, as each is called again on the next base. Manifests that one has written are in its LiveChange.
ChooseOnBase = Callable[[Snapshot | None], LiveChange | None]
"""Chooses what changes on a base; None: nothing has to change, and nothing is committed."""
PropertiesOnBase = Callable[[Snapshot | None, Sequence[ManifestEntry]], Mapping[str, str]]
"""Returns properties to add, for each base that a write is tried on, with the write's files."""


@record
class SameState:
    """A precondition: nothing was committed after `on` (None: nothing at all, ever)."""

    on: Snapshot | None


@record
class RowsUnchanged:
    """A precondition: since `on`, where rows were looked up, only compactions were committed."""

    on: Snapshot | None


Precondition = SameState | RowsUnchanged
"""A condition on the base of a commit, besides the absence of conflicting files (planning/conflicts)."""


@record
class Proposal:
    """Staged work, and what to change on whatever snapshot it lands on.

    `messages` were staged against `planned_on`. `kind` is that of the first snapshot. `choose` is
    asked on each base; a proposal without it changes nothing but by its messages. Where what it
    `requires` does not hold on a base, the commit is given up. `properties_on` adds to the properties. If it
    `is_followed_up`, its caller has Iceberg metadata follow, once compactions that the write needs are committed as well.
    """

    identity: CommitIdentity
    messages: tuple[CommitMessage, ...] = ()
    planned_on: Snapshot | None = None
    kind: CommitKind = CommitKind.APPEND
    choose: ChooseOnBase | None = None
    requires: Precondition | None = None
    properties_on: PropertiesOnBase | None = None
    is_followed_up: bool = False

    def steps(self, uuids: Sequence[str], *, force: bool) -> tuple[CommitStep, ...]:
        """Return the snapshots that are asked for; see `steps_of`."""
        committable = Committable(
            commit_user=self.identity.commit_user,
            commit_identifier=self.identity.commit_identifier,
            messages=self.messages,
            properties=self.identity.properties,
            watermark=self.identity.watermark,
        )
        return steps_of(committable, uuids=uuids, first=self.kind, force=force)


def overwriting(
    choose: Callable[[Snapshot | None], Iterable[ManifestEntry]],
) -> ChooseOnBase:
    """Return a function that deletes the live entries that `choose` picks on each base."""
    return lambda base: LiveChange(deleted=tuple(choose(base)))


class CommitOutcome(Enum):
    """How an attempt to publish a snapshot ended; an unknown outcome is a CommitUnknownError."""

    LANDED = "landed"
    """It is visible and counts."""
    LOST = "lost"
    """Another snapshot has the id, or it was revoked: nothing of it is visible."""


def retry_wait_millis(lost: int, *, least: int, longest: int, fraction: float) -> int:
    """Return how long to wait after the `lost`-th lost race; `fraction` from 0 to 1 is random.

    All of it is jitter: up to `least`, after more losses up to a half, a third, a quarter of that, at
    most `longest`. The one that has lost most waits least: a writer that backs off further with each loss never
    lands beside one that does not lose (decisions/0033).
    """
    return int(min(longest, least / min(lost, _SHORTEST_PART)) * fraction)


_SHORTEST_PART = 4


def rewrite_wait_millis(lost: int, *, least: int, longest: int, fraction: float) -> int:
    """Return how long to wait where each try rewrites rows, as a compaction does: the wait doubles.

    Half of it is jitter; `least` is the first, `longest` the last. Here a try is dear, and what is not
    compacted stays due: fairness to who lost matters less than work that is thrown away.
    """
    return int(min(longest, least << min(lost - 1, 20)) * (0.5 + fraction / 2))


# -- Which live files an overwrite replaces: decided on the base that the commit lands on ----------


@record
class StaticPartitions:
    """All partitions that satisfy a predicate on partition columns (filter/partition.partition_predicate).

    The constant true is the whole table.
    """

    predicate: Predicate
    fields: tuple[DataField, ...]


@record
class DynamicPartitions:
    """Exactly the partitions that new rows touch, as stored rows; without rows: none."""

    partitions: frozenset[bytes]


OverwriteScope = StaticPartitions | DynamicPartitions


def dynamic_scope(messages: Sequence[CommitMessage]) -> DynamicPartitions:
    """Return the partitions that the new files of `messages` lie in."""
    return DynamicPartitions(
        partitions=frozenset(message.partition for message in messages if message.data.new_files)
    )


def in_scope(partitions: Sequence[bytes], scope: OverwriteScope) -> frozenset[bytes]:
    """Return those of `partitions` that `scope` covers."""
    if isinstance(scope, DynamicPartitions):
        return frozenset(partitions) & scope.partitions
    distinct = sorted(set(partitions))
    mask = partition_mask(scope.predicate, pa.array(distinct, pa.binary()), scope.fields)
    return frozenset(
        partition for partition, covered in zip(distinct, mask, strict=True) if covered
    )


def overwritten(live: Sequence[ManifestEntry], scope: OverwriteScope) -> tuple[ManifestEntry, ...]:
    """Return the live entries that an overwrite of `scope` takes away."""
    covered = in_scope([entry.partition for entry in live], scope)
    return tuple(entry for entry in live if entry.partition in covered)


def require_in_scope(messages: Sequence[CommitMessage], scope: OverwriteScope) -> None:
    """Raise InvalidInputError if new rows lie outside of the partitions that are overwritten."""
    written_partitions = [message.partition for message in messages if message.data.new_files]
    outside = set(written_partitions) - in_scope(written_partitions, scope)
    if outside:
        raise InvalidInputError(
            "rows lie outside of the partition that is overwritten; filter them, or name no partition",
            kind=ErrorKind.INVALID_ROWS,
            partition_count=len(outside),
        )
