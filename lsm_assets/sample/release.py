"""A release of the table airports: missing airports are added on a branch, to which the table is fast-forwarded."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.commits import data_version
from lsm_assets.dagster_core import step_context
from lsm_assets.keys import AssetKind, partition_set_name, tag_partitions
from lsm_assets.metadata import LABEL_PROPERTY, snapshot_link
from lsm_assets.recording import record_commit, run_properties, table_event, tag_event
from lsm_assets.resource import materialize_first
from lsm_assets.sample.source import cast_columns
from lsm_assets.sample.tables import (
    AIRPORTS,
    CARRIER_DAYS,
    FED_TABLES,
    FLIGHTS,
    OWNERS,
    REFERENCE_TABLES,
    WEATHER,
)
from lsm_assets.table_assets import find_tag
from lsm_assets.versions import version_from_snapshot
from lsm_engine import CommitConflictError, Snapshot

FIRST_RELEASE, SECOND_RELEASE, BRANCH = "release-1", "release-2", "caribbean"
KEY = dg.AssetKey([AIRPORTS.keys.database, f"{AIRPORTS.keys.short_name}.release"])

_MISSING = (
    ("BQN", "Rafael Hernandez", 18.4949, -67.1294, 237, "America/Puerto_Rico"),
    ("PSE", "Mercedita", 18.0083, -66.5630, 29, "America/Puerto_Rico"),
    ("SJU", "Luis Munoz Marin Intl", 18.4394, -66.0018, 9, "America/Puerto_Rico"),
    ("STT", "Cyril E King", 18.3373, -64.9734, 23, "America/St_Thomas"),
)
"""Destinations of flights in 2013 that the published list of airports does not have."""


def missing_airports() -> pa.Table:
    """Return the rows of the correction."""
    names = ("faa", "name", "lat", "lon", "alt", "tzone")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*_MISSING, strict=True)), strict=True))
    columns |= {"tz": [-4] * len(_MISSING), "dst": ["N"] * len(_MISSING)}
    return cast_columns(pa.table(columns), AIRPORTS.schema)


@dg.asset(
    key=KEY,
    deps=[AIRPORTS.keys.asset(AssetKind.TABLE)],
    group_name=AIRPORTS.group_name,
    owners=list(OWNERS),
    required_resource_keys={"lsm"},
    pool=AIRPORTS.keys.pool,
    description="Tags a release of airports, corrects it on a branch, checks the branch, and fast-forwards "
    "the table to it: readers see all of the correction or nothing. Once done, nothing is left to do.",
)
def airports_release(context: dg.AssetExecutionContext) -> Iterator[Any]:
    """Tag a release of airports, and release its correction."""
    airports = AIRPORTS.keys.asset(AssetKind.TABLE)
    table: lsm.Table = context.resources.lsm.upstream_table(airports)
    if table.latest_snapshot() is None:
        raise dg.Failure(
            f"{AIRPORTS.name} is empty: {materialize_first(airports)}", allow_retries=False
        )
    if find_tag(table, SECOND_RELEASE) is None:
        yield from _correct_release(context, table)
    first, second = table.tag(FIRST_RELEASE).snapshot, table.tag(SECOND_RELEASE).snapshot
    yield dg.MaterializeResult(
        asset_key=KEY,
        data_version=dg.DataVersion(version_from_snapshot(second).text),
        metadata={
            "sample/release": dg.MetadataValue.md(
                f"{FIRST_RELEASE}: {snapshot_link(AIRPORTS.keys, first.id)}, corrected on branch {BRANCH}, "
                f"{SECOND_RELEASE}: {snapshot_link(AIRPORTS.keys, second.id)}"
            ),
            "sample/rows_added": table.count() - table.count(tag=FIRST_RELEASE),
        },
    )


def _correct_release(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Any]:
    """Correct the release on a branch, and fast-forward the table. Continues where a failed run has stopped."""
    # Each step looks first whether it is done: a failed run may have stopped after any of them.
    if find_tag(table, FIRST_RELEASE) is None:
        table.create_tag(FIRST_RELEASE)
    if BRANCH not in table.branches():
        table.create_branch(BRANCH, FIRST_RELEASE)
    lineage = context.resources.lsm.catalog.lineage
    branch, released = table.branch(BRANCH), table.tag(FIRST_RELEASE).snapshot
    properties = run_properties(context, AIRPORTS.keys, AssetKind.TABLE)
    branch.upsert(missing_airports(), properties={**properties, LABEL_PROPERTY: "missing airports"})
    missing = lsm.col("faa").is_in([row[0] for row in _MISSING])
    lost = table.count(tag=FIRST_RELEASE, where=~missing) + len(_MISSING) - branch.count()
    if lost:
        raise dg.Failure(_conflict_message(f"it lacks {lost} rows"), allow_retries=False)
    if data_version(table, lineage) != data_version(branch, lineage):
        try:
            table.fast_forward(BRANCH)
        except CommitConflictError as error:
            raise dg.Failure(_conflict_message(str(error)), allow_retries=False) from error
    table.create_tag(SECOND_RELEASE)
    yield from _release_events(context, table, released)


def _conflict_message(reason: str) -> str:
    return (
        f"{AIRPORTS.name} cannot be brought to its branch {BRANCH} ({reason}): delete the branch {BRANCH} and the "
        f"tag {FIRST_RELEASE} of it, then run this again"
    )


def _release_events(
    context: dg.AssetExecutionContext, table: lsm.Table, released: Snapshot
) -> Iterator[Any]:
    for snapshot_id in table.snapshot_ids():
        if snapshot_id > released.id:
            yield from record_commit(context, table, AIRPORTS.keys, table.snapshot(snapshot_id))
    names = partition_set_name(tag_partitions(AIRPORTS.keys))
    context.instance.add_dynamic_partitions(names, [FIRST_RELEASE, SECOND_RELEASE])
    for name in (FIRST_RELEASE, SECOND_RELEASE):
        yield tag_event(table, AIRPORTS.keys, table.tag(name))
    yield table_event(AIRPORTS, table, data_version(table, context.resources.lsm.catalog.lineage))
    # The step has recorded airports as its input when it began. It has then changed airports itself: without this the
    # asset would become stale immediately.
    step = step_context(context)
    step.wipe_input_asset_version_info(AIRPORTS.keys.asset(AssetKind.TABLE))


# -- The sample's jobs: load reference tables, replay days, apply changes of flights to totals -----

REFERENCES_JOB = "load_references"
DAYS_JOB = "load_days"
FEED_JOB = "feed_totals"


def sample_jobs() -> list[Any]:
    """Return the jobs that `lsm-sample` runs. Users can also run them from the UI."""
    references = [table.keys.asset(AssetKind.TABLE) for table in REFERENCE_TABLES]
    operations = [table.keys.asset(AssetKind.TABLE) for table in (WEATHER, FLIGHTS, CARRIER_DAYS)]
    fed = [table.keys.asset(AssetKind.TABLE) for table in FED_TABLES]
    return [
        dg.define_asset_job(
            REFERENCES_JOB,
            selection=dg.AssetSelection.assets(*references, KEY),
            description="Load the tables that rarely change, and release a correction of one.",
        ),
        dg.define_asset_job(
            DAYS_JOB,
            selection=dg.AssetSelection.assets(*operations),
            description="Replay days of operations, and compute their delay figures.",
        ),
        dg.define_asset_job(
            FEED_JOB,
            selection=dg.AssetSelection.assets(*fed),
            description="Carry over what compactions of flights have told since the last time.",
        ),
    ]
