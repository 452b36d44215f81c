"""Verify what a retained reference names: index files, row ids, statistics and totals."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.base.units import counted
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.format.documents import TableStatistics, decode_statistics
from lsm_engine.format.index_file import DELETION_VECTORS, IndexFileMeta, IndexManifestEntry
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Longs, one_array
from lsm_engine.kernels.groups import distinct
from lsm_engine.maintenance.findings import Finding, Reference, finding_of
from lsm_engine.metadata.manifests import DeletionVectorStore
from lsm_engine.planning.commit import copied_lists
from lsm_engine.planning.row_ids import column_groups, stores_row_ids
from lsm_engine.planning.snapshot_chain import adds_up, follows
from lsm_engine.storage.paths import TablePaths
from lsm_engine.table.live_files import live_rows
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import indexes_by_partition
from lsm_engine.types.table_schema import ROW_ID
from lsm_engine.write.buckets import listed_hashes

# -- Verify the index files of a retained reference ------------------------------------------------
#
# They are there, whole, and speak of files and rows that exist.


class IndexVerification:
    """Looks at each index file once, however many retained references name it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._store = DeletionVectorStore(session.file_io, session.paths)
        self._buckets = BucketVerification(session)
        self._seen: dict[str, dict[str, DeletionVector] | Finding] = {}

    @property
    def file_count(self) -> int:
        """How many index files were looked at."""
        return len(self._seen)

    def problems(self, snapshot: Snapshot, live: Sequence[ManifestEntry]) -> Iterator[Finding]:
        """Yield what is wrong with the index files of a retained reference whose live files are `live`."""
        try:
            entries = self._session.readable_indexes(snapshot)
        except LsmError as error:
            yield finding_of(error)
            return
        rows = {
            (entry.partition, entry.bucket, entry.file.file_name): entry.file.row_count
            for entry in live
        }
        yield from self._buckets.problems(entries)
        marked: set[tuple[bytes, int, str]] = set()
        for entry in entries:
            vectors = self._read(entry.index_file)
            if isinstance(vectors, Finding):
                yield vectors
                continue
            for name, vector in vectors.items():
                key = (entry.partition, entry.bucket, name)
                path = self._session.paths.index_file(entry.index_file.file_name)
                for text in _of_vector(entry, name, vector, rows.get(key), is_second=key in marked):
                    yield Finding(text=text, path=path)
                marked.add(key)

    def _read(self, file: IndexFileMeta) -> dict[str, DeletionVector] | Finding:
        if file.file_name not in self._seen:
            try:
                self._seen[file.file_name] = self._vectors(file)
            except LsmError as error:
                self._seen[file.file_name] = finding_of(error)
        return self._seen[file.file_name]

    def _vectors(self, file: IndexFileMeta) -> dict[str, DeletionVector] | Finding:
        path = self._session.paths.index_file(file.file_name)
        if file.index_type != DELETION_VECTORS:
            size = self._session.file_io.status(path).size
            if size != file.file_size:
                return Finding(text=f"{path} has {size} bytes, not {file.file_size}", path=path)
            return {}
        vectors = self._store.read_file(file)
        if file.row_count != len(vectors):
            text = f"{path} holds {len(vectors)} deletion vectors, not {file.row_count}"
            return Finding(text=text, path=path)
        return vectors


def _of_vector(
    entry: IndexManifestEntry,
    name: str,
    vector: DeletionVector,
    row_count: int | None,
    *,
    is_second: bool,
) -> Iterable[str]:
    label = f"index file {entry.index_file.file_name}"
    if is_second:
        yield f"{label} holds a second deletion vector of {name}"
    if row_count is None:
        yield f"{label} deletes rows of {name}, which is not live"
    elif len(vector) and int(vector.positions[-1]) >= row_count:
        yield f"{label} deletes row {vector.positions[-1]} of {name}, which has {row_count}"


