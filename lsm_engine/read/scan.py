"""Scan a snapshot: manifests, pruned files, splits, rows."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import InvalidInputError, NotFoundError, UnsupportedError
from lsm_engine.base.other_libraries import SCAN, missing_attribute
from lsm_engine.base.record import html_table, record
from lsm_engine.filter.expression import flags_of, tree_of
from lsm_engine.filter.predicate import Predicate, columns_of
from lsm_engine.filter.where import Filter
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.merge_runs import merge_order
from lsm_engine.options import core_options
from lsm_engine.planning.scan import ScanExplanation, Section, Split
from lsm_engine.read.merge import MatchingGroups, file_parts
from lsm_engine.read.prefetch import AHEAD_BYTES, Part, read_ahead
from lsm_engine.read.scan_plan import (
    Fallback,
    PlannedScan,
    ScanRequest,
    fallback_of,
    held_partitions,
    plan_scan,
)
from lsm_engine.read.split import (
    BucketReader,
    Replaced,
    ReplacedRows,
    SplitSource,
    leaves_out,
    merged_rows,
    raw_rows,
    split_parts,
)
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.components import LocalExecutor
from lsm_engine.table.live_files import counted
from lsm_engine.table.merge_rules import MergeRules, merge_rules
from lsm_engine.table.names import is_whole
from lsm_engine.table.session import TableSession
from lsm_engine.table.tags import BranchSnapshot, tag_for_read, tagged
from lsm_engine.table.time_travel import raise_if_expired, snapshot_to_read
from lsm_engine.types.declared_lengths import holds_char
from lsm_engine.types.table_schema import TableSchema, char_keys

if TYPE_CHECKING:
    import pandas as pd


# -- Data files that query engines may read directly, because their rows need no merging -----------

_FILES_MAX = 10_000
_SAMPLED_SECTIONS = 16
_PATTERN = re.compile(r"[*?\[\]{}]")
"""Characters that make a path a glob pattern."""


@record
class RawFile:
    """A local data file: its path, its row count, and the deleted rows to leave out (None: none)."""

    path: str
    row_count: int
    deleted: DeletionVector | None = None


def raw_parquet_files(
    context: BucketContext,
    splits: Iterable[Split],
    schema: pa.Schema,
    replaced: ReplacedRows | None = None,
    *,
    all_keys: bool = False,
    small: bool = False,
) -> tuple[RawFile, ...] | None:
    """Return the files of `splits`, if they store the columns of `schema` unchanged; else None.

    These are local Parquet files of the newest schema, or of one with the same columns, whose rows need no merging.
    With `replaced`, also files with deletion vectors, and files whose replaced rows are known or computed now
    (`ReplacedRows.serves`). At most 10,000 files.
    """
    table = context.schema
    # Other readers reach no remote store, and rows of evolved data lie in several files.
    if not isinstance(context.file_io, LocalFileIO) or table.evolves_data:
        return None
    # Row tracking columns are filled in here for the files that lack them.
    if not set(schema.names) <= set(table.names):
        return None
    schemas = {**context.schemas, table.id: table}
    schema_ids = {number for number, stored in schemas.items() if _holds(stored, table, schema)}
    files: list[RawFile] = []
    for split in splits:
        # The rows of a branch follow its own schema, deletions need their vectors, and rows that wait a merge.
        if (
            split.branch is not None
            or split.waiting
            or (split.vectors and (replaced is None or not split.raw))
        ):
            return None
        bucket = BucketReader(context, split.partition, split.bucket, split.vectors)
        for section in split.sections:
            stored = [file for run in section for file in run]
            if not all(_is_plain(file, schema_ids) for file in stored):
                return None
            deleted: Replaced = {}
            if not split.raw:
                # A merge is avoided only if its outcome is known.
                if replaced is None or not replaced.serves(
                    bucket, split, section, all_keys=all_keys, small=small
                ):
                    return None
                deleted = replaced.positions(bucket, section)
            for file in stored:
                file_io, path = context.place_of((split.partition, split.bucket), file)
                if not isinstance(file_io, LocalFileIO):
                    return None
                files.append(
                    RawFile(
                        path=file_io.real_path(path),
                        row_count=file.row_count,
                        deleted=deleted.get(file.file_name) or bucket.vector(file.file_name),
                    )
                )
        if len(files) > _FILES_MAX:
            return None
    # Engines take a path with such characters for a pattern.
    return None if _PATTERN.search("".join(file.path for file in files)) else tuple(files)


def _is_plain(file: DataFileMeta, schema_ids: Collection[int]) -> bool:
    """Whether a file is a Parquet file with all columns of one of some schemas."""
    has_all_columns = file.schema_id in schema_ids and file.write_columns is None
    return has_all_columns and file.file_name.endswith(".parquet")


def _holds(stored: TableSchema, table: TableSchema, schema: pa.Schema) -> bool:
    """Whether files of a stored schema have the table's ids and types of these columns and of the merge columns."""
    names = {*schema.names, *table.primary_keys, *table.sequence_fields}
    stored_columns = {field.name: (field.id, field.type) for field in stored.fields}
    # Other CHAR columns lack the blanks that a scan adds.
    as_is = char_keys(table) - table.unpadded_keys
    return all(
        stored_columns.get(field.name) == (field.id, field.type)
        and (field.name in as_is or not holds_char(field.type))
        for field in table.fields
        if field.name in names
    )


