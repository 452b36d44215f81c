"""A writer leaves a compaction that others beat it to, unless the bucket has too many runs."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.compact import compact

RUNS = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "4"}


@pytest.fixture
def beaten(tmp_path, monkeypatch):
    """A table, and a way to let its next compactions lose: by number of losses."""
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "default.t",
            pa.schema([("k", pa.int64())]),
            primary_key=["k"],
            options={"bucket": "1", "commit.max-retries": "3", **RUNS},
        )
        carry_out, left, tries = compact.carry_out, [0], []

        def losing(session, identity, base, work, *properties):
            tries.append(base.id)
            if work and left[0]:
                left[0] -= 1
                raise lsm.CommitConflictError("somebody else was faster")
            return carry_out(session, identity, base, work, *properties)

        monkeypatch.setattr(compact, "carry_out", losing)
        yield table, left, tries


def runs(table):
    return len(table.tree()[0].runs)


def test_a_lost_compaction_is_left_while_runs_are_few(beaten):
    table, left, tries = beaten
    left[0] = 99
    for key in range(4):
        tries.clear()
        table.upsert(pa.table({"k": [key]}))
        assert len(tries) == 1
    assert runs(table) == 4


def test_above_the_stop_trigger_the_writer_tries_again(beaten):
    table, left, tries = beaten
    left[0] = 99
    for key in range(4):
        table.upsert(pa.table({"k": [key]}))
    left[0] = 2
    tries.clear()
    table.upsert(pa.table({"k": [9]}))
    assert len(tries) == 3
    assert runs(table) == 1
    assert table.scan().to_arrow()["k"].to_pylist() == [0, 1, 2, 3, 9]


def test_it_gives_up_in_the_end_and_the_rows_are_in(beaten):
    table, left, tries = beaten
    left[0] = 99
    for key in range(6):
        table.upsert(pa.table({"k": [key]}))
    assert len(tries) == 4 + 2 * 4
    assert runs(table) == 6
    assert table.scan().to_arrow().num_rows == 6
