"""Rewrite the state of one retained reference without the rows of some keys.

Every stored version of a key is removed, whatever the merge engine: files are rewritten without its rows, at
their level and with the sequence numbers of the remaining rows. Rows of other keys do not change and no rows are
merged, so that no changelog has to be emitted.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.base.record import record
from lsm_engine.codec.deletion_vector import DeletionVector
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import HASH, IndexFileMeta, IndexManifestEntry
from lsm_engine.meta.manifest import Bucket, ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.find.row_locations import MatchingRows, matching_rows
from lsm_engine.table.forget.forgotten_keys import ForgottenKeys
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.bucket_keys import bucket_hashes
from lsm_engine.table.ground.deletion_vectors import BucketDeletions, BucketVectors
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.split_read import BucketReader
from lsm_engine.table.stage.dynamic_buckets import listed_hashes, write_hashes


@record
class StateChange:
    """What of a root's state is replaced: data files, and index files of the same buckets."""

    deleted: tuple[ManifestEntry, ...] = ()
    new: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the state stays as it is."""
        return not (self.deleted or self.index)

    @property
    def row_count(self) -> int:
        """How many stored rows go, those that deletion vectors had taken included."""
        return sum(entry.file.row_count for entry in self.deleted) - sum(
            entry.file.row_count for entry in self.new
        )

    def after(self, live: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """Return the live files of a state once it is changed."""
        deleted = {entry.identity for entry in self.deleted}
        return [*(entry for entry in live if entry.identity not in deleted), *self.new]


class KeyFiles:
    """Finds the data files that hold some keys, and writes them anew, each once for several roots."""

    def __init__(self, keys: ForgottenKeys) -> None:
        self._keys = keys
        self._found: dict[tuple[bytes, int, str], Longs] = {}
        self._written: dict[tuple[bytes, int, str, DeletionVector], DataFileMeta | None] = {}
        self._ordered: dict[bytes | None, list[bytes]] = {}

    def afresh(self) -> "KeyFiles":
        """Return the same findings without written files: a commit that fails deletes what it staged."""
        copy = KeyFiles(self._keys)
        copy._found = self._found
        return copy

    def named_by(self, live: Iterable[ManifestEntry]) -> "KeyFiles":
        """Return the same findings with the written files of one state: others may be deleted meanwhile."""
        names = {entry.file.file_name for entry in live}
        copy = KeyFiles(self._keys)
        copy._found = self._found
        copy._written = {
            place: file
            for place, file in self._written.items()
            if file is None or file.file_name in names
        }
        return copy

    def holding(
        self, session: TableSession, live: Sequence[ManifestEntry]
    ) -> list[tuple[ManifestEntry, Longs]]:
        """Return the files with rows of a key, and the positions of these rows."""
        new = [entry for entry in live if _place(entry) not in self._found]
        searched = [entry for entry in new if self._may_hold(session, entry)]
        for entry in new:
            self._found[_place(entry)] = np.zeros(0, np.int64)
        matches: Iterable[MatchingRows] = matching_rows(session, self._keys.columns, searched)
        for match in matches:
            self._found[_place(match.entry)] = match.positions
        located = [(entry, self._found[_place(entry)]) for entry in live]
        return [(entry, positions) for entry, positions in located if len(positions)]

    def _may_hold(self, session: TableSession, entry: ManifestEntry) -> bool:
        """Whether the partition and the key range of a file allow one of the keys.

        Rows that wait for a bucket lie as they came: what their entry names are the first and the last.
        """
        order = session.key_order
        if order is None or entry.bucket < 0:
            return True
        partition = entry.partition if entry.partition in self._keys.by_partition else None
        if partition not in self._ordered:
            stored_keys = self._keys.by_partition.get(partition, frozenset())
            self._ordered[partition] = sorted(map(order, stored_keys))
        ordered = self._ordered[partition]
        first = bisect_left(ordered, order(entry.file.min_key))
        return first < len(ordered) and ordered[first] <= order(entry.file.max_key)

    def without(
        self, context: BucketContext, entry: ManifestEntry, vectors: BucketVectors
    ) -> ManifestEntry | None:
        """Return the entry of a file that replaces one, at its level; None: no row is left."""
        vector = vectors.of(entry.file.file_name)
        positions = self._found[_place(entry)]
        dropped = (
            DeletionVector.from_positions(positions) if vector is None else vector.union(positions)
        )
        name = (*_place(entry), dropped)
        if name not in self._written:
            self._written[name] = _rewritten(context, entry, dropped)
        rewritten = self._written[name]
        return (
            None
            if rewritten is None
            else replace(entry, file=replace(rewritten, level=entry.file.level))
        )

    def refuse_foreign(self, entry: ManifestEntry) -> None:
        """Raise UnsupportedError for a file outside of the table, which is not ours to delete."""
        if entry.file.external_path is not None:
            raise UnsupportedError(
                "a data file that holds a key lies outside of the table's directory, where its owner "
                "has to delete it; copy the rows to a new table",
                kind=ErrorKind.UNSUPPORTED_FORMAT,
                file=entry.file.file_name,
                external_path=entry.file.external_path,
            )


def _place(entry: ManifestEntry) -> tuple[bytes, int, str]:
    return entry.partition, entry.bucket, entry.file.file_name


def _rewritten(
    context: BucketContext, entry: ManifestEntry, dropped: DeletionVector
) -> DataFileMeta | None:
    """Write a file anew, in the schema that it was written with, without some of its rows."""
    file = entry.file
    if len(dropped) == file.row_count:
        return None
    own = replace(context, schema=context.schemas[file.schema_id])
    writer = own.new_files(
        entry.partition,
        entry.bucket,
        level=file.level,
        source=file.file_source or FileSource.COMPACT,
        never_roll=True,
        first_sequence_number=file.min_sequence_number,
    )
    try:
        with own.open_file(entry.partition, entry.bucket, file) as reader:
            for rows in reader.without(dropped).batches():
                writer.write(rows)
        (meta,) = writer.close()
    except BaseException:
        writer.abort()
        raise
    return replace(meta, creation_millis=file.creation_millis, file_source=file.file_source)


def change_state(
    session: TableSession, snapshot: Snapshot, keys: ForgottenKeys, files: KeyFiles
) -> StateChange:
    """Write what replaces the files of a root that hold one of the keys.

    The files are visible to nobody until a root names them. Raises UnsupportedError for files that lie
    outside of the table.
    """
    live = session.live_entries(snapshot)
    holding = _with_later([entry for entry, _ in files.holding(session, live)], live)
    context = session.context({entry.file.schema_id for entry in live})
    indexes = session.vector_files(snapshot)
    vectors = {
        bucket: BucketVectors(context, places.values())
        for bucket, places in session.vector_places(snapshot).items()
    }
    none = BucketVectors(context, ())
    new: list[ManifestEntry] = []
    names: dict[Bucket, list[str]] = {}
    for entry in holding:
        files.refuse_foreign(entry)
        bucket = (entry.partition, entry.bucket)
        names.setdefault(bucket, []).append(entry.file.file_name)
        rewritten = files.without(context, entry, vectors.get(bucket, none))
        if rewritten is not None:
            new.append(rewritten)
    change = StateChange(deleted=tuple(holding), new=tuple(new))
    index: list[IndexManifestEntry] = []
    for bucket, file_names in names.items():
        deletions = BucketDeletions(context, indexes.get(bucket, ()))
        deletions.forget(file_names)
        written = deletions.write()
        index += _replaced(bucket, written.deleted, written.new)
    index += _hash_indexes(session, snapshot, keys, change.after(live))
    return replace(change, index=tuple(index))


def _with_later(
    holding: Sequence[ManifestEntry], live: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """Return the files to write anew: where rows wait for a bucket, those behind such a file, too.

    Rows that wait count in the order of their entries, and what is written anew comes last.
    """
    holding_identities = {entry.identity for entry in holding}
    waiting: set[bytes] = set()
    entries = []
    for entry in live:
        if entry.identity in holding_identities or (
            entry.bucket < 0 and entry.partition in waiting
        ):
            entries.append(entry)
            waiting |= {entry.partition} if entry.bucket < 0 else set()
    return entries


def _replaced(
    bucket: Bucket, deleted: Iterable[IndexFileMeta], new: Iterable[IndexFileMeta]
) -> list[IndexManifestEntry]:
    return [
        IndexManifestEntry(kind=kind, partition=bucket[0], bucket=bucket[1], index_file=file)
        for kind, files in ((EntryKind.DELETE, deleted), (EntryKind.ADD, new))
        for file in files
    ]


# --- the indexes of dynamic buckets --------------------------------------------------------------


def _hash_indexes(
    session: TableSession, snapshot: Snapshot, keys: ForgottenKeys, live: Sequence[ManifestEntry]
) -> list[IndexManifestEntry]:
    """Write the indexes anew that list the hash of a key and of no other key of their bucket."""
    changes: list[IndexManifestEntry] = []
    for entry, remaining in indexes_with_hashes(session, snapshot, keys, live):
        new = [write_hashes(session.context(), remaining)] if len(remaining) else []
        changes += _replaced((entry.partition, entry.bucket), [entry.index_file], new)
    return changes


def indexes_with_hashes(
    session: TableSession, snapshot: Snapshot, keys: ForgottenKeys, live: Sequence[ManifestEntry]
) -> Iterator[tuple[IndexManifestEntry, npt.NDArray[np.int32]]]:
    """Yield the indexes that list the hash of a key which no key in `live` has, and what is to stay."""
    for entry in session.index_entries(snapshot):
        if entry.index_file.index_type != HASH or not keys.may_be_in(entry.partition):
            continue
        listed = listed_hashes(session.context(), entry.index_file)
        is_forgotten = np.isin(listed, list(keys.hashes))
        if is_forgotten.any():
            other_hashes = _hashes_of(session, entry.partition, entry.bucket, live)
            remaining = listed[~is_forgotten | np.isin(listed, other_hashes)]
            if len(remaining) < len(listed):
                yield entry, remaining


def _hashes_of(
    session: TableSession, partition: bytes, bucket: int, live: Sequence[ManifestEntry]
) -> Longs:
    """Return the distinct hashes of all keys in the files of a bucket."""
    own = [entry for entry in live if (entry.partition, entry.bucket) == (partition, bucket)]
    context = session.context({entry.file.schema_id for entry in own})
    reader = BucketReader(context, partition, bucket)
    names = session.schema.bucket_keys
    fields = session.schema.select(names)
    hashes = np.zeros(0, np.int64)
    for entry in own:
        for rows in reader.file(entry.file, names):
            hashes = np.union1d(hashes, bucket_hashes(fields, rows))
    return hashes