class BucketVerification:
    """Looks at each set of indexes once, however many retained references have it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._sound: set[frozenset[str]] = set()

    def problems(self, entries: Iterable[IndexManifestEntry]) -> Iterator[Finding]:
        """Yield what is wrong with the bucket indexes of a retained reference."""
        context = self._session.context()
        for partition, files in indexes_by_partition(entries).items():
            names = frozenset(file.file_name for _, file in files)
            if names in self._sound:
                continue
            try:
                hashes = np.concatenate([listed_hashes(context, file) for _, file in files])
            except LsmError as error:
                yield finding_of(error)
                continue
            doubled = len(hashes) - len(distinct(hashes))
            if doubled:
                label = context.partition_path(partition) or "the table"
                yield Finding(
                    text=f"{counted(doubled, 'key')} of {label} listed for two dynamic buckets, so that rows may "
                    "be read twice; overwrite it with its rows"
                )
            else:
                self._sound.add(names)


# -- Verify the ids of rows: no two rows of a snapshot have one, and none is still to be given -----

_FIRST, _COUNT = "_FILE._FIRST_ROW_ID", "_FILE._ROW_COUNT"


class RowIdVerification:
    """Verifies the row ids that manifests record; `deep`: also those that files store, each file read once."""

    def __init__(self, session: TableSession, *, deep: bool) -> None:
        self._session = session
        self._deep = deep
        self._stored: dict[str, Longs] = {}

    def problems(self, snapshot: Snapshot, live: pa.Table) -> Iterator[str]:
        """Yield what is wrong with the ids of a snapshot's live files."""
        if not self._session.schema.tracks_rows or not live.num_rows:
            return
        entries = entries_of(live)
        yield from self._ranges(snapshot, live)
        if self._session.schema.evolves_data:
            yield from self._groups(entries)
        else:
            yield from self._overlaps(snapshot, entries)

    def _ranges(self, snapshot: Snapshot, live: pa.Table) -> Iterator[str]:
        ends = pc.add(live.column(_FIRST), live.column(_COUNT))
        highest = pc.max(ends).as_py()
        if highest is not None and highest > (snapshot.next_row_id or 0):
            yield (
                f"nextRowId is {snapshot.next_row_id}, but row ids up to {highest - 1} are given: new "
                "rows would get them again"
            )

    def _groups(self, entries: list[ManifestEntry]) -> Iterator[str]:
        try:
            column_groups(entry.file for entry in entries)
        except LsmError as error:
            yield str(error)

    def _overlaps(self, snapshot: Snapshot, entries: list[ManifestEntry]) -> Iterator[str]:
        """Compare ranges of ids with each other; a row in a deletion vector has given its id on."""
        marked = {
            vector.data_file_name
            for entry in self._session.readable_indexes(snapshot)
            for vector in entry.index_file.deletion_vectors or ()
        }
        names: list[str] = []
        ranges: list[Longs] = []
        for entry in entries:
            file = entry.file
            if file.file_name in marked:
                continue
            if file.first_row_id is not None:
                runs = np.array([[file.first_row_id, file.first_row_id + file.row_count]])
            elif stores_row_ids(file):
                runs = self._runs_of(entry) if self._deep else _NO_RUNS
            else:
                yield f"{file.file_name} has no row ids, in a table that tracks rows"
                continue
            names += [file.file_name] * len(runs)
            ranges.append(runs)
        if not ranges:
            return
        both = np.concatenate(ranges)
        order = np.argsort(both[:, 0], kind="stable")
        starts, ends = both[order, 0], np.maximum.accumulate(both[order, 1])
        for index in np.flatnonzero(starts[1:] < ends[:-1])[:_SHOWN].tolist():
            first_name, second_name = names[order[index]], names[order[index + 1]]
            yield f"row ids from {starts[index + 1]} on are given twice: in {first_name} and in {second_name}"

    def _runs_of(self, entry: ManifestEntry) -> Longs:
        """Return the ids that a file stores as runs [first, end) of ids that follow each other."""
        name = entry.file.file_name
        if name not in self._stored:
            context = self._session.context([entry.file.schema_id])
            try:
                with context.open_file(
                    (entry.partition, entry.bucket), entry.file, (ROW_ID,)
                ) as reader:
                    ids = np.sort(one_array(reader.read().column(ROW_ID)).to_numpy())
            except LsmError:
                ids = np.zeros(0, np.int64)  # listed with the file itself
            cuts = np.flatnonzero(np.diff(ids) != 1) + 1
            bounds = np.concatenate([[0], cuts, [len(ids)]]) if len(ids) else np.zeros(1, np.int64)
            firsts, lasts = ids[bounds[:-1]], ids[bounds[1:] - 1]
            self._stored[name] = np.stack([firsts, lasts + 1], axis=1)
        return self._stored[name]


