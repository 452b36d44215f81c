"""MERGE of a DataFrame on Spark: nothing is collected but counts, and one commit holds all of it.

target      the keys' rows, looked up on executors, or a read of the pinned state and Spark's join
changes     each row that some clause takes, as it will be; kept by Spark, since it is used twice
checks      one job: counts, keys that change, keys that several rows change
stage       the write path of every DataFrame, on top of the pinned state
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types
from pyspark.storagelevel import StorageLevel

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.row_counts import RowCounts
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.spark.arrow_rows import arrow_schema_of, spark_schema
from lsm_engine.spark.jobs import collected
from lsm_engine.spark.join_lookups import joined_at
from lsm_engine.spark.locate import locate_dataframe
from lsm_engine.spark.merge_columns import CLAUSE, Sides, chosen, columns_of, whole_row, with_blanks
from lsm_engine.spark.parquet_rows import scanned_frame
from lsm_engine.spark.shared_storage import check_shared
from lsm_engine.spark.statement import quoted
from lsm_engine.spark.store_assignment import sql_name
from lsm_engine.table.find.locate import INSERT
from lsm_engine.table.ground.row_kinds import ROW_KIND_COLUMN
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.scan_plan import ScanRequest
from lsm_engine.table.table import Table
from lsm_engine.table.write.merge import LOOKED_UP_SHARE, MergePlan, check_merge, key_conflict
from lsm_engine.table.write.merge_clauses import Action
from lsm_engine.table.write.write import stage

_SHOWN = 3
_KIND = {Action.INSERT: "+I", Action.UPDATE: "+U", Action.DELETE: "-D"}
_MOVED = "_lsm_key_changes"
_JOINS = {
    (False, False): "inner",
    (True, False): "left",
    (False, True): "right",
    (True, True): "full",
}
"""Spark's join, by whether rows matter that only the source has, and that only the table has."""
_Counted = tuple[Sequence[CommitMessage], RowCounts]


