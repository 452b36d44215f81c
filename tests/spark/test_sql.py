"""SQL by name: what `sql(spark, text)` does, and what Spark itself does with the tables made so."""

import datetime
import zoneinfo

import pytest
from pyspark.errors import AnalysisException, PythonException

import lsm_engine as lsm
from lsm_engine.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidOptionError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.spark.statement import Statement, relations

pytestmark = pytest.mark.spark

CREATE = """
CREATE TABLE shop.orders (day STRING NOT NULL, id BIGINT COMMENT 'the key', n INT, note STRING)
USING lsm PARTITIONED BY (day) COMMENT 'all orders'
TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '2')
"""
INSERT = (
    "INSERT INTO shop.orders VALUES ('a', 1, 1, 'one'), ('a', 2, 2, 'two'), ('b', 3, 3, 'three')"
)
MERGE = """
MERGE INTO shop.orders AS t
USING (SELECT 'a' AS day, 1 AS id, 10 AS n, 'x' AS note UNION ALL SELECT 'c', 9, 9, 'new') s
ON t.day = s.day AND t.id = s.id
WHEN MATCHED AND s.n > 5 THEN UPDATE SET n = t.n + s.n, note = concat(s.note, '!')
WHEN NOT MATCHED THEN INSERT (day, id, n) VALUES (s.day, s.id, CASE WHEN s.n > 5 THEN 6 ELSE 0 END)
WHEN NOT MATCHED BY SOURCE AND n = 2 THEN DELETE;
"""


def test_a_table_is_made_filled_merged_changed_and_dropped(run, tmp_path):
    assert run(CREATE) == []
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.table("shop.orders").schema
    assert (made.primary_keys, made.partition_keys) == (("day", "id"), ("day",))
    assert (made.comment, made.field("id").description) == ("all orders", "the key")
    run(INSERT)
    assert run(MERGE) == [(2, 1, 1, 1)]
    every = "SELECT * FROM shop.orders ORDER BY id"
    assert run(every) == [("a", 1, 11, "x!"), ("b", 3, 3, "three"), ("c", 9, 6, None)]
    assert run.spark(every) == run(every)
    update = "UPDATE shop.orders SET note = upper(note), n = n * 2 WHERE id = (SELECT max(id) - 6 FROM shop.orders)"
    assert run(update) == [(3, 0, 1, 0)]
    assert run("DELETE FROM shop.orders o WHERE o.n = 11") == [(4, 0, 0, 1)]
    assert run(every) == [("b", 3, 6, "THREE"), ("c", 9, 6, None)]
    assert run("SELECT id FROM shop.orders VERSION AS OF 1 WHERE orders.n < 3 ORDER BY 1") == [
        (1,),
        (2,),
    ]
    assert run("SELECT count(*) FROM shop.orders FOR TIMESTAMP AS OF '2099-01-01' o") == [(2,)]
    assert run.spark("SELECT count(*) FROM shop.orders WITH (`snapshot-id` = '1')") == [(3,)]
    assert run("SELECT snapshot_id FROM `shop.orders$snapshots` ORDER BY 1") == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]
    assert run("INSERT OVERWRITE shop.orders PARTITION (day = 'b') SELECT 7L, 7, 'seven'")
    assert run("INSERT INTO shop.orders (note, id, day) VALUES ('k', 100, 'c')")
    assert run(every) == [("b", 7, 7, "seven"), ("c", 9, 6, None), ("c", 100, None, "k")]
    run(
        "CREATE TABLE shop.copy USING lsm TBLPROPERTIES ('primary-key'='id') AS SELECT id FROM shop.orders"
    )
    assert run.spark("SELECT count(*) FROM shop.copy") == [(3,)]
    run("DROP TABLE shop.orders")
    assert ("shop", "copy", False) in run("SHOW TABLES IN shop")  # and views of other tests
    assert ("shop", "orders", False) not in run("SHOW TABLES IN shop")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        assert catalog.list_tables() == ["shop.copy"]


