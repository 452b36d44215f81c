"""Files of rows in every format become the same stream, typed by the table."""

import gzip
import io
import zipfile
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.api.row_files import read_files, write_file
from lsm_engine.base.errors import AlreadyExistsError, InvalidInputError, UnsupportedError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("clock", pa.time32("ms")),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
    ]
)
ROWS = [
    {"id": 1, "name": "007", "price": Decimal("1.50"), "day": date(2024, 5, 1),
     "at": datetime(2024, 5, 1, 8, 0, 0, 5),  # noqa: DTZ001
     "clock": time(8), "raw": b"\x00\xff", "flag": True},
    {"id": 2, "name": "", "price": None, "day": None, "at": None, "clock": None, "raw": None, "flag": None},
]  # fmt: skip
CSV = """id,name,price,day,at,clock,raw,flag
1,007,1.5,2024-05-01,2024-05-01 08:00:00.000005,08:00:00,00ff,true
2,"",,,,,,
"""
JSON = """{"id": 1, "name": "007", "price": "1.50", "day": "2024-05-01", "at": "2024-05-01T08:00:00.000005", "clock": "08:00:00", "raw": "00ff", "flag": true}
{"id": 2, "name": "", "price": null}
"""


def written(directory: Path, name: str) -> Path:
    path, rows = directory / name, pa.Table.from_pylist(ROWS, schema=SCHEMA)
    match path.suffix:
        case ".parquet":
            pq.write_table(rows, path)
        case ".feather":
            pa.feather.write_feather(rows, str(path))
        case ".arrows":
            with pa.ipc.new_stream(str(path), rows.schema) as stream:
                stream.write_table(rows)
        case ".gz":
            path.write_bytes(gzip.compress(CSV.encode()))
        case ".csv":
            path.write_text(CSV)
        case _:
            path.write_text(JSON)
    return path


NAMES = ["a.parquet", "a.feather", "a.arrows", "a.csv", "a.csv.gz", "a.jsonl", "a.ndjson"]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    found = read_files([str(written(tmp_path, name))], SCHEMA).reader.read_all()
    assert found.select(SCHEMA.names).cast(SCHEMA).to_pylist() == ROWS


def test_files_follow_each_other_and_columns_may_be_missing(tmp_path: Path) -> None:
    short = tmp_path / "b.csv"
    short.write_text("id\n3\n")
    paths = [str(written(tmp_path, "a.parquet")), str(short)]
    found = read_files(paths, SCHEMA).reader.read_all()
    assert found["id"].to_pylist() == [1, 2, 3]
    assert found["name"].to_pylist() == ["007", "", None]


@pytest.mark.parametrize("name", NAMES)
def test_columns_may_be_chosen_of_every_format(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    rows = read_files(path, SCHEMA, include_columns=["day", "id"]).to_arrow()
    assert rows.to_pylist() == [{"day": row["day"], "id": row["id"]} for row in ROWS]
    with pytest.raises(InvalidInputError, match="has no column 'dya', which include_columns names"):
        read_files(path, SCHEMA, include_columns=["dya"])


def test_values_of_columns_that_are_not_chosen_reject_no_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,price,flag\n1,dear,true\n2,1.50,maybe\n")
    rows = read_files(path, SCHEMA, include_columns=["id", "flag"], on_error="skip")
    assert rows.to_arrow().to_pylist() == [{"id": 1, "flag": True}]
    assert rows.rejected_count == 1


def test_decimals_may_be_numbers_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"price": "1.50"}\n{"price": 2}\n')
    schema = pa.schema([SCHEMA.field("price")])
    found = read_files([str(path)], schema).reader.read_all()
    assert found["price"].to_pylist() == [Decimal("1.50"), Decimal("2.00")]


def test_row_kinds_are_kept(tmp_path: Path) -> None:
    for name, text in (
        ("a.csv", "id,_row_kind\n1,-D\n"),
        ("a.jsonl", '{"id": 1, "_row_kind": "-D"}\n'),
    ):
        (tmp_path / name).write_text(text)
        found = read_files([str(tmp_path / name)], pa.schema([("id", pa.int64())])).reader
        assert found.read_all()["_row_kind"].to_pylist() == ["-D"]


def test_counts_are_known_from_parquet(tmp_path: Path) -> None:
    path = str(written(tmp_path, "a.parquet"))
    assert read_files([path, path], SCHEMA).row_count == 4
    assert read_files([str(written(tmp_path, "a.csv"))], SCHEMA).row_count is None


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lsm_engine.api.row_files._standard_input", lambda: io.BytesIO(CSV.encode())
    )
    assert read_files(["-"], SCHEMA, format="csv").reader.read_all().num_rows == 2
    with pytest.raises(InvalidInputError, match="need --format"):
        read_files(["-"], SCHEMA)
    with pytest.raises(InvalidInputError, match="Parquet cannot be read from standard input"):
        read_files(["-"], SCHEMA, format="parquet")


