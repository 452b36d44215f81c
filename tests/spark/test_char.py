"""CHAR(n) and VARCHAR(n) on Spark: what a table of ours answers is what Spark answers of a Parquet table."""

import pytest
from pyspark.errors import PySparkException

import lsm_engine as lsm
from lsm_engine.base.errors import LsmError
from lsm_engine.spark import read_dataframe

pytestmark = pytest.mark.spark
COLUMNS = (
    "id INT, c CHAR(5), w CHAR(7), v VARCHAR(3), s STRING, st STRUCT<a: CHAR(3), b: VARCHAR(2)>, "
    "l ARRAY<CHAR(2)>, m MAP<CHAR(2), VARCHAR(2)>"
)
ROWS = """VALUES
  (1, 'ab', 'ab', 'xy ', 'ab', named_struct('a', 'q', 'b', 'r '), array('z', NULL), map('k', 'v')),
  (2, 'abc  ', 'abc', 'x     ', 'abc  ', NULL, NULL, NULL),
  (3, '', '', '', '', named_struct('a', NULL, 'b', ''), array(), map()),
  (4, 'abcde   ', 'abcdefg', 'xyz', 'abcde', NULL, array('yz  '), map('kk', 'vv  ')),
  (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (6, 'äö', 'ab!', 'üß', 'äö', NULL, NULL, NULL),
  (7, 'b', 'a', 'b', 'b', NULL, NULL, NULL)"""
CONDITIONS = [
    "c = 'ab         '", "c = 'ab   x'", "'ab' = c", "c <=> 'ab'", "c <> 'ab'", "c < 'ab!'", "c >= 'abc    '",
    "c IN ('ab       ', 'äö')", "c NOT IN ('ab', '')", "c = ''", "c = w", "c = s", "v = 'xy '", "s = 'abc  '",
    "c LIKE 'ab%'", "length(c) = 5", "st.a = 'q'", "get(l, 0) = 'z'", "m['k '] = 'v'", "c = 'ab' OR v = 'b'",
]  # fmt: skip
"""Each is a filter of a scan; tests/unit/table/test_char.py has more of them, without Spark."""
COMPUTED = [
    "c = 'ab'", "c = 'ab   '", "NOT (c = 'ab')", "c <= 'ab'", "c > 'ab'", "c < 'ab    x'", "c IN ('ab', 'b')",
    "c IS NULL", "c < w", "w = 'abcdefg'", "v = 'xy'", "v = 'x  '", "s = 'abc'", "c LIKE 'ab'", "c LIKE '%b '",
    "concat(c, 'x') = 'ab   x'", "c = concat('a', 'b')", "trim(c) = 'ab'", "st.a = 'q  '", "get(l, 0) = 'z '",
    "id > 1 AND c = 'abc'", "c = 'äö'", "upper(c) = 'AB   '",
]  # fmt: skip
"""Spark computes these of the rows of one scan, as it does all others."""


@pytest.fixture
def tables(run):
    run("CREATE DATABASE shop")
    run(f"CREATE TABLE shop.ours ({COLUMNS}) USING lsm TBLPROPERTIES ('primary-key' = 'id')")
    run.spark(f"CREATE TABLE shop.theirs ({COLUMNS}) USING parquet")
    run(f"INSERT INTO shop.ours {ROWS}")
    run.spark(f"INSERT INTO shop.theirs {ROWS}")
    return run


def test_rows_types_and_conditions_are_those_of_a_parquet_table(tables, spark):
    run = tables
    for text in (
        "SELECT * FROM shop.{} ORDER BY id",
        "SELECT c, count(*) FROM shop.{} GROUP BY c ORDER BY c",
        "SELECT a.id, b.id FROM shop.{} a JOIN shop.theirs b ON a.c = b.c ORDER BY ALL",
        "SELECT a.id, b.id FROM shop.{} a JOIN shop.theirs b ON a.c = b.w ORDER BY ALL",
    ):
        theirs = run.spark(text.format("theirs"))
        assert run(text.format("ours")) == theirs, text
        assert run.spark(text.format("ours")) == theirs, text
    assert (
        run("DESCRIBE shop.ours")
        == run("DESC TABLE shop.ours")
        == run.spark("DESCRIBE shop.theirs")
    )
    key = "__CHAR_VARCHAR_TYPE_STRING"
    ours, theirs = (spark.table(f"shop.{name}").schema for name in ("ours", "theirs"))
    assert [f.metadata.get(key) for f in ours] == [f.metadata.get(key) for f in theirs]
    different = []
    ways = {
        "sql": lambda text: run(text.format("ours")),
        "the past": lambda text: run(text.format("ours VERSION AS OF 1")),
        "spark.sql": lambda text: run.spark(text.format("ours")),
    }
    flags = f"SELECT id, {', '.join([*CONDITIONS, *COMPUTED])} FROM shop.{{}} ORDER BY id"
    rows = run.spark(flags.format("theirs"))
    assert ways["sql"](flags) == ways["the past"](flags) == rows
    (_, *columns) = list(zip(*rows, strict=True))[: 1 + len(CONDITIONS)]
    for number, (condition, matches) in enumerate(zip(CONDITIONS, columns, strict=True)):
        text = f"SELECT id FROM shop.{{}} WHERE {condition} ORDER BY id"
        theirs = [(place,) for place, is_match in enumerate(matches, 1) if is_match]
        # One way each: all take the same filter to the same scan.
        way = ("sql", "spark.sql", "sql", "the past")[number % 4]
        answer = ways[way](text)
        if answer != theirs:
            different.append((condition, way, answer, theirs))
    assert different == []


