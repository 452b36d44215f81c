"""Change events by key and sequence, applied to a table of the newest rows, or of all versions of them.

The names are those of Spark's AutoCDC. Events come in any order, late ones too, and a source may send them twice: the
table is what all events so far give in the order of their sequence. Events that leave no row, such as deletions, are
kept in a branch of the table, because a later one may be older than them.

type 1   a row for each key: `sequence.field` and the LSM tree choose the newest, and nothing is read but deletions
type 2   a row for each version of a key, from __START_AT up to __END_AT; the touched keys' versions are read
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.ddl.alter import alter
from lsm_engine.dml.merge import Frame, holds, sql_value
from lsm_engine.dml.merge_builder import held_rows
from lsm_engine.dml.write import Write, stage, upsert, write_looked_up
from lsm_engine.filter.where import AllOf, col
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.kernels.arrow_views import Bools, one_array, one_zero
from lsm_engine.kernels.changes import equal_rows, retracts
from lsm_engine.lookup.lookup import FOUND, TableQuery
from lsm_engine.options import core_options
from lsm_engine.options.modes import MergeEngine
from lsm_engine.planning.proposal import CommitIdentity, CommitOptions
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.table.branches import create as create_branch
from lsm_engine.table.branches import on_branch
from lsm_engine.table.incoming import ROW_KIND_COLUMN, conformed
from lsm_engine.table.names import names_of
from lsm_engine.table.session import TableSession
from lsm_engine.types.schema_changes import AddColumn
from lsm_engine.types.table_schema import TableSchema

START, END = "__START_AT", "__END_AT"
"""When a version begins and ends, in a table of type 2; the newest has no end."""
SEQUENCE = "__SEQUENCE"
"""The sequence of a row, in a table of type 1 that has no other column of it."""
KEPT = "auto_cdc"
"""The branch of a table that keeps the events which leave no row in it."""
ORIGIN, DELETES = "_lsm_origin", "_lsm_deletes"
IS_KEPT, IS_STORED, IS_NEW = range(3)
"""Where an event comes from, in the order in which those of one key and sequence count."""
_LISTED_KEYS = 1_000
"""More keys are looked for by their range."""


class AutoCdcOptions(TypedDict, total=False):
    """How the events of a source are applied; keyword arguments of `auto_cdc`, with the names of Spark's AutoCDC.

    `keys`: the columns that identify a row. `sequence_by`: the column, or SQL text, by which events are ordered.
    `apply_as_deletes`: a condition for events that delete; all others insert or replace. `column_list`: the columns to keep, or
    `except_column_list`: those to leave out. `stored_as_scd_type`: 1 (default): the newest row of each key; 2: every version.
    """

    keys: str | Sequence[str]
    sequence_by: Any
    apply_as_deletes: Any
    column_list: Sequence[str] | None
    except_column_list: Sequence[str] | None
    stored_as_scd_type: int | str


class AutoCdcWrite(AutoCdcOptions, CommitOptions, total=False):
    """The options of a flow, and who commits."""


@record
class AutoCdc:
    """The options of a flow, checked."""

    keys: tuple[str, ...]
    sequence_by: Any
    apply_as_deletes: Any
    column_list: tuple[str, ...] | None
    except_column_list: tuple[str, ...]
    is_history: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "AutoCdc":
        """Return the flow that the options describe; InvalidInputError names one that is wrong."""
        unknown = sorted({*options} - {*AutoCdcOptions.__annotations__})
        if unknown:
            raise InvalidInputError(
                f"auto_cdc has no argument {unknown[0]!r}; it takes {', '.join(AutoCdcOptions.__annotations__)}",
                argument=unknown[0],
            )
        keys = names_of(options.get("keys", ()), "keys")
        if not keys or options.get("sequence_by") is None:
            raise InvalidInputError("auto_cdc needs keys= and sequence_by=")
        column_list = options.get("column_list")
        except_column_list = options.get("except_column_list")
        left_out = () if except_column_list is None else except_column_list
        if column_list is not None and except_column_list is not None:
            raise InvalidInputError("give column_list= or except_column_list=, not both")
        scd_type = str(options.get("stored_as_scd_type", 1))
        if scd_type not in ("1", "2"):
            raise InvalidInputError("stored_as_scd_type is 1 or 2", given=scd_type)
        return cls(
            keys=keys,
            sequence_by=options["sequence_by"],
            apply_as_deletes=options.get("apply_as_deletes"),
            column_list=None if column_list is None else names_of(column_list, "column_list"),
            except_column_list=names_of(left_out, "except_column_list"),
            is_history=scd_type == "2",
        )

    def columns(self, source: Sequence[str]) -> list[str]:
        """Return the columns of a source that the table has; InvalidInputError for what the source has not."""
        listed = (*self.keys, *(self.column_list or ()), *self.except_column_list)
        missing = [name for name in listed if name not in source]
        if missing:
            raise InvalidInputError(
                f"the source has no column {missing[0]!r}; it has {', '.join(source)}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=missing[0],
            )
        columns = [
            name for name in self.column_list or source if name not in self.except_column_list
        ]
        if not {*self.keys} <= {*columns}:
            raise InvalidInputError(
                "the columns to keep have to include the keys", keys=[*self.keys], columns=columns
            )
        own_names = sorted({START, END, SEQUENCE, ROW_KIND_COLUMN}.intersection(columns))
        if own_names:
            raise InvalidInputError(
                f"column {own_names[0]!r} is the table's own: leave it out by except_column_list=",
                column=own_names[0],
            )
        return columns

    def sequence_column(self, columns: Sequence[str]) -> str:
        """Return the table's column that holds the sequence of a row."""
        if self.is_history:
            return START
        is_kept = isinstance(self.sequence_by, str) and self.sequence_by in columns
        return self.sequence_by if is_kept else SEQUENCE

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key of the table."""
        return (*self.keys, START) if self.is_history else self.keys

    def table_columns(self, source: pa.Schema, sequence_type: pa.DataType) -> pa.Schema:
        """Return the columns of the table; all but the key are nullable, as an event that deletes has no more."""
        names = self.columns(source.names)
        fields = [source.field(name).with_nullable(nullable=True) for name in names]
        if self.is_history:
            fields += [pa.field(START, sequence_type), pa.field(END, sequence_type)]
        elif self.sequence_column(names) == SEQUENCE:
            fields.append(pa.field(SEQUENCE, sequence_type))
        return pa.schema(fields)

    def table_options(self, columns: pa.Schema, options: Mapping[str, object]) -> dict[str, object]:
        """Return the options of the table."""
        if self.is_history:
            return dict(options)
        sequence = self.sequence_column(columns.names)
        return {core_options.SEQUENCE_FIELD.key: sequence, **options}

    def sequence_type(self, source: pa.Schema) -> pa.DataType:
        """Return the type of the sequence of rows with these columns."""
        return self._sequence_of(source.empty_table()).type

    def events(self, rows: pa.Table) -> pa.Table:
        """Return rows as events: the table's columns but __END_AT, and `_row_kind`, -D for a deletion."""
        names = self.columns(rows.column_names)
        sequence = self._sequence_of(rows)
        deletes = np.zeros(rows.num_rows, np.bool_)
        if self.apply_as_deletes is not None:
            deletes = holds(self.apply_as_deletes, Frame(None, rows))
        columns = {name: rows.column(name) for name in names}
        columns[self.sequence_column(names)] = sequence
        columns[ROW_KIND_COLUMN] = pc.if_else(pa.array(deletes), "-D", "+I")
        return pa.table(columns)

    def _sequence_of(self, rows: pa.Table) -> pa.ChunkedArray:
        if not isinstance(self.sequence_by, str):
            raise InvalidInputError(
                "sequence_by takes a column's name, or SQL text", given=repr(self.sequence_by)
            )
        if self.sequence_by in rows.column_names:
            return rows.column(self.sequence_by)
        frame = Frame(None, rows)
        value = sql_value(self.sequence_by).evaluate(frame.column, frame.count, frame.char_length)
        return pa.chunked_array([one_array(value)])

    def check_table(self, schema: TableSchema, columns: Sequence[str]) -> None:
        """Raise InvalidInputError for a table that this flow cannot be applied to."""
        needed = {core_options.MERGE_ENGINE.key: MergeEngine.DEDUPLICATE.value}
        engine = schema.options[core_options.MERGE_ENGINE]
        sequence = self.sequence_column(columns)
        is_ordered = self.is_history or schema.sequence_fields == (sequence,)
        if not self.is_history:
            needed[core_options.SEQUENCE_FIELD.key] = sequence
        keys_fit = {*schema.primary_keys} == {*self.primary_key}
        ends = not self.is_history or END in schema.names
        if engine.policy.keeps_newest_row and is_ordered and keys_fit and ends:
            return
        raise InvalidInputError(
            f"auto_cdc needs a table with the primary key {', '.join(self.primary_key)} and {needed}"
            f"{f' and a column {END}' if self.is_history else ''}: catalog.create_auto_cdc_table(…) makes one",
            kind=ErrorKind.INVALID_SCHEMA,
            primary_key=[*schema.primary_keys],
        )


