"""Credentials of a role: asked for where the machine offers them, and asked for again once they expire."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import StorageOptions

TOKEN = "a token that opens the endpoint of credentials"


class Role:
    """An endpoint of credentials, as a container has, and a bucket that notes with which it is asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.given = 0
        self.used: list[str] = []
        self.endpoint = ""

    def credentials(self) -> bytes:
        self.given += 1
        until = datetime.now(UTC) + timedelta(seconds=self.seconds)
        found = {
            "AccessKeyId": "key", "SecretAccessKey": "secret", "Token": f"session-{self.given}",
            "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }  # fmt: skip
        return json.dumps(found).encode()


@pytest.fixture(params=[1, 3600], ids=["short", "long"])
def role(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Role]:
    role = Role(request.param)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"1"
            if self.path != "/credentials":
                role.used.append(self.headers["x-amz-security-token"])
            elif self.headers["Authorization"] == TOKEN:
                body = role.credentials()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    (tmp_path / "token").write_text(TOKEN)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        role.endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{role.endpoint}/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        yield role
        server.shutdown()
        thread.join()


def test_credentials_of_a_role_are_renewed(role: Role) -> None:
    where = parse_location(f"s3://roles-{role.seconds}/db.db/t")
    storage = ObjectFileIO(where, StorageOptions({"s3.endpoint": role.endpoint}))
    for _ in range(3):
        assert storage.read("a") == b"1"
        time.sleep(0.2)  # the library asks no more than ten times a second
    if role.seconds == 1:  # renewed before they expire, here each time
        assert role.used == ["session-1", "session-2", "session-3"]
    else:
        assert role.used == ["session-1"] * 3
