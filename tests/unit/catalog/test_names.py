"""Which names are refused: whatever could leave the warehouse or mislead a reader."""

import pytest

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.catalog.names import TableName, check_database_name, check_table_name

GOOD = ["orders", "Orders 2013", "a'b", '"', ";--", "%2e%2e", "名前", "-", "tag-", "o" * 255]
BAD = [
    "", " ", " a", "a ", "\ta", "a\n", ".", "..", "../x", "a/b", "a\\b", "a.b", ".hidden",
    "$snapshots", "orders$files", "a\x00b", "a\x7fb", "a\x1bb", "a\u0085b", "a\u2028b",
    "a\u202eb", "\ud800", "o" * 256, "é" * 128,
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_names(name):
    check_table_name(name)


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_bad_names(name):
    for check in (check_table_name, check_database_name):
        with pytest.raises(InvalidInputError) as refused:
            check(name)
        assert refused.value.kind is ErrorKind.INVALID_NAME


def test_a_database_directory_has_a_suffix():
    check_database_name("d" * 252)
    with pytest.raises(InvalidInputError, match="252"):
        check_database_name("d" * 253)


def test_system_tables_keep_their_database():
    with pytest.raises(InvalidInputError, match="system"):
        check_database_name("SYS")


@pytest.mark.parametrize("text", ["orders", "", ".", "a.", ".b", "a.b.c", "shop.orders$files"])
def test_names_of_another_shape(text):
    with pytest.raises(InvalidInputError):
        TableName.parse(text)


def test_parse():
    assert TableName.parse("shop.orders") == TableName(database="shop", table="orders")
    assert TableName(database="shop", table="orders", branch="fix").text == "shop.orders@fix"
