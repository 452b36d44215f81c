"""What does an operator's look at a large warehouse cost? 1,000 tables, and one of 10,000 snapshots.

    python -m tests.bench.large_warehouse                        # makes both and measures
    python -m tests.bench.large_warehouse --tables 100 --snapshots 500 --keep /tmp/large

Tables are copies of one that has a few commits and a tag; the long history is committed, one row at a time,
of 500 keys in turn, compactions included. Each verb and each page of `lsm ui` runs in a process of its own, and
what `lsm show schema` takes, the engine's own start, is taken off.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import lsm_engine as lsm
from tests.bench.measure import Seconds, wait_for_quiet

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYS = 500
OPTIONS = {"bucket": "1", "commit.fsync": "false", "snapshot.num-retained.min": "20000",
           "snapshot.num-retained.max": "20000"}  # fmt: skip
ENVIRONMENT = {**os.environ, "LSM_CATALOG": "", "PYTHONDONTWRITEBYTECODE": ""}
"""Of an installed engine, whose modules are compiled once and not at each start."""
PROGRAM = [sys.executable, "-m", "lsm_engine.cli.main"]


def many_tables(warehouse: Path, count: int) -> None:
    """Fill a warehouse with so many tables of three commits and a tag, all known to its catalog."""
    with lsm.open_catalog(warehouse) as catalog:
        first = catalog.create_table("shop.t0000", COLUMNS, primary_key="id", options=OPTIONS)
        for number in range(3):
            first.upsert([{"id": number, "name": "x"}, {"id": 9, "name": f"{number}"}])
        first.create_tag("monday", 2, retained="30 d")
        for number in range(1, count):
            shutil.copytree(first.location, Path(first.location).with_name(f"t{number:04}"))
        catalog.rebuild()


def long_history(warehouse: Path, count: int) -> None:
    """Add the table long.history of at least so many snapshots, one row each."""
    with lsm.open_catalog(warehouse) as catalog:
        made = catalog.create_table("long.history", COLUMNS, primary_key="id", options=OPTIONS)
        table = lsm.open_table(made.location)  # no catalog is told: only files are made
        while (newest := table.latest_snapshot()) is None or newest.id < count:
            at = 0 if newest is None else newest.id
            table.upsert([{"id": at % KEYS, "name": f"at {at}"}])


def verbs(key: int) -> dict[str, list[str]]:
    """Return command lines by what they are called in the table of figures."""
    return {
        "lsm tables": ["tables"],
        "lsm show snapshots, 10,000": ["show", "snapshots", "long.history"],
        "lsm show key": ["show", "key", "long.history", f"id={key}"],
        "lsm show sys.tables": ["show", "sys.tables"],
        "lsm doctor --shallow": ["doctor", "--shallow"],
    }


def pages(newest: int, key: int) -> dict[str, str]:
    """Return addresses of `lsm ui`."""
    return {
        "/": "/",
        "/?q=": "/?q=t00",
        "table": "/t/long.history",
        "snapshots": "/t/long.history/snapshots",
        "snapshots, the middle": f"/t/long.history/snapshots?from={newest // 2}",
        "snapshot": f"/t/long.history/snapshot/{newest // 2}",
        "tree": "/t/long.history/tree",
        "files": "/t/long.history/tree?bucket=0",
        "key": f"/t/long.history/key?id={key}",
        "lineage": "/lineage",
    }


def once(warehouse: Path, *words: str) -> Seconds:
    """Run `lsm` and return what it took."""
    before, started = _children(), time.perf_counter()
    subprocess.run(
        [*PROGRAM, "--warehouse", str(warehouse), *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        cwd=Path(__file__).parents[2], env=ENVIRONMENT,
    )  # fmt: skip
    return Seconds(time.perf_counter() - started, _children() - before)


def _children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@contextmanager
def server(warehouse: Path) -> Iterator[tuple[str, int]]:
    """Run `lsm ui`; the address and the process."""
    command = subprocess.Popen(
        [*PROGRAM, "--warehouse", str(warehouse), "ui", "--port", "0", "--no-browser", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[2],
        env=ENVIRONMENT,
    )  # fmt: skip
    assert command.stdout is not None
    try:
        yield json.loads(command.stdout.readline())["url"], command.pid
    finally:
        command.kill()
        command.wait()


def asked(url: str, path: str, pid: int) -> Seconds:
    """Ask for a page, and return what it took the server."""
    before, started = _spent(pid), time.perf_counter()
    urllib.request.urlopen(url + path.lstrip("/"), timeout=120).read()
    return Seconds(time.perf_counter() - started, _spent(pid) - before)


def _spent(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(warehouse: Path, patience: float) -> None:
    """Print what each verb and each page takes, the start of the engine taken off the verbs."""
    with lsm.open_catalog(warehouse) as catalog:
        latest = catalog.table("long.history").latest_snapshot()
    assert latest is not None
    key = latest.id // 2 % KEYS
    wait_for_quiet(patience)
    schema = ("show", "schema", "long.history")
    start = min((once(warehouse, *schema) for _ in range(3)), key=lambda one: one.cpu)
    print(f"the engine's start: {start.wall:.2f} s, cpu {start.cpu:.2f} s")
    for name, words in verbs(key).items():
        taken = min((once(warehouse, *words) for _ in range(2)), key=lambda one: one.cpu)
        print(
            f"| `{name}` | {taken.wall - start.wall:.2f} | {taken.cpu - start.cpu:.2f} |",
            flush=True,
        )
    for name, path in pages(latest.id, key).items():
        with server(warehouse) as (url, pid):
            asked(url, "/ui.css", pid)
            first, again = asked(url, path, pid), asked(url, path, pid)
        print(f"| page {name} | {first.wall:.2f}, {again.wall:.2f} | {first.cpu:.2f}, {again.cpu:.2f} |",
              flush=True)  # fmt: skip


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument(
        "--keep", type=Path, help="a folder to make it in, or to measure what it holds"
    )
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds to wait for a quiet moment"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-large-") as scratch:
        folder = given.keep or Path(scratch) / "lake"
        if not (folder / "catalog.db").exists():
            folder.mkdir(parents=True, exist_ok=True)
            many_tables(folder, given.tables)
            long_history(folder, given.snapshots)
        measure(folder, given.patience)


if __name__ == "__main__":
    main()
