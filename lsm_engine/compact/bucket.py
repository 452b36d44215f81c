"""Carry out the compaction of one bucket, in this process or in a task elsewhere."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.compact.lookup import LookupRewrite, LookupRewriter, RewrittenRows, forget
from lsm_engine.compact.plan import BucketWork
from lsm_engine.data_files.parquet_output import ParquetEncoding
from lsm_engine.data_files.writer import DataFileWriter, StoredGroups
from lsm_engine.format.commit_message import CommitMessage, CompactIncrement
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import vector_places
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.lsm.rewrite_plan import Rewrite, Upgrade
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileSource
from lsm_engine.planning.scan import Section
from lsm_engine.read.merge import DECODED_BYTES_PER_STORED_BYTE
from lsm_engine.read.split import BucketReader, fetch_small_files
from lsm_engine.storage.bulk import forget_prefetched
from lsm_engine.table.bucket_context import BucketContext, discard
from lsm_engine.table.deletion_vectors import BucketDeletions, VectorChange
from lsm_engine.table.merge_rules import looks_up_older_rows
from lsm_engine.table.session import TableSession

# -- Work on many buckets, handed to the table's executor ------------------------------------------

T = TypeVar("T")


def run_tasks(
    session: TableSession,
    context: BucketContext,
    work: Callable[[T], CommitMessage | None],
    items: Sequence[T],
    *,
    verb: str,
) -> list[CommitMessage]:
    """Return what the work on each item has to commit; if any fails, files of the others are deleted.

    `verb` names the work, with the table, where the executor shows it. Raises InvalidOptionError, with nothing
    done, for storage that the executor does not share with this process.
    """
    if not items:
        return []
    executor = session.components.executor
    executor.check_storage(context.file_io)
    return executor.messages(
        work,
        items,
        label=f"{verb} {session.name}",
        discard=partial(discard, context),
        is_remote=context.file_io.facts.is_remote,
    )


# -- Which row groups of a section no other run overlaps -------------------------------------------
#
# Compaction copies them and merges the rest.

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
    def for_bucket(
        context: BucketContext,
        partition: bytes,
        bucket: int,
        reader: BucketReader,
        writer: DataFileWriter,
    ) -> "GroupCopier | None":
        """Return a copier; None where files of the writer's level cannot take row groups of others.

        Each may have to be written anew, footers may hold facts of all keys of a file, and another
        level may have another compression. of a remote file all columns of a row group come at once anyway.
        """
        schema = context.schema
        options, key = schema.options, schema.trimmed_primary_keys[0]
        can = (
            not context.file_io.facts.is_remote
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
                stored = self._stored_groups(stretch.section[0][0])
                if stored is not None:
                    self._writer.copy(stored, stretch.copied)
                    continue
            for rows in self._reader.merged(
                stretch.section, drop_deletes=drop_deletes, parts=stretch.parts
            ):
                self._writer.write(rows)

    def _stored_groups(self, file: DataFileMeta) -> StoredGroups | None:
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
    # Bounds are read from every file of the section: that pays only where something can be copied.
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
            for group in members:
                yield replace(_stretch(section, groups, [group]), copied=int(groups.number[group]))
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
            with context.open_file((partition, bucket), file, (key,)) as reader:
                bounds = reader.bounds(key)
                # Without bounds of every row group an overlap cannot be ruled out.
                if bounds is None or not all(bounds.is_known):
                    return None
                counts = reader.row_group_rows
            can = _may_copy(file, context, is_large)
            ends = np.cumsum((0, *counts)).tolist()
            columns += [
                (
                    index,
                    ends[index],
                    ends[index + 1],
                    number,
                    can and is_large(count, _bytes(file, count)),
                )
                for index, count in enumerate(counts)
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

    def counted(among: Longs, members: Longs) -> Longs:
        begun: Longs = np.searchsorted(np.sort(groups.lower[among]), groups.upper[members], "right")
        ended: Longs = np.searchsorted(np.sort(groups.upper[among]), groups.lower[members], "left")
        return begun - ended

    everyone = np.arange(len(groups.run))
    overlaps = counted(everyone, everyone)
    for run in range(int(groups.run.max()) + 1):
        own = np.flatnonzero(groups.run == run)
        overlaps[own] -= counted(own, own)
    has_overlap: np.ndarray = overlaps > 0
    return has_overlap


def _stretch(section: Section, groups: _Groups, members: Sequence[int]) -> Stretch:
    """Return what of each file lies in a stretch; of one file these row groups follow each other."""
    parts: dict[str, range] = {}
    for group in members:
        name = groups.files[group].file_name
        first = parts[name].start if name in parts else int(groups.first[group])
        parts[name] = range(first, int(groups.end[group]))
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


# -- Compaction of one bucket ----------------------------------------------------------------------

log = logging.getLogger(__name__)


def compact_bucket(context: BucketContext, work: BucketWork) -> CommitMessage | None:
    """Carry out the steps of one bucket; what was written is deleted again if a step fails."""
    compaction = _Compaction(context, work)
    try:
        for step in work.steps:
            if isinstance(step, Upgrade):
                compaction.upgrade(step)
            else:
                compaction.rewrite(step)
        vectors = compaction.vectors()
        compaction.forget_lookups()
    except BaseException:
        # No snapshot names the new files yet.
        compaction.abort()
        raise
    log.info(
        "compacted bucket=%d reason=%s files=%d->%d",
        work.bucket,
        work.reason,
        len(compaction.before),
        len(compaction.after),
    )
    return CommitMessage(
        partition=work.partition,
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        compact=CompactIncrement(
            before=tuple(compaction.before),
            after=tuple(compaction.after),
            changelog_files=tuple(compaction.changelog),
            new_index_files=vectors.new,
            deleted_index_files=vectors.deleted,
        ),
    )


class _Compaction:
    """The files of one bucket removed, added, and written as changelog so far."""

    def __init__(self, context: BucketContext, work: BucketWork) -> None:
        self._context = context
        self._work = work
        self.before: list[DataFileMeta] = []
        self.after: list[DataFileMeta] = []
        self.changelog: list[DataFileMeta] = []
        has_vectors = context.schema.options[core_options.DELETION_VECTORS_ENABLED]
        self._is_first_row = context.schema.options[
            core_options.MERGE_ENGINE
        ].policy.keeps_first_row
        self._deletions: BucketDeletions | None = None
        if has_vectors or work.vector_files:
            self._deletions = BucketDeletions(context, work.vector_files)
        places = vector_places(work.vector_files)
        self._reader = BucketReader(context, work.partition, work.bucket, places.values())

    def upgrade(self, step: Upgrade) -> None:
        """Let files change their level."""
        self.before += step.files
        self.after += [file.upgrade(step.output_level) for file in step.files]

    def rewrite(self, step: Rewrite) -> None:
        """Merge files into new ones, and write changelog rows if the step asks for them."""
        self.before += step.files
        fetched = fetch_small_files(
            self._context, self._work.partition, self._work.bucket, step.files
        )
        writers = _Writers(self._context, self._work, step)
        if (step.compacted_from, self._work.expiry, self._deletions) == (None,) * 3:
            writers.copy_from(self._reader)  # rows that nothing overlaps stay as they are
        try:
            merged = self._merging(step)
            for section in step.sections:
                files = tuple(run.files for run in section)
                if writers.copier is not None:
                    writers.copier.write(files, drop_deletes=step.drop_deletes)
                    continue
                for rewritten in merged(files):
                    writers.write(rewritten)
            after, changelog = writers.close()
        except BaseException:
            # Open writers hold half-written files, which no snapshot names.
            writers.abort()
            raise
        finally:
            forget_prefetched(self._context.file_io, fetched)
        self.after += after
        self.changelog += changelog

    def vectors(self) -> VectorChange:
        """Write the bucket's deletion vectors, without those of removed files."""
        if self._deletions is None:
            return VectorChange()
        self._deletions.forget(file.file_name for file in self._removed)
        return self._deletions.write()

    def forget_lookups(self) -> None:
        """Remove the lookup files of removed files."""
        schema, work = self._context.schema, self._work
        if looks_up_older_rows(schema.options):
            value = LookupRewrite.from_schema(schema, 1).stored_value(
                marks=self._deletions is not None
            )
            forget(self._context, work.partition, work.bucket, self._removed, value=value)

    @property
    def _removed(self) -> list[DataFileMeta]:
        names_after = {file.file_name for file in self.after}
        return [file for file in self.before if file.file_name not in names_after]

    def abort(self) -> None:
        """Delete what was written; nothing names it."""
        # Files that only changed their level belong to the base.
        names_before = {file.file_name for file in self.before}
        directory = self._context.bucket_directory(self._work.partition, self._work.bucket)
        for file in (*self.after, *self.changelog):
            for name in file.file_names if file.file_name not in names_before else ():
                self._context.file_io.delete(f"{directory}/{name}")
        if self._deletions is not None:
            self._deletions.abort()

    def _merging(self, step: Rewrite) -> Callable[[Section], Iterable[RewrittenRows]]:
        """Return what merges the sections of a step."""
        if step.compacted_from is None:
            return partial(self._merged, drop_deletes=step.drop_deletes)
        work = self._work
        rewrite = LookupRewrite.from_schema(self._context.schema, step.compacted_from)
        rewriter = LookupRewriter(
            self._reader,
            rewrite,
            older=work.older,
            deletions=self._deletions,
            expiry=work.expiry,
        )
        return partial(rewriter.merged, drop_deletes=step.drop_deletes)

    def _merged(self, section: Section, *, drop_deletes: bool) -> Iterator[RewrittenRows]:
        expiry = self._work.expiry
        is_oldest = drop_deletes or self._is_first_row  # which never holds a key twice
        for rows in self._reader.merged(section, drop_deletes=drop_deletes):
            unexpired = rows if expiry is None else expiry.applied(rows, is_oldest=is_oldest)
            yield RewrittenRows(rows=unexpired, changes=None)


class _Writers:
    """The writers of the rows and the changes of one step."""

    def __init__(self, context: BucketContext, work: BucketWork, step: Rewrite) -> None:
        self._context = context
        self._work = work
        bucket, level = (work.partition, work.bucket), step.output_level
        self._rows = context.new_files(bucket, level=level, source=FileSource.COMPACT)
        self._changes = context.new_changelog_files(bucket, level=level, source=FileSource.COMPACT)
        self.copier: GroupCopier | None = None

    def write(self, rewritten: RewrittenRows) -> None:
        """Append rows and changes."""
        self._rows.write(rewritten.rows)
        if rewritten.changes is not None:
            self._changes.write(rewritten.changes)

    def copy_from(self, reader: BucketReader) -> None:
        """Let row groups be copied, where the files that are written can take any."""
        self.copier = GroupCopier.for_bucket(
            self._context, self._work.partition, self._work.bucket, reader, self._rows
        )

    def close(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """Return the data files and the changelog files."""
        return self._rows.close(), self._changes.close()

    def abort(self) -> None:
        """Delete all that was written."""
        self._rows.abort()
        self._changes.abort()
