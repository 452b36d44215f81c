"""`lsm system`: system tables of a table and of the catalog."""

import pytest

from lsm_engine.inspect.system_tables import TABLES

ORDERS = "shop.orders"


def test_system_names(shop) -> None:
    told = {row["name"] for row in shop.json("system", ORDERS)}
    assert set(TABLES) <= told
    assert "sys.tables" in told


@pytest.mark.parametrize("name", ["buckets", "partitions", "files", "schemas", "consumers"])
def test_a_table_of_a_table(shop, name: str) -> None:
    with shop.catalog() as catalog:
        count = catalog.table(ORDERS).system(name).num_rows
    assert len(shop.json("system", ORDERS, name)) == count
    shop("system", ORDERS, name)


def test_some_rows_and_columns(shop) -> None:
    rows = shop.json(
        "system", ORDERS, "files", "--where", "partition = 'day=tue'", "--columns", "level, bucket"
    )
    assert rows == [{"level": 0, "bucket": 0}]
    assert len(shop.json("system", ORDERS, "files", "--snapshot", "1")) == 1
    shop("system", ORDERS, "files", "--where", "nothing = 1", code=(3, 5))
    shop("system", ORDERS, "nothing", code=3)


def test_the_whole_catalog(shop) -> None:
    (row,) = shop.json("system", "sys.tables", "--where", "table_name = 'orders'")
    assert row["file_count"] == 3
    assert shop.json("system", "sys.all_table_options")
    shop("system", "sys.nothing", code=3)
