"""Verify: can every root be read to its last file, and do they agree with each other?

Others go on meanwhile: what is wrong with a root counts only if it is one still when that was found.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.base.table_options import unsupported_options
from lsm_engine.codec.manifest import entries_of
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.live_snapshots import rollback_target
from lsm_engine.plan.rollback_seal import unsealed
from lsm_engine.store.branches import BranchStore
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, LEVEL, PARTITION, live_rows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.verify_files import FileVerification, Progress
from lsm_engine.table.integrity.verify_indexes import IndexVerification
from lsm_engine.table.tags import roots
from lsm_engine.table.tags.tag import is_there

T = TypeVar("T")
K = TypeVar("K")
ROW_COUNT = "_FILE._ROW_COUNT"
_NO_FILES = pa.table(
    {
        PARTITION: pa.array([], pa.binary()),
        BUCKET: pa.array([], pa.int32()),
        FILE_NAME: pa.array([], pa.string()),
        LEVEL: pa.array([], pa.int32()),
        ROW_COUNT: pa.array([], pa.int64()),
    }
)


@record
class VerifyReport:
    """What was looked at, and every broken reference. Without problems all roots can be read.

    `unchecked_count`: data files that others wrote, or named, without a checksum. `gone_count`: roots
    that were taken away meanwhile, or that an expiry which died had begun to take. `not_honoured`:
    options of the table that this version does not support; no problem while it is read.
    """

    problems: tuple[str, ...]
    snapshot_count: int
    tag_count: int
    file_count: int
    index_file_count: int = 0
    gone_count: int = 0
    not_honoured: tuple[str, ...] = ()
    unchecked_count: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        looked = (
            f"{self.snapshot_count} snapshots, {self.tag_count} tags, {self.file_count} data files"
        )
        if self.index_file_count:
            looked += f", {self.index_file_count} index files"
        if self.unchecked_count:
            looked += f", {self.unchecked_count} of the files without a checksum"
        if self.gone_count:
            looked += f"; {self.gone_count} of them expired meanwhile, or are expiring"
        if self.is_clean:
            return "\n".join([f"clean: {looked}", *self.not_honoured])
        found = f"{len(self.problems)} problems in {looked}"
        return "\n".join([found, *self.problems, *self.not_honoured])


def verify(
    session: TableSession,
    *,
    snapshot_id: int | None = None,
    deep: bool = False,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check every snapshot, tag and long-lived changelog, those of branches too; or one snapshot.

    Reads metadata, indexes and the sizes of files; `deep`: also every page of every data file, whose
    rows, keys and statistics are compared with what manifests describe. Nothing that is wrong with
    stored bytes is raised: all of it is listed. `progress` is called after each file that was read.
    """
    if snapshot_id is not None:
        check = _Verification(session, deep=deep, progress=progress)
        try:
            check.snapshot(session.snapshots.load(snapshot_id))
        except CorruptFileError as error:
            check.add(f"snapshot {snapshot_id}", error)
        return check.report(snapshot_count=1, tag_count=0)
    report = _verify_branch(session, deep=deep, progress=progress)
    if session.paths.branch_name:
        return report
    branches = BranchStore(session.file_io, session.paths)
    for branch in roots.other_branches(session):
        name = branch.paths.branch_name
        if not branches.exists(name):
            continue  # of a creation or a deletion that died: nobody can read it
        found = _verify_branch(branch, deep=deep, progress=progress)
        problems = (f"branch {name!r}: {one}" for one in found.problems)
        report = VerifyReport(
            problems=(*report.problems, *problems),
            snapshot_count=report.snapshot_count + found.snapshot_count,
            tag_count=report.tag_count + found.tag_count,
            file_count=report.file_count + found.file_count,
            index_file_count=report.index_file_count + found.index_file_count,
            gone_count=report.gone_count + found.gone_count,
            not_honoured=report.not_honoured,
            unchecked_count=report.unchecked_count + found.unchecked_count,
        )
    return report


def _verify_branch(session: TableSession, *, deep: bool, progress: Progress | None) -> VerifyReport:
    """Check the table itself, or a branch alone."""
    check = _Verification(session, deep=deep, progress=progress)
    for schema_id in session.schemas.ids():
        check.found(f"schema {schema_id}", partial(session.schemas.load, schema_id))
    snapshots, ghosts = session.snapshots.stable_listing_with_ghosts(check.find_snapshot)
    check.ghosts(ghosts)
    line = check.unsealed(snapshots)
    check.chain(line)
    for snapshot in line:
        check.snapshot(snapshot)
    for changelog in check.each("changelog", session.changelogs.ids(), session.changelogs.find):
        check.changelog(changelog)
    tags = check.each("tag", session.tags.names(), session.tags.find)
    for tag in tags:
        check.tag(tag)
    check.found("consumers", session.consumers.list)
    return check.report(snapshot_count=len(line), tag_count=len(tags))


