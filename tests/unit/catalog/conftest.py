"""Catalogs on disk, and a clock that stands still until it is asked to sleep."""

import pytest

import lsm_engine as lsm
from lsm_engine.catalog.sql_catalog import SqlCatalog
from tests.served import READER, serving


@pytest.fixture
def catalog_url(tmp_path):
    return f"sqlite:///{tmp_path}/lake/catalog.db"


ON_BOTH = ("test_lineage", "test_lineage_queries")
"""Modules whose tests ask SQL of every kind: they run on PostgreSQL, too."""


def pytest_generate_tests(metafunc):
    if "catalog" in metafunc.fixturenames and metafunc.module.__name__.endswith(ON_BOTH):
        is_asked = "asked" in metafunc.fixturenames and "view" not in metafunc.fixturenames
        kinds = ["sqlite", "postgresql", *(["server"] if is_asked else [])]
        metafunc.parametrize("catalog", kinds, indirect=True)


@pytest.fixture
def catalog(request, tmp_path, catalog_url):
    on_server = getattr(request, "param", "sqlite") == "postgresql"
    url = request.getfixturevalue("postgres").fresh_url() if on_server else catalog_url
    opened = SqlCatalog.open(url, warehouse=str(tmp_path / "lake"))
    yield opened
    opened.close()


@pytest.fixture
def asked(request, catalog, catalog_url):
    """The lineage of `catalog`, asked through a server where that is the kind."""
    if request.node.callspec.params["catalog"] != "server":
        yield catalog.lineage
        return
    with (
        lsm.open_catalog(catalog_url, warehouse=catalog.warehouse) as own,
        serving(own) as server,
        lsm.open_catalog(server.url, token=READER) as remote,
    ):
        # The stories have no files, which a sync would look at.
        yield remote.lineage.as_recorded()
