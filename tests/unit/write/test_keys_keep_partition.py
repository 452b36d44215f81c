"""Cross-partition upserts that do not move a key: its rows go where it is, whatever they say."""

import random

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.snapshot import RowCounts, row_counts_of

SCHEMA = pa.schema([("k", pa.int64()), ("dt", pa.string()), ("v", pa.int64())])


def create(tmp_path, **options):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    return catalog.create_table(
        "d.t", SCHEMA, primary_key=["k"], partitioned_by=["dt"],
        options={"bucket": "-1", "commit.fsync": "false", **options},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ({}, False),
        ({"simple.index.update.partition.path": "false"}, True),
        ({"index.type": "global-bloom", "bloom.index.update.partition.path": "false"}, True),
        ({"index.type": "global-bloom", "simple.index.update.partition.path": "false"}, False),
    ],
)
def test_a_history(options, keeps, tmp_path):
    table = create(tmp_path, **options)
    rng, there = random.Random(1), {}
    for step in range(8):
        if step % 4 == 3:
            gone = rng.sample(range(20), 5)
            table.delete([{"k": k} for k in gone])
            for k in gone:
                there.pop(k, None)
            continue
        rows = [{"k": rng.randrange(20), "dt": f"d{rng.randrange(3)}", "v": step} for _ in range(8)]
        table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
        for row in rows:
            old = there.get(row["k"])
            there[row["k"]] = {**row, "dt": old["dt"]} if keeps and old else row
        found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"])
        assert found == [there[k] for k in sorted(there)]
    assert table.verify().problems == ()


def test_updates_and_inserts_know_keys_wherever_they_are(tmp_path):
    table = create(tmp_path)
    table.insert([{"k": 1, "dt": "a", "v": 1}])
    with pytest.raises(lsm.InvalidInputError, match="there already"):
        table.insert([{"k": 1, "dt": "b", "v": 2}])
    table.update([{"k": 1, "dt": "b", "v": 3}])
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "dt": "b", "v": 3}]


def test_a_move_counts_as_a_delete_and_an_insert(tmp_path):
    table = create(tmp_path, **{"write.count-changes": "true"})
    made = table.upsert([{"k": 1, "dt": "a", "v": 1}, {"k": 2, "dt": "a", "v": 1}])
    assert row_counts_of(made.properties) == RowCounts(inserted=2)
    made = table.upsert([{"k": 1, "dt": "b", "v": 2}, {"k": 2, "dt": "a", "v": 2}])
    assert row_counts_of(made.properties) == RowCounts(inserted=1, updated=1, deleted=1)
