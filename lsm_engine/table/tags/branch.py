"""Branches (BranchManager): snapshots of their own over the same data files; create, rename, delete.

Taking a branch away deletes its metadata alone: files that only it named are then orphans.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.codec.documents import encode_recorded, encode_snapshot, encode_tag
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.expire import ExpirePlan
from lsm_engine.plan.names import MAIN_BRANCH, checked_branch_name
from lsm_engine.store.branches import BranchStore
from lsm_engine.store.publishing import published
from lsm_engine.store.schemas import SchemaStore
from lsm_engine.table.ground.committed_files import committed_files
from lsm_engine.table.ground.components import CommittedFiles
from lsm_engine.table.ground.live_files import SCHEMA_ID
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.removal import notify_removed, recorded_at
from lsm_engine.table.tags.tag import without_changelog


@record
class Branch:
    """A branch by name; `created_from` is the tag it began at, None if it began empty."""

    name: str
    created_from: str | None = None


def branches(session: TableSession) -> BranchStore:
    """Return the table's branches; the session must be that of main."""
    if session.paths.branch_name:
        raise UnsupportedError(
            "a branch has no branches of its own; go on from the table", branch=_own_name(session)
        )
    return BranchStore(session.file_io, session.paths)


def _own_name(session: TableSession) -> str:
    return session.paths.branch_name or MAIN_BRANCH


def on_branch(session: TableSession, name: str) -> TableSession:
    """Return the table as a branch has it; raises NotFoundError for one that is not there."""
    if name == MAIN_BRANCH:
        name = ""
    elif not BranchStore(session.file_io, replace(session.paths, branch_name="")).exists(name):
        raise _missing(name)
    paths = replace(session.paths, branch_name=name)
    schema = SchemaStore(session.file_io, paths).latest()
    if schema is None:
        raise _missing(name)
    schema.options.require_readable()
    shown = name or MAIN_BRANCH
    listeners = tuple(one.on_branch(shown) for one in session.components.listeners)
    components = replace(session.components, listeners=listeners)
    return TableSession(session.name, components, schema, branch=name)


def create(session: TableSession, name: str, *, tag: str | None = None) -> Branch:
    """Make a branch: from a tag, with its snapshot as the first; or empty, with the newest schema.

    Of any number of makers of one name one succeeds. What a maker that died has left goes first.
    """
    session.options.require_writable()
    checked_branch_name(name)
    store = branches(session)
    if store.exists(name):
        raise AlreadyExistsError(
            f"branch {name!r} exists; delete it first, or choose another name", branch=name
        )
    for left in store.files(name):
        session.file_io.delete(left.path)
    source = None if tag is None else session.tags.load(tag)
    first = _first_files(session, name, source)
    file_io, paths = session.file_io, store.paths(name)
    for path, data in first.items():
        published(file_io, path, data)
    if source is not None and session.tags.find(source.name) != source:
        # Its deletion may not have seen the branch, and may be taking the files (decisions/0004).
        for left in store.files(name):
            file_io.delete(left.path)
        raise NotFoundError(
            f"tag {source.name!r} went while a branch was made from it",
            kind=ErrorKind.NO_SUCH_TAG,
            tag=source.name,
        )
    if source is not None:
        _forget_expired_changelog(session, first, paths.snapshot_file(source.snapshot.id), source)
    if not published(file_io, paths.schema_file(0), session.schemas.copied(0)):
        raise AlreadyExistsError(f"somebody else made branch {name!r} meanwhile", branch=name)
    _notify_made(session, name)
    return Branch(name=name, created_from=tag)


def _first_files(session: TableSession, name: str, source: Tag | None) -> dict[str, bytes]:
    """Return the files that a branch begins with, schema-0 left out, which makes it one."""
    paths = branches(session).paths(name)
    newest = session.schema.id if source is None else _newest_schema_id(session, source.snapshot)
    files = {
        paths.schema_file(number): session.schemas.copied(number)
        for number in session.schemas.ids()
        if 0 < number <= newest
    }
    if source is not None:
        snapshot = without_changelog(session, source.snapshot)
        files[paths.tag_file(source.name)] = encode_tag(replace(source, snapshot=snapshot), name)
        files[paths.snapshot_file(snapshot.id)] = encode_snapshot(snapshot)
        identifiers = recorded_at(session, source.snapshot)
        if identifiers is not None:
            files[paths.commit_identifier_file] = encode_recorded(identifiers)
        number = str(snapshot.id).encode()
        files[paths.snapshot_hint("EARLIEST")] = number
        files[paths.snapshot_hint("LATEST")] = number
    return files


def _forget_expired_changelog(
    session: TableSession, first: Mapping[str, bytes], path: str, source: Tag
) -> None:
    """Write a new branch's snapshot again without its changelog, if an expiry may be deleting that.

    A tag keeps no changelog. An expiry that moves EARLIEST after this look sees the branch as a root.
    """
    if source.snapshot.changelog_manifest_list is None:
        return
    snapshot = without_changelog(session, source.snapshot)
    data = encode_snapshot(snapshot)
    if snapshot.changelog_manifest_list is None and data != first[path]:
        session.file_io.replace(path, data)


