"""Executors write manifests anew as this process does; a task that dies is tried again."""

import os
from functools import partial
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.spark import SparkExecutor, on_spark
from tests.spark.rows import rows

pytestmark = pytest.mark.spark
TARGET = "manifest.target-file-size"


@pytest.fixture
def table(new_table):
    """Twelve commits and a compaction among them, in several groups of small manifests."""
    options = {"write_only": "true", "manifest.merge_min_count": "1000"}
    table = new_table("orders", **options, **{TARGET: "4 kb"})
    for number in range(12):
        table.upsert(rows(number, 40, f"v{number}"))
        if number == 5:
            table.compact(full=True)
    return table


def manifests(table):
    """Bytes and counts of each manifest of the newest state, in order."""
    return [
        (meta.file_size, meta.added_file_count, meta.deleted_file_count)
        for meta in table.session.manifest_metas(table.latest_snapshot())
    ]


def live(table):
    return table.session.live_entries(table.latest_snapshot())


def orphans(table):
    return table.remove_orphan_files(older_than="0 ms", force=True).plan.orphans


@pytest.mark.usefixtures("by_executors")
def test_executors_write_what_this_process_writes(spark, table):
    base, before = table.latest_snapshot(), live(table)
    assert on_spark(table, spark).compact_manifest(dry_run=False).snapshot is not None
    ours = manifests(table)
    assert live(table) == before
    assert len(ours) > 1
    assert not any(deleted for _, _, deleted in ours)
    assert table.verify().is_clean
    assert not orphans(table)
    table.rollback_to(base.id)
    assert lsm.open_table(table.location).compact_manifest(dry_run=False).snapshot is not None
    assert manifests(lsm.open_table(table.location)) == ours


def die_once(marker, work, group):
    """Write manifests, and be killed before the driver learns of them."""
    message = work(group)
    if message.rewritten.manifests and not marker.exists():
        marker.touch()
        os._exit(9)
    return message


class Killed(SparkExecutor):
    """An executor one of whose workers is killed once."""

    def __init__(self, spark, marker):
        super().__init__(spark)
        self.marker = marker

    def messages(self, work, items, **how):
        return super().messages(partial(die_once, self.marker, work), items, **how)


@pytest.mark.usefixtures("by_executors")
def test_a_task_that_is_killed_is_tried_again(spark, table, tmp_path):
    before, marker = live(table), tmp_path / "killed"
    own = lsm.open_table(table.location, executor=Killed(spark, marker))
    assert own.compact_manifest(dry_run=False).snapshot is not None
    assert marker.exists()
    assert live(own) == before
    assert own.verify().is_clean
    assert {Path(path).parent.name for path, _ in orphans(own)} == {"manifest"}
    own.remove_orphan_files(dry_run=False, older_than="0 ms", force=True)
    assert live(lsm.open_table(table.location)) == before


@pytest.mark.usefixtures("by_executors")
def test_a_commit_beside_the_tasks_stays_and_nothing_is_left_behind(spark, table):
    class Beside(SparkExecutor):
        def messages(self, work, items, **how):
            written = super().messages(work, items, **how)
            if waiting:
                lsm.open_table(table.location).upsert(waiting.pop())
            return written

    waiting = [rows(900, 3, "beside")]

    before = table.latest_snapshot().total_record_count
    own = lsm.open_table(table.location, executor=Beside(spark))
    assert own.compact_manifest(dry_run=False).snapshot.total_record_count == before + 3
    assert own.to_arrow().filter(own.to_arrow()["id"].to_numpy() >= 900).num_rows == 3
    assert own.verify().is_clean
    assert not orphans(own)


@pytest.mark.usefixtures("by_executors")
def test_call_writes_the_manifests_by_the_tasks_of_its_session(spark, run, monkeypatch):
    labels = []
    messages = SparkExecutor.messages

    def noted(self, work, items, *, label, **how):
        labels.append((label, len(items)))
        return messages(self, work, items, label=label, **how)

    run("CREATE DATABASE shop")
    run("CREATE TABLE shop.orders (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) USING lsm")
    for number in range(3):
        run(f"INSERT INTO shop.orders VALUES ({number})")
    monkeypatch.setattr(SparkExecutor, "messages", noted)
    facts = run("CALL sys.compact_manifest(table => 'shop.orders')")
    assert [label for label in labels if "manifests" in label[0]] == [
        ("rewrite manifests shop.orders", 1)
    ]
    assert {name for _, name, _ in facts} >= {"what", "found", "snapshot"}
    assert len(run("SELECT * FROM shop.`orders$manifests`")) == 1
    assert sorted(run("SELECT id FROM shop.orders")) == [(0,), (1,), (2,)]
