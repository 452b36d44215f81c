"""Carry out the compaction of one bucket, in this process or in a task elsewhere."""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from lsm_engine.base import core_options
from lsm_engine.base.modes import FileSource
from lsm_engine.io.data_file_writer import DataFileWriter
from lsm_engine.mergetree.rewrite_plan import Rewrite, Upgrade
from lsm_engine.meta.commit_message import CommitMessage, CompactIncrement
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import vector_places
from lsm_engine.plan.scan import Section
from lsm_engine.table.compact.compact_plan import BucketWork
from lsm_engine.table.compact.copied_groups import GroupCopier
from lsm_engine.table.compact.lookup_levels import forget
from lsm_engine.table.compact.lookup_rewriter import LookupRewrite, LookupRewriter, RewrittenRows
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.deletion_vectors import BucketDeletions, VectorChange
from lsm_engine.table.ground.merge_rules import looks_up_older_rows
from lsm_engine.table.read.split_read import BucketReader, fetch_small_files

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
            writers.abort()
            raise
        finally:
            self._context.file_io.forget_prefetched(fetched)
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
            value = LookupRewrite.of(schema, 1).stored_value(marks=self._deletions is not None)
            forget(self._context, work.partition, work.bucket, self._removed, value=value)

    @property
    def _removed(self) -> list[DataFileMeta]:
        kept = {file.file_name for file in self.after}
        return [file for file in self.before if file.file_name not in kept]

    def abort(self) -> None:
        """Delete what was written; nothing names it."""
        kept = {file.file_name for file in self.before}
        directory = self._context.bucket_directory(self._work.partition, self._work.bucket)
        for file in (*self.after, *self.changelog):
            if file.file_name not in kept:
                self._context.file_io.delete(f"{directory}/{file.file_name}")
        if self._deletions is not None:
            self._deletions.abort()

    def _merging(self, step: Rewrite) -> Callable[[Section], Iterable[RewrittenRows]]:
        """Return what merges the sections of a step."""
        if step.compacted_from is None:
            return partial(self._merged, drop_deletes=step.drop_deletes)
        work = self._work
        rewrite = LookupRewrite.of(self._context.schema, step.compacted_from)
        rewriter = LookupRewriter(
            self._context,
            work.partition,
            work.bucket,
            reader=self._reader,
            rewrite=rewrite,
            older=work.older,
            deletions=self._deletions,
            expiry=work.expiry,
        )
        return partial(rewriter.merged, drop_deletes=step.drop_deletes)

    def _merged(self, section: Section, *, drop_deletes: bool) -> Iterator[RewrittenRows]:
        expiry = self._work.expiry
        is_oldest = drop_deletes or self._is_first_row  # which never holds a key twice
        for rows in self._reader.merged(section, drop_deletes=drop_deletes):
            left = rows if expiry is None else expiry.applied(rows, is_oldest=is_oldest)
            yield RewrittenRows(rows=left, changes=None)


class _Writers:
    """What the rows and the changes of one step are written with."""

    def __init__(self, context: BucketContext, work: BucketWork, step: Rewrite) -> None:
        self._context = context
        self._work = work
        self._rows = _writer(context, work, step, changelog=False)
        self._changes = _writer(context, work, step, changelog=True)
        self.copier: GroupCopier | None = None

    def write(self, rewritten: RewrittenRows) -> None:
        """Append rows and changes."""
        self._rows.write(rewritten.rows)
        if rewritten.changes is not None:
            self._changes.write(rewritten.changes)

    def copy_from(self, reader: BucketReader) -> None:
        """Let row groups be copied, where the files that are written can take any."""
        self.copier = GroupCopier.of(
            self._context, self._work.partition, self._work.bucket, reader, self._rows
        )

    def close(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """Return the data files and the changelog files."""
        return self._rows.close(), self._changes.close()

    def abort(self) -> None:
        """Delete all that was written."""
        self._rows.abort()
        self._changes.abort()


def _writer(
    context: BucketContext, work: BucketWork, step: Rewrite, *, changelog: bool
) -> DataFileWriter:
    return context.new_files(
        work.partition,
        work.bucket,
        level=step.output_level,
        source=FileSource.COMPACT,
        changelog=changelog,
    )
