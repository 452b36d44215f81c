"""Very many random histories, and what they covered: `python -m tests.model.many_histories`.

The histories of test_table_machine, on as many processes as there are cores. Reported: how often each
rule ran, and how many of the pairs of options that may meet in one table did. A failure is shown with
its seed, to be repeated with `--seed SEED --histories 50`; the others go on.
"""

import argparse
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import combinations, product
from multiprocessing import get_context

from hypothesis import HealthCheck, Phase, core, settings
from hypothesis.stateful import run_state_machine_as_test
from tqdm import tqdm

from tests.model.machine import Pair, TableMachine
from tests.model.strategies import DOMAINS, can_meet
from tests.model.test_table_machine import InMemory
from tests.model.world import on_one_thread

AT_ONCE = 50
STEPS = 25


@dataclass(frozen=True)
class Outcome:
    """What some histories of one seed did; `failure`: a traceback with the steps that led to it."""

    seed: int
    histories: int
    rules: Counter[str]
    pairs: set[Pair]
    failure: str | None


def run(seed: int, histories: int) -> Outcome:
    """Run some histories in this process."""
    chosen = settings(
        max_examples=histories,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    TableMachine.rules_run.clear()
    TableMachine.pairs_met.clear()
    core.global_force_seed = seed  # what --hypothesis-seed sets
    failure = None
    with on_one_thread():
        try:
            run_state_machine_as_test(InMemory, settings=chosen)
        except Exception:  # noqa: BLE001 - whatever goes wrong is what is looked for
            failure = traceback.format_exc()
    rules, pairs = Counter(TableMachine.rules_run), set(TableMachine.pairs_met)
    return Outcome(seed, histories, rules, pairs, failure)


def possible_pairs() -> set[Pair]:
    """Every pair of features that may be of one table."""
    return {
        ((one, left), (other, right))
        for one, other in combinations(sorted(DOMAINS), 2)
        for left, right in product(DOMAINS[one], DOMAINS[other])
        if can_meet((one, left), (other, right))
    }


def outcomes(histories: int, processes: int, seed: int) -> Iterator[Outcome]:
    """Run histories on several processes; yields what is done."""
    starts = range(0, histories, AT_ONCE)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(run, seed + at, min(AT_ONCE, histories - at)) for at in starts]
        try:
            for done in as_completed(asked):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000, help="default 10,000")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: one a core")
    parser.add_argument("--seed", type=int, default=0, help="another one, other histories")
    asked = parser.parse_args()
    rules: Counter[str] = Counter()
    met: set[Pair] = set()
    failures = []
    with tqdm(total=asked.histories, unit=" histories", mininterval=10) as bar:
        for outcome in outcomes(asked.histories, asked.processes, asked.seed):
            if outcome.failure is not None:
                failures.append(outcome.seed)
                tqdm.write(f"{outcome.failure}\nFAILED: seed {outcome.seed}")
            rules += outcome.rules
            met |= outcome.pairs
            bar.update(outcome.histories)
    possible = possible_pairs()
    for name, count in sorted(rules.items(), key=lambda item: item[1]):
        print(f"{count:8,} x {name}")
    strange = met - possible
    covered = len(met & possible)
    print(
        f"{asked.histories:,} histories, seed {asked.seed}, failures at seeds {failures or 'none'}"
    )
    print(f"{covered:,} of {len(possible):,} pairs of options ({covered / len(possible):.1%})")
    for pair in sorted(possible - met)[:20]:
        print(f"  never met: {pair[0][0]} = {pair[0][1]} and {pair[1][0]} = {pair[1][1]}")
    for pair in sorted(strange)[:20]:
        print(f"  met, and said not to: {pair}")
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
