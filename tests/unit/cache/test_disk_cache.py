"""The disk cache: bounds, retention, threads, and what it says about itself."""

import threading

import pytest

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.cache.disk import Accesses, CacheLimits, DiskCache, Leaves


class Clock:
    def __init__(self):
        self.now = 0

    def now_millis(self):
        return self.now


def limits(max_bytes=None, retention_millis=1000):
    return CacheLimits(max_bytes=max_bytes, retention_millis=retention_millis)


def writes(text):
    return lambda sink: sink.write(text)


def opened(data, _):
    return data.to_pybytes()


@pytest.fixture
def cache(tmp_path):
    made = DiskCache(Clock(), str(tmp_path / "cache"))
    yield made
    made.close()
    assert not list(tmp_path.rglob("*.lookup"))


def names(cache):
    return [entry.name for entry in cache.entries()]


def test_hits_misses_and_bytes(cache):
    for _ in range(3):
        assert cache.get("o", "a", limits(), writes(b"12345"), opened) == b"12345"
    told = cache.metrics()
    assert (told.hits, told.misses, told.file_count, told.byte_count) == (2, 1, 1, 5)


def test_the_idlest_go_first(cache, tmp_path):
    for name in "abc":
        cache.get("o", name, limits(12), writes(b"1234"), opened)
    cache.get("o", "a", limits(12), writes(b""), opened)
    cache.get("o", "d", limits(12), writes(b"1234"), opened)
    assert names(cache) == ["c", "a", "d"]
    assert cache.metrics().evictions == {"size": 1}
    assert len(list(tmp_path.rglob("*.lookup"))) == 3


def test_one_larger_than_the_limit_stays_until_the_next(cache):
    cache.get("o", "a", limits(3), writes(b"1234"), opened)
    assert names(cache) == ["a"]
    cache.get("o", "b", limits(3), writes(b"1234"), opened)
    assert names(cache) == ["b"]


def test_retention_counts_from_the_last_use(cache):
    cache.get("o", "a", limits(), writes(b"1"), opened)
    cache.get("o", "b", limits(), writes(b"1"), opened)
    cache._clock.now = 900
    cache.touch("o", ["a"])
    cache._clock.now = 1500
    cache.expire()
    assert names(cache) == ["a"]
    assert cache.metrics().evictions == {"expired": 1}


def test_drop_and_release(cache, tmp_path):
    told = []
    cache.watch("p", lambda: told.append("p"))
    for owner in "op":
        for name in "ab":
            cache.get(owner, name, limits(), writes(b"1"), opened)
    cache.drop("o", ["a", "never"])
    cache.unwatch("p")
    assert [(entry.owner, entry.name) for entry in cache.entries()] == [("o", "b")]
    assert len(list(tmp_path.rglob("*.lookup"))) == 1
    assert cache.metrics().evictions == {"dropped": 1, "released": 2}
    assert not told  # it had asked to be left alone


def test_accesses_and_causes_of_removal_are_known_per_entry(cache):
    class Counted:
        def __init__(self):
            self.accesses = Accesses()

    made = {
        name: cache.get("o", name, limits(12), writes(b"1234"), lambda *_: Counted())
        for name in "abc"
    }
    made["a"].accesses.add(5, 2)
    made["a"].accesses.add(1, 1)
    made["a"].accesses.points[:] = (10, 4)
    assert {e.name: (e.request_count, e.hit_count) for e in cache.entries()} == {
        "a": (16, 7), "b": (0, 0), "c": (0, 0),
    }  # fmt: skip
    cache.get("o", "d", limits(12), writes(b"1234"), opened)  # takes the place of a
    cache.drop("o", ["b"])
    cache.drop("o", ["c"], cause=Leaves.DAMAGED)
    cache._clock.now = 2000
    cache.expire()
    cache.get("o", "e", limits(), writes(b"1"), opened)
    cache.release("o")
    assert [(e.name, e.request_count, e.hit_count, e.removal_cause) for e in cache.removed()] == [
        ("a", 16, 7, "size"),
        ("b", 0, 0, "explicit"),
        ("c", 0, 0, "replaced"),
        ("d", 0, 0, "expired"),
        ("e", 0, 0, "explicit"),
    ]
    assert [entry.removal_cause for entry in cache.entries()] == []


def test_a_failed_build_leaves_nothing(cache, tmp_path):
    def fails(sink):
        sink.write(b"half")
        raise KeyError("no")

    with pytest.raises(KeyError):
        cache.get("o", "a", limits(), fails, opened)
    assert not list(tmp_path.rglob("*.lookup"))
    assert cache.get("o", "a", limits(), writes(b"1"), opened) == b"1"