_NO_RUNS: Longs = np.zeros((0, 2), np.int64)
_SHOWN = 3


# -- Verify the statistics that ANALYZE of another client left -------------------------------------
#
# They are there, can be read, and fit the table.
#
# They carry no checksum, so a digit that became another one is not noticed.


class StatisticsVerification:
    """The statistics of all retained references of one branch; each file is read once."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._known: dict[str, TableStatistics | Finding] = {}

    def problems(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Yield what is wrong with the statistics that a snapshot names."""
        name = snapshot.statistics
        if name is None:
            return
        if name not in self._known:
            self._known[name] = self._read(name)
        statistics = self._known[name]
        if isinstance(statistics, Finding):
            yield statistics
            return
        path = self._session.paths.statistics_file(name)
        if statistics.snapshot_id > snapshot.id:
            yield Finding(
                text=f"{path} is of snapshot {statistics.snapshot_id}, which is newer", path=path
            )
        for text in self._misfits(statistics):
            yield Finding(text=f"{path} {text}", path=path)

    def _read(self, name: str) -> TableStatistics | Finding:
        path = self._session.paths.statistics_file(name)
        try:
            return decode_statistics(
                self._session.file_io.read(path, length=READ_MAX), file_name=path
            )
        except LsmError as error:
            return Finding(text=str(error), path=path)

    def _misfits(self, statistics: TableStatistics) -> Iterator[str]:
        try:
            schema = self._session.schemas.load(statistics.schema_id)
        except LsmError as error:
            yield f"is of schema {statistics.schema_id}: {finding_of(error)}"
            return
        unknown = sorted(set(statistics.null_counts) - set(schema.names))
        if unknown:
            yield f"has a column {unknown[0]!r}, which schema {schema.id} does not have"
        most = statistics.merged_record_count
        for name, count in sorted(statistics.null_counts.items()):
            if count is not None and most is not None and count > most:
                yield f"counts {counted(count, 'null')} of column {name!r} in {counted(most, 'row')}"


# -- Verify that a state can be read, and that snapshots follow each other -------------------------
#
# No gaps, totals that add up.

MISCOUNTED = "totalRecordCount is"


def live_of(session: TableSession, snapshot: Snapshot) -> pa.Table | None:
    """Return the live files of a retained reference; manifest lists that readers take a copy of have to be there, too."""
    copied = copied_lists(snapshot)
    session.manifests.expect(copied)
    for name in copied:
        session.manifests.content(name, snapshot.checksum_of(name))
    return live_rows(session.manifests, session.manifest_metas(snapshot))


def wrong_total(snapshot: Snapshot, rows: int, manifest_list: str) -> Iterator[Finding]:
    """Yield that a snapshot counts other rows than its files have, if it does. `manifest_list`: its path."""
    total = snapshot.total_record_count
    if total is not None and rows != total:
        text = f"{MISCOUNTED} {total}, its files hold {counted(rows, 'row')}"
        yield Finding(text=text, path=manifest_list)


def wrong_between(
    snapshots: Sequence[Snapshot], listed_ids: frozenset[int], paths: TablePaths
) -> Iterator[tuple[Reference, Sequence[Finding]]]:
    """Yield gaps between snapshots, those not made on the one before, and totals that are not its plus the delta.

    `listed_ids`: ids of snapshot files, damaged ones among them.
    """
    for older, newer in pairwise(snapshots):
        if newer.id != older.id + 1:
            for number in sorted(set(range(older.id + 1, newer.id)) - listed_ids):
                path = paths.snapshot_file(number)
                finding = Finding(text=f"{path} is missing", path=path)
                yield Reference(kind="snapshot", name=number), [finding]
        elif not follows(newer, older):
            text = (
                f"it was not made on the snapshot {older.id} that is there: the file of one of the two is that of "
                "another branch, or of before a rollback; restore it"
            )
            finding = Finding(text=text, path=paths.snapshot_file(newer.id))
            yield Reference(kind="snapshot", name=newer.id), [finding]
        elif adds_up(newer, older) is False:
            text = (
                f"{MISCOUNTED} {newer.total_record_count}, "
                f"not {older.total_record_count} + {newer.delta_record_count}"
            )
            finding = Finding(text=text, path=paths.manifest(newer.base_manifest_list))
            yield Reference(kind="snapshot", name=newer.id), [finding]
