"""Branches (BranchManager): snapshots of their own over the same data files; create and delete.

Taking a branch away deletes its metadata alone: files that only it named are then orphans.
"""

from dataclasses import replace

import pyarrow.compute as pc

from lsm_engine.base.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.format.documents import encode_recorded, encode_snapshot, encode_tag
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.metadata.branches import BranchClaim, BranchStore
from lsm_engine.metadata.publishing import Claim, replaced
from lsm_engine.metadata.schemas import SchemaStore
from lsm_engine.options import core_options
from lsm_engine.planning.expire import ExpirePlan
from lsm_engine.planning.names import MAIN_BRANCH, checked_branch_name
from lsm_engine.planning.snapshot_chain import BRANCH_ID, branch_id
from lsm_engine.storage.paths import TablePaths
from lsm_engine.table.live_files import SCHEMA_ID
from lsm_engine.table.references import notify_removed, recorded_at
from lsm_engine.table.session import TableSession
from lsm_engine.table.tags import without_changelog


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
        raise missing(name)
    paths = replace(session.paths, branch_name=name)
    schema = SchemaStore(session.file_io, paths).latest()
    if schema is None:
        raise missing(name)
    # A branch has options of its own, which this version may not know.
    schema.options.require_readable()
    return TableSession(session.name, session.components, schema, branch=name)


def create(session: TableSession, name: str, *, tag: str | None = None) -> Branch:
    """Create a branch: from a tag, with its snapshot as the first; or empty, with the newest schema.

    Of any number of makers of one name one succeeds. What a maker that died has left goes first. Raises
    AlreadyExistsError where the name is another's, NotFoundError where the tag goes meanwhile.
    """
    session.options.require_writable()
    checked_branch_name(name)
    store = branches(session)
    source = None if tag is None else session.tags.load(tag)

    def require_free(content: bytes | None) -> None:
        if content is not None and store.schema_in(name, content) is not None:
            raise AlreadyExistsError(
                f"branch {name!r} exists; delete it first, or choose another name", branch=name
            )

    claim_id = session.ids.new_id()
    claim = _claim(session, name, "making", claim_id)
    # The claim comes first: of several makers of one name one goes on.
    claim.take(require_free)
    try:
        first = None if source is None else _first_snapshot(session, source, claim_id)
        files = _first_files(session, name, source, first)
        # What a dead maker or deleter left under the name goes before the own files are made.
        if not (claim.empty() and claim.fill(files)):
            raise _made_by_another(name)
        # The files are retained references by now. A deletion of the tag that was planned before
        # did not see them.
        if source is not None and first is not None:
            _require_kept(session, store.paths(name), first, source)
        # Schema-0 comes last: with it the branch exists, whole.
        if not claim.give(session.schemas.copied(0)):
            raise _made_by_another(name)
    except LsmError:
        # The name is free again; what was made so far goes with the claim.
        claim.give_up()
        raise
    session.follow_iceberg(with_branches=True)
    return Branch(name=name, created_from=tag)


def claim_on(session: TableSession, name: str, reason: str) -> BranchClaim:
    """Return a claim on a branch, which is not taken yet; `reason`, such as "making", is for people."""
    return _claim(session, name, reason, session.ids.new_id())


def _claim(session: TableSession, name: str, reason: str, claim_id: str) -> BranchClaim:
    claim = Claim(claim_id=claim_id, reason=reason)
    return BranchClaim(session.file_io, replace(session.paths, branch_name=""), name, claim)


def _made_by_another(name: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"another process made branch {name!r} meanwhile", branch=name)


