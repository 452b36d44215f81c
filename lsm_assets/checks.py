"""Asset checks: the shape of the tree, references of the metadata, and contents of data files."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.dagster_core import (
    CheckToRenew,
    check_target,
    checks_to_renew,
    last_status,
    latest_storage_ids,
    partitioned_check_spec,
    report_evaluation,
)
from lsm_assets.declaration import TableDeclaration
from lsm_assets.inspection import compaction_page_metadata, inspect_table, recent_snapshots
from lsm_assets.keys import (
    AssetKind,
    TableKeys,
    parse_snapshot_partition,
    snapshot_partition,
    snapshot_partitions,
)
from lsm_assets.metadata import (
    BucketTree,
    Metadata,
    TreeFacts,
    count_tree,
    counted,
    escape_html,
    markdown_table,
)
from lsm_assets.recording import DATA_VERSION_TAG, files_event
from lsm_assets.resource import LsmResource, now_seconds
from lsm_assets.staleness import INPUTS, Reader, inputs_result, inputs_spec
from lsm_engine import DamagedFile, LsmError, Snapshot, VerifyReport

# -- The checks of each snapshot -------------------------------------------------------------------
#
# They have a status per partition, so that no later commit resets what was found in a snapshot.

CONTENTS = "contents"
SHAPE = "shape"


def contents_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check of data files. Materialising a snapshot and the verify job evaluate it."""
    return partitioned_check_spec(
        snapshot_partitions(declaration.keys),
        name=CONTENTS,
        asset=declaration.keys.asset(AssetKind.SNAPSHOTS),
        description="Checksums, pages, key order and counts of every data file are as written. A snapshot "
        "without a result was recorded, and not read yet.",
    )


def shape_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check of a snapshot's metadata. Materialising manifest lists evaluates it."""
    return partitioned_check_spec(
        snapshot_partitions(declaration.keys),
        name=SHAPE,
        asset=declaration.keys.asset(AssetKind.MANIFEST_LISTS),
        description="Every manifest and data file that the snapshot names exists; sizes, counts and levels fit.",
    )


_SNAPSHOT_CHECKS = {CONTENTS: AssetKind.SNAPSHOTS, SHAPE: AssetKind.MANIFEST_LISTS}


def scrub(
    resource: LsmResource, table: lsm.Table, snapshot_id: int | None, *, incremental: bool
) -> VerifyReport:
    """Read every page of every data file, with the resource's executor.

    Args:
        resource: The resource, for its executor.
        table: The table.
        snapshot_id: The snapshot whose files are read; None for all snapshots and tags.
        incremental: Skip files that an earlier run has read and that have not changed since.
    """
    if resource.executor != "spark" or resource.on_demand.takes_locally(
        _bytes_to_read(table, snapshot_id), "files"
    ):
        return table.verify(snapshot_id=snapshot_id, deep=True, incremental=incremental)
    from lsm_engine.spark import verify_table  # noqa: PLC0415 -- PySpark takes a second to import

    return verify_table(table, resource.spark, snapshot_id=snapshot_id, incremental=incremental)


def _bytes_to_read(table: lsm.Table, snapshot_id: int | None) -> int:
    """Return the bytes of the files of a snapshot, or at most those of all snapshots and tags."""
    snapshot = table.latest_snapshot() if snapshot_id is None else table.snapshot(snapshot_id)
    if snapshot is None:
        return 0
    size_bytes = count_tree(table.tree(snapshot)).bytes
    reference_count = len(table.snapshot_ids()) + len(table.tag_names())
    return size_bytes if snapshot_id is not None else size_bytes * reference_count


