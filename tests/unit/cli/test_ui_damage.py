"""`lsm ui` on tables that are damaged, or have very many tags: pages open, and say what there is and what is not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.ui.routes import Site

Page = Callable[[str], tuple[int, str]]


@pytest.fixture
def table(tmp_path: Path) -> lsm.Table:
    with lsm.open_catalog(tmp_path) as catalog:
        made = catalog.create_table("shop.orders", {"id": int}, primary_key="id")
        for at in range(3):
            made.upsert([{"id": at}])
        for number in range(12):
            made.create_tag(f"tag-{number:02}", 2)
        return made


@pytest.fixture
def page(tmp_path: Path, table: lsm.Table) -> Iterator[Page]:
    del table  # it has to be there
    with lsm.open_catalog(tmp_path) as catalog:
        site = Site(catalog, lambda words: f"lsm {words}")

        def read(target: str) -> tuple[int, str]:
            got = site.reply(target)
            return got.status, got.body.decode()

        yield read
        site.close()


def of(tmp_path: Path) -> Path:
    return tmp_path / "shop.db" / "orders"


def test_very_many_tags_of_a_snapshot_do_not_widen_its_row(page: Page) -> None:
    status, text = page("/t/shop.orders/snapshots")
    row = text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert (status, row.count("/tag/"), "and 7 more" in row) == (200, 5, True)
    assert text.partition(">Tags<")[2].count("/tag/") == 12


def test_a_page_beyond_the_last_is_the_last(page: Page) -> None:
    status, text = page("/?page=7")
    assert (status, "page 1 of 1" in text, "shop.orders" in text) == (200, True, True)


def test_a_lost_manifest_list_leaves_the_rest_to_be_seen(tmp_path: Path, page: Page) -> None:
    for lost in of(tmp_path).glob("manifest/manifest-list-*"):
        lost.unlink()
    status, text = page("/t/shop.orders")
    assert (status, "nothing has been committed" in text) == (200, False)
    assert 'href="/t/shop.orders/snapshot/3"' in text
    status, text = page("/t/shop.orders/snapshot/3")
    assert (status, "no such file" in text, "total record count" in text) == (200, True, True)


def test_a_damaged_newest_snapshot_leaves_columns_and_findings(tmp_path: Path, page: Page) -> None:
    (of(tmp_path) / "snapshot" / "snapshot-3").write_text("{")
    status, text = page("/t/shop.orders")
    assert (status, "cannot be read" in text, "BIGINT" in text) == (200, True, True)
    status, text = page("/t/shop.orders/tree")
    assert (status, "lsm doctor shop.orders" in text) == (500, True)


def test_damaged_tags_and_older_snapshots_do_not_hide_the_others(
    tmp_path: Path, page: Page
) -> None:
    (of(tmp_path) / "snapshot" / "snapshot-1").write_text("{")
    (of(tmp_path) / "tag" / "tag-tag-03").write_text("{")
    status, text = page("/t/shop.orders/snapshots")
    assert status == 200
    assert "snapshot 1 cannot be read" in text
    assert "tags cannot be read" in text
    assert 'href="/t/shop.orders/snapshot/3"' in text
    assert "no tags" not in text
