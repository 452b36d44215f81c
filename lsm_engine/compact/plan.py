"""Plan a compaction: for each bucket the picked runs, and the steps that rewrite them. No data file is read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.filter.stats import stored_bounds
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta, vector_places
from lsm_engine.format.manifest import BucketScope, ManifestEntry, by_bucket
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lsm.levels import KeyOrder, Levels, LevelSortedRun, SortedRun, overlaps, sections
from lsm_engine.lsm.rewrite_plan import Rewrite, Step, Upgrade, bulk_load, plan_rewrite
from lsm_engine.lsm.universal import (
    CompactUnit,
    EarlyFull,
    ForceUpLevelZero,
    PickReason,
    UniversalCompaction,
    pick_full,
    with_all_older,
)
from lsm_engine.merge.function import MergeFunction
from lsm_engine.merge.record_expiry import RecordExpiry
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.compaction import (
    BucketForecast,
    BucketPressure,
    arrivals_of,
    forecasts,
    pressures,
)
from lsm_engine.planning.keys import emits_moves
from lsm_engine.planning.retention import ages_by_values, expired_partitions
from lsm_engine.planning.scan import Run
from lsm_engine.storage.clock import wall_time
from lsm_engine.table.live_files import stats_layouts
from lsm_engine.table.merge_rules import looks_up_older_rows, merge_rules
from lsm_engine.table.references import References
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import bucket_levels
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, TableSchema

# -- First-row -------------------------------------------------------------------------------------
#
# Keys that older levels hold already. A rewrite drops their rows instead of merging them.
#
# Readers of a first-row table merge nothing, so above level 0 a key may be in one file only. A
# rewrite that leaves older levels out reads their keys, in its own key range, as the oldest
# run; a row that loses to such a key goes.

COMPACTED = 126
"""In place of a row kind, and even as those of adds are: the row is of an older level."""


def older_than(compacted: Iterable[DataFileMeta], levels: Levels) -> tuple[DataFileMeta, ...]:
    """Return the files of a bucket that a compaction of `compacted`, its newest runs, leaves out."""
    names = {file.file_name for file in compacted}
    return tuple(file for file in levels.files if file.file_name not in names)


def may_hold_older_keys(
    file: DataFileMeta, compacted: Iterable[DataFileMeta], key_order: KeyOrder
) -> bool:
    """Whether a file has to be rewritten to leave level 0, as it may hold compacted keys."""
    return file.level == 0 and overlaps(file, compacted, key_order)


def older_key_runs(
    section: Iterable[Run], older: Sequence[DataFileMeta], key_order: KeyOrder
) -> list[Run]:
    """Return the older files that may hold a key of a section, as sorted runs."""
    files = [file for run in section for file in run]
    # Only files whose key range meets the section can change its rows.
    overlapping = [file_below for file_below in older if overlaps(file_below, files, key_order)]
    return [
        run.files for merged_section in sections(overlapping, key_order) for run in merged_section
    ]


def older_key_batches(
    schema: TableSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield keys and sequence numbers as rows of the table, marked COMPACTED, other columns null."""
    arrow = schema.key_value_arrow
    for batch in batches:
        count = batch.num_rows
        columns = [
            batch.column(field.name)
            if field.name in batch.schema.names
            else pa.nulls(count, field.type)
            for field in arrow
        ]
        marks = pa.array(np.full(count, COMPACTED, np.int8))
        yield pa.RecordBatch.from_arrays([*columns[:-1], marks], schema=arrow)


