"""The request of a scan, and its plan: all decisions before the first data file is opened."""

from collections.abc import Sequence
from functools import partial

import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.modes import ChangelogProducer
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.explain import ScanExplanation, prune_counts
from lsm_engine.plan.incremental import changed_state
from lsm_engine.plan.scan import Packing, Reach, ReadMode, Split, first_level, plan_splits
from lsm_engine.prune.expression import to_expression
from lsm_engine.prune.predicate import Predicate, split_conjuncts
from lsm_engine.prune.where import Filter
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.live_files import LEVEL, SCHEMA_ID
from lsm_engine.table.ground.many_splits import ManySplits
from lsm_engine.table.ground.merge_rules import read_mode
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.prune_files import PrunedFiles, prune_files, without_partitions
from lsm_engine.table.read.split_read import ReadRows, SplitSource

_SMALL_FILE_BYTES = 64 << 10


@record
class ScanRequest:
    """The columns (None: all), rows and time (None: now) to read.

    `read_optimized`: only files that need no merging (system table ro). `is_batch`: a batch read, not the
    initial state of a stream: it uses the fallback branch, and tags its snapshot, if the table's options
    require it. `before_changes`: the state with which a reader of this producer's changelog begins.
    """

    columns: tuple[str, ...] | None = None
    where: Filter | None = None
    snapshot_id: int | None = None
    tag: str | None = None
    as_of_millis: int | None = None
    limit: int | None = None
    read_optimized: bool = False
    is_batch: bool = True
    before_changes: ChangelogProducer | None = None

    @property
    def is_of_the_past(self) -> bool:
        """Whether a snapshot, a tag or a time is named."""
        return (self.snapshot_id, self.tag, self.as_of_millis) != (None, None, None)


@record
class PlannedScan:
    """The splits of one scan, and the explanation of how they were chosen."""

    splits: Sequence[Split]
    explanation: ScanExplanation
    source: SplitSource

    @property
    def has_small_files(self) -> bool:
        """Whether threads would not help: opening a small local file is most of reading it."""
        if not isinstance(self.splits, tuple) or self.source.context.file_io.facts.is_far:
            return False
        sizes = [file.file_size for split in self.splits for file in split.files]
        return bool(sum(sizes) < _SMALL_FILE_BYTES * len(sizes))


def plan_scan(
    session: TableSession,
    snapshot: Snapshot | None,
    predicate: Predicate | None,
    request: ScanRequest,
    *,
    hidden: frozenset[bytes] = frozenset(),
) -> PlannedScan:
    """Plan the read of one snapshot (None: an empty table) without the `hidden` partitions."""
    schema = session.schema
    pushable = {*schema.partition_keys, *schema.trimmed_primary_keys}
    if not schema.has_primary_key:
        pushable = set(schema.names)
    pushed, residual = (None, None) if predicate is None else split_conjuncts(predicate, pushable)
    pruned = prune_files(session, snapshot, predicate, pushed)
    if hidden:
        pruned = without_partitions(pruned, hidden)
    mode, reach = _mode_and_reach(schema, request)
    engine = session.options[core_options.MERGE_ENGINE]
    vectors = {} if snapshot is None else session.vector_places(snapshot)
    plan = partial(
        plan_splits,
        key_order=session.key_order or bytes,
        mode=mode,
        packing=Packing(
            target_size_bytes=session.options[core_options.SOURCE_SPLIT_TARGET_SIZE],
            open_file_cost_bytes=session.options[core_options.SOURCE_SPLIT_OPEN_FILE_COST],
        ),
        snapshot_id=None if snapshot is None else snapshot.id,
        value_match=pruned.value_match,
        merge_keeps_rows=schema.has_primary_key and not engine.policy.combines_versions,
        vectors=vectors,
        reach=reach,
    )
    splits: Sequence[Split]
    if pruned.file_table is not None:
        is_plain = mode is ReadMode.MERGE and reach is Reach.ALL and not vectors
        splits = ManySplits(
            pruned.file_table, lambda entries: plan(entries).splits, counts_levels=is_plain
        )
        levels = pruned.file_table.column(LEVEL)
        is_read = pc.greater_equal(levels, first_level(mode, reach, pc.max(levels).as_py()))
        read = int(pc.sum(is_read).as_py() or 0)
        ids = pc.unique(pruned.file_table.column(SCHEMA_ID)).to_pylist()
    else:
        splits = plan(pruned.entries).splits
        read = sum(len(split.files) for split in splits)
        ids = [file.schema_id for split in splits for file in split.files]
    names = schema.names if request.columns is None else request.columns
    return PlannedScan(
        splits=splits,
        explanation=_explanation(snapshot, pushed, residual, pruned, splits, read),
        source=SplitSource(
            context=session.context(ids),
            rows=ReadRows.from_filter(names, predicate, pushed),
        ),
    )


def _mode_and_reach(schema: TableSchema, request: ScanRequest) -> tuple[ReadMode, Reach]:
    mode = read_mode(schema)
    if request.before_changes is not None:
        return changed_state(request.before_changes, mode)
    optimized = request.read_optimized and mode is ReadMode.MERGE
    return mode, Reach.DEEPEST if optimized else Reach.ALL


def _explanation(
    snapshot: Snapshot | None,
    pushed: Predicate | None,
    residual: Predicate | None,
    pruned: PrunedFiles,
    splits: Sequence[Split],
    read: int,
) -> ScanExplanation:
    return ScanExplanation(
        snapshot_id=None if snapshot is None else snapshot.id,
        pushed_filter=None if pushed is None else str(to_expression(pushed)),
        residual_filter=None if residual is None else str(to_expression(residual)),
        manifests=pruned.manifests,
        files=prune_counts(pruned.file_count, [*pruned.kept_after, ("by_stats", read)]),
        splits=splits,
    )
