"""Verify that every snapshot, tag and changelog can be read to its last file, and that they agree.

Other processes write meanwhile: a problem counts only if its snapshot, tag or changelog still exists
after it was found."""

import contextlib
import logging
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import (
    CorruptFileError,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
)
from lsm_engine.base.units import counted
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta
from lsm_engine.format.manifest import ManifestEntry, PhysicalFile, by_bucket
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.lsm.levels import Levels
from lsm_engine.maintenance.expire import changelogs_outlive
from lsm_engine.maintenance.findings import (
    Finding,
    Findings,
    Reference,
    VerifiedFileStore,
    VerifyReport,
    finding_of,
    of_branches,
    readable,
    stake_of,
)
from lsm_engine.maintenance.recovery import with_sources
from lsm_engine.maintenance.verify_files import (
    FileReader,
    FileToRead,
    Progress,
    read_files,
    wrong_index,
)
from lsm_engine.maintenance.verify_references import (
    IndexVerification,
    RowIdVerification,
    StatisticsVerification,
    live_of,
    wrong_between,
    wrong_total,
)
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.metadata.trash import TrashStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import EntryKind
from lsm_engine.options.table_options import unsupported_options
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.retention import kept_of_passed, retention_of
from lsm_engine.planning.rollback import divide_by_marker
from lsm_engine.planning.snapshot_chain import (
    believed,
    is_of_another_client,
    lost_below,
    rollback_target,
)
from lsm_engine.storage.file_io import FileStatus, check_name
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.components import LocalExecutor
from lsm_engine.table.live_files import BUCKET, FILE_NAME, KIND, LEVEL, PARTITION, ROW_COUNT
from lsm_engine.table.references import References, open_branch
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import indexes_by_partition
from lsm_engine.table.tags import is_there

# -- Verify the levels of buckets: files of a level below 0 do not overlap -------------------------


class LevelVerification:
    """Overlaps of one state after another: what did not change since the last one is known."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._below: frozenset[PhysicalFile] = frozenset()
        self._found: list[Finding] = []

    def problems(self, live: pa.Table) -> list[Finding]:
        """Return the overlaps among a state's live files, as decoded manifest entries."""
        below = live.filter(pc.greater(live.column(LEVEL), 0)) if live.num_rows else live
        key = frozenset(physical_files(below))
        if self._session.key_order is None or not key:
            return []
        if key != self._below:
            self._below, self._found = key, _overlaps(self._session, entries_of(below))
        return self._found


def _overlaps(session: TableSession, entries: Iterable[ManifestEntry]) -> list[Finding]:
    """Return the overlaps among files that are all below level 0."""
    order = session.key_order
    assert order is not None
    context = session.context()
    findings = []
    for (partition, bucket), bucket_entries in by_bucket(entries).items():
        try:
            Levels.from_files(
                [entry.file for entry in bucket_entries], level_count=1, key_order=order
            )
        except LsmError as error:
            # One bucket with overlaps must not hide the others.
            directory = context.bucket_directory(partition, bucket)
            findings.append(Finding(text=f"{directory}: {error}"))
    return findings


def physical_files(entries: pa.Table) -> list[PhysicalFile]:
    """Return the files on disk that decoded manifest entries name."""
    columns = (entries.column(name).to_pylist() for name in (PARTITION, BUCKET, FILE_NAME))
    return list(zip(*columns, strict=True))


# -- Verify manifest lists without a checksum, which other clients write, by their snapshots -------

EXCHANGED = "it is not the manifest list of its snapshot"


def wrong_rows(
    path: str, entries: Iterable[ManifestEntry], expected: int | None
) -> Iterator[Finding]:
    """Yield that the entries of a list add other rows than its snapshot counts, where that is known."""
    signed = ((entry.kind is EntryKind.ADD, entry.file.row_count) for entry in entries)
    rows = sum(count if is_added else -count for is_added, count in signed)
    if expected is not None and rows != expected:
        text = f"{EXCHANGED}: it adds {counted(rows, 'row')}, and not {expected}"
        yield Finding(text=text, path=path)


