"""Opening a catalog: made with care, never twice, and nothing else's database touched."""

import errno
import hashlib
import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url, select

from lsm_engine.base.errors import (
    CorruptFileError,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    StorageError,
    UnsafePathError,
    UnsupportedError,
)
from lsm_engine.catalog.database import Database, open_url
from lsm_engine.catalog.migrations import APPLICATION_ID, MIGRATIONS, Migration, open_database
from lsm_engine.catalog.models import VERSIONS
from lsm_engine.catalog.names import TableName, default_catalog_url
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.storage.warehouse import open_directory
from tests.unit.catalog.stories import ORDERS

HALF = "a\ud800b"
NEWEST = MIGRATIONS[-1].version
OLDER = Path(__file__).parent


def content_of(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def open_at(path, **options):
    return SqlCatalog.open(f"sqlite:///{path}", warehouse=str(path.parent), **options)


def test_only_the_owner_reads(tmp_path):
    before = os.umask(0)
    try:
        opened = open_at(tmp_path / "deep" / "er" / "catalog.db")
        opened.create_database("shop")
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in (tmp_path / "deep" / "er").iterdir()
        }
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("catalog.db", "catalog.db-wal", "catalog.db-shm"), 0o600)
    opened.close()


def test_settings(catalog):
    names = ("journal_mode", "foreign_keys", "trusted_schema", "busy_timeout")
    found = catalog.database.read(
        lambda connection: [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]
    )
    assert found == ["wal", 1, 0, 30_000]


def test_a_second_open_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "catalog.db"
    open_at(path).close()
    before = content_of(tmp_path)

    def never(*_arguments):
        raise AssertionError("a catalog of the newest version was written to")

    monkeypatch.setattr(Database, "write", never)
    opened = open_at(path)
    assert opened.list_databases() == []
    opened.close()
    assert content_of(tmp_path) == before


def test_a_catalog_finds_its_warehouse_beside_a_directory_lake_of_others(tmp_path, monkeypatch):
    """Its tables were not found where the current directory had a directory ./lake."""
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///theirs.db"
    opened = SqlCatalog.open(url, warehouse=None)
    assert opened.warehouse == str(tmp_path / "lake")
    opened.close()
    opened = SqlCatalog.open(url, warehouse=str(tmp_path / "house"))
    opened.create_database("shop")
    opened.close()
    (tmp_path / "lake/other.db").mkdir(parents=True)
    steps = (("lake/other.db/t", "lake"), ("house/shop.db", "house"), ("lake/shop.db", "lake"))
    for directory, warehouse in steps:
        (tmp_path / directory).mkdir(parents=True)
        opened = SqlCatalog.open(url, warehouse=None)
        assert opened.warehouse == str(tmp_path / warehouse)
        opened.close()


