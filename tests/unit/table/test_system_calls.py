"""What operations on a local table ask of the file system: the budgets of a disk, beside those of stores.

Calls are counted where Python makes them, which a run under strace agrees with: what PyArrow opens, it opens by
`OSFile`. So calls for many files at once, which stores need, are seen if they cost a disk anything.
"""

import builtins
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
QUIET = {"bucket": "1", "num-sorted-run.compaction-trigger": "100"}
COUNTED = {
    "open": ["open"],
    "stat": ["stat", "lstat"],
    "fsync": ["fsync", "fdatasync"],
    "link": ["link", "rename", "replace"],
    "unlink": ["unlink"],
    "list": ["scandir", "listdir"],
}


class Counting:
    """How often each kind of call was made for a path below a directory; syncs for any file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, below: Path) -> None:
        self.calls: Counter[str] = Counter()
        self._below = os.path.realpath(below)
        for kind, names in COUNTED.items():
            for name in names:
                self._count(monkeypatch, os, name, kind)
        self._count(monkeypatch, builtins, "open", "open")
        self._count(monkeypatch, pa, "OSFile", "open")
        self._count(monkeypatch, pa, "memory_map", "open")

    def _count(self, monkeypatch, of, name, kind):
        real = getattr(of, name)

        def counted(*args, **named):
            path = args[0] if args else None
            is_below = isinstance(path, str | Path) and str(path).startswith(self._below)
            if kind == "fsync" or is_below:
                self.calls[kind] += 1
            return real(*args, **named)

        monkeypatch.setattr(of, name, counted)

    def of(self, act) -> dict[str, int]:
        """The calls of one act."""
        self.calls.clear()
        act()
        return dict(self.calls)


def rows(value: str) -> pa.Table:
    return pa.table({"k": range(10), "v": [value] * 10}, schema=SCHEMA)


def table_in(folder: Path, **more: str) -> lsm.Table:
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=f"{folder}/lake") as catalog:
        made = {**QUIET, **{name.replace("_", "-"): value for name, value in more.items()}}
        table = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=made)
    path = table.location
    opened = lsm.open_table(path)
    for number in range(4):
        opened.upsert(rows(f"v{number}"))
    return opened


# As many as before storage had calls for many files at once and stores far away, or fewer; but for the two
# directories whose locks a commit takes (decision 33).
BUDGET = {
    "open": {"open": 1, "stat": 11, "list": 1},
    "commit": {"open": 30, "stat": 20, "fsync": 10, "link": 2, "unlink": 1},
    "plan in a new handle": {"open": 12, "stat": 28, "list": 1},
    "plan again": {"open": 4, "stat": 4},
    "scan": {"open": 9, "stat": 14},
    "lookup": {"open": 1, "stat": 2},
    "lookup again": {},
}


@pytest.mark.quick
def test_calls_of_a_local_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_in(tmp_path)
    path, keys = table.location, rows("").select(["k"])
    counting = Counting(monkeypatch, Path(path))
    found = {
        "open": counting.of(lambda: lsm.open_table(path)),
        "commit": counting.of(lambda: table.upsert(rows("x"))),
        "plan in a new handle": counting.of(lambda: lsm.open_table(path).scan().splits()),
        "plan again": counting.of(lambda: table.scan().splits()),
        "scan": counting.of(lambda: table.to_arrow()),
    }
    query = table.query()
    found["lookup"] = counting.of(lambda: query.lookup(keys))
    found["lookup again"] = counting.of(lambda: query.lookup(keys))
    assert found["commit"]["fsync"] > 0, "it counts"
    for what, calls in found.items():
        for kind, count in calls.items():
            assert count <= BUDGET[what].get(kind, 0), f"{what}: {count} of {kind}"


TRACED = """
import os, sys
from tests.unit.table.test_system_calls import lsm, rows
table = lsm.open_table(sys.argv[1])
table.upsert(rows("warm"))
for what, act in {"commit": lambda: table.upsert(rows("x")), "plan again": lambda: table.scan().splits()}.items():
    os.path.exists(f"/begin {what}")
    act()
os.path.exists("/begin nothing")
"""


def test_the_kernel_counts_the_same(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not on this machine")
    path, trace = os.path.realpath(table_in(tmp_path).location), tmp_path / "trace"
    how = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=%file,fsync,fdatasync"]
    done = subprocess.run(
        [*how, sys.executable, "-c", TRACED, path], capture_output=True, text=True, check=False
    )
    if "PTRACE" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    calls: dict[str, Counter[str]] = {}
    what = "before"
    for line in trace.read_text().splitlines():
        if '"/begin ' in line:
            what = line.partition('"/begin ')[2].partition('"')[0]
        name = line.partition("(")[0].split()[-1] if "(" in line else ""
        if name in ("fsync", "fdatasync"):
            calls.setdefault(what, Counter())["fsync"] += 1
        elif name in ("open", "openat") and f'"{path}' in line and "O_DIRECTORY" not in line:
            calls.setdefault(what, Counter())["open"] += 1
    assert 0 < calls["commit"]["fsync"] <= BUDGET["commit"]["fsync"]
    assert 0 < calls["commit"]["open"] <= BUDGET["commit"]["open"]
    assert 0 < calls["plan again"]["open"] <= BUDGET["plan again"]["open"]
    assert calls["plan again"]["fsync"] == 0
