"""One plan by a real client, in its own environment: `plan_client.py pypaimon|rust PATH [DAY LOW HIGH]`.

Prints what `plan_once` prints. Runs without the engine: the client's environment has none.
"""

import json
import os
import sys
import time


def peak_mb():
    """Memory that this process has had at the most."""
    # Not ru_maxrss, which begins with what the process had that started this one.
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def pypaimon_builder(path, filters):
    """pypaimon's read builder."""
    import driver_pypaimon as driver

    builder = driver.FileStoreTable.from_path(path).new_read_builder()
    if filters:
        build = builder.new_predicate_builder()
        day, low, high = filters
        both = [build.equal("dt", day), build.between("id", int(low), int(high))]
        builder.with_filter(build.and_predicates(both))
    return builder


def rust_builder(path, filters):
    """pypaimon-rust's read builder."""
    import driver_rust as driver

    builder = driver.open_table(path).new_read_builder({})
    if filters:
        day, low, high = filters
        builder.with_filter(
            {
                "method": "and",
                "children": [
                    {"method": "equal", "field": "dt", "literals": [day]},
                    {"method": "between", "field": "id", "literals": [int(low), int(high)]},
                ],
            }
        )
    return builder


def main(client, path, *filters):
    """Plan once."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    builder = {"pypaimon": pypaimon_builder, "rust": rust_builder}[client](path, filters)
    idle = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    splits = builder.new_scan().plan().splits()
    told = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "plan_mb": peak_mb(),
        "peak_mb": peak_mb(),
        "idle_mb": idle,
        "splits": len(splits),
        "files": sum(len(split.files) for split in splits) if client == "pypaimon" else None,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
