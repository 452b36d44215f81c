"""What small work costs as runs of Dagster: a table of about 100 KB written, compacted, inspected, tagged, expired.

    python -m tests.bench.small_runs --rounds 3

Each run is a process of its own, `dagster asset materialize` or `dagster job execute`, on a lake whose executor is
Spark. Its CPU, that of its children included, is compared with that of an asset that does nothing, in the same
definitions and at the same time, so that a busy machine gives the same differences.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import dagster as dg

DEFINITIONS = """
import dagster as dg
import pyarrow as pa

from lsm_assets import TableDeclaration, current_settings, lsm_definitions, lsm_table_assets

ORDERS = TableDeclaration(
    name="shop.orders",
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.float64())]),
    primary_key=("id",),
    options={"bucket": "1", "write-only": "true"},
)


def write(context, table):
    for first in range(4):
        ids = list(range(first * 500, first * 500 + 900))
        yield pa.table({"id": ids, "price": [float(number) for number in ids]})


@dg.asset
def nothing():
    pass


defs = dg.Definitions.merge(
    lsm_definitions([lsm_table_assets(ORDERS, write)], current_settings()),
    dg.Definitions(assets=[nothing]),
)
"""
NOTHING = "nothing"
MATERIALIZE = ("asset", "materialize", "--select")
WORK = {
    "four commits": (*MATERIALIZE, "shop/orders"),
    "a compaction": (*MATERIALIZE, "shop/orders.compaction"),
    "a snapshot of a few files read": (*MATERIALIZE, "shop/orders.snapshots", "--partition", "4"),
    "its manifests checked": (*MATERIALIZE, "shop/orders.manifest_lists", "--partition", "4"),
    "a tag": (*MATERIALIZE, "shop/orders.tags", "--partition", "v{number}"),
    "expiry": ("job", "execute", "-j", "shop__orders__expire"),
}


def seconds(*words: str) -> float:
    """Run a command of Dagster; return the CPU seconds of its processes."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run(
        ["dagster", words[0], words[1], "-m", "small_definitions", *words[2:]],
        check=True,
        capture_output=True,
    )
    return spent() - before


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    above: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "small_definitions.py").write_text(DEFINITIONS)
        os.environ |= {
            "DAGSTER_HOME": directory,
            "LSM_WAREHOUSE": f"{directory}/lake",
            "PYTHONPATH": os.pathsep.join((directory, os.environ.get("PYTHONPATH", ""))),
        }
        names = "shop.orders$tags"
        with dg.DagsterInstance.get() as instance:
            instance.add_dynamic_partitions(names, [f"v{number}" for number in range(rounds)])
        seconds(*MATERIALIZE, NOTHING)  # Dagster's home is made
        for number in range(rounds):
            base = seconds(*MATERIALIZE, NOTHING)
            above["Dagster's own, for an asset that does nothing"].append(base)
            for name, words in WORK.items():
                filled = [word.format(number=number) for word in words]
                above[name].append(seconds(*filled) - base)
    for name, figures in above.items():
        print(f"{statistics.median(figures):6.2f} s  {name}")


if __name__ == "__main__":
    main()
