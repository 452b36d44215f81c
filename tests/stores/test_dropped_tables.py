"""A table that is dropped, and made again in the same place, while others still have it open."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import AlreadyExistsError, ErrorKind, NotFoundError
from lsm_engine.format import documents
from lsm_engine.metadata import snapshots
from lsm_engine.storage.object_store import ObjectFileIO
from tests.foreign_documents import edited

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
OPTIONS = {"bucket": "1"}


@pytest.fixture(params=["disk", "store"])
def catalog(request, tmp_path):
    name = tmp_path.name.replace("_", "-")
    where = f"memory://{name}/lake" if request.param == "store" else f"{tmp_path}/lake"
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=where) as opened:
        yield opened


def rows(first, stop):
    return pa.table({"k": range(first, stop), "v": ["x"] * (stop - first)}, schema=SCHEMA)


def made(catalog, commits=0):
    table = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=OPTIONS)
    for number in range(commits):
        table.upsert(rows(number, number + 10))
    return table


def files(table):
    return [one.path for one in table.session.file_io.list_files("")]


@pytest.mark.parametrize("commits", [0, 2])
def test_a_write_to_a_dropped_table_is_refused_and_leaves_nothing(catalog, commits):
    old = made(catalog, commits)
    catalog.drop_table("a.t")
    with pytest.raises(NotFoundError, match="dropped") as raised:
        old.upsert(rows(0, 3))
    assert raised.value.kind is ErrorKind.NO_SUCH_TABLE
    assert [path for path in files(old) if "LATEST" not in path] == []
    again = made(catalog, 1)
    assert again.to_arrow().num_rows == 10
    assert again.verify(deep=True).is_clean


@pytest.mark.parametrize("commits", [0, 2])
def test_a_write_to_a_table_that_was_made_again_is_refused(catalog, commits):
    old = made(catalog, commits)
    catalog.drop_table("a.t")
    new = made(catalog)
    with pytest.raises(NotFoundError, match="open it anew"):
        old.upsert(rows(0, 3))
    assert new.latest_snapshot() is None
    new.upsert(rows(0, 4))
    with pytest.raises(NotFoundError, match="open it anew"):
        old.upsert(rows(0, 3))
    with pytest.raises(NotFoundError, match="open it anew"):
        old.to_arrow()
    assert new.to_arrow().num_rows == 4
    assert new.verify(deep=True).is_clean


READS = {
    "to_arrow": lambda table: table.to_arrow(),
    "count": len,
    "lookup": lambda table: table.lookup([{"k": 1}]),
    "locate": lambda table: table.locate(rows(0, 1)),
    "query": lambda table: table.query().lookup([{"k": 1}]),
    "changes": lambda table: table.changes(0),
    "changelog": lambda table: table.changelog(),
    "follow": lambda table: next(table.follow(poll_millis=None)),
    "polars": lambda table: table.to_polars(),
    "duckdb": lambda table: table.to_duckdb(),
    "snapshots": lambda table: table.snapshots(),
    "snapshot": lambda table: table.snapshot(1),
    "latest_snapshot": lambda table: table.latest_snapshot(),
    "history": lambda table: table.history(),
    "tags": lambda table: table.tags(),
    "tag": lambda table: table.to_arrow(tag="first"),
    **{
        f"${name}": lambda table, name=name: table.system(name)
        for name in ("snapshots", "files", "options", "schemas", "tags", "branches", "audit_log")
    },
}


@pytest.mark.parametrize("commits", [0, 2])
@pytest.mark.parametrize("then", ["gone", "empty", "filled", "altered"])
def test_a_read_of_a_table_that_was_dropped_says_so_whatever_is_there_now(catalog, then, commits):
    old = made(catalog, commits)
    if commits:
        old.create_tag("first", 1)
        assert old.lookup([{"k": 1}])["_found"].to_pylist() == [True]
    begun, follower = old.scan(), old.follow(poll_millis=None)
    catalog.drop_table("a.t")
    if then != "gone":
        new = made(catalog)
        if then == "altered":
            new.alter(lsm.AddColumn(name="w", type=pa.int64()))
        if then != "empty":
            for number in range(max(commits, 1)):
                new.upsert(rows(100 * number, 100 * number + 4))
            new.create_tag("first", 1)
    reads = {**READS, "a follower": lambda _: next(follower)}
    if commits:
        reads["a scan"] = lambda _: begun.to_arrow()
    for name, read in reads.items():
        with pytest.raises(NotFoundError, match="open it anew") as raised:
            read(old)
        assert raised.value.kind is ErrorKind.NO_SUCH_TABLE, name
    for listed in (old.snapshot_ids, old.tag_names, old.branches, old.consumers):
        if then == "gone":
            with pytest.raises(NotFoundError, match="open it anew"):
                listed()
    with pytest.raises(NotFoundError, match="open it anew"):
        old.upsert(rows(0, 3))
    if then != "gone":
        assert catalog["a.t"].verify(deep=True).is_clean


def test_a_table_that_a_client_without_checksums_made_again_is_not_read_as_the_former(
    catalog, monkeypatch
):
    """Its snapshots do not name the schema by a checksum; its schema has another time."""
    # Writes as other clients: a snapshot has the properties that it was given, and no more.
    monkeypatch.setattr(documents, "stored_properties", lambda snapshot: snapshot.properties)
    made(catalog, 2)
    old = catalog["a.t"]
    looked = []
    real = old.session.schemas.load
    monkeypatch.setattr(old.session.schemas, "load", lambda n: looked.append(n) or real(n))
    assert (old.count(), old.count()) == (11, 11)
    assert looked in ([0], [])  # one look for each snapshot; from afar this process knows its own
    catalog.drop_table("a.t")
    made(catalog, 3)
    for verb in (old.to_arrow, lambda: old.upsert(rows(0, 3)), lambda: old.lookup([{"k": 1}])):
        with pytest.raises(NotFoundError, match="open it anew"):
            verb()
    assert catalog["a.t"].count() == 12


def test_a_table_that_others_altered_is_read_on_and_looked_at_once(catalog):
    old = made(catalog, 1)
    other = catalog["a.t"]
    other.alter(lsm.AddColumn(name="w", type=pa.int64()))
    other.upsert([{"k": 50, "v": "y", "w": 1}])
    assert old.to_arrow().num_rows == 11
    looked = []
    real = old.session.schemas.load
    old.session.schemas.load = lambda number: looked.append(number) or real(number)
    other.upsert([{"k": 51, "v": "y", "w": 1}])
    assert old.count() == 12
    assert looked == [1]  # of the files, and not 0 again


@pytest.mark.parametrize("altered", [False, True])
def test_a_process_that_knew_the_dropped_table_writes_to_the_new_one(catalog, altered):
    made(catalog, 3)
    known = dict(snapshots._newest_known)
    catalog.drop_table("a.t")
    new = made(catalog)
    if altered:
        new.alter(lsm.AddColumn(name="w", type=pa.int64()))
    snapshots._newest_known.update(known)  # of a process that did not drop it
    new = catalog.table("a.t")
    assert new.upsert([{"k": 1, "v": "new"}]).id == 1
    assert new.to_arrow()["v"].to_pylist() == ["new"]
    assert new.verify(deep=True).is_clean


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", range(3))
def test_what_lands_while_a_table_is_dropped_is_refused_or_goes_with_it(
    monkeypatch, tmp_path, at, before
):
    """Beside each of the batches that a drop deletes: schemas, snapshots, and then the rest."""
    where = f"memory://{tmp_path.name.replace('_', '-')}/lake"
    real, batches, outcomes = ObjectFileIO.delete_many, [], []

    def watched(storage, paths):
        paths = list(paths)
        batches.append([path.partition("/")[0] for path in paths])
        if len(batches) != at + 1:
            real(storage, paths)
            return
        if not before:
            real(storage, paths)
        with monkeypatch.context() as other:
            other.setattr(ObjectFileIO, "delete_many", real)
            try:
                outcomes.append(old.upsert(rows(0, 3)).id)
            except NotFoundError as error:
                outcomes.append(error.kind)
        if before:
            real(storage, paths)

    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=where) as catalog:
        old = made(catalog, 2)
        monkeypatch.setattr(ObjectFileIO, "delete_many", watched)
        catalog.drop_table("a.t")
        assert [set(batch) for batch in batches[:2]] == [{"schema"}, {"snapshot"}]
        lands = at == 0 or (at == 1 and before)
        assert outcomes == [3 if lands else ErrorKind.NO_SUCH_TABLE]
        assert [path for path in files(old) if "LATEST" not in path] == []


def test_no_table_is_made_over_snapshots_that_a_drop_has_left(catalog):
    old = made(catalog, 1)
    path = old.session.paths.snapshot_file(1)
    left = old.session.file_io.read(path)
    catalog.drop_table("a.t")
    old.session.file_io.write_new(path, left)
    with pytest.raises(AlreadyExistsError, match="being dropped"):
        made(catalog)
    assert files(old) == [path]
    assert catalog.list_tables() == []
    old.session.file_io.delete(path)
    assert made(catalog).to_arrow().num_rows == 0


@pytest.mark.parametrize("commits", [0, 2])
def test_no_table_is_made_where_one_is_still_being_dropped(catalog, monkeypatch, commits):
    """The name is free at once; what a drop deletes later would be the new table's."""
    old = made(catalog, commits)
    storage = type(old.session.file_io)
    tried = []

    def trying(real):
        def deleting(self, given):
            with monkeypatch.context() as other:
                for name, act in acts.items():
                    other.setattr(storage, name, act)
                try:
                    tried.append(made(catalog))
                except AlreadyExistsError as error:
                    tried.append(error)
            return real(self, given)

        return deleting

    acts = {name: getattr(storage, name) for name in ("delete", "delete_many")}
    with monkeypatch.context() as while_dropped:
        for name, act in acts.items():
            while_dropped.setattr(storage, name, trying(act))
        catalog.drop_table("a.t")
    assert len(tried) > 1
    assert all(isinstance(one, AlreadyExistsError) for one in tried)
    assert files(old) == []
    new = made(catalog, 1)
    assert new.to_arrow().num_rows == 10
    assert new.verify(deep=True).is_clean


