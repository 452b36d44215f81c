"""LocalFileIO: links, races, errors of the operating system, and what it leaves behind."""

import errno
import multiprocessing
import os
import pickle
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    NotFoundError,
    StorageError,
    UnsafePathError,
)
from lsm_engine.storage import executor
from lsm_engine.storage.file_io import to_storage_error
from lsm_engine.storage.local import LocalFileIO


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "table"
    path.mkdir()
    return path


@pytest.fixture
def storage(root):
    return LocalFileIO(str(root))


def refusing(code):
    def call(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return call


def test_is_a_value(storage, root):
    storage.write_new("a/b", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert hash(copy) == hash(storage)
    assert copy.read("a/b") == b"1"
    assert storage != LocalFileIO(str(root), durable=False)


def test_links_that_leave_the_root_are_refused(storage, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "way").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "way").symlink_to(outside)
    for act in (
        lambda: storage.read("way/secret"),
        lambda: storage.read("file"),
        lambda: storage.read("a/b/way/secret"),
        lambda: storage.open_output("a/b/way/deeper/new"),
        lambda: storage.open_input("file"),
        lambda: storage.open_input("file", size=6),
        lambda: storage.exists("file"),
        lambda: storage.list("way"),
        lambda: storage.write_new("way/new", b""),
        lambda: storage.open_output("way/new"),
        lambda: storage.publish("way/new", b""),
        lambda: storage.replace("way/secret", b""),
        lambda: storage.delete("way/secret"),
        lambda: storage.sync(["file"]),
        lambda: storage.remove_empty_directory("way/x"),
    ):
        with pytest.raises(UnsafePathError):
            act()
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_is_replaced_or_deleted_itself(storage, root, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    (root / "a").symlink_to(target)
    (root / "b").symlink_to(target)
    storage.replace("a", b"new")
    assert storage.read("a") == b"new"
    assert storage.delete("b")
    assert target.read_bytes() == b"kept"
    (root / "c").symlink_to(target)
    with pytest.raises(AlreadyExistsError):
        storage.write_new("c", b"x")
    assert not storage.publish("c", b"x")
    assert not storage.status("c").is_directory


def test_links_inside_the_root_work(storage, root):
    storage.write_new("real/a", b"1")
    (root / "alias").symlink_to(root / "real")
    assert storage.read("alias/a") == b"1"
    storage.write_new("real/b/c", b"2")
    (root / "real" / "b" / "up").symlink_to(root / "real")
    assert storage.read("alias/b/up/b/c") == b"2"
    with storage.open_input("alias/b/up/b/c", size=1) as source:
        assert source.read() == b"2"


def test_a_directory_that_became_a_link_is_followed_for_what_is_new_in_it(storage, root, tmp_path):
    outside = tmp_path / "outside"
    (outside / "q=1" / "bucket-1").mkdir(parents=True)
    (outside / "q=1" / "bucket-1" / "secret").write_bytes(b"secret")
    storage.write_new("p=1/q=1/bucket-0/a", b"1")
    assert storage.read("p=1/q=1/bucket-0/a") == b"1"
    (root / "p=1").rename(root / "old")
    (root / "p=1").symlink_to(outside)
    with pytest.raises(UnsafePathError):
        storage.read("p=1/q=1/bucket-1/secret")
    with pytest.raises(UnsafePathError):
        storage.write_new("p=1/q=1/bucket-2/a", b"1")


def test_a_link_that_leads_elsewhere_since_is_followed_anew(storage, root):
    (root / "d1" / "bucket-0").mkdir(parents=True)
    (root / "d2").mkdir()
    (root / "p=1").symlink_to("d1")
    storage.write_new("p=1/bucket-0/a", b"1")
    (root / "p=1").unlink()
    (root / "p=1").symlink_to("d2")
    storage.write_new("p=1/bucket-1/b", b"2")
    assert LocalFileIO(str(root)).read("p=1/bucket-1/b") == b"2"
    assert os.listdir(root / "d1") == ["bucket-0"]


def test_a_new_directory_costs_one_look_for_each_part_below_the_root(storage, root, monkeypatch):
    (root / "p=1" / "bucket-0").mkdir(parents=True)
    (root / "p=1" / "bucket-0" / "a").touch()
    looked = []
    real_lstat = os.lstat

    def lstat(path, **kwargs):
        looked.append(os.path.relpath(path, root))
        return real_lstat(path, **kwargs)

    monkeypatch.setattr(os, "lstat", lstat)
    storage.read("p=1/bucket-0/a")
    assert looked == ["p=1", "p=1/bucket-0"]
    storage.read("p=1/bucket-0/a")
    assert len(looked) == 2


def test_a_root_behind_a_link_works(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    storage = LocalFileIO(str(tmp_path / "alias"))
    storage.write_new("a/b", b"1")
    assert storage.read("a/b") == b"1"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EACCES, "permission"),
        (errno.EMFILE, "ulimit"),
        (errno.EIO, "disk failed"),
        (errno.ENOMEM, "not enough memory"),
        (errno.EXDEV, "storage failed"),
    ],
)
def test_errors_say_what_to_do(storage, monkeypatch, code, words):
    storage.write_new("a/old", b"1")
    monkeypatch.setattr(os, "open", refusing(code))
    with pytest.raises(StorageError, match=words) as caught:
        storage.write_new("a/b", b"1")
    assert caught.value.facts == {"path": "a/b", "errno": errno.errorcode[code]}
    assert isinstance(caught.value.__cause__, OSError)


