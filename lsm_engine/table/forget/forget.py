"""Forget keys: plan, rewrite retained references, expire the rest, clear caches and catalog, search again.

A kill in any step is safe: another run plans on the remaining state and finishes.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.base.units import counted
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.retention import Retention
from lsm_engine.plan.tags import READ_PREFIX, is_lock
from lsm_engine.table.forget.forget_plan import (
    ForgetPlan,
    ForgetScope,
    RootFindings,
    consumers_behind,
    lines_of,
    plan_forget,
    shown,
)
from lsm_engine.table.forget.forgotten_keys import ForgottenKeys, forgotten_keys
from lsm_engine.table.forget.left_branches import take_left_branches
from lsm_engine.table.forget.outside import clear_outside
from lsm_engine.table.forget.root_rewrite import FORGETTING, rewrite_head, rewrite_tag
from lsm_engine.table.forget.state_rewrite import KeyFiles
from lsm_engine.table.forget.traces import emptied_partitions
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history import expire, expire_changelogs, trash
from lsm_engine.table.history.orphans import remove_orphans
from lsm_engine.table.tags.tag import is_there, kept

log = logging.getLogger(__name__)
_NO_LIMIT = 1 << 40
_RACES = 10  # times that a tag is read again which others change meanwhile
_KEPT_LONGER = (
    core_options.MAINTENANCE_TRASH_RETAINED,
    core_options.CHANGELOG_NUM_RETAINED_MIN,
    core_options.CHANGELOG_NUM_RETAINED_MAX,
    core_options.CHANGELOG_TIME_RETAINED,
)


@record
class ForgetReport:
    """What forgetting did, or with `dry_run` would do; `proof` is the search after it."""

    plan: ForgetPlan
    dry_run: bool
    proof: ForgetPlan | None = None

    @property
    def is_clean(self) -> bool:
        """Whether a search at the end found none of the keys, and could read every file."""
        search = self.plan if self.proof is None else self.proof
        return search.is_empty and not search.unreadable

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        return {
            "dry_run": self.dry_run,
            "clean": self.is_clean,
            "plan": self.plan.facts(),
            "proof": None if self.proof is None else self.proof.facts(),
        }

    def __str__(self) -> str:
        if self.proof is None:
            return str(self.plan)
        if self.is_clean:
            count = f"{counted(self.plan.key_count, 'key')} of {self.plan.table}"
            searched = counted(self.proof.file_count, "file")
            return f"forgotten: {count}; a search of {searched} found none of them"
        return f"not all is forgotten, or a key came back:\n{self.proof}"


def forget(session: TableSession, keys: Any, scope: ForgetScope, *, dry_run: bool) -> ForgetReport:
    """Plan how keys go from all that a table has, and with `dry_run` False let them go.

    Raises InvalidInputError, with nothing changed, where the plan has refusals.
    """
    session.options.require_writable()
    if session.paths.branch_name:
        raise UnsupportedError(
            "keys are forgotten in a table with all its branches; go on from the table",
            branch=session.paths.branch_name,
        )
    forgotten = forgotten_keys(session.schema, keys)
    if not forgotten.count:
        raise InvalidInputError(
            "there is no key to forget; give at least one", kind=ErrorKind.INVALID_KEY
        )
    plan, traced = plan_forget(session, forgotten, scope)
    if dry_run:
        return ForgetReport(plan=plan, dry_run=True)
    if plan.refusals:
        raise InvalidInputError(
            f"nothing was forgotten: {'; '.join(plan.refusals)}",
            kind=ErrorKind.INVALID_OPTION,
            table=session.name,
        )
    if not plan.is_empty:
        _carry_out(session, forgotten, scope, plan, traced)
    proof, _ = plan_forget(session, forgotten, scope)
    return ForgetReport(plan=plan, dry_run=False, proof=proof)


def _carry_out(
    session: TableSession,
    keys: ForgottenKeys,
    scope: ForgetScope,
    plan: ForgetPlan,
    traced: frozenset[str],
) -> None:
    if plan.traces or plan.rewrites:
        findings = RootFindings(keys, KeyFiles(keys), traced)
        if trash.trash_of(session).list():
            trash.empty(session, everything=True, dry_run=False)
        take_left_branches(session, traced)
        for line in lines_of(session):
            _forget_in_line(line, keys, scope, findings)
        remove_orphans(
            _for_good(session),
            dry_run=False,
            older_than=scope.unreferenced_older_than,
            force=True,
        )
        _remove_empty_partitions(session, keys)
    clear_outside(session, keys.stored(emptied_partitions(session, keys)))


def _forget_in_line(
    line: TableSession, keys: ForgottenKeys, scope: ForgetScope, findings: RootFindings
) -> None:
    """Write the newest state and the tags of a branch anew where they hold a key; the rest goes."""
    quiet = _for_good(line)
    holds = findings.touch(line)
    latest = line.snapshots.latest()
    files = KeyFiles(keys)
    _refuse_locked(line, findings)
    with ExitStack() as locks:
        if latest is not None and findings.rewrite(line, latest, "", is_tag=False) is not None:
            latest, files = rewrite_head(line, keys, files)
            holds = True
            if latest is not None:
                _keep(line, latest, locks)
                files = files.named_by(line.live_entries(latest))

        def rewrite_tags() -> None:
            for _ in range(_RACES):
                holding = _holding(line, findings)
                if not holding:
                    break
                for tag in holding:
                    rewrite_tag(
                        line, tag, keys, files, quiet, locks
                    )  # or another has: looked at again
            _refuse_locked(line, findings)

        rewrite_tags()
        if latest is None or not holds:
            return
        _expire_below(line, quiet, latest, scope)
        # What others have tagged before EARLIEST moved; from now on nobody tags what is below it.
        rewrite_tags()
    expire_changelogs.take_all(quiet, reason="keys were forgotten")


def _holding(line: TableSession, findings: RootFindings) -> list[Tag]:
    """Return the tags that hold a key, but lock tags."""
    return [
        tag
        for tag in line.tags.stable_listing()
        if not _is_locked(tag) and findings.rewrite(line, tag.snapshot, "", is_tag=True) is not None
    ]


def _is_locked(tag: Tag) -> bool:
    """Whether an operation holds files by a tag, and is about to name them: a tag of a read is rewritten."""
    return is_lock(tag.name) and not tag.name.startswith(READ_PREFIX)


def _refuse_locked(line: TableSession, findings: RootFindings) -> None:
    """Raise CommitConflictError where others hold a key by a lock tag: written anew it would hold nothing for them."""
    for tag in line.tags.stable_listing():
        if _is_locked(tag) and findings.rewrite(line, tag.snapshot, "", is_tag=True) is not None:
            raise CommitConflictError(
                f"tag {tag.name!r} holds a key for an operation that makes or moves a tag; run it again once that has "
                "ended, or an hour after it was killed",
                kind=ErrorKind.ROWS_CHANGED,
                tag=tag.name,
                branch=shown(line),
            )


def _keep(line: TableSession, head: Snapshot, locks: ExitStack) -> None:
    """Keep the rewritten state by a lock tag: tags are going to name files of it."""
    try:
        locks.enter_context(kept(line, head, FORGETTING))
    except NotFoundError as cause:
        raise CommitConflictError(
            "others have committed and expired the rewritten state meanwhile; run it again",
            kind=ErrorKind.ROWS_CHANGED,
            branch=shown(line),
        ) from cause


def _move_on(line: TableSession, consumer: Consumer, next_snapshot_id: int) -> None:
    """Let a consumer pass what goes; one that is forgotten meanwhile is not made again."""
    line.consumers.move(
        consumer.name,
        lambda stored: (
            next_snapshot_id if stored is not None and stored < next_snapshot_id else None
        ),
    )


def _expire_below(
    line: TableSession, quiet: TableSession, head: Snapshot, scope: ForgetScope
) -> None:
    """Take every snapshot below one, once no consumer needs its changes."""
    if not is_there(line, head):
        raise _rolled_back(line, head)
    behind = [] if scope.move_consumers else consumers_behind(line, until=head.id)
    if behind:
        raise CommitConflictError(
            "others have committed meanwhile, and consumers have not read that yet; let them, and "
            "run it again",
            kind=ErrorKind.ROWS_CHANGED,
            consumers=behind,
            branch=shown(line),
        )
    for consumer in line.consumers.list():
        _move_on(line, consumer, head.id)
    count = (line.snapshots.latest_id() or 0) - head.id + 1
    if count < 1:
        raise _rolled_back(line, head)
    retention = Retention(
        retained_min=count, retained_max=count, time_retained_millis=0, expire_limit=_NO_LIMIT
    )
    expire.expire(quiet, retention, dry_run=False)


def _rolled_back(line: TableSession, snapshot: Snapshot) -> CommitConflictError:
    return CommitConflictError(
        "the table was rolled back meanwhile, and older snapshots may hold the keys again; run it again, which "
        "plans anew",
        snapshot_id=snapshot.id,
        branch=shown(line),
    )


def _for_good(session: TableSession) -> TableSession:
    """Return the table without what keeps files longer: its trash, and changelogs that outlive snapshots."""
    dropped = {option.key for option in _KEPT_LONGER}
    texts = {key: text for key, text in session.options.texts.items() if key not in dropped}
    texts[core_options.SNAPSHOT_CLEAN_EMPTY_DIRECTORIES.key] = "true"
    return session.with_options(TableOptions(texts=texts))


def _remove_empty_partitions(session: TableSession, keys: ForgottenKeys) -> None:
    """Remove the directories of the keys' partitions that hold nothing any more: their names are keys."""
    if not session.schema.partition_keys:
        return
    context = session.context()
    for partition in keys.partitions:
        path = session.paths.at(context.partition_path(partition))
        for directory in (*_directories(session, path), *_upwards(path)):
            session.file_io.remove_empty_directory(directory)


def _directories(session: TableSession, path: str) -> Iterator[str]:
    for status in session.file_io.list(path):
        if status.is_directory:
            yield from _directories(session, status.path)
            yield status.path


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
