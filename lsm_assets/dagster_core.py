"""The parts of Dagster beyond its public names that this package uses. No other module imports from `dagster._core`.

Each function has a test in `tests/dagster/test_dagster_core.py`, which names what a new version of Dagster changes.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as CheckTarget,
)
from dagster._core.definitions.definitions_load_context import (
    DefinitionsLoadContext,
    DefinitionsLoadType,
)
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.execution.context.system import StepExecutionContext
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecordStatus,
    AssetCheckPartitionInfo,
)
from dagster._core.storage.tags import (
    AUTO_MATERIALIZE_TAG,
    AUTOMATION_CONDITION_TAG,
    BACKFILL_ID_TAG,
    RUN_KEY_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
)

from lsm_engine import record

_EVALUATED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}

__all__ = [
    "AUTOMATION_CONDITION_TAG",
    "AUTO_MATERIALIZE_TAG",
    "RUN_KEY_TAG",
    "SCHEDULE_NAME_TAG",
    "SENSOR_NAME_TAG",
    "CheckTarget", "CheckToRenew",
    "StepExecutionContext",
    "backfilled_assets",
    "check_target",
    "checks_to_renew",
    "definitions_context",
    "failed_attempts",
    "last_status",
    "latest_storage_ids",
    "latest_tags",
    "partitioned_check_spec",
    "partitions_loaded_from",
    "report_evaluation",
    "step_context",
    "unevaluated_checks",
    "virtual_spec",
]  # fmt: skip


def step_context(context: dg.AssetExecutionContext) -> StepExecutionContext:
    """Return the context of the step in which an asset runs: it has the recorded versions of the inputs."""
    step: StepExecutionContext = context.get_step_execution_context()
    return step


@contextmanager
def partitions_loaded_from(instance: dg.DagsterInstance) -> Iterator[None]:
    """Let definitions of dynamic partitions read their keys from an instance."""
    with partition_loading_context(dynamic_partitions_store=instance):
        yield


def backfilled_assets(instance: dg.DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    """Return the assets of the backfill that has launched a run; empty for other runs."""
    backfill_id = run.tags.get(BACKFILL_ID_TAG)
    backfill = instance.get_backfill(backfill_id) if backfill_id else None
    return frozenset((backfill.asset_selection if backfill is not None else None) or ())


@contextmanager
def definitions_context() -> Iterator[None]:
    """Let a component keep its state while it is loaded, also where no code location loads it, as in tests."""
    if DefinitionsLoadContext.is_set():
        yield
        return
    with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)):
        yield


# -- Records of partitions and of checks -----------------------------------------------------------


def latest_tags(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    tag: str,
    partitions: Sequence[str] | None = None,
    after: int | None = None,
    before: int | None = None,
) -> dict[str, str]:
    """Return a tag of the newest materialisation of each partition that has it.

    Args:
        instance: Dagster instance.
        key: The asset.
        tag: Name of the tag.
        partitions: Partition keys; None for all.
        after: Only events with a greater storage id.
        before: Only events with a smaller storage id.
    """
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        key,
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        [tag],
        asset_partitions=partitions,
        after_cursor=after,
        before_cursor=before,
    )
    return {name: partition_tags[tag] for name, partition_tags in tags.items()}


def latest_storage_ids(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, int]:
    """Return the storage id of the newest materialisation of each partition; none without partitions."""
    return dict(
        instance.event_log_storage.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION
        )
    )


def failed_attempts(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[str]:
    """Return the partitions that Dagster shows as failed: the newest run for them has ended without an event of them."""
    storage = instance.event_log_storage
    attempts = storage.get_latest_asset_partition_materialization_attempts_without_materializations(
        key
    )
    run_ids = {run_id for run_id, _ in attempts.values()}
    ended = {run_id for run_id in run_ids if has_ended(instance, run_id)}
    return {name for name, (run_id, _) in attempts.items() if run_id in ended}


def partitioned_check_spec(
    partitions_def: dg.PartitionsDefinition, **spec: Any
) -> dg.AssetCheckSpec:
    """Return the spec of a check with a status of its own for each partition."""
    with warnings.catch_warnings():
        # The parameter is in preview. The bounds of the version in pyproject.toml keep it as it is.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(partitions_def=partitions_def, **spec)


def virtual_spec(**spec: Any) -> dg.AssetSpec:
    """Return the spec of an asset that stores nothing: its readers are as stale as those of its upstream assets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # as above
        return dg.AssetSpec(is_virtual=True, **spec)