def test_procedures_are_called_and_are_table_functions(run):
    run(CREATE)
    run(INSERT)
    run("CALL sys.create_tag(table => 'shop.orders', tag => 'v1')")
    run("DELETE FROM shop.orders WHERE true")
    assert run("SELECT count(*) FROM shop.orders VERSION AS OF 'v1'") == [(3,)]
    run.spark(
        "SELECT * FROM lsm_create_branch(table => 'shop.orders', branch => 'fix', tag => 'v1')"
    )
    assert run("SELECT count(*) FROM `shop.orders@fix`") == [(3,)]
    each = "SELECT t.name, f.name FROM VALUES ('shop.orders') t(name), LATERAL lsm_compact(t.name, full => true) f"
    assert ("shop.orders", "id") in run.spark(each)
    problems = run("CALL sys.verify('shop.orders', deep => true)")
    assert ("shop.orders", "problems", "[]") in problems
    run("CALL sys.rollback('shop.orders', 'v1')")
    assert run("SELECT count(*) FROM shop.orders") == [(3,)]
    with pytest.raises(NotFoundError, match="did you mean 'compact'"):
        run("CALL sys.compakt('shop.orders')")
    with pytest.raises(
        InvalidInputError, match="create_tag takes table, tag, snapshot, time_retained"
    ):
        run("CALL sys.create_tag(table => 'shop.orders', tak => 'v1')")
    for wrong, instead in (
        ("rollback_to_timestamp('shop.orders', '2099-01-01 00:00:00')", "with its offset"),
        ("expire_snapshots('shop.orders', dry_run => 'no')", "dry_run is true or false"),
        ("expire_snapshots('shop.orders', retain_max => 5 + 1)", "not expected"),
    ):
        with pytest.raises(InvalidInputError, match=instead):
            run(f"CALL sys.{wrong}")
    run("CALL sys.rollback_to_timestamp('shop.orders', '2099-01-01 00:00:00Z')")
    assert run("SELECT count(*) FROM shop.orders") == [(3,)]
    with pytest.raises(PythonException, match="no_such"):
        run.spark("SELECT * FROM lsm_compact('shop.no_such')")


def test_what_cannot_be_is_refused_with_what_to_do_instead(run, spark, tmp_path):
    run(CREATE)
    with pytest.raises(AlreadyExistsError):
        run(CREATE)
    run(CREATE.replace("TABLE", "TABLE IF NOT EXISTS", 1))
    with pytest.raises(UnsupportedError, match="interval"):
        run("CREATE TABLE shop.bad (id BIGINT, v INTERVAL) USING lsm")
    with pytest.raises(InvalidOptionError, match="did you mean 'primary-key'"):
        run("CREATE TABLE shop.bad (id BIGINT) USING lsm TBLPROPERTIES ('primary-kay'='id')")
    with pytest.raises(InvalidInputError, match="without a value in key column"):
        run(
            "CREATE TABLE shop.bad USING lsm TBLPROPERTIES ('primary-key'='id') AS SELECT CAST(NULL AS BIGINT) AS id"
        )
    assert ("shop", "orders", False) in run("SHOW TABLES IN shop")
    assert ("shop", "bad", False) not in run("SHOW TABLES IN shop")
    with pytest.raises(InvalidInputError, match="2 columns for 4 of the table"):
        run("INSERT INTO shop.orders SELECT 1, 2")
    with pytest.raises(InvalidInputError, match="WHEN NOT MATCHED inserts"):
        run(MERGE.replace("BY SOURCE AND n = 2", ""))
    spark.sql("CREATE TABLE shop.fake (id BIGINT) USING lsm")
    with pytest.raises(AnalysisException, match=r"lsm_engine\.spark\.sql"):
        run.spark("SELECT * FROM shop.fake")
    with pytest.raises(AnalysisException, match=r"lsm_engine\.spark\.sql"):
        run.spark("CREATE TABLE shop.fake2 USING lsm")
    location = tmp_path / "lake" / "shop.db" / "orders"
    with pytest.raises(AnalysisException, match="colour"):
        run.spark(f"CREATE TABLE shop.red USING lsm OPTIONS (path '{location}', colour 'red')")


