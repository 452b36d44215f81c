"""Which snapshots were made beside another client: the property that is handed on for a while."""

import pytest

from lsm_engine.planning.snapshot_chain import (
    BASE,
    OTHER_CLIENT,
    is_beside_others,
    is_of_another_client,
    with_base,
)
from tests.unit.metadata.documents import snapshot

OURS = {"writer_version": "lsm-engine-1"}


def test_ours_name_their_base_or_their_version() -> None:
    assert is_of_another_client(snapshot(7))
    assert is_of_another_client(snapshot(7, properties={"a": "b"}, writer_version="paimon-1"))
    assert not is_of_another_client(snapshot(7, **OURS))
    assert not is_of_another_client(snapshot(7, properties={BASE: "list"}))


def test_nothing_is_noted_where_all_are_ours() -> None:
    assert with_base(None, None) is None
    assert with_base({"a": "b"}, None) == {"a": "b"}
    base = snapshot(7, **OURS)
    assert with_base({"a": "b"}, base) == {"a": "b", BASE: base.delta_manifest_list}
    assert not is_beside_others(base)
    assert not is_beside_others(snapshot(8, properties={OTHER_CLIENT: "x"}))


@pytest.mark.parametrize(("base_id", "is_near"), [(7, True), (56, True), (57, False), (900, False)])
def test_another_client_is_named_as_long_as_it_is_near(base_id: int, *, is_near: bool) -> None:
    properties = {BASE: "list", OTHER_CLIENT: "7"}
    base = snapshot(base_id, **OURS, properties=properties)
    found = with_base({"a": "b"}, base)
    assert found is not None
    assert found.get(OTHER_CLIENT) == ("7" if is_near else None)
    assert is_beside_others(snapshot(base_id + 1, properties=found)) is is_near


def test_the_newest_of_other_clients_is_named() -> None:
    found = with_base(None, snapshot(9, properties={OTHER_CLIENT: "7"}))
    assert found is not None
    assert found[OTHER_CLIENT] == "9"
