"""The origin of one delay figure: its row, its snapshot and run, and the commits and files that the run read."""

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_assets.ledger.inspection import changes_rows
from lsm_assets.ledger.recording import run_id_from_snapshot
from lsm_assets.model.metadata import commit_label
from lsm_assets.sample.replay import FIRST_DAY, LAST_DAY
from lsm_assets.sample.tables import CARRIER_DAYS
from lsm_engine import Snapshot, TableName, record

SNAPSHOTS_SEARCHED_MAX = 60


@record
class CommitFiles:
    """A commit with rows of a figure. `fate` says which compaction rewrote its files; "" if none did."""

    snapshot_id: int
    label: str
    run_id: str | None
    files: tuple[str, ...]
    fate: str


@record
class ReadState:
    """An input of a figure: a table, the snapshot that was read, and the commits with rows of the figure's day."""

    dataset: str
    snapshot_id: int | None
    file_count: int = 0
    commits: tuple[CommitFiles, ...] = ()


@record
class FigureOrigin:
    """The origin of a figure. `run_id` is the id of the Dagster run."""

    figure: dict[str, Any]
    snapshot_id: int
    label: str
    run_id: str | None
    inputs: tuple[ReadState, ...]

    @property
    def day(self) -> str:
        """The day of the figure."""
        return format_day(self.figure)


def format_day(row: dict[str, Any]) -> str:
    """Return the day of a row, such as 2013-01-31."""
    return f"{row['year']}-{row['month']:02}-{row['day']:02}"


def worst_figure(catalog: lsm.Catalog, *, arrived_min: int = 20) -> dict[str, Any] | None:
    """Return the row with the greatest mean arrival delay; None without rows."""
    rows = catalog.table(CARRIER_DAYS.name).scan().to_arrow()
    busy = rows.filter(pc.greater_equal(rows["arrived"], arrived_min))
    ordered = (busy if busy.num_rows else rows).sort_by([("mean_arr_delay", "descending")])
    figures: list[dict[str, Any]] = ordered.slice(0, 1).to_pylist()
    return figures[0] if figures else None


def trace_figure(catalog: lsm.Catalog, figure: dict[str, Any]) -> FigureOrigin | None:
    """Return the origin of a row of carrier_days, from the catalog's lineage; None if no snapshot has the row."""
    table, name = catalog.table(CARRIER_DAYS.name), TableName.parse(CARRIER_DAYS.name)
    snapshot = _first_with(table, figure)
    if snapshot is None:
        return None
    runs = catalog.lineage.runs_of_snapshot(name, snapshot.id).to_pylist()
    inputs = catalog.lineage.inputs_of_snapshot(name, snapshot.id).to_pylist()
    return FigureOrigin(
        figure=figure,
        snapshot_id=snapshot.id,
        label=commit_label(snapshot),
        run_id=runs[0]["dagster_run_id"] if runs else None,
        inputs=tuple(_read_state(catalog, input_row, figure) for input_row in inputs),
    )


def _first_with(table: lsm.Table, figure: dict[str, Any]) -> Snapshot | None:
    """Return the oldest live snapshot with the row as it is now."""
    key = [pc.equal(pc.field(column), figure[column]) for column in CARRIER_DAYS.primary_key]
    is_figure = key[0] & key[1] & key[2] & key[3]
    written = [snapshot for snapshot in table.snapshots() if changes_rows(table, snapshot)]
    for snapshot in written[-SNAPSHOTS_SEARCHED_MAX:]:
        if table.scan(where=is_figure, snapshot_id=snapshot.id).to_arrow().to_pylist() == [figure]:
            return snapshot
    return None


def _read_state(catalog: lsm.Catalog, row: dict[str, Any], figure: dict[str, Any]) -> ReadState:
    dataset, snapshot_id = row["dataset"], row["input_snapshot_id"]
    if snapshot_id is None:
        return ReadState(dataset=dataset, snapshot_id=None)
    files = catalog.lineage.live_files_at(TableName.parse(dataset), snapshot_id)
    snapshots = (snapshot for snapshot in catalog.table(dataset).snapshots())
    return ReadState(
        dataset=dataset,
        snapshot_id=snapshot_id,
        file_count=files.num_rows,
        commits=tuple(
            _commit_files(catalog, TableName.parse(dataset), snapshot)
            for snapshot in snapshots
            if snapshot.id <= snapshot_id and _is_about(snapshot, format_day(figure))
        ),
    )


def _is_about(snapshot: Snapshot, day: str) -> bool:
    properties = snapshot.properties or {}
    return properties.get(FIRST_DAY, "9") <= day <= properties.get(LAST_DAY, "")


def _commit_files(catalog: lsm.Catalog, name: TableName, snapshot: Snapshot) -> CommitFiles:
    changes = catalog.lineage.files_of_snapshot(name, snapshot.id).to_pylist()
    added = [file for file in changes if file["change"] == "added"]
    return CommitFiles(
        snapshot_id=snapshot.id,
        label=commit_label(snapshot),
        run_id=run_id_from_snapshot(snapshot),
        files=tuple(_file_path(file) for file in added),
        fate=_fate(catalog, name, [file["file_name"] for file in added]),
    )


def _fate(catalog: lsm.Catalog, name: TableName, files: Sequence[str]) -> str:
    """Return a description of the compaction that rewrote the files; "" if none did."""
    became = [catalog.lineage.life_of_file(name, file).became for file in files]
    edges = [row for table in became for row in table.to_pylist()]
    if not edges:
        return ""
    snapshots = sorted({row["snapshot_id"] for row in edges})
    targets = {row["target_name"] for row in edges}
    return f"since compacted into {len(targets)} files by snapshot {snapshots[0]}"


def _file_path(file: dict[str, Any]) -> str:
    place = f"{file['partition_path']}/" if file["partition_path"] else ""
    return f"{place}bucket-{file['bucket']}/{file['file_name']}"
