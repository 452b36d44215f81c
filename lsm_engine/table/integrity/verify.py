"""Verify that every snapshot, tag and changelog can be read to its last file, and that they agree.

Other processes write meanwhile: a problem counts only if its snapshot, tag or changelog still exists
after it was found.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, InvalidInputError, LsmError, NotFoundError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.table_options import unsupported_options
from lsm_engine.codec.manifest import entries_of
from lsm_engine.io.file_io import check_name
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.live_snapshots import rollback_target
from lsm_engine.plan.rollback_seal import unsealed
from lsm_engine.store.branches import BranchStore
from lsm_engine.store.trash import TrashStore
from lsm_engine.store.verified_files import VerifiedFileStore
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, KIND, LEVEL, PARTITION
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.deep_check import (
    DeepCheck,
    fingerprint_of,
    hash_indexes,
    with_schemas,
)
from lsm_engine.table.integrity.findings import Finding, Findings, Root, finding_of
from lsm_engine.table.integrity.sources import with_sources
from lsm_engine.table.integrity.stakes import stake_of
from lsm_engine.table.integrity.unconditional_writers import warnings_of
from lsm_engine.table.integrity.verify_ends import ghost_problems, unread, wrong_ends
from lsm_engine.table.integrity.verify_files import FileReader, FileToRead, Progress, read_files
from lsm_engine.table.integrity.verify_indexes import IndexVerification
from lsm_engine.table.integrity.verify_levels import LevelVerification, identities_of, identity_of
from lsm_engine.table.integrity.verify_lists import ListVerification, entries_in, wrong_rows
from lsm_engine.table.integrity.verify_report import VerifyReport, of_branches
from lsm_engine.table.integrity.verify_row_ids import RowIdVerification
from lsm_engine.table.integrity.verify_statistics import StatisticsVerification
from lsm_engine.table.integrity.verify_totals import live_of, wrong_between, wrong_total
from lsm_engine.table.tags.roots import Roots, open_branch
from lsm_engine.table.tags.tag import is_there

T = TypeVar("T")
K = TypeVar("K", int, str)
ROW_COUNT = "_FILE._ROW_COUNT"
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
    snapshot_id: int | None = None,
    held: Snapshot | None = None,
    deep: bool = False,
    incremental: bool = False,
    progress: Progress | None = None,
    read: FileReader = read_files,
) -> VerifyReport:
    """Check every snapshot, tag and long-lived changelog, those of branches too; or one snapshot (`held`: it).

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
    if snapshot_id is not None:
        check = _Verification(session, rows if deep else None)
        try:
            check.snapshot(held or session.snapshots.load(snapshot_id))
        except CorruptFileError as error:
            check.add(f"snapshot {snapshot_id}", error)
        reports = [("", check.report(snapshot_count=1, tag_count=0))]
    else:
        reports = [("", _verify_branch(session, rows if deep else None))]
        if not session.paths.branch_name:
            reports += _verify_other_branches(session, rows if deep else None)
    if deep:
        rows.record(complete=snapshot_id is None and not session.paths.branch_name)
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
    return VerifyReport(problems=(str(error),), snapshot_count=0, tag_count=0, file_count=0)


def _verify_branch(session: TableSession, rows: DeepCheck | None) -> VerifyReport:
    """Check the table itself, or a branch alone."""
    check = _Verification(session, rows)
    for schema_id in check.readable("schemas", session.schemas.ids) or ():
        check.readable(f"schema {schema_id}", partial(session.schemas.load, schema_id))
    listing = partial(session.snapshots.stable_listing_with_ghosts, check.find_snapshot)
    snapshots, ghosts = check.readable("snapshots", listing) or ((), ())
    line = check.unsealed(snapshots)
    check.readable("snapshots", partial(check.chain, line))
    if line and rows is not None:
        check.newest(line[-1])
    for snapshot in line:
        check.snapshot(snapshot)
    check.readable("EARLIEST", lambda: check.ends(line, ghosts))
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
    return check.report(snapshot_count=len(line), tag_count=len(tags))


