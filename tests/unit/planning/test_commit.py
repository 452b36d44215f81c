"""A committable becomes steps, a step on a base becomes a snapshot."""

import pickle
from dataclasses import replace

import pytest

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.format.commit_message import (
    CommitMessage,
    Committable,
    CompactIncrement,
    DataIncrement,
)
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.format.index_file import HASH, IndexFileMeta, IndexManifestEntry
from lsm_engine.format.manifest import BucketScope
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.planning.commit import (
    CommitPlan,
    CommitRules,
    SnapshotFiles,
    index_entries_after,
    plan_commit,
    rewrites_index,
    snapshot_of,
)
from lsm_engine.planning.ownership import PublishOutcome, already_committed, resolve_publish
from lsm_engine.planning.proposal import CommitStep, LiveChange, steps_of
from tests.unit.planning.facts import USER, data_file, entry, snapshot

FILES = SnapshotFiles(
    base_manifest_list="base", base_manifest_list_size=1,
    delta_manifest_list="delta", delta_manifest_list_size=2,
)  # fmt: skip


NO_DATA, NO_COMPACT = DataIncrement(), CompactIncrement()


def committable(
    data: DataIncrement = NO_DATA, compact: CompactIncrement = NO_COMPACT,
    *, identifier: int = 1, watermark: int | None = None,
) -> Committable:  # fmt: skip
    message = CommitMessage(
        partition=EMPTY_ROW, bucket=0, total_buckets=1, data=data, compact=compact
    )
    return Committable(
        commit_user=USER, messages=(message,), commit_identifier=identifier, watermark=watermark
    )


def steps(work: Committable, **how: CommitKind) -> tuple[CommitStep, ...]:
    return steps_of(work, uuids=("u1", "u2"), **how)


def told(step: CommitStep) -> str:
    signs = {EntryKind.ADD: "+", EntryKind.DELETE: "-"}
    return " ".join(f"{signs[e.kind]}{e.file.file_name}@{e.file.level}" for e in step.delta)


def append_step(*, identifier: int = 1, uuid: str = "u1") -> CommitStep:
    work = committable(DataIncrement(new_files=(data_file("a"),)), identifier=identifier)
    return steps_of(work, uuids=(uuid, "u2"))[0]


OVERWRITE = CommitKind.OVERWRITE
A, B, C = data_file("a"), data_file("b"), data_file("c", level=5)


@pytest.mark.parametrize(
    ("data", "compact", "how", "expected"),
    [
        (DataIncrement(), CompactIncrement(), {}, []),
        (DataIncrement(), CompactIncrement(), {"force": True}, ["APPEND "]),
        (DataIncrement(), CompactIncrement(), {"first": OVERWRITE}, ["OVERWRITE "]),
        (DataIncrement(new_files=(A,)), CompactIncrement(), {}, ["APPEND +a@0"]),
        (DataIncrement(new_files=(B,), deleted_files=(A,)), CompactIncrement(), {}, ["APPEND -a@0 +b@0"]),
        (DataIncrement(), CompactIncrement(before=(A, B), after=(C,)), {}, ["COMPACT -a@0 -b@0 +c@5"]),
        (DataIncrement(new_files=(A,)), CompactIncrement(before=(A,), after=(A.upgrade(5),)), {}, ["APPEND +a@0", "COMPACT -a@0 +a@5"]),
        (DataIncrement(new_files=(A,)), CompactIncrement(before=(A,), after=(C,)), {"first": OVERWRITE}, ["OVERWRITE +a@0", "COMPACT -a@0 +c@5"]),
        (DataIncrement(), CompactIncrement(before=(A, C), after=(C,)), {}, ["COMPACT -a@0"]),
        (DataIncrement(), CompactIncrement(before=(C,), after=(C,)), {}, []),
    ],
)  # fmt: skip
def test_steps(
    data: DataIncrement, compact: CompactIncrement, how: dict[str, bool], expected: list[str]
) -> None:
    assert [
        f"{step.kind.value} {told(step)}" for step in steps(committable(data, compact), **how)
    ] == expected


