"""A warehouse that other clients made has tables and no catalog of ours: every command finds them."""

import os
import random
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "java-0.9.0"


@pytest.fixture
def theirs(shell):
    """Two tables of Java, in a folder that holds nothing else."""
    for name in ("aggregation", "changelog_lookup"):
        (found,) = {path.parent.parent for path in (FIXTURES / name).rglob("schema/schema-0")
                    if "branch" not in str(path)}  # fmt: skip
        shutil.copytree(found, shell.warehouse / "java.db" / name)
    return shell


def test_its_tables_are_listed_looked_into_and_written_to(theirs):
    names = [row["table"] for row in theirs.json("tables")]
    assert names == ["java.aggregation", "java.changelog_lookup"]
    shown = theirs("tree", "java.aggregation")
    assert "no catalog here" in shown.stderr
    assert "lsm catalog rebuild" in shown.stderr
    for verb in ("schema", "snapshots", "verify", "explain"):
        theirs(verb, "java.changelog_lookup")
    count = theirs.json("count", "java.aggregation")[0]["rows"]
    theirs("compact", "java.aggregation", "--full")
    assert theirs.json("count", "java.aggregation")[0]["rows"] == count
    assert not (theirs.warehouse / "catalog.db").exists()
    assert "aggregation" in theirs("scan", "java.agregation", code=3).stderr


def test_a_rebuild_makes_a_catalog_of_it(theirs):
    rebuilt = {row["table"]: row["snapshots"] for row in theirs.json("lineage", "rebuild")}
    assert sorted(rebuilt) == ["java.aggregation", "java.changelog_lookup"]
    assert min(rebuilt.values()) > 0
    assert (theirs.warehouse / "catalog.db").is_file()
    assert "no catalog" not in theirs("tables").stderr


def test_a_folder_without_a_table_is_none(shell):
    (shell.warehouse / "empty.db").mkdir(parents=True)
    for words in (("tables",), ("lineage", "rebuild"), ("scan", "a.b")):
        assert "lsm create" in shell(*words, code=3).stderr
    assert not (shell.warehouse / "catalog.db").exists()


def test_a_lost_catalog_comes_back(shop):
    before = shop.json("tables")
    (shop.warehouse / "catalog.db").unlink()
    assert [row["table"] for row in shop.json("tables")] == [row["table"] for row in before]
    shop("lineage", "rebuild")
    assert shop.json("tables") == before


def mended(shop, *, spoil) -> str:
    """Spoil the catalog's file, look at what `lsm tables` answers, and run the command that it names."""
    before = shop.json("tables")
    spoil(shop.warehouse / "catalog.db")
    seen = shop("tables", code=(0, 8, 9, 10))
    if seen.exit_code == 0 and "catalog rebuild" not in seen.stderr:
        assert shop.json("tables") == before, seen.output
        return "unharmed"
    (command,) = set(re.findall(r"lsm catalog rebuild", seen.stderr))
    shop(*command.split()[1:])
    assert shop.json("tables") == before
    assert shop.json("lineage", "snapshot", "shop.orders", "1")[0]["files"]
    return "mended"


def empty_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def cut(size: int):
    return lambda file: file.write_bytes(file.read_bytes()[:size])


def test_a_lost_jdbc_catalog_is_not_taken_for_a_new_one(shop, tmp_path):
    asked = ("--catalog", f"jdbc:sqlite:{tmp_path}/theirs.db")
    assert "catalog rebuild" in shop(*asked, "tables", code=3).stderr
    assert not (tmp_path / "theirs.db").exists()
    before = [row["table"] for row in shop.json("tables")]
    shop(*asked, "catalog", "rebuild")
    assert [row["table"] for row in shop.json(*asked, "tables")] == before


@pytest.mark.parametrize(
    "spoil",
    [Path.unlink, cut(0), cut(40), cut(90), cut(4096), cut(9000), lambda file: file.write_bytes(b"\0" * 50_000),
     empty_directory],
    ids=["deleted", "emptied", "cut at 40", "cut at 90", "one page", "cut at 9000", "zeroes", "empty directory"],
)  # fmt: skip
def test_catalog_rebuild_brings_a_spoilt_catalog_back_by_the_one_command_that_the_message_names(
    shop, spoil
):
    assert mended(shop, spoil=spoil) == "mended"


def test_flipped_bytes_of_a_catalog_are_mended_or_harmless(shop):
    size = (shop.warehouse / "catalog.db").stat().st_size
    chance = random.Random(16)
    flips = int(os.environ.get("LSM_CATALOG_FLIPS", "3"))
    for at in [0, 18, 60, 70, 98, *(chance.randrange(size) for _ in range(flips))]:

        def flip(file: Path, at: int = at) -> None:
            data = bytearray(file.read_bytes())
            data[at % len(data)] ^= 1 << chance.randrange(8)
            file.write_bytes(data)

        mended(shop, spoil=flip)


def test_a_directory_that_holds_something_is_not_moved_from_where_a_catalog_belongs(shop):
    house = shop.warehouse / "shop.db"  # a database: its name ends as a catalog's does
    for words in (("tables",), ("catalog", "rebuild")):
        assert "move it away" in shop("--catalog", house, *words, code=5).stderr
    assert (house / "orders").is_dir()


