"""The examples of docs/filters.md run, in order, on a table of orders; every door takes each form."""

import datetime as dt
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm

PAGE = Path(lsm.__file__).parent / "docs" / "filters.md"
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "dt": pa.array([dt.date(2026, 1, 1), dt.date(2026, 5, 1), dt.date(2026, 5, 31), dt.date(2026, 5, 2)]),
        "customer": pa.array(["Ada", "Bo", None, "Al"]),
        "price": pa.array([7.5, 9.0, 5.0, 2.5]),
    }
)  # fmt: skip


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lsm.Table:
    monkeypatch.chdir(tmp_path)
    catalog = lsm.open_catalog(warehouse="lake")
    table = catalog.create_table("shop.orders", ROWS.schema, primary_key=["id"])
    table.upsert(ROWS)
    return table


def test_the_examples_run(orders: lsm.Table) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for example in examples:
        exec(example, names)
    assert len(examples) == 4
    kept = orders.scan(where=names["may"] & ~names["cheap"]).to_arrow()
    assert sorted(kept["id"].to_pylist()) == [2, 3]
    assert orders.scan(where="price > 5 AND dt = DATE '2026-01-01'").count() == 1
    assert orders.scan(where="customer LIKE 'A%' OR price IN (1, 2.5)").count() == 2


@pytest.mark.parametrize(
    "where",
    [lsm.col("id") > 2.5, "id > 2.5", pc.field("id") >= 3],
    ids=["predicate", "sql", "arrow"],
)
def test_every_door_takes_every_form(orders: lsm.Table, where: object) -> None:
    assert sorted(orders.scan(where=where).to_arrow()["id"].to_pylist()) == [3, 4]
    assert orders.scan(where=where).count() == 2
    assert sorted(orders.changelog(where=where)["id"].to_pylist()) == [3, 4]
    (item,) = orders.follow(where=where, poll_millis=None, upto=1)
    assert sorted(item.to_arrow()["id"].to_pylist()) == [3, 4]
    files = orders.system("snapshots", where="snapshot_id > 0.5")
    assert files.num_rows == len(list(orders.snapshots()))


def test_a_filter_on_what_changed_reads_state_and_changes(orders: lsm.Table) -> None:
    assert orders.changelog(where="_row_kind = '+I' AND id = 1").num_rows == 1
    wanted = lsm.col("_row_kind") == "+I"
    (item,) = orders.follow(where=wanted, poll_millis=None, upto=1)
    assert item.to_arrow().num_rows == 4
