"""The health of one table: facts, judged; and the system table `health`."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    InvalidOptionError,
    LsmError,
    NotFoundError,
)
from lsm_engine.compact.compact import plan_append_compaction
from lsm_engine.compact.plan import fewest_runs, plan_compaction, unexpired
from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.inspect.explain import simulate_retention
from lsm_engine.maintenance.findings import DamagedFile
from lsm_engine.maintenance.orphans import remove_orphans
from lsm_engine.maintenance.repair import is_readable, repair_latest_snapshot
from lsm_engine.maintenance.verify import EXCHANGED, verify
from lsm_engine.maintenance.verify_references import MISCOUNTED
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.options import core_options
from lsm_engine.options.foreign import Verdict
from lsm_engine.options.table_options import unsupported_options
from lsm_engine.planning.health import (
    BUCKET_BYTES,
    NARROW_TIMES,
    STALE_MILLIS,
    WIDE_TIMES,
    BucketFacts,
    DamageFacts,
    DebtFacts,
    Depth,
    Finding,
    HealthReport,
    IcebergFacts,
    LiveSnapshots,
    PinFacts,
    TableFacts,
    at_odds,
    findings,
)
from lsm_engine.planning.retention import Retention, retention_of
from lsm_engine.planning.snapshot_chain import believed, newest_run
from lsm_engine.planning.tags import created_at
from lsm_engine.storage.clock import wall_time
from lsm_engine.storage.file_io import FileStatus
from lsm_engine.storage.paths import CONSUMER_PREFIX, EARLIEST
from lsm_engine.table import references
from lsm_engine.table.live_files import (
    BUCKET,
    FILE_NAME,
    FILE_SIZE,
    KIND,
    LEVEL,
    PARTITION,
    ROW_COUNT,
    TOTAL_BUCKETS,
    bucket_pairs,
    live_rows,
)
from lsm_engine.table.session import TableSession
from lsm_engine.table.tags import expire_tags

# -- The damage that verification finds, as facts for `planning/health` ----------------------------

_UNDER_WAY_MILLIS = 3_600_000
"""Files that are younger than an hour may belong to an operation that goes on."""


def damage_facts(session: TableSession, *, deep: bool) -> dict[str, Any]:
    """Return facts of damage by their names in `TableFacts`. `deep`: every page is read as well."""
    report = verify(session, deep=deep)
    paths, listed = session.paths, session.snapshots.listed_ids()
    oldest = believed(session.snapshots.earliest_hint(), max(listed, default=0))
    ids = [number for number in listed if number >= oldest]
    files = report.own_damaged_files  # ids of branches name other snapshots
    own = {item.path for item in files}
    of_branches = [item for item in report.damaged_files if item.path not in own]
    explained = {text for item in report.damaged_files for text in (item.path, *item.problems)}
    stray = session.snapshots.stray_latest(ids[-1] if ids else 0)
    is_lost, comes_back_to = _lost(session)
    hinted = [f"snapshot {stray}, which LATEST names"] if stray is not None else []
    other_problems = [
        text for text in report.problems if not any(item in text for item in (*explained, *hinted))
    ]
    broken = {number for item in files if item.stake is None for number in item.snapshots}
    # A rollback reads all snapshots.
    is_torn = any(paths.snapshot_file(number) in own for number in broken)
    live = _live_paths(session) if any(item.stake is not None for item in files) else frozenset()
    return {
        "damage": tuple(_damaged(session, item, ids[-1] if ids else None, live) for item in files),
        "other_problems": tuple(other_problems),
        "whole_id": None if is_torn else max({*ids} - broken, default=None),
        "rollback_to": _rollback_to(session),
        "whole_tag": _newest_tag(session, {tag for item in files for tag in item.tags}),
        "hidden": report.hidden if _is_settled(session, [_earliest(session)]) else None,
        "damaged_branches": (
            *dict.fromkeys(name for item in of_branches for name in item.branches),
            *_left_branches(session),
        ),
        "stray_latest": stray,
        "is_lost": is_lost,
        "comes_back_to": comes_back_to,
    }


def _lost(session: TableSession) -> tuple[bool, str | None]:
    """Return whether the newest state is lost, and what `repair latest` goes back to if it mends that."""
    with suppress(LsmError):
        if is_readable(session):
            return False, None
        with suppress(CorruptFileError):
            return True, repair_latest_snapshot(session, dry_run=True).back_to
        return True, None
    return False, None  # the storage fails, or the table is not written by this version


def _earliest(session: TableSession) -> FileStatus | None:
    with suppress(NotFoundError):
        return session.file_io.status(session.paths.snapshot_hint(EARLIEST))
    return None


def _left_branches(session: TableSession) -> Iterator[str]:
    """Yield branches without schema-0: of a creation or a deletion that died, or it was lost."""
    if session.paths.branch_name:
        return
    branches = BranchStore(session.file_io, session.paths)
    for name in branches.directories():
        files = () if branches.exists(name) else branches.files(name)
        if files and _is_settled(session, files):
            yield name


def _is_settled(session: TableSession, files: Iterable[FileStatus | None]) -> bool:
    """Whether no operation is running: none of the files was written lately."""
    written = [status.modified_millis for status in files if status is not None]
    return max(written, default=0) < session.storage_time() - _UNDER_WAY_MILLIS


def _newest_tag(session: TableSession, damaged: Container[str]) -> str | None:
    """Return the tag of the newest snapshot, among those that can be read."""
    names = [name for name in session.tags.names() if name not in damaged]
    tags = [tag for name in names if (tag := session.tags.find(name)) is not None]
    return max(tags, key=lambda tag: tag.snapshot.id).name if tags else None


def _live_paths(session: TableSession) -> frozenset[str]:
    """Return the paths of files of rows, and not of changes, that the newest state has."""
    try:
        latest = session.snapshots.latest()
        entries = [] if latest is None else session.live_entries(latest)
    except LsmError:
        return frozenset()  # it cannot be read, which is a finding of its own
    return frozenset(map(session.data_path, entries))


def _rollback_to(session: TableSession) -> int | None:
    try:
        return session.snapshots.rollback_under_way()
    except LsmError:
        return None  # the newest snapshot cannot be read, which is a finding of its own


def _damaged(
    session: TableSession, file: DamagedFile, newest: int | None, live: Container[str]
) -> DamageFacts:
    directory, _, name = file.path.rpartition("/")
    is_consumer = directory == session.paths.consumer_directory
    return DamageFacts(
        path=file.path,
        problem=file.problems[0],
        is_data=file.stake is not None,
        is_snapshot=file.path in map(session.paths.snapshot_file, file.snapshots),
        is_schema=directory == session.paths.schema_directory,
        is_miscounted=all(problem.startswith((MISCOUNTED, EXCHANGED)) for problem in file.problems),
        is_trash=directory == session.paths.trash_directory,
        consumer=name.removeprefix(CONSUMER_PREFIX) if is_consumer else None,
        rebuildable=file.is_rebuildable,
        has_older_rows=bool(file.sources) and not file.is_rebuildable,
        in_newest=newest in file.snapshots and (file.stake is None or file.path in live),
        row_count=0 if file.stake is None else file.stake.row_count,
        newest_root=max(file.snapshots, default=None),
        newest_changelog=max(file.changelogs, default=None),
        tags=file.tags,
    )


# -- Health facts ----------------------------------------------------------------------------------
#
# Collect the facts that `planning/health` judges a table by, as many of them as the depth asks
# for.

_SUMMED = (KIND, PARTITION, BUCKET, TOTAL_BUCKETS, FILE_NAME, LEVEL, FILE_SIZE, ROW_COUNT)
_ORPHAN_AGE = "1 d"


def table_facts(session: TableSession, depth: Depth, newest: Snapshot | None = None) -> TableFacts:
    """Return what is known of a table; what cannot be read becomes the `problem`, and is not raised.

    `newest`: the newest snapshot, if the caller has just read it.
    """
    damage: dict[str, Any] = {}
    settings = _settings(session)
    if depth > Depth.SHALLOW:
        damage = damage_facts(session, deep=depth is Depth.DEEP)
    try:
        latest = newest or session.snapshots.latest()
        state = _newest_state(session, latest, by_lists=depth is Depth.SHALLOW)
        facts: dict[str, Any] = {**state, **_retention(session, latest)}
        # What is not written is not expired either.
        if depth > Depth.SHALLOW and not _is_damaged(damage) and not settings["refused_options"]:
            facts |= _storage_facts(session, facts)
            facts["iceberg"] = _iceberg(session, latest, deep=depth is Depth.DEEP)
    except LsmError as error:
        if _is_damaged(damage):  # the same, with what mends it
            return TableFacts(table=session.name, **settings, **damage)
        return unreadable(session.name, error)
    return TableFacts(table=session.name, **{**settings, **facts, **damage})


def _is_damaged(damage: Mapping[str, Any]) -> bool:
    return any(
        damage.get(name) for name in ("damage", "other_problems", "damaged_branches", "is_lost")
    )


def unreadable(name: str, error: LsmError) -> TableFacts:
    """Return what is known of a table that cannot be opened or read: why, and whether that is our limit."""
    if error.kind in (ErrorKind.UNSUPPORTED_OPTION, ErrorKind.UNSUPPORTED_TYPE):
        return TableFacts(table=name, problem=error.message, is_refused=True)
    shown = "".join(f"; {key}: {fact}" for key, fact in error.facts.items())
    return TableFacts(table=name, problem=error.message + shown)


def _settings(session: TableSession) -> dict[str, Any]:
    refused = [
        (unsupported.label, unsupported.reason)
        for unsupported in unsupported_options(session.options)
        if unsupported.verdict in (Verdict.REFUSES_WRITING, Verdict.UNKNOWN)
    ]
    return {
        "is_write_only": session.options[core_options.WRITE_ONLY],
        "refused_options": tuple(refused),
        "at_odds": at_odds(session.options, is_partitioned=bool(session.schema.partition_keys)),
    }


# --- the newest state ----------------------------------------------------------------------------


def _newest_state(
    session: TableSession, latest: Snapshot | None, *, by_lists: bool
) -> dict[str, Any]:
    """Return what the newest snapshot and its manifests show: debt, small files, sizes of buckets.

    `by_lists`: no manifest is read where the counts in their lists leave nothing to be found.
    """
    if latest is None:
        return {}
    metas = session.manifest_metas(latest)
    if by_lists and _is_small(session, metas):
        return {"newest_id": latest.id}
    sizes = _sizes(session, metas)
    policy = session.schema.bucket_mode.policy
    facts: dict[str, Any] = {
        "newest_id": latest.id,
        "delta_lists": {latest.id: latest.delta_manifest_list},
        "unassigned_rows": sum(rows for (_, bucket), (_, rows, *_) in sizes.items() if bucket < 0),
    }
    if policy.is_fixed:
        facts["buckets"] = _by_partition(session, sizes)
    if session.schema.has_primary_key:
        facts["debt"] = _debt(session, latest, sizes)
    else:
        facts["small"] = _small_files(session, latest, sizes)
    return facts


def _is_small(session: TableSession, metas: Sequence[ManifestFileMeta]) -> bool:
    """Whether a table has too few files for debt, small files, or buckets that are too large or too many.

    A file is taken to hold no more than twice what writers fill one with.
    """
    policy = session.schema.bucket_mode.policy
    if any(meta.total_buckets is None or meta.total_buckets >= NARROW_TIMES for meta in metas):
        return False
    if any(meta.min_bucket is None or meta.min_bucket < 0 for meta in metas):
        return False  # rows that wait for a bucket
    if policy.is_fixed and any(meta.total_buckets != session.schema.bucket_count for meta in metas):
        return False  # partitions that were not rescaled
    count = sum(meta.added_file_count - meta.deleted_file_count for meta in metas)
    options, has_key = session.options, session.schema.has_primary_key
    filled = max(
        options.target_file_size(has_primary_key=has_key), options[core_options.WRITE_BUFFER_SIZE]
    )
    if policy.is_fixed and 2 * count * filled > (WIDE_TIMES - 1) * BUCKET_BYTES:
        return False
    if has_key:
        return count < fewest_runs(session)
    return count < int(options[core_options.COMPACTION_MIN_FILE_NUM])


Sizes = Mapping[tuple[bytes, int], tuple[int, int, int, int, int]]
"""By partition and bucket: bytes, rows, files, sorted runs, and the number of buckets of the partition."""


def _sizes(session: TableSession, metas: Sequence[ManifestFileMeta]) -> Sizes:
    """Add up the live files of each bucket in one pass over columns; no entry becomes an object."""
    rows = live_rows(session.manifests, metas, columns=_SUMMED)
    if rows is None or not rows.num_rows:
        return {}
    pairs, of_row = bucket_pairs(rows)
    levels = rows.column(LEVEL).to_numpy().astype(np.int64)

    def summed(weights: Any) -> list[int]:
        return [
            int(total_of_bucket)
            for total_of_bucket in np.bincount(of_row, weights, minlength=len(pairs))
        ]

    # A run is a file of level 0, or a deeper level: the first file of each counts.
    _, first = np.unique((of_row << 32) + levels, return_index=True)
    is_run = levels == 0
    is_run[first] = True
    total = np.zeros(len(pairs), np.int64)
    total[of_row] = rows.column(TOTAL_BUCKETS).to_numpy()
    sums = (
        summed(rows.column(FILE_SIZE).to_numpy()),
        summed(rows.column(ROW_COUNT).to_numpy()),
        summed(np.ones(rows.num_rows)),
        summed(is_run.astype(np.int64)),
        total.tolist(),
    )
    return dict(zip(pairs, zip(*sums, strict=True), strict=True))


def _by_partition(session: TableSession, sizes: Sizes) -> tuple[BucketFacts, ...]:
    context = session.context()
    sizes_by_partition: dict[bytes, list[int]] = {}
    totals: dict[bytes, int] = {}
    for (partition, bucket), (size, *_, total) in sizes.items():
        if bucket >= 0:
            sizes_by_partition.setdefault(partition, []).append(size)
            totals[partition] = total
    return tuple(
        BucketFacts(
            partition=context.partition_path(partition),
            total=totals[partition],
            sizes=tuple(listed),
            declared=session.schema.bucket_count,
        )
        for partition, listed in sizes_by_partition.items()
    )


def _debt(session: TableSession, latest: Snapshot, sizes: Sizes) -> DebtFacts | None:
    """The plan of `compact` at this moment."""
    runs = {place: count for place, (*_, count, _) in sizes.items()}
    if max(runs.values(), default=0) < fewest_runs(session):
        return None
    work = plan_compaction(session, latest, unexpired(session), counts_picks=False)
    if not work:
        return None
    counts = [runs.get((item.partition, item.bucket), 0) for item in work]
    return DebtFacts(
        buckets=len(work),
        runs=sum(counts),
        size_bytes=sum(item.size_bytes for item in work),
        waiting=max(counts) > session.options.stop_trigger,
    )


def _small_files(session: TableSession, latest: Snapshot, sizes: Sizes) -> DebtFacts | None:
    fewest = session.options[core_options.COMPACTION_MIN_FILE_NUM]
    if all(files < fewest for _, _, files, *_ in sizes.values()):
        return None
    work = plan_append_compaction(session, latest, unexpired(session))
    if not work:
        return None
    return DebtFacts(
        buckets=len(work),
        runs=sum(len(group) for item in work for group in item.groups),
        size_bytes=sum(item.size_bytes for item in work),
        waiting=False,
    )


def _iceberg(session: TableSession, latest: Snapshot | None, *, deep: bool) -> IcebergFacts | None:
    """Return what readers of Iceberg see; None where they see the newest rows, or there is nothing for them."""
    if latest is None or session.paths.branch_name:
        return None
    # Imported on use: few tables have such metadata.
    iceberg = import_module("lsm_engine.table.iceberg_state")
    if not session.options.writes_iceberg:
        count = (
            iceberg.files_without_member_ids(session, session.live_entries(latest)) if deep else 0
        )
        return IcebergFacts(without_ids=count) if count else None
    state = iceberg.state(session)
    waits = state.waiting_commits and iceberg.waits_for_full_compaction(session)
    return IcebergFacts(
        shown_id=state.snapshot_id,
        problem=state.problem,
        waiting_commits=state.waiting_commits if waits else 0,
        waiting_millis=state.waiting_millis,
        is_bounded=session.options[core_options.METADATA_ICEBERG_MAX_LAG] is not None,
        is_late=iceberg.exceeds_lag(session, latest),
        misfiltered_files=(
            len(list(iceberg.files_with_millis_bounds(session, session.live_entries(latest))))
            if deep
            else 0
        ),
    )


# --- retention -----------------------------------------------------------------------------------


def _retention(session: TableSession, latest: Snapshot | None) -> dict[str, Any]:
    ids = [] if latest is None else _ids_up_to(session, latest)
    consumers = session.consumers.list()
    facts: dict[str, Any] = {"snapshot_count": len(ids)}
    try:
        retention = retention_of(session.options)
    except InvalidOptionError:
        pass  # the options are at odds, which is a finding of its own
    else:
        needed = min((consumer.next_snapshot_id for consumer in consumers), default=None)
        facts["expirable"] = _expirable(session, ids, retention, needed)
    tags = session.tags.list()
    if tags:
        facts["overdue_tags"] = expire_tags(session, dry_run=True, listed=tags).names
        facts["tags"] = tuple(_tag(session, tag) for tag in tags)
    facts |= _branches(session)
    if consumers:
        now = session.storage_time()
        facts["consumers"] = tuple(
            PinFacts(
                name=consumer.name,
                age_millis=now - consumer.modified_millis,
                at_snapshot=consumer.next_snapshot_id,
            )
            for consumer in consumers
        )
    return facts


def _ids_up_to(session: TableSession, newest: Snapshot) -> Sequence[int]:
    """Return every id that counts; the newest was just looked up, and nothing is read for the others."""
    listed, earliest = session.snapshots.listed_ids(), session.snapshots.earliest_hint()
    counted = [
        snapshot_id
        for snapshot_id in listed
        if believed(earliest, newest.id) <= snapshot_id <= newest.id
    ]
    return newest_run(counted) if counted else [newest.id]


def _expirable(
    session: TableSession, ids: Sequence[int], retention: Retention, needed: int | None
) -> int:
    """Return how many snapshots retention would expire; reads a few of them, by bisection over time."""
    if not ids:
        return 0
    end = min(ids[-1] - retention.retained_min + 1, ids[-1] + 1 if needed is None else needed)
    candidates = [number for number in ids[:-1] if number < end]
    oldest_kept = session.clock.now_millis() - retention.time_retained_millis
    first = sum(number < ids[-1] - retention.retained_max + 1 for number in candidates)
    last = len(candidates)
    while first < last:
        middle = (first + last) // 2
        successor = session.snapshots.load(ids[middle + 1])
        if successor.time_millis < oldest_kept:
            first = middle + 1
        else:
            last = middle
    return first


def _tag(session: TableSession, tag: Tag) -> PinFacts:
    born = created_at(tag)
    if born is None:
        age = session.clock.now_millis() - tag.snapshot.time_millis
    else:
        age = int((wall_time(session.clock) - born).total_seconds() * 1000)
    options = session.options
    rolls = core_options.TAG_NUM_RETAINED_MAX.key in options.texts
    return PinFacts(
        name=tag.name,
        age_millis=age,
        is_bounded=tag.retained_millis is not None or rolls,
        at_snapshot=tag.snapshot.id,
    )


def _branches(session: TableSession) -> dict[str, Any]:
    if session.paths.branch_name:
        return {}
    names = BranchStore(session.file_io, session.paths).names()
    sessions = (
        {
            session_of_branch.paths.branch_name: session_of_branch
            for session_of_branch in references.other_branches(session)
        }
        if names
        else {}
    )
    pins, live = [], {}
    for name in names:
        branch = sessions.get(name)
        if branch is None:
            continue  # deleted meanwhile, here as below
        with suppress(NotFoundError):
            latest = branch.snapshots.latest()
            ids = [] if latest is None else branch.snapshots.ids()
            if latest is not None and ids:
                live[name] = LiveSnapshots(
                    first=ids[0],
                    newest=latest.id,
                    lists={latest.id: latest.delta_manifest_list},
                )
            if name == session.options[core_options.SCAN_FALLBACK_BRANCH]:
                continue
            created = session.file_io.status(branch.paths.schema_file(0)).modified_millis
            moved = created if latest is None else max(latest.time_millis, 0)
            now = session.storage_time() if latest is None else session.clock.now_millis()
            pins.append(PinFacts(name=name, age_millis=now - moved))
    return {"branches": tuple(pins), "branch_snapshots": live}


# --- what takes longer ---------------------------------------------------------------------------


def _storage_facts(session: TableSession, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what retained references keep, what expiry would free, and what nothing names; all references are sound."""
    new_facts: dict[str, Any] = {}
    try:
        simulation = simulate_retention(session, retention_of(session.options))
    except InvalidOptionError:
        simulation = None
    if simulation is not None:
        new_facts["expirable"] = len(simulation.expired)
        new_facts["expirable_bytes"] = simulation.freed_bytes
        new_facts["overdue_tags"] = simulation.expired_tags
        pinned_bytes = {pin.name: pin.only_size_bytes for pin in simulation.pins}
        for kind, name in (("tags", "tag {!r}"), ("branches", "branch {!r}")):
            new_facts[kind] = tuple(
                replace(pin, only_size_bytes=pinned_bytes.get(name.format(pin.name), 0))
                for pin in facts.get(kind, ())
            )
    new_facts["delta_lists"] = _delta_lists(session)
    new_facts["branch_snapshots"] = {
        branch.paths.branch_name: replace(live, lists=_delta_lists(branch))
        for branch in references.other_branches(session)
        if (live := facts.get("branch_snapshots", {}).get(branch.paths.branch_name)) is not None
    }
    plan = remove_orphans(session, dry_run=True, older_than=_ORPHAN_AGE, force=False).plan
    return {
        **new_facts,
        "orphan_count": len(plan.orphans),
        "orphan_bytes": plan.freed_bytes,
        "unfinished_uploads": len(plan.uploads),
    }