WRONG = [
    ("nowhere.csv", None, "there is no file"),
    ("a.txt", "x", "give --format"),
    ("a.parquet", "not parquet", "as rows"),
    ("a.arrow", "not arrow", "as rows"),
    ("a.jsonl", "{broken", "line 1: JSON parse error"),
    ("array.json", '[{"id": 1}]', "one JSON array; write an object per line"),
    ("a.csv", "id,day\n1,yesterday\n", "line 2, column 'day': 'yesterday' is not of type DATE"),
    ("b.csv", "id\none\n", "line 2, column 'id': 'one' is not of type BIGINT"),
    ("semicolons.csv", "id;day\n1;2024-05-01\n", "delimiter=';' reads several"),
    ("a.xlsx", "no spreadsheet", "as an Excel file"),
    ("c.csv", "", "as rows"),
    ("days.csv", "id,day\n1,02.01.2020\n", "need date_format='%d.%m.%Y'"),
]


@pytest.mark.parametrize(("name", "text", "says"), WRONG, ids=[name for name, _, _ in WRONG])
def test_other_files_are_refused_by_name(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInputError, match=says) as told:
        read_files([str(path)], SCHEMA).reader.read_all()
    assert "\n" not in str(told.value)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_files([str(tmp_path)], SCHEMA)


def test_text_of_another_encoding_is_refused_with_the_option_that_reads_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"a.csv has bytes .* encoding='latin1'"):
        rows_of(tmp_path, "id,name\n1,café\n".encode("latin1"))
    with pytest.raises(InvalidInputError, match=r"unknown encoding: klingon; .*'cp1252'"):
        rows_of(tmp_path, "id,name\n", encoding="klingon")


def rows_of(
    tmp_path: Path, text: str | bytes, schema: pa.Schema | None = None, **options: object
) -> pa.Table:
    path = tmp_path / str(options.pop("name", "a.csv"))
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_files(path, schema, **options).to_arrow()  # type: ignore[arg-type]


CELLS = [
    ("NA", pa.int32(), None),
    (" 517.0 ", pa.int32(), 517),
    ("+5", pa.int64(), 5),
    ("-1e3", pa.float64(), -1000.0),
    ("yes", pa.bool_(), True),
    ("F", pa.bool_(), False),
    ("NULL", pa.date32(), None),
    ("NULL", pa.string(), "NULL"),
    ("", pa.string(), None),
    ('""', pa.string(), ""),
    ("1.50", pa.decimal128(10, 2), Decimal("1.50")),
    ("2017-12-31 08:00", pa.timestamp("us"), datetime(2017, 12, 31, 8)),  # noqa: DTZ001
]


@pytest.mark.parametrize(
    ("cell", "kind", "value"), CELLS, ids=[f"{cell} {kind}" for cell, kind, _ in CELLS]
)
def test_cells_are_read_as_people_write_them(
    tmp_path: Path, cell: str, kind: pa.DataType, value: object
) -> None:
    schema = pa.schema([("v", kind), ("id", pa.int64())])
    assert rows_of(tmp_path, f"v,id\n{cell},1\n", schema)["v"].to_pylist() == [value]