def flow_and_commit(options: Mapping[str, Any]) -> tuple[AutoCdc, CommitOptions]:
    """Return the flow that keyword arguments describe, and the options of its commit."""
    names = CommitOptions.__annotations__
    commit = {name: value for name, value in options.items() if name in names}
    flow = {name: value for name, value in options.items() if name not in names}
    return AutoCdc.from_options(flow), cast("CommitOptions", commit)


def null_sequence(count: int) -> InvalidInputError:
    """Return the error for events that cannot be ordered."""
    return InvalidInputError(
        f"sequence_by is null in {counted(count, 'event')}: no order of them is known",
        kind=ErrorKind.INVALID_ROWS,
    )


# -- Apply events ----------------------------------------------------------------------------------


def auto_cdc(
    session: TableSession, source: Any, flow: AutoCdc, identity: CommitIdentity
) -> WriteResult | None:
    """Apply events to a table, in one commit; see `Table.auto_cdc`."""
    rows = held_rows(source, session.schema)
    if not rows.num_rows:
        return None
    return apply_events(session, flow.events(rows), flow, identity)


def apply_events(
    session: TableSession, events: pa.Table, flow: AutoCdc, identity: CommitIdentity
) -> WriteResult | None:
    """Apply what `AutoCdc.events` returns."""
    flow.check_table(session.schema, events.column_names)
    sequence = events.column(flow.sequence_column(events.column_names))
    if sequence.null_count:
        raise null_sequence(sequence.null_count)
    if flow.is_history:
        return write_looked_up(session, identity, partial(_staged_versions, flow, events))
    before = Write(session, identity).replayed()
    if before is not None:
        return before
    (sequence,) = session.schema.sequence_fields
    branch = kept_events(session)
    if branch is not None:
        with TableQuery(branch) as query:
            deletions = query.lookup(events.select(flow.keys), [*flow.keys, sequence])
        is_newer = pc.greater_equal(
            events.column(sequence).cast(deletions.schema.field(sequence).type),
            deletions.column(sequence),
        )
        events = events.filter(
            pc.or_(pc.invert(deletions.column(FOUND)), pc.fill_null(is_newer, fill_value=True))
        )
    # A compaction drops deletions, and an older event that comes after it must not bring the row back.
    is_deletion = pc.equal(events.column(ROW_KIND_COLUMN), "-D")
    if pc.any(is_deletion).as_py():
        keep_events(session, events.filter(is_deletion).select([*flow.keys, sequence]))
    return upsert(session, events, identity)


