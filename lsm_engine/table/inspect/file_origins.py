"""Find the commit that wrote a file, or a row with a sequence number, in the delta manifest lists.

Every delta of a short history is read. In a long history the snapshot is found by bisection: from some snapshot
on a file is live and a sequence number is reached. The delta of that snapshot confirms the result, so that it is
never a guess.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial

import pyarrow as pa

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import Bucket, ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.live_files import (
    BUCKET,
    FILE_NAME,
    KIND,
    MAX_SEQUENCE_NUMBER,
    PARTITION,
    bucket_pairs,
)
from lsm_engine.table.ground.session import TableSession

"""(partition, bucket)."""
_FILE_COLUMNS = (KIND, PARTITION, BUCKET, FILE_NAME, MAX_SEQUENCE_NUMBER)
BISECTED_FROM = 200
"""Snapshots from which on bisection reads less than all deltas are."""


@record
class FileOrigins:
    """Of one bucket: the snapshot that wrote each file, by name, and the commits by sequence range.

    `appends`: (first, last, snapshot id) of the sequence numbers of new rows. What was committed
    before the oldest snapshot that is left is not known.
    """

    file_snapshots: Mapping[str, int]
    appends: tuple[tuple[int, int, int], ...]

    def writer_of(self, sequence_number: int) -> int | None:
        """Return the snapshot that brought a row; None if it has expired, or if two may have."""
        writers = {
            snapshot for first, last, snapshot in self.appends if first <= sequence_number <= last
        }
        return writers.pop() if len(writers) == 1 else None


def origins_of(
    session: TableSession,
    snapshot: Snapshot,
    place: Bucket,
    rows: Collection[tuple[str, int]],
    holds: Callable[[DataFileMeta, int], bool],
) -> FileOrigins:
    """Return where files of one bucket and their rows came from, as far as snapshots record it.

    `rows`: (file name, sequence number) of rows of one key in live files of the snapshot. `holds(file, number)`:
    whether a file has the key with a sequence number, which decides where commits took the same numbers.
    """
    ids = [snapshot_id for snapshot_id in session.snapshots.ids() if snapshot_id < snapshot.id]
    names = {name for name, _ in rows}
    if len(ids) >= BISECTED_FROM and ids[-1] == snapshot.id - 1:
        origins = _Bisection(session, place, [*ids, snapshot.id]).origins(rows, holds)
        if origins is not None:
            return origins
    return _by_all_deltas(session, snapshot, place, names)


def _by_all_deltas(
    session: TableSession, snapshot: Snapshot, place: Bucket, names: Collection[str]
) -> FileOrigins:
    written: dict[str, int] = {}
    appends: list[tuple[int, int, int]] = []
    for past in snapshots_back(session, snapshot):
        try:
            files = _added_by(session, past, place)
        except NotFoundError:
            break  # expired meanwhile
        written |= {file.file_name: past.id for file in files if file.file_name in names}
        appends += [_range(file, past.id) for file in files if _is_appended(file)]
    return FileOrigins(file_snapshots=written, appends=tuple(appends))


_State = tuple[int, Collection[str]]
"""Of a bucket: the greatest sequence number that it has seen, the names of its live files."""


def _has_file(name: str, state: _State) -> bool:
    return name in state[1]


def _reaches(number: int, state: _State) -> bool:
    return state[0] >= number


class _Bisection:
    """Searches the snapshots of a table, by ids that follow each other, for what they did to one bucket."""

    def __init__(self, session: TableSession, place: Bucket, ids: Sequence[int]) -> None:
        self._session, self._place, self._ids = session, place, ids
        self._state = cache(self._state_at)
        self._added = cache(
            lambda snapshot_id: _added_by(session, session.snapshots.load(snapshot_id), place)
        )

    def origins(
        self, rows: Collection[tuple[str, int]], holds: Callable[[DataFileMeta, int], bool]
    ) -> FileOrigins | None:
        """Return the origins of rows; None where a delta and the states around it differ."""
        written: dict[str, int] = {}
        appends: list[tuple[int, int, int]] = []
        try:
            for name in {name for name, _ in rows}:
                snapshot_id = self._first(partial(_has_file, name))
                if any(file.file_name == name for file in self._added(snapshot_id)):
                    written[name] = snapshot_id
                elif snapshot_id != self._ids[0]:
                    return None
            for number in {number for _, number in rows}:
                snapshot_id = self._first(partial(_reaches, number))
                files = [
                    file
                    for file in self._added(snapshot_id)
                    if _is_appended(file) and _spans(file, number) and holds(file, number)
                ]
                if not files and snapshot_id != self._ids[0]:
                    return None
                appends += [(number, number, snapshot_id) for _ in files[:1]]
        except NotFoundError:
            return None  # expired meanwhile
        return FileOrigins(file_snapshots=written, appends=tuple(appends))

    def _first(self, has: Callable[[_State], bool]) -> int:
        """Return the oldest snapshot from which on something holds, which it does in the newest."""
        low, high = 0, len(self._ids) - 1
        while low < high:
            middle = (low + high) // 2
            if has(self._state(self._ids[middle])):
                high = middle
            else:
                low = middle + 1
        return self._ids[low]

    def _state_at(self, snapshot_id: int) -> _State:
        session = self._session
        newest, names = -1, Counter[str]()
        for meta in session.manifest_metas(session.snapshots.load(snapshot_id)):
            if _may_hold(meta, self._place[1]):
                greatest, moved = session.manifests.fact(meta, _file_facts, _FILE_COLUMNS).get(
                    self._place, (-1, {})
                )
                newest = max(newest, greatest)
                names.update(moved)
        return newest, {name for name, count in names.items() if count > 0}


def _file_facts(entries: pa.Table) -> dict[Bucket, tuple[int, dict[str, int]]]:
    """Return by bucket: the greatest sequence number, and how often each file was added less deleted."""
    if not entries.num_rows:
        return {}
    pairs, of_row = bucket_pairs(entries)
    added = (entries.column(KIND).to_numpy() != EntryKind.DELETE) * 2 - 1
    numbers = entries.column(MAX_SEQUENCE_NUMBER).to_numpy()
    names = entries.column(FILE_NAME)
    facts: dict[Bucket, tuple[int, dict[str, int]]] = {}
    for index, place in enumerate(pairs):
        (rows,) = (of_row == index).nonzero()
        moved = Counter[str]()
        for name, count in zip(names.take(pa.array(rows)).to_pylist(), added[rows], strict=True):
            moved[name] += int(count)
        facts[place] = int(numbers[rows].max()), dict(moved)
    return facts


def snapshots_back(session: TableSession, snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield a snapshot and those before it that are left, newest first."""
    current: Snapshot | None = snapshot
    while current is not None:
        yield current
        current = session.snapshots.before(current)


