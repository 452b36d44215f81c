"""The directory of decoded manifests: bounded, shared by processes, and never the reason that a read fails."""

import multiprocessing
import os
import shutil
import tempfile

import pytest

from lsm_engine.cache import shared
from lsm_engine.cache.shared import SharedCache, clear_manifest_cache, manifest_cache

LARGE = 1 << 30


def put(cache, key, content):
    cache.put(key, lambda sink: sink.write(content))


def got(cache, key):
    found = cache.find(key)
    return None if found is None else found.to_pybytes()


def files(root):
    return sorted(os.listdir(root))


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "cache")


@pytest.mark.parametrize("content", [b"", b"x", b"y" * 100_000])
def test_what_is_put_is_found_by_any_process(root, content):
    put(SharedCache(root, LARGE), "a", content)
    assert got(SharedCache(root, LARGE), "a") == content
    assert got(SharedCache(root, LARGE), "b") is None
    assert os.stat(root).st_mode & 0o777 == 0o700
    assert len(files(root)) == 1


def test_an_entry_is_worth_it_once_it_is_asked_for_again(root):
    first, other = SharedCache(root, LARGE), SharedCache(root, LARGE)
    assert not first.is_asked_again("a")
    assert first.find("a") is None
    assert not first.holds("a")
    assert other.is_asked_again("a")
    put(other, "a", b"made")
    assert first.holds("a")
    assert got(first, "a") == b"made"


def test_what_was_used_least_lately_goes_first(root):
    cache = SharedCache(root, 800)
    for number in range(4):
        put(cache, str(number), bytes(100))
        used = os.stat(cache._path(str(number))).st_mtime - 1000 + number
        os.utime(cache._path(str(number)), (used, used))
    os.utime(cache._path("0"))  # it was asked for
    for number in range(4, 30):
        put(cache, str(number), bytes(100))
        assert sum(os.stat(os.path.join(root, one)).st_size for one in files(root)) <= 800
    assert got(cache, "1") is None
    assert got(cache, "29") == bytes(100)


def test_what_nobody_asks_for_leaves_after_a_week(root):
    cache = SharedCache(root, LARGE)
    put(cache, "old", b"1")
    put(cache, "new", b"2")
    week_ago = os.stat(cache._path("old")).st_mtime - 8 * 24 * 3600
    os.utime(cache._path("old"), (week_ago, week_ago))
    put(SharedCache(root, LARGE), "other", b"3")
    assert not cache.holds("old")
    assert cache.holds("new")


def test_marks_of_what_was_asked_for_once_are_bounded_too(root):
    for number in range(100):
        SharedCache(root, LARGE).is_asked_again(f"asked {number}")
    put(SharedCache(root, 1 << 20), "a", b"1")
    assert len(files(root)) <= (1 << 20) // (64 << 10)


def test_an_entry_larger_than_the_cache_is_not_kept(root):
    cache = SharedCache(root, 100)
    put(cache, "a", bytes(101))
    assert files(root) == []
    put(cache, "b", bytes(10))
    assert got(cache, "b") == bytes(10)


@pytest.mark.parametrize("damaged", ["1content", "content", "c", "1ontent1234"])
def test_a_damaged_entry_counts_as_absent(root, damaged):
    cache = SharedCache(root, LARGE)
    put(cache, "a", b"content")
    path = cache._path("a")
    os.chmod(path, 0o600)
    with open(path, "wb") as sink:
        sink.write(damaged.encode())
    assert got(cache, "a") is None
    assert files(root) == []
    put(cache, "a", b"content")
    assert got(cache, "a") == b"content"


def test_an_entry_that_leaves_stays_with_who_has_it(root):
    cache = SharedCache(root, LARGE)
    put(cache, "a", b"content")
    held = cache.find("a")
    os.unlink(cache._path("a"))
    assert held.to_pybytes() == b"content"


def test_a_directory_that_is_not_ours_alone_is_left_alone(root):
    os.makedirs(root, mode=0o755)
    os.chmod(root, 0o755)
    cache = SharedCache(root, LARGE)
    put(cache, "a", b"content")
    assert not cache.is_asked_again("a")
    assert files(root) == []


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_fails(tmp_path):
    (tmp_path / "file").write_text("")
    cache = SharedCache(str(tmp_path / "file" / "below"), LARGE)
    put(cache, "a", b"content")
    assert cache.find("a") is None
    assert not cache.is_asked_again("a")


def test_a_writer_that_fails_leaves_nothing(root):
    cache = SharedCache(root, LARGE)

    def fails(sink):
        sink.write(b"half")
        raise OSError(28, "no space left on device")

    cache.put("a", fails)
    assert files(root) == []
    assert got(cache, "a") is None


def test_no_bytes_are_no_cache(root):
    cache = SharedCache(root, 0)
    put(cache, "a", b"content")
    assert not cache.is_asked_again("a")
    assert not os.path.exists(root)


def _work(root, seed):
    cache = SharedCache(root, 4_000)
    for number in range(300):
        key = str((seed * 7 + number * 13) % 60)
        found = cache.find(key)
        if found is not None:
            assert found.to_pybytes() == key.encode() * 50
        elif cache.is_asked_again(key):
            put(cache, key, key.encode() * 50)


def test_processes_that_race_see_whole_entries_alone(root):
    workers = [
        multiprocessing.get_context("fork").Process(target=_work, args=(root, n)) for n in range(6)
    ]
    for one in workers:
        one.start()
    for one in workers:
        one.join(60)
    assert [one.exitcode for one in workers] == [0] * 6
    assert not [one for one in files(root) if one.startswith(".")]


def test_the_directory_is_shown_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = shared.manifest_cache_root()
    put(SharedCache(root, LARGE), "a", bytes(96))
    (tmp_path / os.path.basename(root) / "somebody's").write_text("stays")
    assert (manifest_cache().file_count, manifest_cache().byte_count) == (1, 100)
    assert clear_manifest_cache().file_count == 1
    assert files(root) == ["somebody's"]
    assert manifest_cache().byte_count == 0


def test_a_directory_that_others_may_write_to_is_not_believed(root):
    cache = SharedCache(root, LARGE)
    put(cache, "a", b"content")
    os.chmod(root, 0o777)
    assert got(SharedCache(root, LARGE), "a") is None
    assert not cache.holds("a")
    os.chmod(root, 0o700)
    assert got(cache, "a") == b"content"


def test_an_entry_under_the_name_of_another_counts_as_absent(root):
    cache = SharedCache(root, LARGE)
    put(cache, "one", b"1")
    put(cache, "two", b"2")
    os.replace(cache._path("two"), cache._path("one"))
    assert got(cache, "one") is None


def test_what_a_writer_that_died_has_left_stops_nobody(root, monkeypatch):
    monkeypatch.setattr(shared.SystemIds, "new_id", lambda self: "0" * 36)
    cache = SharedCache(root, LARGE)
    put(cache, "a", b"content")
    with open(os.path.join(root, "." + "0" * 36), "w") as left:
        left.write("half")
    put(cache, "b", b"content")
    assert got(cache, "b") is None
    assert got(cache, "a") == b"content"


def test_a_directory_that_vanishes_while_an_entry_is_made_is_made_again(root, monkeypatch):
    cache = SharedCache(root, LARGE)
    written = shared.write_private

    def vanishing(path, build):
        shutil.rmtree(root)
        written(path, build)

    with monkeypatch.context() as patched:
        patched.setattr(shared, "write_private", vanishing)
        put(cache, "a", b"content")
    assert got(cache, "a") is None
    put(cache, "a", b"content")
    assert got(cache, "a") == b"content"
