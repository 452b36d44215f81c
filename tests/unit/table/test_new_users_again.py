"""More of what new users typed from habit, with data of their own: it works, or the error says what to type."""

import datetime as dt
from decimal import Decimal

import pytest

import lsm_engine as lsm

INVOICES = [
    {
        "id": n,
        "customer": ("Ada", "Bo", "Ćy ☃")[n % 3],
        "price": Decimal(n),
        "due": dt.date(2026, 1, n),
        "lines": [{"sku": f"s{n}", "qty": n}],
    }
    for n in range(1, 8)
]


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def invoices(catalog):
    made = catalog.create_table(
        "shop.invoices",
        {
            "id": int,
            "customer": str,
            "price": "DECIMAL(10, 2)",
            "due": dt.date,
            "lines": "ARRAY<STRUCT<sku: STRING, qty: INT>>",
        },
        primary_key="id",
    )
    made.upsert(INVOICES)
    return made


@pytest.mark.parametrize("typed", ["log.lookup([1])", "log.query()"])
def test_rows_of_a_table_without_a_key_are_not_looked_up(typed, catalog):
    log = catalog.create_table("shop.log", {"text": str})
    with pytest.raises(lsm.InvalidInputError, match=r"no primary key.*scan\(where=\.\.\.\)"):
        eval(typed, {"log": log})


@pytest.mark.parametrize("key", [1, "x", None, [1], (1, 2)])
def test_a_reader_of_keys_says_what_a_key_is(key, invoices):
    with invoices.query() as query:
        with pytest.raises(lsm.InvalidInputError, match=r"as a dictionary: \{'id': \.\.\.\}"):
            query.get(key)
        with pytest.raises(lsm.InvalidInputError, match="column 'id' takes BIGINT"):
            query.get({"id": "x"})
