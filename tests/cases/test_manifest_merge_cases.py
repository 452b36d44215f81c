"""Which manifests of a base list become one."""

from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.commit import (
    Keep,
    changed_manifests,
    plan_full_merge,
    plan_manifest_merge,
    plan_rewrite,
    roll,
)
from tests.cases.notation import entries, place
from tests.unit.planning.facts import manifest


def manifests(text):
    """`m:900 +3 -1 b1-4 L0-5`, words after the first in any order; a comma before the next."""
    made = []
    for words in (part.split() for part in text.split(",")):
        name, size = words[0].split(":")
        given = {word[0]: word[1:] for word in words[1:]}
        ranges = {
            kind: tuple(int(end) for end in given[sign].split("-"))
            for kind, sign in (("buckets", "b"), ("levels", "L"))
            if sign in given
        }
        made.append(
            manifest(
                name,
                int(size),
                added=int(given.get("+", 1)),
                deleted=int(given.get("-", 0)),
                **ranges,
            )
        )
    return made


def show(merge):
    shown = []
    for part in merge.parts:
        if isinstance(part, Keep):
            shown.append(part.meta.file_name)
        else:
            of_all = "!" if part.is_complete else ""
            shown.append("[" + " ".join(meta.file_name for meta in part.metas) + "]" + of_all)
    assert [meta.file_name for meta in merge.remaining] == [one for one in shown if one[0] != "["]
    assert len(merge.groups) == sum(one[0] == "[" for one in shown)
    return f"{' '.join(shown) or 'empty'}: {merge.reason}"


def merge(case):
    metas = manifests(case["manifests"])
    target = int(case.get("target", 100))
    if "groups of" in case:
        return "; ".join(
            f"{group.number}: {' '.join(meta.file_name for meta in group.metas)}, {group.size_bytes} bytes"
            for group in plan_rewrite(metas, target_size_bytes=int(case["groups of"]))
        )
    if "min count" in case:
        found = plan_manifest_merge(
            metas, target_size_bytes=target, min_count=int(case["min count"])
        )
        return show(found)
    if "full threshold" in case:
        due = changed_manifests(metas, full_threshold_bytes=int(case["full threshold"]))
        return " ".join(meta.file_name for meta in due) or "not due"
    asked = []

    def may_hold(metas, partitions):
        asked.append(" ".join(place(one, 0).removesuffix("b0") or "/" for one in partitions))
        return [meta.file_name in case.get("may hold", "").split() for meta in metas]

    deletes = [
        (one.partition, one.bucket, one.file.level) for one in entries(case.get("deletes", ""))
    ]
    found = plan_full_merge(metas, deletes, target_size_bytes=target, may_hold=may_hold)
    return "\n".join([show(found), *(f"asked for partitions: {one}" for one in asked)])


def test_manifest_merge(check_cases):
    check_cases("manifest_merge", merge)


def test_rolling_gives_each_manifest_an_entry_at_least():
    live = entries("+a +b +c")
    assert all(one.kind is EntryKind.ADD for one in live)
    assert [len(piece) for piece in roll(live, bytes_per_entry=0, target_size_bytes=2)] == [2, 1]
    assert [len(piece) for piece in roll(live, bytes_per_entry=9, target_size_bytes=2)] == [1, 1, 1]
    assert [len(piece) for piece in roll(live, bytes_per_entry=1, target_size_bytes=2)] == [2, 1]
