"""Storage options that are wrong: who set them is told which, and nothing is written."""

import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError, StorageError
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_requests import Requests
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import StorageOptions
from tests.fault.doubles import ManualClock

WHERE = "s3://bucket/lake/db.db/t"
KEYS = {"s3.access-key": "a", "s3.secret-key": "a-secret"}
TOLD = {
    "SignatureDoesNotMatch": "secret key",
    "InvalidAccessKeyId": "access key",
    "ExpiredToken": "has expired",
    "RequestTimeTooSkewed": "clock",
    "AccessDenied": "policy",
}


@dataclass
class Refusing:
    """A server that answers each request with one code."""

    code: str = ""
    status: int = 403
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    made = Refusing()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(
                made.status, f"<Error><Code>{made.code}</Code><Message>no</Message></Error>"
            )

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            keys = re.findall("<Key>(.*?)</Key>", self.rfile.read(length).decode())
            refused = "".join(
                f"<Error><Key>{key}</Key><Code>{made.code}</Code><Message>no</Message></Error>"
                for key in keys
            )
            self.answer(200, f"<DeleteResult>{refused}</DeleteResult>")

        def answer(self, status: int, text: str) -> None:
            made.asked.append(self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("code", TOLD)
def test_a_refusal_names_what_is_wrong(refusing: Refusing, code: str) -> None:
    refusing.code = code
    storage = ObjectFileIO(
        parse_location(WHERE), StorageOptions({**KEYS, "s3.endpoint": refusing.url})
    )
    with pytest.raises(StorageError, match=TOLD[code]) as raised:
        storage.read("schema/schema-0")
    assert raised.value.facts["code"] == code
    assert len(refusing.asked) == 2  # once more, with credentials that were read anew


@pytest.mark.parametrize(
    ("status", "code"), [(301, "PermanentRedirect"), (400, "AuthorizationHeaderMalformed")]
)
def test_another_region_is_named(refusing: Refusing, status: int, code: str) -> None:
    refusing.status, refusing.code = status, code
    with pytest.raises(StorageError, match=r"s3\.region"):
        lsm.open_table(WHERE, storage={**KEYS, "s3.endpoint": refusing.url})


def test_a_store_that_was_never_reached_is_given_up_soon() -> None:
    """Nobody listens there: that is no busy store, which is waited for two minutes."""
    clock = ManualClock(0)
    location = parse_location(WHERE)
    options = StorageOptions({**KEYS, "s3.endpoint": "http://127.0.0.1:9"})
    requests = Requests(location, options, clock=clock)
    storage = ObjectFileIO(location, requests=requests)
    with pytest.raises(StorageError, match=r"s3\.endpoint"):
        storage.read("schema/schema-0")
    assert clock.millis == 5_000
    requests.clients.has_answered = True
    with pytest.raises(StorageError, match=r"s3\.endpoint"):
        storage.create_unproven("snapshot/snapshot-1", b"1")
    assert clock.millis == 125_000


@pytest.mark.parametrize("count", [1, 3])
def test_a_deletion_that_is_refused_within_a_batch_names_what_is_wrong(
    refusing: Refusing, count: int
) -> None:
    refusing.code = "AccessDenied"
    storage = ObjectFileIO(
        parse_location(WHERE), StorageOptions({**KEYS, "s3.endpoint": refusing.url})
    )
    with pytest.raises(StorageError, match="grant reading, writing, deleting") as raised:
        storage.delete_many([f"d/{number}" for number in range(count)])
    assert raised.value.facts["request"] == "DELETE"
    assert raised.value.facts["code"] == "AccessDenied"


@pytest.mark.parametrize(
    ("endpoint", "path_style", "option"),
    [
        ("http://127.0.0.1:9000", "false", "s3.path.style.access"),
        ("http://[::1]:9000", "false", "s3.path.style.access"),
        ("ftp://storage.example", "true", "s3.endpoint"),
        ("http://", "true", "s3.endpoint"),
        ("http://storage.example:port", "true", "s3.endpoint"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(
    tmp_path: object, endpoint: str, path_style: str, option: str
) -> None:
    given = {**KEYS, "s3.endpoint": endpoint, "s3.path.style.access": path_style}
    with pytest.raises(InvalidOptionError) as raised:
        lsm.open_table(WHERE, storage=given)
    assert raised.value.facts["option"] == option
    assert "a-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("where", "option"),
    [
        (WHERE, "s3.endpoint"),
        ("abfss://c@account.dfs.core.windows.net/t", "azure.endpoint"),
        ("gs://bucket/t", "gs.endpoint"),
    ],
)
@pytest.mark.parametrize("endpoint", ["http://user:a-secret@127.0.0.1:1", "not an address"])
def test_an_endpoint_with_a_password_or_blanks_is_refused_and_not_shown(where, option, endpoint):
    with pytest.raises(InvalidOptionError) as refused:
        lsm.open_table(where, storage={option: endpoint})
    assert refused.value.facts["option"] == option
    assert "a-secret" not in repr([refused.value, refused.value.__context__])
