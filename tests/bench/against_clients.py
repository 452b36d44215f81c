"""Write, merge-read and full compaction beside the real Paimon clients, in turn, on the same rows.

    python -m tests.bench.against_clients --rows 1000000 --rounds 3

pypaimon 2.1.0 and pypaimon-rust 0.4.0 write and merge-read two unsorted runs that share two thirds of
their keys; Java Paimon 0.9.0 and 1.4.2, warmed up by compacting the same table several times, compact
copies of the very table that this engine compacts. Every contender has a process of its own and is timed
inside it, so that moving rows between processes counts for nobody. Goals are the issue's: written and
read at least 20 times as fast as pypaimon, no slower than pypaimon-rust, compacted at least twice as
fast per core as Java.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from tests.bench.measure import (
    Ratio,
    Samples,
    Seconds,
    arguments,
    report,
    stopwatch,
    wait_for_quiet,
)
from tests.bench.rows import two_runs
from tests.bench.tables import UNCOMPACTED, copied, new_table, table_of_runs, warm_up
from tests.interop.clients import Client, JavaClient, PypaimonClient, RustClient
from tests.interop.newest_java import VERSION, NewestJava

OURS, PYPAIMON, RUST = "lsm_engine", "pypaimon 2.1.0", "pypaimon-rust 0.4.0"
JAVA, NEWEST_JAVA = "Java 0.9.0", f"Java {VERSION}"
WRITE, READ, COMPACT = "write", "merge-read", "full compaction"
READERS = {PYPAIMON: PypaimonClient, RUST: RustClient}
JAVA_WARM_UPS = 5
GOALS = {PYPAIMON: 20.0, RUST: 1.0, JAVA: 2.0, NEWEST_JAVA: 2.0}


def in_client(client: Client) -> Seconds:
    """What the last operation took inside the client's process."""
    assert client.spent is not None
    return Seconds(client.spent.wall_seconds, client.spent.cpu_seconds)


def check(who: str, rows: pa.Table, wanted: pa.Table) -> None:
    """A contender that reads other rows is fast for nothing."""
    sums = [
        (one.num_rows, pc.sum(one["k"]).as_py(), pc.sum(one["a"]).as_py()) for one in (rows, wanted)
    ]
    assert sums[0] == sums[1], f"{who} read {sums[0]}, wanted {sums[1]}"


def write_and_read_ours(folder: Path, runs: Sequence[pa.Table], samples: Samples) -> pa.Table:
    """Our turn."""
    table = new_table(folder, runs[0].schema)
    for rows in runs:
        with stopwatch() as spent:
            table.upsert(rows)
        samples.add(WRITE, OURS, spent())
    with stopwatch() as spent:
        merged = table.scan().to_arrow()
    samples.add(READ, OURS, spent())
    return merged


def write_and_read_theirs(
    client: Client,
    folder: Path,
    runs: Sequence[pa.Table],
    wanted: pa.Table,
    samples: Samples,
    who: str,
) -> None:
    """The turn of a client."""
    path = client.create(folder, "bench.t", runs[0].schema, primary_key=["k"], options=UNCOMPACTED)
    for rows in runs:
        client.write(path, rows)
        samples.add(WRITE, who, in_client(client))
    merged = client.read(path)
    samples.add(READ, who, in_client(client))
    check(who, merged, wanted)


def write_and_read(folder: Path, rows: int, rounds: int, patience: float, samples: Samples) -> None:
    """All writers, in turn, on tables of their own."""
    runs, small = two_runs(rows), two_runs(3_000)
    clients = {who: make(timeout_seconds=1_800) for who, make in READERS.items()}
    try:
        for who, client in clients.items():
            wanted = table_of_runs(folder / f"small {who}", small).scan().to_arrow()
            write_and_read_theirs(client, folder / who, small, wanted, Samples(quiet=True), who)
        for number in range(rounds):
            wait_for_quiet(patience)
            wanted = write_and_read_ours(folder / f"ours-{number}", runs, samples)
            for who, client in clients.items():
                wait_for_quiet(patience)
                write_and_read_theirs(
                    client, folder / f"{who}-{number}", runs, wanted, samples, who
                )
    finally:
        for client in clients.values():
            client.close()


def compaction(folder: Path, rows: int, rounds: int, patience: float, samples: Samples) -> None:
    """Ours, and that of each Java, of copies of one table."""
    table = table_of_runs(folder / "both", two_runs(rows))
    wanted = table.scan().to_arrow()
    with JavaClient(timeout_seconds=1_800) as java, NewestJava() as newest:

        def by_java(path: Path) -> Seconds:
            java.compact(path, full=True)
            return in_client(java)

        def by_newest_java(path: Path) -> Seconds:
            cpu, started = newest.cpu_seconds, time.perf_counter()
            newest.ask("compact", path=str(path), full=True)
            return Seconds(time.perf_counter() - started, newest.cpu_seconds - cpu)

        contenders: dict[str, Callable[[Path], Seconds]] = {
            OURS: compacted,
            JAVA: by_java,
            NEWEST_JAVA: by_newest_java,
        }
        for number in range(JAVA_WARM_UPS):
            for who in (JAVA, NEWEST_JAVA):
                contenders[who](copied(table, folder / f"warm {who} {number}"))
        for number in range(rounds):
            for who, compact in contenders.items():
                copy = copied(table, folder / f"{who} {number}")
                wait_for_quiet(patience)
                samples.add(COMPACT, who, compact(copy))
                check(who, lsm.open_table(str(copy)).scan().to_arrow(), wanted)


def compacted(path: Path) -> Seconds:
    """Our turn."""
    table = lsm.open_table(str(path))
    with stopwatch() as spent:
        table.compact(full=True)
    return spent()


def speed_ups(samples: Samples) -> list[Ratio]:
    """How many times as fast as each peer, on the clock and in CPU seconds.

    The goals for writing and reading are about what a user waits for, the one for compaction is per
    core.
    """
    found = []
    for what, who in samples.taken:
        if who == OURS:
            continue
        for kind in ("cpu", "wall"):
            pairs = zip(samples.of(what, who, kind), samples.of(what, OURS, kind), strict=True)
            found.append(
                Ratio(
                    what=what,
                    name=f"times as fast as {who}, {kind}",
                    rounds=tuple(theirs / ours for theirs, ours in pairs),
                    goal=GOALS[who] if kind == "cpu" or what != COMPACT else None,
                    more_is_better=True,
                )
            )
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=1_000_000, rounds=3)
    parser.add_argument(
        "--only", choices=["write-read", "compaction"], help="leave out the other half"
    )
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="bench-clients-") as scratch:
        folder = Path(scratch)
        warm_up(folder / "warm")
        if given.only != "compaction":
            write_and_read(folder, given.rows, given.rounds, given.patience, samples)
        if given.only != "write-read":
            compaction(folder, given.rows, given.rounds, given.patience, samples)
    facts = {"rows": given.rows}
    report("against_clients", speed_ups(samples), samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()
