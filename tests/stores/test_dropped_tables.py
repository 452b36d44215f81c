"""A table that is dropped, and made again in the same place, while others still have it open."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import AlreadyExistsError, CorruptFileError, ErrorKind, NotFoundError
from lsm_engine.io.object_store import ObjectFileIO
from lsm_engine.store import newest

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
    with pytest.raises((NotFoundError, CorruptFileError), match="open it anew"):
        old.upsert(rows(0, 3))
    with pytest.raises(CorruptFileError, match="open it anew"):
        old.to_arrow()
    assert new.to_arrow().num_rows == 4
    assert new.verify(deep=True).is_clean


@pytest.mark.parametrize("altered", [False, True])
def test_a_process_that_knew_the_dropped_table_writes_to_the_new_one(catalog, altered):
    made(catalog, 3)
    known = dict(newest._known)
    catalog.drop_table("a.t")
    new = made(catalog)
    if altered:
        new.alter(lsm.AddColumn(name="w", type=pa.int64()))
    newest._known.update(known)  # of a process that did not drop it
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
