"""Keys looked up in lsm_engine and beside it: `python -m tests.bench.lookup_keys`.

Ten commits of 1,000,000 rows over 20,000,000 keys, compacted twice on the way, so that they lie on
several levels. Reported: a warm single key (hits, misses, both), batches of 100,000, the first lookup
with the building of its files beside Java's LocalTableQuery on the same table, the building beside
decoding the columns and writing them again, and all of it but the building in deltalake, lance with
a scalar index, DuckDB and RocksDB, each in a process and an environment of its own.

Single keys are timed in this process by thread time; `calm` leaves out those in which the system
gave the core to somebody else. The table that is printed has the goals; ratios are of one run.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lsm_engine as lsm
from tests.bench import contenders
from tests.bench.contenders import PYTHON_PATH, made
from tests.bench.measure import Ratio, Samples, report
from tests.interop.clients import Client, ClientError, JavaClient
from tests.interop.environments import Environment

HERE = Path(__file__).resolve().parent
KEYS = 20_000_000
COMMITS = 10
BATCH = 100_000
SINGLES = ("hit", "miss outside", "miss inside", "random")
MISSES = ("miss outside", "miss inside")
MISS_TO_HIT = 1.0
PEERS = ("deltalake", "lance", "duckdb", "rocksdict")
contenders.REQUIREMENTS.setdefault("rocksdict", ("rocksdict==0.3.29", "pyarrow>=20,<27"))


class KeysClient(Client):
    """The process of one engine, driven by driver_keys.py."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.name = f"keys-{engine}"  # type: ignore[misc]
        super().__init__(timeout_seconds=3_600)

    def program(self) -> tuple[Environment, Path]:
        python = Path(sys.executable)
        if self.engine != "ours":
            python = made(self.engine) / "venv" / "bin" / "python"
        variables = {"PYTHONPATH": PYTHON_PATH, "KEYS_ENGINE": self.engine}
        return Environment(
            name=self.name, python=python, variables=variables
        ), HERE / "driver_keys.py"

    def call(self, operation: str, **arguments: Any) -> Any:
        """One operation of the engine."""
        return self._call(operation, **arguments)


