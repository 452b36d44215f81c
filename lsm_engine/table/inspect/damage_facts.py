"""The damage that verification finds, as facts for `plan/diagnosis`."""

from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import Any

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.io.file_io import FileStatus
from lsm_engine.io.paths import CONSUMER_PREFIX, EARLIEST
from lsm_engine.plan.health import DamageFacts
from lsm_engine.plan.live_snapshots import believed
from lsm_engine.store.branches import BranchStore
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import DamagedFile
from lsm_engine.table.integrity.newest import is_readable
from lsm_engine.table.integrity.repair import repair_latest_snapshot
from lsm_engine.table.integrity.verify import verify
from lsm_engine.table.integrity.verify_lists import EXCHANGED
from lsm_engine.table.integrity.verify_totals import MISCOUNTED

_UNDER_WAY_MILLIS = 3_600_000
"""What was written within the last hour may be of an act that goes on."""


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
    """Whether nobody is at it any more: none of the files was written lately."""
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