class _Verification:
    """Problems found so far, and files that were looked at already."""

    def __init__(self, session: TableSession, *, deep: bool, progress: Progress | None) -> None:
        self._session = session
        self._rows = FileVerification(session, progress) if deep else None
        self._unchecked_count = 0
        self._context = session.context()
        self._problems: list[str] = []
        self._looked: dict[tuple[bytes, int, str], tuple[str, ...]] = {}
        self._anything_wrong = False
        self._file_count = 0
        self._gone_count = 0
        self._below: frozenset[tuple[bytes, int, str]] = frozenset()
        self._overlaps: list[str] = []
        self._indexes = IndexVerification(session)

    def report(self, *, snapshot_count: int, tag_count: int) -> VerifyReport:
        return VerifyReport(
            problems=tuple(dict.fromkeys(self._problems)),
            snapshot_count=snapshot_count,
            tag_count=tag_count,
            file_count=self._file_count,
            index_file_count=self._indexes.file_count,
            gone_count=self._gone_count,
            not_honoured=tuple(str(one) for one in unsupported_options(self._session.options)),
            unchecked_count=self._unchecked_count,
        )

    def add(self, name: str, error: LsmError) -> None:
        """List an error as a problem of something."""
        self._problems.append(f"{name}: {error}")

    def found(self, name: str, read: Callable[[], T]) -> T | None:
        """Return what can be read; what is damaged is listed, what was deleted is passed over."""
        try:
            return read()
        except NotFoundError:
            return None
        except LsmError as error:
            self.add(name, error)
            return None

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return what a snapshot file holds; what is damaged is listed once."""
        snapshots = self._session.snapshots
        known = len(self._problems)
        found = self.found(f"snapshot {snapshot_id}", partial(snapshots.find, snapshot_id))
        if self._problems[known:] and self._problems[-1] in self._problems[:known]:
            self._problems.pop()
        return found

    def each(self, what: str, names: Iterable[K], find: Callable[[K], T | None]) -> list[T]:
        """Return what can be read of a kind; the rest is listed."""
        read = [self.found(f"{what} {name!r}", partial(find, name)) for name in names]
        return [one for one in read if one is not None]

    def chain(self, snapshots: Sequence[Snapshot]) -> None:
        """Ids follow each other, and each total is the one before plus its own delta."""
        there = frozenset(self._session.snapshots.listed_ids())  # damaged ones are listed already
        if any(_wrong_between(snapshots, there)):  # or some went while the others were read
            again, _ = self._session.snapshots.stable_listing_with_ghosts(self.find_snapshot)
            left = [one for one in unsealed(again).line if not self._is_deleted(one)]
            self._problems += _wrong_between(left, there)

    def unsealed(self, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
        """No rollback is left undone; return the snapshots that it does not take."""
        found = unsealed(snapshots)
        if found.seal is not None and is_there(self._session, found.seal):
            to = rollback_target(found.seal)
            self._problems.append(f"a rollback is not done; roll back to {to} again if it died")
        return found.line or snapshots[:-1]

    def ghosts(self, found: Sequence[Snapshot]) -> None:
        """No writer has left a snapshot file that does not count; one that is at it takes it back."""
        for one in found:
            if is_there(self._session, one):
                path = self._session.paths.snapshot_file(one.id)
                self._problems.append(
                    f"{path}: snapshot {one.id} of {one.commit_user!r} never counted, its writer was "
                    "stopped while the id expired or was rolled back; remove_orphan_files removes it"
                )

    def snapshot(self, one: Snapshot) -> None:
        """A snapshot can be read, and agrees with its files."""
        self._note(
            f"snapshot {one.id}",
            self._root(one, with_changelog=True),
            lambda: self._is_deleted(one),
        )

    def tag(self, one: Tag) -> None:
        """A tag's snapshot can be read, and agrees with its files."""
        tags = self._session.tags
        self._note(
            f"tag {one.name!r}",
            self._root(one.snapshot, with_changelog=False),
            lambda: tags.find(one.name) != one,
        )

    def changelog(self, one: Snapshot) -> None:
        """The files of a changelog that has outlived its snapshot are there, with their sizes."""
        changelogs = self._session.changelogs

        def is_deleted() -> bool:
            marked = changelogs.earliest_hint()
            return not changelogs.exists(one.id) or (
                marked is not None and changelogs.exists(marked) and one.id < marked
            )

        self._note(f"changelog {one.id}", self._fed(one), is_deleted)

    def _note(self, name: str, found: Iterable[str], is_deleted: Callable[[], bool]) -> None:
        problems = list(found)
        if problems and is_deleted():
            self._gone_count += 1
        else:
            self._problems += [f"{name}: {problem}" for problem in problems]

    def _is_deleted(self, one: Snapshot) -> bool:
        """Whether a snapshot was deleted, or is older than those that an expiry keeps."""
        snapshots = self._session.snapshots
        marked = snapshots.earliest_hint()
        is_marked = marked is not None and one.id < marked and snapshots.exists(marked)
        return is_marked or not is_there(self._session, one)

    def _fed(self, one: Snapshot) -> Iterator[str]:
        try:
            (kept,) = roots.kept_changelogs(self._session, [one])
        except LsmError as error:
            yield str(error)
            return
        for entry in kept.entries:
            if entry.kind is EntryKind.ADD:
                yield from self._known_wrong_with(entry, is_changelog=False)
        yield from self._changelog_files(kept.changelog)

    def _changelog_files(self, entries: Iterable[ManifestEntry]) -> Iterator[str]:
        for entry in entries:
            if entry.kind is EntryKind.ADD:
                yield from self._known_wrong_with(entry, is_changelog=True)

    def _changelog_of(self, snapshot: Snapshot) -> Iterator[str]:
        session, name = self._session, snapshot.changelog_manifest_list
        if name is None:
            return
        try:
            metas = session.manifest_list(snapshot, name)
            entries = [entry for meta in metas for entry in session.manifests.read_entries(meta)]
        except LsmError as error:
            yield str(error)
            return
        yield from self._changelog_files(entries)

    def _root(self, snapshot: Snapshot, *, with_changelog: bool) -> Iterator[str]:
        """The schema, manifests and files of one root are there, with their sizes and rows."""
        session = self._session
        try:
            session.schemas.load(snapshot.schema_id)
            entries = live_rows(session.manifests, session.manifest_metas(snapshot))
        except LsmError as error:
            yield str(error)
            return
        live = _NO_FILES if entries is None else entries
        rows = int(pc.sum(live.column(ROW_COUNT)).as_py() or 0)
        total = snapshot.total_record_count
        if total is not None and rows != total:
            yield f"totalRecordCount is {total}, its files hold {rows} rows"
        yield from self._files(live)
        yield from self._levels(live)
        if with_changelog:
            yield from self._changelog_of(snapshot)
        if snapshot.index_manifest is not None or session.schema.may_have_indexes:
            yield from self._indexes.problems(snapshot, entries_of(live) if live.num_rows else [])

    def _files(self, live: pa.Table) -> Iterator[str]:
        """Check files that no root before named; report again what was wrong with the others."""
        files = _identities(live)
        new = [at for at, file in enumerate(files) if file not in self._looked]
        if new:
            for entry in entries_of(live.take(pa.array(new))):
                self._known_wrong_with(entry, is_changelog=False)
        if self._anything_wrong:
            for file in files:
                yield from self._looked[file]

    def _known_wrong_with(self, entry: ManifestEntry, *, is_changelog: bool) -> tuple[str, ...]:
        """Return what is wrong with a file, which is looked at once."""
        key = (entry.partition, entry.bucket, entry.file.file_name)
        if key not in self._looked:
            self._looked[key] = tuple(self._wrong_with(entry, is_changelog=is_changelog))
            self._anything_wrong |= bool(self._looked[key])
        return self._looked[key]

    def _wrong_with(self, entry: ManifestEntry, *, is_changelog: bool) -> Iterator[str]:
        for name in (entry.file.file_name, *entry.file.extra_files):
            path = self._context.data_file(entry.partition, entry.bucket, name)
            try:
                size = self._session.file_io.status(path).size
            except LsmError:
                yield f"{path} is missing"
                continue
            self._file_count += 1
            if name != entry.file.file_name:
                continue
            self._unchecked_count += entry.file.checksum is None
            if size != entry.file.file_size:
                yield f"{path} has {size} bytes, not {entry.file.file_size}"
            elif self._rows is not None:
                yield from self._rows.problems(entry, path, is_changelog=is_changelog)

    def _levels(self, live: pa.Table) -> Iterator[str]:
        """Files of a level below 0 do not overlap. What did not change since the last root is known."""
        order = self._session.key_order
        below = live.filter(pc.greater(live.column(LEVEL), 0)) if live.num_rows else live
        key = frozenset(_identities(below))
        if order is None or not key:
            return
        if key != self._below:
            buckets: dict[tuple[bytes, int], list[DataFileMeta]] = {}
            for entry in entries_of(below):
                buckets.setdefault((entry.partition, entry.bucket), []).append(entry.file)
            self._below, self._overlaps = key, []
            for (partition, bucket), files in buckets.items():
                try:
                    Levels.of(files, level_count=1, key_order=order)
                except LsmError as error:
                    where = self._context.bucket_directory(partition, bucket)
                    self._overlaps.append(f"{where}: {error}")
        yield from self._overlaps


def _wrong_between(snapshots: Sequence[Snapshot], there: frozenset[int]) -> Iterator[str]:
    for older, newer in pairwise(snapshots):
        if newer.id != older.id + 1:
            if there.issuperset(range(older.id, newer.id)):
                continue
            yield f"snapshots {older.id + 1} to {newer.id - 1} are missing"
            continue
        totals = (older.total_record_count, newer.total_record_count, newer.delta_record_count)
        if None in totals:
            continue
        before, after, delta = totals
        if before is not None and delta is not None and after != before + delta:
            yield f"snapshot {newer.id}: totalRecordCount is {after}, not {before} + {delta}"


def _identities(entries: pa.Table) -> list[tuple[bytes, int, str]]:
    columns = (entries.column(name).to_pylist() for name in (PARTITION, BUCKET, FILE_NAME))
    return list(zip(*columns, strict=True))
