"""Forget keys: plan, rewrite retained references, expire the rest, clear caches and catalog, search again.

A kill in any step is safe: another run plans on the remaining state and finishes."""

import logging
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.commit.commit import propose
from lsm_engine.commit.metadata_writer import MetadataWriter
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.maintenance import expire, trash
from lsm_engine.maintenance.forget_plan import (
    ForgetPlan,
    ForgetScope,
    KeyFiles,
    RootFindings,
    StateChange,
    change_state,
    clear_outside,
    consumers_behind,
    left_branches,
    lines_of,
    plan_forget,
    shown,
)
from lsm_engine.maintenance.forgotten_keys import ForgottenKeys, emptied_partitions, forgotten_keys
from lsm_engine.maintenance.orphans import remove_orphans
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.proposal import CommitIdentity, LiveChange, Proposal, SameState
from lsm_engine.planning.retention import NO_LIMIT, Retention
from lsm_engine.planning.tags import READ_PREFIX, is_lock
from lsm_engine.storage.file_io import FileIO
from lsm_engine.table import branches
from lsm_engine.table.references import carry_out
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import require_writable
from lsm_engine.table.tags import is_there, locked, plan_removal, snapshot_retained

# -- Write the retained references anew ------------------------------------------------------------
#
# The newest state of a branch by two commits, a tag in its place.
#
# The first commit replaces the data files. Its own delta still names the least and greatest key
# of the files that went, so the second one writes the manifests anew, as additions alone. What
# lies below is then expired by the caller.

FORGETTING = "forgetting-"
"""Prefix of the names of tags that keep rewritten files until the tags of a branch name them."""
_RACES = 10


def rewrite_head(
    session: TableSession, keys: ForgottenKeys, files: KeyFiles
) -> tuple[Snapshot | None, KeyFiles]:
    """Commit the newest state of a branch without the keys; return the snapshot, and what was written.

    Raises CommitConflictError where others commit faster than the files can be written.
    """
    for tries_left in reversed(range(_RACES)):
        # Files of a lost attempt are orphans: they were written for another base.
        own_files = files.named_by(())
        base = session.snapshots.latest()
        if base is None:
            return None, own_files
        change = change_state(session, base, keys, own_files)
        try:
            if not change.is_empty:
                _replace_files(session, base, change)
            rewrite = LiveChange(rewrites_manifests=True, drops_statistics=True)
            committed = propose(session, _proposal(session, rewrite, base=None))
        except CommitConflictError:
            # Rows were committed meanwhile that may hold a key.
            if not tries_left:
                raise
            continue
        return committed, own_files
    raise AssertionError("the last race returns or raises")


def _replace_files(session: TableSession, base: Snapshot, change: StateChange) -> None:
    require_writable(session, base)
    proposal = _proposal(session, LiveChange(drops_statistics=True), base=base)
    propose(session, replace(proposal, messages=change.messages(), planned_on=base))


def _proposal(session: TableSession, change: LiveChange, *, base: Snapshot | None) -> Proposal:
    """Return a commit that changes cost alone. `base`: the only snapshot that it may land on."""
    identity = CommitIdentity(commit_user=session.ids.new_id())
    return Proposal(
        identity=identity,
        kind=CommitKind.COMPACT,
        choose=lambda _: change,
        requires=None if base is None else SameState(on=base),
    )


def rewrite_tag(
    session: TableSession,
    tag: Tag,
    keys: ForgottenKeys,
    files: KeyFiles,
    quiet: TableSession,
    locks: ExitStack,
) -> bool:
    """Let a tag name its own state without the keys, in one atomic step; then free what it named alone.

    False, and the tag is as it is, where others have changed or deleted it since it was read. A lock tag names the new state before: `locks` deletes it once no other tag is going to name the same files.
    What it names is then looked for, and safe from power cuts. `quiet`: the session that deletes for good,
    whatever the table's trash. A kill leaves the old tag or the new one, the lock tag for an hour, and files that
    nothing names.
    """
    then = session.as_of(tag.snapshot)
    change = change_state(session, tag.snapshot, keys, files)
    state, metadata = _rewritten_state(then, tag.snapshot, change)
    locks.enter_context(locked(session, state, FORGETTING))
    index = (entry.index_file for entry in change.index if entry.kind is EntryKind.ADD)
    staged = [path for entry in change.new for path in session.data_paths(entry)]
    staged += [session.paths.index_file(file.file_name) for file in index]
    # A tag that survives a power cut may not name files that did not.
    session.file_io.sync([*staged, *metadata])
    moved = session.tags.replace(tag, replace(tag, snapshot=state, id=session.ids.new_id()))
    if moved is None:
        return False
    plan = plan_removal(quiet, [tag], besides=(), reason=f"keys were forgotten in tag {tag.name!r}")
    carry_out(quiet, replace(plan, tags=()), kind="forget")
    session.follow_iceberg()
    return True


