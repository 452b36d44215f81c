"""Tables on Spark beside the formats that bring a plugin for the JVM: the same work, one after the other.

    python -m tests.bench.spark_formats                   # 2,000,000 rows, five upserts of a tenth, all formats
    python -m tests.bench.spark_formats --rows 200000 --only Iceberg Paimon

Each format has a session of its own Spark's newest version that it supports, in a process and an environment of its
own: two local cores, four shuffle partitions. Every step is done by one after the other. What counts is the CPU of the
whole tree of processes, JVM, driver and Python workers. Starting the sessions is left out, and so are three aggregates of the
rows as plain Parquet, by which each JVM compiles what any read needs: else it is the first step that pays for that. Reads and
lookups are done three times by each; the mean counts. All have to read the same.
The changes are read from a Delta table with a feed of changes beside the other, which has none.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.spark import local_settings
from tests.bench.measure import Samples, Seconds, arguments, machine, rotated, wait_for_quiet
from tests.bench.rows import rows, shuffled
from tests.interop.other_sparks import DELTA, HUDI, ICEBERG, PAIMON, OtherSpark

HERE = Path(__file__).parent
OURS = "Ours"
OTHERS: dict[str, OtherSpark] = {
    "Paimon": PAIMON,
    "Delta": DELTA,
    "DeltaChanges": DELTA,
    "Iceberg": ICEBERG,
    "Hudi": HUDI,
}
FEED = "DeltaChanges"
UPSERTS = 5
READS = 3
STEPS = (
    "load", "upsert", "merge", "delete", "read", "read_all_columns", "read_by_format", "compact",
    "read again", "lookup", "stream",
)  # fmt: skip


class Session:
    """One format in its process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        folder.mkdir(parents=True)
        if name == OURS:
            python = Path(sys.executable)
            settings = {
                **local_settings(threads=2),
                "spark.sql.shuffle.partitions": "4",
                "spark.sql.timestampType": "TIMESTAMP_LTZ",  # as the others have it
            }
        else:
            python = OTHERS[name].python()
            settings = OTHERS[name].configured(folder)
        self.log = (folder.parent / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [str(python), str(HERE / "driver_spark.py"), name, json.dumps(settings), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": str(python)},
        )  # fmt: skip
        self.tree = psutil.Process(self.process.pid)

    def ask(self, op: str, **given: Any) -> tuple[Any, Seconds]:
        """What the session answers, and what it took; RuntimeError where it failed."""
        cpu, wall = self.cpu_seconds(), time.perf_counter()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"op": op, **given}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("answer "):
                answer = json.loads(line.removeprefix("answer "))
                if "error" in answer:
                    raise RuntimeError(f"{self.name}: {answer['error']}")
                spent = Seconds(time.perf_counter() - wall, self.cpu_seconds() - cpu)
                return answer["ok"], spent
        raise RuntimeError(f"{self.name} ended; see {self.log.name}")

    def cpu_seconds(self) -> float:
        """CPU seconds of all its processes, those that have ended too."""
        total = 0.0
        for one in (self.tree, *self.tree.children(recursive=True)):
            try:
                times = one.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


