"""Ask every table how much compaction it owes; one run per table and state, and more where it fails."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG

from lsm_assets.automation.cursor import (
    in_turn,
    interval_of,
    read_cursor,
    told_failures,
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
"""How long after a run that failed it is asked for again; twice as long each time."""
_TOLD = 20


def compaction_sensor(
    declarations: Sequence[TableDeclaration],
    *,
    name: str = "lsm_compaction",
    interval_seconds: int = INTERVAL_SECONDS,
) -> dg.SensorDefinition:
    """Return the sensor that compacts tables whose pressure makes it due.

    The run key names the table's newest commit (its id and a mark, as a rollback gives ids again), so
    that asking twice about one state makes one run. The cursor remembers the commit that was looked
    at: a quiet table costs one look at its newest one. Where the run has failed it is asked for again,
    ever more rarely; the tick and the run's reason say so. Very many tables take turns
    (`automation.cursor.in_turn`).
    """
    keys = [declaration.keys.asset(AssetKind.COMPACTION) for declaration in declarations]

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=interval_of(declarations, interval_seconds),
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
        for declaration in in_turn(declarations, states):
            looked_at += 1
            try:
                found = _request(context, declaration, states)
            except Exception as error:  # one table keeps no other from its turn
                is_bug = not isinstance(error, LsmError)
                context.log.error("cannot look at %s: %s", declaration.name, error, exc_info=is_bug)
                failed[declaration.name] = error
                continue
            if isinstance(found, dg.RunRequest):
                requests.append(found)
            elif found:
                waiting.append(found)
        told = [
            each for each in (told_failures(failed, looked_at, states), *waiting[:_TOLD]) if each
        ]
        reason = dg.SkipReason("; ".join(told) or "every bucket is in shape")
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else reason,
            cursor=write_cursor(states),
        )

    return sensor


def _request(
    context: dg.SensorEvaluationContext,
    declaration: TableDeclaration,
    states: dict[str, dict[str, Any]],
) -> dg.RunRequest | str | None:
    """Return the run to ask for, or in words what a failed one waits for; None: there is nothing to do."""
    table = context.resources.lsm.existing_table(declaration.name)
    newest = table.latest_snapshot() if table is not None else None
    if table is None or newest is None:
        return None
    version, state = version_from_snapshot(newest).text, states.get(declaration.name, {})
    key, asked = f"compact-{declaration.name}-{version}", 0
    if state.get("snapshot") == version:
        asked = state.get("asked", 0)
        ended = _failed_at(context.instance, _run_key(key, asked)) if asked else None
        if ended is None:
            return None
        again = ended + min(FIRST_WAIT_SECONDS << min(asked - 1, 20), LONGEST_WAIT_SECONDS)
        if (CLOCK.get() or SystemClock()).now_millis() < again * 1_000:
            at = f"{datetime.fromtimestamp(again, UTC):%H:%M} UTC"
            return (
                f"the compaction of {declaration.name} has failed, and is asked for again at {at}"
            )
    due = [bucket for bucket in table.pressure() if bucket.compactable]
    picked = table.due_buckets() if due else frozenset()
    # Rows that wait for a bucket are assigned one by a compaction, and are no tree to pick from.
    due = [each for each in due if each.bucket < 0 or (each.partition, each.bucket) in picked]
    # Not before it was read: the next tick looks again at a table that could not be.
    states[declaration.name] = {"snapshot": version, **({"asked": asked + 1} if due else {})}
    if not due:
        return None
    again_for = f", asked for again: the last {asked} failed" if asked else ""
    reason = f"{due[0].reason} ({len(due)} buckets are due{again_for})"
    return dg.RunRequest(
        run_key=_run_key(key, asked + 1),
        asset_selection=[declaration.keys.asset(AssetKind.COMPACTION)],
        tags={REASON_TAG: reason, "lsm/table": declaration.keys.identifier},
    )


def _run_key(key: str, number: int) -> str:
    return key if number == 1 else f"{key}-{number}"


def _failed_at(instance: dg.DagsterInstance, run_key: str) -> float | None:
    """Return when the run of a key has failed, its retries included; None: it has not, or not yet."""
    wanted = dg.RunsFilter(tags={RUN_KEY_TAG: run_key})
    for record in instance.get_run_records(wanted, limit=1):
        if record.dagster_run.status is dg.DagsterRunStatus.FAILURE:
            return record.end_time or record.update_timestamp.timestamp()
    return None