def _newest_schema_id(session: TableSession, snapshot: Snapshot) -> int:
    """Return the newest schema of a snapshot and its files: who made it may have known an older one."""
    live = session.live_rows(snapshot)
    written: list[int] = [] if live is None else pc.unique(live.column(SCHEMA_ID)).to_pylist()
    return max(snapshot.schema_id, *written, 0)


def delete(session: TableSession, name: str) -> None:
    """Delete a branch. A kill leaves it whole or deleted; deleting again removes what was left."""
    session.options.require_writable()
    store = branches(session)
    _require_not_fallen_back_on(session, name)
    _take(session, store, name)
    _notify_gone(session, name)
    notify_removed(
        session,
        ExpirePlan(reason=f"branch {name!r} was deleted; orphans are freed later"),
        "delete-branch",
    )


def _require_not_fallen_back_on(session: TableSession, name: str) -> None:
    if session.options[core_options.SCAN_FALLBACK_BRANCH] == name:
        raise InvalidInputError(
            "the table falls back on this branch; remove 'scan.fallback-branch' first", branch=name
        )


def _take(session: TableSession, store: BranchStore, name: str) -> None:
    files = store.files(name)
    if not files and name not in store.directories():
        raise _missing(name)
    file_io, paths = session.file_io, session.paths.branch(name)
    durable: bool = session.options[core_options.COMMIT_FSYNC]
    for status in files:
        file_io.delete(status.path)
        if durable and status.path == paths.schema_file(0):
            # After a power cut the branch must not be back without its snapshots.
            file_io.sync_directory(paths.schema_directory)
    for directory in (*store.own_directories(name), paths.of_branch()):
        file_io.remove_empty_directory(directory)


def rename(session: TableSession, name: str, new_name: str) -> Branch:
    """Give a branch another name. A kill may leave both; renaming again finishes.

    Raises CommitConflictError, with nothing changed, where the branch was written to or expired meanwhile;
    what lands on it while it is deleted goes with it.
    """
    session.options.require_writable()
    checked_branch_name(new_name)
    _require_not_fallen_back_on(session, name)
    store = branches(session)
    if not store.exists(name):
        raise _missing(name)
    old, new = _contents(session, store, name), _contents(session, store, new_name)
    if store.exists(new_name):
        if old != new:
            raise AlreadyExistsError(f"branch {new_name!r} exists", branch=new_name)
    else:
        for left in store.files(new_name):
            session.file_io.delete(left.path)
        directory, first = session.paths.branch(new_name).of_branch(), "schema/schema-0"
        for path in [one for one in old if one != first]:
            published(session.file_io, f"{directory}/{path}", old[path])
        if _contents(session, store, name) != old:
            _take(session, store, new_name)
            raise CommitConflictError(
                f"branch {name!r} changed while it was renamed; nothing was changed, try again",
                branch=name,
            )
        published(session.file_io, f"{directory}/{first}", old[first])
    _take(session, store, name)
    _notify_gone(session, name)
    _notify_made(session, new_name)
    return Branch(name=new_name)


def _contents(session: TableSession, store: BranchStore, name: str) -> dict[str, bytes]:
    """Return the files of a branch by path below its directory; StorageError for a short answer."""
    directory = session.paths.branch(name).of_branch()
    found = {}
    for status in store.files(name):
        if status.name.startswith("."):
            continue
        data = session.file_io.read(status.path)
        if len(data) != status.size:
            raise StorageError(
                "the storage gave part of a file; nothing was changed, try again", path=status.path
            )
        found[status.path.removeprefix(directory + "/")] = data
    return found


def _notify_gone(session: TableSession, name: str) -> None:
    """Report that all snapshots of a branch were deleted, as after a rollback to before the first of them."""
    gone = session.clock.now_millis()
    session.notify(lambda listener: listener.on_branch(name).rolled_back(session.name, 0, gone))


def _notify_made(session: TableSession, name: str) -> None:
    """Report the snapshots and tags that a branch has already, as it was made or was given its name.

    What cannot be read is left out: the branch is there all the same.
    """
    if not session.components.listeners:
        return
    with suppress(LsmError):
        branch = on_branch(session, name)
        for snapshot in branch.snapshots.all():
            with suppress(NotFoundError):  # of a tag whose snapshot has expired, its list too
                _notify_committed(branch, committed_files(branch, snapshot))
        for tag in branch.tags.list():
            _notify_tagged(branch, tag)


def _notify_committed(branch: TableSession, files: CommittedFiles) -> None:
    branch.notify(lambda listener: listener.committed(branch.name, files))


def _notify_tagged(branch: TableSession, tag: Tag) -> None:
    branch.notify(lambda listener: listener.tagged(branch.name, tag))


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"no branch {name!r}", kind=ErrorKind.NO_SUCH_FILE, branch=name)