def test_a_drop_goes_on_where_its_sign_cannot_be_written(catalog, monkeypatch):
    old = made(catalog, 1)

    def full(*_, **__):
        raise lsm.StorageError("no space is left")

    with monkeypatch.context() as on_a_full_disk:
        on_a_full_disk.setattr(type(old.session.file_io), "replace", full)
        catalog.drop_table("a.t")
    assert files(old) == []


@pytest.mark.parametrize(
    "left",
    [
        "schema/.schema-0.1f.tmp",
        "snapshot/.snapshot-1.2e.tmp",
        "bucket-0/data-1.parquet",
        "manifest/m-1",
    ],
)
def test_what_names_nothing_does_not_keep_a_table_from_being_made(catalog, left):
    old = made(catalog, 1)
    catalog.drop_table("a.t")
    old.session.file_io.write_new(left, b"of a process that died, or was late")
    new = made(catalog, 1)
    assert new.to_arrow().num_rows == 10
    assert new.verify(deep=True).is_clean


def test_a_drop_that_came_second_takes_its_sign_away(catalog, monkeypatch):
    old = made(catalog, 1)
    forget = catalog._names.drop_table

    def later(name, **given):
        with monkeypatch.context() as first:
            first.setattr(catalog._names, "drop_table", forget)
            catalog.drop_table("a.t")
        return forget(name, **given)

    with monkeypatch.context() as second:
        second.setattr(catalog._names, "drop_table", later)
        with pytest.raises(NotFoundError):
            catalog.drop_table("a.t")
    assert files(old) == []
    assert made(catalog, 1).to_arrow().num_rows == 10


def test_a_schema_that_another_client_wrote_anew_is_still_of_the_same_table(catalog):
    table = made(catalog, 1)
    disk = table.session.file_io
    disk.replace("schema/schema-0", edited(disk.read("schema/schema-0")))
    disk.replace("snapshot/snapshot-1", edited(disk.read("snapshot/snapshot-1")))
    assert table.to_arrow().num_rows == 10
