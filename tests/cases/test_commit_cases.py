"""Decisions about one commit: what it has to check, what stands against it, what it publishes."""

from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.format.manifest import BucketScope
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.commit import (
    CommitRules,
    SnapshotFiles,
    index_entries_after,
    plan_commit,
    rewrites_index,
    snapshot_of,
)
from lsm_engine.planning.conflicts import find_conflict, find_vector_conflict
from lsm_engine.planning.ownership import already_committed, resolve_publish, same_state
from lsm_engine.planning.proposal import CommitStep, LiveChange
from tests.cases.notation import (
    entries,
    index_entries,
    place,
    show_entries,
    snapshot_like,
    snapshots,
)
from tests.unit.planning.facts import USER, key_order


def step_of(case):
    identifier = case.get("identifier", "1")
    properties = dict(word.split("=") for word in case.get("properties", "").split())
    return CommitStep(
        kind=CommitKind(case.get("step", "APPEND")),
        uuid=case.get("uuid", "u1"),
        commit_user=USER,
        commit_identifier=BATCH_COMMIT_IDENTIFIER if identifier == "batch" else int(identifier),
        delta=tuple(entries(case.get("delta", ""))),
        changelog=tuple(entries(case.get("changelog", ""))),
        index_changes=tuple(index_entries(case.get("index", ""))),
        properties=properties,
        watermark=int(case["watermark"]) if "watermark" in case else None,
    )


def plan_of(case):
    planned_on = snapshot_like(case.get("planned on", case.get("base", "none")))
    since = case.get("since", "")
    return plan_commit(
        step_of(case),
        snapshot_like(case.get("base", "none")),
        planned_on=planned_on,
        since=None if since == "unknown" else snapshots(since),
        change=LiveChange(deleted=tuple(entries(case.get("overwritten", "")))),
        rules=CommitRules(counts_differ="counts may differ" in case),
    )


def scope(case):
    found = plan_of(case).scope
    if found.is_empty:
        return "nothing"
    whole = [place(one, 0).removesuffix("b0") + "*" for one in sorted(found.partitions)]
    return "live entries of " + " ".join([*whole, *sorted(place(*key) for key in found.buckets)])


def written(case):
    plan = plan_of(case)
    files = SnapshotFiles(
        base_manifest_list="base-list",
        base_manifest_list_size=11,
        delta_manifest_list="delta-list",
        delta_manifest_list_size=12,
        changelog_manifest_list="changelog-list" if "changelog" in case else None,
        changelog_manifest_list_size=13 if "changelog" in case else None,
        index_manifest="new-index-manifest" if rewrites_index(plan) else None,
    )
    made = snapshot_of(
        plan, files, schema_id=3, now_millis=int(case.get("now", 100)), writer_version="9"
    )
    facts = {
        "empty": plan.is_empty,
        "delta": show_entries(plan.delta),
        "overwritten": " ".join(sorted(place(*key) for key in plan.overwritten)),
        "lists": f"{made.base_manifest_list}:{made.base_manifest_list_size} "
        f"{made.delta_manifest_list}:{made.delta_manifest_list_size} "
        f"{made.changelog_manifest_list}:{made.changelog_manifest_list_size}",
        "rows": f"total {made.total_record_count}, delta {made.delta_record_count}, "
        f"changelog {made.changelog_record_count}",
        "index manifest": made.index_manifest,
        "watermark": made.watermark,
        "statistics": made.statistics,
        "properties": made.properties,
        "next row id": made.next_row_id,
        "by": f"{made.commit_user} {made.commit_identifier} {made.uuid} {made.writer_version}",
    }
    head = f"{made.commit_kind.value} {made.id}, schema {made.schema_id}, at {made.time_millis}"
    return "\n".join(
        [
            head,
            *(f"  {name}: {fact}" for name, fact in facts.items() if fact not in (None, "", False)),
        ]
    )


def index_after(case):
    plan = plan_of(case)
    after = index_entries_after(index_entries(case.get("existing", "")), plan)
    names = " ".join(
        f"{place(one.partition, one.bucket)}/{one.index_file.file_name}" for one in after
    )
    return f"{'rewritten' if rewrites_index(plan) else 'inherited'}: {names}".strip()


def conflict(case):
    found = find_conflict(
        entries(case.get("delta", "")),
        entries(case.get("live", "")),
        key_order=None if "no key" in case else key_order,
    )
    if found is None:
        return "none"
    since = snapshots(case.get("since", ""))
    return f"{found.reason.value}: {found.since(since).error().message}"


def vector_conflict(case):
    planned = case.get("planned index", case.get("base index", ""))
    found = find_vector_conflict(
        plan_of({"base": "2", "planned on": "1", "since": "2"} | case),
        entries(case.get("live", "")),
        base_index=index_entries(case.get("base index", "")),
        planned_index=None if planned == "expired" else index_entries(planned.replace("none", "")),
    )
    return "none" if found is None else f"{found.reason.value}: {found.message}"


def replay(case):
    read = []

    def newest_first():
        for one in snapshots(case["snapshots"].replace("=batch", f"={BATCH_COMMIT_IDENTIFIER}")):
            read.append(one.id)
            yield one

    proof = already_committed(step_of(case), newest_first())
    verdict = "not committed before" if proof is None else f"committed as {proof.id}"
    return f"{verdict}; read {' '.join(map(str, read)) or 'nothing'}"


def attempted_of(case):
    found = snapshot_like(f"{case['attempted']} uuid={case['uuid']}")
    assert found is not None
    return found


def outcome(case):
    latest = case["latest"]
    return resolve_publish(
        attempted_of(case),
        stored=snapshot_like(case["found"]),
        latest_id=None if latest == "none" else int(latest),
    ).value


def test_commit_scope(check_cases):
    check_cases("commit_scope", scope)


def test_commit_snapshot(check_cases):
    check_cases("commit_snapshot", written)


def test_index_manifest(check_cases):
    check_cases("index_manifest", index_after)


def test_conflicts(check_cases):
    check_cases("conflicts", conflict)


def test_vector_conflicts(check_cases):
    check_cases("vector_conflicts", vector_conflict)


def test_replay(check_cases):
    check_cases("replay", replay)


def test_publish_outcome(check_cases):
    check_cases("publish_outcome", outcome)


def test_a_scope_holds_its_partitions_and_its_buckets():
    scope = BucketScope(partitions=frozenset({b"p"}), buckets=frozenset({(b"q", 1)}))
    assert scope(b"p", 0)
    assert scope(b"p", 7)
    assert scope(b"q", 1)
    assert not scope(b"q", 0)
    assert not scope(b"r", 1)
    assert not BucketScope(partitions=frozenset({b"p"})).is_empty
    assert not BucketScope(buckets=frozenset({(b"q", 1)})).is_empty


def test_the_same_state_is_the_same_commit():
    one = snapshot_like("5 uuid=x")
    assert same_state(one, snapshot_like("5 uuid=x"))
    assert not same_state(one, snapshot_like("5 uuid=y"))
    assert not same_state(one, None)
    assert not same_state(None, one)
    assert same_state(None, None)
