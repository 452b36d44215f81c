"""Planning and lineage at a small size: the benchmarks run, and nothing grows with the history."""

import time
from pathlib import Path

import pytest

from tests.bench.lineage_queries import filled, questions
from tests.bench.many_files import many_files
from tests.bench.planning import FILTERED, OURS, WHOLE, plan

pytestmark = [pytest.mark.bench, pytest.mark.slow]


def test_our_plans_of_many_files(tmp_path: Path) -> None:
    made = many_files(tmp_path, 20_000)
    few, all_of_them = plan(OURS, made, FILTERED), plan(OURS, made, WHOLE)
    assert few["files"] == 30
    assert few["peak_mb"] < 400
    assert all_of_them["files"] == 20_000
    # Less than 2 KB a file above an idle process; as objects they would take more than twice that.
    assert all_of_them["peak_mb"] - all_of_them["idle_mb"] < 40


def test_questions_to_the_lineage_are_answered_from_indexes(tmp_path: Path) -> None:
    catalog, merged = filled(tmp_path, 6_000, 20)
    for what, ask in questions(catalog, merged, 20).items():
        started = time.process_time()
        assert ask() is not None
        assert time.process_time() - started < 0.5, what
    catalog.close()
