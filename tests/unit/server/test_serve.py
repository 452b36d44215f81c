"""The server itself: who may ask, what it refuses, and what it records."""

import contextlib
import http.client
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import lsm_engine as lsm
from lsm_engine.server.application import Connection, Limits, access_log
from tests.served import READER, WRITER, serving

CONFIG = "/v1/config"


@pytest.mark.parametrize("token", [None, "wrong-0123456789ab", "", "wr\u00f6ng-0123456789"])
def test_a_wrong_token_is_refused(served, token) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode("latin-1")}
    refused = served.send("GET", CONFIG, token=None, headers=headers)
    assert (refused.status, refused.json["code"]) == (401, 401)
    assert refused.headers["www-authenticate"] == "Bearer"


def test_a_token_that_reads_changes_nothing(served) -> None:
    assert served.get("databases", token=READER).status == 200
    refused = served.post("databases", {"name": "x"}, token=READER)
    assert (refused.status, refused.json["code"]) == (403, 403)
    assert "x" not in served.catalog.list_databases()


def test_a_host_that_is_not_this_server_is_refused(served) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost:1:2"):
        assert served.send("GET", CONFIG, headers={"Host": host}).status == 421
    assert served.send("GET", CONFIG, headers={"Host": "LOCALHOST:80"}).status == 200


def test_pages_let_a_browser_in_by_a_link_and_a_cookie(served) -> None:
    assert served.send("GET", "/", token=None).status == 401
    let_in = served.send("GET", f"//elsewhere/?q=a&token={READER}", token=None)
    assert (let_in.status, let_in.headers["location"]) == (303, "/elsewhere/?q=a")
    cookie = let_in.headers["set-cookie"]
    assert "HttpOnly; SameSite=Strict" in cookie
    page = served.send("GET", "/", token=None, headers={"Cookie": cookie.partition(";")[0]})
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    # A page of another site can have a browser send the cookie, and must not write by it.
    write = served.post(
        "databases", {"name": "y"}, token=None, headers={"Cookie": f"lsm_token={WRITER}"}
    )
    assert write.status == 401
    assert served.send("POST", "/", token=WRITER).status == 405


