"""`lsm show`: one family for all that can be looked at; what verbs were called before works, unseen."""

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios

import pytest

from lsm_engine.cli.main import lsm

FORMER = {
    ("snapshots", "shop.orders"): ("show", "snapshots", "shop.orders"),
    ("files", "shop.orders", "--snapshot", "1"): ("show", "files", "shop.orders", "--snapshot", "1"),
    ("manifest-lists", "shop.orders"): ("show", "manifest-lists", "shop.orders"),
    ("system", "shop.orders", "buckets"): ("show", "buckets", "shop.orders"),
    ("explain", "shop.orders"): ("show", "scan", "shop.orders"),
    ("explain", "key", "shop.orders", "order_id=1", "day=mon"): (
        "show", "key", "shop.orders", "order_id=1", "day=mon"),
    ("explain", "debt", "shop.orders"): ("show", "debt", "shop.orders"),
    ("pressure", "shop.orders"): ("show", "debt", "shop.orders"),
    ("lineage", "snapshot", "shop.orders"): ("show", "inputs", "shop.orders"),
    ("lineage", "recent"): ("show", "commits"),
}  # fmt: skip


@pytest.mark.parametrize("former", FORMER, ids=" ".join)
def test_a_former_name_shows_what_the_new_one_shows(shop, former):
    timed = (
        "runs_per_hour",
        "bytes_per_hour",
        "due_in",
        "due_in_millis",
        "stops_in",
        "stops_in_millis",
        "reason",
    )
    old, new = (
        [
            {name: value for name, value in row.items() if name not in timed}
            for row in shop.json(*words)
        ]
        for words in (former, FORMER[former])
    )
    assert old == new != []
    assert former[0] not in lsm.list_commands(None) or former[0] == "lineage"


def test_show_life_and_show_inputs(shop):
    file = shop.json("show", "files", "shop.orders")[0]["file_path"]
    assert shop.json("show", "life", "shop.orders", file)[0]["stages"][0]["level"] == 0
    assert shop.json("show", "inputs", "shop.orders", "1")[0]["files"]


def test_any_system_table_by_its_name(shop):
    (row,) = shop.json("show", "buckets", "shop.orders", "--where", "partition = 'day=tue'")
    assert row["record_count"] == 1
    assert [set(row) for row in shop.json("show", "sys.tables", "--columns", "table_name")] == [
        {"table_name"}
    ]
    assert "health" in shop("show", "--help").stdout
    assert "system table schemas" in shop("show", "schemas", "--help").stdout
    shop("show", "nothing", "shop.orders", code=2)


def test_narrow_terminals_get_records_and_whole_names(shop):
    shop.environment |= {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}
    name = shop.json("show", "files", "shop.orders")[0]["file_path"]
    narrow = shop("show", "files", "shop.orders").stdout
    assert [line for line in narrow.splitlines() if line.endswith(name)], narrow
    assert max(len(line) for line in narrow.splitlines() if "/" not in line) <= 80
    shop.environment["COLUMNS"] = "300"
    wide = shop("show", "files", "shop.orders").stdout.splitlines()
    assert len(wide) == 2 + len(shop.json("show", "files", "shop.orders"))
    assert any(line.endswith(name) for line in wide)
    shop.environment |= {"FORCE_COLOR": None, "COLUMNS": "20"}
    assert shop("show", "files", "shop.orders").stdout.splitlines() == wide
    assert "\x1b" not in narrow


def in_a_terminal(shop, *words, columns: int = 80, **environment) -> str:
    """What `lsm` writes to a terminal of so many columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 500, columns, 0, 0))
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "lsm_engine.cli.main", "--warehouse", shop.warehouse, *words],
        stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL,
        env={**inherited, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    read = b""
    while (
        True
    ):  # our end of theirs stays open: what is written last may be lost when the last one closes
        has_ended = process.poll() is not None
        if select.select([ours], [], [], 0.2)[0]:
            read += os.read(ours, 65536)
        elif has_ended:
            break
    os.close(theirs)
    os.close(ours)
    assert process.wait(60) == 0
    return read.decode().replace("\r\n", "\n")


def test_a_terminal_of_80_columns(shop):
    shown = in_a_terminal(shop, "show", "files", "shop.orders")
    assert "\x1b[" in shown
    plain = in_a_terminal(shop, "show", "files", "shop.orders", NO_COLOR="1")
    assert "\x1b[3" not in plain
    names = [row["file_path"] for row in shop.json("show", "files", "shop.orders")]
    assert [name for name in names if name not in plain] == [], plain
    assert "min key" in plain.splitlines()[6]
