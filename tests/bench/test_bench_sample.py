"""The benchmarks at a small size, so that they cannot rot; only generous ratios are asserted.

The scripts of this folder measure at full size; lsm_engine/docs/performance-details.md and goals.md have the figures.
"""

import shutil
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.bench import commit_cost, compaction_limit, expiry_cost, scale, vector_read
from tests.bench.against_clients import OURS, READ, WRITE, check, write_and_read_ours
from tests.bench.contenders import Contender, Driven
from tests.bench.measure import Ratio, Samples, Seconds, report, table
from tests.bench.rows import rows, two_runs
from tests.bench.tables import UNCOMPACTED, copied, new_table, table_of_runs, warm_up
from tests.bench.upserts import UPSERT, Race, Workload, summary

pytestmark = [pytest.mark.bench, pytest.mark.slow]
ROWS = 200_000


@pytest.mark.parametrize("number", [1, 3])
def test_compaction_stays_near_decoding_and_encoding(number: int, tmp_path: Path) -> None:
    case = compaction_limit.CASES[number]
    samples = compaction_limit.measured(case, ROWS // 2, 3, tmp_path, patience=0.0)
    ratio = samples.ratio(case.name, "compaction", "limit")
    # A small table pays its fixed costs with little work to divide them by.
    assert min(ratio.rounds) <= 2.5, table([ratio])


def test_rows_cost_no_more_and_hold_no_more_memory_in_a_larger_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "BATCH", 20_000)
    monkeypatch.setattr(scale, "LOOKED_UP", 5_000)
    facts = {}
    for size in (40_000, 160_000):
        location = scale.new(tmp_path / str(size))
        facts[size] = {
            step: scale.take(step, location, size) for step in ("load", "compact", "read")
        }
    ratios = {(one.what, one.name): one.median for one in scale.ratios(facts)}
    # What is fixed is a large part of the smaller one, so that rows of the larger one are cheaper.
    assert ratios["read, 160,000 rows", "CPU for a row / that of the size before"] <= 1.5
    assert (
        ratios["compact, 160,000 rows", "peak MB"]
        <= ratios["compact, 40,000 rows", "peak MB"] + 200
    )


@pytest.mark.parametrize(("name", "count"), [("default options", 150), ("write-only", 300)])
def test_commits_cost_the_same_behind_many(name: str, count: int, tmp_path: Path) -> None:
    warm_up(tmp_path / "warm")
    ratios = []
    for attempt in range(3):  # what else the machine does only ever adds
        taken = commit_cost.commits(tmp_path / f"{attempt}", commit_cost.OPTIONS[name], count, 10)
        ratios.append(
            commit_cost.late_to_early(name, [taken], "cpu", mean=True)
        )  # every second one compacts
        if ratios[-1].median <= 2.0:
            return
    raise AssertionError(table(ratios))


def test_a_snapshot_of_a_longer_history_expires_as_cheaply(tmp_path: Path) -> None:
    histories = {count: expiry_cost.history(tmp_path / str(count), count) for count in (30, 90)}
    attempts = []
    for attempt in range(4):  # what else the machine does only ever adds
        told = {
            count: expiry_cost.expire_once(
                shutil.copytree(path, tmp_path / f"{count}-{attempt}"), None
            )
            for count, path in histories.items()
        }
        assert [facts["data_files"] for facts in told.values()] == [29, 89]
        attempts.append(told)
        if expiry_cost.per_snapshot(told) <= 2.5:
            return
    raise AssertionError(attempts)


def test_our_half_of_the_comparison_with_clients(tmp_path: Path) -> None:
    runs = two_runs(9_000)
    samples = Samples()
    merged = write_and_read_ours(tmp_path, runs, samples)
    check(OURS, merged, table_of_runs(tmp_path / "again", runs).scan().to_arrow())
    assert merged.num_rows == 12_000
    assert len(samples.of(WRITE, OURS)) == 2
    assert len(samples.of(READ, OURS)) == 1


