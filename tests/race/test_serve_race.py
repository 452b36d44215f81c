"""Clients that commit through two servers over one PostgreSQL, while servers are killed and replies are lost.

`LSM_SERVE_NEMESIS=200` has 8 clients make 200 commits each; CI has a sample of it.
"""

import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import lsm_engine as lsm
from lsm_engine.commit import commit as engine
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.planning.proposal import CommitOutcome

pytestmark = [pytest.mark.race, pytest.mark.slow]

SAMPLE_TURNS = 3
TURNS = int(os.environ.get("LSM_SERVE_NEMESIS", SAMPLE_TURNS))
IS_SAMPLE = TURNS == SAMPLE_TURNS
CLIENTS = 3 if IS_SAMPLE else 8
TOKEN = "nemesis-0123456789"


class Server:
    """A process of `lsm serve` on a port of its own, killed and started again."""

    def __init__(self, url: str, warehouse: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.command = [
            sys.executable, "-m", "lsm_engine.cli.main", "--catalog", url, "--warehouse", warehouse,
            "--json", "serve", "--port", str(self.port), "--no-log",
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "LSM_SERVE_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Client:
    """Publishes snapshots by requests: each goes to some server, until one gives an answer."""

    def __init__(self, servers: list[Server], seed: int) -> None:
        self.servers, self.random, self.events = servers, random.Random(seed), Counter()

    def commit(self, body: dict[str, object]) -> bool:
        content = json.dumps(body).encode()
        for attempt in itertools.count():
            assert attempt < 300, self.events
            server = self.random.choice(self.servers)
            loses_reply = self.random.random() < 0.2
            try:
                status, answer = self._sent(server, content, loses_reply)
            except (OSError, http.client.HTTPException):
                self.events["without an answer"] += 1
                time.sleep(0.05)
                continue
            if status == 200:
                return bool(json.loads(answer)["success"])
            self.events[f"status {status}"] += 1
        raise AssertionError

    def _sent(self, server: Server, content: bytes, loses_reply: bool) -> tuple[int, bytes]:
        path = "/v1/lsm/databases/shop/tables/log/commit"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        ) as line:
            line.request("POST", path, content, headers)
            if loses_reply:
                time.sleep(self.random.random() * 0.05)
                raise OSError("the reply is lost")
            answer = line.getresponse()
            return answer.status, answer.read()


def test_commits_through_killed_servers_and_lost_replies_are_there_once(
    postgres, tmp_path, monkeypatch
) -> None:
    url, warehouse = postgres.fresh_url(), str(tmp_path / "lake")
    catalog = lsm.open_catalog(url, warehouse=warehouse)
    catalog.create_table("shop.log", {"client": "INT", "turn": "INT"})
    servers = [Server(url, warehouse) for _ in range(2)]
    local = threading.local()

    def publish(session, snapshot, base):
        members = json.loads(encode_snapshot(snapshot))
        members.pop("lsmChecksum")
        body = {"snapshot": members, "baseSnapshotUuid": None if base is None else base.uuid}
        return CommitOutcome.LANDED if local.client.commit(body) else CommitOutcome.LOST

    monkeypatch.setattr(engine, "publish", publish)
    clients = [Client(servers, seed) for seed in range(CLIENTS)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        local.client = clients[number]
        table = lsm.open_catalog(url, warehouse=warehouse).table("shop.log")
        try:
            for turn in range(TURNS):
                table.append([{"client": number, "turn": turn}], commit_user=f"client-{number}")
        except BaseException as error:  # noqa: BLE001 -- looked at below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        kills = range(2) if IS_SAMPLE else itertools.count()
        for victim, _ in zip(itertools.cycle(servers), kills, strict=False):
            time.sleep(0.4 if IS_SAMPLE else 3)
            if not any(thread.is_alive() for thread in threads):
                break
            victim.kill()
            victim.start()
    finally:
        for thread in threads:
            thread.join(600)
        for server in servers:
            server.kill()
    assert failures == []
    table = catalog.table("shop.log")
    rows = Counter((row["client"], row["turn"]) for row in table.to_arrow().to_pylist())
    expected = {(client, turn): 1 for client in range(CLIENTS) for turn in range(TURNS)}
    assert rows == expected
    users = {f"client-{number}": TURNS for number in range(CLIENTS)}
    # Compactions of the table's small files are commits of their own.
    made = [row for row in table.history().to_pylist() if row["commit_kind"] == "APPEND"]
    assert Counter(row["commit_user"] for row in made) == users
    recorded = catalog.lineage.snapshots(lsm.TableName.parse("shop.log")).to_pylist()
    appends = [row for row in recorded if row["commit_kind"] == "APPEND"]
    assert Counter(row["commit_user"] for row in appends) == users
    assert sum((client.events for client in clients), Counter())["without an answer"] > 0
    assert table.maintenance.verify(deep=True).is_clean
    catalog.close()
