"""Every verb: what it does, what it prints for people and for programs, and its refusal."""

import json
import re
import socket
from pathlib import Path

import click
import pytest

from lsm_engine.cli.call import ROWS_SHOWN, Call
from lsm_engine.cli.main import lsm

ORDERS = "shop.orders"


def test_every_verb_is_tested_in_this_folder() -> None:
    text = "".join(file.read_text() for file in sorted(Path(__file__).parent.glob("test_*.py")))
    context, verbs = click.Context(lsm), set()
    for name in lsm.list_commands(context):
        verb = lsm.get_command(context, name)
        if isinstance(verb, click.Group):
            verbs |= {f"{name}_{one}" for one in verb.list_commands(context)}
        else:
            verbs.add(name)
    verbs = {verb.removeprefix("show_") for verb in verbs}  # of one family, by their own names
    told = re.findall(r"def (test_\w+)", text)
    missing = [verb for verb in verbs if not any(verb.replace("-", "_") in name for name in told)]
    assert not missing


def test_serve_names_a_port_that_is_taken_and_a_token_that_is_short(shop, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = shop("serve", "--port", port, code=5)
    assert f"port {port} of 127.0.0.1 cannot be used" in answer.stderr
    monkeypatch.setenv("LSM_SERVE_TOKEN", "short")
    assert "at least 16 characters" in shop("serve", "--port", 0, code=5).stderr


# --- tables --------------------------------------------------------------------------------------


def test_databases(shop) -> None:
    assert shop.json("databases") == [{"database": "shop", "tables": 1}]
    assert "shop" in shop("databases").stdout


def test_tables(shop) -> None:
    (row,) = shop.json("tables")
    assert row["table"] == ORDERS
    assert (row["snapshot_id"], row["rows"]) == (3, 4)
    assert row["primary_key"] == ["order_id", "day"]
    assert shop.json("tables", "shop") == [row]
    assert ORDERS in shop("tables").stdout
    shop("tables", "nowhere", code=3)


def test_tables_without_a_catalog_make_none(shell) -> None:
    told = shell("tables", code=3)
    assert "'lsm create' makes one" in told.stderr
    assert not shell.warehouse.exists()


def test_create_from_columns(shell) -> None:
    made = shell.json(
        "create", "a.b", "--columns", "id BIGINT, day DATE", "--primary-key", "id, day",
        "--partitioned-by", "day", "--option", "bucket=3", "--comment", "for tests",
    )  # fmt: skip
    assert made == [{"table": "a.b", "location": str(shell.warehouse / "a.db" / "b")}]
    assert shell.json("options", "a.b") == [{"key": "bucket", "value": "3"}]
    assert "taken" not in shell("create", "a.b", "--columns", "id INT", "--if-not-exists").stderr
    shell("create", "a.b", "--columns", "id INT", "--primary-key", "id", code=4)


def test_create_from_a_file(shell) -> None:
    source = shell.file("x.csv", "id,name\n1,Ada\n")
    assert "a.b is in" in shell("create", "a.b", "--from", source, "--primary-key", "id").stdout
    types = [row["type"] for row in shell.json("schema", "a.b")]
    assert types == ["BIGINT NOT NULL", "STRING"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a.b"], 2, "either --columns or --from"),
        (["a.b", "--columns", "id"], 5, "columns are written"),
        (["a.b", "--columns", "id INT", "--option", "bukket=1"], 5, "did you mean 'bucket'"),
        (["a.b", "--columns", "id INT", "--option", "bucket"], 5, "key=value"),
        (["b", "--columns", "id INT"], 5, "database.table"),
        (["./b", "--columns", "id INT"], 2, "not a path"),
        (["a.b", "--from", "nowhere.csv"], 5, "there is no file"),
    ],
)
def test_create_refuses(shell, arguments: list[str], code: int, says: str) -> None:
    assert says in shell("create", *arguments, code=code).stderr


def test_rename(shop) -> None:
    assert "is now shop.sold" in shop("rename", ORDERS, "shop.sold").stdout
    assert [row["table"] for row in shop.json("tables")] == ["shop.sold"]
    assert shop.json("count", "shop.sold")[0]["rows"] == 3
    shop("rename", ORDERS, "shop.other", code=3)
    assert shop.json("rename", "shop.sold", ORDERS)[0]["was"] == "shop.sold"


