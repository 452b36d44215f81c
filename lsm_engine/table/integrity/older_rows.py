"""Rows of a lost file's keys that older states and changelogs still hold.

Only for merge engines that keep one version of a key: of others a row might count twice.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import LsmError
from lsm_engine.base.modes import EntryKind, FileSource, RowKind
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.codec.binary_row import decode_columns
from lsm_engine.mergetree.sections import sections
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.scan import Section
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Root, readable
from lsm_engine.table.integrity.origins import identity, is_there, older_versions
from lsm_engine.table.read.split_read import BucketReader
from lsm_engine.table.tags.roots import Roots


@record
class OlderRows:
    """What holds versions of a lost file's keys: files of an older root, and changelogs since then."""

    lost: ManifestEntry
    root: Root | None
    base: Snapshot | None
    files: tuple[ManifestEntry, ...]
    changelogs: tuple[ManifestEntry, ...]

    @property
    def row_count(self) -> int:
        """How many rows they have, at most as many as may be of the lost file's keys."""
        return sum(entry.file.row_count for entry in (*self.files, *self.changelogs))

    def __str__(self) -> str:
        shown = "" if self.root is None else str(self.root)
        if self.root is not None and self.root.branch:
            shown += f" of branch {self.root.branch!r}"
        changes = counted(len(self.changelogs), "changelog file") if self.changelogs else ""
        return " and ".join(text for text in (shown, changes) if text)


def older_rows(session: TableSession, lost: ManifestEntry, bad: frozenset[str]) -> OlderRows | None:
    """Return what has versions of a lost file's keys; None: nothing, or they might count twice."""
    engine = session.options[core_options.MERGE_ENGINE].policy
    has_vectors = session.options[core_options.DELETION_VECTORS_ENABLED]
    if session.key_order is None or engine.combines_versions or has_vectors:
        return None
    root, base, files = older_versions(session, lost, bad) or (None, None, ())
    changelogs = tuple(_changelogs(session, lost, bad, above=0 if base is None else base.id))
    if not files and not changelogs:
        return None
    return OlderRows(lost=lost, root=root, base=base, files=files, changelogs=changelogs)


def _changelogs(
    session: TableSession, lost: ManifestEntry, bad: frozenset[str], *, above: int
) -> Iterator[ManifestEntry]:
    """Yield changelog files of keys that were looked up when they changed: rows as they became."""
    order = session.key_order
    assert order is not None
    producer = session.options[core_options.CHANGELOG_PRODUCER].policy
    if not (producer.looks_up or producer.waits_for_full_compaction):
        return
    if any(
        pa.types.is_floating(arrow_type(session.schema.field(name).type)) for name in _keys(session)
    ):
        return  # Arrow orders NaN and zeros in another way
    listed = {
        **dict(readable(session.changelogs.ids(), session.changelogs.find)),
        **dict(readable(session.snapshots.listed_ids(), session.snapshots.find)),
    }
    for number in sorted(listed):
        if number <= above:
            continue
        try:
            entries = list(Roots(session).changelog_entries([listed[number]]))
        except LsmError:
            continue
        for entry in entries:
            path = session.data_path(entry)
            if (
                entry.kind is EntryKind.ADD
                and identity(entry)[:2] == identity(lost)[:2]
                and entry.file.min_sequence_number <= lost.file.max_sequence_number
                and order(entry.file.min_key) <= order(lost.file.max_key)
                and order(lost.file.min_key) <= order(entry.file.max_key)
                and path not in bad
                and is_there(session, entry)
            ):
                yield entry


def _keys(session: TableSession) -> list[str]:
    return list(session.schema.trimmed_primary_keys)


