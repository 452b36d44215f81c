"""Rows from outside are made to fit, or refused before anything is written, by name and count."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.options.table_options import TableOptions
from lsm_engine.table.incoming import Conformer, conformed, open_rows
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow
from lsm_engine.types.table_schema import TableSchema
from tests.unit.table.history_tables import Story

SEVEN_MILLIS = dt.datetime(1970, 1, 1, 0, 0, 0, 7000)  # noqa: DTZ001 - a type without a zone


def table_of(*fields: pa.Field, key: tuple[str, ...] = ("k",)) -> TableSchema:
    ids = FieldIds()
    return TableSchema(
        id=0,
        fields=tuple(field_from_arrow(field, ids) for field in fields),
        highest_field_id=ids.highest,
        partition_keys=(),
        primary_keys=key,
        options=TableOptions(),
    )


TABLE = table_of(
    pa.field("k", pa.int64(), nullable=False),
    pa.field("v", pa.string()),
    pa.field("n", pa.int32(), nullable=False),
)


def conform(rows, table: TableSchema = TABLE, *, deletes: bool = False):
    return list(conformed(open_rows(rows), table, deletes=deletes))


def refused(rows, table: TableSchema = TABLE, *, deletes: bool = False) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        conform(rows, table, deletes=deletes)
    return caught.value


def test_columns_come_in_the_tables_order_and_types():
    (batch,) = conform(pa.table({"n": pa.array([1], pa.int8()), "k": pa.array([2], pa.int16())}))
    assert batch.rows.schema.names == ["k", "v", "n"]
    assert batch.rows.schema.types == [pa.int64(), pa.string(), pa.int32()]
    assert batch.rows.to_pylist() == [{"k": 2, "v": None, "n": 1}]
    assert batch.kinds.to_pylist() == [0]


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        (pa.array(["+I", "-U", "+U", "-D"]), [0, 1, 2, 3]),
        (pa.array(["-D", "+U", "+I", "-D"]).dictionary_encode(), [3, 2, 0, 3]),
        (pa.array([0, 1, 2, 3], pa.int64()), [0, 1, 2, 3]),
        (pa.array([3, 2, 1, 0], pa.uint8()), [3, 2, 1, 0]),
    ],
)
def test_row_kinds_as_text_or_numbers(given, codes):
    rows = pa.table({"k": [1, 2, 3, 4], "n": [1, 2, 3, 4], "_row_kind": given})
    (batch,) = conform(rows)
    assert batch.kinds.to_pylist() == codes
    assert "_row_kind" not in batch.rows.schema.names


@pytest.mark.parametrize("given", [["+I", "I"], ["+I", None], [0, 4], [-1, 0]])
def test_row_kinds_that_are_none(given):
    error = refused(pa.table({"k": [1, 2], "n": [1, 2], "_row_kind": given}))
    assert error.facts == {"column": "_row_kind", "rows": 1}


def test_lists_of_dictionaries_and_single_batches():
    assert conform([{"k": 1, "n": 2}])[0].rows.num_rows == 1
    batch = pa.record_batch({"k": pa.array([1]), "n": pa.array([1])})
    assert conform(batch)[0].rows.num_rows == 1
    assert conform(pa.table({"k": [1], "n": [1]}).to_reader())[0].rows.num_rows == 1


def test_dictionaries_need_not_name_the_same_columns():
    """Arrow alone would take the first one's columns and lose the values of all others."""
    rows = conform([{"k": 1, "n": 1}, {"n": 2, "v": "x", "k": 2}])[0].rows
    assert rows.to_pylist() == [{"k": 1, "v": None, "n": 1}, {"k": 2, "v": "x", "n": 2}]


def test_dictionaries_of_which_a_column_has_no_one_type():
    assert refused([{"k": 1, "n": 1}, {"k": "x", "n": 1}]).facts == {"column": "k"}
    with pytest.raises(InvalidInputError, match="dictionaries"):
        open_rows([1, 2])


def test_null_keys_are_counted():
    error = refused(pa.table({"k": [1, None, None], "n": [1, 2, 3]}))
    assert (error.kind, error.facts) == (ErrorKind.INVALID_KEY, {"column": "k", "rows": 2})


def test_nulls_where_none_may_be():
    assert refused(pa.table({"k": [1, 2], "n": [None, 2]})).facts == {"column": "n", "rows": 1}


def test_a_delete_needs_no_more_than_its_key():
    rows = pa.table({"k": [1, 2], "n": [None, 2], "_row_kind": ["-D", "+I"]})
    assert conform(rows)[0].rows.column("n").to_pylist() == [None, 2]
    assert conform(pa.table({"k": [1]}), deletes=True)[0].kinds.to_pylist() == [3]


@pytest.mark.parametrize("deletes", [False, True])
def test_missing_keys(deletes):
    error = refused(pa.table({"n": pa.array([1], pa.int32())}), deletes=deletes)
    assert error.facts == {"columns": ["k"]}


def test_missing_columns_that_may_not_be_null():
    assert refused(pa.table({"k": [1]})).facts == {"columns": ["n"]}


def test_unknown_columns_name_the_nearest():
    error = refused(pa.table({"k": [1], "n": [1], "vv": ["x"]}))
    assert error.kind is ErrorKind.NO_SUCH_COLUMN
    assert "'v'" in str(error)
    assert "AddColumn" in str(refused(pa.table({"k": [1], "n": [1], "completely": ["x"]})))


