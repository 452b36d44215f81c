"""Storage options of the environment are part of which store is meant: a process whose environment changes
neither reads nor writes the store of before by a handle opened after."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lsm_engine import InvalidOptionError, LsmError
from lsm_engine.storage.hdfs import HdfsFileIO
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions

WHERE = parse_location("s3://bucket/lake/a.db/t")


class Server:
    """An S3 server that has nothing, or refuses; it counts what it is asked."""

    def __init__(self, answer: int) -> None:
        self.answer, self.asked = answer, 0
        server = self

        class Answering(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                server.asked += 1
                self.send_response(server.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Server]]:
    for name, text in {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", text)
    made = Server(404), Server(404)
    yield made
    for one in made:
        one.http.shutdown()
        one.http.server_close()


@pytest.mark.parametrize(
    "variable", ["LSM_STORAGE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
)
def test_each_handle_asks_the_store_of_its_environment(servers, monkeypatch, variable) -> None:
    one, other = servers
    monkeypatch.setenv(variable, one.url)
    first, never_used = ObjectFileIO(WHERE), ObjectFileIO(WHERE)
    assert not first.exists("x")
    assert (one.asked, other.asked) == (1, 0)
    monkeypatch.setenv(variable, other.url)
    second = ObjectFileIO(WHERE)
    assert not second.exists("x")
    assert (one.asked, other.asked) == (1, 1)
    assert not first.exists("y")  # goes on with what it had
    assert not first.writing_behind().exists("y")
    assert one.asked >= 3
    assert other.asked == 1
    assert first == first.writing_behind() != second
    with pytest.raises(InvalidOptionError, match="open it again"):
        never_used.exists("x")
    monkeypatch.setenv(variable, one.url)
    assert ObjectFileIO(WHERE) == first
    assert not never_used.exists("x")
    assert other.asked == 1


def test_options_as_given_are_shared_by_all_handles(servers, monkeypatch) -> None:
    given = StorageOptions({"s3.endpoint": servers[0].url})
    handles = [ObjectFileIO(WHERE, given) for _ in range(2)]
    assert handles[0] == handles[1]
    assert handles[0]._requests.clients is handles[1]._requests.clients


def test_credentials_are_renewed_at_the_same_store_only(servers, monkeypatch) -> None:
    one, other = servers
    one.answer = 403
    monkeypatch.setenv("LSM_STORAGE_S3_ENDPOINT", one.url)
    storage = ObjectFileIO(WHERE)
    with pytest.raises(LsmError):
        storage.exists("x")
    assert one.asked == 2  # again, with credentials read anew
    refused = storage._requests.clients.once
    monkeypatch.setenv("LSM_STORAGE_S3_ENDPOINT", other.url)
    with pytest.raises(LsmError):
        storage.exists("x")
    assert storage._requests.clients.once is refused
    assert (one.asked, other.asked) == (4, 0)
    with pytest.raises(InvalidOptionError, match="another store"):
        storage.unfinished_uploads("")


def test_a_cluster_is_that_of_the_configuration_at_the_time(tmp_path, monkeypatch) -> None:
    where = parse_location("hdfs://lake/warehouse/a.db/t")
    handles = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / name))
        handles.append(HdfsFileIO(where))
    assert handles[0] != handles[1] == HdfsFileIO(where)
    with pytest.raises(InvalidOptionError, match="open it again"):
        handles[0].exists("x")


def test_what_lies_in_this_process_stays(monkeypatch) -> None:
    where = parse_location("memory://environment/a.db/t")
    before = ObjectFileIO(where, NO_OPTIONS)
    before.write_new("a", b"1")
    monkeypatch.setenv("LSM_STORAGE_S3_ENDPOINT", "http://elsewhere")
    assert ObjectFileIO(where) == before
    assert ObjectFileIO(where).read("a") == b"1"
