"""`lsm lineage` asked for rows, tags, files, columns, expiry, exports and the page."""

import json

import lsm_engine as engine

ORDERS = "shop.orders"


def test_lineage_row(shop) -> None:
    (told,) = shop.json("lineage", "row", ORDERS, "order_id=2", "day=mon")
    assert [commit["snapshot_id"] for commit in told["commits"]] == [2]
    assert "is the row" in shop("lineage", "row", ORDERS, "order_id=2", "day=mon").stdout


def test_lineage_tag(shop) -> None:
    shop("tag", "create", ORDERS, "monday")
    (told,) = shop.json("lineage", "tag", ORDERS, "monday")
    assert len(told["commits"]) == 3
    shop("lineage", "tag", ORDERS, "monday")
    shop("lineage", "tag", ORDERS, "nothing", code=3)


def test_lineage_origin(shop) -> None:
    shop("compact", ORDERS, "--full")
    path = shop.json("files", ORDERS)[0]["file_path"]
    (told,) = shop.json("lineage", "origin", ORDERS, path)
    assert len(told["commits"]) == 2
    assert "files that went into it" in shop("lineage", "origin", ORDERS, path).stdout


def test_lineage_impact(shop) -> None:
    (told,) = shop.json("lineage", "impact", ORDERS, "1")
    assert told["live"]
    assert "nothing known was built from it" in shop("lineage", "impact", ORDERS, "1").stdout


def test_lineage_column(shop) -> None:
    assert shop.json("lineage", "column", ORDERS, "price") == []
    shop("lineage", "column", ORDERS, "price", "--downstream")
    shop("lineage", "column", ORDERS, "nothing", code=3)


def test_lineage_export_is_one_event_per_commit(shop) -> None:
    lines = shop("lineage", "export", ORDERS, "--namespace", "prod").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["outputs"][0]["facets"]["version"]["datasetVersion"] for event in events] == [
        "1", "2", "3",
    ]  # fmt: skip
    assert {event["job"]["namespace"] for event in events} == {"prod"}
    assert len(shop("lineage", "export").stdout.splitlines()) == 3


def test_lineage_page(shop) -> None:
    page = shop.directory / "page.html"
    assert "open it in a browser" in shop("lineage", "--html", page).stdout
    assert '"name":"shop.orders"' in page.read_text()
    (told,) = shop.json("lineage", "--html", page, "--table", ORDERS)
    assert told["page"] == str(page)
    assert "Usage" in shop("lineage").stdout


def test_catalog_sync_records_commits_of_other_clients(shop) -> None:
    shop("catalog", "sync")
    assert shop.json("catalog", "sync") == [{"table": ORDERS, "commits": 0}]
    other = engine.open_table(str(shop.warehouse / "shop.db" / "orders"))
    other.delete(where="order_id = 1")
    assert shop.json("catalog", "sync", ORDERS) == [{"table": ORDERS, "commits": 1}]
    shop("catalog", "sync", "shop.nothing", code=3)
