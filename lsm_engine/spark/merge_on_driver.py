"""MERGE, UPDATE and DELETE by the driver, where table and source are small: Spark computes expressions alone.

The rows are those of `table.write.merge`: keys looked up or the table scanned in this process. Of them only the
columns that an expression needs go to the JVM, in one job of one stage for each clause that has any; columns that are
taken from the source as they are never do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types

from lsm_engine.base.record import record
from lsm_engine.merge.retracts import deleted_columns
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.row_counts import RowCounts
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.spark.arrow_rows import arrow_schema_of, fitter, spark_schema
from lsm_engine.spark.driver_rows import driver_bytes, few_rows, is_plain, local_bytes
from lsm_engine.spark.jobs import collected_by
from lsm_engine.spark.merge_columns import Sides, direct_source, set_columns
from lsm_engine.spark.merge_frame import FrameMerge, frame_merge
from lsm_engine.spark.parquet_rows import parquet_frame
from lsm_engine.spark.plain_conditions import plain_condition
from lsm_engine.spark.plain_files import plain_files
from lsm_engine.spark.session import set_meanwhile
from lsm_engine.spark.split_rows import bytes_per_row
from lsm_engine.spark.statement import quoted
from lsm_engine.spark.store_assignment import stored, uses_ansi
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.scan_plan import ScanRequest
from lsm_engine.table.write.looked_up import StageOn
from lsm_engine.table.write.merge import MergePlan, staged
from lsm_engine.table.write.merge_clauses import (
    SOURCE,
    TARGET,
    Action,
    Clause,
    Computed,
    Frame,
    Match,
)

_ROW = "_lsm_row"
_TABLE_SHARE = 8
"""How many times the bytes of `spark.lsm.driver-bytes` the files of a table may have for the driver to merge."""
LOCAL_BYTES = "spark.sql.execution.arrow.localRelationThreshold"
"""Spark's own setting: rows in Arrow of fewer bytes become rows of the plan."""
_FEW_BYTES = "64kb"
_ROWS_AT_ONCE = 1 << 19
"""Rows of a table that one job of Spark computes expressions for."""


def driver_plan(
    plan: MergePlan,
    sides: Sides,
    spark: SparkSession,
    target: sql_types.StructType,
    source: sql_types.StructType,
    label: str,
) -> MergePlan:
    """Return a plan whose conditions and values are computed by Spark.

    Raises what Spark does for an expression that it cannot read, whether or not a row ever gets to it.
    """
    rows = FrameRows(
        sides=sides, spark=spark, schemas={TARGET: target, SOURCE: source}, label=label
    )
    clauses = tuple(_clause(clause, rows) for clause in plan.clauses)
    condition = None
    if plan.condition is not None:
        condition = _condition(plan.condition, rows, Match.MATCHED)
    return replace(plan, condition=condition, clauses=clauses)


def _clause(clause: Clause, rows: "FrameRows") -> Clause:
    condition = None
    if clause.condition is not None:
        condition = _condition(clause.condition, rows, clause.match)
    if clause.action is Action.DELETE:
        return replace(clause, condition=condition)
    target, source = rows.schemas[TARGET], rows.schemas[SOURCE]
    columns = set_columns(clause, rows.sides, target.names, source.names)
    given = rows.types(columns)
    is_ansi = uses_ansi(rows.spark)
    as_they_are, computed = {}, {}
    for name, value in columns.items():
        theirs = direct_source(clause, name, source.names)
        kind = given[name]
        if theirs is not None and kind.simpleString() == target[name].dataType.simpleString():
            as_they_are[name] = theirs
        else:
            computed[name] = stored(value, kind, target[name], is_ansi=is_ansi)
    if not computed and clause.values is None:
        return replace(clause, condition=condition)
    expressions = Expressions(rows, computed)
    values = {
        name: as_they_are[name]
        if name in as_they_are
        else Computed(
            evaluate=partial(expressions, name=name), needs=frozenset(expressions.columns)
        )
        for name in columns
    }
    return replace(clause, condition=condition, values=values)


def _condition(given: Any, rows: "FrameRows", match: Match) -> Computed:
    plain = plain_condition(given, rows.sides, rows.schemas, match)
    if plain is not None:
        return plain
    made = Condition(rows, rows.sides.condition(given, match))
    return Computed(evaluate=made, needs=frozenset(made.columns))