def test_two_columns_of_one_name():
    rows = pa.table([[1], [2], [3]], names=["k", "n", "n"])
    assert refused(rows).facts == {"columns": ["n"]}


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (pa.int32(), pa.array([2**31])),
        (pa.int8(), pa.array([-129])),
        (pa.decimal128(4, 2), pa.array([Decimal("100.00")])),
        (pa.decimal128(4, 2), pa.array([Decimal("1.001")])),
        (pa.float32(), pa.array([1e300])),
        (pa.int64(), pa.array(["1"])),
        (pa.string(), pa.array([1])),
        (pa.int64(), pa.array([1.0])),
        (pa.bool_(), pa.array([1])),
        (pa.date32(), pa.array(["2024-01-01"])),
        (pa.timestamp("us"), pa.array([0], pa.timestamp("us", "UTC"))),
        (pa.timestamp("us", "UTC"), pa.array([0], pa.timestamp("us"))),
        (pa.timestamp("ms"), pa.array([1], pa.timestamp("us"))),
        (pa.binary(), pa.array(["a"])),
        (pa.string(), pa.array([b"a"])),
    ],
)
def test_values_and_types_that_do_not_fit(wanted, given):
    table = table_of(pa.field("k", pa.int64(), nullable=False), pa.field("v", wanted))
    assert refused(pa.table({"k": pa.array([1]), "v": given}), table).facts["column"] == "v"


@pytest.mark.parametrize(
    ("wanted", "given", "value"),
    [
        (pa.int64(), pa.array([5], pa.uint8()), 5),
        (pa.float64(), pa.array([1.5], pa.float32()), 1.5),
        (pa.string(), pa.array(["a"], pa.large_string()), "a"),
        (pa.string(), pa.array(["a"]).dictionary_encode(), "a"),
        (pa.binary(), pa.array([b"a"], pa.large_binary()), b"a"),
        (pa.decimal128(10, 2), pa.array([Decimal("1.5")]), Decimal("1.50")),
        (pa.timestamp("us"), pa.array([7], pa.timestamp("ms")), SEVEN_MILLIS),
        (pa.string(), pa.nulls(1), None),
    ],
)  # fmt: skip
def test_values_that_fit_after_a_cast(wanted, given, value):
    table = table_of(pa.field("k", pa.int64(), nullable=False), pa.field("v", wanted))
    (batch,) = conform(pa.table({"k": pa.array([1]), "v": given}), table)
    assert batch.rows.column("v").type == wanted
    assert batch.rows.column("v").to_pylist() == [value]


def test_lengths_of_fixed_binary():
    table = table_of(pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.binary(3)))
    assert conform(pa.table({"k": [1], "v": [b"abc"]}), table)[0].rows.num_rows == 1
    error = refused(pa.table({"k": [1, 2], "v": [b"abcd", b"a"]}), table)
    assert error.facts == {"column": "v", "rows": 1}


@pytest.mark.parametrize("rows", [{"k": [1]}, 7, "k", None, ({"k": 1},)])
def test_what_is_no_rows_at_all(rows):
    with pytest.raises(InvalidInputError, match="Arrow"):
        open_rows(rows)


def test_everything_is_checked_before_the_first_batch():
    with pytest.raises(InvalidInputError):
        Conformer(pa.schema([("nonsense", pa.int64())]), TABLE)


def test_a_column_of_the_table_may_be_called_row_kind():
    table = table_of(pa.field("k", pa.int64(), nullable=False), pa.field("_row_kind", pa.string()))
    (batch,) = conform(pa.table({"k": [1], "_row_kind": ["anything"]}), table)
    assert batch.kinds.to_pylist() == [0]
    assert batch.rows.column("_row_kind").to_pylist() == ["anything"]


def test_half_a_character_is_refused_by_column_and_text() -> None:
    story = Story()
    half = "a\ud800b"
    for act in (
        lambda: story.table.upsert([{"id": 1, "v": half}]),
        lambda: story.table.scan(where=f"v = '{half}'").to_arrow(),
        lambda: story.table.upsert([{"id": 1, "v": "x"}], commit_user=half),
        lambda: story.table.upsert([{"id": 1, "v": "x"}], properties={"p": half}),
        lambda: story.table.create_tag(half),
        lambda: story.table.create_branch(half),
    ):
        with pytest.raises(lsm.InvalidInputError, match=r"a\\ud800b"):
            act()
    assert story.rows() == {}


NO_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
)


@pytest.mark.parametrize(
    "values",
    [
        NO_UTF8,
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), NO_UTF8),
        pa.StructArray.from_arrays([NO_UTF8], ["x"]),
        pa.DictionaryArray.from_arrays(pa.array([5]), pa.array(["a"]), safe=False),
    ],
    ids=["text", "list", "struct", "index"],
)
def test_values_that_arrow_does_not_allow_are_refused_by_column(values: pa.Array) -> None:
    """Parquet and ORC take text that is no UTF-8 where no statistics look at it; then no reader does."""
    column = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    told = Story(pa.schema([("k", pa.string()), ("v", column)]), key=("k",))
    before = told.files()
    with pytest.raises(InvalidInputError, match="column 'v' is not what Arrow allows"):
        told.table.upsert(pa.table({"k": ["a"], "v": values}))
    assert told.files() == before
    text = pa.table({"k": NO_UTF8})
    with pytest.raises(InvalidInputError, match="column 'k' is not what Arrow allows"):
        told.table.lookup(text)
    with pytest.raises(InvalidInputError, match="column 'k' is not what Arrow allows"):
        told.table.delete(text)


def test_half_a_character_in_the_name_of_a_column_is_refused() -> None:
    told = Story()
    for act in (told.table.upsert, told.table.lookup, told.table.delete, told.table.insert):
        with pytest.raises(InvalidInputError, match="half of a character"):
            act([{"id": 1, "a\ud800": "x"}])
