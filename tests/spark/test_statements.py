"""`spark.sql` takes the engine's statements: by a parser before Spark's own, or by a function in its place."""

import os

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException

import lsm_engine as lsm
from lsm_engine.spark import jvm, register, registration, sql, upsert_dataframe
from lsm_engine.spark.session import READS_PARQUET, STATEMENTS
from lsm_engine.spark.source.options import WAREHOUSE_SETTING
from tests.spark.random_statements import run as run_random
from tests.spark.test_sql_habits import NOT_DONE, PARTED, TYPES

pytestmark = pytest.mark.spark

ORDERS = "CREATE TABLE shop.orders (id BIGINT, name STRING, n INT) USING lsm TBLPROPERTIES ('primary-key' = 'id')"
MERGE = """
MERGE INTO shop.orders AS t USING (SELECT 2L AS id, 5 AS n UNION ALL SELECT 9, 9) AS s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET n = t.n + s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)
"""


@pytest.fixture
def ask(spark, run, tmp_path):
    """The rows of a statement by `spark.sql` alone: ask(text, session=None, **what spark.sql takes)."""
    register(spark, warehouse=str(tmp_path / "lake"), sql=True)

    def ask(text, session=spark, **given):
        return [tuple(row) for row in session.sql(text, **given).collect()]

    ask(ORDERS)
    ask("INSERT INTO shop.orders VALUES (1, 'a', 1), (2, 'b', 2)")
    yield ask
    spark.conf.unset(STATEMENTS)


def test_spark_sql_runs_the_statements_of_the_engine(ask, spark):
    assert ask(MERGE) == [(2, 1, 1, 0)]
    assert ask("UPDATE shop.orders SET n = :n WHERE id = :id", args={"n": 70, "id": 1}) == [(3, 0, 1, 0)]  # fmt: skip
    assert ask("DELETE FROM shop.orders WHERE id = ?", args=[9]) == [(4, 0, 0, 1)]
    assert ask("SELECT * FROM shop.orders ORDER BY id") == [(1, "a", 70), (2, "b", 7)]
    assert ask("SELECT n FROM shop.orders VERSION AS OF 1 WHERE id = :id", args={"id": 1}) == [(1,)]
    frame = spark.createDataFrame([(3, "c", 3)], "id long, name string, n int")
    ask("INSERT INTO shop.orders SELECT * FROM {rows}", rows=frame)
    ask("EXECUTE IMMEDIATE 'UPDATE shop.orders SET n = ? WHERE id = 3' USING 33")
    assert ask("SELECT max(n) FROM shop.orders WHERE id = 3") == [(33,)]
    assert ask("CALL sys.compact(table => 'shop.orders')")[0][0] == "shop.orders"
    ask("CREATE TEMP VIEW first_orders AS SELECT * FROM shop.orders VERSION AS OF 1")
    assert len(ask("SELECT * FROM first_orders")) == 2
    spark.catalog.dropTempView("first_orders")


def test_compact_takes_ranges_of_buckets(ask, tmp_path):
    ask(f"{ORDERS[:-1]}, 'bucket' = '4', 'write-only' = 'true')".replace("orders", "ranged"))
    for name in "ab":
        ask(f"INSERT INTO shop.ranged SELECT id, '{name}', 0 FROM range(40)")
    ask("CALL sys.compact(table => 'shop.ranged', compact_strategy => 'FULL', buckets => '0,2-3')")
    files = lsm.open_catalog(tmp_path / "lake")["shop.ranged"].inspect.files().to_pylist()
    assert {file["bucket"] for file in files if file["level"] == 0} == {1}
    with pytest.raises(AnalysisException, match="3-2"):
        ask("CALL sys.compact(table => 'shop.ranged', buckets => '3-2')")