def test_every_step_has_its_own_uuid_and_the_same_identifier() -> None:
    first, second = steps(
        committable(DataIncrement(new_files=(A,)), CompactIncrement(before=(A,), after=(C,)))
    )
    assert (first.uuid, second.uuid) == ("u1", "u2")
    assert first.commit_identifier == second.commit_identifier


def test_changelog_belongs_to_its_step_and_not_to_an_overwrite() -> None:
    work = committable(
        DataIncrement(new_files=(A,), changelog_files=(B,)),
        CompactIncrement(before=(A,), after=(C,), changelog_files=(B,)),
    )
    assert [len(step.changelog) for step in steps(work)] == [1, 1]
    assert [len(step.changelog) for step in steps(work, first=OVERWRITE)] == [0, 1]


def test_index_files_and_properties_belong_to_every_step() -> None:
    file = IndexFileMeta(index_type=HASH, file_name="i", file_size=4, row_count=1)
    (made,) = steps(committable(compact=CompactIncrement(new_index_files=(file,))))
    assert (made.kind, [one.index_file for one in made.index_changes]) == (COMPACT, [file])
    (logged,) = steps(committable(compact=CompactIncrement(changelog_files=(B,))))
    assert [one.file for one in logged.changelog] == [B]
    work = replace(committable(DataIncrement(new_files=(A,))), properties={"stream": "s"})
    assert [step.properties for step in steps(work)] == [{"stream": "s"}]


def test_counts_add_up() -> None:
    (step,) = steps(
        committable(
            DataIncrement(
                new_files=(data_file("n", rows=7),), deleted_files=(data_file("o", rows=3),)
            )
        )
    )
    plan = plan_commit(step, snapshot(4, total=100), planned_on=None)
    assert (plan.snapshot_id, plan.delta_record_count, plan.total_record_count) == (5, 4, 104)
    first = plan_commit(step, None, planned_on=None)
    assert (first.snapshot_id, first.total_record_count) == (1, 4)
    assert plan_commit(step, snapshot(4, total=None), planned_on=None).total_record_count is None


def test_an_overwrite_deletes_what_the_base_it_lands_on_holds() -> None:
    (step,) = steps(committable(DataIncrement(new_files=(A,))), first=OVERWRITE)
    for base, live in (
        (snapshot(1, total=10), [entry("x")]),
        (snapshot(2, total=30), [entry("x"), entry("y", rows=20)]),
    ):
        plan = plan_commit(step, base, planned_on=None, change=LiveChange(deleted=tuple(live)))
        assert {e.file.file_name for e in plan.delta if e.kind is EntryKind.DELETE} == {
            e.file.file_name for e in live
        }
        assert plan.total_record_count == 10


def test_an_overwrite_of_nothing_with_nothing_is_empty() -> None:
    (step,) = steps(committable(), first=OVERWRITE)
    assert plan_commit(step, snapshot(1), planned_on=None).is_empty
    assert not plan_commit(
        step, snapshot(1), planned_on=None, change=LiveChange(deleted=(entry("x"),))
    ).is_empty


BUCKETS = frozenset({(EMPTY_ROW, 0)})


@pytest.mark.parametrize(
    ("data", "compact", "base", "planned_on", "since", "expected"),
    [
        # nothing has happened since: whoever planned has seen it all
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(3), snapshot(3), (), BucketScope()),
        (DataIncrement(), CompactIncrement(before=(A,), after=(C,)), snapshot(3), snapshot(3), (), BucketScope()),
        # the same id after a rollback is another state
        (DataIncrement(), CompactIncrement(before=(A,), after=(C,)), snapshot(3, uuid="new"), snapshot(3), (), BucketScope(buckets=BUCKETS)),
        # plain appends never meet
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(4), snapshot(3), (snapshot(4),), BucketScope()),
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(4), snapshot(3), (snapshot(4, CommitKind.COMPACT),), BucketScope()),
        # unless a partition may have been rescaled in between
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(4), snapshot(3), (snapshot(4, CommitKind.OVERWRITE),), BucketScope(partitions=frozenset({EMPTY_ROW}))),
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(4), snapshot(3), (snapshot(4, schema_id=1),), BucketScope(partitions=frozenset({EMPTY_ROW}))),
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(4), snapshot(3), None, BucketScope(partitions=frozenset({EMPTY_ROW}))),
        (DataIncrement(new_files=(A,)), CompactIncrement(), snapshot(1), None, (snapshot(1),), BucketScope(partitions=frozenset({EMPTY_ROW}))),
        # or it takes files away, or puts them below level 0
        (DataIncrement(new_files=(B,), deleted_files=(A,)), CompactIncrement(), snapshot(4), snapshot(3), (snapshot(4),), BucketScope(buckets=BUCKETS)),
        (DataIncrement(new_files=(C,)), CompactIncrement(), snapshot(4), snapshot(3), (snapshot(4),), BucketScope(buckets=BUCKETS)),
        (DataIncrement(), CompactIncrement(before=(A,), after=(C,)), snapshot(4), snapshot(3), (snapshot(4),), BucketScope(buckets=BUCKETS)),
    ],
)  # fmt: skip
def test_what_has_to_be_checked(
    data: DataIncrement, compact: CompactIncrement, base: Snapshot, planned_on: Snapshot | None,
    since: tuple[Snapshot, ...] | None, expected: BucketScope,
) -> None:  # fmt: skip
    (step,) = steps(committable(data, compact))
    assert plan_commit(step, base, planned_on=planned_on, since=since).scope == expected