def test_our_half_of_the_upsert_workload(tmp_path: Path) -> None:
    everyone: list[Contender] = [
        Driven(OURS, "ours"),
        Driven(f"{OURS}, write-only", "ours", {"write-only": "true"}),
    ]
    try:
        race = Race(everyone, tmp_path / "race", Workload(tmp_path / "rows", 5_000), is_small=True)
        race.run(0.0)
    finally:
        for one in everyone:
            one.client.close()
    assert len(race.samples.of(UPSERT, OURS)) == 10
    assert f"{OURS}, write-only" in summary(race)


def test_reports_say_what_was_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = Samples(quiet=True)
    for number in (1.0, 2.0, 3.0):
        samples.add("x", "one", Seconds(wall=number, cpu=number))
        samples.add("x", "other", Seconds(wall=1.0, cpu=2.0))
    ratio = samples.ratio("x", "one", "other", goal=1.2)
    assert (ratio.rounds, ratio.median, ratio.verdict) == ((0.5, 1.0, 1.5), 1.0, "≤ 1.2 met")
    faster = Ratio(what="x", name="y", rounds=(1.0,), goal=2.0, more_is_better=True)
    assert faster.verdict == "≥ 2 MISSED"
    report("r", [ratio, faster], samples, facts={}, out=tmp_path / "r.json")
    assert (
        "| x | one / other, cpu | 0.50 | **1.00** | 1.50 | ≤ 1.2 met |" in capsys.readouterr().out
    )
    assert (tmp_path / "r.json").stat().st_size > 100


# The verbs one by one, with pytest-benchmark: `pytest tests/bench --benchmark-only`.


@pytest.fixture(scope="module")
def uncompacted(tmp_path_factory: pytest.TempPathFactory) -> lsm.Table:
    """A table of two overlapping runs."""
    folder = tmp_path_factory.mktemp("verbs")
    warm_up(folder / "warm")
    return table_of_runs(folder, two_runs(ROWS // 4))


def test_upsert(benchmark, tmp_path: Path) -> None:
    run, _ = two_runs(ROWS // 4)
    target = new_table(tmp_path, run.schema, options=UNCOMPACTED)
    benchmark.pedantic(target.upsert, args=(run,), rounds=3, warmup_rounds=1)


def test_merge_read(benchmark, uncompacted: lsm.Table) -> None:
    merged = benchmark.pedantic(lambda: uncompacted.scan().to_arrow(), rounds=3, warmup_rounds=1)
    assert merged.num_rows == (ROWS // 4) + (ROWS // 4) // 3


def test_full_compaction(benchmark, uncompacted: lsm.Table, tmp_path: Path) -> None:
    def copy() -> tuple[tuple[lsm.Table], dict[str, bool]]:
        return (lsm.open_table(str(copied(uncompacted, tmp_path / "copy"))),), {"full": True}

    benchmark.pedantic(lsm.Table.compact, setup=copy, rounds=3)


def test_commit(benchmark, tmp_path: Path) -> None:
    few, _ = two_runs(12)
    target = new_table(tmp_path, rows(few["k"].to_numpy(), seed=1).schema, options=UNCOMPACTED)
    benchmark.pedantic(target.upsert, args=(few,), rounds=10, warmup_rounds=2)


def test_reads_under_deletion_vectors_stay_near_a_plain_scan(tmp_path: Path) -> None:
    made = vector_read.marked_table(tmp_path, ROWS // 2, 0.05)
    samples, seen = vector_read.measured(made, 3, patience=0.0)
    assert seen[vector_read.PLAIN] - seen[vector_read.OURS] == ROWS // 40
    ratio = samples.ratio(vector_read.WHAT, vector_read.OURS, vector_read.PLAIN)
    # So small a table pays for its plan with little to read.
    assert min(ratio.rounds) <= 2.5, table([ratio])
