"""Rows that need another schema: it is published once they are accepted, or not at all."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api.table import Table
from lsm_engine.metadata.schemas import SchemaStore
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.table.session import TableSession

COLUMNS = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int64(), nullable=False),
     ("n", pa.int32()), ("old", pa.string())]
)  # fmt: skip
CHANGES = (lsm.AddColumn("new", "STRING"), lsm.ChangeType("n", "BIGINT"), lsm.DropColumn("old"))
FITS = [{"p": 1, "k": 1, "n": 1 << 40, "new": "x"}]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lsm.Table]:
    with lsm.open_catalog(tmp_path) as catalog:
        made = catalog.create_table(
            "db.t", COLUMNS, primary_key=["p", "k"], partitioned_by="p", options={"bucket": "1"}
        )
        made.upsert([{"p": 1, "k": 1, "n": 1, "old": "a"}, {"p": 2, "k": 2, "n": 2, "old": "b"}])
        yield made


def files(table: lsm.Table) -> set[str]:
    root = Path(table.location)
    return {str(each.relative_to(root)) for each in root.rglob("*") if each.is_file()}


WRITES: dict[str, Callable[[lsm.Table, Any], Any]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "overwrite": lambda table, rows: table.overwrite(rows, {"p": 1}),
    "merge": lambda table, rows: (
        table.merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()
    ),
    "stream": lambda table, rows: _streamed(table, rows),
}


def _streamed(table: lsm.Table, rows: Any) -> None:
    with table.writer() as writer:
        writer.write(rows)
        writer.commit()


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_publishes_the_schema_that_it_needs(table: lsm.Table, verb: str) -> None:
    WRITES[verb](table.altering(*CHANGES), FITS)
    opened = lsm.open_table(table.location)
    assert opened.schema.names == ("p", "k", "n", "new")
    assert opened.schema.id == 1
    rows = opened.scan().to_arrow().sort_by("k").to_pylist()
    assert rows == [*FITS, {"p": 2, "k": 2, "n": 2, "new": None}]
    assert opened.latest_snapshot().schema_id == 1
    assert opened.verify(deep=True).is_clean


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize(
    "rows",
    [[{"p": 1, "k": None, "n": 1}], [{"p": 1, "k": 1, "n": "x"}], [{"p": 1, "k": 1, "new": 2}]],
)
def test_refused_rows_leave_the_table_as_it_was(table: lsm.Table, verb: str, rows: Any) -> None:
    before = files(table)
    with pytest.raises(lsm.InvalidInputError):
        WRITES[verb](table.altering(*CHANGES), rows)
    assert files(table) == before
    table.upsert([{"p": 1, "k": 3, "n": 3, "old": "c"}])
    table.alter(lsm.AddColumn("other", "INT"))
    assert table.scan(columns=["old"]).to_arrow()["old"].to_pylist().count("a") == 1


def test_no_rows_publish_it_and_no_change_is_the_table(table: lsm.Table) -> None:
    assert table.altering().upsert(FITS[:0]) is None
    assert lsm.open_table(table.location).schema.id == 0
    assert table.altering(*CHANGES).upsert(FITS[:0]) is None
    assert lsm.open_table(table.location).schema.names == ("p", "k", "n", "new")


def test_who_comes_second_is_refused_and_leaves_no_file(table: lsm.Table) -> None:
    planned = table.altering(*CHANGES)
    table.alter(lsm.AddColumn("first", "INT"))
    before = files(table)
    with pytest.raises(lsm.CommitConflictError, match="have altered the table"):
        planned.upsert(FITS)
    assert files(table) == before


def test_a_table_that_is_dropped_meanwhile_takes_no_rows(table: lsm.Table) -> None:
    planned = table.altering(*CHANGES)
    shutil.rmtree(table.location)
    with pytest.raises(lsm.LsmError):
        planned.upsert(FITS)
    assert not files(table)


@pytest.mark.parametrize("store", [SchemaStore, SnapshotStore])
def test_a_drop_that_listed_the_schemas_before_is_noticed(
    table: lsm.Table, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, publish = table.altering(*CHANGES), store.publish

    def meanwhile(self: Any, document: Any) -> Any:
        for path in (*Path(table.location, "schema").glob("schema-0"), *snapshots()):
            path.unlink()
        return publish(self, document)

    def snapshots() -> list[Path]:
        return list(Path(table.location, "snapshot").iterdir())

    monkeypatch.setattr(store, "publish", meanwhile)
    with pytest.raises(lsm.NotFoundError, match="was dropped"):
        planned.upsert(FITS)
    assert not [path for path in snapshots() if path.name.startswith("snapshot-")]


def test_the_equal_schema_of_a_table_made_anew_stays(
    table: lsm.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds its schema published by others must not delete it: it is the new table's."""
    planned, publish = table.altering(*CHANGES), SchemaStore.publish

    def meanwhile(self: SchemaStore, schema: Any) -> Any:
        monkeypatch.undo()
        with lsm.open_catalog(Path(table.location).parents[1]) as catalog:
            catalog.drop_table("db.t")
            keys = {"primary_key": ["p", "k"], "partitioned_by": "p", "options": {"bucket": "1"}}
            catalog.create_table("db.t", COLUMNS, **keys).alter(*CHANGES)
        return publish(self, schema)

    monkeypatch.setattr(SchemaStore, "publish", meanwhile)
    with pytest.raises(lsm.NotFoundError, match="was dropped"):
        planned.upsert(FITS)
    anew = lsm.open_table(table.location)
    assert (anew.schema.id, anew.schema.names) == (1, ("p", "k", "n", "new"))
    anew.upsert(FITS)
    assert anew.verify(deep=True).is_clean


