"""What a name in a statement means: Spark's catalog is asked, and nothing but the table that is named is changed."""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

import lsm_engine as lsm
from lsm_engine.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    LsmError,
    NotFoundError,
)
from lsm_engine.spark import TaskFailedError, lookup_join, register, sql, upsert_dataframe
from lsm_engine.spark.jobs import map_arrow

pytestmark = pytest.mark.spark
needs_jvm = pytest.mark.skipif(
    os.environ.get("LSM_SPARK_CONNECT") == "1",
    reason="a session of Spark Connect has no JVM at hand",
)

CREATE = "CREATE TABLE {} (id BIGINT, v STRING) USING lsm TBLPROPERTIES ('primary-key' = 'id')"
ROWS = [(1, "a"), (2, "b")]
WRITES = (
    "INSERT INTO {} VALUES (8, 'x')",
    "INSERT OVERWRITE {} VALUES (8, 'x')",
    "UPDATE {} SET v = 'x' WHERE true",
    "DELETE FROM {} WHERE true",
    "MERGE INTO {} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {}",
    "ALTER TABLE {} ADD COLUMNS (w INT)",
)


@pytest.fixture
def base(run, tmp_path):
    """A table of two rows, and afterwards the proof that they are still there."""
    run(CREATE.format("shop.base"))
    run("INSERT INTO shop.base VALUES (1, 'a'), (2, 'b')")
    yield
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog["shop.base"]
        assert sorted(map(tuple, (row.values() for row in table.to_arrow().to_pylist()))) == ROWS
        assert list(table.schema.names) == ["id", "v"]


def refused(run, name, writes=WRITES):
    for write in writes:
        # Spark raises an internal error of its JVM for DELETE from a filtered view.
        with pytest.raises((PySparkException, LsmError, Py4JError)):
            run(write.format(name))


@pytest.mark.parametrize(
    "view",
    [
        "CREATE TEMP VIEW few AS SELECT * FROM shop.base WHERE id < 2",
        "CREATE GLOBAL TEMP VIEW few AS SELECT * FROM shop.base",
        "CREATE VIEW shop.few AS SELECT * FROM shop.base",
        "CREATE TEMP VIEW few AS SELECT a.id, b.v FROM shop.base a JOIN shop.base b USING (id)",
        None,
    ],
)
@pytest.mark.usefixtures("base")
def test_a_write_into_a_view_never_reaches_its_base(run, spark, view):
    if view is None:  # of a DataFrame, which is the table itself to Spark
        spark.table("shop.base").createOrReplaceTempView("few")
    else:
        run.spark(view)
    name = "global_temp.few" if view and "GLOBAL" in view else "shop.few" if view and "shop.few" in view else "few"  # fmt: skip
    try:
        refused(run, name)
        run.spark(f"CREATE TEMP VIEW of_a_view AS SELECT * FROM {name}")
        refused(run, "of_a_view", WRITES[1:4])
    finally:
        spark.catalog.dropTempView("of_a_view")
        spark.catalog.dropGlobalTempView("few")
        spark.catalog.dropTempView("few")


@pytest.mark.usefixtures("base")
def test_a_temporary_view_hides_the_table_of_its_name(run, spark):
    run("USE shop")
    spark.range(3).createOrReplaceTempView("base")
    spark.range(4).createOrReplaceTempView("`shop.base`")
    try:
        assert run("SELECT count(*) FROM base") == [(3,)]
        refused(run, "base")
        refused(run, "`shop.base`")
        assert run("SELECT count(*) FROM shop.base") == [(2,)]
        with pytest.raises(NotFoundError):
            run("CALL sys.rollback('base', '1')")
        assert run("SELECT * FROM shop.base VERSION AS OF 1 ORDER BY id") == ROWS
    finally:
        spark.catalog.dropTempView("base")
        spark.catalog.dropTempView("`shop.base`")


@pytest.mark.usefixtures("base")
def test_rows_are_not_written_into_a_view_of_a_part_or_of_the_past(run, spark, tmp_path):
    location = str(tmp_path / "lake" / "shop.db" / "base")
    for option in ({"snapshot-id": "1"}, {"where": "id = 1"}, {"as-of": "2099-01-01"}):
        spark.read.format("lsm").options(**option).load(location).createOrReplaceTempView("part")
        try:
            refused(run, "part", WRITES[:2])
            refused(run.spark, "part", WRITES[:2])
        finally:
            spark.catalog.dropTempView("part")