FORMS = [
    ("id;v\n1;1.234,5\n", {"delimiter": ";", "decimal_point": ",", "thousands": "."}, pa.float64(), 1234.5),
    ("id,v\n1,31/12/2017\n", {"date_format": "%d/%m/%Y"}, pa.date32(), date(2017, 12, 31)),
    ("id,v\n1,8.30\n", {"time_format": "%H.%M"}, pa.time32("ms"), time(8, 30)),
    ("id,v\n1,31.12.2017 8h\n", {"timestamp_format": "%d.%m.%Y %Hh"}, pa.timestamp("ms"), datetime(2017, 12, 31, 8)),  # noqa: DTZ001
    ("id,v\n1,-\n", {"null_values": ["-"]}, pa.int32(), None),
    ("id,v\n1,?\n", {"null_values": ["?"]}, pa.string(), None),
    ("made by x\n\nid,v\n1,5\n", {"skip_lines": 2}, pa.int32(), 5),
    ("1,5\n", {"header": False}, pa.int32(), 5),
    ("a,b\n1,5\n", {"names": ["id", "v"]}, pa.int32(), 5),
    ("id,v\n1,'a,b'\n", {"quote": "'"}, pa.string(), "a,b"),
    ('id,v\n1,"a\\"b"\n', {"escape": "\\"}, pa.string(), 'a"b'),
    ("id,v\n1,\xe9\n".encode("latin1"), {"encoding": "latin1"}, pa.string(), "\xe9"),
    ("id\tv\n1\t5\n", {"name": "a.tsv"}, pa.int32(), 5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "options", "kind", "value"), FORMS, ids=[str(options) for _, options, _, _ in FORMS]
)
def test_files_are_read_in_the_form_that_they_have(
    tmp_path: Path, text: str | bytes, options: dict, kind: pa.DataType, value: object
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    assert rows_of(tmp_path, text, schema, **options).to_pylist() == [{"id": 1, "v": value}]


def test_types_are_inferred_and_na_makes_no_number_text(tmp_path: Path) -> None:
    text = "n,x,day,time,zone,ok,zip,name\n1,0.5,2024-05-01,2024-05-01 08:00:00,2024-05-01T08:00:00Z,true,01234,a\n" \
        "NA,NA,NA,NA,,false,99999,NA\n"  # fmt: skip
    table = rows_of(tmp_path, text)
    assert [str(kind) for kind in table.schema.types] == [
        "int64", "double", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "bool", "string", "string"
    ]  # fmt: skip
    assert table["n"].to_pylist() == [1, None]
    assert table["name"].to_pylist() == ["a", "NA"]


LINES = 'id,name,n\n1,"two\nlines",5\n\n2,b,x\n3\n,d,7\n4,e,8,9\n5,f,99999999999\n6,g,9\n'


def test_lines_that_do_not_fit_are_left_out_and_listed(tmp_path: Path) -> None:
    catalog = lsm.open_catalog(tmp_path / "lake")
    table = catalog.create_table("s.t", lsm.columns_of_text("id BIGINT, name STRING, n INT"), "id")
    path, rejects = tmp_path / "a.csv", tmp_path / "rejects.csv"
    path.write_text(LINES)
    rows = read_files(path, table, on_error="skip", rejects=rejects)
    table.upsert(rows)
    assert sorted(table.to_arrow("id")["id"].to_pylist()) == [1, 6]
    assert rows.rejected_count == 5
    listed = {row["line"]: row for row in pa.csv.read_csv(rejects).to_pylist()}
    assert {line: (row["column"], row["reason"]) for line, row in listed.items()} == {
        5: ("n", "'x' is not of type INT"),
        6: ("", "1 values where 3 are expected: '3'"),
        7: ("id", "no value, and the column may not be null"),
        8: ("", "4 values where 3 are expected: '4,e,8,9'"),
        9: ("n", "'99999999999' is not of type INT"),
    }
    assert listed[5]["row"] == "2,b,x"
    with pytest.raises(AlreadyExistsError, match="the file of rejects is there"):
        read_files(path, table, on_error="skip", rejects=rejects)
    with pytest.raises(InvalidInputError, match=r"a.csv, line 6: 1 values where 3") as error:
        table.upsert(read_files(path, table))
    assert error.value.facts["line"] == 6


def test_lines_are_counted_over_many_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are read ahead, and a wrong row of a later block counts for none before it."""
    monkeypatch.setattr("lsm_engine.api.row_files._BLOCK_BYTES", 200)
    lines = [f'{number},"a\nb"' if number % 7 == 0 else f"{number},x" for number in range(300)]
    lines[150], lines[200], lines[250] = "150", "no,x", "250,x,y"
    text = "id,name\n" + "\n".join(lines) + "\n"
    schema, rejects = (
        pa.schema([("id", pa.int64()), ("name", pa.string())]),
        tmp_path / "rejects.csv",
    )
    table = rows_of(tmp_path, text, schema, on_error="skip", rejects=rejects)
    assert table.num_rows == 297
    rejected = pa.csv.read_csv(rejects)["line"].to_pylist()
    physical = text.splitlines()
    assert [physical[line - 1] for line in rejected] == ["150", "no,x", "250,x,y"]


def test_lines_of_json_that_do_not_fit_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_engine.api.row_files._BLOCK_BYTES", 64)
    lines = [f'{{"id": {number}, "day": "2024-05-01"}}' for number in range(40)]
    lines[7], lines[8], lines[20], lines[30] = '{"id": "x"}', "", "{", '{"id": 30, "day": "soon"}'
    schema, rejects = (
        pa.schema([("id", pa.int64()), ("day", pa.date32())]),
        tmp_path / "rejects.csv",
    )
    table = rows_of(
        tmp_path, "\n".join(lines), schema, name="a.jsonl", on_error="skip", rejects=rejects
    )
    assert table.num_rows == 36
    rejected = pa.csv.read_csv(rejects).to_pylist()
    assert [(row["line"], row["column"]) for row in rejected] == [(8, "id"), (21, ""), (31, "day")]
    assert rejected[0]["reason"] == '"x" is not of type BIGINT'
    assert rows_of(tmp_path, '{"a": 1, "b": "5"}\n', name="b.jsonl").to_pylist() == [
        {"a": 1, "b": "5"}
    ]


SHEET = """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>
<row r="1"><c r="A1" t="str"><v>id</v></c><c r="B1" t="str"><v>n</v></c></row>
<row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>5</v></c></row>
<row r="3"><c r="A3"><v>2</v></c><c r="B3" t="str"><v>NA</v></c></row>
<row r="4"><c r="A4"><v>3</v></c><c r="B4" t="str"><v>soon</v></c></row>
</sheetData></worksheet>"""
WORKBOOK = {
    "[Content_Types].xml": """<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/></Types>""",
    "_rels/.rels": """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>""",
    "xl/workbook.xml": """<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">
<sheets><sheet name="orders" sheetId="1" r:id="r1"/></sheets></workbook>""",
    "xl/_rels/workbook.xml.rels": """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>""",
    "xl/worksheets/sheet1.xml": SHEET,
}


def test_a_sheet_of_excel_is_read_as_text_is(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in WORKBOOK.items():
            archive.writestr(name, text)
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    rows = read_files(path, schema, sheet="orders", on_error="skip").to_arrow()
    assert rows.to_pylist() == [{"id": 1, "n": 5}, {"id": 2, "n": None}]
    with pytest.raises(InvalidInputError, match="line 4, column 'n': 'soon' is not of type INT"):
        read_files(path, schema).to_arrow()
    with pytest.raises(UnsupportedError, match="write csv"):
        write_file(rows, tmp_path / "b.xlsx")


@pytest.mark.parametrize(
    "name", ["b.parquet", "b.arrow", "b.csv", "b.csv.gz", "b.jsonl.gz", "b.tsv"]
)
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    delimiter = {"delimiter": "\t"} if name.endswith(".tsv") else {}
    assert write_file(rows, tmp_path / name, **delimiter) == 2  # type: ignore[arg-type]
    assert read_files(tmp_path / name, SCHEMA).to_arrow().select(SCHEMA.names).to_pylist() == ROWS
    with pytest.raises(AlreadyExistsError, match="the file is there"):
        write_file(rows, tmp_path / name)


def test_rows_are_written_in_the_form_that_is_asked_for(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA).select(["id", "price", "day", "at", "clock"])
    form = {"delimiter": ";", "decimal_point": ",", "date_format": "%d.%m.%Y", "timestamp_format": "%H:%M %d/%m/%Y",
            "time_format": "%Hh", "null_values": ["-"], "header": False, "quote": ""}  # fmt: skip
    write_file(rows, tmp_path / "b.csv", **form)  # type: ignore[arg-type]
    assert (tmp_path / "b.csv").read_text() == (
        "1;1,50;01.05.2024;08:00 01/05/2024;08h\n2;-;-;-;-\n"
    )


def test_options_that_are_none_are_refused_with_the_nearest(tmp_path: Path) -> None:
    for options, says in (
        ({"delimeter": ";"}, "did you mean 'delimiter'"),
        ({"format": "cvs"}, "format is one of parquet, csv"),
        ({"delimiter": ";;"}, "a single character"),
        ({"rejects": "x.csv"}, "on_error='skip'"),
        ({"names": ["a"]}, "has 2 columns, and 1 names"),
        ({"date_format": "%d/%m/%Y"}, "line 2, column 'day'"),
    ):
        with pytest.raises(InvalidInputError, match=says):
            rows_of(tmp_path, "id,day\n1,2024-05-01\n", SCHEMA, **options)


# -- What newcomers' files held --------------------------------------------------------------------


def test_types_are_inferred_from_eight_megabytes_and_not_from_the_header_s_block(
    tmp_path: Path,
) -> None:
    zips = "".join(f"{zip_code}\n" for zip_code in range(99_999, 79_999, -1))  # 120 KB
    table = rows_of(tmp_path, f"zip\n{zips}01067\n")
    assert table["zip"][-1].as_py() == "01067"


def test_digits_that_a_number_would_lose_are_refused_behind_the_first_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_engine.api.row_files._BLOCK_BYTES", 64)
    numbers = "".join(f"{number},0.5\n" for number in range(100))
    for line, column in (("01067,0.5", "zip"), ("5,12345678901234567", "x")):
        with pytest.raises(
            InvalidInputError, match=rf"line 102, column '{column}': .* would lose digits"
        ):
            rows_of(tmp_path, f"zip,x\n{numbers}{line}\n")
    schema = pa.schema([("zip", pa.int64()), ("x", pa.float64())])
    assert rows_of(tmp_path, f"zip,x\n{numbers}01067,0.5\n", schema)["zip"][-1].as_py() == 1067


def test_long_numbers_keep_their_digits(tmp_path: Path) -> None:
    text = "a,b,c\n9223372036854775807,9223372036854775808,0.5\n1,2,12345678901234567\n"
    table = rows_of(tmp_path, text)
    assert [str(kind) for kind in table.schema.types] == ["int64", "string", "string"]
    assert table["b"].to_pylist() == ["9223372036854775808", "2"]


def test_dates_that_begin_with_a_zero_are_inferred(tmp_path: Path) -> None:
    table = rows_of(tmp_path, "d\n01.06.2026\n", date_format="%d.%m.%Y")
    assert table["d"].to_pylist() == [date(2026, 6, 1)]


def test_an_empty_cell_is_null_whatever_else_means_null(tmp_path: Path) -> None:
    text = 'id,n,s\n1,,\n2,-,-\n3,NA,""\n,,\n'
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
    nulls = ["-", "NA"]
    for found in (
        rows_of(tmp_path, text, schema, null_values=nulls),
        rows_of(tmp_path, text.replace("3,NA", "3,5"), null_values=nulls),
    ):
        assert found["s"].to_pylist() == [None, None, ""]
        assert found["n"].to_pylist()[:2] == [None, None]
        assert str(found.schema.field("n").type) == "int64"


def test_a_text_means_null_in_one_column_alone(tmp_path: Path) -> None:
    text = "id,country,people\n1,NA,-\n2,-,NA\n3,DE,5\n"
    expected = [
        {"id": 1, "country": "NA", "people": None},
        {"id": 2, "country": None, "people": None},
        {"id": 3, "country": "DE", "people": 5},
    ]
    own = {"country": "-", "people": ["-"]}
    assert rows_of(tmp_path, text, column_null_values=own).to_pylist() == expected


def test_dates_in_several_forms_are_read_in_one_pass(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("d", pa.date32())])
    text = "id,d\n1,01.06.2026\n2,2026-06-02\n3,3.6.26\n4,\n"
    forms = ["%d.%m.%Y", "%Y-%m-%d", "%d.%m.%y"]
    found = rows_of(tmp_path, text, schema, date_format=forms)
    assert found["d"].to_pylist() == [date(2026, 6, 1), date(2026, 6, 2), date(2026, 6, 3), None]
    write_file(found, tmp_path / "b.csv", date_format=forms)
    assert "01.06.2026" in (tmp_path / "b.csv").read_text()


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("31.02.2026", "%d.%m.%Y"),
        ("20260431", "%Y%m%d"),
        ("29.02.2025", "%d.%m.%Y"),
        ("01.03.26", "%d.%m.%Y"),
        ("31 June 2026", "%d %B %Y"),
    ],
)
def test_a_day_of_no_calendar_is_refused_in_every_form(
    tmp_path: Path, text: str, form: str
) -> None:
    for kind, option in ((pa.date32(), "date_format"), (pa.timestamp("us"), "timestamp_format")):
        with pytest.raises(InvalidInputError, match=f"'{text}' is not of type"):
            rows_of(tmp_path, f"d\n{text}\n", pa.schema([("d", kind)]), **{option: form})


@pytest.mark.parametrize(
    ("text", "form", "day"),
    [
        ("3 March 2026", "%d %b %Y", date(2026, 3, 3)),
        (" 1.3.2026", "%d.%m.%Y", date(2026, 3, 1)),
        ("20261201", "%Y%m%d", date(2026, 12, 1)),
        ("2 Oct 26", "%d %B %y", date(2026, 10, 2)),
        ("02.05.0026", "%d.%m.%Y", date(26, 5, 2)),
    ],
)
def test_a_day_may_be_written_in_any_way_that_the_form_reads(
    tmp_path: Path, text: str, form: str, day: date
) -> None:
    found = rows_of(tmp_path, f"d\n{text}\n", pa.schema([("d", pa.date32())]), date_format=form)
    assert found["d"].to_pylist() == [day]


DIRTY = (
    'id;name;n;d\n1;"semi;colon";-;2026-01-01\n2;"semi;colon";-;soon\n\n3;"two\nlines";x;2026-01-01\n'
    '4;"a ""b""";5\n;"é";5;2026-01-01\n5;-;5;2026-01-01\n6;g;soon;2026-01-01\n'
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("block_bytes", [1 << 20, 40, 7])
def test_rejects_hold_each_line_as_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_end: str, block_bytes: int
) -> None:
    monkeypatch.setattr("lsm_engine.api.row_files._BLOCK_BYTES", max(block_bytes, 64))
    monkeypatch.setattr("lsm_engine.api.row_files._HEAD_BYTES", block_bytes)
    text = DIRTY.replace("\n", line_end)
    schema = pa.schema([
        pa.field("id", pa.int64()), pa.field("name", pa.string()),
        pa.field("n", pa.int64()), pa.field("d", pa.date32()),
    ])  # fmt: skip
    table = lsm.open_catalog(tmp_path / "lake").create_table("s.t", schema, "id")
    (tmp_path / "a.csv").write_bytes(text.encode())
    rejects = tmp_path / "rejects.csv"
    rows = read_files(
        tmp_path / "a.csv",
        table,
        delimiter=";",
        null_values="-",
        on_error="skip",
        rejects=rejects,
    )
    assert rows.to_arrow()["id"].to_pylist() == [1, 5]
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    listed = pa.csv.read_csv(rejects, parse_options=parse).to_pylist()
    assert [(row["line"], row["column"]) for row in listed] == [
        (3, "d"), (5, "n"), (7, ""), (8, "id"), (10, "n"),
    ]  # fmt: skip
    assert [row["row"] for row in listed] == [
        part.replace("\n", line_end)
        for part in (
            '2;"semi;colon";-;soon', '3;"two\nlines";x;2026-01-01', '4;"a ""b""";5',
            ';"é";5;2026-01-01', "6;g;soon;2026-01-01",
        )
    ]  # fmt: skip
    assert "no value, and the column may not be null" in listed[3]["reason"]


