"""A table that is fed from another one's changes has each of them once, whatever expires meanwhile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_assets.commits import data_version
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.feed import ConsumerOffset, changes_to_feed, find_consumer_offset
from lsm_assets.testing import WarehouseUnderTest, warehouse_under_test
from lsm_assets.versions import Upsert
from lsm_engine import TableName
from tests.dagster.lake import MARKS

pytestmark = MARKS

SALES = dg.AssetKey(["shop", "sales"])
SUMS = TableDeclaration(
    name="shop.sums",
    schema=pa.schema([pa.field("shop", pa.string(), nullable=False), ("price", pa.int64())]),
    primary_key=("shop",),
    options={
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.price.aggregate-function": "sum",
        "write-only": "true",
    },
    deps=(SALES,),
)
SIGN = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}
CONSUMER = SUMS.keys.identifier


def summed(changes: pa.Table) -> pa.Table:
    """Return the sum of all shops; those of which nothing is told are left out."""
    signs = pa.array([SIGN[kind] for kind in changes["_row_kind"].to_pylist()], pa.int64())
    total = pc.sum(pc.multiply(changes["price"], signs)).as_py()
    return pa.table({"shop": ["all"], "price": [total]}).slice(0 if total else 1)


@dataclass
class Feed:
    """Sales, and what sums them up."""

    lake: WarehouseUnderTest
    declaration: TableDeclaration = SUMS
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def run(self) -> bool:
        """Feed once; False: there was nothing. What happens `meanwhile` is before the commit."""
        told: list[bool] = []

        def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
            changes = changes_to_feed(context, SALES, table, columns=["id", "price"])
            told.append(changes is not None)
            if self.meanwhile:
                self.meanwhile.pop()()
            if changes is not None:
                yield Upsert(rows=summed(changes.rows), properties=changes.properties)
                changes.acknowledge()

        made = lsm_table_assets(self.declaration, write)
        run = self.lake.materialize(
            [made.assets[0], dg.AssetSpec(SALES)], selection=[made.assets[0]]
        )
        (event,) = run.asset_materializations_for_node(made.assets[0].node_def.name)[-1:]
        self.read = (event.tags or {})[f"dagster/input_data_version/{SALES.to_user_string()}"]
        return told[0]

    def fails(self) -> str:
        with pytest.raises(dg.Failure) as failure:
            self.run()
        return str(failure.value.description)

    def told_dagster(self, table: lsm.Table) -> str:
        """Record the version of sales, as its own runs and lsm_sync do."""
        version = data_version(table, self.lake.catalog.lineage).text
        tags = {"dagster/data_version": version}
        self.lake.instance.report_runless_asset_event(
            dg.AssetMaterialization(asset_key=SALES, tags=tags)
        )
        return version

    def sales(self, **options: str) -> lsm.Table:
        kept = {"bucket": "1", "changelog-producer": "input", "write-only": "true", **options}
        columns = {"id": int, "price": int}
        self.lake.catalog.create_database("shop", ignore_if_exists=True)
        return self.lake.catalog.create_table("shop.sales", columns, primary_key="id", options=kept)

    @property
    def sums(self) -> lsm.Table:
        return self.lake.catalog.table("shop.sums")

    @property
    def total(self) -> int:
        (row,) = self.sums.to_arrow().to_pylist()
        return int(row["price"])

    def consumer(self, table: lsm.Table) -> int | None:
        found = {each.name: each.next_snapshot_id for each in table.consumers()}
        return found.get(CONSUMER)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    with warehouse_under_test(tmp_path / "lake") as lake:
        yield Feed(lake)


def sale(number: int, price: int) -> list[dict[str, Any]]:
    return [{"id": number, "price": price}]


def expire_all_but_one(table: lsm.Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert len(table.snapshot_ids()) == 1


def test_a_feed_whose_last_commit_has_expired_goes_on_where_it_was(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 10))
    assert feed.run()
    feed.sums.compact(full=True)
    expire_all_but_one(feed.sums)
    assert not feed.run()
    sales.upsert(sale(2, 5))
    assert feed.run()
    assert feed.total == 15


def test_a_feed_that_nothing_tells_of_any_more_fails_instead_of_counting_twice(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 10))
    feed.run()
    feed.sums.compact(full=True)
    expire_all_but_one(feed.sums)
    lineage = feed.lake.catalog.lineage
    lineage.rebuild(TableName.parse("shop.sums"), [], keep_history=False)
    sales.upsert(sale(2, 5))
    assert "how far shop.sums was fed from shop.sales is not known any more" in feed.fails()
    assert feed.total == 10
    feed.lake.catalog.drop_table("shop.sums")
    assert feed.run()
    assert feed.total == 15


def test_a_table_with_expired_commits_that_was_never_fed_is_fed_from_the_start(feed: Feed) -> None:
    feed.lake.catalog.create_database("shop")
    sums = feed.lake.resources["lsm"].table(SUMS)
    for number in range(3):
        sums.upsert([{"shop": "before", "price": number}])
    expire_all_but_one(sums)
    lineage = feed.lake.catalog.lineage
    assert find_consumer_offset(sums, "shop.sales", lineage) == ConsumerOffset()
    assert lineage.snapshots(TableName.parse("shop.sums")).num_rows == 3


def test_changes_of_which_nothing_is_made_do_not_leave_the_feed_behind(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 10))
    feed.run()
    assert feed.consumer(sales) == 1
    sales.upsert(sale(2, 0))
    newest = feed.sums.latest_snapshot()
    assert feed.run()
    assert feed.sums.latest_snapshot() == newest
    assert feed.consumer(sales) == 1
    sales.upsert(sale(3, 7))
    sales.expire_snapshots(retain_max=1, retain_min=1)
    assert feed.run()
    assert feed.total == 17
    assert feed.consumer(sales) == 3


def test_an_empty_commit_tells_how_far_a_feed_has_come_where_the_table_makes_them(
    feed: Feed,
) -> None:
    forced = {**SUMS.options, "commit.force-create-snapshot": "true"}
    feed.declaration = replace(SUMS, options=forced)
    sales = feed.sales()
    sales.upsert(sale(1, 0))
    feed.run()
    assert feed.consumer(sales) == 1
    assert not feed.run()


def test_a_feed_may_start_when_the_first_changes_have_expired(feed: Feed) -> None:
    sales = feed.sales()
    for number in range(3):
        sales.upsert(sale(number, 10))
    expire_all_but_one(sales)
    assert feed.run()
    assert feed.total == 30
    sales.upsert(sale(9, 1))
    feed.run()
    assert feed.total == 31


@pytest.mark.parametrize("merges", ["true", "false"])
def test_a_feed_that_starts_late_counts_no_change_twice_that_waits_for_a_compaction(
    feed: Feed, merges: str
) -> None:
    options = {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": merges}
    sales = feed.sales(**{"changelog-producer": "lookup", **options})
    for number in range(3):
        sales.upsert(sale(number, 10))
    sales.compact(full=True)
    sales.upsert(sale(9, 1))
    sales.expire_snapshots(retain_max=2, retain_min=2)
    assert len(sales.snapshot_ids()) == 2
    assert feed.run()
    assert feed.total == 30
    sales.compact(full=True)
    feed.run()
    assert feed.total == 31


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_feed_fails_where_all_that_is_new_waits_for_a_compaction(
    feed: Feed, producer: str
) -> None:
    sales = feed.sales(**{"changelog-producer": producer})
    sales.upsert(sale(1, 10))
    told = feed.fails()
    assert "waits for a compaction" in told
    assert "materialise shop/sales.compaction with full: true" in told
    sales.compact(full=True)
    assert feed.run()
    assert feed.total == 10
    assert not feed.run()