def kept_events(session: TableSession, *, create: bool = False) -> TableSession | None:
    """Open the branch of events that leave no row; None where there is none, and none is to be made.

    It gets the columns that the table has by now. Writes to it need no commit identifier: they are the same twice.
    """
    if session.paths.branch_name:
        raise UnsupportedError(
            "auto_cdc keeps events in a branch, and a branch has none: apply them to the table",
            table=session.name,
        )
    try:
        branch = on_branch(session, KEPT)
    except NotFoundError:
        if not create:
            return None
        with suppress(AlreadyExistsError):  # another flow makes it at this moment
            create_branch(session, KEPT)
        branch = on_branch(session, KEPT)
    columns = session.schema.arrow
    added = [
        AddColumn((name,), columns.field(name).type)
        for name in columns.names
        if name not in branch.schema.names
    ]
    return branch.with_schema(alter(branch, added)) if added else branch


def keep_events(session: TableSession, rows: Any) -> None:
    """Keep events that leave no row."""
    branch = kept_events(session, create=True)
    assert branch is not None
    upsert(branch, rows, CommitIdentity(commit_user=session.ids.new_id()))


def _staged_versions(
    flow: AutoCdc, events: pa.Table, session: TableSession, base: Snapshot | None
) -> tuple[Sequence[CommitMessage], RowCounts] | None:
    """Stage the versions that the events change on one state; None where they change none."""
    schema = session.schema
    incoming = [*conformed(events.to_reader(), schema)]
    rows = pa.Table.from_batches([batch.rows for batch in incoming])
    deletes = np.concatenate([retracts(batch.kinds.to_numpy()) for batch in incoming])
    keys = rows.select(flow.keys).group_by([*flow.keys], use_threads=False).aggregate([])
    parts = [
        with_origin(rows, IS_NEW, deletes),
        with_origin(_stored(session, base, keys), IS_STORED),
    ]
    branch = kept_events(session)
    if branch is not None:
        kept_rows = _stored(branch, branch.snapshots.latest(), keys).select(rows.column_names)
        parts.append(with_origin(kept_rows, IS_KEPT))
    changes = changed_versions(flow, pa.concat_tables(parts))
    is_kept = pc.is_null(changes.column(ROW_KIND_COLUMN))
    if pc.any(is_kept).as_py():
        keep_events(session, changes.filter(is_kept).drop_columns([ROW_KIND_COLUMN]))
    written = changes.filter(pc.invert(is_kept))
    if not written.num_rows:
        return None
    return stage(session, written, base), counts_of(
        {
            row["values"]: row["counts"]
            for row in written.column(ROW_KIND_COLUMN).value_counts().to_pylist()
        }
    )