def _require_kept(session: TableSession, paths: TablePaths, first: Snapshot, source: Tag) -> None:
    """Look at the tag once more, as the branch is a retained reference by now; raises NotFoundError.

    The deletion of the tag may not have seen the branch, and may be taking the files (decisions/0004).
    """
    # Another content may name another snapshot, or be a copy of a tag whose files are deleted.
    if session.tags.find(source.name) != source:
        raise NotFoundError(
            f"tag {source.name!r} went while a branch was made from it",
            kind=ErrorKind.NO_SUCH_TAG,
            tag=source.name,
        )
    if source.snapshot.changelog_manifest_list is None:
        return
    # A tag keeps no changelog. An expiry that moves EARLIEST after this look sees the branch as a retained reference.
    snapshot = _first_snapshot(session, source, branch_id(first) or "")
    path = paths.snapshot_file(snapshot.id)
    if (
        snapshot.changelog_manifest_list is None
        and snapshot != first
        and not replaced(
            session.file_io, path, encode_snapshot(snapshot), expected=encode_snapshot(first)
        )
    ):
        raise _made_by_another(paths.branch_name)


def _first_snapshot(session: TableSession, source: Tag, made_id: str) -> Snapshot:
    """Return the snapshot of a tag as the first one of a branch.

    It bears the id of the making: an expiry of a branch that was deleted and made again of the same tag would
    delete the first snapshot of the new branch otherwise, as both are the same commit.
    """
    snapshot = without_changelog(session, source.snapshot)
    return replace(snapshot, properties={**(snapshot.properties or {}), BRANCH_ID: made_id})


def _first_files(
    session: TableSession, name: str, source: Tag | None, first: Snapshot | None
) -> dict[str, bytes]:
    """Return the files that a branch begins with, schema-0 left out, which makes it one."""
    paths = branches(session).paths(name)
    newest = session.schema.id if source is None else _newest_schema_id(session, source.snapshot)
    files = {
        paths.schema_file(number): session.schemas.copied(number)
        for number in session.schemas.ids()
        if 0 < number <= newest
    }
    if source is not None and first is not None:
        files[paths.tag_file(source.name)] = encode_tag(replace(source, snapshot=first), name)
        files[paths.snapshot_file(first.id)] = encode_snapshot(first)
        identifiers = recorded_at(session, source.snapshot)
        if identifiers is not None:
            files[paths.commit_identifier_file] = encode_recorded(identifiers)
        number = str(first.id).encode()
        files[paths.snapshot_hint("EARLIEST")] = number
        files[paths.snapshot_hint("LATEST")] = number
    return files


def _newest_schema_id(session: TableSession, snapshot: Snapshot) -> int:
    """Return the newest schema of a snapshot and its files: its writer may have known an older one."""
    live = session.live_rows(snapshot)
    written: list[int] = [] if live is None else pc.unique(live.column(SCHEMA_ID)).to_pylist()
    return max(snapshot.schema_id, *written, 0)


def delete(session: TableSession, name: str) -> None:
    """Delete a branch. A kill leaves it whole or deleted; deleting again removes what was left."""
    session.options.require_writable()
    store = branches(session)
    require_not_fallen_back_on(session, name)

    def require_there(content: bytes | None) -> None:
        if content is None and name not in store.directories():
            raise missing(name)

    claim = claim_on(session, name, "deleting")
    # With the claim in the place of schema-0 the branch exists no more, whatever is left of it.
    claim.take(require_there)
    # Another process may have taken the name over; then it deletes the rest.
    if claim.empty():
        claim.release()
    notify_removed(
        session,
        ExpirePlan(reason=f"branch {name!r} was deleted; orphans are freed later"),
        "delete-branch",
    )
    session.follow_iceberg(with_branches=True)


def require_not_fallen_back_on(session: TableSession, name: str) -> None:
    if session.options[core_options.SCAN_FALLBACK_BRANCH] == name:
        raise InvalidInputError(
            "the table falls back on this branch; remove 'scan.fallback-branch' first", branch=name
        )


def missing(name: str) -> NotFoundError:
    return NotFoundError(f"no branch {name!r}", kind=ErrorKind.NO_SUCH_FILE, branch=name)
