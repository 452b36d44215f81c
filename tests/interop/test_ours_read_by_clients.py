"""What this engine writes, every real client reads with equal rows: now, at each snapshot and tag."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from tests.interop.canonical import canonical_rows, difference, exact_nanos
from tests.interop.clients import Client
from tests.interop.fixture_tables import READERS
from tests.interop.our_tables import STORIES, create, numbers, rows_of

pytestmark = pytest.mark.interop

SAMPLE = {
    "all_types",
    "nasty_partitions",
    "expired",
    "forgotten",
    "sequence_fields",
    "overwritten",
    "marked",
    "types_avro",
    "types_orc",
    "nested_avro",
    "large_row_groups",
}


# Read back from the same bytes as its fellows' rows by the two others, and by us.
DEFECTS = {
    ("rust", "nested_avro"): "hands out some ROWs of an Avro file as rows of nulls",
    # As in tables that Java writes (docs/decisions/0018); with deletion vectors all agree.
    ("rust", "summed"): "adds a looked-up sum to the older row that it stands for",
    ("pypaimon", "summed"): "adds a looked-up sum to the older row that it stands for",
}


def stories(*, only: set[str] | None = None) -> list[Any]:
    """Each client with each story; beyond the sample only in the long list."""
    return [
        pytest.param(
            client,
            story,
            id=f"{client}-{story}",
            marks=[] if story in SAMPLE else [pytest.mark.interop_full],
        )
        for story in STORIES
        for client in READERS
        if (client, story) not in DEFECTS and (only is None or story in only)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, lsm.Table]:
    """Tables by story, each made once, when it is asked for."""
    return Shelf(tmp_path_factory.mktemp("ours"))


class Shelf(dict[str, lsm.Table]):
    """Tables that are made at their first use."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, story: str) -> lsm.Table:
        warehouse = self.folder / story
        warehouse.mkdir()
        self[story] = STORIES[story](warehouse)
        return self[story]


@pytest.mark.parametrize(("name", "story"), stories())
def test_rows_are_equal(
    name: str, story: str, request: pytest.FixtureRequest, made: dict[str, lsm.Table]
) -> None:
    client: Client = request.getfixturevalue(name)
    table = made[story]
    assert table.verify().problems == ()
    for state, asked in states(table):
        wanted = rows_of(table, **asked)
        got = client.read_rows(table.location, **asked)
        assert (story, state, difference(got, wanted)) == (story, state, "")


def states(table: lsm.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """The head, every snapshot and every tag of a table."""
    yield "head", {}
    for snapshot in table.snapshots():
        yield f"snapshot {snapshot.id}", {"snapshot_id": snapshot.id}
    for tag in table.tags():
        yield f"tag {tag.name}", {"tag": tag.name}


@pytest.mark.interop_full
@pytest.mark.parametrize("name", READERS)
def test_nanoseconds_are_exact(
    name: str, request: pytest.FixtureRequest, made: dict[str, lsm.Table]
) -> None:
    client: Client = request.getfixturevalue(name)
    table = made["nanoseconds"]
    wanted, got = table.scan().to_arrow().sort_by("k"), client.read(table.location).sort_by("k")
    for column in ("t", "z"):
        assert (column, exact_nanos(got, column)) == (column, exact_nanos(wanted, column))


OPERATORS = {
    "=": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
    "in": lambda field, value: field.isin(value),
    "between": lambda field, value: (field >= value[0]) & (field <= value[1]),
}
FILTERS = [
    ("k", "=", 105), ("k", "between", [40, 44]), ("k", ">=", 296), ("k", "in", [3, 250, 9999]),
    ("k", "<", 0), ("n", ">", 97), ("n", "!=", 5), ("x", "<=", 2.5), ("v", "=", "200-a long text 201"),
    ("v", ">", "200-a long text 29"), ("v", "in", ["0-a long text 1", "none"]),
]  # fmt: skip


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "story",
    [
        "stats_truncated",
        *(
            pytest.param(story, marks=pytest.mark.interop_full)
            for story in ("stats_none", "stats_counts", "stats_full", "long_life")
        ),
    ],
)
def test_filters_that_clients_push_down(
    name: str, story: str, request: pytest.FixtureRequest, made: dict[str, lsm.Table]
) -> None:
    """Statistics that said too much would lose rows here; pruning by them must not fail either."""
    client: Client = request.getfixturevalue(name)
    table = made[story]
    for column, operator, value in FILTERS:
        where = OPERATORS[operator](pc.field(column), value)
        found = client.read_filtered(table.location, column, operator, value)
        # Some clients drop only files: what they let through is filtered here, as engines do.
        got = canonical_rows(found.table.filter(where))
        assert (column, operator, difference(got, rows_of(table, where=where))) == (
            column, operator, "",
        )  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_clients_skip_files_by_our_statistics(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    table = create(tmp_path, numbers([]).schema, primary_key=["k"])
    for start in (0, 1000, 2000):
        table.upsert(numbers(range(start, start + 50)))
    assert client.read_filtered(table.location, "k", ">=", 0).planned_rows == 150
    narrow = client.read_filtered(table.location, "k", "between", [1003, 1004])
    assert (narrow.table.num_rows, narrow.planned_rows) == (2, 50)
    assert client.read_filtered(table.location, "k", "=", 5000).planned_rows == 0


@pytest.mark.parametrize("threshold", ["1 b", "1 mb"])
@pytest.mark.parametrize("name", READERS)
def test_clients_read_files_that_have_indexes(
    name: str, threshold: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Those that use indexes find the rows by them; the checksums in their heads are in nobody's way."""
    client: Client = request.getfixturevalue(name)
    # Java 0.9 reads no other types, and of bitmaps the first version alone.
    kinds = ["bloom-filter", "bitmap"]
    if name != "java":
        kinds += ["bsi", "range-bitmap"]
    columns = dict.fromkeys([f"file-index.{kind}.columns" for kind in kinds], "k")
    options = {"file-index.in-manifest-threshold": threshold, **columns}
    options["file-index.bitmap.k.version"] = "1"
    table = create(tmp_path, numbers([]).schema, primary_key=["k"], options=options)
    for start in (0, 1000, 2000):
        table.upsert(numbers(range(start, start + 50)))
    assert client.read(table.location).num_rows == 150
    found = client.read_filtered(table.location, "k", "=", 1003)
    assert found.table.filter(pc.field("k") == 1003).num_rows == 1
