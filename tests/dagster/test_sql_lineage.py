"""Column lineage that is read from SQL text."""

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.sql_lineage import column_lineage_of
from tests.dagster.lake import MARKS

pytestmark = MARKS

ORDERS, PEOPLE = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["shop", "people"])
TABLES = {
    "orders": (
        ORDERS,
        pa.schema({"id": pa.int64(), "Customer": pa.string(), "price": pa.float64()}),
    ),
    "people": (PEOPLE, pa.schema({"Customer": pa.string(), "name": pa.string()})),
}
QUERIES = {
    "SELECT * FROM orders WHERE price > 3": {
        "id": {(ORDERS, "id")},
        "Customer": {(ORDERS, "Customer")},
        "price": {(ORDERS, "price")},
    },
    """
    WITH dear AS (SELECT Customer, price * 2 AS twice FROM orders WHERE id > 1)
    SELECT p.name, upper(p.name) || d.Customer AS shown, sum(d.twice) AS total, count(*) AS n
    FROM dear d JOIN people p ON d.Customer = p.Customer GROUP BY p.name, d.Customer
    """: {
        "name": {(PEOPLE, "name")},
        "shown": {(PEOPLE, "name"), (ORDERS, "Customer")},
        "total": {(ORDERS, "price")},
        "n": set(),
    },
    "SELECT id AS k FROM orders UNION ALL SELECT name FROM people": {
        "k": {(ORDERS, "id"), (PEOPLE, "name")}
    },
}


@pytest.mark.parametrize("dialect", ["spark", "duckdb"])
@pytest.mark.parametrize("sql", QUERIES)
def test_columns_are_followed_through_a_query(sql: str, dialect: str) -> None:
    found = column_lineage_of(sql, TABLES, dialect=dialect)
    followed = {
        name.lower(): {(key, of.lower()) for key, of in some} for name, some in found.items()
    }
    expected = QUERIES[sql].items()
    assert followed == {
        name.lower(): {(key, of.lower()) for key, of in some} for name, some in expected
    }


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT id FROM elsewhere",
        "SELECT nothing FROM orders",
        "SELECT FROM WHERE",
        "DROP TABLE orders",
    ],
)
def test_what_is_no_query_over_the_tables_is_refused(sql: str) -> None:
    with pytest.raises(lsm.InvalidInputError, match="one query over orders, people"):
        column_lineage_of(sql, TABLES)
