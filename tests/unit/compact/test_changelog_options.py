"""Which changelogs a table may be asked for, when it is made and later."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, InvalidOptionError

SCHEMA = pa.schema(
    [pa.field("k", pa.int32(), nullable=False), ("v", pa.int64()), ("w", pa.string())]
)
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


@pytest.fixture
def catalog(tmp_path):
    return lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (
            {"changelog-producer.row-deduplicate": "true"},
            "changelog-producer.row-deduplicate",
        ),
        (
            {"changelog-producer": "input", "changelog-producer.row-deduplicate": "true"},
            "changelog-producer.row-deduplicate",
        ),
        (
            {
                "changelog-producer": "lookup",
                "changelog-producer.row-deduplicate-ignore-fields": "v",
            },
            "changelog-producer.row-deduplicate-ignore-fields",
        ),
        (
            {
                "changelog-producer": "lookup",
                "changelog-producer.row-deduplicate": "true",
                "changelog-producer.row-deduplicate-ignore-fields": "nothing",
            },
            "changelog-producer.row-deduplicate-ignore-fields",
        ),
        (
            {"changelog-producer": "full-compaction", "deletion-vectors.enabled": "true"},
            "changelog-producer",
        ),
        (
            {"changelog-producer": "full-compaction", "merge-engine": "first-row"},
            "changelog-producer",
        ),
        ({"changelog-producer": "input", "merge-engine": "first-row"}, "changelog-producer"),
    ],
)
def test_what_does_not_go_together_is_refused(catalog, options, key):
    with pytest.raises(InvalidOptionError) as refused:
        catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1"} | options)
    assert refused.value.facts["key"] == key


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_a_table_without_a_key_has_no_changelog(catalog, producer):
    with pytest.raises(InvalidOptionError, match="append table"):
        catalog.create_table(
            "db.t", SCHEMA, primary_key=[], options={"changelog-producer": producer}
        )


def test_rows_that_stand_for_those_below_stay_what_they_are(catalog):
    table = catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["k"],
        options={"bucket": "1", "changelog-producer": "lookup"} | SUMS,
    )
    table.alter(lsm.SetOption(key="changelog-producer", value="none"))
    table.alter(lsm.SetOption(key="changelog-producer", value="lookup"))  # nothing is there yet
    table.upsert([{"k": 1, "v": 1, "w": "a"}])
    with pytest.raises(InvalidOptionError) as refused:
        table.alter(lsm.SetOption(key="changelog-producer", value="none"))
    assert refused.value.kind is ErrorKind.IMMUTABLE_OPTION
    assert table.schema.options.texts["changelog-producer"] == "lookup"


def test_a_changelog_may_be_asked_for_later_where_one_row_is_chosen(catalog):
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1"})
    table.upsert([{"k": 1, "v": 1, "w": "a"}])
    table.alter(lsm.SetOption(key="changelog-producer", value="lookup"))
    made = table.upsert([{"k": 1, "v": 2, "w": "b"}])
    assert made is not None
    latest = table.latest_snapshot()
    # What was in level 0 is new to the changelog, whenever it came.
    assert latest.changelog_record_count == 1


def test_renamed_columns_are_renamed_in_the_options(catalog):
    table = catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["k"],
        options={
            "bucket": "1",
            "changelog-producer": "lookup",
            "changelog-producer.row-deduplicate": "true",
            "changelog-producer.row-deduplicate-ignore-fields": "v,w",
        },
    )
    table.alter(lsm.RenameColumn(name="w", new_name="x"))
    key = "changelog-producer.row-deduplicate-ignore-fields"
    assert table.schema.options.texts[key] == "v,x"
