"""The lock that Paimon clients with `lock.enabled` take around a commit.

Not needed for our own commits, whose publish is atomic; taken where other clients, on storage
without an atomic create, commit to the same table. One row is one held lock; a row that has outlived
its lifetime is a dead holder's and may be removed by anyone.
"""

from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, delete, select

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.catalog.catalog_statements import added
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.models import PAIMON_DISTRIBUTED_LOCKS as LOCKS
from lsm_engine.io.clock import Clock

ACQUIRE_TIMEOUT_MILLIS = 8 * 60_000
CHECK_SLEEP_FIRST_MILLIS = 100
CHECK_SLEEP_MAX_MILLIS = 8_000


class CommitLock:
    """Holds the lock inside a `with` block. Not reentrant; one instance, one holder at a time.

    Whoever holds it for longer than `acquire_timeout_millis` may lose it to another.
    """

    def __init__(
        self,
        database: Database,
        *,
        lock_id: str,
        clock: Clock,
        acquire_timeout_millis: int = ACQUIRE_TIMEOUT_MILLIS,
        check_sleep_max_millis: int = CHECK_SLEEP_MAX_MILLIS,
    ) -> None:
        self._database = database
        self._lock_id = lock_id
        self._clock = clock
        self._acquire_timeout_millis = acquire_timeout_millis
        self._check_sleep_max_millis = check_sleep_max_millis
        self._acquired_at: datetime | None = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock, waiting for its holder.

        Raises CommitConflictError when `acquire_timeout_millis` have passed without it.
        """
        assert self._acquired_at is None, "this lock is held already"
        deadline = self._clock.now_millis() + self._acquire_timeout_millis
        sleep_millis = CHECK_SLEEP_FIRST_MILLIS
        while not self._try_acquire():
            left_millis = deadline - self._clock.now_millis()
            if left_millis <= 0:
                raise CommitConflictError(
                    "another commit holds the table's lock; try again when it is done",
                    kind=ErrorKind.RETRIES_EXHAUSTED,
                    lock=self._lock_id,
                    waited_millis=self._acquire_timeout_millis,
                )
            self._clock.sleep_millis(min(sleep_millis, left_millis))
            sleep_millis = min(2 * sleep_millis, self._check_sleep_max_millis)

    def release(self) -> bool:
        """Give the lock back; False if it had been lost to another holder, or was never held."""
        held, self._acquired_at = self._acquired_at, None
        if held is None:
            return False
        return self._database.write(lambda connection: self._delete(connection, held))

    def _try_acquire(self) -> bool:
        now = self._now()

        def work(connection: Connection) -> bool:
            holder = connection.execute(select(LOCKS).where(LOCKS.c.lock_id == self._lock_id))
            row = holder.mappings().first()
            if row is not None:
                lifetime = timedelta(seconds=row["expire_time_seconds"])
                if now <= row["acquired_at"] + lifetime:
                    return False
                self._delete(connection, row["acquired_at"])
            taken = added(self._database.dialect, LOCKS).values(self._row(now))
            counted = taken.execution_options(preserve_rowcount=True)  # else only UPDATE counts
            return connection.execute(counted).rowcount == 1

        if self._database.write(work):
            self._acquired_at = now
            return True
        return False

    def _row(self, now: datetime) -> dict[str, Any]:
        lifetime_seconds = -(-self._acquire_timeout_millis // 1000)
        return {
            "lock_id": self._lock_id,
            "acquired_at": now,
            "expire_time_seconds": lifetime_seconds,
        }

    def _delete(self, connection: Connection, acquired_at: datetime) -> bool:
        # The time tells our row from one that a later holder put in its place.
        row = delete(LOCKS).where(
            LOCKS.c.lock_id == self._lock_id, LOCKS.c.acquired_at == acquired_at
        )
        return connection.execute(row).rowcount == 1

    def _now(self) -> datetime:
        seconds = self._clock.now_millis() // 1000
        return datetime.fromtimestamp(seconds, tz=UTC).replace(tzinfo=None)