def snapshot_evaluation(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    check: str,
    snapshot_id: int,
    report: VerifyReport,
) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the check CONTENTS or SHAPE of a snapshot for a report."""
    key, partition = (
        declaration.keys.asset(_SNAPSHOT_CHECKS[check]),
        snapshot_partition(snapshot_id),
    )
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=check,
        passed=report.is_clean,
        description=damage_text(declaration.name, report),
        metadata=damage_metadata(declaration.name, report),
        partition=partition,
        target_materialization_data=check_target(instance, key, partition),
    )


def damage_text(name: str, report: VerifyReport) -> str:
    """Return a sentence with the damaged files, the affected rows and the remedy."""
    # A clean report needs no list of files.
    if report.is_clean:
        return f"{counted(report.read_count, 'file')} read, {report.skipped_count} read before: all as written"
    files = report.damaged_files
    # Without damaged data files the problem lies in the metadata.
    if not files:
        return str(report.problems[0])
    suffix = f", and {counted(len(files) - 1, 'file')} more" if len(files) > 1 else ""
    return f"{_file_with_rows(files[0])}: {files[0].problems[0]}{suffix}. {remedy(name, files)}"


def damage_metadata(name: str, report: VerifyReport) -> Metadata:
    """Return metadata with the damaged files, their rows, other sources of these rows, and the remedy."""
    metadata: Metadata = {
        "lsm/files_read": dg.MetadataValue.int(report.read_count),
        "lsm/files_read_before": dg.MetadataValue.int(report.skipped_count),
    }
    if report.damaged_files:
        rows = [
            (_file_name(file), str(file.stake or ""), "; ".join(file.sources) or "nothing")
            for file in report.damaged_files
        ]
        table = markdown_table(["file", "rows", "held by as well"], rows)
        metadata["lsm/damaged"] = dg.MetadataValue.md(table)
        metadata["lsm/remedy"] = dg.MetadataValue.text(remedy(name, report.damaged_files))
    if report.problems:
        metadata["lsm/problems"] = dg.MetadataValue.md(problem_list(report.problems))
    return metadata


def remedy(name: str, files: Sequence[DamagedFile]) -> str:
    """Return the commands that repair damaged files."""
    restored = f"'lsm repair {name} restore' shows what gives their rows back, with --act does it"
    # Files with sources can be restored without any loss.
    if all(file.sources for file in files):
        return f"{restored}."
    given_up = f"'lsm repair {name} damaged-files' lets go of what nothing else holds"
    return f"{restored}; {given_up}, as long as no backup has the files."


def problem_list(problems: Sequence[str]) -> str:
    """Return a Markdown list of problems that is short enough to be shown inline."""
    shown = [f"- {escape_html(problem[:180])}" for problem in problems[:5]]
    if len(problems) > len(shown):
        shown.append(f"- … {len(problems) - len(shown)} more")
    return "\n".join(shown)


def _file_with_rows(file: DamagedFile) -> str:
    return f"{_file_name(file)} ({file.stake})" if file.stake is not None else _file_name(file)


def _file_name(file: DamagedFile) -> str:
    return file.path.rsplit("/", 1)[-1]


# -- The checks of a table -------------------------------------------------------------------------
#
# All files of its newest snapshot exist, and the record counts are consistent.

REFERENCES = "references"
TOTALS = "totals"


def table_check_specs(declaration: TableDeclaration) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks of a table."""
    table = declaration.keys.asset(AssetKind.TABLE)
    return [
        dg.AssetCheckSpec(
            name=REFERENCES,
            asset=table,
            description="Every manifest and data file that the newest snapshot names exists.",
        ),
        dg.AssetCheckSpec(
            name=TOTALS,
            asset=table,
            description="The record counts of the newest snapshot are those of its files.",
        ),
    ]


def table_readers(declarations: Iterable[TableDeclaration]) -> list[Reader]:
    """Return the tables that have upstream assets, as readers whose inputs the check `inputs` compares."""
    return [
        Reader(
            key=declaration.keys.asset(AssetKind.TABLE),
            upstream=declaration.deps,
            is_partitioned=declaration.partitions_def is not None,
        )
        for declaration in declarations
        if declaration.deps
    ]


