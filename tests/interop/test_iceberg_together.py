"""Iceberg metadata of tables that other clients of Paimon write, too: it catches up with their commits."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.engines.iceberg_readers import face, in_order
from tests.interop.our_tables import create

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int32())])
LAYOUTS = {
    "append": ((), {"iceberg-compatibility.enabled": "true"}),
    "keys": (("k",), {"iceberg-compatibility.enabled": "true", "bucket": "1"}),
    "keys by compactions": (("k",), {"metadata.iceberg.storage": "table-location", "bucket": "1"}),
}


def rows(*keys: int, text: str = "a") -> pa.Table:
    return pa.table({"k": keys, "v": [f"{text}{key}" for key in keys], "n": keys}, schema=SCHEMA)


def assert_shown(path: str) -> None:
    table = lsm.open_table(path)
    # Java has written a version of its own, and other clients none.
    assert table.inspect.iceberg().newest_snapshot_id == table.latest_snapshot().id
    table.compact(full=True)
    table.maintenance.sync_iceberg()
    shown = face(table).scan().to_arrow().select(SCHEMA.names).cast(SCHEMA)
    assert in_order(shown) == in_order(table.to_arrow())
    state = table.inspect.iceberg()
    assert (state.lag, state.hidden_files, state.problem) == (0, 0, None)


def writer(request: pytest.FixtureRequest, name: str) -> Callable[[str, pa.Table], object]:
    """What writes rows as a client does."""
    client = request.getfixturevalue(name)
    if name != "java_2":
        return client.write

    def write(path: str, table: pa.Table) -> object:
        given = [["+I", list(row.values())] for row in table.to_pylist()]
        return client.ask("write", path=path, rows=given)

    return write


CASES = [
    ("java", "keys"),
    *((name, layout) for name in ("java_2", "pypaimon", "rust") for layout in LAYOUTS),
]


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_commits_of_another_client_are_shown(
    request: pytest.FixtureRequest, tmp_path: Path, layout: str, name: str
) -> None:
    write_theirs = writer(request, name)
    key, options = LAYOUTS[layout]
    table = create(tmp_path, SCHEMA, primary_key=list(key), options=options)
    path = table.location
    write = table.upsert if key else table.append
    write(rows(*range(10)))
    write_theirs(path, rows(3, 12, text="b"))
    assert_shown(path)
    write(rows(4, 13, text="c"))
    write_theirs(path, rows(4, 14, text="d"))
    write_theirs(path, rows(5, text="e"))
    assert_shown(path)
    assert lsm.open_table(path).verify().problems == ()
