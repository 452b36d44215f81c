"""T-FAULT of storage: one file of a table that we wrote is damaged, and nothing wrong is read or kept.

Each case damages one file of one table, then reads every state: each is as it was, or an LsmError. Deep
verification finds every case. Every third case then runs one act of maintenance: it does what it does to
the sound table or is refused with nothing changed, deletes no file that it would not have deleted, and what
it leaves is read as before.

    python -m tests.fault.damage --cases 5000 --seed 1 --processes 2
"""

import argparse
import os
import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context

import lsm_engine as lsm
from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from tests.fault.damaged_tables import TABLES, Files, State, contents, copied, seen, sound
from tests.unit.table.history_tables import Story

AT_ONCE = 50
KINDS = {
    "snapshot": r"snapshot/snapshot-\d+",
    "hint": r"(.+/)?(snapshot|changelog)/(LATEST|EARLIEST)",
    "long-lived changelog": r"changelog/changelog-\d+",
    "schema": r"schema/schema-\d+",
    "index manifest": r"manifest/index-manifest-.+",
    "manifest list": r"manifest/manifest-list-.+",
    "manifest": r"manifest/manifest-.+",
    "vectors or hash index": r"index/.+",
    "tag": r"tag/tag-.+",
    "consumer": r"consumer/consumer-.+",
    "snapshot of a branch": r"branch/.+/snapshot-\d+",
    "schema of a branch": r"branch/.+/schema-\d+",
    "tag of a branch": r"branch/.+/tag-.+",
    "trash": r"trash/.+",
    "record of verified files": r"verified/.+",
    "changelog file": r".+/changelog-[^/]+\.\w+",
    "data file": r".+/data-[^/]+\.\w+",
}
"""Kinds of files, and their paths: the first that fits."""
NAMED_BY_NOTHING = ("tag", "consumer", "tag of a branch", "trash", "record of verified files")
"""Once such a file is gone, nothing says that there was one (decision 38)."""
Damage = Callable[[random.Random, str, Files], bytes | None]


def kind_of(path: str) -> str:
    """The kind of a file, and for data its format."""
    kind = next(kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, path))
    return f"{kind}, {path.rpartition('.')[2]}" if kind.endswith("file") else kind


def flip(rng: random.Random, path: str, files: Files) -> bytes:
    """One bit."""
    data = bytearray(files[path])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def few_flips(rng: random.Random, path: str, files: Files) -> bytes:
    """Three bits."""
    data = bytearray(files[path])
    for _ in range(3):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def stretch(rng: random.Random, path: str, files: Files) -> bytes:
    """Some bytes in a row are others."""
    data = files[path]
    first = rng.randrange(len(data))
    length = min(rng.choice((2, 8, 64, 512)), len(data) - first)
    return data[:first] + rng.randbytes(length) + data[first + length :]


def zeros(rng: random.Random, path: str, files: Files) -> bytes:
    """Some bytes in a row, or all, are zero."""
    data = files[path]
    first = rng.choice((0, rng.randrange(len(data))))
    length = min(rng.choice((1, 8, 64, 512, len(data))), len(data) - first)
    return data[:first] + bytes(length) + data[first + length :]


def cut(rng: random.Random, path: str, files: Files) -> bytes:
    """The end is missing."""
    return files[path][: rng.randrange(len(files[path]))]


def doubled_tail(rng: random.Random, path: str, files: Files) -> bytes:
    """The last bytes are there twice."""
    data = files[path]
    return data + data[-rng.choice((1, 8, 64, len(data))) :]


def swap(rng: random.Random, path: str, files: Files) -> bytes:
    """Two stretches change places."""
    data = bytearray(files[path])
    length = rng.choice((1, 2, 8, 32))
    low, high = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    one, other = data[low : low + length], data[high : high + length]
    if low + length <= high and len(other) == length:
        data[low : low + length], data[high : high + length] = other, one
    return bytes(data)


