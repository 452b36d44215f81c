"""LocalFileIO killed at each system call: old or new, never a torn file under a published name."""

import os
from typing import Any

import pytest

from lsm_engine.storage.local import LocalFileIO
from tests.fault.recording_file_io import Crash
from tests.fault.system_calls import MODULES

DATA = b"new" * 100
MUTATING = frozenset({"open", "fsync", "link", "unlink", "replace", "makedirs", "rmdir"})


class DyingOs:
    """Stands in for `os`: dies at call number `at`, or half way through it if it is a write."""

    def __init__(self, at: int, *, after: bool = False) -> None:
        self.at = at
        self.after = after
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in MUTATING:
            return real
        return lambda *args, **kwargs: self.call(name, lambda: real(*args, **kwargs))

    def call(self, name: str, act: Any, half: Any = lambda: None) -> Any:
        if len(self.calls) >= self.at:
            raise Crash("nothing runs in a dead process")
        self.calls.append(name)
        if len(self.calls) < self.at:
            return act()
        if self.after:
            act()
        else:
            half()
        raise Crash(f"at {name}")

    def write(self, descriptor: int, data: Any) -> int:
        half = bytes(data)[: len(data) // 2]
        written: int = self.call(
            "write", lambda: os.write(descriptor, data), lambda: os.write(descriptor, half)
        )
        return written


def killed_at_each_call(monkeypatch, tmp_path, prepare, act):
    """Yield the storage, seen by a new process, after each death; ends when `act` gets through."""
    for at in range(1, 50):
        for after in (False, True):
            root = tmp_path / f"{at}-{after}"
            prepare(LocalFileIO(str(root)))
            system = DyingOs(at, after=after)
            with monkeypatch.context() as patch:
                for module in MODULES:
                    patch.setattr(module, "os", system)
                try:
                    act(LocalFileIO(str(root)))
                except Crash:
                    survived = False
                else:
                    survived = True
            yield LocalFileIO(str(root)), system.calls
        if survived:
            return
    raise AssertionError("never got through")


def nothing(_storage):
    pass


def names(storage, directory):
    return [status.name for status in storage.list(directory) if status.name[0] != "."]


def test_publish(monkeypatch, tmp_path):
    landed_at = set()
    for storage, calls in killed_at_each_call(
        monkeypatch, tmp_path, nothing, lambda each: each.publish("s/a", DATA)
    ):
        if storage.exists("s/a"):
            assert storage.read("s/a") == DATA
            landed_at.add(calls[-1])
            assert calls.index("fsync") < calls.index("link"), "linked before it was on disk"
        else:
            assert names(storage, "s") == []
            assert storage.publish("s/a", DATA)
    assert "link" in landed_at


def test_replace(monkeypatch, tmp_path):
    for storage, calls in killed_at_each_call(
        monkeypatch,
        tmp_path,
        lambda each: each.write_new("s/LATEST", b"old"),
        lambda each: each.replace("s/LATEST", DATA),
    ):
        assert storage.read("s/LATEST") in (b"old", DATA)
        assert names(storage, "s") == ["LATEST"]
        assert "replace" not in calls or calls.index("fsync") < calls.index("replace")


def test_replace_if_unchanged(monkeypatch, tmp_path):
    contents = set()
    for storage, calls in killed_at_each_call(
        monkeypatch,
        tmp_path,
        lambda each: each.write_new("s/tag", b"old"),
        lambda each: each.change_if_unchanged("s/tag", DATA, expected=b"old"),
    ):
        contents.add(storage.read("s/tag"))
        assert names(storage, "s") == ["tag"]
        assert "replace" not in calls or calls.index("fsync") < calls.index("replace")
        # The lock went with the process.
        assert storage.change_if_unchanged("s/tag", b"next", expected=storage.read("s/tag"))
    assert contents == {b"old", DATA}


def test_delete_if_unchanged(monkeypatch, tmp_path):
    for storage, calls in killed_at_each_call(
        monkeypatch,
        tmp_path,
        lambda each: each.write_new("s/tag", b"old"),
        lambda each: each.change_if_unchanged("s/tag", None, expected=b"old"),
    ):
        is_there = storage.exists("s/tag")
        assert is_there or "unlink" in calls
        assert storage.change_if_unchanged("s/tag", None, expected=b"old") == is_there
    assert calls[-2:] == ["open", "fsync"], "the name may come back after a power cut"


def test_delete_and_remove(monkeypatch, tmp_path):
    def act(storage):
        storage.delete("s/a")
        storage.remove_empty_directory("s")

    for storage, _ in killed_at_each_call(
        monkeypatch, tmp_path, lambda each: each.write_new("s/a", b"1"), act
    ):
        assert storage.list("s") in ([], [storage.status("s/a")] if storage.exists("s/a") else [])
        act(storage)
        assert storage.list("") == []


@pytest.mark.parametrize("durable", [True, False])
def test_a_publish_waits_for_the_disk_only_when_durable(monkeypatch, tmp_path, durable):
    system = DyingOs(1000)
    for module in MODULES:
        monkeypatch.setattr(module, "os", system)
    LocalFileIO(str(tmp_path), durable=durable).publish("s/a", DATA)
    assert system.calls == [
        "makedirs",
        *(["open", "fsync"] if durable else []),  # the new directory's name, in its parent
        *["open", "write"],
        *(["fsync"] if durable else []),
        "link",
        *(["open", "fsync"] if durable else []),
        "unlink",
    ]
    assert os.listdir(tmp_path / "s") == ["a"]
