"""ALTER TABLE, COMMENT ON TABLE and SHOW TBLPROPERTIES by `sql(spark, text)`."""

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidInputError, InvalidOptionError, LsmError
from lsm_engine.spark import register, sql

pytestmark = pytest.mark.spark

CREATE = """
CREATE TABLE shop.orders (id BIGINT, n INT, place STRUCT<x: INT>) USING lsm COMMENT 'all'
TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')
"""


@pytest.fixture
def run(spark, tmp_path):
    """The rows of a statement; `run.table()`: the table as the engine has it."""
    lake = str(tmp_path / "lake")
    register(spark, warehouse=lake)

    def run(text):
        return [tuple(row) for row in sql(spark, text).collect()]

    def table(name="shop.orders"):
        with lsm.open_catalog(lake) as catalog:
            return catalog.table(name)

    run.table = table
    run(CREATE)
    run("INSERT INTO shop.orders VALUES (1, 10, struct(5)), (2, 20, null)")
    yield run
    spark.sql("DROP DATABASE IF EXISTS shop CASCADE")


def test_columns_are_added_changed_moved_renamed_and_dropped(spark, run):
    run(
        "ALTER TABLE shop.orders ADD COLUMNS (note STRING COMMENT 'why' AFTER id, d DECIMAL(9, 2) DEFAULT 1.50)"
    )
    run("ALTER TABLE shop.orders ADD COLUMN place.z DOUBLE")
    run("ALTER TABLE shop.orders ALTER COLUMN place.z FIRST")
    assert run.table().schema.arrow.field("place").type.names == ["z", "x"]
    for refused in ("ADD COLUMN place.y INT DEFAULT 5", "ALTER COLUMN place.x SET DEFAULT 5"):
        with pytest.raises(InvalidInputError, match=r"'place\.[xy]' is a field within a column"):
            run(f"ALTER TABLE shop.orders {refused}")
    run("ALTER TABLE shop.orders ALTER COLUMN n TYPE BIGINT")
    run("ALTER TABLE shop.orders ALTER COLUMN n COMMENT 'how many'")
    run("ALTER TABLE shop.orders ALTER n FIRST")
    run("ALTER TABLE shop.orders RENAME COLUMN note TO `the reason`")
    schema = run.table().schema
    assert list(schema.names) == ["n", "id", "the reason", "place", "d"]
    assert (schema.field("n").description, schema.field("the reason").description) == (
        "how many",
        "why",
    )
    assert (schema.field("d").type.precision, schema.field("d").type.scale) == (9, 2)
    run("INSERT INTO shop.orders (id, n) VALUES (3, 30)")
    assert sorted(run("SELECT id, n, d, place.z FROM shop.orders")) == [
        (1, 10, None, None), (2, 20, None, None), (3, 30, pytest.approx(1.5), None),
    ]  # fmt: skip
    # Spark's own catalog knows as well.
    assert spark.table("shop.orders").columns == list(schema.names)
    assert sorted(run("SELECT id, place.x FROM shop.orders")) == [(1, 5), (2, None), (3, None)]
    run("ALTER TABLE shop.orders DROP COLUMN `the reason`, d")
    run("ALTER TABLE shop.orders DROP COLUMNS IF EXISTS (d, place.z)")
    assert list(run.table().schema.names) == ["n", "id", "place"]
    assert spark.table("shop.orders").columns == ["n", "id", "place"]


def test_properties_and_comments_are_set_shown_and_unset(run):
    run("ALTER TABLE shop.orders SET TBLPROPERTIES ('write-only' = 'true', comment = 'some')")
    assert run("SHOW TBLPROPERTIES shop.orders") == [
        ("bucket", "2"), ("comment", "some"), ("primary-key", "id"), ("write-only", "true"),
    ]  # fmt: skip
    assert run("SHOW TBLPROPERTIES shop.orders ('write-only')") == [("write-only", "true")]
    run("ALTER TABLE shop.orders UNSET TBLPROPERTIES IF EXISTS ('write-only', 'nothing')")
    run("COMMENT ON TABLE shop.orders IS 'orders of all shops'")
    assert run.table().schema.comment == "orders of all shops"
    assert "write-only" not in dict(run("SHOW TBLPROPERTIES shop.orders"))
    run("COMMENT ON TABLE shop.orders IS NULL")
    assert run.table().schema.comment is None
    assert ("id", "bigint", None) in run("DESCRIBE TABLE shop.orders")