def counts_of(kinds: Mapping[str, int]) -> RowCounts:
    """Return the counts of rows written, by their kinds."""
    return RowCounts(
        inserted=kinds.get("+I", 0), updated=kinds.get("+U", 0), deleted=kinds.get("-D", 0)
    )


def _stored(session: TableSession, base: Snapshot | None, keys: pa.Table) -> pa.Table:
    """Return the rows of a state whose first key columns are among these."""
    if base is None:
        return session.schema.arrow.empty_table()
    keys, tests = _with_one_zero(keys, keys.column_names), []
    for name in keys.column_names:
        values = keys.column(name)
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            continue  # a filter has no NaN
        if keys.num_rows <= _LISTED_KEYS:
            tests.append(col(name).is_in(pc.unique(values).to_pylist()))
        else:
            bounds = pc.min_max(values).as_py()
            tests.append(col(name).between(bounds["min"], bounds["max"]))
    key_filter = AllOf(parts=tuple(tests)) if tests else None
    rows = Scan(
        session.with_level_0(), ScanRequest(is_batch=False, where=key_filter), base
    ).to_arrow()
    # Arrow joins no nested columns: the keys alone are joined, with the numbers of their rows.
    numbered = _with_one_zero(rows.select(keys.column_names), keys.column_names).append_column(
        ORIGIN, pa.array(np.arange(rows.num_rows))
    )
    matches = numbered.join(keys, keys.column_names, join_type="left semi", use_threads=False)
    return rows.take(pa.array(np.sort(matches.column(ORIGIN).to_numpy())))


