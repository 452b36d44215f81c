"""Deletes by key alone, in tables whose -D has to hold more than a key."""

import re

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.data_files.reader import DataFileReader
from lsm_engine.dml import merge_builder
from lsm_engine.lookup.locate import locate_rows

WHOLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("at", pa.int64()),
    ]
)
ROWS = [
    {"id": 1, "name": "a", "at": -5},
    {"id": 2, "name": "b", "at": None},
    {"id": 3, "name": "c", "at": 7},
]


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(warehouse=tmp_path / "lake") as catalog:
        catalog.create_database("db")
        yield catalog


@pytest.mark.parametrize("option", ["write.count-changes", "write.skip-unchanged"])
def test_deletes_of_absent_keys_commit_nothing_where_that_is_known(catalog, option):
    """The counts of a delete are those of the rows that went."""
    columns = {"id": int, "name": str, "at": int}
    table = catalog.create_table("db.t", columns, primary_key="id", options={option: "true"})
    table.upsert(ROWS)
    before = table.latest_snapshot().id
    assert table.delete([99, 98]) is None
    assert table.latest_snapshot().id == before
    deleted = table.delete([2, 99])
    assert table.to_arrow("id")["id"].to_pylist() == [1, 3]
    if option == "write.count-changes":
        assert (deleted.row_counts.deleted, deleted.row_counts.updated) == (1, 0)


def _orders(catalog, **options):
    table = catalog.create_table(
        "db.orders", {"shop": str, "id": int}, primary_key=["shop", "id"], options=options
    )
    table.upsert([{"shop": "a", "id": 1}, {"shop": "b", "id": 2}])
    return table


@pytest.mark.parametrize(
    "options", [{}, {"bucket": "4"}, {"deletion-vectors.enabled": "true", "write-only": "true"}]
)
def test_a_delete_of_few_absent_keys_commits_nothing(catalog, options):
    table = _orders(catalog, **options)
    before = table.latest_snapshot().id
    both = [
        {"shop": "a", "id": 2},
        {"shop": "b", "id": 1},
    ]  # their values are there, the pairs are not
    assert table.delete(both) is None
    assert table.delete({"shop": "c", "id": 1}) is None
    assert table.delete(pa.Table.from_pylist(both).to_reader()) is None
    assert table.latest_snapshot().id == before
    assert table.delete([*both, {"shop": "b", "id": 2}]) is not None
    assert table.delete([{"shop": "b", "id": 2}]) is None  # deleted already
    table.compact(full=True)
    assert table.to_arrow().to_pylist() == [{"shop": "a", "id": 1}]


def test_a_delete_of_many_absent_keys_commits_nothing_in_a_small_table(catalog):
    table = _orders(catalog)
    absent = pa.table({"shop": ["a"] * 2_000, "id": range(10, 2_010)})
    assert table.delete(absent) is None
    assert table.delete(pa.concat_tables([absent, pa.table({"shop": ["a"], "id": [1]})]))
    assert table.to_arrow()["shop"].to_pylist() == ["b"]
    # More keys of a stream than are held back: they are committed unseen.
    assert table.delete(pa.Table.from_batches(absent.to_batches(1_500)).to_reader()) is not None


def test_a_delete_counts_the_rows_that_went_where_its_look_knows_them_all(catalog, monkeypatch):
    table = _orders(catalog)
    present, second = {"shop": "a", "id": 1}, {"shop": "b", "id": 2}
    absent = {"shop": "a", "id": 7}
    many_absent = pa.table({"shop": ["a"] * 2_000, "id": range(10, 2_010)})

    def deleted(*keys):
        counts = table.delete([*keys]).row_counts
        assert table.to_arrow().num_rows == 2 - len(
            {(key["shop"], key["id"]) for key in keys if key is not absent}
        )
        newest = table.inspect.snapshots().to_pylist()[-1]
        assert newest["rows_deleted"] == (None if counts is None else counts.deleted)
        table.upsert([present, second])
        return None if counts is None else (counts.inserted, counts.updated, counts.deleted)

    assert deleted(present) == deleted(present, present) == (0, 0, 1)
    assert deleted(absent, present, present) == (0, 0, 1)
    assert deleted(absent, present, second, absent) == (0, 0, 2)
    assert deleted(present, second, absent) == (0, 0, 2)
    # In a larger table the look ends with the first key that is there, and so knows nothing of the second.
    monkeypatch.setattr(merge_builder, "_COUNTED_ROWS_MAX", 0)
    assert deleted(present, second) is None
    assert deleted(present, present) == deleted(absent, present) == (0, 0, 1)
    rows = pa.concat_tables([many_absent, pa.Table.from_pylist([present, present, second])])
    assert table.delete(rows).row_counts.deleted == 2


