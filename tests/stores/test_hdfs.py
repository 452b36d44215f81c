"""Tables on HDFS: the FileIO contract and tables on Hadoop's mini cluster, and answers that only a stand-in gives."""

import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import (
    CommitUnknownError,
    InvalidOptionError,
    NotFoundError,
    StorageError,
    UnsafePathError,
)
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.hdfs import HdfsFileIO
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.options import HDFS, StorageOptions
from lsm_engine.testing.file_io_suite import DirectoryFileIOSuite
from tests.stores import race_worker
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location

_numbers = itertools.count()
WRITERS, COMMITS = map(int, os.environ.get("LSM_STORE_RACE", "3x5").split("x"))
SCHEMA = pa.schema([("k", pa.int64()), ("dt", pa.string()), ("v", pa.string())])


def stored(server: StoreServer) -> HdfsFileIO:
    """Storage in a directory of its own."""
    return HdfsFileIO(parse_location(location(server, f"wh {next(_numbers)}/db.db/t")))


@pytest.mark.sweep
class TestHdfs(DirectoryFileIOSuite):
    @pytest.fixture
    def storage(self, hdfs: StoreServer) -> FileIO:
        return stored(hdfs)


@pytest.mark.sweep
class TestViewFs(DirectoryFileIOSuite):
    """The same cluster through a table of mounts."""

    @pytest.fixture
    def storage(self, hdfs: StoreServer) -> FileIO:
        cluster, table = f"hdfs://{hdfs.host}:{hdfs.port}", "hadoop.fs.viewfs.mounttable.here"
        mounted = {
            f"{table}.link./lakes": f"{cluster}/mounted",
            f"{table}.linkFallback": f"{cluster}/",
        }
        where = parse_location(f"viewfs://here/lakes/{next(_numbers)}/db.db/t")
        return HdfsFileIO(where, StorageOptions(mounted))


@pytest.mark.sweep
def test_a_session_of_every_verb(hdfs: StoreServer, tmp_path: Path) -> None:
    warehouse = location(hdfs, f"lake {tmp_path.name}")
    with lsm.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse) as catalog:
        catalog.create_database("shop")
        table = catalog.create_table(
            "shop.orders", SCHEMA, primary_key=["k", "dt"], partitioned_by=["dt"],
            options={"bucket": "2"},
        )  # fmt: skip
        for number in range(3):
            table.upsert(rows(0, 50 + number, f"v{number}"))
        table.create_tag("first")
        table.delete(rows(0, 10, "").drop_columns("v"))
        table.compact(full=True)
        assert values(table) == dict.fromkeys(range(10, 52), "v2")
        assert len(table.scan(tag="first").to_arrow()) == 52
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
        assert table.verify(deep=True).is_clean
        renamed = catalog.rename_table("shop.orders", "shop.bills")
        assert renamed.location == f"{warehouse}/shop.db/bills"
        assert values(renamed) == dict.fromkeys(range(10, 52), "v2")
        other = catalog.create_table("shop.orders", SCHEMA, primary_key=["k", "dt"])
        with pytest.raises(lsm.AlreadyExistsError):
            catalog.rename_table("shop.bills", "shop.orders")
        assert values(renamed)
        assert not values(other)
        catalog.drop_table("shop.bills")
        assert stored_directories(warehouse) == ["shop.db/orders"]
    assert len(values(lsm.open_table(f"{warehouse}/shop.db/orders"))) == 0


def rows(start: int, end: int, value: str) -> pa.Table:
    keys = range(start, end)
    days = [f"2026-11-{22 + key % 2} ü" for key in keys]
    return pa.table({"k": keys, "dt": days, "v": [value] * len(keys)}, schema=SCHEMA)


def values(table: lsm.Table) -> dict[int, str]:
    found = table.scan().to_arrow().to_pydict()
    return dict(zip(found["k"], found["v"], strict=True))


def stored_directories(warehouse: str) -> list[str]:
    storage = HdfsFileIO(parse_location(warehouse))
    return [
        table.path
        for database in storage.list("")
        for table in storage.list(database.path)
        if table.is_directory and storage.list(table.path)
    ]


@pytest.mark.sweep
def test_no_commit_of_several_processes_is_lost_or_doubled(
    hdfs: StoreServer, tmp_path: Path
) -> None:
    warehouse = location(hdfs, f"lake {tmp_path.name}")
    with lsm.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse) as catalog:
        catalog.create_database("a")
        table = catalog.create_table(
            "a.sums", race_worker.SCHEMA, primary_key=["k"], options=race_worker.OPTIONS
        )
    program = [sys.executable, race_worker.__file__, table.location]
    running = [
        subprocess.Popen(
            [*program, str(number), str(COMMITS)], env=os.environ | {"PYTHONPATH": os.getcwd()}
        )
        for number in range(WRITERS)
    ]
    assert [one.wait(timeout=3000) for one in running] == [0] * WRITERS
    found = table.scan().to_arrow().to_pydict()
    assert dict(zip(found["k"], found["n"], strict=True)) == {
        race_worker.EVERYBODY: WRITERS * COMMITS
    } | dict.fromkeys(range(WRITERS), COMMITS)
    assert table.verify().is_clean


@pytest.mark.sweep
def test_a_process_that_was_forked_gets_an_error(hdfs: StoreServer) -> None:
    storage = stored(hdfs)
    storage.write_new("a", b"1")
    program = f"""
import os, sys
from lsm_engine.base.errors import StorageError
from lsm_engine.storage.warehouse import open_directory
storage = open_directory({storage.location.text!r})
assert storage.read("a") == b"1"
child = os.fork()
if not child:
    try:
        storage.read("a")
    except StorageError as error:
        os._exit(0 if "spawn" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"


class NameNode:
    """A client whose files are a dictionary, and whose renames answer as a test wants."""

    def __init__(self, answer) -> None:
        self.files: dict[str, bytes] = {}
        self.answer = answer

    def create(self, path, options):
        def close():
            self.files[path] = b"".join(pieces)

        pieces: list[bytes] = []
        return SimpleNamespace(write=lambda data: pieces.append(bytes(data)), close=close)

    def rename(self, source, target, overwrite):
        self.answer(self.files, source, target)

    def get_file_info(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        return SimpleNamespace(length=1, modification_time=0, isdir=False, path=path)

    def delete(self, path, recursive):
        return self.files.pop(path, None) is not None

    def read(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        data = self.files[path]

        class Reader:
            def __len__(self):
                return len(data)

            def read_range(self, start, count):
                return data[start : start + count]

        return Reader()


def applied(files, source, target):
    files[target] = files.pop(source)


def lost(files, source, target):
    raise OSError("Connection reset by peer")


def applied_and_lost(files, source, target):
    applied(files, source, target)
    raise OSError("Connection reset by peer")


def asked_twice(files, source, target):
    """The library repeats a rename whose answer was lost."""
    applied(files, source, target)
    raise FileNotFoundError(f"rename source {source} is not found.")


def taken(files, source, target):
    raise FileExistsError(f"rename destination {target} already exists\n\tat org.apache.hadoop")


def in_safe_mode(files, source, target):
    raise RuntimeError(
        r'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot rename\n\tat x")'
    )


@pytest.fixture
def with_name_node(monkeypatch):
    def made(answer):
        name_node = NameNode(answer)
        monkeypatch.setattr("lsm_engine.storage.hdfs.shared.client_of", lambda *_: name_node)
        return name_node, HdfsFileIO(parse_location("hdfs://nn/db.db/t"))

    return made


@pytest.mark.parametrize("answer", [lost, applied_and_lost, asked_twice])
def test_a_lost_answer_of_a_rename_is_unknown(with_name_node, answer) -> None:
    name_node, storage = with_name_node(answer)
    with pytest.raises(CommitUnknownError):
        storage.publish("snapshot/snapshot-1", b"1")
    assert name_node.files  # what may be in the way to its name is not deleted


def of_the_tag(answer):
    """Answer so for the file that changes; locks are made and nothing else is lost."""
    return lambda files, source, target: (answer if "tag-a" in target[-5:] else applied)(
        files, source, target
    )


TAG = "/db.db/t/tag/tag-a"


def test_a_conditional_change_whose_answer_is_lost_is_looked_for(with_name_node) -> None:
    name_node, storage = with_name_node(of_the_tag(applied_and_lost))
    name_node.files[TAG] = b"old"
    assert storage.change_if_unchanged("tag/tag-a", b"new", expected=b"old")
    assert name_node.files == {TAG: b"new"}


def test_a_conditional_change_that_was_not_applied_cannot_be_applied_later(with_name_node) -> None:
    name_node, storage = with_name_node(of_the_tag(lost))
    name_node.files[TAG] = b"old"
    with pytest.raises(StorageError) as caught:
        storage.change_if_unchanged("tag/tag-a", b"new", expected=b"old")
    assert not isinstance(caught.value, CommitUnknownError)
    assert name_node.files == {TAG: b"old"}


def test_a_conditional_change_is_unknown_if_it_cannot_be_looked_for(with_name_node) -> None:
    """The change may have taken place: an error of the storage would say that it has not."""

    def applied_and_gone(files, source, target):
        applied(files, source, target)
        name_node.read = name_node.get_file_info = unreachable
        raise OSError("Connection reset by peer")

    def unreachable(path):
        raise OSError("Connection refused")

    name_node, storage = with_name_node(of_the_tag(applied_and_gone))
    name_node.files[TAG] = b"old"
    with pytest.raises(CommitUnknownError):
        storage.change_if_unchanged("tag/tag-a", b"new", expected=b"old")
    assert name_node.files[TAG] == b"new"


def test_a_taken_name_is_lost_and_leaves_nothing(with_name_node) -> None:
    name_node, storage = with_name_node(taken)
    assert not storage.publish("snapshot/snapshot-1", b"1")
    assert name_node.files == {}
    name_node.answer = applied
    assert storage.publish("snapshot/snapshot-1", b"1")
    assert name_node.files == {"/db.db/t/snapshot/snapshot-1": b"1"}


def test_a_refusal_is_named_and_leaves_nothing(with_name_node) -> None:
    name_node, storage = with_name_node(in_safe_mode)
    with pytest.raises(StorageError, match="safe mode") as caught:
        storage.publish("snapshot/snapshot-1", b"1")
    assert caught.value.facts["answer"] == "SafeModeException"
    assert "\tat" not in str(caught.value)
    assert name_node.files == {}
    with pytest.raises(StorageError, match="safe mode"):
        storage.replace("snapshot/LATEST", b"1")
    assert name_node.files == {}


def test_locations() -> None:
    found = parse_location("hdfs:///lake/shop.db/orders")
    assert (found.authority, found.prefix, found.warehouse) == ("", "lake/shop.db/orders", "lake")
    assert parse_location("hdfs://nn:8020").prefix == ""
    assert parse_location("viewfs://here/lake").authority == "here"
    with pytest.raises(UnsafePathError):
        parse_location("s3:///lake")


def test_options_are_those_of_hadoop() -> None:
    given = {
        "hadoop-conf-dir": "/etc/hadoop",
        "security.kerberos.login.principal": "lake@REALM",
        "hadoop.dfs.nameservices": "ns",
        "hadoop.dfs.ha.namenodes.ns": "nn1,nn2",
        "hadoop.dfs.keystore.password": "a-secret",
    }
    found = StorageOptions(given).settings(HDFS, {})
    assert found["config_dir"] == "/etc/hadoop"
    assert found["configuration dfs.ha.namenodes.ns"] == "nn1,nn2"
    assert "a-secret" not in repr(StorageOptions(given))
    assert b"a-secret" not in pickle.dumps(StorageOptions(given))
    environment = {"LSM_STORAGE_HADOOP_CONF_DIR": "/here"}
    assert StorageOptions().settings(HDFS, environment) == {"config_dir": "/here"}
    with pytest.raises(InvalidOptionError, match="principals"):
        StorageOptions({"security.kerberos.login.principals": "x"})


def test_a_missing_name_service_is_named(monkeypatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises((InvalidOptionError, StorageError), match="HDFS"):
        HdfsFileIO(parse_location("hdfs://no-such-service/lake")).list("")


def test_errors_name_the_path(with_name_node) -> None:
    _, storage = with_name_node(applied)
    with pytest.raises(NotFoundError) as caught:
        storage.status("a/none")
    assert caught.value.facts["path"] == "a/none"
