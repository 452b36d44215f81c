"""What every FileIO promises. Subclass FileIOSuite, give it a `storage` fixture, and it is tested.

Needs pytest. `storage` is an empty FileIO, made anew for each test.
"""

import threading
from collections.abc import Callable
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_engine.base.errors import AlreadyExistsError, NotFoundError, StorageError, UnsafePathError
from lsm_engine.io.file_io import FileIO

UNSAFE = [
    "", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "./a", "a/.", "a//b", "a/", "a\\b",
    "a\0b", "a/\udcff",
]  # fmt: skip


class FileIOSuite:
    """Tests over one `storage` fixture: an empty FileIO."""

    def test_reads_what_was_written(self, storage: FileIO) -> None:
        storage.write_new("a/b/c", b"0123456789")
        assert storage.read("a/b/c") == b"0123456789"
        assert storage.read("a/b/c", 3) == b"3456789"
        assert storage.read("a/b/c", 3, 4) == b"3456"
        assert storage.read("a/b/c", 8, 100) == b"89"
        assert storage.read("a/b/c", 100, 1) == b""
        assert storage.read("a/b/c", 0, 0) == b""

    def test_missing_files_are_not_found(self, storage: FileIO) -> None:
        acts: list[Callable[[str], object]] = [storage.read, storage.open_input, storage.status]
        for act in acts:
            with pytest.raises(NotFoundError) as caught:
                act("a/none")
            assert caught.value.facts["path"] == "a/none"
        assert not storage.exists("a/none")
        assert not storage.delete("a/none")
        assert storage.list("a") == []

    @pytest.mark.parametrize("path", ["a", "a/b", "a/none", *UNSAFE])
    def test_prefetch_changes_nothing(self, storage: FileIO, path: str) -> None:
        storage.write_new("a/b", b"x")
        storage.prefetch(path)
        assert storage.read("a/b") == b"x"
        assert [status.path for status in storage.list("a")] == ["a/b"]

    @pytest.mark.parametrize("path", UNSAFE)
    def test_unsafe_paths_touch_nothing(self, storage: FileIO, path: str) -> None:
        acts: list[Callable[[], object]] = [
            lambda: storage.read(path),
            lambda: storage.open_input(path),
            lambda: storage.write_new(path, b"x"),
            lambda: storage.open_output(path),
            lambda: storage.publish(path, b"x"),
            lambda: storage.replace(path, b"x"),
            lambda: storage.delete(path),
            lambda: storage.exists(path),
            lambda: storage.status(path),
            lambda: storage.sync([path]),
            lambda: storage.remove_empty_directory(path),
        ] + ([lambda: storage.list(path)] if path else [])
        for act in acts:
            with pytest.raises(UnsafePathError):
                act()
        assert storage.list("") == []

    def test_a_new_file_never_overwrites(self, storage: FileIO) -> None:
        storage.write_new("a", b"old")
        with pytest.raises(AlreadyExistsError):
            storage.write_new("a", b"new")
        with pytest.raises(AlreadyExistsError):
            storage.open_output("a")
        assert storage.read("a") == b"old"

    def test_publish_is_won_once(self, storage: FileIO) -> None:
        assert storage.publish("snapshot/snapshot-1", b"first")
        assert not storage.publish("snapshot/snapshot-1", b"second")
        assert storage.read("snapshot/snapshot-1") == b"first"
        assert [status.name for status in storage.list("snapshot")] == ["snapshot-1"]

    def test_publish_is_won_once_by_threads(self, storage: FileIO) -> None:
        won: list[tuple[int, int]] = []

        def race(me: int) -> None:
            won.extend(
                (number, me)
                for number in range(20)
                if storage.publish(f"s/{number}", b"%d" % me * 100)
            )

        threads = [threading.Thread(target=race, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number for number, _ in won) == list(range(20))
        assert all(storage.read(f"s/{number}") == b"%d" % me * 100 for number, me in won)

    def test_replace_overwrites(self, storage: FileIO) -> None:
        storage.replace("snapshot/LATEST", b"1")
        storage.replace("snapshot/LATEST", b"23")
        assert storage.read("snapshot/LATEST") == b"23"
        assert len(storage.list("snapshot")) == 1

    def test_output_in_pieces(self, storage: FileIO) -> None:
        output = storage.open_output("d/file")
        assert output.write(b"ab") == 2
        assert output.write(memoryview(b"cde")) == 3
        assert output.tell() == 5
        output.flush()
        was_closed = output.closed
        output.close()
        assert not was_closed
        assert output.closed
        assert storage.read("d/file") == b"abcde"

    def test_aborted_output_is_gone(self, storage: FileIO) -> None:
        output = storage.open_output("d/file")
        output.write(b"ab")
        output.abort()
        output.abort()
        assert output.closed
        assert not storage.exists("d/file")
        assert not storage.delete("d/file")

    def test_parquet_through_output_and_input(self, storage: FileIO) -> None:
        table = pa.table({"a": range(1000)})
        output = storage.open_output("f.parquet")
        pq.write_table(table, output)
        output.close()
        with storage.open_input("f.parquet") as source:
            assert pq.ParquetFile(source).read() == table
        plain = BytesIO()
        pq.write_table(table, plain)
        assert storage.read("f.parquet") == plain.getvalue()

    def test_delete_takes_one_file(self, storage: FileIO) -> None:
        storage.write_new("a/b", b"1")
        storage.write_new("a/c", b"2")
        assert storage.delete("a/b")
        assert not storage.delete("a/b")
        assert [status.path for status in storage.list("a")] == ["a/c"]

    def test_delete_refuses_directories(self, storage: FileIO) -> None:
        storage.write_new("a/b", b"1")
        with pytest.raises(StorageError):
            storage.delete("a")
        assert storage.exists("a/b")

    def test_only_empty_directories_are_removed(self, storage: FileIO) -> None:
        storage.write_new("a/b/c", b"1")
        assert not storage.remove_empty_directory("a/b")
        assert not storage.remove_empty_directory("a/b/c")
        assert not storage.remove_empty_directory("a/none")
        storage.delete("a/b/c")
        assert storage.remove_empty_directory("a/b")
        assert storage.remove_empty_directory("a")
        assert storage.list("") == []
        storage.write_new("a/b/c", b"2")  # a directory that went comes back by itself
        assert storage.read("a/b/c") == b"2"

    def test_list_names_children_only(self, storage: FileIO) -> None:
        storage.write_new("t/x", b"123")
        storage.write_new("t/y/z", b"1")
        storage.write_new("tt/x", b"1")
        found = storage.list("t")
        assert [(each.path, each.name, each.is_directory) for each in found] == [
            ("t/x", "x", False),
            ("t/y", "y", True),
        ]
        assert found[0].size == 3
        assert storage.status("t/x") == found[0]
        assert storage.status("t/y").is_directory
        assert [each.path for each in storage.list("")] == ["t", "tt"]

    def test_exists_is_about_files(self, storage: FileIO) -> None:
        storage.write_new("a/b", b"")
        assert storage.exists("a/b")
        assert not storage.exists("a")
        assert not storage.exists("a/b/c")

    def test_a_file_in_a_directorys_place_is_an_error(self, storage: FileIO) -> None:
        storage.write_new("a", b"1")
        acts: list[Callable[[str, bytes], object]] = [
            storage.write_new,
            storage.publish,
            storage.replace,
        ]
        for act in acts:
            with pytest.raises((StorageError, AlreadyExistsError)):
                act("a/b", b"1")
        with pytest.raises(StorageError):
            storage.list("a")

    def test_sync_of_files(self, storage: FileIO) -> None:
        storage.write_new("a/b/c", b"1")
        storage.sync(["a/b/c"])
        storage.sync(["a/b"])
        storage.sync([])
        with pytest.raises(NotFoundError):
            storage.sync(["a/none"])