def plan_on(base: Snapshot | None, work: Committable | None = None, **how: bool) -> CommitPlan:
    (step,) = steps(work or committable(DataIncrement(new_files=(A,))), **how)
    return plan_commit(step, base, planned_on=base)


def test_a_snapshot_says_what_was_planned() -> None:
    made = snapshot_of(plan_on(snapshot(6, total=5)), FILES, schema_id=2, now_millis=77)
    assert (made.id, made.schema_id, made.commit_kind, made.uuid) == (7, 2, CommitKind.APPEND, "u1")
    assert (made.total_record_count, made.delta_record_count) == (15, 10)
    assert made.changelog_manifest_list is None
    assert made.changelog_record_count is None


def test_time_never_runs_backwards() -> None:
    base = snapshot(1, time_millis=500)
    assert snapshot_of(plan_on(base), FILES, schema_id=0, now_millis=400).time_millis == 500
    assert snapshot_of(plan_on(base), FILES, schema_id=0, now_millis=600).time_millis == 600


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [(None, None, None), (3, None, 3), (None, 4, 4), (3, 4, 4), (5, 4, 5)],
)
def test_watermarks_only_rise(ours: int | None, theirs: int | None, expected: int | None) -> None:
    work = committable(DataIncrement(new_files=(A,)), watermark=ours)
    plan = plan_on(snapshot(1, watermark=theirs), work)
    assert snapshot_of(plan, FILES, schema_id=0, now_millis=1).watermark == expected


def test_index_and_statistics_live_on_unless_overwritten() -> None:
    base = snapshot(1, index_manifest="index-manifest", statistics="stat")
    kept = snapshot_of(plan_on(base), FILES, schema_id=0, now_millis=1)
    assert (kept.index_manifest, kept.statistics) == ("index-manifest", "stat")
    (step,) = steps(committable(DataIncrement(new_files=(A,))), first=OVERWRITE)
    plan = plan_commit(step, base, planned_on=base, change=LiveChange(deleted=(entry("x"),)))
    made = snapshot_of(plan, FILES, schema_id=0, now_millis=1)
    assert rewrites_index(plan)
    assert (made.index_manifest, made.statistics) == (None, None)


def planned(change: LiveChange, base: Snapshot | None, data: DataIncrement = NO_DATA) -> CommitPlan:
    found = steps(committable(data), first=OVERWRITE)
    step = found[0] if found else replace(append_step(), delta=(), kind=OVERWRITE)
    return plan_commit(step, base, planned_on=base, change=change)


def test_a_plan_is_empty_unless_it_changes_anything() -> None:
    base = snapshot(4)
    assert planned(LiveChange(), base).is_empty
    assert not planned(LiveChange(), base, DataIncrement(new_files=(A,))).is_empty
    assert not planned(LiveChange(state=snapshot(2)), base).is_empty
    assert not planned(LiveChange(rewrites_manifests=True), base).is_empty


