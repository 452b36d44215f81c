"""Tables that others put into a warehouse on a store: named, adopted or refused, and nothing changed where refused."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import NotFoundError, UnsupportedError
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import StorageOptions
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]}, schema=SCHEMA)
REFUSED = {
    "manifest.format": "orc",
    "type": "format-table",
    "scan.primary-branch": "b",
}


@pytest.fixture(params=["memory", "s3"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Where it is, and the options that open it."""
    if request.param == "memory":
        return f"memory://{tmp_path.name.replace('_', '-')}/lake", {}
    server: StoreServer = request.getfixturevalue("s3")
    return location(server, f"foreign {tmp_path.name}"), dict(options(server))


@pytest.fixture
def catalog(warehouse: tuple[str, dict[str, str]], tmp_path: Path) -> Iterator[lsm.Catalog]:
    where, storage = warehouse
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/ours.db", warehouse=where, storage=storage
    ) as opened:
        yield opened


@pytest.fixture
def theirs(warehouse: tuple[str, dict[str, str]], tmp_path: Path) -> ObjectFileIO:
    """Storage at the warehouse, where somebody else made shop.orders and shop.odd."""
    where, storage = warehouse
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/theirs.db", warehouse=where, storage=storage
    ) as made:
        for name in ("shop.orders", "shop.odd"):
            made.create_table(name, SCHEMA, primary_key=["k"]).upsert(ROWS)
    return ObjectFileIO(parse_location(where), StorageOptions(storage))


def set_option(theirs: ObjectFileIO, name: str, value: str) -> None:
    """As another client does: it knows of no checksum, and leaves it out."""
    path = "shop.db/odd/schema/schema-0"
    document = json.loads(theirs.read(path))
    document.pop("lsmChecksum", None)
    document["options"][name] = value
    theirs.replace(path, json.dumps(document).encode())


def files_of(theirs: ObjectFileIO) -> dict[str, bytes]:
    paths = sorted(one.path for one in theirs.list_files(""))
    return {path: theirs.read(path) for path in paths}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_we_find_and_cannot_read_is_refused_by_its_option(
    catalog: lsm.Catalog,
    theirs: ObjectFileIO,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    set_option(theirs, name, REFUSED[name])
    before = files_of(theirs)
    assert catalog.unknown_tables() == ["shop.odd", "shop.orders"]
    with pytest.raises(lsm.LsmError, match=name.replace(".", r"\.")):
        catalog.register_table("shop.odd")
    assert catalog.list_tables() == []
    with caplog.at_level(logging.WARNING):
        assert catalog.register_found_tables() == ["shop.odd", "shop.orders"]
    assert any("shop.odd" in one.getMessage() for one in caplog.records)
    with pytest.raises(lsm.LsmError, match=name.replace(".", r"\.")):
        catalog.table("shop.odd")
    assert sorted(catalog.table("shop.orders").to_arrow()["k"].to_pylist()) == [1, 2]
    assert files_of(theirs) == before


def test_a_table_in_an_unknown_format_is_registered_and_refused_when_it_is_written(
    catalog: lsm.Catalog, theirs: ObjectFileIO
) -> None:
    set_option(theirs, "file.format", "lance")
    theirs.write_new("shop.db/empty/schema/schema-0", theirs.read("shop.db/odd/schema/schema-0"))
    before = files_of(theirs)
    table = catalog.register_table("shop.empty")
    assert table.to_arrow().num_rows == 0
    with pytest.raises(lsm.LsmError, match="lance"):
        table.upsert(ROWS)
    assert files_of(theirs) == before


def test_a_found_table_is_registered_and_written(
    catalog: lsm.Catalog, theirs: ObjectFileIO
) -> None:
    with pytest.raises(NotFoundError, match="catalog register"):
        catalog.table("shop.orders")
    table = catalog.register_table("shop.orders")
    table.upsert(ROWS)
    assert table.latest_snapshot().id == 2
    with pytest.raises(NotFoundError):
        catalog.register_table("shop.none")


def test_adopting_moves_nothing_within_a_store_nor_between_a_disk_and_a_store(
    catalog: lsm.Catalog, theirs: ObjectFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with lsm.open_catalog(f"sqlite:///{tmp_path}/l.db", warehouse=f"{tmp_path}/disk") as local:
        local.create_table("a.t", SCHEMA, primary_key=["k"]).upsert(ROWS)
        on_disk = f"{tmp_path}/disk/a.db/t"
        before, there = files_of(theirs), {*(tmp_path / "disk").rglob("*")}
        on_store = f"{catalog.warehouse}/shop.db/orders"
        for adopts, path in ((catalog, on_disk), (catalog, on_store)):
            with pytest.raises(UnsupportedError, match="copy the rows"):
                adopts.adopt_table(path, "b.t")
        if not catalog.warehouse.startswith("s3"):  # without the options of the other store
            with pytest.raises(UnsupportedError, match="copy the rows"):
                local.adopt_table(on_store, "b.t")
        assert local.list_tables() == ["a.t"]
    assert catalog.list_tables() == []
    assert files_of(theirs) == before
    assert {*(tmp_path / "disk").rglob("*")} == there
    assert not list(tmp_path.glob("*:*"))  # no directory that is named like a scheme