def _rewritten_state(
    session: TableSession, old: Snapshot, change: StateChange
) -> tuple[Snapshot, list[str]]:
    """Write the metadata of a changed state, all files as additions, none deleted; return its paths, too."""
    writer = MetadataWriter(session)
    base, base_size = writer.list(writer.manifests(change.after(session.live_entries(old))))
    delta, delta_size = writer.list([])
    writer.write_waiting()
    checksums, paths = dict(writer.checksums), list(writer.paths)
    index = old.index_manifest
    if index is not None:
        deleted = {
            item.index_file.file_name for item in change.index if item.kind is EntryKind.DELETE
        }
        retained = [
            item for item in session.index_entries(old) if item.index_file.file_name not in deleted
        ]
        new = [item for item in change.index if item.kind is EntryKind.ADD]
        index = f"index-manifest-{session.ids.new_id()}-0"
        codec = session.options[core_options.MANIFEST_COMPRESSION]
        written = session.manifests.write_index(index, [*retained, *new], codec=codec)
        checksums[index] = written.checksum
        paths.append(session.paths.manifest(index))
    total = old.total_record_count
    state = replace(
        old,
        base_manifest_list=base,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
        index_manifest=index,
        total_record_count=None if total is None else total - change.row_count,
        delta_record_count=0,
        statistics=None,
        manifest_lists=None,
        checksums=checksums,
    )
    return state, paths


# -- Forget keys -----------------------------------------------------------------------------------

log = logging.getLogger(__name__)
_KEPT_LONGER = (
    core_options.MAINTENANCE_TRASH_RETAINED,
    core_options.CHANGELOG_NUM_RETAINED_MIN,
    core_options.CHANGELOG_NUM_RETAINED_MAX,
    core_options.CHANGELOG_TIME_RETAINED,
)


