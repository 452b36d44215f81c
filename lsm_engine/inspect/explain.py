"""Explanations: why a key has its value, where a file came from, and what a retention would keep."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.catalog.lineage.facts import bucket_compactions, file_edges
from lsm_engine.filter.binding import bind
from lsm_engine.filter.predicate import Predicate
from lsm_engine.filter.where import AllOf, col
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import VectorPlace
from lsm_engine.format.manifest import (
    Bucket,
    BucketScope,
    ManifestEntry,
    PhysicalFile,
)
from lsm_engine.format.manifest_file import WITHOUT_STATS, entries_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.merge_runs import MergeOrder, merge_order
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, locate
from lsm_engine.lookup.keys import keys_of
from lsm_engine.lsm.levels import Levels
from lsm_engine.maintenance.expire import expire
from lsm_engine.merge.function import MergeFunction, column_rule_texts, row_rule_text
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource, RowKind
from lsm_engine.planning.history import (
    FACTS,
    POSITION,
    Commit,
    FileExplanation,
    FileStage,
    KeyExplanation,
    RetentionSimulation,
    holding,
    pins_of,
)
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.planning.retention import NO_LIMIT, Retention
from lsm_engine.planning.scan import ReadMode
from lsm_engine.read.merge import MatchingGroups
from lsm_engine.read.scan_plan import prune_files
from lsm_engine.read.split import BucketReader
from lsm_engine.storage.clock import Clock
from lsm_engine.table.live_files import (
    BUCKET,
    FILE_NAME,
    KIND,
    MAX_SEQUENCE_NUMBER,
    PARTITION,
    bucket_pairs,
)
from lsm_engine.table.merge_rules import MergeRules, merge_rules, read_mode
from lsm_engine.table.names import refuse_taken
from lsm_engine.table.references import References, other_branches
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

if TYPE_CHECKING:
    from lsm_engine.catalog.lineage.lineage import Lineage
    from lsm_engine.catalog.lineage.queries import Origin
    from lsm_engine.catalog.names import TableName

# -- The merge result of one key's versions, and the contribution of each version ------------------

MARK = "_version"
"""A column that is added to versions while they are merged."""
_NOTHING = "nothing of it lasts: newer versions replaced it, or took it back"


@record
class KeyOutcome:
    """The merged row (None: the key is not there); per version what it gives, and a verdict."""

    row: Mapping[str, Any] | None
    gives: tuple[tuple[str, ...], ...]
    verdicts: tuple[str, ...]
    verdict: str


def outcome_of(
    schema: TableSchema,
    function: MergeFunction,
    order: MergeOrder,
    versions: Sequence[pa.RecordBatch],
) -> KeyOutcome:
    """Return what one key's versions, each an input of one row, become in this order."""
    if not versions:
        return KeyOutcome(
            row=None, gives=(), verdicts=(), verdict="no version is read: the key is not there"
        )
    try:
        if function.keeps_rows:
            return _chosen(schema, function, order, versions)
        return _folded(schema, function, order, versions)
    except InvalidInputError as refused:
        return KeyOutcome(
            row=None,
            gives=tuple(() for _ in versions),
            verdicts=tuple("the versions cannot be merged" for _ in versions),
            verdict=f"the versions cannot be merged: {refused}",
        )


def _chosen(
    schema: TableSchema,
    function: MergeFunction,
    order: MergeOrder,
    versions: Sequence[pa.RecordBatch],
) -> KeyOutcome:
    """One version is the row as it is: mark them, and see which one comes out."""
    marked = [
        batch.append_column(MARK, pa.array([index], pa.int32()))
        for index, batch in enumerate(versions)
    ]
    merged = function.merge(order, marked)
    places = order.run.tolist()
    if not merged.num_rows:
        ignored = tuple("ignored: its kind of row does nothing here" for _ in places)
        gives: tuple[tuple[str, ...], ...] = tuple(() for _ in places)
        verdict = "every version is ignored: the key is not there"
        return KeyOutcome(row=None, gives=gives, verdicts=ignored, verdict=verdict)
    winner = places.index(merged.column(MARK)[0].as_py())
    deleted = _is_deleted(merged)
    values = () if deleted else _values(schema)
    verdicts = [
        (f"replaced by version {winner + 1}" if index < winner else f"version {winner + 1} counts")
        if index != winner
        else ("takes the key away" if deleted else "is the row")
        for index in range(len(places))
    ]
    why = _why(order, versions, winner)
    return KeyOutcome(
        row=None if deleted else _row(schema, merged),
        gives=tuple(values if index == winner else () for index in range(len(places))),
        verdicts=tuple(verdicts),
        verdict=f"version {winner + 1} {'takes the key away' if deleted else 'is the row'}{why}",
    )


