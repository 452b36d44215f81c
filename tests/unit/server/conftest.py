"""One server for the tests of a module; each test has a database of its own."""

import itertools

import pytest

import lsm_engine as lsm
from tests.served import serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with lsm.open_catalog(tmp_path_factory.mktemp("lake")) as catalog, serving(catalog) as server:
        yield server


@pytest.fixture
def database(served):
    name = f"db{next(_numbers)}"
    served.catalog.create_database(name)
    return name
