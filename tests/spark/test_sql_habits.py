"""SQL as Spark users write it: values in the columns' types, names in any case, tables described and emptied."""

import datetime
import re
import time
from decimal import Decimal

import pytest
from pyspark.errors import AnalysisException, PySparkException

import lsm_engine as lsm
from lsm_engine.base.errors import AlreadyExistsError, InvalidInputError, LsmError, NotFoundError
from lsm_engine.spark import spark_schema, sql

pytestmark = pytest.mark.spark

TYPES = """
CREATE TABLE shop.types (
  id INT NOT NULL, c CHAR(5), vc VARCHAR(3) COMMENT 'short', de DECIMAL(38, 10), tn TIMESTAMP_NTZ, ts TIMESTAMP,
  arr ARRAY<STRUCT<a: INT, b: STRING>>, m MAP<STRING, DOUBLE>, st STRUCT<x: INT, y: ARRAY<FLOAT>>, b BINARY,
  f FLOAT, d DOUBLE, ti TINYINT, da DATE, n INT DEFAULT 7, PRIMARY KEY (id) NOT ENFORCED
) USING lsm
"""
ROW = """
INSERT INTO shop.types VALUES (
  1, 'ab', 'abc', 1.5, TIMESTAMP_NTZ'2024-01-01 10:00:00.123456', DATE'2024-01-01',
  array(named_struct('a', 1, 'b', 'x'), NULL), map('k', 1, 'n', NULL), named_struct('x', 1, 'y', array(1.5, NULL)),
  X'00ff', 1.5, 2, 3, DATE'2024-02-29', NULL)
"""


def test_values_take_the_types_of_their_columns(run):
    run(TYPES)
    run(ROW)
    run("INSERT INTO shop.types (ID, Vc) SELECT 2, NULL")
    rows = run("SELECT * FROM shop.types ORDER BY id")
    assert rows[0][:5] == (1, "ab   ", "abc", Decimal("1.5000000000"), datetime.datetime.fromisoformat("2024-01-01T10:00:00.123456"))  # fmt: skip
    assert rows[0][6:9] == ([(1, "x"), None], {"k": 1.0, "n": None}, (1, [1.5, None]))
    assert rows[0][10:13] == (1.5, 2.0, 3)
    assert rows[1][1:14] == (None,) * 13
    assert run("SELECT id, st.x, arr[0].a FROM shop.types WHERE f > 1") == [(1, 1, 1)]
    run("UPDATE shop.types SET F = 2.5, D = 3, De = 7, TI = 4, st = named_struct('x', 5, 'y', NULL) WHERE ID = 1")  # fmt: skip
    assert run("SELECT f, d, de, ti, st.x FROM shop.types WHERE id = 1") == [(2.5, 3.0, Decimal(7), 4, 5)]  # fmt: skip
    assert run("SELECT n FROM shop.types ORDER BY id") == [(7,), (7,)], "null becomes the default"


def test_fields_without_names_go_by_their_place_and_others_by_name(run):
    """They came out as nulls, and were refused afterwards."""
    run(
        "CREATE TABLE shop.nested (id INT, st STRUCT<x: INT, y: STRING>, a ARRAY<STRUCT<p: INT>>) USING lsm"
    )
    run("INSERT INTO shop.nested VALUES (1, struct(5, 'five'), array(struct(6)))")
    run("INSERT INTO shop.nested SELECT 2, named_struct('y', 'seven', 'x', 7), NULL")
    assert run("SELECT id, st.x, st.y, a[0].p FROM shop.nested ORDER BY id") == [(1, 5, "five", 6), (2, 7, "seven", None)]  # fmt: skip
    for wrong in ("VALUES (3, struct(5), NULL)", "BY NAME SELECT 3 AS id, struct(5, 'five') AS st"):
        with pytest.raises(InvalidInputError, match="no field 'col1'"):
            run(f"INSERT INTO shop.nested {wrong}")


@pytest.mark.parametrize(
    "values",
    [
        "(ti) VALUES (1000)",
        "(de) VALUES (1e40)",
        "(vc) VALUES ('long')",
        "(c) VALUES ('too long')",
        "(id) VALUES (NULL)",
        "(d) VALUES ('1')",
    ],
)
def test_values_that_do_not_fit_are_refused_with_nothing_written(run, values, tmp_path):
    run(TYPES)
    given = values if "(id)" in values else values.replace("(", "(id, ", 1).replace("VALUES (", "VALUES (1, ")  # fmt: skip
    with pytest.raises((LsmError, PySparkException)):
        run(f"INSERT INTO shop.types {given}")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        assert catalog["shop.types"].snapshots() == []