def test_what_a_library_makes_of_a_failure_is_told():
    mapped = OSError(f"Memory mapping file failed: {os.strerror(errno.ENOMEM)}")
    assert "not enough memory" in str(to_storage_error("a/b", mapped))
    assert "the storage failed: odd;" in str(to_storage_error("a/b", OSError("odd")))


def test_exists_never_guesses(storage, monkeypatch):
    monkeypatch.setattr(os, "lstat", refusing(errno.EACCES))
    with pytest.raises(StorageError):
        storage.exists("a/b")


def test_listing_is_complete_or_an_error(storage, monkeypatch):
    monkeypatch.setattr(os, "scandir", refusing(errno.EIO))
    with pytest.raises(StorageError):
        storage.list("a")


def names(root):
    return sorted(os.listdir(root))


def test_a_failed_write_leaves_nothing(storage, root, monkeypatch):
    storage.write_new("first", b"")
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    with pytest.raises(StorageError):
        storage.publish("a", b"x")
    with pytest.raises(StorageError):
        storage.replace("b", b"x")
    assert names(root) == ["first"]


def test_a_refused_link_is_known_to_be_lost(storage, root, monkeypatch):
    monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    with pytest.raises(StorageError, match="hard links"):
        storage.publish("a", b"x")
    assert names(root) == []


def test_a_link_that_was_made_in_spite_of_an_error_is_ours(storage, monkeypatch):
    real_link = os.link

    def link(source, target):
        real_link(source, target)
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "link", link)
    assert storage.publish("a", b"x")

    def link_twice(source, target):  # a repeated request meets the link of the first
        real_link(source, target)
        real_link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    assert storage.publish("b", b"x")
    assert not storage.publish("b", b"y")


def test_a_name_that_was_taken_and_is_free_again_was_not_ours(storage, monkeypatch):
    """Another process had the name and deleted it: this one made nothing, and may try again."""

    def link(_from: str, to: str) -> None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        assert storage.publish("d/name", b"1") is False
    assert storage.list("d") == []
    assert storage.publish("d/name", b"1")


def test_an_answer_that_cannot_be_checked_is_unknown(storage, monkeypatch):
    monkeypatch.setattr(os, "link", refusing(errno.EIO))
    storage.write_new("first", b"")
    real_lstat = os.lstat
    calls = []

    def lstat(path, **kwargs):
        if str(path).endswith("/a") and calls:
            raise OSError(errno.EIO, "gone")
        calls.append(path)
        return real_lstat(path, **kwargs)

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(CommitUnknownError):
        storage.publish("a", b"x")


def test_a_directory_that_is_not_synced_is_not_confirmed(storage, root, monkeypatch):
    real_fsync, synced = os.fsync, []

    def fsync(descriptor):
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(errno.EIO, "lost")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CommitUnknownError):
        storage.publish("a", b"x")
    assert names(root) == ["a"]