class ListVerification:
    """Lists are those that their snapshot was made with: by their sizes, rows, and the snapshot below.

    Lists that were exchanged, with each other or with those of another snapshot, may hold as many files
    and rows together as before.
    """

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._below: tuple[int, pa.Table] | None = None

    def problems(self, snapshot: Snapshot, live: pa.Table, *, in_line: bool) -> Iterator[Finding]:
        """Yield what is wrong with the lists of a retained reference, whose `live` files these are.

        `in_line`: it is a snapshot of the table, and no tag; these come in the order of their ids.
        """
        below, self._below = self._below, (snapshot.id, live) if in_line else None
        lists = (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        )
        if all(snapshot.checksum_of(name) is not None for name, _ in lists):
            return
        try:
            for name, size in lists:
                path = self._session.paths.manifest(name)
                stored_size = self._session.file_io.status(path).size
                if size is not None and stored_size != size:
                    yield Finding(text=f"{EXCHANGED}: {stored_size} bytes, not {size}", path=path)
            follows = below[1] if in_line and below and below[0] == snapshot.id - 1 else None
            yield from self._wrong_delta(snapshot, follows, live)
        except LsmError as error:
            yield finding_of(error)

    def _wrong_delta(
        self, snapshot: Snapshot, below: pa.Table | None, live: pa.Table
    ) -> Iterator[Finding]:
        path = self._session.paths.manifest(snapshot.delta_manifest_list)
        entries = self._session.list_entries(snapshot, snapshot.delta_manifest_list)
        # A snapshot counts the rows of blobs, whose files are passed over, once more.
        counts_rows = not self._session.options.unread_columns
        expected = snapshot.delta_record_count if counts_rows else None
        miscounted = list(wrong_rows(path, entries, expected))
        yield from miscounted
        if below is None or miscounted:
            return
        files = set(physical_files(below))
        files -= {entry.physical_file for entry in entries if entry.kind is not EntryKind.ADD}
        files |= {entry.physical_file for entry in entries if entry.kind is EntryKind.ADD}
        if files != set(physical_files(live)):
            text = (
                f"{EXCHANGED}, or the other one is not: it does not lead there from the one below"
            )
            yield Finding(text=text, path=path)


# -- Verify ends -----------------------------------------------------------------------------------
#
# Do the snapshots and changelogs of a table begin where an expiry has left them, and end where
# commits have?
#
# No file names the oldest and the newest, and the hints that do so hold a number alone: one
# flipped bit of EARLIEST hides snapshots, one that is lost looks as if it had expired, or had
# never been committed.

_FEW = 1000  # ids from a hint on, which may be garbage, that are looked at


def orphan_snapshot_problems(
    session: TableSession, orphan_snapshots: Sequence[Snapshot]
) -> Iterator[str]:
    """Yield what is wrong with files that hold no snapshot; a writer that has just made one deletes it."""
    for snapshot in orphan_snapshots:
        if is_there(session, snapshot):
            path = session.paths.snapshot_file(snapshot.id)
            yield (
                f"{path}: snapshot {snapshot.id} of {snapshot.commit_user!r} never counted, its writer was "
                "stopped while the id expired or was rolled back; remove_orphan_files removes it"
            )


def unread(branch: TableSession) -> VerifyReport:
    """Return the report of a directory that is no branch: of a creation or a deletion that died, or without schema-0."""
    name, schema = branch.paths.branch_name, branch.paths.schema_file(0)
    store = BranchStore(branch.file_io, branch.paths)
    is_left = any(store.files(name))
    warning = (
        f"warning: branch {name!r} has files and no {schema}, and is not read: its creation or deletion died, "
        "or the file is lost; copy schema/schema-0 there to have it back, or delete the branch"
    )
    if store.first_file(name) is not None:
        warning = (
            f"warning: branch {name!r} is claimed in {schema}, and is not read: it is being made or deleted, or its process "
            "died; then make it again, or delete it"
        )
    return VerifyReport(warnings=(warning,) if is_left else ())


def wrong_ends(
    session: TableSession, snapshots: Sequence[Snapshot]
) -> tuple[list[str], list[str], tuple[int, int] | None]:
    """Return problems, warnings, and the ends of what EARLIEST passes and retention keeps.

    `snapshots`: those that count, and those below EARLIEST, oldest first.
    """
    problems = _lost_changelogs(session, snapshots)
    if not snapshots:
        return problems + _lost_newest(session, 0), [], None
    first, hint = snapshots[0], session.snapshots.earliest_hint()
    passed = [snapshot for snapshot in snapshots if snapshot.id < believed(hint, snapshots[-1].id)]
    retained = _oldest_retained(session, snapshots, passed)
    warnings, hidden = [], None
    if retained is not None:
        hidden = retained.id, passed[-1].id
        warnings.append(
            f"warning: EARLIEST is {hint}, so that snapshots {retained.id} to {passed[-1].id} are not read, and "
            "retention keeps them: an expiry died, or EARLIEST is damaged; repair earliest has them back, while "
            "no process expires"
        )
    listed_ids = session.snapshots.listed_ids()
    lost = [number for number in lost_below(hint, first)[-_FEW:] if number not in listed_ids]
    if lost:
        problems.append(
            f"snapshots {lost[0]} to {lost[-1]} are missing, and no expiry took them, as EARLIEST is {hint}; "
            "restore their files, or let the next expiry move on"
        )
    problems += _lost_newest(session, max(listed_ids, default=0))
    return problems, warnings + _astray(session, snapshots), hidden


