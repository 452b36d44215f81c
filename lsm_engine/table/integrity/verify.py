"""Verify: can every root be read to its last file, and does what they say about each other hold?

Others go on meanwhile: what is wrong with a root counts only if it is one still when that was found.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.base.table_options import not_honoured
from lsm_engine.codec.manifest import entries_of
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.store.branches import BranchStore
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, LEVEL, PARTITION, live_rows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.verify_indexes import IndexVerification
from lsm_engine.table.tags import roots
from lsm_engine.table.tags.tag import is_there

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

    `gone_count`: roots that were taken away meanwhile, or that an expiry which died had begun to take.
    `not_honoured`: options of the table that this version does not honour; no problem while it is read.
    """

    problems: tuple[str, ...]
    snapshot_count: int
    tag_count: int
    file_count: int
    index_file_count: int = 0
    gone_count: int = 0
    not_honoured: tuple[str, ...] = ()

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
        if self.gone_count:
            looked += f"; {self.gone_count} of them expired meanwhile, or are expiring"
        if self.is_clean:
            return "\n".join([f"clean: {looked}", *self.not_honoured])
        found = f"{len(self.problems)} problems in {looked}"
        return "\n".join([found, *self.problems, *self.not_honoured])


def verify(session: TableSession, *, snapshot_id: int | None = None) -> VerifyReport:
    """Check every snapshot, tag and long-lived changelog, those of branches too; or one snapshot.

    Reads metadata, deletion vectors and the sizes of files, not rows.
    """
    if snapshot_id is not None:
        check = _Verification(session)
        check.snapshot(session.snapshots.load(snapshot_id))
        return check.report(snapshot_count=1, tag_count=0)
    report = _verify_line(session)
    if session.paths.branch_name:
        return report
    branches = BranchStore(session.file_io, session.paths)
    for line in roots.other_branches(session):
        name = line.paths.branch_name
        if not branches.exists(name):
            continue  # of a creation or a deletion that died: nobody can read it
        found = _verify_line(line)
        problems = (f"branch {name!r}: {one}" for one in found.problems)
        report = VerifyReport(
            problems=(*report.problems, *problems),
            snapshot_count=report.snapshot_count + found.snapshot_count,
            tag_count=report.tag_count + found.tag_count,
            file_count=report.file_count + found.file_count,
            index_file_count=report.index_file_count + found.index_file_count,
            gone_count=report.gone_count + found.gone_count,
            not_honoured=report.not_honoured,
        )
    return report


def _verify_line(session: TableSession) -> VerifyReport:
    """Check the table itself, or a branch alone."""
    check = _Verification(session)
    snapshots, ghosts = session.snapshots.settled_and_ghosts()
    check.ghosts(ghosts)
    check.chain(snapshots)
    for snapshot in snapshots:
        check.snapshot(snapshot)
    for changelog in session.changelogs.all():
        check.changelog(changelog)
    tags = session.tags.list()
    for tag in tags:
        check.tag(tag)
    return check.report(snapshot_count=len(snapshots), tag_count=len(tags))


class _Verification:
    """Problems found so far, and files that were looked at already."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
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
            not_honoured=tuple(str(one) for one in not_honoured(self._session.options)),
        )

    def chain(self, snapshots: Sequence[Snapshot]) -> None:
        """Ids follow each other, and each total is the one before plus its own delta."""
        if any(_wrong_between(snapshots)):  # or some went while the others were read
            again = self._session.snapshots.stable_listing()
            self._problems += _wrong_between([one for one in again if not self._is_taken(one)])

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
        """A snapshot can be read, and says what its files say."""
        self._note(f"snapshot {one.id}", self._root(one), lambda: self._is_taken(one))

    def tag(self, one: Tag) -> None:
        """A tag's snapshot can be read, and says what its files say."""
        tags = self._session.tags
        self._note(
            f"tag {one.name!r}", self._root(one.snapshot), lambda: tags.find(one.name) != one
        )

    def changelog(self, one: Snapshot) -> None:
        """The files of a changelog that has outlived its snapshot are there, with their sizes."""
        changelogs = self._session.changelogs

        def is_taken() -> bool:
            marked = changelogs.earliest_hint()
            return not changelogs.exists(one.id) or (
                marked is not None and changelogs.exists(marked) and one.id < marked
            )

        self._note(f"changelog {one.id}", self._fed(one), is_taken)

    def _note(self, name: str, found: Iterable[str], is_taken: Callable[[], bool]) -> None:
        problems = list(found)
        if problems and is_taken():
            self._gone_count += 1
        else:
            self._problems += [f"{name}: {problem}" for problem in problems]

    def _is_taken(self, one: Snapshot) -> bool:
        """Whether a snapshot is gone, or older than what an expiry leaves, which has to be there."""
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
        for entry in (*kept.changelog, *kept.entries):
            if entry.kind is EntryKind.ADD:
                yield from self._wrong_with(entry)

    def _root(self, snapshot: Snapshot) -> Iterator[str]:
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
        if snapshot.index_manifest is not None or session.schema.may_have_indexes:
            yield from self._indexes.problems(snapshot, entries_of(live) if live.num_rows else [])

    def _files(self, live: pa.Table) -> Iterator[str]:
        """Look at files that no root before named; say again what was wrong with the others."""
        files = _identities(live)
        new = [at for at, file in enumerate(files) if file not in self._looked]
        if new:
            for entry in entries_of(live.take(pa.array(new))):
                wrong = tuple(self._wrong_with(entry))
                self._looked[entry.partition, entry.bucket, entry.file.file_name] = wrong
                self._anything_wrong |= bool(wrong)
        if self._anything_wrong:
            for file in files:
                yield from self._looked[file]

    def _wrong_with(self, entry: ManifestEntry) -> Iterator[str]:
        for name in (entry.file.file_name, *entry.file.extra_files):
            path = self._context.data_file(entry.partition, entry.bucket, name)
            try:
                size = self._session.file_io.status(path).size
            except LsmError:
                yield f"{path} is missing"
                continue
            self._file_count += 1
            if name == entry.file.file_name and size != entry.file.file_size:
                yield f"{path} has {size} bytes, not {entry.file.file_size}"

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


def _wrong_between(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    for older, newer in pairwise(snapshots):
        if newer.id != older.id + 1:
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
