"""Give back what damaged and missing data files held, from what the table still has.

A file that a compaction wrote is merged again from its inputs, and one that a writer flushed from the
changelog of its commit; if the bytes are those that the manifest's checksum is of, they take the file's
place, which heals every snapshot, tag and branch at once. Else older versions of its rows, from the newest
snapshot, tag or trash record that has them, take its place in the newest state.
"""

import logging
from collections.abc import Iterator, Mapping
from itertools import chain, takewhile

import pyarrow as pa

from lsm_engine.base.errors import LsmError
from lsm_engine.base.modes import CommitKind, FileSource
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.meta.commit_message import CommitMessage, CompactIncrement
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.proposal import CommitIdentity, Proposal
from lsm_engine.table.commit.commit import propose
from lsm_engine.table.compact.copied_groups import GroupCopier
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import DamagedFile
from lsm_engine.table.integrity.older_rows import (
    merged_files,
    older_rows,
    reader_of,
    sections_of,
    write_older_rows,
)
from lsm_engine.table.integrity.origins import (
    Origin,
    identity,
    origins_of,
)
from lsm_engine.table.integrity.sources import entries_at, rebuilt_from
from lsm_engine.table.integrity.stakes import FileStake
from lsm_engine.table.integrity.verify import verify

log = logging.getLogger(__name__)


@record
class RestoredFile:
    """What becomes of one damaged or missing file. Rows are stored versions, as in FileStake.

    `source`: what its rows come from; None: nothing has them. `is_exact`: they are what the file held.
    """

    stake: FileStake
    source: str | None
    is_exact: bool
    row_count: int

    @property
    def lost_row_count(self) -> int:
        """How many rows nothing gives back; of older versions, how many more rows the file held."""
        return max(0, self.stake.row_count - self.row_count)

    def __str__(self) -> str:
        if self.source is None:
            return f"{self.stake}; nothing has them"
        rows_text = "all of it" if self.is_exact else counted(self.row_count, "older row")
        return f"{self.stake}; {rows_text} from {self.source}"


@record
class RestoreReport:
    """What was given back, or with `dry_run` would be: each damaged or missing data file.

    `left`: changelog files and such, which nothing else holds.
    """

    files: tuple[RestoredFile, ...]
    left: tuple[DamagedFile, ...]
    dry_run: bool
    snapshot: Snapshot | None = None

    @property
    def lost_row_count(self) -> int:
        """Rows that nothing gives back."""
        return sum(file.lost_row_count for file in self.files)

    def __str__(self) -> str:
        if not self.files and not self.left:
            return "no data file is damaged or missing"
        would = "would be " if self.dry_run else ""
        exact = sum(file.is_exact for file in self.files)
        older = sum(file.source is not None for file in self.files) - exact
        rows = sum(file.row_count for file in self.files)
        files = counted(len(self.files) + len(self.left), "damaged or missing file")
        return (
            f"{files}: {exact} {would}restored whole, "
            f"{older} from older rows; {counted(rows, 'row')} {would}back, {self.lost_row_count} have no source"
        )


def restore_files(session: TableSession, who: CommitIdentity, *, dry_run: bool) -> RestoreReport:
    """Restore what deep verification finds damaged or missing, as far as anything holds it.

    A plan counts rows as manifests do; acting checks every rebuilt file against the checksum in its
    manifest entry. What nothing holds stays as it is: `remove_damaged_files` lets go of it.
    """
    session.options.require_writable()
    damaged = verify(session, deep=True).damaged_files
    stakes = {item.path: item.stake for item in damaged if item.stake is not None}
    entries = entries_at(session, stakes)
    restore = _Restore(session, entries, dry_run=dry_run)
    done = restore.rebuild()
    newest = session.snapshots.latest()
    live = {} if newest is None else {session.data_path(e): e for e in session.live_entries(newest)}
    messages: list[CommitMessage] = []
    files: list[RestoredFile] = []
    for path, entry in entries.items():
        stake = stakes[path]
        assert stake is not None
        if path in done:
            files.append(
                RestoredFile(
                    stake=stake, source=done[path], is_exact=True, row_count=stake.row_count
                )
            )
            continue
        older = restore.older(entry) if path in live else None
        message, item = older or (None, None)
        if message is not None:
            messages.append(message)
        source, count = (None, 0) if item is None else item
        files.append(
            RestoredFile(
                stake=stake, source=source, is_exact=False, row_count=min(count, stake.row_count)
            )
        )
    committed = None
    if messages:
        committed = propose(
            session,
            Proposal(
                identity=who, messages=tuple(messages), planned_on=newest, kind=CommitKind.COMPACT
            ),
        )
    return RestoreReport(
        files=tuple(files),
        left=tuple(item for item in damaged if item.path not in entries),
        dry_run=dry_run,
        snapshot=committed,
    )


