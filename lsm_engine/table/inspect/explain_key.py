"""Explain a key: every version that a snapshot's files hold, in merge order, and what decided."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.kernels.merge_runs import merge_order
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, locate
from lsm_engine.merge.rule_texts import column_rule_texts, row_rule_text
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import VectorPlace
from lsm_engine.meta.manifest import Bucket, BucketScope
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.key_history import FACTS, POSITION, KeyExplanation
from lsm_engine.plan.scan import ReadMode
from lsm_engine.prune.bind import bind
from lsm_engine.prune.predicate import Predicate
from lsm_engine.prune.where import AllOf, col
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.find.lookup_keys import keys_of
from lsm_engine.table.ground.added_columns import refuse_taken
from lsm_engine.table.ground.merge_rules import MergeRules, merge_rules, read_mode
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.inspect.file_origins import FileOrigins, origins_of
from lsm_engine.table.inspect.key_outcome import MARK, KeyOutcome, outcome_of
from lsm_engine.table.read.prune_files import prune_files
from lsm_engine.table.read.row_groups import MatchingGroups
from lsm_engine.table.read.split_read import BucketReader

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


def _buckets(session: TableSession, snapshot: Snapshot, keys: pa.RecordBatch) -> list[_KeyBucket]:
    predicate = _predicate(session.schema, keys)
    matching = prune_files(session, snapshot, predicate, predicate).entries
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
        versions = _versions(
            session, place, files, kept_files, keys, predicate, vectors.get(place, {})
        )
        if versions:
            stored = partial(_holds, session, place, keys, predicate)
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
    keys: pa.RecordBatch,
    predicate: Predicate | None,
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
                _rows_in(session.schema, source, file, keys, predicate)
                for source in (all_rows, reader)
            )
            # A vector takes rows out and leaves the rest as it is: what is seen is stored, too.
            versions += [
                _Version(file=file, run=number, row=row, deleted=not any(map(row.equals, visible)))
                for row in stored
            ]
    return versions


def _holds(
    session: TableSession,
    place: Bucket,
    keys: pa.RecordBatch,
    predicate: Predicate | None,
    file: DataFileMeta,
    number: int,
) -> bool:
    """Whether a file of a bucket has the key with a sequence number."""
    reader = BucketReader(session.context([file.schema_id]), *place)
    rows = _rows_in(session.schema, reader, file, keys, predicate)
    return any(row.column(SEQUENCE_NUMBER)[0].as_py() == number for row in rows)


def _rows_in(
    schema: TableSchema,
    reader: BucketReader,
    file: DataFileMeta,
    keys: pa.RecordBatch,
    predicate: Predicate | None,
) -> list[pa.RecordBatch]:
    """Return the rows of the key in a file, each as a batch."""
    rules = merge_rules(schema)
    fields = schema.select(schema.trimmed_primary_keys)
    columns = [keys.column(field.name) for field in fields]
    batch, _ = KeyBatch.from_columns(columns, [field.type for field in fields])
    names = (*schema.names, SEQUENCE_NUMBER, VALUE_KIND)
    return [
        row
        for rows in reader.file(file, names, matching=MatchingGroups(predicate))
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
