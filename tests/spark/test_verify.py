"""Deep verification on Spark finds what it finds without."""

from pathlib import Path

import pytest

from lsm_engine.spark import verify_table
from tests.spark.rows import rows

pytestmark = pytest.mark.spark


def test_executors_find_what_threads_find(spark, new_table):
    table = new_table("orders", write_only="true")
    for value in "abc":
        table.upsert(rows(0, 40, value))
    table.create_tag("kept")
    read = []
    sound = verify_table(table, spark, progress=lambda path, _: read.append(path))
    expected = table.verify(deep=True)
    assert sound == expected
    assert len(read) == sound.read_count > 3
    assert verify_table(table, spark, incremental=True).is_clean
    assert verify_table(table, spark, incremental=True).skipped_count == sound.read_count
    for path in sorted(Path(table.location).rglob("data-*.parquet"))[:2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    found = verify_table(table, spark, incremental=True)
    assert found.read_count == 2  # those that were changed
    assert found.problems == table.verify(deep=True).problems
    assert len(found.damaged_files) == 2