def references_evaluation(
    instance: dg.DagsterInstance, keys: TableKeys, report: VerifyReport
) -> dg.AssetCheckEvaluation:
    """Return the failed evaluation of the check that every file of the newest snapshot exists."""
    key = keys.asset(AssetKind.TABLE)
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=REFERENCES,
        passed=report.is_clean,
        description=damage_text(keys.name, report),
        metadata=damage_metadata(keys.name, report),
        target_materialization_data=check_target(instance, key),
    )


def references_result(
    declaration: TableDeclaration, table: lsm.Table, snapshot: Snapshot
) -> dg.AssetCheckResult:
    """Return the result of the check that every file of `snapshot` exists."""
    report = table.verify(snapshot_id=snapshot.id)
    clean_message = f"snapshot {snapshot.id} is whole"
    metadata = {} if report.is_clean else damage_metadata(declaration.name, report)
    metadata["lsm/problem_count"] = dg.MetadataValue.int(len(report.problems))
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.TABLE),
        check_name=REFERENCES,
        passed=report.is_clean,
        description=clean_message if report.is_clean else damage_text(declaration.name, report),
        metadata=metadata,
    )


def totals_result(
    declaration: TableDeclaration, snapshot: Snapshot, before: Snapshot | None, tree: TreeFacts
) -> dg.AssetCheckResult:
    """Return the result of comparing the record counts of a snapshot with its files and with the previous snapshot."""
    problems = []
    if snapshot.total_record_count not in (None, tree.rows):
        problems.append(
            f"snapshot {snapshot.id} counts {snapshot.total_record_count} records in total, "
            f"its files hold {tree.rows}"
        )
    counts = [snapshot.total_record_count, snapshot.delta_record_count]
    # Other clients may leave counts out, and the previous snapshot may have expired: then only the files count.
    if before is not None and before.id == snapshot.id - 1:
        counts.append(before.total_record_count)
        known_counts = [count for count in counts if count is not None]
        if len(known_counts) == 3 and known_counts[0] != known_counts[2] + known_counts[1]:
            problems.append(
                f"snapshot {snapshot.id} counts {known_counts[0]} records, which is not the {known_counts[2]} of "
                f"snapshot {before.id} and {known_counts[1]} more"
            )
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.TABLE),
        check_name=TOTALS,
        passed=not problems,
        description="; ".join(problems)
        or f"{counted(tree.rows, 'record')} in {counted(tree.files, 'file')}",
        metadata={
            "lsm/records_in_files": dg.MetadataValue.int(tree.rows),
            "lsm/data_files": dg.MetadataValue.int(tree.files),
        },
    )


# -- Failed checks that commits must not hide, and that mending turns green ------------------------

REPEATED_BYTES_MAX = 64 * 1024 * 1024
"""Snapshots of more bytes are not read again by a sensor to see whether damage was mended; runs read them."""


def table_checks_to_renew(
    instance: dg.DagsterInstance, declaration: TableDeclaration
) -> dict[tuple[dg.AssetCheckKey, str | None], CheckToRenew]:
    """Return the failed and the hidden checks of a table, and of its snapshots by partition."""
    keys = declaration.keys
    return checks_to_renew(
        instance,
        [
            *(dg.AssetCheckKey(keys.asset(AssetKind.TABLE), name) for name in (REFERENCES, TOTALS)),
            *(dg.AssetCheckKey(keys.asset(kind), name) for name, kind in _SNAPSHOT_CHECKS.items()),
        ],
    )