def test_lines_are_counted_where_columns_that_are_not_chosen_break_lines(tmp_path: Path) -> None:
    rejects = tmp_path / "rejects.csv"
    text = 'id,"na\nme",n\n1,"a\nb",1\n2,c,x\n'
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    found = rows_of(
        tmp_path, text, schema, include_columns=["id", "n"], on_error="skip", rejects=rejects
    )
    assert found.to_pylist() == [{"id": 1, "n": 1}]
    listed = pa.csv.read_csv(rejects).to_pylist()
    assert [(row["line"], row["row"]) for row in listed] == [(5, "2,c,x")]


JSON_LINES = [
    '{"id": 1, "n": 5, "d": "2026-01-01"}',
    '{"id": null, "n": 5}',
    '{"n": 6}',
    '{"id": 4, "n": 5.5}',
    '{"id": 5, "n": 1, "d": "soon", "s": "a, b"}',
    '{"id": 6, "n": [1]}',
    "[1]",
    '{"id": 8, "z": 1}',
    '{"id": 9, "n": 1, "_row_kind": "+I"}',
    '{"id": 10, "z": null}',
    '{"id": 11, "z": {"a": 1}, "n": 1}',
]


def test_lines_of_json_are_rejected_with_line_and_column(tmp_path: Path) -> None:
    catalog, rejects = lsm.open_catalog(tmp_path / "lake"), tmp_path / "rejects.csv"
    columns = lsm.columns_of_text("id BIGINT, n INT, d DATE, s STRING")
    table = catalog.create_table("s.t", columns, "id")
    lines = [line for line in JSON_LINES if "_row_kind" not in line]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    rows = read_files(path, table, on_error="skip", rejects=rejects)
    table.upsert(rows)
    assert sorted(table.to_arrow("id")["id"].to_pylist()) == [1, 10]
    listed = pa.csv.read_csv(rejects).to_pylist()
    assert [row["row"] for row in listed] == [lines[row["line"] - 1] for row in listed]
    assert [(row["line"], row["column"], row["reason"]) for row in listed] == [
        (2, "id", "no value, and the column may not be null"),
        (3, "id", "no value, and the column may not be null"),
        (4, "n", "5.5 is not of type INT"),
        (5, "d", "'soon' is not of type DATE"),
        (6, "n", "[1] is not of type INT"),
        (7, "", "the line is no JSON object"),
        (8, "z", "'1' is of a column that the table, or the beginning of the file, lacks"),
        (10, "z", '{"a": 1} is of a column that the table, or the beginning of the file, lacks'),
    ]  # fmt: skip
    assert rows.rejected_count == 8
    with pytest.raises(InvalidInputError, match=r"a.jsonl, line \d+, column '\w+': "):
        table.upsert(read_files(path, table))