def _with_one_zero(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return rows with one zero and one NaN in the columns of their keys, which are one value each to a table."""
    for name in keys:
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.schema.field(name), one_zero(rows.column(name)))
    return rows


def with_origin(rows: pa.Table, origin: int, deletes: Bools | None = None) -> pa.Table:
    """Return rows as events: where they come from, and which of them delete. A deletion that is kept ends as it begins."""
    if origin == IS_KEPT:
        marked = pc.is_valid(rows.column(END))
    else:
        marked = pa.array(np.zeros(rows.num_rows, np.bool_) if deletes is None else deletes)
    origins = pa.array(np.full(rows.num_rows, origin, np.int8))
    nullable = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    rows = pa.Table.from_arrays(rows.columns, schema=nullable)
    return rows.append_column(ORIGIN, origins).append_column(DELETES, marked)


def changed_versions(flow: AutoCdc, events: pa.Table) -> pa.Table:
    """Return what all events of some keys change: rows of the table, and events to keep, whose `_row_kind` is null.

    `events`: the new ones, those that are kept, and the versions that are stored, each at its start. Of those of one key
    and sequence the last new one counts. An event opens a version if its values differ from the one before it; the version ends at the next
    one, or at a deletion.
    """
    events = _with_one_zero(events, flow.keys)
    places = [(name, "ascending") for name in (*flow.keys, START, ORIGIN)]
    rows = events.take(pc.sort_indices(events, places)).combine_chunks()
    if not rows.num_rows:
        return rows.drop_columns([ORIGIN, DELETES]).append_column(
            ROW_KIND_COLUMN, pa.array([], pa.string())
        )
    is_first = ~_equals_before(rows, [*flow.keys, START])
    firsts = np.flatnonzero(is_first)
    origins = rows.column(ORIGIN).to_numpy()
    has_row = np.logical_or.reduceat(origins == IS_STORED, firsts)
    rows = rows.take(pa.array(np.append(firsts[1:], rows.num_rows) - 1)).combine_chunks()
    origins, deletes = rows.column(ORIGIN).to_numpy(), rows.column(DELETES).to_numpy()
    is_same_key = _equals_before(rows, flow.keys)
    values = [
        name for name in rows.column_names if name not in (*flow.keys, START, END, ORIGIN, DELETES)
    ]
    follows = is_same_key & ~np.append(False, deletes[:-1])
    opens = ~deletes & ~(follows & _equals_before(rows, values))
    # A version ends where the next one begins, or its key is deleted.
    bounds = np.flatnonzero(opens | deletes)
    groups = np.cumsum(~is_same_key)
    following = np.full(len(opens), -1)
    following[bounds[:-1]] = np.where(groups[bounds[:-1]] == groups[bounds[1:]], bounds[1:], -1)
    ends = pa.array(following, mask=following < 0)
    starts = one_array(rows.column(START))
    ended = pc.if_else(pa.array(deletes), starts, starts.take(ends))
    is_unchanged = (origins == IS_STORED) & equal_rows([ended], [rows.column(END)], len(opens))
    is_lost = ~opens & (origins != IS_KEPT)
    kinds = np.where(has_row, "+U", "+I").astype(object)
    changes = rows.set_column(rows.column_names.index(END), END, ended).drop_columns(
        [ORIGIN, DELETES]
    )
    parts = [
        changes.filter(pa.array(mask)).append_column(
            ROW_KIND_COLUMN, pa.array(marks[mask], pa.string())
        )
        for mask, marks in (
            (opens & ~is_unchanged, kinds),
            (has_row & ~opens, np.full(len(opens), "-D", object)),
            (is_lost, np.full(len(opens), None, object)),
        )
    ]
    return pa.concat_tables(parts)


def _equals_before(rows: pa.Table, names: Sequence[str]) -> Bools:
    """Return which rows are equal to the row before them in these columns; the first is not."""
    count = rows.num_rows - 1
    columns = [one_array(rows.column(name)) for name in names]
    pairs = [[column.slice(first, count) for column in columns] for first in (0, 1)]
    return np.append(False, equal_rows(pairs[0], pairs[1], count))