def _why(order: MergeOrder, versions: Sequence[pa.RecordBatch], winner: int) -> str:
    if len(versions) == 1:
        return ": there is no other"
    numbers = [versions[index].column(SEQUENCE_NUMBER)[0].as_py() for index in order.run.tolist()]
    if numbers.count(numbers[winner]) > 1:
        return (
            f": sequence number {numbers[winner]} is in {numbers.count(numbers[winner])} files, "
            "of which the newer run counts"
        )
    return ""


def _folded(
    schema: TableSchema,
    function: MergeFunction,
    order: MergeOrder,
    versions: Sequence[pa.RecordBatch],
) -> KeyOutcome:
    """A column is given by the version from which on its merged value is what it is in the end."""
    states = [
        function.merge(_first(order, count), versions) for count in range(1, len(versions) + 1)
    ]
    final = states[-1]
    deleted = _is_deleted(final)
    gives: list[tuple[str, ...]] = [() for _ in states]
    if deleted:
        verdicts = [_NOTHING] * len(states)
        index = _since(states, None)
        verdicts[index] = "takes the key away"
        verdict = f"version {index + 1} takes the key away"
        return KeyOutcome(row=None, gives=tuple(gives), verdicts=tuple(verdicts), verdict=verdict)
    row = _row(schema, final)
    for name in _values(schema):
        if row[name] is not None:
            index = _since(states, name)
            gives[index] = (*gives[index], name)
    verdicts = [f"decides {', '.join(names)}" if names else _NOTHING for names in gives]
    takers = sum(bool(names) for names in gives)
    verdict = f"the row is put together from {takers} of {len(states)} versions"
    return KeyOutcome(row=row, gives=tuple(gives), verdicts=tuple(verdicts), verdict=verdict)


def _since(states: Sequence[pa.Table], name: str | None) -> int:
    """Return the state from which on a column (None: the lack of the key) does not change."""
    texts = [_text(state, name) for state in states]
    index = len(texts) - 1
    while index and texts[index - 1] == texts[index]:
        index -= 1
    return index


def _text(state: pa.Table, name: str | None) -> str:
    # Equal values of one column look the same: NaN too, which does not equal itself.
    if _is_deleted(state):
        return "deleted"
    return "there" if name is None else f"value {state.column(name)[0].as_py()!r}"


def _first(order: MergeOrder, count: int) -> MergeOrder:
    return MergeOrder(run=order.run[:count], row=order.row[:count], starts=np.zeros(1, np.int64))


def _is_deleted(state: pa.Table) -> bool:
    return not state.num_rows or RowKind(state.column(VALUE_KIND)[0].as_py()).is_retract


def _row(schema: TableSchema, state: pa.Table) -> dict[str, Any]:
    return dict(state.select(schema.names).to_pylist()[0])


def _values(schema: TableSchema) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in schema.primary_keys)


# -- File origins ----------------------------------------------------------------------------------
#
# Find the commit that wrote a file, or a row with a sequence number, in the delta manifest
# lists.
#
# Every delta of a short history is read. In a long history the snapshot is found by bisection:
# from some snapshot on a file is live and a sequence number is reached. The delta of that
# snapshot confirms the result, so that it is never a guess.

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
            if BucketScope(buckets=frozenset({self._place})).may_be_in(meta):
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
    scope = BucketScope(buckets=frozenset({place}))
    return [
        entry
        for meta in session.manifest_list(snapshot, snapshot.delta_manifest_list)
        if scope.may_be_in(meta)
        for entry in session.manifests.read_entries(meta)
        if (entry.partition, entry.bucket) == place
    ]


