"""The LookupStore protocol: one data file as a local file that keys are looked up in."""

import os
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.modes import LookupFileType
from lsm_engine.base.record import record
from lsm_engine.io.cache_entries import Accesses
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.lookup.key_batch import KeyBatch


class StoredValue(Enum):
    """What a lookup file keeps beside the keys."""

    ROW = "row"
    """The whole row, with sequence number and row kind."""
    NOTHING = "nothing"
    """Only whether the key is there."""
    POSITION = "position"
    """Where the row stands in the data file."""
    POSITION_AND_ROW = "position-and-row"


@record
class StoreSettings:
    """How lookup files are made. `bloom_fpp` None: without a bloom filter."""

    file_type: LookupFileType
    value: StoredValue
    bloom_fpp: float | None
    hash_load_factor: float
    block_size: int
    compressed: bool
    decoded_blocks_bytes: int


@record
class Fetched:
    """Rows, not yet copied: row i is row `row[i]` (int32) of `sources[run[i]]` (uint16)."""

    sources: tuple[pa.RecordBatch, ...]
    run: npt.NDArray[np.uint16]
    row: npt.NDArray[np.int32]


@record
class Handles:
    """What a store found for searched keys. `last` is its name for the newest row, -1 if absent.

    Where a data file holds a key more than once, the rows from `first` to `last` are its versions,
    oldest first; otherwise both are the same.
    """

    first: Longs
    last: Longs


class LookupStore(Protocol):
    """One data file's rows by key (LookupStoreReader). Immutable; threads may share it.

    A store that finds its file damaged raises CorruptFileError with the fact file=path.
    """

    path: str
    accesses: Accesses

    def find(self, batch: KeyBatch, pending: Longs) -> Handles:
        """Look up the keys of a batch that `pending` numbers, in ascending order."""
        ...

    def fetch(self, handles: Longs, names: Sequence[str]) -> Fetched:
        """Return columns of rows by handle, each of which `find` gave."""
        ...

    def positions(self, handles: Longs) -> Longs:
        """Return where rows stand in the data file."""
        ...

    def check(self) -> None:
        """Raise CorruptFileError if the file was changed behind our back."""
        ...


class MappedFile:
    """A lookup file that is mapped into memory, as it was when that was done."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = self._now()

    def check(self) -> None:
        """Raise CorruptFileError if somebody changed the file; once removed, the mapping stays."""
        now = self._now()
        if now and now != self._stamp:
            raise CorruptFileError("a lookup file was changed; it is built anew", file=self._path)

    def _now(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns
