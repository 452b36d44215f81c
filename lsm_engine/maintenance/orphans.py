"""Orphan files: list everything → read every retained reference → delete what is old and nothing names.

Listing comes first: a file that a commit adds meanwhile is then named by its snapshot, or not listed.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes, parse_age
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.unfinished_upload import UnfinishedUpload
from lsm_engine.metadata.trash import TrashStore
from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.expire import (
    ExpirePlan,
    MetadataNames,
    OrphanPlan,
    RetainedFiles,
    plan_orphans,
)
from lsm_engine.storage.bulk import results_of
from lsm_engine.storage.file_io import FileStatus, UploadsInParts
from lsm_engine.storage.paths import BUCKET_PREFIX, TablePaths
from lsm_engine.table.references import References, branches, keep_in_trash, retained_lines
from lsm_engine.table.session import TableSession

log = logging.getLogger(__name__)


@record
class OrphanReport:
    """The result of a removal of orphan files, or with `dry_run` of its plan.

    `uploads_unknown`: why the store could not be asked for unfinished uploads; None if it was.
    """

    plan: OrphanPlan
    dry_run: bool
    uploads_unknown: str | None = None

    def __str__(self) -> str:
        plan = self.plan
        verb = "found" if not plan.orphans else "would remove" if self.dry_run else "removed"
        text = (
            f"{verb} {counted(len(plan.orphans), 'orphan file')} ({format_bytes(plan.freed_bytes)}); of "
            f"{counted(plan.listed_count, 'file')} {plan.reachable_count} {_are(plan.reachable_count)} named by a retained reference and "
            f"{plan.young_count} {_are(plan.young_count)} too young to judge"
        )
        if plan.uploads:
            text += f"; {'would abort' if self.dry_run else 'aborted'} {counted(len(plan.uploads), 'unfinished upload')}"
        if self.uploads_unknown is not None:
            text += f"; unfinished uploads are not known: {self.uploads_unknown}"
        return text


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def remove_orphans(
    session: TableSession, *, dry_run: bool, older_than: str | timedelta, force: bool
) -> OrphanReport:
    """Remove files that no retained reference names and that are older than an age; fail closed.

    Raises what reading a retained reference raises, before anything is deleted. `force` allows ages below a day,
    for tables without writers.
    """
    session.options.require_writable()
    age = parse_age(older_than)
    if not dry_run:
        # Files that only a deleted branch named are orphans, and the metadata may show it still.
        session.follow_iceberg(with_branches=True)
    file_io = session.file_io
    acts: tuple[Callable[[], Any], ...] = (
        lambda: session.storage_time(deletes=not dry_run),
        lambda: _orphan_snapshots(session.gathered()),
        lambda: _uploads(session),
        lambda: _flat_listing(session),
    )
    now, orphan_snapshots, (uploads, unknown), flat = results_of(file_io, *acts)
    if flat is not None:  # without the file that asked for the time
        flat = [
            status for status in flat if status.modified_millis < now or not _is_temporary(status)
        ]
    # Files are listed before references are read: what is written in between is no candidate.
    plan = plan_orphans(
        list(_listed(session, orphan_snapshots, flat)),
        reachable_paths(session.gathered()),
        store_now_millis=now,
        older_than_millis=age,
        force=force,
        uploads=uploads,
    )
    log.info(
        "orphan plan table=%s files=%d uploads=%d",
        session.name, len(plan.orphans), len(plan.uploads),
    )  # fmt: skip
    if not dry_run and isinstance(file_io, UploadsInParts) and plan.uploads:
        file_io.abort_uploads(plan.uploads)
    if not dry_run and plan.orphans:
        _carry_out(session, plan, orphan_snapshots)
    return OrphanReport(plan=plan, dry_run=dry_run, uploads_unknown=unknown)


def _uploads(session: TableSession) -> tuple[Sequence[UnfinishedUpload], str | None]:
    """Return uploads of this table, or why they are not known: files are removed all the same."""
    file_io = session.file_io
    if not isinstance(file_io, UploadsInParts):
        return (), None
    try:
        return file_io.unfinished_uploads(session.paths.at("").rstrip("/")), None
    except LsmError as error:
        # Some stores list no uploads: their bytes cost money, but hurt no table.
        return (), error.message


def _orphan_snapshots(session: TableSession) -> dict[str, tuple[TableSession, Snapshot]]:
    return {
        branch.paths.snapshot_file(snapshot.id): (branch, snapshot)
        for branch in branches(session)
        for snapshot in branch.snapshots.stable_listing_with_orphans()[1]
    }


def _carry_out(
    session: TableSession,
    plan: OrphanPlan,
    orphan_snapshots: Mapping[str, tuple[TableSession, Snapshot]],
) -> None:
    """Delete files. An orphan snapshot is deleted only with the content that was read, as its id may be used again."""
    reason = "no snapshot, tag, changelog or branch names these, and they are old"
    for branch, orphan_snapshot in (
        orphan_snapshots[path] for path, _ in plan.orphans if path in orphan_snapshots
    ):
        branch.snapshots.delete_state(orphan_snapshot)
    # The snapshot files were deleted above, each after a look at its content.
    orphans = [path for path, _ in plan.orphans if path not in orphan_snapshots]
    if keep_in_trash(session, ExpirePlan(reason=reason), paths=orphans) is None:
        session.file_io.delete_many(orphans)
    names = tuple(path.rpartition("/")[2] for path in orphans)
    session.notify_removed("remove-orphans", reason, files=names, freed_bytes=plan.freed_bytes)


def _flat_listing(session: TableSession) -> list[FileStatus] | None:
    """Return every file of the table; None where directories are listed one by one."""
    if session.file_io.facts.has_directories:
        return None
    return list(session.file_io.list_files(session.paths.at("").rstrip("/")))


def _listed(
    session: TableSession, orphan_snapshots: Container[str], flat: list[FileStatus] | None
) -> Iterator[FileStatus]:
    """Yield the files that may be orphans. Where only metadata lives, those are temporary files.

    And `orphan_snapshots`: snapshot files that never counted.
    """
    file_io, paths = session.file_io, session.paths
    if flat is not None:
        yield from (
            file_status
            for file_status in flat
            if _may_be_orphan(session, file_status, orphan_snapshots)
        )
        return
    for directory in (paths.manifest_directory, paths.index_directory, paths.statistics_directory):
        yield from (status for status in file_io.list(directory) if not status.is_directory)
    metadata_directories = [
        directory
        for branch in branches(session)
        for directory in (
            branch.paths.snapshot_directory,
            branch.paths.schema_directory,
            branch.paths.tag_directory,
            branch.paths.changelog_directory,
            branch.paths.consumer_directory,
        )
    ]
    # Only temporary files of those are candidates: every other file there is metadata of its own.
    for directory in (*metadata_directories, paths.trash_directory, paths.at("")):
        yield from (
            status
            for status in file_io.list(directory)
            if _is_temporary(status) or status.path in orphan_snapshots
        )
    yield from _bucket_files(session, paths.bucket_root, len(session.schema.partition_keys))


def _may_be_orphan(
    session: TableSession, status: FileStatus, orphan_snapshots: Container[str]
) -> bool:
    """Whether a file of a flat listing is where orphans may be, as walking directories finds them."""
    if status.path in orphan_snapshots or _is_temporary(status):
        return True
    paths = session.paths
    directory, _, _ = status.path.rpartition("/")
    if directory in (paths.manifest_directory, paths.index_directory, paths.statistics_directory):
        return True
    root = f"{paths.bucket_root}/".lstrip("/")
    *partition, bucket = directory.removeprefix(root).split("/")
    return (
        directory.startswith(root)
        and bucket.startswith(BUCKET_PREFIX)
        and len(partition) == len(session.schema.partition_keys)
        and all("=" in part for part in partition)
    )


def _is_temporary(status: FileStatus) -> bool:
    return not status.is_directory and status.name.startswith(".") and status.name.endswith(".tmp")


def _bucket_files(session: TableSession, directory: str, depth: int) -> Iterator[FileStatus]:
    """Yield the files of all buckets: `depth` directories of partition values, then one bucket."""
    for status in session.file_io.list(directory):
        if not status.is_directory:
            continue
        if depth > 0:
            if "=" in status.name:
                yield from _bucket_files(session, status.path, depth - 1)
        elif status.name.startswith(BUCKET_PREFIX):
            yield from (file for file in session.file_io.list(status.path) if not file.is_directory)


def reachable_paths(session: TableSession, *, besides: str | None = None) -> set[str]:
    """Return every path that a snapshot, tag, changelog, branch or trash record names.

    `besides`: a trash record that is no retained reference.
    """
    reachable: set[str] = set()
    for line, retained in retained_lines(session):
        reachable |= retained_paths(line, retained)
    # The trash keeps its files until a record is emptied.
    for trash_record in TrashStore(session.file_io, session.paths).list():
        if trash_record.name != besides:
            reachable |= retained_paths(
                session, References(session).retained_by_record(trash_record)
            )
            reachable.update(trash_record.paths)
    return reachable


def history_paths(branch: TableSession) -> set[str]:
    """Return every path that a snapshot or changelog of one branch names."""
    snapshots = branch.snapshots.stable_listing()
    paths = retained_paths(
        branch,
        chain(
            References(branch).retained_by_snapshots(snapshots),
            References(branch).retained_by_changelogs(branch.changelogs.all()),
        ),
    )
    for entry in References(branch).changelog_entries(snapshots):
        paths.update(branch.data_paths(entry))
    return paths


def retained_paths(session: TableSession, references: Iterable[RetainedFiles]) -> set[str]:
    """Return every path that some retained references name."""
    paths: set[str] = set()
    for reference in references:
        paths.update(metadata_paths(session.paths, reference.names))
        for entry in chain(reference.entries, reference.changelog):
            if entry.kind is EntryKind.ADD:
                paths.update(session.data_paths(entry))
    return paths


def metadata_paths(paths: TablePaths, names: MetadataNames) -> Iterator[str]:
    """Yield where metadata files lie."""
    yield from map(paths.manifest, names.manifest_lists | names.manifests | names.index_manifests)
    yield from map(paths.index_file, names.index_files)
    yield from map(paths.statistics_file, names.statistics)