def older_key_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return what has to be read of an older file."""
    keys = tuple(name for name in schema.names if name in schema.trimmed_primary_keys)
    return (*keys, SEQUENCE_NUMBER)


# -- Compaction plan -------------------------------------------------------------------------------


@record
class BucketWork:
    """The compaction of one bucket, decided. A value that travels to its executor.

    `older`: files below the steps that may hold their new keys, where that matters. `vector_files`:
    the bucket's index files of deletion vectors. `expiry`: rows to leave out because of their age.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    reason: str
    steps: tuple[Step, ...]
    older: tuple[DataFileMeta, ...] = ()
    vector_files: tuple[IndexFileMeta, ...] = ()
    expiry: RecordExpiry | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes to read and write again."""
        rewrites = (step for step in self.steps if isinstance(step, Rewrite))
        return sum(file.file_size for step in rewrites for file in step.files)

    @property
    def schema_ids(self) -> frozenset[int]:
        """The schemas of all files that are looked at."""
        files = (*self.older, *(file for step in self.steps for file in step.files))
        return frozenset(file.schema_id for file in files)


def fewest_runs(session: TableSession) -> int:
    """Return how many sorted runs a bucket has at least that may be due."""
    return _Planner(session, full=False).fewest_runs


def plan_compaction(
    session: TableSession,
    base: Snapshot,
    holds: Callable[[bytes, int], bool] | None = None,
    *,
    full: bool = False,
    counts_picks: bool = True,
) -> list[BucketWork]:
    """Decide what to do in each bucket of a snapshot; buckets in shape are left out.

    All are compacted fully if the Iceberg metadata is further behind than its option allows. `counts_picks` False: the work is not carried out, so that gentle buckets come no nearer to their turn
    (`lookup-compact` = gentle).
    """
    full = full or (bounds_lag(session) and _iceberg().exceeds_lag(session, base))
    return _Planner(session, full=full, counts_picks=counts_picks).work(base, holds)


def unexpired(session: TableSession) -> Callable[[bytes, int], bool] | None:
    """Return whether a compaction that is asked for takes a bucket, by `compaction.skip-expired-partitions`; None: all.

    Partitions that outlived `partition.expiration-time` are left as they are; those of keys that move between
    partitions are not, because their compaction takes the whole table.
    """
    schema, options = session.schema, session.options
    age = options[core_options.PARTITION_EXPIRATION_TIME]
    if (
        age is None
        or not options[core_options.COMPACTION_SKIP_EXPIRED_PARTITIONS]
        or options[core_options.PARTITION_EXPIRATION_STRATEGY] != "values-time"
        or not schema.partition_keys
        or emits_moves(schema)
    ):
        return None
    before = wall_time(session.clock) - timedelta(milliseconds=age)

    @cache
    def is_young(partition: bytes) -> bool:
        return not expired_partitions(
            ages_by_values(schema, [partition]), before=before, max_count=1
        )

    return lambda partition, _: is_young(partition)


def bounds_lag(session: TableSession) -> bool:
    """Whether compactions have to bring the Iceberg metadata up to the rows."""
    return (
        session.options.writes_iceberg
        and session.options[core_options.METADATA_ICEBERG_MAX_LAG] is not None
    )


def hidden_from_iceberg(session: TableSession, entries: Sequence[ManifestEntry]) -> frozenset[str]:
    """Return the names of files that readers of Iceberg do not read rightly: a full compaction writes them anew."""
    if not session.options.writes_iceberg:
        return frozenset()
    unreadable: frozenset[str] = _iceberg().unreadable_files(session, entries)
    return unreadable


def _iceberg() -> Any:
    # Imported on use: few tables have such metadata.
    return import_module("lsm_engine.table.iceberg_state")


@record
class _Steps:
    """The work in one bucket: the unit that was picked, its steps, and what they look keys up in."""

    unit: CompactUnit
    steps: tuple[Step, ...]
    older: tuple[DataFileMeta, ...]


class _Planner:
    """Plans the compactions of one table's buckets (MergeTreeCompactManager)."""

    def __init__(self, session: TableSession, *, full: bool, counts_picks: bool = True) -> None:
        options = session.options
        assert session.key_order is not None
        self._session = session
        self._key_order = session.key_order
        self._full = full
        picks = session.components.skipped_picks
        self._is_due = picks.is_due if counts_picks else picks.would_be_due
        self._rewrites_all = full and options[core_options.COMPACTION_FORCE_REWRITE_ALL_FILES]
        self._now_millis = session.clock.now_millis()
        self._early = EarlyFull.from_options(options)
        self._expiry = RecordExpiry.from_schema(session.schema, self._now_millis)
        self._strategy = _strategy(session.schema, hour=session.clock.local_time()[3])
        self._target_file_size = options.target_file_size(has_primary_key=True)
        self._producer = options[core_options.CHANGELOG_PRODUCER]
        self._looks_up = looks_up_older_rows(options)
        self._is_first_row = options[core_options.MERGE_ENGINE].policy.keeps_first_row
        self._has_vectors = options[core_options.DELETION_VECTORS_ENABLED]

    @cached_property
    def _losing(self) -> MergeFunction | None:
        """The function, if without all older rows it may lose some; one that looks them up has them at hand."""
        function = merge_rules(self._session.schema).function
        return function if function.may_need_full_history and not self._looks_up else None

    @property
    def fewest_runs(self) -> int:
        """How many sorted runs a bucket has at least that may be due, by what options ask for."""
        strategy = self._strategy
        if (
            self._full
            or bounds_lag(self._session)
            or self._early.is_asked
            or isinstance(strategy, ForceUpLevelZero)
        ):
            return 1
        return strategy.run_count_trigger

    def work(
        self, base: Snapshot, holds: Callable[[bytes, int], bool] | None = None
    ) -> list[BucketWork]:
        """Return what to do in each bucket of a snapshot."""
        session = self._session
        # Manifests record levels, so that buckets that are not due are never decoded.
        if (fewest := self.fewest_runs) > 1:
            is_listed = isinstance(holds, BucketScope) and not holds.partitions
            chosen = holds.buckets if isinstance(holds, BucketScope) and is_listed else None
            counts = bucket_levels(session, base).run_counts(chosen)
            due_buckets = {
                key for key, n in counts.items() if n >= fewest and (not holds or holds(*key))
            }
            if not due_buckets:
                return []
            holds = BucketScope(buckets=frozenset(due_buckets))
        vectors = session.vector_files(base)
        count = session.options.level_count
        work = []
        for key, entries in by_bucket(session.live_entries(base, holds)).items():
            if key[1] < 0:
                continue  # rows that wait for a bucket are no tree
            files = [entry.file for entry in entries]
            levels = Levels.from_files(files, level_count=count, key_order=self._key_order)
            vector_files = vectors.get(key, ())
            marked = frozenset(vector_places(vector_files))
            if self._full:
                marked |= hidden_from_iceberg(session, entries)
            planned = self._steps(levels, key, marked)
            if planned is not None:
                work.append(
                    BucketWork(
                        partition=key[0],
                        bucket=key[1],
                        total_buckets=entries[-1].total_buckets,
                        reason=planned.unit.reason.value,
                        steps=planned.steps,
                        older=planned.older,
                        vector_files=vector_files,
                        expiry=self._expiry,
                    )
                )
        return work

    def _steps(
        self, levels: Levels, bucket: tuple[bytes, int], marked: frozenset[str]
    ) -> _Steps | None:
        """Return what to do; None: nothing. `marked` names files to write anew by a full compaction: those with deletion vectors."""
        expired = self._expired(levels)
        unfinished = marked | expired
        pick = partial(self._pick, bucket, unfinished=unfinished)
        unit = pick(levels)
        if unit is None:
            return None
        steps: tuple[Step, ...] = ()
        # A first load would be merged again and again on its way down; it moves to the last level
        # as it is.
        if self._may_move:
            levels, unit, steps = _without_bulk_load(levels, unit, pick, self._target_file_size)
        compacted_from = self._compacted_from(unit, levels)
        older: tuple[DataFileMeta, ...] = ()
        if compacted_from is not None:
            new = [file for file in unit.files if file.level < compacted_from]
            below = older_than(unit.files, levels)
            # Statistics are not needed by tasks, and are most of the bytes that travel.
            older = tuple(
                file.without_stats() for file in below if overlaps(file, new, self._key_order)
            )
        steps += plan_rewrite(
            unit,
            levels,
            target_file_size=self._target_file_size,
            must_rewrite=partial(
                self._must_rewrite,
                # Once is enough: what a full compaction left marked, the next one would rewrite.
                unfinished=unfinished if self._full else expired,
                compacted_from=compacted_from,
                older=older,
            ),
            has_deletion_vectors=self._has_vectors,
            compacted_from=compacted_from,
        )
        return _Steps(unit=unit, steps=steps, older=older) if steps else None

    @property
    def _may_move(self) -> bool:
        """Whether rows may leave level 0 without being emitted or looked up."""
        return (
            not self._full
            and isinstance(self._strategy, UniversalCompaction)
            and not self._producer.policy.waits_for_full_compaction
        )

    def _expired(self, levels: Levels) -> frozenset[str]:
        """Return the names of files that hold records past their time."""
        if self._expiry is None:
            return frozenset()
        session = self._session
        return files_with_expired(levels.files, self._expiry, session.schema, session.schemas.load)

    def _pick(
        self, bucket: tuple[bytes, int], levels: Levels, *, unfinished: frozenset[str]
    ) -> CompactUnit | None:
        """Return what to merge; `unfinished` names files that hold rows to delete."""
        runs, last = levels.runs, levels.max_level
        if self._full:
            unit = pick_full(
                runs,
                max_level=last,
                must_rewrite=lambda file: self._rewrites_all or file.file_name in unfinished,
            )
        elif self._early.asks(runs, max_level=last, now_millis=self._now_millis):
            unit = pick_full(runs, max_level=last, reason=PickReason.EARLY_FULL)
        elif isinstance(self._strategy, ForceUpLevelZero):
            is_due = partial(self._is_due, (self._session.paths.branch_name, *bucket))
            unit = self._strategy.pick(runs, max_level=last, is_due=is_due)
        else:
            unit = self._strategy.pick(runs, max_level=last)
        # Some functions cannot merge a part of a key's history: all older rows are taken along.
        if unit is not None and self._losing is not None:
            removes = self._losing.adds_may_remove
            return with_all_older(
                unit, levels.runs, max_level=levels.max_level, adds_may_remove=removes
            )
        return unit

    def _compacted_from(self, unit: CompactUnit, levels: Levels) -> int | None:
        """Return the level from which on rows of a unit are not new; None: no lookup is needed."""
        if self._producer.policy.waits_for_full_compaction:
            # What lies deepest is what a full compaction left and emitted, even if there are more
            # levels by now: only a compaction of all runs writes below them.
            emitted = levels.highest_non_empty_level or levels.max_level
            return emitted if unit.output_level == levels.max_level else None
        # A row that expires by its age is emitted as well.
        has_age = self._expiry is not None and self._producer.policy.looks_up
        is_asked = has_age or any(run.level == 0 for run in unit.runs)
        return 1 if is_asked and (self._looks_up or self._is_first_row) else None

    def _must_rewrite(
        self,
        file: DataFileMeta,
        *,
        unfinished: frozenset[str],
        compacted_from: int | None,
        older: tuple[DataFileMeta, ...],
    ) -> bool:
        if self._rewrites_all or file.file_name in unfinished:
            return True
        if compacted_from is None or file.level >= compacted_from:
            return False
        # A first row that no older file can hold is new: the file moves as it is.
        if self._is_first_row and self._producer.policy.reads_delta:
            return may_hold_older_keys(file, older, self._key_order)
        return True


