"""Which row groups of a section no other run overlaps: compaction copies them and merges the rest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.io.data_file_writer import DataFileWriter
from lsm_engine.io.parquet_output import ParquetEncoding
from lsm_engine.io.stored_groups import StoredGroups
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.plan.scan import Section
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.read.merge_stream import DECODED_BYTES_PER_STORED_BYTE
from lsm_engine.table.read.split_read import BucketReader

SizeTest = Callable[[int, int], bool]


@record
class Stretch:
    """A stretch of the key space: a row group to copy, by its number in its file, or rows to merge.

    `parts`: of each file of `section`, which rows lie there: whole row groups; of all if there are none.
    """

    section: Section
    parts: Mapping[str, range]
    copied: int | None = None


class GroupCopier:
    """Writes sections of a bucket: stored row groups where nothing overlaps them, merged rows between."""

    def __init__(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        reader: BucketReader,
        writer: DataFileWriter,
    ) -> None:
        self._context = context
        self._partition = partition
        self._bucket = bucket
        self._reader = reader
        self._writer = writer
        self._stored: dict[str, StoredGroups | None] = {}

    @staticmethod
    def of(
        context: BucketContext,
        partition: bytes,
        bucket: int,
        reader: BucketReader,
        writer: DataFileWriter,
    ) -> "GroupCopier | None":
        """Return a copier; None where files of the writer's level cannot take row groups of others.

        Each may have to be written anew, footers may hold facts of all keys of a file, and another
        level may have another compression. Of a far file all columns of a row group come at once anyway.
        """
        schema = context.schema
        options, key = schema.options, schema.trimmed_primary_keys[0]
        can = (
            not context.file_io.facts.is_far
            and isinstance(writer.layout.encoding, ParquetEncoding)
            and not options[core_options.FILE_COMPRESSION_PER_LEVEL]
            and not options[core_options.COMPACTION_FORCE_REWRITE_ALL_FILES]
            and not writer.layout.keeps_record_keys
            and _has_bounds(schema.key_value_arrow.field(key).type)
        )
        return GroupCopier(context, partition, bucket, reader, writer) if can else None

    def write(self, section: Section, *, drop_deletes: bool) -> None:
        """Write a section behind those so far; raises as `StoredGroups.read` does."""
        for stretch in stretches(
            self._context, self._partition, self._bucket, section, self._writer.is_large
        ):
            if stretch.copied is not None and self._writer.takes_copies:
                stored = self._opened(stretch.section[0][0])
                if stored is not None:
                    self._writer.copy(stored, stretch.copied)
                    continue
            for rows in self._reader.merged(
                stretch.section, drop_deletes=drop_deletes, parts=stretch.parts
            ):
                self._writer.write(rows)

    def _opened(self, file: DataFileMeta) -> StoredGroups | None:
        if file.file_name not in self._stored:
            context, layout = self._context, self._writer.layout
            path = context.data_file(self._partition, self._bucket, file.file_name)
            self._stored[file.file_name] = StoredGroups.read(context.file_io, path, file, layout)
        return self._stored[file.file_name]


def stretches(
    context: BucketContext, partition: bytes, bucket: int, section: Section, is_large: SizeTest
) -> Iterator[Stretch]:
    """Cut a section at row groups, by the bounds of the first key column in their footers.

    Row groups whose keys no row group of another run may hold are copied, if they are large, of a file
    whose bytes are known and which has no deletes. All other neighbours are merged together. `is_large`
    is asked with a number of rows and their bytes in memory.
    """
    groups = None
    if any(_may_copy(file, context, is_large) for run in section for file in run):
        groups = _groups(context, partition, bucket, section, is_large)
    if groups is None:
        yield Stretch(section=section, parts={})
        return
    stays = groups.is_copied & ~_overlaps_others(groups)
    order = np.lexsort((np.arange(len(groups.run)), groups.lower))
    for copied, members in groupby(order.tolist(), key=stays.tolist().__getitem__):
        # Within a run files and row groups are numbered in the order of their keys.
        if copied:
            for at in members:
                yield replace(_stretch(section, groups, [at]), copied=int(groups.number[at]))
        else:
            yield _stretch(section, groups, sorted(members))


@record
class _Groups:
    """Row groups of a section, run by run: file, number in it, first row and end, ranks of the bounds."""

    files: Sequence[DataFileMeta]
    number: Longs
    first: Longs
    end: Longs
    run: Longs
    lower: Longs
    upper: Longs
    is_copied: np.ndarray


def _groups(
    context: BucketContext, partition: bytes, bucket: int, section: Section, is_large: SizeTest
) -> _Groups | None:
    """Return the row groups, None where a file has no bounds of one of its own."""
    key = context.schema.trimmed_primary_keys[0]
    files: list[DataFileMeta] = []
    columns: list[tuple[int, int, int, int, bool]] = []
    lower, upper = [], []
    for number, run in enumerate(section):
        for file in run:
            with context.open_file(partition, bucket, file, (key,)) as reader:
                bounds = reader.bounds(key)
                if bounds is None or not all(bounds.is_known):
                    return None
                counts = reader.row_group_rows
            can = _may_copy(file, context, is_large)
            ends = np.cumsum((0, *counts)).tolist()
            columns += [
                (at, ends[at], ends[at + 1], number, can and is_large(count, _bytes(file, count)))
                for at, count in enumerate(counts)
            ]
            files += [file] * len(counts)
            lower.append(bounds.lower)
            upper.append(bounds.upper)
    both = pc.rank(pa.chunked_array([*lower, *upper]), tiebreaker="dense").to_numpy()
    count = len(files)
    numbers = np.array(columns, np.int64).reshape(count, 5)
    return _Groups(
        files=files,
        number=numbers[:, 0],
        first=numbers[:, 1],
        end=numbers[:, 2],
        run=numbers[:, 3],
        lower=both[:count].astype(np.int64),
        upper=both[count:].astype(np.int64),
        is_copied=numbers[:, 4].astype(bool),
    )


def _overlaps_others(groups: _Groups) -> np.ndarray:
    """Return for each row group whether one of another run may hold some of its keys.

    As many begin before its end, less those that have ended before it begins, in all runs and in its own.
    """

    def counted(among: Longs, of: Longs) -> Longs:
        begun: Longs = np.searchsorted(np.sort(groups.lower[among]), groups.upper[of], "right")
        ended: Longs = np.searchsorted(np.sort(groups.upper[among]), groups.lower[of], "left")
        return begun - ended

    everyone = np.arange(len(groups.run))
    overlaps = counted(everyone, everyone)
    for run in range(int(groups.run.max()) + 1):
        own = np.flatnonzero(groups.run == run)
        overlaps[own] -= counted(own, own)
    others: np.ndarray = overlaps > 0
    return others


def _stretch(section: Section, groups: _Groups, members: Sequence[int]) -> Stretch:
    """Return what of each file lies in a stretch; of one file these row groups follow each other."""
    parts: dict[str, range] = {}
    for at in members:
        name = groups.files[at].file_name
        first = parts[name].start if name in parts else int(groups.first[at])
        parts[name] = range(first, int(groups.end[at]))
    runs = (tuple(file for file in run if file.file_name in parts) for run in section)
    return Stretch(section=tuple(run for run in runs if run), parts=parts)


def _may_copy(file: DataFileMeta, context: BucketContext, is_large: SizeTest) -> bool:
    return (
        file.checksum is not None
        and file.schema_id == context.schema.id
        and not file.may_hold_deletes
        and is_large(file.row_count, _bytes(file, file.row_count))
    )


def _bytes(file: DataFileMeta, row_count: int) -> int:
    return DECODED_BYTES_PER_STORED_BYTE * file.file_size * row_count // max(file.row_count, 1)


def _has_bounds(kind: pa.DataType) -> bool:
    # Floating point has -0.0 and NaN, whose order is not that of the bounds.
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )
