"""An overwrite by a filter over partition columns: those partitions go, and no others."""

import pyarrow.compute as pc
import pytest

import lsm_engine as lsm

DAYS = [
    {"day": f"2024-01-0{day}", "region": region, "id": 1} for day in (1, 2, 3) for region in "ab"
]
FILTERS = {
    "text": "day >= '2024-01-02' and region = 'a'",
    "predicate": (lsm.col("day") >= "2024-01-02") & (lsm.col("region") == "a"),
    "arrow": (pc.field("day") >= "2024-01-02") & pc.field("region").isin(["a"]),
}


@pytest.fixture
def table(tmp_path_factory: pytest.TempPathFactory) -> lsm.Table:
    catalog = lsm.open_catalog(tmp_path_factory.mktemp("lake"))
    table = catalog.create_table(
        "shop.orders", {"day": str, "region": str, "id": int},
        primary_key=["day", "region", "id"], partitioned_by=["day", "region"],
    )  # fmt: skip
    table.upsert(DAYS)
    return table


def kept(table: lsm.Table) -> list[tuple[str, str]]:
    return sorted((row["day"][-1], row["region"]) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize("form", FILTERS)
def test_partitions_that_a_filter_names_are_replaced(table: lsm.Table, form: str) -> None:
    table.overwrite([{"day": "2024-01-04", "region": "a", "id": 2}], FILTERS[form])
    assert kept(table) == [("1", "a"), ("1", "b"), ("2", "b"), ("3", "b"), ("4", "a")]
    table.overwrite([], FILTERS[form])
    assert kept(table) == [("1", "a"), ("1", "b"), ("2", "b"), ("3", "b")]


def test_rows_outside_of_the_filter_are_refused(table: lsm.Table) -> None:
    with pytest.raises(lsm.InvalidInputError, match="outside"):
        table.overwrite([{"day": "2024-01-04", "region": "b", "id": 2}], FILTERS["text"])
    assert len(kept(table)) == 6


def test_a_filter_is_over_partition_columns(table: lsm.Table) -> None:
    with pytest.raises(lsm.InvalidInputError, match="id"):
        table.overwrite([], "id = 1")
    assert len(kept(table)) == 6