def test_drop_asks_first(shop) -> None:
    location = shop.warehouse / "shop.db" / "orders"
    assert "nothing was changed" in shop("drop", ORDERS, input="n\n", code=1).stderr
    assert "nothing was changed" in shop("drop", ORDERS, code=1).stderr
    assert location.exists()
    assert "is gone" in shop("drop", ORDERS, input="y\n").stdout
    assert not list(location.rglob("*.parquet"))
    assert shop.json("tables") == []


def test_drop_a_database(shop) -> None:
    shop("drop", "shop", "--yes", code=5)
    assert shop.json("drop", "shop", "--cascade", "--yes") == [{"dropped": "shop"}]
    assert shop.json("databases") == []


# --- rows ----------------------------------------------------------------------------------------


def test_scan(shop) -> None:
    found = {row["order_id"]: row for row in shop.json("scan", ORDERS)}
    assert found[2] == {
        "order_id": 2,
        "day": "mon",
        "customer": "Bo",
        "price": "8.25",
        "paid_at": None,
    }
    assert found.keys() == {1, 2, 3}
    shown = shop("scan", ORDERS, "--columns", "price,customer", "--where", "order_id = 3").stdout
    assert shown.splitlines()[0].split() == ["price", "customer"]
    assert "100.10" in shown
    assert "null" in shown


def test_scan_in_an_order(shop) -> None:
    def ids(*options: str) -> list[int]:
        return [row["order_id"] for row in shop.json("scan", ORDERS, *options)]

    assert sorted(ids()) == ids("--order-by", "order_id")
    assert sorted(ids(), reverse=True) == ids("--order-by", "order_id DESC", "--limit", "0")
    rows = shop.json("scan", ORDERS, "--order-by", "day desc,order_id", "--columns", "order_id")
    assert [*rows[0]] == ["order_id"], "what it is sorted by need not be shown"
    assert max(ids()) == ids("--order-by", "order_id desc", "--limit", "1")[0]
    told = shop("scan", ORDERS, "--order-by", "order_idd", code=3).stderr
    assert "did you mean 'order_id'?" in told
    as_csv = shop(
        "scan", ORDERS, "--order-by", "order_id desc", "--columns", "order_id", "--format", "csv"
    )
    assert as_csv.stdout.splitlines() == ['"order_id"', *map(str, sorted(ids(), reverse=True))]
    exported = shop(
        "export",
        ORDERS,
        "-",
        "--order-by",
        "order_id desc",
        "--columns",
        "order_id",
        "--format",
        "csv",
    )
    assert exported.stdout == as_csv.stdout


def test_scan_in_the_past(shop) -> None:
    shop("tag", "create", ORDERS, "first", "--snapshot", 1)
    price = ["scan", ORDERS, "--where", "order_id = 2", "--columns", "price"]
    for when in (["--snapshot", 1], ["--tag", "first"]):
        assert shop.json(*price, *when) == [{"price": "7.00"}]
    assert shop.json(*price, "--as-of", "9999-01-01") == [{"price": "8.25"}]
    shop(*price, "--as-of", "1970-01-01 00:00:00+02:00", code=3)
    shop(*price, "--snapshot", 1, "--tag", "first", code=5)
    assert "a time is written" in shop(*price, "--as-of", "yesterday", code=5).stderr


def test_scan_shows_all_rows_in_a_pipe_and_some_at_a_terminal(shell, monkeypatch) -> None:
    source = shell.file("x.csv", "id\n" + "".join(f"{n}\n" for n in range(150)))
    shell("create", "a.b", "--from", source, "--primary-key", "id")
    shell("upsert", "a.b", source)
    assert len(shell("scan", "a.b").stdout.splitlines()) == 152
    monkeypatch.setattr("lsm_engine.cli.output._ROWS_PER_TABLE", 40)
    assert len(shell("scan", "a.b").stdout.splitlines()) == 152, "headings once"
    monkeypatch.undo()
    monkeypatch.setattr(Call, "rows_shown", ROWS_SHOWN)
    shown = shell("scan", "a.b")
    assert len(shown.stdout.splitlines()) == 102
    assert "--limit 0 shows all" in shown.stderr
    assert "--limit 0" not in shell("scan", "a.b", "--limit", 100).stderr
    assert len(shell("scan", "a.b", "--limit", 0).stdout.splitlines()) == 152
    monkeypatch.undo()
    assert len(shell.json("scan", "a.b")) == 150
    assert len(shell.json("scan", "a.b", "--limit", 7)) == 7


