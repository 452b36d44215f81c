"""What a commit asks of earlier ones: the snapshots since its plan, and whether it is a replay."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from lsm_engine.base.errors import CommitConflictError, ErrorKind, InvalidInputError, LsmError
from lsm_engine.format.commit_message import (
    ALL_KINDS,
    AT_LEAST,
    UNCERTAIN,
    CommitIdentifiers,
    LastCommit,
    RecordedIdentifiers,
    initial_of,
    key_of,
)
from lsm_engine.format.documents import carried, encode_identifiers
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.commit_identifiers import (
    ChainIdentifiers,
    carried_users,
    is_replay,
    recorded_before,
)
from lsm_engine.planning.ownership import already_committed, same_state
from lsm_engine.planning.proposal import CommitIdentity, CommitStep
from lsm_engine.planning.row_ids import id_after
from lsm_engine.table.references import change_file, limits_of, now_seconds
from lsm_engine.table.session import TableSession

LOOKBACK_SNAPSHOTS = 100


class History:
    """The snapshots below the bases of a commit, each read once unless a rollback takes it."""

    def __init__(self, session: TableSession, planned_on: Snapshot | None) -> None:
        self._snapshots = session.snapshots
        self._planned_on = planned_on
        self._last: Snapshot | None = None
        self._known: dict[int, Snapshot | None] = {}

    def goes_on_to(self, base: Snapshot | None) -> None:
        """Take another base, and forget the snapshots that were read if the former base was rolled back."""
        last, self._last = self._last, base
        # A rollback has taken the former base, and may have taken those below it.
        if last is not None and not same_state(self._snapshots.find(last.id), last):
            self._known.clear()
        if base is not None:
            self._known[base.id] = base

    def since(self, base: Snapshot | None) -> Sequence[Snapshot] | None:
        """Return the snapshots after the one the work was planned on; None if some have expired."""
        if base is None:
            return ()
        count = max(0, base.id - (0 if self._planned_on is None else self._planned_on.id))
        # Beyond some snapshots checking every bucket is cheaper than reading them all.
        if count > LOOKBACK_SNAPSHOTS + len(self._known):
            return None
        newest = list(islice(self._down_from(base), count))
        return newest[::-1] if len(newest) == count else None

    def _down_from(self, base: Snapshot) -> Iterator[Snapshot]:
        snapshot: Snapshot | None = base
        while snapshot is not None:
            yield snapshot
            below = snapshot.id - 1
            if below not in self._known:
                self._known[below] = self._snapshots.find(below)
            snapshot = self._known[below]


# --- commit identifiers -----------------------------------------------------------------------

log = logging.getLogger(__name__)


class Replays:
    """Recognizes a replay of a numbered commit, and keeps the commit identifiers that show later ones."""

    def __init__(self, session: TableSession, identity: CommitIdentity) -> None:
        self._session = session
        self._identity = identity
        self._key = key_of(identity.commit_user)
        self._base: Snapshot | None = None
        self._chain: ChainIdentifiers | None = None
        self._last: LastCommit | None = None

    def proof(self, step: CommitStep, base: Snapshot | None) -> Snapshot | None:
        """Return the snapshot of the former commit of a replay; None for a new commit.

        If that snapshot has expired, the oldest one is returned, which holds its rows. Raises InvalidInputError
        if the last identifier of the user is not kept any more, so that a replay cannot be recognized.
        """
        identity = self._identity
        if not identity.is_numbered:
            return None
        chain = self._up_to(base)
        # A commit that states its number is new by definition.
        if identity.restates:
            return None
        try:
            self._last = self._session.commit_identifiers.last_commit(self._key, chain, base)
            if self._last is None or not is_replay(step, self._last):
                self._require_last(step, base)
                return None
        except LookupError as cause:
            # The user's last number is forgotten: guessing could commit twice.
            raise unknown_identifier(identity.commit_user, identity.commit_identifier) from cause
        assert base is not None, step
        return self._made_by(step, self._last, base)

    def _require_last(self, step: CommitStep, base: Snapshot | None) -> None:
        """Raise CommitConflictError unless the user's last number is the one that this commit follows."""
        required, last = self._identity.after_identifier, self._last
        # A write may be two snapshots, of rows and of their compaction: the second one follows the first.
        if required is None or (
            last is not None and last.identifier in (required, step.commit_identifier)
        ):
            return
        raise CommitConflictError(
            f"commit {step.commit_identifier} of {step.commit_user!r} follows {required}, and the table has "
            f"{last.identifier if last else 'none'} as the last one: it was rolled back, or others commit under this name; "
            "nothing was committed, go on behind what the table has",
            commit_user=step.commit_user,
            base=None if base is None else base.id,
        )

    def _up_to(self, base: Snapshot | None) -> ChainIdentifiers:
        if self._chain is None or not same_state(self._base, base):
            self._base, self._chain = base, self._session.commit_identifiers.up_to(base)
        return self._chain

    def _made_by(self, step: CommitStep, last: LastCommit, base: Snapshot) -> Snapshot:
        snapshots = self._session.snapshots
        oldest_id = snapshots.earliest_id() or base.id
        newest = base
        if last.snapshot_id < base.id:
            # An expiry deletes the files of a snapshot before the snapshot.
            is_there = last.snapshot_id >= oldest_id
            newest = (snapshots.find(last.snapshot_id) if is_there else None) or base
        # Only the user's own snapshots can hold the step; another's shows that it has expired.
        if newest.commit_user == step.commit_user:
            chain = snapshots.down_from(newest, LOOKBACK_SNAPSHOTS)
            committed = already_committed(
                step, takewhile(lambda snapshot: snapshot.id >= oldest_id, chain)
            )
            if committed is not None:
                return committed
        return snapshots.find(oldest_id) or base

    def property_on(self, step: CommitStep, base: Snapshot | None) -> str | None:
        """Return the property `lsm.commit-identifiers` of the snapshot that a step makes on a base; None for none.

        A commit without a number copies that of its base, and reads nothing for it.
        """
        if not self._identity.is_numbered:
            return carried(base)
        chain = self._up_to(base)
        before, now = chain.identifiers, now_seconds(self._session)
        own = self._own(step, id_after(base), now)
        # The last commit may have been read from the file, as the base does not carry every user.
        former = {} if self._last is None else {self._key: self._last}
        after = CommitIdentifiers(users=former).with_commit(self._key, own)
        carried_over = carried_users(before, self._key, limits_of(self._session), now)
        return encode_identifiers(
            replace(
                before,
                users={**carried_over.users, **after.users},
                has_more=chain.asks_file or carried_over.has_evicted,
                has_file=True,
                is_incomplete=before.is_incomplete and not self._identity.others_are_new,
            )
        )

    def record_before(self, step: CommitStep, base: Snapshot | None) -> None:
        """Write to the file of commit identifiers what the snapshot to be published does not carry.

        These are the commits up to the base, if the snapshot leaves users out or the file is new. Beside other clients
        it is also the intent of this commit: their expiry may delete its snapshot before it is recorded.
        """
        if not self._identity.is_numbered:
            return
        session, chain = self._session, self._up_to(base)
        limits, now = limits_of(session), now_seconds(session)
        identifiers, base_id = chain.identifiers, 0 if base is None else base.id
        # A user that the snapshot leaves out has to be in the file before, or its replay would be
        # new.
        evicts = carried_users(identifiers, self._key, limits, now).has_evicted
        is_there = identifiers.has_file and chain.oldest_id is None
        if is_there and not (evicts or identifiers.is_recorded or self._identity.restates):
            return

        def content_after(recorded: RecordedIdentifiers | None) -> RecordedIdentifiers:
            content = recorded_before(
                self._key, chain, recorded, base_id, limits=limits, now_seconds=now
            )
            if not identifiers.is_recorded:
                return content
            tried = (step.commit_identifier, base_id)
            return replace(content, pending={**content.pending, self._key: tried})

        change_file(session, content_after)

    def _own(self, step: CommitStep, snapshot_id: int, seconds: int) -> LastCommit:
        return LastCommit(
            identifier=step.commit_identifier,
            kinds=ALL_KINDS if self._identity.restates else initial_of(step.kind),
            snapshot_id=snapshot_id,
            seconds=seconds,
        )

    def record_landed(self, step: CommitStep, landed: Snapshot, base: Snapshot | None) -> None:
        """Write a published commit to the file, if other clients may expire its snapshot before it is recorded.

        A failure is logged: the intent is in the file, so that a replay is refused at worst.
        """
        if not self._identity.is_numbered or not self._up_to(base).identifiers.is_recorded:
            return

        def content_after(recorded: RecordedIdentifiers | None) -> RecordedIdentifiers | None:
            if recorded is None or recorded.snapshot_id > landed.id:
                return recorded  # a later commit has written it already
            own = self._own(step, landed.id, landed.time_millis // 1000)
            last = CommitIdentifiers(users=recorded.users).with_commit(self._key, own)
            pending = {key: tried for key, tried in recorded.pending.items() if key != self._key}
            return replace(recorded, snapshot_id=landed.id, users=last.users, pending=pending)

        try:
            change_file(self._session, content_after)
        except LsmError as error:
            # The commit counts. Its intent is recorded, so that a replay is refused and not
            # doubled.
            log.warning(
                "table=%s snapshot=%d its commit identifier is not recorded: %s",
                self._session.name,
                landed.id,
                error,
            )


def last_identifier(session: TableSession, commit_user: str) -> int | None:
    """Return the last commit identifier of a user, None for a new one; InvalidInputError where it is unknown."""
    newest = session.snapshots.latest()
    chain = session.commit_identifiers.up_to(newest)
    try:
        last = session.commit_identifiers.last_commit(key_of(commit_user), chain, newest)
    except LookupError as cause:
        # A forgotten user is refused, as it may have committed any number.
        raise unknown_identifier(commit_user) from cause
    if last is not None and (UNCERTAIN in last.kinds or AT_LEAST in last.kinds):
        raise unknown_identifier(commit_user)
    return None if last is None else last.identifier


def unknown_identifier(commit_user: str, identifier: int | None = None) -> InvalidInputError:
    """Return the error of a user whose last commit identifier is not kept any more."""
    facts = {} if identifier is None else {"commit_identifier": identifier}
    return InvalidInputError(
        "the last commit identifier of this user is not kept any more, so that it is unknown whether the "
        "commit is in the table already; nothing was written: look for its rows, state the last identifier that is there by "
        "set_commit_identifier(commit_user, commit_identifier), and try again; more are kept by the "
        "options 'commit-identifier.num-retained' and 'commit-identifier.time-retained'",
        kind=ErrorKind.UNKNOWN_IDENTIFIER,
        commit_user=commit_user,
        **facts,
    )
