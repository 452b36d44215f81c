"""The load that `lsm serve` carries: table loads and commits at a steady rate, their latencies, and the server's memory.

The table is compacted and its snapshots expire beside them by other processes, as on a schedule.

python tests/bench/serve_load.py [--seconds 20] [--loads 200] [--commits 20]
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np

import lsm_engine as lsm
from lsm_engine.commit import commit as engine
from tests.race import serve_worker

THREADS = 8
WRITERS = 2
UPKEEP_SECONDS = 30


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("seconds", 20), ("loads", 200), ("commits", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as lake:
        print(json.dumps(measured(lake, arguments.seconds, arguments.loads, arguments.commits)))


def measured(lake: str, seconds: int, loads: int, commits: int) -> dict[str, object]:
    """Serve a lake from a process of its own, and load it."""
    catalog = lsm.open_catalog(lake)
    columns = {"id": "BIGINT", **{f"c{number}": "STRING" for number in range(30)}}
    catalog.create_table("shop.orders", columns, "id", options={"bucket": 1}).upsert([{"id": 1}])
    options = {"snapshot.num-retained.max": 20, "write-only": "true"}
    log = catalog.create_table("shop.log", {"client": "INT", "turn": "INT"}, options=options)
    command = [sys.executable, "-m", "lsm_engine.cli.main", "--warehouse", lake, "--json", "serve", "--port", "0"]  # fmt: skip
    environment = {**os.environ, "LSM_SERVE_TOKEN": serve_worker.TOKEN}
    with subprocess.Popen(
        [*command, "--no-log"], stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        port = int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
        client = serve_worker.Client([port])
        serve_worker.LOST_REPLIES = 0
        request_millis: list[float] = []
        commit_millis: list[float] = []

        def publish(*snapshot):
            started = time.perf_counter()
            outcome = client.publish(*snapshot)
            commit_millis.append((time.perf_counter() - started) * 1000)
            return outcome

        client.take_over()
        engine.publish = publish
        threads = [
            threading.Thread(
                target=paced, args=(seconds, loads / THREADS, loader(port), request_millis)
            )
            for _ in range(THREADS)
        ]
        rows = [{"client": 0, "turn": 0}]
        append_millis: list[float] = []
        writer = (seconds, commits / WRITERS, lambda: log.append(rows), append_millis)
        threads += [threading.Thread(target=paced, args=writer) for _ in range(WRITERS)]
        upkeep = (seconds, 1 / UPKEEP_SECONDS, partial(keep_small, lake), [])
        threads.append(threading.Thread(target=paced, args=upkeep))
        first, idle_seconds = memory_mib(server.pid), cpu_seconds(server.pid)
        for thread in threads:
            thread.start()
        time.sleep(seconds / 2)
        middle = memory_mib(server.pid)
        for thread in threads:
            thread.join()
        last, busy_seconds = memory_mib(server.pid), cpu_seconds(server.pid)
        server.terminate()
    return {
        "loads_a_second": round(len(request_millis) / seconds, 1),
        "load_millis": quantiles(request_millis),
        "commits_a_second": round(len(append_millis) / seconds, 1),
        "commit_millis": quantiles(commit_millis),
        "memory_mib": [first, middle, last],
        "server_cpu_share": round((busy_seconds - idle_seconds) / seconds, 3),
    }


def paced(seconds: float, rate: float, act, millis: list[float]) -> None:
    """Act at a rate, and keep how long each act took; one that is late is not left out."""
    started = time.perf_counter()
    for number in range(int(seconds * rate)):
        due = started + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        if began - started > seconds:
            return
        act()
        millis.append((time.perf_counter() - began) * 1000)


def keep_small(lake: str) -> None:
    """Compact the table that is written, and let its snapshots expire."""
    expire = (
        "expire",
        "--retain-min",
        "1",
        "--retain-max",
        "20",
        "--older-than",
        "0 s",
        "--all",
        "--yes",
    )
    for verb, *options in (("compact",), expire):
        subprocess.run(
            [sys.executable, "-m", "lsm_engine.cli.main", "--warehouse", lake, "--quiet", verb, "shop.log", *options],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def loader(port: int):
    """Return what loads a table over a connection that stays open."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {serve_worker.TOKEN}"}

    def load() -> None:
        line.request("GET", "/v1/lsm/databases/shop/tables/orders", headers=headers)
        answer = line.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    return load


def memory_mib(process: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, in user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantiles(millis: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    return {
        f"p{share}": round(float(np.percentile(millis, share)), 1)
        for share in (50, 99)
        if len(millis)
    }


if __name__ == "__main__":
    main()
