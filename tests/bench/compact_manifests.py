"""What does `compact_manifest` cost on a table of very many files, in this process and on Spark?

    python -m tests.bench.compact_manifests --files 100000 1000000
    python -m tests.bench.compact_manifests --files 1000000 --rounds 3

Tables of metadata alone, with names and keys in no order, as those of real tables. Each way has a process of its own and a
copy of the table. Spark is local with two cores, has started, and does whatever its size. CPU is that of the process and its
children: JVM and workers. Memory is the peak of the driver's Python.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import lsm_engine as lsm
from tests.bench.many_files import many_files
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet

HERE, SPARK, START = "this process", "Spark", "Spark, start of the session"


def cpu_seconds() -> float:
    """Seconds of this process and all that it has started."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(spent.user + spent.system + spent.children_user for spent in times)


def timed(act: Callable[[], object]) -> list[float]:
    """Wall and CPU seconds of an act."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    act()
    return [time.perf_counter() - wall, cpu_seconds() - cpu]


def rewrite(path: str, way: str) -> dict[str, Any]:
    """Rewrite the manifests of a table, in a process of its own."""
    table = lsm.open_table(path)
    spent: dict[str, list[float]] = {}
    table.latest_snapshot()
    if way == SPARK:
        from lsm_engine.spark import local_session, on_spark

        sessions: list[Any] = []
        spent[START] = timed(
            lambda: sessions.append(
                local_session(threads=2, settings={"spark.lsm.driver-bytes": "0"})
            )
        )
        table = on_spark(table, sessions[0])
    spent[way] = timed(lambda: table.compact_manifest(dry_run=False))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sizes = table.system("manifests").column("file_size").to_pylist()
    return {"spent": spent, "peak_mb": peak, "manifests": len(sizes), "bytes": sum(sizes)}


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=1)
    parser.add_argument("--files", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--rewrite", nargs=2, help="a table and a way: what a process is started with"
    )
    options = parser.parse_args()
    if options.rewrite:
        print(json.dumps(rewrite(*options.rewrite)))
        return
    samples, facts = Samples(), {}
    ratios: list[Ratio] = []
    for count in options.files:
        with tempfile.TemporaryDirectory(prefix="bench-manifests-") as scratch:
            table = many_files(Path(scratch) / "table", count, random_values=True)
            for number in range(options.rounds):
                for way in (HERE, SPARK):
                    wait_for_quiet(options.patience)
                    copy = Path(scratch) / f"{number}-{way}"
                    shutil.copytree(table.path, copy)
                    command = [sys.executable, "-m", "tests.bench.compact_manifests"]
                    done = subprocess.run(
                        [*command, "--rewrite", str(copy), way], check=True, stdout=subprocess.PIPE
                    )
                    answer = json.loads(done.stdout.splitlines()[-1])
                    for who, spent in answer.pop("spent").items():
                        samples.add(f"{count:,} files", who, Seconds(*spent))
                    facts[f"{count:,} files, {way}"] = answer
        ratios += [
            samples.ratio(f"{count:,} files", SPARK, HERE, kind=kind) for kind in ("cpu", "wall")
        ]
    report("compact_manifests", ratios, samples, facts=facts, out=options.json)


if __name__ == "__main__":
    main()