def check_target(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None = None
) -> CheckTarget | None:
    """Return the newest materialisation of an asset, or of a partition, as what a check has evaluated.

    Dagster shows an evaluation of an older one as not evaluated.
    """
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=key, asset_partitions=None if partition is None else [partition]
        ),
        limit=1,
    ).records
    if not records:
        return None
    newest = records[0]
    return CheckTarget(
        run_id=newest.run_id, storage_id=newest.storage_id, timestamp=newest.timestamp
    )


@record
class CheckToRenew:
    """The last evaluation of a check, or of one of its partitions, that failed or is hidden.

    Attributes:
        run_id: The run that has evaluated it; "" for an event without a run.
        is_shown: Whether Dagster shows it: the asset has no event since.
        has_passed: Whether it has passed, before the partition had an event, which hides it.
    """

    run_id: str
    is_shown: bool
    has_passed: bool = False


def last_status(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey, partition: str | None
) -> AssetCheckExecutionRecordStatus | None:
    """Return whether the last evaluation of a check, or of a partition of it, has passed; None without any."""
    history = instance.event_log_storage.get_asset_check_execution_history(
        key, limit=1, status=_EVALUATED, partition_filter=PartitionKeyFilter(key=partition)
    )
    return history[0].status if history else None


def unevaluated_checks(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetCheckKey]
) -> set[dg.AssetCheckKey]:
    """Return the checks that a run was to evaluate, and has not, as it failed or died."""
    storage = instance.event_log_storage
    records = storage.get_latest_asset_check_execution_by_key(keys) if keys else {}
    return {
        key
        for key, execution in records.items()
        if execution.status not in _EVALUATED and has_ended(instance, execution.run_id)
    }


def has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether a run has ended, or is not known."""
    run = instance.get_run_by_id(run_id)
    return run is None or run.is_finished


def checks_to_renew(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey]
) -> dict[tuple[dg.AssetCheckKey, str | None], CheckToRenew]:
    """Return the checks, and their partitions, whose last evaluation failed, also if a later run died before its own.

    And the partitions that passed before their first event: Dagster shows them as not evaluated since that event.
    """
    infos: Sequence[AssetCheckPartitionInfo] = (
        instance.event_log_storage.get_asset_check_partition_info(list(keys))
    )
    checks = {}
    # A run plans all checks of its assets: it is asked for once.
    planning = {
        info.latest_planned_run_id
        for info in infos
        if info.latest_execution_status not in _EVALUATED
    }
    ended = {run_id for run_id in planning if has_ended(instance, run_id)}
    for info in infos:
        status: AssetCheckExecutionRecordStatus | None = info.latest_execution_status
        is_shown = info.is_current
        if status not in _EVALUATED and info.latest_planned_run_id in ended:
            status, is_shown = last_status(instance, info.check_key, info.partition_key), False
        has_passed = status is AssetCheckExecutionRecordStatus.SUCCEEDED
        is_early = info.latest_target_materialization_storage_id is None and not is_shown
        if status is AssetCheckExecutionRecordStatus.FAILED or (
            has_passed and is_early and info.partition_key is not None
        ):
            checks[info.check_key, info.partition_key] = CheckToRenew(
                run_id=info.latest_planned_run_id, is_shown=is_shown, has_passed=has_passed
            )
    return checks


def report_evaluation(
    instance: dg.DagsterInstance, evaluation: dg.AssetCheckEvaluation, run_id: str
) -> None:
    """Report an evaluation as one of a run, in place of the one that the run has for the same partition.

    Without a run Dagster stores only one evaluation of each partition: a unique index refuses the second.
    """
    event = dg.DagsterEvent(
        dg.DagsterEventType.ASSET_CHECK_EVALUATION.value,
        job_name="",
        event_specific_data=evaluation,
    )
    instance.report_dagster_event(event, run_id)
