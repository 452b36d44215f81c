"""How long a commit goes on trying: up to `commit.timeout`, with short waits that get shorter."""

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.plan.proposal import retry_wait_millis
from lsm_engine.table.ground.session import TableSession


class Retries:
    """Retries and timeout of one commit, started when this is made; `lost` counts lost races."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._started_millis = session.clock.now_millis()
        self.lost = 0

    def wait(self) -> None:
        """Wait after a lost race; raises CommitConflictError where the options allow no other try."""
        options, clock = self._session.options, self._session.clock
        self.lost += 1
        limit, timeout = options.commit_retries, options[core_options.COMMIT_TIMEOUT]
        waited = clock.now_millis() - self._started_millis
        if waited > timeout or (limit is not None and self.lost > limit):
            raise CommitConflictError(
                "other writers took every snapshot id that this commit tried for; nothing of it is "
                "visible, try again, or raise 'commit.timeout', and 'commit.max-retries' if it is set",
                kind=ErrorKind.RETRIES_EXHAUSTED,
                retries=self.lost,
                waited_millis=waited,
                table=self._session.name,
            )
        clock.sleep_millis(
            retry_wait_millis(
                self.lost,
                least=options[core_options.COMMIT_MIN_RETRY_WAIT],
                longest=options[core_options.COMMIT_MAX_RETRY_WAIT],
                fraction=self._session.ids.fraction(),
            )
        )