def test_scan_refuses(shop) -> None:
    assert "did you mean 'price'" in shop("scan", ORDERS, "--where", "pric > 1", code=5).stderr
    shop("scan", ORDERS, "--columns", "nothing", code=3)
    shop("scan", ORDERS, "--snapshot", 99, code=3)
    shop("scan", "shop.nothing", code=3)


def test_scan_neutralises_what_a_terminal_would_act_on(shell) -> None:
    source = shell.file("x.jsonl", json.dumps({"id": 1, "name": "a\x1b[31m\nb\u202e"}) + "\n")
    shell("create", "a.b", "--columns", "id INT, name STRING", "--primary-key", "id")
    shell("upsert", "a.b", source)
    assert "a\\x1b[31m\\nb\\u202e" in shell("scan", "a.b").stdout
    assert shell.json("scan", "a.b") == [{"id": 1, "name": "a\x1b[31m\nb\u202e"}]
    assert "\x1b" not in shell("scan", "a.b", "--json").stdout


def test_scan_reads_markup_as_text(shell) -> None:
    source = shell.file("x.csv", "id,name\n1,[bold]x[/]\n")
    shell("create", "a.b", "--from", source, "--primary-key", "id")
    shell("upsert", "a.b", source)
    assert "[bold]x[/]" in shell("scan", "a.b").stdout


def test_count(shop) -> None:
    assert shop("count", ORDERS).stdout == "3\n"
    assert shop.json("count", ORDERS, "--where", "price > 10") == [{"rows": 2, "snapshot_id": 3}]
    shop("count", ORDERS, "--where", "price >", code=5)


def test_explain(shop) -> None:
    told = shop("explain", ORDERS, "--where", "day = 'tue' AND price > 1").stdout
    assert 'filter below the merge: (day == "tue")' in told
    assert "2 by partition pruned" in told
    (facts,) = shop.json("explain", ORDERS, "--where", "day = 'tue'")
    assert facts["files"]["read"] == 1
    assert facts["manifests"]["pruned_by_partition"] == 2
    assert [split["rows"] for split in facts["splits"]] == [1]
    assert "bucket" in shop("explain", ORDERS, "--splits").stdout
    shop("explain", ORDERS, "--columns", "nothing", code=3)


def test_upsert(shop) -> None:
    source = shop.file("more.csv", "order_id,day,customer,price\n3,tue,Cy,5\n4,tue,Di,6\n")
    assert shop("upsert", ORDERS, source).stdout == "2 rows upserted: snapshot 4 of shop.orders\n"
    (facts,) = shop.json("upsert", ORDERS, source)
    assert (facts["rows"], facts["snapshot_id"], facts["commit_kind"]) == (2, 5, "APPEND")
    assert shop("upsert", ORDERS, source, "--quiet").output == ""
    assert shop("count", ORDERS).stdout == "4\n"


def test_upsert_several_files_is_one_commit_and_row_kinds_count(shop) -> None:
    one = shop.file("one.csv", "order_id,day,customer,price,_row_kind\n1,mon,,,-D\n")
    two = shop.file("two.jsonl", '{"order_id": 9, "day": "wed", "_row_kind": "+I"}\n')
    assert shop.json("upsert", ORDERS, one, two)[0]["snapshot_id"] == 4
    assert {row["order_id"] for row in shop.json("scan", ORDERS)} == {2, 3, 9}