def test_a_library_that_holds_no_more_than_a_dataframe_merges_by_spark_sql(ask, spark):
    def merged_by_a_library(batch):
        batch.createOrReplaceTempView("changes")
        batch.sparkSession.sql("MERGE INTO shop.orders t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip

    merged_by_a_library(spark.createDataFrame([(2, "B", 2), (3, "C", 3)], "id long, name string, n int"))  # fmt: skip
    assert ask("SELECT name FROM shop.orders ORDER BY id") == [("a",), ("B",), ("C",)]


def test_several_statements_run_in_order_each_of_them_once(ask):
    script = """
    INSERT INTO shop.orders VALUES (3, ';', 3); -- the text holds a semicolon
    UPDATE shop.orders SET n = n + 1;
    CREATE OR REPLACE TEMP VIEW large AS SELECT * FROM shop.orders WHERE n > 2;
    SELECT name, n FROM large ORDER BY id;
    """
    assert ask(script) == [("b", 3), (";", 4)]
    ask(
        "SELECT 1; CREATE TABLE shop.plain USING parquet AS SELECT 1 AS x"
    )  # twice, it would be there already
    assert ask("SELECT * FROM shop.plain") == [(1,)]


def test_explain_shows_a_plan_and_changes_nothing(ask, tmp_path):
    ((plan,),) = ask(f"EXPLAIN {MERGE}")
    assert "MERGE shop.orders" in plan
    assert "Union" in plan
    ((plan,),) = ask("EXPLAIN DELETE FROM shop.orders")
    assert "DELETE shop.orders" in plan
    ((plan,),) = ask("EXPLAIN FORMATTED INSERT INTO shop.orders SELECT id + 1, name, n FROM shop.orders")  # fmt: skip
    assert "INSERT shop.orders" in plan
    assert "Project" in plan
    assert "not be found" not in ask("EXPLAIN SELECT * FROM shop.orders VERSION AS OF 1")[0][0]
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        assert len(catalog["shop.orders"].snapshots()) == 1


def test_statements_of_delta_and_iceberg_by_spark_sql(ask):
    """Where Spark's own parser does not know a statement, its syntax error hid what to use instead."""
    ask("CREATE TABLE shop.copy LIKE shop.orders")
    assert ask("DESCRIBE shop.copy") == ask("DESCRIBE shop.orders")
    changes = "SELECT id, _change_type, _commit_version FROM table_changes('shop.orders', :first) ORDER BY id"
    assert ask(changes, args={"first": 1}) == [(1, "insert", 1), (2, "insert", 1)]
    assert ask("DESCRIBE DETAIL shop.orders")[0][:2] == ("lsm", "shop.orders")
    for statement in ("OPTIMIZE shop.orders FULL", "VACUUM shop.orders RETAIN 7 DAYS"):
        with pytest.raises(AnalysisException, match=r"LSM_INVALID_STATEMENT.*is(?: not)? expected"):
            ask(statement)
    ask(PARTED)
    ask(TYPES)
    ask("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01')")
    for statement, instead in NOT_DONE:
        with pytest.raises(AnalysisException, match=instead) as error:
            ask(statement)
        assert not isinstance(error.value, ParseException)


def test_errors_have_the_class_the_state_and_the_place_of_sparks_own(ask):
    with pytest.raises(ParseException) as syntax:
        ask("MERGE INTO shop.orders t USIN x")
    assert syntax.value.getSqlState() == "42601"
    assert "(line 1, pos 25)" in str(syntax.value)
    with pytest.raises(AnalysisException) as unknown:
        ask("UPDATE shop.orders SET colour = 1")
    assert (unknown.value.getCondition(), unknown.value.getSqlState()) == ("LSM_NO_SUCH_COLUMN", "42703")  # fmt: skip
    with pytest.raises(AnalysisException) as refused:
        ask("ALTER TABLE shop.orders\n  RECOVER PARTITIONS")
    assert refused.value.getSqlState() == "0A000"
    assert "; line 2 pos" in str(refused.value)
    with pytest.raises(AnalysisException) as resolved:
        ask("UPDATE shop.orders SET n = colour")
    assert resolved.value.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert resolved.value.getSqlState() == "42703"
    assert "[`id`, `n`, `name`, `orders`]" in str(resolved.value)
    assert "_lsm_" not in str(resolved.value)
    with pytest.raises(AnalysisException) as there:
        ask(ORDERS)
    assert there.value.getSqlState() == "42P07"


@pytest.mark.parametrize(
    ("state", "condition", "text"),
    [
        ("shop.orders VERSION AS OF 99", "LSM_NO_SUCH_SNAPSHOT", "the newest is 1"),
        ("shop.orders VERSION AS OF 'monday'", "LSM_NO_SUCH_TAG", "no tag 'monday'"),
        ("shop.orders VERSION AS OF -1", "LSM_NO_SUCH_TAG", "no tag '-1'"),
        ("shop.orders VERSION AS OF 'fix'", "LSM_NO_SUCH_TAG", "in SQL as `shop.orders@fix`"),
        ("shop.orders TIMESTAMP AS OF '2001-01-01'", "LSM_NO_SUCH_SNAPSHOT", "is that old"),
        ("`shop.orders$nonsense`", "LSM_NO_SUCH_TABLE", "no system table 'nonsense'"),
    ],
)
def test_errors_of_states_that_are_read_are_those_of_the_engine(ask, state, condition, text):
    ask("CALL sys.create_branch(table => 'shop.orders', branch => 'fix')")
    with pytest.raises(AnalysisException) as caught:
        ask(f"SELECT * FROM {state}")
    assert caught.value.getCondition() == condition
    assert caught.value.getSqlState() in ("42704", "42P01")
    assert text in str(caught.value)
    assert "Traceback" not in str(caught.value)


NEW_TABLES = {
    "saveAsTable": lambda rows: rows.write.format("lsm").mode("overwrite").saveAsTable("shop.orders"),
    "createOrReplace": lambda rows: rows.writeTo("shop.orders").using("lsm").createOrReplace(),
    "replace": lambda rows: rows.writeTo("shop.orders").using("lsm").replace(),
    "create": lambda rows: rows.writeTo("shop.another").using("lsm").create(),
}  # fmt: skip


@pytest.mark.parametrize("call", NEW_TABLES)
def test_a_refused_write_by_name_leaves_the_name_in_sparks_catalog(ask, spark, call):
    with pytest.raises(AnalysisException, match="CREATE OR REPLACE TABLE … USING lsm") as caught:
        NEW_TABLES[call](spark.createDataFrame([(1, "x", 2)], "id long, name string, n int"))
    assert caught.value.getCondition() == "LSM_INVALID_OPTION"
    assert spark.table("shop.orders").count() == 2
    assert spark.catalog.tableExists("shop.orders")
    assert not spark.catalog.tableExists("shop.another")


def test_metadata_tables_and_branches_have_the_names_that_iceberg_gives_them(ask):
    ask("CALL sys.create_tag(table => 'shop.orders', tag => 'first')")
    ask("CALL sys.create_branch(table => 'shop.orders', branch => 'fix', tag => 'first')")
    assert ask("SELECT snapshot_id FROM shop.orders.snapshots s") == [(1,)]
    assert ask("SELECT count(*) FROM spark_catalog.shop.orders.FILES JOIN shop.orders") == [(2,)]
    ask("INSERT INTO shop.orders.branch_fix VALUES (9, 'z', 9)")
    assert ask("SELECT count(*) FROM shop.orders.branch_fix") == [(3,)]
    assert ask("SELECT count(*) FROM shop.orders") == [(2,)]
    ask("CREATE TABLE shop.dated (id INT, files DATE) USING lsm")
    ask("INSERT INTO shop.dated VALUES (1, DATE'2024-05-01')")
    assert ask("SELECT id, EXTRACT(YEAR FROM shop.dated.files) FROM shop.dated") == [(1, 2024)]


def test_counts_of_rows_and_of_what_expires_are_columns(ask):
    ask("CREATE TABLE shop.clicks (id INT) USING lsm")
    ask("INSERT INTO shop.clicks VALUES (1), (2)")
    assert ask("INSERT INTO shop.clicks VALUES (3)") == [(2, 1, 0, 0)]
    expired = ask(
        "CALL sys.expire_snapshots(table => 'shop.clicks', retain_max => 1, retain_min => 1, older_than => '0 s')"
    )
    facts = {name: value for _, name, value in expired}
    assert (facts["expired_snapshots"], facts["dry_run"]) == ("[1]", "false")
    assert facts["deleted_data_files"] == "0"
    tag = {name: value for _, name, value in ask("ALTER TABLE shop.clicks CREATE TAG q")}
    assert tag == {"name": "q", "snapshot": "2", "retained_millis": "null"}


def test_a_new_session_of_the_application_takes_them_too(ask, spark):
    new = spark.newSession()
    assert ask("UPDATE shop.orders SET n = 5 WHERE id = 1", new) == [(2, 0, 1, 0)]
    assert ask("SELECT n FROM shop.orders ORDER BY id", new) == [(5,), (2,)]
    assert new.read.format("lsm").load(new.conf.get("spark.lsm.warehouse") + "/shop.db/orders").count() == 2  # fmt: skip


def test_a_session_leaves_statements_to_spark_where_it_is_told(ask, spark):
    spark.conf.set(STATEMENTS, "false")
    with pytest.raises(Exception, match="UNSUPPORTED_FEATURE"):
        ask("UPDATE shop.orders SET n = 0")
    spark.conf.set(STATEMENTS, "true")
    assert ask("UPDATE shop.orders SET n = 0") == [(2, 0, 2, 0)]


def test_a_session_without_a_warehouse_is_left_to_spark(ask, spark, tmp_path, monkeypatch):
    """Each statement of such a session would have made a catalog in the working directory."""
    monkeypatch.chdir(tmp_path)
    spark.conf.unset(WAREHOUSE_SETTING)
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    assert ask("SELECT 1") == [(1,)]
    register(spark)
    assert ask("SELECT 2") == [(2,)]
    assert not (tmp_path / "lake").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "lake")