def test_the_last_snapshot_id_is_refused() -> None:
    assert plan_on(snapshot(2**63 - 2)).snapshot_id == 2**63 - 1
    with pytest.raises(UnsupportedError, match="no snapshot id left"):
        plan_on(snapshot(2**63 - 1))


def test_files_that_come_back_are_added_between_what_goes_and_what_is_new() -> None:
    change = LiveChange(deleted=(entry("x"),), back=(entry("y", rows=7),))
    plan = planned(change, snapshot(4, total=30), DataIncrement(new_files=(A,)))
    assert [(e.kind, e.file.file_name) for e in plan.delta] == [
        (EntryKind.DELETE, "x"), (EntryKind.ADD, "y"), (EntryKind.ADD, "a"),
    ]  # fmt: skip
    assert (plan.delta_record_count, plan.total_record_count) == (7, 37)


def test_rows_get_ids_where_the_table_tracks_them() -> None:
    new = replace(A, file_source=FileSource.APPEND)
    (step,) = steps(committable(DataIncrement(new_files=(new,))))
    base = replace(snapshot(4), next_row_id=70)
    plan = plan_commit(step, base, planned_on=base, rules=CommitRules(tracks_rows=True))
    assert (plan.delta[0].file.first_row_id, plan.next_row_id) == (70, 80)
    plan = plan_commit(step, base, planned_on=base)
    assert (plan.delta[0].file.first_row_id, plan.next_row_id) == (None, 70)


def test_a_former_state_brings_its_index_and_watermark() -> None:
    base = snapshot(6, index_manifest="new-index", watermark=9, statistics="stat")
    state = replace(
        snapshot(2, index_manifest="old-index", watermark=3),
        checksums={"old-index": 55, "other": 1},
    )
    plan = planned(LiveChange(state=state, deleted=(entry("x"),)), base)
    made = snapshot_of(plan, replace(FILES, checksums={"base": 4}), schema_id=0, now_millis=1)
    assert not rewrites_index(plan)
    assert (made.index_manifest, made.watermark) == ("old-index", 3)
    assert made.checksums == {"base": 4, "old-index": 55}


@pytest.mark.parametrize(
    ("index", "of_base", "new", "expected"),
    [
        ("i", {"i": 7}, {"base": 4}, {"base": 4, "i": 7}),
        ("i", None, {"base": 4}, {"base": 4}),
        ("i", {"other": 7}, {"base": 4}, {"base": 4}),
        (None, {"i": 7}, {"base": 4}, {"base": 4}),
        (None, None, {}, None),
        ("i", {"i": 7}, {}, {"i": 7}),
    ],
)
def test_checksums_of_what_lives_on_do(
    index: str | None, of_base: dict[str, int] | None, new: dict[str, int],
    expected: dict[str, int] | None,
) -> None:  # fmt: skip
    plan = plan_on(replace(snapshot(1, index_manifest=index), checksums=of_base))
    files = replace(FILES, checksums=new)
    assert snapshot_of(plan, files, schema_id=0, now_millis=1).checksums == expected


def test_an_index_that_is_written_anew_keeps_no_old_checksum() -> None:
    base = replace(snapshot(1, index_manifest="i"), checksums={"i": 7})
    plan = planned(LiveChange(deleted=(entry("x"),)), base, DataIncrement(new_files=(A,)))
    assert rewrites_index(plan)
    assert snapshot_of(plan, FILES, schema_id=0, now_millis=1).checksums is None


def test_the_first_snapshot_has_checksums_of_its_own_files_alone() -> None:
    made = snapshot_of(
        plan_on(None), replace(FILES, checksums={"base": 4}), schema_id=0, now_millis=1
    )
    assert made.checksums == {"base": 4}


def test_statistics_go_with_an_overwrite_or_as_asked() -> None:
    base = snapshot(1, statistics="stat")
    dropped = plan_commit(
        append_step(), base, planned_on=base, change=LiveChange(drops_statistics=True)
    )
    assert snapshot_of(dropped, FILES, schema_id=0, now_millis=1).statistics is None


