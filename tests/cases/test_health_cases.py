"""What facts about a table make a finding, how bad it is, and which command mends it, as text tables."""

import shlex

from lsm_engine.planning.health import (
    DAY_MILLIS,
    BucketFacts,
    DamageFacts,
    DebtFacts,
    LiveSnapshots,
    PinFacts,
    TableFacts,
    catalog_findings,
    findings,
    lineage_drift,
)

MB = 1 << 20


def amounts(text):
    """`buckets=2 runs=9 size=30 waiting` as a dictionary; a word alone is true."""
    words = [word.partition("=") for word in text.split()]
    return {name: (int(value) if equals else True) for name, equals, value in words}


def debt(text):
    found = amounts(text)
    return DebtFacts(
        buckets=found["buckets"], runs=found["runs"], size_bytes=found.get("size", 1) * MB, waiting="waiting" in found
    )  # fmt: skip


def pins(text):
    """`name days [bounded] [@snapshot] [alone=MB]`, one to a line."""
    for line in text.splitlines():
        name, days, *more = line.split()
        alone = [int(word.partition("=")[2]) * MB for word in more if word.startswith("alone=")]
        at = [int(word[1:]) for word in more if word.startswith("@")]
        yield PinFacts(
            name=name, age_millis=int(days) * DAY_MILLIS, is_bounded="bounded" in more,
            at_snapshot=at[0] if at else None, only_size_bytes=alone[0] if alone else None,
        )  # fmt: skip


def damaged(text):
    """`path data|document [restorable] [live] [upto=ID] [rows=N] [tag=NAME]`, one to a line."""
    for line in text.splitlines():
        path, kind, *more = line.split()
        named = dict(word.split("=") for word in more if "=" in word)
        yield DamageFacts(
            path=path, problem=f"{path} is broken", is_data=kind == "data",
            is_snapshot=path.startswith("snapshot/"),
            rebuildable="restorable" in more, in_newest="live" in more, row_count=int(named.get("rows", 0)),
            newest_root=int(named["upto"]) if "upto" in named else None,
            tags=(named["tag"],) if "tag" in named else (),
        )  # fmt: skip


def shown(found):
    lines = []
    for one in found:
        lines.append(f"{one.severity.name.lower()} {one.kind}: {one.what}; {one.cost}")
        lines += [f"  lsm {shlex.join(one.command)}"] if one.command else []
        lines += [f"  loses {one.loses}"] if one.loses else []
    return "\n".join(lines) or "healthy"


def health(case):
    numbers = amounts(case.get("numbers", ""))
    buckets = [amounts(line) for line in case.get("partition", "").splitlines()]
    facts = TableFacts(
        table="db.t",
        problem=case.get("problem"),
        is_write_only="write-only" in case,
        newest_id=numbers.get("newest"),
        snapshot_count=numbers.get("snapshots", 0),
        expirable=numbers.get("expirable", 0),
        debt=debt(case["debt"]) if "debt" in case else None,
        small=debt(case["small"]) if "small" in case else None,
        unassigned_rows=numbers.get("unassigned", 0),
        buckets=tuple(
            BucketFacts(
                partition="",
                total=one["total"],
                sizes=(one["each"] * MB,) * one["with"],
                declared=one.get("declared", one["total"]),
            )
            for one in buckets
        ),
        tags=tuple(pins(case.get("tag", ""))),
        overdue_tags=tuple(case.get("overdue", "").split()),
        branches=tuple(pins(case.get("branch", ""))),
        consumers=tuple(pins(case.get("consumer", ""))),
        damage=tuple(damaged(case.get("damaged", ""))),
        other_problems=tuple(case.get("other", "").splitlines()),
        orphan_count=numbers.get("orphans", 0),
        orphan_bytes=numbers.get("orphans", 0) * MB,
        unfinished_uploads=numbers.get("uploads", 0),
        refused_options=(("option 'x.y' = '1'", "not known"),) if "refused" in case else (),
        at_odds=(("a fights b", "nothing works", ("--unset", "a")),) if "at odds" in case else (),
    )
    return shown(findings(facts))


def test_health(check_cases):
    check_cases("health", health)


def drift(case):
    """`recorded`: `table=1:a,2:b`, ids that are recorded as live with their lists; `there`: those of the
    table, or of a branch, `table@branch`."""

    def lists(name):
        pairs = (word.split("=") for word in case.get(name, "").split())
        return {
            table: {int(at): text for at, text in (one.split(":") for one in told.split(","))}
            for table, told in pairs
        }

    recorded = lists("recorded")
    drifts = {}
    for name, there in lists("there").items():
        table, _, branch = name.partition("@")
        live = LiveSnapshots(first=min(there), newest=max(there), lists=there)
        if found := lineage_drift(recorded.get(name, {}), live):
            drifts[table, branch] = found
    return shown(
        catalog_findings(case.get("known", "").split(), case.get("found", "").split(), drifts)
    )


def test_catalog_drift(check_cases):
    check_cases("catalog_drift", drift)