def test_settings_of_the_session_ask_no_catalog(ask, spark, monkeypatch):
    monkeypatch.setattr("lsm_engine.spark.commands.statements._Session", None)
    assert ask("SET spark.sql.shuffle.partitions=3") == [("spark.sql.shuffle.partitions", "3")]
    ask("RESET spark.sql.shuffle.partitions")


def test_random_statements_give_the_rows_of_the_same_changes_by_queries(ask, spark):
    assert run_random(spark, int(os.environ.get("LSM_STATEMENTS", "6")), seed=7) <= 1


def test_statements_of_the_engine_itself_are_sparks_on_whatever_thread_they_come(ask, spark):
    """ALTER TABLE by the function replaces the entry of Spark's catalog: the parser took that DROP for the user's."""
    for statement in ("ALTER TABLE shop.orders ADD COLUMNS (city STRING)", "ALTER TABLE shop.orders RENAME TO shop.sales"):  # fmt: skip
        sql(spark, statement)
    assert ask("SELECT * FROM shop.sales ORDER BY id") == [(1, "a", 1, None), (2, "b", 2, None)]
    ask("ALTER TABLE shop.sales DROP COLUMN city")
    assert ask("SELECT * FROM shop.sales ORDER BY id") == [(1, "a", 1), (2, "b", 2)]


