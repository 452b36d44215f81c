"""Warehouses as they are found: directories without a name, or without leave to look, databases without tables."""

import os
import shutil
import sys

import pytest

from lsm_engine.base.errors import StorageError
from lsm_engine.cli.safe_text import echo_aside
from lsm_engine.storage import warehouse
from lsm_engine.storage.local import LocalFileIO


@pytest.fixture
def found(shop):
    """The shop without its catalog, and what people have left beside its table."""
    (shop.warehouse / "catalog.db").unlink()
    database = shop.warehouse / "shop.db"
    shutil.copytree(database / "orders", database / "orders.bak")
    shutil.copytree(database / "orders", shop.warehouse / "stray.db")
    for name in ("empty.db", "loop.db", "shop.db/no_table"):
        (shop.warehouse / name).mkdir()
    (shop.warehouse / "loop.db" / "again").symlink_to(shop.warehouse / "loop.db")
    (shop.warehouse / "loop.db" / "itself").symlink_to("itself")
    (shop.warehouse / "notes.txt").write_text("ask Jo")
    (database / "a_file").write_text("")
    return shop


@pytest.fixture
def forbid(monkeypatch):
    """Let this user not list directories whose path, or table, ends in one of some names."""
    names: list[str] = []
    before = LocalFileIO.list

    def listed(self, directory):
        whole = os.path.join(self.root, directory)
        if any(f"/{name}/" in f"{whole}/" for name in names):
            raise StorageError("no permission", path=directory, errno="EACCES")
        return before(self, directory)

    monkeypatch.setattr(LocalFileIO, "list", listed)
    return names.append


def test_a_directory_that_no_name_means_hides_no_table(found) -> None:
    listed = found("tables")
    assert "shop.orders " in listed.stdout
    assert "left out: shop.db/orders.bak, as a table name may not contain a dot" in listed.stderr
    (note,) = found.json("doctor")
    assert (note["table"], note["severity"]) == ("shop.db/orders.bak", "note")
    assert "may not contain a dot" in note["finding"]
    path = found.warehouse / "shop.db" / "orders.bak"
    assert found.json("show", "snapshots", path)
    found("doctor", path)
    found("catalog", "rebuild")
    assert [row["table"] for row in found.json("tables")] == ["shop.orders"]
    assert "left out" not in found("tables").stderr
    found("catalog", "adopt", path, "shop.orders_bak")
    assert found.json("count", "shop.orders_bak") == found.json("count", "shop.orders")


def test_databases_without_tables_are_there(found) -> None:
    rows = {row["database"]: row["tables"] for row in found.json("databases")}
    assert rows == {"empty": 0, "loop": 0, "shop": 1, "stray": 0}
    assert found.json("tables", "empty") == []


def test_what_this_user_may_not_list_hides_no_table(shop, forbid) -> None:
    with shop.catalog() as catalog:
        schema = catalog["shop.orders"].schema.arrow
        for name in ("shop.secret", "locked.orders"):
            catalog.create_table(name, schema, primary_key="order_id")
    forbid("secret")
    forbid("locked.db")
    problems = {row["table"]: row.get("problem") for row in shop.json("tables")}
    assert problems == {
        "locked.orders": "no permission", "shop.orders": None, "shop.secret": "no permission",
    }  # fmt: skip
    found = shop.json("doctor", code=1)
    assert {one["table"] for one in found} == {"locked.orders", "shop.secret"}
    assert {one["command"] for one in found} == {None}  # the catalog is right
    (shop.warehouse / "catalog.db").unlink()
    warehouse._warn_once.cache_clear()
    listed = shop("tables")
    assert "the tables of locked.db are left out" in listed.stderr
    assert [row["table"] for row in shop.json("tables")] == ["shop.orders", "shop.secret"]
    shop("scan", "shop.orders")


@pytest.mark.parametrize(
    ("below", "instead"),
    [
        ("shop.db/orders", "it is a table itself: lsm show snapshots"),
        ("shop.db", "it is a database: lsm --warehouse"),
        ("notes.txt", "it is a file"),
        ("empty.db", "lsm create"),
        ("nowhere", "lsm create"),
    ],
)
def test_a_warehouse_that_is_none_leads_to_what_it_is(found, below, instead) -> None:
    refused = found("--warehouse", found.warehouse / below, "tables", code=3)
    assert instead in refused.stderr
    if "lsm show" in instead or "--warehouse" in instead:
        words = refused.stderr.partition(": lsm ")[2].partition(" looks at")[0].split()
        found(*words)


def test_notes_are_wrapped_at_a_terminal_and_commands_are_whole(monkeypatch, capsys) -> None:
    command = "lsm --warehouse 'ware house' catalog rebuild"
    text = f"     no catalog here: the tables that were found are shown; {command} makes one"
    monkeypatch.setenv("COLUMNS", "60")
    echo_aside(text, command)
    assert capsys.readouterr().err == f"{text}\n"  # in a pipe, as long as it is
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    echo_aside(text, command)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 60
    assert any(command in line for line in lines)
    assert all(line.startswith("     ") for line in lines)
    assert " ".join(line.strip() for line in lines) == text.strip()
