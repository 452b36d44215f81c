"""A catalog made anew from the warehouse says what the one that grew with the tables said."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event

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
        orders.create_branch("work", tag="six")
        work = orders.branch("work")
        work.upsert([{"id": 900, "day": "d9", "v": 9.0}], properties=told)
        work.create_tag("on work")
        orders.compact(full=True)
        orders.overwrite([{"id": 1, "day": "d1", "v": 1.0}])
        other = catalog.create_table("shop.items", COLUMNS, primary_key=["id"])
        other.upsert([{"id": 1, "day": "x"}])
        catalog.sync_lineage()
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
    for path in filter(Path.is_file, tmp_path.glob("catalog.db*")):
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


class Killed(BaseException):
    """The process is gone: nothing catches it, nothing is committed after it."""


def rebuilt(root: Path, *, dies_at: int | None = None) -> int:
    """Rebuild a lost catalog, dying before a statement or commit of its database; return their number."""
    count = 0

    def step(*_: object) -> None:
        nonlocal count
        count += 1
        if count == dies_at:
            raise Killed

    for what in ("before_cursor_execute", "commit"):
        event.listen(Engine, what, step)
    try:
        url = f"sqlite:///{root / 'catalog.db'}"
        with lsm.open_catalog(url, warehouse=str(root / "lake")) as catalog:
            catalog.rebuild()
    except Killed:
        pass
    finally:
        for what in ("before_cursor_execute", "commit"):
            event.remove(Engine, what, step)
    return count


@pytest.mark.parametrize(
    "points", [6, pytest.param(None, marks=[pytest.mark.sweep, pytest.mark.slow])]
)
def test_a_rebuild_that_was_killed_is_done_again(tmp_path: Path, points: int | None) -> None:
    """At some statements, or with the marker at each one: the second attempt gives all rows."""
    file = grown(tmp_path)
    before = content(file)

    def lose() -> None:
        for path in filter(Path.is_file, tmp_path.glob("catalog.db*")):
            path.unlink()

    lose()
    steps = rebuilt(tmp_path)
    assert steps > 50
    for at in range(3, steps + 1, 1 if points is None else steps // points):
        lose()
        assert rebuilt(tmp_path, dies_at=at) >= min(
            at, 200
        )  # it takes a few statements more or less
        rebuilt(tmp_path)
        assert content(file) == before, f"killed before step {at} of {steps}"


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


def test_a_damaged_branch_costs_the_lineage_of_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`lsm catalog rebuild NAME` records the others, and forgets those that were deleted."""
    file = grown(tmp_path)
    with lsm.open_catalog(f"sqlite:///{file}", warehouse=str(tmp_path / "lake")) as catalog:
        orders = catalog.table("shop.orders")
        for name in ("a", "z"):
            orders.create_branch(name, tag="six")
        assert {one.branch for one in catalog.lineage.tables()} >= {"a", "work", "z"}
        other = lsm.open_table(str(tmp_path / "lake" / "shop.db" / "orders"))
        other.delete_branch("z")
        other.create_branch("late", tag="six")
        (snapshot, *_) = (tmp_path / "lake").glob("shop.db/orders/branch/branch-a/snapshot/snap*-*")
        snapshot.write_text("{")
        recorded = catalog.rebuild_lineage(["shop.orders"])
        assert recorded == {"shop.orders": len(orders.snapshots())}
        found = {one.branch for one in catalog.lineage.tables() if one.table == "orders"}
        assert found == {"main", "a", "late", "work"}
    assert "branch a of table shop.orders is not recorded" in caplog.text