def test_a_delete_does_not_count_keys_that_others_changed_after_its_look(catalog, monkeypatch):
    table = _orders(catalog)
    find_records = merge_builder.find_records

    def overtaken(*arguments, **options):
        steps = find_records(*arguments, **options)
        monkeypatch.undo()
        lsm.open_table(table.location).delete([{"shop": "a", "id": 1}])
        return steps

    monkeypatch.setattr(merge_builder, "find_records", overtaken)
    assert table.delete([{"shop": "a", "id": 1}]).row_counts is None
    assert table.to_arrow().to_pylist() == [{"shop": "b", "id": 2}]


def test_a_delete_whose_look_is_overtaken_by_an_expiry_is_committed(catalog, monkeypatch):
    table = catalog.create_table(
        "db.t", {"id": "BIGINT", "v": "BIGINT"}, "id", options={"bucket": "1"}
    )
    table.upsert([{"id": 1, "v": 1}, {"id": 3, "v": 3}])
    find_records = merge_builder.find_records

    def overtaken(*arguments, **options):
        monkeypatch.undo()
        other = lsm.open_table(table.location)
        other.upsert([{"id": 1, "v": 2}])
        other.compact(full=True)
        other.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
        return find_records(*arguments, **options)

    monkeypatch.setattr(merge_builder, "find_records", overtaken)
    assert table.delete([{"id": 2}]) is not None
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 2}, {"id": 3, "v": 3}]


def test_a_look_for_few_keys_reads_the_row_groups_that_may_hold_them(catalog, monkeypatch):
    table = catalog.create_table("db.t", {"id": "BIGINT"}, "id", options={"bucket": "1"})
    table.upsert(pa.table({"id": range(0, 600_000, 2)}))  # three row groups
    table.delete([2])
    read_groups = []
    read = DataFileReader.read
    monkeypatch.setattr(
        DataFileReader,
        "read",
        lambda reader, groups=None: read_groups.append(groups) or read(reader, groups),
    )
    assert table.delete([300_001]) is None
    assert table.delete([2, 599_997]) is None  # 2 is deleted by a newer file
    asked = pa.table({"id": [0, 2, 299_998, 300_001, 599_998]})
    locations = locate_rows(table.session, asked, table.latest_snapshot())
    assert locations.is_there.tolist() == [True, False, True, False, True]
    assert locations.position[locations.is_there].tolist() == [0, 149_999, 299_999]
    assert [groups for groups in read_groups if groups is not None] == [[1], [2], [0, 1, 2]]
    assert table.delete([599_998]) is not None


def test_a_delete_that_did_its_work_is_a_replay_the_second_time(catalog):
    table = _orders(catalog)
    number = {"commit_user": "loader", "commit_identifier": 7}
    first = table.delete([{"shop": "a", "id": 1}], **number)
    assert table.delete([{"shop": "a", "id": 1}], **number).id == first.id


@pytest.mark.parametrize(
    ("method", "argument", "instead"),
    [
        ("delete", "predicate", "a condition is where="),
        ("update", "updates", "new values are set="),
        ("upsert", "schema_mode", "altering("),
        ("upsert", "join_cols", "merge(rows, on="),
        ("overwrite", "where", "chooses rows by partition="),
        ("scan", "row_filter", "a condition is where="),
        ("scan", "selected_fields", "columns are columns="),
        ("to_arrow", "filters", "a condition is where="),
        ("merge", "source_alias", "named source and target"),
    ],
)
def test_arguments_of_other_libraries_are_refused_with_the_argument_to_use(
    catalog, method, argument, instead
):
    table = _orders(catalog)
    with pytest.raises(TypeError, match=rf"'{argument}'; .*{re.escape(instead)}"):
        getattr(table, method)(*[[]] * (method not in ("scan", "to_arrow")), **{argument: "id"})