# -- Explain a key ---------------------------------------------------------------------------------
#
# Every version that a snapshot's files hold, in merge order, and what decided.

_UNREAD = "not read yet: level 0 is read once it is compacted"
_DELETED = "a deletion vector has taken it out"
_STOOD_FOR = "not read: the version of a smaller level was made from it and stands for both"


def explain_key(
    session: TableSession, snapshot: Snapshot | None, key: Mapping[str, Any]
) -> KeyExplanation:
    """Return why a key reads as it does in a snapshot (None: of an empty table).

    Raises InvalidInputError, naming the column, for keys that are missing, null or of another type,
    UnsupportedError for a table that has columns of the names that the answer adds.
    """
    if not isinstance(key, Mapping):
        raise InvalidInputError(
            "one key is explained, given by its columns, such as {'id': 5}",
            given=type(key).__name__,
        )
    schema = session.schema
    refuse_taken(schema.names, (*FACTS.names, MARK), "explain_key")
    keys = keys_of(schema, [dict(key)])
    shown = keys.to_pylist()[0]
    buckets = [] if snapshot is None else _buckets(session, snapshot, keys)
    explained = [_explained(session, bucket) for bucket in buckets]
    holders = [bucket for bucket in explained if bucket.row is not None] or explained
    versions = [bucket.versions for bucket in explained]
    empty = pa.schema([*FACTS, *schema.arrow]).empty_table()
    verdict = "no file of the snapshot holds the key: it is not there"
    if holders:
        verdict = holders[0].verdict
    if len(holders) > 1 and holders[0].row is not None:
        verdict += f"; {len(holders)} partitions hold the key, which readers do not merge"
    return KeyExplanation(
        table=session.name,
        snapshot_id=None if snapshot is None else snapshot.id,
        key=shown,
        versions=pa.concat_tables(versions) if versions else empty,
        row=holders[0].row if holders else None,
        rule=row_rule_text(schema),
        column_rules=column_rule_texts(schema),
        verdict=verdict,
    )


@record
class _Version:
    """One stored row of the key: a batch of one row, and the file that holds it.

    `deleted`: a deletion vector of the snapshot names it.
    """

    file: DataFileMeta
    run: int
    row: pa.RecordBatch
    deleted: bool

    @property
    def sequence_number(self) -> int:
        """The row's sequence number."""
        return int(self.row.column(SEQUENCE_NUMBER)[0].as_py())


@record
class _KeyBucket:
    """The versions of the key in one bucket, newest run last, and where their files came from."""

    place: Bucket
    versions: tuple[_Version, ...]
    origins: FileOrigins


@record
class _Explained:
    """The key's versions and outcome in one bucket."""

    versions: pa.Table
    row: Mapping[str, Any] | None
    verdict: str


@record
class _SoughtKey:
    """The key, as a batch of one row, and as a filter."""

    keys: pa.RecordBatch
    predicate: Predicate | None


def _buckets(session: TableSession, snapshot: Snapshot, keys: pa.RecordBatch) -> list[_KeyBucket]:
    sought = _SoughtKey(keys=keys, predicate=_predicate(session.schema, keys))
    matching = prune_files(session, snapshot, sought.predicate, sought.predicate).entries
    places = {(entry.partition, entry.bucket) for entry in matching}
    live = session.live_entries(snapshot, BucketScope(buckets=frozenset(places)))
    vectors = session.vector_places(snapshot)
    buckets = []
    for place in sorted(places):
        files = [entry.file for entry in live if (entry.partition, entry.bucket) == place]
        kept_files = {
            (entry.file.file_name, entry.file.level)
            for entry in matching
            if (entry.partition, entry.bucket) == place
        }
        versions = _versions(session, place, files, kept_files, sought, vectors.get(place, {}))
        if versions:
            stored = partial(_holds, session, place, sought)
            rows = {(version.file.file_name, version.sequence_number) for version in versions}
            origins = origins_of(session, snapshot, place, rows, stored)
            buckets.append(_KeyBucket(place=place, versions=tuple(versions), origins=origins))
    return buckets


