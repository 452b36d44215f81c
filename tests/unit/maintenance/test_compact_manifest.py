"""Manifests are written anew in groups, beside commits of others, and nothing is left behind."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import StorageError
from lsm_engine.commit import commit
from lsm_engine.commit.metadata_writer import MetadataWriter, write_metadata
from lsm_engine.table.components import LocalExecutor

COLUMNS = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL"}


def new_table(path: Path, commits: int, **options: str) -> lsm.Table:
    """A table of so many commits of two days, compacted half way, whose manifests no commit merges."""
    options = {"bucket": "2", "write-only": "true", "manifest.merge-min-count": "1000", **options}
    with lsm.open_catalog(path / "lake") as catalog:
        table = catalog.create_table(
            "shop.orders",
            COLUMNS,
            primary_key=["id", "day"],
            partitioned_by=["day"],
            options=options,
        )
        for number in range(commits):
            put(table, number)
            if number == commits // 2:
                table.compact(full=True)
        return lsm.open_table(table.location)


@pytest.fixture
def table(tmp_path: Path) -> lsm.Table:
    """Manifests that fit into one."""
    return new_table(tmp_path, 8)


def put(table: lsm.Table, number: int) -> None:
    days = ("mon", "tue")
    table.upsert([{"id": number + place, "day": day} for place, day in enumerate(days)])


def live(table: lsm.Table) -> list[Any]:
    """The entries of the newest state, as the lists have them."""
    return table.session.live_entries(table.latest_snapshot())


def stray(table: lsm.Table) -> Sequence[Any]:
    """Files that nothing names, of whatever age."""
    return table.remove_orphan_files(older_than="0 ms", force=True).plan.orphans


def test_groups_hold_the_same_entries_in_the_same_order(tmp_path: Path) -> None:
    """A few files fill a manifest."""
    table = new_table(tmp_path, 40, **{"manifest.target-file-size": "4 kb"})
    before, rows = live(table), table.latest_snapshot().total_record_count
    assert {meta.deleted_file_count > 0 for meta in metas(table)} == {True, False}
    snapshot = table.compact_manifest(dry_run=False).snapshot
    assert snapshot is not None
    assert live(table) == before
    assert snapshot.total_record_count == rows
    assert sum(meta.added_file_count for meta in metas(table)) == len(before)
    assert not any(meta.deleted_file_count for meta in metas(table))
    assert 1 < len(metas(table)) < 20
    assert not stray(table)
    assert table.verify().is_clean


def metas(table: lsm.Table) -> Sequence[Any]:
    return table.session.manifest_metas(table.latest_snapshot())


class Beside(LocalExecutor):
    """Acts once the groups have been written, and counts how often they are."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act, self.count = act, 0

    def messages(self, work: Any, items: Any, **how: Any) -> Any:
        self.count += 1
        written = super().messages(work, items, **how)
        if self.count == 1:
            self.act()
        return written


def test_what_others_commit_meanwhile_stays_as_it_is(table: lsm.Table) -> None:
    executor = Beside(lambda: put(lsm.open_table(table.location), 90))
    rows = table.latest_snapshot().total_record_count
    own = lsm.open_table(table.location, executor=executor)
    snapshot = own.compact_manifest(dry_run=False).snapshot
    assert snapshot is not None
    assert executor.count == 1
    assert snapshot.total_record_count == rows + 2
    assert {"id": 91, "day": "tue"} in own.to_arrow().to_pylist()
    assert not stray(own)
    assert own.verify().is_clean


def test_a_lost_race_costs_no_second_rewrite(
    table: lsm.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def beside(session: Any, plan: Any, *lost: Any) -> Any:
        written = write_metadata(session, plan, *lost)
        attempts.append(plan.snapshot_id)
        if len(attempts) == 1:
            monkeypatch.setattr(commit, "write_metadata", write_metadata)
            put(lsm.open_table(table.location), 90)
            monkeypatch.setattr(commit, "write_metadata", beside)
        return written

    executor = Beside(lambda: None)
    own = lsm.open_table(table.location, executor=executor)
    monkeypatch.setattr(commit, "write_metadata", beside)
    assert own.compact_manifest(dry_run=False).snapshot is not None
    assert len(attempts) == 2
    assert executor.count == 1
    assert not stray(own)
    assert own.verify().is_clean


def test_another_base_is_written_anew_and_the_first_files_go(table: lsm.Table) -> None:
    """Someone else has written the manifests anew: those that were read are no longer there."""
    executor = Beside(lambda: lsm.open_table(table.location).compact_manifest(dry_run=False))
    own = lsm.open_table(table.location, executor=executor)
    before = live(own)
    assert own.compact_manifest(dry_run=False).snapshot is not None
    assert executor.count == 2
    assert live(own) == before
    assert not stray(own)


def test_a_rewrite_that_fails_leaves_nothing(
    table: lsm.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: MetadataWriter, metas: Any) -> Any:
        raise StorageError("the disk is full", path="manifest")

    monkeypatch.setattr(MetadataWriter, "list", full)
    with pytest.raises(StorageError):
        table.compact_manifest(dry_run=False)
    assert not stray(table)


def test_a_group_that_fails_leaves_nothing(table: lsm.Table) -> None:
    last = metas(table)[-1]
    path = Path(table.location) / "manifest" / last.file_name
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    with pytest.raises(lsm.LsmError):
        lsm.open_table(table.location).compact_manifest(dry_run=False)
    path.write_bytes(data)
    assert not stray(table)
