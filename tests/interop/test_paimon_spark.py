"""The recipe of docs/spark.md for SQL that Spark leaves to plugins: paimon-spark over our warehouse and back."""

import json
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.interop.environments import HERE
from tests.interop.other_sparks import PAIMON

pytestmark = [pytest.mark.slow, pytest.mark.interop_full]
PAGE = (Path(lsm.__file__).parent / "docs" / "spark.md").read_text()


def test_paimon_spark_does_full_sql_over_our_warehouse(tmp_path):
    lake = tmp_path / "lake"
    python, settings = PAIMON.as_page_says(PAGE, lake)
    with lsm.open_catalog(lake) as catalog:
        orders = catalog.create_table(
            "shop.orders",
            {"id": "BIGINT", "customer": "STRING", "price": "DECIMAL(12, 2)"},
            primary_key="id",
            options={"bucket": "2"},
        )
        orders.upsert([
            {"id": n, "customer": name, "price": Decimal(n)} for n, name in ((1, "Ann"), (2, "Bo"), (3, "Cy"))
        ])  # fmt: skip
    done = subprocess.run(
        [str(python), str(HERE / "driver_paimon_spark.py"), json.dumps(settings)],
        capture_output=True, text=True, timeout=900, cwd=tmp_path,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert lines, done.stdout + done.stderr[-4000:]
    found = json.loads(lines[0].removeprefix("found "))
    assert found["before"] == [[1, "Ann", "1.00"], [2, "Bo", "2.00"], [3, "Cy", "3.00"]]
    assert (found["travelled"], found["tagged"]) == ([[3]], [[5]])
    with lsm.open_catalog(lake) as catalog:
        orders = catalog["shop.orders"]
        rows = sorted(orders.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        ours = [[row["id"], row["customer"], str(row["price"]), row["city"]] for row in rows]
        assert ours == found["after"]
        assert [row[:3] for row in ours] == [
            [1, "Ann", "2.00"], [3, "Cyd", "30.00"], [4, "Di", "4.00"], [5, "Ed", "5.00"],
            [9, "New", "9.00"], [10, "Jo", "10.00"],
        ]  # fmt: skip
        assert orders.scan(tag="merged").to_arrow().num_rows == 5
        assert not orders.verify(deep=True).problems
        assert catalog.register_found_tables() == ["shop.made"]
        made = catalog["shop.made"]
        made.upsert([{"id": 2, "v": 2.5}])
        assert made.count() == 2
