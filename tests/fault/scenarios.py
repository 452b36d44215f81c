"""Operations to be killed, failed and lied to: how a table comes to be, what is done, what may be seen."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lsm_engine.api.table import Table
from lsm_engine.base.errors import AlreadyExistsError, LsmError, NotFoundError
from lsm_engine.planning.tags import is_lock
from lsm_engine.storage.file_io import FileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.schema_changes import RemoveOption, SetOption
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.remembered_reads import remembered
from tests.model.changelog_replay import Replay
from tests.model.invariants import check_reachability, check_snapshot
from tests.model.stored_table import StoredTable
from tests.model.strategies import PARTITIONED_SHAPE, Layout, arrow_rows
from tests.model.table_model import DELETE, INSERT, Key, Row
from tests.model.world import START_MILLIS, components, create, read, reopen

SHAPE = PARTITIONED_SHAPE
LAYOUT = Layout(bucket=1, options=(("num-sorted-run.compaction-trigger", "3"),))
WRITE_ONLY = Layout(bucket=1, options=(("write-only", "true"),))
TOLD = Layout(bucket=1, options=(("changelog-producer", "lookup"), ("write-only", "true")))
MARKED = Layout(
    bucket=1,
    options=(
        ("num-sorted-run.compaction-trigger", "5"),
        ("deletion-vectors.enabled", "true"),
        # So that rows are seen also where the compaction after their commit fails.
        ("deletion-vectors.merge-on-read", "true"),
        ("changelog-producer", "lookup"),
    ),
)
USER, IDENTIFIER = "the-job", 7

Rows = Mapping[Key, Row]


def rows(first: int, count: int, value: str, kind: str = INSERT) -> Any:
    """Rows of two partitions and two buckets."""
    return arrow_rows(
        SHAPE,
        [
            (kind, (value, number % 2, f"key-{number}", 1000 * number))
            for number in range(first, first + count)
        ],
    )


@dataclass(frozen=True)
class View:
    """Everything that readers can see of a table; rows None: that snapshot cannot be read."""

    head: Rows
    snapshots: Mapping[int, Rows | None]
    tags: Mapping[str, Rows]
    branches: Mapping[str, Rows]


@dataclass(frozen=True)
class Scenario:
    """`prepare` makes the table that `act` is then done to. `expires`: old snapshots may go.

    `maintains`: it takes files away, or leaves some that nothing names. `rolls_back`: newer snapshots
    may go, all at once.
    """

    name: str
    prepare: Callable[[Table], None]
    act: Callable[[Table], object]
    layout: Layout = WRITE_ONLY
    expires: bool = False
    tags_touched: frozenset[str] = frozenset()
    sample: int = 3  # of its calls, how many CI disturbs at least
    numbered: bool = False  # the commit has an identifier, so that a retry must find it
    maintains: bool = False
    rolls_back: bool = False


def write_three_times(table: Table) -> None:
    table.upsert(rows(0, 8, "first"))
    table.upsert(rows(4, 8, "second"))
    table.delete(rows(0, 2, "", DELETE).select(["k", "p"]))
    table.create_tag("kept")


def write_until_compaction_is_due(table: Table) -> None:
    table.upsert(rows(0, 8, "first"))
    table.upsert(rows(4, 8, "second"))
    table.create_tag("kept")


def compact_and_write(table: Table) -> None:
    table.upsert(rows(0, 8, "first"))
    table.compact(full=True)
    table.upsert(rows(4, 6, "second"))
    table.delete(rows(0, 2, "", DELETE).select(["k", "p"]))
    table.create_tag("kept")


def write_and_compact(table: Table) -> None:
    write_three_times(table)
    table.compact(full=True)
    table.upsert(rows(2, 8, "third"))
    table.create_tag("other", 2)
    table.session.clock.sleep_millis(10_000_000)
    table.upsert(rows(0, 1, "fourth"))


def tag_and_expire(table: Table) -> None:
    write_and_compact(table)
    expire(table)


def expire(table: Table) -> object:
    return table.expire_snapshots(retain_min=1, retain_max=2, older_than="1 s")


def upsert_numbered(table: Table) -> object:
    return table.upsert(rows(2, 8, "new"), commit_user=USER, commit_identifier=IDENTIFIER)


def insert_numbered(table: Table) -> object:
    return table.insert(
        rows(2, 20, "new"), existing="skip", commit_user=USER, commit_identifier=IDENTIFIER
    )


def tag_new(table: Table) -> object:
    try:
        return table.create_tag("new", 2)
    except AlreadyExistsError:
        return None  # a retry of a creation that had landed


def untag(table: Table) -> object:
    try:
        return table.delete_tag("kept")
    except NotFoundError:
        return None


def retag(table: Table) -> object:
    return table.replace_tag("kept", 5)


def rename_tag(table: Table) -> object:
    try:
        return table.rename_tag("kept", "named anew")
    except NotFoundError:
        return None


def expire_all_tags(table: Table) -> object:
    table.session.clock.local_time = lambda: (2024, 6, 1, 0, 0, 0, 0)  # type: ignore[attr-defined]
    return table.expire_tags()


def brief_tag_and_expire(table: Table) -> None:
    write_and_compact(table)
    table.create_tag("brief", 2, "1 s")
    expire(table)


def write_with_changelogs(table: Table) -> None:
    for count in range(4):
        table.upsert(rows(3 * count, 3, f"value {count}"))
        table.session.clock.sleep_millis(10_000)
    table.create_tag("kept", 2)


def changelogs_to_expire(table: Table) -> None:
    write_with_changelogs(table)
    table.expire_snapshots()
    for count in range(4, 6):
        table.upsert(rows(3 * count, 3, f"value {count}"))
        table.session.clock.sleep_millis(10_000)


def branched(table: Table) -> None:
    write_three_times(table)
    table.create_branch("fix", "kept")
    fix = table.branch("fix")
    fix.upsert(rows(2, 4, "fixed"))
    fix.upsert(rows(8, 4, "fixed more"))
    fix.create_tag("done")


def create_branch(table: Table) -> object:
    try:
        return table.create_branch("new", "kept")
    except AlreadyExistsError:
        return None


def delete_branch(table: Table) -> object:
    try:
        return table.delete_branch("fix")
    except NotFoundError:
        return None


def rename_branch(table: Table) -> object:
    try:
        return table.rename_branch("fix", "named anew")
    except NotFoundError:
        return None


def strays(table: Table) -> None:
    """Files that nothing names, beside roots of every kind."""
    branched(table)
    table.branch("fix").delete_tag("done")
    table.create_tag("alone", 2)
    table.compact(full=True)
    table.session.clock.sleep_millis(10_000_000)
    table.upsert(rows(0, 1, "fourth"))
    expire(table)  # only tags and a branch name some files now
    for path in (
        "manifest/manifest-stray-0",
        "manifest/.half.tmp",
        "p=0/bucket-0/data-stray-0.parquet",
        "p=1/bucket-1/data-stray-1.parquet",
        "index/index-stray-0",
    ):
        table.session.file_io.write_new(path, b"stray")


def remove_orphans(table: Table) -> object:
    return table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)


CHANGELOGS = Layout(
    bucket=1,
    options=(
        ("write-only", "true"),
        ("changelog-producer", "input"),
        ("snapshot.num-retained.min", "1"),
        ("snapshot.num-retained.max", "2"),
        ("snapshot.time-retained", "1 s"),
        ("changelog.num-retained.max", "4"),
        ("changelog.time-retained", "1 h"),
    ),
)
TRASH = Layout(bucket=1, options=(("write-only", "true"), ("maintenance.trash-retained", "1 d")))
LIFE = (
    Scenario("replace a tag", tag_and_expire, retag, tags_touched=frozenset({"kept"}), maintains=True),
    Scenario("rename a tag", tag_and_expire, rename_tag, tags_touched=frozenset({"kept", "named anew"})),
    Scenario("expire tags", brief_tag_and_expire,
             expire_all_tags, tags_touched=frozenset({"brief"}), maintains=True),
    Scenario("expire with changelogs", write_with_changelogs, lambda table: table.expire_snapshots(),
             layout=CHANGELOGS, expires=True, maintains=True),
    Scenario("expire changelogs", changelogs_to_expire, lambda table: table.expire_snapshots(),
             layout=CHANGELOGS, expires=True, maintains=True),
    Scenario("roll back", write_and_compact, lambda table: table.rollback_to(3),
             rolls_back=True, maintains=True),
    Scenario("roll back to a tag that outlived its snapshot", tag_and_expire,
             lambda table: table.rollback_to(tag="kept"),
             rolls_back=True, maintains=True, expires=True),
    Scenario("roll back as latest", write_and_compact, lambda table: table.rollback_to_as_latest(tag="kept")),
    Scenario("create a branch", write_three_times, create_branch),
    Scenario("delete a branch", branched, delete_branch, maintains=True),
    Scenario("rename a branch", branched, rename_branch, maintains=True),
    Scenario("fast-forward", branched, lambda table: table.fast_forward("fix"), tags_touched=frozenset({"done"})),
    Scenario("remove orphans", strays, remove_orphans, maintains=True),
    Scenario("rewrite manifests", write_and_compact, lambda table: table.compact_manifest(dry_run=False)),
    Scenario("expire into the trash", write_and_compact, expire, layout=TRASH, expires=True, maintains=True),
)  # fmt: skip

DYNAMIC = Layout(
    bucket=-1, options=(("write-only", "true"), ("dynamic-bucket.target-row-num", "2"))
)
WAITING = Layout(
    bucket=-2,
    options=(
        ("write-only", "true"),
        ("postpone.default-bucket-num", "2"),
    ),
)


def wait_and_compact(table: Table) -> None:
    write_three_times(table)
    at_once = "postpone.batch-write-fixed-bucket"
    table.alter(SetOption(key=at_once, value="false"))
    table.upsert(rows(3, 6, "waits"))
    table.upsert(rows(7, 3, "waits too"))
    table.alter(RemoveOption(key=at_once))


def write_and_rescale(table: Table) -> None:
    write_three_times(table)
    table.rescale(3, [{"p": 0}])


BUCKETS = (
    Scenario("commit to dynamic buckets", write_three_times, upsert_numbered,
             layout=DYNAMIC, numbered=True, sample=2),
    Scenario("rescale", write_and_rescale, lambda table: table.rescale(3), sample=2),
    Scenario("give buckets to rows that wait", wait_and_compact, lambda table: table.compact(),
             layout=WAITING, sample=2),
)  # fmt: skip

LIFE = tuple(replace(scenario, sample=2) for scenario in LIFE)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("first commit", lambda table: None, upsert_numbered, numbered=True),
        Scenario("commit", write_three_times, upsert_numbered, numbered=True),
        Scenario("insert", write_three_times, insert_numbered, numbered=True, sample=2),
        Scenario(
            "commit and compact",
            write_until_compaction_is_due,
            upsert_numbered,
            layout=LAYOUT,
            numbered=True,
        ),
        Scenario(
            "delete",
            write_three_times,
            lambda table: table.delete(rows(2, 4, "").select(["k", "p"])),
        ),
        Scenario("overwrite", write_three_times, lambda table: table.overwrite(rows(6, 3, "over"))),
        Scenario(
            "overwrite a partition",
            write_three_times,
            lambda table: table.overwrite(rows(0, 0, ""), {"p": 1}),
        ),
        Scenario(
            "compact",
            write_three_times,
            lambda table: table.compact(),
            layout=Layout(
                options=(("num-sorted-run.compaction-trigger", "2"), ("write-only", "true"))
            ),
        ),
        Scenario("compact fully", write_three_times, lambda table: table.compact(full=True)),
        Scenario(
            "compact with a changelog",
            compact_and_write,
            lambda table: table.compact(),
            layout=TOLD,
            sample=2,
        ),
        Scenario(
            "commit and compact with deletion vectors",
            compact_and_write,
            upsert_numbered,
            layout=MARKED,
            numbered=True,
            sample=1,
        ),
        Scenario("create a tag", write_three_times, tag_new, tags_touched=frozenset({"new"})),
        Scenario(
            "delete a tag",
            tag_and_expire,
            untag,
            tags_touched=frozenset({"kept"}),
            maintains=True,
        ),
        Scenario("expire", write_and_compact, expire, expires=True, maintains=True),
        *BUCKETS,
        *LIFE,
    )
}


def view(storage: FileIO) -> View:
    """Read everything, each part as a process that has just started."""
    table = open_again(storage)

    def part(root: str, name: object, **options: Any) -> Rows:
        return remembered(
            storage, root, name, lambda disk: read(open_again(disk), SHAPE, **options)
        )

    snapshots: dict[int, Rows | None] = {}
    for snapshot in table.snapshots():
        number, root = snapshot.id, f"snapshot/snapshot-{snapshot.id}"
        try:
            snapshots[number] = part(root, number, snapshot_id=number)
        except LsmError:
            snapshots[number] = None
    tags = {
        tag.name: part(f"tag/tag-{tag.name}", tag.name, tag=tag.name)
        for tag in table.tags()
        # Who was killed while a tag moved, or a state came back, leaves another for an hour.
        if not is_lock(tag.name)
    }
    branches = {
        name: remembered(
            storage,
            f"branch/branch-{name}/snapshot/LATEST",
            "branch",
            lambda disk, name=name: read(open_again(disk).branch(name), SHAPE),
        )
        for name in table.branches()
    }
    return View(part("snapshot/LATEST", "head"), snapshots, tags, branches)


def open_again(storage: FileIO, first_id: int = 500_000) -> Table:
    """Another process: its clock goes on, its ids are its own."""
    return reopen(
        components(storage, ManualClock(START_MILLIS + 20_000_000), NumberedIds(first=first_id))
    )


@cache
def _prepared(name: str) -> tuple[MemoryFileIO, View]:
    scenario = SCENARIOS[name]
    disk = MemoryFileIO()
    table = create(SHAPE, scenario.layout, components(disk))
    scenario.prepare(table)
    return disk, view(disk)


def prepared(name: str) -> tuple[MemoryFileIO, View]:
    """A disk with the table as it was before, of one's own, and what could be seen of it."""
    disk, before = _prepared(name)
    return clone(disk), before


