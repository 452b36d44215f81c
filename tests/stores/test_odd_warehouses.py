"""`lsm` on warehouses of a store as they are found: odd names, stray files, tables that lack something."""

import shlex
from pathlib import Path

import pytest

from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import StorageOptions
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options
from tests.unit.cli.conftest import Shell

FIXTURES = Path(__file__).parents[1] / "fixtures"
TABLES = {  # where, of which client; only files of these folders
    "Verkauf 2024.db/auf träge": ("java-0.9.0/pk_partitioned", ""),
    "größe.db/tabelle": ("pypaimon-2.1.0/pk_composite", ""),
    "shop.db/%41#?&+=t": ("java-0.9.0/pk_basic", ""),
    "shop.db/orders.bak": ("java-0.9.0/pk_basic", ""),
    "shop.db/nothing_yet": ("java-0.9.0/pk_basic", "schema"),
    "shop.db/lost_schema": ("java-0.9.0/levels", "snapshot"),
    "archive/2023/shop.db/nested": ("java-0.9.0/levels", ""),
}
STRAY = ("notes.txt", "shop.db/_SUCCESS", "shop.db/folder/readme.md", "empty.db/.keep")


@pytest.fixture
def found(s3: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    where = location(s3, f"odd {tmp_path.name}/lake ü")
    storage = dict(options(s3))
    theirs = ObjectFileIO(parse_location(where), StorageOptions(storage))
    for target, (source, only) in TABLES.items():
        (table,) = (one.parent.parent for one in (FIXTURES / source).glob("**/schema-0"))
        for file in (one for one in (table / only).rglob("*") if one.is_file()):
            theirs.write_new(f"{target}/{file.relative_to(table).as_posix()}", file.read_bytes())
    for path in STRAY:
        theirs.write_new(path, b"ask Jo")
    for name, value in storage.items():
        monkeypatch.setenv("LSM_STORAGE_" + name.replace(".", "_").replace("-", "_").upper(), value)
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    shell.environment["LSM_WAREHOUSE"] = where
    return shell


def test_a_store_of_odd_names_is_seen_named_and_written(found: Shell) -> None:
    names = ["Verkauf 2024.auf träge", "größe.tabelle", "shop.%41#?&+=t", "shop.lost_schema", "shop.nothing_yet"]  # fmt: skip
    where = found.environment["LSM_WAREHOUSE"]
    for _ in range(2):
        problems = {row["table"]: row.get("problem") for row in found.json("tables")}
        assert sorted(problems) == names
        assert [name for name, problem in problems.items() if problem] == ["shop.lost_schema"]
        note, lost = found.json("doctor", "--shallow", code=1)
        assert (note["table"], note["command"]) == ("shop.db/orders.bak", None)
        assert "adopt" not in note["cost"]  # which a store refuses
        assert (lost["table"], lost["kind"], lost["command"]) == (
            "shop.lost_schema",
            "damage",
            None,
        )
        counts = [found.json("count", name)[0]["rows"] for name in names if "lost" not in name]
        assert counts == [24, 18, 10, 0]
        found("catalog", "rebuild")
    rows = {row["database"]: row["tables"] for row in found.json("databases")}
    assert rows == {"Verkauf 2024": 1, "größe": 1, "shop": 3}
    found("compact", "shop.%41#?&+=t", "--full")
    found("branch", "create", "größe.tabelle", "try it")
    assert found.json("count", "größe.tabelle@try it")[0]["rows"] == 0
    found("verify", f"{where}/shop.db/orders.bak")
    for path, words in (
        ("shop.db", ["lsm", "--warehouse", where, "tables"]),
        ("größe.db/tabelle/", ["lsm", "show", "snapshots", f"{where}/größe.db/tabelle"]),
    ):
        refused = found("--warehouse", f"{where}/{path}", "tables", code=3).stderr
        assert shlex.join(words) in " ".join(refused.split()), refused
        found(*words[1:])
    nested = found.json("--warehouse", f"{where}/archive/2023", "tables")
    assert [row["table"] for row in nested] == ["shop.nested"]
