"""What verification finds of a table, as facts that `plan/diagnosis` makes findings of."""

from collections.abc import Container
from typing import Any

from lsm_engine.base.errors import LsmError
from lsm_engine.io.paths import CONSUMER_PREFIX
from lsm_engine.plan.health import DamageFacts
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import DamagedFile
from lsm_engine.table.integrity.verify import verify


def damage_facts(session: TableSession, *, deep: bool) -> dict[str, Any]:
    """Return facts of damage by their names in `TableFacts`. `deep`: every page is read as well."""
    report = verify(session, deep=deep)
    ids = session.snapshots.listed_ids()
    files = report.own_damaged_files  # ids of branches name other snapshots
    own = {one.path for one in files}
    of_branches = [one for one in report.damaged_files if one.path not in own]
    named = {one.path for one in report.damaged_files}
    stray = session.snapshots.stray_latest(ids[-1]) if ids else None
    hinted = [f"snapshot {stray}, which LATEST names"] if stray is not None else []
    others = [text for text in report.problems if not any(one in text for one in (*named, *hinted))]
    broken = {number for one in files if one.stake is None for number in one.snapshots}
    live = _live_paths(session) if any(one.stake is not None for one in files) else frozenset()
    return {
        "damage": tuple(_damaged(session, one, ids[-1] if ids else None, live) for one in files),
        "other_problems": tuple(others),
        "whole_id": max(set(ids) - broken, default=None),
        "rollback_to": _rollback_to(session),
        "damaged_branches": tuple(
            dict.fromkeys(name for one in of_branches for name in one.branches)
        ),
        "stray_latest": stray,
    }


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