def test_ingest_commits_as_it_goes_and_reports_the_compaction(shop) -> None:
    lines = [f'{{"order_id": {n}, "day": "mon", "price": "1.00"}}' for n in range(10, 35)]
    source = shop.file("many.jsonl", "\n".join(lines))
    told = shop.json("ingest", ORDERS, source, "--commit-rows", 10)
    assert [facts["rows"] for facts in told] == [10, 10, 5]
    ids = [facts["snapshot_id"] for facts in told]
    assert ids == sorted(set(ids))
    assert told[-1].keys() >= {"compaction_thread_busy", "compaction_queued_count", "last_error"}
    assert shop.json("count", ORDERS)[0]["rows"] == 28
    listed = shop.json("system", ORDERS, "compactions")
    assert listed
    assert listed[-1]["compaction_completed_count"] >= 1
    empty = shop.file("none.csv", "order_id,day\n")
    assert shop("ingest", ORDERS, empty).stdout == "nothing to commit\n"
    right = shop.file("right.csv", "order_id,day\n7,mon\n")
    wrong = shop.file("wrong.csv", "order_id,day\n8,mon\n,mon\n")
    shop("ingest", ORDERS, right, wrong, "--commit-rows", 1, code=5)
    assert shop.json("count", ORDERS)[0]["rows"] == 29, "the first commit stands"


def test_upsert_nothing(shop) -> None:
    source = shop.file("none.csv", "order_id,day\n")
    assert "nothing to commit" in shop("upsert", ORDERS, source).stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("order_id\n1\n", "day"),
        (
            "order_id,day\n,mon\n",
            "line 2, column 'order_id': no value, and the column may not be null",
        ),
        ("order_id,day,prize\n1,mon,2\n", "did you mean 'price'"),
        (
            "order_id,day,price\n1,mon,2.555\n",
            "line 2, column 'price': '2.555' is not of type DECIMAL(10, 2)",
        ),
    ],
)
def test_upsert_refuses_before_anything_is_written(shop, text: str, says: str) -> None:
    before = sorted(shop.warehouse.rglob("*.parquet"))
    assert says in shop("upsert", ORDERS, shop.file("x.csv", text), code=5).stderr
    assert sorted(shop.warehouse.rglob("*.parquet")) == before
    assert len(shop.json("snapshots", ORDERS)) == 3


def test_delete(shop) -> None:
    shop("delete", ORDERS, "--where", "customer = 'Ada' OR customer IS NULL")
    assert [row["order_id"] for row in shop.json("scan", ORDERS)] == [2]
    keys = shop.file("keys.csv", "order_id,day\n2,mon\n77,mon\n")
    assert "1 row of 2 keys deleted" in shop("delete", ORDERS, keys).stdout
    assert shop.json("scan", ORDERS) == []
    assert "no rows" in shop("scan", ORDERS).stderr
    assert "nothing to commit" in shop("delete", ORDERS, "--where", "order_id = 1").stdout
    shop("delete", ORDERS, code=2)
    shop("delete", ORDERS, keys, "--where", "order_id = 1", code=2)


def test_overwrite(shop) -> None:
    source = shop.file("mon.csv", "order_id,day,price\n8,mon,1\n")
    shop("overwrite", ORDERS, source, "--partition", "day=mon")
    assert {row["order_id"] for row in shop.json("scan", ORDERS)} == {3, 8}
    shop("overwrite", ORDERS, source, "--partition", "day=tue", code=5)
    shop("overwrite", ORDERS, source, "--partition", "price=1", code=5)
    assert shop.json("overwrite", ORDERS, source)[0]["rows"] == 1


# --- insides -------------------------------------------------------------------------------------


def test_schema(shop) -> None:
    rows = shop.json("schema", ORDERS)
    assert [row["column"] for row in rows] == ["order_id", "day", "customer", "price", "paid_at"]
    assert rows[0]["roles"] == "primary key, bucket key"
    assert rows[1]["roles"] == "primary key, partition"
    assert "DECIMAL(10, 2)" in shop("schema", ORDERS).stdout
    (version,) = shop.json("schema", ORDERS, "--history")
    assert version["schema_id"] == 0
    assert version["update_time"].endswith("Z")
    shop("schema", "shop.nothing", code=3)


def test_options(shop) -> None:
    assert shop.json("options", ORDERS) == [{"key": "bucket", "value": "1"}]
    assert "bucket" in shop("options", ORDERS).stdout


def test_snapshots(shop) -> None:
    rows = shop.json("snapshots", ORDERS)
    assert [row["snapshot_id"] for row in rows] == [3, 2, 1]
    assert rows[0]["commit_time"].endswith("Z")
    assert len(shop.json("snapshots", ORDERS, "--limit", 1)) == 1
    assert "upsert" in shop("snapshots", ORDERS).stdout


