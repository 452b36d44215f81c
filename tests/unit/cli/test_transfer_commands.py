"""Rows in and out as files, MERGE from a shell, and what the shell completes."""

import sys

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.shell_completion import ShellComplete

from lsm_engine.cli.call import Call
from lsm_engine.cli.main import lsm
from tests.unit.cli.conftest import rows


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow"])
def test_export_writes_a_file_whole_or_not_at_all(shop, kind):
    file = shop.directory / f"orders.{kind}"
    (report,) = shop.json("export", "shop.orders", file, "--where", "order_id < 3")
    assert report["rows"] == 2
    shop("export", "shop.orders", file, code=4)
    shop("create", "shop.copy", "--columns", "order_id BIGINT, day STRING, customer STRING, price DECIMAL(10,2), "
         "paid_at TIMESTAMP(3)", "--primary-key", "order_id")  # fmt: skip
    shop("upsert", "shop.copy", file)
    assert shop.json("scan", "shop.copy") == shop.json(
        "scan", "shop.orders", "--where", "order_id < 3"
    )
    shop("export", "shop.orders", shop.directory / "none.parquet", "--columns", "nothing", code=3)
    assert not list(shop.directory.glob("none*"))


def test_import_takes_a_folder_of_parquet_files_over(shop):
    folder = shop.directory / "old"
    for day, extra in (("mon", {}), ("tue", {"note": ["x"]})):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(
            pa.table({"id": [len(day) + len(extra)], **extra}), folder / f"day={day}" / "a.parquet"
        )
    (report,) = shop.json("import", "mine.orders", folder, "--primary-key", "id")
    assert report["rows"] == 2
    found = sorted(shop.json("scan", "mine.orders"), key=lambda row: row["id"])
    assert found == [{"id": 3, "day": "mon", "note": None}, {"id": 4, "day": "tue", "note": "x"}]
    shop("import", "mine.orders", folder)
    assert shop.json("count", "mine.orders")[0]["rows"] == 2
    (folder / "metadata").mkdir()
    assert "its own" in shop("import", "mine.other", folder, code=5).stderr
    shop("count", "mine.other", code=3)


def test_import_takes_the_files_themselves_by_links(shop):
    folder = shop.directory / "old" / "deep"
    folder.mkdir(parents=True)
    for number in (1, 2):
        pq.write_table(pa.table({"id": [number], "s": ["x"]}), folder / f"{number}.parquet")
    (report,) = shop.json("import", "mine.plain", folder.parent, "--link")
    assert report["rows"] == 2
    assert shop.json("scan", "mine.plain", "--where", "id = 2") == [{"id": 2, "s": "x"}]
    assert [file.stat().st_nlink for file in folder.iterdir()] == [2, 2]
    keyed = shop("import", "mine.keyed", folder, "--primary-key", "id", "--link", code=8)
    assert "primary key" in keyed.stderr
    (folder / "day=mon").mkdir()
    pq.write_table(pa.table({"id": [3], "s": ["x"]}), folder / "day=mon" / "3.parquet")
    assert (
        "'day' is not in the file" in shop("import", "mine.days", folder, "--link", code=5).stderr
    )
    shop(
        "import", "mine.plain", folder, "--link", code=5
    )  # it has no column 'day' that could be left out
    assert shop.json("count", "mine.plain") == shop.json(
        "count", "mine.plain", "--where", "s = 'x'"
    )
    listed = shop("tables").output
    assert "plain" in listed
    assert "keyed" not in listed
    assert "days" not in listed


def test_a_delta_table_is_linked_as_its_log_says(shop):
    folder = shop.directory / "delta"
    deltalake.write_deltalake(folder, pa.table({"id": [1, 2], "s": ["a", "b"]}))
    deltalake.write_deltalake(folder, pa.table({"id": [3], "s": ["c"]}), mode="append")
    deltalake.DeltaTable(folder).delete("id = 2")
    shop("import", "mine.moved", folder, "--link")
    assert sorted(row["id"] for row in shop.json("scan", "mine.moved")) == [1, 3]


def test_import_of_rows_that_do_not_fit_leaves_the_table_alone(shop):
    folder = shop.directory / "old"
    folder.mkdir()
    pq.write_table(pa.table({"order_id": ["x"], "day": ["mon"]}), folder / "a.parquet")
    before = shop.json("show", "snapshots", "shop.orders")
    shop("import", "shop.orders", folder, code=5)
    (folder / "b.parquet").write_text("no parquet")
    shop("import", "shop.orders", folder, code=5)
    assert shop.json("show", "snapshots", "shop.orders") == before


