"""The checker is checked: what real Paimon clients wrote passes, and what is bent does not."""

import json
from pathlib import Path

import pytest

from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model import invariants
from tests.model.stored_table import StoredTable
from tests.model.strategies import PARTITIONED_SHAPE, Layout, key_pool, row_of
from tests.model.table_model import DELETE, INSERT
from tests.model.world import World

FIXTURES = Path(__file__).parents[1] / "fixtures"
# Parquet tables with a key and a fixed bucket, whose writers kept to what format section 0 asks for.
REAL = (
    "hand-written/pk_parquet", "hand-written/deletion_vector", "java-0.9.0/aggregation",
    "java-0.9.0/dedup_sequence", "java-0.9.0/levels", "java-0.9.0/pk_basic",
    "java-0.9.0/pk_bucket_key_subset", "java-0.9.0/pk_partition_escape", "java-0.9.0/pk_partitioned",
    "java-0.9.0/stats_none", "java-0.9.0/stats_truncate", "java-0.9.0/types_parquet",
    "java-0.9.0/types_ts_precisions", "pypaimon-2.1.0/pk_basic", "pypaimon-2.1.0/pk_composite",
    "pypaimon-2.1.0/types_parquet",
)  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_tables_of_real_clients_pass(name: str) -> None:
    table = StoredTable(LocalFileIO(str(FIXTURES / name / "table")))
    snapshots = table.snapshots()
    assert snapshots
    for snapshot in snapshots.values():
        trees: dict[tuple[bytes, int], list] = {}
        for entry in table.live(snapshot).values():
            invariants.check_data_file(table, entry)
            trees.setdefault((entry.partition, entry.bucket), []).append(entry)
        for entries in trees.values():
            invariants.check_tree(table, entries)
        for which in ("baseManifestList", "deltaManifestList"):
            for manifest in table.manifest_list(snapshot[which]):
                invariants.check_manifest(table, manifest)


@pytest.fixture
def world() -> World:
    world = World(PARTITIONED_SHAPE, Layout(bucket=2), MemoryFileIO())
    pool = key_pool(PARTITIONED_SHAPE)
    for seed in range(3):
        world.upsert([(INSERT, row_of(PARTITIONED_SHAPE, key, seed)) for key in pool])
        world.settle()
    world.create_tag("kept", 1)
    world.check()
    return world


def bend(world: World, path: str, **members: object) -> None:
    disk = world.inner
    document = {**json.loads(disk.read(path)), **members}
    disk.replace(path, json.dumps(document).encode())


def test_a_lost_file_is_seen(world: World) -> None:
    path = next(path for path in world.stored.files() if path.endswith(".parquet"))
    world.inner.delete(path)
    with pytest.raises(AssertionError, match="not there"):
        invariants.check_invariants(StoredTable(world.inner))


def test_a_forgotten_file_is_seen(world: World) -> None:
    world.inner.write_new("p=0/bucket-0/data-x-0.parquet", b"")
    with pytest.raises(AssertionError, match="needed by no"):
        invariants.check_invariants(StoredTable(world.inner))
    invariants.check_invariants(StoredTable(world.inner), staged=["p=0/bucket-0/data-x-0.parquet"])


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("totalRecordCount", 1),
        ("deltaRecordCount", 1),
        ("id", 9),
        ("timeMillis", 1),
        ("version", 2),
    ],
)
def test_bent_snapshots_are_seen(world: World, member: str, value: int) -> None:
    bend(world, "snapshot/snapshot-3", **{member: value})
    with pytest.raises(AssertionError):
        invariants.check_invariants(StoredTable(world.inner))


def test_a_gap_and_a_wrong_hint_are_seen(world: World) -> None:
    world.inner.replace("snapshot/LATEST", b"2")
    with pytest.raises(AssertionError, match="LATEST"):
        invariants.check_invariants(StoredTable(world.inner))
    world.inner.replace("snapshot/LATEST", b"3")
    world.inner.delete("snapshot/snapshot-2")
    with pytest.raises(AssertionError, match="gap"):
        invariants.check_invariants(StoredTable(world.inner))


def test_the_model_forgets_deletes_only_where_it_may(world: World) -> None:
    model = world.model
    key = next(iter(model.state))
    model.write([(DELETE, world.key_row(key))])
    assert model.answers(key) == {None}
    model.compact()
    assert model.answers(key) == {None}
    model.write([(INSERT, row_of(world.shape, key, 7))])
    assert model.answers(key) == {row_of(world.shape, key, 7)}
