"""MERGE beside other writers is as if one had come after the other; `LSM_MERGE_RACES` says how many histories."""

import os

import pytest

from lsm_engine.ddl.create import create_table
from lsm_engine.dml import merge
from lsm_engine.storage.clock import SystemIds
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.merge_races import COLUMNS, race
from tests.model.world import components, reopen

HISTORIES = int(os.environ.get("LSM_MERGE_RACES", "12"))
KINDS = {
    "plain": {"bucket": "2"},
    "write-only": {"bucket": "1", "write-only": "true"},
    "vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "changelog": {"bucket": "2", "changelog-producer": "lookup"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_merges_beside_other_writers_follow_one_another(kind, monkeypatch):
    committed, share = 0, merge.LOOKED_UP_SHARE
    for seed in range(HISTORIES // len(KINDS)):
        # In every other history the keys of the source are looked for, however many they are.
        monkeypatch.setattr(merge, "LOOKED_UP_SHARE", share if seed % 2 else 0)
        storage = MemoryFileIO()
        create_table(
            storage,
            COLUMNS,
            primary_key=("id",),
            partitioned_by=(),
            options=KINDS[kind] | {"num-sorted-run.compaction-trigger": "3"},
            comment=None,
            clock=components(storage).clock,
        )
        tables = [reopen(components(storage, ids=SystemIds())) for _ in range(3)]
        committed += race(
            tables,
            seed,
            3,
            lambda table, source: table.merge(source, on="id"),
            hides_new=kind == "vectors",
        )
    assert committed > HISTORIES // len(KINDS) * 3
