"""What a feed's mark means after an overwrite, a restore, a rollback on either side, and with two runs at once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

import lsm_engine as lsm
from lsm_assets.factory import lsm_table_assets
from lsm_assets.feed import OFFSET_PROPERTY, changes_to_feed
from lsm_assets.versions import Upsert
from lsm_engine.commit import replays
from tests.dagster.lake import MARKS
from tests.dagster.test_feed import SALES, Feed, expire_all_but_one, sale, summed
from tests.dagster.test_feed import feed as feed  # the fixture

pytestmark = MARKS


def sales_of(*prices: int) -> list[dict[str, Any]]:
    return [{"id": number, "price": price} for number, price in enumerate(prices, 1)]


@pytest.mark.parametrize("producer", ["input", "lookup"])
@pytest.mark.parametrize("compacted", [True, False])
def test_an_overwrite_of_the_upstream_table_is_carried_over(
    feed: Feed, producer: str, compacted: bool
) -> None:
    sales = feed.sales(**{"changelog-producer": producer})
    sales.upsert(sales_of(1, 2))
    sales.compact(full=True)
    feed.run()
    assert feed.total == 3
    sales.overwrite(sales_of(5))
    if compacted:
        sales.compact(full=True)
    if producer == "lookup" and not compacted:
        assert "compaction" in feed.fails()
        assert feed.total == 3  # never what is left between the two
    else:
        assert feed.run()
        assert feed.total == 5
    sales.compact(full=True)
    sales.upsert(sale(7, 10))
    sales.compact(full=True)
    feed.run()
    assert feed.total == 15


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize("told", [True, False])
def test_an_overwrite_is_carried_over_once_its_own_partition_is_compacted(
    feed: Feed, producer: str, told: bool
) -> None:
    feed.lake.catalog.create_database("shop", ignore_if_exists=True)
    sales = feed.lake.catalog.create_table(
        "shop.sales",
        {"id": int, "day": str, "price": int},
        primary_key=["id", "day"],
        partitioned_by=["day"],
        options={"bucket": "1", "changelog-producer": producer, "write-only": "true"},
    )

    def priced(**prices: int) -> list[dict[str, Any]]:
        return [{"id": 1, "day": day, "price": price} for day, price in prices.items()]

    def compact(day: str) -> None:
        sales.compact(full=True, partitions=[{"day": day}])

    sales.upsert(priced(mon=1, tue=2))
    sales.compact(full=True)
    feed.run()
    assert feed.total == 3
    sales.overwrite(priced(mon=5), {"day": "mon"})
    sales.upsert(priced(tue=20))
    compact("mon" if told else "tue")
    sales.upsert(priced(mon=6))
    if told:
        feed.run()
        assert feed.total == 7  # what is newer than the overwrite waits, of both days
    else:
        assert "compaction" in feed.fails()
        assert feed.total == 3  # never what is left between the two
    sales.compact(full=True)
    feed.run()
    assert feed.total == 26


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_a_restore_of_the_upstream_table_is_carried_over(feed: Feed, producer: str) -> None:
    sales = feed.sales(**{"changelog-producer": producer})
    sales.upsert(sales_of(1, 2))
    sales.compact(full=True)
    there = sales.latest_snapshot()
    assert there is not None
    sales.upsert(sale(3, 50))
    sales.compact(full=True)
    feed.run()
    assert feed.total == 53
    sales.rollback_to_as_latest(there.id)
    feed.run()
    assert feed.total == 3


def test_the_state_before_an_overwrite_is_kept_until_it_is_carried_over(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sales_of(1, 2))
    feed.run()
    sales.overwrite(sales_of(5))
    sales.upsert(sale(2, 1))
    sales.expire_snapshots(retain_max=1, retain_min=1)
    assert feed.run()
    assert feed.total == 6


def test_a_feed_fails_where_changes_were_lost_and_starts_anew_from_the_rows(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sales_of(1, 2))
    feed.run()
    sales.reset_consumer(feed.declaration.keys.identifier)
    sales.overwrite(sales_of(5))
    sales.upsert(sale(2, 1))
    expire_all_but_one(sales)
    told = feed.fails()
    assert "not all changes of shop.sales after snapshot 1 can be read" in told
    assert "drop shop.sums" in told
    feed.lake.catalog.drop_table("shop.sums")
    feed.run()
    assert feed.total == 6


def test_an_overwritten_table_without_a_key_cannot_be_gone_on_with(feed: Feed) -> None:
    feed.lake.catalog.create_database("shop")
    sales = feed.lake.catalog.create_table("shop.sales", {"id": int, "price": int})
    sales.append(sales_of(1, 2))
    feed.run()
    sales.overwrite(sales_of(5))
    assert "overwritten rows, which have no key" in feed.fails()
    feed.lake.catalog.drop_table("shop.sums")
    feed.run()
    assert feed.total == 5


def test_a_restored_table_is_fed_on_from_the_state_that_was_restored(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 6))
    feed.run()
    sales.upsert(sale(2, 3))
    feed.run()
    assert feed.total == 9
    feed.sums.rollback_to_as_latest(1)
    assert feed.total == 6
    assert feed.run()
    assert feed.total == 9
    feed.sums.rollback_to(3)
    assert feed.run()
    assert feed.total == 9


def test_a_table_restored_to_before_it_was_fed_is_fed_from_the_start(feed: Feed) -> None:
    feed.lake.catalog.create_database("shop")
    feed.lake.resources["lsm"].table(feed.declaration).upsert([{"shop": "all", "price": 100}])
    sales = feed.sales()
    sales.upsert(sale(1, 6))
    feed.run()
    feed.sums.rollback_to_as_latest(1)
    feed.run()
    feed.sums.rollback_to_as_latest(1)
    assert feed.run()
    assert feed.total == 106


def test_marks_of_a_restored_state_are_found_when_its_commits_have_expired(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 6))
    feed.run()
    feed.sums.create_tag("good")
    sales.upsert(sale(2, 3))
    feed.run()
    feed.sums.rollback_to_as_latest(tag="good")
    feed.sums.compact(full=True)
    expire_all_but_one(feed.sums)
    assert feed.run()
    assert feed.total == 9


def test_a_feed_fails_after_an_overwrite_that_does_not_tell_what_it_holds(feed: Feed) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 6))
    feed.run()
    newest = sales.latest_snapshot()
    assert newest is not None
    feed.sums.overwrite([{"shop": "all", "price": 100}])
    sales.upsert(sale(2, 3))
    assert "snapshot 2 has overwritten shop.sums without telling" in feed.fails()
    feed.sums.overwrite(
        [{"shop": "all", "price": 6}], properties={OFFSET_PROPERTY + "shop.sales": "1"}
    )
    assert feed.run()
    assert feed.total == 9


@pytest.mark.parametrize("more", [0, 100])
def test_of_two_runs_at_once_one_carries_changes_over(feed: Feed, more: int) -> None:
    """The other one is run again: with what came in between it has more to carry over."""
    sales = feed.sales()
    sales.upsert(sale(1, 6))
    feed.run()
    sales.upsert(sale(2, 3))

    def other_run() -> None:
        sales.upsert(sale(3, more))
        assert feed.run()

    feed.meanwhile.append(other_run)
    feed.run()
    assert feed.total == 9 + more


def test_a_compaction_between_two_runs_at_once_makes_no_difference(feed: Feed) -> None:
    options = {**feed.declaration.options, "write-only": "false"}
    options["num-sorted-run.compaction-trigger"] = "1"
    feed.declaration = replace(feed.declaration, options=options)
    sales = feed.sales()
    for number in range(3):
        sales.upsert(sale(number, 6))
        feed.run()
    sales.upsert(sale(9, 3))
    feed.meanwhile.append(lambda: [feed.run(), feed.sums.compact(full=True)])
    feed.run()
    assert feed.total == 21


def test_what_waits_for_a_compaction_keeps_the_fed_table_out_of_date(feed: Feed) -> None:
    sales = feed.sales(**{"changelog-producer": "lookup"})
    sales.upsert(sale(1, 6))
    sales.compact(full=True)
    sales.upsert(sale(2, 3))
    version = feed.told_dagster(sales)
    assert feed.run()
    assert feed.total == 6
    assert feed.read != version
    sales.compact(full=True)
    assert feed.told_dagster(sales) == version
    assert feed.run()
    assert feed.total == 9
    assert feed.read == version


def test_a_table_with_a_key_and_no_changelog_is_refused(feed: Feed) -> None:
    sales = feed.sales(**{"changelog-producer": "none"})
    sales.upsert(sale(1, 1))
    assert "shop.sales has a primary key and no changelog" in feed.fails()


def test_commits_from_before_a_table_had_a_changelog_are_not_counted_one_by_one(
    feed: Feed,
) -> None:
    sales = feed.sales(**{"changelog-producer": "none"})
    sales.upsert(sale(1, 1))
    sales.upsert(sale(1, 7))
    sales.alter(lsm.SetOption(key="changelog-producer", value="lookup"))
    sales.compact(full=True)
    feed.run()
    sales.upsert(sale(2, 2))
    sales.compact(full=True)
    feed.run()
    assert feed.total == 9


def test_a_feed_that_cannot_be_acknowledged_has_carried_its_changes_over(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = feed.sales()
    sales.upsert(sale(1, 6))

    def full(*_: object) -> None:
        raise lsm.StorageError("the disk is full", path="consumer/consumer-x")

    monkeypatch.setattr(lsm.Table, "reset_consumer", full)
    assert feed.run()
    assert feed.total == 6


def test_changes_are_carried_over_once_however_many_commits_come_between(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "LOOKBACK_SNAPSHOTS", 2)
    sales = feed.sales()
    sales.upsert(sale(1, 5))

    def meanwhile() -> None:
        feed.run()
        sums = feed.lake.catalog.table("shop.sums")
        for _ in range(3):
            sums.upsert([{"shop": "all", "price": 0}])

    feed.meanwhile = [meanwhile]
    feed.run()
    assert feed.total == 5


def test_changes_that_are_carried_over_in_parts_fail_the_run(feed: Feed) -> None:
    feed.sales().upsert(sales_of(1, 2))

    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
        changes = changes_to_feed(context, SALES, table)
        assert changes is not None
        for part in (changes.rows.slice(0, 1), changes.rows.slice(1)):
            yield Upsert(rows=summed(part), properties=changes.properties)

    made = lsm_table_assets(feed.declaration, write).assets[0]
    with pytest.raises(dg.Failure, match=r"roll shop\.sums back to before snapshot 1"):
        feed.lake.materialize([made, dg.AssetSpec(SALES)], selection=[made])