def _delta_lists(session: TableSession) -> dict[int, str]:
    return {snapshot.id: snapshot.delta_manifest_list for snapshot in session.snapshots.all()}


# -- The health of one table: facts, judged; and the system table `health` -------------------------

HEALTH = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("severity", pa.string(), nullable=False),  # error, warning, note
        pa.field("finding", pa.string(), nullable=False),
        ("cost", pa.string()),
        ("command", pa.list_(pa.string())),  # the words after `lsm`; null: no command can help
        ("loses", pa.string()),  # what the command makes unreadable; null: nothing
    ]
)


def examine(
    session: TableSession, depth: Depth = Depth.WHOLE, *, stale_millis: int = STALE_MILLIS
) -> HealthReport:
    """Return what is wrong with one table."""
    return report_of(table_facts(session, depth), depth, stale_millis=stale_millis)


def report_of(facts: TableFacts, depth: Depth, *, stale_millis: int) -> HealthReport:
    """Return what facts about one table make wrong with it."""
    problems = findings(facts, stale_millis=stale_millis)
    return HealthReport(findings=problems, table_count=1, depth=depth)


def health(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return one row for each finding about the table, pages of data files unread."""
    del snapshot  # every retained reference is looked at
    return health_rows(examine(session).findings)


def health_rows(problems: Iterable[Finding]) -> pa.Table:
    """Return findings as rows."""
    return pa.Table.from_pylist([finding.facts() for finding in problems], schema=HEALTH)
