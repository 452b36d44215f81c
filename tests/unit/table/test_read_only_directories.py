"""Directories that this user may read, not write: reads go on, changes are refused with path and remedy, nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.unit.table.refused_operations import CHANGES, EXPIRED, READS, create_table, forbid

ROWS = [(key, "3") for key in range(5)]
PLAIN_USER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Root without the rights that put it above permissions."""
pytestmark = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which(PLAIN_USER[0]) is None,
    reason="root may write everywhere, and setpriv is not there to take that right away",
)


def command(*words: str) -> list[str]:
    return [*(PLAIN_USER if os.geteuid() == 0 else ()), sys.executable, *words]


def outcomes(*places: tuple[str, Path]) -> list[dict[str, dict[str, str] | None]]:
    """How each operation on tables ends while a folder of theirs is read-only."""
    words = [str(word) for place in places for word in place]
    child = subprocess.run(
        command("-m", "tests.unit.table.refused_operations", *words),
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(table: lsm.Table) -> list[tuple[int, str]]:
    return sorted((row["k"], row["v"]) for row in table.to_arrow().to_pylist())


def test_a_table_that_is_read_only_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    table = create_table(tmp_path)
    before = contents(tmp_path)
    (ends,) = outcomes((table.location, tmp_path))
    assert [name for name in READS if ends[name] is not None] == []
    for name in CHANGES:
        error = ends[name]
        assert error is not None, name
        assert (error["type"], error["errno"]) == ("StorageError", "EACCES"), name
        assert error["path"], name
        assert "give this user access" in error["message"], name
    assert contents(tmp_path) == before
    assert rows(table) == ROWS


FOLDERS = ("snapshot", "manifest", "bucket-0", "schema", "tag", "branch", "consumer", "changelog")


def test_one_directory_that_is_read_only(tmp_path: Path) -> None:
    """What needs the directory is refused; all that is done meanwhile, and later, is whole."""
    table = create_table(tmp_path / "lake")
    locations = {folder: str(tmp_path / folder) for folder in FOLDERS}
    for folder, location in locations.items():
        shutil.copytree(table.location, location)
        Path(location, folder).mkdir(exist_ok=True)
    places = [(location, Path(location, folder)) for folder, location in locations.items()]
    for (folder, location), ends in zip(locations.items(), outcomes(*places), strict=True):
        assert [name for name in READS if ends[name] is not None] == []
        refused = {name: error for name, error in ends.items() if error is not None}
        for name, error in refused.items():
            assert error["type"] in ("StorageError", "CommitUnknownError"), (folder, name, error)
            assert error["path"], (folder, name)
        later = lsm.open_table(location)
        assert later.maintenance.verify(deep=True).problems == (), folder
        for name in refused:
            CHANGES[name](lsm.open_table(location))
        later = lsm.open_table(location)
        later.upsert([{"k": 8, "v": "later"}])
        later.maintenance.expire(**EXPIRED)
        assert later.maintenance.verify(deep=True).problems == (), folder
        assert (8, "later") in rows(later), folder


OPEN = "import sys, lsm_engine as lsm; print(lsm.open_catalog(sys.argv[1]).list_tables())"


def test_a_catalog_whose_directory_is_read_only_is_refused_with_the_ways_on(tmp_path: Path) -> None:
    """SQLite keeps its log beside the file."""
    warehouse = tmp_path / "lake"
    table = create_table(warehouse)
    before = contents(warehouse)
    forbid(warehouse, writing=False)
    try:
        child = subprocess.run(
            command("-c", OPEN, str(warehouse)), capture_output=True, text=True, check=False
        )
        with lsm.open_catalog(f"sqlite:///{tmp_path}/own.db", warehouse=warehouse) as catalog:
            assert catalog.register_found_tables() == ["d.t"]
            assert rows(catalog["d.t"]) == ROWS
    finally:
        forbid(warehouse, writing=True)
    last = child.stderr.splitlines()[-1]
    assert "StorageError" in last
    assert str(warehouse / "catalog.db") in last
    assert "register_found_tables" in last
    assert contents(warehouse) == before
    with lsm.open_catalog(warehouse) as catalog:
        assert catalog["d.t"].location == table.location