def spent(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def columns_of(ids: np.ndarray) -> pa.Table:
    numbers = {f"n{at}": ids + at for at in range(3)}
    floats = {f"f{at}": ids / (at + 1) for at in range(3)}
    texts = {"s0": pa.array(ids).cast(pa.string()), "s1": pa.array(ids % 1000).cast(pa.string())}
    return pa.table({"id": ids, **numbers, **floats, **texts})


def filled(root: str, rows: int) -> lsm.Table:
    catalog = lsm.open_catalog(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/wh")
    rng = np.random.default_rng(0)
    sample = columns_of(np.zeros(1, np.int64))
    table = catalog.create_table(
        "bench.lookups",
        sample.schema,
        primary_key=["id"],
        options={"write-only": "true", "num-sorted-run.compaction-trigger": "3"},
    )
    for commit in range(COMMITS):
        table.upsert(columns_of(np.sort(rng.choice(KEYS, rows, replace=False))))
        if commit in (3, 7):
            table.compact()
    return table


def building(table: lsm.Table, query: Any) -> dict[str, float]:
    """Cold lookups build every file; beside them the same columns decoded and written again."""
    key = pa.table({"id": [KEYS // 2]})
    built = spent(lambda: query.lookup(key))
    again = 0.0
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    live = {entry.file.file_name for entry in table.session.live_entries(snapshot)}
    for path in Path(table.location).rglob("data-*.parquet"):
        if path.name in live:
            again += spent(lambda path=path: rewritten(path, table.schema.names))  # type: ignore[misc]
    return {"build_seconds": built, "rewrite_seconds": again, "build_ratio": built / again}


def rewritten(path: Path, names: tuple[str, ...]) -> None:
    wanted = [*names, "_SEQUENCE_NUMBER", "_VALUE_KIND"]
    file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
    with tempfile.TemporaryFile() as sink:
        writer = None
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=wanted, use_threads=False)
            writer = writer or pa.ipc.new_stream(sink, rows.schema)
            writer.write_table(rows)
        if writer is not None:
            writer.close()


def single(query: Any, keys: np.ndarray) -> dict[str, float]:
    took, is_calm = [], []
    for key in keys.tolist():
        before = resource.getrusage(resource.RUSAGE_THREAD)
        began = time.thread_time_ns()
        query.get({"id": key})
        took.append((time.thread_time_ns() - began) / 1e3)
        after = resource.getrusage(resource.RUSAGE_THREAD)
        is_calm.append(before.ru_nivcsw == after.ru_nivcsw)
    micros, calm = np.array(took), np.array(is_calm)
    p50 = float(np.percentile(micros, 50))
    p99 = float(np.percentile(micros, 99))
    calm_p99 = float(np.percentile(micros[calm], 99))
    return {
        "p50_micros": p50,
        "p99_micros": p99,
        "p99_to_p50": p99 / p50,
        "calm_p99_micros": calm_p99,
        "calm_p99_to_p50": calm_p99 / p50,
        "calm_share": float(calm.mean()),
    }


def batches(query: Any, rng: np.random.Generator) -> float:
    """Keys a second, the median of ten batches."""
    took = []
    for _ in range(10):
        keys = pa.table({"id": rng.integers(0, KEYS, BATCH)})
        took.append(spent(lambda keys=keys: query.lookup(keys)))  # type: ignore[misc]
    return BATCH / float(np.median(took))


def put(table: pa.Table, path: Path) -> str:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return str(path)


def cold(table: lsm.Table, key: int, root: Path) -> dict[str, Any]:
    """The first lookup of a key, its files built for it: in Java's LocalTableQuery, and here.

    Each process has looked into a small table before, so that neither its start nor what it compiles
    counts.
    """
    small = filled(str(root / "small"), 1_000)
    found: dict[str, Any] = {}
    with KeysClient("ours") as ours, JavaClient(timeout_seconds=3_600) as java:
        keys = pa.table({"id": [key]})
        for _ in range(3):
            java.lookup(small.location, keys)
            ours.call("open", location=small.location, key=key)
            ours.call("close")
        for _ in range(3):
            java.lookup(table.location, keys)
            assert java.spent is not None
            java_seconds = {"wall": java.spent.wall_seconds, "cpu": java.spent.cpu_seconds}
            found.setdefault("java", []).append(java_seconds)
            found.setdefault("ours", []).append(ours.call("open", location=table.location, key=key))
            ours.call("close")
    for kind in ("wall", "cpu"):
        theirs, mine = ([one[kind] for one in found[who]] for who in ("java", "ours"))
        found[f"java_to_ours_{kind}"] = float(np.median(theirs) / np.median(mine))
    return found


def beside(table: lsm.Table, root: Path, peers: Sequence[str]) -> dict[str, Any]:
    """The same keys, one by one and in batches, asked of other engines with the same rows."""
    rng = np.random.default_rng(2)
    rows = table.scan().to_arrow()
    singles = np.concatenate(
        [rng.choice(rows["id"].to_numpy(), 2_500), rng.integers(0, KEYS, 2_500)]
    )
    keys = put(pa.table({"id": rng.permutation(singles)}), root / "singles.arrow")
    many = [
        put(pa.table({"id": rng.choice(KEYS, BATCH, replace=False)}), root / f"batch-{at}.arrow")
        for at in range(4)
    ]
    loaded = put(rows, root / "rows.arrow")
    del rows
    found: dict[str, Any] = {}
    for name in ("ours", *peers):
        print(f"  {name} ...", flush=True)
        with KeysClient(name) as client:
            try:
                if name == "ours":
                    client.call("open", location=table.location, key=1)
                else:
                    client.call("load", folder=str(root / name), rows=loaded)
                told = client.call("measure", keys=keys, batches=many[1:])
                count = client.call("found", keys=many[0])
            except ClientError as failed:
                found[name] = {"failed": str(failed)[:300]}
                continue
        micros = np.array(told["nanos"]) / 1e3
        found[name] = {
            "p50_micros": float(np.percentile(micros, 50)),
            "p99_micros": float(np.percentile(micros, 99)),
            "singles": len(micros),
            "keys_a_second": BATCH / float(np.median(told["batch_wall"])),
            "keys_a_cpu_second": BATCH / float(np.median(told["batch_cpu"])),
            "found": count,
        }
    counts = {one["found"] for one in found.values() if "found" in one}
    assert len(counts) == 1, f"engines disagree: {found}"
    for told in found.values():
        if "p50_micros" in told:
            told["p50_to_ours"] = told["p50_micros"] / found["ours"]["p50_micros"]
            told["rate_to_ours"] = told["keys_a_second"] / found["ours"]["keys_a_second"]
    return found


def table_ids(table: lsm.Table) -> np.ndarray:
    return table.scan(columns=["id"]).to_arrow().column(0).to_numpy()


def ours_alone(table: lsm.Table, rng: np.random.Generator) -> dict[str, Any]:
    """Building, single keys and batches in this process."""
    found: dict[str, Any] = {
        "levels": [[run.level for run in bucket.runs] for bucket in table.tree()]
    }
    with table.query() as query:
        found["building"] = building(table, query)
        ids = table.scan(columns=["id"], limit=200_000).to_arrow().column(0).to_numpy()
        cases = {
            "hit": rng.choice(ids, 5_000),
            "miss outside": rng.integers(KEYS, 2 * KEYS, 5_000),
            "miss inside": np.setdiff1d(rng.integers(0, KEYS, 20_000), table_ids(table))[:5_000],
            "random": rng.integers(0, KEYS, 5_000),
        }
        assert tuple(cases) == SINGLES
        for name, keys in cases.items():
            keys = rng.permutation(keys)
            single(query, keys)
            found[name] = single(query, keys)
        batches(query, rng)
        found["keys_a_second"] = batches(query, rng)
    return found


def ratios(found: dict[str, Any]) -> list[Ratio]:
    """What was found as figures with their goals; single keys with and without those calls that were interrupted."""
    told = [
        one_figure("building a lookup file", "building / rewriting, cpu", found["building"]["build_ratio"], goal=1.5)
    ]  # fmt: skip
    hit = found["hit"]["p50_micros"]
    for name in SINGLES:
        case = found[name]
        # Hits among misses: their ratio says how far the two are apart, which is no fault.
        tail = None if name == "random" else 3.0
        for kind, goal in (("p50_micros", 30.0), ("p99_to_p50", tail), ("calm_p99_to_p50", tail)):
            told.append(one_figure(f"single key, {name}", kind, case[kind], goal=goal))
    for name in SINGLES[1:]:
        ratio = found[name]["p50_micros"] / hit
        goal = MISS_TO_HIT if name in MISSES else None
        told.append(one_figure(f"single key, {name}", "p50 / that of hits", ratio, goal=goal))
    rate = found["keys_a_second"]
    told.append(one_figure("batches of 100,000", "keys a second", rate, goal=1e6, more=True))
    for kind in ("wall", "cpu") if "cold" in found else ():
        ratio = found["cold"][f"java_to_ours_{kind}"]
        goal = 2.0 if kind == "wall" else None
        told.append(one_figure("cold lookup", f"Java / ours, {kind}", ratio, goal=goal, more=True))
    for name, peer in found.get("beside", {}).items():
        kinds = ("p50_micros", "p99_micros", "p50_to_ours", "keys_a_second", "rate_to_ours")
        told += [one_figure(f"beside: {name}", kind, peer[kind]) for kind in kinds if kind in peer]
    return told


def one_figure(
    what: str, name: str, value: float, *, goal: float | None = None, more: bool = False
) -> Ratio:
    """One figure of this run."""
    return Ratio(what=what, name=name, rounds=(value,), goal=goal, more_is_better=more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each commit")
    parser.add_argument("--peers", default=",".join(PEERS), help="other engines; '' for none")
    parser.add_argument("--no-java", action="store_true", help="leave the cold comparison out")
    parser.add_argument("--json", type=Path, help="write the JSON there instead of printing it")
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as root:
        table = filled(root, asked.rows)
        table.lookup([{"id": 1}])  # compiles
        found = ours_alone(table, rng)
        if not asked.no_java:
            found["cold"] = cold(table, KEYS // 2, Path(root))
        peers = [name for name in asked.peers.split(",") if name]
        if peers:
            found["beside"] = beside(table, Path(root), peers)
    report("lookup_keys", ratios(found), Samples(), facts=found, out=asked.json)


if __name__ == "__main__":
    main()
