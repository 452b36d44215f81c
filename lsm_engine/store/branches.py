"""Branches: snapshots of their own over the same data files, each in a directory of its own.

A branch is there once its schema-0 is: that file is made last and deleted first. A directory without
it, of a creation or a deletion that died, is no branch, yet its files are still roots for maintenance.
"""

from lsm_engine.io.file_io import FileIO, FileStatus, check_name
from lsm_engine.io.paths import BRANCH_PREFIX, TablePaths
from lsm_engine.plan.names import checked_branch_name
from lsm_engine.store.listing import stable_listing


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

    def names(self) -> list[str]:
        """Return the branches that are there, sorted."""
        return [name for name in self.directories() if self.exists(name)]

    def exists(self, name: str) -> bool:
        """Whether there is such a branch."""
        return self._file_io.exists(self._paths.branch(name).schema_file(0))

    def paths(self, name: str) -> TablePaths:
        """Return where a branch keeps what is its own; raises InvalidInputError for a bad name."""
        return self._paths.branch(checked_branch_name(name))

    def files(self, name: str) -> list[FileStatus]:
        """Return the files that a branch has of its own, from listings asked twice, schema-0 first."""
        found = [
            status
            for directory in self.own_directories(name)
            for status in stable_listing(self._file_io, directory)
            if not status.is_directory
        ]
        first = self._paths.branch(name).schema_file(0)
        return sorted(found, key=lambda status: status.path != first)

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