def test_a_default_is_a_literal_and_null_is_none(run):
    run(
        "CREATE TABLE shop.d (id INT PRIMARY KEY, a STRING DEFAULT NULL, b INT DEFAULT -7, c BOOLEAN DEFAULT TRUE, "
        "d STRING DEFAULT 'null') USING lsm"
    )
    run(
        "ALTER TABLE shop.d ADD COLUMNS (`the e` INT DEFAULT +5, f STRING DEFAULT NULL, g STRING DEFAULT r'\\n')"
    )
    run("INSERT INTO shop.d (id) VALUES (1)")
    assert run("SELECT * FROM shop.d") == [(1, None, -7, True, "null", 5, None, "\\n")]
    run("ALTER TABLE shop.d ALTER COLUMN b SET DEFAULT NULL")
    assert run.table("shop.d").schema.field("b").default_value is None
    schema = run.table("shop.d").schema
    for computed in ("current_date()", "abc", "X'00'", "DATE'2026-01-01'", "-'1'", "1 + 1", "-"):
        for statement in (
            f"CREATE TABLE shop.e (id INT, a STRING DEFAULT {computed}) USING lsm",
            f"ALTER TABLE shop.d ADD COLUMN h STRING DEFAULT {computed}",
            f"ALTER TABLE shop.d ALTER COLUMN a SET DEFAULT {computed}",
        ):
            with pytest.raises(InvalidInputError, match="not understood"):
                run(statement)
    assert run.table("shop.d").schema == schema
    assert ("shop", "e", False) not in run("SHOW TABLES IN shop")


def test_a_table_gets_another_name(spark, run):
    run("ALTER TABLE shop.orders RENAME TO shop.sold")
    assert run("SELECT count(*) FROM shop.sold") == [(2,)]
    assert not spark.catalog.tableExists("shop.orders")
    assert run.table("shop.sold").count() == 2


REFUSED = {
    "ADD COLUMN x INT NOT NULL": "leave NOT NULL out",
    "ALTER COLUMN n SET NOT NULL": "may hold nulls",
    "DROP PARTITION (id = 1)": "not a partition column",
    "SET LOCATION '/x'": "stays where it is",
    "REPLACE COLUMNS (a INT)": "ADD, DROP, RENAME",
    "UNSET TBLPROPERTIES ('nothing')": "IF EXISTS",
    "FROBNICATE": "SET or UNSET TBLPROPERTIES",
    "ADD COLUMN x INT WOBBLE": "not understood|PARSE",
}


def test_what_cannot_be_altered_says_what_to_use_instead(run):
    for rest, message in REFUSED.items():
        with pytest.raises(Exception, match=message) as caught:
            run(f"ALTER TABLE shop.orders {rest}")
        assert isinstance(caught.value, InvalidInputError) or "PARSE" in message
    assert run.table().schema.id == 0


def test_a_refused_change_leaves_all_as_it_was(run):
    with pytest.raises(LsmError):
        run("ALTER TABLE shop.orders DROP COLUMN id")
    with pytest.raises(InvalidOptionError):
        run("ALTER TABLE shop.orders SET TBLPROPERTIES ('bucket-key' = 'n', 'write-onyl' = 'true')")
    assert run.table().schema.id == 0
    assert run("SELECT count(*) FROM shop.orders") == [(2,)]


def test_a_quoted_name_with_a_dot_is_a_column_and_no_field(run):
    run("ALTER TABLE shop.orders ADD COLUMN `place.z` INT DEFAULT 5")
    run("ALTER TABLE shop.orders ADD COLUMN place.z INT")
    run("ALTER TABLE shop.orders ALTER COLUMN `place.z` TYPE BIGINT")
    run("ALTER TABLE shop.orders ALTER COLUMN `place.z` COMMENT 'a column'")
    run("ALTER TABLE shop.orders RENAME COLUMN place.z TO `y.z`")
    arrow = run.table().schema.arrow
    assert arrow.names == ["id", "n", "place", "place.z"]
    assert arrow.field("place.z").type == "int64"
    assert run.table().schema.field("place.z").description == "a column"
    assert arrow.field("place").type.names == ["x", "y.z"]
    run("ALTER TABLE shop.orders DROP COLUMN `place.z`")
    run("ALTER TABLE shop.orders DROP COLUMN place.`y.z`")
    assert run.table().schema.arrow.names == ["id", "n", "place"]
    assert run.table().schema.arrow.field("place").type.names == ["x"]