class _Verification:
    """Problems found so far, and files that were looked at already."""

    def __init__(self, session: TableSession, rows: DeepCheck | None) -> None:
        self._session = session
        self._rows = rows
        self._unchecked_count = 0
        self._context = session.context()
        self._found = Findings(session.paths.branch_name)
        self._looked: dict[tuple[bytes, int, str], tuple[Finding, ...]] = {}
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

    def add(self, name: str, error: LsmError, root: Root | None = None) -> None:
        """List an error as a problem of something."""
        self._found.add(finding_of(error), subject=name, root=root)

    def readable(self, name: str, read: Callable[[], T], root: Root | None = None) -> T | None:
        """Return what can be read; what is damaged is listed, what was deleted is passed over."""
        try:
            return read()
        except NotFoundError:
            return None
        except LsmError as error:
            self.add(name, error, root)
            return None

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return what a snapshot file holds; what is damaged is listed once."""
        root = Root(kind="snapshot", name=snapshot_id)
        return self.readable(str(root), partial(self._session.snapshots.find, snapshot_id), root)

    def readable_items(
        self, kind: str, list_names: Callable[[], Iterable[K]], find: Callable[[K], T | None]
    ) -> list[T]:
        """Return what can be read of a kind; the rest is listed."""
        names = self.readable(f"{kind}s", list_names) or ()
        roots = {name: Root(kind=kind, name=name) for name in names}
        read = [self.readable(str(root), partial(find, name), root) for name, root in roots.items()]
        return [item for item in read if item is not None]

    def chain(self, snapshots: Sequence[Snapshot]) -> None:
        """Ids follow each other, and each total is the one before plus its own delta."""
        self._warnings += warnings_of(self._session, snapshots)
        listed_ids = frozenset(
            self._session.snapshots.listed_ids()
        )  # damaged ones are listed already
        paths = self._session.paths
        if any(
            wrong_between(snapshots, listed_ids, paths)
        ):  # or some went while the others were read
            again, _ = self._session.snapshots.stable_listing_with_ghosts(self.find_snapshot)
            live = [snapshot for snapshot in unsealed(again).line if not self._is_deleted(snapshot)]
            for root, findings in wrong_between(live, listed_ids, paths):
                self._found.note(root, findings)

    def unsealed(self, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
        """No rollback is left undone; return the snapshots that it does not take."""
        chain = unsealed(snapshots)
        if chain.seal is not None and is_there(self._session, chain.seal):
            to = rollback_target(chain.seal)
            self._found.texts.append(f"a rollback is not done; roll back to {to} again if it died")
        return chain.line or snapshots[:-1]

    def ends(self, snapshots: Sequence[Snapshot], ghosts: Sequence[Snapshot]) -> None:
        """Nothing is missing before the oldest and after the newest, and nothing is left there."""
        self._found.texts += ghost_problems(self._session, ghosts)
        problems, warnings, self._hidden = wrong_ends(self._session, snapshots)
        self._found.texts += problems
        self._warnings += warnings

    def snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot can be read, and agrees with its files."""
        self._note(
            Root(kind="snapshot", name=snapshot.id),
            self._root(snapshot, with_changelog=True),
            lambda: self._is_deleted(snapshot),
        )

    def tag(self, tag: Tag) -> None:
        """A tag's snapshot can be read, and agrees with its files."""
        self._note(
            Root(kind="tag", name=tag.name),
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

        self._note(Root(kind="changelog", name=snapshot.id), self._fed(snapshot), is_deleted)

    def _note(
        self, root: Root, findings: Iterable[Finding], is_deleted: Callable[[], bool]
    ) -> None:
        problems = list(findings)
        if problems and is_deleted():
            self._gone_count += 1
        else:
            self._found.note(root, problems)

    def _is_deleted(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot was deleted, or is older than those that an expiry keeps."""
        snapshots = self._session.snapshots
        marked = snapshots.earliest_hint()
        passed = marked is not None and snapshot.id < marked and snapshots.exists(marked)
        return passed or not is_there(self._session, snapshot)

    def _fed(self, snapshot: Snapshot) -> Iterator[Finding]:
        try:
            (retained,) = Roots(self._session).kept_changelogs([snapshot])
        except LsmError as error:
            yield finding_of(error)
            return
        yield from self._added(retained.entries, is_changelog=False)
        yield from self._added(retained.changelog, is_changelog=True)

    def _added(self, entries: Iterable[ManifestEntry], *, is_changelog: bool) -> Iterator[Finding]:
        added = [entry for entry in entries if entry.kind is EntryKind.ADD]
        self._look(added, is_changelog=is_changelog)
        for entry in added:
            yield from self._looked[identity_of(entry)]

    def _changelog_of(self, snapshot: Snapshot) -> Iterator[Finding]:
        session, name = self._session, snapshot.changelog_manifest_list
        if name is None:
            return
        try:
            entries = entries_in(session, snapshot, name)
        except LsmError as error:
            yield finding_of(error)
            return
        path = session.paths.manifest(name)
        yield from wrong_rows(path, entries, snapshot.changelog_record_count)
        yield from self._added(entries, is_changelog=True)

    def _root(self, snapshot: Snapshot, *, with_changelog: bool) -> Iterator[Finding]:
        """The schema, manifests and files of one root are there, with their sizes and rows."""
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
        yield from wrong_total(snapshot, rows, session.paths.manifest(snapshot.base_manifest_list))
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
        """Raise the first problem with a root's schema; there is nothing to yield besides."""
        session = self._session
        session.with_schema(session.schemas.load(snapshot.schema_id)).check_schema(snapshot)
        yield from ()

    def _row_id_problems(self, snapshot: Snapshot, live: pa.Table) -> Iterator[Finding]:
        return (Finding(text=text) for text in self._row_ids.problems(snapshot, live))

    def _readable_files(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Yield each manifest of a root that cannot be read, and what is wrong with files of the others."""
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
        identities = identities_of(entries)
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
        """Check files that no root before named; report again what was wrong with the others."""
        files = identities_of(live)
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
        new = {identity_of(entry): entry for entry in entries}
        context = with_schemas(self._session, {entry.file.schema_id for entry in new.values()})
        to_read: dict[tuple[bytes, int, str], tuple[FileToRead, str | None]] = {}
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
                    fingerprint_of(entry.file, self._session.file_io.status(path)),
                )
        if to_read and self._rows is not None:
            wrong = self._rows.problems(context, list(to_read.values()))
            for key, (file, _) in to_read.items():
                self._anything_wrong |= bool(texts := wrong[file.path])
                self._looked[key] = tuple(self._about(file.entry, text) for text in texts)

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
        for name in (entry.file.file_name, *entry.file.extra_files):
            path = self._context.data_file(entry.partition, entry.bucket, name)
            try:
                size = self._session.file_io.status(path).size
            except LsmError:
                yield self._about(entry, f"{path} is missing")
                continue
            self._file_count += 1
            if path == data_path:
                self._unchecked_count += entry.file.checksum is None
                if size != entry.file.file_size:
                    yield self._about(entry, f"{path} has {size} bytes, not {entry.file.file_size}")


def _listed(*checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what checks find. The error that ends one of them is a finding, and the next one goes on."""
    for check in checks:
        try:
            yield from check()
        except LsmError as error:
            yield finding_of(error)
