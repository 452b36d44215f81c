"""Tables without a primary key: rows are added, small files joined, and nothing is replaced."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.types.types import parse_type
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

COLUMNS = pa.schema([("p", pa.string()), ("a", pa.int64()), ("v", pa.int64())])
BUCKETED = {"bucket": "3", "bucket-key": "a"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def rows(first: int, count: int, partition: str = "x") -> pa.Table:
    numbers = np.arange(first, first + count)
    parts = pa.array([partition] * count)
    return pa.table([parts, pa.array(numbers % 7), pa.array(numbers)], schema=COLUMNS)


def values(table: lsm.Table) -> list[int]:
    return sorted(table.scan().to_arrow().column("v").to_pylist())


@pytest.mark.parametrize("options", [{}, BUCKETED])
def test_rows_add_up_and_small_files_are_joined(
    catalog: lsm.Catalog, options: dict[str, str]
) -> None:
    table = catalog.create_table("db.t", COLUMNS, partitioned_by=["p"], options=options)
    for turn in range(11):
        made = table.append(rows(turn * 20, 20, "xy"[turn % 2]))
        assert made is not None
        assert (made.commit_kind, made.delta_record_count) == (lsm.CommitKind.APPEND, 20)
    assert values(table) == list(range(220))
    assert table.scan().count() == 220
    kinds = [snapshot.commit_kind for snapshot in table.snapshots()]
    assert lsm.CommitKind.COMPACT in kinds
    table.compact(full=True)
    assert len(table.system("files")) == (6 if options else 2)
    assert table.compact(full=True) is None
    assert values(table) == list(range(220))
    check_invariants(StoredTable(table.session.file_io))


def test_duplicates_stay(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS)
    for _ in range(3):
        table.append(rows(0, 4))
    table.compact(full=True)
    assert values(table) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_rows_of_a_fixed_bucket_keep_their_order(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, options=BUCKETED)
    for turn in range(13):
        table.append(rows(turn * 30, 30))
    table.compact(full=True)
    found = table.scan().to_arrow()
    for key in range(7):
        column = found.filter(pc.equal(found.column("a"), key)).column("v").to_pylist()
        assert column == sorted(column)
    # Numbers go on where they were, so that later readers see the order as well.
    files = table.system("files").to_pylist()
    assert all(file["max_sequence_number"] - file["min_sequence_number"] + 1
               == file["record_count"] for file in files)  # fmt: skip


def test_an_append_lands_beside_another_of_the_same_base(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, options={**BUCKETED, "write-only": "true"})
    table.append(rows(0, 10))
    other = lsm.open_table(table.location)
    from_both = [rows(10, 10), rows(20, 10)]

    class Slow:
        """Rows of which the stream ends after somebody else has committed."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            def batches() -> Iterator[pa.RecordBatch]:
                yield from from_both[0].to_batches()
                other.append(from_both[1])

            reader = pa.RecordBatchReader.from_batches(COLUMNS, batches())
            return reader.__arrow_c_stream__(requested_schema)

    table.append(Slow())
    assert values(table) == list(range(30))
    ranges: dict[int, list[tuple[int, int]]] = {}
    for file in table.system("files").to_pylist():
        ends = (file["min_sequence_number"], file["max_sequence_number"])
        ranges.setdefault(file["bucket"], []).append(ends)
    for ends in ranges.values():
        ordered = sorted(ends)
        assert all(low[1] < high[0] for low, high in pairwise(ordered))


def test_partitions_are_overwritten(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, partitioned_by=["p"])
    table.append(rows(0, 5, "x"))
    table.append(rows(5, 5, "y"))
    table.overwrite(rows(100, 2, "x"))
    assert values(table) == [5, 6, 7, 8, 9, 100, 101]
    table.overwrite([], {"p": "y"})
    assert values(table) == [100, 101]


def test_many_partitions_fit_in_a_small_buffer(catalog: lsm.Catalog) -> None:
    options = {"write-buffer-size": "64 kb"}
    table = catalog.create_table("db.t", COLUMNS, partitioned_by=["p"], options=options)
    numbers = np.arange(60_000)
    parts = pa.array([f"p{number % 20}" for number in numbers.tolist()])
    table.append(pa.table([parts, pa.array(numbers), pa.array(numbers)], schema=COLUMNS))
    assert values(table) == numbers.tolist()


def test_verbs_of_the_other_kind_are_refused_by_name(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS)
    keyed = catalog.create_table("db.k", COLUMNS, primary_key=["a"])
    for verb, remedy in (
        (table.upsert, "append"),
        (table.delete, "deletion"),
        (keyed.append, "upsert"),
    ):
        with pytest.raises(lsm.InvalidInputError, match=remedy):
            verb(rows(0, 1))
    for kind in ("-U", "+U", "-D"):
        with pytest.raises(lsm.InvalidInputError, match="new rows"):
            table.append(rows(0, 1).append_column("_row_kind", pa.array([kind])))
    assert table.snapshots() == keyed.snapshots() == []
    assert table.append(rows(0, 1).append_column("_row_kind", pa.array(["+I"]))) is not None


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_a_changelog_producer_is_refused(catalog: lsm.Catalog, producer: str) -> None:
    with pytest.raises(lsm.LsmError, match="changelog-producer"):
        catalog.create_table("db.t", COLUMNS, options={"changelog-producer": producer})
    assert catalog.list_tables("db") == [] if "db" in catalog.list_databases() else True


@pytest.mark.parametrize("kind", ["DOUBLE", "STRING"])
def test_the_type_of_a_bucket_key_stays_so_that_filters_find_its_rows(
    catalog: lsm.Catalog, kind: str
) -> None:
    table = catalog.create_table("db.t", COLUMNS, options=BUCKETED)
    table.append(rows(0, 20))
    with pytest.raises(lsm.InvalidInputError, match="its type places rows"):
        table.alter(lsm.ChangeType("a", kind))
    table.alter(lsm.ChangeType("v", kind))
    assert [table.scan(where=f"a = {a}").count() for a in range(7)] == [3, 3, 3, 3, 3, 3, 2]


def published(table: lsm.Table, kind: str) -> None:
    """Publish a schema with another type of the bucket key, as versions did that took such a change."""
    schema = table.session.schema
    fields = tuple(
        replace(field, type=parse_type(kind)) if field.name == "a" else field
        for field in schema.fields
    )
    table.session.schemas.publish(replace(schema, id=schema.id + 1, fields=fields))


@pytest.mark.parametrize("kind", ["DOUBLE", "STRING"])
def test_a_filter_finds_rows_placed_by_an_older_type_of_the_bucket_key(
    catalog: lsm.Catalog, kind: str
) -> None:
    table = catalog.create_table("db.t", COLUMNS, options=BUCKETED)
    table.append(rows(0, 20))
    published(table, kind)
    table = catalog.table("db.t")
    assert len({file["bucket"] for file in table.system("files").to_pylist()}) == 3
    quote = "'" if kind == "STRING" else ""
    counts = [table.scan(where=f"a = {quote}{a}{quote}").count() for a in range(7)]
    assert counts == [3, 3, 3, 3, 3, 3, 2]


def test_a_filter_prunes_buckets_after_another_column_changed(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, options=BUCKETED)
    table.append(rows(0, 20))
    table.alter(lsm.ChangeType("v", "STRING"), lsm.RenameColumn("a", "b"))
    scan = table.scan(where="b = 4")
    assert (scan.count(), len(scan.plan.splits)) == (3, 1)
