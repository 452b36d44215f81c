"""Uploads in parts of writers that died, on S3: found and aborted by the removal of orphans, named by the doctor."""

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import StorageError, UnsupportedError
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import StorageOptions
from tests.stores import servers
from tests.stores.chaos_proxy import Faults, chaos_proxy
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

SCHEMA = pa.schema([("k", pa.int64())])
DIES = """
import os, sys, time
import lsm_engine as lsm
table = lsm.open_table(sys.argv[1], storage=dict(pair.split("=", 1) for pair in sys.argv[2:]))
output = table.session.file_io.open_output("bucket-0/data-of-the-dead.parquet")
for _ in range(4):
    output.write(b"x" * (8 << 20))  # each part waits until there is room: some are there by now
os._exit(9)
"""


def new_table(server: StoreServer, folder: Path, name: str = "t") -> lsm.Table:
    warehouse = location(server, f"lake {folder.name}")
    with lsm.open_catalog(
        f"sqlite:///{folder}/c.db", warehouse=warehouse, storage=options(server)
    ) as catalog:
        table = catalog.create_table(f"a.{name}", SCHEMA, primary_key=["k"])
    table.upsert(pa.table({"k": [1, 2]}, schema=SCHEMA))
    return table


def die_in(table: lsm.Table, server: StoreServer) -> None:
    """Have a writer killed in the middle of an upload."""
    given = [f"{name}={value}" for name, value in options(server).items()]
    died = subprocess.run([sys.executable, "-c", DIES, table.location, *given], check=False)
    assert died.returncode == 9


def test_a_writer_that_died_leaves_an_upload_that_maintenance_finds_and_aborts(
    s3: StoreServer, tmp_path: Path
) -> None:
    table, other = new_table(s3, tmp_path), new_table(s3, tmp_path, "t2")
    die_in(table, s3)
    die_in(other, s3)
    storage = table.session.file_io
    (left,) = storage.unfinished_uploads("")  # not those of a neighbour, whose name begins alike
    assert left.path == "bucket-0/data-of-the-dead.parquet"
    assert abs(left.begun_millis - storage.now_millis()) < 600_000
    young = table.remove_orphan_files(dry_run=False)
    assert (young.plan.uploads, young.plan.young_count) == ((), 1)
    time.sleep(1.1)  # the clock of a store has whole seconds
    planned = table.remove_orphan_files(older_than="0 s", force=True)
    assert planned.plan.uploads == (left,)
    assert "would abort 1 unfinished upload" in str(planned)
    assert storage.unfinished_uploads("bucket-0") == [left]
    done = table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert "; aborted 1 unfinished upload" in str(done)
    assert storage.unfinished_uploads("") == []
    storage.abort_uploads([left])  # it has ended: no error
    assert len(other.session.file_io.unfinished_uploads("")) == 1
    assert table.verify(deep=True).is_clean
    assert len(table) == 2


def test_the_doctor_names_an_upload_that_is_a_day_old(tmp_path: Path) -> None:
    with servers.moto() as server:  # its uploads were all begun in 2010
        table = new_table(server, tmp_path)
        storage = table.session.file_io
        assert isinstance(storage, ObjectFileIO)
        die_in(table, server)
        (finding,) = [one for one in lsm.doctor(table).findings if one.kind == "orphans"]
        assert "1 upload that was not completed" in finding.what
        assert finding.command[0] == "orphans"
        assert len(table.remove_orphan_files(dry_run=False).plan.uploads) == 1
        assert not [one for one in lsm.doctor(table).findings if one.kind == "orphans"]


def test_where_uploads_cannot_be_listed_files_go_all_the_same_and_the_report_has_why(
    s3: StoreServer, google: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(s3, tmp_path)
    table.session.file_io.write_new("manifest/manifest-stray", b"x")
    time.sleep(1.1)
    secret = {**options(s3), "s3.secret-key": "a-secret-that-nobody-may-see"}
    refused = ObjectFileIO(parse_location(table.location), StorageOptions(secret))
    with pytest.raises(StorageError, match="s3:ListBucketMultipartUploads") as caught:
        refused.unfinished_uploads("")
    assert "nobody-may-see" not in str(caught.value)
    bucket = ObjectFileIO(parse_location(location(google, "wh")), StorageOptions(options(google)))
    with pytest.raises(UnsupportedError, match="lifecycle rule"):
        bucket.unfinished_uploads("")
    monkeypatch.setitem(sys.modules, "boto3", None)
    done = table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert [path for path, _ in done.plan.orphans] == ["manifest/manifest-stray"]
    assert "lsm-assets[aws]" in str(done)


def test_a_busy_store_is_asked_for_uploads_again(s3: StoreServer, tmp_path: Path) -> None:
    table = new_table(s3, tmp_path)
    with chaos_proxy(s3, Faults(unavailable=0.4, cut=0.1), seed=3) as proxy:
        given = StorageOptions(options(proxy.server))
        storage = ObjectFileIO(parse_location(table.location), given)
        for _ in range(20):
            assert storage.unfinished_uploads("") == []
            if proxy.refused()[503]:
                break
        assert proxy.refused()[503] > 0
