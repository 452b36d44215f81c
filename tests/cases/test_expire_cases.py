"""Decisions about history: which snapshots, changelogs and tags go, and which files go with them."""

from dataclasses import replace
from datetime import datetime

from lsm_engine.format.tag import Tag
from lsm_engine.planning.expire import (
    ExpirePlan,
    MetadataNames,
    RetainedFiles,
    candidate_buckets,
    dead_candidates,
    plan_changelog_expiry,
    plan_expiry,
    plan_tag_removal,
    snapshots_to_replay,
)
from lsm_engine.planning.retention import (
    ExpiryChoice,
    Retention,
    choose_expired,
    choose_expired_changelogs,
    kept_of_passed,
)
from lsm_engine.planning.tags import expired_tags
from tests.cases.notation import entries, place, snapshots
from tests.unit.planning.facts import snapshot


def names_of(text):
    """`manifests m1 m2 | statistics s1`"""
    words = [part.split() for part in text.split("|") if part.strip()]
    return MetadataNames(**{one[0].replace("-", "_"): frozenset(one[1:]) for one in words})


def root_of(text):
    """`tag x | entries +a | changelog +c | files d | manifests m1`"""
    name, *parts = [part.strip() for part in text.split("|")]
    given = dict((*part.split(" ", 1), "")[:2] for part in parts)
    return RetainedFiles(
        name=name,
        entries=entries(given.pop("entries", "")),
        changelog=entries(given.pop("changelog", "")),
        file_names=frozenset(given.pop("files", "").split()),
        names=names_of("|".join(f"{kind} {some}" for kind, some in given.items())),
    )


def show_files(files):
    shown = []
    for file in files:
        beside = f" with {' '.join(file.extra_files)}" if file.extra_files else ""
        outside = f" at {file.external_path}" if file.external_path else ""
        shown.append(f"{place(file.partition, file.bucket)}/{file.file_name}{beside}{outside}")
    return ", ".join(shown)


def ids(some):
    return " ".join(str(one.id) for one in some)


def expire(case):
    names = names_of(case.get("names", ""))
    kept = [root_of(line) for line in case.get("kept", "").splitlines()]
    expired, changelogs = snapshots(case.get("expired", "")), entries(case.get("changelog", ""))
    tags = [Tag(name=name, snapshot=snapshot(1)) for name in case.get("tags", "").split()]
    state = entries(case.get("state", ""))
    if "tags" in case:
        plan = plan_tag_removal(state, names, kept, reason="asked", tags=tags)
    elif "expired changelogs" in case:
        gone = snapshots(case["expired changelogs"])
        plan = plan_changelog_expiry(
            gone, state, changelogs, names=names, retained=kept, reason="old"
        )
    else:
        choice = ExpiryChoice(
            expired=tuple(expired), retained=tuple(snapshots(case.get("left", ""))), reason="old"
        )
        candidates = dead_candidates(entries(case.get("deltas", "")))
        outlived = snapshots(case.get("outlived", ""))
        plan = plan_expiry(
            choice, candidates, changelogs=changelogs, names=names, retained=kept, outlived=outlived
        )
    metadata = {
        name.replace("_", "-"): " ".join(sorted(getattr(plan.metadata, name)))
        for name in plan.metadata.__slots__
    }
    facts = {
        "changelogs written": ids(plan.outlived),
        "tags": " ".join(tag.name for tag in plan.tags),
        "data files": show_files(plan.data_files),
        "changelog files": show_files(plan.changelog_files),
        **metadata,
        "snapshots": ids(plan.expired),
        "changelogs": ids(plan.expired_changelogs),
        "spared by": ", ".join(f"{name} ({count})" for name, count in plan.kept_by),
        "bytes": plan.freed_bytes,
    }
    assert plan.is_empty == (not any(facts[name] for name in facts if name not in UNCOUNTED))
    head = "nothing" if plan.is_empty else "removes"
    return "\n".join([head, *(f"  {name}: {fact}" for name, fact in facts.items() if fact)])


UNCOUNTED = ("changelogs written", "spared by", "bytes")


def dead(case):
    choice = ExpiryChoice(
        expired=tuple(snapshots(case["expired"])),
        retained=tuple(snapshots(case["left"])),
        reason="",
    )
    read = [one.id for one in snapshots_to_replay(choice)]
    found = dead_candidates(one for id in read for one in entries(case.get(f"delta {id}", "")))
    buckets = sorted(place(*bucket) for bucket in candidate_buckets(found))
    return (
        f"reads deltas {' '.join(map(str, read)) or 'none'}\n"
        f"may go: {show_files(found.values()) or 'nothing'}\n"
        f"asks the kept roots for {' '.join(buckets) or 'nothing'}"
    )


def retention(case):
    given = dict(word.split("=") for word in case["retention"].split())
    policy = Retention(
        retained_min=int(given.get("min", 1)),
        retained_max=int(given.get("max", 1000)),
        time_retained_millis=int(given.get("time", 0)),
        expire_limit=int(given.get("limit", 50)),
    )
    how = {
        "now_millis": int(case.get("now", 100)),
        "consumer_next_ids": [int(id) for id in case.get("consumers", "").split()],
    }
    left = snapshots(case.get("snapshots", ""))
    if "passed" in case:
        kept = kept_of_passed(left, snapshots(case["passed"]), policy, **how)
        return "keeps none of them" if kept is None else f"keeps them from {kept.id} on"
    if "changelogs" in case:
        gone = snapshots(case["changelogs"])
        choice = choose_expired_changelogs(gone, left, policy, **how)
    else:
        choice = choose_expired(left, policy, **how)
    return f"expire {ids(choice.expired) or 'none'}; keep {ids(choice.retained) or 'none'}: {choice.reason}"


def tags_over(case):
    made = []
    for line in case["tag"].splitlines():
        name, created, kept = line.split()
        stamp = None
        if created != "unknown":
            stamp = tuple(
                int(part) for part in created.replace("T", "-").replace(":", "-").split("-")
            )
        retained = None if kept == "forever" else int(kept)
        made.append(Tag(name=name, snapshot=snapshot(1), created=stamp, retained_millis=retained))
    over = expired_tags(made, local_now=datetime.fromisoformat(case["now"]))
    return " ".join(tag.name for tag in over) or "none"


def test_expire(check_cases):
    check_cases("expire", expire)


def test_dead_files(check_cases):
    check_cases("dead_files", dead)


def test_retention(check_cases):
    check_cases("retention", retention)


def test_tags(check_cases):
    check_cases("tags", tags_over)


def test_anything_to_remove_makes_a_plan():
    nothing: ExpirePlan = ExpirePlan(reason="asked")
    files = tuple(dead_candidates(entries("-a")).values())
    assert nothing.is_empty
    assert not replace(nothing, data_files=files).is_empty
    assert not replace(nothing, changelog_files=files).is_empty
    assert not replace(nothing, metadata=names_of("manifests m")).is_empty
    assert not ExpirePlan(reason="asked", tags=(Tag(name="x", snapshot=snapshot(1)),)).is_empty


def test_names_of_two_roots_are_united():
    both = names_of("manifests a | statistics s") | names_of("manifests b")
    assert both == names_of("manifests a b | statistics s")
