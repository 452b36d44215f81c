"""Partitions under the I/O manager: which rows a run replaces, which a reader is given, what retries repeat."""

from datetime import date, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets import io_manager
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.recording import recorded_versions
from lsm_engine import CommitKind
from tests.dagster.lake import MARKS, version_id
from tests.dagster.test_table_io import ORDERS, TAKEN, Io, taken_as
from tests.dagster.test_table_io import io as io  # the fixture

pytestmark = [
    *MARKS,
    pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`"),  # a beta of Dagster
]
DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-01-04")
FIRST, SECOND, THIRD = "2024-01-01", "2024-01-02", "2024-01-03"
BY_DAY = {"lsm/primary_key": "day, id", "lsm/partition_columns": {"day": "{key}"}}
OF_TABLE = {**BY_DAY, "lsm/partitioned_by": "day"}
SPAN = {
    "dagster/asset_partition_range_start": FIRST,
    "dagster/asset_partition_range_end": THIRD,
}


def of_days(days: list[str]) -> pa.Table:
    return pa.table({"day": pa.array(days, pa.string()), "id": pa.array([1] * len(days))})


def orders_of(empty: set[str], metadata: dict[str, Any], **how: Any) -> dg.AssetsDefinition:
    @dg.asset(key=ORDERS, partitions_def=DAYS, metadata=metadata, **how)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return of_days([day for day in context.partition_keys if day not in empty])

    return orders


def days_read(io: Io, *, wanted: Any = pa.Table, day: str, upstream: Any, **how: Any) -> list[str]:
    seen: list[Any] = []
    made = taken_as(wanted, seen, DAYS, **how)
    io.run(upstream, made, selection=["shop/reader"], partition_key=day)
    rows = TAKEN[wanted](seen[0]) if not isinstance(seen[0], lsm.Scan) else seen[0].to_arrow()
    return sorted(rows["day"].to_pylist())


def test_a_range_replaces_partitions_for_which_no_rows_come(io: Io) -> None:
    empty: set[str] = set()
    how = {"backfill_policy": dg.BackfillPolicy.single_run()}
    orders = orders_of(empty, {**OF_TABLE, "lsm/mode": "overwrite"}, **how)
    io.run(orders, tags=SPAN)
    empty.add(SECOND)
    io.run(orders, tags=SPAN)
    assert [row["day"] for row in io.rows(by="day")] == [FIRST, THIRD]
    kinds = [each.commit_kind for each in io.table().snapshots()]
    assert kinds.count(CommitKind.OVERWRITE) == 2


@pytest.mark.parametrize("metadata", [BY_DAY, {"lsm/primary_key": "day, id"}])
def test_a_partition_that_shares_a_directory_is_not_overwritten(
    io: Io, metadata: dict[str, Any]
) -> None:
    with pytest.raises(lsm.InvalidInputError, match="lsm/partitioned_by"):
        io.run(orders_of(set(), {**metadata, "lsm/mode": "overwrite"}), partition_key=FIRST)
    assert io.table() is None
    for day in (FIRST, SECOND):
        io.run(orders_of(set(), metadata), partition_key=day)
    with pytest.raises(lsm.InvalidInputError, match="mode upsert"):
        io.run(orders_of(set(), {**metadata, "lsm/mode": "overwrite"}), partition_key=FIRST)
    assert len(io.rows(by="day")) == 2


REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
HOURS = dg.HourlyPartitionsDefinition(start_date="2024-01-01-00:00", end_date="2024-01-03-00:00")
WITHIN_A_DAY = {
    "regions": (dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}), {}, "{}|eu", "{}|us"),
    "hours": (HOURS, {"day": "{key:%Y-%m-%d}"}, "{}-22:00", "{}-23:00"),
    "spans of hours": (HOURS, {"day": "{key}"}, "{}-22:00", "{}-23:00"),
}  # fmt: skip


@pytest.mark.parametrize("case", WITHIN_A_DAY)
def test_partitions_of_one_day_do_not_overwrite_each_other(io: Io, case: str) -> None:
    definition, columns, *keys = WITHIN_A_DAY[case]
    told = {"lsm/primary_key": "day, id", "lsm/partitioned_by": "day"}
    named = {"lsm/partition_columns": columns} if columns else {}

    def run(mode: str, number: int, **metadata: Any) -> None:
        @dg.asset(
            key=ORDERS, partitions_def=definition, metadata={**told, **metadata, "lsm/mode": mode}
        )
        def orders() -> pa.Table:
            return pa.table({"day": [date(2024, 1, 1)], "id": [number]})

        io.run(orders, partition_key=keys[number].format(FIRST))

    run("upsert", 0)
    if "span" in case:
        with pytest.raises(lsm.InvalidInputError, match="shorter than a day"):
            run("upsert", 1, **named)
    with pytest.raises(
        lsm.InvalidInputError,
        match="shorter than a day" if "span" in case else "rows of other partitions",
    ):
        run("overwrite", 1, **named)
    assert [row["id"] for row in io.rows()] == [0]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_a_template_that_a_partition_column_cannot_hold_is_told_before_the_commit(
    io: Io, mode: str
) -> None:
    """The rows were committed, and then the run failed, each time."""

    def run(template: str) -> dg.ExecuteInProcessResult:
        told = {"lsm/primary_key": "hour, id", "lsm/partitioned_by": "hour", "lsm/mode": mode}
        named = {"lsm/partition_columns": {"hour": template}}

        @dg.asset(key=ORDERS, partitions_def=HOURS, metadata={**told, **named})
        def orders() -> pa.Table:
            return pa.table({"hour": [datetime(2024, 1, 1, 22)], "id": [1]})  # noqa: DTZ001 -- as the column

        return io.run(orders, partition_key=f"{FIRST}-22:00")

    with pytest.raises(lsm.InvalidInputError, match=r"such as {key:%Y-%m-%d %H:%M:%S}") as told:
        run("{key:%d.%m.%Y %H}")
    assert told.value.facts["templates"] == {"hour": "{key:%d.%m.%Y %H}"}
    assert io.table().snapshot_ids() == []
    for template in ("{key:%Y-%m-%d %H:%M:%S}", "{key}"):  # the span of the hour
        assert run(template).success
    assert len(io.rows()) == 1


def test_days_that_begin_at_two_are_overwritten_one_by_one(io: Io) -> None:
    days = dg.DailyPartitionsDefinition(start_date=FIRST, hour_offset=2)

    @dg.asset(key=ORDERS, partitions_def=days, metadata={**OF_TABLE, "lsm/mode": "overwrite"})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"day": [date.fromisoformat(context.partition_key)], "id": [1]})

    for day in (FIRST, SECOND, FIRST):
        io.run(orders, partition_key=day)
    assert [str(row["day"]) for row in io.rows(by="day")] == [FIRST, SECOND]


def test_a_month_replaces_the_days_that_it_has(io: Io) -> None:
    made = [1, 2, 3]

    @dg.asset(
        key=ORDERS,
        partitions_def=dg.MonthlyPartitionsDefinition(start_date="2024-01-01"),
        metadata={**OF_TABLE, "lsm/mode": "overwrite"},
    )
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        month = int(context.partition_key[5:7])
        return pa.table({"day": [date(2024, month, day) for day in made], "id": [1] * len(made)})

    for month in ("2024-01-01", "2024-02-01"):
        io.run(orders, partition_key=month)
    made.pop()
    io.run(orders, partition_key="2024-01-01")
    assert [str(row["day"]) for row in io.rows(by="day")] == [
        *("2024-01-01", "2024-01-02"),
        *("2024-02-01", "2024-02-02", "2024-02-03"),
    ]


def test_an_asset_without_partitions_overwrites_the_table(io: Io) -> None:
    metadata = {"lsm/primary_key": "day, id", "lsm/partitioned_by": "day", "lsm/mode": "overwrite"}

    def run(days: list[str], **options: str) -> list[str]:
        @dg.asset(key=ORDERS, metadata={**metadata, "lsm/options": options})
        def orders() -> pa.Table:
            return of_days(days)

        io.run(orders)
        return [row["day"] for row in io.rows(by="day")]

    run([FIRST, SECOND])
    assert run([SECOND]) == [SECOND]
    io.table().alter(lsm.SetOption("dynamic-partition-overwrite", "true"))
    assert run([FIRST]) == [FIRST, SECOND]


def test_each_partition_of_a_run_has_the_version_of_its_own_rows(io: Io) -> None:
    """A range that changed one day made the readers of all its days stale."""
    made: dict[str, int] = {}

    @dg.asset(
        key=ORDERS,
        partitions_def=DAYS,
        metadata={**OF_TABLE, "lsm/options": {"write.skip-unchanged": "true"}},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def orders(context: dg.AssetExecutionContext) -> pa.Table | None:
        days = context.partition_keys
        return pa.table({"day": days, "id": [1] * len(days), "v": [made[day] for day in days]})

    seen: list[pa.Table] = []
    reader = taken_as(pa.Table, seen, DAYS)

    def versions(**how: Any) -> dict[str, int]:
        assert io.run(orders, reader, selection=[orders], **how).success
        found = recorded_versions(io.instance, ORDERS)
        return {day: version.snapshot_id for day, version in found.items()}

    made.update({FIRST: 1, SECOND: 1, THIRD: 1})
    assert versions(tags=SPAN) == {FIRST: 1, SECOND: 1, THIRD: 1}
    made[SECOND] = 2
    assert versions(tags=SPAN) == {FIRST: 1, SECOND: 2, THIRD: 1}
    outside = pa.table({"day": [THIRD], "id": [1], "v": [9]})
    io.table().upsert(outside)
    made[FIRST] = 3
    made[THIRD] = 9
    assert versions(tags=SPAN) == {FIRST: 4, SECOND: 2, THIRD: 3}
    last = io.instance.get_latest_materialization_event(ORDERS).asset_materialization
    assert version_id(last.tags["dagster/data_version"]) == 4
    assert last.metadata["dagster/table_name"].value == "shop.orders"
    assert versions(partition_key=SECOND) == {FIRST: 4, SECOND: 2, THIRD: 3}

    io.run(orders, reader, selection=[reader], partition_key=THIRD)
    assert seen[0]["v"].to_pylist() == [9]


def declared(**how: Any) -> TableDeclaration:
    schema = pa.schema(
        [pa.field("day", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False)]
    )
    return TableDeclaration(
        name="shop.orders", schema=schema, primary_key=("day", "id"), partitioned_by=("day",),
        partitions_def=DAYS, options={"bucket": "1"}, **how,
    )  # fmt: skip


@pytest.mark.parametrize("columns", [{"day": "{key}"}, {}])
def test_a_reader_of_a_declared_table_is_given_its_partition(io: Io, columns: Any) -> None:
    orders = lsm_table_assets(
        declared(partition_columns=columns),
        lambda context, table: of_days(context.partition_keys),
        backfill_policy=dg.BackfillPolicy.single_run(),
    ).assets[0]
    io.run(orders, tags=SPAN)
    assert days_read(io, day=SECOND, upstream=orders) == [SECOND]


def test_a_reader_of_a_partition_that_nothing_tells_of_is_given_all_with_a_warning(
    io: Io, capfd: pytest.CaptureFixture[str]
) -> None:
    orders = orders_of(set(), {"lsm/primary_key": "day, id"})
    for day in (FIRST, SECOND):
        io.run(orders, partition_key=day)
    assert days_read(io, day=SECOND, upstream=orders) == [FIRST, SECOND]
    assert "lsm/partition_columns" in capfd.readouterr().err


YESTERDAY = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def test_the_day_before_the_first_has_no_rows(io: Io) -> None:
    orders = orders_of(set(), OF_TABLE)
    io.run(orders, partition_key=FIRST)
    how = {"upstream": orders, "partition_mapping": YESTERDAY}
    assert days_read(io, day=SECOND, **how) == [FIRST]
    assert days_read(io, day=FIRST, **how) == []


@pytest.mark.parametrize("wanted", TAKEN, ids=str)
def test_an_asset_that_reads_itself_begins_with_no_rows(io: Io, wanted: Any) -> None:
    seen: list[Any] = []

    def orders(context: dg.AssetExecutionContext, orders: Any) -> pa.Table:
        seen.append(orders)
        return of_days([context.partition_key])

    has_empty = wanted not in (lsm.Scan, list(TAKEN)[-1])  # these two have none without a table
    orders.__annotations__["orders"] = wanted if has_empty else Any
    entry = dg.AssetIn(key=ORDERS, partition_mapping=YESTERDAY)
    made = dg.asset(key=ORDERS, partitions_def=DAYS, metadata=OF_TABLE, ins={"orders": entry})(
        orders
    )
    for day in (FIRST, SECOND):
        io.run(made, partition_key=day)
    wanted = wanted if has_empty else pa.Table
    assert [TAKEN[wanted](rows).num_rows for rows in seen] == [0, 1]


def test_nothing_to_write_leaves_the_version_as_it_is(io: Io) -> None:
    made = [of_days([FIRST]), None]

    @dg.asset(key=ORDERS, metadata={"lsm/primary_key": "id"})
    def orders():  # without a type, as it may return nothing
        return made.pop(0)

    events = [io.run(orders).asset_materializations_for_node("shop__orders")[0] for _ in "12"]
    first, second = (event.tags["dagster/data_version"] for event in events)
    assert first == second


def test_a_partition_without_anything_to_write_keeps_its_own_version(io: Io) -> None:
    """It had that of what others wrote last, to any partition, where a template spells its directory."""
    kept = {"lsm/primary_key": "month, id", "lsm/partitioned_by": "month"}
    told = {**kept, "lsm/partition_columns": {"month": "{key:%m}"}}
    months = dg.MonthlyPartitionsDefinition(start_date="2024-01-01", end_date="2024-03-01")
    made = [pa.table({"month": pa.array([1], pa.int32()), "id": [1]}), None]

    @dg.asset(key=ORDERS, partitions_def=months, metadata=told)
    def orders():  # without a type, as it may return nothing
        return made.pop(0)

    io.run(orders, partition_key=FIRST)
    io.table().upsert([{"month": 2, "id": 1}])
    io.run(orders, partition_key=FIRST)
    found = recorded_versions(io.instance, ORDERS)
    assert {key: version.snapshot_id for key, version in found.items()} == {FIRST: 1}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_step_that_is_tried_again_adds_its_rows_once(
    io: Io, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    survey = io_manager.inspect_table

    def fails_first(*args: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            raise dg.RetryRequested(max_retries=1)
        return survey(*args)

    sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    how = {"lsm/primary_key": "id", "lsm/options": sums} if mode == "upsert" else {}

    @dg.asset(key=ORDERS, metadata={**how, "lsm/mode": mode})
    def orders() -> pa.Table:
        return pa.table({"id": [1], "n": [5]})

    monkeypatch.setattr(io_manager, "inspect_table", fails_first)
    assert io.run(orders).success
    assert len(tries) == 2
    assert io.rows() == [{"id": 1, "n": 5}]
    io.run(orders)  # another run is no retry
    assert sum(row["n"] for row in io.rows()) == 10
