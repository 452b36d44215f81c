"""Verbs of a table's history: rollback, branches, tags, consumers, partitions, orphans, repair, trash."""

import os
import shutil
from pathlib import Path

import pytest

ORDERS = "shop.orders"
EXPIRE = ["expire", ORDERS, "--retain-min", 1, "--retain-max", 1, "--older-than", "0 s", "--yes"]


def counts(shop, table: str = ORDERS) -> int:
    return shop.json("count", table)[0]["rows"]


def test_rollback(shop) -> None:
    shop("tag", "create", ORDERS, "one", "--snapshot", 1)
    shop("tag", "create", ORDERS, "three")
    back = ["rollback", ORDERS, "--to-tag", "one"]
    shown = shop(*back, "--dry-run").stdout
    assert "would roll back to snapshot 1: 2 snapshots and 1 tag go" in shown
    assert "nothing was changed" in shop(*back, code=1).stderr
    assert counts(shop) == 3
    (made,) = shop.json(*back, "--as-latest")
    assert (made["target"], made["snapshot_id"]) == (1, 4)
    assert counts(shop) == 2
    assert shop.json(*back, "--as-latest", "--dry-run") == [{"target": 1, "dry_run": True}]
    (done,) = shop.json(*back, "--yes")
    assert (done["snapshots"], done["tags"]) == ([2, 3, 4], ["three"])
    assert [row["snapshot_id"] for row in shop.json("snapshots", ORDERS)] == [1]
    shop("rollback", ORDERS, code=5)
    shop("rollback", ORDERS, "--to-snapshot", 9, code=3)
    shop("rollback", ORDERS, "--to-time", "1999-01-01", code=3)
    shop("rollback", ORDERS, "--to-watermark", 5, code=3)


def test_tag_rename(shop) -> None:
    shop("tag", "create", ORDERS, "old", "--from-time", "1999-01-01")
    assert "is called new now" in shop("tag", "rename", ORDERS, "old", "new").stdout
    assert [(row["tag"], row["snapshot_id"]) for row in shop.json("tag", "list", ORDERS)] == [
        ("new", 1)
    ]
    shop("tag", "rename", ORDERS, "old", "x", code=3)
    shop("tag", "rename", ORDERS, "new", "a/b", code=5)


def test_tag_replace(shop) -> None:
    shop("tag", "create", ORDERS, "t", "--snapshot", 1)
    (made,) = shop.json("tag", "replace", ORDERS, "t", "--snapshot", 2, "--retained", "1 d")
    assert (made["snapshot_id"], made["retained"]) == (2, "1 d")
    assert "names snapshot 3" in shop("tag", "replace", ORDERS, "t").stdout
    shop("tag", "replace", ORDERS, "absent", code=3)


def test_tag_expire(shop) -> None:
    shop("tag", "create", ORDERS, "brief", "--retained", "0 s")
    shop("tag", "create", ORDERS, "ever")
    assert "would expire 1 tag: brief" in shop("tag", "expire", ORDERS, "--dry-run").stdout
    shop("tag", "expire", ORDERS, code=1)
    assert shop.json("tag", "expire", ORDERS, "--yes")[0]["tags"] == ["brief"]
    assert shop.json("tag", "expire", ORDERS, "--yes")[0]["tags"] == []
    shop("tag", "expire", ORDERS, "--older-than", "soon", code=5)


def test_tag_due(shop) -> None:
    assert shop.json("tag", "due", ORDERS) == [{"dry_run": False, "created": [], "removed": []}]


def test_branch_create(shop) -> None:
    shop("tag", "create", ORDERS, "one", "--snapshot", 1)
    assert "begins at tag one" in shop("branch", "create", ORDERS, "fix", "--tag", "one").stdout
    assert counts(shop, f"{ORDERS}@fix") == 2
    shop("delete", f"{ORDERS}@fix", "--where", "order_id = 1")
    assert (counts(shop, f"{ORDERS}@fix"), counts(shop)) == (1, 3)
    shop("branch", "create", ORDERS, "fix", code=4)
    shop("branch", "create", ORDERS, "..", code=5)
    shop("count", f"{ORDERS}@none", code=3)


