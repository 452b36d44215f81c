"""T-FAULT of storage: files of tables that we wrote are damaged, and nothing wrong is read or kept.

Each case damages one file of one table (flipped bits, a cut, zeros, an exchange with another file or of
stretches within), then reads the newest state, every snapshot and every tag: each is as it was, or an
LsmError. Deep verification finds every case. Every third case then runs one act of maintenance: it does
what it does to the sound table or is refused with nothing changed, deletes no file that it would not have
deleted, and what it leaves is read as before. CI takes a sample; all of it:

    LSM_DAMAGE=5000 python -m pytest tests/fault/test_damage.py -q -s
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from copy import copy
from functools import cache

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import LsmError
from tests.unit.table.history_tables import COLUMNS, Story

CASES = int(os.environ.get("LSM_DAMAGE", "240"))
HINTS = ("EARLIEST", "LATEST")  # advice, which is compared with the files before it is followed
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
    }.items()
}
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
    for value in "bcd":
        put(told, {1: value, 2: value, 300: value})
    told.table.create_tag("kept")
    if name.startswith("append"):
        told.table.delete([{"id": number, "v": "value 1"} for number in range(1, 200, 7)])
    else:
        told.table.compact(full=True)
    put(told, {1: "e"})
    told.table.reset_consumer("reader", 3)
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
    told.clock.advance(1000)
    rows = [{"id": number, "v": value, "day": DAYS[number % 2]} for number, value in values.items()]
    write = told.table.upsert if told.table.schema.primary_keys else told.table.append
    write(pa.Table.from_pylist(rows, schema=told.table.schema.arrow))


def contents(told: Story) -> Files:
    return {path: told.disk.read(path) for path in told.files()}


def seen(told: Story) -> State:
    """What can be read of each state; those that are refused are left out."""
    found: State = {}
    try:
        table = told.reopened()
    except LsmError:
        return found
    asks: list[tuple[str, dict[str, object]]] = [("newest", {}), ("tag", {"tag": "kept"})]
    try:
        ids = table.session.snapshots.ids()
    except LsmError:
        ids = []
    asks += [(f"snapshot {number}", {"snapshot_id": number}) for number in ids]
    for name, ask in asks:
        try:
            rows = table.scan(**ask).to_arrow().to_pylist()
        except LsmError:
            continue
        found[name] = sorted(map(repr, rows))
    try:
        branch = table.branch("other").scan().to_arrow()
    except LsmError:
        return found
    return {**found, "branch": sorted(map(repr, branch.to_pylist()))}


def damaged(rng: random.Random, path: str, files: Files) -> tuple[str, bytes]:
    """One kind of damage to one file: its name, and the bytes after it."""
    data = bytearray(files[path])
    kind = rng.choice(("flip", "flip", "flip", "few flips", "cut", "zeros", "exchange", "swap"))
    if kind == "exchange":
        directory, _, name = path.rpartition("/")
        start = f"{directory}/{name.partition('-')[0]}"
        others = sorted(one for one in files if one.startswith(start) and one != path)
        return kind, files[rng.choice(others)] if others else bytes(data[:-1])
    first = rng.randrange(len(data))
    if kind == "cut":
        return kind, bytes(data[:first])
    if kind == "zeros":
        length = min(rng.choice((1, 8, 64, 512)), len(data) - first)
        data[first : first + length] = bytes(length)
        return kind, bytes(data)
    if kind == "swap":
        length = rng.choice((1, 2, 8, 32))
        second = rng.randrange(len(data))
        low, high = sorted((first, second))
        one, other = data[low : low + length], data[high : high + length]
        if low + length <= high and len(other) == length:
            data[low : low + length], data[high : high + length] = other, one
        return kind, bytes(data)
    for _ in range(1 if kind == "flip" else 3):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return kind, bytes(data)


def kind_of(path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory.partition('/')[0]}/{name.rpartition('-')[0] and name.partition('-')[0]}"


def case(number: int) -> tuple[str, str, str, bytes]:
    """Table, damaged path, damage and bytes of a case: every kind of file as often."""
    rng = random.Random(number)
    name = rng.choice(sorted(TABLES))
    _, files, _ = sound(name)
    kinds: dict[str, list[str]] = {}
    for path in sorted(files):
        if not path.endswith(HINTS) and files[path]:
            kinds.setdefault(kind_of(path), []).append(path)
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    damage, data = damaged(rng, path, files)
    return name, path, damage, data


def noticed_deep(told: Story) -> bool:
    try:
        return not told.reopened().verify(deep=True).is_clean
    except LsmError:
        return True  # the table's own schema: it does not even open


ACTS: dict[str, Callable[[lsm.Table], object]] = {
    "orphans": lambda t: t.remove_orphan_files(dry_run=False, older_than="0 s", force=True),
    "expire": lambda t: t.expire_snapshots(retain_min=1, retain_max=2, older_than="0 s"),
    "compact": lambda t: t.compact(full=True),
    "delete tag": lambda t: t.delete_tag("kept"),
    "roll back": lambda t: t.rollback_to(6),
    "expire partitions": lambda t: t.expire_partitions(),
    "restore": lambda t: t.restore_files(dry_run=False),
    "empty trash": lambda t: t.empty_trash(everything=True),
}


def maintained(told: Story, act: str) -> tuple[Story, bool]:
    """A copy of the table's files after an act of maintenance, and whether that was refused."""
    other = copy(told)
    other.disk = copy(told.disk)
    other.disk._files = dict(told.disk._files)
    other.clock = copy(told.clock)
    other.parts = type(told.parts)(
        file_io=other.disk,
        clock=other.clock,
        ids=copy(told.parts.ids),
        executor=told.parts.executor,
    )
    try:
        ACTS[act](other.reopened())
    except LsmError:
        return other, True
    return other, False


