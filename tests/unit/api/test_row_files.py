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
