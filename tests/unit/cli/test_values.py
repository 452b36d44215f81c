"""Values for people and programs: exact, plain, and harmless to a terminal."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine import columns_of_text, format_bytes, parse_texts, plain_values, type_of_text
from lsm_engine.base.errors import InvalidInputError, UnsupportedError
from lsm_engine.cli.commands.write import partition_values
from lsm_engine.cli.output import Output, bar, listed, words
from lsm_engine.cli.progress import Interrupted
from lsm_engine.cli.safe_text import cell_text, json_text, neutral, utc_text
from lsm_engine.cli.verb import confirm
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow
from lsm_engine.types.types import type_text

PLAIN = [
    (pa.array([1_714_550_400_123_456_789], pa.timestamp("ns", "UTC")), ["2024-05-01T08:00:00.123456789Z"]),
    (pa.array([0], pa.timestamp("ms")), ["1970-01-01T00:00:00.000"]),
    (pa.array([19844], pa.int32()).cast(pa.date32()), ["2024-05-01"]),
    (pa.array([1], pa.time32("ms")), ["00:00:00.001"]),
    (pa.array([Decimal("1.50")]), ["1.50"]),
    (pa.array([b"\x00\xff", None]), ["00ff", None]),
    (pa.array([float("nan"), float("inf"), 0.5]), ["NaN", "Infinity", 0.5]),
    (pa.array([[1, 2], None, []], pa.list_(pa.int64())), [[1, 2], None, []]),
    (pa.array([[Decimal("1.5")], [None]]).slice(1), [[None]]),
    (pa.array([{"a": b"\x01"}, None], pa.struct([("a", pa.binary())])), [{"a": "01"}, None]),
    (pa.array([[("x", 1)], None, []], pa.map_(pa.string(), pa.int64())), [{"x": 1}, None, {}]),
    (pa.array([[(1, b"a")], [(2, b"b")]], pa.map_(pa.int64(), pa.binary())).slice(1),
     [[{"key": 2, "value": "62"}]]),
    (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
    (pa.chunked_array([[1], [2]]), [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "expected"), PLAIN, ids=[str(c.type) for c, _ in PLAIN])
def test_values_are_plain(column: pa.Array, expected: list) -> None:
    assert plain_values(column) == expected
    json.loads(json_text(expected))


@given(st.text())
def test_nothing_a_terminal_acts_on_is_left(text: str) -> None:
    shown = neutral(text) + cell_text(text) + json_text({"x": text})
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in shown)
    assert not set(shown) & set("\u202e\u2066\u2028")
    if all(not 0xD800 <= ord(letter) < 0xE000 for letter in text):
        assert json.loads(json_text(text)) == text


def test_escapes_are_spelt_out() -> None:
    assert neutral("a\x1b[31mb\nc\u202e") == "a\\x1b[31mb\\nc\\u202e"


def test_times_are_utc() -> None:
    assert utc_text(1_714_550_400_007) == "2024-05-01T08:00:00.007Z"
    assert utc_text(-1) == "1969-12-31T23:59:59.999Z"
    assert utc_text(None) is None
    assert utc_text(1 << 62).endswith(" ms")


def test_hexadecimal_text_becomes_bytes() -> None:
    found = parse_texts(pa.array(["00ff", None, "", "6A"]), pa.binary())
    assert found.to_pylist() == [b"\x00\xff", None, b"", b"j"]
    sliced = parse_texts(pa.array(["zz", "00ff"]).slice(1), pa.binary())
    assert sliced.to_pylist() == [b"\x00\xff"]
    with pytest.raises(pa.ArrowInvalid, match="hexadecimal"):
        parse_texts(pa.array(["0g"]), pa.binary())
    with pytest.raises(pa.ArrowInvalid, match="hexadecimal"):
        parse_texts(pa.array(["000", "0"]), pa.binary())


def test_partitions_are_column_and_value() -> None:
    assert partition_values(["a=1,b=x", "c=d=e"], "__D__") == {"a": "1", "b": "x", "c": "d=e"}
    assert partition_values(["a=x,y"], "__D__") == {"a": "x,y"}
    assert partition_values(["a=__D__"], "__D__") == {"a": None}
    with pytest.raises(InvalidInputError, match="column=value"):
        partition_values(["a"], "__D__")


def test_bars_grow_with_sizes_and_never_vanish() -> None:
    assert len(bar(100, 100)) == 36
    assert bar(0, 100)
    assert bar(1, 10**12)
    assert len(bar(50, 100)) == 18
    assert bar(0, 0)


def test_columns_are_declared_as_schema_files_have_them() -> None:
    found = columns_of_text(
        'id BIGINT NOT NULL, "two words" INT, d DECIMAL(10, 2), at TIMESTAMP_LTZ(3), t TIME,'
        " tags ARRAY<STRING NOT NULL>, m MAP<STRING, ARRAY<INT>>, r ROW<a INT, b ROW<c DATE>>"
    )
    assert found.names == ["id", "two words", "d", "at", "t", "tags", "m", "r"]
    assert not found.field("id").nullable
    assert found.field("d").type == pa.decimal128(10, 2)
    assert found.field("at").type == pa.timestamp("ms", "UTC")
    assert found.field("tags").type.value_field.nullable is False
    assert found.field("m").type.item_type.value_type == pa.int32()
    assert found.field("r").type.field("b").type.field("c").type == pa.date32()


@pytest.mark.parametrize(
    "text", ["", "id", "id BIGINT,", "a ARRAY<INT", "a MAP<INT>", "a INT)", '"" INT']
)
def test_other_column_lists_are_refused(text: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedError)):
        columns_of_text(text)


def test_types_that_would_be_lost_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="would become"):
        columns_of_text("x ARRAY<TIMESTAMP(5)>")
    with pytest.raises(UnsupportedError, match="would become"):
        columns_of_text("x TIMESTAMP(5)")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("timestamp(3) with time zone not null", "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)"),
        ("TIME WITHOUT TIME ZONE", "TIME(0)"),
        ("TIMESTAMPTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("datetime (3) NOT NULL", "TIMESTAMP(3) NOT NULL"),
        ("INT[] NOT NULL", "ARRAY<INT> NOT NULL"),
        ("INT NOT NULL[] null", "ARRAY<INT NOT NULL>"),
        ("text[][] not  null", "ARRAY<ARRAY<STRING>> NOT NULL"),
        ("ARRAY<INT[] NOT NULL>", "ARRAY<ARRAY<INT> NOT NULL>"),
        ("list<int>", "ARRAY<INT>"),
        ("LIST<int64 NOT NULL> NOT NULL", "ARRAY<BIGINT NOT NULL> NOT NULL"),
        ("list<item: int16 not null>", "ARRAY<SMALLINT NOT NULL>"),
        ("list<element: struct<item: float32>>", "ARRAY<ROW<item FLOAT>>"),
        ("map<string, list<item: float64>>", "MAP<STRING, ARRAY<DOUBLE>>"),
        ("array<int32>", "ARRAY<INT>"),
    ],
)
def test_types_are_those_that_the_words_mean(text: str, meant: str) -> None:
    assert type_text(type_of_text(text)) == meant


@pytest.mark.parametrize(
    "text",
    ["INT WITH TIME ZONE", "TIME WITH TIME ZONE", "DATE WITHOUT TIME ZONE", "TEXT(10)",
     "ARRAY<INT> NOT NUL", "[] NOT NULL"],
)  # fmt: skip
def test_words_that_mean_no_type_are_refused(text: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedError)):
        type_of_text(text)


def test_keys_of_maps_are_never_null_and_stay_of_their_type() -> None:
    found = columns_of_text(
        "m MAP<STRING, DECIMAL(10, 2)>, r ROW<m MAP<DECIMAL(4, 1), INT NOT NULL>>"
    )
    assert found.field("m").type.item_type == pa.decimal128(10, 2)
    assert found.field("r").type.field("m").type.key_type == pa.decimal128(4, 1)


def test_lengths_are_kept() -> None:
    found = columns_of_text("x VARCHAR(10), y CHAR(2) NOT NULL, z VARBINARY(3)")
    ids = FieldIds()
    types = [type_text(field_from_arrow(field, ids).type) for field in found]
    assert types == ["VARCHAR(10)", "CHAR(2) NOT NULL", "VARBINARY(3)"]


def test_no_way_of_output_passes_escapes_on(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "tag \x1b[2J\x1b]0;x\x07 is gone"
    out = Output(as_json=False, quiet=False)
    out.report(hostile, {})
    out.report(f"one\n{hostile}", {})
    out.facts({"tags": hostile, "other": 1}, {"tags": hostile})
    out.rows([words("name", hostile)], [{"name": hostile}], empty="")
    out.rows([listed("name")], [{"name": [hostile]}], empty=hostile)
    out.text(hostile)
    out.heading(hostile)
    out.note(hostile)
    Interrupted(hostile).show()
    Output(as_json=True, quiet=False).report("", {"tag": hostile})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("click.termui.visible_prompt_func", lambda _: "y")
        confirm(f"Drop {hostile}?", yes=False)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\\x1b[2J" in text or "\\u001b[2J" in text
    assert "one\n" in shown.out


def test_names_and_values_with_escapes_are_shown_escaped(shop) -> None:
    hostile = "\x1b[31mred\x1b]0;title\x07"
    with shop.catalog() as catalog:
        table = catalog.table("shop.orders")
        table.upsert([{"order_id": 77, "day": hostile, "customer": hostile, "price": None}])
        run = {"lsm.run.id": hostile, "lsm.run.user": hostile}
        table.upsert([{"order_id": 78, "day": "x", "customer": "x"}], properties=run)
    for words_given in (
        ("scan", "shop.orders"), ("snapshots", "shop.orders"), ("files", "shop.orders"),
        ("lineage", "recent"), ("schema", "shop.orders"), ("tree", "shop.orders"),
    ):  # fmt: skip
        for extra in ((), ("--json",)):
            result = shop(*words_given, *extra)
            assert "\x1b" not in result.output
            assert "\x07" not in result.output


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KB"), (1_023_488, "1000 KB"), (1_047_552, "1023 KB"),
     (1_340_000, "1.28 MB"), (-1_500_000_000, "-1.4 GB"), (1500 << 40, "1500 TB")],
)  # fmt: skip
def test_sizes_are_never_written_with_an_exponent(size, text) -> None:
    assert format_bytes(size) == text