def test_a_column_of_every_json_line_that_the_table_lacks_fails_the_load(tmp_path: Path) -> None:
    table = lsm.open_catalog(tmp_path / "lake").create_table("s.t", {"id": int}, "id")
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "z": 1}\n{"id": 2, "z": 2}\n')
    with pytest.raises(InvalidInputError, match="no column 'z'"):
        table.upsert(read_files(path, table, on_error="skip"))
    table.upsert(read_files(path, table, include_columns=["id"]))
    assert table.count() == 2


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_row_kind_that_is_none_rejects_its_line(tmp_path: Path, name: str) -> None:
    table = lsm.open_catalog(tmp_path / "lake").create_table("s.t", {"id": int}, "id")
    kinds = ["+I", "", "-D", "X"]
    if name == "a.csv":
        text = "id,_row_kind\n" + "".join(f"{line},{kind}\n" for line, kind in enumerate(kinds))
    else:
        text = "".join(
            f'{{"id": {line}, "_row_kind": "{kind}"}}\n' for line, kind in enumerate(kinds)
        )
    (tmp_path / name).write_text(text)
    rows = read_files(tmp_path / name, table, on_error="skip")
    table.upsert(rows)
    assert rows.rejected_count == 2
    assert table.to_arrow()["id"].to_pylist() == [0]
    with pytest.raises(InvalidInputError, match=r"column '_row_kind': .*is no row kind"):
        table.upsert(read_files(tmp_path / name, table))