def test_merge_by_clauses(shop):
    file = shop.directory / "changes.parquet"
    pq.write_table(
        rows((1, "mon", "gone", "0"), (2, "mon", "Bo", "9.00"), (9, "wed", "Cy", "1.00")), file
    )
    (report,) = shop.json("merge", "shop.orders", file, "--delete", "source.customer = 'gone'",
                          "--set", "price=source.price", "--insert-all")  # fmt: skip
    assert report["snapshot_id"]
    found = {row["order_id"]: row["price"] for row in shop.json("scan", "shop.orders")}
    assert found == {2: "9.00", 3: "100.10", 9: "1.00"}
    shop("merge", "shop.orders", file, code=5)
    shop("merge", "shop.orders", file, "--update-all", "--delete-unmatched", "true")
    assert sorted(row["order_id"] for row in shop.json("scan", "shop.orders")) == [2, 9]


@pytest.mark.parametrize(
    ("typed", "incomplete", "completed"),
    [
        (["scan"], "sh", ["shop.orders"]),
        (["scan", "shop.orders", "--columns"], "order_id,pr", ["order_id,price"]),
        (["scan", "shop.orders", "--tag"], "", ["monday"]),
        (["show", "files"], "", ["shop.orders"]),
        (["show"], "manif", ["manifests", "manifest_lists"]),
        (["scan"], "nothing", []),
        (["scan", "shop.nothing", "--tag"], "", []),
    ],
)
def test_the_shell_completes_names(shop, typed, incomplete, completed):
    shop("tag", "create", "shop.orders", "monday")
    call = Call({"LSM_WAREHOUSE": str(shop.warehouse)})
    with call.open:
        complete = ShellComplete(lsm, {"obj": call}, "lsm", "_LSM_COMPLETE")
        found = [one.value for one in complete.get_completions(typed, incomplete)]
    assert sorted(found) == sorted(completed)


def test_import_takes_a_delta_table_as_its_log_says(shop):
    folder = shop.directory / "delta"
    made = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "day": ["x", "y", "y"]})
    deltalake.write_deltalake(folder, made, partition_by=["day"])
    changed = pa.table({"id": [2], "name": ["B"], "day": ["y"]})
    merge = deltalake.DeltaTable(folder).merge(
        changed, "t.id = s.id", source_alias="s", target_alias="t"
    )
    merge.when_matched_update_all().execute()
    deltalake.DeltaTable(folder).delete("id = 1")
    files = sorted(folder.rglob("*"))
    (report,) = shop.json("import", "mine.moved", folder, "--primary-key", "id")
    assert report["rows"] == 2
    found = sorted(tuple(row.values()) for row in shop.json("scan", "mine.moved"))
    assert found == [(2, "B", "y"), (3, "c", "y")]
    assert sorted(folder.rglob("*")) == files


def test_a_delta_table_that_cannot_be_read_is_refused(shop, monkeypatch):
    folder = shop.directory / "delta"
    deltalake.write_deltalake(
        folder, pa.table({"id": [1]}), configuration={"delta.enableDeletionVectors": "true"}
    )
    assert (
        "delta"
        in shop("import", "mine.moved", folder, "--primary-key", "id", code=8).stderr.lower()
    )
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{")
    assert "Delta table" in shop("import", "mine.moved", folder, code=8).stderr
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "lsm-assets[delta]" in shop("import", "mine.moved", folder, code=8).stderr
    assert "mine.moved" not in shop("tables").output


def test_an_import_counts_rows_of_a_key_that_is_there_twice(shop) -> None:
    folder = shop.directory / "doubled"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 1], "s": ["a", "b", "c"]}), folder / "a.parquet")
    done = shop("import", "shop.doubled", folder, "--primary-key", "id")
    assert "3 rows imported (1 row of them replaced by others of the same key)" in done.stdout
    assert shop("count", "shop.doubled").stdout.strip() == "2"


def test_a_column_of_parquet_is_cast_in_the_shell(shop) -> None:
    doubles = shop.directory / "doubles.parquet"
    pq.write_table(pa.table({"id": [1.0], "price": [12.5]}), doubles)
    shop(
        "create",
        "shop.prices",
        "--columns",
        "id BIGINT, price DECIMAL(10, 2)",
        "--primary-key",
        "id",
    )
    told = shop("upsert", "shop.prices", doubles, code=5).stderr
    assert "--cast COLUMN=TYPE" in told
    shop("upsert", "shop.prices", doubles, "--cast", "id=BIGINT", "--cast", "price=DECIMAL(10, 2)")
    assert shop.json("scan", "shop.prices") == [{"id": 1, "price": "12.50"}]
    told = shop(
        "upsert",
        "shop.prices",
        doubles,
        "--cast",
        "id=INT",
        "--cast",
        "price=DECIMAL(10, 0)",
        code=5,
    ).stderr
    assert "doubles.parquet, column 'price': 12.5" in told
    shop("upsert", "shop.prices", doubles, "--cast", "price", code=2)
