"""Tables of others may have columns of the names that our answers add: refused by name, never doubled."""

import json
from collections.abc import Callable

import pytest

import lsm_engine as lsm
from tests.foreign_documents import without_checksum
from tests.unit.table.history_tables import Story


def foreign(name: str) -> lsm.Table:
    """A table of two rows whose value column somebody else has called `name`."""
    story = Story()
    stored = json.loads(without_checksum(story.disk.read("schema/schema-0")))
    stored["fields"][1]["name"] = name
    story.disk.replace("schema/schema-0", json.dumps(stored).encode())
    table = story.reopened()
    table.upsert([{"id": 1, name: "+I"}, {"id": 2, name: "+I"}])
    return table


ASKED: dict[str, tuple[Callable[[lsm.Table], object], tuple[str, ...]]] = {
    "changes": (lambda table: table.changes(0), ("_snapshot_id", "_row_kind")),
    "changelog": (lambda table: table.changelog(0), ("_snapshot_id", "_row_kind")),
    "follow": (lambda table: next(table.follow(poll_millis=None)), ("_snapshot_id",)),
    "explain_key": (
        lambda table: table.explain_key({"id": 1}),
        ("_snapshot_id", "_row_kind", "_position", "_level", "_verdict", "_version"),
    ),
    "audit_log": (lambda table: table.system("audit_log"), ("rowkind",)),
    "binlog": (lambda table: table.system("binlog"), ("rowkind",)),
}


@pytest.mark.parametrize("asked", sorted(ASKED))
def test_a_name_that_is_taken_is_refused(asked: str) -> None:
    act, names = ASKED[asked]
    for name in names:
        if name == "_row_kind":
            continue  # rows cannot be written beside it, see below
        table = foreign(name)
        with pytest.raises(lsm.UnsupportedError) as caught:
            act(table)
        assert caught.value.facts["columns"] == [name]
        assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == [1, 2]


def test_locate_and_lookup_add_no_second_column_of_a_name() -> None:
    for name in ("action", "partition", "bucket", "file_name", "snapshot_id"):
        located = foreign(name).locate([{"id": 1}, {"id": 9}])
        assert located.column("action").to_pylist() == ["update", "insert"]
    found = foreign("_found")
    with pytest.raises(lsm.InvalidInputError, match="_found"):
        found.lookup([{"id": 1}])
    assert found.lookup([{"id": 1}], columns=["id"]).column("_found").to_pylist() == [True]


def test_a_stored_row_kind_column_is_a_value_and_its_changes_are_refused() -> None:
    table = foreign("_row_kind")
    assert table.scan().to_arrow().column("_row_kind").to_pylist() == ["+I", "+I"]
    with pytest.raises(lsm.UnsupportedError, match="_row_kind"):
        table.changelog(0)
