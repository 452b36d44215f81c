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


def typed_in(text, catalog, table):
    return eval(text, {**globals(), "catalog": catalog, "t": table})


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


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("t.to_arrow(['id', 'prise'])", "did you mean 'price'"),
        ("t.to_arrow('ID')", "did you mean 'id'"),
        ("t.to_arrow('id,price')", r"a list, \['id', 'price'\]"),
        ("t.to_arrow('*')", "leave columns= out"),
        ("t.to_arrow('lines.sku')", "with its column, 'lines'"),
        ("t.to_arrow(where='PRISE > 3')", "did you mean 'price'"),
        ("t.scan('id', 'price').to_arrow()", r"columns to read are columns=\[\.\.\.\]"),
        ("t.upsert([{'ID': 1}])", "did you mean 'id'"),
        ("t.update(set={'prise': '1'}, where='id = 1')", "did you mean 'price'"),
        ("t.update(set={'price': 'prise * 2'})", "did you mean 'price'"),
        ("t.update(set={'customer': 'Quentin'})", "in quotes of its own"),
        ("t.delete(where='prise < 3')", "did you mean 'price'"),
        ("t.alter(lsm.DropColumn('custmer'))", "did you mean 'customer'"),
        ("catalog['SHOP.invoices']", "did you mean 'shop'"),
        ("catalog['shop.Invoices']", "did you mean 'shop.invoices'"),
        ("t.merge([], 's.id = t.id').when_matched_delete()", r"on=\['id'\].*condition="),
    ],
)
def test_a_misspelled_name_is_shown_the_one_that_is_meant(typed, instead, catalog, invoices):
    with pytest.raises(lsm.LsmError, match=instead):
        typed_in(typed, catalog, invoices)
    assert invoices.latest_snapshot().id == 1