@record
class ForgetReport:
    """The result of a forgetting, or with `dry_run` of its plan; `proof` is the search after it."""

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
    """Plan how keys are removed from all that a table has, and with `dry_run` False remove them.

    Raises InvalidInputError, with nothing changed, where the plan has refusals.
    """
    session.options.require_writable()
    if session.paths.branch_name:
        raise UnsupportedError(
            "keys are forgotten in a table with all its branches; go on from the table",
            branch=session.paths.branch_name,
        )
    if session.newest().options.writes_iceberg:
        # Its bounds of columns may hold keys, in files that readers have open.
        raise InvalidInputError(
            "the Iceberg metadata of this table may hold keys; set 'metadata.iceberg.storage' to 'disabled', which "
            "deletes it, forget the keys, and set the option again",
            kind=ErrorKind.INVALID_OPTION,
            table=session.name,
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
        newest = session.newest()
        if newest.options.writes_iceberg:
            # Others have set the option meanwhile: what was written since may hold the keys.
            import_module("lsm_engine.table.iceberg").remove(newest)
            newest.follow_iceberg(with_branches=True)
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
        for name in list(left_branches(session, traced)):
            branches.delete(session, name)
        for branch in lines_of(session):
            _forget_in_branch(branch, keys, scope, findings)
        remove_orphans(
            _for_good(session),
            dry_run=False,
            older_than=scope.unreferenced_older_than,
            force=True,
        )
        _remove_empty_partitions(session, keys)
    clear_outside(session, keys.stored(emptied_partitions(session, keys)))


def _forget_in_branch(
    branch: TableSession, keys: ForgottenKeys, scope: ForgetScope, findings: RootFindings
) -> None:
    """Write the newest state and the tags of a branch anew where they hold a key; expire the rest."""
    quiet = _for_good(branch)
    holds = findings.touch(branch)
    latest = branch.snapshots.latest()
    files = KeyFiles(keys)
    with ExitStack() as locks:

        def rewrite_tags() -> None:
            for _ in range(_RACES):
                # A tag that others change meanwhile is looked at again.
                for tag in (tags := _tags_to_rewrite(branch, findings)):
                    rewrite_tag(branch, tag, keys, files, quiet, locks)
                if not tags:
                    break

        # Before anything is written: a lock tag refuses.
        _tags_to_rewrite(branch, findings)
        if latest is not None and findings.rewrite(branch, latest, "", is_tag=False) is not None:
            latest, files = rewrite_head(branch, keys, files)
            holds = True
            if latest is not None:
                _keep(branch, latest, locks)
                # A tag names the files of the newest state where they are the same, instead of
                # writing them again.
                files = files.named_by(branch.live_entries(latest))
        rewrite_tags()
        if latest is None or not holds:
            return
        _expire_below(branch, quiet, latest, scope)
        # Another process may have tagged a snapshot before EARLIEST moved; from now on no tag is made below it.
        rewrite_tags()
    expire.expire_all_changelogs(quiet, reason="keys were forgotten")


def _tags_to_rewrite(branch: TableSession, findings: RootFindings) -> list[Tag]:
    """Return the tags of a branch that hold a key.

    Raises CommitConflictError where others hold one by a lock tag: written anew it would not hold what they are about
    to name. A tag of a read names nothing further, and is rewritten.
    """
    tags = [tag for tag, _ in findings.tags(branch)]
    for tag in tags:
        if is_lock(tag.name) and not tag.name.startswith(READ_PREFIX):
            raise CommitConflictError(
                f"tag {tag.name!r} holds a key for an operation that makes or moves a tag; run it again once that has "
                "ended, or an hour after it was killed",
                kind=ErrorKind.ROWS_CHANGED,
                tag=tag.name,
                branch=shown(branch),
            )
    return tags


def _keep(branch: TableSession, head: Snapshot, locks: ExitStack) -> None:
    """Keep the rewritten state by a lock tag: tags are going to name files of it."""
    try:
        locks.enter_context(snapshot_retained(branch, head, FORGETTING))
    except NotFoundError as cause:
        # Tags may not name files that an expiry is deleting.
        raise CommitConflictError(
            "others have committed and expired the rewritten state meanwhile; run it again",
            kind=ErrorKind.ROWS_CHANGED,
            branch=shown(branch),
        ) from cause


def _expire_below(
    branch: TableSession, quiet: TableSession, head: Snapshot, scope: ForgetScope
) -> None:
    """Take every snapshot below one, once no consumer needs its changes."""
    # A rollback may have brought a state back that holds the keys.
    if not is_there(branch, head):
        raise _rolled_back(branch, head)
    behind = [] if scope.move_consumers else consumers_behind(branch, until=head.id)
    if behind:
        raise CommitConflictError(
            "others have committed meanwhile, and consumers have not read that yet; let them, and "
            "run it again",
            kind=ErrorKind.ROWS_CHANGED,
            consumers=behind,
            branch=shown(branch),
        )
    for consumer in branch.consumers.list():
        # One that is forgotten meanwhile is not made again.
        branch.consumers.move(
            consumer.name,
            lambda stored: head.id if stored is not None and stored < head.id else None,
        )
    # Snapshots that others committed since stay too: they were made on the rewritten state.
    count = (branch.snapshots.latest_id() or 0) - head.id + 1
    if count < 1:
        raise _rolled_back(branch, head)
    retention = Retention(
        retained_min=count, retained_max=count, time_retained_millis=0, expire_limit=NO_LIMIT
    )
    expire.expire(quiet, retention, dry_run=False)


def _rolled_back(branch: TableSession, snapshot: Snapshot) -> CommitConflictError:
    return CommitConflictError(
        "the table was rolled back meanwhile, and older snapshots may hold the keys again; run it again, which "
        "plans anew",
        snapshot_id=snapshot.id,
        branch=shown(branch),
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
        _remove_empty_directories(session.file_io, path)
        while path:
            session.file_io.remove_empty_directory(path)
            path = path.rpartition("/")[0]


def _remove_empty_directories(file_io: FileIO, path: str) -> None:
    for status in file_io.list(path):
        if status.is_directory:
            _remove_empty_directories(file_io, status.path)
            file_io.remove_empty_directory(status.path)
