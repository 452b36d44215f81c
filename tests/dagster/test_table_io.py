"""The I/O manager: rows of every library both ways, modes of writing, partitions, columns, lineage."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.io_manager import LsmIOManager
from lsm_assets.resource import resources_from
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from tests.dagster.lake import MARKS, version_id
from tests.promised import missing

pytestmark = MARKS

ORDERS = dg.AssetKey(["shop", "orders"])
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
KEYED = {"lsm/primary_key": ["id"]}


@dataclass
class Io:
    """Assets on an I/O manager, run one at a time on one instance."""

    warehouse: Path
    instance: dg.DagsterInstance
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def wired(self) -> dict[str, Any]:
        wired = resources_from(settings_from({WAREHOUSE: str(self.warehouse), EXECUTOR: "local"}))
        return {"io_manager": LsmIOManager(lsm=wired["lsm"], **self.settings), **wired}

    def run(self, *assets: Any, **how: Any) -> dg.ExecuteInProcessResult:
        selection = how.pop("selection", None)
        return dg.materialize(
            list(assets), resources=self.wired, instance=self.instance, selection=selection, **how
        )

    def table(self, name: str = "shop.orders") -> lsm.Table:
        return self.wired["lsm"].existing_table(name)

    def rows(self, name: str = "shop.orders", by: str = "id") -> list[dict[str, Any]]:
        return self.table(name).scan().to_arrow().sort_by(by).to_pylist()


@pytest.fixture
def io(tmp_path: Path) -> Iterator[Io]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Io(tmp_path / "lake", instance)


def orders_of(make: Callable[[], Any], **how: Any) -> dg.AssetsDefinition:
    metadata = {**KEYED, **how.pop("metadata", {})}

    @dg.asset(key=ORDERS, metadata=metadata, **how)
    def orders():  # without a type, so that it may return rows or an Output
        return make()

    return orders


def taken_as(
    wanted: Any, seen: list[Any], partitions: Any = None, **how: Any
) -> dg.AssetsDefinition:
    def reader(orders: Any) -> None:
        seen.append(orders)

    reader.__annotations__["orders"] = wanted
    entry = dg.AssetIn(key=ORDERS, **how)
    asset = {"key": ["shop", "reader"], "metadata": KEYED, "partitions_def": partitions}
    return dg.asset(**asset, ins={"orders": entry})(reader)


FRAMES: dict[str, Callable[[], Any]] = {
    "arrow": lambda: ROWS,
    "reader": ROWS.to_reader,
    "polars": lambda: pl.from_arrow(ROWS),
    "polars lazy": lambda: pl.from_arrow(ROWS).lazy(),
    "pandas": ROWS.to_pandas,
    "duckdb": lambda: duckdb.from_arrow(ROWS),
    "list": ROWS.to_pylist,
}


@pytest.mark.parametrize("name", FRAMES)
def test_rows_of_every_library_are_stored(io: Io, name: str) -> None:
    assert io.run(orders_of(FRAMES[name])).success
    assert io.rows() == ROWS.to_pylist()


def test_a_list_has_the_columns_of_all_its_rows(io: Io) -> None:
    rows = [{"id": 1}, {"id": 2, "name": "b"}, {"name": "c", "id": 3}]
    io.run(orders_of(lambda: rows))
    assert [(row["id"], row["name"]) for row in io.rows()] == [(1, None), (2, "b"), (3, "c")]
    with pytest.raises(lsm.InvalidInputError, match="has to hold dictionaries"):
        io.run(orders_of(lambda: [(4, "d")]))


TAKEN: dict[Any, Callable[[Any], pa.Table]] = {
    pa.Table: lambda rows: rows,
    pa.RecordBatchReader: lambda rows: rows.read_all(),
    lsm.Scan: lambda rows: rows.to_arrow(),
    pl.DataFrame: lambda rows: rows.to_arrow(),
    pl.LazyFrame: lambda rows: rows.collect().to_arrow(),
    pd.DataFrame: pa.Table.from_pandas,
    duckdb.DuckDBPyRelation: lambda rows: rows.to_arrow_table(),
}


@pytest.mark.parametrize("wanted", TAKEN, ids=str)
def test_a_parameter_gets_what_it_is_annotated_with(io: Io, wanted: Any) -> None:
    orders, seen = orders_of(lambda: ROWS), []
    io.run(orders)
    io.table().upsert(pa.table({"id": [9], "name": ["not reported"]}))
    io.run(orders, taken_as(wanted, seen), selection=["shop/reader"])
    (rows,) = seen
    assert isinstance(rows, wanted)
    assert TAKEN[wanted](rows).sort_by("id").to_pylist() == ROWS.to_pylist()


def test_daft_is_stored_and_loaded(io: Io) -> None:
    if find_spec("daft") is None:
        missing("daft", "needs daft")
    daft, seen = import_module("daft"), []
    orders = orders_of(lambda: daft.from_arrow(ROWS).where(daft.col("id") > 1))
    io.run(orders, taken_as(daft.DataFrame, seen, metadata={"lsm/columns": "name"}))
    assert sorted(seen[0].to_pydict()["name"]) == ["b", "c"]
    assert [row["id"] for row in io.rows()] == [2, 3]


def test_other_types_are_refused_by_name(io: Io) -> None:
    orders = orders_of(lambda: ROWS)
    io.run(orders)
    with pytest.raises(lsm.InvalidInputError, match=r"polars\.LazyFrame"):
        io.run(orders, taken_as(dict, []), selection=["shop/reader"])


def test_what_holds_no_rows_is_refused(io: Io) -> None:
    with pytest.raises(lsm.InvalidInputError, match="returned dict, which holds no rows"):
        io.run(orders_of(lambda: {"id": [1]}))
    assert io.table() is None


def test_a_parameter_may_be_optional(io: Io) -> None:
    seen: list[Any] = []
    io.run(orders_of(lambda: ROWS), taken_as(pl.DataFrame | None, seen))
    assert seen[0].height == 3


def test_no_rows_in_a_new_table_are_its_first_version(io: Io) -> None:
    (event,) = io.run(orders_of(lambda: ROWS.slice(0, 0))).asset_materializations_for_node(
        "shop__orders"
    )
    assert version_id(event.tags["dagster/data_version"]) == 0


def test_a_reader_chooses_columns_and_rows(io: Io) -> None:
    orders, seen = orders_of(lambda: ROWS), []
    metadata = {"lsm/columns": "name", "lsm/where": "id > 1 and name <> 'c'"}
    io.run(orders, taken_as(pa.Table, seen, metadata=metadata))
    assert seen[0].to_pylist() == [{"name": "b"}]


MODES = {
    "upsert": [(1, "a"), (2, "z"), (3, "c"), (4, "z")],
    "overwrite": [(2, "z"), (4, "z")],
    "delete": [(1, "a"), (3, "c")],
    "merge": [(1, "a"), (2, "z"), (3, "c"), (4, "z")],
}


@pytest.mark.parametrize(
    ("where", "mode"),
    [
        *(("manager", mode) for mode in MODES),
        ("asset", "overwrite"),
        ("run", "delete"),
        ("output", "merge"),
    ],
)
def test_a_mode_is_set_by_manager_asset_run_or_output(io: Io, where: str, mode: str) -> None:
    io.run(orders_of(lambda: ROWS))
    rows = pa.table({"id": [2, 4], "name": ["z", "z"]})
    io.settings = {"mode": mode} if where == "manager" else {"mode": "append"}
    made = dg.Output(rows, metadata={"lsm/mode": mode}) if where == "output" else rows
    metadata = {"lsm/mode": mode} if where == "asset" else {}
    tags = {"lsm/mode": mode} if where == "run" else {}
    assert io.run(orders_of(lambda: made, metadata=metadata), tags=tags).success
    assert [(row["id"], row["name"]) for row in io.rows()] == MODES[mode]


def test_a_merge_leaves_columns_alone_that_it_is_not_given(io: Io) -> None:
    io.run(orders_of(lambda: ROWS.append_column("n", pa.array([1, 2, 3]))))
    some = pa.table({"id": [3, 4], "name": ["z", "z"]})
    io.run(orders_of(lambda: some, metadata={"lsm/mode": "merge"}))
    assert [row["n"] for row in io.rows()] == [1, 2, 3, None]
    with pytest.raises(lsm.InvalidInputError, match="columns"):
        io.run(orders_of(lambda: some))


@pytest.mark.parametrize("mode", ["delete", "merge"])
def test_rows_that_name_some_columns_drop_no_others(io: Io, mode: str) -> None:
    """A run that deletes keys of an asset whose columns match its rows dropped all but the key."""
    kept = {"lsm/schema": "match"}
    io.run(orders_of(lambda: ROWS, metadata=kept))
    some = pa.table({"id": [3]})
    io.run(orders_of(lambda: some, metadata=kept), tags={"lsm/mode": mode})
    assert io.rows()[:2] == ROWS.to_pylist()[:2]
    assert len(io.rows()) == (2 if mode == "delete" else 3)


def test_appends_need_no_key(io: Io) -> None:
    @dg.asset(key=["shop", "events"], metadata={"lsm/mode": "append"})
    def events() -> pa.Table:
        return ROWS

    io.run(events)
    io.run(events)
    assert len(io.rows("shop.events")) == 6


def test_an_unknown_mode_is_refused(io: Io) -> None:
    with pytest.raises(lsm.InvalidOptionError, match="upsert, append, overwrite, delete, merge"):
        io.run(orders_of(lambda: ROWS, metadata={"lsm/mode": "replace"}))
    assert io.table() is None


def test_a_schema_evolves_where_that_is_asked_for(io: Io) -> None:
    narrow = ROWS.append_column("n", pa.array([1, 2, 3], pa.int32()))
    io.run(orders_of(lambda: narrow))
    wide = pa.table({"id": [4], "name": ["d"], "n": pa.array([1 << 40]), "more": [0.5]})
    with pytest.raises(lsm.InvalidInputError, match="columns"):
        io.run(orders_of(lambda: wide))
    assert io.table().schema.names == ("id", "name", "n")
    io.run(orders_of(lambda: wide, metadata={"lsm/schema": "evolve"}))
    assert io.rows()[-1] == {"id": 4, "name": "d", "n": 1 << 40, "more": 0.5}
    assert io.rows()[0]["more"] is None
    io.run(orders_of(lambda: ROWS), tags={"lsm/schema": "evolve"})
    assert io.rows()[0]["n"] is None
    io.run(
        orders_of(lambda: ROWS.append_column("x", pa.array([1, 2, 3]))),
        tags={"lsm/schema": "match"},
    )
    assert io.table().schema.names == ("id", "name", "x")
    assert [row["x"] for row in io.rows()] == [1, 2, 3, None]
    keyless = pa.table({"name": ["e"]})
    with pytest.raises(lsm.InvalidInputError, match="id"):
        io.run(orders_of(lambda: keyless), tags={"lsm/schema": "match"})
    assert io.table().schema.names == ("id", "name", "x")


REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-30", end_date="2024-02-03")
BY_BOTH = dg.MultiPartitionsDefinition({"region": REGIONS, "day": DAYS})


def test_partitions_of_two_dimensions_are_stored_and_read_by_their_columns(io: Io) -> None:
    seen: dict[str, list[int]] = {}

    @dg.asset(
        key=ORDERS,
        partitions_def=BY_BOTH,
        metadata={
            "lsm/primary_key": ["region", "month", "day", "id"],
            "lsm/partitioned_by": ["region", "month"],
            "lsm/partition_columns": {
                "region": "{region}",
                "month": "{day:%m}",
                "day": "{day:%Y-%m-%d}",
            },
        },
    )
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        at = context.partition_key.keys_by_dimension
        day = datetime.fromisoformat(at["day"])
        columns = {"region": at["region"], "month": day.month, "day": day.date()}
        size = day.day
        return pa.table(
            {**{name: [one] * size for name, one in columns.items()}, "id": range(size)}
        )

    @dg.asset(
        key=["shop", "reader"],
        partitions_def=BY_BOTH,
        metadata=KEYED,
        ins={"orders": dg.AssetIn(key=ORDERS)},
    )
    def reader(context: dg.AssetExecutionContext, orders: pa.Table) -> None:
        seen[str(context.partition_key)] = sorted(set(orders.column("day").to_pylist()))

    for key in ("2024-01-30|eu", "2024-01-31|eu", "2024-01-31|us", "2024-02-01|us"):
        result = io.run(orders, partition_key=key)
        (event,) = result.asset_materializations_for_node("shop__orders")
        assert event.metadata["dagster/partition_row_count"].value == int(key[8:10])
    io.run(orders, reader, selection=["shop/reader"], partition_key="2024-01-31|eu")
    assert [str(day) for day in seen["2024-01-31|eu"]] == ["2024-01-31"]


def test_a_column_of_times_is_read_by_the_span_of_the_partition(io: Io) -> None:
    seen: list[pa.Table] = []
    metadata = {**KEYED, "lsm/partition_column": "at"}

    @dg.asset(key=ORDERS, partitions_def=DAYS, metadata=metadata)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        day = datetime.fromisoformat(context.partition_key)
        first = day.day * 100
        hours = [day.replace(hour=hour) for hour in (0, 12, 23)]
        return pa.table({"id": [first, first + 1, first + 2], "at": hours})

    reader = taken_as(pa.Table, seen, DAYS)
    for day in ("2024-01-31", "2024-02-01"):
        io.run(orders, partition_key=day)
    io.run(orders, reader, selection=["shop/reader"], partition_key="2024-02-01")
    assert sorted(seen[0]["id"].to_pylist()) == [100, 101, 102]


def test_an_overwritten_partition_holds_what_came_last(io: Io) -> None:
    made: dict[str, pa.Table] = {}
    metadata = {
        "lsm/primary_key": "region, id",
        "lsm/partitioned_by": "region",
        "lsm/partition_columns": {"region": "{key}"},
        "lsm/mode": "overwrite",
    }

    @dg.asset(key=ORDERS, partitions_def=REGIONS, metadata=metadata)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return made[context.partition_key]

    for region in ("eu", "us"):
        made[region] = pa.table({"region": [region] * 2, "id": [1, 2]})
        io.run(orders, partition_key=region)
    made["eu"] = made["eu"].slice(0, 0)
    io.run(orders, partition_key="eu")
    assert [(row["region"], row["id"]) for row in io.rows()] == [("us", 1), ("us", 2)]


def test_snapshots_have_the_properties_that_metadata_gives(io: Io) -> None:
    given = {"lsm/properties": {"ticket": "A-7", "lsm.run.id": "made up"}}
    done = io.run(orders_of(lambda: ROWS, metadata=given))
    made = io.table().latest_snapshot().properties
    assert (made["ticket"], made["lsm.run.dagster-id"]) == ("A-7", done.run_id)
    assert made["lsm.run.id"] != "made up"
    with pytest.raises(lsm.InvalidOptionError, match="a mapping of names to values"):
        io.run(orders_of(lambda: ROWS, metadata={"lsm/properties": "ticket"}))


def test_inputs_and_the_version_of_the_code_are_in_the_lineage(io: Io) -> None:
    orders = orders_of(lambda: ROWS, code_version="7")
    io.run(orders)
    made = io.table().latest_snapshot()
    assert made.properties["lsm.run.code-version"] == "7"
    assert "ticket" not in made.properties

    @dg.asset(key=["shop", "totals"], metadata=KEYED, ins={"orders": dg.AssetIn(key=ORDERS)})
    def totals(orders: pa.Table) -> pa.Table:
        return pa.table({"id": [1], "total": [orders.num_rows]})

    result = io.run(orders, totals, selection=["shop/totals"])
    (event,) = result.asset_materializations_for_node("shop__totals")
    assert version_id(event.tags["dagster/input_data_version/shop/orders"]) == 1
    lineage = io.wired["lsm"].catalog.lineage
    inputs = lineage.inputs_of_snapshot(lsm.TableName.parse("shop.totals"), 1).to_pylist()
    assert [(row["dataset"], row["input_snapshot_id"]) for row in inputs] == [("shop.orders", 1)]


def test_a_partition_that_is_loaded_again_unchanged_keeps_its_version(io: Io) -> None:
    metadata = {
        "lsm/primary_key": "region, id",
        "lsm/partitioned_by": "region",
        "lsm/options": {"write.skip-unchanged": "true"},
    }

    @dg.asset(key=ORDERS, partitions_def=REGIONS, metadata=metadata)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"region": [context.partition_key], "id": [1]})

    def version(region: str) -> str:
        (event,) = io.run(orders, partition_key=region).asset_materializations_for_node(
            "shop__orders"
        )
        return event.tags["dagster/data_version"]

    first = version("eu")
    assert version("us") != first
    assert version("eu") == first