def test_a_second_open_waits_for_nobody(tmp_path):
    path = tmp_path / "catalog.db"
    open_at(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    opened = open_at(path, busy_timeout_millis=100)
    assert opened.list_databases() == []
    with pytest.raises(StorageError, match="busy"):
        opened.create_database("shop")
    other.close()
    opened.close()


def test_steps_are_walked_once_and_in_order(tmp_path):
    database = Database(open_url(f"sqlite:///{tmp_path}/catalog.db"))
    open_database(database)
    seen = []
    later = [
        Migration(version=number, description="", apply=lambda _, n=number: seen.append(n))
        for number in (NEWEST + 1, NEWEST + 2)
    ]
    for _ in range(2):
        open_database(database, (*MIGRATIONS, *later))
        assert seen == [NEWEST + 1, NEWEST + 2]
    versions = database.read(
        lambda connection: connection.scalars(select(VERSIONS.c.version)).all()
    )
    assert versions == list(range(1, NEWEST + 3))
    with pytest.raises(UnsupportedError, match="newer") as refused:
        open_database(database)
    assert refused.value.facts["version"] == NEWEST + 2
    database.close()


def test_a_failed_step_leaves_the_older_version(tmp_path):
    database = Database(open_url(f"sqlite:///{tmp_path}/catalog.db"))
    open_database(database)

    def fail(connection):
        connection.exec_driver_sql("CREATE TABLE half (a)")
        raise ValueError("broken")

    step = Migration(version=NEWEST + 1, description="", apply=fail)
    with pytest.raises(ValueError, match="broken"):
        open_database(database, (*MIGRATIONS, step))
    open_database(database)
    names = database.read(
        lambda connection: connection.exec_driver_sql(
            "SELECT name FROM sqlite_schema WHERE name = 'half'"
        ).all()
    )
    assert names == []
    database.close()


@pytest.mark.parametrize("version", range(1, NEWEST))
def test_a_catalog_of_every_older_version_is_brought_up(tmp_path, version):
    path = tmp_path / "catalog.db"
    with sqlite3.connect(path) as old:
        old.executescript((OLDER / f"schema_v{version}.sql").read_text())
        old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.close()
    with closing(open_at(tmp_path / "new.db")) as fresh:
        wanted = shape_of(fresh.database)
    with closing(open_at(path)) as catalog:
        assert shape_of(catalog.database) == wanted
        assert catalog.list_tables("shop") == ["orders"]
        assert catalog.lineage.snapshots(ORDERS).num_rows == 2
        assert catalog.lineage.live_files_at(ORDERS, 2).column("file_name").to_pylist() == ["f2"]


def shape_of(database):
    """Tables, indexes and views by name, and the version."""
    statement = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    found = database.read(
        lambda connection: [
            *connection.exec_driver_sql(statement).all(),
            connection.scalars(select(VERSIONS.c.version)).all()[-1],
        ]
    )
    return sorted(map(str, found))


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_foreign_database_is_left_alone(tmp_path, journal):
    path = tmp_path / "cookies.db"
    with sqlite3.connect(path) as foreign:
        foreign.execute(f"PRAGMA journal_mode = {journal}")
        foreign.execute("CREATE TABLE cookies (jar TEXT)")
    foreign.close()
    path.chmod(0o644)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    before = content_of(tmp_path)
    for place in (path, link):
        with pytest.raises(InvalidInputError, match="something else") as refused:
            open_at(place)
        assert refused.value.facts["tables"] == ["cookies"]
    assert content_of(tmp_path) == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "content", [b"hello", b"\x00" * 5000, b"PAR1" + b"x" * 200, b"SQLite format 3\x00"]
)
def test_no_database_at_all(tmp_path, content):
    path = tmp_path / "catalog.db"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        open_at(path)
    assert path.read_bytes() == content


def test_a_damaged_catalog_is_named(tmp_path):
    path = tmp_path / "catalog.db"
    opened = open_at(path)
    opened.register_table(ORDERS, create_database=True)
    opened.close()
    whole = path.read_bytes()
    for size in (len(whole) // 4, len(whole) // 2, 100):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError, match="rebuild") as refused:
            open_at(path).register_table(ORDERS)
        assert "catalog.db" in str(refused.value)


def test_an_empty_file_becomes_a_catalog(tmp_path):
    path = tmp_path / "catalog.db"
    path.touch()
    opened = open_at(path)
    assert opened.list_databases() == []
    opened.close()


def test_a_directory_in_its_place(tmp_path):
    with pytest.raises(CorruptFileError, match="catalog rebuild"):
        open_at(tmp_path)
    (tmp_path / "mine").touch()
    with pytest.raises(InvalidInputError):
        open_at(tmp_path)


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        open_at(tmp_path / "file" / "catalog.db")


def test_tables_lost_while_open(tmp_path):
    opened = open_at(tmp_path / "catalog.db")
    opened.database.write(lambda connection: connection.exec_driver_sql("DROP TABLE paimon_tables"))
    with pytest.raises(CorruptFileError, match="catalog rebuild"):
        opened.list_databases()
    opened.close()


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("catalog.db", InvalidOptionError),
        ("", InvalidOptionError),
        ("mysql://root:hush@host/db", UnsupportedError),
        ("sqlite:///c.db?mode=ro", InvalidOptionError),
        ("sqlite:///file:c.db", InvalidOptionError),
    ],
)
def test_wrong_urls(url, error, tmp_path):
    with pytest.raises(error) as refused:
        SqlCatalog.open(url, warehouse=str(tmp_path))
    assert "hush" not in str(refused.value)