def test_snapshot(shop) -> None:
    (newest,) = shop.json("snapshot", ORDERS)
    assert newest["snapshot_id"] == 3
    assert [each["kind"] for each in newest["manifest_lists"]] == ["base", "delta"]
    shop("tag", "create", ORDERS, "second", "--snapshot", 2)
    shown = shop("snapshot", ORDERS, 2).stdout
    assert "second" in shown
    assert "manifest lists" in shown
    shop("snapshot", ORDERS, 9, code=3)


def test_tree(shop) -> None:
    shown = shop("tree", ORDERS).stdout
    assert "shop.orders, snapshot 3: 2 buckets" in shown
    assert "day=mon  bucket 0  2 sorted runs" in shown
    assert "█" in shown
    rows = shop.json("tree", ORDERS)
    assert [(row["partition"], row["run"], row["level"]) for row in rows] == [
        ("day=mon", 0, 0), ("day=mon", 1, 0), ("day=tue", 0, 0),
    ]  # fmt: skip
    assert len(shop.json("tree", ORDERS, "--partition", "day=tue")) == 1
    assert "1 more bucket;" in shop("tree", ORDERS, "--limit", 1).stderr
    assert "no bucket is of that name" in shop("tree", ORDERS, "--bucket", 7).stderr


def test_files(shop) -> None:
    rows = shop.json("files", ORDERS)
    assert len(rows) == 3
    assert {row["partition"] for row in rows} == {"day=mon", "day=tue"}
    assert (shop.warehouse / "shop.db" / "orders" / rows[0]["file_path"]).exists()
    assert len(shop.json("files", ORDERS, "--snapshot", 1)) == 1
    assert ".parquet" in shop("files", ORDERS).stdout


def test_manifests(shop) -> None:
    assert sum(row["num_added_files"] for row in shop.json("manifests", ORDERS)) == 3
    assert "manifest-" in shop("manifests", ORDERS).stdout


def test_manifest_lists(shop) -> None:
    rows = shop.json("manifest-lists", ORDERS, "--snapshot", 2)
    assert [(row["snapshot_id"], row["kind"]) for row in rows] == [(2, "base"), (2, "delta")]
    assert "delta" in shop("manifest-lists", ORDERS).stdout


# --- upkeep --------------------------------------------------------------------------------------


def test_amplification(shop) -> None:
    rows = {row["what"]: row for row in shop.json("amplification", ORDERS)}
    assert rows["write"]["times"] >= 1
    assert rows["read"]["times"] >= 1
    assert rows["space"]["times"] >= 1
    assert "sorted run" in shop("amplification", ORDERS, "--commits", "1").stdout


def test_pressure(shop) -> None:
    rows = shop.json("pressure", ORDERS)
    assert [(row["partition"], row["sorted_runs"]) for row in rows] == [
        ("day=mon", 2),
        ("day=tue", 1),
    ]
    assert "until due" in shop("pressure", ORDERS).stdout
    assert shop.json("pressure", ORDERS, "--due") == []
    assert "no bucket is due" in shop("pressure", ORDERS, "--due").stderr


def test_compact(shop) -> None:
    assert "nothing to compact" in shop("compact", ORDERS).stdout
    told = shop("compact", ORDERS, "--full", "--partition", "day=mon").stdout
    assert told.startswith("compacted 1 bucket (")
    assert "3 sorted runs before, 2 now, snapshot 4" in told
    (facts,) = shop.json("compact", ORDERS, "--full")
    assert (facts["runs_before"], facts["runs_after"]) == (2, 2)
    assert {row["order_id"] for row in shop.json("scan", ORDERS)} == {1, 2, 3}
    assert shop.json("compact", ORDERS, "--full", "--bucket", 5)[0]["snapshot_id"] is None
    shop("compact", ORDERS, "--partition", "price=3", code=5)
    shop("compact", ORDERS, "--partition", "day", code=5)


