"""Verify the ids of rows: no two rows of a snapshot have one, and none is still to be given."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.codec.manifest import entries_of
from lsm_engine.kernels.arrow_views import Longs, one_array
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.row_ids import column_groups, stores_row_ids
from lsm_engine.schema.table_schema import ROW_ID
from lsm_engine.table.ground.session import TableSession

_FIRST, _COUNT = "_FILE._FIRST_ROW_ID", "_FILE._ROW_COUNT"


class RowIdVerification:
    """What manifests record of ids; `deep`: also the ids that files store, each file read once."""

    def __init__(self, session: TableSession, *, deep: bool) -> None:
        self._session = session
        self._deep = deep
        self._stored: dict[str, Longs] = {}

    def problems(self, snapshot: Snapshot, live: pa.Table) -> Iterator[str]:
        """Yield what is wrong with the ids of a snapshot's live files."""
        if not self._session.schema.tracks_rows or not live.num_rows:
            return
        entries = entries_of(live)
        yield from self._ranges(snapshot, live)
        if self._session.schema.evolves_data:
            yield from self._groups(entries)
        else:
            yield from self._overlaps(snapshot, entries)

    def _ranges(self, snapshot: Snapshot, live: pa.Table) -> Iterator[str]:
        ends = pc.add(live.column(_FIRST), live.column(_COUNT))
        highest = pc.max(ends).as_py()
        if highest is not None and highest > (snapshot.next_row_id or 0):
            yield (
                f"nextRowId is {snapshot.next_row_id}, but row ids up to {highest - 1} are given: new "
                "rows would get them again"
            )

    def _groups(self, entries: list[ManifestEntry]) -> Iterator[str]:
        try:
            column_groups(entry.file for entry in entries)
        except LsmError as error:
            yield str(error)

    def _overlaps(self, snapshot: Snapshot, entries: list[ManifestEntry]) -> Iterator[str]:
        """Compare ranges of ids with each other; a row in a deletion vector has given its id on."""
        marked = {
            vector.data_file_name
            for entry in self._session.index_entries(snapshot)
            for vector in entry.index_file.deletion_vectors or ()
        }
        names: list[str] = []
        ranges: list[Longs] = []
        for entry in entries:
            file = entry.file
            if file.file_name in marked:
                continue
            if file.first_row_id is not None:
                runs = np.array([[file.first_row_id, file.first_row_id + file.row_count]])
            elif stores_row_ids(file):
                runs = self._runs_of(entry) if self._deep else _NO_RUNS
            else:
                yield f"{file.file_name} has no row ids, in a table that tracks rows"
                continue
            names += [file.file_name] * len(runs)
            ranges.append(runs)
        if not ranges:
            return
        both = np.concatenate(ranges)
        order = np.argsort(both[:, 0], kind="stable")
        starts, ends = both[order, 0], np.maximum.accumulate(both[order, 1])
        for index in np.flatnonzero(starts[1:] < ends[:-1])[:_SHOWN].tolist():
            first_name, second_name = names[order[index]], names[order[index + 1]]
            yield f"row ids from {starts[index + 1]} on are given twice: in {first_name} and in {second_name}"

    def _runs_of(self, entry: ManifestEntry) -> Longs:
        """Return the ids that a file stores as runs [first, end) of ids that follow each other."""
        name = entry.file.file_name
        if name not in self._stored:
            context = self._session.context([entry.file.schema_id])
            try:
                with context.open_file(
                    entry.partition, entry.bucket, entry.file, (ROW_ID,)
                ) as reader:
                    ids = np.sort(one_array(reader.read().column(ROW_ID)).to_numpy())
            except LsmError:
                ids = np.zeros(0, np.int64)  # listed with the file itself
            cuts = np.flatnonzero(np.diff(ids) != 1) + 1
            bounds = np.concatenate([[0], cuts, [len(ids)]]) if len(ids) else np.zeros(1, np.int64)
            firsts, lasts = ids[bounds[:-1]], ids[bounds[1:] - 1]
            self._stored[name] = np.stack([firsts, lasts + 1], axis=1)
        return self._stored[name]


_NO_RUNS: Longs = np.zeros((0, 2), np.int64)
_SHOWN = 3
