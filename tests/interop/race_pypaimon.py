"""Do concurrent commits of pypaimon 2.1.0 on a local disk get lost? Run by hand; takes minutes.

    python -m tests.interop.race_pypaimon --processes 4 --commits 40 --table append

Every process commits one row at a time to one table. What a commit acknowledged must be readable
afterwards; what is not was lost. The yardstick for our own commits, which must lose none.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

from tests.interop.clients import PypaimonClient
from tests.interop.environments import environment

WORKER = Path(__file__).with_name("race_worker_pypaimon.py")


def main() -> None:
    """Race as the command line says and print what became of the commits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--commits", type=int, default=40, help="per process, one row each")
    parser.add_argument("--table", choices=["append", "primary-key"], default="append")
    parser.add_argument("--rounds", type=int, default=1, help="each on a table of its own")
    given = parser.parse_args()
    lost_in_all = acknowledged_in_all = 0
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="race-pypaimon-") as folder:
            acknowledged, failed, readable = race(Path(folder), given)
        lost = acknowledged - readable
        print(
            f"round {number + 1}: {given.processes} x {given.commits} {given.table}: "
            f"{len(acknowledged)} acknowledged, {failed} failed, {len(readable)} readable, "
            f"{len(lost)} lost {sorted(lost)[:10]}, {len(readable - acknowledged)} readable though failed"
        )
        lost_in_all += len(lost)
        acknowledged_in_all += len(acknowledged)
    print(f"lost {lost_in_all} of {acknowledged_in_all} acknowledged commits")


def race(folder: Path, given: argparse.Namespace) -> tuple[set[int], int, set[int]]:
    """One round: keys acknowledged, number of failed commits, keys readable afterwards."""
    is_keyed = given.table == "primary-key"
    fields = [("k", "BIGINT NOT NULL" if is_keyed else "BIGINT"), ("v", "STRING")]
    with PypaimonClient() as client:
        table = client.create(
            folder,
            "db.raced",
            fields,
            primary_key=["k"] if is_keyed else [],
            options={"bucket": "1"} if is_keyed else {},
        )
        outcomes = run_workers(table, folder / "gate", given.processes, given.commits)
        readable = set(client.read(table).column("k").to_pylist())
    acknowledged = {int(line.split()[1]) for line in outcomes if line.startswith("acknowledged")}
    return acknowledged, sum(line.startswith("failed") for line in outcomes), readable


def run_workers(table: Path, gate: Path, processes: int, commits: int) -> list[str]:
    """Start the racers, open the gate when all stand there, and collect what they said."""
    python = environment("pypaimon").python
    workers: list[subprocess.Popen[str]] = []
    try:
        for number in range(processes):
            command = [
                str(python),
                str(WORKER),
                str(table),
                str(gate),
                str(number * commits),
                str(commits),
            ]
            # Every conflict is logged there: thousands of lines that say nothing about losses.
            with (gate.parent / f"racer-{number}.log").open("w") as log:
                workers.append(
                    subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
                )
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", (
                "a racer did not start; see its message above"
            )
        gate.touch()
        return [line for worker in workers for line in worker.communicate()[0].splitlines()]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    main()
