"""Branches: snapshots of their own over the same data files, each in a directory of its own.

A branch is there once its schema-0 is, and holds no claim (metadata/publishing). A directory without it, of a creation or a
deletion that died, is no branch, yet its files are still retained references for maintenance.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from lsm_engine.base.errors import CommitConflictError, LsmError, NotFoundError
from lsm_engine.metadata.publishing import (
    RENAMING,
    Claim,
    claim_in,
    deleted,
    published,
    replaced,
    stable_listing,
    unclaimed,
)
from lsm_engine.planning.names import checked_branch_name
from lsm_engine.storage.bulk import results_of
from lsm_engine.storage.file_io import FileIO, FileStatus, check_name
from lsm_engine.storage.paths import BRANCH_PREFIX, TablePaths
from lsm_engine.storage.warehouse import undurable

_RACES = 10  # times that a name is asked for while others claim it


class BranchStore:
    """The branches of one table (BranchManager)."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def directories(self) -> list[str]:
        """Return the name of every branch directory, whole or not, from a listing asked twice.

        Raises UnsafePathError for a name that no path can have.
        """
        return [check_name(name) for name in self.directory_names()]

    def directory_names(self) -> list[str]:
        """Return what `directories` does, the names unchecked."""
        return sorted(
            status.name.removeprefix(BRANCH_PREFIX)
            for status in stable_listing(self._file_io, self._paths.branch_directory)
            if status.is_directory and status.name.startswith(BRANCH_PREFIX)
        )

    def marks(self) -> dict[str, object]:
        """Return for every branch directory what its schema-0 is by: another once the branch was moved or made anew."""
        names = self.directories()
        marks = results_of(self._file_io, *(partial(self._mark_of, name) for name in names))
        return dict(zip(names, marks, strict=True))

    def _mark_of(self, name: str) -> object:
        try:
            status = self._file_io.status(self._first(name))
        except NotFoundError:
            # A directory that is left of a branch: its files are retained references, too.
            return None
        return status.modified_millis, status.size, status.tag

    def names(self) -> list[str]:
        """Return the branches that are there, sorted."""
        return [name for name in self.directories() if self.exists(name)]

    def exists(self, name: str) -> bool:
        """Whether there is such a branch."""
        content = self.first_file(name)
        return content is not None and self.schema_in(name, content) is not None

    def schema_in(self, name: str, content: bytes) -> bytes | None:
        """Return the first schema that the content of schema-0 stands for; None for a claim, as there is no branch."""
        return unclaimed(self._file_io, self._paths.branch(name), self._first(name), content)

    def first_file(self, name: str) -> bytes | None:
        """Return what schema-0 of a branch holds, which may be a claim; None if there is none."""
        try:
            return self._file_io.read(self._first(name))
        except NotFoundError:
            # Schema-0 decides who owns the name: without it the name is free.
            return None

    def _first(self, name: str) -> str:
        return self._paths.branch(name).schema_file(0)

    def paths(self, name: str) -> TablePaths:
        """Return where a branch keeps what is its own; raises InvalidInputError for a bad name."""
        return self._paths.branch(checked_branch_name(name))

    def files(self, name: str) -> list[FileStatus]:
        """Return the files that a branch has of its own, from listings asked twice, schemas first.

        Without the locks of names, which go by themselves (storage/locks).
        """
        return [
            status
            for directory in self.own_directories(name)
            for status in stable_listing(self._file_io, directory)
            if not status.is_directory
            and not (status.name.startswith(".") and ".lock" in status.name)
        ]

    def own_directories(self, name: str) -> tuple[str, ...]:
        """Return the directories in which a branch keeps files of its own."""
        paths = self._paths.branch(name)
        return (
            paths.schema_directory,
            paths.snapshot_directory,
            paths.changelog_directory,
            paths.tag_directory,
            paths.consumer_directory,
        )