@record
class FrameRows:
    """Rows of a `Frame` as Spark has them: a struct of each side. `schemas`: of both sides, by TARGET and SOURCE."""

    sides: Sides
    spark: SparkSession
    schemas: Mapping[str, sql_types.StructType]
    label: str

    def template(self) -> DataFrame:
        """Return no rows, with all columns of both sides."""
        return self._structs(self._flat(None, self._all()), self._all(), [TARGET, SOURCE])

    def types(self, columns: Mapping[str, Column]) -> dict[str, sql_types.DataType]:
        """Return the types of expressions; Spark refuses those that do not give one value for each row."""
        one = sql.struct(*columns.values()).alias(
            ""
        )  # no generator may stand within another expression
        kind = self.template().select(_ROW, one).schema[""].dataType
        assert isinstance(kind, sql_types.StructType)
        return {name: field.dataType for name, field in zip(columns, kind.fields, strict=True)}

    def needed(self, columns: Mapping[str, Column]) -> set[str]:
        """Return which columns expressions need, named as `_flat` does."""
        if not columns:
            return set()
        made = self.template().select(*columns.values())
        plan = made._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 -- Spark tells it nowhere else
        if plan.nodeName() != "Project" or plan.children().apply(0).children().size():
            return self._all()
        found = plan.references().toSeq()
        return {found.apply(at).name() for at in range(found.size())} & self._all()

    def of(self, frame: Frame, needed: set[str]) -> DataFrame:
        """Return the rows of a frame, with their numbers and the columns that are needed."""
        there = [side for side in (TARGET, SOURCE) if frame.sides[side] is not None]
        return self._structs(self._flat(frame, needed), needed, there)

    def kept(
        self, target: DataFrame, condition: Column, needed: set[str], names: Sequence[str]
    ) -> DataFrame:
        """Return columns of those rows of the table for which a condition holds."""
        parts = (
            (
                sql.col(quoted(field.name))
                if name in needed
                else sql.lit(None).cast(field.dataType)
            ).alias(field.name)
            for name, field in self._named(TARGET)
        )
        kept = {f"_lsm_kept_{at}": sql.col(quoted(name)) for at, name in enumerate(names)}
        struct = sql.struct(*parts).alias(self.sides.target)
        rows = target.select(*(column.alias(name) for name, column in kept.items()), struct)
        return self.sides.widened(rows).where(condition).select(*kept).toDF(*names)

    def columns(self, needed: set[str]) -> list[str]:
        """Return which columns of the table are among those that are needed."""
        return [field.name for name, field in self._named(TARGET) if name in needed]

    def collected(self, rows: DataFrame) -> pa.Table:
        """Return rows, by one job."""
        return collected_by(rows.toArrow, self.spark, label=self.label)

    def _all(self) -> set[str]:
        return {name for side in (TARGET, SOURCE) for name, _ in self._named(side)}

    def _named(self, side: str) -> Iterator[tuple[str, sql_types.StructField]]:
        for at, field in enumerate(self.schemas[side].fields):
            yield f"_lsm_{side}_{at}", field

    def _flat(self, frame: Frame | None, needed: set[str]) -> DataFrame:
        """Return rows with the columns that are needed side by side, and the number of each row."""
        count = 0 if frame is None else frame.count
        columns: dict[str, Any] = {_ROW: pa.array(np.arange(count))}
        fields = [sql_types.StructField(_ROW, sql_types.LongType())]
        for side in (TARGET, SOURCE):
            rows = None if frame is None else frame.sides[side]
            for name, field in self._named(side):
                if name not in needed or (frame is not None and rows is None):
                    continue
                fields.append(sql_types.StructField(name, field.dataType))
                if rows is not None:
                    columns[name] = rows.column(field.name)
        schema = sql_types.StructType(fields)
        if frame is None:
            return self.spark.createDataFrame([], schema)
        whole = pa.table(columns).combine_chunks().to_batches()
        fit = fitter(arrow_schema_of(schema))
        # Up to 48 MB would be rows of the plan itself, which the planner goes through one by one; in tasks they are
        # computed with the code that Spark generates.
        with set_meanwhile(self.spark, LOCAL_BYTES, _FEW_BYTES):
            return self.spark.createDataFrame(pa.Table.from_batches([*map(fit, whole)]), schema)

    def _structs(self, flat: DataFrame, needed: set[str], there: list[str]) -> DataFrame:
        """Return flat rows as one column for each side; what nothing needs is null there."""
        columns = []
        for side in (TARGET, SOURCE):
            called = getattr(self.sides, side)
            if side in there:
                parts = (
                    (sql.col(name) if name in needed else sql.lit(None).cast(field.dataType)).alias(
                        field.name
                    )
                    for name, field in self._named(side)
                )
                columns.append(sql.struct(*parts).alias(called))
            elif self.schemas[side].fields:
                columns.append(sql.lit(None).cast(self.schemas[side]).alias(called))
            else:
                columns.append(sql.lit(None).alias(called))
        return self.sides.widened(flat.select(_ROW, *columns))


