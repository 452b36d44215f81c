"""Write the roots anew that are kept: the newest state of a branch by two commits, a tag in its place.

The first commit replaces the data files. Its own delta still names the least and greatest key of the
files that went, so the second one writes the manifests anew, as additions alone. What lies below is
then expired by the caller.
"""

from contextlib import ExitStack
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.meta.commit_message import CommitMessage, DataIncrement
from lsm_engine.meta.index_file import IndexFileMeta
from lsm_engine.meta.manifest import Bucket
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.proposal import CommitIdentity, LiveChange, Proposal, SameState
from lsm_engine.table.commit.commit import propose
from lsm_engine.table.commit.metadata_writer import MetadataWriter
from lsm_engine.table.forget.forgotten_keys import ForgottenKeys
from lsm_engine.table.forget.state_rewrite import KeyFiles, StateChange, change_state
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import require_writable
from lsm_engine.table.tags.removal import carry_out
from lsm_engine.table.tags.tag import locked, plan_removal

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
        own = files.afresh()
        base = session.snapshots.latest()
        if base is None:
            return None, own
        change = change_state(session, base, keys, own)
        try:
            if not change.is_empty:
                _replace_files(session, base, change)
            anew = LiveChange(rewrites_manifests=True, drops_statistics=True)
            committed = propose(session, _proposal(session, anew, base=None))
        except CommitConflictError:
            if not tries_left:
                raise
            continue
        return committed, own
    raise AssertionError("the last race returns or raises")


def _replace_files(session: TableSession, base: Snapshot, change: StateChange) -> None:
    require_writable(session, base)
    proposal = _proposal(session, LiveChange(drops_statistics=True), base=base)
    propose(session, replace(proposal, messages=tuple(_messages(change)), planned_on=base))


def _proposal(session: TableSession, change: LiveChange, *, base: Snapshot | None) -> Proposal:
    """Return a commit that changes cost alone. `base`: the only snapshot that it may land on."""
    identity = CommitIdentity(commit_user=session.ids.new_id())
    return Proposal(
        identity=identity,
        kind=CommitKind.COMPACT,
        choose=lambda _: change,
        requires=None if base is None else SameState(on=base),
    )


def _messages(change: StateChange) -> list[CommitMessage]:
    """Return the change bucket by bucket, as a commit takes it."""
    increments: dict[Bucket, DataIncrement] = {}
    totals: dict[Bucket, int] = {}

    def increment_of(bucket: Bucket) -> DataIncrement:
        return increments.get(bucket, DataIncrement())

    for entry in change.deleted:
        bucket = (entry.partition, entry.bucket)
        totals[bucket] = entry.total_buckets
        deleted = (*increment_of(bucket).deleted_files, entry.file)
        increments[bucket] = replace(increment_of(bucket), deleted_files=deleted)
    for entry in change.new:
        bucket = (entry.partition, entry.bucket)
        new = (*increment_of(bucket).new_files, entry.file)
        increments[bucket] = replace(increment_of(bucket), new_files=new)
    for index in change.index:
        bucket = (index.partition, index.bucket)
        increment = increment_of(bucket)
        files: tuple[IndexFileMeta, ...] = (index.index_file,)
        if index.kind is EntryKind.ADD:
            increment = replace(increment, new_index_files=(*increment.new_index_files, *files))
        else:
            increment = replace(
                increment, deleted_index_files=(*increment.deleted_index_files, *files)
            )
        increments[bucket] = increment
    return [
        CommitMessage(
            partition=bucket[0], bucket=bucket[1], total_buckets=totals.get(bucket, -1), data=data
        )
        for bucket, data in increments.items()
    ]


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
    staged = [session.data_path(entry) for entry in change.new]
    staged += [session.paths.index_file(file.file_name) for file in index]
    session.file_io.sync([*staged, *metadata])
    moved = session.tags.replace(tag, replace(tag, snapshot=state, id=session.ids.new_id()))
    if moved is None:
        return False
    plan = plan_removal(quiet, [tag], besides=(), reason=f"keys were forgotten in tag {tag.name!r}")
    carry_out(quiet, replace(plan, tags=()), kind="forget")
    session.notify(lambda listener: listener.tagged(session.name, moved))
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