def renewed_evaluations(
    instance: dg.DagsterInstance, declaration: TableDeclaration, table: lsm.Table
) -> Iterator[tuple[dg.AssetCheckEvaluation, CheckToRenew]]:
    """Evaluate failed checks again; yield those that pass, or that an event has hidden, with the evaluation before.

    Dagster shows a check as not evaluated once its asset has another event, although the cause may still be there.
    """
    live = set(table.snapshot_ids())
    for (key, partition), before in table_checks_to_renew(instance, declaration).items():
        snapshot_id = None if partition is None else parse_snapshot_partition(partition)
        if partition is not None and snapshot_id not in live:
            continue
        try:
            evaluation = (
                _table_evaluation(instance, declaration, table, key.name)
                if snapshot_id is None
                else _repeated_evaluation(instance, declaration, table, key.name, snapshot_id)
            )
        except LsmError as error:
            # A table that is so damaged that it cannot be looked at must not fail the commit that renews its checks.
            evaluation = dg.AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=False,
                description=error.message,
                partition=partition,
                target_materialization_data=check_target(instance, key.asset_key, partition),
            )
        if evaluation is not None and (evaluation.passed or not before.is_shown):
            yield evaluation, before


def _repeated_evaluation(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    check: str,
    snapshot_id: int,
) -> dg.AssetCheckEvaluation | None:
    """Return the evaluation of a check of a snapshot; None if reading its files takes too long for a sensor."""
    is_deep = check == CONTENTS
    snapshot = table.snapshot(snapshot_id)
    if is_deep and count_tree(table.tree(snapshot)).bytes > REPEATED_BYTES_MAX:
        return None
    report = table.verify(snapshot_id=snapshot_id, deep=is_deep, incremental=is_deep)
    return snapshot_evaluation(instance, declaration, check, snapshot_id, report)


def _table_evaluation(
    instance: dg.DagsterInstance, declaration: TableDeclaration, table: lsm.Table, check: str
) -> dg.AssetCheckEvaluation | None:
    """Return the evaluation of a check of the newest snapshot; None if there is none."""
    history = recent_snapshots(table, limit=2)
    if not history:
        return None
    if check == REFERENCES:
        result = references_result(declaration, table, history[-1])
    else:
        before = history[0] if len(history) > 1 else None
        result = totals_result(
            declaration, history[-1], before, count_tree(table.tree(history[-1]))
        )
    key = declaration.keys.asset(AssetKind.TABLE)
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=check,
        passed=result.passed,
        description=result.description,
        metadata=result.metadata,
        target_materialization_data=check_target(instance, key),
    )


# -- The check of `files` --------------------------------------------------------------------------
#
# Every bucket has fewer sorted runs than the number at which writers wait.

SORTED_RUNS = "sorted_runs"


def sorted_runs_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check. Its failure triggers the automation condition of compactions."""
    return dg.AssetCheckSpec(
        name=SORTED_RUNS,
        asset=declaration.keys.asset(AssetKind.FILES),
        description="Every bucket has fewer sorted runs than num-sorted-run.stop-trigger.",
    )


def files_events(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> list[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Return the event of the asset `files` and the evaluation of its check, after commits up to `snapshot`.

    A table without a due compaction also gets an event for its compaction asset. Without one the UI would show that
    asset as never materialised.
    """
    inspection = inspect_table(table, snapshot)
    verdict = sorted_runs_evaluation(
        declaration, inspection.tree, stop_trigger=table.options.stop_trigger
    )
    compaction = declaration.keys.asset(AssetKind.COMPACTION)
    # A compaction asset with an event needs no other one.
    if instance.get_latest_materialization_event(compaction) is not None or table.due_buckets():
        return [files_event(table, declaration.keys, inspection), verdict]
    reason = "no compaction has been due so far"
    metadata = compaction_page_metadata(
        table, declaration.keys, None, inspection, inspection, reason
    )
    nothing_due = dg.AssetMaterialization(
        asset_key=compaction, metadata=metadata, tags={DATA_VERSION_TAG: str(snapshot.id)}
    )
    return [files_event(table, declaration.keys, inspection), verdict, nothing_due]


