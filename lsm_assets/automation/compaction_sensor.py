"""Ask every table how much compaction it owes; one run per table and state."""

from collections.abc import Sequence

import dagster as dg

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
from lsm_assets.model.versions import version_of
from lsm_assets.resources import LsmResource
from lsm_engine import LsmError

INTERVAL_SECONDS = 30


def compaction_sensor(
    declarations: Sequence[TableDeclaration],
    *,
    name: str = "lsm_compaction",
    interval_seconds: int = INTERVAL_SECONDS,
) -> dg.SensorDefinition:
    """Return the sensor that compacts tables whose pressure makes it due.

    The run key names the table's newest commit (its id and a mark, as a rollback gives ids again), so
    that asking twice about one state makes one run. The cursor remembers the commit that was looked
    at: a quiet table costs one look at its newest one. Very many tables take turns
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
        requests, looked_at = [], 0
        for declaration in in_turn(declarations, states):
            looked_at += 1
            try:
                request = _request(context.resources.lsm, declaration, states)
            except Exception as error:  # one table keeps no other from its turn
                is_bug = not isinstance(error, LsmError)
                context.log.error("cannot look at %s: %s", declaration.name, error, exc_info=is_bug)
                failed[declaration.name] = error
                continue
            if request is not None:
                requests.append(request)
        told = told_failures(failed, looked_at, states) or "every bucket is in shape"
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else dg.SkipReason(told),
            cursor=write_cursor(states),
        )

    return sensor


def _request(
    lsm: LsmResource, declaration: TableDeclaration, states: dict[str, dict[str, object]]
) -> dg.RunRequest | None:
    table = lsm.existing_table(declaration.name)
    newest = table.latest_snapshot() if table is not None else None
    seen = states.get(declaration.name, {}).get("snapshot")
    if table is None or newest is None:
        return None
    version = version_of(newest).text
    if seen == version:
        return None
    due = [bucket for bucket in table.pressure() if bucket.compactable]
    picked = table.due_buckets() if due else frozenset()
    # Rows that wait for a bucket are assigned one by a compaction, and are no tree to pick from.
    due = [each for each in due if each.bucket < 0 or (each.partition, each.bucket) in picked]
    # Not before it was read: the next tick looks again at a table that could not be.
    states[declaration.name] = {"snapshot": version}
    if not due:
        return None
    reason = f"{due[0].reason} ({len(due)} buckets are due)"
    return dg.RunRequest(
        run_key=f"compact-{declaration.name}-{version}",
        asset_selection=[declaration.keys.asset(AssetKind.COMPACTION)],
        tags={REASON_TAG: reason, "lsm/table": declaration.keys.identifier},
    )