class BranchClaim:
    """A claim on a branch, and what its holder does: see metadata/publishing for why each step is safe.

    Other threads and processes may take the name over at any time; then nothing more of the claim has an effect.
    """

    def __init__(self, file_io: FileIO, paths: TablePaths, name: str, claim: Claim) -> None:
        """`paths`: of main. `claim`: with an id of its own."""
        self._file_io = file_io
        self._store = BranchStore(file_io, paths)
        self._paths = self._store.paths(name)
        self._name = name
        self._claim = claim
        self._first = self._paths.schema_file(0)

    def take(self, require: Callable[[bytes | None], None]) -> bytes | None:
        """Put the claim in the place of schema-0, whatever that is; return what it was.

        `require` raises for what may not be claimed: a schema, another's claim, or nothing (None).
        """
        for _ in range(_RACES):
            before = self._store.first_file(self._name)
            require(before)
            data = self._claim.encoded()
            # Both calls fail if another process was faster; then its claim is read.
            if before is None:
                is_taken = published(self._file_io, self._first, data)
            else:
                is_taken = replaced(self._file_io, self._first, data, expected=before)
            if is_taken:
                return before
        raise self._raced()

    def _raced(self) -> CommitConflictError:
        return CommitConflictError(
            f"others keep making and deleting branch {self._name!r}; nothing was changed, try again",
            branch=self._name,
        )

    def hold(self) -> bytes | None:
        """Put a claim in the place of schema-0 under which the branch is there all the same; return the schema.

        None: there is no such branch.
        """
        for _ in range(_RACES):
            content = self._store.first_file(self._name)
            schema = None if content is None else self._store.schema_in(self._name, content)
            if content is None or schema is None:
                return None
            if replaced(self._file_io, self._first, self._holding(schema), expected=content):
                return schema
        raise self._raced()

    def take_held(self, schema: bytes) -> bool:
        """Put the claim in the place of that of `hold`: the branch is deleted. False if another has the name by now."""
        data = self._claim.encoded()
        return replaced(self._file_io, self._first, data, expected=self._holding(schema))

    def let_go(self, schema: bytes) -> None:
        """Put the schema in the place of the claim of `hold` again."""
        replaced(self._file_io, self._first, schema, expected=self._holding(schema))

    def _holding(self, schema: bytes) -> bytes:
        claim = Claim(claim_id=self._claim.claim_id, reason=RENAMING, before=schema)
        return claim.encoded()

    def is_held(self) -> bool:
        """Whether the name is still claimed by this, and by no other."""
        return self._store.first_file(self._name) == self._claim.encoded()

    def fill(self, files: Mapping[str, bytes]) -> bool:
        """Make the files of the branch, in order; False, and none is left, if another has the name by now."""
        data = self._claim.encoded()
        is_claimed = all(
            results_of(self._file_io, *(partial(self._claim_new, path) for path in files))
        )
        # A process that takes the name over replaces schema-0, then deletes. Either it sees the
        # claims, or this sees its claim.
        if is_claimed and self.is_held():
            # One after the other: what the hints name, which are the last, has its content by then.
            contents = (
                replaced(self._file_io, path, content, expected=data)
                for path, content in files.items()
            )
            if all(contents):
                return True
        for path in files:
            deleted(self._file_io, path, expected=data)
        return False

    def _claim_new(self, path: str) -> bool:
        data = self._claim.encoded()
        for _ in range(_RACES):
            if published(self._file_io, path, data):
                return True
            with suppress(NotFoundError):
                content = self._file_io.read(path)
                if claim_in(content, file_name=path) is None:
                    return False
                deleted(self._file_io, path, expected=content)  # of a process that lost the name
        return False

    def empty(self, on_file: Callable[[str, bytes], None] = lambda _, __: None) -> bool:
        """Delete all files of the branch but schema-0; False if another has the name by now.

        `on_file` is called with each and its content before it is deleted.
        """
        while files := [
            status.path for status in self._store.files(self._name) if status.path != self._first
        ]:
            # In the branch of another no file may be claimed.
            if not self.is_held():
                return False
            marks = dict(
                mark
                for mark in results_of(
                    self._file_io, *(partial(self._mark, path) for path in files)
                )
                if mark is not None
            )
            if not self.is_held():
                # Another took the name over while files were claimed: they get their content back.
                self._unmark(marks)
                return False
            for path, (content, _) in marks.items():
                if content is not None:
                    on_file(path, content)
            # Not synced: files that a power cut brings back belong to a branch that is deleted.
            bulk = undurable(self._file_io)
            results_of(
                bulk,
                *(partial(deleted, bulk, path, expected=mark) for path, (_, mark) in marks.items()),
            )
        return self.is_held()

    def _mark(self, path: str) -> tuple[str, tuple[bytes | None, bytes]] | None:
        """Claim a file; return its path, its content, and what it holds now. None if it went, or is temporary."""
        # A temporary file has no content to give back.
        if path.rpartition("/")[2].startswith("."):
            self._file_io.delete(path)
            return None
        try:
            content = self._file_io.read(path)
        except NotFoundError:
            # Another process has deleted it.
            return None
        claim = claim_in(content, file_name=path)
        # A claim of a former holder keeps the content that it stands for.
        if claim is not None:
            return path, (claim.before, content)
        mark = Claim(
            claim_id=self._claim.claim_id, reason=self._claim.reason, before=content
        ).encoded()
        if not replaced(self._file_io, path, mark, expected=content):
            return None  # changed: the next listing has it again
        return path, (content, mark)

    def _unmark(self, marks: Mapping[str, tuple[bytes | None, bytes]]) -> None:
        """Give back what was claimed in the branch of another. A kill before it leaves void claims."""
        for path, (content, mark) in marks.items():
            claim = claim_in(mark, file_name=path)
            if claim is not None and claim.claim_id == self._claim.claim_id and content is not None:
                replaced(self._file_io, path, content, expected=mark)

    def give(self, content: bytes) -> bool:
        """Put schema-0 in the place of the claim: the branch is there. False if another has the name by now."""
        return replaced(self._file_io, self._first, content, expected=self._claim.encoded())

    def release(self) -> None:
        """Delete the claim, and the directories; the name is free. Nothing happens if another has it by now."""
        if not deleted(self._file_io, self._first, expected=self._claim.encoded()):
            return
        for directory in (*self._store.own_directories(self._name), self._paths.of_branch()):
            self._file_io.remove_empty_directory(directory)

    def give_up(self) -> None:
        """Delete what was made so far, as after an error; what cannot be deleted is left to a deletion of the branch."""
        with suppress(LsmError):
            if self.empty():
                self.release()
