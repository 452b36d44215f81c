"""Operations by themselves: the surface of the specification, routes, pages of names, and tokens."""

from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.server.application import Access, Tokens
from lsm_engine.server.iceberg import PROTOCOL as ICEBERG
from lsm_engine.server.operation import Request, Service, matching, page, table_name_of
from lsm_engine.server.paimon import OPERATIONS, PROTOCOL

ORDERS = "/v1/lsm/databases/shop/tables/orders"


@pytest.fixture
def service(tmp_path):
    with lsm.open_catalog(tmp_path) as catalog:
        yield Service(catalog=catalog, prefix="lsm")


@pytest.mark.parametrize("protocol", [PROTOCOL, ICEBERG], ids=lambda protocol: protocol.name)
def test_every_operation_of_the_specification_is_answered_or_refused_by_its_name(protocol) -> None:
    lines = Path(__file__).with_name(f"{protocol.name}_operations.txt").read_text().splitlines()
    operations = [each for each in protocol.operations if "/engine/" not in each.path]
    ours = {f"{operation.name} {operation.method} {operation.path}" for operation in operations}
    assert ours == {line.replace("{namespace}", "{database}") for line in lines}
    assert all(operation.summary.endswith(".") for operation in operations)


def test_what_changes_something_needs_a_token_that_writes() -> None:
    readers = {operation.name for operation in OPERATIONS if operation.access is Access.READ}
    posts = {operation.name for operation in OPERATIONS if operation.method == "POST"}
    assert readers & posts == {"authTableQuery", "listPartitionsByNames"}


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", ORDERS, "getTable"),
        ("POST", ORDERS, "alterTable"),
        ("GET", "/v1/lsm/tables/id/abc", "getTableById"),
        ("POST", "/v1/lsm/tables/rename", "renameTable"),
        ("POST", f"{ORDERS}/branches/fix/forward", "forwardBranch"),
        ("PUT", ORDERS, None),
        ("GET", f"{ORDERS}/", None),
        ("GET", "/v1/lsm/databases/shop/tables/a/b", None),
        ("GET", "/t/shop.orders", None),
    ],
)
def test_a_path_leads_to_its_operation(method, path, name) -> None:
    match = PROTOCOL.find(method, path)
    assert (match and match[0].name) == name


def test_names_are_decoded_after_the_path_is_cut_at_slashes() -> None:
    match = PROTOCOL.find("GET", "/v1/lsm/databases/my+shop/tables/a%2Fb")
    assert match is not None
    assert match[1] == {"prefix": "lsm", "database": "my shop", "table": "a/b"}


def test_pages_go_on_after_a_name_that_is_gone(service) -> None:
    request = Request(service=service, path={}, query={"maxResults": "2", "pageToken": "b"})
    assert page(request, ["d", "a", "e", "c"]) == (["c", "d"], "d")
    assert page(request, ["c", "d"]) == (["c", "d"], None)
    assert page(Request(service=service, path={}), map(str, range(1_001)))[1] is not None


def test_a_pattern_has_one_sign() -> None:
    names = ["orders", "orders_old", "border"]
    assert matching(names, "order%") == ["orders", "orders_old"]
    assert matching(names, "%order%") == names
    assert matching(names, "o.*") == []
    assert matching(names, None) == names


def test_a_branch_is_named_as_clients_name_it() -> None:
    assert table_name_of("shop", "orders$branch_fix").text == "shop.orders@fix"
    with pytest.raises(lsm.InvalidInputError):
        table_name_of("shop", "orders$snapshots")


def test_a_token_allows_what_it_is_for() -> None:
    tokens = Tokens(write=("w" * 16,), read=("r" * 16,))
    assert tokens.access_of("w" * 16) is Access.WRITE
    assert tokens.access_of("r" * 16) is Access.READ
    assert tokens.access_of("") is None
    assert "w" * 16 not in repr(tokens)
