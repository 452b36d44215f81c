"""lsm alter: columns, options and comments from a shell, all of them or none."""

ORDERS = "shop.orders"


def columns(shop):
    with shop.catalog() as catalog:
        return catalog[ORDERS].schema.names


def test_alter_changes_columns_options_and_comments(shop):
    before = columns(shop)
    out = shop(
        "alter", ORDERS, "--add", "note STRING", "--add", "paid BOOLEAN", "--rename", "customer=buyer",
        "--type", "price DECIMAL(12, 2)", "--drop", "paid_at", "--set", "snapshot.num-retained.min=3",
        "--comment", "one row per order", "--column-comment", "buyer=who pays", "--first", "note",
        "--default", "paid=false",
    ).stdout  # fmt: skip
    assert "has schema 1 now" in out
    assert columns(shop) == ("note", "order_id", "day", "buyer", "price", "paid")
    assert len(columns(shop)) == len(before) + 1
    with shop.catalog() as catalog:
        schema = catalog[ORDERS].schema
        assert schema.comment == "one row per order"
        assert schema.field("buyer").description == "who pays"
        assert schema.field("paid").default_value == "false"
        assert schema.options.texts["snapshot.num-retained.min"] == "3"
        assert str(schema.arrow.field("price").type) == "decimal128(12, 2)"
    shop(
        "alter",
        ORDERS,
        "--unset",
        "snapshot.num-retained.min",
        "--comment",
        "",
        "--after",
        "note=price",
    )
    assert columns(shop) == ("order_id", "day", "buyer", "price", "note", "paid")
    (facts,) = shop.json("alter", ORDERS, "--column-comment", "buyer=")
    assert (facts["was"], facts["schema"]) == (2, 3)
    with shop.catalog() as catalog:
        schema = catalog[ORDERS].schema
        assert (schema.comment, schema.field("buyer").description) == (None, None)
        assert "snapshot.num-retained.min" not in schema.options.texts


def test_alter_changes_nothing_where_one_change_is_wrong(shop):
    before = columns(shop)
    wrong = [
        (["--drop", "order_id"], "order_id"),
        (["--drop", "nope"], "nope"),
        (["--add", "note"], "name TYPE"),
        (["--add", "note STRONG"], "STRONG"),
        (["--set", "bucket"], "name=value"),
        (["--set", "no.such.option=1"], "no.such.option"),
        (["--type", "price INT"], "price"),
    ]
    for words, named in wrong:
        refused = shop("alter", ORDERS, "--add", "fine STRING", *words, code=tuple(range(1, 10)))
        assert named in refused.stderr
    assert "at least one change" in shop("alter", ORDERS, code=2).stderr
    assert columns(shop) == before
