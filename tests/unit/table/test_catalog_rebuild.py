"""A catalog made anew from the warehouse says what the one that grew with the tables said."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.catalog.provenance import Input, Run, provenance_properties

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.float64())])


def grown(root: Path) -> Path:
    """A warehouse with some life behind it; returns the catalog's file."""
    file = root / "catalog.db"
    run = Run(run_id="r1", engine="local", kind="upsert", asset_key="shop/orders", user="me")
    told = provenance_properties(run, [Input(dataset="raw.orders", version="2026-11-20")])
    with lsm.open_catalog(f"sqlite:///{file}", warehouse=str(root / "lake")) as catalog:
        orders = catalog.create_table(
            "shop.orders",
            COLUMNS,
            primary_key=["id", "day"],
            partitioned_by=["day"],
            options={"bucket": 2, "num-sorted-run.compaction-trigger": 3},
        )
        for at in range(6):
            rows = [{"id": key, "day": f"d{key % 2}", "v": at} for key in range(at, at + 20)]
            orders.upsert(pa.Table.from_pylist(rows, schema=COLUMNS), properties=told)
        orders.create_tag("six", retained="7 d")
        orders.delete([{"id": 3, "day": "d1"}])
        orders.compact(full=True)
        orders.overwrite([{"id": 1, "day": "d1", "v": 1.0}])
        other = catalog.create_table("shop.items", COLUMNS, primary_key=["id"])
        other.upsert([{"id": 1, "day": "x"}])
    return file


def content(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, numbers that only join rows aside."""
    with sqlite3.connect(file) as connection:
        views = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'view' OR name LIKE 'paimon_%'"
            )
            if not name.startswith("sqlite_")
        ]
        assert len(views) > 5
        return {
            name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
            for name in views
        }


def test_a_lost_catalog_comes_back_equal(tmp_path: Path) -> None:
    file = grown(tmp_path)
    before = content(file)
    for path in tmp_path.glob("catalog.db*"):
        path.unlink()
    with lsm.open_catalog(f"sqlite:///{file}", warehouse=str(tmp_path / "lake")) as catalog:
        assert catalog.rebuild() == {
            "shop.items": 1,
            "shop.orders": len(catalog.table("shop.orders").snapshots()),
        }
        assert catalog.table("shop.items").scan().count() == 1
    assert content(file) == before


def test_rebuilding_twice_changes_nothing(tmp_path: Path) -> None:
    file = grown(tmp_path)
    before = content(file)
    with lsm.open_catalog(f"sqlite:///{file}", warehouse=str(tmp_path / "lake")) as catalog:
        catalog.rebuild()
        catalog.rebuild()
    assert content(file) == before


def test_only_tables_are_registered(tmp_path: Path) -> None:
    grown(tmp_path)
    (tmp_path / "lake" / "shop.db" / "empty").mkdir()
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c2.db", warehouse=str(tmp_path / "lake")) as other:
        other.rebuild()
        assert other.list_tables("shop") == ["items", "orders"]
        with pytest.raises(lsm.NotFoundError):
            other.register_table("shop.empty")
        with pytest.raises(lsm.AlreadyExistsError):
            other.register_table("shop.items")
