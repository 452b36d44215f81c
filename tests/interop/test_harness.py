"""The harness itself: real clients read the tables they are known to read, and write their own."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.canonical import difference, exact_nanos
from tests.interop.clients import (
    Client,
    ClientError,
    PypaimonClient,
    RustClient,
    UnsupportedByClient,
)
from tests.interop.fixture_tables import READERS, FixtureTable, on_disk, readers

pytestmark = pytest.mark.interop

JAVA = "java-0.9.0"
PYPAIMON = "pypaimon-2.1.0"
# Small, and between them every kind of file that a reader meets.
SAMPLE = {
    FixtureTable(writer=JAVA, name="pk_basic"),
    FixtureTable(writer=JAVA, name="pk_partitioned"),
    FixtureTable(writer=JAVA, name="deletion_vectors"),
    FixtureTable(writer=JAVA, name="schema_evolution"),
    FixtureTable(writer=JAVA, name="types_parquet"),
    FixtureTable(writer=PYPAIMON, name="pk_basic"),
    FixtureTable(writer="hand-written", name="pk_avro"),
}


def pairs() -> list[Any]:
    """Each client with each fixture that it reads; beyond the sample only in the long list."""
    return [
        pytest.param(
            client,
            fixture,
            id=f"{client}-reads-{fixture.writer}-{fixture.name}",
            marks=[] if fixture in SAMPLE else [pytest.mark.interop_full],
        )
        for client in READERS
        for fixture in on_disk()
        if client in readers().get(fixture, frozenset())
    ]


def readable(client: Client, fixture: FixtureTable, scratch: Path) -> Path:
    """The fixture's table as that client can open it."""
    if isinstance(client, PypaimonClient) and fixture.writer == JAVA:
        return client.copy_readable(fixture.table, scratch / "table")
    return fixture.table


def test_every_fixture_has_its_line_in_readers():
    missing = [fixture for fixture in on_disk() if fixture not in readers()]
    assert missing == []
    assert set(on_disk()) >= SAMPLE


@pytest.mark.parametrize(("name", "fixture"), pairs())
def test_reads_fixture(
    name: str, fixture: FixtureTable, request: pytest.FixtureRequest, tmp_path: Path
):
    client: Client = request.getfixturevalue(name)
    path = readable(client, fixture, tmp_path)
    expected = fixture.expected
    assert difference(client.read_rows(path), expected["rows"]) == ""
    for number, snapshot in expected["snapshots"].items():
        got = client.read_rows(path, snapshot_id=int(number))
        assert (number, difference(got, snapshot["rows"])) == (number, "")
    for tag, tagged in expected["tags"].items():
        assert (tag, difference(client.read_rows(path, tag=tag), tagged["rows"])) == (tag, "")


@pytest.mark.parametrize("name", READERS)
def test_reads_nanoseconds(name: str, request: pytest.FixtureRequest, tmp_path: Path):
    fixture = FixtureTable(writer=JAVA, name="types_ts_precisions")
    client: Client = request.getfixturevalue(name)
    table = client.read(readable(client, fixture, tmp_path))
    row = table.column("k").to_pylist().index(1)
    for column, nanos in fixture.expected["exact_nanos"]["1"].items():
        assert (column, exact_nanos(table, column)[row]) == (column, nanos)


def test_pypaimon_says_why_it_cannot_open_java_manifests(pypaimon: Client):
    with pytest.raises(ClientError, match="_VALUE_STATS_COLS") as caught:
        pypaimon.read(FixtureTable(writer=JAVA, name="pk_basic").table)
    assert caught.value.kind == "KeyError"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("fixture", ["changelog_input", "changelog_lookup"])
def test_reads_changelog(name: str, fixture: str, request: pytest.FixtureRequest, tmp_path: Path):
    table = FixtureTable(writer=JAVA, name=fixture)
    client: Client = request.getfixturevalue(name)
    path = readable(client, table, tmp_path)
    for number, rows in table.expected["changelog"].items():
        assert (number, difference(client.changes(path, int(number)), rows)) == (number, "")


