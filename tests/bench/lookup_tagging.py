"""Tagging random and ordered keys against many small files: `python -m tests.bench.lookup_tagging`.

Files of 10,000 keys each; "random": every file spans all keys, so that ranges are worth nothing;
"ordered": file after file. 100,000 keys are located, half of them there, by a fresh process on one
core that has located a key in another table before. It finds no file in the page cache: a thousand would
lie there, ten thousand would not, and what is compared is files, not disks. The process is one without
pandas, which PyArrow would load wherever it is installed (45 MB). Reported: CPU seconds of that
process, the most memory it ever had (of all of it, and beyond what it had before), and what more files cost.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_engine.cli.main import load_no_pandas
from tests.bench.measure import Ratio, Samples, Seconds, report

FILE_KEYS = 10_000
ASKED = 100_000
ORDERS = ("random", "ordered")
SMALL = "small"
GOALS = {"random": {"seconds": 5.0, "peak_megabytes": 300.0}, "ordered": {"seconds": 1.0}}
"""Of 1,000 files. Ten times the files may cost ten times the seconds, and no memory."""
GOAL_FILES = 1_000
MORE_MEMORY = 1.05
"""The share within which two processes' memory is the same."""


def fill(root: str, name: str, files: int) -> None:
    """Write a table of so many level-0 files, each by an upsert of its own."""
    catalog = lsm.open_catalog(f"sqlite:///{root}/{name}.db", warehouse=f"{root}/{name}")
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    options = {"write-only": "true", "index.type": "bloom", "commit.fsync": "false"}
    table = catalog.create_table("bench.t", schema, primary_key=["id"], options=options)
    count = files * FILE_KEYS
    order = np.arange(count)
    if name == "random":
        order = np.random.default_rng(0).permutation(count)
    for start in range(0, count, FILE_KEYS):
        ids = np.sort(order[start : start + FILE_KEYS])
        table.upsert(pa.table({"id": ids, "v": ids}))


def measure(root: str, name: str, files: int) -> dict[str, Any]:
    """Locate keys in such a table; what it took."""
    load_no_pandas()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Imports and compiled loops are not what is measured: another table pays for them.
    other = lsm.open_table(f"{root}/{SMALL}/bench.db/t")
    other.locate(pa.table({"id": [1]}))
    table = lsm.open_table(f"{root}/{name}/bench.db/t")
    count = files * FILE_KEYS
    keys = np.random.default_rng(1).integers(0, 2 * count, ASKED)
    if name == "ordered":
        keys = np.arange(count // 2, count // 2 + 2 * ASKED, 2)
    rows = pa.table({"id": keys})
    forget_pages(Path(root, name))
    before = peak_megabytes()
    began, began_wall = time.process_time(), time.perf_counter()
    located = table.locate(rows)
    seconds, wall = time.process_time() - began, time.perf_counter() - began_wall
    peak = peak_megabytes()
    return {
        "seconds": seconds,
        "wall": wall,
        "updates": pc.sum(pc.equal(located["action"], "update")).as_py(),
        "peak_megabytes": peak,
        "more_megabytes": peak - before,
    }


def forget_pages(directory: Path) -> None:
    """Have the system drop the files below a directory from its page cache."""
    for path in directory.rglob("*.parquet"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # what is not written yet cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


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


def ratios(found: dict[tuple[str, int], list[dict[str, Any]]]) -> list[Ratio]:
    """Seconds and megabytes with their goals, and what the most files cost beside the fewest."""
    told = []
    for (name, files), rounds in found.items():
        goals = GOALS[name] if files == GOAL_FILES else {}
        what = f"{name} keys, {files:,} files"
        for kind in ("seconds", "peak_megabytes", "more_megabytes"):
            values = tuple(one[kind] for one in rounds)
            told.append(Ratio(what=what, name=kind, rounds=values, goal=goals.get(kind)))
    for name in ORDERS:
        counts = sorted(files for order, files in found if order == name)
        if len(counts) < 2:
            continue
        few, many = counts[0], counts[-1]
        what = f"{name} keys, {many:,} / {few:,} files"
        for kind, goal in (("seconds", many / few), ("peak_megabytes", MORE_MEMORY)):
            base = statistics.median(one[kind] for one in found[name, few])
            values = tuple(one[kind] / base for one in found[name, many])
            told.append(Ratio(what=what, name=kind, rounds=values, goal=goal))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000], help="e.g. 1000 10000")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes for each; default 3")
    parser.add_argument("--json", type=Path, help="write the JSON there instead of printing it")
    parser.add_argument("--step", choices=("fill", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--order", choices=(*ORDERS, SMALL), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step == "fill":
        fill(asked.root, asked.order, asked.files[0])
        return
    if asked.step == "measure":
        print(json.dumps(measure(asked.root, asked.order, asked.files[0])))
        return
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    samples = Samples()
    for files in asked.files:
        for name in ORDERS:
            with tempfile.TemporaryDirectory() as root:
                alone("fill", root, name, files)
                alone("fill", root, SMALL, 2)
                for _ in range(asked.rounds):
                    told = alone("measure", root, name, files)
                    found.setdefault((name, files), []).append(told)
                    samples.add(f"{files:,} files", name, Seconds(told["wall"], told["seconds"]))
    facts = {f"{name}, {files} files": told for (name, files), told in found.items()}
    report("lookup_tagging", ratios(found), samples, facts=facts, out=asked.json)


if __name__ == "__main__":
    main()