@record
class FrameMerge:
    """One MERGE, staged again on each state that a commit is tried on. `source` None: no rows."""

    session: TableSession
    source: DataFrame | None
    plan: MergePlan
    sides: Sides
    spark: Any

    def __call__(self, base: Snapshot | None) -> _Counted | None:
        """Look at a state and write files on top of it; None where no row changes."""
        joined = self._joined(base)
        if joined is None:
            return None
        changes = self._changes(joined).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts, returns = self._checked(changes, base)
            if counts == RowCounts():
                return None
            rows = self._deletions_first(changes) if returns else changes
            return stage(self.session, rows.drop(_MOVED), base), counts
        finally:
            changes.unpersist()

    @property
    def _keys(self) -> list[str]:
        return list(self.session.schema.primary_keys)

    def _joined(self, base: Snapshot | None) -> DataFrame | None:
        """Return a column of rows of the table and one of rows of the source, null where there is none."""
        if self.source is None:
            target = self._target(base)
            return target and target.withColumn(self.sides.source, sql.lit(None))
        source = self.sides.widened(self.source.select(whole_row(self.source, self.sides.source)))
        target = self._target(base)
        if base is None or target is None:
            none = sql.lit(None).cast(self.spark_schema)
            return self.sides.widened(source.withColumn(self.sides.target, none))
        by_key = self.plan.matches_on(self._keys) and not self.plan.needs_table
        if by_key and self.plan.condition is None and self._keeps_keys and self._few(base):
            return self.sides.widened(self._looked_up(self.source, base))
        kinds = self.spark_schema
        on = [
            self.sides.column(self.sides.target, mine)
            == with_blanks(self.sides.column(self.sides.source, theirs), kinds[mine])
            for mine, theirs in self.plan.on
        ]
        if self.plan.condition is not None:
            on.append(self.sides.condition(self.plan.condition))
        inserts = any(clause.action is Action.INSERT for clause in self.plan.clauses)
        how = _JOINS[inserts, self.plan.needs_table]
        return source.join(target, reduce(Column.__and__, on), how)

    @property
    def _keeps_keys(self) -> bool:
        """Whether no key of the source becomes another one as the column's type, by `try_cast`.

        1.5 would be 1, a time its day. A number that is too great becomes null, which is no key.
        """
        if self.source is None:
            return True
        given = {field.name: field.dataType for field in self.source.schema.fields}
        kinds = {field.name: field.dataType for field in self.spark_schema.fields}
        return all(_keeps(given[theirs], kinds[mine]) for mine, theirs in self.plan.on)

    def _few(self, base: Snapshot) -> bool:
        assert self.source is not None
        most = (base.total_record_count or 0) // LOOKED_UP_SHARE
        return self.source.limit(most + 1).count() <= most

    def _looked_up(self, source: DataFrame, base: Snapshot) -> DataFrame:
        """Look the source's keys up on the executors: of the table nothing is read but what matches."""
        arrow = self.session.schema.arrow
        kinds = {field.name: field.dataType for field in self.spark_schema.fields}
        named = {mine: f"_lsm_key_{at}" for at, (mine, _) in enumerate(self.plan.on)}
        rows = source.select(
            whole_row(source, "_lsm_source"),
            *(
                sql.expr(f"try_cast({quoted(theirs)} AS {sql_name(kinds[mine])})").alias(
                    named[mine]
                )
                for mine, theirs in self.plan.on
            ),
        )
        found = joined_at(rows, self._table, named, arrow.names, base)
        there = sql.col(quoted(self._keys[0])).isNotNull()
        target = sql.struct(*(sql.col(quoted(name)) for name in arrow.names))
        return found.select(
            sql.col("_lsm_source").alias(self.sides.source),
            sql.when(there, target).alias(self.sides.target),
        )

    def _target(self, base: Snapshot | None) -> DataFrame | None:
        if base is None:
            return None
        # Not by the snapshot's id: that would be the past, with the columns of its time.
        scan = Scan(self.session.with_level_0(), ScanRequest(is_batch=False), base)
        frame = scanned_frame(scan, self.spark_schema, self.spark)
        return self.sides.widened(frame.select(whole_row(frame, self.sides.target)))

    @property
    def spark_schema(self) -> sql_types.StructType:
        """The table's columns as Spark has them."""
        return spark_schema(self.session.schema.read_fields)

    @property
    def _table(self) -> Table:
        return Table(self.session.with_level_0(), self.session.name)

    @property
    def _names(self) -> list[str]:
        return [] if self.source is None else self.source.columns

    def _changes(self, joined: DataFrame) -> DataFrame:
        """Return the rows that clauses take: the table's columns, the kind, whether a key changes."""
        number = chosen(self.plan, self.sides)
        kind = reduce(
            lambda made, at: made.when(sql.col(CLAUSE) == at[0], _KIND[at[1].action]),
            enumerate(self.plan.clauses[1:], start=1),
            sql.when(sql.col(CLAUSE) == 0, _KIND[self.plan.clauses[0].action]),
        )
        taken_rows = joined.withColumn(CLAUSE, number).where(sql.col(CLAUSE).isNotNull())
        columns = columns_of(self.plan, self.sides, self.spark_schema, self._names, taken_rows)
        moved = [
            ~columns[name].eqNullSafe(sql.col(f"{self.sides.target}.{quoted(name)}"))
            for name in self._keys
        ]
        changes = reduce(Column.__or__, moved)
        return taken_rows.select(
            *(column.alias(name) for name, column in columns.items()),
            kind.alias(ROW_KIND_COLUMN),
            sql.when(kind == "+U", changes).otherwise(False).alias(_MOVED),  # noqa: FBT003
        )

    def _checked(self, changes: DataFrame, base: Snapshot | None) -> tuple[RowCounts, bool]:
        """Return the counts, and whether keys are inserted that go at the same time."""
        found = self._counted(changes)
        if found["_lsm_moved"]:
            raise InvalidInputError(
                "an update would change a key; delete the row and insert another",
                kind=ErrorKind.INVALID_KEY,
                keys=[found["_lsm_moved_key"].asDict()],
            )
        if found["_lsm_many"]:
            raise InvalidInputError(
                f"several rows of the source would change {counted(found['_lsm_many'], 'row')} of the "
                "table that they match; keep one row of the source for each, or add a condition",
                kind=ErrorKind.INVALID_ROWS,
                keys=[found["_lsm_many_key"].asDict()],
            )
        if found["_lsm_twice"]:
            key = found["_lsm_twice_key"].asDict()
            raise key_conflict("of the same key as another", found["_lsm_twice"], [key])
        counts = RowCounts(
            inserted=found["_lsm_i"] or 0,
            updated=found["_lsm_u"] or 0,
            deleted=found["_lsm_d"] or 0,
        )
        is_free = self.plan.inserts_what_it_matches_on(self._keys) and self._keeps_keys
        if counts.inserted and base is not None and not is_free:
            self._refuse_taken(changes)
        return counts, bool(found["_lsm_back"])

    def _counted(self, changes: DataFrame) -> Row:
        """Return how many rows are inserted, updated and deleted, and how many keys are wrong, each with one."""
        kind = sql.col(ROW_KIND_COLUMN)
        keys = [quoted(name) for name in self._keys]
        each = changes.groupBy(*keys).agg(
            sql.count_if(kind == "+I").alias("_lsm_i"),
            sql.count_if(kind == "+U").alias("_lsm_u"),
            sql.count_if(kind == "-D").alias("_lsm_d"),
            sql.bool_or(_MOVED).alias("_lsm_m"),
        )
        i, u, d = (sql.col(name) for name in ("_lsm_i", "_lsm_u", "_lsm_d"))
        wrong = {
            "_lsm_moved": sql.col("_lsm_m"),
            "_lsm_many": u + d > 1,
            "_lsm_twice": (i > 1) | (i * u > 0),
        }
        summed = each.agg(
            *(sql.sum(name).alias(name) for name in ("_lsm_i", "_lsm_u", "_lsm_d")),
            sql.count_if(i * d > 0).alias("_lsm_back"),
            *(sql.count_if(test).alias(name) for name, test in wrong.items()),
            *(
                sql.min(sql.when(test, sql.struct(*keys))).alias(f"{name}_key")
                for name, test in wrong.items()
            ),
        )
        (found,) = collected(summed, label=f"merge into {self.session.name}")
        return found

    def _refuse_taken(self, changes: DataFrame) -> None:
        kind = sql.col(ROW_KIND_COLUMN)
        keys = list(map(quoted, self._keys))
        new = changes.where(kind == "+I")
        there = locate_dataframe(self._table, new.select(*_columns_to_locate(self.session)))
        there = there.where(sql.col("_action") != INSERT).select(*keys)
        there = there.join(changes.where(kind == "-D").select(*keys), self._keys, "left_anti")
        label = f"merge into {self.session.name}"
        rows = [row.asDict() for row in collected(there.limit(_SHOWN), label=label)]
        if rows:
            raise key_conflict("with keys that are there already", there.count(), rows)

    def _deletions_first(self, changes: DataFrame) -> DataFrame:
        """Order rows so that of a key that goes and comes again the insertion is the later one, which counts."""
        return changes.orderBy(sql.col(ROW_KIND_COLUMN) != "-D", *map(quoted, self._keys))


