"""What users of pandas, deltalake and a shell tried first, and were misled by."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("price", pa.decimal128(10, 2)),
    ]
)
ROWS = [
    {"id": 1, "s": "a", "n": 1, "price": Decimal("990.50")},
    {"id": 2, "s": None, "n": None, "price": None},
    {"id": 3, "s": "b", "n": 3, "price": Decimal("10.00")},
]


@pytest.fixture
def table(tmp_path: Path) -> lsm.Table:
    table = lsm.open_catalog(tmp_path / "lake").create_table("s.t", SCHEMA, "id")
    table.upsert(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    return table


def ids(table: lsm.Table, where: str) -> list[int]:
    return sorted(table.to_arrow("id", where=where)["id"].to_pylist())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n IS DISTINCT FROM 1", [2, 3]),
        ("n IS NOT DISTINCT FROM 1", [1]),
        ("n IS NOT DISTINCT FROM NULL", [2]),
        ("n <=> id", [1, 3]),
        ("NOT (n <=> id)", [2]),
        ("s IS DISTINCT FROM 'a' AND id > 1", [2, 3]),
        ("(id <=> 2) OR s = 'b'", [2, 3]),
    ],
)
def test_conditions_compare_nulls(table: lsm.Table, where: str, expected: list[int]) -> None:
    assert ids(table, where) == expected
    table.delete(where=where)
    assert sorted(table.to_arrow("id")["id"].to_pylist()) == [
        key for key in (1, 2, 3) if key not in expected
    ]


def test_a_merge_compares_nulls(table: lsm.Table) -> None:
    source = pa.table({"id": [1, 2], "n": pa.array([1, None], pa.int32()), "s": ["new", "new"]})
    merge = table.merge(source).when_matched_update_all("source.n IS DISTINCT FROM target.n")
    assert merge.execute() is None
    source = source.set_column(1, "n", pa.array([None, 5], pa.int32()))
    table.merge(source).when_matched_update_all("NOT source.n <=> target.n").execute()
    assert table.to_arrow("n", where="id < 3")["n"].to_pylist() == [None, 5]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("price / 3 > 300", [1]),
        ("coalesce(price, 0) > 990", [1]),
        ("coalesce(price, n, 0) = 0", [2]),
        ("greatest(price, 100) = 100", [2, 3]),
        ("price / n > 900", [1]),
        ("price / n > n", [1, 3]),
        ("price IN (10, 990.5)", [1, 3]),
        ("price * 2 BETWEEN 20 AND 21", [3]),
        ("price / price = 1", [1, 3]),
        ("CASE WHEN price > 500 THEN price ELSE 0 END > 0", [1]),
        ("nullif(price, 10) IS NULL", [2, 3]),
    ],
)
def test_decimals_are_computed_with_whole_numbers(
    table: lsm.Table, where: str, expected: list[int]
) -> None:
    assert ids(table, where) == expected


def test_a_long_decimal_is_divided(tmp_path: Path) -> None:
    table = lsm.open_catalog(tmp_path / "lake").create_table(
        "s.t", lsm.columns_of_text("id BIGINT, price DECIMAL(38, 10)"), "id"
    )
    table.upsert([{"id": 1, "price": Decimal("900.5")}])
    assert ids(table, "price / 3 > 300") == [1]
    with pytest.raises(lsm.InvalidInputError, match="divide by zero"):
        ids(table, "price / 0 > 300")


def test_a_clause_of_a_merge_counts_without_an_assignment(table: lsm.Table) -> None:
    source = pa.table({"id": [1, 9], "s": ["new", "new"]})
    merge = table.merge(source).when_matched_update_all()
    merge.when_not_matched_insert_all()
    merge.execute()
    assert ids(table, "s = 'new'") == [1, 9]


def test_an_index_of_pandas_is_no_column(table: lsm.Table) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [5, 6, 7], "s": ["x", "y", "z"]})
    table.upsert(frame[frame["id"] > 5])
    assert ids(table, "id > 4") == [6, 7]
    table.upsert(frame.set_index("id"))  # an index with a name is a column
    assert ids(table, "id > 4") == [5, 6, 7]
    positions = frame.set_index(pandas.MultiIndex.from_tuples([(1, 2), (1, 3), (2, 1)]))
    table.upsert(positions)
    assert table.count() == 6


def test_a_column_named_as_an_index_of_a_table_without_pandas_is_refused(table: lsm.Table) -> None:
    with pytest.raises(lsm.InvalidInputError, match="no column '__index_level_0__'"):
        table.upsert(pa.table({"id": [1], "__index_level_0__": [1]}))


def test_defaults_may_be_values(table: lsm.Table) -> None:
    table.alter(
        lsm.AddColumn("day", "DATE"),
        lsm.AddColumn("ok", "BOOLEAN"),
        lsm.AddColumn("at", "TIMESTAMP(6)"),
    )
    moment = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
    values = {"n": 5, "price": Decimal("1.50"), "day": date(2026, 1, 1), "ok": True, "at": moment}  # fmt: skip
    table.alter(*(lsm.SetColumnDefault(name, value) for name, value in values.items()))
    table.upsert([{"id": 9}])
    (row,) = table.to_arrow(where="id = 9").to_pylist()
    assert row == {"id": 9, "s": None, **values}
    with pytest.raises(lsm.InvalidInputError, match=r"not \[1\]: SetColumnDefault\(name, value\)"):
        table.alter(lsm.SetColumnDefault("n", [1]))


def test_a_point_in_time_is_restored(table: lsm.Table) -> None:
    (first,) = table.snapshots()
    moment = datetime.fromtimestamp(first.time_millis / 1000, UTC)
    table.delete(where="id = 1")
    table.rollback_to_as_latest(as_of=moment)
    assert table.count() == 3
    table.delete(where="id = 1")
    table.rollback_to(as_of=moment)
    assert table.count() == 3
    with pytest.raises(lsm.NotFoundError):
        table.rollback_to(as_of=moment - timedelta(days=1))
    with pytest.raises(lsm.InvalidInputError, match="both name a time"):
        table.rollback_to(as_of=moment, as_of_millis=1)
    with pytest.raises(TypeError, match=r"rollback_to_as_latest\(\) got .* 'version'"):
        table.rollback_to_as_latest(version=1)  # type: ignore[call-arg]


def test_changes_take_the_mode_as_the_enumeration(table: lsm.Table) -> None:
    table.upsert([{"id": 1, "s": "new", "n": 1, "price": None}])
    for mode in (lsm.ChangeMode.DIFF, "diff"):
        changes = table.changes.to_arrow(after=1, mode=mode)
        assert sorted(changes["_row_kind"].to_pylist()) == ["+U", "-U"]


ERRORS = [
    (lambda table: table.delete(pa.table({"id": [1], "op": ["d"]})),
     r"no column 'op'; a delete by rows takes the key alone, such as rows\[\['id'\]\]"),
    (lambda table: table.upsert([{"id": 1, "zzz": 1}]), "or open the table again if it was added"),
    (lambda table: table.alter(lsm.SetNullable("n", False)), "allows nulls, .*make a new table"),
    (lambda table: lsm.MoveColumn("n", "first"), r"MoveColumn\(name, first=, after=\)"),
    (lambda table: lsm.columns_of_text("c STRING DEFAULT 'x'"), r"SetColumnDefault\(column, value\)"),
    (lambda table: table.add_constraint, "no check constraints"),
    (lambda table: table.to_arrow(timestamp=1), "a point in time is as_of=datetime"),
    (lambda table: lsm.open_table("x", storage_options={}), r"storage=\{name: value\}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), ERRORS, ids=[says[:20] for _, says in ERRORS])
def test_errors_name_what_to_do(table: lsm.Table, call, says: str) -> None:
    with pytest.raises((lsm.InvalidInputError, AttributeError, TypeError), match=says):
        call(table)


def test_batches_of_a_dataset_have_the_size_that_is_asked_for(table: lsm.Table) -> None:
    dataset = table.to_dataset()
    assert [batch.num_rows for batch in dataset.to_batches(batch_size=2)] == [2, 1]
    assert [batch.num_rows for batch in dataset.to_batches()] == [3]


def test_reports_are_shown_as_a_sentence(table: lsm.Table) -> None:
    for key in range(20):
        table.upsert([{"id": key}])
    reports = (
        table.maintenance.expire(dry_run=True, retain_max=1, retain_min=1, older_than="0 ms"),
        table.rollback_to(1, dry_run=True),
        table.maintenance.remove_orphan_files(dry_run=True),
    )
    for report in reports:
        assert repr(report) == f"<{type(report).__name__}: {report}>"
        assert len(repr(report)) < 400


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_changes_of_an_overwrite_and_a_restore_are_as_the_page_says(
    tmp_path: Path, producer: str
) -> None:
    table = lsm.open_catalog(tmp_path / "lake").create_table(
        "s.t", {"id": int, "s": str}, "id", options={"changelog-producer": producer}
    )
    table.upsert([{"id": 1, "s": "a"}, {"id": 2, "s": "b"}])
    table.delete(where="id = 1")
    table.upsert([{"id": 2, "s": "new"}])
    before, state = table.latest_snapshot(), {2: "new"}
    table.rollback_to_as_latest(1)
    table.overwrite([{"id": 1, "s": "c"}])
    table.compact(full=True)
    kinds = set(table.changes.to_arrow(after=before)["_row_kind"].to_pylist())
    assert kinds == (set() if producer == "none" else {"+I"})
    for row in table.changes.to_arrow(after=before, overwrites=True).to_pylist():
        if row["_row_kind"] == "-D":
            state.pop(row["id"], None)
        elif row["_row_kind"] != "-U":
            state[row["id"]] = row["s"]
    assert state == {1: "c"}


def test_a_new_catalog_of_a_store_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a second machine a full lake looked empty."""
    monkeypatch.chdir(tmp_path)
    storage = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key": "a", "s3.secret-key": "b"}
    for expected in (True, False):
        caplog.clear()
        lsm.open_catalog("s3://bucket/lake", storage=storage)
        texts = [record.getMessage() for record in caplog.records]
        assert [("register_found_tables()" in text) for text in texts] == [True] * expected
    lsm.open_catalog(f"sqlite:///{tmp_path}/shared.db", warehouse="s3://bucket/lake", storage=storage)  # fmt: skip
    assert not caplog.records


def test_a_delta_table_is_not_opened_but_imported(tmp_path: Path) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "0.json").touch()
    with pytest.raises(lsm.NotFoundError, match="a Delta table, whose rows lsm import takes over"):
        lsm.open_table(str(tmp_path / "delta"))