@pytest.mark.usefixtures("base")
def test_a_copy_of_another_provider_is_not_the_table_that_it_was_made_of(run, spark):
    run.spark("CREATE TABLE shop.report USING parquet AS SELECT * FROM shop.base")
    run("INSERT OVERWRITE shop.report VALUES (8, 'report')")
    assert run.spark("SELECT * FROM shop.report") == [(8, "report")]
    spark.table("shop.base").write.format("parquet").saveAsTable("shop.saved")
    run.spark("ALTER TABLE shop.saved RENAME TO shop.renamed")
    run("INSERT INTO spark_catalog.shop.renamed VALUES (3, 'c')")
    assert run("SELECT id FROM shop.renamed ORDER BY id") == [(1,), (2,), (3,)]
    run("DROP TABLE shop.renamed")
    run("TRUNCATE TABLE shop.report")
    refused(run, "shop.report", WRITES[2:5])


def files_of(spark, name):
    (path,) = (row[1] for row in spark.sql(f"DESCRIBE EXTENDED {name}").collect() if row[0] == "Location")  # fmt: skip
    return sorted(file.name for file in Path(path.removeprefix("file:")).glob("*.parquet"))


@pytest.mark.usefixtures("base")
def test_a_table_of_sparks_own_stays_though_the_warehouse_has_its_name(run, spark, tmp_path):
    run.spark("CREATE TABLE shop.copy USING parquet AS SELECT * FROM shop.base")
    files = files_of(spark, "shop.copy")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        ours = catalog.create_table("shop.copy", pa.schema([("w", pa.string())]))
        assert run("SELECT * FROM shop.copy ORDER BY id") == ROWS
        assert files_of(spark, "shop.copy") == files
        run("INSERT INTO shop.copy VALUES (3, 'c')")
        assert run("DELETE FROM shop.base WHERE id IN (SELECT id + 9 FROM shop.copy)") == [(None, 0, 0, 0)]  # fmt: skip
        assert ("Provider", "parquet") in [row[:2] for row in run("DESCRIBE EXTENDED shop.copy")]
        with pytest.raises(AlreadyExistsError):
            run(CREATE.format("shop.copy"))
        with pytest.raises(NotFoundError):
            run("CALL sys.compact('shop.copy')")
        assert ours.snapshots() == []
        run("DROP TABLE shop.copy")
        assert run("SELECT * FROM shop.copy") == []  # from now on the name is that of ours
        assert spark.table("shop.copy").columns == ["w"]
        run("DROP TABLE shop.copy")
        assert catalog.list_tables() == ["shop.base"]


def test_a_name_that_was_dropped_and_made_anew_is_the_new_table(run, spark):
    run(CREATE.format("shop.old"))
    run("INSERT INTO shop.old VALUES (1, 'a')")
    run.spark("DROP TABLE shop.old")  # Spark forgets the name, and the files stay
    run.spark("CREATE TABLE shop.old USING parquet AS SELECT 9L AS id, 'p' AS v")
    assert run("SELECT * FROM shop.old") == [(9, "p")]
    run("INSERT OVERWRITE shop.old VALUES (10, 'q')")
    assert files_of(spark, "shop.old")
    run.spark("DROP TABLE shop.old")
    assert run("SELECT * FROM shop.old") == [(1, "a")]
    run.spark("CREATE OR REPLACE TEMP VIEW hidden AS SELECT 1")
    run("DROP TABLE shop.old")
    run(CREATE.format("shop.old"))
    assert run("SELECT * FROM shop.old") == []
    spark.catalog.dropTempView("hidden")


def test_a_name_that_spark_gave_to_another_table_stays_with_it(run):
    """Of tables that Spark has renamed the location decides, not the name in our catalog."""
    for name in ("shop.first", "shop.second"):
        run(CREATE.format(name))
        run(f"INSERT INTO {name} VALUES (1, '{name}')")
    run.spark("DROP TABLE shop.second")
    run.spark("ALTER TABLE shop.first RENAME TO shop.second")
    run("INSERT INTO shop.second VALUES (2, 'new')")
    assert run("SELECT * FROM shop.second ORDER BY id") == [(1, "shop.first"), (2, "new")]
    assert run("SELECT count(*) FROM shop.first") == [(2,)]
    with pytest.raises(AlreadyExistsError):
        run("ALTER TABLE shop.first RENAME TO shop.second")
    run("DROP TABLE shop.second")
    assert run("SELECT * FROM shop.second") == [(1, "shop.second")]