def test_a_catalog_that_cannot_be_written_is_read(shop):
    before = shop.json("tables")
    file = shop.warehouse / "catalog.db"
    file.chmod(0o400)
    assert shop.json("tables") == before
    assert shop.json("count", "shop.orders")[0]["rows"] == 3


def test_what_is_damaged_is_moved_aside_and_kept(shop):
    file = shop.warehouse / "catalog.db"
    file.write_bytes(b"not a database, but somebody may want it" * 100)
    assert f"{file}.damaged-1" in shop("catalog", "rebuild").stderr
    assert (shop.warehouse / "catalog.db.damaged-1").read_bytes().startswith(b"not a database")
    notes = shop.file("notes.txt", "nothing to do with it")
    shop("catalog", "rebuild", "--catalog", notes, code=9)
    assert notes.read_text() == "nothing to do with it"


def test_catalog_register_and_catalog_unregister_a_table_that_the_catalog_does_not_know(shop):
    (shop.warehouse / "shop.db" / "orders").rename(shop.warehouse / "shop.db" / "older")
    message = shop("count", "shop.older", code=3).stderr
    assert "lsm catalog register shop.older" in message
    shop("catalog", "register", "shop.older")
    assert shop.json("count", "shop.older")[0]["rows"] == 3
    shop("catalog", "unregister", "shop.orders")
    assert [row["table"] for row in shop.json("tables")] == ["shop.older"]


def test_catalog_adopt_moves_a_table_from_elsewhere(shop, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (shop.warehouse / "shop.db" / "orders").rename(elsewhere)
    shop("catalog", "adopt", elsewhere, "shop.orders", code=4)
    assert elsewhere.is_dir()
    shop("catalog", "adopt", elsewhere, "mine.orders")
    assert shop.json("count", "mine.orders")[0]["rows"] == 3
    shop("catalog", "adopt", elsewhere, "mine.others", code=3)


def test_one_unreadable_table_does_not_keep_the_others_from_a_catalog(theirs):
    (theirs.warehouse / "java.db" / "aggregation" / "schema" / "schema-0").write_text("{")
    done = theirs("catalog", "rebuild")
    assert "java.aggregation" in done.stderr
    assert "java.changelog_lookup" in done.stdout
    rows = {row["table"]: row for row in theirs.json("tables")}
    assert "problem" in rows["java.aggregation"]


def test_a_jdbc_catalog_of_others_is_opened_as_it_is(theirs, monkeypatch, tmp_path):
    """Its URL as Java spells it; warehouse and catalog key are those that it holds."""
    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as made:
        made.executescript(f"""
            CREATE TABLE paimon_tables (catalog_key VARCHAR(255) NOT NULL, database_name VARCHAR(255)
              NOT NULL, table_name VARCHAR(255) NOT NULL, PRIMARY KEY (catalog_key, database_name, table_name));
            CREATE TABLE paimon_database_properties (catalog_key VARCHAR(255) NOT NULL, database_name
              VARCHAR(255) NOT NULL, property_key VARCHAR(255), property_value VARCHAR(1000),
              PRIMARY KEY (catalog_key, database_name, property_key));
            INSERT INTO paimon_tables VALUES ('prod', 'java', 'aggregation');
            INSERT INTO paimon_database_properties VALUES ('prod', 'java', 'exists', 'true'),
              ('prod', 'java', 'location', 'file:{theirs.warehouse}/java.db');
        """)
    theirs.environment["LSM_WAREHOUSE"] = None
    monkeypatch.chdir(tmp_path)
    url = f"jdbc:sqlite:{file}"
    theirs.warehouse.rename(tmp_path / "house")
    (tmp_path / "house").rename(theirs.warehouse.with_name("w"))
    with sqlite3.connect(file) as made:
        made.execute(
            "UPDATE paimon_database_properties SET property_value = replace(property_value, '/lake/', '/w/')"
        )
    (row,) = theirs.json("tables", "--catalog", url)
    assert row["table"] == "java.aggregation"
    assert theirs.json("count", "java.aggregation", "--catalog", url)[0]["rows"] > 0
    theirs("tables", "--catalog", url, "--catalog-key", "test")


@pytest.mark.parametrize("by_variable", [False, True], ids=["option", "variable"])
def test_a_catalog_that_is_named_and_missing_is_an_error_that_names_it(theirs, by_variable):
    missing = theirs.directory / "catalogue.db"
    named = () if by_variable else ("--catalog", missing)
    if by_variable:
        theirs.environment["LSM_CATALOG"] = str(missing)
    rows = theirs.file("rows.csv", "id\n1\n")
    for words in (("tables",), ("count", "java.aggregation"), ("upsert", "java.aggregation", rows)):
        error = theirs(*named, *words, code=3).stderr
        assert str(missing) in error
        assert "catalog rebuild" in error
        assert "lsm create" in error
    assert not missing.exists()
    theirs(*named, "catalog", "rebuild")
    assert theirs.json(*named, "count", "java.aggregation")[0]["rows"] > 0
    assert missing.is_file()