def test_malformed_bodies_are_refused_and_the_server_lives(served) -> None:
    bodies = (
        b"{",
        b"[]",
        b'{"name": 1}',
        b'{"name": "a", "name": "b"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": NaN}',
    )
    for body in bodies:
        refused = served.post("databases", body)
        assert refused.status == 400, (body[:20], refused.json)
        assert "restore the file" not in refused.json["message"]
    zipped = served.post("databases", b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert (zipped.status, "Content-Encoding" in zipped.json["message"]) == (415, True)
    assert served.send("GET", CONFIG).status == 200


def test_unknown_operations_are_refused_in_the_words_of_the_protocol(served) -> None:
    refused = served.post("nothing")
    assert (refused.status, refused.json["code"]) == (404, 404)
    assert served.send("GET", "/v1/other/databases").status == 404
    assert served.send("GET", "/v1/lsm/databases/%ff").status in (400, 404)


def test_health_needs_no_token_and_metrics_do(served) -> None:
    assert served.send("GET", "/health", token=None).json == {"status": "ok"}
    assert served.send("GET", "/metrics", token=None).status == 401
    text = served.send("GET", "/metrics", token=READER).body.decode()
    assert re.search(r'lsm_requests_total\{operation="health",status="200"\} [1-9]', text)
    assert "lsm_request_seconds_bucket" in text


def test_the_operations_are_described(served) -> None:
    document = served.send("GET", "/openapi.json", token=READER).json
    commit = document["paths"]["/v1/{prefix}/databases/{database}/tables/{table}/commit"]["post"]
    assert commit["operationId"] == "paimon.commitTable"
    assert [parameter["name"] for parameter in commit["parameters"]] == [
        "prefix",
        "database",
        "table",
    ]
    page = served.send("GET", "/operations", token=READER)
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    for operation in (
        "commitTable",
        "loadTable",
        "POST /v1/{prefix}/databases/{database}/tables/{table}/commit",
    ):
        assert operation in text
    assert not re.search(r"(?:src|href)=\"[a-z]+:", text)  # nothing comes from another host


def test_the_log_has_a_request_a_line_and_no_secret(served, caplog, monkeypatch) -> None:
    monkeypatch.setattr(access_log, "propagate", True)
    with caplog.at_level(logging.INFO, access_log.name):
        served.send(
            "GET", f"{CONFIG}?warehouse=w&token={WRITER}", headers={"x-request-id": "abc-1"}
        )
        served.send("GET", f"/?token={READER}", token=None)
    entries = [
        json.loads(entry.getMessage()) for entry in caplog.records if entry.name == access_log.name
    ]
    first = entries[0]
    assert (first["request_id"], first["operation"], first["status"], first["access"]) == (
        "abc-1", "paimon.getConfig", 200, "write",
    )  # fmt: skip
    assert first["path"] == CONFIG
    assert not [text for text in (WRITER, READER) if text in caplog.text]


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A server with limits that a test can reach."""
    limits = Limits(body_bytes=2_000, seconds=0.6, threads=1, connections=100)
    with (
        lsm.open_catalog(tmp_path_factory.mktemp("lake")) as catalog,
        serving(catalog, limits=limits) as server,
    ):
        yield server


def test_a_body_that_is_too_large_is_refused(strict) -> None:
    assert strict.post("databases", b"x" * 3_000).status == 413
    line = http.client.HTTPConnection("127.0.0.1", strict.port, timeout=10)
    head = {"Authorization": f"Bearer {WRITER}", "Transfer-Encoding": "chunked"}
    line.request("POST", "/v1/lsm/databases", iter([b"x" * 1_500] * 2), head, encode_chunked=True)
    assert line.getresponse().status == 413
    line.close()


def test_a_body_without_a_token_is_small(strict) -> None:
    open_form = "/iceberg/v1/oauth/tokens"
    with lsm.open_catalog(strict.catalog.warehouse) as catalog, serving(catalog) as server:
        assert server.send("POST", open_form, b"x" * 9_000, token=None).status == 413
        assert server.send("POST", open_form, b"x" * 8_000, token=None).status == 400


def test_bodies_that_wait_have_a_limit_together_and_leave_nothing_behind(strict) -> None:
    head = (
        f"POST /v1/lsm/databases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRITER}\r\n"
    )
    lines = [socket.create_connection(("127.0.0.1", strict.port), timeout=10) for _ in range(2)]
    for line in lines:
        line.sendall(f"{head}Content-Length: 1900\r\n\r\n".encode() + b"x" * 1_500)
    statuses = {line.recv(100)[9:12] for line in lines}
    for line in lines:
        line.close()
    assert statuses == {b"503", b"408"}
    assert strict.application._held_bytes == 0


def test_a_client_that_takes_no_answer_loses_the_connection(strict, monkeypatch) -> None:
    monkeypatch.setattr(strict.application.metrics, "text", lambda: b"x" * (16 << 20))
    with socket.create_connection(("127.0.0.1", strict.port), timeout=20) as line:
        line.sendall(
            f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n\r\n".encode()
        )
        time.sleep(1.2)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while data := line.recv(1 << 20):
                received += len(data)
        assert received < 16 << 20


def test_a_body_that_comes_slowly_is_refused(strict) -> None:
    with socket.create_connection(("127.0.0.1", strict.port), timeout=10) as line:
        head = f"POST /v1/lsm/databases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRITER}\r\n"
        line.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 408")


def test_a_head_that_comes_slowly_closes_the_connection(strict, monkeypatch) -> None:
    monkeypatch.setattr("lsm_engine.server.application._HEADER_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", strict.port), timeout=10) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHo")
        assert line.recv(100) == b""
    assert Connection.head_timer is None


@pytest.mark.parametrize("part", ["line", "header", "headers", "trailer"])
def test_a_head_that_is_too_large_is_refused(strict, part) -> None:
    """Nothing of it is kept until its end, which may never come."""
    head = f"Host: localhost\r\nAuthorization: Bearer {WRITER}\r\n"
    start = {
        "line": "GET /",
        "header": f"GET / HTTP/1.1\r\n{head}X-Long: ",
        "headers": f"GET / HTTP/1.1\r\n{head}",
        "trailer": f"POST /v1/lsm/databases HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ",
    }[part]
    piece = b"X-Many: x\r\n" * 100 if part == "headers" else b"x" * 1_000
    with socket.create_connection(("127.0.0.1", strict.port), timeout=10) as line:
        line.sendall(start.encode())
        with contextlib.suppress(OSError):
            for _ in range(100):
                line.sendall(piece)
                time.sleep(0.001)
        answer = line.recv(1_000)
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert strict.get("databases").status == 200


def test_requests_one_behind_another_on_a_connection_are_each_answered(strict) -> None:
    """Their heads count one by one."""
    head = f"GET {CONFIG}?warehouse=lsm HTTP/1.1\r\nHost: localhost\r\nX-Pad: {'x' * 4_000}\r\nAuthorization: Bearer {WRITER}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", strict.port), timeout=10) as line:
        line.sendall(head.encode() * 40)
        received = b""
        while received.count(b"HTTP/1.1 200") < 40:
            data = line.recv(1 << 16)
            assert data, received[-200:]
            received += data


def test_a_flood_is_refused_and_ends(strict, monkeypatch) -> None:
    """Requests beyond the queue get 503 at once; those in it are answered, or refused after the time limit."""
    released = threading.Event()
    listed = strict.catalog.list_databases
    monkeypatch.setattr(
        type(strict.catalog), "list_databases", lambda _: released.wait(20) and listed()
    )
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(strict.get("databases").status))
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    released.set()
    assert set(statuses) == {500, 503}
    assert statuses.count(503) == 40 - 17
    monkeypatch.undo()
    deadline = time.monotonic() + 10
    while strict.get("databases").status != 200:
        assert time.monotonic() < deadline


def test_the_command_serves_until_it_is_told_to_stop(tmp_path) -> None:
    command = [
        sys.executable,
        "-m",
        "lsm_engine.cli.main",
        "--warehouse",
        str(tmp_path),
        "--json",
        "serve",
    ]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        members = json.loads(server.stdout.readline())
        line = http.client.HTTPConnection(members["url"].removeprefix("http://"), timeout=20)
        line.request("GET", CONFIG, headers={"Authorization": f"Bearer {members['token']}"})
        assert line.getresponse().status == 200
        line.close()
        port = members["url"].rpartition(":")[2]
        taken = subprocess.run(
            [*command, "--port", port], capture_output=True, text=True, timeout=60
        )
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=30)
    assert server.returncode in (0, -signal.SIGTERM)
    assert json.loads(errors.splitlines()[0])["operation"] == "paimon.getConfig"
    assert members["token"] not in errors
    assert (taken.returncode, "cannot be used" in taken.stderr) == (5, True)


def test_a_token_that_is_easy_to_guess_is_refused(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("short\n")
    done = subprocess.run(
        [sys.executable, "-m", "lsm_engine.cli.main", "--warehouse", str(tmp_path), "serve", "--token-file", str(file)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "at least 16 characters" in done.stderr) == (5, True)
