"""Schema changes: by id, all or none, refused where keys or old files forbid them."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.api.open_table import open_table
from lsm_engine.base.errors import ErrorKind
from lsm_engine.types.alteration import apply_changes
from lsm_engine.types.types import DataField, RowType

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("ts", pa.timestamp("us")),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)


@pytest.fixture
def table(tmp_path) -> lsm.Table:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.t",
            COLUMNS,
            primary_key=["id", "day"],
            partitioned_by=["day"],
            options={"bucket": 2, "sequence.field": "ts", "fields.n.stats-mode": "full"},
        )
        made.upsert(rows(made, [(1, "a", 10, "x"), (2, "b", 20, "y")]))
        yield made


def rows(table: lsm.Table, values: list[tuple[object, ...]]) -> pa.Table:
    names = ["id", "day", "n", "s"]
    return pa.Table.from_pylist(
        [dict(zip(names, value, strict=True)) for value in values],
        schema=pa.schema([table.schema.arrow.field(name) for name in names]),
    )


def read(table: lsm.Table, *names: str) -> list[dict[str, object]]:
    return table.scan(columns=list(names)).to_arrow().sort_by(names[0]).to_pylist()


def test_added_columns_are_null_in_older_rows(table: lsm.Table) -> None:
    table.alter(lsm.AddColumn(name="extra", type="BIGINT", after="n", comment="new"))
    assert table.schema.names == ("id", "day", "n", "extra", "s", "ts", "place")
    assert table.schema.field("extra").id == 8  # the structure's two fields have ids as well
    table.upsert([{"id": 3, "day": "a", "extra": 7}])
    assert [row["extra"] for row in read(table, "id", "extra")] == [None, None, 7]
    table.compact(full=True)
    assert [row["extra"] for row in read(table, "id", "extra")] == [None, None, 7]


def test_a_column_added_again_is_another_one(table: lsm.Table) -> None:
    table.alter(lsm.DropColumn(name="s"), lsm.AddColumn(name="s", type=pa.string()))
    assert [row["s"] for row in read(table, "id", "s")] == [None, None]


def test_renamed_columns_keep_their_values_and_options_follow(table: lsm.Table) -> None:
    table.alter(
        lsm.RenameColumn(name="n", new_name="count"),
        lsm.RenameColumn(name="ts", new_name="at"),
        lsm.RenameColumn(name="id", new_name="key"),
    )
    assert table.schema.primary_keys == ("key", "day")
    assert table.options.texts["fields.count.stats-mode"] == "full"
    assert table.options.texts["sequence.field"] == "at"
    assert read(table, "key", "count") == [{"key": 1, "count": 10}, {"key": 2, "count": 20}]
    table.upsert([{"key": 1, "day": "a", "count": 11}])
    table.compact(full=True)
    assert read(table, "key", "count")[0] == {"key": 1, "count": 11}
    assert table.verify().is_clean


def test_widened_types_read_old_values_and_filters_still_find_them(table: lsm.Table) -> None:
    table.alter(lsm.ChangeType(name="n", type="BIGINT"))
    table.upsert([{"id": 3, "day": "a", "n": 2**40}])
    assert table.scan(where=pc.field("n") == 10).count() == 1
    assert table.scan(where=pc.field("n") == 2**40).count() == 1


def test_narrowed_types_read_old_values_as_far_as_they_go(table: lsm.Table) -> None:
    table.upsert(rows(table, [(3, "a", 2**20 + 3, "a long text")]))
    table.alter(
        lsm.SetOption(key="alter-column.lossy-casts", value=True),
        lsm.ChangeType(name="n", type="SMALLINT"),
        lsm.ChangeType(name="s", type="VARCHAR(4)"),
    )
    table.upsert(rows(table, [(4, "b", 7, "four")]))
    for _ in range(2):
        found = read(table, "id", "n", "s")
        assert [row["n"] for row in found] == [10, 20, 3, 7]
        assert [row["s"] for row in found] == ["x", "y", "a lo", "four"]
        # What files say of their values is not what is read of them.
        assert table.scan(where=pc.field("n") == 3).count() == 1
        assert table.scan(where=pc.field("n") > 1_000).count() == 0
        assert table.scan(where=pc.field("s") == "a lo").count() == 1
        table.compact(full=True)
    assert table.verify().is_clean


def test_a_narrower_type_is_refused_with_the_number_of_values_that_do_not_fit(
    table: lsm.Table,
) -> None:
    table.upsert(rows(table, [(3, "a", 2**20 + 3, "x"), (4, "a", 70_000, "y"), (5, "a", 7, "z")]))
    for kind in ("SMALLINT", "TINYINT"):
        with pytest.raises(lsm.InvalidInputError, match="2 values of column") as refused:
            table.alter(lsm.ChangeType(name="n", type=kind))
        assert refused.value.kind is ErrorKind.LOSSY_CAST
        assert refused.value.facts == {"column": "n", "values": 2}
    table.upsert(rows(table, [(3, "a", 1, "x"), (4, "a", 2, "y")]))
    with pytest.raises(lsm.InvalidInputError, match="2 values"):
        table.alter(lsm.ChangeType(name="n", type="SMALLINT"))  # merges read replaced versions, too
    table.compact(full=True)
    table.alter(lsm.ChangeType(name="n", type="SMALLINT"))
    assert [row["n"] for row in read(table, "id", "n")] == [10, 20, 1, 2, 7]


def test_a_value_that_does_not_fit_is_refused_when_it_is_read(table: lsm.Table) -> None:
    """BIGINT 5,000,000,000 as INT is not 705,032,704: somebody else altered the table, or wrote late."""
    table.alter(lsm.ChangeType(name="n", type="BIGINT"))
    late = open_table(table.location)
    table.alter(lsm.ChangeType(name="n", type="INT"))
    late.upsert([{"id": 3, "day": "a", "n": 5_000_000_000}])
    with pytest.raises(lsm.UnsupportedError, match="1 value stored as BIGINT") as refused:
        table.scan().to_arrow()
    assert refused.value.kind is ErrorKind.LOSSY_CAST
    assert refused.value.facts["column"] == "n"
    assert str(refused.value.facts["file"]).endswith(".parquet")
    assert table.scan(columns=["id"]).count() == 3
    table.alter(lsm.SetOption(key="alter-column.lossy-casts", value=True))
    for _ in range(2):
        assert [row["n"] for row in read(table, "id", "n")] == [10, 20, 705_032_704]
        table.compact(full=True)


def test_narrower_types_can_be_forbidden(table: lsm.Table) -> None:
    table.alter(lsm.SetOption(key="disable-explicit-type-casting", value=True))
    with pytest.raises(lsm.InvalidOptionError, match="disable-explicit-type-casting"):
        table.alter(lsm.ChangeType(name="n", type="SMALLINT"))
    table.alter(lsm.ChangeType(name="n", type="BIGINT"))
    assert read(table, "n") == [{"n": 10}, {"n": 20}]


@pytest.mark.parametrize(
    "options",
    [
        {"sequence.field": "n"},
        {"merge-engine": "partial-update", "fields.n.sequence-group": "s"},
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "max"},
        {"merge-engine": "aggregation", "fields.default-aggregate-function": "min"},
    ],
)
def test_numbers_that_decide_by_their_order_do_not_become_text(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """ "9" is above "10": the older row of a key would win, and stay the winner once compacted."""
    columns = pa.schema([("id", pa.int32()), ("n", pa.int32()), ("s", pa.string())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table("db.o", columns, primary_key=["id"], options=options)
        with pytest.raises(lsm.InvalidOptionError, match="another order as STRING"):
            made.alter(lsm.ChangeType(name="n", type="STRING"))
        made.alter(lsm.ChangeType(name="n", type="BIGINT"))


def test_deletes_that_files_hold_are_not_ignored_from_now_on(tmp_path: Path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.d",
            pa.schema([("id", pa.int32())]),
            primary_key=["id"],
            options={"write-only": "true"},
        )
        made.upsert([{"id": 1}, {"id": 2}])
        made.delete([{"id": 1}])
        with pytest.raises(lsm.InvalidOptionError, match="1 files may hold") as refused:
            made.alter(lsm.SetOption("ignore-delete", "true"))
        assert refused.value.facts["key"] == "ignore-delete"
        made.compact(full=True)
        made.alter(lsm.SetOption("ignore-delete", "true"))
        made.delete([{"id": 2}])
        assert made.scan().to_arrow().to_pylist() == [{"id": 2}]


@pytest.mark.parametrize(
    ("engine", "options", "change"),
    [
        (
            "aggregation",
            {"aggregation.remove-record-on-delete": "true"},
            lsm.RemoveOption("aggregation.remove-record-on-delete"),
        ),
        ("aggregation", {}, lsm.SetOption("aggregation.remove-record-on-delete", "true")),
        ("aggregation", {}, lsm.SetOption("fields.v.ignore-retract", "true")),
        ("aggregation", {}, lsm.SetOption("fields.v.aggregate-function", "max")),
        (
            "partial-update",
            {"partial-update.remove-record-on-delete": "true"},
            lsm.RemoveOption("partial-update.remove-record-on-delete"),
        ),
    ],
)
def test_deletes_that_files_hold_go_on_to_mean_what_they_did(
    tmp_path: Path, engine: str, options: dict[str, str], change: lsm.SchemaChange
) -> None:
    """Sums lost or kept what was deleted, and partial updates could not be read any more."""
    own = {"fields.v.aggregate-function": "sum"} if engine == "aggregation" else {}
    columns = pa.schema([("id", pa.int32()), ("v", pa.int32())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.d",
            columns,
            primary_key=["id"],
            options={"write-only": "true", "merge-engine": engine, **own, **options},
        )
        made.upsert([{"id": 1, "v": 5}, {"id": 2, "v": 5}])
        made.upsert([{"id": 1, "v": 2, "_row_kind": "-D"}])
        before = made.scan().to_arrow().sort_by("id")
        with pytest.raises(lsm.InvalidOptionError, match="1 files may hold") as refused:
            made.alter(change)
        assert refused.value.facts["key"] == change.key  # type: ignore[union-attr]
        made.alter(lsm.SetOption("fields.v.stats-mode", "none"), lsm.AddColumn("w", "INT"))
        made.compact(full=True)
        made.alter(change, lsm.DropColumn("w"))
        assert catalog["db.d"].scan().to_arrow().sort_by("id") == before


def test_values_that_options_rely_on_lose_nothing(table: lsm.Table) -> None:
    with pytest.raises(lsm.InvalidOptionError, match=r"sequence\.field"):
        table.alter(lsm.ChangeType(name="ts", type="TIMESTAMP(3)"))


def test_a_type_is_one_that_the_oldest_files_can_be_read_as(table: lsm.Table) -> None:
    """INT reads as text of some length, and that as padded text, but INT does not."""
    table.alter(lsm.ChangeType(name="n", type="VARCHAR(20)"))
    with pytest.raises(lsm.UnsupportedError, match="from INT"):
        table.alter(lsm.ChangeType(name="n", type="CHAR(30)"))
    assert [row["n"] for row in read(table, "id", "n")] == ["10", "20"]


def test_columns_can_only_be_allowed_nulls(table: lsm.Table) -> None:
    with pytest.raises(lsm.UnsupportedError, match="alter-column-null-to-not-null"):
        table.alter(lsm.SetOption(key="alter-column-null-to-not-null.disabled", value=False))


def test_nested_fields_have_ids_of_their_own(table: lsm.Table) -> None:
    table.alter(
        lsm.AddColumn(name=("place", "country"), type=pa.string()),
        lsm.RenameColumn(name=("place", "zip"), new_name="code"),
    )
    kind = table.schema.arrow.field("place").type
    assert [kind.field(at).name for at in range(kind.num_fields)] == ["city", "code", "country"]


@pytest.mark.parametrize("path", [("element",), ("value",)])
def test_fields_inside_of_lists_and_maps_change_and_older_files_are_read(
    tmp_path: Path, path: tuple[str, ...]
) -> None:
    inner = "ROW<a INT NOT NULL, b STRING, c INT>"
    kind = f"ARRAY<{inner}>" if path == ("element",) else f"MAP<STRING, {inner}>"

    def held(*rows: dict[str, object]) -> object:
        return list(rows) if path == ("element",) else [(f"{at}", it) for at, it in enumerate(rows)]

    with lsm.open_catalog(tmp_path) as catalog:
        made = catalog.create_table("db.nested", {"id": "BIGINT", "s": kind}, "id")
        made.upsert([{"id": 1, "s": held({"a": 1, "b": "x", "c": 2}, {"a": 2, "b": None, "c": 3})}])
        made.alter(
            lsm.AddColumn(name=("s", *path, "d"), type="INT"),
            lsm.RenameColumn(name=("s", *path, "b"), new_name="z"),
            lsm.SetNullable(name=("s", *path, "a"), nullable=True),
            lsm.ChangeType(name=("s", *path, "a"), type="BIGINT"),
            lsm.DropColumn(name=("s", *path, "c")),
        )
        made.upsert([{"id": 2, "s": held({"a": None, "z": "y", "d": 5})}])
        wanted = [
            {"id": 1, "s": held({"a": 1, "z": "x", "d": None}, {"a": 2, "z": None, "d": None})},
            {"id": 2, "s": held({"a": None, "z": "y", "d": 5})},
        ]
        assert made.to_arrow().sort_by("id").to_pylist() == wanted
        made.compact(full=True)
        assert made.to_arrow().sort_by("id").to_pylist() == wanted
        with pytest.raises(lsm.UnsupportedError, match="'a' cannot change from BIGINT to INT"):
            made.alter(lsm.ChangeType(name=("s", *path, "a"), type="INT"))


def ids_of(fields: tuple[DataField, ...]) -> list[int]:
    """Of columns and what is nested in them, depth first."""
    found: list[int] = []
    for field in fields:
        found.append(field.id)
        kinds = [field.type]
        while kinds:
            kind = kinds.pop()
            found += ids_of(getattr(kind, "fields", ()))
            parts = [getattr(kind, name, None) for name in ("value", "key", "element")]
            kinds += [part for part in parts if part is not None]
    return found


def test_fields_of_a_type_given_as_text_have_ids_of_their_own(table: lsm.Table) -> None:
    table.alter(
        lsm.AddColumn("r", "STRUCT<a: INT, b: ROW<c INT, d ARRAY<ROW<e INT>>>, f STRING>"),
        lsm.AddColumn("m", "MAP<STRING, ROW<g INT, h INT>>"),
        lsm.AddColumn(("place", "at"), "ROW<x INT, y INT>"),
        lsm.AddColumn("last", "INT"),
    )
    ids = ids_of(table.schema.fields)
    assert len(set(ids)) == len(ids)
    assert ids_of((table.schema.field("r"),)) == list(range(8, 15))
    assert ids_of((table.schema.field("m"),)) == [15, 16, 17]
    assert table.schema.field("last").id == 21 == table.schema.highest_field_id
    table.upsert([{"id": 5, "day": "a", "r": {"a": 1, "b": {"c": 2}, "f": "x"}}])
    assert read(table, "id", "r")[-1]["r"] == {"a": 1, "b": {"c": 2, "d": None}, "f": "x"}


def test_a_schema_with_two_fields_of_one_id_goes_no_further(table: lsm.Table) -> None:
    nested = replace(table.schema.field("n"), id=2, name="inner")
    doubled = DataField(id=8, name="r", type=RowType(fields=(nested,)))
    schema = replace(table.schema, fields=(*table.schema.fields, doubled), highest_field_id=8)
    add, drop = lsm.AddColumn("more", "INT"), lsm.DropColumn("r")
    with pytest.raises(lsm.InvalidInputError, match=r"'n' and 'r\.inner' have the same id 2"):
        apply_changes(schema, [add], has_data=True, now_millis=0)
    assert apply_changes(schema, [add, drop], has_data=True, now_millis=0).names[-1] == "more"


def test_the_past_keeps_its_columns(table: lsm.Table) -> None:
    table.alter(lsm.RenameColumn(name="s", new_name="text"))
    table.upsert([{"id": 9, "day": "a", "text": "z"}])
    assert "s" in table.scan(snapshot_id=1).schema.names
    assert "text" in table.scan().schema.names


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_a_stream_begins_with_a_state_in_the_columns_of_today(
    tmp_path: Path, producer: str
) -> None:
    options = {"changelog-producer": producer}
    with lsm.open_catalog(tmp_path) as catalog:
        made = catalog.create_table("db.s", {"id": "INT", "s": "STRING"}, "id", options=options)
        made.upsert([{"id": 1, "s": "x"}])
        made.compact(full=True)
        made.alter(lsm.AddColumn("w", "INT"), lsm.RenameColumn("s", "z"))
        begun = next(made.follow("latest-full", poll_millis=None)).to_arrow()
        assert begun.drop_columns(["_snapshot_id"]).to_pylist() == [
            {"_row_kind": "+I", "id": 1, "z": "x", "w": None}
        ]


def test_moving_comments_and_options(table: lsm.Table) -> None:
    table.alter(
        lsm.MoveColumn(name="s", first=True),
        lsm.SetColumnComment(name="s", comment="said"),
        lsm.SetComment(comment="things"),
        lsm.SetOption(key="write-only", value=True),
    )
    assert table.schema.names[0] == "s"
    assert table.schema.field("s").description == "said"
    assert table.schema.comment == "things"
    table.alter(lsm.RemoveOption(key="write-only"))
    assert "write-only" not in table.options.texts


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lsm.DropColumn(name="id"), lsm.InvalidInputError, "key"),
        (lsm.DropColumn(name="ts"), lsm.InvalidOptionError, "sequence.field"),
        (lsm.DropColumn(name="none"), lsm.NotFoundError, "no column"),
        (lsm.RenameColumn(name="day", new_name="d"), lsm.InvalidInputError, "partition"),
        (lsm.RenameColumn(name="n", new_name="s"), lsm.AlreadyExistsError, "exists"),
        (lsm.ChangeType(name="id", type="INT"), lsm.InvalidInputError, "key"),
        (lsm.ChangeType(name="s", type="INT"), lsm.UnsupportedError, "s"),
        (lsm.SetNullable(name="n", nullable=False), lsm.InvalidInputError, "null"),
        (lsm.SetNullable(name="id"), lsm.InvalidInputError, "null"),
        (lsm.AddColumn(name="s", type="INT"), lsm.AlreadyExistsError, "exists"),
        (lsm.AddColumn(name="q", type="INT NOT NULL"), lsm.InvalidInputError, "nullable"),
        (lsm.AddColumn(name="_KEY_x", type="INT"), lsm.InvalidInputError, "reserved"),
        (lsm.SetOption(key="bucket", value=9), lsm.InvalidOptionError, "fixed"),
        (lsm.SetOption(key="merge-engine", value="nonsense"), lsm.InvalidOptionError, "merge"),
        (lsm.SetOption(key="no-such", value=1), lsm.InvalidOptionError, "no such"),
        (lsm.RemoveOption(key="sequence.field"), lsm.InvalidOptionError, "fixed"),
    ],
    ids=[str(at) for at in range(16)],
)
def test_refused_changes_leave_the_schema(table: lsm.Table, change, error, words) -> None:
    before = table.schema
    with pytest.raises(error, match=words):
        table.alter(lsm.SetComment(comment="never"), change)
    assert table.session.schemas.latest() == before


def test_two_alterations_at_once_both_count(table: lsm.Table) -> None:
    other = lsm.open_table(table.location)
    table.alter(lsm.AddColumn(name="one", type="INT"))
    other.alter(lsm.AddColumn(name="two", type="INT"))
    assert {"one", "two"} <= set(other.schema.names)
    assert other.schema.field("one").id != other.schema.field("two").id
