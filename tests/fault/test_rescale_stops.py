"""Rescale, stopped before each call that changes something: the table takes writes, and doing it again finishes it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import CommitConflictError, LsmError
from tests.fault.all_pairs import UNCHANGING, attempted, calls_of, judge, later_problems, observed
from tests.fault.pair_operations import JUDGE, OURS, expire, prepared, rows, write
from tests.fault.paused_lakes import lake_doubles
from tests.fault.paused_stores import Disk, StorageCall, monotonic, object_doubles
from tests.fault.recording_file_io import Crash

STORES = ("memory", "objects")
KINDS = ("partitioned", "vectors")
BUCKETS = 2


@pytest.fixture(autouse=True, scope="module")
def _doubles() -> Iterator[None]:
    with object_doubles(), lake_doubles():
        yield


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"])


def totals_of(table: Table) -> set[int]:
    """The numbers of buckets that live files were written for."""
    latest = table.session.snapshots.latest()
    assert latest is not None
    return {entry.total_buckets for entry in table.session.live_entries(latest)}


def changing_calls(store: str, kind: str) -> list[int]:
    calls = calls_of(store, kind, "rescale")
    return [at for at, call in enumerate(calls, 1) if call.verb not in UNCHANGING]


def killed_at(store: str, kind: str, at: int) -> Disk:
    """Return the disk that a rescale leaves which dies before a call."""
    disk = prepared(store, kind)
    number = 0

    def on_call(_: StorageCall) -> None:
        nonlocal number
        number += 1
        if number >= at:
            raise Crash  # of every later call too: nothing runs in a killed process

    with pytest.raises(Crash):
        attempted("rescale", disk.process(OURS, on_call), knows_newest=True)
    return disk


def paused_at(
    store: str, kind: str, at: int, theirs: Callable[[Table], object]
) -> tuple[Disk, Any]:
    """Return the disk that a rescale leaves beside which others act before a call, and its answer."""
    disk = prepared(store, kind)
    number = 0

    def on_call(_: StorageCall) -> None:
        nonlocal number
        number += 1
        if number == at:
            monotonic.pause()
            theirs(disk.opened(JUDGE))
            monotonic.pause()

    return disk, attempted("rescale", disk.process(OURS, on_call), knows_newest=True)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_whose_rescale_was_killed_takes_writes_and_is_rescaled_again(
    store: str, kind: str
) -> None:
    before = rows_of(prepared(store, kind).opened(JUDGE))
    buckets: set[tuple[int, frozenset[int]]] = set()
    for at in changing_calls(store, kind):
        disk = killed_at(store, kind, at)
        table = disk.opened(judge())
        buckets.add((table.schema.bucket_count, frozenset(totals_of(table))))
        assert rows_of(table) == before
        expected = {row["k"]: row["v"] for row in before} | {4: "after", 5: "after", 60: "after"}
        table.upsert([{**row, "v": "after"} for row in rows(4, 2, "").to_pylist()])
        disk.opened(judge()).upsert(rows(60, 1, "after"))
        disk.opened(judge()).delete(rows(6, 1, "").select(table.schema.primary_keys))
        disk.opened(judge()).compact(full=True)
        del expected[6]
        assert {row["k"]: row["v"] for row in rows_of(disk.opened(judge()))} == expected
        disk.opened(judge()).rescale(BUCKETS)
        again = disk.opened(judge())
        assert again.schema.bucket_count == BUCKETS
        assert totals_of(again) == {BUCKETS}
        assert {row["k"]: row["v"] for row in rows_of(again)} == expected
        if at % 5 == 0:
            assert not list(later_problems(disk, observed(disk)))
    # The rows come first: with the new number in the option they have it, too.
    assert buckets == {(1, frozenset({1})), (1, frozenset({BUCKETS}))}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_committed_beside_a_rescale_are_there(store: str, kind: str) -> None:
    for at in changing_calls(store, kind):
        disk, answer = paused_at(store, kind, at, lambda table: write(table, 4, 60, "beside"))
        assert not isinstance(answer, LsmError)
        table = disk.opened(judge())
        found = {row["k"]: row["v"] for row in rows_of(table)}
        assert all(found[key] == "beside" for key in range(4, 64))
        assert table.schema.bucket_count == BUCKETS
        table.upsert(rows(4, 2, "after"))
        assert {row["v"] for row in rows_of(table) if row["k"] in (4, 5)} == {"after"}
        assert at % 5 or table.verify().is_clean


def test_a_rescale_that_others_outrun_leaves_the_option_as_it_was() -> None:
    disk = prepared("memory", "plain")
    turn = 0

    def on_call(call: StorageCall) -> None:
        nonlocal turn
        if call.verb in ("write_new", "create") and "manifest-list" in call.paths[0]:
            turn += 1
            write(disk.opened(judge()), 100 + turn, 1, "theirs")
            disk.opened(judge()).compact(full=True)

    before = disk.opened(JUDGE)
    schemas = before.session.schemas.ids()
    answer = attempted("rescale", disk.process(OURS, on_call), knows_newest=True)
    assert isinstance(answer, CommitConflictError)
    assert turn >= 5
    table = disk.opened(judge())
    assert table.session.schemas.ids() == schemas
    assert table.schema.bucket_count == 1
    assert totals_of(table) == {1}
    assert {row["k"] for row in rows_of(table)} >= set(range(101, 101 + turn))
    assert not list(later_problems(disk, observed(disk)))
    assert disk.opened(judge()).rescale(BUCKETS) is not None


@pytest.mark.parametrize("store", STORES)
def test_of_two_rescales_the_later_one_has_the_option(store: str) -> None:
    for at in changing_calls(store, "partitioned"):
        disk, answer = paused_at(store, "partitioned", at, lambda table: table.rescale(3))
        assert not isinstance(answer, LsmError)
        table = disk.opened(judge())
        assert totals_of(table) == {table.schema.bucket_count}
        assert table.verify().is_clean


@pytest.mark.parametrize(
    ("store", "go_back"),
    [("memory", "rollback_to"), ("objects", "rollback_to"), ("memory", "rollback_to_as_latest")],
)
def test_a_rescale_that_is_rolled_back_or_restored_at_once_says_so(
    store: str, go_back: str
) -> None:
    """The option follows the rows: where they have their former buckets again it stays."""
    answers = []
    for at in changing_calls(store, "partitioned"):
        disk, answer = paused_at(
            store, "partitioned", at, lambda table: getattr(table, go_back)(tag="live")
        )
        table = disk.opened(judge())
        answers.append(type(answer))
        if isinstance(answer, LsmError):
            assert table.schema.bucket_count == 1
            assert totals_of(table) == {1}
        write(table, 4, 2, "after")
        expire(table)
        assert {row["v"] for row in rows_of(table) if row["k"] in (4, 5)} == {"after"}
        if at % 5 == 0:
            assert not list(later_problems(disk, observed(disk)))
    assert CommitConflictError in answers