def test_branch_list(shop) -> None:
    assert "no branches" in shop("branch", "list", ORDERS).stderr
    shop("branch", "create", ORDERS, "new")
    assert shop.json("branch", "list", ORDERS) == [
        {"branch": "new", "snapshot_id": None, "committed": None}
    ]
    assert "new" in shop("branch", "list", ORDERS).stdout


def test_branch_rename(shop) -> None:
    shop("branch", "create", ORDERS, "a")
    shop("branch", "rename", ORDERS, "a", "b")
    assert [row["branch"] for row in shop.json("branch", "list", ORDERS)] == ["b"]
    shop("branch", "rename", ORDERS, "a", "c", code=3)


def test_branch_fast_forward(shop) -> None:
    shop("tag", "create", ORDERS, "now")
    shop("branch", "create", ORDERS, "fix", "--tag", "now")
    shop("delete", f"{ORDERS}@fix", "--where", "order_id = 1")
    forward = ["branch", "fast-forward", ORDERS, "fix"]
    assert "would take 1 snapshot of" in shop(*forward, "--dry-run").stdout
    shop(*forward, code=1)
    assert shop.json(*forward, "--yes")[0]["snapshots"] == [4]
    assert counts(shop) == 2
    shop("delete", ORDERS, "--where", "order_id = 2")
    shop(*forward, code=6)
    (done,) = shop.json(*forward, "--force", "--yes")
    assert (done["snapshots"], done["dropped"]) == ([], [5])
    assert counts(shop) == 2


def test_branch_delete(shop) -> None:
    shop("branch", "create", ORDERS, "fix")
    shop("branch", "delete", ORDERS, "fix", code=1)
    assert shop.json("branch", "delete", ORDERS, "fix", "--yes") == [{"deleted": "fix"}]
    shop("branch", "delete", ORDERS, "fix", "--yes", code=3)


def test_consumer_list(shop) -> None:
    assert "no consumers" in shop("consumer", "list", ORDERS).stderr
    shop("consumer", "reset", ORDERS, "etl", "--next", 2)
    (row,) = shop.json("consumer", "list", ORDERS)
    assert (row["consumer"], row["next_snapshot_id"]) == ("etl", 2)


def test_consumer_reset(shop) -> None:
    assert "reads 2 next" in shop("consumer", "reset", ORDERS, "etl", "--next", 2).stdout
    shop(*EXPIRE)
    assert [row["snapshot_id"] for row in shop.json("snapshots", ORDERS)] == [3, 2]
    assert "is forgotten" in shop("consumer", "reset", ORDERS, "etl").stdout
    shop("consumer", "reset", ORDERS, "etl", code=3)
    shop("consumer", "reset", ORDERS, "etl", "--next", 1, code=3)
    shop("consumer", "reset", ORDERS, "a/b", "--next", 2, code=5)


def test_consumer_clear(shop) -> None:
    for name in ("etl-1", "etl-2", "other"):
        shop("consumer", "reset", ORDERS, name, "--next", 2)
    clear = ["consumer", "clear", ORDERS, "--matching", "etl-*", "--besides", "*-2"]
    shop(*clear, code=1)
    assert shop.json(*clear, "--yes") == [{"consumers": ["etl-1"]}]


def test_expire_partitions(shop) -> None:
    shop("overwrite", ORDERS, shop.file("old.csv", "order_id,day\n9,2024-01-01\n"))
    old = ["expire-partitions", ORDERS, "--older-than", "1 d"]
    assert "day=2024-01-01" in shop(*old, "--dry-run").stdout
    shop(*old, code=1)
    (done,) = shop.json(*old, "--yes")
    assert done["partitions"] == ["day=2024-01-01"]  # "mon" and "tue" are no dates
    assert counts(shop) == 3
    shop("expire-partitions", ORDERS, code=5)


def test_orphans(shop) -> None:
    shop(*EXPIRE)
    stray = Path(shop.warehouse, "shop.db/orders/manifest/manifest-stray")
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    assert "manifest/manifest-stray" in shop("orphans", ORDERS, "--dry-run").stdout
    shop("orphans", ORDERS, code=1)
    assert stray.exists()
    (done,) = shop.json("orphans", ORDERS, "--yes")
    assert done["files"] == ["manifest/manifest-stray"]
    assert not stray.exists()
    shop("orphans", ORDERS, "--older-than", "1 h", code=5)
    shop("orphans", ORDERS, "--older-than", "soon", code=5)


