"""What a new table needs, and every refusal before anything is written."""

from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.types.types import type_text
from tests.foreign_documents import without_checksum

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.float64())])


@pytest.fixture
def catalog(tmp_path: Path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def test_keys_become_not_null_and_a_bucket_is_chosen(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, primary_key=["id"], comment="c")
    assert not table.schema.field("id").type.nullable
    assert table.options.texts == {"bucket": "1"}
    assert table.schema.comment == "c"
    assert catalog.list_tables("db") == ["t"]


def test_the_key_may_come_as_an_option(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, options={"primary-key": "id, day"})
    assert table.schema.primary_keys == ("id", "day")
    assert "primary-key" not in table.options.texts
    with pytest.raises(lsm.InvalidOptionError, match="differ"):
        catalog.create_table("db.u", COLUMNS, primary_key=["id"], options={"primary-key": "day"})


REFUSED = {
    "merge engine without a key": (
        {},
        {"merge-engine": "aggregation"},
        lsm.InvalidOptionError,
    ),
    "sequence field without a key": ({}, {"sequence.field": "v"}, lsm.InvalidOptionError),
    "column function without a key": (
        {},
        {"fields.v.aggregate-function": "sum"},
        lsm.InvalidOptionError,
    ),
    "buckets without a key to hash": ({}, {"bucket": 3}, lsm.InvalidOptionError),
    "postponed without a key": ({}, {"bucket": -2}, lsm.InvalidOptionError),
    "no bucket": ({"primary_key": ["id"]}, {"bucket": 0}, lsm.InvalidOptionError),
    "dynamic options of fixed buckets": (
        {"primary_key": ["id"]},
        {"bucket": 2, "dynamic-bucket.target-row-num": 5},
        lsm.InvalidOptionError,
    ),
    "no dynamic buckets at all": (
        {"primary_key": ["id"]},
        {"bucket": -1, "dynamic-bucket.max-buckets": 0},
        lsm.InvalidOptionError,
    ),
    "bucket key of dynamic buckets": (
        {"primary_key": ["id"]},
        {"bucket": -1, "bucket-key": "id"},
        lsm.InvalidOptionError,
    ),
    "postpone options of fixed buckets": (
        {"primary_key": ["id"]},
        {"postpone.default-bucket-num": 2},
        lsm.InvalidOptionError,
    ),
    "sequence field of a key that moves": (
        {"primary_key": ["id"], "partitioned_by": ["day"]},
        {"bucket": -1, "sequence.field": "v"},
        lsm.InvalidOptionError,
    ),
    "unknown key": ({"primary_key": ["nope"]}, {}, lsm.InvalidInputError),
    "key twice": ({"primary_key": ["id", "id"]}, {}, lsm.InvalidInputError),
    "partition outside key": (
        {"primary_key": ["id"], "partitioned_by": ["day"]},
        {},
        lsm.InvalidInputError,
    ),
    "only partitions": (
        {"primary_key": ["day"], "partitioned_by": ["day"]},
        {},
        lsm.InvalidInputError,
    ),
    "unknown option": ({"primary_key": ["id"]}, {"buckets": 3}, lsm.InvalidOptionError),
    "bad value": ({"primary_key": ["id"]}, {"bucket": "many"}, lsm.InvalidOptionError),
    "foreign hash": (
        {"primary_key": ["id"]},
        {"bucket": 1, "bucket-function.type": "hive"},
        lsm.UnsupportedError,
    ),
    "bucket key outside key": (
        {"primary_key": ["id"]},
        {"bucket-key": "v"},
        lsm.InvalidOptionError,
    ),
    "sequence field is a key": (
        {"primary_key": ["id"]},
        {"sequence.field": "id"},
        lsm.InvalidOptionError,
    ),
    "sequence field unknown": (
        {"primary_key": ["id"]},
        {"sequence.field": "nope"},
        lsm.InvalidInputError,
    ),
    "retention upside down": (
        {"primary_key": ["id"]},
        {"snapshot.num-retained.min": 5, "snapshot.num-retained.max": 2},
        lsm.InvalidOptionError,
    ),
    "an option of a read": (
        {"primary_key": ["id"]},
        {"scan.snapshot-id": 1},
        lsm.InvalidOptionError,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_leave_nothing_behind(catalog: lsm.Catalog, tmp_path: Path, case: str) -> None:
    arguments, options, error = REFUSED[case]
    with pytest.raises(error):
        catalog.create_table("db.t", COLUMNS, options=options, **arguments)
    assert "db" not in catalog.list_databases()
    assert not list((tmp_path / "lake").rglob("schema-*"))


@pytest.mark.parametrize(
    "name",
    ["t", "a.b.c", "db.", ".t", "db.t/x", "../x.t", "db.t\n", "db." + "n" * 300, "db.t$files"],
)
def test_names_that_no_directory_should_have(
    catalog: lsm.Catalog, tmp_path: Path, name: str
) -> None:
    with pytest.raises(lsm.InvalidInputError):
        catalog.create_table(name, COLUMNS, primary_key=["id"])
    assert not list((tmp_path / "lake").rglob("schema-*"))


def test_names_are_taken_once(catalog: lsm.Catalog) -> None:
    catalog.create_table("db.t", COLUMNS, primary_key=["id"]).upsert([{"id": 1}])
    with pytest.raises(lsm.AlreadyExistsError):
        catalog.create_table("db.t", COLUMNS, primary_key=["id"])
    again = catalog.create_table("db.t", COLUMNS, primary_key=["id"], ignore_if_exists=True)
    assert again.scan().count() == 1


def test_renamed_and_dropped_tables(catalog: lsm.Catalog, tmp_path: Path) -> None:
    catalog.create_table("db.t", COLUMNS, primary_key=["id"]).upsert([{"id": 1}])
    moved = catalog.rename_table("db.t", "db.u")
    assert moved.scan().count() == 1
    assert catalog.lineage.recent_activity().num_rows == 1
    with pytest.raises(lsm.NotFoundError):
        catalog.table("db.t")
    catalog.drop_table("db.u")
    assert catalog.list_tables("db") == []
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    with pytest.raises(lsm.NotFoundError):
        catalog.drop_table("db.u")
    catalog.drop_table("db.u", ignore_if_missing=True)


def test_columns_of_bounded_length(catalog: lsm.Catalog) -> None:
    columns = [
        pa.field("k", pa.int64()),
        lsm.sql_field("c", "CHAR(2)"),
        lsm.sql_field("v", "VARCHAR(3)", nullable=False),
        lsm.sql_field("b", "VARBINARY(2)"),
    ]
    table = catalog.create_table("db.t", pa.schema(columns), primary_key=["k"])
    stored = lsm.open_table(table.location).schema
    assert [type_text(field.type) for field in stored.fields] == [
        "BIGINT NOT NULL", "CHAR(2)", "VARCHAR(3) NOT NULL", "VARBINARY(2)",
    ]  # fmt: skip
    row = {"k": 1, "c": "ab", "v": "äöü", "b": b"xy"}
    table.upsert([row])
    assert table.scan().to_arrow().to_pylist() == [row]
    for wrong in ({"c": "abc"}, {"v": "abcd"}, {"b": b"123"}, {"v": None}):
        with pytest.raises(lsm.InvalidInputError):
            table.upsert([row | wrong])
    assert table.scan().to_arrow().to_pylist() == [row]
    for kind in ("INT", "STRING", "NUMBER(3)", "ARRAY"):
        with pytest.raises((lsm.InvalidInputError, lsm.UnsupportedError)):
            lsm.sql_field("x", kind)
    lied = pa.field("x", pa.int32(), metadata={"lsm.type": "VARCHAR(3)"})
    with pytest.raises(lsm.InvalidInputError, match="sql_field"):
        catalog.create_table("db.u", pa.schema([columns[0], lied]), primary_key=["k"])


def test_a_creation_that_its_catalog_refused_can_be_repeated(tmp_path, monkeypatch):
    """What it left in the directory is taken over by an equal table, and by no other."""
    columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")) as catalog:
        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "register_table", refuse)
            with pytest.raises(lsm.StorageError, match="locked"):
                catalog.create_table("d.t", columns, primary_key=["k"])
        with pytest.raises(lsm.AlreadyExistsError):
            catalog.create_table("d.t", columns, primary_key=["k"], options={"bucket": "2"})
        table = catalog.create_table("d.t", columns, primary_key=["k"])
        table.upsert([{"k": 1, "v": "a"}])
        with pytest.raises(lsm.AlreadyExistsError):
            catalog.create_table("d.t", columns, primary_key=["k"])
        assert catalog.table("d.t").scan().count() == 1


def refuse(*_, **__):
    raise lsm.StorageError("the catalog is locked")


def test_a_column_name_with_a_lone_surrogate_is_refused(tmp_path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")) as catalog:
        columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
        table = catalog.create_table("d.t", columns, primary_key=["k"])
        with pytest.raises(lsm.InvalidInputError, match="surrogate"):
            table.alter(lsm.RenameColumn(name="v", new_name="v\ud800"))
        with pytest.raises(lsm.InvalidInputError, match="half of a character"):
            catalog.create_table("d.u", {"k": "BIGINT", "v\ud800": "INT"}, primary_key=["k"])


@pytest.mark.parametrize("name", ["_found", "_snapshot_id"])
def test_names_that_results_add_are_refused_but_foreign_tables_open(name, tmp_path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")) as catalog:
        columns = pa.schema([("k", pa.int64()), ("other", pa.string())])
        table = catalog.create_table("d.t", columns, primary_key=["k"])
        with pytest.raises(lsm.InvalidInputError, match=f"'{name}' is reserved"):
            table.alter(lsm.RenameColumn(name="other", new_name=name))
        schema = Path(table.location) / "schema" / "schema-0"
        schema.write_bytes(
            without_checksum(schema.read_bytes()).replace(b'"other"', f'"{name}"'.encode())
        )
        foreign = catalog.table("d.t")
        foreign.upsert([{"k": 1, name: "a"}])
        foreign.alter(lsm.SetComment(comment="still alterable"))
        assert foreign.scan().to_arrow().to_pylist() == [{"k": 1, name: "a"}]
        if name == "_found":
            with pytest.raises(lsm.InvalidInputError, match="column '_found', which a lookup adds"):
                foreign.lookup([{"k": 1}])
        assert foreign.lookup([{"k": 1}], columns=["k"]).to_pylist() == [{"k": 1, "_found": True}]
