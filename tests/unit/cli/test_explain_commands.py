"""`lsm explain`: a scan by default, else a key, a file, a retention, a bucket's debt."""

import pytest

ORDERS = "shop.orders"
KEY = ("order_id=2", "day=mon")


def test_explain_scan_is_explained_with_and_without_the_verb(shop) -> None:
    plain = shop("explain", ORDERS, "--where", "order_id = 1").stdout
    assert plain == shop("explain", "scan", ORDERS, "--where", "order_id = 1").stdout
    assert plain == shop("explain", "--where", "order_id = 1", ORDERS).stdout
    assert shop.json("explain", ORDERS) == shop.json("--json", "explain", ORDERS)


def test_explain_key(shop) -> None:
    (told,) = shop.json("explain", "key", ORDERS, *KEY)
    assert told["row"] is not None
    assert told["versions"]
    text = shop("explain", "key", ORDERS, *KEY).stdout
    assert "newest version" in text
    shop("explain", "key", ORDERS, "price=3", code=(3, 5))
    shop("explain", "key", ORDERS, "order_id", code=(3, 5))
    wrong = shop("explain", "key", ORDERS, "order_id=two", "day=mon", code=5)
    assert "order_id is BIGINT NOT NULL, which 'two' does not fit" in wrong.stderr


def test_explain_file(shop) -> None:
    path = shop.json("files", ORDERS)[0]["file_path"]
    (told,) = shop.json("explain", "file", ORDERS, path)
    assert told["live"]
    assert told["stages"]
    assert "live" in shop("explain", "file", ORDERS, path).stdout
    shop("explain", "file", ORDERS, "data-nobody-0.parquet", code=(2, 3, 4))


def test_explain_retention(shop) -> None:
    (told,) = shop.json("explain", "retention", ORDERS, "--retain-max", "1", "--older-than", "0 s")
    assert len(told["readable_snapshots"]) == 1
    assert "would free" in shop("explain", "retention", ORDERS, "--later", "9 d").stdout


def test_explain_debt(shop) -> None:
    rows = shop.json("explain", "debt", ORDERS)
    assert {"read_amplification", "due_in", "stops_in"} <= rows[0].keys()
    assert "sorted runs" in shop("explain", "debt", ORDERS).stdout


def test_explain_diff(shop) -> None:
    (told,) = shop.json("explain", "diff", ORDERS, "1", "2")
    assert [file["change"] for file in told["files"]] == ["added"]
    assert told["row_change"] == 1
    assert "+1 -0 files" in shop("explain", "diff", ORDERS, "2").stdout
    assert len(shop.json("explain", "diff", ORDERS, "0")[0]["files"]) == 3
    shop("explain", "diff", ORDERS, "99", code=(3, 4))


def test_explain_says_which_files_an_index_rules_out_and_which_it_is_asked_for(shop) -> None:
    """Set on a living table, with a rewrite; expiry and verification keep it."""
    names = ("file-index.bitmap.columns=customer", "compaction.force-rewrite-all-files=true")
    condition = "customer = 'B' AND day = 'mon'"  # between the names that there are
    wanted = {
        "500 b": "(1 by file index pruned)", "1 b": "asks the file index of 1 data file"
    }  # fmt: skip
    for threshold, text in wanted.items():
        options = (*names, f"file-index.in-manifest-threshold={threshold}")
        shop("alter", ORDERS, *(word for name in options for word in ("--set", name)))
        shop("compact", ORDERS, "--full")
        told = shop("explain", ORDERS, "--where", condition).stdout
        assert text in told, told
        assert shop.json("scan", ORDERS, "--where", condition) == []
    shop("expire", ORDERS, "--retain-max", "1", "--older-than", "0 s", "--yes")
    shop("verify", ORDERS, "--deep")
    assert [row["customer"] for row in shop.json("scan", ORDERS, "--where", "customer = 'Bo'")] == [
        "Bo"
    ]


@pytest.mark.parametrize("verb", ["key", "file"])
def test_what_is_missing_is_asked_for(shop, verb: str) -> None:
    shop("explain", verb, ORDERS, code=2)
