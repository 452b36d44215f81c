"""How long a process takes to import an engine, and to make a table, upsert ten rows and read them.

    python -m tests.bench.start_up                     # lsm_engine, lance, deltalake, duckdb, pypaimon

Each library lies in an environment of its own, made at the first run, and each measurement is a fresh process
from its start to its end, the interpreter included; environments take turns. Ours has an empty cache of compiled
code each time. Beside it: our first compaction of 10,000 rows, and what each environment weighs.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from tests.bench.contenders import made
from tests.bench.measure import Samples, Seconds, arguments, report, rotated, wait_for_quiet
from tests.interop.environments import environment, made_once, make_virtual_environment

ROOT = Path(__file__).resolve().parents[2]
OURS = "lsm_engine"
IMPORT, TEN, COMPACTION = "import", "import, new table, upsert of 10 rows, read", "and a compaction"
GOALS = {IMPORT: 0.4, TEN: 1.0, COMPACTION: 2.0}
ROWS = """
import sys, pyarrow as pa
rows = pa.table({"k": pa.array(range(10), pa.int64()), "v": [f"v{n}" for n in range(10)]})
"""
IMPORTS = {
    "python alone": "",
    OURS: "import lsm_engine as lsm; lsm.open_catalog",
    "lance 14.0.2": "import lance",
    "deltalake 1.6.6": "import deltalake",
    "duckdb 2.0.0": "import duckdb",
    "pypaimon 2.1.0": "import pypaimon",
}
UPSERTS = {
    OURS: """
import lsm_engine as lsm
table = lsm.open_catalog(sys.argv[1]).create_table("a.t", rows, primary_key="k")
table.upsert(rows)
assert table.to_arrow().num_rows == 10
""",
    "lance 14.0.2": """
import lance
data = lance.write_dataset(rows.slice(0, 5), sys.argv[1])
merge = data.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
merge.execute(rows)
assert data.to_table().num_rows == 10
""",
    "deltalake 1.6.6": """
from deltalake import DeltaTable, write_deltalake
write_deltalake(sys.argv[1], rows.slice(0, 5))
merge = DeltaTable(sys.argv[1]).merge(rows, predicate="t.k = s.k", source_alias="s", target_alias="t")
merge.when_matched_update_all().when_not_matched_insert_all().execute()
assert DeltaTable(sys.argv[1]).to_pyarrow_table().num_rows == 10
""",
    "duckdb 2.0.0": """
import duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR)")
connection.execute("INSERT OR REPLACE INTO t SELECT * FROM rows")
connection.execute("CHECKPOINT")
assert connection.sql("SELECT * FROM t").to_arrow_table().num_rows == 10
""",
    "pypaimon 2.1.0": """
from pypaimon import CatalogFactory, Schema
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("a", True)
columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
options = {"bucket": "1"}
schema = Schema.from_pyarrow_schema(columns, primary_keys=["k"], options=options)
catalog.create_table("a.t", schema, False)
table = catalog.get_table("a.t")
builder = table.new_batch_write_builder()
write, commit = builder.new_write(), builder.new_commit()
write.write_arrow(rows.cast(columns))
commit.commit(write.prepare_commit())
write.close(), commit.close()
read = table.new_read_builder()
assert read.new_read().to_arrow(read.new_scan().plan().splits()).num_rows == 10
""",
}
COMPACTED = """
import lsm_engine as lsm
many = pa.table({"k": pa.array(range(10_000), pa.int64()), "v": [f"v{n}" for n in range(10_000)]})
table = lsm.open_catalog(sys.argv[1]).create_table("a.t", many, primary_key="k")
table.upsert(many.slice(0, 6_000))
table.upsert(many.slice(4_000))
assert table.compact(full=True) is not None
assert table.count() == 10_000
"""


def pythons() -> dict[str, Path]:
    """The interpreter of each environment; those that are not there are made."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = tuple(project["dependencies"])  # the sources are found in this tree
    facts = {"requirements": list(wanted), "python": sys.version.split()[0]}
    home = made_once("ours", facts, lambda folder: make_virtual_environment(folder, wanted))
    ours = home / "venv" / "bin" / "python"
    found = {"python alone": ours, OURS: ours}
    for title in list(IMPORTS)[2:-1]:
        found[title] = made(title.split()[0]) / "venv" / "bin" / "python"
    found["pypaimon 2.1.0"] = environment("pypaimon").python
    return found


def process(python: Path, program: str, cache: Path) -> Seconds:
    """What a whole process takes that runs a program; the clock, and CPU of all its threads."""
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        variables = dict(
            os.environ,
            NUMBA_CACHE_DIR=f"{scratch}/compiled",
            PYTHONDONTWRITEBYTECODE="",
            PYTHONPYCACHEPREFIX=str(cache / "bytecode"),  # as an installation has it
            PYTHONPATH=str(ROOT),
        )
        done = Path(scratch, "done")  # delta-rs now and then aborts at its exit, when all is done
        program += f"\nopen({str(done)!r}, 'x')"
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(python), "-c", program, f"{scratch}/t"], env=variables, cwd=scratch
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert done.exists(), (python, program)
        return Seconds(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)


def measured(places: dict[str, Path], rounds: int, folder: Path, *, patience: float) -> Samples:
    """All programs in turn; the first turn, which fills the page cache and makes byte code, does not count."""
    samples = Samples()
    programs = [(IMPORT, who, IMPORTS[who]) for who in places]
    programs += [(TEN, who, ROWS + UPSERTS[who]) for who in places if who in UPSERTS]
    programs.append((COMPACTION, OURS, ROWS + COMPACTED))
    for turn in range(rounds + 1):
        wait_for_quiet(patience)
        for what, who, program in rotated(programs, turn):
            spent = process(places[who], program, folder)
            if turn:
                samples.add(what, who, spent)
    return samples


def megabytes(python: Path) -> int:
    """What the packages of an environment take, without pip and setuptools."""
    folder = next((python.parents[1] / "lib").glob("python*/site-packages"))
    left_out = ("pip", "setuptools", "pkg_resources")
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    kept = (path for path in files if not path.relative_to(folder).parts[0].startswith(left_out))
    return sum(path.stat().st_blocks * 512 for path in kept) >> 20


def summary(samples: Samples, places: dict[str, Path]) -> str:
    """The medians as a Markdown table."""
    lines = ["| | import s, CPU | table, upsert of 10, read s, CPU | MB |", "|---|---|---|---|"]
    for who, python in places.items():
        cells = [
            f"{statistics.median(samples.of(what, who, 'wall')):.2f}, "
            f"{statistics.median(samples.of(what, who)):.2f}"
            if (what, who) in samples.taken
            else "-"
            for what in (IMPORT, TEN)
        ]
        weighs = str(megabytes(python)) if who in UPSERTS else ""
        lines.append(f"| {who} | {' | '.join(cells)} | {weighs} |")
    return "\n".join(lines)


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=10, rounds=5).parse_args()
    places = pythons()
    with tempfile.TemporaryDirectory(prefix="bench-start-") as scratch:
        samples = measured(places, given.rounds, Path(scratch), patience=given.patience)
    print(summary(samples, places))
    ratios = [
        samples.ratio(what, OURS, who, kind="wall")
        for what in (IMPORT, TEN)
        for who in places
        if who != OURS and (what, who) in samples.taken
    ]
    facts = {
        what: {"cpu": statistics.median(samples.of(what, OURS)), "goal": goal}
        for what, goal in GOALS.items()
    }
    report("start_up", ratios, samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()