# -- The units of a scan's work: parts of splits, and batches of small sections of many buckets ----
#
# A merge costs about a millisecond before its first row. For many small buckets that is most of
# a read, so one call merges their sections, with the bucket number as the first key column.

_ROWS = 32 * 1024
_FILES = 64
_BYTES = 16 << 20
"""The most stored bytes of sections that one call merges."""

_REMOTE_FILES = 8
"""The same limit for remote files: the prefetch cache holds only so many."""


@record
class BucketSection:
    """A section to merge, and the reader of its bucket."""

    bucket: BucketReader
    section: Section


def scan_parts(
    source: SplitSource,
    splits: Iterable[Split],
    *,
    max_bytes: int | None = None,
    replaced: ReplacedRows | None = None,
    to_end: bool = True,
) -> Iterator[Part]:
    """Yield the parts of a scan in the order of the splits, as `split_parts` does.

    Adjacent small sections are one part, if the merge selects rows unchanged. With `replaced`, large
    sections are read file by file without their replaced rows. `to_end`: the caller reads all rows.
    """
    group = _Group(source, replaced)
    for split in splits:
        own = source.source_of(split)
        joins = not (split.raw or split.waiting) and _merges_buckets_together(own)
        # Sections of different sources cannot be merged together.
        if not joins or group.source is not own:
            yield from group.parts()
            group = _Group(own, replaced)
        # A section of raw files needs no merge, so nothing is gained by a group.
        if not joins:
            yield from split_parts(own.context, own.rows, split, max_bytes=max_bytes)
            continue
        bucket = BucketReader(own.context, split.partition, split.bucket, split.vectors)
        for section in split.sections:
            all_keys = to_end and own.wants_all_keys
            if replaced is not None and replaced.serves(bucket, split, section, all_keys=all_keys):
                # Rows come in the order of splits, so waiting sections are read first.
                yield from group.parts()
                group = _Group(own, replaced)
                deleted = cache(partial(replaced.positions, bucket, section))
                yield from _parts_without_replaced(own, bucket, section, deleted, max_bytes)
                continue
            added = BucketSection(bucket=bucket, section=section)
            if not group.takes(added):
                yield from group.parts()
                # The group was full, and an empty one takes any section.
                group = _Group(own, replaced)
                group.takes(added)
    yield from group.parts()


def _parts_without_replaced(
    source: SplitSource,
    bucket: BucketReader,
    section: Section,
    deleted: Callable[[], Replaced],
    max_bytes: int | None,
) -> Iterator[Part]:
    """Yield the reads of a section's files without deleted rows, largest file first."""
    files = [file for run in section for file in run]
    for file in sorted(files, key=lambda file: -file.row_count):
        groups = MatchingGroups(source.rows.predicate)
        for part in file_parts(file, max_bytes):
            yield partial(raw_rows, bucket, source.rows, file, part, groups, deleted)


