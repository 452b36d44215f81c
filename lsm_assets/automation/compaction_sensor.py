"""The sensor that requests compactions: one run per table and commit, and retries of failed runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG

from lsm_assets.automation.cursor import (
    failure_message,
    read_cursor,
    tables_in_turn,
    tick_interval,
    write_cursor,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import REASON_TAG
from lsm_assets.model.versions import version_from_snapshot
from lsm_assets.resources import CLOCK
from lsm_engine import LsmError, SystemClock

INTERVAL_SECONDS = 30
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 5 * 60, 6 * 60 * 60
"""Wait before a failed run is requested again. It doubles with each attempt."""
_MESSAGES_MAX = 20


def compaction_sensor(
    declarations: Sequence[TableDeclaration],
    *,
    name: str = "lsm_compaction",
    interval_seconds: int = INTERVAL_SECONDS,
) -> dg.SensorDefinition:
    """Return the sensor that requests compactions of tables with due buckets.

    The run key contains the version of the table's newest commit, so that two ticks over one state make one run. The
    cursor has the last evaluated commit: a table without a new commit costs one read of its newest snapshot. A failed
    run is requested again after a growing wait; the tick and the run's reason say so. Many tables take turns
    (`automation.cursor.tables_in_turn`).
    """
    keys = [declaration.keys.asset(AssetKind.COMPACTION) for declaration in declarations]

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=tick_interval(declarations, interval_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"lsm"},
        description="Compacts tables whose buckets have gathered too many sorted runs.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        states = read_cursor(context.cursor)
        failed: dict[str, Exception] = {}
        requests: list[dg.RunRequest] = []
        waiting: list[str] = []
        looked_at = 0
        for declaration in tables_in_turn(declarations, states):
            looked_at += 1
            try:
                result = _next_request(context, declaration, states)
            except Exception as error:
                # A damaged table must not stop the compaction of the others.
                is_bug = not isinstance(error, LsmError)
                context.log.error("cannot look at %s: %s", declaration.name, error, exc_info=is_bug)
                failed[declaration.name] = error
                continue
            if isinstance(result, dg.RunRequest):
                requests.append(result)
            elif result:
                waiting.append(result)
        messages = [
            message
            for message in (failure_message(failed, looked_at, states), *waiting[:_MESSAGES_MAX])
            if message
        ]
        reason = dg.SkipReason("; ".join(messages) or "every bucket is in shape")
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else reason,
            cursor=write_cursor(states),
        )

    return sensor


def _next_request(
    context: dg.SensorEvaluationContext,
    declaration: TableDeclaration,
    states: dict[str, dict[str, Any]],
) -> dg.RunRequest | str | None:
    """Return the run to request, a message if a failed run waits for its retry, or None if nothing is due."""
    table = context.resources.lsm.existing_table(declaration.name)
    newest = table.latest_snapshot() if table is not None else None
    if table is None or newest is None:
        return None
    version, state = version_from_snapshot(newest).text, states.get(declaration.name, {})
    key, attempts = f"compact-{declaration.name}-{version}", 0
    if state.get("snapshot") == version:
        attempts = state.get("asked", 0)
        # This state was evaluated before. Only a run that was requested and has failed is requested again.
        ended = _failure_time(context.instance, _run_key(key, attempts)) if attempts else None
        if ended is None:
            return None
        retry_seconds = ended + min(
            FIRST_WAIT_SECONDS << min(attempts - 1, 20), LONGEST_WAIT_SECONDS
        )
        if (CLOCK.get() or SystemClock()).now_millis() < retry_seconds * 1_000:
            retry_time = f"{datetime.fromtimestamp(retry_seconds, UTC):%H:%M} UTC"
            return f"the compaction of {declaration.name} has failed, and is asked for again at {retry_time}"
    compactable = [bucket for bucket in table.pressure() if bucket.compactable]
    # The state is stored after the reads: if one fails, the next tick evaluates the table again.
    states[declaration.name] = {
        "snapshot": version,
        **({"asked": attempts + 1} if compactable else {}),
    }
    if not compactable:
        return None
    retry_note = f", asked for again: the last {attempts} failed" if attempts else ""
    reason = f"{compactable[0].reason} ({len(compactable)} buckets are due{retry_note})"
    return dg.RunRequest(
        run_key=_run_key(key, attempts + 1),
        asset_selection=[declaration.keys.asset(AssetKind.COMPACTION)],
        tags={REASON_TAG: reason, "lsm/table": declaration.keys.identifier},
    )


def _run_key(key: str, number: int) -> str:
    return key if number == 1 else f"{key}-{number}"


def _failure_time(instance: dg.DagsterInstance, run_key: str) -> float | None:
    """Return when the run of a key failed, in seconds since 1970; None if it has not failed.

    Retries of a run have its tags, so that the newest run decides.
    """
    run_filter = dg.RunsFilter(tags={RUN_KEY_TAG: run_key})
    for record in instance.get_run_records(run_filter, limit=1):
        if record.dagster_run.status is dg.DagsterRunStatus.FAILURE:
            return record.end_time or record.update_timestamp.timestamp()
    return None
