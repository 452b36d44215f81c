"""Change events in any order, in any batches, late and twice, give the table of all of them in their order."""

import os
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm

FLOW = {"keys": ["id"], "sequence_by": "lsn", "apply_as_deletes": "op = 'D'"}
EVENTS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("tags", pa.list_(pa.int32())), ("op", pa.string()), ("lsn", pa.int64())])  # fmt: skip


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path) as catalog:
        yield catalog


def events(*rows):
    """(id, city, op, lsn) each; the tags are those of the city."""
    names = ("id", "city", "op", "lsn")
    dicts = [dict(zip(names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist([{**row, "tags": [len(row["city"] or "")]} for row in dicts], EVENTS)  # fmt: skip


def versions(table):
    rows = table.to_arrow().sort_by([("id", "ascending"), ("__START_AT", "ascending")])
    return [tuple(row.values()) for row in rows.select(["id", "city", "__START_AT", "__END_AT"]).to_pylist()]  # fmt: skip


def expected(rows, scd_type):
    """The same from all events at once, one by one."""
    newest, closed = {}, []
    for key, city, op, lsn in sorted(rows, key=lambda row: row[3]):
        before = newest.get(key)
        if op == "D" or before is None or before[0] != city:
            if before is not None and scd_type == 2:
                closed.append((key, *before, lsn))
            newest[key] = None if op == "D" else (city, lsn)
    still_open = [(key, *row, None) for key, row in newest.items() if row is not None]
    return sorted(closed + still_open, key=lambda row: (row[0], row[2]))


@pytest.mark.parametrize("scd_type", [1, 2])
def test_events_in_any_order_and_twice_give_what_they_give_in_theirs(catalog, scd_type):
    choices = random.Random(scd_type)
    flow = {**FLOW, "stored_as_scd_type": scd_type, "except_column_list": ["op", "lsn"]}
    for case in range(int(os.environ.get("LSM_CDC_CASES", "1"))):
        sequence = choices.sample(range(100), 24)
        rows = [
            (choices.randrange(3), choices.choice("AB"), choices.choice("UUUD"), lsn)
            for lsn in sequence
        ]
        table = catalog.create_auto_cdc_table(f"db.t{case}", EVENTS, options={"bucket": "2"}, **flow)  # fmt: skip
        rows_left = rows[:]
        while rows_left:
            size = choices.randrange(1, 8)
            batch, rows_left = rows_left[:size], rows_left[size:]
            again = choices.sample(rows, 2) if choices.random() < 0.3 else []
            table.auto_cdc(events(*batch, *(row for row in again if row not in rows_left)), **flow)
            if choices.random() < 0.3:
                table.compact(full=True)  # drops deletions
        if scd_type == 2:
            assert versions(table) == expected(rows, 2), rows
        else:
            newest = {row[0]: row[1] for row in expected(rows, 1)}
            last = {}
            for row in sorted(rows, key=lambda row: row[3]):
                last[row[0]] = row[3]
            stored = table.to_arrow()
            assert dict(zip(*(stored[name].to_pylist() for name in ("id", "city")), strict=True)) == newest, rows  # fmt: skip
            assert {row["id"]: row["__SEQUENCE"] for row in stored.to_pylist()} == {key: last[key] for key in newest}  # fmt: skip


def test_a_late_event_is_put_between_versions_and_a_repeated_one_opens_none(catalog):
    flow = {**FLOW, "stored_as_scd_type": "2", "column_list": ["id", "city"]}
    table = catalog.create_auto_cdc_table("db.t", EVENTS, **flow)
    first = table.auto_cdc(events((1, "A", "I", 1), (1, "A", "U", 3)), **flow)
    assert lsm.row_counts_of(first.properties) == lsm.RowCounts(inserted=1)
    assert versions(table) == [(1, "A", 1, None)]
    second = table.auto_cdc(events((1, "B", "U", 2)), **flow)
    assert lsm.row_counts_of(second.properties) == lsm.RowCounts(inserted=2, updated=1)
    assert versions(table) == [(1, "A", 1, 2), (1, "B", 2, 3), (1, "A", 3, None)]
    table.auto_cdc(events((1, "A", "U", 2)), **flow)  # the source corrects it
    assert versions(table) == [(1, "A", 1, None)]
    assert table.auto_cdc(events((9, None, "D", 5)), **flow) is None
    table.auto_cdc(events((9, "Z", "I", 4)), **flow)
    assert versions(table)[1:] == [(9, "Z", 4, 5)]


def test_zeros_of_a_key_have_one_history_and_so_have_its_nans(catalog):
    """Both versions stayed open: neither a filter nor a join of Arrow finds NaN by NaN, and 0.0 by -0.0."""
    flow = {**FLOW, "stored_as_scd_type": 2, "column_list": ["id", "city"]}

    def floating(*rows):
        keys = pa.array([row[0] for row in rows], pa.float64())
        return events(*((1, *row[1:]) for row in rows)).set_column(0, "id", keys)

    table = catalog.create_auto_cdc_table("db.t", floating((0.0, "A", "I", 1)), **flow)
    nan = float("nan")
    table.auto_cdc(floating((0.0, "A", "I", 1), (nan, "N", "I", 1), (5.0, "F", "I", 1)), **flow)
    table.auto_cdc(floating((-0.0, "B", "U", 2), (nan, "M", "U", 2)), **flow)
    assert sorted(row[1:] for row in versions(table)) == [
        ("A", 1, 2), ("B", 2, None), ("F", 1, None), ("M", 2, None), ("N", 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_batch_that_comes_again_is_applied_once(catalog, scd_type):
    flow = {**FLOW, "stored_as_scd_type": scd_type}
    table = catalog.create_auto_cdc_table("db.t", EVENTS, **flow)
    for number, row in ((1, (1, "A", "I", 1)), (2, (1, "B", "U", 2)), (1, (1, "A", "I", 1))):
        table.auto_cdc(events(row), commit_user="feed", commit_identifier=number, **flow)
    assert table.latest_snapshot().id == 2
    assert table.to_arrow()["city"].to_pylist() == (["B"] if scd_type == 1 else ["A", "B"])


def test_sequences_and_deletions_may_be_computed_and_columns_may_be_added(catalog):
    flow = {"keys": "id", "sequence_by": "lsn * 10", "apply_as_deletes": pc.field("op") == "D", "except_column_list": ["tags", "op"], "stored_as_scd_type": 2}  # fmt: skip
    table = catalog.create_auto_cdc_table("db.t", EVENTS, **flow)
    table.auto_cdc(events((1, "A", "I", 1), (1, "A", "D", 2)), **flow)
    assert table.to_arrow().select(["lsn", "__START_AT", "__END_AT"]).to_pylist() == [{"lsn": 1, "__START_AT": 10, "__END_AT": 20}]  # fmt: skip
    table.alter(lsm.AddColumn("note", str))
    noted = events((2, "B", "I", 1), (2, "B", "I", 3)).append_column("note", pa.array(["x", "x"]))
    table.auto_cdc(noted.set_column(4, "lsn", pa.array([1, 1])).set_column(3, "op", pa.array(["I", "D"])), **flow)  # fmt: skip
    table.auto_cdc(noted.slice(1), **flow)
    assert table.to_arrow(where="id = 2")["note"].to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sequence_by": None}, "needs keys= and sequence_by="),
        ({"column_list": ["id"], "except_column_list": ["op"]}, "not both"),
        ({"stored_as_scd_type": 3}, "is 1 or 2"),
        ({"column_list": ["city"]}, "have to include the keys"),
        ({"except_column_list": ["colour"]}, "no column 'colour'"),
        ({"track_history_column_list": ["city"]}, "has no argument 'track_history_column_list'"),
        ({"keys": ["id", "city"]}, "create_auto_cdc_table"),
        ({"sequence_by": 5}, "a column's name, or SQL text"),
    ],
)
def test_wrong_flows_are_refused(catalog, change, text):
    table = catalog.create_auto_cdc_table("db.t", EVENTS, **FLOW)
    with pytest.raises(lsm.InvalidInputError, match=text):
        table.auto_cdc(events((1, "A", "I", 1)), **{**FLOW, **change})
    assert table.latest_snapshot() is None


def test_events_without_a_sequence_and_branches_are_refused(catalog):
    table = catalog.create_auto_cdc_table("db.t", EVENTS, **FLOW)
    with pytest.raises(lsm.InvalidInputError, match="null in 1 event"):
        table.auto_cdc(events((1, "A", "I", None)), **FLOW)
    table.create_branch("fix")
    with pytest.raises(lsm.UnsupportedError, match="apply them to the table"):
        table.branch("fix").auto_cdc(events((1, "A", "I", 1)), **FLOW)
    assert table.auto_cdc(events(), **FLOW) is None
