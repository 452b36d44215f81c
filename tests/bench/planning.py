"""How long, and in how much memory, is a scan of very many files planned? Beside the real clients.

    python -m tests.bench.planning --files 10000 100000 --rounds 3
    python -m tests.bench.planning --files 1000000 --rounds 1

Tables of metadata alone (20 columns with statistics, 10 buckets per day, 100 files per bucket). Each
plan has a process of its own on one core; memory is all that the process ever had. Goals are the
issue's, for 1,000,000 files: with a filter on partition and key 3 s and 400 MB, without one 1 GB.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.many_files import ManyFiles, many_files
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet
from tests.interop import environments
from tests.interop.environments import environment

OURS, PYPAIMON, RUST = "lsm_engine", "pypaimon 2.1.0", "pypaimon-rust 0.4.0"
CLIENTS = {PYPAIMON: "pypaimon", RUST: "rust"}
FILTERED, WHOLE = "with a filter", "unfiltered"
HERE = Path(__file__).resolve().parent
MINUTES_MAX = 20
GOALS = {FILTERED: (3.0, 400.0), WHOLE: (None, 1024.0)}


def plan(who: str, made: ManyFiles, what: str) -> dict[str, float]:
    """Plan once in a process of its own and return what it told."""
    filters = [made.day, *map(str, made.ids)] if what == FILTERED else []
    if who == OURS:
        command = [sys.executable, "-m", "tests.bench.plan_once", made.path, *filters]
        variables = dict(os.environ)
    else:
        client = environment(CLIENTS[who])
        script = str(HERE / "plan_client.py")
        command = [str(client.python), script, CLIENTS[who], made.path, *filters]
        variables = {**os.environ, **client.variables}
        variables["PYTHONPATH"] = str(Path(environments.__file__).parent)
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, timeout=60 * MINUTES_MAX,
        check=False, cwd=HERE.parents[1],
    )  # fmt: skip
    if done.returncode:
        return {"error": done.returncode, "why": done.stderr.strip().splitlines()[-1:]}
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=3)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--only-ours", action="store_true")
    given = parser.parse_args()
    samples = Samples()
    everyone = [OURS] if given.only_ours else [OURS, PYPAIMON, RUST]
    told: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-planning-") as scratch:
        for count in given.files:
            made = many_files(Path(scratch) / str(count), count)
            for _ in range(given.rounds):
                for what in (FILTERED, WHOLE):
                    for who in everyone:
                        wait_for_quiet(given.patience)
                        one = plan(who, made, what)
                        told.setdefault(f"{count:,} files {what}, {who}", []).append(one)
                        if "error" not in one:
                            samples.add(
                                f"{count:,} files {what}", who, Seconds(one["wall"], one["cpu"])
                            )
                        print(f"    {who}: {one}", flush=True)
    report(
        "planning", ratios(samples, given.files, everyone, told), samples,
        facts={"told": told}, out=given.json,
    )  # fmt: skip


def ratios(
    samples: Samples,
    files: list[int],
    everyone: list[str],
    told: dict[str, list[dict[str, float]]],
) -> list[Ratio]:
    """Times and memory of the clients in units of ours, and the goals at a million files."""
    found = []
    for count in files:
        for what in (FILTERED, WHOLE):
            name = f"{count:,} files {what}"
            for who in everyone[1:]:
                if (name, who) in samples.taken:
                    found.append(samples.ratio(name, who, OURS))
                    pairs = zip(told[f"{name}, {who}"], told[f"{name}, {OURS}"], strict=True)
                    memory = tuple(one["plan_mb"] / ours["plan_mb"] for one, ours in pairs)
                    found.append(Ratio(what=name, name=f"{who} / {OURS}, memory", rounds=memory))
            seconds, megabytes = GOALS[what] if count == 1_000_000 else (None, None)
            ours = told[f"{name}, {OURS}"]
            for kind, goal in (("cpu", seconds), ("plan_mb", megabytes)):
                rounds = tuple(one[kind] for one in ours)
                found.append(Ratio(what=name, name=f"{OURS}, {kind}", rounds=rounds, goal=goal))
    return found


if __name__ == "__main__":
    main()
