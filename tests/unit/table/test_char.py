"""CHAR(n) and VARCHAR(n): blanks are written and read, and do not count where values are compared."""

import operator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, InvalidInputError, InvalidOptionError
from lsm_engine.table import incoming

PADDED = "char-keys.padded"
NESTED = {
    "a": "ARRAY<CHAR(2)>",
    "m": "MAP<CHAR(2), VARCHAR(2)>",
    "r": "ROW<c CHAR(3), l ARRAY<CHAR(1)>>",
}
LETTERS = st.text("ab \t!é", max_size=4)


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path) as made:
        made.create_database("d")
        yield made


@pytest.fixture
def as_given(monkeypatch):
    """Have rows written as clients do that add no blanks."""
    return lambda: monkeypatch.setattr(incoming, "stored_values", lambda _, __, values: values)


def keyed(catalog, name="d.k", **options):
    columns = {"c": "CHAR(5)", "v": "CHAR(3)"}
    return catalog.create_table(
        name, columns, primary_key=["c"], options={"bucket": "4", **options}
    )


def rows_of(table, **asked):
    return sorted(table.to_arrow(**asked).to_pylist(), key=lambda row: row["c"])


def test_a_key_with_its_blanks_and_one_without_are_one_row(catalog):
    table = keyed(catalog)
    assert table.schema.options.texts[PADDED] == "true"
    table.upsert([{"c": "ab", "v": "x"}])
    table.upsert([{"c": "ab       ", "v": "y"}, {"c": "q", "v": "z  "}])
    assert rows_of(table) == [{"c": "ab   ", "v": "y  "}, {"c": "q    ", "v": "z  "}]
    assert table.lookup([{"c": "ab"}, {"c": "q    "}]).column("v").to_pylist() == ["y  ", "z  "]
    table.delete([{"c": "q"}])
    table.upsert([{"c": "new", "v": "n"}])
    table.delete(where="c = 'new'")
    assert rows_of(table) == [{"c": "ab   ", "v": "y  "}]


def test_merge_and_update_compare_and_write_with_blanks(catalog):
    table = keyed(catalog)
    table.upsert([{"c": "ab", "v": "x"}, {"c": "q", "v": "z"}])
    source = [{"c": "ab", "v": "new"}, {"c": "r ", "v": "r"}]
    table.merge(source, on="c").when_matched_update_all().when_not_matched_insert_all().execute()
    assert [row["v"] for row in rows_of(table)] == ["new", "z  ", "r  "]
    twice = [{"c": "s", "v": "1"}, {"c": "s ", "v": "2"}]
    merge = table.merge(twice, on="c", condition="target.v = 'no'").when_not_matched_insert_all()
    with pytest.raises(InvalidInputError, match="same key"):
        merge.execute()
    table.update(set={"v": "'u'"}, where="c = 'q'")
    table.update(set={"v": "'w'"}, where="upper(c) = 'R    ' AND c IN ('r', 'nobody')")
    assert [row["v"] for row in rows_of(table)] == ["new", "u  ", "w  "]


def test_nested_values_are_padded_and_trimmed(catalog):
    table = catalog.create_table("d.n", {"c": "CHAR(1)", **NESTED})
    row = {"c": "x  ", "a": ["q", None, "zz   "], "m": {"k": "v   "}, "r": {"c": "b", "l": ["y"]}}
    table.append([row, {"c": "y", "a": None, "m": None, "r": {"c": None, "l": None}}])
    assert rows_of(table) == [
        {"c": "x", "a": ["q ", None, "zz"], "m": [("k ", "v ")], "r": {"c": "b  ", "l": ["y"]}},
        {"c": "y", "a": None, "m": None, "r": {"c": None, "l": None}},
    ]
    for wrong in ({"a": ["zzz"]}, {"m": {"k": "vvv"}}, {"r": {"c": "bbbb"}}):
        with pytest.raises(InvalidInputError, match="longer than"):
            table.append([{"c": "x", **wrong}])
    with pytest.raises(InvalidInputError, match="key twice"):
        table.append([{"c": "x", "m": {"k": "1", "k ": "2"}}])


