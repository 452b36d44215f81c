"""Objects that no writer of tables makes: what a console leaves for a folder; and more of them than a page holds."""

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError
from lsm_engine.storage.bulk import write_many
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import StorageOptions
from tests.stores.servers import StoreServer
from tests.stores.small_tables import QUIET, SCHEMA, forget_all, upsert
from tests.stores.stored_tables import location, options

FOLDERS = ["", "schema/", "snapshot/", "manifest/", "bucket-0/", "tag/", "branch/", "none/"]


def console(server: StoreServer) -> Any:
    """A client that takes any key."""
    keys = {
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "region_name": server.region,
    }
    return import_module("boto3").client("s3", endpoint_url=server.endpoint, **keys)


def keys(table: lsm.Table) -> list[int]:
    return sorted(table.to_arrow()["k"].to_pylist())


def test_objects_that_a_console_makes_for_folders_change_nothing(
    s3: StoreServer, tmp_path: Path
) -> None:
    """Such an object has no bytes and a name that ends in a slash. A drop stopped half way at them."""
    warehouse = location(s3, f"folders {tmp_path.name}/lake")
    storage = dict(options(s3))
    _, _, prefix = warehouse.partition(f"{s3.bucket}/")
    url = f"sqlite:///{tmp_path}/c.db"
    with lsm.open_catalog(url, warehouse=warehouse, storage=storage) as catalog:
        made = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=QUIET)
        for number in range(3):
            upsert(made, number)
        client = console(s3)
        for folder in ("", "a.db/", *(f"a.db/t/{name}" for name in FOLDERS)):
            client.put_object(Bucket=s3.bucket, Key=f"{prefix}/{folder}", Body=b"")
        forget_all()
        table = lsm.open_table(made.location, storage=storage)
        assert (keys(table), table.snapshot_ids()) == ([0, 1, 2], [1, 2, 3])
        assert (list(table.tags()), table.branches()) == ([], [])
        listed = [
            one.path for name in FOLDERS for one in table.session.file_io.list(name.strip("/"))
        ]
        assert "" not in listed
        assert "snapshot" in listed, "a directory"
        table.create_tag("one")
        table.compact(full=True)
        assert table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s").snapshot_ids
        time.sleep(1.1)  # stamps of objects are whole seconds
        table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
        assert table.verify(deep=True).is_clean
        assert keys(table) == [0, 1, 2]
        assert list(catalog.rebuild()) == ["a.t"]
        catalog.drop_table("a.t")
        left = [one for one in table.session.file_io.list_files("") if one.size]
        assert not left
        again = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=QUIET)
        upsert(again, 7)
        assert keys(again) == [7]


def test_a_snapshot_of_no_bytes_is_named(s3: StoreServer, tmp_path: Path) -> None:
    where = location(s3, f"empty-{tmp_path.name}")
    url = f"sqlite:///{tmp_path}/c.db"
    with lsm.open_catalog(url, warehouse=where, storage=dict(options(s3))) as catalog:
        table = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=QUIET)
        upsert(table, 0)
        table.session.file_io.write_new("snapshot/snapshot-2", b"")
        forget_all()
        with pytest.raises(CorruptFileError, match="snapshot-2"):
            keys(catalog["a.t"])


def test_more_objects_than_a_page_of_s3_holds(s3: StoreServer, tmp_path: Path) -> None:
    """A page has 1,000, and so has a batch of deletions."""
    where = parse_location(location(s3, f"pages-{tmp_path.name}/a.db/t"))
    storage = ObjectFileIO(where, StorageOptions(dict(options(s3))))
    paths = [f"d/{number:04d}" for number in range(2_100)]
    write_many(storage, dict.fromkeys(paths, b"1"))
    assert [one.path for one in storage.list("d")] == paths
    assert [one.path for one in storage.list_files("")] == paths
    storage.delete_many(paths[:2_050])
    assert [one.path for one in storage.list("d")] == paths[2_050:]
