"""Public objects answer what Python and its tools ask of any object."""

import ast
import copy
import inspect
import json
import pickle
import sys
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.docs.blocks import DOCS
from tests.unit.api.test_foreign_values import OWNERS, catalog_with_table

OPEN = {"catalog", "table", "scan"}
"""What holds a connection or a session, and is opened anew elsewhere."""
WITHOUT_TRUTH = {"column"}
"""A condition is neither true nor false by itself."""
OBJECTS = {
    **OWNERS,
    "tag": lambda catalog, table: table.tags()[0],
    "tags": lambda catalog, table: table.tags,
    "changes accessor": lambda catalog, table: table.changes,
    "inspect": lambda catalog, table: table.inspect,
    "maintenance": lambda catalog, table: table.maintenance,
    "options": lambda catalog, table: table.options,
    "report": lambda catalog, table: table.verify(),
    "predicate": lambda catalog, table: lsm.col("k").is_null(),
    "writer": lambda catalog, table: table.writer(background_compaction=False),
    "follower": lambda catalog, table: table.follow(),
    "error": lambda catalog, table: lsm.NotFoundError("no such thing", name="x"),
    "change": lambda catalog, table: lsm.AddColumn("x", int),
}


@pytest.fixture(params=OBJECTS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def thing(kind, tmp_path) -> Any:
    return OBJECTS[kind](*catalog_with_table(tmp_path))


def test_attributes_that_it_lacks_are_no_errors_of_another_kind(thing):
    for name in ("__fspath__", "__array__", "__dataframe__", "_repr_html_x", "no_such_name", "foo"):
        assert not hasattr(thing, name)
        assert getattr(thing, name, None) is None
    with pytest.raises(AttributeError, match="no_such_name"):
        thing.no_such_name  # noqa: B018 -- what raises


def test_it_has_a_truth_an_identity_and_a_text(kind, thing):
    if kind not in WITHOUT_TRUTH | {"predicate"}:
        assert bool(thing) in (True, False)
        assert (thing == thing) is True
        assert (thing == "something else") is False
    assert " object at 0x" not in repr(thing)


def test_its_members_are_listed_and_have_signatures(kind, thing):
    names = dir(thing)
    assert names
    assert all(isinstance(name, str) for name in names)
    for name in names:
        if name.startswith("_") or (kind == "module" and name not in lsm.__all__):
            continue
        member = getattr(thing, name)
        if inspect.ismethod(member) or inspect.isfunction(member):
            assert inspect.getdoc(member), name
            assert inspect.signature(member) is not None
    if kind not in ("module",):
        methods = inspect.getmembers(type(thing), inspect.isfunction)
        assert all(
            inspect.ismethod(getattr(thing, name))
            for name, _ in methods
            if not name.startswith("_")
        )


def test_it_is_copied_and_pickled_or_refuses_both(kind, thing):
    if kind in OPEN:
        for refused in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot pickle"):
                refused(thing)
    elif kind in ("lineage", "changes", "merge", "query"):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(thing)
    elif kind in ("snapshot", "schema", "options", "tag", "change", "report"):
        assert pickle.loads(pickle.dumps(thing)) == thing
        assert copy.copy(thing) == copy.deepcopy(thing) == thing


def test_the_module_lists_its_public_names():
    assert set(lsm.__all__) <= set(dir(lsm))
    assert not hasattr(lsm, "no_such_name")
    with pytest.raises(ImportError):
        exec("from lsm_engine import no_such_name")
    assert lsm.open_catalog is lsm.open_catalog


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        ("table", "vacuum", "maintenance.expire"),
        ("table", "to_batches", "to_reader"),
        ("catalog", "load_table", "catalog["),
        ("scan", "to_polars", "method of the table"),
        ("inspect", "refs", r"tags(), branches()"),
        ("maintenance", "expire_snapshots", "expire(...)"),
        ("module", "DeltaTable", "open_table"),
    ],
)
def test_names_of_other_libraries_say_what_to_use(owner, name, instead, tmp_path):
    thing = OBJECTS[owner](*catalog_with_table(tmp_path))
    assert not hasattr(thing, name)
    with pytest.raises(AttributeError) as refused:
        getattr(thing, name)
    assert instead in str(refused.value)


FUNCTIONS = [name for name in lsm.__all__ if inspect.isfunction(getattr(lsm, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_goes_to_other_processes(name):
    function = getattr(lsm, name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert inspect.signature(function) == inspect.signature(inspect.unwrap(function))


def test_the_module_lists_its_public_names_alone():
    assert dir(lsm) == sorted(lsm.__all__)


def test_a_notebook_shows_columns_and_snapshot_of_a_table(tmp_path):
    table = lsm.open_catalog(tmp_path).create_table("s.t", {"<id>": int, "v": str}, "<id>")
    assert "empty" in table._repr_html_()
    table.upsert([{"<id>": 1, "v": "<b>"}])
    shown = table._repr_html_()
    assert "<td>&lt;id&gt;</td><td>BIGINT NOT NULL</td><td>key</td>" in shown
    assert "upsert" in shown
    assert "<id>" not in shown


def test_the_notebook_of_the_tour_runs_and_its_values_show_themselves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS / "tour.ipynb").read_text())["cells"]
    names, shown = {}, {}
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        *statements, last = ast.parse(source).body
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        shown[type(value).__name__] = getattr(value, "_repr_html_", lambda: None)()
    assert {"Table", "WriteResult", "Scan", "Snapshot", "ExpiryReport", "VerifyReport"} <= {
        name for name, html in shown.items() if html and "<table>" in html
    }
    assert "price &gt; 10" in shown["Scan"]
    assert "<td>id</td><td>3</td>" in shown["Snapshot"]


def test_long_work_shows_in_a_notebook_how_far_it_is(tmp_path, capsys, monkeypatch):
    rows = pa.table({"id": range(30_000)})
    lsm.write_file(rows, tmp_path / "rows.csv")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("db.t", {"id": int}, primary_key="id")
        table.upsert(lsm.read_files(tmp_path / "rows.csv", table, progress=True))
        assert table.verify(deep=True, progress=True).is_clean
        assert capsys.readouterr().err == ""  # neither a notebook nor a terminal
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
        table.upsert(lsm.read_files(tmp_path / "rows.csv", table, progress=True))
        table.verify(deep=True, progress=True)
        lsm.doctor(catalog, progress=True)
        shown = [line.rpartition("\r")[2] for line in capsys.readouterr().err.split("\n")[:-1]]
    assert [line.partition(",")[0] for line in shown] == ["30", "2 files read", "1 tables read"]
    assert shown[0].startswith("30,000 rows read, ")