def test_tag_create(shop) -> None:
    assert "names snapshot 3" in shop("tag", "create", ORDERS, "now").stdout
    (made,) = shop.json("tag", "create", ORDERS, "then", "--snapshot", 1, "--retained", "7 d")
    assert (made["snapshot_id"], made["retained"]) == (1, "7 d")
    shop("tag", "create", ORDERS, "now", code=4)
    shop("tag", "create", ORDERS, "x", "--retained", "long", code=5)
    shop("tag", "create", ORDERS, "x", "--snapshot", 9, code=3)


def test_tag_list(shop) -> None:
    assert "no tags" in shop("tag", "list", ORDERS).stderr
    shop("tag", "create", ORDERS, "now")
    assert [tag["tag"] for tag in shop.json("tag", "list", ORDERS)] == ["now"]
    assert "for ever" in shop("tag", "list", ORDERS).stdout


def test_tag_delete(shop) -> None:
    shop("tag", "create", ORDERS, "now")
    assert shop.json("tag", "delete", ORDERS, "now") == [{"deleted": "now"}]
    shop("tag", "delete", ORDERS, "now", code=3)


EXPIRE = ["expire", ORDERS, "--retain-min", 1, "--retain-max", 1, "--older-than", "0 s"]


def test_expire_shows_its_plan_and_asks(shop) -> None:
    shop("tag", "create", ORDERS, "first", "--snapshot", 1)
    for arguments in (["--dry-run"],):
        shown = shop(*EXPIRE, *arguments).stdout
        assert "snapshots of shop.orders that go" in shown
        assert "2 snapshots" in shown
    assert "nothing was changed" in shop(*EXPIRE, code=1).stderr
    assert len(shop.json("snapshots", ORDERS)) == 3
    assert "gone from shop.orders: 2 snapshots" in shop(*EXPIRE, input="y\n").stdout
    assert len(shop.json("snapshots", ORDERS)) == 1
    assert shop.json("count", ORDERS, "--tag", "first")[0]["rows"] == 2
    assert "nothing to expire" in shop(*EXPIRE, "--yes").stdout


@pytest.mark.parametrize("given", [("shop", "web.clicks"), ("--all-tables",)])
def test_upkeep_of_several_tables_goes_on_after_a_failure(shop, given) -> None:
    clicks = shop.file("clicks.csv", "id\n1\n")
    for name in ("shop.damaged", "web.clicks"):
        shop("create", name, "--columns", "id BIGINT", "--primary-key", "id")
        for _ in range(2):
            shop("upsert", name, clicks)
    for manifest in shop.warehouse.glob("shop.db/damaged/manifest/*"):
        manifest.unlink()
    acts = {
        ("compact", "--full"): ("compacted 1 bucket", "of web.clicks"),
        tuple(map(str, (EXPIRE[0], *EXPIRE[2:], "--yes"))): ("gone from web.clicks: 2 snapshots",),
    }
    for (act, *options), texts in acts.items():
        told = shop(act, *given, *options, code=9)
        assert told.stdout.count("shop.orders") >= 1
        assert all(text in told.stdout for text in texts), told.stdout
        assert "table='shop.damaged'" in told.stderr
        shop(act, *options, code=2)
        shop(act, "shop.orders", "--all-tables", code=2)
    facts = shop.json("compact", *given, code=9)
    assert [one_table["table"] for one_table in facts] == ["shop.orders", "web.clicks"]


def test_expire_for_programs(shop) -> None:
    (plan,) = shop.json(*EXPIRE, "--dry-run")
    assert (plan["dry_run"], plan["snapshots"]) == (True, [1, 2])
    (done,) = shop.json(*EXPIRE, "--yes")
    assert (done["dry_run"], done["snapshots"]) == (False, [1, 2])
    assert shop(*EXPIRE, "--yes", "--quiet").output == ""
    shop("expire", ORDERS, "--older-than", "soon", code=5)
    shop("expire", ORDERS, "--retain-min", 5, "--retain-max", 2, code=5)


def test_verify(shop) -> None:
    told = shop("verify", ORDERS).stdout
    assert told == "clean: 3 snapshots, 0 tags, 3 data files, whose contents were not read\n"
    assert "not read" not in shop("verify", ORDERS, "--deep").stdout
    assert shop("verify", ORDERS, "--quiet").output == ""
    victim = next(shop.warehouse.rglob("*.parquet"))
    victim.unlink()
    assert "is missing" in shop("verify", ORDERS, code=1).stdout
    (facts,) = shop.json("verify", ORDERS, code=1)
    assert not facts["clean"]
    assert victim.name in facts["problems"][0]


