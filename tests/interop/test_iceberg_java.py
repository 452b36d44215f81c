"""Iceberg's own Java library reads tables by their Iceberg metadata, with its own pruning and its own filters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.engines.iceberg_histories import LAYOUTS, run_history
from tests.engines.iceberg_readers import metadata_file, metadata_folder
from tests.interop.iceberg_java import IcebergJava, RefusedError, iceberg_java, why_not

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def java() -> Iterator[IcebergJava]:
    if reason := why_not():
        pytest.skip(reason)
    with iceberg_java() as process:
        yield process


# Polars calls a function of pyiceberg that goes in its next release.
@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_each_step_of_a_history_the_library_reads_what_a_scan_reads(
    tmp_path: Path, java: IcebergJava, layout: str
) -> None:
    """A sample of those that `python -m tests.engines.iceberg_histories` runs."""
    run_history(tmp_path, layout, seed=3, steps=3, java=java)


def test_the_library_leaves_out_the_rows_of_vectors_and_of_filters(
    tmp_path: Path, java: IcebergJava
) -> None:
    with lsm.open_catalog(tmp_path) as catalog:
        table = catalog.create_table(
            "shop.orders",
            {"k": "BIGINT", "v": "INT"},
            "k",
            options={"iceberg-compatibility.enabled": "true"},
        )
        table.upsert([{"k": key, "v": key} for key in range(9)])
        table.upsert([{"k": key, "v": -key} for key in range(0, 9, 2)])
        assert java.rows(metadata_file(table)).num_rows == 9
        equal_to_three = {"type": "eq", "term": "v", "value": 3}
        assert java.rows(table.location, row_filter=equal_to_three)["k"].to_pylist() == [3]
        (vectors,) = metadata_folder(table).glob("*.puffin")
        vectors.unlink()
        with pytest.raises(RefusedError, match="NotFound"):
            java.rows(table.location)