@pytest.mark.parametrize("name", READERS)
def test_lists_live_files(name: str, request: pytest.FixtureRequest, tmp_path: Path):
    table = FixtureTable(writer=JAVA, name="levels")
    client: Client = request.getfixturevalue(name)
    files = client.files(readable(client, table, tmp_path))
    wanted = table.expected["live_files"]
    if name != "java":
        wanted = [
            {key: value for key, value in file.items() if key != "partition_hex"} for file in wanted
        ]
    assert difference(files, wanted) == ""


FIELDS = [("k", "INT NOT NULL"), ("v", "STRING"), ("n", "BIGINT")]
ROWS = pa.table(
    {
        "k": pa.array([1, 2, 3], pa.int32()),
        "v": ["a", "b", None],
        "n": pa.array([10, 20, 30], pa.int64()),
    }
)


def keyed(*keys: int) -> pa.Table:
    """Rows of which only the key is known."""
    return pa.table({"k": pa.array(keys, pa.int32())})


def test_java_goes_through_a_table_life(java: Client, tmp_path: Path):
    path = java.create(tmp_path, "db.t", FIELDS, primary_key=["k"], options={"bucket": "2"})
    assert java.write(path, ROWS) == 1
    assert java.write(path, ROWS.slice(0, 2), kinds=["-D", "+U"]) == 2
    java.create_tag(path, "before", 1)
    assert java.compact(path, full=True) == 3
    assert {file["level"] for file in java.files(path)} == {5}
    after = [{"k": 2, "v": "b", "n": 20}, {"k": 3, "v": None, "n": 30}]
    assert difference(java.read_rows(path), after) == ""
    assert java.read(path, tag="before").num_rows == 3
    assert sorted(kind for kind, _ in java.changes(path, 2, "delta")) == ["+U", "-D"]
    assert java.changes(path, 2) == []
    assert java.lookup(path, keyed(3, 1, 2)) == [after[1], None, after[0]]
    assert set(java.buckets(path, keyed(*range(50)))) == {0, 1}
    assert java.expire(path) == 2
    assert java.read(path, tag="before").num_rows == 3


@pytest.mark.parametrize(("name", "file_format"), [("pypaimon", "parquet"), ("rust", "avro")])
def test_writes_and_reads_back(
    name: str, file_format: str, request: pytest.FixtureRequest, java: Client, tmp_path: Path
):
    client: Client = request.getfixturevalue(name)
    path = client.create(
        tmp_path, "db.t", [*FIELDS, ("rk", "STRING")], primary_key=["k"],
        options={"bucket": "1", "rowkind.field": "rk", "file.format": file_format},
    )  # fmt: skip
    assert client.write(path, ROWS, kinds=["+I"] * 3) == 1
    client.create_tag(path, "first")
    assert client.write(path, ROWS.slice(0, 1), kinds=["-D"]) == 2
    for reader in (client, java):
        assert sorted(reader.read(path).column("k").to_pylist()) == [2, 3]
        assert reader.read(path, snapshot_id=1).num_rows == 3
        assert reader.read(path, tag="first").num_rows == 3


def test_java_cannot_merge_parquet_of_rust(rust: Client, java: Client, tmp_path: Path):
    """It leaves the key columns out of Parquet files: whoever mixes these two must take Avro."""
    path = rust.create(tmp_path, "db.t", FIELDS, primary_key=["k"], options={"bucket": "1"})
    rust.write(path, ROWS)
    assert java.read(path).num_rows == 3
    rust.write(path, ROWS)
    assert rust.read(path).num_rows == 3
    with pytest.raises(ClientError, match="_KEY_k"):
        java.read(path)


