"""One plan in a process of its own, on one core: `python -m tests.bench.plan_once PATH [DAY LOW HIGH]`.

Prints seconds, megabytes of memory at the most, and what the plan holds, as JSON. In a process without
pandas, as `lsm` is one: PyArrow would load it wherever it is installed, 45 MB of which no plan needs any.
"""

import json
import os
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_engine.cli.main import load_no_pandas
from lsm_engine.kernels import compiled


def peak_mb() -> float:
    """Memory that this process has had at the most."""
    # Not ru_maxrss, which begins with what the process had that started this one.
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def main(path: str, *filters: str) -> None:
    """Plan once."""
    load_no_pandas()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    table = lsm.open_table(path)
    where = None
    if filters:
        day, low, high = filters
        where = (
            (pc.field("dt") == day) & (pc.field("id") >= int(low)) & (pc.field("id") <= int(high))
        )
    compiled.CALL_LIMIT = -1  # or few rows would need no compiler
    table.scan(snapshot_id=1, where=where).splits()  # kernels are loaded, not counted
    idle = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    splits = table.scan(where=where).splits()
    told = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "plan_mb": peak_mb(),
        "idle_mb": idle,
    }
    # Going through all of them is not planning, but has to fit into memory as well.
    wall = time.perf_counter()
    count = files = 0
    for split in splits:
        count += 1
        files += len(split.files)
    told |= {
        "through_wall": time.perf_counter() - wall,
        "peak_mb": peak_mb(),
        "splits": count,
        "files": files,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
