"""Files of rows in every format become the same stream, typed by the table."""

import gzip
import io
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.cli.row_files import open_row_files

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
    found = open_row_files([str(written(tmp_path, name))], SCHEMA).reader.read_all()
    assert found.select(SCHEMA.names).cast(SCHEMA).to_pylist() == ROWS


def test_files_follow_each_other_and_columns_may_be_missing(tmp_path: Path) -> None:
    short = tmp_path / "b.csv"
    short.write_text("id\n3\n")
    paths = [str(written(tmp_path, "a.parquet")), str(short)]
    found = open_row_files(paths, SCHEMA).reader.read_all()
    assert found["id"].to_pylist() == [1, 2, 3]
    assert found["name"].to_pylist() == ["007", "", None]


def test_decimals_may_be_numbers_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"price": "1.50"}\n{"price": 2}\n')
    schema = pa.schema([SCHEMA.field("price")])
    found = open_row_files([str(path)], schema).reader.read_all()
    assert found["price"].to_pylist() == [Decimal("1.50"), Decimal("2.00")]


def test_row_kinds_are_kept(tmp_path: Path) -> None:
    for name, text in (
        ("a.csv", "id,_row_kind\n1,-D\n"),
        ("a.jsonl", '{"id": 1, "_row_kind": "-D"}\n'),
    ):
        (tmp_path / name).write_text(text)
        found = open_row_files([str(tmp_path / name)], pa.schema([("id", pa.int64())])).reader
        assert found.read_all()["_row_kind"].to_pylist() == ["-D"]


def test_counts_are_known_from_parquet(tmp_path: Path) -> None:
    path = str(written(tmp_path, "a.parquet"))
    assert open_row_files([path, path], SCHEMA).row_count == 4
    assert open_row_files([str(written(tmp_path, "a.csv"))], SCHEMA).row_count is None


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsm_engine.cli.row_files._stdin", lambda: io.BytesIO(CSV.encode()))
    assert open_row_files(["-"], SCHEMA, "csv").reader.read_all().num_rows == 2
    with pytest.raises(InvalidInputError, match="needs --format"):
        open_row_files(["-"], SCHEMA)
    with pytest.raises(InvalidInputError, match="Parquet cannot be read from standard input"):
        open_row_files(["-"], SCHEMA, "parquet")


WRONG = [
    ("nowhere.csv", None, "there is no file"),
    ("a.txt", "x", "give --format"),
    ("a.parquet", "not parquet", "as rows"),
    ("a.arrow", "not arrow", "as rows"),
    ("a.jsonl", "{broken", "as rows"),
    ("a.csv", "id,day\n1,yesterday\n", "column 'day' has values that do not fit"),
    ("b.csv", "id\none\n", "as rows"),
    ("c.csv", "", "as rows"),
]


@pytest.mark.parametrize(("name", "text", "says"), WRONG, ids=[name for name, _, _ in WRONG])
def test_other_files_are_refused_by_name(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInputError, match=says) as told:
        open_row_files([str(path)], SCHEMA).reader.read_all()
    assert "\n" not in str(told.value)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a directory"):
        open_row_files([str(tmp_path)], SCHEMA, "csv")
