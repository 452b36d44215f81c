"""Clients that commit through two servers over one PostgreSQL, while both are paused and killed, and replies are lost.

`LSM_SERVE_NEMESIS=200` has 8 clients make 200 commits each; CI has a sample of it.
"""

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
from tests.race.serve_worker import TOKEN

pytestmark = [pytest.mark.race, pytest.mark.slow]

SAMPLE_TURNS = 3
TURNS = int(os.environ.get("LSM_SERVE_NEMESIS", SAMPLE_TURNS))
IS_SAMPLE = TURNS == SAMPLE_TURNS
CLIENTS = 2 if IS_SAMPLE else 8


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


class Worker:
    """A client process that is started again, with the turn that was open, whenever it was killed."""

    def __init__(self, url: str, warehouse: str, number: int, ports: list[int]) -> None:
        self.command = [
            sys.executable,
            "-m",
            "tests.race.serve_worker",
            url,
            warehouse,
            str(number),
        ]
        self.ports, self.turn, self.kills = [str(port) for port in ports], 0, 0
        self.events: Counter[str] = Counter()
        self.failure = ""
        self.process: subprocess.Popen[str] | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while True:
            order = [str(self.turn), str(TURNS), *self.ports]
            with subprocess.Popen(
                [*self.command, *order], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
                self.process = process
                for line in process.stdout:
                    if line.startswith("{"):
                        self.events.update(json.loads(line))
                    else:
                        self.turn = int(line) + 1
                errors = process.stderr.read()
            if process.returncode == -signal.SIGKILL:
                self.kills += 1
                continue
            self.failure = errors if process.returncode else ""
            return


def disturb(servers: list[Server], workers: list[Worker], chance: random.Random) -> None:
    """Kill or pause a server or a client, again and again, until all clients are through."""
    acts = itertools.cycle(["pause server", "kill client", "kill server", "pause client"])
    for number, act in enumerate(acts):
        time.sleep(0.4 if IS_SAMPLE else 2 + chance.random())
        running = [worker for worker in workers if worker.thread.is_alive() and worker.process]
        if not running or (IS_SAMPLE and number == 4):
            return
        server, worker = chance.choice(servers), chance.choice(running)
        process = server.process if "server" in act else worker.process
        if act == "kill server":
            server.kill()
            server.start()
        elif act == "kill client":
            process.send_signal(signal.SIGKILL)
        else:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.5 if IS_SAMPLE else 1 + chance.random())
            process.send_signal(signal.SIGCONT)


def test_commits_through_killed_servers_and_clients_and_lost_replies_are_there_once(
    postgres, tmp_path
) -> None:
    url, warehouse = postgres.fresh_url(), str(tmp_path / "lake")
    catalog = lsm.open_catalog(url, warehouse=warehouse)
    catalog.create_table("shop.log", {"client": "INT", "turn": "INT"})
    servers = [Server(url, warehouse) for _ in range(2)]
    ports = [server.port for server in servers]
    started = time.monotonic()
    workers = [Worker(url, warehouse, number, ports) for number in range(CLIENTS)]
    try:
        disturb(servers, workers, random.Random(43))
    finally:
        for worker in workers:
            worker.thread.join(1_800)
        for server in servers:
            server.kill()
    assert [worker.failure for worker in workers] == [""] * CLIENTS
    table = catalog.table("shop.log")
    rows = Counter((row["client"], row["turn"]) for row in table.to_arrow().to_pylist())
    expected = {(client, turn): 1 for client in range(CLIENTS) for turn in range(TURNS)}
    assert rows == expected
    users = {f"client-{number}": TURNS for number in range(CLIENTS)}
    # Compactions of the table's small files are commits of their own.
    appends = [row for row in table.history().to_pylist() if row["commit_kind"] == "APPEND"]
    assert Counter(row["commit_user"] for row in appends) == users
    recorded = catalog.lineage.snapshots(lsm.TableName.parse("shop.log")).to_pylist()
    assert Counter(row["commit_user"] for row in recorded if row["commit_kind"] == "APPEND") == users  # fmt: skip
    assert table.maintenance.verify(deep=True).is_clean
    events = sum((worker.events for worker in workers), Counter())
    kills = sum(worker.kills for worker in workers)
    print(f"{time.monotonic() - started:.0f} s, {kills} kills of clients, {dict(events)}")
    assert kills > 0
    catalog.close()