def write_older_rows(session: TableSession, older: OlderRows) -> list[DataFileMeta]:
    """Write them in the lost file's place: of each of its keys the version that counted last."""
    lost = older.lost
    tables = []
    for rows in merged_files(session, lost, older.base, older.files, drop_deletes=False):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        tables.append(_between(table, session.schema, lost.file))
    tables += _changed_rows(session, older)
    writer = session.context().new_files(
        lost.partition, lost.bucket, level=lost.file.level, source=FileSource.COMPACT
    )
    try:
        if tables:
            writer.write(_last_of_each(pa.concat_tables(tables), _keys(session)))
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _changed_rows(session: TableSession, older: OlderRows) -> Iterator[pa.Table]:
    """Yield what keys became, by changelogs, no newer than the lost file: newer files have the rest."""
    lost = older.lost
    reader = reader_of(session, lost, None, older.changelogs)
    names = (*session.schema.names, SEQUENCE_NUMBER, VALUE_KIND)
    for entry in older.changelogs:
        for batch in reader.file(entry.file, names):
            rows = pa.Table.from_batches([batch])
            not_newer = pc.less_equal(rows.column(SEQUENCE_NUMBER), lost.file.max_sequence_number)
            before = pc.equal(rows.column(VALUE_KIND), RowKind.UPDATE_BEFORE.value)
            rows = rows.filter(pc.and_(not_newer, pc.invert(before)))
            yield _between(rows, session.schema, lost.file)


def _last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the row of each key that has the greatest sequence number, in the order of the keys."""
    order = [(name, "ascending") for name in (*keys, SEQUENCE_NUMBER)]
    rows = rows.sort_by(order)
    if rows.num_rows < 2:
        return rows
    differs = np.zeros(rows.num_rows - 1, np.bool_)
    for name in keys:
        column = rows.column(name)
        differs |= pc.not_equal(column.slice(0, rows.num_rows - 1), column.slice(1)).to_numpy()
    return rows.filter(pa.array(np.append(differs, True)))


def merged_files(
    session: TableSession,
    entry: ManifestEntry,
    base: Snapshot | None,
    parts: Sequence[ManifestEntry],
    *,
    drop_deletes: bool,
) -> Iterator[pa.Table | pa.RecordBatch]:
    reader = reader_of(session, entry, base, parts)
    for section in sections_of(session, parts):
        yield from reader.merged(section, drop_deletes=drop_deletes)


def sections_of(session: TableSession, parts: Sequence[ManifestEntry]) -> list[Section]:
    """Return the sections of files of a bucket."""
    order = session.key_order
    assert order is not None
    file_sections = sections([part.file for part in parts], order)
    return [tuple(tuple(run.files) for run in section) for section in file_sections]


def reader_of(
    session: TableSession,
    entry: ManifestEntry,
    base: Snapshot | None,
    parts: Sequence[ManifestEntry],
) -> BucketReader:
    """Return a reader of files of a bucket without the rows that were deleted in `base`."""
    context = session.context({part.file.schema_id for part in parts})
    places = {} if base is None else session.vector_places(base).get(identity(entry)[:2], {})
    return BucketReader(context, entry.partition, entry.bucket, places.values())


def _between(rows: pa.Table, schema: TableSchema, file: DataFileMeta) -> pa.Table:
    """Return the rows whose keys lie between a file's first and last."""
    fields = schema.select(schema.trimmed_primary_keys)
    columns = [rows.column(field.name) for field in fields]
    low, high = (
        [
            bound[0].cast(column.type)
            for bound, column in zip(
                decode_columns(
                    pa.array([stored], pa.binary()), [field_of_key.type for field_of_key in fields]
                ),
                columns,
                strict=True,
            )
        ]
        for stored in (file.min_key, file.max_key)
    )
    return rows.filter(pc.and_(_beyond(pc.greater, columns, low), _beyond(pc.less, columns, high)))


def _beyond(
    compare: Callable[[Any, Any], Any],
    columns: Sequence[pa.ChunkedArray],
    bound: Sequence[pa.Scalar],
) -> Any:
    """Return which keys are the bound, or beyond it: the first column that differs decides."""
    mask: Any = pa.scalar(True)  # noqa: FBT003 -- pyarrow has no other spelling
    for column, value in reversed(list(zip(columns, bound, strict=True))):
        mask = pc.or_(compare(column, value), pc.and_(pc.equal(column, value), mask))
    return mask
