"""One client of the race of `lsm serve`: it commits numbered rows by requests, and may be paused or killed at any moment.

    python -m tests.race.serve_worker URL WAREHOUSE CLIENT FIRST_TURN TURNS PORT PORT

Each request goes to one of the servers, and some replies are lost on purpose, until there is an answer. It prints the
number of each turn once that is acknowledged, and its events as JSON at the end. Started again it repeats the turn that
was open: the number of the commit tells the engine whether it is in the table.
"""

import contextlib
import http.client
import itertools
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import lsm_engine as lsm
from lsm_engine.commit import commit as engine
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.planning.proposal import CommitOutcome

TOKEN = "nemesis-0123456789"
LOST_REPLIES = 0.2


class Client:
    """Publishes snapshots by requests: each goes to some server, until one gives an answer."""

    def __init__(self, ports: list[int]) -> None:
        self.ports, self.events = ports, Counter[str]()

    def publish(self, session: Any, snapshot: Any, base: Any) -> CommitOutcome:
        """Publish a snapshot in place of the engine's own publication."""
        members = json.loads(encode_snapshot(snapshot))
        members.pop("lsmChecksum")
        body = {"snapshot": members, "baseSnapshotUuid": None if base is None else base.uuid}
        return CommitOutcome.LANDED if self.commit(body) else CommitOutcome.LOST

    def take_over(self) -> None:
        """Publish what this process commits. Other clients know no turns, in which the server would wait for this one."""
        engine.publish = self.publish
        engine.Retries.turn = lambda _: contextlib.nullcontext()

    def commit(self, body: dict[str, object]) -> bool:
        """Return what a server answers to a commit."""
        content = json.dumps(body).encode()
        for attempt in itertools.count():
            assert attempt < 300, self.events
            try:
                status, answer = self._sent(content)
            except (OSError, http.client.HTTPException):
                self.events["without an answer"] += 1
                time.sleep(0.05)
                continue
            if status == 200:
                return bool(json.loads(answer)["success"])
            self.events[f"status {status}"] += 1
            time.sleep(0.05)
        raise AssertionError

    def _sent(self, content: bytes) -> tuple[int, bytes]:
        path = "/v1/lsm/databases/shop/tables/log/commit"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        port = random.choice(self.ports)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as line:
            line.request("POST", path, content, headers)
            if random.random() < LOST_REPLIES:
                time.sleep(random.random() * 0.05)
                raise OSError("the reply is lost")
            answer = line.getresponse()
            return answer.status, answer.read()


def main() -> None:
    """Commit turn after turn."""
    url, warehouse, number, first, turns, *ports = sys.argv[1:]
    client = Client([int(port) for port in ports])
    client.take_over()
    table = lsm.open_catalog(url, warehouse=warehouse).table("shop.log")
    for turn in range(int(first), int(turns)):
        rows = [{"client": int(number), "turn": turn}]
        table.append(rows, commit_user=f"client-{number}", commit_identifier=turn + 1)
        print(turn, flush=True)
    print(json.dumps(client.events), flush=True)


if __name__ == "__main__":
    main()