def _lost_newest(session: TableSession, newest_id: int) -> list[str]:
    """Check that the snapshot that LATEST names exists; look twice, as others commit and roll back."""
    latest = session.snapshots.stray_latest(newest_id)
    if latest is None:
        return []
    listed_ids = session.snapshots.listed_ids()
    if session.snapshots.stray_latest(max(listed_ids, default=0)) != latest:
        return []
    return [
        f"snapshot {latest}, which LATEST names, is missing, and neither reads nor writes go on without it; "
        "restore its file, or let go of what was committed with it: repair latest"
    ]


def _astray(session: TableSession, snapshots: Sequence[Snapshot]) -> list[str]:
    """No tag is of another snapshot than the one of its id; none, and no consumer, is beyond the newest.

    With LATEST lost only they show that some are lost; with a branch's tag in the place of main's only its snapshot.
    A warning: a tag may come back from the trash after a rollback, and Java's leaves consumers.
    """
    tags = [tag for _, tag in readable(session.tags.names(), session.tags.find)]
    by_id = {item.id: item for item in snapshots}
    other_warnings = [
        f"warning: tag {tag.name!r} is of another snapshot {tag.snapshot.id} than the one that is there: it is "
        "older than a rollback, or the file of another branch's tag"
        for tag in tags
        if not same_state(by_id.get(tag.snapshot.id, tag.snapshot), tag.snapshot)
    ]
    references = [
        (f"tag {tag.name!r} is of snapshot {tag.snapshot.id}", tag.snapshot.id) for tag in tags
    ] + [
        (
            f"consumer {item.name!r} goes on at snapshot {item.next_snapshot_id}",
            item.next_snapshot_id - 1,
        )
        for _, item in readable(session.consumers.names(), session.consumers.find)
    ]
    try:
        newest = session.snapshots.latest_id() or 0  # after them
    except LsmError:
        return other_warnings  # a problem of its own
    return other_warnings + [
        f"warning: {text}, and the newest is {newest}: newer ones were rolled back, or are lost"
        for text, reached in references
        if reached > newest
    ]


def _oldest_retained(
    session: TableSession, snapshots: Sequence[Snapshot], passed: Sequence[Snapshot]
) -> Snapshot | None:
    """Return the oldest snapshot below EARLIEST that the table's retention keeps."""
    if not passed:
        return None
    try:
        retention = retention_of(session.options)
    except InvalidOptionError:
        return None  # the options are at odds: a finding of doctor
    return kept_of_passed(
        snapshots,
        passed,
        retention,
        now_millis=session.clock.now_millis(),
        consumer_next_ids=list(_needed(session)),
    )


def _needed(session: TableSession) -> Iterator[int]:
    """Yield the snapshots that consumers keep; one that cannot be read is a finding of its own."""
    if session.options[core_options.CONSUMER_CHANGELOG_ONLY]:
        return
    for _, consumer in readable(session.consumers.names(), session.consumers.find):
        yield consumer.next_snapshot_id


def _lost_changelogs(session: TableSession, snapshots: Sequence[Snapshot]) -> list[str]:
    """Changelogs that outlive their snapshots follow each other up to the oldest snapshot."""
    if not changelogs_outlive(session.options):
        return []
    ids = session.changelogs.ids()
    first = session.changelogs.find(ids[0]) if ids else next(iter(snapshots), None)
    lost = () if first is None else lost_below(session.changelogs.earliest_hint(), first)
    if lost and (ids or lost[0] <= (session.changelogs.latest_hint() or 0)):
        ids.insert(0, lost[-_FEW:][0] - 1)
    if ids and snapshots and ids[-1] < snapshots[0].id:
        ids.append(snapshots[0].id)
    return [
        f"changelogs {older + 1} to {newer - 1} are missing, and no expiry took them, as there are older ones, or "
        "EARLIEST names the first; restore their files"
        for older, newer in pairwise(ids)
        if newer > older + 1
    ]


# -- The deep part of a verification ---------------------------------------------------------------
#
# Reads data files, and skips those that an earlier run verified.

log = logging.getLogger(__name__)

_RECORDED_EVERY = 10_000


