"""How long a commit goes on trying: up to `commit.timeout`, with short waits that get shorter."""

from contextlib import AbstractContextManager

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.plan.proposal import retry_wait_millis, rewrite_wait_millis
from lsm_engine.table.ground.session import TableSession


class Retries:
    """Retries and timeout of one commit, started when this is made; `lost` counts lost races.

    `rewrites`: each try rewrites rows, so that the waits get longer, not shorter.
    """

    def __init__(self, session: TableSession, *, rewrites: bool = False) -> None:
        self._wait_millis = rewrite_wait_millis if rewrites else retry_wait_millis
        self._session = session
        self._started_millis = session.clock.now_millis()
        self.lost = 0

    def turn(self) -> AbstractContextManager[None]:
        """Wait for the turn of an attempt among the writers of this machine, and hold it."""
        session = self._session
        directory = session.paths.snapshot_directory
        return session.components.commit_turns.taken(session.file_io, directory, session.clock)

    def wait(self) -> None:
        """Wait after a lost race; raises CommitConflictError where the options allow no other try."""
        self.lost += 1
        limit = self._session.options.commit_retries
        if self.is_late or (limit is not None and self.lost > limit):
            raise CommitConflictError(
                "other writers took every snapshot id that this commit tried for; nothing of it is "
                "visible, try again, or raise 'commit.timeout', and 'commit.max-retries' if it is set",
                kind=ErrorKind.RETRIES_EXHAUSTED,
                retries=self.lost,
                waited_millis=self._waited_millis(),
                table=self._session.name,
            )
        self.sleep()

    def wait_for(self, snapshot_id: int) -> None:
        """Wait for a file to go that has the id after the newest snapshot, and does not count.

        Raises CommitConflictError after `commit.timeout`, with the way to get rid of it.
        """
        if self.is_late:
            to = self._session.snapshots.rollback_under_way()
            remedy = (
                "its writer may have died; remove orphan files, which takes it a day later"
                if to is None
                else f"a rollback to snapshot {to} is under way, or died; roll back to {to} again"
            )
            raise CommitConflictError(
                f"a file that does not count has the name of snapshot {snapshot_id}; {remedy}",
                kind=ErrorKind.RETRIES_EXHAUSTED,
                snapshot_id=snapshot_id,
                waited_millis=self._waited_millis(),
                table=self._session.name,
            )
        self.sleep()

    @property
    def is_late(self) -> bool:
        """Whether `commit.timeout` is over."""
        return self._waited_millis() > self._session.options[core_options.COMMIT_TIMEOUT]

    def _waited_millis(self) -> int:
        return self._session.clock.now_millis() - self._started_millis

    def sleep(self) -> None:
        """Wait as is due after `lost` lost races (plan/proposal)."""
        options = self._session.options
        self._session.clock.sleep_millis(
            self._wait_millis(
                self.lost,
                least=options[core_options.COMMIT_MIN_RETRY_WAIT],
                longest=options[core_options.COMMIT_MAX_RETRY_WAIT],
                fraction=self._session.ids.fraction(),
            )
        )
