"""The recipe of docs/iceberg.md for Spark: iceberg-spark reads what a scan reads, and every type of it."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.engines.iceberg_histories import LAYOUTS, VALUES, run_history
from tests.interop.environments import HERE
from tests.interop.iceberg_spark import iceberg_spark
from tests.interop.other_sparks import ICEBERG

pytestmark = [pytest.mark.slow, pytest.mark.interop_full]
PAGE = (Path(lsm.__file__).parent / "docs" / "iceberg.md").read_text()
EXACT = {"iceberg-compatibility.enabled": "true"}


def test_iceberg_spark_reads_each_commit_tags_and_branches(tmp_path):
    lake = tmp_path / "lake"
    python, settings = ICEBERG.as_page_says(PAGE, lake)
    in_warehouse = EXACT | {"metadata.iceberg.storage": "hadoop-catalog"}
    kinds = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    with lsm.open_catalog(lake) as catalog:
        columns = {"k": "BIGINT", "v": "BIGINT"}
        orders = catalog.create_table("shop.orders", columns, "k", options=in_warehouse)
        orders.upsert([{"k": key, "v": key} for key in range(10)])
        orders.tags.create("first")
        orders.upsert([{"k": 3, "v": 33}])
        orders.delete([{"k": 4}])
        orders.alter(lsm.RenameColumn("v", "w"), lsm.AddColumn("x", "STRING"))
        orders = catalog.table("shop.orders")
        orders.upsert([{"k": 11, "w": 11, "x": "new"}])
        orders.tags.create("second")
        orders.branches.create("work", tag="second")
        orders.branch("work").upsert([{"k": 100, "w": 1}])
        wide = catalog.create_table("shop.wide", {"k": "BIGINT", **kinds}, "k", options=EXACT)
        values = [{name: VALUES[kind](key) for name, kind in kinds.items()} for key in range(40)]
        rows = [{"k": key, **row} for key, row in enumerate(values)]
        wide.upsert(pa.Table.from_pylist(rows, wide.schema.arrow))
        wide.upsert([{"k": key} for key in range(0, 40, 7)])
        expected = [sorted(map(list, zip(*orders.to_arrow().to_pydict().values(), strict=True)))]
        sums = "count(*), sum(k), count(c0), sum(c3), sum(c4), max(c9), max(c12), sum(cardinality(c17)), sum(c18.x)"
        expected.append([list(wide.to_duckdb().aggregate(sums).fetchone())])
    queries = [
        "SELECT * FROM ice.shop.orders ORDER BY k",
        f"SELECT {sums} FROM path0",
        "SELECT count(*), sum(v) FROM ice.shop.orders VERSION AS OF 'first'",
        "SELECT count(*), max(k) FROM ice.shop.orders VERSION AS OF 'work'",
        "SELECT k FROM ice.shop.orders WHERE w > 10 ORDER BY k",
    ]
    done = subprocess.run(
        [str(python), str(HERE / "driver_iceberg_spark.py"), json.dumps(settings), json.dumps(queries),
         json.dumps([wide.location])],
        capture_output=True, text=True, timeout=900, cwd=tmp_path,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("answers ")]
    assert lines, done.stdout + done.stderr[-4000:]
    answers = json.loads(lines[0].removeprefix("answers "))
    assert answers[0] == expected[0]
    assert answers[1] == json.loads(json.dumps(expected[1], default=str))
    assert answers[2:] == [[[10, 45]], [[11, 100]], [[3], [11]]]


def test_after_each_step_of_a_history_iceberg_spark_reads_what_a_scan_reads(tmp_path):
    """One history of each layout; `python -m tests.engines.iceberg_histories --readers spark` runs more."""
    with iceberg_spark() as spark:
        for seed, layout in enumerate(LAYOUTS):
            run_history(tmp_path / str(seed), layout, seed, spark=spark)
