"""Tables of many kinds in memory, whose files are damaged one at a time, and what is read of each of their states."""

from copy import copy
from functools import cache

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.base.errors import LsmError
from tests.unit.table.history_tables import COLUMNS, Story

VECTORS = {"deletion-vectors.enabled": "true"}
BY_DAY = {
    "partition.expiration-time": "7 d",
    "partition.timestamp-formatter": "yyyy-MM-dd",
    "maintenance.trash-retained": "1 d",
}
DAYS = ("2000-01-01", "2000-01-02")
TABLES = {
    f"{name}-{file_format}": {**options, "file.format": file_format}
    for file_format in ("parquet", "orc", "avro")
    for name, options in {
        "vectors": {**VECTORS, "write-only": "false"},
        "append": {**VECTORS, "bucket": "-1"},
        "days": BY_DAY,
        "changelog": {"changelog-producer": "input"},
        "dynamic": {"bucket": "-1"},
        "changelogs kept": {
            "changelog-producer": "lookup",
            "write-only": "false",
            "changelog.num-retained.max": "50",
            "changelog.time-retained": "30 d",
        },
        **({"blooms": {"index.type": "bloom"}} if file_format == "parquet" else {}),
    }.items()
}
ASKED = [{"id": number} for number in (1, 2, 77, 300, 900)]
State = dict[str, list[str]]
Files = dict[str, bytes]


@cache
def sound(name: str) -> tuple[Story, Files, State]:
    """A table, its files, and what is read of each of its states."""
    columns = COLUMNS
    if name.startswith("days"):
        columns = COLUMNS.append(pa.field("day", pa.string(), nullable=False))
    told = Story(
        columns,
        key=() if name.startswith("append") else tuple(columns.names[::2]),
        partitioned_by=tuple(columns.names[2:]),
        options={"manifest.merge-min-count": "3", **TABLES[name]},
    )
    put(told, {number: f"value {number % 7}" for number in range(200)})
    put(told, {1: "b", 2: "b", 300: "b"})
    told.table.create_tag("older")
    put(told, {1: "c", 2: "c", 300: "c"})
    put(told, {1: "d", 2: "d", 300: "d"})
    told.table.create_tag("kept")
    told.table.alter(lsm.SetOption("snapshot.num-retained.max", "1000"))
    if name.startswith("append"):
        told.table.delete([{"id": number, "v": "value 1"} for number in range(1, 200, 7)])
    else:
        told.table.compact(full=True)
    put(told, {1: "e"})
    told.table.reset_consumer("reader", 3)
    told.table.reset_consumer("slower", 2)
    told.table.create_branch("other", tag="kept")
    if name.startswith("days"):
        told.table.create_tag("taken")
        told.table.delete_tag("taken")  # into the trash
    if "kept" in name:
        told.clock.advance(10_000_000)
        told.table.expire_snapshots(retain_min=2, retain_max=3, older_than="1 s")
    told.table.verify(deep=True, incremental=True)
    return told, contents(told), seen(told)


def put(told: Story, values: dict[int, str]) -> None:
    """Upsert or append rows, a second later."""
    told.clock.advance(1000)
    rows = [{"id": number, "v": value, "day": DAYS[number % 2]} for number, value in values.items()]
    write = told.table.upsert if told.table.schema.primary_keys else told.table.append
    write(pa.Table.from_pylist(rows, schema=told.table.schema.arrow))


def contents(told: Story) -> Files:
    """The bytes of every file."""
    return {path: told.disk.read(path) for path in told.files()}


def seen(told: Story, besides: State | None = None) -> State:
    """What can be read of each state, and of each in `besides`; those that are refused are left out."""
    found: State = {}
    try:
        table = told.reopened()
    except LsmError:
        return found
    try:
        ids = {f"snapshot {number}" for number in table.session.snapshots.ids()}
    except LsmError:
        ids = set()
    ids |= {name for name in besides or () if name.startswith("snapshot")}
    asks = {
        "newest": lambda: table.scan().to_arrow(),
        "few rows": lambda: table.scan(where="v = 'value 3'").to_arrow(),
        "few keys": lambda: table.scan(where="id >= 190").to_arrow(),
        "few rows of a tag": lambda: table.scan(tag="kept", where="v = 'value 3'").to_arrow(),
        "tag": lambda: table.scan(tag="kept").to_arrow(),
        "older tag": lambda: table.scan(tag="older").to_arrow(),
        "changes": lambda: table.changelog(),
        "branch": lambda: table.branch("other").scan().to_arrow(),
    }
    if table.schema.primary_keys == ("id",):
        asks["lookup"] = lambda: table.lookup(ASKED)
    for name in sorted(ids):
        number = int(name.partition(" ")[2])
        asks[name] = lambda number=number: table.scan(snapshot_id=number).to_arrow()
    for name, ask in asks.items():
        try:
            found[name] = sorted(map(repr, ask().to_pylist()))
        except LsmError:
            continue
    return found


def copied(told: Story) -> Story:
    """The same files under a clock and ids of their own."""
    other = copy(told)
    other.disk = copy(told.disk)
    other.disk._files = dict(told.disk._files)
    other.disk._directories = dict(told.disk._directories)
    other.clock = copy(told.clock)
    other.parts = type(told.parts)(
        file_io=other.disk,
        clock=other.clock,
        ids=copy(told.parts.ids),
        executor=told.parts.executor,
    )
    return other
