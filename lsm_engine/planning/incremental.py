"""Plan an incremental read: of each snapshot its changelog, its delta, or both states.

A split is the changes of one snapshot in one bucket: rows keep their order in it, and a -U is never
parted from its +U by reading splits apart. Where a key may be in several buckets of a snapshot, because it
has moved, the keys that a bucket loses are splits of their own, which come first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, IntEnum

from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import VectorPlace
from lsm_engine.format.manifest import Bucket, ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lsm.levels import KeyOrder, sections
from lsm_engine.options.modes import ChangelogProducer, CommitKind, EntryKind
from lsm_engine.planning.scan import Reach, ReadMode, Section, VectorPlaces

_POSTPONED = -2


class ChangeMode(Enum):
    """Where changes are taken from."""

    AUTO = "auto"
    """The changelog where one is produced, else the delta."""
    CHANGELOG = "changelog"
    """Changelog files."""
    DELTA = "delta"
    """New files of APPEND snapshots, merged within each snapshot; no -U is known."""
    DIFF = "diff"
    """The first and the last state compared: what lies between does not show."""

    @property
    def reads_changelog(self) -> bool:
        """Whether changelogs are read where a table has them."""
        return self in (ChangeMode.AUTO, ChangeMode.CHANGELOG)


class ChangedKeys(IntEnum):
    """Of which keys a split holds the rows: the last row of a key in its bucket decides."""

    ALL = 0
    GONE = 1
    """Keys that the bucket loses: their last row is a -U or -D."""
    HERE = 2
    """Keys that are in the bucket afterwards."""


class ChangeSource(Enum):
    """The part of one snapshot that is read."""

    CHANGELOG = "changelog"
    DELTA = "delta"
    STATES = "states"
    NOTHING = "nothing"


def change_source(
    snapshot: Snapshot,
    mode: ChangeMode,
    *,
    producer: ChangelogProducer,
    reads_overwrites: bool,
) -> ChangeSource:
    """Return what to read of a snapshot whose table had `producer` when it was made.

    `reads_overwrites`: the state before an overwrite and that after it are compared; else what an
    overwrite did does not show, as it is not a change of rows but of the table.
    """
    assert mode is not ChangeMode.DIFF, "states are compared for a range, not per snapshot"
    if snapshot.commit_kind is CommitKind.OVERWRITE:
        return ChangeSource.STATES if reads_overwrites else ChangeSource.NOTHING
    if mode is ChangeMode.AUTO:
        wants_delta = producer.policy.reads_delta
        mode = ChangeMode.DELTA if wants_delta else ChangeMode.CHANGELOG
    if mode is ChangeMode.CHANGELOG:
        has_changelog = snapshot.changelog_manifest_list is not None
        return ChangeSource.CHANGELOG if has_changelog else ChangeSource.NOTHING
    appends = snapshot.commit_kind is CommitKind.APPEND
    return ChangeSource.DELTA if appends else ChangeSource.NOTHING


def changed_state(producer: ChangelogProducer, mode: ReadMode) -> tuple[ReadMode, Reach]:
    """Return how to read the state that a reader of changes begins with, at a snapshot.

    It is what the changelog up to that snapshot has emitted, no more and no less. With `lookup` the
    rows of level 0 are emitted by the compaction that takes them up, with `full-compaction` those
    above the last level by the next full one; else rows are emitted with the commit that brought
    them, whether batch reads (`mode`) see them already or not.
    """
    match producer:
        case ChangelogProducer.LOOKUP:
            return mode, Reach.ABOVE_LEVEL_0
        case ChangelogProducer.FULL_COMPACTION:
            return mode, Reach.DEEPEST
        case ChangelogProducer.NONE | ChangelogProducer.INPUT:
            return ReadMode.MERGE if mode is ReadMode.ABOVE_LEVEL_0 else mode, Reach.ALL


@record
class StatePart:
    """Files of one key range in one state: sections in key order. `vectors` as in Split."""

    sections: tuple[Section, ...]
    vectors: tuple[VectorPlace, ...] = ()


@record
class ChangeSplit:
    """The changes that one snapshot made to one bucket, as a reader task gets them. It pickles.

    One of three: `files`, whose rows are changes, in order; `sections` of new files, to be merged
    with their deletes; `states`, key range by key range what was and what is. `states_of`: the
    snapshots compared, those aside whose files a tag keeps. `keys`: of which keys the rows come.
    """

    snapshot_id: int
    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...] = ()
    sections: tuple[Section, ...] = ()
    states: tuple[tuple[StatePart, StatePart], ...] = ()
    states_of: tuple[int, ...] = ()
    keys: ChangedKeys = ChangedKeys.ALL

    @property
    def named_by(self) -> tuple[int, ...]:
        """The snapshots without which the files may be gone."""
        return self.states_of if self.states else (self.snapshot_id,)

    @property
    def all_files(self) -> tuple[DataFileMeta, ...]:
        """Every file that is read."""
        compared = [part for pair in self.states for state in pair for part in state.sections]
        merged = [file for part in (*self.sections, *compared) for run in part for file in run]
        return (*self.files, *merged)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size for file in self.all_files)


def in_turns(splits: Sequence[ChangeSplit]) -> list[ChangeSplit]:
    """Return the splits of one snapshot such that a key leaves one bucket before it comes to another.

    A reader that applies rows in their order ends with each row, also where keys move back and forth.
    """
    if len(splits) < 2 or not any(_may(split, retracts=True) for split in splits):
        return list(splits)
    turns = [(keys, split) for keys in (ChangedKeys.GONE, ChangedKeys.HERE) for split in splits]
    return [
        replace(split, keys=keys)
        for keys, split in turns
        if _may(split, retracts=keys is ChangedKeys.GONE)
    ]


def _may(split: ChangeSplit, *, retracts: bool) -> bool:
    """Whether a split may hold rows that retract something, or rows that add something."""
    if split.states:
        return True
    counts = [(file.delete_row_count, file.row_count) for file in split.all_files]
    return any(
        deleted_rows is None or (deleted_rows if retracts else deleted_rows < all_)
        for deleted_rows, all_ in counts
    )


def changelog_splits(snapshot_id: int, entries: Iterable[ManifestEntry]) -> list[ChangeSplit]:
    """Return the splits of changelog files; `entries` in the order of their manifests."""
    return [
        ChangeSplit(snapshot_id=snapshot_id, partition=partition, bucket=bucket, files=tuple(files))
        for (partition, bucket), files in _added(entries)
    ]


def delta_splits(
    snapshot_id: int, entries: Iterable[ManifestEntry], *, key_order: KeyOrder | None, merges: bool
) -> list[ChangeSplit]:
    """Return the splits of new data files. Rows that wait for a bucket (bucket -2) are not there yet.

    `merges`: the versions of a key that one commit wrote become one; else they come oldest first, which
    is the order of `entries`: layers of a retract overlap in sequence numbers.
    """
    splits = []
    for (partition, bucket), files in _added(entries):
        if bucket == _POSTPONED:
            continue
        if key_order is None or not merges or len(files) == 1:
            split = ChangeSplit(
                snapshot_id=snapshot_id, partition=partition, bucket=bucket, files=tuple(files)
            )
        else:
            split = ChangeSplit(
                snapshot_id=snapshot_id,
                partition=partition,
                bucket=bucket,
                sections=_sections(files, key_order),
            )
        splits.append(split)
    return splits


@record
class ComparedState:
    """The live files of a state that readers see, and the deletion vectors of the state."""

    entries: Sequence[ManifestEntry]
    vectors: VectorPlaces


def state_splits(
    snapshot_id: int,
    before: ComparedState,
    after: ComparedState,
    *,
    key_order: KeyOrder,
    states_of: tuple[int, ...] = (),
) -> list[ChangeSplit]:
    """Return the splits that compare two states; key ranges whose files are the same are left out.

    `states_of`: as in ChangeSplit.
    Between the states an overwrite may have given keys another bucket, where that is not their hash alone.
    """
    counts = {(entry.partition, entry.total_buckets) for entry in (*before.entries, *after.entries)}
    is_fixed = len(counts) == len(dict(counts)) and all(count > 0 for _, count in counts)
    was, is_now = dict(_added(before.entries)), dict(_added(after.entries))
    splits = []
    for key in sorted({*was, *is_now}):
        old = _State.from_files(was.get(key, []), before.vectors.get(key, {}))
        new = _State.from_files(is_now.get(key, []), after.vectors.get(key, {}))
        states = []
        for section in _sections([*{**old.files, **new.files}.values()], key_order):
            names = {file.file_name for run in section for file in run}
            if old.facts(names) != new.facts(names):
                states.append((old.part(names, key_order), new.part(names, key_order)))
        if states:
            splits.append(
                ChangeSplit(
                    snapshot_id=snapshot_id,
                    partition=key[0],
                    bucket=key[1],
                    states=tuple(states),
                    states_of=states_of,
                )
            )
    return splits if is_fixed else in_turns(splits)


@record
class _State:
    """The files of a bucket in one state, by name."""

    files: Mapping[str, DataFileMeta]
    places: Mapping[str, VectorPlace]

    @staticmethod
    def from_files(files: Iterable[DataFileMeta], places: Mapping[str, VectorPlace]) -> "_State":
        return _State(files={file.file_name: file for file in files}, places=places)

    def facts(self, names: set[str]) -> dict[str, VectorPlace | None]:
        """The files that determine the rows of a key range, and their deleted rows."""
        return {name: self.places.get(name) for name in names & self.files.keys()}

    def part(self, names: set[str], key_order: KeyOrder) -> StatePart:
        own_names = sorted(names & self.files.keys())
        return StatePart(
            sections=_sections([self.files[name] for name in own_names], key_order),
            vectors=tuple(self.places[name] for name in own_names if name in self.places),
        )


def _sections(files: Sequence[DataFileMeta], key_order: KeyOrder) -> tuple[Section, ...]:
    return tuple(tuple(tuple(run.files) for run in part) for part in sections(files, key_order))


def _added(entries: Iterable[ManifestEntry]) -> list[tuple[Bucket, list[DataFileMeta]]]:
    buckets: dict[Bucket, list[DataFileMeta]] = {}
    for entry in entries:
        if entry.kind is EntryKind.ADD:
            files = buckets.setdefault((entry.partition, entry.bucket), [])
            files.append(entry.file.without_stats())
    return sorted(buckets.items())