class _Restore:
    """The files that are still bad, and what becomes of them."""

    def __init__(
        self, session: TableSession, entries: Mapping[str, ManifestEntry], *, dry_run: bool
    ) -> None:
        self._session = session
        self._entries = entries
        self._dry_run = dry_run
        self._bad = set(entries)

    def rebuild(self) -> dict[str, str]:
        """Make files again, inputs of others first; return what each was made from, by path."""
        origins = origins_of(self._session, [identity(entry) for entry in self._entries.values()])
        done: dict[str, str] = {}
        if self._session.schema.evolves_data:
            return done  # a file has some columns of its rows
        progress = True
        while progress:
            progress = False
            for path in sorted(self._bad):
                origin = origins.get(identity(self._entries[path]))
                if origin is None or not rebuilt_from(self._session, origin, frozenset(self._bad)):
                    continue
                if self._made_again(path, origin):
                    origin_kind = "compaction" if origin.inputs else "changelog"
                    done[path] = f"the {origin_kind} of snapshot {origin.snapshot.id}"
                    self._bad.discard(path)
                    progress = True
        return done

    def _made_again(self, path: str, origin: Origin) -> bool:
        if self._dry_run:
            return True
        session = self._session.with_schema(self._session.schemas.load(origin.entry.file.schema_id))
        try:
            # As a compaction writes it that copies what nothing overlaps, and as one that does not.
            for file, data in chain(
                _written(session, origin, copies=True), _written(session, origin, copies=False)
            ):
                if checksum_of(data) == origin.entry.file.checksum and len(data) == file.file_size:
                    self._session.file_io.replace(path, data)
                    return True
        except LsmError as error:
            log.warning("%s could not be made again: %s", path, error)
        return False

    def older(self, entry: ManifestEntry) -> tuple[CommitMessage | None, tuple[str, int]] | None:
        """Return a commit that puts older rows in a file's place, their source and count."""
        session = self._session.rewriting([entry.file.schema_id])
        older = older_rows(session, entry, frozenset(self._bad))
        if older is None:
            return None
        if self._dry_run:
            return None, (str(older), older.row_count)
        written = write_older_rows(session, older)
        message = CommitMessage(
            partition=entry.partition,
            bucket=entry.bucket,
            total_buckets=entry.total_buckets,
            compact=CompactIncrement(before=(entry.file,), after=tuple(written)),
        )
        return message, (str(older), sum(file.row_count for file in written))


def _written(
    session: TableSession, origin: Origin, *, copies: bool
) -> Iterator[tuple[DataFileMeta, bytes]]:
    """Yield the files that merging the inputs again gives, and their bytes; none of them stays.

    With `copies` none where nothing is copied.
    """
    entry, snapshot = origin.entry, origin.snapshot
    parts = origin.inputs or origin.changelog
    deletes = entry.file.delete_row_count or 0
    base = session.snapshots.before(snapshot) if origin.inputs else None
    schema = session.schema
    is_keyed = schema.has_primary_key
    drop_deletes = bool(origin.inputs) and not deletes
    rows: Iterator[pa.Table | pa.RecordBatch] = (
        merged_files(session, entry, base, parts, drop_deletes=drop_deletes)
        if is_keyed
        else _appended(session, origin, base)
    )
    context = session.context({part.file.schema_id for part in parts})
    writer = context.new_files(
        entry.partition,
        entry.bucket,
        level=entry.file.level,
        source=FileSource.COMPACT if origin.inputs else FileSource.APPEND,
        write_columns=(*schema.names, *schema.tracking_names) if schema.tracks_rows else None,
        never_roll=not is_keyed,
    )
    copier = None
    if copies and is_keyed and origin.inputs:
        reader = reader_of(session, entry, base, parts)
        copier = GroupCopier.of(context, entry.partition, entry.bucket, reader, writer)
    if copies and copier is None:
        return
    written: list[DataFileMeta] = []
    try:
        if copier is not None:
            for section in sections_of(session, parts):
                copier.write(section, drop_deletes=drop_deletes)
        else:
            for batch in rows:
                writer.write(batch)
        written = writer.close()
        for file in written:
            path = context.data_file(entry.partition, entry.bucket, file.file_name)
            yield file, session.file_io.read(path)
    except BaseException:
        writer.abort()
        raise
    finally:
        session.delete_quietly(
            context.data_file(entry.partition, entry.bucket, file.file_name) for file in written
        )


def _appended(
    session: TableSession, origin: Origin, base: Snapshot | None
) -> Iterator[pa.RecordBatch]:
    """Yield what a compaction of an append table put into one file: its share of the joined rows."""
    names = (*session.schema.names, *session.schema.tracking_names)
    reader = reader_of(session, origin.entry, base, origin.inputs)
    before = takewhile(lambda output: identity(output) != identity(origin.entry), origin.outputs)
    skipped, remaining = (
        sum(output.file.row_count for output in before),
        origin.entry.file.row_count,
    )
    for part in origin.inputs:
        for rows in reader.file(part.file, names):
            own = rows.slice(skipped, remaining)
            skipped -= min(skipped, rows.num_rows)
            remaining -= own.num_rows
            if own.num_rows:
                yield own