def _predicate(schema: TableSchema, keys: pa.RecordBatch) -> Predicate | None:
    """Return the key as a filter, floats left out: as a key NaN equals NaN, in a filter it does not."""
    parts = [
        col(field.name) == keys.column(index)[0]
        for index, field in enumerate(keys.schema)
        if not pa.types.is_floating(field.type)
    ]
    return bind(AllOf(parts=tuple(parts)), schema.compared) if parts else None


def _versions(
    session: TableSession,
    place: Bucket,
    files: Sequence[DataFileMeta],
    kept_files: set[tuple[str, int]],
    sought: _SoughtKey,
    vectors: Mapping[str, VectorPlace],
) -> list[_Version]:
    """Return the versions in the files of a bucket, the oldest run first; which are hidden, too."""
    assert session.key_order is not None, "keys_of has refused tables without a key"
    levels = Levels.from_files(
        files, level_count=session.options.level_count, key_order=session.key_order
    )
    context = session.context(file.schema_id for file in files)
    all_rows, reader = (
        BucketReader(context, *place),
        BucketReader(context, *place, vectors.values()),
    )
    versions = []
    for number, run in reversed(list(enumerate(levels.runs))):
        for file in run.files:
            if (file.file_name, file.level) not in kept_files:
                continue
            stored, visible = (
                _rows_in(session.schema, source, file, sought) for source in (all_rows, reader)
            )
            # A vector takes rows out and leaves the rest as it is: what is seen is stored, too.
            versions += [
                _Version(file=file, run=number, row=row, deleted=not any(map(row.equals, visible)))
                for row in stored
            ]
    return versions


def _holds(
    session: TableSession, place: Bucket, sought: _SoughtKey, file: DataFileMeta, number: int
) -> bool:
    """Whether a file of a bucket has the key with a sequence number."""
    reader = BucketReader(session.context([file.schema_id]), *place)
    rows = _rows_in(session.schema, reader, file, sought)
    return any(row.column(SEQUENCE_NUMBER)[0].as_py() == number for row in rows)


def _rows_in(
    schema: TableSchema, reader: BucketReader, file: DataFileMeta, sought: _SoughtKey
) -> list[pa.RecordBatch]:
    """Return the rows of the key in a file, each as a batch."""
    keys = sought.keys
    rules = merge_rules(schema)
    fields = schema.select(schema.trimmed_primary_keys)
    columns = [keys.column(field.name) for field in fields]
    batch, _ = KeyBatch.from_columns(columns, [field.type for field in fields])
    names = (*schema.names, SEQUENCE_NUMBER, VALUE_KIND)
    return [
        row
        for rows in reader.file(file, names, matching=MatchingGroups(sought.predicate))
        for row in _rows_of_key(rows, rules, batch, keys)
    ]


def _rows_of_key(
    rows: pa.RecordBatch, rules: MergeRules, batch: KeyBatch, keys: pa.RecordBatch
) -> list[pa.RecordBatch]:
    if not rows.num_rows:
        return []
    location = locate(
        SearchKeys.from_sort_keys(rules.keys(rows)), batch.search, np.zeros(1, np.int64)
    )
    first, last = int(location.first[0]), int(location.last[0])
    candidates = [rows.slice(index, 1) for index in range(first, last + 1)]
    other_columns = [name for name in keys.schema.names if name not in rules.key_columns]
    return [
        row
        for row in candidates
        if row.select(other_columns).to_pylist() == keys.select(other_columns).to_pylist()
    ]


def _explained(session: TableSession, bucket: _KeyBucket) -> _Explained:
    schema, rules = session.schema, merge_rules(session.schema)
    above_zero = read_mode(schema) is ReadMode.ABOVE_LEVEL_0
    visible = [version for version in bucket.versions if not version.deleted]
    levels = [version.file.level for version in visible if version.file.level > 0]
    youngest = min(levels, default=0) if rules.newest_stands else max(levels, default=0)
    read = [
        version
        for version in visible
        if version.file.level <= youngest and not (above_zero and version.file.level == 0)
    ]
    read_ids = set(map(id, read))
    unread = [version for version in bucket.versions if id(version) not in read_ids]
    rows = [version.row for version in read]
    order = merge_order([rules.keys(row) for row in rows], [rules.ranks(row) for row in rows])
    ordered = [read[index] for index in order.run.tolist()]
    outcome = outcome_of(schema, rules.function, order, rows)
    return _Explained(
        versions=_as_table(session, bucket, [*ordered, *unread], outcome),
        row=outcome.row,
        verdict=outcome.verdict,
    )