def test_a_table_gets_no_name_with_a_dot(run):
    with pytest.raises((LsmError, PySparkException), match="may not contain a dot"):
        run("CREATE TABLE shop.`my-t.x` (id INT) USING lsm")


PARTED = """
CREATE TABLE shop.parted (id INT, v DOUBLE COMMENT 'it\\'s', day DATE) USING lsm
PARTITIONED BY (day) CLUSTERED BY (id) INTO 2 BUCKETS COMMENT 'by day' TBLPROPERTIES ('primary-key' = 'id, day')
"""


def test_overwrite_truncate_and_names_in_any_case(run):
    run(PARTED)
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01'), (2, 2, DATE'2024-01-02')")
    run("INSERT OVERWRITE Shop.Parted SELECT 5, 1.0, DATE'2024-01-01'")
    assert run("SELECT Id FROM SHOP.PARTED ORDER BY ID") == [(2,), (5,)]
    run("INSERT OVERWRITE shop.parted PARTITION (DAY = DATE'2024-01-02') SELECT 7, 7.5")
    assert run("SELECT id, v FROM shop.parted ORDER BY 1") == [(5, 1.0), (7, 7.5)]
    assert run("SHOW PARTITIONS shop.parted") == [("day=2024-01-01",), ("day=2024-01-02",)]
    # Days since 1970, as Paimon names the directories unless partition.legacy-name is false.
    assert run("SELECT partition FROM `shop.parted$partitions`") == [("day=19723",), ("day=19724",)]
    run("INSERT INTO shop.parted BY NAME SELECT DATE'2024-01-03' AS Day, 9 AS ID")
    assert run("SELECT id, v FROM shop.parted WHERE day > DATE'2024-01-02'") == [(9, None)]
    assert run("TRUNCATE TABLE shop.parted")[0][0] == 5
    assert run("SELECT count(*) FROM shop.parted") == [(0,)]
    assert run("SELECT count(*) FROM shop.parted VERSION AS OF 4") == [(3,)]


def test_a_partition_is_dropped_with_its_rows(run):
    run(PARTED)
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01'), (2, 2, DATE'2024-01-02')")
    run("ALTER TABLE shop.parted DROP PARTITION (day = '2024-01-01')")
    assert run("SHOW PARTITIONS shop.parted") == [("day=2024-01-02",)]
    run("ALTER TABLE shop.parted DROP IF EXISTS PARTITION (day = DATE'2024-05-05') PURGE")
    assert run("SELECT id FROM shop.parted") == [(2,)]
    for wrong in ("(day)", "(id = 2)", "(day = '2024-01-02'), PARTITION (day = '2024-01-03')", "(day = 'monday')"):  # fmt: skip
        with pytest.raises(LsmError):
            run(f"ALTER TABLE shop.parted DROP PARTITION {wrong}")
    assert run("SELECT id FROM shop.parted VERSION AS OF 1") == [(1,), (2,)]
    assert run("SELECT id FROM shop.parted") == [(2,)]