# --- lineage -------------------------------------------------------------------------------------


def test_lineage_snapshot(shop) -> None:
    (facts,) = shop.json("lineage", "snapshot", ORDERS, 1)
    assert facts["snapshot_id"] == 1
    assert [file["change"] for file in facts["files"]] == ["added"]
    assert len(facts["runs"]) == 1
    assert len(shop.json("lineage", "snapshot", ORDERS, "--history")[0]["runs"]) == 3
    assert "was made by" in shop("lineage", "snapshot", ORDERS).stdout
    shop("lineage", "snapshot", ORDERS, 9, code=3)


def test_lineage_snapshot_names_the_run_and_its_files(shop) -> None:
    source = shop.file("more.csv", "order_id,day\n7,mon\n")
    shop("upsert", ORDERS, source)
    (facts,) = shop.json("lineage", "snapshot", ORDERS)
    assert [run["kind"] for run in facts["runs"]] == ["upsert"]
    assert [each["dataset"] for each in facts["inputs"]] == [source.as_uri()]
    shop("compact", ORDERS, "--full")
    (facts,) = shop.json("lineage", "snapshot", ORDERS)
    assert [run["kind"] for run in facts["runs"]] == ["compact"]


def test_lineage_file(shop) -> None:
    name = shop.json("files", ORDERS)[0]["file_path"]
    shop("tag", "create", ORDERS, "kept")
    shop("compact", ORDERS, "--full")
    (life,) = shop.json("lineage", "file", ORDERS, name)
    assert life["stages"][0]["deleted_by"] == 4
    assert len(life["became"]) == 1
    assert life["pinned_by"][0]["tag_name"] == "kept"
    assert "kept by tags" in shop("lineage", "file", ORDERS, name).stdout
    shop("lineage", "file", ORDERS, "nothing.parquet", code=3)


def test_lineage_downstream(shop) -> None:
    assert shop.json("lineage", "downstream", ORDERS, 1) == []
    assert "nothing is known" in shop("lineage", "downstream", ORDERS).stderr


def test_lineage_recent(shop) -> None:
    rows = shop.json("lineage", "recent")
    assert [row["snapshot_id"] for row in rows] == [3, 2, 1]
    assert rows[0]["committed"].endswith("Z")
    assert len(shop.json("lineage", "recent", ORDERS, "--limit", 1)) == 1
    assert ORDERS in shop("lineage", "recent").stdout
    shop("lineage", "recent", "shop.nothing", code=3)


def test_lineage_rebuild(shop) -> None:
    assert shop.json("lineage", "rebuild") == [{"table": ORDERS, "snapshots": 3}]
    assert ORDERS in shop("lineage", "rebuild", ORDERS).stdout
    shop("lineage", "rebuild", "./path", code=2)


# --- about ---------------------------------------------------------------------------------------


def test_version(shell) -> None:
    (facts,) = shell.json("version")
    assert {"lsm", "python", "pyarrow"} <= facts.keys()
    assert facts["lsm"] in shell("version").stdout


# --- everywhere ----------------------------------------------------------------------------------

READERS = [
    ["schema"], ["options"], ["snapshots"], ["snapshot"], ["tree"], ["files"], ["manifests"],
    ["manifest-lists"], ["scan"], ["count"], ["explain"], ["pressure"], ["verify"], ["tag", "list"],
]  # fmt: skip


@pytest.mark.parametrize("verb", READERS, ids=" ".join)
def test_a_path_needs_no_catalog(shop, verb: list[str]) -> None:
    (shop.warehouse / "catalog.db").rename(shop.directory / "elsewhere.db")
    shop(*verb, shop.warehouse / "shop.db" / "orders")
    shop(*verb, shop.directory / "nothing", code=3)


@pytest.mark.parametrize("verb", READERS, ids=" ".join)
def test_an_empty_table_is_no_error(shell, verb: list[str]) -> None:
    shell("create", "a.b", "--columns", "id INT", "--primary-key", "id")
    shell(*verb, "a.b")
    shell(*verb, "a.b", "--json")


