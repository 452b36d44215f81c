"""The files of a snapshot: manifests read as columns, pruned, folded, and only then made objects."""

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.codec.manifest import entries_of
from lsm_engine.codec.narrow_entries import narrowed
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.store.manifests import ManifestStore

Mask = npt.NDArray[np.bool_]
KeepRows = Callable[[pa.Table], Mask]

KIND = "_KIND"
PARTITION = "_PARTITION"
BUCKET = "_BUCKET"
TOTAL_BUCKETS = "_TOTAL_BUCKETS"
FILE_NAME = "_FILE._FILE_NAME"
ROW_COUNT = "_FILE._ROW_COUNT"
MIN_KEY = "_FILE._MIN_KEY"
MAX_KEY = "_FILE._MAX_KEY"
LEVEL = "_FILE._LEVEL"
DELETE_ROW_COUNT = "_FILE._DELETE_ROW_COUNT"
SCHEMA_ID = "_FILE._SCHEMA_ID"
MIN_SEQUENCE_NUMBER = "_FILE._MIN_SEQUENCE_NUMBER"
MAX_SEQUENCE_NUMBER = "_FILE._MAX_SEQUENCE_NUMBER"
CREATION_TIME = "_FILE._CREATION_TIME"
_JOINED_ROWS = 1 << 16
_LARGE_ROWS = 1 << 12
_HALF, _LOW_BITS = 1 << 31, (1 << 32) - 1


@record
class BucketFilter:
    """Buckets whose entries are read, asked once per distinct (partition, bucket)."""

    holds: Callable[[bytes, int], bool]

    def mask(self, entries: pa.Table) -> Mask:
        """Return which entries are in those buckets."""
        pairs, of_row = bucket_pairs(entries)
        held = np.array([self.holds(*pair) for pair in pairs], dtype=np.bool_)
        return held[of_row]


def bucket_pairs(entries: pa.Table) -> tuple[list[tuple[bytes, int]], npt.NDArray[np.int64]]:
    """Return the distinct (partition, bucket) pairs of entries, and which one each entry has."""
    partitions = entries.column(PARTITION)
    if not pa.types.is_dictionary(partitions.type):
        partitions = pc.dictionary_encode(partitions)
    partitions = partitions.unify_dictionaries().combine_chunks()
    # Buckets have 32 bits and a sign: this way a pair is one number, which sorts as the pair does.
    both = partitions.indices.to_numpy().astype(np.int64)
    both <<= 32
    both += entries.column(BUCKET).to_numpy()
    both += _HALF
    texts = partitions.dictionary.to_pylist()
    numbers = pc.dictionary_encode(pa.array(both))
    del both, partitions  # a million entries take 8 MB for each such array
    distinct = numbers.dictionary.to_numpy()
    order = np.argsort(distinct)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    sorted_pairs = distinct[order].tolist()
    pairs = [(texts[pair >> 32], (pair & _LOW_BITS) - _HALF) for pair in sorted_pairs]
    return pairs, rank[numbers.indices.to_numpy()]


def live_rows(
    manifests: ManifestStore,
    metas: Iterable[ManifestFileMeta],
    keep: KeepRows | None = None,
    columns: Collection[str] | None = None,
    *,
    narrow: bool = False,
) -> pa.Table | None:
    """Return the entries of live files as columns; None if there are none.

    `keep` chooses among entries; it must decide alike for the ADD and the DELETE of one file.
    `columns`: only these are decoded and returned. `narrow`: as `narrowed` returns them.
    """
    tables = []
    for table in joined(
        manifests.read(meta, columns) for meta in manifests.ahead(metas, columns=columns)
    ):
        kept = table if keep is None else table.filter(pa.array(keep(table)))
        if kept.num_rows:
            tables.append(narrowed(kept) if narrow else kept)
    if not tables:
        return None
    return _folded(pa.concat_tables(tables, promote_options="permissive" if narrow else "none"))


def joined(tables: Iterable[pa.Table], row_count: int = _JOINED_ROWS) -> Iterator[pa.Table]:
    """Yield tables of many small ones: looking at one costs as much as at a thousand rows.

    `row_count`: rows from which on one is yielded; one that comes last may go beyond.
    """
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        if not waiting and table.num_rows >= _LARGE_ROWS:
            yield table
            continue
        if table.num_rows:
            waiting.append(table)
            rows += table.num_rows
        if rows >= row_count:
            yield _as_one(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _as_one(waiting)


def _as_one(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def live_entries(
    manifests: ManifestStore,
    metas: Iterable[ManifestFileMeta],
    holds: Callable[[bytes, int], bool] | None = None,
    columns: Collection[str] | None = None,
) -> list[ManifestEntry]:
    """Return live files as objects, those of some buckets or all; of `columns` alone, if there are any."""
    keep = None if holds is None else BucketFilter(holds=holds).mask
    rows = live_rows(manifests, metas, keep, columns)
    return [] if rows is None else entries_of(rows)


def standing(entries: pa.Table) -> Mask:
    """Return which of some ADD and DELETE entries, oldest first, are left once they are folded.

    Of an ADD and a later DELETE of the same file neither is; a DELETE whose ADD is not among `entries` is left, as
    it belongs to a file of an older manifest. Raises CommitConflictError where a live file is added twice.
    """
    stands = np.ones(entries.num_rows, np.bool_)
    counted = pc.value_counts(entries.column(FILE_NAME).combine_chunks())
    often = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if not len(often):
        return stands
    named = pc.is_in(entries.column(FILE_NAME), value_set=often).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(named)
    suspects = entries.take(pa.array(rows))
    kinds = suspects.column(KIND).to_numpy()
    left: dict[tuple[bytes, int, int, str], int] = {}
    for number, identity in enumerate(_identities(suspects)):
        before = left.pop(identity, None)
        if before is not None:
            stands[rows[before]] = False
        was_added = before is not None and kinds[before] == EntryKind.ADD
        if kinds[number] == EntryKind.ADD:
            if was_added:
                raise CommitConflictError(
                    "a file is added twice; reload the table and try again", file=identity[3]
                )
        elif was_added:
            stands[rows[number]] = False
            continue
        left[identity] = number
    return stands


def _folded(entries: pa.Table) -> pa.Table:
    """Return the ADD entries that no DELETE takes away.

    Only files whose name some DELETE names are looked at one by one: an identity is never added
    again once it was deleted (format section 5), so the order of entries does not matter.
    """
    kinds = entries.column(KIND).to_numpy()
    deleted = kinds == EntryKind.DELETE
    if not deleted.any():
        return entries
    deletes = entries.filter(pa.array(deleted))
    identities = set(_identities(deletes))
    named = pc.is_in(
        entries.column(FILE_NAME), value_set=pc.unique(deletes.column(FILE_NAME))
    ).to_numpy(zero_copy_only=False)
    suspects = np.flatnonzero(named & ~deleted)
    live = ~deleted
    for position, identity in zip(
        suspects.tolist(), _identities(entries.take(pa.array(suspects))), strict=True
    ):
        live[position] = identity not in identities
    return entries.filter(pa.array(live))


def _identities(entries: pa.Table) -> list[tuple[bytes, int, int, str]]:
    return list(
        zip(
            *(entries.column(name).to_pylist() for name in (PARTITION, BUCKET, LEVEL, FILE_NAME)),
            strict=True,
        )
    )