def _merges_buckets_together(source: SplitSource) -> bool:
    """Whether one call may merge sections of several buckets."""
    schema = source.context.schema
    return schema.has_primary_key and merge_rules(schema).function.keeps_rows


class _Group:
    """Adjacent sections that one call merges."""

    def __init__(self, source: SplitSource, replaced: ReplacedRows | None) -> None:
        self.source = source
        self._replaced = replaced
        self._is_remote = source.context.file_io.facts.is_remote
        self._sections: list[BucketSection] = []
        self._extent = np.zeros(3, np.int64)

    def takes(self, added: BucketSection) -> bool:
        """Add a section unless the group becomes too large; a single section always fits."""
        files = [file for run in added.section for file in run]
        stored = sum(file.file_size for file in files)
        rows = sum(file.row_count for file in files)
        extent = self._extent + np.array([rows, len(files), stored], np.int64)
        most = (_ROWS, _REMOTE_FILES if self._is_remote else _FILES, _BYTES)
        # A group that grows past a limit would hold too much memory.
        if self._sections and (extent > most).any():
            return False
        self._sections.append(added)
        self._extent = extent
        return True

    def parts(self) -> Iterator[Part]:
        """Yield the part that reads the sections, if there are any."""
        if len(self._sections) == 1:
            (only,) = self._sections
            read = partial(merged_rows, only.bucket, self.source.rows, only.section)
            noted = self._replaced is not None and self.source.wants_all_keys
            yield partial(self._remember_replaced, only, read) if noted else read
        elif self._sections:
            yield partial(_merge_group, self.source, self._sections)

    def _remember_replaced(self, only: BucketSection, read: Part) -> Iterator[pa.RecordBatch]:
        assert self._replaced is not None
        yield from self._replaced.merged(only.bucket, only.section, read())


def _merge_group(
    source: SplitSource, sections: Sequence[BucketSection]
) -> Iterator[pa.RecordBatch]:
    rules, rows = merge_rules(source.context.schema), source.rows
    names = rows.to_merge(source.context.schema, rules)
    runs: list[list[pa.RecordBatch]] = []
    numbers: list[list[int]] = []
    buckets: dict[BucketReader, int] = {}
    for bucket_section in sections:
        number = buckets.setdefault(bucket_section.bucket, len(buckets))
        exact = bucket_section.bucket.needs_numbers(bucket_section.section)
        for index, run in enumerate(bucket_section.section):
            if index == len(runs):
                runs.append([])
                numbers.append([])
            for batch in bucket_section.bucket.run(
                run, names, matching=rows.key_predicate, exact=exact
            ):
                runs[index].append(batch)
                numbers[index].append(number)
    merged = merge_joined(runs, numbers, rules)
    if merged is not None:
        yield from rows.finish(merged)


def merge_joined(
    runs: Sequence[Sequence[pa.RecordBatch]], numbers: Sequence[Sequence[int]], rules: MergeRules
) -> pa.Table | None:
    """Return the merged rows of several buckets, without deletes; None if no run has rows.

    `runs`: batches of each run, by bucket and then by key; on a tie the later run wins. `numbers`: the
    bucket of each batch. Rows come by bucket and then by key. The merge function must select rows
    unchanged.
    """
    assert rules.function.keeps_rows, "a merged row may be none of its versions"
    sources, keys, ranks = [], [], []
    for batches, of_batches in zip(runs, numbers, strict=True):
        # A run may have no files in any of these buckets.
        if not batches:
            continue
        rows = pa.Table.from_batches(batches).combine_chunks()
        counts = [batch.num_rows for batch in batches]
        # The bucket comes before the key, so keys of different buckets never meet.
        before = pa.array(np.repeat(np.array(of_batches, np.int32), counts))
        sources.append(rows)
        keys.append(rules.keys(rows, before))
        ranks.append(rules.ranks(rows))
    if not sources:
        return None
    return rules.function.merge(merge_order(keys, ranks), sources, drop_deletes=True)


