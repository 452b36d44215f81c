"""The catalog contract, held against SQLite on disk and in memory, and against PostgreSQL."""

import pytest

from lsm_engine.catalog.sql_catalog import SqlCatalog
from tests.contract.catalog_suite import CatalogSuite


class TestSqliteFile(CatalogSuite):
    @pytest.fixture
    def catalog(self, tmp_path):
        opened = SqlCatalog.open(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
        yield opened
        opened.close()


class TestSqliteMemory(CatalogSuite):
    @pytest.fixture
    def catalog(self, tmp_path):
        opened = SqlCatalog.open("sqlite://", warehouse=str(tmp_path))
        yield opened
        opened.close()


class TestSecondKey(CatalogSuite):
    """Another catalog in the same database is not seen."""

    @pytest.fixture
    def catalog(self, tmp_path):
        url = f"sqlite:///{tmp_path}/catalog.db"
        first = SqlCatalog.open(url, warehouse=str(tmp_path))
        first.create_database("shopping")
        opened = SqlCatalog.open(url, warehouse=str(tmp_path), catalog_key="second")
        yield opened
        assert first.list_databases() == ["shopping"]
        first.close()
        opened.close()


class TestPostgres(CatalogSuite):
    """A real server, a database for each test."""

    @pytest.fixture
    def catalog(self, postgres, tmp_path):
        opened = SqlCatalog.open(postgres.fresh_url(), warehouse=str(tmp_path))
        yield opened
        opened.close()