def test_a_function_takes_the_place_of_spark_sql_where_no_parser_can_stand(ask, spark, monkeypatch, tmp_path):  # fmt: skip
    monkeypatch.setattr(registration.StatementParser, "inject", lambda *_: False)
    monkeypatch.setattr(spark, "sql", spark.sql)
    spark.conf.set(STATEMENTS, "false")  # the parser that is there already
    register(spark, warehouse=str(tmp_path / "lake"), sql=True)
    spark.conf.set(STATEMENTS, "false")
    assert ask("UPDATE shop.orders SET n = :n", args={"n": 8}) == [(2, 0, 2, 0)]
    assert ask("SELECT n FROM {rows} WHERE id = 1", rows=spark.table("shop.orders")) == [(8,)]
    assert ask("SELECT :x", args={"x": 3}) == [(3,)]


def test_the_setting_of_reads_may_stand_before_register(spark, tmp_path):
    """`register` took it for an option of a store."""
    spark.conf.set(READS_PARQUET, "false")
    register(spark, warehouse=str(tmp_path), sql=False)
    spark.conf.unset(READS_PARQUET)


# -- What Spark's JVM alone has --------------------------------------------------------------------


def test_this_spark_has_what_the_engine_asks_of_its_jvm(spark, tmp_path):
    """The name that fails is what this version of Spark has renamed; `register`, MERGE and loads then take slower ways."""
    spark.range(3).write.parquet(str(tmp_path / "rows"))
    files = spark.read.parquet(str(tmp_path / "rows"))
    assert jvm.estimated_bytes(files) is not None, "optimizedPlan().stats().sizeInBytes()"
    assert jvm.estimated_bytes(files.selectExpr("explode(array(1, 2))")) is None, "nodeName() of Generate"  # fmt: skip
    assert jvm.referenced_columns(spark.range(3).selectExpr("id + 1")) == {"id"}, "references()"
    relation = jvm.parquet_relation(files.selectExpr("id AS key"))
    assert relation is not None, "LogicalRelation, HadoopFsRelation and InMemoryFileIndex"
    assert relation.columns == ("id",)
    assert len(relation.uris) >= 1
    assert jvm.parquet_relation(files.selectExpr("id + 1")) is None
    register(spark)
    assert jvm.StatementParser(lambda _: lambda _: None)._inject(spark), (
        "sessionState().sqlParser()"
    )


def test_rows_are_written_and_merged_where_spark_has_renamed_all_of_it(spark, ask, monkeypatch, tmp_path):  # fmt: skip
    def renamed(frame):
        raise Py4JError("Method optimizedPlan([]) does not exist")

    monkeypatch.setattr(jvm, "_optimized", renamed)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        upsert_dataframe(catalog["shop.orders"], spark.createDataFrame([(3, "c", 3)], "id long, name string, n int"))  # fmt: skip
        ask("UPDATE shop.orders SET n = n * 2, name = upper(name)")
        assert ask("SELECT name, n FROM shop.orders ORDER BY id") == [("A", 2), ("B", 4), ("C", 6)]
    monkeypatch.setattr(jvm, "_factory", renamed)
    monkeypatch.setattr(jvm, "_PARSER", "another")  # this session has one
    assert not jvm.StatementParser(lambda _: lambda _: None).inject(spark)
