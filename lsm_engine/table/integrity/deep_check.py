"""The deep part of a verification: reads data files, and skips those that an earlier run verified."""

import contextlib
import logging
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lsm_engine.base.errors import LsmError
from lsm_engine.io.file_io import FileStatus
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import IndexFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.store.verified_files import VerifiedFileStore
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import indexes_by_partition
from lsm_engine.table.integrity.verify_files import FileReader, FileToRead, Progress

log = logging.getLogger(__name__)

_RECORDED_EVERY = 10_000


class DeepCheck:
    """Reads every file once, however many roots and branches name it.

    With a `store`, files that it records with the same size, checksum, time of change and manifest
    entry are passed over, and those that are found sound are recorded. Files of other writers, whose
    checksum nobody knows, are read each time.
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
        """Keep what was found sound; `whole`: all roots were looked at, other files no longer exist."""
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
        entries = session.index_entries(snapshot)
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