def test_conditions_and_computed_partitions_in_the_wrong_place_say_what_to_use(catalog):
    table = _orders(catalog)
    with pytest.raises(TypeError, match=r"'updates'; new values are set="):
        table.merge([]).when_matched_update(updates={"id": 1})
    with pytest.raises(lsm.InvalidInputError, match="no partitions, so that partition="):
        table.overwrite([], "id = 1")
    with pytest.raises(TypeError, match=r"'partition_by'; create_table has partitioned_by="):
        catalog.create_table("db.t", {"id": int}, partition_by=["id"])
    with pytest.raises(lsm.InvalidInputError, match="add a column with the computed value"):
        catalog.create_table("db.t", {"id": int}, partitioned_by=["bucket(16, id)"])


def test_a_zero_of_the_other_sign_deletes_the_same_row(catalog):
    table = catalog.create_table("db.t", {"x": float}, primary_key="x")
    table.upsert([{"x": 0.0}])
    table.delete([-0.0])
    assert table.count() == 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket": "-1"},
        {"bucket": "-2"},
        {"sequence.field": "at"},
        {"sequence.field": "at", "sequence.field.sort-order": "descending"},
        {"changelog-producer": "input"},
        {"changelog-producer": "lookup"},
        {"deletion-vectors.enabled": "true"},
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        {
            "merge-engine": "aggregation",
            "fields.at.aggregate-function": "sum",
            "fields.name.aggregate-function": "last_value",
            "aggregation.remove-record-on-delete": "true",
        },
    ],
    ids=lambda options: " ".join(map("=".join, options.items())) or "plain",
)
def test_keys_alone_delete_rows_of_columns_that_may_not_be_null(catalog, options):
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"], options=options)
    table.upsert(ROWS)
    assert table.delete([{"id": 2}, {"id": 1}, {"id": 1}, {"id": 9}]) is not None
    table.compact(full=True)
    assert table.to_arrow().to_pylist() == ROWS[2:]
    assert table.delete([{"id": 2}]) is None
    table.upsert(ROWS[:1])
    assert table.lookup([{"id": 1}])["name"].to_pylist() == ["a"]


def test_a_removal_told_of_in_changes_holds_the_row_that_went(catalog):
    options = {"changelog-producer": "input"}
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"], options=options)
    first = table.upsert(ROWS)
    table.delete([{"id": 3}])
    (change,) = table.changelog(after=first).to_pylist()
    assert change["name"] == "c"
    assert change["at"] == 7


def test_a_removal_with_its_own_sequence_is_as_new_as_that(catalog):
    options = {"sequence.field": "at"}
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"], options=options)
    table.upsert(ROWS)
    table.delete([{"id": 3, "name": "", "at": 6}, {"id": 1, "name": "", "at": -4}])
    assert [row["id"] for row in table.to_arrow().to_pylist()] == [2, 3]


def test_a_removal_of_a_column_that_may_not_be_null_is_refused_in_rows_of_kinds(catalog):
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"])
    table.upsert(ROWS)
    with pytest.raises(lsm.InvalidInputError, match="not a whole row"):
        table.upsert([{"id": 3, "name": None, "_row_kind": "-D"}])
    assert table.to_arrow().num_rows == len(ROWS)


def test_a_value_that_may_not_be_null_is_refused_by_name_in_a_deletion(catalog):
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"])
    table.upsert(ROWS)
    with pytest.raises(lsm.InvalidInputError, match="without a value in column 'name'"):
        table.delete([{"id": 3, "name": None}])
    sums = {"merge-engine": "aggregation", "fields.at.aggregate-function": "sum"}
    table = catalog.create_table("db.sums", WHOLE, primary_key=["id"], options=sums)
    with pytest.raises(lsm.InvalidInputError, match="may not be null"):
        table.delete([{"id": 3, "at": 1}])


def test_rows_that_can_be_read_once_are_deleted(catalog):
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"])
    table.upsert(ROWS)
    table.delete(pa.table({"id": [1, 2, 2]}).to_reader())
    assert table.to_arrow().to_pylist() == ROWS[2:]


def test_rows_that_wait_for_a_bucket_are_not_left_in_silence(catalog):
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "sequence.field": "at"}
    table = catalog.create_table("db.t", WHOLE, primary_key=["id"], options=options)
    table.upsert(ROWS)
    with pytest.raises(lsm.InvalidInputError, match="wait for a bucket"):
        table.delete([{"id": 1}])
    table.delete([{"id": 1, "name": "", "at": 0}])
    table.compact()
    assert [row["id"] for row in table.to_arrow().to_pylist()] == [2, 3]
