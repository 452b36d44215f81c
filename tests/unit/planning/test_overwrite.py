"""What an overwrite replaces, on the base that it lands on."""

import pytest

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.filter.partition import partition_predicate
from lsm_engine.filter.predicate import TRUE
from lsm_engine.format.binary_row import encode_row
from lsm_engine.format.commit_message import CommitMessage, DataIncrement
from lsm_engine.planning.proposal import (
    DynamicPartitions,
    StaticPartitions,
    dynamic_scope,
    in_scope,
    overwritten,
    require_in_scope,
)
from lsm_engine.types.types import DataField, parse_type
from tests.unit.planning.facts import data_file, entry

FIELDS = tuple(DataField(id=n, name=name, type=parse_type("STRING")) for n, name in enumerate("pq"))
A, B, C = (encode_row(values, [field.type for field in FIELDS]) for values in ("xy", "xz", "wy"))
LIVE = [entry("a", partition=A), entry("b", partition=B), entry("c", partition=C)]


def message(partition: bytes, *names: str) -> CommitMessage:
    data = DataIncrement(new_files=tuple(data_file(name) for name in names))
    return CommitMessage(partition=partition, bucket=0, total_buckets=1, data=data)


def static(**values: object) -> StaticPartitions:
    return StaticPartitions(predicate=partition_predicate(values, FIELDS), fields=FIELDS)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (static(), "abc"),
        (static(p="x"), "ab"),
        (static(p="x", q="z"), "b"),
        (static(p="none"), ""),
        (DynamicPartitions(partitions=frozenset({A, C})), "ac"),
        (dynamic_scope([message(A, "new"), message(B)]), "a"),
        (dynamic_scope([]), ""),
    ],
)
def test_overwritten(scope: StaticPartitions | DynamicPartitions, expected: str) -> None:
    assert "".join(one.file.file_name for one in overwritten(LIVE, scope)) == expected


def test_an_unpartitioned_table_is_one_partition() -> None:
    scope = StaticPartitions(predicate=TRUE, fields=())
    assert len(overwritten([entry("a"), entry("b")], scope)) == 2


def test_rows_outside_are_refused() -> None:
    require_in_scope([message(A, "new"), message(B, "new")], static(p="x"))
    require_in_scope([message(C)], static(p="x"))
    with pytest.raises(InvalidInputError, match="outside"):
        require_in_scope([message(C, "new")], static(p="x"))


def test_a_partition_without_new_rows_is_not_overwritten() -> None:
    scope = dynamic_scope([message(A, "new"), message(B)])
    assert scope == DynamicPartitions(partitions=frozenset({A}))
    assert in_scope([B, C], scope) == frozenset()
    assert in_scope([C], DynamicPartitions(partitions=frozenset({A, C}))) == {C}