def test_a_file_that_opens_damaged_is_built_once_more(cache):
    tries = []

    def damaged(data, path):
        tries.append(path)
        if len(tries) < 2:
            raise CorruptFileError("bad", file=path)
        return data.to_pybytes()

    assert cache.get("o", "a", limits(), writes(b"1"), damaged) == b"1"
    assert len(tries) == 2


def on_disk(cache):
    """Bytes of all files, those included that are being written."""
    with cache._lock:
        return cache._bytes + sum(one.size for one in cache._growing)


def test_files_that_are_built_at_once_share_the_limit(cache, tmp_path):
    """The second waits for room, as the first one would have to go; the first never waits."""
    began, go_on, has_room = threading.Event(), threading.Event(), threading.Event()

    def first(sink):
        sink.write(b"a" * 60)
        began.set()
        assert go_on.wait(30)
        sink.write(b"a" * 60)  # beyond the limit by itself

    def second(sink):
        sink.write(b"b" * 60)
        has_room.set()

    def ask(name, build):
        return threading.Thread(target=cache.get, args=("o", name, limits(100), build, opened))

    threads = [ask("a", first), ask("b", second)]
    threads[0].start()
    assert began.wait(30)
    threads[1].start()
    assert not has_room.wait(0.1)
    assert on_disk(cache) == 60
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert has_room.is_set()
    assert names(cache) == ["b"]
    assert on_disk(cache) == 60


def test_a_failed_build_gives_its_room_back(cache):
    began, go_on = threading.Event(), threading.Event()

    def fails(sink):
        sink.write(b"a" * 60)
        began.set()
        assert go_on.wait(30)
        raise KeyError("no")

    def ask():
        with pytest.raises(KeyError):
            cache.get("o", "a", limits(100), fails, opened)

    failing = threading.Thread(target=ask)
    failing.start()
    assert began.wait(30)
    other = threading.Thread(
        target=cache.get, args=("o", "b", limits(100), writes(b"b" * 90), opened)
    )
    other.start()
    go_on.set()
    failing.join(30)
    other.join(30)
    assert names(cache) == ["b"]
    assert on_disk(cache) == 90


def test_sixteen_threads_with_a_limit_below_what_they_need(cache, tmp_path):
    """Answers are right, no entry is built by two at a time, the limit holds within one file."""
    most, wrong, building = [0], [], set()

    def build(number):
        def write(sink):
            if number in building:
                wrong.append(number)
            building.add(number)
            for _ in range(4):
                sink.write(bytes([number]) * 25)
                most[0] = max(most[0], on_disk(cache))
            building.discard(number)

        return write

    def work(seed):
        for step in range(150):
            number = (seed * 7 + step * 11) % 40
            got = cache.get("o", str(number), limits(1000), build(number), opened)
            if got != bytes([number]) * 100:
                wrong.append(got)
            most[0] = max(most[0], on_disk(cache))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert most[0] <= 1100


def test_an_entry_that_left_while_others_waited_for_it_is_built_by_one_of_them(cache):
    """A waits for nobody, B for A, then C comes: B and C never build at once, nor is it counted twice."""
    going, most, started = [], [0], threading.Event()
    go_on = threading.Event()

    def build(sink):
        going.append(1)
        most[0] = max(most[0], len(going))
        started.set()
        go_on.wait(5)
        sink.write(b"x" * 100)
        going.pop()

    def ask():
        cache.get("o", "a", limits(50), build, opened)
        cache.drop("o", ["a"])

    threads = [threading.Thread(target=ask) for _ in range(12)]
    threads[0].start()
    started.wait(5)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert cache.metrics().byte_count == 0


def test_an_owner_that_is_collected_within_a_call_of_the_cache_does_not_hang_it(cache):
    """The garbage collector runs finalizers anywhere, also in the thread that holds the lock."""
    told = []
    cache.watch("gone", lambda: told.append("gone"))
    cache.get("gone", "a", limits(), writes(b"1"), opened)

    def collected_inside() -> None:
        with cache._lock:
            cache.unwatch("gone")

    inside = threading.Thread(target=collected_inside, daemon=True)
    inside.start()
    inside.join(10)
    assert not inside.is_alive()
    assert names(cache) == ["a"]
    cache.get("o", "b", limits(), writes(b"1"), opened)
    assert names(cache) == ["b"]
    assert told == []