class Workload:
    """The rows of all steps, as Parquet files."""

    def __init__(self, folder: Path, count: int) -> None:
        chance = np.random.default_rng(17)
        share = count // 10
        numbers = chance.permutation(count + (UPSERTS + 1) * share)
        folder.mkdir(parents=True)
        self.load = self._put(folder / "load.parquet", numbers[:count], 1)
        self.batches = []
        there = count
        for batch in range(UPSERTS + 1):  # the last one is for MERGE
            again = chance.choice(there, share // 2, replace=False)
            fresh = np.arange(there, there + share - share // 2)
            there += len(fresh)
            chosen = numbers[np.concatenate([again, fresh])]
            self.batches.append(self._put(folder / f"{batch}.parquet", chosen, 2 + batch))
        self.key = int(numbers[0])

    def _put(self, path: Path, numbers: np.ndarray, seed: int) -> str:
        table = shuffled(rows(numbers, seed=seed), seed)
        at = table.schema.get_field_index("ts")
        zoned = table["ts"].cast(pa.timestamp("us", "UTC"))
        pq.write_table(table.set_column(at, pa.field("ts", zoned.type), zoned), path)
        return str(path)


class Race:
    """Sessions doing the same steps in turn; who fails at a step is left out of it from then on."""

    def __init__(self, sessions: list[Session], work: Workload, samples: Samples) -> None:
        self.sessions = sessions
        self.work = work
        self.samples = samples
        self.failed: dict[tuple[str, str], str] = {}
        self.turn = 0

    def run(self, patience: float, checkpoints: Path) -> None:
        """All steps."""
        self.each("warm", patience, path=self.work.load)
        self.each("create", patience)
        self.each("load", patience, path=self.work.load)
        for batch in self.work.batches[:UPSERTS]:
            self.each("upsert", patience, path=batch)
        self.each("merge", patience, path=self.work.batches[UPSERTS])
        self.each("delete", patience)
        for _ in range(READS):
            self.same(self.each("read", patience))
            for step in ("read_all_columns", "read_by_format"):
                self.each(step, patience, who=[one for one in self.sessions if one.name == OURS])
        self.each("compact", patience)
        for _ in range(READS):
            self.same(self.each("read", patience, step="read again"))
            self.same(self.each("lookup", patience, key=self.work.key))
        for one in self.sessions:
            self.each("stream", patience, who=[one], checkpoint=str(checkpoints / one.name))

    def each(self, op, patience, *, who=None, step=None, **given) -> dict[str, Any]:
        """One step by one after the other; their answers."""
        answers = {}
        self.turn += 1
        for one in rotated(self.sessions if who is None else who, self.turn):
            wait_for_quiet(patience) if patience else None
            try:
                answers[one.name], spent = one.ask(op, **given)
            except RuntimeError as error:
                self.failed[one.name, step or op] = str(error)
                print(f"  {step or op}: {error}", flush=True)
                continue
            if answers[one.name] not in (False, None) or op not in ("compact", "stream"):
                self.samples.add(step or op, one.name, spent)
        return answers

    def same(self, answers: dict[str, Any]) -> None:
        """Note who read something else than ours."""
        wanted = answers.get(OURS)
        for name, answer in answers.items():
            if answer != wanted:
                self.failed[name, "same rows"] = f"{name} read {answer}, ours {wanted}"
                print(f"  {self.failed[name, 'same rows']}", flush=True)


def summary(samples: Samples, names: list[str]) -> str:
    """CPU seconds of every step, the mean of an upsert, and the best of the others divided by ours."""
    lines = [
        f"| | {' | '.join(names)} | best other / {OURS} |",
        "|---" * (len(names) + 2) + "|",
    ]
    for step in STEPS:
        shown, others = [], []
        for name in names:
            taken = samples.taken.get((step, name))
            if taken is None or (name == FEED) != (step == "stream" and name.startswith("Delta")):
                shown.append("-")
                continue
            mean = sum(one.cpu for one in taken) / len(taken)
            shown.append(f"{mean:.2f}")
            if name != OURS:
                others.append(mean)
        ours = samples.taken.get((step, OURS))
        ratio = "-"
        if ours and others:
            ratio = f"**{min(others) / (sum(one.cpu for one in ours) / len(ours)):.2f}**"
        lines.append(f"| {step} | {' | '.join(shown)} | {ratio} |")
    return "\n".join(lines)


def raced(folder: Path, count: int, names: list[str], patience: float) -> Samples:
    """Start the sessions, which does not count, then race."""
    sessions = [Session(name, folder / "lakes" / name) for name in names]
    samples = Samples()
    try:
        race = Race(sessions, Workload(folder / "rows", count), samples)
        race.run(patience, folder / "checkpoints")
    finally:
        for one in sessions:
            one.close()
    return samples


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__, rows=2_000_000, rounds=1)
    parser.add_argument("--only", nargs="*", choices=[*OTHERS, OURS], default=[*OTHERS])
    given = parser.parse_args()
    names = [OURS, *(name for name in OTHERS if name in given.only)]
    with tempfile.TemporaryDirectory() as folder:
        samples = raced(Path(folder), given.rows, names, given.patience)
    print(f"\n{machine()}; {given.rows:,} rows\n\n{summary(samples, names)}")
    if given.json:
        given.json.write_text(json.dumps(samples.as_json()))


if __name__ == "__main__":
    main()