def frame_merge(
    session: TableSession, source: DataFrame | None, plan: MergePlan, sides: Sides, spark: Any
) -> FrameMerge:
    """Return what stages a MERGE on Spark; raises as `table.write.merge.merge` does."""
    arrow = session.schema.arrow if source is None else arrow_schema_of(source.schema)
    check_merge(session, plan, arrow.names, any_case=True)
    for clause in plan.clauses:
        given = {name.lower() for name in clause.values or arrow.names}
        lacking = [name for name in session.schema.primary_keys if name.lower() not in given]
        if clause.action is Action.INSERT and lacking:
            raise InvalidInputError(
                f"inserted rows need a value for key column {lacking[0]!r}",
                kind=ErrorKind.INVALID_KEY,
                column=lacking[0],
            )
    check_shared(spark, session.file_io)
    return FrameMerge(session=session, source=source, plan=plan, sides=sides, spark=spark)


def _keeps(given: sql_types.DataType, wanted: sql_types.DataType) -> bool:
    if given.simpleString() == wanted.simpleString():
        return True
    match given, wanted:
        case sql_types.DecimalType(), sql_types.DecimalType():
            return bool(given.scale == wanted.scale)
        case _:
            return isinstance(given, sql_types.IntegralType) and isinstance(
                wanted, sql_types.IntegralType
            )


def _columns_to_locate(session: TableSession) -> list[str]:
    schema = session.schema
    return [quoted(name) for name in dict.fromkeys((*schema.primary_keys, *schema.partition_keys))]