def test_new_columns_of_old_rows_are_checked_against_them() -> None:
    """Their bucket may have been rewritten since, and the rows with it."""
    columns = replace(A, first_row_id=30)
    message = CommitMessage(
        partition=b"p", bucket=3, total_buckets=4,
        data=DataIncrement(new_files=(columns,)), compact=NO_COMPACT,
    )  # fmt: skip
    (step,) = steps(Committable(commit_user=USER, messages=(message,), commit_identifier=1))
    plan = plan_commit(
        step,
        snapshot(4),
        planned_on=snapshot(3),
        since=(snapshot(4),),
        rules=CommitRules(tracks_rows=True),
    )
    assert plan.scope == BucketScope(buckets=frozenset({(b"p", 3)}))
    unchanged = plan_commit(
        step, snapshot(4), planned_on=snapshot(4), rules=CommitRules(tracks_rows=True)
    )
    assert unchanged.scope.is_empty


def test_index_files_are_listed_whole() -> None:
    def index(name: str, bucket: int, kind: EntryKind = EntryKind.ADD) -> IndexManifestEntry:
        file = IndexFileMeta(index_type=HASH, file_name=name, file_size=4, row_count=1)
        return IndexManifestEntry(kind=kind, partition=EMPTY_ROW, bucket=bucket, index_file=file)

    old, new = (index(name, 0).index_file for name in ("old", "new"))
    data = DataIncrement(new_files=(A,), deleted_index_files=(old,), new_index_files=(new,))
    (step,) = steps(committable(data))
    plan = plan_commit(step, snapshot(1), planned_on=None)
    assert rewrites_index(plan)
    after = index_entries_after([index("old", 0), index("other", 1)], plan)
    assert [change.index_file.file_name for change in after] == ["other", "new"]


def test_a_plan_pickles() -> None:
    plan = plan_on(snapshot(1))
    assert pickle.loads(pickle.dumps(plan)) == plan


def seen(*said: tuple[str, int, CommitKind, str | None]) -> list[Snapshot]:
    return [
        snapshot(90 - n, kind, user=user, identifier=identifier, uuid=uuid)
        for n, (user, identifier, kind, uuid) in enumerate(said)
    ]


APPEND, COMPACT, BATCH = CommitKind.APPEND, CommitKind.COMPACT, BATCH_COMMIT_IDENTIFIER


@pytest.mark.parametrize(
    ("identifier", "history", "expected"),
    [
        (5, seen(), None),
        (5, seen((USER, 5, APPEND, None)), 90),
        (5, seen((USER, 5, COMPACT, None), (USER, 5, APPEND, None)), 89),
        (5, seen((USER, 5, COMPACT, None)), None),
        (5, seen(("bob", 5, APPEND, None)), None),
        (5, seen((USER, 4, APPEND, None), (USER, 5, APPEND, None)), None),  # not read any further
        (5, seen((USER, 6, APPEND, None)), 90),  # ours has expired, or was empty
        (5, seen((USER, BATCH, APPEND, None)), None),
        (BATCH, seen((USER, BATCH, APPEND, "other")), None),
        (BATCH, seen((USER, BATCH, APPEND, None)), None),
        (BATCH, seen(("bob", 1, APPEND, None), (USER, BATCH, APPEND, "u1")), 89),
        (5, seen(("renamed", 9, APPEND, "u1")), 90),
    ],
)  # fmt: skip
def test_replay(identifier: int, history: list[Snapshot], expected: int | None) -> None:
    proof = already_committed(append_step(identifier=identifier), history)
    assert (proof and proof.id) == expected


@pytest.mark.parametrize(
    ("found", "latest", "expected"),
    [
        (snapshot(7, uuid="u1"), 7, PublishOutcome.LANDED),
        (snapshot(7, uuid="u1"), 9, PublishOutcome.LANDED),
        (snapshot(7, uuid="else"), 7, PublishOutcome.LOST),
        (snapshot(7, uuid=None), 7, PublishOutcome.LOST),
        (None, 6, PublishOutcome.ABSENT),
        (None, None, PublishOutcome.ABSENT),
        (None, 7, PublishOutcome.UNKNOWN),
        (None, 60, PublishOutcome.UNKNOWN),
    ],
)
def test_a_lost_answer(
    found: Snapshot | None, latest: int | None, expected: PublishOutcome
) -> None:
    assert resolve_publish(snapshot(7, uuid="u1"), stored=found, latest_id=latest) is expected