def sorted_runs_evaluation(
    declaration: TableDeclaration, tree: TreeFacts, *, stop_trigger: int
) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the check for LSM trees, for runs that change files."""
    result = sorted_runs_result(declaration, tree, stop_trigger=stop_trigger)
    return dg.AssetCheckEvaluation(
        asset_key=declaration.keys.asset(AssetKind.FILES),
        check_name=SORTED_RUNS,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
        description=result.description,
    )


def sorted_runs_result(
    declaration: TableDeclaration, tree: TreeFacts, *, stop_trigger: int
) -> dg.AssetCheckResult:
    """Return the result of the check for LSM trees."""
    full_buckets = [bucket for bucket in tree.buckets if bucket.runs >= stop_trigger]
    return dg.AssetCheckResult(
        asset_key=declaration.keys.asset(AssetKind.FILES),
        check_name=SORTED_RUNS,
        passed=not full_buckets,
        severity=dg.AssetCheckSeverity.WARN,
        description=_verdict(full_buckets, tree, stop_trigger),
        metadata={
            "lsm/sorted_runs_max": dg.MetadataValue.int(tree.runs_max),
            "lsm/stop_trigger": dg.MetadataValue.text(str(stop_trigger)),
            # The page of a check shows Markdown only behind a button.
            "lsm/deepest_buckets": dg.MetadataValue.text(
                ", ".join(f"{bucket.label}: {bucket.runs}" for bucket in tree.buckets[:5])
            ),
        },
    )


def _verdict(full_buckets: Sequence[BucketTree], tree: TreeFacts, stop_trigger: int) -> str:
    if full_buckets:
        return (
            f"{len(full_buckets)} of {counted(len(tree.buckets), 'bucket')} reached {counted(stop_trigger, 'sorted run')}; "
            f"{full_buckets[0].label} has {full_buckets[0].runs}"
        )
    buckets = counted(len(tree.buckets), "bucket")
    return f"at most {counted(tree.runs_max, 'sorted run')} in {buckets}"


# -- The check of partitions by time ---------------------------------------------------------------
#
# Each is written within `fresh_within_minutes` after its end.

FRESHNESS = "freshness"
DUE_MAX = 20
"""Newest partitions whose time has ended that a tick evaluates."""
LATE_MAX = 100
"""Late partitions that a tick asks for, to see whether they were written since."""


def freshness_specs(declaration: TableDeclaration) -> list[dg.AssetCheckSpec]:
    """Return the spec of the check; none for a table without partitions by time, or without the limit."""
    definition, minutes = declaration.partitions_def, declaration.fresh_within_minutes
    if minutes is None or not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return []
    spec = partitioned_check_spec(
        definition,
        name=FRESHNESS,
        asset=declaration.keys.asset(AssetKind.TABLE),
        description=f"Each partition is written within {minutes:g} minutes after its end.",
    )
    return [spec]


def due_partitions(declaration: TableDeclaration) -> Sequence[str]:
    """Return the newest DUE_MAX partitions that have to be written by now, oldest first."""
    now = datetime.fromtimestamp(now_seconds(), UTC)
    definition = declaration.partitions_def
    assert isinstance(definition, dg.TimeWindowPartitionsDefinition)
    end = start = now - timedelta(minutes=declaration.fresh_within_minutes or 0)
    if definition.end is not None:
        end = start = min(end, definition.end)
    for _ in range(DUE_MAX):
        window = definition.get_prev_partition_window(start)
        if window is None:
            break
        end, start = (window.end if start == end else end), window.start
    return definition.get_partition_keys_in_time_window(dg.TimeWindow(start, end))


def freshness_evaluations(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    state: dict[str, Any],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluations of partitions that have become due, and report those of late ones that were written.

    `state` has the newest partition that was due at the last call, and the late ones. It is updated.
    """
    partitions, newest = due_partitions(declaration), state.get("due")
    new = partitions[partitions.index(newest) + 1 :] if newest in partitions else partitions
    if not new and not state.get("late"):
        return
    key = declaration.keys.asset(AssetKind.TABLE)
    written = latest_storage_ids(instance, key).keys()
    check = dg.AssetCheckKey(key, FRESHNESS)
    for partition in new:
        # A run has evaluated what it has written; a second event without a run would be refused.
        if last_status(instance, check, partition) is None:
            yield freshness_evaluation(instance, key, partition, is_written=partition in written)
    late = {*state.get("late", ()), *new}
    for partition in sorted(late & written - set(new)):
        evaluation = freshness_evaluation(instance, key, partition, is_written=True)
        target = evaluation.target_materialization_data
        if target is not None and target.run_id:
            report_evaluation(instance, evaluation, target.run_id)
    state |= {
        "due": partitions[-1] if partitions else newest,
        "late": sorted(late - written)[-LATE_MAX:],
    }


