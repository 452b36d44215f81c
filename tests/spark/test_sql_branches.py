"""SQL on a branch, `shop.orders@fix`: it changes the branch and nothing of the table."""

import pytest

from lsm_engine.base.errors import InvalidInputError, LsmError, NotFoundError

pytestmark = pytest.mark.spark

MAIN = "SELECT id, n FROM shop.orders ORDER BY id"
FIX = "SELECT id, n FROM `shop.orders@fix` ORDER BY id"
ROWS = [(1, 10), (2, 20)]


@pytest.fixture
def branched(run):
    run("CREATE TABLE shop.orders (id INT, n INT) USING lsm TBLPROPERTIES ('primary-key' = 'id')")
    run("INSERT INTO shop.orders VALUES (1, 10), (2, 20)")
    run("CALL sys.create_tag(table => 'shop.orders', tag => 'v1')")
    run("CALL sys.create_branch(table => 'shop.orders', branch => 'fix', tag => 'v1')")
    return run


def test_writes_to_a_branch_leave_the_table_as_it_is(branched):
    source = "(SELECT 3 AS id, 99 AS n UNION ALL SELECT 4, 40) s"
    for statement, wanted in (
        ("INSERT INTO `shop.orders@fix` VALUES (3, 30)", [*ROWS, (3, 30)]),
        ("UPDATE `shop.orders@fix` SET n = n + 1 WHERE id = 1", [(1, 11), (2, 20), (3, 30)]),
        ("DELETE FROM shop.`orders@fix` WHERE id = 2", [(1, 11), (3, 30)]),
        (
            f"MERGE INTO `shop.orders@fix` t USING {source} ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *",
            [(1, 11), (3, 99), (4, 40)],
        ),
        ("INSERT OVERWRITE TABLE `shop.orders@fix` SELECT 7, 70", [(7, 70)]),
        ("TRUNCATE TABLE `shop.orders@fix`", []),
    ):
        branched(statement)
        assert branched(FIX) == wanted, statement
        assert branched(MAIN) == ROWS, statement
    with pytest.raises(NotFoundError, match="nothing"):
        branched("TRUNCATE TABLE `shop.orders@nothing`")


def test_conditions_and_sources_read_branches_and_the_past(branched):
    branched("INSERT INTO `shop.orders@fix` VALUES (3, 30)")
    branched("INSERT INTO shop.orders VALUES (2, 21), (3, 31), (4, 41), (5, 51)")
    for statement, wanted in (
        (
            "UPDATE shop.orders SET n = 0 WHERE id IN (SELECT id FROM `shop.orders@fix` WHERE n > 20)",
            [(1, 10), (2, 21), (3, 0), (4, 41), (5, 51)],
        ),
        (
            "UPDATE shop.orders o SET n = (SELECT max(n) FROM shop.orders VERSION AS OF 1) WHERE o.id = 4",
            [(1, 10), (2, 21), (3, 0), (4, 20), (5, 51)],
        ),
        (
            "DELETE FROM shop.orders WHERE id NOT IN (SELECT f.id FROM `shop.orders@fix` f)",
            [(1, 10), (2, 21), (3, 0)],
        ),
        (
            "MERGE INTO shop.orders t USING `shop.orders@fix` s ON t.id = s.id "
            "WHEN MATCHED AND s.id IN (SELECT id FROM `shop.orders@fix` WHERE n = 30) THEN UPDATE SET n = s.n",
            [(1, 10), (2, 21), (3, 30)],
        ),
        (
            "MERGE INTO shop.orders t USING shop.orders VERSION AS OF 1 AS s ON t.id = s.id "
            "WHEN MATCHED AND t.n <> s.n THEN UPDATE SET n = s.n WHEN NOT MATCHED BY SOURCE THEN DELETE",
            ROWS,
        ),
        (
            "DELETE FROM `shop.orders@fix` WHERE id IN (SELECT id FROM shop.orders)",
            ROWS,
        ),
    ):
        branched(statement)
        assert branched(MAIN) == wanted, statement
    assert branched(FIX) == [(3, 30)]


REFUSED = [
    "DROP TABLE `shop.orders@fix`",
    "DROP TABLE IF EXISTS shop.orders@fix",
    "DROP TABLE shop.orders@fix PURGE",
    "TRUNCATE TABLE shop.orders@fix",
    "DELETE FROM shop.orders@fix",
    "DELETE FROM shop.orders@fix WHERE true",
    "UPDATE shop.orders@fix SET n = 0",
    "INSERT OVERWRITE shop.orders@fix SELECT 7, 70",
    "ALTER TABLE `shop.orders@fix` DROP COLUMN n",
    "ALTER TABLE `shop.orders@fix` RENAME TO shop.gone",
    "ALTER TABLE shop.orders RENAME TO `shop.orders@two`",
    "COMMENT ON TABLE `shop.orders@fix` IS 'x'",
    "CREATE TABLE `shop.orders@two` (id INT) USING lsm",
]


def test_what_would_change_the_table_in_place_of_a_branch_is_refused(branched):
    for statement in REFUSED:
        with pytest.raises(Exception, match=r"branch|not understood|PARSE|INVALID|syntax") as caught:  # fmt: skip
            branched(statement)
        assert isinstance(caught.value, LsmError) or "OVERWRITE" in statement
    assert branched(MAIN) == branched(FIX) == ROWS
    assert branched("DESCRIBE TABLE shop.orders") == [("id", "int", None), ("n", "int", None)]


def test_a_drop_takes_purge_and_nothing_else(branched):
    with pytest.raises(InvalidInputError, match="not expected"):
        branched("DROP TABLE shop.orders CASCADE")
    assert branched(MAIN) == ROWS
    branched("DROP TABLE shop.orders PURGE")
    assert ("shop", "orders", False) not in branched("SHOW TABLES IN shop")
