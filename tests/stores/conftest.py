"""Stores that are started once for the session."""

from collections.abc import Iterator

import pytest

from tests.stores import servers
from tests.stores.gcs_server import gcs
from tests.stores.servers import StoreServer


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """S3Proxy over a directory."""
    with servers.s3proxy(tmp_path_factory.mktemp("s3proxy")) as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[StoreServer]:
    """Azurite."""
    with servers.azurite() as server:
        yield server


@pytest.fixture(scope="session")
def google() -> Iterator[StoreServer]:
    """The XML API of Google Cloud Storage, by a server of our own."""
    with gcs() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[StoreServer]:
    """Hadoop's mini cluster."""
    with servers.hdfs() as server:
        yield server