class Condition:
    """A condition that Spark looks at over a `Frame`: of what it computes the numbers of rows alone come back."""

    def __init__(self, rows: FrameRows, value: Column) -> None:
        self._rows = rows
        self.holds = sql.lit(True) & value  # noqa: FBT003 -- what is no condition is refused
        self.needed = rows.needed({"": self.holds})

    def __call__(self, frame: Frame) -> pa.Array:
        """Return for which rows it is true."""
        found = self._rows.of(frame, self.needed).where(self.holds).select(_ROW)
        true = np.zeros(frame.count, np.bool_)
        true[self._rows.collected(found).column(_ROW).to_numpy()] = True
        return pa.array(true)

    def kept(self, target: DataFrame, names: Sequence[str]) -> pa.Table:
        """Return columns of those rows of the table, which `target` has some columns of, for which it is true."""
        return self._rows.collected(self._rows.kept(target, self.holds, self.needed, names))

    @property
    def columns(self) -> list[str]:
        """The columns of the table that it needs."""
        return self._rows.columns(self.needed)


class Expressions:
    """Expressions that Spark computes over a `Frame`, all of them at once."""

    def __init__(self, rows: FrameRows, columns: Mapping[str, Column]) -> None:
        self._rows = rows
        self._columns = columns
        self._needed = rows.needed(columns)
        self._of: Frame | None = None
        self._found = pa.table({})

    @property
    def columns(self) -> list[str]:
        """The columns of the table that any of them needs."""
        return self._rows.columns(self._needed)

    def __call__(self, frame: Frame, name: str) -> pa.ChunkedArray:
        """Return the values of one of them."""
        if self._of is not frame:
            values = (value.alias(f"_{name}") for name, value in self._columns.items())
            rows = self._rows.of(frame, self._needed).select(_ROW, *values)
            found = self._rows.collected(rows).sort_by(_ROW)
            self._found = found.drop_columns(_ROW).rename_columns([*self._columns])
            self._of = frame
        return self._found.column(name)