def _strategy(schema: TableSchema, *, hour: int) -> UniversalCompaction | ForceUpLevelZero:
    """Return what decides: level 0 moves up by force where readers or a changelog wait for that.

    At once where keys move between buckets: what one loses and what another gets is emitted together.
    """
    options = schema.options
    awaited = looks_up_older_rows(options) or (
        options[core_options.MERGE_ENGINE].policy.keeps_first_row
    )
    if awaited or options[core_options.COMPACTION_FORCE_UP_LEVEL_0]:
        forced = ForceUpLevelZero.from_options(options, hour=hour)
        return replace(forced, max_interval=None) if emits_moves(schema) else forced
    return UniversalCompaction.from_options(options, hour=hour)


def _without_bulk_load(
    levels: Levels,
    unit: CompactUnit,
    pick: Callable[[Levels], CompactUnit | None],
    target_file_size: int,
) -> tuple[Levels, CompactUnit, tuple[Step, ...]]:
    """Return what to do once the bucket's first load is moved to the last level.

    Nothing changes where the load has to be merged with newer runs after all.
    """
    loaded = bulk_load(levels, target_file_size=target_file_size)
    if not loaded:
        return levels, unit, ()
    last = levels.max_level
    above = levels.update(loaded, [file.upgrade(last) for file in loaded])
    unit_of_load = CompactUnit(
        runs=tuple(LevelSortedRun(level=0, run=SortedRun.of_one(file)) for file in loaded),
        output_level=last,
        reason=PickReason.BULK_LOAD,
    )
    smaller = pick(above)
    if smaller is None:
        return levels, unit_of_load, ()
    if smaller.output_level == last:
        return levels, unit, ()
    return above, smaller, (Upgrade(files=loaded, output_level=last),)


