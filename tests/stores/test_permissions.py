"""Credentials that allow less than everything: readers go on, and a writer's error names what was refused.

A proxy refuses kinds of requests as a policy would; Azure's tokens (SAS) carry their permissions themselves.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import lsm_engine as lsm
from lsm_engine.base.errors import StorageError
from lsm_engine.cli.main import lsm as command
from lsm_engine.storage.bulk import settle
from tests.stores.chaos_proxy import ChaosProxy, Faults, chaos_proxy
from tests.stores.servers import StoreServer
from tests.stores.small_tables import SCHEMA, forget_all, upsert
from tests.stores.stored_tables import location, options

OPTIONS = {"bucket": "2", "changelog-producer": "input", "num-sorted-run.compaction-trigger": "100"}
WRITES = frozenset({"PUT", "POST", "DELETE"})
KEY = pa.table({"k": pa.array([2, 99], pa.int64())})


@pytest.fixture(params=["s3", "azure"])
def proxy(request: pytest.FixtureRequest) -> Iterator[ChaosProxy]:
    with chaos_proxy(request.getfixturevalue(request.param)) as proxy:
        yield proxy


@pytest.fixture
def catalog(proxy: ChaosProxy, tmp_path: Path) -> Iterator[lsm.Catalog]:
    """A warehouse whose name needs escaping, with a table of four commits, a tag and a branch."""
    where = location(proxy.server, f"{tmp_path.name} äö x%20+é/lake")
    storage = dict(options(proxy.server))
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=where, storage=storage
    ) as catalog:
        table = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=OPTIONS)
        for number in range(4):
            upsert(table, number)
        table.create_tag("one")
        table.create_branch("b")
        settle()
        forget_all()
        yield catalog


@contextmanager
def refusing(proxy: ChaosProxy, *verbs: str) -> Iterator[None]:
    """Have the store refuse requests of some kinds."""
    proxy.faults = Faults(forbidden=1.0, verbs=frozenset(verbs))
    proxy.forget()
    try:
        yield
        settle()
    finally:
        proxy.faults = Faults()


def opened(catalog: lsm.Catalog, proxy: ChaosProxy) -> lsm.Table:
    return lsm.open_table(catalog["a.t"].location, storage=dict(options(proxy.server)))


def assert_well(words: list[str]) -> None:
    found = CliRunner().invoke(command, words)
    assert found.exit_code == 0, found.output
    assert "refuse" not in found.output


def test_a_reader_needs_no_permission_to_write(
    proxy: ChaosProxy, catalog: lsm.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in options(proxy.server).items():
        monkeypatch.setenv("LSM_STORAGE_" + name.replace(".", "_").replace("-", "_").upper(), value)
    with refusing(proxy, *WRITES):
        table = opened(catalog, proxy)
        assert sorted(table.to_arrow()["k"].to_pylist()) == [0, 1, 2, 3]
        assert table.to_arrow(where=pc.field("k") == 3).num_rows == 1
        assert table.scan(tag="one").to_arrow().num_rows == 4
        assert table.scan(snapshot_id=2).to_arrow().num_rows == 2
        assert table.query().lookup(KEY)["_found"].to_pylist() == [True, False]
        assert table.locate(KEY).num_rows == 2
        assert table.changes(1, 3).to_arrow().num_rows == 2
        assert len(list(table.snapshots())) == 4
        assert table.verify(deep=True).is_clean
        assert (
            len(table.expire_snapshots(retain_max=1, retain_min=1, dry_run=True).snapshot_ids) == 3
        )
        for words in (["show", "snapshots"], ["show", "files"], ["tag", "list"]):
            assert_well([*words, table.location])
        assert not WRITES & proxy.counts().keys()
        # The store's time is asked by a file, in vain.
        table.remove_orphan_files(dry_run=True)
        assert_well(["doctor", table.location])
        found_again = lsm.open_catalog(
            f"sqlite:///{tmp_path}/other.db",
            warehouse=catalog.warehouse,
            storage=dict(options(proxy.server)),
        )
        with found_again:
            assert found_again.rebuild() == {"a.t": 4}
            assert found_again["a.t"].to_arrow().num_rows == 4


ACTS: dict[str, Callable[[lsm.Table], object]] = {
    "upsert": lambda table: upsert(table, 9),
    "compact": lambda table: table.compact(full=True),
    "create_tag": lambda table: table.create_tag("two"),
    "delete_tag": lambda table: table.delete_tag("one"),
    "expire": lambda table: table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s"),
    "alter": lambda table: table.alter(lsm.AddColumn(name="w", type=pa.int64())),
    "orphans": lambda table: table.remove_orphan_files(older_than="1 d", dry_run=False),
}


@pytest.mark.parametrize(
    ("refused", "fail"),
    [
        (WRITES, frozenset(ACTS)),
        (frozenset({"POST", "DELETE"}), {"delete_tag", "expire"}),
        (frozenset({"LIST"}), {"delete_tag", "expire", "alter", "orphans"}),
    ],
    ids=["no writing", "no deleting", "no listing"],
)
def test_a_writer_without_a_permission_is_told_which_and_loses_nothing(
    proxy: ChaosProxy, catalog: lsm.Catalog, refused: frozenset[str], fail: set[str]
) -> None:
    refusals = {}
    tables = {name: opened(catalog, proxy) for name in ACTS}
    for name, act in ACTS.items():
        with refusing(proxy, *refused):
            try:
                act(tables[name])
            except StorageError as error:
                refusals[name] = error
        forget_all()
    assert set(refusals) == fail
    for error in refusals.values():
        assert error.facts["request"] in refused | {"DELETE"}
        assert error.facts["path"]
        assert error.facts["status"] == 403
        assert "grant reading, writing, deleting and listing" in str(error)
    table = opened(catalog, proxy)
    assert set(table.to_arrow()["k"].to_pylist()) == {
        0,
        1,
        2,
        3,
        *([] if "upsert" in fail else [9]),
    }
    if "delete_tag" in fail:
        assert set(table.scan(tag="one").to_arrow()["k"].to_pylist()) == {0, 1, 2, 3}
    assert table.verify(deep=True).is_clean


def test_credentials_that_expire_between_data_and_snapshot_leave_the_table_as_it_was(
    proxy: ChaosProxy, catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(catalog, proxy)
    publish = type(table.session.file_io).publish

    def expired(storage: object, path: str, data: bytes) -> bool:
        proxy.faults = Faults(forbidden=1.0)
        return bool(publish(storage, path, data))  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(type(table.session.file_io), "publish", expired)
        with pytest.raises(StorageError, match="expired") as caught:
            upsert(table, 9)
    assert caught.value.facts["path"] == "snapshot/snapshot-5"
    proxy.faults = Faults()
    assert set(opened(catalog, proxy).to_arrow()["k"].to_pylist()) == {0, 1, 2, 3}
    upsert(table, 9)
    assert set(opened(catalog, proxy).to_arrow()["k"].to_pylist()) == {0, 1, 2, 3, 9}
    assert table.verify(deep=True).is_clean


# --- tokens of Azure -------------------------------------------------------------------------------


def token(
    server: StoreServer,
    permissions: str,
    lasts: timedelta = timedelta(hours=1),
    of: str = "container",
) -> str:
    """A token for the container, or the account's blobs, signed as Azure's reference of SAS describes."""
    until = (datetime.now(UTC) + lasts).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"sv": "2021-08-06", "sp": permissions, "se": until}
    if of == "account":
        fields |= {"ss": "b", "srt": "sco"}
        signed = [
            server.access_key,
            permissions,
            "b",
            "sco",
            "",
            until,
            "",
            "",
            "2021-08-06",
            "",
            "",
        ]
    else:
        fields["sr"] = "c"
        what = f"/blob/{server.access_key}/{server.bucket}"
        signed = [permissions, "", until, what, "", "", "", "2021-08-06", "c", *[""] * 7]
    key = base64.b64decode(server.secret_key)
    digest = hmac.digest(key, "\n".join(signed).encode(), hashlib.sha256)
    fields["sig"] = base64.b64encode(digest).decode()
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())


@pytest.mark.parametrize(("start", "of"), [("", "account"), ("?", "account"), ("", "container")])
def test_a_token_of_azure(azure: StoreServer, tmp_path: Path, start: str, of: str) -> None:
    """With a token of the account nothing is deleted: Azurite 3.35 has no entry for batches in its table of what
    such a token allows, and answers 500."""

    def opened_by(permissions: str, lasts: timedelta = timedelta(hours=1)) -> lsm.Table:
        storage = {
            "azure.endpoint": azure.endpoint,
            "azure.account": azure.access_key,
            "azure.sas-token": start + token(azure, permissions, lasts, of),
        }
        return lsm.open_table(table.location, storage=storage)

    where = location(azure, f"{tmp_path.name}/lake")
    url = f"sqlite:///{tmp_path}/c.db"
    with lsm.open_catalog(url, warehouse=where, storage=dict(options(azure))) as catalog:
        table = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=OPTIONS)
        upsert(table, 0)
    writer = opened_by("rwlc")
    for number in range(1, 4):
        upsert(writer, number)
    writer.compact(full=True)
    writer.create_tag("one")
    assert writer.verify(deep=True).is_clean
    reader = opened_by("rl")
    assert sorted(reader.to_arrow()["k"].to_pylist()) == [0, 1, 2, 3]
    with pytest.raises(StorageError) as caught:
        reader.create_tag("two")
    assert caught.value.facts["request"] == "PUT"
    with pytest.raises(StorageError, match=r"no credentials .* have expired") as caught:
        opened_by("rl", timedelta(minutes=-1))
    assert "sig" not in str(caught.value)
    assert reader.to_arrow().num_rows == 4
    if of == "account":
        return
    expire = {"retain_max": 1, "retain_min": 1, "older_than": "0 s"}
    with pytest.raises(StorageError, match="grant reading, writing, deleting") as caught:
        opened_by("rwlc").expire_snapshots(**expire)
    assert (caught.value.facts["request"], caught.value.facts["status"]) == ("DELETE", 403)
    deleter = opened_by("rwdlc")
    assert deleter.verify(deep=True).is_clean
    assert deleter.expire_snapshots(**expire).snapshot_ids
    deleter.delete_tag("one")
    time.sleep(1.1)  # stamps of objects are whole seconds
    deleter.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert deleter.verify(deep=True).is_clean
    assert sorted(reader.to_arrow()["k"].to_pylist()) == [0, 1, 2, 3]