class DriverMerge:
    """One MERGE, staged on each state that a commit is tried on: by the driver where it is small, else by executors.

    The source is evaluated once for all of them.
    """

    def __init__(self, merge: FrameMerge) -> None:
        self._merge = merge
        self._label = f"merge into {merge.session.name}"
        self._source: pa.Table | None = None
        self._plan: MergePlan | None = None
        if merge.source is None:  # an empty list names no columns
            self._source = merge.session.schema.arrow.empty_table()

    def __call__(
        self, session: TableSession, base: Snapshot | None
    ) -> tuple[Sequence[CommitMessage], RowCounts] | None:
        """Look at a state and write files on top of it; None where no row changes."""
        merge = self._on(session)
        if not self._takes(base):
            return merge(base)
        if self._source is None:
            assert merge.source is not None
            files = plain_files(merge.source, driver_bytes(merge.spark))
            self._source = (
                few_rows(merge.source, label=self._label) if files is None else files.table()
            )
            if self._source is None:
                return merge(base)
        if self._plan is None:
            schema = sql_types.StructType([]) if merge.source is None else merge.source.schema
            self._plan = driver_plan(
                merge.plan, merge.sides, merge.spark, merge.spark_schema, schema, self._label
            )
        found = None if base is None or merge.source is not None else self._found(base)
        if found is None:
            return staged(merge.session, self._source, self._plan, base, rows_at_once=_ROWS_AT_ONCE)
        everywhere = tuple(replace(clause, condition=None) for clause in self._plan.clauses)
        plan = replace(self._plan, clauses=everywhere)
        return staged(merge.session, self._source, plan, base, target=found)

    def _on(self, session: TableSession) -> FrameMerge:
        """Return the merge by the columns that the table has by now; raises as `frame_merge` does."""
        merge = self._merge
        if session.schema.id != merge.session.schema.id:
            names = [] if merge.source is None else merge.source.columns
            sides = Sides.of(session.schema, names, merge.sides.target, merge.sides.source)
            self._merge = frame_merge(session, merge.source, merge.plan, sides, merge.spark)
            self._plan = None
        return self._merge

    def _found(self, base: Snapshot) -> pa.Table | None:
        """Return the rows that the only clause takes, found by Spark's own reader; None where it cannot read them.

        None too where rows are so many that no condition may be trusted to leave few enough of them.
        """
        merge, plan = self._merge, self._plan
        assert plan is not None
        (clause, *more) = plan.clauses
        if more or clause.condition is None:
            return None
        assert isinstance(clause.condition, Computed)
        condition = clause.condition.evaluate
        if not isinstance(condition, Condition):
            return None
        whole = tuple(merge.session.schema.names)
        names = deleted_columns(merge.session.schema) if clause.action is Action.DELETE else whole
        read = tuple(dict.fromkeys((*names, *condition.columns)))
        columns = self._columns(read)
        row_bytes = bytes_per_row(arrow_schema_of(columns))
        if (base.total_record_count or 0) * row_bytes > local_bytes(merge.spark):
            return None
        # Not by the snapshot's id: that would be the past, with the columns of its time.
        request = ScanRequest(is_batch=False, columns=read)
        scan = Scan(merge.session.with_level_0(), request, base)
        target = parquet_frame(scan, columns, merge.spark)
        return None if target is None else condition.kept(target, names)

    def _takes(self, base: Snapshot | None) -> bool:
        """Whether the table is small, and the source, if there is one, is matched by the key as it is stored."""
        merge = self._merge
        most = driver_bytes(merge.spark) * _TABLE_SHARE
        is_light = bool(most) and base is not None and self._is_light(base)
        if is_light or not most or not is_plain(merge.spark_schema):
            return is_light
        if merge.source is not None and not (
            merge.plan.matches_on(merge.session.schema.primary_keys) and self._same_keys()
        ):
            return False
        if base is None:
            return True
        if (base.total_record_count or 0) > most:  # spares the look at the files
            return False
        return sum(entry.file.file_size for entry in merge.session.live_entries(base)) <= most

    def _is_light(self, base: Snapshot) -> bool:
        """Whether rows are deleted by a condition that needs no Spark: of the table only some columns are read, bit by bit."""
        merge = self._merge
        (clause, *more) = merge.plan.clauses
        if merge.source is not None or more or clause.action is not Action.DELETE:
            return False
        schemas = {TARGET: merge.spark_schema, SOURCE: sql_types.StructType([])}
        plain = plain_condition(clause.condition, merge.sides, schemas, clause.match)
        if plain is None:
            return False
        names = {*deleted_columns(merge.session.schema), *plain.needs}
        row_bytes = bytes_per_row(arrow_schema_of(self._columns(names)))
        return (base.total_record_count or 0) * row_bytes <= local_bytes(merge.spark) * _TABLE_SHARE

    def _columns(self, names: Iterable[str]) -> sql_types.StructType:
        return spark_schema(self._merge.session.schema.select_read(names))

    def _same_keys(self) -> bool:
        assert self._merge.source is not None
        given, kinds = self._merge.source.schema, self._merge.spark_schema
        return all(
            given[theirs].dataType.simpleString() == kinds[mine].dataType.simpleString()
            and not isinstance(kinds[mine].dataType, sql_types.FloatType | sql_types.DoubleType)
            for mine, theirs in self._merge.plan.on
        )


def staged_merge(
    session: TableSession, source: DataFrame | None, plan: MergePlan, sides: Sides, spark: Any
) -> StageOn:
    """Return what stages a MERGE of a DataFrame; raises as `frame_merge` does."""
    return DriverMerge(frame_merge(session, source, plan, sides, spark))