@cache
def left_of_sound(name: str, act: str) -> frozenset[str]:
    return frozenset(maintained(sound(name)[0], act)[0].files())


def check_act(told: Story, act: str, name: str, before: State, what: str) -> str:
    """An act on a damaged table does no more harm than on a sound one; returns how it ended."""
    damaged_files = contents(told)
    other, is_refused = maintained(told, act)
    if is_refused:
        left = contents(other)
        assert {path: left.get(path) for path in damaged_files} == damaged_files, (what, act)
    elif act != "restore":
        assert other.files() >= left_of_sound(name, act) & set(damaged_files), (what, act)
    for state, rows in seen(other).items():
        is_new = state == "newest" or state not in before
        if not (is_new and act in ("roll back", "expire partitions")):
            assert rows == before.get(state, before["newest"]), (what, act, state)
    return "refused" if is_refused else "done"


@pytest.mark.parametrize("part", range(4))
def test_no_damage_is_read_unnoticed(part: int) -> None:
    met: Counter[str] = Counter()
    acts: Counter[tuple[str, str]] = Counter()
    refused = 0
    for number in range(part, CASES, 4):
        name, path, damage, data = case(number)
        told, files, before = sound(name)
        if data == files[path]:
            continue
        what = f"case {number}: {damage} in {path} of {name}"
        told.disk.replace(path, data)
        try:
            after = seen(told)
            for state, rows in after.items():
                assert rows == before.get(state, rows), (what, state)
            refused += len(before) > len(after)
            assert noticed_deep(told), what
            if number % 3 == 0:
                act = list(ACTS)[number // 3 % len(ACTS)]
                acts[act, check_act(told, act, name, before, what)] += 1
        finally:
            told.disk.replace(path, files[path])
        met[kind_of(path)] += 1
    print(f"{sum(met.values())} cases, {refused} refused by a read, {dict(met)}, {dict(acts)}")
    assert sum(met.values()) > CASES // 4 * 0.8
    assert len(met) >= min(10, CASES // 24)


def test_sound_tables_pass_the_campaign() -> None:
    for name in TABLES:
        told, files, before = sound(name)
        assert seen(told) == before
        assert len(before) > 3
        assert not noticed_deep(told), name
        assert contents(told) == files