def test_only_blanks_beyond_the_length_go(catalog):
    table = catalog.create_table("d.v", {"c": "CHAR(2)", "v": "VARCHAR(3)"})
    table.append([{"c": "é", "v": "a  "}, {"c": "éé    ", "v": "a      "}, {"c": "zz", "v": ""}])
    assert rows_of(table) == [
        {"c": "zz", "v": ""}, {"c": "é ", "v": "a  "}, {"c": "éé", "v": "a  "},
    ]  # fmt: skip
    for wrong in ({"c": "ab c"}, {"c": "abc"}, {"v": "abcd"}, {"v": "a   b"}):
        with pytest.raises(InvalidInputError, match="longer than"):
            table.append([wrong])


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_values_stored_without_blanks_are_read_with_them(
    catalog, as_given, monkeypatch, file_format
):
    """As Flink, pypaimon and versions before 0.4 write them."""
    table = keyed(catalog, **{"file.format": file_format})
    with monkeypatch.context() as old:
        old.setattr(incoming, "stored_values", lambda _, __, values: values)
        table.upsert([{"c": "ab   ", "v": "x"}, {"c": "abcde", "v": "y\t"}])
    table.upsert([{"c": "q", "v": "x"}])
    assert rows_of(table, where="v = 'x'") == [
        {"c": "ab   ", "v": "x  "},
        {"c": "q    ", "v": "x  "},
    ]
    assert [row["c"] for row in rows_of(table, where="v >= 'y\t'")] == ["abcde"]
    assert table.verify(deep=True).problems == ()
    table.compact(full=True)
    assert table.verify(deep=True).problems == ()
    assert [row["v"] for row in rows_of(table)] == ["x  ", "y\t ", "x  "]


def old_table(catalog, as_given, rows):
    """A table as it is where nobody knows how its keys are stored."""
    table = keyed(catalog)
    as_given()
    table.upsert(rows)
    table.alter(lsm.RemoveOption(PADDED))
    return catalog["d.k"]


def test_short_keys_are_refused_where_nobody_knows_how_they_are_stored(
    catalog, as_given, monkeypatch
):
    table = old_table(catalog, as_given, [{"c": "abcde", "v": "x"}, {"c": "ab", "v": "y"}])
    monkeypatch.undo()
    table.upsert([{"c": "vwxyz", "v": "z"}])
    for write in (table.upsert, table.delete):
        for key in ("ab", "ab   ", "new"):
            with pytest.raises(InvalidInputError, match=PADDED) as refused:
                write([{"c": key}])
            assert refused.value.kind is ErrorKind.INVALID_KEY
    # They are read, found and compared as they are stored.
    assert [row["c"] for row in rows_of(table)] == ["ab", "abcde", "vwxyz"]
    assert rows_of(table, where="c = 'ab'") == [{"c": "ab", "v": "y  "}]
    assert table.lookup([{"c": "ab"}]).column("v").to_pylist() == ["y  "]
    with pytest.raises(InvalidOptionError, match=r"1 key of column 'c'.*new table"):
        table.alter(lsm.SetOption(PADDED, "true"))
    copy = keyed(catalog, "d.copy")
    copy.upsert(table.to_arrow())
    copy.upsert([{"c": "ab", "v": "n"}])
    assert [row["c"] for row in rows_of(copy)] == ["ab   ", "abcde", "vwxyz"]


def test_the_option_is_set_where_all_keys_have_their_blanks(catalog, as_given, monkeypatch):
    """Such as those that Spark wrote by another client."""
    table = old_table(catalog, as_given, [{"c": "ab   ", "v": "x"}, {"c": "abcde", "v": "y"}])
    monkeypatch.undo()
    table.alter(lsm.SetOption(PADDED, "true"))
    table = catalog["d.k"]
    table.upsert([{"c": "ab", "v": "n"}])
    assert rows_of(table) == [{"c": "ab   ", "v": "n  "}, {"c": "abcde", "v": "y  "}]