def _unread(version: _Version) -> str:
    if version.deleted:
        return _DELETED
    return _UNREAD if version.file.level == 0 else _STOOD_FOR


def _as_table(
    session: TableSession, bucket: _KeyBucket, versions: Sequence[_Version], outcome: KeyOutcome
) -> pa.Table:
    partition = session.context().partition_path(bucket.place[0])
    facts = []
    for index, version in enumerate(versions):
        sequence = version.sequence_number
        read = index < len(outcome.verdicts)
        facts.append(
            {
                POSITION: index,
                "_row_kind": RowKind(version.row.column(VALUE_KIND)[0].as_py()).symbol,
                "_sequence_number": sequence,
                "_partition": partition,
                "_bucket": bucket.place[1],
                "_level": version.file.level,
                "_run": version.run,
                "_file_name": version.file.file_name,
                "_file_snapshot_id": bucket.origins.file_snapshots.get(version.file.file_name),
                "_snapshot_id": bucket.origins.writer_of(sequence),
                "_gives": list(outcome.gives[index]) if read else [],
                "_verdict": outcome.verdicts[index] if read else _unread(version),
            }
        )
    table = pa.Table.from_pylist(facts, schema=FACTS)
    names = session.schema.names
    values = pa.Table.from_batches([item.row.select(names) for item in versions])
    for name in names:
        table = table.append_column(session.schema.arrow.field(name), values.column(name))
    return table


# -- Explain a data file ---------------------------------------------------------------------------
#
# The commit that added it, the compaction that deleted it, and the references that pin it.

_DATA, _CHANGELOG = "data", "changelog"


def explain_file(session: TableSession, file_name: str) -> FileExplanation:
    """Return the life of a data or changelog file, by its name or path.

    Raises NotFoundError if no snapshot, tag or branch names it.
    """
    name = file_name.rpartition("/")[2]
    snapshots = session.snapshots.all()
    tags = {tag.name: tag.snapshot for tag in session.tags.list()}
    mentions = _mentions(session, snapshots, name)
    held_by = {tag: state for tag, root in tags.items() if (state := _state(session, root, name))}
    listed = [entry for mention in mentions for entry in mention.entries]
    listed += [entry for entries in held_by.values() for entry in entries]
    changelog = [] if listed else _changelog(session, snapshots, name)
    branches = _branches(session, name)
    if not listed:
        # A branch may keep what this one has let go.
        listed = [entry for entries in branches.values() for entry in entries]
    if not listed and not changelog:
        raise NotFoundError(
            "no snapshot, tag or branch names this file; if it is on disk, it is an orphan, or its "
            "snapshots have expired (the catalog's lineage may remember: lsm show life)",
            kind=ErrorKind.NO_SUCH_FILE,
            table=session.name,
            file=name,
        )
    if changelog:
        listed = [entry for _, entry in changelog]
    newest = listed[-1]
    stages = _stages(mentions, changelog)
    ids = [snapshot.id for snapshot in snapshots]
    snapshot_ids = tuple(s.id for s, _ in changelog) if changelog else holding(stages, ids)
    context = session.context()
    file_io, stored_path = context.place_of((newest.partition, newest.bucket), newest.file)
    made_from, became = _relatives(session, mentions, name)
    return FileExplanation(
        table=session.name,
        partition=context.partition_path(newest.partition),
        bucket=newest.bucket,
        path=session.data_path(newest),
        content=_CHANGELOG if changelog else _DATA,
        file=newest.file,
        is_stored=file_io.exists(stored_path),
        is_live=not changelog and bool(ids) and ids[-1] in snapshot_ids,
        stages=stages,
        made_from=made_from,
        became=became,
        snapshots=snapshot_ids,
        tags=tuple(sorted(held_by)),
        branches=tuple(branches),
    )


@record
class _Mention:
    """Entries about the file in one delta list; `snapshot` None: in the oldest snapshot's base."""

    snapshot: Snapshot | None
    entries: tuple[ManifestEntry, ...]