def test_passwords_are_not_shown():
    url = open_url("postgresql://ada:hush@host/lake")
    assert "hush" not in url.render_as_string(hide_password=True)


def test_parameters_are_not_shown(catalog):
    def work(connection):
        connection.exec_driver_sql("SELECT * FROM nowhere WHERE a = ?", ("hush",))

    with pytest.raises(CorruptFileError) as failed:
        catalog.database.read(work)
    assert "hush" not in f"{failed.value} {failed.value.__cause__}"


def test_relative_paths_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = SqlCatalog.open("sqlite:///lake/catalog.db", warehouse="lake")
    assert opened.database.path == f"{tmp_path}/lake/catalog.db"
    assert opened.warehouse == f"{tmp_path}/lake"
    monkeypatch.chdir("/")
    opened.create_database("shop")
    opened.close()
    assert SqlCatalog(opened.database, warehouse="s3://lake").warehouse == "s3://lake"


def test_threads_open_at_once(tmp_path):
    failures = []

    def go():
        try:
            opened = open_at(tmp_path / "catalog.db")
            opened.create_database("shop", ignore_existing=True)
            opened.close()
        except LsmError as error:
            failures.append(error)

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_paimon_catalog_is_adopted(tmp_path):
    """What another client made first stays as it was; our tables join it."""
    path = tmp_path / "catalog.db"
    with sqlite3.connect(path) as other:
        other.execute(
            "CREATE TABLE paimon_tables (catalog_key VARCHAR(255) NOT NULL, database_name"
            " VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,"
            " PRIMARY KEY (catalog_key, database_name, table_name))"
        )
        other.execute("INSERT INTO paimon_tables VALUES ('jdbc', 'shop', 'orders')")
    other.close()
    path.chmod(0o644)
    opened = open_at(path)
    assert opened.list_databases() == ["shop"]
    assert opened.load_table(ORDERS).properties == {}
    assert opened.load_database("shop").properties == {}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    opened.close()


def test_secrets_among_a_urls_parameters_are_not_shown():
    """Drivers take passwords as parameters, too: of keys, of files of secrets."""
    text = "postgresql://me:pw1@host/db?sslpassword=pw2&password=pw3&sslmode=require&passfile=pw4"
    database = Database(make_url(text))
    for shown in (database.shown_url, repr(database)):
        assert not [secret for secret in ("pw1", "pw2", "pw3", "pw4") if secret in shown]
        assert "sslmode=require" in shown
        assert "host/db" in shown


def test_a_file_without_permission_is_named(tmp_path, monkeypatch):
    path = tmp_path / "catalog.db"
    open_at(path).close()
    opening = os.open

    def refused(asked, flags, *args, **kwargs):
        if Path(asked) == path:  # as a user other than root would see it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(asked))
        return opening(asked, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StorageError, match="no permission") as caught:
        open_at(path)
    assert caught.value.facts["path"] == str(path)


def test_half_a_character_is_shown_escaped(catalog):
    for ask in (
        lambda: catalog.list_tables(HALF),
        lambda: catalog.drop_database(HALF),
        lambda: catalog.create_database("db", properties={"owner": HALF}),
        lambda: catalog.lineage.snapshots_of_run(HALF),
        lambda: catalog.lineage.snapshots(TableName(database="db", table=HALF)),
        lambda: catalog.create_database(HALF),
    ):
        with pytest.raises(InvalidInputError, match=r"a\\ud800b"):
            ask()


@pytest.mark.parametrize("name", [HALF, "a\0b"], ids=["half", "nul"])
def test_a_path_that_no_system_takes(tmp_path, name):
    with pytest.raises(UnsafePathError):
        SqlCatalog.open(f"sqlite:///{tmp_path}/{name}.db", warehouse=str(tmp_path))
    with pytest.raises(UnsafePathError):
        open_directory(f"{tmp_path}/{name}")


def test_two_warehouses_of_a_store_share_no_catalog() -> None:
    named = ["lake ü", "lake ö", "lake", "lake-a", "lake/a", "lake.a", "lake a", "la/ke"]
    urls = {default_catalog_url(f"s3://bucket/{name}") for name in named}
    assert len(urls) == len(named)
    assert default_catalog_url("s3://bucket/lake/").endswith("/lake/s3-bucket-lake.db")
