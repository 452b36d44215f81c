"""What is left after our rollback, retagging, expiry and branches, every real client reads as we do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from tests.interop.canonical import difference
from tests.interop.clients import Client
from tests.interop.fixture_tables import READERS
from tests.interop.our_tables import NUMBERS, create, numbers, rows_of
from tests.interop.test_ours_read_by_clients import states

pytestmark = pytest.mark.interop


def lived(warehouse: Path, **options: str) -> lsm.Table:
    """Six snapshots, two tags, a compaction between them."""
    table = create(
        warehouse, NUMBERS, primary_key=["k"], options={"bucket": "2", "write-only": "true", **options}
    )  # fmt: skip
    table.upsert(numbers(range(60)))
    table.upsert(numbers(range(20, 40), "b-"))
    table.create_tag("early")
    table.delete(numbers(range(10)))
    table.compact(full=True)
    table.create_tag("late")
    table.upsert(numbers(range(50, 90), "c-"))
    table.upsert(numbers(range(5), "d-"))
    return table


def rolled_back(warehouse: Path) -> lsm.Table:
    """Back to a snapshot, its ids used again by other rows."""
    table = lived(warehouse)
    table.rollback_to(3)
    table.upsert(numbers(range(100, 110), "again-"))
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    return table


def rolled_back_to_an_expired_tag(warehouse: Path) -> lsm.Table:
    """Back to a tag whose snapshot was gone."""
    table = lived(warehouse)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    table.rollback_to(tag="early")
    table.upsert(numbers(range(200, 205)))
    return table


def restored(warehouse: Path) -> lsm.Table:
    """A former state made the newest: files come back that a compaction had taken away."""
    table = lived(warehouse)
    table.rollback_to_as_latest(tag="early")
    table.upsert(numbers(range(300, 310), "after-"))
    table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 s")
    return table


def retagged(warehouse: Path) -> lsm.Table:
    """Tags renamed, moved and deleted; what they named expired."""
    table = lived(warehouse)
    table.rename_tag("early", "oldest")
    table.replace_tag("late", 6, retained="90 d")
    table.create_tag("doomed", 1)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    table.delete_tag("doomed")
    return table


def forwarded(warehouse: Path) -> lsm.Table:
    """Main as one of its branches went on, another column included."""
    table = lived(warehouse)
    table.create_tag("base")
    table.create_branch("fix", "base")
    table.branch("fix").alter(lsm.AddColumn(name="extra", type="BIGINT"))
    table.branch("fix").delete(numbers(range(30, 35)))
    table.branch("fix").compact(full=True)
    table.branch("fix").create_tag("fixed")
    table.fast_forward("fix")
    table.delete_branch("fix")
    table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 s")
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    return table


def mended(warehouse: Path) -> lsm.Table:
    """Manifests written anew, snapshots gone and back from the trash."""
    table = lived(warehouse, **{"maintenance.trash-retained": "1 d"})
    table.compact_manifest(dry_run=False)
    table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 s")
    table.undo_maintenance()
    return table


def outlived(warehouse: Path) -> lsm.Table:
    """Changelogs beside fewer snapshots."""
    table = lived(warehouse, **{
        "changelog-producer": "input", "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "2", "changelog.num-retained.max": "4",
        "changelog.time-retained": "1 d",
    })  # fmt: skip
    table.expire_snapshots()
    return table


HISTORIES: dict[str, Callable[[Path], lsm.Table]] = {
    made.__name__: made
    for made in (
        rolled_back, rolled_back_to_an_expired_tag, restored, retagged, forwarded, mended, outlived,
    )
}  # fmt: skip


def each() -> list[Any]:
    """Each client with each history; CI takes one client for each, the long list all."""
    return [
        pytest.param(
            client,
            history,
            id=f"{client}-{history}",
            marks=[] if at % len(READERS) == turn else [pytest.mark.interop_full],
        )
        for at, history in enumerate(HISTORIES)
        for turn, client in enumerate(READERS)
    ]


@pytest.mark.parametrize(("name", "history"), each())
def test_rows_are_equal(
    name: str, history: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    table = HISTORIES[history](tmp_path)
    assert table.verify().problems == ()
    for state, asked in states(table):
        wanted = rows_of(table, **asked)
        got = client.read_rows(table.location, **asked)
        assert (history, state, difference(got, wanted)) == (history, state, "")