def test_the_columns_are_known_before_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,name\n1,a\n")
    assert read_files(path).schema == pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize("has_table", [True, False])
def test_a_json_value_of_another_type_than_those_before_it_rejects_its_line(
    tmp_path: Path, *, has_table: bool
) -> None:
    text = (
        '{"id": 1, "z": 1}\n{"id": 2, "z": {"a": 1}}\n{"id": 3}\n{"id": 4, "z": "q"}\n{"id": 5}\n'
    )
    schema, rejects = pa.schema([("id", pa.int64())]), tmp_path / "rejects.csv"
    found = rows_of(
        tmp_path, text, schema if has_table else None, name="a.jsonl", on_error="skip", rejects=rejects
    )  # fmt: skip
    assert found["id"].to_pylist() == ([3, 5] if has_table else [1, 3, 5])
    listed = pa.csv.read_csv(rejects).to_pylist()
    assert [row["line"] for row in listed] == ([1, 2, 4] if has_table else [2, 4])
    assert [row["row"] for row in listed] == [text.splitlines()[row["line"] - 1] for row in listed]


def test_a_json_value_of_no_type_is_rejected_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"line 2, column 'z': JSON parse error: .*array"):
        rows_of(tmp_path, '{"id": 1}\n{"id": 2, "z": [1, []]}\n', name="a.jsonl")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,v\n1,"abc\n2,d\n', 2),
        ('id,v\n1,x\n2,"abc', 3),
        ('id,v\n1,"a\nb"\n\n2,"abc\n3,d\n5,f\n', 5),
        ('id,v\n0,w\n"1,x\n2,y\n3,z\n', 3),
        ('id,v\n1,"say ""\n2,d""', 2),
    ],
)
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_quote_that_is_not_closed_fails_the_load(
    tmp_path: Path, text: str, line: int, on_error: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    with pytest.raises(InvalidInputError, match=r"a.csv, line \d+: ") as error:
        rows_of(tmp_path, text, schema, on_error=on_error)
    if on_error == "skip":
        assert "a quote is not closed" in str(error.value)
    assert error.value.facts["line"] == line


@pytest.mark.parametrize(
    "text",
    [
        'id,v\n1,"a\nb"\n',
        'id,v\n1,"a\nb""c"""',
        'id,v\n1,""\n',
        'id,v\n1,5" pipe\n',
        'id,v\r\n1,"a\r\nb"\r\n',
        'id,v\n1,x\n"",""',
    ],
)
def test_a_quote_that_is_closed_is_none(tmp_path: Path, text: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    assert rows_of(tmp_path, text, schema)["id"][0].as_py() == 1


def test_quotes_without_a_meaning_are_text(tmp_path: Path) -> None:
    found = rows_of(tmp_path, 'id,v\n1,"a\n2,b\n', quote="")
    assert found["v"].to_pylist() == ['"a', "b"]


NUMBERS = [
    ("1.234,5", 1234.5), ("12.5", None), ("1.23", None), ("1..0", None), (".5", None), ("12", 12.0),
    ("1.00.000", 100000.0), ("-1.234.567", -1234567.0), (" 1.234 ", 1234.0), ("1234,5", 1234.5),
    ("1.234,5.6", None), ("1e3", 1000.0), ("0,5", 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS, ids=[text for text, _ in NUMBERS])
def test_thousands_are_groups_of_digits(tmp_path: Path, text: str, value: float | None) -> None:
    options = {"delimiter": ";", "thousands": ".", "decimal_point": ",", "on_error": "skip"}
    for kind in (pa.float64(), pa.decimal128(10, 2)):
        found = rows_of(tmp_path, f"v;w\n{text};1\n", pa.schema([("v", kind)]), **options)
        values = [None if item is None else float(item) for item in found["v"].to_pylist()]
        assert values == ([] if value is None else [value])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_number_beyond_a_double_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("x", kind)])
    with pytest.raises(InvalidInputError, match="line 3, column 'x': '1e400' is not of type"):
        rows_of(tmp_path, "x\n1e3\n1e400\n", schema)
    assert rows_of(tmp_path, "x\ninf\n-Infinity\n", schema)["x"].to_pylist() == [
        float("inf"),
        float("-inf"),
    ]


def test_an_offset_is_no_part_of_a_time_without_a_zone(tmp_path: Path) -> None:
    text, form = "t\n01.02.2026 10:00 +0200\n", "%d.%m.%Y %H:%M %z"
    for kind, option in ((pa.timestamp("us"), "timestamp_format"), (pa.date32(), "date_format")):
        with pytest.raises(InvalidInputError, match="line 2, column 't'"):
            rows_of(tmp_path, text, pa.schema([("t", kind)]), **{option: form})
    instant = datetime.fromisoformat("2026-02-01T08:00:00+00:00")
    assert rows_of(tmp_path, text, timestamp_format=form)["t"].to_pylist() == [instant]


def test_a_header_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"a.csv has several columns 'v'; names="):
        rows_of(tmp_path, "id,v,v\n1,2,3\n")
    assert rows_of(tmp_path, "id,v,v\n1,2,3\n", names=["id", "v", "w"]).num_rows == 1