@pytest.mark.parametrize(
    "what", ["missing-files", "damaged-files", "manifests", "earliest", "purge"]
)
def test_repair(shop, what: str) -> None:
    before = shop.json("snapshots", ORDERS)
    (plan,) = shop.json("repair", ORDERS, what)
    assert plan["dry_run"]
    assert shop.json("snapshots", ORDERS) == before
    shop("repair", ORDERS, what, "--act", "--yes")
    assert counts(shop) == (0 if what == "purge" else 3)
    assert "clean" in shop("verify", ORDERS).stdout


def test_repair_shows_what_is_lost(shop) -> None:
    with shop.catalog() as catalog:
        table = catalog.table(ORDERS)
        held = table.system("files").to_pylist()[0]
        (Path(table.location) / held["file_path"].removeprefix(table.location + "/")).unlink()
    (plan,) = shop.json("repair", ORDERS, "missing-files")
    assert plan["lost_row_count"] == held["record_count"]
    assert plan["lost"][0]["bucket"] == held["bucket"]
    shown = shop("repair", ORDERS, "missing-files").stdout
    assert f"{held['record_count']} row" in shown  # either file may be the first: of one row or two
    assert "keys " in shown
    (done,) = shop.json("repair", ORDERS, "missing-files", "--act", "--yes")
    assert done["lost_row_count"] == held["record_count"]


def test_purging_asks_programs_too(shop) -> None:
    shop("repair", ORDERS, "purge", "--act", "--json", code=1)
    assert counts(shop) == 3


@pytest.fixture
def binned(shop):
    import lsm_engine as lsm

    with shop.catalog() as catalog:
        option = lsm.SetOption(key="maintenance.trash-retained", value="1 d")
        catalog.table(ORDERS).alter(option)
    shop(*EXPIRE)
    return shop


def test_trash_list(binned) -> None:
    (row,) = binned.json("trash", "list", ORDERS)
    assert (row["snapshots"], row["reason"]) == (2, "the newest 1 always stay")
    assert "the newest 1" in binned("trash", "list", ORDERS).stdout


def test_trash_undo(binned) -> None:
    assert "2 snapshots and 0 tags are back" in binned("trash", "undo", ORDERS).stdout
    assert len(binned.json("snapshots", ORDERS)) == 3
    binned("trash", "undo", ORDERS, code=3)
    binned("trash", "undo", ORDERS, "trash-x", code=3)


def test_trash_empty(binned) -> None:
    assert binned.json("trash", "empty", ORDERS)[0]["records"] == []
    assert len(binned.json("trash", "empty", ORDERS, "--all", "--dry-run")[0]["files"]) > 0
    binned("trash", "empty", ORDERS, "--all", code=1)
    assert len(binned.json("trash", "empty", ORDERS, "--all", "--yes")[0]["records"]) == 1
    assert "trash is empty" in binned("trash", "list", ORDERS).stderr


def test_forget(shop) -> None:
    shop("tag", "create", ORDERS, "all")
    wanted = ["forget", ORDERS, "--key", "order_id=1", "--key", "day=mon"]
    shown = shop(*wanted, "--plan").stdout
    assert "1 key of shop.orders" in shown
    assert "time travel to it is lost: snapshots 1 to" in shown
    assert "tags 'all' of the table hold a key" in shown
    (plan,) = shop.json(*wanted, "--plan")
    assert plan["dry_run"]
    assert plan["plan"]["refusals"]
    assert "'all'" in shop(*wanted, "--yes", code=5).stderr
    assert "nothing was changed" in shop(*wanted, "--rewrite-tags", code=1).stderr
    before = counts(shop)
    done = [*wanted, "--rewrite-tags", "--yes", "--unreferenced-older-than", "0 s"]
    (report,) = shop.json(*done)
    assert (report["clean"], report["proof"]["files"]) == (True, [])
    assert counts(shop) == before - 1
    assert "forgotten: 1 key of" in shop(*done).stdout
    shop("forget", ORDERS, code=2)
    shop("forget", ORDERS, "--key", "price=1", code=5)


