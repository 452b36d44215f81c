"""Catalogs on disk, and a clock that stands still until it is asked to sleep."""

import pytest

from lsm_engine.catalog.sql_catalog import SqlCatalog


@pytest.fixture
def catalog_url(tmp_path):
    return f"sqlite:///{tmp_path}/lake/catalog.db"


ON_BOTH = ("test_lineage", "test_lineage_queries")
"""Modules whose tests ask SQL of every kind: they run on PostgreSQL, too."""


def pytest_generate_tests(metafunc):
    if "catalog" in metafunc.fixturenames and metafunc.module.__name__.endswith(ON_BOTH):
        metafunc.parametrize("catalog", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def catalog(request, tmp_path, catalog_url):
    on_server = getattr(request, "param", "sqlite") == "postgresql"
    url = request.getfixturevalue("postgres").fresh_url() if on_server else catalog_url
    opened = SqlCatalog.open(url, warehouse=str(tmp_path / "lake"))
    yield opened
    opened.close()