class DeepCheck:
    """Reads every file once, however many retained references and branches name it.

    With a `store`, files that it records with the same size, checksum, time of change and manifest
    entry are passed over, and those that are found sound are recorded. Files of other writers, whose
    checksum is not recorded, are read each time.
    """

    def __init__(
        self, read: FileReader, *, progress: Progress | None, store: VerifiedFileStore | None
    ) -> None:
        self._read = read
        self._progress = progress
        self._store = store
        self._sound: dict[str, str] = {}
        self._found: dict[str, tuple[str, ...]] = {}
        self.read_count = 0
        self.skipped_count = 0
        self._before: dict[str, str] = {}
        if store is not None:
            try:
                self._before = store.load()
            except LsmError as error:
                log.warning("the record of verified files is damaged, all are read: %s", error)

    def problems(
        self, context: BucketContext, files: Sequence[tuple[FileToRead, str | None]]
    ) -> dict[str, tuple[str, ...]]:
        """Return what is wrong with each file, by path. Files come with their fingerprints."""
        waiting = []
        for file, fingerprint in files:
            if file.path in self._found:
                continue
            is_verified = fingerprint is not None and self._before.get(file.path) == fingerprint
            if is_verified and self._store is not None:
                self._found[file.path] = ()
                self._sound[file.path] = self._before[file.path]
                self.skipped_count += 1
            else:
                waiting.append((file, fingerprint))
        if waiting:
            for number, wrong in self._read(context, [file for file, _ in waiting]):
                self._take(*waiting[number], wrong)
        return {file.path: self._found[file.path] for file, _ in files}

    def _take(self, file: FileToRead, fingerprint: str | None, wrong: tuple[str, ...]) -> None:
        self._found[file.path] = wrong
        if not wrong and fingerprint is not None:
            self._sound[file.path] = fingerprint
        if self._progress is not None:
            self._progress(file.path, self.read_count)
        self.read_count += 1
        if self.read_count % _RECORDED_EVERY == 0:
            self.record(complete=False)

    def record(self, *, complete: bool) -> None:
        """Keep what was found sound; `whole`: all retained references were looked at, other files no longer exist."""
        if self._store is None:
            return
        try:
            self._store.replace(self._sound if complete else {**self._before, **self._sound})
        except LsmError as error:
            log.warning("what was verified is not recorded, and will be read again: %s", error)


def fingerprint_of(file: DataFileMeta, status: FileStatus) -> str | None:
    """Return what a sound file must still have to be passed over; None: it has no checksum."""
    if file.checksum is None:
        return None
    facts = (
        file.row_count,
        file.delete_row_count,
        file.min_key,
        file.max_key,
        file.min_sequence_number,
        file.max_sequence_number,
        file.schema_id,
        file.value_stats,
        file.value_stats_columns,
    )
    entry = zlib.crc32(repr(facts).encode())
    return f"{file.checksum:08x} {status.size} {status.modified_millis} {entry:08x}"


def hash_indexes(
    session: TableSession, snapshot: Snapshot | None
) -> dict[tuple[bytes, int], IndexFileMeta]:
    """Return the hash index of each dynamic bucket of a snapshot, as far as they can be read."""
    if snapshot is None or not session.schema.may_have_indexes:
        return {}
    try:
        entries = session.readable_indexes(snapshot)
    except LsmError:
        return {}  # listed where indexes are looked at
    by_partition = indexes_by_partition(entries).items()
    return {(part, bucket): file for part, files in by_partition for bucket, file in files}


def with_schemas(session: TableSession, ids: Iterable[int]) -> BucketContext:
    """Return what reading files needs, with those of their schemas that can be read."""
    schemas = {session.schema.id: session.schema}
    for number in set(ids) - set(schemas):
        with contextlib.suppress(LsmError):  # such a schema is listed by itself
            schemas[number] = session.schemas.load(number)
    return replace(session.context(), schemas=schemas)


# -- Snapshots on an object store that were made by writers which publish without a condition ------
#
# pypaimon looks whether the name is taken, then copies over it; Java Paimon before conditional
# writes does alike. Between the two a snapshot of ours may be overwritten, and both writers are
# acknowledged. What has been lost so shows nowhere: all that can be named is that such a writer
# was here.


