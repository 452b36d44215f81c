"""A snapshot without the index manifest that the one before it names is refused, and maintenance stops."""

from dataclasses import replace

import pytest

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.documents import encode_snapshot
from tests.unit.table.history_tables import Story

VECTORS = {"deletion-vectors.enabled": "true", "write-only": "false"}
DYNAMIC = {"bucket": "-1"}


def damaged(options: dict[str, str]) -> Story:
    told = Story(options=options)
    told.put(**{f"k{number}": "a" * 200 for number in range(500)})
    for value in "bc":
        told.put(k1=value, k2=value)
    store = told.table.session.snapshots
    head = store.latest()
    assert head is not None
    assert head.index_manifest is not None
    told.disk.replace(
        f"snapshot/snapshot-{head.id}", encode_snapshot(replace(head, index_manifest=None))
    )
    told.table = told.reopened()
    return told


@pytest.mark.parametrize("options", [VECTORS, DYNAMIC], ids=["vectors", "dynamic"])
def test_maintenance_and_verify_notice_a_lost_index_manifest(options: dict[str, str]) -> None:
    told = damaged(options)
    before = told.files()
    for act in (
        lambda: told.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True),
        lambda: told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s"),
        lambda: told.put(k1="e"),
    ):
        with pytest.raises(CorruptFileError, match="lost its index manifest"):
            act()
        assert told.files() == before
    assert any("lost its index manifest" in one for one in told.table.verify().problems)


def test_a_scan_notices_lost_deletion_vectors() -> None:
    with pytest.raises(CorruptFileError, match="lost its index manifest"):
        damaged(VECTORS).rows()


def test_a_former_state_without_vectors_may_become_the_newest() -> None:
    told = Story(options=VECTORS)
    told.put(k1="a")
    first = told.table.session.snapshots.latest()
    for value in "bc":
        told.put(k1=value)
    told.table.rollback_to_as_latest(first.id)
    assert told.rows() == {1: "a"}
    assert told.table.verify().is_clean