def _mentions(session: TableSession, snapshots: Sequence[Snapshot], name: str) -> list[_Mention]:
    mentions = []
    if snapshots:
        base = _entries_of_file(session, snapshots[0], snapshots[0].base_manifest_list, name)
        mentions.append(_Mention(snapshot=None, entries=tuple(_live(base))))
    for snapshot in snapshots:
        entries = _entries_of_file(session, snapshot, snapshot.delta_manifest_list, name)
        mentions.append(_Mention(snapshot=snapshot, entries=tuple(entries)))
    return [mention for mention in mentions if mention.entries]


def _branches(session: TableSession, name: str) -> dict[str, list[ManifestEntry]]:
    """Return the entries of the other branches that hold the file, main among them for a branch."""
    branches = {}
    for branch in other_branches(session):
        snapshots = branch.snapshots.all()
        mentions = _mentions(branch, snapshots, name)
        entries = [
            entry for tag in branch.tags.list() for entry in _state(branch, tag.snapshot, name)
        ]
        if holding(_stages(mentions, ()), [snapshot.id for snapshot in snapshots]):
            entries += [entry for mention in mentions for entry in mention.entries]
        if entries:
            branches[branch.paths.branch_name or MAIN_BRANCH] = entries
    return branches


def _entries_of_file(
    session: TableSession, snapshot: Snapshot, list_name: str, name: str
) -> list[ManifestEntry]:
    """Return the entries about a file; one made object per entry found, not per entry there."""
    entries: list[ManifestEntry] = []
    for meta in session.manifest_list(snapshot, list_name):
        rows = session.manifests.read(meta)
        if rows.num_rows:
            hit = rows.filter(pc.equal(rows.column(FILE_NAME), pa.scalar(name)))
            entries += entries_of(hit) if hit.num_rows else []
    return entries