def _added_by(session: TableSession, snapshot: Snapshot, place: Bucket) -> list[DataFileMeta]:
    """Return the files that a snapshot brought to a bucket; one that only changed its level is none."""
    entries = _delta_of(session, snapshot, place)
    moved = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
    return [
        entry.file
        for entry in entries
        if entry.kind is EntryKind.ADD and entry.file.file_name not in moved
    ]


def _is_appended(file: DataFileMeta) -> bool:
    return file.file_source is not FileSource.COMPACT


def _range(file: DataFileMeta, snapshot_id: int) -> tuple[int, int, int]:
    return file.min_sequence_number, file.max_sequence_number, snapshot_id


def _spans(file: DataFileMeta, number: int) -> bool:
    return file.min_sequence_number <= number <= file.max_sequence_number


def _delta_of(session: TableSession, snapshot: Snapshot, place: Bucket) -> list[ManifestEntry]:
    return [
        entry
        for meta in session.manifest_list(snapshot, snapshot.delta_manifest_list)
        if _may_hold(meta, place[1])
        for entry in session.manifests.read_entries(meta)
        if (entry.partition, entry.bucket) == place
    ]


def _may_hold(meta: ManifestFileMeta, bucket: int) -> bool:
    if meta.min_bucket is None or meta.max_bucket is None:
        return True
    return meta.min_bucket <= bucket <= meta.max_bucket