def test_verify_and_restore(shop) -> None:
    shop("compact", ORDERS, "--full")
    (found,) = shop.json("verify", ORDERS, "--deep", "--incremental")
    assert (found["clean"], found["files_verified_before"]) == (True, 0)
    (found,) = shop.json("verify", ORDERS, "--deep", "--incremental")
    assert (found["files_read"], found["files_verified_before"] > 0) == (0, True)
    with shop.catalog() as catalog:
        table = catalog.table(ORDERS)
        live = max(
            table.session.live_entries(table.latest_snapshot()), key=lambda e: e.file.row_count
        )
        path = Path(table.location) / table.session.data_path(live)
    path.unlink()
    (found,) = shop.json("verify", ORDERS, code=1)
    (damaged,) = found["damaged_files"]
    assert damaged["stake"]["row_count"] == live.file.row_count
    assert "repair can rebuild it" in damaged["sources"][0]
    assert "restored whole" in shop("repair", ORDERS, "restore").stdout
    (plan,) = shop.json("repair", ORDERS, "restore")
    assert (plan["dry_run"], plan["lost_row_count"], path.exists()) == (True, 0, False)
    (done,) = shop.json("repair", ORDERS, "restore", "--act", "--yes")
    assert (done["dry_run"], done["files"][0]["is_exact"]) == (False, True)
    assert counts(shop) == 3
    shop("verify", ORDERS, "--deep")


def test_a_slow_copy_is_restored_by_its_tag(shop) -> None:
    """As the page for operators says: data files are copied first, and snapshots after more commits and an expiry."""
    table, copy = shop.warehouse / "shop.db" / "orders", shop.directory / "copy"
    rows = shop("export", ORDERS, "-", "--format", "jsonl", "--order-by", "order_id").stdout
    shop("tag", "create", ORDERS, "backup")
    shutil.copytree(table, copy / "shop.db" / "orders", ignore=shutil.ignore_patterns("snapshot"))
    source = shop.file("x.csv", "order_id,day\n1,mon\n77,tue\n")
    for _ in range(3):
        shop("upsert", ORDERS, source)
    shop("compact", ORDERS, "--full")
    shop(
        "expire",
        ORDERS,
        "--retain-min",
        1,
        "--retain-max",
        1,
        "--older-than",
        "0 s",
        "--all",
        "--yes",
    )
    shutil.copytree(table / "snapshot", copy / "shop.db" / "orders" / "snapshot")
    of_copy = ("--warehouse", copy)
    shop(*of_copy, "catalog", "rebuild")
    shop(*of_copy, "scan", ORDERS, code=9)
    shop(*of_copy, "rollback", ORDERS, "--to-tag", "backup", "--yes")
    shop(*of_copy, "verify", ORDERS, "--deep")
    read = shop(*of_copy, "export", ORDERS, "-", "--format", "jsonl", "--order-by", "order_id")
    assert read.stdout == rows


# --- commit users --------------------------------------------------------------------------------


def test_commit_user_show_and_commit_user_set(shop) -> None:
    assert "no number" in shop("commit-user", "show", "shop.orders", "feed").stdout
    with shop.catalog() as catalog:
        table = catalog.table("shop.orders")
        row = table.scan(limit=1).to_arrow()
        table.upsert(row, commit_user="feed", commit_identifier=7)
    assert shop.json("commit-user", "show", "shop.orders", "feed") == [
        {"commit_user": "feed", "commit_identifier": 7}
    ]
    [stated] = shop.json("commit-user", "set", "shop.orders", "feed", 12)
    assert stated == {"commit_user": "feed", "commit_identifier": 12, "snapshot_id": 5}
    with shop.catalog() as catalog:
        table = catalog.table("shop.orders")
        assert table.last_commit_identifier("feed") == 12
        assert table.upsert(row, commit_user="feed", commit_identifier=12).id == 5  # a replay
        assert table.latest_snapshot().id == 5
