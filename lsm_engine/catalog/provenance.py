"""The run and the inputs of a snapshot, in the snapshot's own `properties`.

The keys below hold the complete origin of a commit, so that lineage can be rebuilt from the files. Other clients ignore them. All values are text.

    lsm.run.id              the run, unique per act: required for the others to count
    lsm.run.engine          what ran it: "local", "spark", ...
    lsm.run.kind            what it was for: "upsert", "compact", "backfill", ...
    lsm.run.dagster-id      the Dagster run, which several runs may share
    lsm.run.asset           the asset key, parts joined by "/"
    lsm.run.user            who started it
    lsm.run.code-version    the version of the code that computed it, as an asset declares it
    lsm.run.started-millis  when it started, milliseconds since 1970 UTC
    lsm.inputs              JSON list of what was read, see `encode_inputs`
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lsm_engine.base.errors import without_secrets
from lsm_engine.base.record import record
from lsm_engine.base.units import LONG_MAX
from lsm_engine.format.snapshot import Snapshot

RUN_PROPERTIES = "lsm.run."
RUN_ID = "lsm.run.id"
RUN_ENGINE = "lsm.run.engine"
RUN_KIND = "lsm.run.kind"
RUN_DAGSTER_ID = "lsm.run.dagster-id"
RESTORED = "lsm.restored-snapshot"
"""The snapshot property of a restore: the id of the snapshot whose state it made the newest."""
RUN_ASSET = "lsm.run.asset"
RUN_USER = "lsm.run.user"
RUN_STARTED_MILLIS = "lsm.run.started-millis"
INPUTS = "lsm.inputs"

SOURCE_ROLE = "source"
_FOREIGN_RUN = "commit-user:"


@record
class Run:
    """One operation that made snapshots. A run that fills several assets counts once per asset.

    `started_millis` None: not recorded; then the time of its first snapshot stands in. When a run ended
    is the time of its last snapshot.
    """

    run_id: str
    engine: str | None = None
    kind: str | None = None
    dagster_run_id: str | None = None
    asset_key: str | None = None
    user: str | None = None
    started_millis: int | None = None


@record
class Input:
    """A dataset that a commit was computed from.

    `dataset` is "database.table" for tables of the same catalog, any other name else. `snapshot_id`
    is the state that was read; with `after_snapshot_id` only the changes in (after, snapshot].
    `version` names the state of a dataset without snapshots. `columns` pairs a column of the made
    table with the column of this dataset that it came from.
    """

    dataset: str
    snapshot_id: int | None = None
    after_snapshot_id: int | None = None
    version: str | None = None
    role: str = SOURCE_ROLE
    columns: tuple[tuple[str, str], ...] = ()


def provenance_properties(run: Run, inputs: Iterable[Input] = ()) -> dict[str, str]:
    """Return the snapshot properties that carry `run` and `inputs`."""
    texts = {
        RUN_ID: run.run_id,
        RUN_ENGINE: run.engine,
        RUN_KIND: run.kind,
        RUN_DAGSTER_ID: run.dagster_run_id,
        RUN_ASSET: run.asset_key,
        RUN_USER: run.user,
        RUN_STARTED_MILLIS: None if run.started_millis is None else str(run.started_millis),
        INPUTS: encode_inputs(inputs) or None,
    }
    return {key: value for key, value in texts.items() if value is not None}


def run_of(snapshot: Snapshot) -> Run:
    """Return the run that made `snapshot`.

    Snapshots of clients that record no run are gathered under their commit user, which is what such a
    client has in place of a run.
    """
    properties = snapshot.properties or {}
    if not properties.get(RUN_ID):
        return Run(run_id=_FOREIGN_RUN + snapshot.commit_user)
    return Run(
        run_id=properties[RUN_ID],
        engine=properties.get(RUN_ENGINE),
        kind=properties.get(RUN_KIND),
        dagster_run_id=properties.get(RUN_DAGSTER_ID),
        asset_key=properties.get(RUN_ASSET),
        user=properties.get(RUN_USER),
        started_millis=_whole_number(properties.get(RUN_STARTED_MILLIS)),
    )


def encode_inputs(inputs: Iterable[Input]) -> str:
    """Return the JSON text of `lsm.inputs`, "" for no inputs; empty members left out, as are secrets
    of URLs: everybody who may read the table reads them, and lineage copies them.

    [{"dataset": "shop.orders", "snapshot": 12, "after": 9, "role": "source",
      "columns": [["delay", "dep_delay"]]}, {"dataset": "weather.csv", "version": "2013-01"}]
    """
    listed = [
        {
            "dataset": without_secrets(item.dataset),
            "snapshot": item.snapshot_id,
            "after": item.after_snapshot_id,
            "version": None if item.version is None else without_secrets(item.version),
            "role": None if item.role == SOURCE_ROLE else item.role,
            "columns": [list(pair) for pair in item.columns] or None,
        }
        for item in inputs
    ]
    members = [{key: value for key, value in item.items() if value is not None} for item in listed]
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False) if members else ""


def inputs_of(snapshot: Snapshot) -> tuple[Input, ...]:
    """Return the inputs that `snapshot` declares, as written; what cannot be read is left out.

    Any client may write these properties, so invalid ones must not hide the valid ones.
    """
    text = (snapshot.properties or {}).get(INPUTS)
    if not text:
        return ()
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):  # no JSON: another client wrote it
        return ()
    inputs = (_input(item) for item in listed) if isinstance(listed, list) else ()
    return tuple(dict.fromkeys(item for item in inputs if item is not None))


def _input(item: Any) -> Input | None:
    if not isinstance(item, Mapping) or not item.get("dataset"):
        return None
    snapshot_id, after = _whole_number(item.get("snapshot")), _whole_number(item.get("after"))
    columns = item.get("columns")
    return Input(
        dataset=str(item["dataset"]),
        snapshot_id=snapshot_id,
        after_snapshot_id=None if snapshot_id is None else after,
        version=None if item.get("version") is None else str(item["version"]),
        role=str(item.get("role") or SOURCE_ROLE),
        columns=tuple(
            (str(pair[0]), str(pair[1]))
            for pair in (columns if isinstance(columns, list) else ())
            if isinstance(pair, list) and len(pair) == 2
        ),
    )


def _whole_number(value: Any) -> int | None:
    """Return a count or id that fits a database column, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if 0 <= number <= LONG_MAX else None
