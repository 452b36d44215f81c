"""Commit messages: the files of writers and compactions that a commit publishes. They pickle."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import field, fields, replace
from hashlib import sha256
from operator import attrgetter

from lsm_engine.base.record import record
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta
from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind


@record
class DataIncrement:
    """Files that a writer made. `deleted_files`: replaced by an overwrite or a rewrite of appends."""

    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()


@record
class CompactIncrement:
    """The files that a compaction read and wrote. A file in `before` and `after` under one name was upgraded."""

    before: tuple[DataFileMeta, ...] = ()
    after: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        files = self.before or self.after or self.changelog_files
        return not (files or self.new_index_files or self.deleted_index_files)


@record
class RewrittenManifests:
    """Manifests that a task wrote of the live entries of others. `row_count`: the rows of the files that they name.

    `group`: the place of these others among all groups of the rewrite.
    """

    group: int
    manifests: tuple[ManifestFileMeta, ...]
    row_count: int


@record
class CommitMessage:
    """The work done in one bucket, or on manifests alone. `partition` is a stored row."""

    partition: bytes
    bucket: int
    total_buckets: int
    data: DataIncrement = DataIncrement()
    compact: CompactIncrement = CompactIncrement()
    rewritten: RewrittenManifests | None = None


@record
class Committable:
    """The commit messages of one commit, with the identity that makes a replay a no-op."""

    commit_user: str
    messages: tuple[CommitMessage, ...]
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] | None = None
    watermark: int | None = None


# --- commit identifiers -----------------------------------------------------------------------

FORGOTTEN_LENGTH = 8
"""Characters of a user's key that are kept once its identifier is forgotten."""
UNCERTAIN = "?"
"""Among kinds: whether the identifier was committed is not known; smaller ones are not new."""
AT_LEAST = "+"
"""Among kinds: whether greater identifiers were committed is not known."""
_INITIALS = {
    CommitKind.APPEND: "a",
    CommitKind.COMPACT: "c",
    CommitKind.OVERWRITE: "o",
    CommitKind.ANALYZE: "n",
}
ALL_KINDS = "".join(_INITIALS.values())


def key_of(commit_user: str) -> str:
    """Return 16 characters that stand for a commit user, whose name may have any length."""
    digest = sha256(commit_user.encode(errors="surrogatepass")).digest()
    return urlsafe_b64encode(digest[:12]).decode()


def initial_of(kind: CommitKind) -> str:
    """Return the letter that stands for a kind of commit."""
    return _INITIALS[kind]


@record
class LastCommit:
    """The last numbered commit of a commit user.

    `kinds` are the initials of what was committed under the identifier, as one write may make an APPEND and a
    COMPACT snapshot, and UNCERTAIN or AT_LEAST. `seconds` since 1970.
    """

    identifier: int
    kinds: str
    snapshot_id: int
    seconds: int


@record
class CommitIdentifiers:
    """The last numbered commits up to one snapshot, by `key_of(user)`, the least recent first.

    `has_more`: those of less recent users are in the table's file. `has_file`: that file is there. `is_recorded`: as
    other clients commit here, each numbered commit is written to the file, too. `is_incomplete`: another
    client's expiry took snapshots that may have held the last commits of users of which nothing is known.
    """

    users: Mapping[str, LastCommit] = field(default_factory=dict)
    has_more: bool = False
    has_file: bool = False
    is_recorded: bool = False
    is_incomplete: bool = False

    def with_commit(self, key: str, commit: LastCommit) -> "CommitIdentifiers":
        """Return these after one more commit, that of the most recent user."""
        before = self.users.get(key)
        if before is not None and before.identifier == commit.identifier:
            # Several commits may have one number, each of another kind: all kinds are remembered.
            kinds = before.kinds.replace(UNCERTAIN, "").replace(AT_LEAST, "")
            commit = replace(
                commit, kinds=kinds + "".join(kind for kind in commit.kinds if kind not in kinds)
            )
        users = {user: last for user, last in self.users.items() if user != key}
        return replace(self, users={**users, key: commit})


@record
class RecordedIdentifiers:
    """The file of commit identifiers of a table: those that snapshots may not retain.

    It has every numbered commit up to snapshot `snapshot_id`; where `is_recorded` is true also those since, as
    `users`, or as `pending` before they were made: the identifier, and the snapshot that it was tried on.
    `forgotten`: the first characters of the keys of users whose identifiers are not kept any more.
    """

    snapshot_id: int
    users: Mapping[str, LastCommit] = field(default_factory=dict)
    pending: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    is_recorded: bool = False


# -- Results of writes -----------------------------------------------------------------------------
#
# The snapshot of its rows, whether they can be read, and a bookmark behind them.

_NAMES = tuple(field.name for field in fields(Snapshot))
_members = attrgetter(*_NAMES)


@record
class WriteResult(Snapshot):
    """The snapshot that holds the rows of a write. As `after=` of changes: the changes after the write.

    `visible`: whether a scan finds the rows; False where they still need a compaction (first-row,
    deletion vectors) or a bucket. `changelog_id`: the snapshot up to which the changelog has emitted
    them; `id` where it comes with the commit, is still to come, or there is none. `buckets`: where
    the rows are, if others committed between the two. These three do not count when compared.
    """

    visible: bool = field(default=True, compare=False)
    changelog_id: int = field(compare=False)
    buckets: frozenset[tuple[bytes, int]] = field(default=frozenset(), compare=False)

    @property
    def position(self) -> int:
        """The snapshot that a reader of the changelog goes on after; see `buckets`."""
        return self.id if self.buckets else self.changelog_id

    @staticmethod
    def from_snapshot(
        snapshot: Snapshot,
        *,
        visible: bool = True,
        changelog_id: int | None = None,
        buckets: frozenset[tuple[bytes, int]] = frozenset(),
    ) -> "WriteResult":
        """Return a snapshot as the result of the write that made it."""
        return WriteResult(
            **dict(zip(_NAMES, _members(snapshot), strict=True)),
            visible=visible,
            changelog_id=snapshot.id if changelog_id is None else changelog_id,
            buckets=buckets,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and bool(_members(self) == _members(other))

    __hash__ = Snapshot.__hash__
    __repr__ = Snapshot.__repr__
