"""What the three drivers share: one JSON request per line in, one JSON answer per line out.

A request is ``{"id": 1, "op": "read", "args": {...}}``. Its answer is ``{"id": 1, "ok": ...}``,
``{"id": 1, "unsupported": why}`` or ``{"id": 1, "error": {"type", "message", "trace"}}``, each with
``"spent": {"wall", "cpu", "peak_bytes"}``. Rows travel as Arrow IPC files named in the arguments;
what moving them takes is not in ``spent``, as no client is to blame for it. Runs in the clients'
environments, hence only the standard library and pyarrow.
"""

import base64
import contextlib
import datetime as dt
import decimal
import json
import os
import sys
import time
import traceback

import pyarrow as pa


class Unsupported(Exception):
    """The client has no way to do this."""


class Meter:
    """Seconds that the operation at hand has spent, on the clock and on all threads."""

    def __init__(self):
        self.start()

    def start(self):
        """Begin at nothing."""
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()

    def spent(self):
        """What there is since the start, and the most memory this process ever had."""
        return {
            "wall": self.wall + time.perf_counter(),
            "cpu": self.cpu + time.process_time(),
            "peak_bytes": peak_bytes(),
        }

    @contextlib.contextmanager
    def stopped(self):
        """Do not count what is done inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall -= time.perf_counter() - wall
            self.cpu -= time.process_time() - cpu


METER = Meter()


def peak_bytes():
    """Most resident memory so far. Not ru_maxrss: that one begins at the parent's."""
    try:
        with open("/proc/self/status", encoding="ascii") as source:
            lines = dict(line.split(":", 1) for line in source)
    except FileNotFoundError:  # no Linux
        return None
    return 1024 * int(lines["VmHWM"].split()[0])


def serve(driver):
    """Answer requests until standard input ends; operation ``x`` is the method ``do_x``.

    The answers get a descriptor of their own, and the usual one is pointed at standard error:
    libraries and the JVM print there, and would break the lines.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        METER.start()
        made = answer(driver, request)
        whole = {"id": request["id"], "spent": METER.spent(), **made}
        answers.write(json.dumps(whole) + "\n")
        answers.flush()


def answer(driver, request):
    """The answer to one request; whatever goes wrong in the client is an answer too."""
    operation = getattr(driver, "do_" + request["op"], None)
    if operation is None:
        return {"unsupported": "no operation " + request["op"]}
    try:
        return {"ok": operation(**request["args"])}
    except Unsupported as why:
        return {"unsupported": str(why)}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of a native client is no Exception
        # A Java exception also knows its way through Java.
        java_trace = str(error.stacktrace()) if hasattr(error, "stacktrace") else ""
        trace = traceback.format_exc() + java_trace
        return {"error": {"type": type(error).__name__, "message": str(error), "trace": trace}}


def load_table(path):
    """The Arrow IPC file as a table."""
    with METER.stopped(), pa.OSFile(path, "rb") as source:
        return pa.ipc.open_file(source).read_all()


def save_table(table, path):
    """Write the table as an Arrow IPC file."""
    with (
        METER.stopped(),
        pa.OSFile(path, "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def decode(value):
    """A value in the ``$`` spellings of canonical.py as a Python value."""
    if isinstance(value, list):
        return [decode(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    ((tag, text),) = value.items()
    return {
        "$bytes": base64.b64decode,
        "$decimal": decimal.Decimal,
        "$date": dt.date.fromisoformat,
        "$time": dt.time.fromisoformat,
        "$timestamp": dt.datetime.fromisoformat,
        "$timestamp_tz": dt.datetime.fromisoformat,
        "$float": float,
    }[tag](text)


def latest_schema(path):
    """The text of the table's newest schema file."""
    folder = os.path.join(path, "schema")
    newest = max(int(name[7:]) for name in os.listdir(folder) if name.startswith("schema-"))
    with open(os.path.join(folder, f"schema-{newest}"), encoding="utf-8") as source:
        return source.read()


def scan_options(snapshot_id, tag):
    """The read options that select a snapshot or a tag; none for the newest."""
    options = {}
    if snapshot_id is not None:
        options["scan.snapshot-id"] = str(snapshot_id)
    if tag is not None:
        options["scan.tag-name"] = tag
    return options
