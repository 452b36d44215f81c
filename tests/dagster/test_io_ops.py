"""Ops on the I/O manager: outputs that are no assets are kept in tables, and read as their run made them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets import io_manager
from tests.dagster.lake import MARKS
from tests.dagster.test_table_io import KEYED, ROWS, TAKEN, Io
from tests.dagster.test_table_io import io as io  # the fixture

pytestmark = MARKS
NAMED = {**KEYED, "lsm/table": "shop.orders"}
APPENDED = {"lsm/table": "shop.orders", "lsm/mode": "append"}
OTHERS = pa.table({"id": [9], "name": ["of others"]})


def run(io: Io, compose: Callable[[], Any], **how: Any) -> dg.ExecuteInProcessResult:
    of_job = {key: how.pop(key) for key in ("partitions_def",) if key in how}
    job = dg.graph(name="shop")(compose).to_job(resource_defs=io.wired, **of_job)
    return job.execute_in_process(instance=io.instance, **how)


def making(make: Callable[[], Any], name: str = "result", **metadata: Any) -> dg.OpDefinition:
    @dg.op(name="make", out={name: dg.Out(metadata={**NAMED, **metadata})})
    def op():  # without a type, so that it may return rows or an Output
        return make()

    return op


def taking(
    seen: list[Any], wanted: Any = pa.Table, name: str = "take", **entry: Any
) -> dg.OpDefinition:
    def op(orders: Any) -> None:
        seen.append(orders)

    op.__annotations__["orders"] = wanted
    return dg.op(name=name, ins={"orders": dg.In(metadata=entry)})(op)


def told(result: dg.ExecuteInProcessResult, step: str) -> list[dict[str, Any]]:
    return [
        {key: each.value for key, each in event.event_specific_data.metadata.items()}
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.HANDLED_OUTPUT and event.step_key == step
    ]


@pytest.mark.parametrize("wanted", TAKEN, ids=str)
def test_the_next_op_gets_what_it_is_annotated_with(io: Io, wanted: Any) -> None:
    seen: list[Any] = []
    make, take = making(lambda: pl.from_arrow(ROWS).lazy()), taking(seen, wanted)
    assert run(io, lambda: take(make())).success
    (rows,) = seen
    assert isinstance(rows, wanted)
    assert TAKEN[wanted](rows).sort_by("id").to_pylist() == ROWS.to_pylist() == io.rows()


def test_a_table_is_named_by_the_output_and_read_by_columns_and_rows(io: Io) -> None:
    seen: list[Any] = []
    make = dg.op(name="make", out={"orders": dg.Out(metadata=KEYED)})(lambda: ROWS)
    take = taking(seen, **{"lsm/columns": "name", "lsm/where": "id > 1 and name <> 'c'"})
    run(io, lambda: take(make()))
    assert seen[0].to_pylist() == [{"name": "b"}]
    assert io.rows("default.orders") == ROWS.to_pylist()


def test_the_event_of_an_output_shows_rows_snapshot_and_tree(io: Io) -> None:
    make = making(lambda: dg.Output(ROWS, metadata={"note": "mine"}))
    (found,) = told(run(io, lambda: make() and None), "make")
    assert (found["dagster/table_name"], found["dagster/row_count"]) == ("shop.orders", 3)
    assert found["lsm/version"].startswith("1-")
    assert {"lsm/snapshot", "lsm/tree", "lsm/files", "dagster/column_schema"} <= found.keys()


def test_two_outputs_of_one_op_are_two_tables(io: Io) -> None:
    seen: list[Any] = []

    @dg.op(
        out={
            "orders": dg.Out(metadata=KEYED),
            "names": dg.Out(metadata={"lsm/primary_key": "name", "lsm/table": "shop.names"}),
        }
    )
    def make():
        return ROWS, ROWS.select(["name"])

    @dg.op
    def take(orders: pd.DataFrame, names: pl.DataFrame) -> None:
        seen.extend([len(orders.columns), names.columns])

    run(io, lambda: take(*make()))
    assert seen == [2, ["name"]]
    assert len(io.rows("default.orders")) == len(io.rows("shop.names", "name")) == 3


def others_commit(io: Io) -> dg.OpDefinition:
    @dg.op(name="others", ins={"start": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
    def op() -> None:
        io.table().upsert(OTHERS)

    return op


def read_behind_others(io: Io, make: dg.OpDefinition) -> pa.Table:
    """What the next op reads of an output where others have committed in between."""
    seen: list[pa.Table] = []
    between = others_commit(io)

    @dg.op(ins={"after": dg.In(dg.Nothing)})
    def take(orders: pa.Table) -> None:
        seen.append(orders)

    def shop() -> None:
        orders = make()
        take(orders=orders, after=between(start=orders))

    run(io, shop)
    (read,) = seen
    return read


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["", "vectors"])
def test_the_next_op_reads_the_commit_of_its_run_whoever_commits_meanwhile(
    io: Io, options: dict[str, str]
) -> None:
    read = read_behind_others(io, making(lambda: ROWS, **{"lsm/options": options}))
    assert read.sort_by("id").to_pylist() == ROWS.to_pylist()
    assert len(io.rows()) == 4


def test_rows_that_are_there_already_pin_what_is_there(io: Io) -> None:
    make = making(lambda: ROWS, **{"lsm/options": {"write.skip-unchanged": "true"}})
    run(io, lambda: make() and None)
    assert read_behind_others(io, make).num_rows == 3
    assert len(io.rows()) == 4


def test_outputs_of_one_run_append_to_one_table_each_once(io: Io) -> None:
    seen: list[Any] = []

    @dg.op(out=dg.DynamicOut(metadata=APPENDED))
    def days():
        for number in (1, 2):
            yield dg.DynamicOutput(pa.table({"n": [number]}), mapping_key=f"d{number}")

    @dg.op(out=dg.Out(metadata={**APPENDED, "lsm/table": "shop.doubled"}))
    def double(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(n=pl.col("n") * 2)

    @dg.op
    def take(all_of_them: list[pa.Table]) -> None:
        seen.extend(sorted(rows.num_rows for rows in all_of_them))

    run(io, lambda: take(days().map(double).collect()))
    assert [row["n"] for row in io.rows(by="n")] == [1, 2]
    # d1 holds 1, d2 what was there then: 1 and 2.
    assert [row["n"] for row in io.rows("shop.doubled", "n")] == [2, 2, 4]
    assert seen == [1, 3]


def test_an_output_may_name_its_table_as_it_is_made(io: Io) -> None:
    seen: list[Any] = []

    @dg.op(out=dg.DynamicOut(metadata=KEYED))
    def split():
        for name in ("a", "b"):
            rows = ROWS.filter(pa.compute.field("name") == name)
            yield dg.DynamicOutput(rows, name, metadata={"lsm/table": f"shop.{name}"})

    take = taking(seen)
    run(io, lambda: split().map(take) and None)
    assert sorted(rows["name"].to_pylist() for rows in seen) == [["a"], ["b"]]
    assert len(io.rows("shop.a")) == 1


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_op_that_is_tried_again_commits_its_rows_once(
    io: Io, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, seen, survey = [], [], io_manager.inspect_table

    def fails_first(*args: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            raise dg.RetryRequested(max_retries=1)
        return survey(*args)

    monkeypatch.setattr(io_manager, "inspect_table", fails_first)
    keyed = {"lsm/primary_key": "id", "lsm/table": "shop.orders"}
    make = dg.op(name="make", out=dg.Out(metadata=APPENDED if mode == "append" else keyed))(
        lambda: ROWS
    )
    take = taking(seen)
    assert run(io, lambda: take(make())).success
    assert len(tries) == 2
    assert seen[0].sort_by("id").to_pylist() == ROWS.to_pylist() == io.rows()
    run(io, lambda: take(make()))  # another run is no retry
    assert len(io.rows()) == (6 if mode == "append" else 3)


def failing_job() -> dg.JobDefinition:
    io = Io(Path(dg.EnvVar("SHOP_LAKE").get_value() or ""), dg.DagsterInstance.get())

    @dg.op(ins={"orders": dg.In(pa.Table)}, out=dg.Out(metadata={**KEYED, "lsm/table": "shop.n"}))
    def take(orders: pa.Table) -> pa.Table:
        if io.table("shop.n") is None and orders.num_rows and not (io.warehouse / "go").exists():
            raise dg.Failure("not yet")
        return pa.table({"id": [orders.num_rows]})

    make = making(lambda: ROWS)
    return dg.graph(name="shop")(lambda: take(make()) and None).to_job(resource_defs=io.wired)


@pytest.mark.slow
def test_processes_of_a_run_and_of_its_repetition_find_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path / "lake"))
    with dg.instance_for_test() as instance:
        io = Io(tmp_path / "lake", instance)
        job = dg.reconstructable(failing_job)
        with dg.execute_job(job, instance) as first:
            assert not first.success
        io.table().upsert(OTHERS)
        (io.warehouse / "go").touch()
        again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance, reexecution_options=again) as second:
            assert second.success
        assert io.rows("shop.n") == [{"id": 3}]


DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-01-04")


def of_run(io: Io, seen: list[Any], day: str, ids: list[int], **metadata: Any) -> None:
    @dg.op(
        name="make",
        out=dg.Out(metadata={"lsm/primary_key": "day, id", "lsm/table": "shop.orders", **metadata}),
    )
    def make() -> pa.Table:
        return pa.table({"day": pa.array([day] * len(ids), pa.string()), "id": ids})

    take = taking(seen)
    run(io, lambda: take(make()), partitions_def=DAYS, partition_key=day)


def test_a_run_replaces_and_reads_its_partition_where_a_template_spells_it(io: Io) -> None:
    seen: list[Any] = []
    kept = {
        "lsm/partitioned_by": "day",
        "lsm/partition_columns": {"day": "{key}"},
        "lsm/mode": "overwrite",
    }
    for day, ids in (("2024-01-01", [1, 2]), ("2024-01-02", [3]), ("2024-01-01", [4])):
        of_run(io, seen, day, ids, **kept)
    assert [rows["id"].to_pylist() for rows in seen] == [[1, 2], [3], [4]]
    assert [row["id"] for row in io.rows()] == [3, 4]
    with pytest.raises(lsm.InvalidInputError, match="lsm/partition_columns"):
        of_run(io, seen, "2024-01-01", [5], **{**kept, "lsm/partition_columns": {}})
    assert [row["id"] for row in io.rows()] == [3, 4]


def test_without_a_template_the_table_is_read_as_a_whole(io: Io) -> None:
    seen: list[Any] = []
    of_run(io, seen, "2024-01-01", [1])
    of_run(io, seen, "2024-01-02", [2])
    assert [rows.num_rows for rows in seen] == [1, 2]
    of_run(io, seen, "2024-01-03", [3], **{"lsm/mode": "overwrite"})
    assert seen[-1]["id"].to_pylist() == [3]


def test_runs_properties_and_inputs_are_in_the_lineage(io: Io) -> None:
    make = making(lambda: ROWS, **{"lsm/properties": {"ticket": "A-7"}})

    @dg.op(code_version="7", out={"totals": dg.Out(metadata=KEYED)})
    def count(orders: pa.Table) -> pa.Table:
        return pa.table({"id": [orders.num_rows]})

    done = run(io, lambda: count(make()) and None)
    made = io.table().latest_snapshot().properties
    assert (made["ticket"], made["lsm.run.dagster-id"]) == ("A-7", done.run_id)
    assert made["lsm.run.id"] == f"{done.run_id}/make.result"
    assert "lsm.run.asset" not in made
    made = io.table("default.totals").latest_snapshot().properties
    assert made["lsm.run.code-version"] == "7"
    lineage = io.wired["lsm"].catalog.lineage
    inputs = lineage.inputs_of_snapshot(lsm.TableName.parse("default.totals"), 1).to_pylist()
    assert [(row["dataset"], row["input_snapshot_id"]) for row in inputs] == [("shop.orders", 1)]
    assert "shop.orders at" in told(done, "count")[0]["lsm/inputs"]


def test_nothing_to_write_loads_what_is_there_or_nothing(io: Io) -> None:
    seen: list[Any] = []
    make, take, frame = making(lambda: None), taking(seen), taking(seen, pl.DataFrame | None, "pl")

    def shop() -> None:
        orders = make()
        take(orders)
        frame(orders)

    run(io, shop)
    assert [rows.shape for rows in seen] == [(0, 0), (0, 0)]
    assert io.table() is None
    full = making(lambda: ROWS)
    run(io, lambda: full() and None)
    run(io, shop)
    assert [rows.shape for rows in seen[2:]] == [(3, 2), (3, 2)]
    assert io.table().latest_snapshot().id == 1


def test_what_is_missing_is_named(io: Io) -> None:
    seen: list[Any] = []

    def makes(**out: Any) -> Callable[[], Any]:
        make = dg.op(name="make", out=dg.Out(metadata=out))(lambda: ROWS)
        return lambda: make() and None

    with pytest.raises(lsm.InvalidInputError, match="'lsm/table' of its Out"):
        run(io, makes(**KEYED))
    with pytest.raises(
        lsm.InvalidInputError, match=r"the output has no metadata 'lsm/primary_key'"
    ):
        run(io, makes(**{"lsm/table": "shop.orders"}))
    with pytest.raises(lsm.InvalidOptionError, match="did you mean 'lsm/table'"):
        run(io, makes(**KEYED, **{"lsm/tables": "shop.orders"}))
    full, take, number = (
        making(lambda: ROWS),
        taking(seen, **{"lsm/column": "id"}),
        making(lambda: 5),
    )
    with pytest.raises(lsm.InvalidOptionError, match="did you mean 'lsm/columns'"):
        run(io, lambda: take(full()))
    with pytest.raises(lsm.InvalidInputError, match="an asset or op returned int"):
        run(io, lambda: number() and None)
    assert not seen


def test_an_input_without_an_upstream_names_a_table(io: Io) -> None:
    seen: list[Any] = []

    def reads(**entry: Any) -> Callable[[], Any]:
        @dg.op(ins={"orders": dg.In(metadata=entry, input_manager_key="io_manager")})
        def take(orders: pa.Table) -> None:
            seen.append(orders)

        return lambda: take()

    named = {"lsm/table": "shop.orders", "lsm/columns": "id"}
    with pytest.raises(lsm.InvalidInputError, match="no upstream output: name its table"):
        run(io, reads())
    with pytest.raises(dg.Failure, match=r"no table shop\.orders"):
        run(io, reads(**named))
    full = making(lambda: ROWS)
    run(io, lambda: full() and None)
    run(io, reads(**named))
    assert seen[0].column_names == ["id"]


def test_a_table_that_is_gone_is_no_empty_one(io: Io) -> None:
    make, take = making(lambda: ROWS), taking([])

    @dg.op(ins={"start": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
    def drops() -> None:
        io.wired["lsm"].catalog.drop_table("shop.orders")

    @dg.op(ins={"after": dg.In(dg.Nothing)})
    def reads(orders: pa.Table) -> None: ...

    def shop() -> None:
        orders = make()
        reads(orders=orders, after=drops(start=orders))

    with pytest.raises(dg.Failure, match=r"no table shop\.orders. Run the step make again"):
        run(io, shop)
    assert run(io, lambda: take(make())).success


def test_ops_within_an_asset_are_kept_beside_it(io: Io) -> None:
    make = making(lambda: ROWS, **{"lsm/table": "shop.raw"})

    @dg.op
    def shout(orders: pl.DataFrame) -> pl.DataFrame:
        return orders.with_columns(pl.col("name").str.to_uppercase())

    @dg.graph_asset(key=["shop", "orders"], metadata=KEYED)
    def orders() -> Any:
        return shout(make())

    assert io.run(orders).success
    assert [row["name"] for row in io.rows()] == ["A", "B", "C"]
    assert io.rows("shop.raw") == ROWS.to_pylist()


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")  # a beta of Dagster
def test_a_range_of_an_asset_is_that_of_the_ops_within_it(io: Io) -> None:
    seen: list[Any] = []
    days = ["2024-01-01", "2024-01-02"]
    by_day = {"lsm/primary_key": "day, id", "lsm/partition_columns": {"day": "{key}"}}
    kept = {**by_day, "lsm/partitioned_by": "day", "lsm/mode": "overwrite"}

    @dg.op(out={"raw": dg.Out(metadata=kept)})
    def make() -> pa.Table:
        return pa.table({"day": days, "id": [1, 1]})

    @dg.op
    def same(raw: pa.Table) -> pa.Table:
        seen.append(raw)
        return raw

    @dg.graph_asset(
        key=["shop", "orders"],
        partitions_def=DAYS,
        metadata=by_day,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def orders() -> Any:
        return same(make())

    catalog = io.wired["lsm"].catalog
    catalog.create_database("default", ignore_if_exists=True)
    before = pa.table({"day": ["2024-01-02", "2024-01-03"], "id": [2, 2]})
    keys = {"primary_key": ["day", "id"], "partitioned_by": "day"}
    catalog.create_table("default.raw", before.schema, **keys).upsert(before)
    span = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    io.run(orders, tags=dict(zip(span, days, strict=True)))
    assert sorted(seen[0]["day"].to_pylist()) == days
    assert [row["id"] for row in io.rows("default.raw", "day")] == [1, 1, 2]


def test_an_op_within_assets_reads_the_version_of_an_asset(io: Io) -> None:
    seen: list[Any] = []
    make = dg.op(name="make")(lambda: ROWS)

    @dg.op(ins={"after": dg.In(dg.Nothing)})
    def count(orders: pa.Table) -> pa.Table:
        seen.append(orders)
        return pa.table({"id": [orders.num_rows]})

    between = others_commit(io)

    @dg.graph_multi_asset(
        outs={
            "orders": dg.AssetOut(key=["shop", "orders"], metadata=KEYED),
            "counts": dg.AssetOut(key=["shop", "counts"], metadata=KEYED),
        }
    )
    def both() -> Any:
        orders = make()
        return {"orders": orders, "counts": count(orders=orders, after=between(start=orders))}

    assert io.run(both).success
    assert io.rows("shop.counts") == [{"id": 3}]
    assert len(io.rows()) == 4