def files_with_expired(
    files: Iterable[DataFileMeta],
    expiry: RecordExpiry,
    schema: TableSchema,
    written_with: Callable[[int], TableSchema],
) -> frozenset[str]:
    """Return the names of files whose earliest time has expired.

    A file without statistics of its times is not among them: it would be rewritten each time.
    """
    names: set[str] = set()
    for layout in stats_layouts(files, schema, written_with):
        bounds = stored_bounds(layout.stats, layout.covered, [expiry.column]).get(expiry.column)
        if bounds is not None:
            expired = expiry.expired(bounds.mins)
            names |= {
                file.file_name
                for file, is_expired in zip(layout.files, expired, strict=True)
                if is_expired
            }
    return frozenset(names)


# -- Compaction debt per bucket --------------------------------------------------------------------

_COMMITS_SEEN = 100


def bucket_pressures(session: TableSession) -> list[BucketPressure]:
    """Return the pressure of every bucket, the most urgent first; what is due, the strategy's pick shows."""
    latest = session.snapshots.latest()
    if latest is None or not session.schema.has_primary_key:
        return []
    return list(
        pressures(
            session.live_entries(latest),
            run_trigger=session.options[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER],
            stop_trigger=session.options.stop_trigger,
            picked=_picked(session, latest),
        )
    )


