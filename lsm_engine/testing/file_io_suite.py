"""The contract of FileIO. Subclass a suite, give it a `storage` fixture, and it is tested.

`FileIOSuite`: every store. `DirectoryFileIOSuite`: that, and what a store with directories promises
besides. Needs pytest. `storage` is an empty FileIO, made anew for each test.
"""

import threading
from collections.abc import Callable
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_engine.base.errors import AlreadyExistsError, NotFoundError, StorageError, UnsafePathError
from lsm_engine.storage.bulk import prefetch, read_many, sync_directory, write_many
from lsm_engine.storage.file_io import FileIO

UNSAFE = [
    "", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "./a", "a/.", "a//b", "a/", "a\\b",
    "a\0b", "a/\udcff",
]  # fmt: skip


def _at_once(act: Callable[[int], None], count: int) -> None:
    """Call `act` with each number, in threads; raises what one of them raised."""
    failures: list[BaseException] = []

    def run(me: int) -> None:
        try:
            act(me)
        except BaseException as failure:  # noqa: BLE001 - the test raises it
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


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
        prefetch(storage, path)
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
            lambda: storage.change_if_unchanged(path, b"x", expected=b""),
            lambda: storage.change_if_unchanged(path, None, expected=b""),
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

        _at_once(race, 4)
        assert sorted(number for number, _ in won) == list(range(20))
        assert all(storage.read(f"s/{number}") == b"%d" % me * 100 for number, me in won)

    def test_replace_overwrites(self, storage: FileIO) -> None:
        storage.replace("snapshot/LATEST", b"1")
        storage.replace("snapshot/LATEST", b"23", note="what a store may keep")
        assert storage.read("snapshot/LATEST") == b"23"
        assert len(storage.list("snapshot")) == 1

    def test_replace_if_unchanged(self, storage: FileIO) -> None:
        assert storage.publish("tag/tag-t", b"first")
        assert not storage.change_if_unchanged("tag/tag-t", b"wrong", expected=b"another")
        assert not storage.change_if_unchanged("tag/tag-t", b"wrong", expected=b"")
        assert storage.read("tag/tag-t") == b"first"
        assert storage.change_if_unchanged("tag/tag-t", b"second", expected=b"first")
        assert not storage.change_if_unchanged("tag/tag-t", b"third", expected=b"first")
        assert storage.read("tag/tag-t") == b"second"
        assert storage.change_if_unchanged("tag/tag-t", b"", expected=b"second")
        assert storage.change_if_unchanged("tag/tag-t", b"long" * 2000, expected=b"")
        assert storage.read("tag/tag-t") == b"long" * 2000
        assert not storage.publish("tag/tag-t", b"other")
        assert [status.path for status in storage.list("tag")] == ["tag/tag-t"]

    def test_what_is_missing_is_not_unchanged(self, storage: FileIO) -> None:
        for path in ("a/none", "none"):
            assert not storage.change_if_unchanged(path, b"x", expected=b"")
            assert not storage.change_if_unchanged(path, None, expected=b"")
            assert not storage.exists(path)
        assert storage.list("a") == []

    def test_delete_if_unchanged(self, storage: FileIO) -> None:
        assert storage.publish("tag/tag-t", b"first")
        assert storage.publish("tag/tag-u", b"first")
        assert not storage.change_if_unchanged("tag/tag-t", None, expected=b"another")
        assert storage.read("tag/tag-t") == b"first"
        assert storage.change_if_unchanged("tag/tag-t", None, expected=b"first")
        assert not storage.change_if_unchanged("tag/tag-t", None, expected=b"first")
        assert not storage.change_if_unchanged("tag/tag-t", b"second", expected=b"first")
        assert not storage.exists("tag/tag-t")
        assert not storage.delete("tag/tag-t")
        with pytest.raises(NotFoundError):
            storage.read("tag/tag-t")
        assert list(read_many(storage, ["tag/tag-t"])) == [("tag/tag-t", None)]
        assert [status.path for status in storage.list("tag")] == ["tag/tag-u"]
        assert storage.publish("tag/tag-t", b"again")
        assert storage.read("tag/tag-t") == b"again"

    def test_replaces_by_threads_are_not_lost(self, storage: FileIO) -> None:
        """Threads count by replacing what they have read: each True counts once."""
        assert storage.publish("d/count", b"0")
        counted: list[int] = []

        def count(_: int) -> None:
            won = 0
            while won < 5:
                before = storage.read("d/count")
                after = b"%d" % (int(before) + 1)
                won += storage.change_if_unchanged("d/count", after, expected=before)
            counted.append(won)

        _at_once(count, 4)
        assert sum(counted) == 20
        assert storage.read("d/count") == b"20"

    def test_of_replacers_and_deleters_one_wins(self, storage: FileIO) -> None:
        for number in range(8):
            path = f"d/{number}"
            assert storage.publish(path, b"first")
            won: list[int] = []

            def change(me: int, path: str = path, won: list[int] = won) -> None:
                if me % 2:
                    done = storage.change_if_unchanged(path, None, expected=b"first")
                else:
                    done = storage.change_if_unchanged(path, b"by %d" % me, expected=b"first")
                if done:
                    won.append(me)

            _at_once(change, 4)
            assert len(won) == 1
            if won[0] % 2:
                assert not storage.exists(path)
            else:
                assert storage.read(path) == b"by %d" % won[0]

    def test_a_name_that_comes_and_goes(self, storage: FileIO) -> None:
        """Makers, who give each file a content of its own, and deleters: each file is deleted once, or is there."""
        lives: list[bytes] = []
        deaths: list[bytes] = []

        def act(me: int) -> None:
            for number in range(6):
                content = b"%d of %d" % (number, me)
                try:
                    if storage.publish("d/name", content):
                        lives.append(content)
                    content_read = storage.read("d/name")
                except NotFoundError:
                    continue
                if storage.change_if_unchanged("d/name", None, expected=content_read):
                    deaths.append(content_read)

        _at_once(act, 3)
        assert sorted(set(deaths)) == sorted(deaths)
        remaining = [storage.read("d/name")] if storage.exists("d/name") else []
        assert sorted(deaths + remaining) == sorted(lives)

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
        expected = BytesIO()
        pq.write_table(table, expected)
        assert storage.read("f.parquet") == expected.getvalue()

    def test_delete_takes_one_file(self, storage: FileIO) -> None:
        storage.write_new("a/b", b"1")
        storage.write_new("a/c", b"2")
        assert storage.delete("a/b")
        assert not storage.delete("a/b")
        assert [status.path for status in storage.list("a")] == ["a/c"]

    def test_list_names_children_only(self, storage: FileIO) -> None:
        storage.write_new("t/x", b"123")
        storage.write_new("t/y/z", b"1")
        storage.write_new("tt/x", b"1")
        statuses = storage.list("t")
        assert [(status.path, status.name, status.is_directory) for status in statuses] == [
            ("t/x", "x", False),
            ("t/y", "y", True),
        ]
        assert statuses[0].size == 3
        assert storage.status("t/x") == statuses[0]
        assert [status.path for status in storage.list("")] == ["t", "tt"]

    def test_exists_is_about_files(self, storage: FileIO) -> None:
        storage.write_new("a/b", b"")
        assert storage.exists("a/b")
        assert not storage.exists("a")

    @pytest.mark.parametrize("name", ["a b", "p=%2F#~+", "ünïcödé", "x" * 200, ".hidden", "a=b,c"])
    def test_names_come_back_as_they_were(self, storage: FileIO, name: str) -> None:
        assert storage.publish(f"d/{name}/{name}", b"1")
        assert [status.path for status in storage.list("d")] == [f"d/{name}"]
        assert [status.path for status in storage.list_files("")] == [f"d/{name}/{name}"]
        assert storage.read(f"d/{name}/{name}") == b"1"
        storage.delete_many([f"d/{name}/{name}"])
        assert not storage.exists(f"d/{name}/{name}")

    def test_read_many_in_the_order_asked(self, storage: FileIO) -> None:
        write_many(storage, {f"m/{number}": b"%03d" % number for number in range(50)})
        paths = ["m/7", "m/none", *(f"m/{number}" for number in range(49, 0, -1))]
        contents = list(read_many(storage, paths))
        assert [path for path, _ in contents] == paths
        assert contents[0][1] == b"007"
        assert contents[1][1] is None
        assert [data for _, data in contents[2:]] == [b"%03d" % i for i in range(49, 0, -1)]
        assert list(read_many(storage, ["m/7"], 2)) == [("m/7", b"00")]
        assert list(read_many(storage, [])) == []

    def test_write_many_leaves_nothing_after_an_error(self, storage: FileIO) -> None:
        with pytest.raises(UnsafePathError):
            write_many(storage, {"m/1": b"1", "m/../2": b"2", "m/3": b"3"})
        assert not [status.path for status in storage.list("") if not status.is_directory]
        assert storage.list("m") == []

    def test_delete_many_is_idempotent(self, storage: FileIO) -> None:
        write_many(storage, {f"m/{number}": b"x" for number in range(20)})
        storage.delete_many([f"m/{number}" for number in range(10, 25)])
        storage.delete_many([f"m/{number}" for number in range(10, 25)])
        storage.delete_many([])
        assert sorted(status.path for status in storage.list("m")) == sorted(
            f"m/{number}" for number in range(10)
        )

    def test_list_files_of_all_directories_below(self, storage: FileIO) -> None:
        paths = ["t/a", "t/b/c", "t/b/d/e", "t/f/g"]
        write_many(storage, dict.fromkeys([*paths, "tt/x"], b"12"))
        assert sorted(status.path for status in storage.list_files("t")) == paths
        assert sorted(status.path for status in storage.list_files("")) == [*paths, "tt/x"]
        assert all(
            status.size == 2 and not status.is_directory for status in storage.list_files("t")
        )
        assert list(storage.list_files("none")) == []

    def test_files_are_stamped_by_the_storages_clock(self, storage: FileIO) -> None:
        before = storage.now_millis()
        storage.write_new("a", b"1")
        stamp = storage.status("a").modified_millis
        assert before - 1000 <= stamp <= storage.now_millis() + 1000
        assert [status.path for status in storage.list("")] == ["a"]

    @pytest.mark.parametrize("knows_size", [False, True])
    @pytest.mark.parametrize("size", [0, 10, 3_000_000])
    def test_input_is_seekable(self, storage: FileIO, size: int, knows_size: bool) -> None:  # noqa: FBT001
        data = bytes(i % 251 for i in range(size))
        storage.write_new("a", data)
        with storage.open_input("a", size=size if knows_size else None) as source:
            assert source.read(5) == data[:5]
            assert source.tell() == min(5, size)
            source.seek(0, 2)
            assert source.tell() == size
            source.seek(size // 2)
            assert source.read() == data[size // 2 :]
            assert source.read(1) == b""
            source.seek(0)
            assert source.read() == data

    def test_a_large_output_in_pieces(self, storage: FileIO) -> None:
        piece = bytes(range(256)) * 8192
        finished, given_up = storage.open_output("d/kept"), storage.open_output("d/given-up")
        for _ in range(13):
            finished.write(piece)
            given_up.write(piece)
        given_up.abort()
        finished.close()
        assert [status.name for status in storage.list("d")] == ["kept"]
        assert storage.status("d/kept").size == 13 * len(piece)
        assert storage.read("d/kept", 12 * len(piece)) == piece

    def test_sync_looks_for_each_file(self, storage: FileIO) -> None:
        storage.write_new("a/b/c", b"1")
        storage.sync(["a/b/c"])
        storage.sync([])
        sync_directory(storage, "a/b")
        with pytest.raises(NotFoundError):
            storage.sync(["a/b/c", "a/none"])


class DirectoryFileIOSuite(FileIOSuite):
    """A store with directories, which may be empty, and with names that are refused when taken."""

    def test_it_is_known_to_have_directories(self, storage: FileIO) -> None:
        assert storage.facts.has_directories
        storage.write_new("t/y/z", b"1")
        assert storage.status("t/y").is_directory
        assert not storage.exists("t/y/z/below")

    def test_a_new_file_never_overwrites(self, storage: FileIO) -> None:
        storage.write_new("a", b"old")
        with pytest.raises(AlreadyExistsError):
            storage.write_new("a", b"new")
        with pytest.raises(AlreadyExistsError):
            storage.open_output("a")
        assert storage.read("a") == b"old"

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
