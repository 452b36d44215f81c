"""T-FAULT of storage: files of tables that we wrote are damaged, and nothing wrong is read or kept.

Each case damages one file of one table (flipped bits, a cut, zeros, an exchange with another file or of
stretches within), then reads the newest state, every snapshot and every tag: each is as it was, or an
LsmError. Deep verification finds every case. Every fifth case then runs maintenance, which takes no file
that it would not have taken from the sound table. CI takes a sample; all of it:

    LSM_DAMAGE=5000 python -m pytest tests/fault/test_damage.py -q
"""

import os
import random
from collections import Counter
from copy import copy
from functools import cache

import pytest

from lsm_engine.base.errors import LsmError
from tests.unit.table.history_tables import Story

CASES = int(os.environ.get("LSM_DAMAGE", "240"))
HINTS = ("EARLIEST", "LATEST")  # advice, which is compared with the files before it is followed
TABLES = {
    f"{name}-{file_format}": {**options, "file.format": file_format}
    for file_format in ("parquet", "orc", "avro")
    for name, options in {
        "vectors": {"deletion-vectors.enabled": "true", "write-only": "false"},
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
State = dict[str, dict[int, str]]
Files = dict[str, bytes]


@cache
def sound(name: str) -> tuple[Story, Files, State]:
    """A table, its files, and what is read of each of its states."""
    told = Story(options={"manifest.merge-min-count": "3", **TABLES[name]})
    told.put(**{f"k{number}": f"value {number % 7}" for number in range(200)})
    for value in "bcd":
        told.put(k1=value, k2=value, k300=value)
    told.table.create_tag("kept")
    told.table.compact(full=True)
    told.put(k1="e")
    told.table.reset_consumer("reader", 3)
    if "kept" in name:
        told.clock.advance(10_000_000)
        told.table.expire_snapshots(retain_min=2, retain_max=3, older_than="1 s")
    return told, contents(told), seen(told)


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
            found[name] = told.rows(**ask)
        except LsmError:
            continue
    return found


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


def maintained(told: Story) -> set[str]:
    """The files that maintenance leaves of a copy of the table's files."""
    other = copy(told)
    other.disk = copy(told.disk)
    other.disk._files = dict(told.disk._files)
    other.parts = type(told.parts)(
        file_io=other.disk,
        clock=told.parts.clock,
        ids=told.parts.ids,
        executor=told.parts.executor,
    )
    for act in ("orphans", "expire"):
        try:
            table = other.reopened()
            if act == "orphans":
                table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
            else:
                table.expire_snapshots(retain_min=1, retain_max=2, older_than="0 s")
        except LsmError:
            continue
    return other.files()


@cache
def left_of_sound(name: str) -> frozenset[str]:
    return frozenset(maintained(sound(name)[0]))


@pytest.mark.parametrize("part", range(4))
def test_no_damage_is_read_unnoticed(part: int) -> None:
    met: Counter[str] = Counter()
    for number in range(part, CASES, 4):
        name, path, damage, data = case(number)
        told, files, before = sound(name)
        if data == files[path]:
            continue
        what = f"case {number}: {damage} in {path} of {name}"
        left = left_of_sound(name)
        told.disk.replace(path, data)
        try:
            after = seen(told)
            for state, rows in after.items():
                assert rows == before.get(state, rows), (what, state)
            assert noticed_deep(told), what
            if number % 5 == 0:
                assert maintained(told) >= left, what
        finally:
            told.disk.replace(path, files[path])
        met[kind_of(path)] += 1
    assert sum(met.values()) > CASES // 4 * 0.8
    assert len(met) >= min(10, CASES // 24)


def test_sound_tables_pass_the_campaign() -> None:
    for name in TABLES:
        told, files, before = sound(name)
        assert seen(told) == before
        assert len(before) > 3
        assert not noticed_deep(told), name
        assert contents(told) == files
