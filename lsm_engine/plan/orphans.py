"""Orphan files: listed, minus reachable, minus young."""

from collections.abc import Collection, Iterable
from typing import Protocol

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.meta.unfinished_upload import UnfinishedUpload

DAY_MILLIS = 86_400_000


class ListedFile(Protocol):
    """What a listing reports about a file (io.FileStatus)."""

    @property
    def path(self) -> str:
        """Relative to the table, with forward slashes."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def modified_millis(self) -> int:
        """By the storage's own clock."""
        ...

    @property
    def is_directory(self) -> bool:
        """Directories are never orphans."""
        ...


@record
class OrphanPlan:
    """Orphans by path, and how many files were listed, reachable, or too young to judge.

    `uploads`: those that were begun and never completed, of writers that died; the young ones are counted.
    """

    orphans: tuple[tuple[str, int], ...]  # path, size in bytes
    listed_count: int
    reachable_count: int
    young_count: int
    uploads: tuple[UnfinishedUpload, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove or abort."""
        return not self.orphans and not self.uploads

    @property
    def freed_bytes(self) -> int:
        """Bytes that removing the orphans gives back."""
        return sum(size for _, size in self.orphans)


def plan_orphans(
    listed: Iterable[ListedFile],
    reachable: Collection[str],
    *,
    store_now_millis: int,
    older_than_millis: int,
    force: bool = False,
    uploads: Iterable[UnfinishedUpload] = (),
) -> OrphanPlan:
    """Return the listed files that no root reaches, and the uploads, that are older than an age.

    `listed` must have been gathered before `reachable`: a file that a commit adds in between is then
    reachable or not listed, never an orphan. `reachable` holds the paths that any snapshot,
    changelog, tag or branch names, schema files, hints and consumers included. `store_now_millis` is
    the storage's clock, the one that stamps files. Raises InvalidInputError for an age below one day
    without `force`: the files of a commit that is being written are reached by nothing yet.
    """
    if older_than_millis < DAY_MILLIS and not force:
        raise InvalidInputError(
            "orphans younger than a day may belong to a commit that is being written; use force if "
            "nobody writes",
            kind=ErrorKind.INVALID_OPTION,
            older_than_millis=older_than_millis,
        )
    orphans: dict[str, int] = {}
    listed_count = reachable_count = young_count = 0
    for file in listed:
        if file.is_directory:
            continue
        listed_count += 1
        if file.path in reachable:
            reachable_count += 1
        elif store_now_millis - file.modified_millis <= older_than_millis:
            young_count += 1
        else:
            orphans[file.path] = file.size
    begun = tuple(uploads)
    dead = [
        upload for upload in begun if store_now_millis - upload.begun_millis > older_than_millis
    ]
    return OrphanPlan(
        orphans=tuple(sorted(orphans.items())),
        listed_count=listed_count,
        reachable_count=reachable_count,
        young_count=young_count + len(begun) - len(dead),
        uploads=tuple(dead),
    )