def test_temporaries_are_hidden_and_go(storage, root):
    storage.publish("s/a", b"1")
    storage.publish("s/a", b"2")
    storage.replace("s/b", b"3")
    assert names(root / "s") == ["a", "b"]


def test_sync_reaches_files_and_every_directory_once(storage, root, monkeypatch):
    storage.write_new("p=1/bucket-0/x", b"1")
    storage.write_new("p=1/bucket-0/y", b"1")
    opened = []
    real_open = os.open

    def open_(path, flags, *rest):
        opened.append(os.path.relpath(path, root))
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", open_)
    storage.sync(["p=1/bucket-0/x", "p=1/bucket-0/y"])
    assert sorted(opened[:2]) == ["p=1/bucket-0/x", "p=1/bucket-0/y"]
    assert sorted(opened[2:]) == [".", "p=1", "p=1/bucket-0"]
    with pytest.raises(NotFoundError):
        storage.sync(["p=1/none"])


def test_sync_waits_for_files_side_by_side_and_then_for_directories(storage, monkeypatch):
    paths = ["a/x", "a/y"]
    for path in paths:
        storage.write_new(path, b"1")
    pairs, real_fsync, synced = threading.Barrier(2, timeout=30), os.fsync, []

    def fsync(descriptor):
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        pairs.wait()
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.sync(paths)
    assert synced == [False, False, True, True]


def test_nothing_waits_for_the_disk_when_told_so(root, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    storage = LocalFileIO(str(root), durable=False)
    assert storage.publish("a", b"1")
    storage.replace("b", b"1")
    storage.sync(["a"])


def test_a_directory_cleaned_by_somebody_else_comes_back(storage, root):
    storage.write_new("a/b", b"1")
    (root / "a" / "b").unlink()
    (root / "a").rmdir()
    storage.write_new("a/b", b"2")
    assert storage.read("a/b") == b"2"


def test_entries_that_vanish_during_a_listing_are_left_out(storage, root):
    (root / "dangling").symlink_to(root / "nowhere")
    assert [status.path for status in storage.list("")] == ["dangling"]


def test_sync_also_as_the_interpreter_ends(storage, monkeypatch):
    """A handler of `atexit` may write: pools take nothing more by then."""
    storage.write_new("a/x", b"1")
    storage.write_new("a/y", b"1")
    ended = ThreadPoolExecutor()
    ended.shutdown()
    monkeypatch.setattr(executor, "_pools", {(os.getpid(), executor.REQUESTS): ended})
    monkeypatch.setattr(executor, "main_thread", threading.Thread)  # one that does not run
    storage.sync(["a/x", "a/y"])
    with pytest.raises(NotFoundError):
        storage.sync(["a/x", "a/none"])


def test_a_process_that_may_start_no_more_threads_does_nothing_twice(storage, monkeypatch):
    """The pool has queued an act by the time that its thread does not start: a later thread would do it."""
    pool, began = ThreadPoolExecutor(), []

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(executor, "_pools", {(os.getpid(), executor.REQUESTS): pool})
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StorageError, match="ulimit"):
            executor.begin(began.append, "refused")
    executor.begin(began.append, "done").result()
    pool.shutdown()
    assert began == ["done"]


def test_sync_in_a_process_that_was_forked_while_another_thread_began_to_wait(storage, monkeypatch):
    """What that thread holds is let go by nobody in the child."""
    storage.write_new("a/x", b"1")
    storage.write_new("a/y", b"1")
    own, began, ended = os.getpid(), threading.Event(), threading.Event()

    def pool(*given):
        if os.getpid() == own:
            began.set()
            ended.wait(60)
        return ThreadPoolExecutor(*given)

    monkeypatch.setattr(executor, "_pools", {})
    monkeypatch.setattr(executor, "ThreadPoolExecutor", pool)
    thread = threading.Thread(target=storage.sync, args=(["a/x", "a/y"],))
    thread.start()
    assert began.wait(60)
    paths = (["a/x", "a/y"],)
    child = multiprocessing.get_context("fork").Process(target=storage.sync, args=paths)
    child.start()
    child.join(20)
    child.kill()
    ended.set()
    thread.join()
    assert child.exitcode == 0