def test_spark_opens_a_table_by_its_location_and_our_door_writes_to_it(run, tmp_path):
    run(CREATE)
    location = tmp_path / "lake" / "shop.db" / "orders"
    run.spark(f"CREATE TABLE shop.opened USING lsm LOCATION '{location}'")
    assert run("INSERT INTO shop.opened SELECT 'q', 50L, 50, 'native'") == [(1, 1, 0, 0)]
    assert run("SELECT * FROM shop.orders") == [("q", 50, 50, "native")]
    run("INSERT OVERWRITE TABLE shop.opened SELECT 'q', 51L, 51, 'again'")
    assert run.spark("SELECT id FROM shop.opened WHERE id > 50") == [(51,)]


def test_rows_that_spark_writes_by_a_name_never_go_to_the_table_that_they_come_from(run, spark):
    """Spark hands over the columns of the rows, which know where they come from, not the table that is named."""
    run(CREATE)
    run(INSERT)
    run(CREATE.replace("shop.orders", "shop.other"))
    there = run("SELECT * FROM shop.orders ORDER BY id")
    rows = spark.table("shop.orders").where("id = 1")
    for write in (
        lambda: spark.sql("INSERT INTO shop.other SELECT * FROM shop.orders"),
        lambda: spark.sql("INSERT OVERWRITE shop.other SELECT * FROM shop.orders WHERE id = 1"),
        lambda: spark.sql("INSERT INTO shop.other VALUES ('a', 1, 1, 'one')"),
        lambda: rows.write.insertInto("shop.other"),
        lambda: rows.write.format("lsm").mode("append").saveAsTable("shop.other"),
        lambda: rows.write.format("lsm").mode("overwrite").save(),
    ):
        with pytest.raises(AnalysisException, match=r"lsm_engine\.spark\.sql"):
            write()
    assert run("SELECT * FROM shop.orders ORDER BY id") == there
    assert run("SELECT * FROM shop.other") == []
    run("INSERT INTO shop.other SELECT * FROM shop.orders")
    assert run("SELECT * FROM shop.other ORDER BY id") == there


def test_clauses_take_columns_in_any_case_but_misspelled_and_leave_subqueries_alone(run, spark):
    run(CREATE)
    run(INSERT)
    source = (
        "(SELECT 'a' AS DAY, 1L AS ID, 9 AS N, 'new' AS NOTE UNION ALL SELECT 'd', 4L, 4, 'four')"
    )
    merge = f"MERGE INTO shop.orders t USING {source} s ON t.id = s.id AND t.day = s.day"
    assert run(f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *") == [
        (2, 1, 1, 0)
    ]
    every = "SELECT * FROM shop.orders ORDER BY id"
    assert run(every) == [("a", 1, 9, "new"), ("a", 2, 2, "two"), ("b", 3, 3, "three"), ("d", 4, 4, "four")]  # fmt: skip
    spark.createDataFrame([(3,)], "id long").createOrReplaceTempView("gone")
    source = "(SELECT 'a' AS day, 1L AS id, 9 AS n, 'new' AS notes)"
    wrong = f"MERGE INTO shop.orders t USING {source} s ON t.id = s.id AND t.day = s.day"
    for action in ("MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *"):
        with pytest.raises(InvalidInputError, match=r"'notes'.*'note'.*rename it"):
            run(f"{wrong} WHEN {action}")
    rest = "id IN (SELECT id FROM gone) AND DATE'2024-05-01' - INTERVAL 30 DAY < DATE'2024-05-01'"
    assert run(f"{merge} WHEN NOT MATCHED BY SOURCE AND {rest} THEN DELETE") == [(3, 0, 0, 1)]
    assert [row[1] for row in run(every)] == [1, 2, 4]


