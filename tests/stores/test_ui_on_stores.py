"""Each page of `lsm ui` over tables of an object store, with a catalog and of a bare prefix."""

from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.ui.routes import Site
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

PAGES = {
    "/": "shop.orders",
    "/?q=ord": "shop.orders",
    "/t/shop.orders": "BIGINT",
    "/t/shop.orders/snapshots": "monday",
    "/t/shop.orders/snapshot/2": "APPEND",
    "/t/shop.orders/tag/monday": "monday",
    "/t/shop.orders/tree": "bucket",
    "/t/shop.orders/tree?bucket=0": ".parquet",
    "/t/shop.orders/key?id=1": "is the row",
    "/lineage": "shop.orders",
}


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_every_page(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: StoreServer = request.getfixturevalue(kind)
    warehouse, storage = location(server, f"ui {tmp_path.name}"), options(server)
    url = f"sqlite:///{tmp_path}/catalog.db"
    with lsm.open_catalog(url, warehouse=warehouse, storage=storage) as catalog:
        table = catalog.create_table(
            "shop.orders",
            {"id": "BIGINT", "v": "STRING"},
            primary_key="id",
            options={"bucket": "1"},
        )
        for number in range(3):
            table.upsert([{"id": 1, "v": f"{number}"}])
        table.create_tag("monday", 2)
        site = Site(catalog, str)
        try:
            for page, text in PAGES.items():
                reply = site.reply(page)
                assert (page, reply.status) == (page, 200)
                assert text in reply.body.decode(), page
        finally:
            site.close()
