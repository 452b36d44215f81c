"""Tables of each merge engine through the front door: write, compact, read, refuse."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.api.table import Table
from lsm_engine.base.errors import InvalidInputError, InvalidOptionError, LsmError
from lsm_engine.ddl.create import create_table
from lsm_engine.lsm.levels import Levels
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.world import components, reopen

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("g", pa.int32()),
        ("op", pa.string()),
    ]
)


def table_of(options: Mapping[str, str], schema: pa.Schema = SCHEMA) -> Table:
    parts = components(MemoryFileIO())
    create_table(
        parts.file_io,
        schema,
        primary_key=("k",),
        partitioned_by=(),
        options={"bucket": "1", **options},
        comment=None,
        clock=parts.clock,
    )
    return reopen(parts)


def rows_of(*rows: tuple[Any, ...], names: str = "k a b g op") -> pa.Table:
    fields = [SCHEMA.field(name) for name in names.split()]
    columns = [*zip(*rows, strict=True)]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)],
        names=names.split(),
    )


def read(table: Table, columns: tuple[str, ...] = ("k", "a", "b"), **asked: Any) -> list[Any]:
    found = table.scan(columns=columns, **asked).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


@pytest.mark.parametrize("full", [False, True])
def test_decision_0049_merged_rows_are_as_new_as_their_newest_version(full):
    """The null of `g` came out as 5, so that once compacted the row was newer than what came later."""
    table = table_of({"merge-engine": "partial-update", "sequence.field": "a,g"})
    table.upsert([{"k": 1, "a": 1, "g": 5, "b": "x"}])
    table.upsert([{"k": 1, "a": 2, "g": None, "b": "y"}])
    if full:
        table.compact(full=True)
    assert read(table, ("k", "a", "g", "b")) == [(1, 2, None, "y")]
    table.upsert([{"k": 1, "a": 2, "g": 3, "b": "z"}])
    assert read(table, ("k", "a", "g", "b")) == [(1, 2, 3, "z")]


@pytest.mark.parametrize("full", [False, True])
def test_partial_update(full):
    table = table_of({"merge-engine": "partial-update"})
    table.upsert(rows_of((1, 1, None), (2, None, "two"), names="k a b"))
    table.upsert(rows_of((1, None, "one"), (2, 22, None), names="k a b"))
    assert read(table) == [(1, 1, "one"), (2, 22, "two")]
    table.compact(full=full)
    assert read(table) == [(1, 1, "one"), (2, 22, "two")]
    assert read(table, columns=("b",)) == [("one",), ("two",)]
    assert read(table, where=pc.field("b") == "two") == [(2, 22, "two")]
    assert table.scan().count() == 2


def test_a_group_is_projected_with_its_clock():
    table = table_of({"merge-engine": "partial-update", "fields.g.sequence-group": "a"})
    table.upsert(rows_of((1, 5, "x", 9), names="k a b g"))
    table.upsert(rows_of((1, 6, "y", 3), names="k a b g"))
    assert read(table, columns=("a",)) == [(5,)]
    assert read(table, columns=("b",)) == [("y",)]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"merge-engine": "partial-update"}, "remove-record-on-delete"),
        ({"merge-engine": "first-row"}, "ignore-delete"),
        ({"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}, "ignore-retract"),
    ],
)
@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_retracts_are_refused_before_anything_is_written(options, word, kind):
    table = table_of(options)
    rows = rows_of((1, 1, "x"), (2, 2, "y"), names="k a b")
    with pytest.raises(InvalidInputError, match=word):
        table.upsert(rows.append_column("_row_kind", pa.array(["+I", kind])))
    with pytest.raises(InvalidInputError, match=word):
        table.delete(rows)
    assert table.session.file_io.list("bucket-0") == []
    assert table.latest_snapshot() is None


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_ignore_delete(engine):
    table = table_of({"merge-engine": engine, "ignore-delete": "true"})
    table.upsert(rows_of((1, 1, "x"), names="k a b"))
    assert table.delete(rows_of((1,), names="k")) is None
    rows = rows_of((1, 1, "x"), (2, 2, "y"), names="k a b")
    table.upsert(rows.append_column("_row_kind", pa.array(["-D", "+I"])))
    assert read(table) == [(1, 1, "x"), (2, 2, "y")]


def test_a_delete_removes_the_record_where_asked():
    table = table_of(
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    )
    table.upsert(rows_of((1, 1, "old"), (2, 2, "b"), names="k a b"))
    table.compact(full=True)
    table.delete(rows_of((1,), names="k"))
    assert read(table) == [(2, 2, "b")]
    table.upsert(rows_of((1, None, "new"), names="k a b"))
    assert read(table) == [(1, None, "new"), (2, 2, "b")]
    for _ in range(6):  # whatever is compacted first, the old value stays gone
        table.upsert(rows_of((3, 3, "c"), names="k a b"))
        assert read(table)[0] == (1, None, "new")


def test_a_delete_and_an_insert_in_one_write_stay_apart():
    table = table_of(
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    )
    table.upsert(rows_of((1, 1, "old"), names="k a b"))
    rows = rows_of((1, 5, None), (1, None, None), (1, 7, None), (2, 1, "x"), names="k a b")
    table.upsert(rows.append_column("_row_kind", pa.array(["+U", "-D", "+I", "+I"])))
    assert read(table) == [(1, 7, None), (2, 1, "x")]
    files = table.system("files").to_pylist()
    assert len(files) == 3  # the old row, the delete, and what came after it
    table.compact(full=True)
    assert read(table) == [(1, 7, None), (2, 1, "x")]


@pytest.mark.parametrize("several", [False, True], ids=["one-write", "one-row-each"])
def test_decision_0049_a_null_in_a_map_removes_what_lies_below_what_it_is_merged_with(several):
    """A compaction of the newest runs, and the buffer of one write, lost removals of older keys."""
    values = pa.struct([("t", pa.int32()), ("v", pa.int32())])
    schema = pa.schema([SCHEMA.field("k"), pa.field("m", pa.map_(pa.string(), values))])
    options = {"merge-engine": "aggregation", "num-sorted-run.compaction-trigger": "2"}
    options |= {"compaction.max-size-amplification-percent": "1000000"}
    options |= {"fields.m.aggregate-function": "merge_map_with_keytime", "fields.m.ts-field": "t"}
    table = table_of(options, schema)

    def put(maps: Any, keys: Any) -> None:
        table.upsert(pa.table([pa.array(keys, pa.int32()), pa.array(maps, schema[1].type)], schema=schema))  # fmt: skip

    five, one = {"t": 5, "v": 0}, {"t": 1, "v": 1}
    put([[(name, five) for name in "abcd"]] * 2000, range(2000))  # too large to be merged with few
    table.compact()
    later = [[("e", one)], [("a", None), ("b", None)], [("b", one), ("c", one)], [("f", one)]]
    for maps in [[one] for one in later] if several else [later]:
        put(maps, [1] * len(maps))
    for _ in range(2):
        found = table.scan(where="k = 1").to_arrow().column("m").to_pylist()
        assert list(map(dict, found)) == [{"b": one, "c": five, "d": five, "e": one, "f": one}]
        table.compact()


def test_a_delete_that_would_do_nothing_is_refused():
    table = table_of({"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"})
    table.upsert(rows_of((1, 5, "x"), names="k a b"))
    with pytest.raises(InvalidInputError, match="add columns"):
        table.delete(rows_of((1,), names="k"))
    table.delete(rows_of((1, 2), names="k a"))
    assert read(table, columns=("k", "a")) == [(1, 3)]


def test_row_kinds_come_from_a_column_and_are_stored():
    table = table_of({"rowkind.field": "op"})
    table.upsert(rows_of((1, 1, "x", "+I"), (2, 2, "y", "+U"), names="k a b op"))
    table.upsert(rows_of((1, 1, "x", "-D"), names="k a b op"))
    assert read(table, columns=("k", "op")) == [(2, "+U")]
    table.delete(rows_of((2,), names="k"))
    assert read(table) == []
    for wrong in ("x", None):
        with pytest.raises(InvalidInputError, match="1 row without a valid op"):
            table.upsert(rows_of((1, 1, "x", wrong), names="k a b op"))
    with pytest.raises(InvalidInputError, match="lack column 'op'"):
        table.upsert(rows_of((1, 1, "x"), names="k a b"))
    both = rows_of((1, 1, "x", "+I"), names="k a b op")
    with pytest.raises(InvalidInputError, match="leave out"):
        table.upsert(both.append_column("_row_kind", pa.array(["+I"])))


writes = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=6), max_size=12
)


@pytest.mark.parametrize("gentle", [False, True])
@given(batches=writes)
def test_first_row_keeps_each_key_once_above_level_0(gentle, batches):
    options = {"merge-engine": "first-row", "num-sorted-run.compaction-trigger": "3"}
    if gentle:
        options |= {"lookup-compact": "gentle", "lookup-compact.max-interval": "4"}
    table = table_of(options)
    wanted: dict[int, int] = {}
    for batch in batches:
        table.upsert(rows_of(*((key, value, "x") for key, value in batch), names="k a b"))
        for key, value in batch:
            wanted.setdefault(key, value)
        if not gentle:
            assert read(table, columns=("k", "a")) == sorted(wanted.items(), key=repr)
        files = [file for file in table.system("files").to_pylist() if file["level"] > 0]
        shown = read(table, columns=("k", "a"))
        assert len(shown) == sum(file["record_count"] for file in files)
    table.compact(full=True)
    assert read(table, columns=("k", "a")) == sorted(wanted.items(), key=repr)


def test_first_row_reads_do_not_see_level_0():
    table = table_of({"merge-engine": "first-row", "write-only": "true"})
    table.upsert(rows_of((1, 1, "x"), names="k a b"))
    assert read(table) == []
    table.compact()
    assert read(table) == [(1, 1, "x")]


def test_an_overwritten_first_row_table_reads_at_once():
    table = table_of({"merge-engine": "first-row"})
    table.upsert(rows_of((1, 1, "x"), names="k a b"))
    table.overwrite(rows_of((1, 2, "y"), (2, 2, "y"), names="k a b"))
    assert read(table) == [(1, 2, "y"), (2, 2, "y")]


def test_a_value_filter_is_never_pushed_below_a_sum():
    table = table_of({"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"})
    table.upsert(rows_of((1, 1, "x"), (2, 3, "x"), names="k a b"))
    table.upsert(rows_of((1, 2, "x"), (2, 3, "x"), names="k a b"))
    assert read(table, where=pc.field("a") == 3) == [(1, 3, "x")]
    assert read(table, where=pc.field("a") == 6) == [(2, 6, "x")]
    assert read(table, where=pc.field("a") == 1) == []


def test_spilled_parts_merge_as_one():
    for engine, wanted in (("partial-update", 1), ("aggregation", 1)):
        table = table_of({"merge-engine": engine, "write-buffer-size": "1 kb"})
        batches = [
            rows_of(*((key, key, None) for key in range(200)), names="k a b"),
            rows_of(*((key, None, "x") for key in range(0, 200, 2)), names="k a b"),
        ]
        table.upsert(pa.concat_tables(batches).to_reader(max_chunksize=50))
        assert len(table.system("files")) == wanted
        assert read(table) == sorted(
            ((key, key, "x" if key % 2 == 0 else None) for key in range(200)), key=repr
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge-engine": "first-row", "sequence.field": "g"}, "sequence.field"),
        ({"merge-engine": "first-row", "deletion-vectors.enabled": "true"}, "deletion-vectors"),
        ({"merge-engine": "first-row", "changelog-producer": "input"}, "changelog-producer"),
        ({"aggregation.remove-record-on-delete": "true"}, "'merge-engine' = 'aggregation'"),
        (
            {
                "merge-engine": "aggregation",
                "aggregation.remove-record-on-delete": "true",
                "fields.v.ignore-retract": "true",
            },
            "ignore-retract' does not go with",
        ),
        ({"partial-update.remove-record-on-delete": "true"}, "'partial-update'"),
        ({"merge-engine": "aggregation", "fields.g.sequence-group": "a"}, "'partial-update'"),
        ({"fields.a.aggregate-function": "sum"}, "'merge-engine' = 'aggregation'"),
        ({"merge-engine": "aggregation", "fields.z.aggregate-function": "sum"}, "'z'"),
        ({"merge-engine": "aggregation", "fields.k.aggregate-function": "sum"}, "key column 'k'"),
        ({"merge-engine": "aggregation", "fields.b.aggregate-function": "sum"}, "takes numbers"),
        (
            {
                "merge-engine": "aggregation",
                "sequence.field": "g",
                "fields.g.aggregate-function": "max",
            },
            "follows the newest row",
        ),
        ({"merge-engine": "partial-update", "fields.g.sequence-group": "k"}, "key column 'k'"),
        ({"merge-engine": "partial-update", "fields.g.sequence-group": "z"}, "'z'"),
        ({"rowkind.field": "z"}, "'z'"),
        ({"rowkind.field": "a"}, "text column"),
    ],
)
def test_configurations_are_refused_at_create(options, message):
    with pytest.raises(LsmError, match=message) as caught:
        table_of(options)
    assert isinstance(caught.value, InvalidOptionError | NotImplementedError)


def test_levels_of_a_first_row_table_never_share_a_key():
    table = table_of({"merge-engine": "first-row", "num-sorted-run.compaction-trigger": "2"})
    for step in range(12):
        table.upsert(rows_of(*((key, step, "x") for key in range(step, 40, 3)), names="k a b"))
    order = table.session.key_order
    assert order is not None
    live = [entry.file for entry in table.session.live_entries(table.latest_snapshot())]
    levels = Levels.from_files(live, level_count=6, key_order=order)
    assert not levels.level_zero
    assert table.scan().count() == len({row[0] for row in read(table)})


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_merge_that_leaves_null_in_a_column_that_is_not_null_names_it(file_format):
    schema = pa.schema([pa.field(name, pa.int32(), nullable=False) for name in ("k", "a")])
    table = table_of({"merge-engine": "aggregation", "file.format": file_format}, schema)
    table.upsert([{"k": 1, "a": 5}])
    table.upsert([{"k": 1, "a": 5, "_row_kind": "-D"}])
    before = table.latest_snapshot()
    with pytest.raises(InvalidInputError, match=r"NOT NULL.*column='a'"):
        table.compact(full=True)
    assert table.latest_snapshot() == before
