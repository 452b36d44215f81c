"""Runs operations in forked processes and kills them with SIGKILL at a chosen system call.

    python -m tests.fault.kill_server        one JSON object per line in, one per line out

In: {"scenario", "root", "at", "after"}; `at` 0 only counts. Out: {"killed", "count", "error"}.
A process of its own, as forking one that runs threads is asking for trouble.
"""

import json
import os
import sys
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import LsmError
from lsm_engine.storage.local import LocalFileIO
from tests.fault.scenarios import SCENARIOS, acting, prepared
from tests.fault.system_calls import SystemCalls


def main() -> None:
    """Answer until the input ends."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for scenario in SCENARIOS.values():  # compile and import before the first fork
        disk, _ = prepared(scenario.name)
        scenario.act(acting(disk))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Fork, operate, and say how the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, json.dumps(operate(order)).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as answers:
        text = answers.read()
    answer = json.loads(text) if text else {"count": 0, "error": None}
    return {**answer, "killed": os.WIFSIGNALED(status)}


def operate(order: dict[str, Any]) -> dict[str, Any]:
    """The operation, in the process that may die of it."""
    scenario = SCENARIOS[order["scenario"]]
    error = None
    with SystemCalls(order["root"], dies_at=order["at"], after=order["after"]) as calls:
        try:
            scenario.act(acting(LocalFileIO(order["root"])))
        except LsmError as raised:
            error = repr(raised)
    return {"count": calls.count, "error": error}


if __name__ == "__main__":
    main()