def test_fixtures_of_other_clients_open_by_path(shell, fixture_tables: Path) -> None:
    paths = [path.parent for path in sorted(fixture_tables.rglob("schema")) if path.is_dir()]
    assert paths
    for path in paths[:10]:
        shell("schema", path, code=(0, 8))


def test_global_options_work_before_and_after_the_verb(shop) -> None:
    before = shop("--json", "count", ORDERS).stdout
    assert before == shop("count", ORDERS, "--json").stdout
    shop.environment["LSM_WAREHOUSE"] = str(shop.directory / "other")
    shop("count", ORDERS, code=3)
    shop("count", ORDERS, "--warehouse", shop.warehouse)
    catalog = shop.warehouse / "catalog.db"
    shop("count", ORDERS, "--warehouse", shop.warehouse, "--catalog", f"sqlite:///{catalog}")
    shop.environment |= {"LSM_WAREHOUSE": str(shop.warehouse), "LSM_CATALOG": str(catalog)}
    shop("count", ORDERS)


# --- changes -------------------------------------------------------------------------------------


def test_changelog_tells_what_snapshots_did(shop) -> None:
    told = shop.json("changelog", "shop.orders")
    assert [(row["_snapshot_id"], row["_row_kind"], row["order_id"]) for row in told] == [
        (1, "+I", 1), (1, "+I", 2), (2, "+I", 2), (3, "+I", 3),
    ]  # fmt: skip
    assert shop.json("changelog", "shop.orders", "--after", "1", "--upto", "2") == told[2:3]
    shop("tag", "create", "shop.orders", "monday", "--snapshot", "2")
    assert shop.json("changelog", "shop.orders", "--after", "monday") == told[3:]
    diff = shop.json(
        "changelog", "shop.orders", "--after", "1", "--upto", "monday", "--mode", "diff"
    )
    assert [(row["_row_kind"], row["price"]) for row in diff] == [("-U", "7.00"), ("+U", "8.25")]
    text = shop(
        "changelog", "shop.orders", "--where", "_snapshot_id = 2", "--columns", "_row_kind,price"
    ).stdout
    assert "+I" in text
    assert "8.25" in text
    assert shop("changelog", "shop.orders", "--after", "2001-01-01").stdout.count("+I") == 4
    assert "no changes" in shop("changelog", "shop.orders", "--after", "3").output


def test_changelog_follows_and_remembers(shop) -> None:
    follow = ("changelog", "shop.orders", "--follow", "from-snapshot", "--from", "1",
              "--consumer", "etl")  # fmt: skip
    assert [row["_snapshot_id"] for row in shop.json(*follow, "--upto", "2")] == [1, 1, 2]
    assert [row["_snapshot_id"] for row in shop.json(*follow, "--upto", "3")] == [3]
    assert "--json" in shop(*follow, "--upto", "3", code=5).output
    assert "--follow" in shop("changelog", "shop.orders", "--consumer", "etl", code=5).output


# --- Iceberg metadata ----------------------------------------------------------------------------


def test_iceberg_show(shop) -> None:
    (state,) = shop.json("iceberg", "show", "shop.orders")
    assert state["metadata_location"] is None
    assert "metadata.iceberg.storage" in state["problem"]
    shop("alter", "shop.orders", "--set", "metadata.iceberg.storage=table-location")
    (state,) = shop.json("iceberg", "show", "shop.orders")
    assert (state["snapshot_id"], state["lag"], state["hidden_files"]) == (3, 0, 3)
    assert "3 files left out until a compaction" in shop("iceberg", "show", "shop.orders").stdout


def test_iceberg_sync(shop) -> None:
    shop("iceberg", "sync", "shop.orders", code=5)
    shop("alter", "shop.orders", "--set", "metadata.iceberg.storage=table-location")
    folder = shop.warehouse / "shop.db" / "orders" / "metadata"
    for file in folder.iterdir():
        file.unlink()
    (state,) = shop.json("iceberg", "sync", "shop.orders")
    assert (state["snapshot_id"], state["problem"]) == (3, None)
    (rebuilt,) = shop.json("iceberg", "sync", "shop.orders", "--rebuild")
    assert rebuilt["snapshot_id"] == 3
    assert rebuilt["metadata_location"] != state["metadata_location"]