@cache
def outcome(name: str) -> View:
    """What can be seen after the operation, undisturbed."""
    disk, _ = prepared(name)
    SCENARIOS[name].act(acting(disk))
    return view(disk)


def acting(storage: FileIO) -> Table:
    """The process that the operation is done by."""
    return reopen(
        components(storage, ManualClock(START_MILLIS + 15_000_000), NumberedIds(first=100_000))
    )


def clone(disk: MemoryFileIO) -> MemoryFileIO:
    """The same files again."""
    copy = MemoryFileIO()
    copy._files = dict(disk._files)
    copy._directories = dict(disk._directories)
    return copy


def check_old_or_new(scenario: Scenario, storage: FileIO, *, gaps: bool = False) -> View:
    """Assert that readers see the state before, after, or between two snapshots of the operation.

    `gaps`: of the snapshots that were to go, any may have gone.
    """
    disk = in_memory(storage)
    start, before = _prepared(scenario.name)
    if roots(disk) == roots(start) and contents(start).items() <= contents(disk).items():
        return before  # every file is there as it was: nothing to read anew
    after = outcome(scenario.name)
    now = view(disk)
    doomed = before.snapshots.keys() - after.snapshots.keys()
    # A snapshot that only a tag kept is back before the newer ones go.
    check_snapshots(now, before, after, gaps=gaps or (scenario.rolls_back and scenario.expires))
    ids = sorted(now.snapshots)
    new = sorted(after.snapshots.keys() - before.snapshots.keys())
    heads = [before.head, *(after.snapshots[number] for number in new)]
    if scenario.rolls_back:
        heads.append(after.head)  # at once, whatever is left to delete
    assert now.head == (now.snapshots[ids[-1]] if ids else {}), "not the newest snapshot is read"
    assert now.head in heads, "neither the old state nor the new"
    for name in before.tags.keys() - scenario.tags_touched:
        assert now.tags[name] == before.tags[name], f"tag {name}"
    for name, rows in now.branches.items():
        assert rows == {**before.branches, **after.branches}[name], f"branch {name}"
    assert now.branches.keys() >= before.branches.keys() & after.branches.keys(), "a branch is gone"
    for name in now.tags.keys() & scenario.tags_touched:
        allowed = [tags[name] for tags in (before.tags, after.tags) if name in tags]
        assert now.tags[name] in allowed, f"tag {name}"
    stored = StoredTable(disk)
    for number, snapshot in stored.snapshots().items():
        if number not in doomed:
            check_snapshot(stored, snapshot)
    if scenario.layout in (TOLD, MARKED):
        Replay(disk, SHAPE.primary_key).follow()
    return now


