"""Accessors of a table, and the operations that keep the names they had before accessors."""

import inspect
import re

import pytest

import lsm_engine as lsm
from lsm_engine.api import accessors
from lsm_engine.inspect.system_tables import TABLES

PROPERTIES = {
    "tags": accessors.Tags,
    "branches": accessors.Branches,
    "consumers": accessors.Consumers,
    "changes": accessors.Changes,
    "inspect": accessors.Inspect,
    "maintenance": accessors.Maintenance,
}
FORMER_NAMES = {
    name: method
    for name, method in vars(lsm.Table).items()
    if re.match(
        r"(Tags|Branches|Consumers|Changes|Inspect|Maintenance)\.",
        getattr(method, "__qualname__", ""),
    )
}


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(tmp_path)
    options = {"bucket": "1", "changelog-producer": "input"}
    created = catalog.create_table("d.t", {"k": int, "v": str}, primary_key="k", options=options)
    created.upsert([{"k": 1, "v": "a"}])
    return created


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_table_has_its_accessors(name, table):
    accessor = getattr(table, name)
    assert type(accessor) is PROPERTIES[name]
    assert repr(accessor) == f"<{type(accessor).__name__} of 'd.t'>"
    assert accessor.__doc__


def test_former_names_are_methods_of_accessors():
    assert len(FORMER_NAMES) > 45
    for name, method in FORMER_NAMES.items():
        owner, _, operation = method.__qualname__.partition(".")
        original = getattr(getattr(accessors, owner), operation)
        assert inspect.signature(method) == inspect.signature(original), name
        assert inspect.getdoc(method) == inspect.getdoc(original), name


NEW_NAMES = {"Inspect.iceberg", "Maintenance.sync_iceberg"}


def test_every_operation_of_an_accessor_had_a_name_or_is_new_or_is_a_system_table():
    operations = {method.__qualname__ for method in FORMER_NAMES.values()} | NEW_NAMES
    for accessor in PROPERTIES.values():
        for name, member in vars(accessor).items():
            if name.startswith("_") or isinstance(member, property) or name in TABLES:
                continue
            is_called = "__call__" in vars(accessor) and name in ("list", "names", "read")
            assert is_called or f"{accessor.__name__}.{name}" in operations, name


def test_tags_and_branches_are_gone_through_and_asked(table):
    assert list(table.tags) == table.tags() == table.tags.list() == []
    table.tags.create("v1")
    table.create_tag("v2")
    assert (
        [tag.name for tag in table.tags] == table.tags.names() == table.tag_names() == ["v1", "v2"]
    )
    assert "v1" in table.tags
    assert "v3" not in table.tags
    table.branches.create("fix", tag="v1")
    assert list(table.branches) == table.branches() == table.branches.names() == ["fix"]
    assert "fix" in table.branches
    table.tags.rename("v2", "v3")
    table.tags.delete("v3")
    assert table.tags.get("v1") == table.tag("v1")


def test_changes_are_called_as_before(table):
    assert table.changes().to_arrow().equals(table.changes.to_arrow())
    assert table.changes.to_arrow().equals(table.changelog())
    assert [item.snapshot_id for item in table.changes.follow(poll_millis=None)] == [1]


def test_a_fast_forward_and_a_rescale_change_the_table_itself(table):
    table.tags.create("v1")
    table.branches.create("next", tag="v1")
    table.branch("next").alter(lsm.AddColumn("w", int))
    table.branch("next").upsert([{"k": 2, "v": "b", "w": 5}])
    table.branches.fast_forward("next")
    assert table.schema.names == ("k", "v", "w")
    table.maintenance.rescale(2)
    assert table.schema.bucket_count == 2
    assert table.count() == 2


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"ro", "row_tracking", "damaged_files_deep"}))
def test_every_system_table_is_a_method(name, table):
    method = getattr(table.inspect, name)
    assert method().equals(table.inspect.system(name)) or name == "health"
    assert f"`{name}`" in inspect.getdoc(method)
    columns = method().schema.names[:1]
    assert method(columns=columns).schema.names == columns


def test_options_of_a_commit_are_keywords_or_one_value(table):
    options = lsm.CommitOptions(commit_user="loader", commit_identifier=7, properties={"a": "b"})
    made = table.upsert([{"k": 5, "v": "x"}], **options)
    assert made.commit_user == "loader"
    assert made.properties["a"] == "b"
    assert table.upsert([{"k": 5, "v": "y"}], **options) == made  # a replay
    assert table.count() == 2
    with pytest.raises(TypeError, match="commit_usr"):
        table.upsert([{"k": 5, "v": "x"}], commit_usr="loader")
    with pytest.raises(lsm.InvalidInputError, match="commit_identifier is a whole number"):
        table.upsert([{"k": 5, "v": "x"}], commit_identifier="seven")
