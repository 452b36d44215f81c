"""One database, two catalogs: ours and pypaimon's JDBC catalog see the same databases and tables."""

import json
import stat
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.interop.canonical import canonical_rows, difference
from tests.interop.clients import ClientError, PypaimonClient
from tests.interop.newest_java import NewestJava
from tests.interop.our_tables import NUMBERS, numbers
from tests.unit.cli.conftest import Shell
from tests.unit.cli.test_operator import mended

pytestmark = pytest.mark.interop

SPELLED = [("k", "BIGINT NOT NULL"), ("v", "STRING"), ("n", "INT"), ("x", "DOUBLE")]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path: Path) -> str:
    """An SQLite file, or a database of a real server."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").fresh_url()
    return f"sqlite:///{tmp_path / 'catalog.db'}"


def rows_by_name(catalog: lsm.Catalog, name: str) -> list[dict]:
    return canonical_rows(catalog.table(name).scan().to_arrow())


def test_pypaimon_opens_ours(pypaimon: PypaimonClient, tmp_path: Path, url: str) -> None:
    warehouse = tmp_path / "lake"
    with lsm.open_catalog(url, warehouse=str(warehouse)) as catalog:
        catalog.create_database("empty")
        for name in ("shop.orders", "shop.returns"):
            made = catalog.create_table(name, pa.schema(NUMBERS), primary_key=["k"])
            made.upsert(numbers(range(20), name))
            made.delete(numbers(range(3)))
        wanted = {"empty": [], "shop": ["orders", "returns"]}
        assert pypaimon.catalog(url, warehouse, "tables") == wanted
        for name in ("shop.orders", "shop.returns"):
            got = pypaimon.catalog_rows(url, warehouse, name)
            assert difference(got, rows_by_name(catalog, name)) == ""


def test_each_sees_what_the_other_changes(
    pypaimon: PypaimonClient, tmp_path: Path, url: str
) -> None:
    warehouse = tmp_path / "lake"
    with lsm.open_catalog(url, warehouse=str(warehouse)) as catalog:
        catalog.create_table("a.ours", pa.schema(NUMBERS), primary_key=["k"]).upsert(
            numbers(range(5))
        )
        path = pypaimon.catalog(
            url, warehouse, "create",
            name="b.theirs", fields=SPELLED, primary_key=["k"], options={"bucket": "2"},
        )  # fmt: skip
        pypaimon.write(path, numbers(range(9)))
        assert catalog.list_databases() == ["a", "b"]
        table = catalog.table("b.theirs")
        assert difference(canonical_rows(table.scan().to_arrow()), pypaimon.read_rows(path)) == ""
        table.upsert(numbers(range(4, 12), "ours-"))
        assert difference(pypaimon.catalog_rows(url, warehouse, "b.theirs"), rows_by_name(catalog, "b.theirs")) == ""  # fmt: skip

        catalog.rename_table("a.ours", "b.moved")
        pypaimon.catalog(url, warehouse, "rename", old="b.theirs", new="b.renamed")
        assert pypaimon.catalog(url, warehouse, "tables")["b"] == ["moved", "renamed"]
        assert catalog.list_tables("b") == ["moved", "renamed"]
        assert len(rows_by_name(catalog, "b.renamed")) == 12
        assert len(pypaimon.catalog_rows(url, warehouse, "b.moved")) == 5

        pypaimon.catalog(url, warehouse, "drop", name="b.moved")
        with pytest.raises(lsm.NotFoundError):
            catalog.table("b.moved")
        catalog.drop_table("b.renamed")
        with pytest.raises(ClientError, match=r"renamed"):
            pypaimon.catalog_rows(url, warehouse, "b.renamed")


def test_we_open_one_that_pypaimon_made(pypaimon: PypaimonClient, tmp_path: Path, url: str) -> None:
    warehouse = tmp_path / "lake"
    warehouse.mkdir()
    path = pypaimon.catalog(
        url, warehouse, "create",
        name="db.t", fields=SPELLED, primary_key=["k"], options={"bucket": "1"},
    )  # fmt: skip
    pypaimon.write(path, numbers(range(7)))
    with lsm.open_catalog(url, warehouse=str(warehouse)) as catalog:
        assert catalog.list_databases() == ["db"]
        assert catalog.list_tables("db") == ["t"]
        table = catalog.table("db.t")
        assert Path(table.location) == Path(path)
        assert difference(canonical_rows(table.scan().to_arrow()), pypaimon.read_rows(path)) == ""
        table.upsert(numbers([1, 100], "ours-"))
        table.compact(full=True)
        catalog.create_table("db.ours", pa.schema(NUMBERS), primary_key=["k"])
        # What pypaimon committed before we knew the table has its place in the lineage too.
        told = catalog.rebuild_lineage()
        assert told["db.t"] == len(table.snapshots())
        assert pypaimon.catalog(url, warehouse, "tables") == {"db": ["ours", "t"]}
        assert difference(pypaimon.catalog_rows(url, warehouse, "db.t"), rows_by_name(catalog, "db.t")) == ""  # fmt: skip
    if url.startswith("sqlite"):
        assert stat.S_IMODE((tmp_path / "catalog.db").stat().st_mode) & 0o077 == 0


def test_a_jdbc_catalog_that_java_made_is_opened_as_it_is(
    java_2: NewestJava, tmp_path: Path
) -> None:
    """Java 1.4.2 makes it, in SQLite by JDBC; `lsm` is told its URL, and nothing else."""
    url, house = f"jdbc:sqlite:{tmp_path}/theirs.db", tmp_path / "house"
    catalog = {
        "metastore": "jdbc",
        "uri": url,
        "warehouse": f"file://{house}",
        "catalog-key": "prod",
    }
    fields = [["id", "BIGINT NOT NULL"], ["v", "STRING"]]
    for name in ("shop.orders", "shop.returns", "other.things"):
        path = java_2.ask(
            "create", catalog=catalog, name=name, fields=fields, keys=["id"], parts=[],
            options={"bucket": "1"},
        )  # fmt: skip
        java_2.ask("write", path=path, rows=[["+I", [key, name]] for key in range(3)])
    shell = Shell(tmp_path)
    shell.environment["LSM_WAREHOUSE"] = None
    asked = ("--catalog", url)
    names = [row["table"] for row in shell.json(*asked, "tables")]
    assert names == ["other.things", "shop.orders", "shop.returns"]
    assert [row["database"] for row in shell.json(*asked, "databases")] == ["other", "shop"]
    shell(*asked, "upsert", "shop.orders", shell.file("more.csv", "id,v\n2,ours\n3,ours\n"))
    shell(*asked, "create", "shop.ours", "--columns", "id BIGINT", "--primary-key", "id")
    shell(*asked, "rename", "other.things", "other.renamed")
    theirs = java_2.ask("read", path=str(house / "shop.db" / "orders"))
    assert sorted(theirs) == [[0, "shop.orders"], [1, "shop.orders"], [2, "ours"], [3, "ours"]]
    assert java_2.ask("tables", catalog=catalog) == {
        "other": ["renamed"], "shop": ["orders", "ours", "returns"],
    }  # fmt: skip
    assert json.loads(shell(*asked, "count", "other.renamed", "--json").stdout)["rows"] == 3
    mended(shell, *asked)  # the lineage of what Java committed before
