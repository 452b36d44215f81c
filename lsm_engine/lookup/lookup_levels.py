"""A batch of keys → where their rows are, newest level first."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.keys import lower_bound, upper_bound
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.lookup_file import LookupFiles
from lsm_engine.lookup.lookup_store import Handles, LookupStore
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta

DeletedRows = Callable[[DataFileMeta, Longs], Bools]
"""Data file and row positions → which of the rows a deletion vector hides."""


@record
class Hits:
    """Per key of a batch: which store holds its newest row (-1: none), and the row's handle."""

    stores: tuple[LookupStore, ...]
    files: tuple[DataFileMeta, ...]  # the data file of each store
    store: npt.NDArray[np.int32]
    handle: Longs


@record
class Versions:
    """The rows that one data file holds of a batch's keys: key numbers, ascending, and handles.

    A key that the batch repeats stands here under the number of its first occurrence only.
    """

    file: DataFileMeta
    store: LookupStore
    keys: Longs
    handles: Longs


@record
class _Run:
    """Files in key order that do not overlap, with their bounds as bytes that compare."""

    files: tuple[DataFileMeta, ...]
    lowest: tuple[bytes, ...]
    highest: tuple[bytes, ...]


class LookupLevels:
    """The lookup files of one bucket (LookupLevels), newest first. Threads may share it."""

    def __init__(
        self,
        levels: Levels,
        files: LookupFiles,
        *,
        from_level: int = 0,
        deleted: DeletedRows | None = None,
    ) -> None:
        order = levels.key_order
        self.levels = levels
        self.files = files
        self._deleted = deleted
        self._runs = tuple(
            _Run(
                files=run.files,
                lowest=tuple(order(file.min_key) for file in run.files),
                highest=tuple(order(file.max_key) for file in run.files),
            )
            for run in levels.runs
            if run.level >= from_level
        )

    @property
    def data_files(self) -> tuple[DataFileMeta, ...]:
        """The files that are looked into, newest run first."""
        return tuple(file for run in self._runs for file in run.files)

    @property
    def has_deleted_rows(self) -> bool:
        """Whether rows of the files may be deleted by a vector."""
        return self._deleted is not None

    @property
    def run_count(self) -> int:
        """How many runs are looked into."""
        return len(self._runs)

    @cached_property
    def first_hit_is_newest(self) -> bool:
        """Whether a newer run's rows are all newer than an older run's, by their sequence numbers.

        Writers that committed on one base may have numbered rows alike; then versions have to be
        compared, and the first hit decides nothing.
        """
        oldest: int | None = None
        for run in self._runs:
            if oldest is not None and max(f.max_sequence_number for f in run.files) >= oldest:
                return False
            lowest = min(file.min_sequence_number for file in run.files)
            oldest = lowest if oldest is None else min(oldest, lowest)
        return True

    def unbuilt(self, batch: KeyBatch) -> list[DataFileMeta]:
        """Return the data files that may hold keys of a batch and have no lookup file yet."""
        files = [file for run in self._runs for file, _, _ in _candidates(run, batch)]
        return [file for file in files if not self.files.touch([file])]

    def find(self, batch: KeyBatch) -> Hits:
        """Return each key's newest row, a delete included; found keys are not looked for again."""
        stores: list[LookupStore] = []
        files: list[DataFileMeta] = []
        store_of = np.full(len(batch), -1, np.int32)
        handle_of = np.full(len(batch), -1, np.int64)
        pending: Longs = np.arange(len(batch), dtype=np.int64)
        for run in self._runs:
            if not len(pending):
                break
            for file, start, stop in _candidates(run, batch):
                low, high = np.searchsorted(pending, (start, stop))
                if low == high:
                    continue
                chunk = pending[low:high]
                store, rows = self._searched(file, batch, chunk)
                hit = self._alive(file, store, rows.last)
                if hit.any():
                    store_of[chunk[hit]] = len(stores)
                    handle_of[chunk[hit]] = rows.last[hit]
                    stores.append(store)
                    files.append(file)
            pending = pending[store_of[pending] < 0]
        return Hits(stores=tuple(stores), files=tuple(files), store=store_of, handle=handle_of)

    def versions(self, batch: KeyBatch) -> Iterator[Versions]:
        """Yield every version of every distinct key, file by file, newest run first.

        Rows that deletion vectors have taken are left out. A version comes once, however often the
        batch repeats its key: who merges versions would count it more than once.
        """
        for run in self._runs:
            for file, start, stop in _candidates(run, batch):
                low, high = np.searchsorted(batch.firsts, (start, stop))
                chunk = batch.firsts[low:high]
                if not len(chunk):
                    continue
                store, rows = self._searched(file, batch, chunk)
                hit = rows.last >= 0
                counts = rows.last[hit] - rows.first[hit] + 1
                if not len(counts):
                    continue
                begins = np.cumsum(counts) - counts
                steps = np.arange(int(counts.sum())) - np.repeat(begins, counts)
                keys = np.repeat(chunk[hit], counts)
                handles = np.repeat(rows.first[hit], counts) + steps
                alive = self._alive(file, store, handles)
                if alive.any():
                    yield Versions(file=file, store=store, keys=keys[alive], handles=handles[alive])

    def _alive(self, file: DataFileMeta, store: LookupStore, handles: Longs) -> Bools:
        hit: Bools = handles >= 0
        if self._deleted is not None and hit.any():
            hidden = self._deleted(file, store.positions(handles[hit]))
            hit[hit] = ~hidden
        return hit

    def _searched(
        self, file: DataFileMeta, batch: KeyBatch, pending: Longs
    ) -> tuple[LookupStore, Handles]:
        """Search one file; a store found damaged is built anew, once."""
        for attempt in (1, 2):
            store = self.files.open(file)
            try:
                store.check()
                rows = store.find(batch, pending)
                store.accesses.add(len(pending), int(np.count_nonzero(rows.last >= 0)))
                return store, rows
            except CorruptFileError as error:
                if attempt == 2 or error.facts.get("file") != store.path:
                    raise
                self.files.damaged(file)
        raise AssertionError("the second attempt returns or raises")


def _candidates(run: _Run, batch: KeyBatch) -> Iterator[tuple[DataFileMeta, int, int]]:
    """Yield the files of a run that may hold keys of a batch, and from where to where those go."""
    if not len(batch):
        return
    lowest, highest = batch.keys.bytes_of(0), batch.keys.bytes_of(len(batch) - 1)
    for index in range(bisect_left(run.highest, lowest), bisect_right(run.lowest, highest)):
        start = lower_bound(batch.keys, run.lowest[index])
        stop = upper_bound(batch.keys, run.highest[index])
        if start < stop:
            yield run.files[index], start, stop
