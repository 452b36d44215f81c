"""Numbered commits of ours between commits and expiries of real clients: each number is applied once, or refused.

CI puts 102 snapshots of another client between two numbers. 10,000 of each:

    python -m pytest tests/interop/test_replays_together.py -m sweep -q
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind
from tests.interop.clients import Client
from tests.interop.our_tables import create

pytestmark = pytest.mark.interop

FIELDS = pa.schema([("name", pa.string()), ("number", pa.int64())])
OPTIONS = {"bucket": "-1", "write-only": "true"}
FEED = "feed"
THEIRS = pa.table({"name": ["theirs"], "number": [0]}, schema=FIELDS)


def feed(path: str, number: int) -> int | None:
    """Append one row under a number, as a process that has just started; the snapshot that has it."""
    row = {"name": FEED, "number": number}
    written = lsm.open_table(path).append([row], commit_user=FEED, commit_identifier=number)
    return None if written is None else written.id


def fed(path: str) -> list[int]:
    rows = lsm.open_table(path).scan(where=f"name = '{FEED}'").to_arrow()
    return sorted(rows["number"].to_pylist())


def newest_id(path: str) -> int:
    return lsm.open_table(path).snapshot_ids()[-1]


def commit_as(client: Client, path: str, count: int) -> None:
    for _ in range(count):
        client.write(path, THEIRS)


@pytest.mark.parametrize(
    "count",
    [102, pytest.param(10_000, marks=[pytest.mark.sweep, pytest.mark.slow])],
)
@pytest.mark.parametrize("name", ["pypaimon", "java"])
def test_a_number_is_applied_once_behind_snapshots_and_expiries_of_a_client(
    name: str, count: int, java: Client, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    path = create(tmp_path, FIELDS, primary_key=[], options=OPTIONS).location
    first = feed(path, 1)
    commit_as(client, path, count)
    assert newest_id(path) == count + 1
    assert feed(path, 1) == first
    feed(path, 2)
    commit_as(client, path, 3)
    # Java's expiry knows nothing of commit identifiers, and takes every snapshot that has one.
    assert java.expire(path, retain_max=1) > count
    assert lsm.open_table(path).snapshot_ids() == [count + 5]
    for number in (1, 2):
        feed(path, number)
    assert newest_id(path) == count + 5
    assert feed(path, 3) == count + 6
    commit_as(client, path, 1)
    lsm.open_table(path).maintenance.expire(older_than="0 s", retain_min=1, retain_max=1)
    for number in (3, 1, 4, 2, 4):
        feed(path, number)
    assert fed(path) == [1, 2, 3, 4]
    assert lsm.open_table(path).last_commit_identifier(FEED) == 4
    theirs = pc.equal(client.read(path)["name"], "theirs")
    assert pc.sum(theirs).as_py() == count + 4


@pytest.mark.parametrize("name", ["pypaimon", "java"])
def test_a_number_that_a_client_has_expired_unseen_is_refused_with_the_remedy(
    name: str, java: Client, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Snapshots alone had it: nobody of ours has committed since the client did for the first time."""
    client: Client = request.getfixturevalue(name)
    path = create(tmp_path, FIELDS, primary_key=[], options=OPTIONS).location
    feed(path, 1)
    feed(path, 2)
    commit_as(client, path, 12)
    assert java.expire(path, retain_max=1) > 0
    for number in (2, 1, 3):
        with pytest.raises(lsm.InvalidInputError, match="set_commit_identifier") as refusal:
            feed(path, number)
        assert refusal.value.kind is ErrorKind.UNKNOWN_IDENTIFIER
    assert fed(path) == [1, 2]
    lsm.open_table(path).set_commit_identifier(FEED, 2)
    for number in (2, 3, 3, 1):
        feed(path, number)
    assert fed(path) == [1, 2, 3]
