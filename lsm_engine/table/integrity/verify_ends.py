"""Do the snapshots and changelogs of a table begin where an expiry has left them, and end where commits have?

No file names the oldest and the newest, and the hints that do so hold a number alone: one flipped bit of
EARLIEST hides snapshots, one that is lost looks as if it had expired, or had never been committed.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError, LsmError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import believed, lost_below
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.retention import kept_of_passed, retention_of
from lsm_engine.store.branches import BranchStore
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.expire_changelogs import changelogs_outlive
from lsm_engine.table.integrity.findings import readable
from lsm_engine.table.integrity.verify_report import VerifyReport
from lsm_engine.table.tags.tag import is_there

_FEW = 1000  # ids from a hint on, which may be garbage, that are looked at


def ghost_problems(session: TableSession, ghosts: Sequence[Snapshot]) -> Iterator[str]:
    """Yield what is wrong with files that hold no snapshot; a writer that is at it takes its own back."""
    for snapshot in ghosts:
        if is_there(session, snapshot):
            path = session.paths.snapshot_file(snapshot.id)
            yield (
                f"{path}: snapshot {snapshot.id} of {snapshot.commit_user!r} never counted, its writer was "
                "stopped while the id expired or was rolled back; remove_orphan_files removes it"
            )


def unread(branch: TableSession) -> VerifyReport:
    """Return the report of a directory that is no branch: of a creation or a deletion that died, or without schema-0."""
    name, schema = branch.paths.branch_name, branch.paths.schema_file(0)
    store = BranchStore(branch.file_io, branch.paths)
    is_left = any(store.files(name))
    warning = (
        f"warning: branch {name!r} has files and no {schema}, and is not read: its creation or deletion died, "
        "or the file is lost; copy schema/schema-0 there to have it back, or delete the branch"
    )
    if store.first_file(name) is not None:
        warning = (
            f"warning: branch {name!r} is claimed in {schema}, and is not read: somebody makes or deletes it, or "
            "died over that; then make it again, or delete it"
        )
    return VerifyReport(
        problems=(),
        snapshot_count=0,
        tag_count=0,
        file_count=0,
        warnings=(warning,) if is_left else (),
    )


def wrong_ends(
    session: TableSession, snapshots: Sequence[Snapshot]
) -> tuple[list[str], list[str], tuple[int, int] | None]:
    """Return problems, warnings, and the ends of what EARLIEST passes and retention keeps.

    `snapshots`: those that count, and those below EARLIEST, oldest first.
    """
    problems = _lost_changelogs(session, snapshots)
    if not snapshots:
        return problems + _lost_newest(session, 0), [], None
    first, hint = snapshots[0], session.snapshots.earliest_hint()
    passed = [snapshot for snapshot in snapshots if snapshot.id < believed(hint, snapshots[-1].id)]
    retained = _oldest_retained(session, snapshots, passed)
    warnings, hidden = [], None
    if retained is not None:
        hidden = retained.id, passed[-1].id
        warnings.append(
            f"warning: EARLIEST is {hint}, so that snapshots {retained.id} to {passed[-1].id} are not read, and "
            "retention keeps them: an expiry died, or EARLIEST is damaged; repair earliest has them back, while "
            "nobody expires"
        )
    listed_ids = session.snapshots.listed_ids()
    lost = [number for number in lost_below(hint, first)[-_FEW:] if number not in listed_ids]
    if lost:
        problems.append(
            f"snapshots {lost[0]} to {lost[-1]} are missing, and no expiry took them, as EARLIEST is {hint}; "
            "restore their files, or let the next expiry move on"
        )
    problems += _lost_newest(session, max(listed_ids, default=0))
    return problems, warnings + _astray(session, snapshots), hidden


def _lost_newest(session: TableSession, newest_id: int) -> list[str]:
    """What LATEST names is there. Looks once more: commits and rollbacks go on."""
    latest = session.snapshots.stray_latest(newest_id)
    if latest is None:
        return []
    listed_ids = session.snapshots.listed_ids()
    if session.snapshots.stray_latest(max(listed_ids, default=0)) != latest:
        return []
    return [
        f"snapshot {latest}, which LATEST names, is missing, and neither reads nor writes go on without it; "
        "restore its file, or let go of what was committed with it: repair latest"
    ]


def _astray(session: TableSession, snapshots: Sequence[Snapshot]) -> list[str]:
    """No tag is of another snapshot than the one of its id; none, and no consumer, is beyond the newest.

    With LATEST lost only they show that some are lost; with a branch's tag in the place of main's only its snapshot.
    A warning: a tag may come back from the trash after a rollback, and Java's leaves consumers.
    """
    tags = [tag for _, tag in readable(session.tags.names(), session.tags.find)]
    by_id = {item.id: item for item in snapshots}
    other_warnings = [
        f"warning: tag {tag.name!r} is of another snapshot {tag.snapshot.id} than the one that is there: it is "
        "older than a rollback, or the file of another branch's tag"
        for tag in tags
        if not same_state(by_id.get(tag.snapshot.id, tag.snapshot), tag.snapshot)
    ]
    references = [
        (f"tag {tag.name!r} is of snapshot {tag.snapshot.id}", tag.snapshot.id) for tag in tags
    ] + [
        (
            f"consumer {item.name!r} goes on at snapshot {item.next_snapshot_id}",
            item.next_snapshot_id - 1,
        )
        for _, item in readable(session.consumers.names(), session.consumers.find)
    ]
    try:
        newest = session.snapshots.latest_id() or 0  # after them
    except LsmError:
        return other_warnings  # a problem of its own
    return other_warnings + [
        f"warning: {text}, and the newest is {newest}: newer ones were rolled back, or are lost"
        for text, reached in references
        if reached > newest
    ]


def _oldest_retained(
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
    for _, consumer in readable(session.consumers.names(), session.consumers.find):
        yield consumer.next_snapshot_id


def _lost_changelogs(session: TableSession, snapshots: Sequence[Snapshot]) -> list[str]:
    """Changelogs that outlive their snapshots follow each other up to the oldest snapshot."""
    if not changelogs_outlive(session.options):
        return []
    ids = session.changelogs.ids()
    first = session.changelogs.find(ids[0]) if ids else next(iter(snapshots), None)
    lost = () if first is None else lost_below(session.changelogs.earliest_hint(), first)
    if lost and (ids or lost[0] <= (session.changelogs.latest_hint() or 0)):
        ids.insert(0, lost[-_FEW:][0] - 1)
    if ids and snapshots and ids[-1] < snapshots[0].id:
        ids.append(snapshots[0].id)
    return [
        f"changelogs {older + 1} to {newer - 1} are missing, and no expiry took them, as there are older ones, or "
        "EARLIEST names the first; restore their files"
        for older, newer in pairwise(ids)
        if newer > older + 1
    ]