def test_a_partition_of_instants_is_replaced_by_the_clock_of_the_session(spark, run):
    """The instant was taken for one of UTC, and with an empty query the partition of another time was emptied."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    clock = pytest.MonkeyPatch()
    clock.setenv("TZ", "America/New_York")  # that of this process is another one
    time.tzset()
    try:
        run(
            "CREATE TABLE shop.timed (id INT, ts TIMESTAMP_LTZ, day DATE) USING lsm PARTITIONED BY (ts, day)"
        )
        run(
            "INSERT INTO shop.timed SELECT id, TIMESTAMP_LTZ'2024-01-01 10:00:00+09:00' + make_interval(0, 0, 0, 0, id), "
            "DATE'2024-01-01' FROM VALUES (0), (1), (9), (-9) AS t(id)"
        )
        run(
            "INSERT OVERWRITE shop.timed PARTITION (ts = TIMESTAMP_LTZ'2024-01-01 10:00:00+09:00') SELECT 7, DATE'2024-01-01'"
        )
        run(
            "INSERT OVERWRITE shop.timed PARTITION (ts = '2024-01-01 19:00:00+09:00') SELECT 1, DATE'2024-01-01' WHERE false"
        )
        rows = "SELECT id, (unix_seconds(ts) - 1704070800) / 3600 FROM shop.timed ORDER BY id"
        assert run(rows) == [(-9, -9), (1, 1), (7, 0)]
        midnight, nine = (
            "TIMESTAMP_LTZ'2024-01-01 00:00:00'",
            "TIMESTAMP_LTZ'2024-01-01 09:00:00'",
        )
        run(f"INSERT INTO shop.timed PARTITION (day = {midnight}) SELECT 8, {nine}")
        with pytest.raises(InvalidInputError, match="is no value of column 'day'"):
            run(f"INSERT INTO shop.timed PARTITION (day = {nine}) SELECT 8, {nine}")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        clock.undo()
        time.tzset()


@pytest.mark.parametrize("is_ansi", ["true", "false"])
def test_partitions_are_named_by_text_as_spark_users_do(spark, run, is_ansi):
    run(PARTED)
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-05-02'), (2, 2, DATE'2024-05-03')")
    run("CREATE TABLE shop.numbered (id INT, p INT) USING lsm PARTITIONED BY (p)")
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    try:
        run("INSERT INTO shop.parted PARTITION (day = '2024-05-02') SELECT 3, 3D")
        run("INSERT OVERWRITE shop.parted PARTITION (day = '2024-05-03') VALUES (4, 4D)")
        run("INSERT INTO shop.parted PARTITION (DAY = '2024-05' || '-04') SELECT 5, 5D")
        run("INSERT INTO shop.numbered PARTITION (p = '7') SELECT 1")
        run("INSERT OVERWRITE shop.numbered PARTITION (p = NULL) SELECT 2")
        for wrong in ("PARTITION (day = 'x')", "PARTITION (nosuch = 1)"):
            for verb in ("INTO", "OVERWRITE"):
                with pytest.raises(InvalidInputError, match=r"no value of column 'day'|no column"):
                    run(f"INSERT {verb} shop.parted {wrong} SELECT 9, 9D")
        for wrong in ("4294967297", "7.5", "7.5e0"):
            for verb in ("INTO", "OVERWRITE"):
                with pytest.raises(InvalidInputError, match=f"{wrong} is no value of column 'p'"):
                    run(f"INSERT {verb} shop.numbered PARTITION (p = {wrong}) SELECT 9")
        with pytest.raises(InvalidInputError, match="is no value of column 'day'"):
            run(
                "INSERT OVERWRITE shop.parted PARTITION (day = TIMESTAMP'2024-05-02 10:00:00') SELECT 9, 9D"
            )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert run("SELECT id, CAST(day AS STRING) FROM shop.parted ORDER BY id") == [
        (1, "2024-05-02"), (3, "2024-05-02"), (4, "2024-05-03"), (5, "2024-05-04"),
    ]  # fmt: skip
    assert run("SELECT id, p FROM shop.numbered ORDER BY id") == [(1, 7), (2, None)]


def test_tables_are_described_and_made_again_from_the_description(run, tmp_path):
    run(PARTED)
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01')")
    described = {name: kind for name, kind, _ in run("DESCRIBE TABLE EXTENDED shop.parted")}
    wanted = {
        "id": "int", "day": "date", "Provider": "lsm", "Primary Key": "id, day", "Merge Engine": "deduplicate",
        "Bucket": "2", "Snapshot": "1", "Comment": "by day", "Location": str(tmp_path / "lake/shop.db/parted"),
    }  # fmt: skip
    assert described.items() >= wanted.items()
    assert re.fullmatch(r"\d+ bytes, 1 rows before merging", described["Statistics"]), (
        "as dbt reads"
    )
    assert "bucket-key=id" in described["Table Properties"]
    assert run("DESC EXTENDED shop.parted") == run("DESCRIBE FORMATTED shop.parted")
    for name, made in (("parted", PARTED), ("types", TYPES)):
        if name == "types":
            run(made)
        with lsm.open_catalog(tmp_path / "lake") as catalog:
            before = catalog[f"shop.{name}"].schema
        (statement,) = run(f"SHOW CREATE TABLE shop.{name}")[0]
        run(f"DROP TABLE shop.{name}")
        run(statement)
        with lsm.open_catalog(tmp_path / "lake") as catalog:
            after = catalog[f"shop.{name}"].schema
        assert (after.fields, after.primary_keys, after.partition_keys, after.comment) == (
            before.fields, before.primary_keys, before.partition_keys, before.comment,
        )  # fmt: skip
        assert after.options.texts == before.options.texts


NESTED = """
CREATE TABLE shop.`2nd` (
  id INT PRIMARY KEY, st STRUCT<a: INT NOT NULL, `b c`: STRING COMMENT 'it\\'s <b>, x'> NOT NULL COMMENT 'whole',
  l ARRAY<STRUCT<x: INT NOT NULL COMMENT 'in a list', y: MAP<STRING, STRUCT<comment: STRING COMMENT 'in a map'>>>>
) USING lsm
"""


def test_fields_in_columns_keep_not_null_and_comments(spark, run, tmp_path):
    run(NESTED)
    run("ALTER TABLE shop.`2nd` ADD COLUMNS (s STRUCT<p: INT COMMENT 'first', q: INT>, n INT)")
    run("ALTER TABLE shop.`2nd` ADD COLUMN st.z STRUCT<u: INT, v: INT COMMENT 'last'>")

    def schema():
        with lsm.open_catalog(tmp_path / "lake") as catalog:
            return catalog["shop.2nd"].schema

    before = schema()
    st, listed, s = before.field("st"), before.field("l"), before.field("s")
    assert (st.description, st.type.nullable) == ("whole", False)
    assert [(each.name, each.type.nullable, each.description) for each in st.type.fields] == [
        ("a", False, None), ("b c", True, "it's <b>, x"), ("z", True, None),
    ]  # fmt: skip
    assert [each.description for each in st.type.fields[2].type.fields] == [None, "last"]
    x, y = listed.type.element.fields
    assert (x.description, x.type.nullable) == ("in a list", False)
    assert y.type.value.fields[0].description == "in a map"
    assert [each.description for each in s.type.fields] == ["first", None]
    (statement,) = run("SHOW CREATE TABLE shop.`2nd`")[0]
    run("DROP TABLE shop.`2nd`")
    run(statement)
    assert spark_schema(schema().fields) == spark_schema(before.fields)


NOT_DONE = [
    ("CREATE TABLE shop.x (x INT, y INT GENERATED ALWAYS AS (x + 1)) USING lsm", "a column has a type"),
    ("CREATE TABLE shop.x (x INT) USING lsm CLUSTER BY (x)", "CLUSTERED BY"),
    ("UPDATE shop.types SET n = 1, N = 2", "set twice"),
    ("UPDATE shop.types SET st = NULL, st.x = 2", "set twice"),
    ("UPDATE shop.types t SET n = p.id IS DISTINCT FROM 1, st = NULL FROM shop.parted p WHERE t.n = p.id", "MERGE INTO … USING"),
    ("MERGE INTO shop.parted t USING range(3) s ON t.id = s.id WHEN MATCHED THEN DELETE", "is a query: USING"),
    ("UPDATE shop.types SET st.z = 2", "no field 'z'"),
    ("UPDATE shop.types SET n.z = 2", "no field 'z'"),
    ("OPTIMIZE shop.parted ZORDER BY (id)", "leave ZORDER BY out"),
    ("OPTIMIZE shop.parted WHERE day = '2024-01-01'", "sys.compact"),
    ("RESTORE TABLE shop.parted TO TIMESTAMP AS OF '2024-01-01'", "VERSION AS OF"),
    ("ALTER TABLE shop.parted CREATE BRANCH b", "begins with a tag"),
    ("ALTER TABLE shop.parted CREATE TAG IF NOT EXISTS a", "leave IF NOT EXISTS out"),
    ("ALTER TABLE shop.parted WRITE ORDERED BY id", "order of the primary key"),
    ("ALTER TABLE shop.parted SET IDENTIFIER FIELDS id", "stays what it is"),
    ("CREATE TABLE shop.x LIKE shop.parted LOCATION '/tmp/x'", "without columns, at \"LOCATION"),
    ("CREATE TABLE shop.x SHALLOW CLONE shop.parted", "copies the rows; a branch copies no file"),
    ("CREATE TABLE IF NOT EXISTS shop.x CLONE shop.parted", r"AS SELECT \* FROM"),
    ("CREATE TABLE shop.x LIKE shop.parted STORED AS PARQUET", "USING and TBLPROPERTIES, at 'STORED"),
    ("CREATE TABLE shop.x (id INT, d DATE) USING lsm PARTITIONED BY (days(d))", r"days\(…\) is none: add a column"),
    ("CREATE TABLE shop.x (id INT, d DATE) USING lsm PARTITIONED BY (id, month(d))", r"month\(…\) is none: add a column"),
    ("CREATE TABLE shop.x (id INT) USING lsm PARTITIONED BY (bucket(4, id))", r"bucket\(…\) is none: CLUSTERED BY"),
    ("CREATE TABLE shop.x (s STRING) USING lsm PARTITIONED BY (truncate(4, s))", "shortened value"),
    ("CREATE TABLE shop.x (id INT) USING lsm PARTITIONED BY (day DATE)", "among the columns, and name it here"),
    ("ALTER TABLE shop.parted ADD PARTITION FIELD days(day)", "not done here: ADD PARTITION FIELD: the partitions of a table stay"),
    ("ALTER TABLE shop.parted REPLACE PARTITION FIELD day WITH months(day)", "AS SELECT its rows"),
    ("ALTER TABLE shop.parted DROP IDENTIFIER FIELDS id", "the primary key of a table stays"),
    ("ALTER TABLE shop.parted WRITE LOCALLY ORDERED BY id", "rows lie in the order of the primary key"),
    ("TRUNCATE TABLE shop.parted PARTITION (day = '2024-01-01')", "DELETE FROM … WHERE"),
    ("SELECT * FROM shop.parted.refs", r"FROM `shop\.parted\$tags`, and FROM `shop\.parted\$branches`"),
    ("SELECT * FROM shop.parted.all_data_files", r"FROM `shop\.parted\$files`"),
    ("SELECT * FROM shop.parted.tag_monday", "shop.parted VERSION AS OF 'monday'"),
    ("SELECT * FROM paimon_incremental_query('shop.parted', 0, 1)", r"table_changes\('table', first, last\)"),
    ("SELECT * FROM table_changes('shop.parted')", "both inclusive, at .table_changes"),
    ("SELECT * FROM table_changes('shop.parted', 'yesterday or so')", "takes a time"),
    ("SELECT * FROM table_changes('shop.parted', 1, 9)", "no snapshot 9; the newest is 1"),
    ("INSERT INTO shop.parted REPLACE WHERE id = 1 SELECT 1, 1, DATE'2024-01-01'", "INSERT OVERWRITE"),
]  # fmt: skip


def test_what_is_not_done_says_what_to_do_and_changes_nothing(run):
    run(PARTED)
    run(TYPES)
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01')")
    for statement, instead in NOT_DONE:
        with pytest.raises((InvalidInputError, NotFoundError), match=instead):
            run(statement)
    assert run("SELECT id, v FROM shop.parted") == [(1, 1.0)]


def test_a_table_is_replaced_by_one_of_its_own_rows_or_stays_as_it_is(run):
    run(
        "CREATE OR REPLACE TABLE shop.r (id INT, n INT) USING lsm TBLPROPERTIES ('primary-key' = 'id')"
    )
    run("INSERT INTO shop.r VALUES (1, 1), (2, 2)")
    run(
        "CREATE OR REPLACE TABLE shop.r USING lsm AS SELECT id, n + 1 AS more FROM shop.r WHERE id = 2"
    )
    assert run("SELECT * FROM shop.r") == run.spark("SELECT * FROM shop.r") == [(2, 3)]
    with pytest.raises(InvalidInputError, match="does not have"):
        run("REPLACE TABLE shop.r (id INT) USING lsm TBLPROPERTIES ('primary-key' = 'missing')")
    tables = run("SHOW TABLES IN shop LIKE 'r*'")
    assert [table for table in tables if not table[2]] == [("shop", "r", False)]
    assert run("SELECT more FROM shop.r") == [(3,)]
    run("REPLACE TABLE shop.r (x INT) USING lsm")
    assert run("SELECT * FROM shop.r") == []
    with pytest.raises(NotFoundError, match="CREATE TABLE"):
        run("REPLACE TABLE shop.nothing (x INT) USING lsm")


def test_fields_of_structures_are_set_and_the_others_stay(run):
    run(
        "CREATE TABLE shop.places (id INT, s STRUCT<a: INT, `b c`: STRUCT<d: BIGINT, e: STRING>>) "
        "USING lsm TBLPROPERTIES ('primary-key' = 'id')"
    )
    run(
        "INSERT INTO shop.places VALUES (1, named_struct('a', 1, 'b c', named_struct('d', 2, 'e', 'x'))), (2, NULL)"
    )
    run("UPDATE shop.places SET s.A = s.a + 10, s.`b c`.d = 5 WHERE id = 1")
    assert run("SELECT s.a, s.`b c`.d, s.`b c`.e FROM shop.places WHERE id = 1") == [(11, 5, "x")]
    run(
        "MERGE INTO shop.places AS t USING (SELECT 1 AS id, 'y' AS e) AS u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET t.s.`b c`.e = u.e WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s.a = 3"
    )
    assert run("SELECT id, s.a, s.`b c`.d, s.`b c`.e FROM shop.places ORDER BY id") == [
        (1, 11, 5, "y"),
        (2, 3, None, None),
    ]
    operations = [row[3] for row in run("DESCRIBE HISTORY shop.places")]
    assert operations == ["merge", "update", "upsert"]


def test_statements_of_delta_and_iceberg(run):
    run(PARTED)
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01')")
    run("INSERT INTO shop.parted VALUES (2, 2, DATE'2024-01-01')")
    assert [row[0] for row in run("DESCRIBE HISTORY shop.parted")] == [2, 1]
    ((version, at, _, operation, *_),) = run("DESC HISTORY shop.parted LIMIT 1")
    assert (version, operation) == (2, "upsert")
    assert abs(
        datetime.datetime.now(datetime.UTC) - at.astimezone(datetime.UTC)
    ) < datetime.timedelta(days=2)
    run("ALTER TABLE shop.parted CREATE TAG first AS OF VERSION 1 RETAIN 30 DAYS")
    run("ALTER TABLE shop.parted CREATE OR REPLACE TAG `first` AS OF VERSION 1")
    run("OPTIMIZE shop.parted")
    assert [row[1] for row in run("SELECT DISTINCT 1, level FROM `shop.parted$files`")] == [5]
    run("RESTORE TABLE shop.parted TO VERSION AS OF first")
    assert run("SELECT id FROM shop.parted") == [(1,)]
    run("ALTER TABLE shop.parted DROP TAG first")
    assert ("shop.parted", "dry_run", "true") in run("VACUUM shop.parted RETAIN 168 HOURS DRY RUN")
    run("ALTER TABLE shop.parted CHANGE COLUMN v COMMENT 'the value'")
    run("ALTER TABLE shop.parted CHANGE v value DOUBLE COMMENT 'its value' FIRST")
    assert run("DESCRIBE shop.parted")[0] == ("value", "double", "its value")


def test_describe_detail_gives_one_row_of_facts(run, spark, tmp_path):
    run(PARTED)
    (before,) = sql(spark, "DESCRIBE DETAIL shop.parted").collect()
    assert (before.numFiles, before.sizeInBytes) == (0, 0)
    assert before.lastModified >= before.createdAt
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01'), (2, 2, DATE'2024-01-02')")
    run("ALTER TABLE shop.parted SET TBLPROPERTIES ('write-only' = 'true')")
    (detail,) = sql(spark, "DESC DETAIL shop.parted").collect()
    assert detail.asDict() | {"createdAt": 0, "lastModified": 0, "sizeInBytes": 0} == {
        "format": "lsm", "name": "shop.parted", "description": "by day", "location": str(tmp_path / "lake/shop.db/parted"),
        "createdAt": 0, "lastModified": 0, "partitionColumns": ["day"], "primaryKeyColumns": ["id", "day"], "numFiles": 2,
        "sizeInBytes": 0, "properties": {"bucket": "2", "bucket-key": "id", "write-only": "true"},
    }  # fmt: skip
    sizes = run("SELECT sum(file_size_in_bytes) FROM `shop.parted$files`")
    assert sizes == [(detail.sizeInBytes,)]
    assert detail.createdAt == before.createdAt < detail.lastModified
    for name in ("detail", "history"):
        run(f"CREATE TABLE shop.{name} (id INT) USING lsm")
    spark.sql("USE shop")
    for name in ("detail", "history"):  # a table may have this name
        assert run(f"DESCRIBE {name}") == [("id", "int", None)]
    spark.sql("USE default")


def test_a_table_is_made_like_another(run, spark, tmp_path):
    for source, statement in (("parted", PARTED), ("types", TYPES)):
        run(statement)
        run(f"CREATE TABLE shop.copy_{source} LIKE shop.{source}")
    run("INSERT INTO shop.parted VALUES (1, 1, DATE'2024-01-01')")
    run("CREATE TABLE IF NOT EXISTS shop.copy_parted LIKE shop.types")  # it stays
    clauses = "USING lsm TBLPROPERTIES ('bucket' = '4', 'primary-key' = 'id, day')"
    run(f"CREATE TABLE IF NOT EXISTS shop.wider LIKE shop.parted {clauses}")
    spark.sql(
        "CREATE TABLE shop.foreign (n INT COMMENT 'how many', p STRING) USING parquet PARTITIONED BY (p)"
    )
    run("CREATE TABLE shop.own LIKE shop.foreign USING lsm TBLPROPERTIES ('primary-key' = 'n,p')")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        for source in ("parted", "types"):
            original, copy = (catalog[f"shop.{name}"].schema for name in (source, f"copy_{source}"))
            for fact in ("fields", "primary_keys", "partition_keys", "comment"):
                assert getattr(copy, fact) == getattr(original, fact)
            assert copy.options.texts == original.options.texts
        assert catalog["shop.copy_parted"].count() == 0
        assert catalog["shop.wider"].schema.options.texts["bucket"] == "4"
        own = catalog["shop.own"].schema
    assert (own.primary_keys, own.partition_keys) == (("n", "p"), ("p",))
    assert own.field("n").description == "how many"
    with pytest.raises(AlreadyExistsError):
        run("CREATE TABLE shop.copy_parted LIKE shop.types")
    run("CREATE TABLE shop.plain LIKE shop.foreign")  # Spark's own copy of its own table
    assert "shop.plain" not in lsm.open_catalog(tmp_path / "lake").list_tables()
    run("ALTER TABLE shop.parted ADD COLUMNS (note STRING)")
    run("CREATE OR REPLACE TABLE shop.copy_parted LIKE shop.parted")
    assert [name for name, *_ in run("DESCRIBE shop.copy_parted")][:4] == ["id", "v", "day", "note"]


def test_table_changes_reads_what_changed_as_on_delta(run, spark):
    run(
        "CREATE TABLE shop.fed (id INT, n INT) USING lsm "
        "TBLPROPERTIES ('primary-key' = 'id', 'changelog-producer' = 'lookup')"
    )
    run("INSERT INTO shop.fed VALUES (1, 1), (2, 2)")
    run("INSERT INTO shop.fed VALUES (2, 3)")
    run("DELETE FROM shop.fed WHERE id = 1")
    newest = run("SELECT max(snapshot_id) FROM `shop.fed$snapshots`")[0][0]
    feed = "SELECT id, n, _change_type FROM table_changes('shop.fed', {}) ORDER BY _commit_version, id, n"
    changes = [
        (1, 1, "insert"), (2, 2, "insert"), (2, 2, "update_preimage"), (2, 3, "update_postimage"), (1, 1, "delete"),
    ]  # fmt: skip
    assert run(feed.format(0)) == run(feed.format(f"1, {newest}")) == changes
    assert run(feed.format("'2020-01-01', current_timestamp()")) == changes
    assert run(feed.format("'2020-01-01', '2020-01-02'")) == []
    versions = run(
        "SELECT DISTINCT _commit_version, _commit_timestamp FROM table_changes('SHOP.Fed', 1) AS c"
    )
    snapshots = run("SELECT snapshot_id, commit_time FROM `shop.fed$snapshots`")
    assert {version for version, _ in versions} < {snapshot_id for snapshot_id, _ in snapshots}
    upto = sorted(versions)[1][0]
    assert run(feed.format(f"{upto}, {upto}")) == changes[2:4]
    with lsm.open_catalog(spark.conf.get("spark.lsm.warehouse")) as catalog:
        times = {s.id: s.time_millis for s in catalog["shop.fed"].snapshots()}
    for version, moment in versions:
        assert round(moment.timestamp() * 1000) == times[version]
    run("CREATE TABLE shop.kept USING lsm AS SELECT * FROM table_changes('shop.fed', 1)")
    assert run("SELECT count(*) FROM shop.kept") == [(5,)]
    with pytest.raises(AnalysisException, match="table_changes"):
        run("SELECT * FROM table_changes('shop.unknown', 1)")


def test_spark_lists_what_no_statement_has_named_before(run, spark):
    run("CREATE TABLE shop.listed (id INT) USING lsm")
    for statement in ("SHOW DATABASES", "SHOW TABLE EXTENDED IN shop LIKE 'list*'", "USE shop"):
        spark.sql("DROP DATABASE IF EXISTS shop CASCADE")  # as in a new process
        assert "shop" in str(run(statement)) or statement == "USE shop"
    assert run("SELECT * FROM listed") == []
    spark.sql("USE default")


def test_lengths_within_columns_are_kept_described_and_hold(run):
    run(
        "CREATE TABLE shop.lengths (id INT PRIMARY KEY, tags ARRAY<VARCHAR(3)>, "
        "place STRUCT<city: VARCHAR(5) COMMENT 'short', codes: MAP<CHAR(2), STRING>>) USING lsm"
    )
    run("ALTER TABLE shop.lengths ADD COLUMNS (v VARCHAR(4), more ARRAY<STRUCT<c: CHAR(1)>>)")
    run("ALTER TABLE shop.lengths ALTER COLUMN place.city TYPE VARCHAR(6)")
    created = run("SHOW CREATE TABLE shop.lengths")[0][0]
    for text in (
        "array<VARCHAR(3)>",
        "VARCHAR(6)",
        "map<CHAR(2), string>",
        "VARCHAR(4)",
        "CHAR(1)",
    ):
        assert text in created
    run("INSERT INTO shop.lengths (id, tags, v) VALUES (1, array('abc'), 'abcd')")
    for column, value in (("tags", "array('abcd')"), ("v", "'abcde'")):
        with pytest.raises(Exception, match="longer than"):
            run(f"INSERT INTO shop.lengths (id, {column}) VALUES (2, {value})")
    assert run("SELECT id, tags, v FROM shop.lengths") == [(1, ["abc"], "abcd")]
    run("DROP TABLE shop.lengths")
    run(created)
    assert run("SHOW CREATE TABLE shop.lengths")[0][0] == created


def test_keys_of_instants_are_looked_up_where_timestamps_have_no_zone(spark, run):
    run(
        "CREATE TABLE shop.instants (t TIMESTAMP_LTZ, n BIGINT) USING lsm TBLPROPERTIES ('primary-key' = 't')"
    )
    run("INSERT INTO shop.instants SELECT timestamp_seconds(id), id FROM range(20)")
    zone = spark.conf.get("spark.sql.session.timeZone")
    kind = spark.conf.get("spark.sql.timestampType")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:  # one key of twenty rows: looked up
        merge = (
            "MERGE INTO shop.instants t USING (SELECT timestamp_seconds(7) AS at) s ON t.t = s.at"
        )
        done = run(f"{merge} WHEN MATCHED THEN UPDATE SET n = 70")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.timestampType", kind)
    assert done == [(2, 0, 1, 0)]
    assert run("SELECT unix_seconds(t) FROM shop.instants WHERE n = 70") == [(7,)]


def test_identifier_names_tables_and_columns(run):
    run("CREATE TABLE shop.t (id BIGINT, v STRING) USING lsm TBLPROPERTIES ('primary-key' = 'id')")
    run("INSERT INTO IDENTIFIER('shop.' || 't') VALUES (1, 'a'), (2, 'b')")
    run("UPDATE IDENTIFIER('shop.t') SET v = 'c' WHERE IDENTIFIER('id') = 1")
    run("MERGE INTO IDENTIFIER('`shop`.t') t USING (SELECT 2L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")  # fmt: skip
    assert run("SELECT * FROM IDENTIFIER('shop.t')") == [(1, "c")]
    with pytest.raises(AnalysisException, match="IDENTIFIER"):
        run("UPDATE IDENTIFIER(v) SET v = 'd'")


def test_a_database_is_dropped_with_its_tables_or_not_at_all(run, tmp_path):
    """Its tables stayed in the warehouse, and came back with the next statement."""
    run("CREATE TABLE shop.t (id BIGINT, v STRING) USING lsm TBLPROPERTIES ('primary-key' = 'id')")
    with pytest.raises(lsm.LsmError, match="CASCADE"):
        run("DROP DATABASE shop")
    assert run("SELECT count(*) FROM shop.t") == [(0,)]
    run("DROP SCHEMA IF EXISTS SHOP CASCADE")
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        assert catalog.list_databases() == []
    assert run("SHOW DATABASES LIKE 'shop'") == []
    run("DROP DATABASE IF EXISTS shop")


def test_words_in_quotes_and_columns_are_no_words_of_a_statement(run):
    """A value 'DEFAULT' was written as a null."""
    run(
        "CREATE TABLE shop.location (id BIGINT, location STRING COMMENT 'using', n INT DEFAULT 7) USING lsm COMMENT 'as' TBLPROPERTIES ('primary-key' = 'id')"
    )
    run(
        "INSERT INTO shop.location VALUES (1, 'DEFAULT', 1), (2, \"default\", DEFAULT), (3, '(', 3)"
    )
    run("INSERT INTO shop.location VALUES (4, 'BEGIN', 4); INSERT INTO shop.location SELECT 5, ',', DEFAULT")  # fmt: skip
    assert run("SELECT * FROM shop.location ORDER BY id") == [
        (1, "DEFAULT", 1), (2, "default", 7), (3, "(", 3), (4, "BEGIN", 4), (5, ",", 7),
    ]  # fmt: skip


def test_default_and_new_columns_in_writes(run):
    run(
        "CREATE TABLE shop.t (id BIGINT, n INT DEFAULT 7) USING lsm TBLPROPERTIES ('primary-key' = 'id')"
    )
    run("INSERT INTO shop.t VALUES (1, DEFAULT), (2, 2), (3, 3)")
    run("MERGE INTO shop.t t USING (SELECT 3L AS id UNION ALL SELECT 4) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, DEFAULT)")  # fmt: skip
    assert run("SELECT id, n FROM shop.t ORDER BY id") == [(1, 7), (2, 2), (3, 3), (4, 7)]
    run("UPDATE shop.t SET n = DEFAULT WHERE id = 2")
    assert run("SELECT n FROM shop.t WHERE id = 2") == [(7,)]
    with pytest.raises(AnalysisException, match="DEFAULT"):
        run("UPDATE shop.t SET n = 2 WHERE DEFAULT")
    run("INSERT WITH SCHEMA EVOLUTION INTO shop.t SELECT 5L, 5, 'new' AS city")
    run("INSERT WITH SCHEMA EVOLUTION INTO shop.t BY NAME SELECT 'far' AS place, 6L AS id")
    assert run("SELECT * FROM shop.t WHERE id > 4 ORDER BY id") == [(5, 5, "new", None), (6, 7, None, "far")]  # fmt: skip
    for refused, remedy in (
        ("shop.t AS x REPLACE USING (id) VALUES (1, 1)", "DELETE the rows first"),
        ("shop.t WITH ('a' = 'b') VALUES (1, 1)", "SET TBLPROPERTIES"),
    ):
        with pytest.raises(InvalidInputError, match=remedy):
            run(f"INSERT INTO {refused}")
