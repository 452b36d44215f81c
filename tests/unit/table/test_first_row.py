"""First-row tables: readers merge nothing, so a key may lie above level 0 only once."""

import numpy as np
import pyarrow as pa

import lsm_engine as lsm

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def test_partial_compactions_leave_each_key_once(tmp_path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "db.t",
            COLUMNS,
            primary_key=["id"],
            options={"merge-engine": "first-row", "num-sorted-run.compaction-trigger": 3},
        )
        first: dict[int, int] = {}
        random = np.random.default_rng(8)
        for at in range(12):
            ids = random.integers(0, 50, 1 + 3 * (at % 5))
            for position, key in enumerate(ids.tolist()):
                first.setdefault(key, 100 * at + position)
            values = [100 * at + position for position in range(len(ids))]
            table.upsert(pa.table({"id": ids, "v": values}))
            rows = table.scan().to_arrow()
            assert rows.num_rows == len(first)
            found = zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)
            assert dict(found) == first
            stored = [run.row_count for tree in table.tree() for run in tree.runs if run.level]
            assert sum(stored) == len(first)


def test_a_key_that_lies_below_a_compaction_is_not_told_as_deleted(tmp_path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "db.t",
            COLUMNS,
            primary_key=["id"],
            options={
                "merge-engine": "first-row",
                "changelog-producer": "lookup",
                "num-sorted-run.compaction-trigger": 5,
            },
        )
        table.upsert(pa.table({"id": range(5_000), "v": range(5_000)}))
        table.compact(full=True)
        before = table.latest_snapshot()
        table.upsert(pa.table({"id": [7, 9_000], "v": [0, 1]}))
        levels = [run.level for tree in table.tree() for run in tree.runs]
        assert len(levels) == 2, "the large file stayed below"
        told = table.changelog(before.id).to_pylist()
        assert [(row["_row_kind"], row["id"]) for row in told] == [("+I", 9_000)]
