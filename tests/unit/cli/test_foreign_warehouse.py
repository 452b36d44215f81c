"""A warehouse that other clients made has tables and no catalog of ours: every command finds them."""

import shutil
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
    assert "lineage rebuild" in shown.stderr
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