def warnings_of(session: TableSession, snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """Yield a warning for each writer of that kind; none on a disk, where a link is the condition."""
    if session.file_io.facts.has_directories:
        return
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if is_of_another_client(snapshot):
            newest[snapshot.commit_user] = snapshot
    for user, snapshot in newest.items():
        yield (
            f"warning: snapshot {snapshot.id} was made by another client (user {user!r}), which may "
            "publish without a condition and overwrite commits of others; let it only read here, or "
            "have every writer take one lock (docs/object-stores.md)"
        )


def _iceberg_warnings(session: TableSession, *, deep: bool) -> Iterator[str]:
    """Yield what is wrong with the table's Iceberg metadata, which can be written again: the table is sound."""
    if not session.paths.branch_name and session.options.writes_iceberg:
        state = import_module("lsm_engine.table.iceberg_state")
        for text in state.warnings_of(session, deep=deep):
            yield f"warning: {text}"


# -- Verify ----------------------------------------------------------------------------------------

T = TypeVar("T")
K = TypeVar("K", int, str)
_FILES = pa.schema(
    {
        PARTITION: pa.binary(),
        BUCKET: pa.int32(),
        FILE_NAME: pa.string(),
        LEVEL: pa.int32(),
        ROW_COUNT: pa.int64(),
    }
)


def verify(
    session: TableSession,
    *,
    snapshot: Snapshot | int | None = None,
    deep: bool = False,
    incremental: bool = False,
    progress: Progress | None = None,
    read: FileReader = read_files,
) -> VerifyReport:
    """Check every snapshot, tag and long-lived changelog, those of branches too; or one `snapshot` (it, or its id).

    Reads metadata, indexes and the sizes of files; `deep`: also every page of every data file, whose
    rows, keys and statistics are compared with what manifests describe, by `read`. Nothing that is
    wrong with stored bytes is raised: all of it is listed. `progress` is called after each file that
    was read. `incremental`: a deep verification passes over files that an earlier one of this kind has
    read and that have not changed since; raises InvalidInputError without `deep`.
    """
    if incremental and not deep:
        raise InvalidInputError(
            "only a deep verification reads files; ask for deep and incremental"
        )
    session.manifests.forget_all()
    store = VerifiedFileStore(session.file_io, session.paths)
    rows = DeepCheck(read, progress=progress, store=store if incremental else None)
    if snapshot is not None:
        check = _Verification(session, rows if deep else None)
        try:
            check.snapshot(
                session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
            )
        except CorruptFileError as error:
            snapshot_id = snapshot if isinstance(snapshot, int) else snapshot.id
            check.add(f"snapshot {snapshot_id}", error)
        reports = [("", check.report(snapshot_count=1, tag_count=0))]
    else:
        reports = [("", _verify_branch(session, rows if deep else None))]
        if not session.paths.branch_name:
            reports += _verify_other_branches(session, rows if deep else None)
    if deep:
        rows.record(complete=snapshot is None and not session.paths.branch_name)
    report = of_branches(reports)
    with suppress(LsmError):  # such an error is a problem in the report already
        report = report.with_sources(with_sources(session, report.damaged_files))
    return replace(
        report,
        read_count=rows.read_count,
        skipped_count=rows.skipped_count,
    )


def _verify_other_branches(
    session: TableSession, rows: DeepCheck | None
) -> Iterator[tuple[str, VerifyReport]]:
    """Yield the name and the report of each branch besides main.

    What hinders that, such as a name that no path can have, is a problem of its own.
    """
    store = BranchStore(session.file_io, session.paths)
    try:
        names = store.directory_names()
    except LsmError as error:
        yield "", _failed(error)
        return
    for name in names:
        try:
            branch = open_branch(session, check_name(name))
            is_whole = store.exists(name)
            yield name, _verify_branch(branch, rows) if is_whole else unread(branch)
        except LsmError as error:
            yield name, _failed(error)


def _failed(error: LsmError) -> VerifyReport:
    return VerifyReport(problems=(str(error),))


def _verify_branch(session: TableSession, rows: DeepCheck | None) -> VerifyReport:
    """Check the table itself, or a branch alone."""
    check = _Verification(session, rows)
    for schema_id in check.readable("schemas", session.schemas.ids) or ():
        check.readable(f"schema {schema_id}", partial(session.schemas.load, schema_id))
    listing = partial(session.snapshots.stable_listing_with_orphans, check.find_snapshot)
    snapshots, orphan_snapshots = check.readable("snapshots", listing) or ((), ())
    chain = check.live_chain(snapshots)
    check.readable("snapshots", partial(check.chain, chain))
    if chain and rows is not None:
        check.newest(chain[-1])
    for snapshot in chain:
        check.snapshot(snapshot)
    check.readable("EARLIEST", lambda: check.ends(chain, orphan_snapshots))
    for changelog in check.readable_items(
        "changelog", session.changelogs.ids, session.changelogs.find
    ):
        check.changelog(changelog)
    tags = check.readable_items("tag", session.tags.names, session.tags.find)
    for tag in tags:
        check.tag(tag)
    check.readable_items("consumer", session.consumers.names, session.consumers.find)
    if not session.paths.branch_name:
        trash = TrashStore(session.file_io, session.paths)
        check.readable_items("trash", trash.names, trash.find)
        check.readable("verified files", VerifiedFileStore(session.file_io, session.paths).load)
    return check.report(snapshot_count=len(chain), tag_count=len(tags))


class _Verification:
    """Problems found so far, and files that were looked at already."""

    def __init__(self, session: TableSession, rows: DeepCheck | None) -> None:
        self._session = session
        self._rows = rows
        self._unchecked_count = 0
        self._context = session.context()
        self._found = Findings(session.paths.branch_name)
        self._looked: dict[PhysicalFile, tuple[Finding, ...]] = {}
        self._warnings: list[str] = []
        self._hidden: tuple[int, int] | None = None
        self._anything_wrong = False
        self._file_count = 0
        self._gone_count = 0
        self._levels = LevelVerification(session)
        self._lists = ListVerification(session)
        self._indexes = IndexVerification(session)
        self._statistics = StatisticsVerification(session)
        self._row_ids = RowIdVerification(session, deep=rows is not None)

    def report(self, *, snapshot_count: int, tag_count: int) -> VerifyReport:
        return VerifyReport(
            problems=tuple(dict.fromkeys(self._found.texts)),
            snapshot_count=snapshot_count,
            tag_count=tag_count,
            file_count=self._file_count,
            index_file_count=self._indexes.file_count,
            gone_count=self._gone_count,
            not_honoured=tuple(
                str(unsupported) for unsupported in unsupported_options(self._session.options)
            ),
            unchecked_count=self._unchecked_count,
            damaged_files=tuple(self._found.files()),
            warnings=tuple(self._warnings),
            hidden=self._hidden,
        )

    def add(self, name: str, error: LsmError, reference: Reference | None = None) -> None:
        """List an error as a problem of something."""
        self._found.add(finding_of(error), subject=name, reference=reference)

    def readable(
        self, name: str, read: Callable[[], T], reference: Reference | None = None
    ) -> T | None:
        """Return what can be read; what is damaged is listed, what was deleted is passed over."""
        try:
            return read()
        except NotFoundError:
            return None
        except LsmError as error:
            self.add(name, error, reference)
            return None

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return what a snapshot file holds; what is damaged is listed once."""
        reference = Reference(kind="snapshot", name=snapshot_id)
        return self.readable(
            str(reference), partial(self._session.snapshots.find, snapshot_id), reference
        )

    def readable_items(
        self, kind: str, list_names: Callable[[], Iterable[K]], find: Callable[[K], T | None]
    ) -> list[T]:
        """Return what can be read of a kind; the rest is listed."""
        names = self.readable(f"{kind}s", list_names) or ()
        references = {name: Reference(kind=kind, name=name) for name in names}
        read = [
            self.readable(str(reference), partial(find, name), reference)
            for name, reference in references.items()
        ]
        return [item for item in read if item is not None]

    def chain(self, snapshots: Sequence[Snapshot]) -> None:
        """Ids follow each other, and each total is the one before plus its own delta."""
        self._warnings += warnings_of(self._session, snapshots)
        self._warnings += _iceberg_warnings(self._session, deep=self._rows is not None)
        listed_ids = frozenset(
            self._session.snapshots.listed_ids()
        )  # damaged ones are listed already
        paths = self._session.paths
        if any(
            wrong_between(snapshots, listed_ids, paths)
        ):  # or some went while the others were read
            again, _ = self._session.snapshots.stable_listing_with_orphans(self.find_snapshot)
            live = [
                snapshot
                for snapshot in divide_by_marker(again).chain
                if not self._is_deleted(snapshot)
            ]
            for reference, findings in wrong_between(live, listed_ids, paths):
                self._found.note(reference, findings)

    def live_chain(self, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
        """No rollback is left undone; return the snapshots that it does not take."""
        divided = divide_by_marker(snapshots)
        if divided.marker is not None and is_there(self._session, divided.marker):
            to = rollback_target(divided.marker)
            self._found.texts.append(f"a rollback is not done; roll back to {to} again if it died")
        return divided.chain or snapshots[:-1]

    def ends(self, snapshots: Sequence[Snapshot], orphan_snapshots: Sequence[Snapshot]) -> None:
        """Nothing is missing before the oldest and after the newest, and nothing is left there."""
        self._found.texts += orphan_snapshot_problems(self._session, orphan_snapshots)
        problems, warnings, self._hidden = wrong_ends(self._session, snapshots)
        self._found.texts += problems
        self._warnings += warnings

    def snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot can be read, and agrees with its files."""
        self._note(
            Reference(kind="snapshot", name=snapshot.id),
            self._root(snapshot, with_changelog=True),
            lambda: self._is_deleted(snapshot),
        )

    def tag(self, tag: Tag) -> None:
        """A tag's snapshot can be read, and agrees with its files."""
        self._note(
            Reference(kind="tag", name=tag.name),
            self._root(tag.snapshot, with_changelog=False),
            lambda: self._session.tags.find(tag.name) != tag,
        )

    def changelog(self, snapshot: Snapshot) -> None:
        """The files of a changelog that has outlived its snapshot are there, with their sizes."""
        changelogs = self._session.changelogs

        def is_deleted() -> bool:
            marked = changelogs.earliest_hint()
            return not changelogs.exists(snapshot.id) or (
                marked is not None and changelogs.exists(marked) and snapshot.id < marked
            )

        self._note(Reference(kind="changelog", name=snapshot.id), self._fed(snapshot), is_deleted)

    def _note(
        self, reference: Reference, findings: Iterable[Finding], is_deleted: Callable[[], bool]
    ) -> None:
        problems = list(findings)
        if problems and is_deleted():
            self._gone_count += 1
        else:
            self._found.note(reference, problems)

    def _is_deleted(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot was deleted, or is older than those that an expiry keeps."""
        snapshots = self._session.snapshots
        marked = snapshots.earliest_hint()
        passed = marked is not None and snapshot.id < marked and snapshots.exists(marked)
        return passed or not is_there(self._session, snapshot)

    def _fed(self, snapshot: Snapshot) -> Iterator[Finding]:
        try:
            (retained,) = References(self._session).retained_by_changelogs([snapshot])
        except LsmError as error:
            yield finding_of(error)
            return
        yield from self._added(retained.entries, is_changelog=False)
        yield from self._added(retained.changelog, is_changelog=True)

    def _added(self, entries: Iterable[ManifestEntry], *, is_changelog: bool) -> Iterator[Finding]:
        added = [entry for entry in entries if entry.kind is EntryKind.ADD]
        self._look(added, is_changelog=is_changelog)
        for entry in added:
            yield from self._looked[entry.physical_file]

    def _changelog_of(self, snapshot: Snapshot) -> Iterator[Finding]:
        session, name = self._session, snapshot.changelog_manifest_list
        if name is None:
            return
        try:
            entries = session.list_entries(snapshot, name)
        except LsmError as error:
            yield finding_of(error)
            return
        path = session.paths.manifest(name)
        yield from wrong_rows(path, entries, snapshot.changelog_record_count)
        yield from self._added(entries, is_changelog=True)

    def _root(self, snapshot: Snapshot, *, with_changelog: bool) -> Iterator[Finding]:
        """The schema, manifests and files of one retained reference are there, with their sizes and rows."""
        session = self._session
        yield from _listed(lambda: self._schema_problems(snapshot))
        try:
            entries = live_of(session, snapshot)
        except LsmError as error:
            findings = list(self._readable_files(snapshot))
            if all(finding.text != str(error) for finding in findings):
                yield finding_of(error)
            yield from findings
            return
        live = _FILES.empty_table() if entries is None else entries
        rows = int(pc.sum(live.column(ROW_COUNT)).as_py() or 0)
        if not session.options.unread_columns:
            base_list = session.paths.manifest(snapshot.base_manifest_list)
            yield from wrong_total(snapshot, rows, base_list)
        yield from _listed(
            lambda: self._lists.problems(snapshot, live, in_line=with_changelog),
            lambda: self._statistics.problems(snapshot),
            lambda: self._files(snapshot, live),
            lambda: self._levels.problems(live),
            lambda: self._row_id_problems(snapshot, live),
        )
        if with_changelog:
            yield from _listed(lambda: self._changelog_of(snapshot))
        if snapshot.index_manifest is not None or session.schema.may_have_indexes:
            files = entries_of(live) if live.num_rows else []
            yield from _listed(lambda: self._indexes.problems(snapshot, files))

    def _schema_problems(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Raise the first problem with a retained reference's schema; there is nothing to yield besides."""
        session = self._session
        session.with_schema(session.schemas.load(snapshot.schema_id)).check_schema(snapshot)
        yield from ()

    def _row_id_problems(self, snapshot: Snapshot, live: pa.Table) -> Iterator[Finding]:
        return (Finding(text=text) for text in self._row_ids.problems(snapshot, live))

    def _readable_files(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Yield each manifest of a retained reference that cannot be read, and what is wrong with files of the others."""
        session, tables = self._session, []
        for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
            try:
                metas = session.manifest_list(snapshot, name)
            except LsmError as error:
                yield finding_of(error)
                continue
            for meta in metas:
                try:
                    tables.append(session.manifests.read(meta))
                except LsmError as error:
                    yield finding_of(error)
        if not tables:
            return
        entries = pa.concat_tables(tables, promote_options="permissive")
        kinds = entries.column(KIND).to_pylist()
        identities = physical_files(entries)
        pairs = zip(identities, kinds, strict=True)
        deleted = {identity for identity, kind in pairs if kind != EntryKind.ADD.value}
        indices = [index for index, file in enumerate(identities) if file not in deleted]
        live = entries.take(pa.array(indices, pa.int64()))
        for finding in self._files(snapshot, live):
            text = f"{finding.text}; a manifest that cannot be read may have deleted this file"
            yield replace(finding, text=text)

    def newest(self, snapshot: Snapshot) -> None:
        """Look at the newest state first: its hash indexes are those that the next write goes by."""
        try:
            entries = live_of(self._session, snapshot)
        except LsmError:
            return  # found again, and listed, when its turn comes
        if entries is not None:
            self._look(entries_of(entries), is_changelog=False, snapshot=snapshot)

    def _files(self, snapshot: Snapshot, live: pa.Table) -> Iterator[Finding]:
        """Check files that no retained reference before named; report again what was wrong with the others."""
        files = physical_files(live)
        new = [index for index, file in enumerate(files) if file not in self._looked]
        if new:
            entries = entries_of(live.take(pa.array(new)))
            self._look(entries, is_changelog=False, snapshot=snapshot)
        if self._anything_wrong:
            for file in files:
                yield from self._looked[file]

    def _look(
        self,
        entries: Iterable[ManifestEntry],
        *,
        is_changelog: bool,
        snapshot: Snapshot | None = None,
    ) -> None:
        """Look at files, each once: whether they are there, have their size and, deep, their rows."""
        new = {entry.physical_file: entry for entry in entries}
        context = with_schemas(self._session, {entry.file.schema_id for entry in new.values()})
        to_read: dict[PhysicalFile, tuple[FileToRead, str | None]] = {}
        indexes = {} if self._rows is None else hash_indexes(self._session, snapshot)
        for key, entry in new.items():
            if key in self._looked:
                continue
            check = partial(self._wrong_with, entry, context.schemas)
            self._looked[key] = findings = tuple(_listed(check))
            self._anything_wrong |= bool(findings)
            if not findings and self._rows is not None:
                path = self._session.data_path(entry)
                to_read[key] = (
                    FileToRead(
                        entry=entry,
                        path=path,
                        is_changelog=is_changelog,
                        index=None if is_changelog else indexes.get(key[:2]),
                    ),
                    fingerprint_of(entry.file, _status(context, entry)),
                )
        if to_read and self._rows is not None:
            wrong = self._rows.problems(context, list(to_read.values()))
            for key, (file, _) in to_read.items():
                self._anything_wrong |= bool(texts := wrong[file.path])
                self._looked[key] = tuple(self._about(file.entry, text) for text in texts)
            self._look_at_indexes(context, [file for file, _ in to_read.values()])

    def _look_at_indexes(self, context: BucketContext, files: Sequence[FileToRead]) -> None:
        """Compare file indexes with the rows: a data file is whole without its index, so nothing is at stake."""
        indexed = [
            file
            for file in files
            if not self._looked[file.entry.physical_file]
            and (file.entry.file.embedded_index is not None or file.entry.file.extra_files)
        ]
        problems = LocalExecutor().ordered(partial(wrong_index, context), indexed)
        for file, texts in zip(indexed, problems, strict=True):
            directory = file.path.rpartition("/")[0]
            path = f"{directory}/{file.entry.file.file_names[-1]}"
            findings = tuple(Finding(text=f"{path}: {text}", path=path) for text in texts)
            self._looked[file.entry.physical_file] = findings
            self._anything_wrong |= bool(findings)

    def _about(self, entry: ManifestEntry, text: str) -> Finding:
        path = self._session.data_path(entry)
        number = entry.file.schema_id
        schema = with_schemas(self._session, [number]).schemas.get(number)
        return Finding(
            text=text, path=path, stake=stake_of(entry, schema or self._session.schema, path)
        )

    def _wrong_with(self, entry: ManifestEntry, schemas: Container[int]) -> Iterator[Finding]:
        data_path, number = self._session.data_path(entry), entry.file.schema_id
        if number not in schemas:
            yield self._about(entry, f"{data_path}: its schema {number} cannot be read")
        for name in entry.file.file_names:
            is_data_file = name == entry.file.file_name
            path = f"{data_path.rpartition('/')[0]}/{name}"
            try:
                size = _status(self._context, entry, name).size
            except LsmError:
                missing = self._about(entry, f"{path} is missing")
                # A data file is whole without the files beside it.
                yield missing if is_data_file else replace(missing, path=path, stake=None)
                continue
            self._file_count += 1
            if is_data_file:
                self._unchecked_count += entry.file.checksum is None
                if size != entry.file.file_size:
                    yield self._about(entry, f"{path} has {size} bytes, not {entry.file.file_size}")


def _status(context: BucketContext, entry: ManifestEntry, name: str | None = None) -> FileStatus:
    file_io, path = context.place_of((entry.partition, entry.bucket), entry.file, name)
    return file_io.status(path)


def _listed(*checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what checks find. The error that ends one of them is a finding, and the next one goes on."""
    for check in checks:
        try:
            yield from check()
        except LsmError as error:
            yield finding_of(error)
