"""Tables of other clients with columns of types that are not read: the other columns are, and nothing is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.storage.local import LocalFileIO
from tests.bench.tables import new_table
from tests.foreign_documents import forget_checksums

SCHEMA = pa.schema([("k", pa.int64()), ("e", pa.binary()), ("v", pa.string()), ("n", pa.int64())])
TYPES = {
    "VARIANT": "VARIANT", "BLOB": "BLOB NOT NULL", "VECTOR": {"type": "VECTOR", "element": "FLOAT", "length": 3},
}  # fmt: skip


def with_schema(table: lsm.Table, edit: Callable[[Any], object]) -> lsm.Table:
    """The table once another client has written its schema so."""
    disk = LocalFileIO(table.location)
    forget_checksums(disk)
    schema = json.loads(disk.read("schema/schema-0"))
    edit(schema)
    disk.replace("schema/schema-0", json.dumps(schema).encode())
    return lsm.open_table(table.location)


def table_with(
    folder: Path, stored: object, key: tuple[str, ...] = ("k",), **options: str
) -> lsm.Table:
    """A table whose column `e` was BYTES when its files were written, and is of another type by its schema."""
    table = new_table(folder, SCHEMA, key=key, options={"bucket": "1" if key else "-1", **options})
    for start in (0, 10):
        rows = [{"k": k, "e": b"\xff" * k, "v": f"v{k}", "n": -k} for k in range(start, start + 15)]
        (table.upsert if key else table.append)(rows)
    return with_schema(table, lambda schema: schema["fields"][1].update(type=stored))


@pytest.mark.parametrize("word", TYPES)
@pytest.mark.parametrize("key", [("k",), ()], ids=["key", "append"])
def test_other_columns_are_read_and_no_statistics_stand_for_another_column(
    tmp_path: Path, word: str, key: tuple[str, ...]
) -> None:
    table = table_with(tmp_path, TYPES[word], key, **{"file-index.bitmap.columns": "v"})
    rows = {k: {"k": k, "v": f"v{k}", "n": -k} for k in range(25)}
    every = sorted([*rows.values(), *([] if key else [rows[k] for k in range(10, 15)])], key=str)
    assert table.schema.names == ("k", "v", "n")
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == every
    assert table.scan().count() == len(every)
    for where in ("v = 'v3'", "n = -24", "n > -5", "v >= 'v24' AND k = 24", "k IN (3, 24)"):
        wanted = table.scan().to_arrow().to_pylist()
        wanted = [
            row for row in wanted
            if eval(where.replace(" = ", " == ").replace("AND", "and").replace("IN", "in"), {}, row)
        ]  # fmt: skip
        assert wanted
        assert sorted(table.scan(where=where).to_arrow().to_pylist(), key=str) == sorted(
            wanted, key=str
        )
    assert table.to_polars().collect().shape == (len(every), 3)
    assert len(table.to_duckdb().fetchall()) == len(every)
    report = table.maintenance.verify(deep=True)
    assert report.problems == ()
    assert word in str(report)
    assert table.inspect.files().num_rows == 2
    (finding,) = lsm.doctor(table).findings
    assert word in str(finding)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.upsert([{"k": 1, "v": "x"}]),
        lambda table: table.alter(lsm.AddColumn("z", "INT")),
        lambda table: table.alter(lsm.SetOption("num-sorted-run.stop-trigger", "9")),
        lambda table: table.compact(full=True),
        lambda table: table.maintenance.expire(retain_max=1, retain_min=1, dry_run=False),
        lambda table: table.maintenance.remove_orphan_files(dry_run=False),
    ],
    ids=["upsert", "column", "option", "compact", "expire", "orphans"],
)
def test_nothing_is_written_beside_a_column_that_is_not_read(
    tmp_path: Path, change: Callable[[lsm.Table], object]
) -> None:
    table = table_with(tmp_path, "VARIANT")
    before = sorted(Path(table.location).rglob("*"))
    with pytest.raises(lsm.UnsupportedError, match="column 'e' of type VARIANT"):
        change(table)
    assert sorted(Path(table.location).rglob("*")) == before


def test_a_column_that_an_option_keeps_elsewhere_is_not_read(tmp_path: Path) -> None:
    table = table_with(tmp_path, "BYTES")
    assert "e" in table.schema.names
    key = "blob-descriptor-field"
    table = with_schema(table, lambda schema: schema["options"].update({key: "x, e"}))
    assert table.schema.names == ("k", "v", "n")


def test_a_key_of_a_type_that_is_not_read_refuses_the_table(tmp_path: Path) -> None:
    table = table_with(tmp_path, "BYTES")
    with pytest.raises(lsm.UnsupportedError, match="VARIANT"):
        with_schema(table, lambda schema: schema["fields"][0].update(type="VARIANT NOT NULL"))
