"""A branch is given another name: stopped by one commit, copied, made under the new name, and deleted.

The stop is an empty snapshot that names the new name. It lands or loses like any commit: what landed before it is
copied, and on it nobody commits. Until the branch is there by its new name, all of it can be read by the old one.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    LsmError,
    StorageError,
)
from lsm_engine.base.modes import CommitKind
from lsm_engine.codec.documents import decode_snapshot, encode_hint, encode_snapshot
from lsm_engine.io.paths import EARLIEST, LATEST
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import RENAMED_TO, renamed_to
from lsm_engine.plan.names import checked_branch_name
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.proposal import CommitIdentity, Proposal
from lsm_engine.store.branches import BranchStore
from lsm_engine.store.claims import unclaimed
from lsm_engine.store.publishing import published, replaced
from lsm_engine.table.commit.commit import propose
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.branch import (
    Branch,
    branches,
    claim_on,
    missing,
    notify_gone,
    notify_made,
    on_branch,
    require_not_fallen_back_on,
)

_RENAME = "lsm.rename"
"""Property of a stop: an id of the rename, so that no two write the same file."""
_CARRIED = ("tag/", "consumer/", "schema/")
"""What may change in a branch on which nobody commits, and is acknowledged."""


def rename(session: TableSession, name: str, new_name: str) -> Branch:
    """Give a branch another name. A kill may leave both, the old one without commits; renaming again finishes.

    Raises CommitConflictError, with nothing changed, where the branch was tagged or expired while it was copied. A
    commit beside it is there under the new name, or fails with an error that names it.
    """
    session.options.require_writable()
    checked_branch_name(new_name)
    require_not_fallen_back_on(session, name)
    store = branches(session)
    if not store.exists(name):
        raise missing(name)
    if name == new_name:
        return Branch(name=name)
    old = on_branch(session, name)
    stop: Snapshot | None
    copied: Mapping[str, bytes] | None = None
    if store.exists(new_name):
        stop = _stop_of_copy(session, old, new_name)
    else:
        stop, copied = _copied(session, old, new_name)
    if stop is None:
        raise _exists(new_name)
    _delete_old(session, old, new_name, stop, copied)
    notify_gone(session, name)
    notify_made(session, new_name)
    return Branch(name=new_name)


def _exists(name: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"branch {name!r} exists", branch=name)


def _copied(
    session: TableSession, old: TableSession, new_name: str
) -> tuple[Snapshot, Mapping[str, bytes]]:
    """Make the branch under its new name; return the stop, and what it was made of, by paths below its directory."""
    store, name = branches(session), old.paths.branch_name

    def require_free(content: bytes | None) -> None:
        if content is not None and store.schema_in(new_name, content) is not None:
            raise _exists(new_name)

    claim = claim_on(session, new_name, f"renaming {name}")
    claim.take(require_free)
    stop: Snapshot | None = None
    try:
        stop = _stopped(old, new_name)
        files = _contents(store, old, stop)
        directory = store.paths(new_name).of_branch()
        paths = {f"{directory}/{path}": content for path, content in files.items()}
        if not (claim.empty() and claim.fill(paths)):
            raise _exists(new_name)
        schema = old.schemas.copied(0)
        if _contents(store, old, stop) != files:
            raise CommitConflictError(
                f"branch {name!r} changed while it was renamed; nothing was changed, try again",
                branch=name,
            )
        if not claim.give(schema):
            raise _exists(new_name)
    except CommitUnknownError:
        raise  # the branch may be there by its new name: renaming again finishes
    except LsmError:
        claim.give_up()
        if stop is not None:
            _reopen(old, stop)
        raise
    return stop, files


def _rename_id(stop: Snapshot | None) -> str | None:
    return None if stop is None else (stop.properties or {}).get(_RENAME)


def _stopped(old: TableSession, new_name: str) -> Snapshot:
    """Commit the stop, or take over that of a rename that died; return it."""
    marks = {RENAMED_TO: new_name, _RENAME: old.ids.new_id()}
    newest = old.snapshots.latest()
    while newest is not None and renamed_to(newest) is not None:
        taken = _rewritten(old, newest, {**(newest.properties or {}), **marks})
        if taken is not None:
            return taken
        newest = old.snapshots.latest()
    forced = {core_options.COMMIT_FORCE_CREATE_SNAPSHOT.key: "true"}
    stop = propose(
        old.with_options(old.options.with_texts(forced)),
        Proposal(
            identity=CommitIdentity(commit_user=old.ids.new_id(), properties=marks),
            planned_on=newest,
            kind=CommitKind.COMPACT,
        ),
    )
    assert stop is not None, "an empty snapshot was asked for"
    return stop


def _reopen(old: TableSession, stop: Snapshot) -> None:
    """Make a stop an empty snapshot like others, unless another rename has taken it over."""
    marks = (RENAMED_TO, _RENAME)
    properties = {key: text for key, text in (stop.properties or {}).items() if key not in marks}
    with suppress(LsmError):  # then renaming again, under any name, goes on from it
        _rewritten(old, stop, properties)


def _rewritten(old: TableSession, stop: Snapshot, properties: Mapping[str, str]) -> Snapshot | None:
    """Give a stop other properties; None if another rename has done so since."""
    path = old.paths.snapshot_file(stop.id)
    old.snapshots.forget_newest()
    content = old.file_io.read(path)
    snapshot = decode_snapshot(content, file_name=path)
    if not same_state(snapshot, stop) or _rename_id(snapshot) != _rename_id(stop):
        return None
    other = replace(snapshot, properties=properties or None)
    is_rewritten = replaced(old.file_io, path, encode_snapshot(other), expected=content)
    return other if is_rewritten else None


def _contents(store: BranchStore, old: TableSession, stop: Snapshot) -> dict[str, bytes]:
    """Return the files of a branch without schema-0 and the stop, by path below its directory, the hints last.

    Raises StorageError for a short answer.
    """
    paths, directory = old.paths, old.paths.of_branch()
    hints = {paths.snapshot_hint(LATEST), paths.snapshot_hint(EARLIEST)}
    besides = {paths.schema_file(0), paths.snapshot_file(stop.id), *hints}
    files = {}
    for status in store.files(paths.branch_name):
        if status.name.startswith(".") or status.path in besides:
            continue
        content = old.file_io.read(status.path)
        if len(content) != status.size:
            raise StorageError(
                "the storage gave part of a file; nothing was changed, try again", path=status.path
            )
        document = unclaimed(old.file_io, paths, status.path, content)
        if document is not None:
            files[status.path.removeprefix(directory + "/")] = document
    if stop.id > 1:
        earliest = old.snapshots.earliest_hint()
        if earliest is not None:
            files[f"snapshot/{EARLIEST}"] = encode_hint(earliest)
        files[f"snapshot/{LATEST}"] = encode_hint(stop.id - 1)
    return files


def _stop_of_copy(session: TableSession, old: TableSession, new_name: str) -> Snapshot | None:
    """Return the stop of a rename that died once it had made the branch under its new name; None: another made that.

    Nothing may be in the old one that the new one has not.
    """
    stop = old.snapshots.latest()
    if stop is None or renamed_to(stop) != new_name:
        return None
    new = on_branch(session, new_name)
    newest = old.snapshots.find(stop.id - 1)
    is_copy = (
        (newest is None or same_state(new.snapshots.find(newest.id), newest))
        and set(old.tags.names()) <= set(new.tags.names())
        and set(old.consumers.names()) <= set(new.consumers.names())
        and set(old.schemas.ids()) <= set(new.schemas.ids())
    )
    return stop if is_copy else None


def _delete_old(
    session: TableSession,
    old: TableSession,
    new_name: str,
    stop: Snapshot,
    copied: Mapping[str, bytes] | None,
) -> None:
    """Delete the branch by its old name; what was added or moved there since it was copied moves along.

    `copied` None: nothing was. Another may have renamed it, too, or have deleted it and made one of the same name: then
    the stop is not in the branch that is held.
    """
    name = old.paths.branch_name
    before, after = old.paths.of_branch(), branches(session).paths(new_name).of_branch()
    claim = claim_on(session, name, f"renaming to {new_name}")
    schema = claim.hold()
    is_same = _rename_id(old.snapshots.find_now(stop.id)) == _rename_id(stop)
    if schema is not None and not is_same:
        claim.let_go(schema)
    if schema is None or not is_same or not claim.take_held(schema):
        if schema is None and copied is None:
            return  # another has finished what a dead one began
        raise CommitConflictError(
            f"branch {name!r} was renamed or deleted by another at the same time, and is there as {new_name!r}, "
            "too; delete that if it is not wanted",
            branch=new_name,
        )

    def carry(path: str, content: bytes) -> None:
        relative = path.removeprefix(before + "/")
        if copied is None or not relative.startswith(_CARRIED):
            return
        copy = copied.get(relative)
        if copy is None:
            published(session.file_io, f"{after}/{relative}", content)
        elif copy != content:
            replaced(session.file_io, f"{after}/{relative}", content, expected=copy)

    if claim.empty(carry):
        claim.release()
