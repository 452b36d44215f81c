"""A table's life on Spark at two sizes: load, upserts, MERGE, compaction and aggregate, in CPU for each row.

    python -m tests.bench.spark_scale                         # 50,000,000 rows by 5,000,000, local[2]
    python -m tests.bench.spark_scale --cluster               # a master and two workers with folders of their own
    python -m tests.bench.spark_scale --rows 5000000 --folder /mnt/disk

Rows have nine columns, a bucket for each million of them. Five upserts and a MERGE with three clauses follow the load, each of a
hundredth of the rows; then a full compaction, and three aggregates of two columns, which have to see each row once. The
CPU is that of all processes: driver, JVMs, Python workers. A ratio is that of a row of the larger table by one of the
smaller. 50,000,000 rows take 20 GB of the folder.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lsm_engine.spark import local_settings
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet
from tests.cluster.standalone import standalone_cluster

DRIVER = Path(__file__).parent / "driver_spark_scale.py"
ROOT = Path(__file__).parents[2]
FACTOR = 10
"""How many times as many rows the larger table has."""
GOAL = 1.1


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=50_000_000, rounds=1)
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster")
    parser.add_argument("--folder", help="of inputs and tables, default the temporary one")
    options = parser.parse_args()
    samples = Samples()
    sizes = (options.rows // FACTOR, options.rows)
    for rows in sizes:
        wait_for_quiet(options.patience)
        with tempfile.TemporaryDirectory(prefix="bench-scale-", dir=options.folder) as folder:
            run = on_cluster if options.cluster else on_local_cores
            for spent in run(Path(folder), rows):
                samples.add(spent["step"], f"{rows:,} rows", Seconds(spent["wall"], spent["cpu"]))
    report(
        "spark_scale",
        ratios(samples, sizes),
        samples,
        facts={"rows": options.rows, "cluster": options.cluster},
        out=options.json,
    )


def ratios(samples: Samples, sizes: tuple[int, int]) -> list[Ratio]:
    """Return the CPU of a row of the larger table by one of the smaller, a step."""
    small, large = (f"{rows:,} rows" for rows in sizes)
    steps = dict.fromkeys(step for step, _ in samples.taken)
    return [
        Ratio(
            what=step,
            name=f"a row of {large} / of {small}, cpu",
            rounds=(sum(samples.of(step, large)) / sum(samples.of(step, small)) / FACTOR,),
            goal=GOAL,
        )
        for step in steps
    ]


def request(folder: Path, rows: int, **members: Any) -> dict[str, Any]:
    """Return what the driver's program is asked for."""
    for name in ("inputs", "warehouse"):
        (folder / name).mkdir()
    return {
        "inputs": str(folder / "inputs"),
        "warehouse": str(folder / "warehouse"),
        "catalog": f"sqlite:///{folder}/catalog.db",
        "rows": rows,
        **members,
    }


def on_local_cores(folder: Path, rows: int) -> Iterator[dict[str, Any]]:
    """Run the program in a session of two local cores."""
    settings = {
        **local_settings(threads=2),
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
    }
    members = request(folder, rows, master="local[2]", settings=settings, roots=[])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with steps_of([sys.executable, str(DRIVER), json.dumps(members)], environment, folder) as steps:
        yield from steps


def on_cluster(folder: Path, rows: int) -> Iterator[dict[str, Any]]:
    """Run the program as the driver of two workers, each with a core and a folder of its own."""
    with standalone_cluster(folder / "cluster") as cluster:
        shared = {"spark.lsm.shared-disk": "true"}
        members = request(
            cluster.home,
            rows,
            master=cluster.master,
            settings={},
            roots=[*cluster.workers.values()],
        )
        command, environment = cluster.program(DRIVER, json.dumps(members), settings=shared)
        with steps_of(command, environment, cluster.driver) as steps:
            yield from steps


@contextmanager
def steps_of(
    command: list[str], environment: dict[str, str], folder: Path
) -> Iterator[Iterator[dict[str, Any]]]:
    """Run a program; give what it prints, a JSON object a line, and its errors if it fails."""
    errors = folder / "errors.txt"
    with (
        errors.open("w") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        yield (json.loads(line) for line in process.stdout if line.startswith("{"))
    assert process.returncode == 0, errors.read_text()[-6000:]


if __name__ == "__main__":
    main()
