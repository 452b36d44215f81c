"""The store that docs/object-stores.md shows to whoever writes one: its tests as they stand there, and a table in it."""

import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.storage.warehouse import STORES
from tests.docs.blocks import DOCS, blocks

STORE, SUITE, LINE = (
    text
    for language, text in blocks(DOCS / "object-stores.md", "A store of your own")
    if language == "python"
)
MODULE = ModuleType("database_store")
exec(STORE + SUITE, MODULE.__dict__)
TestDatabase = MODULE.__dict__["TestDatabase"]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def _named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "database_store", MODULE)
    monkeypatch.setattr("lsm_engine.storage.warehouse.STORES", dict(STORES))
    exec(LINE, {})


@pytest.mark.usefixtures("_named")
def test_a_table_lives_in_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    with lsm.open_catalog(url, warehouse="db://lake/warehouse") as catalog:
        table = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options={"bucket": "1"})
        for number in range(4):
            rows = {"k": range(number, number + 3), "v": [str(number)] * 3}
            table.upsert(pa.table(rows, schema=SCHEMA))
        table.create_tag("one")
        table.delete([{"k": 5}])
        table.compact(full=True)
        wanted = {0: "0", 1: "1", 2: "2", 3: "3", 4: "3"}
        found = lsm.open_table("db://lake/warehouse/a.db/t").to_arrow().to_pydict()
        assert dict(zip(found["k"], found["v"], strict=True)) == wanted
        assert table.lookup([{"k": 4}])["v"].to_pylist() == ["3"]
        assert table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s").snapshot_ids
        table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
        assert table.verify(deep=True).is_clean
        assert list(catalog.rebuild()) == ["a.t"]
        catalog.drop_table("a.t")
        assert catalog.list_tables("a") == []