def another(rng: random.Random, path: str, files: Files) -> bytes:
    """The content of another file of its kind."""
    others = sorted(one for one in files if kind_of(one) == kind_of(path) and one != path)
    return files[rng.choice(others)] if others else files[path]


def another_kind(rng: random.Random, path: str, files: Files) -> bytes:
    """The content of a file of another kind."""
    return files[rng.choice(sorted(one for one in files if kind_of(one) != kind_of(path)))]


def empty(rng: random.Random, path: str, files: Files) -> bytes:
    """Nothing is left in the file."""
    return b""


def deleted(rng: random.Random, path: str, files: Files) -> None:
    """The file is gone."""


DAMAGES: tuple[Damage, ...] = (
    flip, flip, few_flips, stretch, zeros, cut, doubled_tail, swap, another, another_kind, empty, deleted,
)  # fmt: skip


@record
class Case:
    """What is damaged, and its bytes after that; None: it is gone."""

    text: str
    table: str
    path: str
    damage: str
    data: bytes | None


def case(seed: int, number: int) -> Case:
    """Return a case: every kind of file is as likely."""
    rng = random.Random(f"{seed}/{number}")
    name = rng.choice(sorted(TABLES))
    _, files, _ = sound(name)
    kinds: dict[str, list[str]] = {}
    for path in sorted(files):
        if files[path]:
            kinds.setdefault(kind_of(path), []).append(path)
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    how = rng.choice(DAMAGES)
    data = how(rng, path, files)
    damage = how.__name__.replace("_", " ")
    text = f"case {number} of seed {seed}: {damage}, {path} of {name}"
    return Case(text=text, table=name, path=path, damage=damage, data=data)


def is_noticed_deep(told: Story) -> bool:
    """Whether deep verification finds or warns of something, or the table does not even open."""
    try:
        report = told.reopened().verify(deep=True)
        return bool(report.problems or report.warnings)
    except LsmError:
        return True


def cannot_be_noticed(one: Case) -> bool:
    """Whether nothing names the file: a hint is advice, and what is gone as a whole left no trace.

    A branch keeps the tag that it was made from: under the same name, of the same snapshot.
    """
    kind, name = kind_of(one.path), one.path.rpartition("/")[2]
    twins = {path for path in sound(one.table)[1] if path.endswith(f"/{name}")} - {one.path}
    is_twin = name.startswith("tag-") and one.data in map(sound(one.table)[1].get, twins)
    return kind == "hint" or is_twin or leaves_no_trace(one)


def leaves_no_trace(one: Case) -> bool:
    """Whether a file is gone that nothing names: what it kept goes, too."""
    return one.damage == "deleted" and kind_of(one.path) in NAMED_BY_NOTHING


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


OF_THE_NEWEST = ("newest", "lookup", "few rows", "few keys")
"""Ways to read the newest state."""


def maintained(told: Story, act: str) -> tuple[Story, bool]:
    """A copy of the table's files after an act of maintenance, and whether that was refused."""
    other = copied(told)
    try:
        ACTS[act](other.reopened())
    except LsmError:
        return other, True
    return other, False


@cache
def left_of_sound(name: str, act: str) -> frozenset[str]:
    """The files that an act leaves of the sound table."""
    return frozenset(maintained(sound(name)[0], act)[0].files())


def check_act(told: Story, act: str, one: Case, before: State) -> str:
    """An act on a damaged table does no more harm than on a sound one; returns how it ended.

    A restore may give back older rows of its keys, which its report counts.
    """
    damaged_files = contents(told)
    other, is_refused = maintained(told, act)
    if is_refused:
        there = contents(other)
        assert {path: there.get(path) for path in damaged_files} == damaged_files, (one.text, act)
    elif act != "restore" and not leaves_no_trace(one):
        kept = left_of_sound(one.table, act) & set(damaged_files)
        assert other.files() >= kept, (one.text, act, sorted(kept - other.files()))
    left = seen(other)
    changing = (
        "changes",
        *(OF_THE_NEWEST if act in ("roll back", "expire partitions") else ()),
    )
    if act == "restore" and left.get("newest", before["newest"]) != before["newest"]:
        assert {*left["newest"]} <= set().union(*before.values()), (one.text, act)
        assert len(left["newest"]) == len(before["newest"]), (one.text, act)
        changing = ("changes", *OF_THE_NEWEST)
    for state, rows in left.items():
        if state not in changing and (state in before or len(changing) == 1):
            assert rows == before.get(state, before["newest"]), (one.text, act, state)
    return "refused" if is_refused else "done"