def check_snapshots(now: View, before: View, after: View, *, gaps: bool) -> None:
    """No snapshot is gone, torn or changed but those that were to expire."""
    known = {**before.snapshots, **after.snapshots}
    doomed = before.snapshots.keys() - after.snapshots.keys()
    for number, found in now.snapshots.items():
        assert number in known, f"a snapshot {number} that nobody made"
        if found is None:
            assert number in doomed, f"snapshot {number} cannot be read"
        else:
            assert found == known[number], f"snapshot {number} changed"
    ids = sorted(now.snapshots.keys() - doomed if gaps else now.snapshots)
    assert ids == list(range(ids[0], ids[-1] + 1)) if ids else gaps or not before.snapshots, ids
    lost = before.snapshots.keys() - now.snapshots.keys()
    assert lost <= doomed, f"snapshots are gone: {lost}"


def check_retried(scenario: Scenario, storage: FileIO) -> None:
    """Do the operation again; assert that it is there once, and that the table goes on working."""
    first = in_memory(storage)
    start = _prepared(scenario.name)[0]
    # What a dead attempt left and nothing names must not matter, so results are told apart without.
    orphans = first._files.keys() - start._files.keys() if roots(first) == roots(start) else ()
    table = open_again(storage)
    scenario.act(table)
    disk = in_memory(storage)
    fingerprint = fingerprint_of(disk, orphans)
    if fingerprint in _checked:
        return
    check_once(scenario, table, disk)
    _checked.add(fingerprint)