def test_another_schema_of_a_table_made_anew_stays(
    table: lsm.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drop has deleted the schema of the plan, and the new table was altered before the look."""
    planned, publish = table.altering(*CHANGES), SchemaStore.publish

    def and_then(self: SchemaStore, schema: Any) -> Any:
        monkeypatch.undo()
        published = publish(self, schema)
        with lsm.open_catalog(Path(table.location).parents[1]) as catalog:
            catalog.drop_table("db.t")
            keys = {"primary_key": ["p", "k"], "partitioned_by": "p", "options": {"bucket": "1"}}
            catalog.create_table("db.t", COLUMNS, **keys).alter(lsm.AddColumn("extra", "INT"))
        return published

    monkeypatch.setattr(SchemaStore, "publish", and_then)
    with pytest.raises(lsm.NotFoundError, match="was dropped"):
        planned.upsert(FITS)
    anew = lsm.open_table(table.location)
    assert (anew.schema.id, anew.schema.names) == (1, ("p", "k", "n", "old", "extra"))
    assert anew.verify(deep=True).is_clean


def test_rows_that_wait_for_buckets_get_them_by_the_schema_in_force(tmp_path: Path) -> None:
    with lsm.open_catalog(tmp_path) as catalog:
        options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
        made = catalog.create_table(
            "db.t", COLUMNS, primary_key=["p", "k"], partitioned_by="p", options=options
        )
        made.upsert([{"p": 1, "k": 1, "n": 1, "old": "a"}])
        made.alter(lsm.SetOption("postpone.batch-write-fixed-bucket", "true"))
        with pytest.raises(lsm.InvalidInputError):
            made.altering(*CHANGES).upsert([{"p": 1, "k": None}])
        assert "new" not in lsm.open_table(made.location).schema.names
        made.altering(*CHANGES).upsert([{"p": 1, "k": 2, "n": 2, "new": "y"}])
        assert lsm.open_table(made.location).count() == 2


def test_whoever_commits_first_publishes_it_for_every_session_of_the_plan(
    table: lsm.Table,
) -> None:
    planned = table.altering(*CHANGES)
    session = planned.session
    for derived in (
        session.with_components(session.components),
        session.with_options(session.options),
    ):
        Table(derived, planned.location).upsert(FITS)
    planned.upsert([{"p": 1, "k": 9, "n": 9, "new": "z"}])
    opened = lsm.open_table(table.location)
    assert [opened.schema.id, opened.count()] == [1, 3]
    assert opened.verify(deep=True).is_clean


def test_no_snapshot_names_a_schema_that_nobody_published(table: lsm.Table) -> None:
    planned, before = table.altering(*CHANGES).session, files(table)
    lost = TableSession(planned.name, planned.components, planned.schema)
    with pytest.raises(lsm.NotFoundError, match="was dropped"):
        Table(lost, table.location).upsert(FITS)
    assert files(table) == before


@pytest.mark.parametrize(
    ("change", "meanwhile"),
    [
        (
            lsm.ChangeType("n", "SMALLINT"),
            lambda other: other.upsert([{"p": 1, "k": 9, "n": 1 << 20}]),
        ),
        (lsm.SetOption("ignore-delete", "true"), lambda other: other.delete([{"p": 2, "k": 2}])),
    ],
)
def test_rows_that_came_since_the_plan_are_looked_at_too(
    table: lsm.Table, change: Any, meanwhile: Callable[[lsm.Table], Any]
) -> None:
    planned, other = table.altering(change), lsm.open_table(table.location)
    meanwhile(other)
    before, rows = files(table), other.scan().to_arrow()
    with pytest.raises(lsm.LsmError, match=r"would not fit|may hold -U and -D"):
        planned.upsert([{"p": 1, "k": 5, "n": 5}])
    assert files(table) == before
    assert lsm.open_table(table.location).scan().to_arrow().equals(rows)


def test_commits_since_the_plan_that_suit_the_schema_do_not_matter(table: lsm.Table) -> None:
    planned = table.altering(lsm.ChangeType("n", "SMALLINT"))
    lsm.open_table(table.location).upsert([{"p": 1, "k": 9, "n": 9}])
    planned.upsert([{"p": 1, "k": 5, "n": 5}])
    assert lsm.open_table(table.location).count() == 4


def test_further_changes_add_to_those_planned(table: lsm.Table) -> None:
    chained = table.altering(*CHANGES).altering(lsm.AddColumn("second", "INT"))
    assert chained.schema.names == ("p", "k", "n", "new", "second")
    chained.upsert([{**FITS[0], "second": 2}])
    schema = chained.altering(lsm.AddColumn("third", "INT")).alter(lsm.DropColumn("second"))
    assert schema.names == lsm.open_table(table.location).schema.names
    assert (schema.names, schema.id) == (("p", "k", "n", "new", "third"), 2)


@pytest.mark.parametrize("failure", [lsm.StorageError, lsm.CommitUnknownError])
def test_files_stay_only_where_the_outcome_is_unknown(
    table: lsm.Table, failure: type[lsm.LsmError], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, before = table.altering(*CHANGES), files(table)

    def fails(_: SchemaStore, __: Any) -> bool:
        raise failure("the disk is full")

    monkeypatch.setattr(SchemaStore, "publish", fails)
    with pytest.raises(failure):
        planned.upsert(FITS)
    left = [Path(path).name.partition("-")[0] for path in files(table) - before]
    assert left == ([] if failure is lsm.StorageError else ["data"])


def test_two_writes_that_need_the_same_changes_both_land(table: lsm.Table) -> None:
    mine, theirs = table.altering(*CHANGES), lsm.open_table(table.location).altering(*CHANGES)
    theirs.upsert([{**FITS[0], "k": 70}])
    mine.upsert([{**FITS[0], "k": 71}])
    found = lsm.open_table(table.location)
    assert found.schema.id == 1
    assert {70, 71} <= set(found.to_arrow()["k"].to_pylist())


def test_work_on_files_by_a_table_opened_before_a_column_was_added_keeps_its_values(
    tmp_path: Path,
) -> None:
    """Whoever writes rows anew knows every column of the files, however long the table has been open."""
    acts: dict[str, Callable[[lsm.Table], object]] = {
        "compact": lambda table: table.compact(full=True),
        "compact after a write": lambda table: [
            table.upsert([{"k": 50 + turn, "v": "late"}]) for turn in range(6)
        ],
        "rescale": lambda table: table.rescale(3),
        "append": lambda table: table.compact(full=True),
        "give buckets": lambda table: table.compact(full=True),
    }
    with lsm.open_catalog(tmp_path) as catalog:
        for number, (name, act) in enumerate(acts.items()):
            options = {"bucket": "-2" if name == "give buckets" else "2"}
            if name == "append":
                options = {"bucket": "-1", "write-only": "true"}
            elif name == "compact after a write":
                options["num-sorted-run.compaction-trigger"] = "3"
            elif name == "give buckets":
                options["postpone.batch-write-fixed-bucket"] = "false"
            else:
                options["write-only"] = "true"
            old = catalog.create_table(
                f"db.s{number}",
                {"k": int, "v": str},
                primary_key=() if name == "append" else "k",
                options=options,
            )
            _put(old, [{"k": key, "v": "first"} for key in range(6)])
            opened = lsm.open_table(old.location)
            opened.alter(lsm.AddColumn("x", "INT"), lsm.ChangeType("v", "STRING"))
            changed = [{"k": key, "v": "second", "x": key} for key in range(6, 12)]
            _put(lsm.open_table(old.location), changed)
            act(old)
            rows = lsm.open_table(old.location).to_arrow().to_pylist()
            assert {row["k"]: row["x"] for row in rows if row["k"] < 12} == {
                key: key if key > 5 else None for key in range(12)
            }, name
            assert lsm.open_table(old.location).verify(deep=True).is_clean


def _put(table: lsm.Table, rows: list[dict[str, object]]) -> None:
    if table.schema.has_primary_key:
        table.upsert(rows)
    else:
        table.append(rows)


@pytest.mark.parametrize("verb", WRITES)
def test_the_handle_that_planned_a_schema_goes_on_with_it(table: lsm.Table, verb: str) -> None:
    planned = table.altering(*CHANGES)
    with pytest.raises(lsm.LsmError):
        WRITES[verb](planned, [{"p": 1, "k": None, "n": 1, "new": "x"}])
    assert table.schema.names == ("p", "k", "n", "old")
    WRITES[verb](planned, FITS)
    assert table.schema.names == planned.schema.names == ("p", "k", "n", "new")
    table.upsert([{"p": 1, "k": 3, "n": 1 << 41, "new": "z"}])
    assert table.lookup([{"p": 1, "k": 3}]).to_pylist()[0]["new"] == "z"


def test_handles_follow_the_one_of_them_that_publishes(table: lsm.Table) -> None:
    first = table.altering(*CHANGES)
    second = first.altering(lsm.AddColumn("second", "INT"))
    second.upsert([{**FITS[0], "second": 2}])
    assert table.schema.names == second.schema.names == ("p", "k", "n", "new", "second")
    second.alter(lsm.SetOption("write-only", "true"))
    assert table.options.texts["write-only"] == "true"
    with pytest.raises(lsm.CommitConflictError, match="have altered the table"):
        first.upsert(FITS)
