"""The last commit of each user, by which replays are recognized: in snapshots, and in a file for expired ones."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from lsm_engine.base.record import record
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER, FIRST_SNAPSHOT_ID
from lsm_engine.format.commit_message import (
    AT_LEAST,
    FORGOTTEN_LENGTH,
    UNCERTAIN,
    CommitIdentifiers,
    LastCommit,
    RecordedIdentifiers,
    initial_of,
    key_of,
)
from lsm_engine.format.documents import COMMIT_IDENTIFIERS, decode_identifiers
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.proposal import CommitStep
from lsm_engine.planning.snapshot_chain import (
    believed,
    is_of_another_client,
    named_base,
    rollback_target,
)

USERS_CARRIED = 50
"""Users that a snapshot carries at most: about 2 KB."""


@record
class Limits:
    """How much is kept: `users` by number, and those that committed in the last `seconds`."""

    users: int
    seconds: int


@record
class ChainIdentifiers:
    """The last commits up to a snapshot, and where they come from.

    `oldest_id`: the oldest snapshot there was, if nothing above it carries the property: what lies below is known
    from the file alone.
    """

    identifiers: CommitIdentifiers
    oldest_id: int | None = None

    @property
    def asks_file(self) -> bool:
        """Whether users that are not among them may be in the file."""
        return self.identifiers.has_more or self.oldest_id is not None


def has_property(snapshot: Snapshot) -> bool:
    """Whether a snapshot carries commit identifiers, so that nothing below it has to be read."""
    return COMMIT_IDENTIFIERS in (snapshot.properties or {})


def ends_chain(snapshot: Snapshot) -> bool:
    """Whether nothing below a snapshot belongs to its history: it is the first, or a rollback marker."""
    return snapshot.id <= FIRST_SNAPSHOT_ID or rollback_target(snapshot) is not None


def counted_chain(chain: Sequence[Snapshot], earliest: int | None) -> Sequence[Snapshot]:
    """Return the part of a snapshot chain, newest first, that is certain to count.

    Below a snapshot that names no base may lie a file that never counted, as long as EARLIEST (read after the
    files) has passed it.
    """
    for place, (newer, older) in enumerate(pairwise(chain), 1):
        if named_base(newer) is None and older.id < believed(earliest, chain[0].id):
            return chain[:place]
    return chain


def identifiers_of(
    chain: Sequence[Snapshot], recorded: RecordedIdentifiers | None, file_name: str
) -> ChainIdentifiers:
    """Return the last commits up to the first of a snapshot chain, newest first, without a gap.

    The chain ends with the first that has the property, or with the oldest there is. `recorded` is what the
    file holds, None without one; it is used only where nothing on the snapshot chain has the property.
    """
    if not chain:
        return ChainIdentifiers(identifiers=CommitIdentifiers())
    oldest, oldest_id = chain[-1], None
    if has_property(oldest):
        identifiers = decode_identifiers(
            (oldest.properties or {})[COMMIT_IDENTIFIERS], file_name=file_name
        )
        chain = chain[:-1]
    elif oldest.id <= FIRST_SNAPSHOT_ID or recorded is None:
        # No file: no numbered commit of this engine has expired without leaving the property behind.
        identifiers = CommitIdentifiers()
    else:
        oldest_id = oldest.id
        identifiers = _expired(recorded, oldest_id)
    # Another client's expiry leaves no trace of a number, so that the file has to.
    if any(map(is_of_another_client, chain)):
        identifiers = replace(identifiers, is_recorded=True)
    for snapshot in reversed(chain):
        if snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
            key = key_of(snapshot.commit_user)
            identifiers = identifiers.with_commit(key, last_commit_of(snapshot))
    return ChainIdentifiers(identifiers=identifiers, oldest_id=oldest_id)


def last_commit_of(snapshot: Snapshot) -> LastCommit:
    """Return a numbered commit as what is kept of it."""
    return LastCommit(
        identifier=snapshot.commit_identifier,
        kinds=initial_of(snapshot.commit_kind),
        snapshot_id=snapshot.id,
        seconds=snapshot.time_millis // 1000,
    )


def _expired(recorded: RecordedIdentifiers, oldest_id: int) -> CommitIdentifiers:
    """Return what the file has of snapshots below the oldest one.

    What it has of newer ones is on the snapshot chain, or was rolled back.
    """
    has_gap = recorded.snapshot_id < oldest_id - 1 and not recorded.is_recorded
    mark = AT_LEAST if has_gap else ""
    users = {
        key: replace(last, kinds=last.kinds.rstrip(AT_LEAST) + mark)
        for key, last in recorded.users.items()
        if last.snapshot_id < oldest_id
    }
    for key, (identifier, base_id) in recorded.pending.items():
        last = users.get(key)
        # An intent whose snapshot would have expired may have landed; a newer one would be on the
        # chain.
        may_have_landed = base_id + 1 < oldest_id
        if may_have_landed and (last is None or last.identifier < identifier):
            seconds = 0 if last is None else last.seconds
            users[key] = LastCommit(
                identifier=identifier, kinds=UNCERTAIN + mark, snapshot_id=base_id, seconds=seconds
            )
    return CommitIdentifiers(
        users=dict(sorted(users.items(), key=lambda item: item[1].snapshot_id)),
        has_more=True,
        has_file=True,
        is_recorded=recorded.is_recorded,
        is_incomplete=has_gap,
    )


def last_commit(
    key: str, chain: ChainIdentifiers, recorded: RecordedIdentifiers | None, base_id: int
) -> LastCommit | None:
    """Return the last commit of a user, None for one who has none; raises LookupError where that is unknown.

    `recorded` is needed if `chain.asks_file`. What it has of snapshots above `base_id` was rolled back, or somebody is
    ahead of the base, and wins the race for the next snapshot.
    """
    identifiers = chain.identifiers
    if key in identifiers.users:
        return identifiers.users[key]
    if chain.asks_file:
        # A snapshot that asks for the file was committed after the file was written.
        if recorded is None:
            raise LookupError(key)  # the file was deleted
        last = recorded.users.get(key)
        newest_id = base_id if chain.oldest_id is None else chain.oldest_id - 1
        if last is not None and last.snapshot_id <= newest_id:
            return last
        if last is None and key[:FORGOTTEN_LENGTH] in recorded.forgotten:
            raise LookupError(key)
    # The user may have committed in the part that another client expired.
    if identifiers.is_incomplete:
        raise LookupError(key)
    return None


def is_replay(step: CommitStep, last: LastCommit | None) -> bool:
    """Whether a step was committed before, by the last commit of its user; LookupError where that is unknown.

    Identifiers of a user only grow, so that a smaller one was committed, or left out for good. Of one that is
    equal the kind decides, as one write may make two snapshots.
    """
    if last is None:
        return False
    if last.identifier > step.commit_identifier:
        return True
    is_same = last.identifier == step.commit_identifier
    if is_same and initial_of(step.kind) in last.kinds:
        return True
    # The number may have been committed. Guessing would double rows, or lose them.
    if AT_LEAST in last.kinds or (is_same and UNCERTAIN in last.kinds):
        raise LookupError(step.commit_user)
    return False


@record
class CarriedUsers:
    """The users of a base that the next snapshot carries, without the committing one; `has_evicted`: others were left out."""

    users: dict[str, LastCommit]
    has_evicted: bool


def carried_users(
    identifiers: CommitIdentifiers, key: str, limits: Limits, now_seconds: int
) -> CarriedUsers:
    """Choose the users that the next snapshot carries besides `key`, who commits.

    Those go that have not committed for too long, and the least recent half where there are too many: the file
    is then written once for many commits.
    """
    other_users = {user: last for user, last in identifiers.users.items() if user != key}
    oldest = now_seconds - limits.seconds
    users = {user: last for user, last in other_users.items() if last.seconds >= oldest}
    if len(users) + 1 > min(limits.users, USERS_CARRIED):
        count = limits.users - 1 if limits.users < USERS_CARRIED else USERS_CARRIED // 2
        users = dict(list(users.items())[len(users) - count :])
    return CarriedUsers(users=users, has_evicted=len(users) < len(other_users))


def recorded_before(
    key: str,
    chain: ChainIdentifiers,
    recorded: RecordedIdentifiers | None,
    base_id: int,
    *,
    limits: Limits,
    now_seconds: int,
) -> RecordedIdentifiers:
    """Return what the file has to hold before `key` commits on a base: all that is known up to it.

    A file that is ahead of the base keeps what it has of newer snapshots: they may be there by now.
    """
    identifiers, former = chain.identifiers, recorded or RecordedIdentifiers(snapshot_id=0)
    users = {
        key: last for key, last in former.users.items() if not _is_off_line(last, chain, base_id)
    }
    for user, last in identifiers.users.items():
        if user not in users or users[user].snapshot_id <= base_id:
            users[user] = last
    recent = sorted(users.items(), key=lambda item: (item[1].seconds, item[1].snapshot_id))
    other_users = [(user, last) for user, last in recent if user != key]
    oldest = now_seconds - limits.seconds
    recorded_users = dict(other_users[max(len(other_users) - limits.users + 1, 0) :])
    # By number, then by age, as the options limit both; the committing user stays.
    users = {user: last for user, last in users.items() if user == key or user in recorded_users}
    users = {user: last for user, last in users.items() if user == key or last.seconds >= oldest}
    lost = {user[:FORGOTTEN_LENGTH] for user, _ in other_users if user not in users}
    return RecordedIdentifiers(
        snapshot_id=max(former.snapshot_id, base_id),
        users=users,
        pending={
            user: tried
            for user, tried in former.pending.items()
            if user not in users or users[user].identifier < tried[0]
        },
        forgotten=former.forgotten.union(lost).difference(
            user[:FORGOTTEN_LENGTH] for user in users
        ),
        is_recorded=former.is_recorded or identifiers.is_recorded,
    )


def _is_off_line(last: LastCommit, chain: ChainIdentifiers, base_id: int) -> bool:
    """Whether the file has a commit that is among the snapshots that are there, and not on their snapshot chain."""
    return chain.oldest_id is not None and chain.oldest_id <= last.snapshot_id <= base_id


def rolled_back(
    recorded: RecordedIdentifiers, chain: ChainIdentifiers, target_id: int
) -> RecordedIdentifiers:
    """Return what the file holds without what a rollback to a snapshot takes back.

    What a user had before its last commit, if that is taken back, is on the snapshot chain of the target, or it is not known.
    """
    users = {key: last for key, last in recorded.users.items() if last.snapshot_id <= target_id}
    # A user whose last commit was taken back may have an older one that the file does not have.
    lost = {key[:FORGOTTEN_LENGTH] for key in recorded.users if key not in users}
    return replace(
        recorded,
        snapshot_id=target_id,
        users=users,
        pending={},
        forgotten=recorded.forgotten | lost if chain.asks_file else recorded.forgotten,
        is_recorded=chain.identifiers.is_recorded,
    )
