"""Foreign values for every argument of every public function: an error of this library, never one from within."""

import datetime
import inspect
import pathlib
import typing
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api import auto_cdc

VALUES = [
    object(), 2**70, 10**400, Fraction(10**400, 3), -1, -(2**63), 0, float("nan"), float("inf"), 1.5, "", "\0", "a\nb", "\ud800", "x" * 5000,
    b"x", [1], ["a"], [[]], {}, {1: 2}, {"a": object()}, (), set(), datetime.datetime(2020, 1, 1, tzinfo=None),  # noqa: DTZ001
    datetime.date(1, 1, 1), np.int8(3), np.datetime64("NaT"), True, None, ..., int, lambda: 1, pa.array([1]),
    pd.DataFrame(), "../../etc", "snapshot", "d.t",
]  # fmt: skip
FITTING = {
    "rows": [{"k": 1}], "keys": [1], "name": "one", "snapshot_id": 1, "where": "k = 1", "set": {"v": "'x'"},
    "schema": {"k": int}, "n": 1, "source": "d.t", "target": "d.u",
}  # fmt: skip
NOT_CALLED = {
    "follow",  # waits for commits
    *("record", "rebuild"),  # what listeners hand to the lineage; `lsm.record` decorates a class
    "locate",  # of a query: the batches of one task
}
INJECTED = {"clock", "ids", "executor", "session", "cache", "file_io"}


def catalog_with_table(directory: Any) -> tuple[lsm.Catalog, lsm.Table]:
    catalog = lsm.open_catalog(directory)
    columns = {"k": int, "v": str, "s": "ROW<a INT, b STRING>"}
    options = {"bucket": "1", "changelog-producer": "lookup"}
    table = catalog.create_table("d.t", columns, primary_key="k", options=options)
    table.upsert([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    table.create_tag("one")
    table.create_branch("br", tag="one")
    return catalog, table


OWNERS: dict[str, Callable[[lsm.Catalog, lsm.Table], Any]] = {
    "catalog": lambda catalog, table: catalog,
    "table": lambda catalog, table: table,
    "tags": lambda catalog, table: table.tags,
    "branches": lambda catalog, table: table.branches,
    "consumers": lambda catalog, table: table.consumers,
    "changes of table": lambda catalog, table: table.changes,
    "inspect": lambda catalog, table: table.inspect,
    "maintenance": lambda catalog, table: table.maintenance,
    "scan": lambda catalog, table: table.scan(),
    "merge": lambda catalog, table: table.merge([{"k": 1, "v": "z"}]),
    "changes": lambda catalog, table: table.changes(),
    "lineage": lambda catalog, table: catalog.lineage,
    "query": lambda catalog, table: table.query(),
    "column": lambda catalog, table: lsm.col("k"),
    "snapshot": lambda catalog, table: table.latest_snapshot(),
    "schema": lambda catalog, table: table.schema,
    "module": lambda catalog, table: lsm,
}


def functions_of(owner: Any) -> list[tuple[str, Any]]:
    names = lsm.__all__ if owner is lsm else dir(owner)
    members = [(name, getattr(owner, name)) for name in names if not name.startswith("_")]
    functions = {
        # One function under several names, as those of the system tables, is called once.
        getattr(member, "__code__", name): (name, member)
        for name, member in members
        if (inspect.isfunction(member) or inspect.ismethod(member)) and name not in NOT_CALLED
    }
    return list(functions.values())


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    """Some values are paths: what they make lies below the test's directory."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")


@pytest.mark.parametrize("kind", OWNERS)
def test_a_foreign_value_is_refused_by_an_error_of_ours(kind, tmp_path):
    owner = OWNERS[kind](*catalog_with_table(tmp_path))
    functions = functions_of(owner)
    assert functions
    for name, function in functions:
        parameters = inspect.signature(function).parameters.values()
        needed = {
            parameter.name: FITTING.get(parameter.name, "x")
            for parameter in parameters
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        }
        for parameter in parameters:
            if parameter.name in INJECTED or parameter.kind is parameter.VAR_KEYWORD:
                continue
            for value in VALUES:
                try:
                    if parameter.kind is parameter.VAR_POSITIONAL:
                        function(value)
                    else:
                        function(**{**needed, parameter.name: value})
                except lsm.LsmError:
                    pass
                except Exception as error:
                    error.add_note(f"{name}({parameter.name}={value!a})")
                    raise


OPTIONS = {
    lsm.CommitOptions: (("table", "upsert"), {"rows": [{"k": 1}], "commit_identifier": 9}),
    lsm.FileOptions: (("module", "read_files"), {"paths": "rows.csv"}),
    auto_cdc.AutoCdcWrite: (("table", "auto_cdc"), {"source": [{"k": 1}], "keys": "k", "sequence_by": "k"}),
}  # fmt: skip
"""Of keyword options a function that takes them, and what it needs besides."""


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_foreign_value_of_an_option_is_refused_by_an_error_of_ours(kind, tmp_path):
    (owner, name), needed = OPTIONS[kind]
    pathlib.Path("rows.csv").write_text("k\n1\n")
    function = getattr(OWNERS[owner](*catalog_with_table(tmp_path)), name)
    for option in typing.get_type_hints(kind):
        for value in VALUES:
            try:
                function(**{**needed, option: value})
            except lsm.LsmError:
                pass
            except Exception as error:
                error.add_note(f"{name}({option}={value!a})")
                raise


CHANGES = [change for change in typing.get_args(lsm.SchemaChange) if isinstance(change, type)]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_foreign_values_is_refused_and_changes_nothing(change, tmp_path):
    _, table = catalog_with_table(tmp_path)
    fitting = {"name": "v", "key": "bucket", "new_name": "w", "type": "STRING"}
    parameters = inspect.signature(change).parameters
    needed = {
        name: fitting.get(name, "x")
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
    }
    for name in parameters:
        for value in VALUES:
            names = table.schema.names
            try:
                table.alter(change(**{**needed, name: value}))
            except lsm.LsmError:
                assert table.schema.names == names
            except Exception as error:
                error.add_note(f"{change.__name__}({name}={value!a})")
                raise