def test_a_name_in_spark_for_one_location_with_the_columns_of_another_is_not_written(run, spark, tmp_path):  # fmt: skip
    """`saveAsTable` with a path leaves such a name: Spark keeps the columns of the rows."""
    run(CREATE.format("shop.base"))
    run(CREATE.format("shop.target"))
    run("SELECT * FROM shop.target")
    place = str(tmp_path / "lake" / "shop.db" / "target")
    rows = spark.table("shop.base").write.format("lsm").option("path", place)
    rows.mode("append").saveAsTable("shop.saved")
    with pytest.raises(InvalidInputError, match="with the columns of another"):
        run("INSERT INTO shop.saved VALUES (1, 'a')")
    assert run("SELECT * FROM shop.base") == run("SELECT * FROM shop.target") == []


@needs_jvm
def test_names_are_of_the_current_database_and_catalog(run, spark, tmp_path):
    # Derby writes its log to the working directory otherwise.
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    spark.conf.set(
        "spark.sql.catalog.other",
        "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    )
    spark.conf.set("spark.sql.catalog.other.url", "jdbc:derby:memory:names;create=true")
    spark.conf.set("spark.sql.catalog.other.driver", "org.apache.derby.jdbc.EmbeddedDriver")
    for database in ("shop", "shop2"):
        run(CREATE.format(f"{database}.t"))
        run(f"INSERT INTO {database}.t VALUES (1, '{database}')")
    try:
        run("USE shop2")
        assert run("SELECT v FROM t") == [("shop2",)]
        run("UPDATE t SET v = 'changed'")
        assert run("SELECT v FROM spark_catalog.shop.t") == [("shop",)]
        assert run("SELECT SPARK_CATALOG.shop2.T.v FROM Spark_Catalog.Shop2.t") == [("changed",)]
        run("USE other")
        refused(run, "shop.t")
        run("DELETE FROM spark_catalog.shop2.t WHERE id = 1")
        assert run("SELECT count(*) FROM spark_catalog.shop.t") == [(1,)]
    finally:
        run("USE spark_catalog")
        run("USE default")
        run("DROP TABLE shop2.t")
        run("DROP DATABASE shop2 CASCADE")


def test_names_of_another_warehouse_are_those_of_its_tables(run, spark, tmp_path):
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'first')")
    assert run("SELECT v FROM shop.t") == [("first",)]
    register(spark, warehouse=str(tmp_path / "other"))
    run(CREATE.format("shop.t2"))
    with lsm.open_catalog(tmp_path / "other") as catalog:
        catalog.create_table("shop.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    run("INSERT INTO shop.t VALUES (2, 'second')")
    assert run("SELECT v FROM shop.t") == run.spark("SELECT v FROM shop.t") == [("second",)]
    register(spark, warehouse=str(tmp_path / "lake"))
    assert run("SELECT v FROM shop.t") == run.spark("SELECT v FROM shop.t") == [("first",)]


@pytest.mark.parametrize("name", ["straße", "2nd-or`ders of O'Neil"])
def test_tables_whose_name_spark_does_not_take_are_read_and_written(run, tmp_path, name):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        table = catalog.create_table(f"shop.{name}", schema, primary_key="id")
        sql_name = f"shop.`{name.replace('`', '``')}`"
        run(f"INSERT INTO {sql_name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        assert run(f"SELECT t.v, {{}} FROM {sql_name} t WHERE id < 3 ORDER BY id".replace("{}", "'{x}'")) == [("a", "{x}"), ("b", "{x}")]  # fmt: skip
        assert run(f"UPDATE {sql_name} SET v = 'x' WHERE id = 1") == [(2, 0, 1, 0)]
        if "`" not in name:  # what else reads and writes by a name does so by each
            return
        assert run(f"DELETE FROM {sql_name} WHERE v = (SELECT max(v) FROM {sql_name} WHERE id = 1)") == [(3, 0, 0, 1)]  # fmt: skip
        merge = f"MERGE INTO {sql_name} t USING {sql_name} s ON t.id = s.id WHEN MATCHED AND t.id = 2 THEN UPDATE SET v = s.v || '!'"
        assert run(merge) == [(4, 0, 1, 0)]
        assert run(f"SELECT v FROM {sql_name} VERSION AS OF 1 WHERE id = 1") == [("a",)]
        run(f"CREATE TEMP VIEW kept AS SELECT v FROM {sql_name}")
        try:
            assert sorted(run("SELECT * FROM kept")) == [("b!",), ("c",)]
        finally:
            run("DROP VIEW kept")
        assert table.count() == 2
        run(f"DROP TABLE {sql_name}")
        assert catalog.list_tables() == []


@pytest.mark.usefixtures("by_executors")
def test_executors_update_a_table_whose_name_spark_does_not_take(run, tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        table = catalog.create_table("shop.tick`s", schema, primary_key="id")
        run("INSERT INTO shop.`tick``s` VALUES (1, 'a'), (2, 'b')")
        assert run("UPDATE shop.`tick``s` SET v = 'x' WHERE id = 1") == [(2, 0, 1, 0)]
        merge = "MERGE INTO shop.`tick``s` t USING shop.`tick``s` s ON t.id = s.id WHEN MATCHED AND t.id = 2 THEN UPDATE SET v = s.v || '!'"
        assert run(merge) == [(3, 0, 1, 0)]
        assert table.to_arrow().sort_by("id")["v"].to_pylist() == ["x", "b!"]


def test_two_tables_that_spark_takes_for_one_name_are_refused(run, tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        for name in ("shop.Orders", "shop.orders"):
            catalog.create_table(name, pa.schema([("id", pa.int64())]), primary_key="id")
    for text in ("SELECT * FROM shop.orders", "INSERT INTO shop.orders VALUES (1)"):
        with pytest.raises(InvalidInputError, match="without case"):
            run(text)


def test_what_spark_has_cached_of_a_table_is_read_anew_after_a_write(run, spark):
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a')")
    spark.table("shop.t").cache().count()
    spark.table("shop.t").where("id > 0").cache().count()
    try:
        for number, write in enumerate(
            ("INSERT INTO shop.t VALUES (2, 'b')", "UPDATE shop.t SET v = 'z'", "DELETE FROM shop.t WHERE id = 2"), 1
        ):  # fmt: skip
            run(write)
            expected = [(1, "a"), (2, "b")] if number == 1 else [(1, "z"), (2, "z")][: 4 - number]
            assert run.spark("SELECT * FROM shop.t ORDER BY id") == expected
            assert spark.table("shop.t").where("id > 0").count() == len(expected)
        run("CALL sys.rollback('shop.t', '1')")
        assert run.spark("SELECT * FROM shop.t") == [(1, "a")]
        assert spark.catalog.isCached("shop.t")
        run("SELECT * FROM shop.t VERSION AS OF 1")
    finally:
        spark.catalog.clearCache()


def test_views_of_the_past_stay_readable_or_are_refused_when_they_are_made(run, spark):
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a')")
    run("INSERT INTO shop.t VALUES (2, 'b')")
    run("CALL sys.create_tag('shop.t', 'two')")
    try:
        run("CREATE TEMP VIEW old AS SELECT * FROM shop.t VERSION AS OF 1")
        run(
            "CREATE OR REPLACE TEMPORARY VIEW old AS SELECT id FROM shop.t VERSION AS OF 1 TABLESAMPLE (100 PERCENT)"
        )
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            run("CREATE TEMP VIEW old AS SELECT * FROM shop.t VERSION AS OF 1")
        run("CREATE TEMP VIEW files AS SELECT count(*) AS n FROM `shop.t$files`")
        run("INSERT INTO shop.t VALUES (3, 'c')")
        assert run("SELECT * FROM old") == run.spark("SELECT * FROM old") == [(1,)]
        assert run("SELECT n > 0 FROM files") == [(True,)]
        for made in (
            "CREATE VIEW shop.kept AS", "CACHE TABLE kept AS", "CREATE GLOBAL TEMP VIEW kept AS",
            "CREATE TEMP VIEW kept (a, b) AS",
        ):  # fmt: skip
            with pytest.raises(InvalidInputError, match="createOrReplaceTempView"):
                run(f"{made} SELECT * FROM shop.t VERSION AS OF 'two'")
        past = sql(spark, "SELECT * FROM shop.t VERSION AS OF 'two'")
        past.createOrReplaceTempView("kept")
        run.spark("CACHE TABLE kept")
        assert run("SELECT count(*) FROM kept") == [(2,)]
        run("CREATE TABLE shop.copied USING parquet AS SELECT * FROM shop.t VERSION AS OF 1")
        assert run("SELECT * FROM shop.copied") == [(1, "a")]
        assert not [row for row in run.spark("SHOW VIEWS") if row[1].startswith(("lsm_", "_pyspark"))]  # fmt: skip
    finally:
        for view in ("old", "files", "kept"):
            spark.catalog.dropTempView(view)


def test_the_past_has_the_columns_that_it_had(run):
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a')")
    run("ALTER TABLE shop.t ADD COLUMNS (w INT FIRST)")
    run("INSERT INTO shop.t VALUES (7, 2, 'b')")
    assert run("SELECT * FROM shop.t VERSION AS OF 1") == [(1, "a")]
    assert run("SELECT * FROM shop.t VERSION AS OF 2 ORDER BY id") == [(None, 1, "a"), (7, 2, "b")]


@pytest.mark.parametrize("column", ["c.d`e ö$y"])
@pytest.mark.usefixtures("by_executors")
def test_executors_write_columns_of_any_name(run, spark, tmp_path, column):
    quoted = f"`{column.replace('`', '``')}`"
    run(
        f"CREATE TABLE shop.t (id BIGINT, {quoted} STRING, arr ARRAY<INT>) USING lsm TBLPROPERTIES ('primary-key' = 'id')"
    )
    run(f"INSERT INTO shop.t (id, {quoted}, arr) VALUES (1, 'x', array(1)), (2, 'y', array(2))")
    run(f"UPDATE shop.t SET {quoted} = {quoted} || '!' WHERE id = 1")
    merge = f"MERGE INTO shop.t t USING (SELECT 3L AS id, 'z' AS {quoted} UNION ALL SELECT 2L, 'w') s ON t.id = s.id"
    run(
        f"{merge} WHEN MATCHED THEN UPDATE SET {quoted} = s.{quoted} WHEN NOT MATCHED THEN INSERT (id, {quoted}) VALUES (id, {quoted})"
    )
    expected = [(1, "x!"), (2, "w"), (3, "z")]
    assert run(f"SELECT id, {quoted} FROM shop.t ORDER BY id") == expected
    run(f"DELETE FROM shop.t WHERE {quoted} = 'w'")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table(
            "shop.keyed", pa.schema([(column, pa.string()), ("n", pa.int64())]), primary_key=column
        )
        upsert_dataframe(table, spark.createDataFrame([("k", 1)], table.schema.names))
        asked = spark.createDataFrame([("k",), ("none",)], [column])
        assert sorted(tuple(row) for row in lookup_join(asked, table).collect()) == [("k", 1), ("none", None)]  # fmt: skip
        done = run(f"MERGE INTO shop.keyed t USING (SELECT 'k' AS {quoted}, 5L AS n) s ON t.{quoted} = s.{quoted} WHEN MATCHED THEN UPDATE SET n = s.n")  # fmt: skip
        assert done == [(2, 0, 1, 0)]


def test_a_python_of_executors_without_the_package_is_named_with_the_remedy(
    run, spark, monkeypatch
):
    def without_the_package(text):
        raise AnalysisException("[PYTHON_DATA_SOURCE_ERROR] …\nModuleNotFoundError: No module named 'lsm_engine'")  # fmt: skip

    run(CREATE.format("shop.t"))
    session = spark.newSession()
    monkeypatch.setattr(session, "sql", without_the_package, raising=False)
    with pytest.raises(TaskFailedError, match="PYSPARK_PYTHON"):
        sql(session, "SELECT 1")


def _same(batches):
    return batches


@needs_jvm
@pytest.mark.parametrize("named", [True, False])
def test_workers_of_this_machine_run_this_python_unless_another_is_named(spark, monkeypatch, named):
    """Without an activated environment Spark ran the first python3 of PATH, which had no package."""
    if named:
        monkeypatch.setenv("PYSPARK_PYTHON", "python-of-the-user")
    else:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for start_work in (register, lambda session: map_arrow(session.range(1), _same, "id long")):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
        start_work(spark)
        assert spark.sparkContext.pythonExec == ("python3" if named else sys.executable)


WORDS = """
CREATE TABLE shop.k (id BIGINT, `end` INT, day INT, hour INT, ts TIMESTAMP, arr ARRAY<INT>, st STRUCT<day: INT>)
USING lsm TBLPROPERTIES ('primary-key' = 'id')
"""
SOURCE = "SELECT {}L AS id, TIMESTAMP'2024-02-03 01:02:03' AS ts, array(5) AS arr, 9 AS day, 2 AS `end`, struct(4 AS day) AS st"


CLAUSES = [
    ("ON t.id = s.id AND t.end < s.end WHEN MATCHED THEN UPDATE SET end = s.end", "end", 2),
    ("ON t.id = s.id WHEN MATCHED AND CASE WHEN t.end = 1 THEN true ELSE false END THEN UPDATE SET end = CASE WHEN s.end = 2 THEN 7 END, day = 8", "end", 7),
    ("ON t.id = s.id WHEN MATCHED AND s.end BETWEEN 1 AND 3 AND t.day = 1 THEN UPDATE SET day = 6", "day", 6),
    ("ON t.id = -s.id WHEN NOT MATCHED THEN INSERT (id, day) VALUES (-s.id, extract(DAY FROM ts))", "day", 3),
    ("ON t.id = -s.id WHEN NOT MATCHED THEN INSERT (id, day) VALUES (-s.id, day(timestampadd(DAY, 2, ts)))", "day", 5),
    ("ON t.id = -s.id WHEN NOT MATCHED THEN INSERT (id, day) VALUES (-s.id, transform(arr, day -> day * 2)[0])", "day", 10),
    ("ON t.id = -s.id WHEN NOT MATCHED THEN INSERT (id, day) VALUES (-s.id, day(ts + INTERVAL day DAY))", "day", 12),
    ("ON t.id = -s.id WHEN NOT MATCHED THEN INSERT (id, day) VALUES (-s.id, st.day + `day` + (SELECT max(day) FROM VALUES (100) AS x(day)))", "day", 113),
]  # fmt: skip


def test_words_of_the_parser_are_names_where_spark_takes_them_for_names(run):
    """Each clause has a key of its own: it changes the row of the key, or inserts one with its negative."""
    run(WORDS)
    matched = range(1, 1 + sum("NOT MATCHED" not in clause for clause, *_ in CLAUSES))
    values = [f"({key}, 1, 1, 1, TIMESTAMP'2024-01-01 00:00:00', array(1), NULL)" for key in matched]  # fmt: skip
    run(f"INSERT INTO shop.k VALUES {', '.join(values)}")
    for key, (clause, *_) in enumerate(CLAUSES, 1):
        assert run(f"MERGE INTO shop.k t USING ({SOURCE.format(key)}) s {clause}"), clause
    rows = {abs(id): {"end": end, "day": day} for id, end, day in run("SELECT id, end, day FROM shop.k")}  # fmt: skip
    for key, (clause, column, expected) in enumerate(CLAUSES, 1):
        assert rows[key][column] == expected, clause


def test_columns_may_have_the_full_name_of_their_table(run):
    run(CREATE.format("shop.t"))
    run(CREATE.format("shop.s"))
    run("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')")
    run("INSERT INTO shop.s VALUES (2, 'x'), (3, 'y')")
    merge = "MERGE INTO shop.t USING shop.s ON shop.t.id = shop.s.id"
    assert run(f"{merge} WHEN MATCHED AND spark_catalog.shop.t.v = 'b' THEN UPDATE SET v = shop.s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (shop.s.id, v)") == [(2, 1, 1, 0)]  # fmt: skip
    assert run("UPDATE shop.t SET v = concat(shop.t.v, '!') WHERE EXISTS (SELECT 1 FROM shop.s AS s WHERE s.id = shop.t.id)") == [(3, 0, 2, 0)]  # fmt: skip
    assert run("DELETE FROM shop.t WHERE shop.t.id < (SELECT max(shop.t.id) - 1 FROM shop.t)") == [(4, 0, 0, 1)]  # fmt: skip
    assert run("SELECT * FROM shop.t ORDER BY id") == [(2, "x!"), (3, "y!")]
    with pytest.raises(InvalidInputError, match="both called t: write AS"):
        run("MERGE INTO shop.t USING shop.t VERSION AS OF 1 ON id = id WHEN MATCHED THEN DELETE")


def test_what_a_merge_matches_on_may_name_no_column(run):
    """`ON false` was no condition at all, and failed inside."""
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')")
    merge = "MERGE INTO shop.t t USING (SELECT 2L AS id, 'x' AS v, true AS flag) s ON"
    assert run(f"{merge} false WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE") == [(2, 0, 0, 1)]  # fmt: skip
    assert run(f"{merge} flag AND (s.id = 2) IS NULL WHEN MATCHED THEN DELETE") == [(None, 0, 0, 0)]
    assert run(f"{merge} ((t.id = s.id) AND true) AND flag WHEN MATCHED THEN UPDATE SET v = s.v") == [(3, 0, 1, 0)]  # fmt: skip
    assert run("SELECT * FROM shop.t") == [(2, "x")]
    with pytest.raises(InvalidInputError, match="at least one WHEN"):
        run(f"{merge} t.id = s.id")


def test_the_database_default_has_tables_of_the_past_and_system_tables(run):
    run(CREATE.format("default.t"))
    run("INSERT INTO default.t VALUES (1, 'a')")
    run("INSERT INTO default.t VALUES (2, 'b')")
    assert run("SELECT id FROM default.t VERSION AS OF 1") == [(1,)]
    assert run("SELECT t.id FROM default.t AS t ORDER BY id") == [(1,), (2,)]
    assert run("SELECT count(*) FROM default.`t$snapshots`") == [(2,)]
    run("DROP TABLE default.t")


def test_ctes_stand_before_writes(run):
    run(WORDS)
    run("WITH s AS (SELECT 7L AS id), u AS (SELECT id + 1 AS id FROM s) INSERT INTO shop.k (id) SELECT id FROM s UNION ALL SELECT id FROM u")  # fmt: skip
    run("WITH s AS (SELECT 9L AS id) INSERT INTO shop.k (id) WITH u AS (SELECT id FROM s) SELECT id FROM u")  # fmt: skip
    run("WITH c AS (SELECT 7L AS id), d AS (SELECT 7 AS n) MERGE INTO shop.k t USING c ON t.id = c.id "
        "WHEN MATCHED AND t.id IN (SELECT id FROM c WHERE id IN (SELECT n FROM d)) "
        "THEN UPDATE SET day = (WITH e AS (SELECT n + 4 AS n FROM d) SELECT max(n) FROM e)")  # fmt: skip
    assert run("SELECT day FROM shop.k WHERE id = 7") == [(11,)]
    run("WITH d AS (SELECT 7 AS n) UPDATE shop.k SET day = 12 WHERE id IN (SELECT n FROM d)")
    assert run("SELECT day FROM shop.k WHERE id = 7") == [(12,)]
    done = run("WITH c AS (SELECT 7L AS id) MERGE INTO shop.k t USING c ON t.id = c.id WHEN MATCHED THEN UPDATE SET day = 3")  # fmt: skip
    assert done == [(5, 0, 1, 0)]
    assert run("SELECT id, day FROM shop.k ORDER BY id") == [(7, 3), (8, None), (9, None)]
    run("MERGE INTO shop.k t USING shop.k VERSION AS OF 1 s ON t.id = s.id WHEN MATCHED THEN UPDATE SET day = 4")  # fmt: skip
    assert run("SELECT id FROM shop.k WHERE day = 4 ORDER BY id") == [(7,), (8,)]


def test_queries_of_with_are_known_wherever_a_clause_has_a_query(run):
    """A query that begins with FROM did not know them; a name of its own WITH goes first."""
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with_d = "WITH d AS (SELECT 2 AS n)"
    assert run(f"{with_d} DELETE FROM shop.t WHERE id IN (FROM d SELECT n)") == [(2, 0, 0, 1)]
    assert run(f"{with_d} UPDATE shop.t SET v = 'x' WHERE id = (WITH d AS (SELECT n + 1 AS n FROM d) SELECT max(n) FROM d)") == [(3, 0, 1, 0)]  # fmt: skip
    assert run(f"{with_d}, t AS (SELECT 9 AS d) UPDATE shop.t SET v = 'y' WHERE id IN (SELECT d - 8 FROM t, d)") == [(4, 0, 1, 0)]  # fmt: skip
    assert run("SELECT * FROM shop.t ORDER BY id") == [(1, "y"), (3, "x")]


def test_rows_of_the_past_stand_wherever_a_table_may(run):
    """In brackets they were left to Spark, which does not know them."""
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')")
    run("DELETE FROM shop.t WHERE id = 1")
    for text, rows in (
        ("SELECT count(*) FROM (shop.t VERSION AS OF 1 CROSS JOIN shop.t b)", [(2,)]),
        ("SELECT * FROM (SELECT id FROM shop.t VERSION AS OF 1) PIVOT (count(id) FOR id IN (1, 3))", [(1, None)]),
        ("SELECT * FROM shop.t VERSION AS OF 1 UNPIVOT (n FOR name IN (id)) ORDER BY n", [("a", "id", 1), ("b", "id", 2)]),
        ("SELECT count(*) FROM shop.t SYSTEM_VERSION AS OF 1", [(2,)]),
        ("SELECT t.id FROM shop.t FOR /* version as of */ VERSION AS OF 1 WHERE t.v = '{a} AS OF'", []),
        ("WITH t AS (SELECT * FROM shop.t VERSION AS OF 1) SELECT max(t.id), count(*) FROM t", [(2, 2)]),
        ("SELECT s.t FROM (SELECT 1, named_struct('t', 7) AS s, 2) AS s, shop.t VERSION AS OF 1 TABLESAMPLE (100 PERCENT) LIMIT 1", [(7,)]),
        ("FROM shop.t VERSION AS OF 1 |> AGGREGATE count(*) AS n", [(2,)]),
    ):  # fmt: skip
        assert run(text) == rows, text


def test_a_merge_with_schema_evolution_adds_columns_in_its_commit(run, tmp_path):
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a')")
    merge = "MERGE WITH SCHEMA EVOLUTION INTO shop.t t USING (SELECT {} AS id, 'x' AS v, 5 AS fresh, 6 AS other) s ON t.id = s.id"
    run(f"{merge.format('1L')} WHEN MATCHED THEN UPDATE SET fresh = s.fresh")
    assert run("SELECT * FROM shop.t") == [(1, "a", 5)]
    with pytest.raises(InvalidInputError, match=r"would change .*key"):
        run(f"{merge.format('1L')} WHEN MATCHED THEN UPDATE SET id = 2, other = s.other")
    run(
        f"{merge.format('2L')} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *".replace(
            " AS fresh", " AS FRESH"
        )
    )
    assert run("SELECT * FROM shop.t ORDER BY id") == [(1, "a", 5, None), (2, "x", 5, 6)]
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        assert list(catalog["shop.t"].schema.names) == ["id", "v", "fresh", "other"]
    with pytest.raises(NotFoundError, match="no column 'new'"):
        run(
            f"{merge.format('2L').replace('WITH SCHEMA EVOLUTION ', '')} WHEN MATCHED THEN UPDATE SET new = s.other"
        )


def test_parameters_stand_for_values(run, spark):
    run(CREATE.format("shop.t"))
    text = "it's {x} \\ :id ?"
    sql(spark, "INSERT INTO shop.t VALUES (:id, :v), (2, 'b')", args={"id": 1, "v": text})
    assert [tuple(row) for row in sql(spark, "SELECT * FROM shop.t WHERE id = ? AND v = ?", args=[1, text]).collect()] == [(1, text)]  # fmt: skip
    done = sql(
        spark,
        "UPDATE shop.t SET v = concat(:v, ':v') WHERE id IN (:ids[0], 5)",
        args={"v": "n", "ids": [1]},
    )
    assert done.first()["num_updated_rows"] == 1
    assert run("SELECT v FROM shop.t WHERE id = 1") == [("n:v",)]
    assert (
        sql(spark, "SELECT * FROM shop.t VERSION AS OF :version", args={"version": 1}).count() == 2
    )
    with pytest.raises(InvalidInputError, match="plain values"):
        sql(spark, "SELECT :x", args={"x": object()})
    with pytest.raises(AnalysisException, match="UNBOUND"):
        sql(spark, "SELECT :y", args={"x": 1})


def test_helper_views_are_no_rows_of_a_frame(run, spark):
    """A query of a system table is a DataFrame like any other, used as often as one likes."""
    run(CREATE.format("shop.t"))
    run("INSERT INTO shop.t VALUES (1, 'a')")
    frame = sql(
        spark, "SELECT count(*) AS n FROM `shop.t$snapshots` TABLESAMPLE (100 PERCENT) AS s"
    )
    assert isinstance(frame, DataFrame)
    assert frame.collect() == frame.collect()
    assert run("SELECT t.snapshot_id FROM shop.`t$snapshots` t, `shop.t$files` f LIMIT 1") == [(1,)]
