"""Tagging random and ordered keys against many small files: `python -m tests.bench.lookup_tagging`.

Files of 10,000 keys each; "random": every file spans all keys, so that ranges are worth nothing;
"ordered": file after file. 100,000 keys are located, half of them there, by a fresh process on one
core that has located ten keys before. CPU seconds of that process, and the most memory it ever had:
of all of it, and beyond what it had before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.table.commit import CommitIdentity, commit
from lsm_engine.table.write import stage

FILE_KEYS = 10_000
ASKED = 100_000
ORDERS = ("random", "ordered")


def fill(root: str, name: str, files: int) -> None:
    """Write a table of so many level-0 files in one commit."""
    catalog = lsm.open_catalog(f"sqlite:///{root}/{name}.db", warehouse=f"{root}/{name}")
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    options = {"write-only": "true", "index.type": "bloom", "commit.fsync": "false"}
    table = catalog.create_table("bench.t", schema, primary_key=["id"], options=options)
    count = files * FILE_KEYS
    order = np.arange(count)
    if name == "random":
        order = np.random.default_rng(0).permutation(count)
    messages = []
    for start in range(0, count, FILE_KEYS):
        ids = np.sort(order[start : start + FILE_KEYS])
        messages += stage(table.session, pa.table({"id": ids, "v": ids}), None)
    identity = CommitIdentity(commit_user="bench", commit_identifier=1, properties=None)
    commit(table.session, identity, messages, planned_on=None)


def measure(root: str, name: str, files: int) -> dict[str, Any]:
    """Locate keys in such a table; what it took."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    table = lsm.open_table(f"{root}/{name}/bench.db/t")
    count = files * FILE_KEYS
    keys = np.random.default_rng(1).integers(0, 2 * count, ASKED)
    if name == "ordered":
        keys = np.arange(count // 2, count // 2 + 2 * ASKED, 2)
    small = lsm.open_table(table.location)
    small.locate(pa.table({"id": keys[:1]}))
    rows = pa.table({"id": keys})
    before = peak_megabytes()
    began = time.process_time()
    located = table.locate(rows)
    seconds = time.process_time() - began
    return {
        "seconds": seconds,
        "updates": located["action"].to_pylist().count("update"),
        "peak_megabytes": peak_megabytes(),
        "more_megabytes": peak_megabytes() - before,
    }


def peak_megabytes() -> float:
    """The most resident memory of this process so far. Not ru_maxrss: that begins at the parent's."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def alone(step: str, root: str, name: str, files: int) -> dict[str, Any]:
    """Run one step in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.lookup_tagging", "--step", step]
    command += ["--root", root, "--order", name, "--files", str(files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000], help="e.g. 1000 10000")
    parser.add_argument("--step", choices=("fill", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--order", choices=ORDERS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step == "fill":
        fill(asked.root, asked.order, asked.files[0])
        return
    if asked.step == "measure":
        print(json.dumps(measure(asked.root, asked.order, asked.files[0])))
        return
    found: dict[str, dict[str, Any]] = {}
    for files in asked.files:
        for name in ORDERS:
            with tempfile.TemporaryDirectory() as root:
                alone("fill", root, name, files)
                found[f"{name}, {files} files"] = alone("measure", root, name, files)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