_checked: set[object] = set()


def check_once(scenario: Scenario, table: Table, disk: MemoryFileIO) -> None:
    """Assert that a table is as one undisturbed operation leaves it, and goes on working."""
    after = outcome(scenario.name)
    now = view(disk)
    assert now.head == after.head, "a retry gives another state"
    assert now.tags == after.tags, "a retry gives other tags"
    assert now.branches == after.branches, "a retry gives other branches"
    if scenario.expires or scenario.rolls_back:
        assert now.snapshots == after.snapshots
    if scenario.expires and not scenario.rolls_back:
        halves = [path for path in disk._files if path.endswith(".tmp")]
        check_reachability(StoredTable(disk), staged=halves)  # the retry finished the work
    if scenario.numbered:
        ours = [
            one.commit_kind.value
            for one in table.snapshots()
            if (one.commit_user, one.commit_identifier) == (USER, IDENTIFIER)
        ]
        assert len(set(ours)) == len(ours), f"committed twice: {ours}"
    report = table.verify()
    assert not report.problems, report.problems
    table.upsert(rows(50, 2, "afterwards"))
    added = [("afterwards", number % 2, f"key-{number}", 1000 * number) for number in (50, 51)]
    wanted = {SHAPE.key_of(row): row for row in added}
    assert read(table, SHAPE) == {**after.head, **wanted}


def roots(disk: MemoryFileIO) -> dict[str, bytes]:
    """Snapshots, hints, tags, schemas, and what branches and changelogs have of them."""
    return {
        path: data
        for path, (data, _) in disk._files.items()
        if path.startswith(("snapshot/", "tag/", "schema/", "branch/", "changelog/", "trash/"))
    }


def contents(disk: MemoryFileIO) -> dict[str, bytes]:
    """Every file's bytes."""
    return {path: data for path, (data, _) in disk._files.items()}


def fingerprint_of(disk: MemoryFileIO, besides: Collection[str]) -> object:
    """What tells the contents of two disks apart, some files left out."""
    return frozenset(pair for pair in contents(disk).items() if pair[0] not in besides)


def in_memory(storage: FileIO) -> MemoryFileIO:
    """The files of any storage, or the disk itself if it is in memory."""
    if isinstance(storage, MemoryFileIO):
        return storage
    disk = MemoryFileIO()
    for path in StoredTable(storage).files():
        disk.write_new(path, storage.read(path))
    return disk