@pytest.mark.parametrize("by", ["driver", "executors"])
def test_a_merge_compares_char_columns_of_its_source_as_a_query_does(tables, by, request):
    """Rows whose source had CHAR(n) were passed over: 'ab' was not padded beside them."""
    if by == "executors":
        request.getfixturevalue("by_executors")
    run = tables
    run("CREATE TABLE shop.t (id INT, s STRING) USING lsm TBLPROPERTIES ('primary-key' = 'id')")
    for source, condition in (("ours", "s.c = 'ab'"), ("theirs", "c IN ('ab     ', 'b')")):
        rows = run.spark(f"SELECT id FROM shop.theirs s WHERE {condition} ORDER BY id")
        run(f"MERGE INTO shop.t t USING shop.{source} s ON t.id = s.id WHEN NOT MATCHED AND {condition} THEN INSERT (id) VALUES (s.id)")  # fmt: skip
        assert run("SELECT id FROM shop.t ORDER BY id") == rows
        run("DELETE FROM shop.t")


@pytest.mark.parametrize("by", ["driver", "executors"])
def test_rows_that_go_are_those_that_a_parquet_table_finds(tables, spark, by, request):
    """DELETE takes what SELECT shows."""
    if by == "executors":
        request.getfixturevalue("by_executors")
    run = tables
    different = []
    conditions = {
        "driver": ("ours.c IN ('ab', 'b')", "shop.ours.c <> 'ab'", "c = w"),
        "executors": ("c = 'ab'", "ours.w > c OR 'ab' = c"),
    }
    for condition in conditions[by]:
        inner = condition.replace("shop.ours.", "theirs.").replace("ours.", "theirs.")
        theirs = run.spark(f"SELECT count(*) FROM shop.theirs WHERE {inner}")
        run(f"UPDATE shop.ours SET s = 'found' WHERE {condition}")
        found = run("SELECT count(*) FROM shop.ours WHERE s = 'found'")
        if found != theirs:
            different.append((condition, found, theirs))
        run(f"INSERT INTO shop.ours {ROWS}")
    assert different == []
    run("DELETE FROM shop.ours WHERE c = 'ab' AND length(s) = 2")
    assert run("SELECT id FROM shop.ours WHERE id < 3") == [(2,)]


def test_what_is_too_long_is_refused_as_spark_refuses_it(tables):
    run = tables
    for row in ("9, 'abcdef', '', '', ''", "9, 'ab   x', '', '', ''", "9, '', '', 'wxyz', ''"):
        values = f"VALUES ({row}, NULL, NULL, NULL)"
        with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
            run.spark(f"INSERT INTO shop.theirs {values}")
        with pytest.raises(LsmError, match="longer than"):
            run(f"INSERT INTO shop.ours {values}")
    twice = "VALUES (9, '', '', '', '', NULL, NULL, map('k', '1', 'k ', '2'))"
    with pytest.raises(PySparkException, match="DUPLICATED_MAP_KEY"):
        run.spark(f"INSERT INTO shop.theirs {twice}")
    with pytest.raises(LsmError, match="key twice"):
        run(f"INSERT INTO shop.ours {twice}")


KEYED = "CREATE TABLE shop.k (c CHAR(5), v INT) USING lsm TBLPROPERTIES ('primary-key' = 'c', 'bucket' = '3')"


@pytest.mark.parametrize("by", ["driver", "executors"])
def test_a_key_with_its_blanks_and_one_without_are_one_row(run, spark, by, request):
    if by == "executors":
        request.getfixturevalue("by_executors")
    run("CREATE DATABASE shop")
    run(KEYED)
    run("INSERT INTO shop.k VALUES ('ab', 1)")
    run("INSERT INTO shop.k VALUES ('ab   ', 2), ('q', 3)")
    assert run("SELECT * FROM shop.k ORDER BY c") == [("ab   ", 2), ("q    ", 3)]
    source = "(SELECT 'ab' AS c, 5 AS v UNION ALL SELECT 'new  ', 6)"
    run(f"MERGE INTO shop.k t USING {source} s ON t.c = s.c WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    assert run("SELECT * FROM shop.k ORDER BY c") == [("ab   ", 5), ("new  ", 6), ("q    ", 3)]
    twice = "(SELECT 'x' AS c, 5 AS v UNION ALL SELECT 'x  ', 6)"
    with pytest.raises(LsmError, match="same key"):
        run(f"MERGE INTO shop.k t USING {twice} s ON t.c = s.c AND t.v > 0 WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    run(
        "MERGE INTO shop.k t USING (SELECT 1 AS one) s ON t.c = 'q' AND s.one = 1 WHEN MATCHED THEN DELETE"
    )
    run("UPDATE shop.k SET v = 7 WHERE c = 'ab'")
    run("DELETE FROM shop.k WHERE k.c IN ('new', 'nobody')")
    assert run("SELECT * FROM shop.k") == [("ab   ", 7)]


def test_data_frames_and_the_format_write_blanks(run, spark, tmp_path):
    run("CREATE DATABASE shop")
    run(KEYED)
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"{tmp_path}/lake"
    ) as catalog:
        table = catalog["shop.k"]
        frame = spark.createDataFrame([("ab", 1)], "c STRING, v INT")
        table.upsert(frame)
        frame.write.format("lsm").mode("append").save(table.location)
        spark.createDataFrame([("ab ", 3)], "c STRING, v INT").write.format("lsm").mode(
            "append"
        ).save(table.location)
        assert table.to_arrow().to_pylist() == [{"c": "ab   ", "v": 3}]
        rows = read_dataframe(table, spark=spark)
        assert [tuple(row) for row in rows.where("c = 'ab'").collect()] == [("ab   ", 3)]
