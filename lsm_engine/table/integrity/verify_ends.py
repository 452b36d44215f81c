"""Do the snapshots and changelogs of a table begin where an expiry has left them, and end where commits have?

No file names the oldest and the newest, and the hints that do so hold a number alone: one flipped bit of
EARLIEST hides snapshots, one that is lost looks as if it had expired, or had never been committed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError, LsmError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import believed, is_beside_others, is_of_another_client
from lsm_engine.plan.retention import kept_of_passed
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.expire import retention_of
from lsm_engine.table.history.expire_changelogs import changelogs_outlive
from lsm_engine.table.tags.tag import is_there


def ghost_problems(session: TableSession, found: Sequence[Snapshot]) -> Iterator[str]:
    """Yield what is wrong with files that hold no snapshot; a writer that is at it takes its own back."""
    for one in found:
        if is_there(session, one):
            path = session.paths.snapshot_file(one.id)
            yield (
                f"{path}: snapshot {one.id} of {one.commit_user!r} never counted, its writer was "
                "stopped while the id expired or was rolled back; remove_orphan_files removes it"
            )


def wrong_ends(session: TableSession, snapshots: Sequence[Snapshot]) -> tuple[list[str], list[str]]:
    """Return problems and warnings. `snapshots`: those that count, and those below EARLIEST, oldest first."""
    problems = _lost_changelogs(session, snapshots)
    if not snapshots:
        return problems, []
    first, hint = snapshots[0], session.snapshots.earliest_hint()
    passed = [one for one in snapshots if one.id < believed(hint, snapshots[-1].id)]
    kept = _kept(session, snapshots, passed)
    warnings = []
    if kept is not None:
        warnings.append(
            f"warning: EARLIEST is {hint}, so that snapshots {kept.id} to {passed[-1].id} are not read, and "
            f"retention keeps them: an expiry died, or EARLIEST is damaged; write {kept.id} into "
            f"{session.paths.snapshot_hint('EARLIEST')} to have them back, while nobody expires"
        )
    there = session.snapshots.listed_ids()
    is_ours = not is_of_another_client(first) and not is_beside_others(first)
    if is_ours and hint is not None and 0 < hint < first.id:
        lost = [number for number in _few(hint, first.id) if number not in there]
        if lost:
            problems.append(
                f"snapshots {lost[0]} to {lost[-1]} are missing, and no expiry took them, as EARLIEST is {hint}; "
                "restore their files, or let the next expiry move on"
            )
    latest = session.snapshots.stray_latest(max(there, default=0))
    if latest is not None and latest == _stray_now(session):
        problems.append(
            f"snapshot {latest}, which LATEST names, is missing: what was committed with it is not read; "
            "restore its file, or go on without it: repair latest"
        )
    return problems, warnings


def _few(start: int, end: int) -> range:
    """Return ids from a hint on that may be garbage."""
    return range(max(start, end - 1000), end)


def _stray_now(session: TableSession) -> int | None:
    """Look once more: commits and rollbacks go on."""
    there = session.snapshots.listed_ids()
    return session.snapshots.stray_latest(max(there, default=0))


def _kept(
    session: TableSession, snapshots: Sequence[Snapshot], passed: Sequence[Snapshot]
) -> Snapshot | None:
    """Return the oldest snapshot below EARLIEST that the table's retention keeps."""
    if not passed:
        return None
    try:
        retention = retention_of(session.options)
    except InvalidOptionError:
        return None  # the options are at odds: a finding of doctor
    return kept_of_passed(
        snapshots,
        passed,
        retention,
        now_millis=session.clock.now_millis(),
        consumer_next_ids=list(_needed(session)),
    )


def _needed(session: TableSession) -> Iterator[int]:
    """Yield the snapshots that consumers keep; one that cannot be read is a finding of its own."""
    if session.options[core_options.CONSUMER_CHANGELOG_ONLY]:
        return
    for name in session.consumers.names():
        with suppress(LsmError):
            if (consumer := session.consumers.find(name)) is not None:
                yield consumer.next_snapshot_id


def _lost_changelogs(session: TableSession, snapshots: Sequence[Snapshot]) -> list[str]:
    """Changelogs that outlive their snapshots follow each other up to the oldest snapshot."""
    if not changelogs_outlive(session.options):
        return []
    ids = session.changelogs.ids()
    if ids and snapshots and ids[-1] < snapshots[0].id:
        ids.append(snapshots[0].id)
    return [
        f"changelogs {older + 1} to {newer - 1} are missing, and no expiry took them: there are older ones; "
        "restore their files"
        for older, newer in pairwise(ids)
        if newer > older + 1
    ]