def _live(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    listed = list(entries)
    deleted = {entry.identity for entry in listed if entry.kind is EntryKind.DELETE}
    return [
        entry for entry in listed if entry.kind is EntryKind.ADD and entry.identity not in deleted
    ]


def _state(session: TableSession, snapshot: Snapshot, name: str) -> list[ManifestEntry]:
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return _live(
        entry
        for list_name in lists
        for entry in _entries_of_file(session, snapshot, list_name, name)
    )


def _changelog(
    session: TableSession, snapshots: Sequence[Snapshot], name: str
) -> list[tuple[Snapshot, ManifestEntry]]:
    return [
        (snapshot, entry)
        for snapshot in snapshots
        if snapshot.changelog_manifest_list is not None
        for entry in _entries_of_file(session, snapshot, snapshot.changelog_manifest_list, name)
    ]


def _stages(
    mentions: Sequence[_Mention], changelog: Sequence[tuple[Snapshot, ManifestEntry]]
) -> tuple[FileStage, ...]:
    """Return one stage per level that the file lay on, in time."""
    open_stages: dict[int, Commit | None] = {}
    done: list[FileStage] = []
    for mention in mentions:
        commit = None if mention.snapshot is None else _commit(mention.snapshot)
        # An upgrade deletes the file on one level and adds it on another in one commit.
        for entry in sorted(mention.entries, key=lambda item: item.kind is EntryKind.ADD):
            level = entry.file.level
            if entry.kind is EntryKind.ADD:
                open_stages[level] = commit
            else:
                done.append(
                    FileStage(level=level, added_by=open_stages.pop(level, None), deleted_by=commit)
                )
    done += [
        FileStage(level=level, added_by=commit, deleted_by=None)
        for level, commit in open_stages.items()
    ]
    done += [
        FileStage(level=entry.file.level, added_by=_commit(snapshot), deleted_by=None)
        for snapshot, entry in changelog
    ]
    return tuple(done)


def _commit(snapshot: Snapshot) -> Commit:
    return Commit(
        snapshot_id=snapshot.id,
        kind=snapshot.commit_kind.value,
        time_millis=snapshot.time_millis,
    )


def _relatives(
    session: TableSession, mentions: Sequence[_Mention], name: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what compactions made the file from, and what others made of it."""
    made_from: set[str] = set()
    became: set[str] = set()
    for mention in mentions:
        if mention.snapshot is None or mention.snapshot.commit_kind is not CommitKind.COMPACT:
            continue
        place = (mention.entries[0].partition, mention.entries[0].bucket)
        entries = _delta_of(session, mention.snapshot, place)
        edges = file_edges(bucket_compactions(entries), session.key_order)
        made_from |= {edge.source_name for edge in edges if edge.target_name == name}
        became |= {edge.target_name for edge in edges if edge.source_name == name}
    return tuple(sorted(made_from - {name})), tuple(sorted(became - {name}))


# -- Simulate a retention --------------------------------------------------------------------------
#
# What would be readable, freed and pinned by what. Deletes nothing.

_NUMBERED = re.compile(r"^(snapshot|changelog) \d+")


@record
class _At:
    """A clock that always returns `millis`."""

    millis: int
    clock: Clock

    def now_millis(self) -> int:
        """Return the time that is asked about."""
        return self.millis

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        """Return the wall clock of now."""
        return self.clock.local_time()

    def sleep_millis(self, millis: int) -> None:
        """Nothing here waits."""
        raise AssertionError(millis)


def simulate_retention(
    session: TableSession, retention: Retention, *, later_millis: int = 0
) -> RetentionSimulation:
    """Return what expiry would do with a retention, repeated until nothing more would go.

    `later_millis`: as if that much time had passed without a commit.
    """
    if later_millis < 0:
        raise InvalidInputError("only the future can be simulated", later_millis=later_millis)
    unlimited = replace(retention, expire_limit=NO_LIMIT)
    at_millis = session.clock.now_millis() + later_millis
    clock = _At(millis=at_millis, clock=session.clock)
    then = session.with_components(replace(session.components, clock=clock))
    report = expire(then, unlimited, dry_run=True)
    expired = {snapshot.id for snapshot in report.plan.expired}
    snapshots = session.snapshots.stable_listing()
    retained = [snapshot for snapshot in snapshots if snapshot.id not in expired]
    newest_entries = session.live_entries(snapshots[-1], columns=WITHOUT_STATS) if snapshots else ()
    newest_files = {entry.physical_file for entry in newest_entries}

    # Deltas would not do: tags and branches keep files of snapshots that expired long ago.
    history: dict[str, dict[PhysicalFile, int]] = {}
    for reference in References(session).retained_by_all(retained, besides=report.tags):
        sizes = history.setdefault(_NUMBERED.sub(r"\1s", reference.name), {})
        for entry in reference.entries:
            if entry.kind is EntryKind.ADD and entry.physical_file not in newest_files:
                sizes[entry.physical_file] = entry.file.file_size
    return RetentionSimulation(
        table=session.name,
        retention=retention,
        at_millis=at_millis,
        readable=tuple(snapshot.id for snapshot in retained),
        tags=tuple(tag.name for tag in session.tags.list() if tag.name not in report.tags),
        expired_tags=report.tags,
        plan=report.plan,
        changelogs=report.changelogs,
        pins=pins_of(history),
    )


# -- Explain a row: the commits that are in it, with their runs, and the input snapshots they read --


@record
class RowOrigin:
    """One row: its versions (`explanation`), and where those that count came from (`origin`)."""

    explanation: KeyExplanation
    origin: "Origin"


def row_origin(
    session: TableSession,
    snapshot: Snapshot | None,
    key: Mapping[str, Any],
    lineage: "Lineage",
    table: "TableName",
) -> RowOrigin:
    """Return which runs and input snapshots a row is made of, in a snapshot.

    A version counts if it gave the row a value. Commits that have expired are known from the
    lineage; a version of which even that knows nothing has no commit.
    """
    explanation = explain_key(session, snapshot, key)
    commits = set()
    for version in explanation.versions.to_pylist():
        if not version["_gives"]:
            continue
        writer = version["_snapshot_id"]
        if writer is None:
            writer = _remembered(lineage, table, version)
        if writer is not None:
            commits.add(writer)
    return RowOrigin(explanation=explanation, origin=lineage.origin_of_commits(table, commits))


def _remembered(lineage: "Lineage", table: "TableName", version: Mapping[str, Any]) -> int | None:
    sequence = [version["_sequence_number"]]
    return lineage.writers_of(table, version["_partition"], version["_bucket"], sequence)[0]