def check(one: Case, act: str | None) -> tuple[str, str]:
    """How a case was noticed, or that its bytes are the same; how the act ended. AssertionError: it was not."""
    told, files, before = sound(one.table)
    if one.data == files[one.path]:
        return "same bytes", ""
    if one.data is None:
        told.disk.delete(one.path)
    else:
        told.disk.replace(one.path, one.data)
    try:
        after = seen(told, before)
        for state, rows in after.items():
            assert rows == before.get(state, rows), (one.text, state)
        by_verify = is_noticed_deep(told)
        assert by_verify or cannot_be_noticed(one), one.text
        ended = "" if act is None else check_act(told, act, one, before)
    finally:
        told.disk.replace(one.path, files[one.path])
    if len(after) < len(before):
        return ("refused" if by_verify else "refused, not verified"), ended
    return ("found by verify" if by_verify else "harmless"), ended


@record
class Outcome:
    """How cases ended, by kind of file and damage, and acts; `failures`: what must not happen."""

    cases: Counter[tuple[str, str, str]]
    acts: Counter[tuple[str, str]]
    failures: tuple[str, ...]


def run(seed: int, numbers: range) -> Outcome:
    """Run some cases in this process."""
    cases: Counter[tuple[str, str, str]] = Counter()
    acts: Counter[tuple[str, str]] = Counter()
    failures = []
    for number in numbers:
        one = case(seed, number)
        act = list(ACTS)[number // 3 % len(ACTS)] if number % 3 == 0 else None
        try:
            how, ended = check(one, act)
        except Exception:  # noqa: BLE001 - whatever goes wrong is what is looked for
            how, ended = "FAILED", ""
            failures.append(f"{one.text}, then {act}\n{traceback.format_exc(limit=-3)}")
        cases[kind_of(one.path), one.damage, how] += 1
        if act is not None and ended:
            acts[act, ended] += 1
    return Outcome(cases=cases, acts=acts, failures=tuple(failures))


def campaign(cases: int, seed: int, processes: int) -> Outcome:
    """Run cases on several processes, which give way to everything else on the machine."""
    total = Outcome(cases=Counter(), acts=Counter(), failures=())
    parts = [range(at, min(at + AT_ONCE, cases)) for at in range(0, cases, AT_ONCE)]
    with ProcessPoolExecutor(processes, get_context("spawn"), os.nice, (19,)) as pool:
        asked = [pool.submit(run, seed, part) for part in parts]
        for count, done in enumerate(as_completed(asked), 1):
            one = done.result()
            print(f"{count} of {len(asked)} parts", end="\r", file=sys.stderr, flush=True)
            for failure in one.failures:
                print(failure, flush=True)
            total = Outcome(
                cases=total.cases + one.cases,
                acts=total.acts + one.acts,
                failures=total.failures + one.failures,
            )
    return total


def main() -> int:
    """Print how the cases ended by kind of file, by damage, and the acts of maintenance."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    found = campaign(**vars(parser.parse_args()))
    for at, title in ((0, "kind of file"), (1, "damage")):
        print(f"\n{title}")
        for name in sorted({key[at] for key in found.cases}):
            ends: Counter[str] = Counter()
            for key, count in found.cases.items():
                ends[key[2]] += count * (key[at] == name)
            print(f"  {name:28} {sum(ends.values()):5}  {dict(+ends)}")
    ends = Counter(how for _, _, how in found.cases.elements())
    print(f"\nall: {dict(ends)}; acts of maintenance: {dict(sorted(found.acts.items()))}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
