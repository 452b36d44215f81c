"""Verbs of buckets and of tables without a key: append, rescale, and compact for both."""

ORDERS = "shop.orders"


def test_append(shell) -> None:
    shell("create", "a.clicks", "--columns", "page STRING, n BIGINT")
    rows = shell.file("rows.csv", "page,n\nx,1\ny,2\n")
    assert "2 rows appended: snapshot 1" in shell("append", "a.clicks", rows).stdout
    for _ in range(2):
        (facts,) = shell.json("append", "a.clicks", rows)
    assert (facts["rows"], facts["commit_kind"], facts["total_record_count"]) == (2, "APPEND", 6)
    told = shell("compact", "a.clicks", "--full").stdout
    assert "3 files before, 1 now" in told
    assert len(shell.json("scan", "a.clicks")) == 6
    assert "use lsm append" in shell("upsert", "a.clicks", rows, code=5).stderr
    shell("delete", "a.clicks", rows, code=5)


def test_update_columns(shell) -> None:
    evolving = ("row-tracking.enabled=true", "data-evolution.enabled=true")
    options = [part for option in evolving for part in ("--option", option)]
    shell("create", "a.clicks", "--columns", "page STRING, n BIGINT", *options)
    shell("append", "a.clicks", shell.file("rows.csv", "page,n\nx,1\ny,2\n"))
    new = shell.file("new.csv", "_ROW_ID,n\n1,20\n")
    assert "columns of 1 row updated: snapshot 2" in shell("update-columns", "a.clicks", new).stdout
    found = shell.json("scan", "a.clicks", "--columns", "_ROW_ID,page,n")
    assert sorted(found, key=lambda row: row["_ROW_ID"]) == [
        {"_ROW_ID": 0, "page": "x", "n": 1},
        {"_ROW_ID": 1, "page": "y", "n": 20},
    ]
    wrong = shell.file("wrong.csv", "_ROW_ID,n\n7,20\n")
    assert (
        "could not be found in the table"
        in shell("update-columns", "a.clicks", wrong, code=5).stderr
    )


def test_rescale(shop) -> None:
    before = shop.json("scan", ORDERS)
    assert "has 3 buckets now" in shop("rescale", ORDERS, 3).stdout
    assert sorted(map(str, shop.json("scan", ORDERS))) == sorted(map(str, before))
    assert "nothing to rescale" in shop("rescale", ORDERS, 3).stdout
    (facts,) = shop.json("rescale", ORDERS, 2, "--partition", "day=mon")
    assert (facts["buckets"], facts["commit_kind"]) == (2, "OVERWRITE")
    shop("rescale", ORDERS, 0, code=2)
    assert {"key": "bucket", "value": "2"} in shop.json("options", ORDERS)
