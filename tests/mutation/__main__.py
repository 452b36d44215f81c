"""Mutation run over the rules: does a unit test or a text case notice each small change?

    python -m tests.mutation                  every mutant of every module; prints rates and survivors
    python -m tests.mutation planning.expire      modules whose name holds the text
    python -m tests.mutation --sample 30      every 30th mutant, the same ones each time
    python -m tests.mutation --record         every mutant, and docs/testing.md gets the table

Exits with 1 below the rate that docs/testing.md promises.
"""

import argparse
import os
import sys

import pytest

from tests.mutation.run import MutationRun

PROMISED_PERCENT = 95
TESTS = ("tests/cases", "tests/unit/planning", "tests/unit/lsm", "tests/unit/filter")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", help="parts of module names; default: all")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="every Nth mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that run at once")
    parser.add_argument("--record", action="store_true", help="write the table of docs/testing.md")
    given = parser.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    run = MutationRun(modules=given.modules, nth=given.sample, jobs=given.jobs)
    quiet = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-p", "no:xdist"]
    quiet += ["-p", "no:benchmark", "--tb=no", "-s"]
    ended = pytest.main([*quiet, *TESTS], plugins=[run])
    if ended or not run.results:
        print("the tests fail without any mutant, or nothing is to be changed", file=sys.stderr)
        return 2
    print(run.report())
    if given.record:
        run.record()
    return 0 if run.percent >= PROMISED_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