DOUBLES = pa.table(
    {
        "id": pa.array([1.0, 2.0, None]),
        "price": [12.5, 0.1, None],
        "day": ["2024-05-01", "NA", None],
        "at": pa.array([datetime(2024, 5, 1), None, None], pa.timestamp("ms")),  # noqa: DTZ001
    }
)
CASTS = {"id": "BIGINT", "price": "DECIMAL(10, 2)", "day": "DATE", "at": "DATE"}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.feather"])
def test_columns_of_files_with_types_are_cast_exactly(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lsm.write_file(DOUBLES, path)
    rows = lsm.read_files(path, casts=CASTS).to_arrow()
    assert rows.schema.types == [pa.int64(), pa.decimal128(10, 2), pa.date32(), pa.date32()]
    assert rows.to_pylist() == [
        {"id": 1, "price": Decimal("12.50"), "day": date(2024, 5, 1), "at": date(2024, 5, 1)},
        {"id": 2, "price": Decimal("0.10"), "day": None, "at": None},
        {"id": None, "price": None, "day": None, "at": None},
    ]


@pytest.mark.parametrize(
    ("column", "values", "kind"),
    [
        ("price", [1.5, 12.505], "DECIMAL(10, 2)"),
        ("price", [1.5, 1e12], "DECIMAL(10, 2)"),
        ("price", [1.5, float("inf")], "DECIMAL(10, 2)"),
        ("id", [1.0, 2.5], "BIGINT"),
        ("id", [1, 1 << 40], "INT"),
        ("id", [1, (1 << 53) + 1], "DOUBLE"),
        ("day", ["2024-05-01", "2024-02-30"], "DATE"),
        ("at", [datetime(2024, 5, 1), datetime(2024, 5, 1, 8)], "DATE"),  # noqa: DTZ001
    ],
)
def test_a_cast_that_would_change_a_value_is_refused(
    tmp_path: Path, column: str, values: list[object], kind: str
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({column: values}), path)
    with pytest.raises(lsm.InvalidInputError, match=rf"rows\.parquet, column '{column}'") as caught:
        lsm.read_files(path, casts={column: kind}).to_arrow()
    assert caught.value.facts["value"] == str(values[1])


def test_columns_of_files_of_text_are_cast_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,price\n1,12.5\n")
    rows = lsm.read_files(path, casts={"price": "DECIMAL(10, 2)"}, include_columns=["price"])
    assert rows.to_arrow().to_pylist() == [{"price": Decimal("12.50")}]


def test_casts_of_no_column_and_no_type_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(DOUBLES, path)
    with pytest.raises(lsm.InvalidInputError, match="has no column 'cost', which casts name"):
        lsm.read_files(path, casts={"cost": "INT"})
    with pytest.raises(lsm.LsmError, match="MONEY"):
        lsm.read_files(path, casts={"price": "MONEY"})
    with pytest.raises(lsm.InvalidInputError, match=r"column 'price'|cannot read"):
        lsm.read_files(path, casts={"price": "ARRAY<INT>"}).to_arrow()
