"""The lock shared with other Paimon clients: one holder, patience, and the dead do not hold."""

import sqlite3

import pytest

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from tests.unit.catalog.stories import MILLIS, ORDERS


class StandingClock:
    """Time passes only by sleeping."""

    def __init__(self):
        self.millis = MILLIS
        self.sleeps = []
        self.wakers = []

    def now_millis(self):
        return self.millis

    def local_time(self):
        raise NotImplementedError

    def sleep_millis(self, millis):
        self.sleeps.append(millis)
        self.millis += millis
        if self.wakers:
            self.wakers.pop(0)()


@pytest.fixture
def clock():
    return StandingClock()


def rows(catalog):
    with sqlite3.connect(catalog.database.path) as plain:
        found = plain.execute(
            "SELECT lock_id, acquired_at, expire_time_seconds FROM paimon_distributed_locks"
        ).fetchall()
    plain.close()
    return found


def test_held_and_released(catalog, clock):
    with catalog.commit_lock(ORDERS, clock):
        assert rows(catalog) == [("jdbc.shop.orders", "2013-01-01 00:26:40", 480)]
    assert rows(catalog) == []


def test_released_on_failure(catalog, clock):
    with pytest.raises(RuntimeError), catalog.commit_lock(ORDERS, clock):
        raise RuntimeError
    assert rows(catalog) == []


def test_others_wait_longer_and_longer_then_give_up(catalog, clock):
    with catalog.commit_lock(ORDERS, clock, acquire_timeout_millis=3_600_000):
        with pytest.raises(CommitConflictError) as tired:
            catalog.commit_lock(ORDERS, clock, acquire_timeout_millis=30_000).acquire()
        assert tired.value.kind is ErrorKind.RETRIES_EXHAUSTED
    assert clock.sleeps[:8] == [100, 200, 400, 800, 1600, 3200, 6400, 8000]
    assert max(clock.sleeps) == 8000
    assert sum(clock.sleeps) == 30_000


def test_taken_when_the_holder_is_done(catalog, clock):
    holder = catalog.commit_lock(ORDERS, clock)
    holder.acquire()
    clock.wakers = [lambda: None, holder.release]
    with catalog.commit_lock(ORDERS, clock):
        assert clock.sleeps == [100, 200]


def test_a_dead_holder_is_replaced(catalog, clock):
    dead = catalog.commit_lock(ORDERS, clock, acquire_timeout_millis=2_000)
    dead.acquire()
    with catalog.commit_lock(ORDERS, clock):
        assert sum(clock.sleeps) > 2_000
        # It was only slow: it must not take the lock of its successor away.
        assert not dead.release()
        assert len(rows(catalog)) == 1


def test_a_lock_row_of_another_client(catalog, clock):
    """As CURRENT_TIMESTAMP leaves it."""
    with sqlite3.connect(catalog.database.path) as plain:
        plain.execute(
            "INSERT INTO paimon_distributed_locks VALUES"
            " ('jdbc.shop.orders', '2013-01-01 00:26:30', 15)"
        )
    plain.close()
    with catalog.commit_lock(ORDERS, clock):
        assert 5_000 < sum(clock.sleeps) < 20_000


def test_tables_do_not_share_a_lock(catalog, clock):
    other = type(ORDERS)(database="shop", table="other")
    with catalog.commit_lock(ORDERS, clock), catalog.commit_lock(other, clock):
        assert clock.sleeps == []


def test_releasing_what_is_not_held(catalog, clock):
    assert not catalog.commit_lock(ORDERS, clock).release()