@pytest.mark.parametrize("name", READERS)
def test_filter_skips_files(name: str, request: pytest.FixtureRequest, tmp_path: Path):
    client: Client = request.getfixturevalue(name)
    path = client.create(tmp_path, "db.t", FIELDS, primary_key=["k"], options={"bucket": "1"})
    for start in (0, 1000):
        keys = pa.array(range(start, start + 10), pa.int32())
        values = {
            "k": keys,
            "v": [str(key) for key in keys.to_pylist()],
            "n": keys.cast(pa.int64()),
        }
        client.write(path, pa.table(values))
    everything = client.read_filtered(path, "k", ">=", 0)
    assert (everything.table.num_rows, everything.planned_rows) == (20, 20)
    narrow = client.read_filtered(path, "k", "between", [1003, 1004])
    assert sorted(narrow.table.column("k").to_pylist()) == [1003, 1004]
    assert narrow.planned_rows == 10
    assert client.read_filtered(path, "k", "=", 5).planned_rows == 10
    assert client.read_filtered(path, "k", "in", [3, 5000]).planned_rows == 10


def test_says_what_a_client_lacks(pypaimon: Client, rust: Client):
    path = FixtureTable(writer=PYPAIMON, name="pk_basic").table
    for client in (pypaimon, rust):
        for operation in (client.compact, client.expire):
            with pytest.raises(UnsupportedByClient):
                operation(path)
        with pytest.raises(UnsupportedByClient):
            client.lookup(path, keyed(1))
        with pytest.raises(UnsupportedByClient, match=r"rowkind\.field"):
            client.write(path, ROWS, kinds=["-D"] * 3)
    with pytest.raises(UnsupportedByClient):
        rust.buckets(path, keyed(1))


def test_client_survives_its_own_errors(rust: Client, tmp_path: Path):
    with pytest.raises(ClientError):
        rust.read(tmp_path / "nothing-here")
    with pytest.raises(ValueError, match="absolute"):
        rust.read("relative/path")
    assert rust.read(FixtureTable(writer=PYPAIMON, name="pk_basic").table).num_rows > 0


def test_dead_or_silent_client_is_an_error_and_the_next_call_starts_anew():
    table = FixtureTable(writer=PYPAIMON, name="pk_basic").table
    with RustClient() as client:
        rows = client.read(table).num_rows
        client.process.kill()
        with pytest.raises(ClientError) as died:
            client.read(table)
        assert died.value.kind == "ProcessEnded"
        assert client.read(table).num_rows == rows
        process = client.process
        client.timeout_seconds = 0.0
        with pytest.raises(ClientError) as silent:
            client.read(table)
        assert silent.value.kind == "NoAnswer"
        assert process.poll() is not None


@pytest.mark.parametrize("name", READERS)
def test_types_written_are_read_back(
    name: str, request: pytest.FixtureRequest, java: Client, tmp_path: Path
):
    """Through the long way: an Arrow schema in, Paimon's own types on disk, the same values out."""
    client: Client = request.getfixturevalue(name)
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("d", pa.decimal128(20, 3)),
            pa.field("t", pa.timestamp("us")),
            pa.field("day", pa.date32()),
            pa.field("b", pa.binary()),
            pa.field("f", pa.float64()),
        ]
    )
    values = {"k": [1, 2], "d": ["-0.001", None], "t": [-1, None], "day": [-1, None]}
    rows = pa.table(
        {
            "k": pa.array(values["k"], pa.int64()),
            "d": pa.array(values["d"]).cast(pa.decimal128(20, 3)),
            "t": pa.array(values["t"], pa.int64()).cast(pa.timestamp("us")),
            "day": pa.array(values["day"], pa.int32()).cast(pa.date32()),
            "b": pa.array([b"\x00\xff", None]),
            "f": pa.array([float("inf"), None]),
        },
        schema=schema,
    )
    path = client.create(tmp_path, "db.t", schema, primary_key=["k"], options={"bucket": "1"})
    client.write(path, rows)
    wanted = [
        {
            "k": 1,
            "d": {"$decimal": "-0.001"},
            "t": {"$timestamp": "1969-12-31T23:59:59.999999"},
            "day": {"$date": "1969-12-31"},
            "b": {"$bytes": "AP8="},
            "f": {"$float": "inf"},
        },
        {"k": 2, "d": None, "t": None, "day": None, "b": None, "f": None},
    ]
    assert difference(client.read_rows(path), wanted) == ""
    assert difference(java.read_rows(path), wanted) == ""
