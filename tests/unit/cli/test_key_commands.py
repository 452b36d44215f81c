"""lookup, locate, insert, update and cache, from a shell."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from decimal import Decimal

import pytest

from lsm_engine import Follower
from lsm_engine.cache import shared
from lsm_engine.cache.disk import DiskCache
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.storage.clock import SystemClock


@pytest.fixture
def orders(shell):
    shell(
        "create", "shop.orders", "--primary-key", "order_id,day", "--partitioned-by", "day",
        "--columns", "order_id BIGINT, day STRING, price DECIMAL(10, 2)", "--option", "bucket=2",
    )  # fmt: skip
    shell("upsert", "shop.orders", shell.file("a.csv", "order_id,day,price\n1,mon,5.50\n2,tue,7\n"))
    return "shop.orders"


def test_lookup_and_locate(shell, orders):
    found = shell.json("lookup", orders, "--key", "order_id=1", "--key", "day=mon")
    assert found == [{"order_id": 1, "day": "mon", "price": "5.50", "_found": True}]
    keys = shell.file("k.csv", "order_id,day\n9,mon\n2,tue\n")
    found = shell.json("lookup", orders, keys, "--columns", "price")
    assert found == [{"price": None, "_found": False}, {"price": "7.00", "_found": True}]
    located = shell.json("locate", orders, keys)
    assert [row["action"] for row in located] == ["insert", "update"]
    assert located[1]["partition"] == "day=tue"
    assert "found" in shell("lookup", orders, keys).stdout
    assert "insert" in shell("locate", orders, keys).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--key", "price=1"], "no key column"),
        (["--key", "order_id=x", "--key", "day=mon"], "no value of column 'order_id'"),
        (["--key", "order_id=1"], "'day'"),
        ([], "either FILES with keys, or --key"),
        (["17"], "there is no file 17; a key is given as --key order_id=17"),
        (["day=mon"], "a key is given as --key day=mon"),
    ],
)
def test_bad_keys(words, said, shell, orders):
    result = shell("lookup", orders, *words, code=(1, 2, 3, 4, 5))
    assert said in result.stderr


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("create shop.orders --columns 'a INT'", "--if-not-exists leaves it as it is"),
        ("create shop.new --columns 'a INT' --primary-key b", "columns=['b'] known=('a',)\n"),
        ("drop shop --yes", "or give --cascade"),
        ("rollback shop.orders", "give one of --to-snapshot"),
        ("orphans shop.orders --older-than '1 h'", "use --force if"),
        ("merge shop.orders FILE", "give --set, --update-all"),
        ("insert shop.orders FILE", "--existing skip leaves them out"),
        ("branch delete shop.orders nope --yes", "look at: lsm branch list shop.orders"),
        ("delete shop.orders 17", "there is no file 17"),
    ],
)
def test_errors_say_what_to_type_in_a_shell(words, advice, shell, orders):
    file = shell.file("again.csv", "order_id,day,price\n2,tue,1\n")
    arguments = [word.replace("FILE", str(file)) for word in shlex.split(words)]
    assert advice in shell(*arguments, code=(3, 4, 5)).stderr


def test_insert_and_update(shell, orders):
    rows = shell.file("b.csv", "order_id,day,price\n2,tue,1\n3,tue,1\n")
    refused = shell("insert", orders, rows, code=(1, 2, 3, 4, 5))
    assert "1 row to insert, with keys that are there already" in refused.stderr
    (facts,) = shell.json("insert", orders, rows, "--existing", "skip")
    assert (facts["inserted"], facts["skipped"], facts["snapshot_id"]) == (1, 1, 2)
    said = shell("update", orders, rows).stdout
    assert said.startswith("2 rows updated: snapshot 3")
    others = shell.file("c.csv", "order_id,day,price\n8,tue,1\n")
    assert "nothing to commit" in shell("update", orders, others, "--missing", "skip").stdout


def test_update_sets_columns_of_the_rows_that_match(shell, orders):
    said = shell("update", orders, "--set", "price = price * 2", "--where", "order_id = 1").stdout
    assert said.startswith("1 row updated: snapshot 2")
    assert {row["price"] for row in shell.json("scan", orders)} == {"11.00", "7.00"}
    none = shell("update", orders, "--set", "price = 0", "--where", "order_id = 9").stdout
    assert "nothing to commit" in none
    rows = shell.file("b.csv", "order_id,day,price\n1,mon,1\n")
    for words in ([], [rows, "--set", "price = 0"], [rows, "--where", "order_id = 1"], ["--where", "price = 1"]):  # fmt: skip
        assert "either FILES with rows, or --set" in shell("update", orders, *words, code=2).stderr
    assert "'prise'" in shell("update", orders, "--set", "prise = 0", code=3).stderr


def test_a_numbered_upsert_is_applied_once(shell, orders):
    rows = shell.file("b.csv", "order_id,day,price\n1,mon,1\n")
    number = ("--commit-user", "nightly", "--commit-identifier", 12)
    shell("upsert", orders, rows, *number)
    rows.write_text("order_id,day,price\n1,mon,2\n")
    (again,) = shell.json("upsert", orders, rows, *number)
    assert again["snapshot_id"] == 2
    assert {row["price"] for row in shell.json("scan", orders)} == {"1.00", "7.00"}
    refused = shell("upsert", orders, rows, *number[:2], code=2).stderr
    assert "--commit-user and --commit-identifier go together" in refused


def test_feed_counts_each_change_once(shell, orders, monkeypatch):
    """Also a feed that dies in its first commit, before its consumer is there."""
    shell(
        "create", "shop.sums", "--primary-key", "day", "--columns", "day STRING, price DECIMAL(10, 2)",
        "--option", "merge-engine=aggregation", "--option", "fields.price.aggregate-function=sum",
    )  # fmt: skip
    feed = ("feed", "shop.sums", orders, "--consumer", "sums", "--columns", "day,price")
    with monkeypatch.context() as killed:
        killed.setattr(Follower, "acknowledge", lambda _: sys.exit(9))
        shell(*feed, code=9)
    shell("upsert", orders, shell.file("b.csv", "order_id,day,price\n3,mon,1\n"))
    (facts,) = shell.json(*feed)
    assert facts["fed"] == [2]
    assert "changes of 0 snapshots of shop.orders are in shop.sums" in shell(*feed).stdout
    assert {row["day"]: row["price"] for row in shell.json("scan", "shop.sums")} == {
        "mon": "6.50",
        "tue": "7.00",
    }
    large = ("feed", "shop.large", orders, "--consumer", "large", "--where", "price > 5")
    shell("create", "shop.large", "--primary-key", "order_id,day", "--columns", "order_id BIGINT, day STRING, price DECIMAL(10, 2)")  # fmt: skip
    shell(*large)
    assert {row["order_id"] for row in shell.json("scan", "shop.large")} == {1, 2}


def test_feed_beside_rollbacks_feeds_again_or_says_which_table_has_to_go_back(shell, orders):
    """It fed nothing of what a source committed after a rollback, nor again what a target had lost by one."""
    shell("create", "shop.copy", "--primary-key", "order_id,day", "--columns", "order_id BIGINT, day STRING, price DECIMAL(10, 2)")  # fmt: skip
    feed = ("feed", "shop.copy", orders, "--consumer", "copy")
    source, copy = shell.catalog().table(orders), shell.catalog().table("shop.copy")
    row = {"order_id": 3, "day": "mon", "price": Decimal(1)}
    shell(*feed)
    source.upsert([row])
    shell(*feed)
    copy.rollback_to(1)
    assert shell.json(*feed)[0]["fed"] == [2]
    source.rollback_to(1)
    for key in (4, 5):  # fewer snapshots than were fed, then others under the same ids
        assert "was rolled back below snapshot 2" in shell(*feed, code=6).stderr
        source.upsert([{**row, "order_id": key}])
    assert "Roll shop.copy back" in shell(*feed, code=6).stderr
    copy.rollback_to(1)
    assert shell.json(*feed)[0]["fed"] == [2, 3]
    assert copy.to_arrow().sort_by("order_id") == source.to_arrow().sort_by("order_id")


def test_cache_tells_of_the_living_and_sweeps_the_dead(shell, orders, tmp_path):
    root = tmp_path / "lookups"
    assert "no lookup files" in shell("cache", "--directory", root).stderr
    opened = shell.catalog().table(orders)
    cache = DiskCache(SystemClock(), str(root))
    with TableQuery(opened.session, cache) as query:
        for _ in range(3):
            query.lookup([{"order_id": 1, "day": "mon"}])
        cache._published_millis = 0
        query.lookup([{"order_id": 1, "day": "mon"}])
        (told,) = shell.json("cache", "--directory", root)
        assert told["alive"] is True
        assert (told["pid"], told["misses"], told["hits"]) == (os.getpid(), 1, 3)
        assert told["tables"]["shop.orders"] == {"files": 1, "bytes": told["bytes"]}
        assert "shop.orders" in shell("cache", "--directory", root).stdout
        (file,) = shell.json("cache", "--directory", root, "--files")
        assert (file["pid"], file["table"]) == (os.getpid(), "shop.orders")
        assert (file["requests"], file["hits"], file["removal_cause"]) == (3, 3, None)
        cache._published_millis = 0
        query.close()
        query.lookup([{"order_id": 1, "day": "mon"}])
        removed, _ = shell.json("cache", "--directory", root, "--files")
        assert (removed["requests"], removed["removal_cause"]) == (4, "explicit")
        assert "explicit" in shell("cache", "--directory", root, "--files").stdout
    dead = root / "process-dead"
    dead.mkdir()
    (dead / "1.lookup").write_bytes(b"x" * 10)
    (dead / "state.json").write_text("[not what it was]")
    told = shell.json("cache", "--directory", root)
    assert [one["alive"] for one in told] == [False, True] or [one["alive"] for one in told] == [
        True,
        False,
    ]
    (swept,) = shell.json("cache", "--directory", root, "--sweep")
    assert (swept["swept"], swept["bytes"]) == (1, 10)
    assert not dead.exists()
    cache.close()
    assert [name for name in os.listdir(root) if name != "lock"] == []


def test_a_killed_process_is_told_apart(shell, tmp_path):
    root = tmp_path / "lookups"
    program = f"""
import os
from lsm_engine.storage.local_state import ProcessDirectory
held = ProcessDirectory({str(root)!r})
open(held.new_path(), "wb").write(b"x")
held.publish_state({{"pid": os.getpid(), "evictions": {{"size": 2}}}})
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    (told,) = shell.json("cache", "--directory", root)
    assert told["alive"] is False
    assert json.dumps(told["evictions"]) == '{"size": 2}'
    assert "2 size" in shell("cache", "--directory", root).stdout


def test_decoded_manifests_are_shown_and_removed(shell, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = shared.manifest_cache_root()
    shared.SharedCache(root, 1 << 20).put("a", lambda sink: sink.write(bytes(996)))
    (told,) = shell.json("cache", "--manifests")
    assert told == {"directory": root, "files": 1, "bytes": 1000}
    assert f"1 decoded manifest, 1000 B, in {root}" in shell("cache", "--manifests").stdout
    assert "1 decoded manifest, 1000 B, removed" in shell("cache", "--manifests", "--sweep").stdout
    (told,) = shell.json("cache", "--manifests")
    assert told["files"] == 0
