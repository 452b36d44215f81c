"""A server of `lsm serve` in a thread of the test, and requests to it."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

import lsm_engine as lsm
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.server.application import Application, Limits, Tokens, listening, uvicorn_config
from lsm_engine.server.operation import Service
from lsm_engine.ui.routes import Site

WRITER, READER = "writer-0123456789", "reader-0123456789"
LANDED = {"success": True}
LOST = {"success": False}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server and its catalog."""

    catalog: lsm.Catalog
    application: Application
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = WRITER,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        content = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        ) as line:
            line.request(method, path, content or None, {**given, **(headers or {})})
            answer = line.getresponse()
            return Reply(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
            )

    def get(self, path: str, **options: Any) -> Reply:
        return self.send("GET", f"/v1/lsm/{path}", **options)

    def post(self, path: str, body: object = None, **options: Any) -> Reply:
        return self.send("POST", f"/v1/lsm/{path}", body, **options)

    def delete(self, path: str, **options: Any) -> Reply:
        return self.send("DELETE", f"/v1/lsm/{path}", **options)

    def commit(self, table: str, prepared: "Prepared", **changes: Any) -> Reply:
        """Hand in a snapshot as a client does; `changes`: of the body."""
        database, _, name = table.partition(".")
        body = {
            "tableId": self.get(f"databases/{database}/tables/{name}").json["id"],
            "baseSnapshotUuid": prepared.base_uuid,
            "snapshot": prepared.members,
            "statistics": [],
        }
        return self.post(f"databases/{database}/tables/{name}/commit", {**body, **changes})


@contextlib.contextmanager
def serving(
    catalog: lsm.Catalog, *, limits: Limits | None = None, external: bool = False, port: int = 0
) -> Iterator[Served]:
    """Serve a catalog until the end of the block."""
    application = Application(
        Service(catalog=catalog, prefix="lsm", has_external_tables=external),
        Site(catalog, lambda words: f"lsm {words}"),
        Tokens(write=(WRITER,), read=(READER,)),
        limits=limits,
    )
    config = uvicorn_config(application, "127.0.0.1", port)
    listener = listening(config)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Served(catalog, application, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        application.close()


@dataclass
class Prepared:
    """A snapshot whose files are written, and which is not published."""

    members: dict[str, Any]
    base_uuid: str | None


def prepared(table: lsm.Table, rows: Any, *, commit_user: str = "client") -> Prepared:
    """Write rows as another client does up to its commit: the snapshot's file is taken away again."""
    base = table.latest_snapshot()
    table.append(rows, commit_user=commit_user) if not table.schema.primary_keys else table.upsert(
        rows, commit_user=commit_user
    )
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    members = json.loads(encode_snapshot(snapshot))
    members.pop("lsmChecksum")
    members["properties"] = {}
    members["writerVersion"] = "other-1.0"
    branch = table.name.partition("@")[2]
    folder = Path(table.location) / (f"branch/branch-{branch}" if branch else "") / "snapshot"
    (folder / f"snapshot-{snapshot.id}").unlink()
    for hint in ("LATEST", "EARLIEST") if base is None else ("LATEST",):
        (folder / hint).unlink()
    return Prepared(members, None if base is None else base.uuid)
