"""Types and filters on their way between Spark, Arrow and tables; no JVM needed."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow.compute as pc
import pytest
from pyspark.sql import datasource as sql
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

from lsm_engine.base.errors import InvalidOptionError, NotFoundError, UnsupportedError
from lsm_engine.spark.filters import as_expression
from lsm_engine.spark.session import check_java, java_version, local_settings
from lsm_engine.spark.types import (
    arrow_schema_of,
    arrow_type_of,
    fitter,
    spark_schema,
    spark_type,
)
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow
from lsm_engine.types.types import parse_type
from tests.spark.rows import NESTED, ROWS, nested, rows


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("INT NOT NULL", "int"),
        ("CHAR(3)", "string"),
        ("VARBINARY(9)", "binary"),
        ("DECIMAL(38, 18)", "decimal(38,18)"),
        ("TIME(3)", "time(3)"),
        ("TIMESTAMP(3)", "timestamp_ntz"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp"),
        ({"type": "ARRAY", "element": "INT NOT NULL"}, "array<int>"),
        ({"type": "MAP", "key": "STRING NOT NULL", "value": "DATE"}, "map<string,date>"),
    ],
)
def test_column_types_have_a_spark_type(stored, expected):
    assert spark_type(parse_type(stored)).simpleString() == expected


@pytest.mark.parametrize("schema", [ROWS, NESTED])
def test_the_arrow_form_is_the_one_spark_checks_for(schema):
    ids = FieldIds()
    made = spark_schema(field_from_arrow(field, ids) for field in schema)
    assert arrow_schema_of(made) == to_arrow_schema(made, timezone="UTC")


@pytest.mark.parametrize("given", [rows(0, 20), nested(20)])
def test_values_survive_both_ways(given):
    ids = FieldIds()
    fit = fitter(
        arrow_schema_of(spark_schema(field_from_arrow(field, ids) for field in given.schema))
    )
    assert fit(given.to_batches()[0]).to_pylist() == given.to_pylist()


def test_types_without_a_column_type_are_refused_by_name():
    for kind in (spark_types.NullType(), spark_types.DayTimeIntervalType()):
        with pytest.raises(UnsupportedError, match="column 'gap' has Spark type"):
            arrow_type_of(kind, "gap")


FILTERS = [
    (sql.EqualTo(("id",), 3), pc.field("id") == 3),
    (sql.Not(sql.EqualTo(("id",), 3)), pc.field("id") != 3),
    (sql.GreaterThanOrEqual(("day",), date(2024, 5, 2)), pc.field("day") >= date(2024, 5, 2)),
    (sql.LessThan(("price",), Decimal("2.50")), pc.field("price") < Decimal("2.50")),
    (sql.In(("small",), (-49, -48, 7)), pc.field("small").isin([-49, -48, 7])),
    (sql.IsNull(("note",)), pc.field("note").is_null()),
    (sql.Not(sql.IsNull(("note",))), pc.field("note").is_valid()),
    (sql.EqualNullSafe(("note",), None), pc.field("note").is_null()),
    (sql.EqualNullSafe(("note",), "v 3"), pc.field("note") == "v 3"),
    (sql.StringStartsWith(("note",), "v 1"), pc.starts_with(pc.field("note"), "v 1")),
    (sql.StringContains(("note",), "1"), pc.match_substring(pc.field("note"), "1")),
    (sql.EqualTo(("open",), True), pc.field("open") == True),  # noqa: E712
    (
        sql.GreaterThan(("seen",), datetime(2024, 5, 1, 12, 30, 8, tzinfo=UTC)),
        (pc.field("id") > 7) & pc.field("note").is_valid(),
    ),
    (sql.EqualTo(("raw",), bytearray(b"\3\0")), pc.field("id") == 3),
]
LEFT_TO_SPARK = [
    sql.GreaterThan(("ratio",), 0.5),  # NaN
    sql.EqualTo(("small",), 100_000),  # no int16
    sql.EqualTo(("id",), "3"),
    sql.EqualTo(("price",), Decimal("1.005")),
    sql.EqualTo(("seen",), datetime(2024, 5, 1)),  # noqa: DTZ001 -- no zone is the point
    sql.EqualTo(("local",), datetime(2024, 5, 1, 1, 1, 1, 5, tzinfo=UTC)),
    sql.EqualTo(("day",), datetime(2024, 5, 1, tzinfo=UTC)),
    sql.In(("id",), (1, None)),  # NOT IN with a null keeps nothing
    sql.Not(sql.EqualNullSafe(("note",), "x")),
    sql.EqualTo(("place", "x"), 1),
    sql.EqualTo(("gone",), 1),
    sql.StringEndsWith(("id",), "1"),
]


@pytest.mark.parametrize(("given", "meant"), FILTERS, ids=lambda value: str(value)[:40])
def test_filters_that_mean_the_same(given, meant):
    data = rows(0, 30)
    kept = data.filter(as_expression(given, data.schema))
    assert kept.equals(data.filter(meant))


@pytest.mark.parametrize("given", LEFT_TO_SPARK, ids=str)
def test_filters_that_spark_has_to_apply(given):
    assert as_expression(given, ROWS) is None


@pytest.mark.parametrize(
    ("banner", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_java_says_its_version(banner, expected):
    assert java_version(banner) == expected


def test_a_machine_without_java_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="install Java 17 or 21"):
        check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(InvalidOptionError) as caught:
        check_java()
    assert caught.value.facts["version"] == 11


def test_a_suitable_java_is_asked_for_its_version_once_a_process(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program, asked = tmp_path / "bin" / "java", tmp_path / "asked"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho x >> {asked}\necho 'openjdk version \"21.0.2\"' >&2\n")
    program.chmod(0o755)
    assert [check_java(), check_java(), check_java()] == [21, 21, 21]
    assert asked.read_text() == "x\n"


def test_a_local_session_listens_on_loopback_only():
    settings = local_settings(threads=3)
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.master"] == "local[3,4]"