def test_moments_are_what_spark_takes_them_for(run, spark):
    run(CREATE)
    run(INSERT)
    query = "SELECT count(*) FROM shop.orders TIMESTAMP AS OF {} o"
    now = datetime.datetime.now(datetime.UTC)
    soon, before = now + datetime.timedelta(minutes=5), now - datetime.timedelta(hours=1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        there = soon.astimezone(zoneinfo.ZoneInfo("America/New_York"))
        for moment in (
            f"'{there:%Y-%m-%d %H:%M:%S}'", f"TIMESTAMP'{there:%Y-%m-%d %H:%M:%S}'", "DATE'2099-01-01'",
            f"'{soon:%Y-%m-%d %H:%M:%S}Z'", int(soon.timestamp()), "current_timestamp()",
            "(now() + INTERVAL 1 DAY)",
        ):  # fmt: skip
            assert run(query.format(moment)) == [(3,)], moment
        for moment in (f"'{before:%Y-%m-%d %H:%M:%S}Z'", "(now() - INTERVAL 1 DAY)"):
            with pytest.raises(NotFoundError, match="no snapshot"):
                run(query.format(moment))
        for moment in (int(soon.timestamp() * 1000), "'yesterday at noon'"):
            with pytest.raises(InvalidInputError, match="TIMESTAMP AS OF takes"):
                run(query.format(moment))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_column_that_was_added_elsewhere_is_seen(run, tmp_path):
    run(CREATE)
    run(INSERT)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        catalog["shop.orders"].alter(lsm.AddColumn(name="seen", type="DATE"))
    run("UPDATE shop.orders SET seen = DATE '2026-01-01' WHERE day = 'b'")
    assert run("SELECT seen FROM shop.orders WHERE seen IS NOT NULL") == [
        (datetime.date(2026, 1, 1),)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "", "SELECT 'a", "MERGE INTO", "CREATE TABLE", "CALL", "a.b.c.", "INSERT INTO x (",
        "SELECT count(*) FILTER AND (WHERE x > 1) FROM a", "SELECT * FROM a VERSION AS OF", "SELECT /*+ */ * FROM a",
    ],
)  # fmt: skip
def test_half_a_statement_is_tokens_or_none(text):
    statement = Statement.from_text(text)
    assert statement is None or (statement.text == text and len(statement.trees()) < 3)


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("WITH x AS (SELECT 1) SELECT * FROM (WITH a AS (SELECT * FROM (SELECT * FROM x)), b AS (SELECT * FROM a, b, c) SELECT * FROM b)", "bc"),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a, (WITH b AS (TABLE c) SELECT * FROM a, b), b", "acb"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT * FROM r, t", "t"),
        ("MERGE INTO t USING (SELECT * FROM a PIVOT (sum(x) FOR y IN (1))) s ON t.c = s.c WHEN MATCHED THEN DELETE", "ta"),
        ("EXPLAIN FORMATTED SELECT extract(DAY FROM a.b) FROM c WHERE e IN (SELECT max(d, f) FROM g)", "cg"),
    ],
)  # fmt: skip
def test_tables_of_a_statement_are_those_that_no_query_of_with_hides(query, tables):
    names = [table.name for table in relations(Statement.from_text(query).trees())]
    assert "".join(names) == tables


@pytest.mark.parametrize(
    ("text", "form", "behind"),
    [
        ("DROP TABLE IF EXISTS x", "DROP TABLE [IF EXISTS]", "x"),
        ("drop table if_exists", "DROP TABLE [IF EXISTS]", "if_exists"),
        ("INSERT WITH SCHEMA EVOLUTION INTO TABLE x", "INSERT [WITH SCHEMA EVOLUTION] INTO [TABLE]", "x"),
        ("INSERT WITH SCHEMA INTO x", "INSERT [WITH SCHEMA EVOLUTION] INTO [TABLE]", None),
        ("INSERT OVERWRITE x", "INSERT [WITH SCHEMA EVOLUTION] INTO [TABLE]", None),
    ],
)  # fmt: skip
def test_a_form_of_words_is_taken_whole_or_not_at_all(text, form, behind):
    statement = Statement.from_text(text)
    assert statement.takes_form(form) is (behind is not None)
    assert statement.remainder() == (behind or text)