# -- Scan a snapshot: manifests, pruned files, splits, rows ----------------------------------------

_PART_BYTES = 64 << 20
"""The most decoded bytes, approximately, of a raw file that one thread reads at a time."""

_BRIEF_VALUES = 2_000_000
"""The number of values that one thread decodes in about ten milliseconds."""


class KeyReader(Protocol):
    """Reads rows of the newest snapshot by key, if that is cheaper than a scan."""

    replaced: ReplacedRows

    def named_by(self, predicate: Predicate) -> pa.RecordBatch | None:
        """Return the keys that a filter restricts rows to; None if it does not restrict all key columns."""
        ...

    def rows(
        self, snapshot: Snapshot, keys: pa.RecordBatch, names: Sequence[str]
    ) -> pa.Table | None:
        """Return columns of the rows with these keys; None if the snapshot has to be scanned."""
        ...

    def scanned(self, plan: PlannedScan) -> None:
        """Record that the snapshot was scanned for keys."""
        ...


@checks_all_arguments
class Scan:
    """One read of one snapshot. Rows of a primary-key table come merged, without deletes."""

    def __init__(
        self,
        session: TableSession,
        request: ScanRequest,
        snapshot: Snapshot | None = None,
        keys: KeyReader | None = None,
    ) -> None:
        """`snapshot`: the snapshot that the request names, if the caller has loaded it.

        `keys`: the reader for filters that name keys.
        """
        self._request = request
        self._keys = keys
        self._replaced: ReplacedRows | None = None
        limit = request.limit
        if limit is not None and not (is_whole(limit) and limit >= 0):
            raise InvalidInputError("a limit is a whole number, and not negative", limit=limit)
        self.snapshot = snapshot or snapshot_to_read(
            session,
            snapshot_id=request.snapshot_id,
            tag=request.tag,
            as_of_millis=request.as_of_millis,
        )
        self._fallback = None
        if request.is_batch:
            past = request.is_of_the_past
            self._fallback = fallback_of(session, self.snapshot, past=past)
        self._kept_millis = session.options[core_options.SCAN_PLAN_AUTO_TAG_TIME_RETAINED]
        # The past is read with its own columns; only the newest state has today's.
        if request.is_of_the_past and self.snapshot is not None:
            session = session.as_of(self.snapshot)
        self._session = session
        for name in request.columns or ():
            if name not in session.schema.tracking_names:
                session.schema.field(name)
        self._predicate = (
            None if request.where is None else tree_of(request.where, session.filter_columns)
        )

    if not TYPE_CHECKING:  # a checker goes on refusing names that a scan lacks

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("Scan", name, SCAN)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "cannot pickle 'Scan' object: send the location of its table, and call "
            "lsm.open_table(location).scan(...) there"
        )

    def __repr__(self) -> str:
        state = "empty" if self.snapshot is None else f"snapshot {self.snapshot.id}"
        return f"<Scan of {self._session.name!r} {state}: {', '.join(self.schema.names)}>"

    def _repr_html_(self) -> str:
        """Return the columns and the filter for a notebook; no row is read."""
        row_filter = self._request.where
        title = f"{self!r}" if row_filter is None else f"{self!r} where {row_filter}"
        fields = [(field.name, field.type) for field in self.schema]
        return html_table(title, ("column", "type"), fields)

    def __len__(self) -> int:
        """Return the number of rows, as `count` does."""
        return self.count()

    def __bool__(self) -> bool:
        return True  # a scan is there, whether or not it finds rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries; for people at a prompt, not for many rows."""
        for batch in self.to_batches():
            yield from batch.to_pylist()

    def __getitem__(self, columns: object) -> NoReturn:
        raise TypeError("a scan is not indexed: table.scan(columns, limit=n), or to_arrow()")

    @property
    def untagged(self) -> Snapshot | None:
        """The snapshot that is read, if it may expire meanwhile; None if a tag retains it."""
        return None if self._request.tag is not None else self.snapshot

    @cached_property
    def schema(self) -> pa.Schema:
        """The output columns."""
        names = self._request.columns
        table = self._session.readable_columns
        chosen = self._session.schema.names if names is None else names
        return pa.schema([table.field(name) for name in chosen])

    def to_arrow(self) -> pa.Table:
        """Return all rows, in no particular order."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, a few splits at a time, in memory that does not grow."""
        remaining = self._request.limit
        for batch in self._batches():
            # A batch may reach past the limit.
            if remaining is not None:
                batch = batch.slice(0, remaining)
                remaining -= batch.num_rows
            if batch.num_rows:
                yield batch
            # The generator ends here, so no further file is opened.
            if remaining == 0:
                return

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a pandas DataFrame; UnsupportedError where pandas is not installed."""
        try:
            return self.to_arrow().to_pandas()
        except ImportError as cause:
            raise UnsupportedError(
                "pandas is not installed: pip install 'lsm-assets[pandas]'"
            ) from cause

    def narrowed(
        self, columns: Sequence[str] | None, where: Filter | None, limit: int | None
    ) -> "Scan":
        """Return a read of the same state with fewer columns (None: the same), rows, or both."""
        request = self._request
        if request.limit is not None and where is not None:
            raise InvalidInputError(
                "a filter would apply before the limit; leave the limit to later"
            )
        both = [value for value in (request.where, where) if value is not None]
        narrower = replace(
            request,
            columns=request.columns if columns is None else tuple(columns),
            where=both or None,
            limit=min(
                (value for value in (request.limit, limit) if value is not None), default=None
            ),
        )
        read = Scan(self._session, narrower, self.snapshot, self._keys)
        if self._kept_millis is None:
            read._replaced = self.replaced  # a narrowed scan is one of several reads of this state
        return read

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream that other Arrow libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Return the number of rows; raw splits without a filter are counted from metadata."""
        limit = self._request.limit
        names = self._session.schema.primary_keys[:1] or self._session.schema.names[:1]
        rows = 0
        with tagged(self._branches, self._kept_millis), self._naming_expiry():
            # A lookup reads few files, so it is tried before a plan is made.
            if (keyed_rows := self._found_by_key()) is not None:
                rows = int(keyed_rows.num_rows)
                return rows if limit is None else min(rows, limit)
            plan = self._planned
            to_read = plan.splits
            # A filter decides row by row, so metadata cannot count them.
            if self._request.where is None:
                rows, to_read = counted(plan.splits)
            for part in scan_parts(plan.source.narrowed(names), to_read):
                rows += sum(batch.num_rows for batch in part())
        return rows if limit is None else min(rows, limit)

    def parquet_files(
        self, replaced: ReplacedRows | None = None, *, whole: bool = False, small: bool = False
    ) -> tuple[RawFile, ...] | None:
        """Return local Parquet files with exactly these rows and at least these columns.

        None if rows need merging, filtering or conversion, are not local, or are tagged for the read.
        `replaced`: files of a section that needs merging come with the rows to leave out, if these are cached,
        or are computed for a read of all rows (`whole`). `small`: prefer files for small sections too.
        """
        request = self._request
        restrictions = (request.where, request.limit, self._fallback, self._kept_millis)
        # Other engines would not apply these restrictions.
        if any(restriction is not None for restriction in restrictions):
            return None
        cache_key = (self.snapshot, request)
        place = "stored rows" if replaced is None else "rows less replaced"
        cached = self._session.planned_reads.get(place)
        files: tuple[RawFile, ...] | None
        if cached is not None and cached[0] == cache_key:  # a plan takes longer than many a query
            files = cached[1]
            return files
        with self._naming_expiry():
            context, splits = self._planned.source.context, self._planned.splits
            files = raw_parquet_files(
                context, splits, self.schema, replaced, all_keys=whole, small=small
            )
        # Without these rows known now, a later read may succeed.
        if files is not None or replaced is None:
            self._session.planned_reads[place] = (cache_key, files)
        return files

    @property
    def replaced(self) -> ReplacedRows | None:
        """The cache of replaced rows; None if every read merges."""
        serves = self._session.schema.has_primary_key and leaves_out(self._session.schema)
        return self._keys.replaced if self._keys is not None and serves else None

    @property
    def reads_all(self) -> bool:
        """Whether the scan reads all files and all keys."""
        files, plan = self._planned.explanation.files, self._planned
        return files.kept == files.total and plan.source.wants_all_keys

    def splits(self) -> Sequence[Split]:
        """Return the splits for reader tasks; they pickle.

        The splits of very many files are created on iteration: iterate once.
        """
        return self.plan.splits

    @property
    def names_keys(self) -> bool:
        """Whether the filter names all keys that may match: then the scan reads few rows."""
        predicate, keys = self._predicate, self._keys
        return predicate is not None and keys is not None and keys.named_by(predicate) is not None

    @cached_property
    def selected_bytes(self) -> int:
        """The bytes of the data files that hold a match, estimated: file indexes beside a sample of the files are asked.

        Where no column of the filter has such an index, all bytes that are read.
        """
        plan = self._planned
        indexed = {column.name for column in self._session.schema.options.indexed_columns}
        if self._predicate is None or not indexed & columns_of(self._predicate):
            return plan.explanation.size_bytes
        sections = [(split, section) for split in plan.splits for section in split.sections]
        asked_bytes = matching_bytes = 0
        for split, section in sections[:: max(1, len(sections) // _SAMPLED_SECTIONS)]:
            source = plan.source.source_of(split)
            bucket = BucketReader(source.context, split.partition, split.bucket, split.vectors)
            size = sum(file.file_size for run in section for file in run)
            asked_bytes += size
            matching_bytes += size if bucket.may_match(section, source.rows) else 0
        return plan.explanation.size_bytes * matching_bytes // max(asked_bytes, 1)

    def explain(self) -> ScanExplanation:
        """Return what is read, what was pruned and why; `print(scan.explain().text())`."""
        return self._planned.explanation

    @cached_property
    def plan(self) -> PlannedScan:
        """Return the plan for reader tasks: all decisions before the first data file is opened.

        The end of the tasks is unknown, so a tag for the read stays until it expires.
        """
        if self._kept_millis is not None:
            for branch in self._branches:
                tag_for_read(branch, self._kept_millis)
        with self._naming_expiry():
            return self._planned

    @cached_property
    def _planned(self) -> PlannedScan:
        plan = self._plan_without_fallback()
        return plan if self._fallback is None else self._with_fallback(plan, self._fallback)

    def _plan_without_fallback(self) -> PlannedScan:
        """Return the plan; one of several reads of all rows reuses the cached plan with its own columns."""
        names = self.schema.names
        cache_key = (self.snapshot, replace(self._request, columns=None, limit=None))
        is_kept = self._replaced is not None and self._predicate is None
        cached = self._session.planned_reads.get("all rows") if is_kept else None
        # A snapshot never changes, so the plan of an equal request is valid.
        if cached is not None and cached[0] == cache_key:
            cached_plan: PlannedScan = cached[1]
            return replace(cached_plan, source=cached_plan.source.narrowed(names))
        plan = plan_scan(self._session, self.snapshot, self._predicate, self._request)
        if is_kept and isinstance(
            plan.splits, tuple
        ):  # a plan of very many splits is made by each read
            self._session.planned_reads["all rows"] = (cache_key, plan)
        return plan

    def _with_fallback(self, plan: PlannedScan, fallback: Fallback) -> PlannedScan:
        """Add the partitions that only the fallback branch has, merged by its own rules."""
        condition, branch_session = self._request.where, fallback.session
        branch_plan = plan_scan(
            branch_session,
            fallback.snapshot,
            None if condition is None else tree_of(condition, branch_session.schema.compared),
            replace(self._request, columns=tuple(self.schema.names)),
            # A partition that the table has itself hides that of the branch.
            hidden=held_partitions(self._session, self.snapshot),
        )
        added = [replace(split, branch=fallback.branch) for split in branch_plan.splits]
        splits = (*plan.splits, *added) if added else plan.splits
        return PlannedScan(
            splits=splits,
            explanation=replace(plan.explanation, splits=splits, fallback=branch_plan.explanation),
            source=replace(plan.source, fallback=branch_plan.source),
        )

    @property
    def _branches(self) -> list[BranchSnapshot]:
        """The snapshots that a batch read may tag for itself: those that no tag retains."""
        fallback, branches = self._fallback, []
        if self._request.is_batch and self._request.tag is None and self.snapshot is not None:
            branches.append((self._session, self.snapshot))
        if fallback is not None and fallback.snapshot is not None:
            branches.append((fallback.session, fallback.snapshot))
        return branches

    @contextmanager
    def _naming_expiry(self) -> Iterator[None]:
        """Raise ExpiredError instead of NotFoundError for a file whose snapshot has expired."""
        try:
            yield
        except NotFoundError as cause:
            # A tag keeps the files of a tagged read; of others an expiry may delete them.
            if self.untagged is not None:
                raise_if_expired(self._session.snapshots, self.untagged, cause)
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with tagged(self._branches, self._kept_millis), self._naming_expiry():
            if self._fallback is None:
                yield from self._read()
                return
            schema = self.schema  # the branch's columns may be stricter about nulls
            yield from (batch.cast(schema) for batch in self._read())

    def _is_brief(self, plan: PlannedScan) -> bool:
        """Whether a local read without merging takes no longer than starting threads for it."""
        # A stream of splits has no total that could be small.
        if self._replaced is None or not isinstance(plan.splits, tuple):
            return False
        rows = sum(split.row_count for split in plan.splits)
        # A remote store answers so slowly that threads always pay.
        brief = rows * len(self.schema) <= _BRIEF_VALUES
        return brief and not plan.source.context.file_io.facts.is_remote

    def _found_by_key(self) -> pa.Table | None:
        """Return the rows by lookup if the filter names their keys and a lookup is cheaper than a scan.

        All columns of the scan and of its filter are included: a table without columns has no row count.
        """
        request, predicate = self._request, self._predicate
        is_plain = (self._fallback, self._kept_millis, request.before_changes) == (None,) * 3
        is_plain = (
            is_plain and request.is_batch and not (request.is_of_the_past or request.read_optimized)
        )
        # A read of the past, of a branch or of rows that wait for a bucket has rows that the lookup does not know.
        is_plain = is_plain and not self._session.options[core_options.POSTPONE_MERGE_ON_READ]
        if self._keys is None or predicate is None or self.snapshot is None or not is_plain:
            return None
        # The filter does not name whole keys.
        if (keys := self._keys.named_by(predicate)) is None:
            return None
        names = tuple(dict.fromkeys((*self.schema.names, *sorted(columns_of(predicate)))))
        rows = self._keys.rows(self.snapshot, keys, names)
        # The cost of such scans is added up: lookup files pay only after some of them.
        if rows is None:
            self._keys.scanned(self._planned)
            return None
        # The filter may hold more conditions than the keys.
        return rows.filter(flags_of(predicate, rows))

    def _read(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        # A scan without columns counts rows, which a table without columns cannot.
        if schema.names and (keyed_rows := self._found_by_key()) is not None:
            rows = keyed_rows.select(schema.names)
            yield from pa.Table.from_arrays(rows.columns, schema=schema).to_batches()
            return
        plan = self._planned
        executor = LocalExecutor()
        if self._request.limit is not None:  # how far it gets is unknown: nothing is fetched ahead
            for split in plan.splits:
                for part in scan_parts(plan.source, [split], replaced=self._replaced, to_end=False):
                    yield from part()
            return
        with plan.source.fetching(plan.splits) as splits:
            # Threads cost more than they spare in a short read.
            if executor.threads == 1 or plan.has_small_files or self._is_brief(plan):
                for part in scan_parts(plan.source, splits, replaced=self._replaced):
                    yield from part()
                return
            # A part that waits for its turn is read to its end if it fits into the share of its thread.
            part_bytes = min(_PART_BYTES, AHEAD_BYTES // executor.threads)
            parts = scan_parts(plan.source, splits, max_bytes=part_bytes, replaced=self._replaced)
            yield from read_ahead(parts, threads=executor.threads)
