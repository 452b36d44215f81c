"""What a catalog of names promises, on whatever database. Subclass CatalogSuite, give `catalog`."""

import threading

import pytest

from lsm_engine.base.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.catalog.names import TableName

ORDERS = TableName(database="shop", table="orders")
INJECTIONS = [
    "'; DROP TABLE paimon_tables; --",
    '" OR "1"="1',
    "%",
    "_",
    "\\'",
    "a' || 'b",
    "?",
    ":x",
]


class CatalogSuite:
    """Databases, tables, properties, the near miss, two hands at once."""

    def test_databases(self, catalog):
        assert catalog.list_databases() == []
        made = catalog.create_database("shop", properties={"owner": "ada"})
        assert made.location == f"{catalog.warehouse}/shop.db"
        assert made.properties == {"location": made.location, "owner": "ada"}
        assert catalog.load_database("shop") == made
        with pytest.raises(AlreadyExistsError):
            catalog.create_database("shop")
        assert catalog.create_database("shop", ignore_existing=True) == made
        assert catalog.list_databases() == ["shop"]
        assert catalog.drop_database("shop") == []
        assert catalog.list_databases() == []

    def test_tables(self, catalog):
        catalog.create_database("shop")
        made = catalog.register_table(
            ORDERS, options={"bucket": "4"}, primary_key=("dt", "id"), partitioned_by=("dt",)
        )
        assert made.location == f"{catalog.warehouse}/shop.db/orders"
        assert made.properties == {"bucket": "4", "primary-key": "dt,id", "partition": "dt"}
        assert catalog.load_table(ORDERS) == made
        with pytest.raises(AlreadyExistsError):
            catalog.register_table(ORDERS)
        assert catalog.list_tables("shop") == ["orders"]
        catalog.replace_table_properties(ORDERS, options={"bucket": "8"})
        assert catalog.load_table(ORDERS).properties == {"bucket": "8"}
        assert catalog.drop_table(ORDERS)
        assert catalog.list_tables("shop") == []
        assert not catalog.drop_table(ORDERS, ignore_missing=True)

    def test_rename(self, catalog):
        catalog.create_database("old")
        catalog.register_table(ORDERS, options={"bucket": "4"}, create_database=True)
        target = TableName(database="old", table="past")
        moved = catalog.rename_table(ORDERS, target)
        assert moved == catalog.load_table(target)
        assert (moved.name, moved.properties) == (target, {"bucket": "4"})
        assert catalog.list_tables("shop") == []
        catalog.register_table(ORDERS)
        with pytest.raises(AlreadyExistsError):
            catalog.rename_table(target, ORDERS)
        with pytest.raises(NotFoundError):
            catalog.rename_table(target, TableName(database="nowhere", table="past"))
        with pytest.raises(InvalidInputError):
            catalog.rename_table(target, TableName(database="shop", table="../past"))
        assert catalog.list_tables("old") == ["past"]

    def test_missing_things_name_the_near_miss(self, catalog):
        catalog.register_table(ORDERS, create_database=True)
        with pytest.raises(NotFoundError, match=r"did you mean 'shop\.orders'") as missing:
            catalog.load_table(TableName(database="shop", table="order"))
        assert missing.value.kind is ErrorKind.NO_SUCH_TABLE
        with pytest.raises(NotFoundError, match="did you mean 'shop'") as missing:
            catalog.load_table(TableName(database="shopp", table="orders"))
        assert missing.value.kind is ErrorKind.NO_SUCH_DATABASE
        for act in (catalog.list_tables, catalog.load_database, catalog.drop_database):
            with pytest.raises(NotFoundError):
                act("nothing")
        with pytest.raises(NotFoundError):
            catalog.register_table(TableName(database="nothing", table="t"))

    def test_a_full_database_is_dropped_on_request_only(self, catalog):
        catalog.register_table(ORDERS, options={"a": "b"}, create_database=True)
        with pytest.raises(InvalidInputError, match="cascade"):
            catalog.drop_database("shop")
        assert catalog.drop_database("shop", cascade=True) == [ORDERS]
        assert catalog.list_databases() == []
        assert catalog.drop_database("shop", ignore_missing=True) == []
        catalog.register_table(ORDERS, create_database=True)
        assert catalog.load_table(ORDERS).properties == {}

    def test_bad_names_leave_nothing(self, catalog):
        for bad in ("a/b", "..", "a.b", "a\n", "", "$x", "n" * 256):
            with pytest.raises(InvalidInputError):
                catalog.create_database(bad)
            name = TableName(database="shop", table=bad)
            with pytest.raises(InvalidInputError):
                catalog.register_table(name, create_database=True)
        assert catalog.list_databases() == []

    @pytest.mark.parametrize("text", INJECTIONS)
    def test_text_is_never_sql(self, catalog, text):
        name = TableName(database="shop", table=text.replace("/", "").replace("\\", ""))
        catalog.register_table(ORDERS, create_database=True)
        catalog.register_table(name, options={text: text})
        assert catalog.load_table(name).properties == {text: text}
        catalog.drop_table(name)
        assert catalog.list_tables("shop") == ["orders"]

    def test_long_properties(self, catalog):
        long = "x" * 1001
        catalog.register_table(
            ORDERS, options={"fits": long[:1000], "not": long}, create_database=True
        )
        assert catalog.load_table(ORDERS).properties == {"fits": long[:1000]}
        with pytest.raises(InvalidInputError, match="1000"):
            catalog.create_database("other", properties={"comment": long})
        assert catalog.list_databases() == ["shop"]

    def test_one_of_many_hands_creates(self, catalog):
        catalog.create_database("shop")
        wins = []

        def race(me: int) -> None:
            try:
                catalog.register_table(ORDERS, options={"me": str(me)})
                wins.append(str(me))
            except AlreadyExistsError:
                pass

        threads = [threading.Thread(target=race, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [catalog.load_table(ORDERS).properties["me"]] == wins