def test_partitions_are_named_with_blanks_or_without(catalog):
    columns = {"p": "CHAR(3)", "c": "CHAR(2)", "n": "INT"}
    table = catalog.create_table("d.p", columns, primary_key=["p", "c"], partitioned_by=["p"])
    table.upsert([{"p": "a", "c": "x", "n": 1}, {"p": "b ", "c": "y", "n": 2}])
    table.overwrite([{"p": "a", "c": "z", "n": 3}], {"p": "a"})
    table.upsert([{"p": "a  ", "c": "z ", "n": 4}])
    assert rows_of(table) == [{"p": "b  ", "c": "y ", "n": 2}, {"p": "a  ", "c": "z ", "n": 4}]
    assert [row["n"] for row in rows_of(table, where="p = 'b'")] == [2]


def test_arrow_expressions_compare_letter_by_letter(catalog):
    """Other engines hand theirs down, and mean just this."""
    table = keyed(catalog)
    table.upsert([{"c": "ab", "v": "x"}])
    assert rows_of(table, where=pc.field("c") == "ab") == []
    assert len(rows_of(table, where=pc.field("c") == "ab   ")) == 1
    assert table.to_dataset().to_table(filter=pc.field("v") == "x  ").num_rows == 1


TESTS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    values=st.lists(LETTERS, min_size=1, max_size=6),
    old=st.integers(0, 6),
    literals=st.lists(st.text("ab \t!é", max_size=6), min_size=1, max_size=3),
)
def test_filters_compare_as_if_the_shorter_had_its_blanks(tmp_path_factory, values, old, literals):
    """Whether blanks are stored or not, and whatever statistics say of what is stored."""
    with lsm.open_catalog(tmp_path_factory.mktemp("w")) as catalog:
        catalog.create_database("d")
        table = catalog.create_table("d.t", {"c": "CHAR(4)", "n": "INT"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(incoming, "stored_values", lambda _, __, values: values)
            for at, value in enumerate(values[:old]):
                table.append([{"c": value, "n": at}])
        table.append(
            [{"c": value, "n": at} for at, value in enumerate(values)][old:]
            or [{"c": None, "n": -1}]
        )
        for sign, test in TESTS.items():
            for text in literals:
                width = max(4, len(text))
                wanted = [
                    at
                    for at, value in enumerate(values)
                    if test(value.ljust(width), text.ljust(width))
                ]
                column = lsm.col.c
                where = {"=": column == text, "<>": column != text, "<": column < text, "<=": column <= text, ">": column > text, ">=": column >= text}[sign]  # fmt: skip
                found = table.to_arrow(where=where).column("n").to_pylist()
                assert sorted(found) == wanted, (sign, text)
        among = [
            at
            for at, value in enumerate(values)
            if any(value.ljust(9) == text.ljust(9) for text in literals)
        ]
        assert (
            sorted(table.to_arrow(where=lsm.col.c.is_in(literals)).column("n").to_pylist()) == among
        )


def test_columns_of_char_compare_with_the_blanks_of_the_longer(catalog):
    table = catalog.create_table("d.two", {"c": "CHAR(2)", "w": "CHAR(4)", "s": "STRING"})
    table.append([{"c": "a", "w": "a", "s": "a"}, {"c": "b", "w": "bbbb", "s": "b "}])
    assert table.to_arrow(where="c = w").num_rows == 1
    assert table.to_arrow(where="c = s").column("s").to_pylist() == ["b "], (
        "text has the blanks it has"
    )
    assert pa.types.is_string(table.schema.arrow.field("c").type)


def test_a_deep_verification_names_keys_that_lack_their_blanks(catalog, monkeypatch):
    """Another client may write them into a table that has the option."""
    table = keyed(catalog)
    with monkeypatch.context() as old:
        old.setattr(incoming, "stored_values", lambda _, __, values: values)
        table.upsert([{"c": "ab", "v": "x"}])
    assert table.verify().problems == ()
    assert table.verify(deep=True).problems != ()