def due_buckets(session: TableSession) -> frozenset[tuple[bytes, int]]:
    """Return the (partition, bucket) pairs in which a compaction would find something to do now."""
    latest = session.snapshots.latest()
    if latest is None or not session.schema.has_primary_key:
        return frozenset()
    return _picked(session, latest)


def _picked(session: TableSession, snapshot: Snapshot) -> frozenset[tuple[bytes, int]]:
    works = plan_compaction(session, snapshot, unexpired(session), counts_picks=False)
    return frozenset((work.partition, work.bucket) for work in works)


def bucket_forecasts(session: TableSession) -> list[BucketForecast]:
    """Return each bucket's debt with a forecast, from the pace of the newest commits."""
    newest = list(session.snapshots.newest_first(limit=_COMMITS_SEEN))
    writes = [snapshot for snapshot in newest if snapshot.commit_kind is not CommitKind.COMPACT]
    if not newest:
        return []
    # The oldest commit opens the span; what it wrote came before.
    span = session.clock.now_millis() - newest[-1].time_millis
    counted = [snapshot for snapshot in writes if snapshot.id != newest[-1].id]
    arrivals = arrivals_of(References(session).delta_entries(counted))
    return list(forecasts(bucket_pressures(session), arrivals, span_millis=max(span, 0)))
