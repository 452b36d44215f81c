"""Compact an append table: small files become one, rows as they were."""

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import FileSource
from lsm_engine.base.record import record
from lsm_engine.meta.commit_message import CommitMessage, CompactIncrement
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import IndexFileMeta, vector_places
from lsm_engine.meta.manifest import by_bucket
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.append_compaction import AppendSizes, append_groups, row_range_groups
from lsm_engine.plan.row_ids import column_groups, row_ids_of
from lsm_engine.schema.table_schema import ROW_ID
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.deletion_vectors import BucketDeletions
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.split_read import BucketReader

log = logging.getLogger(__name__)


@record
class AppendWork:
    """The groups of one bucket that become a file each, oldest rows first in each group.

    `vectors`: the bucket's index files of deletion vectors; deleted rows are left behind.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    groups: tuple[tuple[DataFileMeta, ...], ...]
    vectors: tuple[IndexFileMeta, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes to read and write again."""
        return sum(file.file_size for group in self.groups for file in group)

    @property
    def schema_ids(self) -> frozenset[int]:
        """The schemas of all files that are read."""
        return frozenset(file.schema_id for group in self.groups for file in group)


def plan_append_compaction(
    session: TableSession,
    base: Snapshot,
    holds: Callable[[bytes, int], bool] | None = None,
    *,
    full: bool = False,
) -> list[AppendWork]:
    """Decide which files of each bucket are joined; buckets in shape are left out."""
    options = session.options
    sizes = AppendSizes(
        target_file_size=options.target_file_size(has_primary_key=False),
        min_file_count=options[core_options.COMPACTION_MIN_FILE_NUM],
    )
    vectors = session.vector_files(base)
    work = []
    for bucket, entries in by_bucket(session.live_entries(base, holds)).items():
        files = [entry.file for entry in entries]
        index = vectors.get(bucket, ())
        if session.schema.evolves_data:
            groups = row_range_groups(files, sizes, full=full)
        else:
            groups = append_groups(
                files,
                sizes,
                in_order=session.schema.bucket_mode.policy.is_fixed,
                full=full,
                must_rewrite=frozenset(vector_places(index)),
            )
        if groups:
            work.append(
                AppendWork(
                    partition=bucket[0],
                    bucket=bucket[1],
                    total_buckets=entries[-1].total_buckets,
                    groups=tuple(groups),
                    vectors=index,
                )
            )
    return work


def compact_append_bucket(context: BucketContext, work: AppendWork) -> CommitMessage | None:
    """Rewrite the groups of one bucket; what was written is deleted again if that fails."""
    deletions = BucketDeletions(context, work.vectors)
    reader = BucketReader(
        context, work.partition, work.bucket, vector_places(work.vectors).values()
    )
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    try:
        for group in work.groups:
            after += _joined(context, work, reader, group)
            before += group
        deletions.forget(file.file_name for file in before)
        change = deletions.write()
    except BaseException:
        directory = context.bucket_directory(work.partition, work.bucket)
        for file in after:
            context.file_io.delete(f"{directory}/{file.file_name}")
        deletions.abort()
        raise
    log.info("joined bucket=%d files=%d->%d", work.bucket, len(before), len(after))
    return CommitMessage(
        partition=work.partition,
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        compact=CompactIncrement(
            before=tuple(before),
            after=tuple(after),
            new_index_files=change.new,
            deleted_index_files=change.deleted,
        ),
    )


def _joined(
    context: BucketContext,
    work: AppendWork,
    reader: BucketReader,
    group: tuple[DataFileMeta, ...],
) -> list[DataFileMeta]:
    """Rewrite a group. Rows that have ids take them along, as columns of the new file."""
    schema = context.schema
    if schema.evolves_data:
        return _one_range(context, work, reader, group)
    names = (*schema.names, *schema.tracking_names)
    writer = context.new_files(
        work.partition,
        work.bucket,
        level=0,
        source=FileSource.COMPACT,
        first_sequence_number=group[0].min_sequence_number,
        write_columns=names if schema.tracks_rows else None,
    )
    run = _IdRun()
    try:
        for file in group:
            for rows in reader.file(file, names):
                writer.write(rows)
                if schema.tracks_rows:
                    run.take(rows)
        return run.recorded(writer.close())
    except BaseException:
        writer.abort()
        raise


class _IdRun:
    """The ids of rows that go by. Where each follows the last one, files can record their range as well.

    They store the ids all the same, as Java's do; but pypaimon looks at the range alone.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._count = 0
        self._follows = True

    def take(self, rows: pa.RecordBatch) -> None:
        ids = rows.column(ROW_ID).to_numpy()
        if not len(ids):
            return
        if self._first is None:
            self._first = int(ids[0])
        expected = np.arange(len(ids)) + self._first + self._count
        self._follows = self._follows and bool((ids == expected).all())
        self._count += len(ids)

    def recorded(self, files: list[DataFileMeta]) -> list[DataFileMeta]:
        if self._first is None or not self._follows:
            return files
        begins = accumulate((file.row_count for file in files[:-1]), initial=self._first)
        return [
            replace(file, first_row_id=begin) for file, begin in zip(files, begins, strict=True)
        ]


def _one_range(
    context: BucketContext,
    work: AppendWork,
    reader: BucketReader,
    group: tuple[DataFileMeta, ...],
) -> list[DataFileMeta]:
    """Join the columns of rows whose ids follow each other; ids go on from the first one's."""
    writer = context.new_files(
        work.partition, work.bucket, level=0, source=FileSource.COMPACT, never_roll=True
    )
    try:
        for files in column_groups(group):
            section = tuple((file,) for file in files)
            for rows in reader.joined(section, context.schema.names):
                writer.write(rows)
        (written,) = writer.close()
    except BaseException:
        writer.abort()
        raise
    return [
        replace(
            written,
            first_row_id=min(row_ids_of(file).start for file in group),
            min_sequence_number=min(file.min_sequence_number for file in group),
            max_sequence_number=max(file.max_sequence_number for file in group),
        )
    ]