def freshness_evaluation(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str, *, is_written: bool
) -> dg.AssetCheckEvaluation:
    """Return the evaluation of one partition of a table that is due."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=FRESHNESS,
        passed=is_written,
        description="written" if is_written else "late: its time has ended, and it was not written",
        partition=partition,
        target_materialization_data=check_target(instance, key, partition),
    )


# -- The asset checks of one table, which users run from the UI or after a write -------------------


def table_checks(declaration: TableDeclaration) -> list[dg.AssetChecksDefinition]:
    """Return an op for the checks of the table, one for that of its files, and one for that of its partitions by time."""
    keys, specs, readers = (
        declaration.keys,
        table_check_specs(declaration),
        table_readers([declaration]),
    )
    specs += [inputs_spec(reader.key) for reader in readers]

    @dg.multi_asset_check(
        name=keys.op("checks"),
        specs=specs,
        can_subset=True,
        required_resource_keys={"lsm"},
    )
    def check_table(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = {key.name for key in context.selected_asset_check_keys}
        if INPUTS in selected:
            yield from (inputs_result(context.instance, reader) for reader in readers)
        state = _read_state(context, declaration)
        if state is None:
            names = selected - {INPUTS}
            yield from (_empty_table_result(spec) for spec in specs if spec.name in names)
            return
        table, (*earlier, newest) = state
        # Each check is computed only if it was selected.
        if REFERENCES in selected:
            yield references_result(declaration, table, newest)
        if TOTALS in selected:
            before = earlier[-1] if earlier else None
            yield totals_result(declaration, newest, before, count_tree(table.tree(newest)))

    @dg.multi_asset_check(
        name=keys.op("check_files"),
        specs=[sorted_runs_spec(declaration)],
        required_resource_keys={"lsm"},
    )
    def check_files(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        state = _read_state(context, declaration)
        if state is None:
            yield _empty_table_result(sorted_runs_spec(declaration))
            return
        table, history = state
        tree = count_tree(table.tree(history[-1]))
        yield sorted_runs_result(declaration, tree, stop_trigger=table.options.stop_trigger)

    if not (freshness := freshness_specs(declaration)):
        return [check_table, check_files]

    @dg.multi_asset_check(name=keys.op("check_freshness"), specs=freshness, can_subset=True)
    def check_freshness(
        context: dg.AssetCheckExecutionContext,
    ) -> Iterator[dg.AssetCheckEvaluation]:
        key, instance = keys.asset(AssetKind.TABLE), context.instance
        written = latest_storage_ids(instance, key).keys()
        due_keys = due_partitions(declaration)
        for partition in context.op_execution_context.partition_keys:
            if partition in written or partition in due_keys:
                is_written = partition in written
                yield freshness_evaluation(instance, key, partition, is_written=is_written)

    return [check_table, check_files, check_freshness]


def _read_state(
    context: dg.AssetCheckExecutionContext, declaration: TableDeclaration
) -> tuple[lsm.Table, list[Snapshot]] | None:
    """Return the table and its last two snapshots; None without a snapshot."""
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    history = recent_snapshots(table, limit=2) if table is not None else []
    return (table, history) if table is not None and history else None


def _empty_table_result(spec: dg.AssetCheckSpec) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=True,
        description="nothing has been committed yet",
    )
