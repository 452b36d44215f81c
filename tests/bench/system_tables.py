"""What the system tables of a table of very many files cost: CPU, and memory above the process that opened the table.

    python -m tests.bench.system_tables                  # 100,000 files of 20 columns with statistics
    python -m tests.bench.system_tables --files 10000

Only the metadata of the files exists. Each system table is read by a process of its own.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lsm_engine as lsm
from tests.bench.many_files import many_files
from tests.bench.measure import Ratio, Samples, arguments, report
from tests.bench.memory import memory_kb

NAMES = ("files", "file_key_ranges", "partitions", "buckets")


def read(name: str, location: str) -> dict[str, float]:
    """Read a system table in this process; what it cost."""
    table = lsm.open_table(location)
    importlib.import_module("pandas")  # which PyArrow imports with the first array of Python values
    before = memory_kb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    cpu = -time.process_time()
    count = table.inspect.system(name).num_rows
    cpu += time.process_time()
    return {"rows": count, "cpu": cpu, "above_mb": (memory_kb("VmHWM") - before) * 1024 / 1e6}


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=3)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--name", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--location", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.name:
        print(json.dumps(read(given.name, given.location)))
        return
    ratios = []
    with tempfile.TemporaryDirectory(prefix="bench-system-tables-") as scratch:
        location = given.location or many_files(Path(scratch), given.files).path
        for name in NAMES:
            command = [sys.executable, "-m", "tests.bench.system_tables"]
            command += ["--name", name, "--location", location]
            taken = [json.loads(subprocess.check_output(command)) for _ in range(given.rounds)]
            for what, goal in (("cpu", 1.0), ("above_mb", 300.0)):
                values = tuple(each[what] for each in taken)
                ratios.append(Ratio(what=name, name=what, rounds=values, goal=goal))
    report("system_tables", ratios, Samples(), facts={"files": given.files}, out=given.json)


if __name__ == "__main__":
    main()
