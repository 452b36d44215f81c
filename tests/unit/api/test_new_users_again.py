"""More of what new users typed from habit, with data of their own: it works, or the error says what to type."""

import copy
import datetime as dt
import pickle
import re
from dataclasses import asdict, make_dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
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


@pytest.mark.parametrize("typed", ["len({})", "abs({})", "{} ** 2", "1 - {}", "2 / {}", "{} + 1"])
def test_a_column_in_a_filter_computes_nothing(typed):
    with pytest.raises((lsm.InvalidInputError, AttributeError), match=r"pc\.field|to_polars"):
        eval(typed.format("lsm.col('price')"))
    assert repr(np.int64(3) < lsm.col("price")) == repr(lsm.col("price") > 3)


def test_a_schema_is_a_dictionary_of_its_fields(invoices):
    assert list(dict(invoices.schema)) == list(invoices.schema.names)
    assert dict(invoices.schema)["price"] == invoices.schema.field("price")
    assert asdict(invoices.latest_snapshot())["id"] == 1
    assert pickle.loads(pickle.dumps(invoices.schema)) == copy.deepcopy(invoices.schema)


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("t.scan(columns={'id': 'number'})", "text or a list of texts"),
        ("t.scan(version=dt.datetime(2026, 1, 1))", "a whole number of 64 bits or text"),
        ("t.scan(where=-lsm.col('price') < 0)", r"pc\.field\('price'\)"),
        ("t.scan(where=lsm.col('lines')['sku'] == 's1')", r"pc\.field\('lines', 'sku'\)"),
        ("t.scan(where='s' in lsm.col('customer'))", r"like\('%part%'\)"),
        ("catalog.create_table('shop.new', {'a': list})", r"list\[str\]"),
    ],
)
def test_what_a_read_cannot_do_is_refused_with_what_to_type(typed, instead, catalog, invoices):
    with pytest.raises(lsm.InvalidInputError, match=instead):
        typed_in(typed, catalog, invoices)


def test_a_column_in_a_filter_may_be_named_in_brackets(invoices):
    assert invoices.count(where=lsm.col["price"] > 5) == 2


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("lsm.open_catalog('sqlite://lake/catalog.db')", "three slashes"),
        ("lsm.open_catalog(lake / 'catalog.db')", "give its directory"),
        ("lsm.open_table('shop.invoices')", r"open_catalog\(directory\)\['shop\.invoices'\]"),
        ("lsm.open_table(lake)", r"holds a catalog, which open_catalog"),
        ("catalog['lake/shop.db/invoices']", r"open_table\(path\)"),
        ("catalog['shop.invoices$files']", r"table\.system\('files'\)"),
    ],
)
def test_a_place_that_is_no_table_and_no_catalog_says_what_opens_it(
    typed, instead, catalog, invoices, tmp_path
):
    with pytest.raises(lsm.LsmError, match=instead):
        eval(typed, {"lsm": lsm, "catalog": catalog, "lake": tmp_path / "lake"})


def test_tables_are_listed_by_name_and_asked_of_the_catalog(catalog, invoices):
    assert catalog.list_tables() == ["shop.invoices"]
    assert catalog["shop.invoices"].name == "shop.invoices"


Reading = make_dataclass("Reading", [("id", int)])


class Line(NamedTuple):
    id: int


@pytest.mark.parametrize(
    ("rows", "instead"),
    [
        ([Reading(1)], "dataclasses.asdict(row)"),
        ([Line(1)], "row._asdict()"),
        (pa.table({"id": [1]}).to_batches(), "Table.from_batches(rows)"),
        (ds.dataset(pa.table({"id": [1]})), "rows.scanner().to_reader()"),
        ([pa.table({"id": [1]})], "concat_tables(rows)"),
    ],
)
def test_other_rows_say_how_they_are_given(rows, instead, invoices):
    with pytest.raises(lsm.InvalidInputError, match=re.escape(instead)):
        invoices.upsert(rows)


def test_a_pandas_frame_with_maps_is_given_as_dictionaries(catalog):
    frame = pd.DataFrame({"device": ["a", "b"], "labels": [{"room": 1}, {"floor": 2}]})
    readings = catalog.create_table(
        "iot.readings", {"device": str, "labels": dict[str, int]}, primary_key="device"
    )
    with pytest.raises(lsm.InvalidInputError, match=r"frame\.to_dict\('records'\)"):
        readings.upsert(frame)
    readings.upsert(frame.to_dict("records"))
    assert readings.to_arrow()["labels"].to_pylist() == [[("room", 1)], [("floor", 2)]]
