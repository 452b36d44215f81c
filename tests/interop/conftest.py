"""The three real clients as fixtures: one process each per test session."""

import os
from collections.abc import Iterator

import pytest

from tests.interop.clients import Client, JavaClient, PypaimonClient, RustClient
from tests.interop.newest_java import NewestJava, why_not


def started(kind: type[Client]) -> Iterator[Client]:
    """A client for the session. Only a plain wish leaves it out: whatever fails, fails the tests."""
    if os.environ.get("LSM_INTEROP") == "off":
        pytest.skip("LSM_INTEROP=off")
    with kind() as client:
        yield client


@pytest.fixture(scope="session")
def pypaimon() -> Iterator[Client]:
    """pypaimon 2.1.0."""
    yield from started(PypaimonClient)


@pytest.fixture(scope="session")
def rust() -> Iterator[Client]:
    """pypaimon-rust 0.4.0."""
    yield from started(RustClient)


@pytest.fixture(scope="session")
def java() -> Iterator[Client]:
    """Java Apache Paimon 0.9.0."""
    yield from started(JavaClient)


@pytest.fixture(scope="session")
def newest() -> Iterator[NewestJava]:
    """Java Apache Paimon 1.4.2, or a skip that gives the reason."""
    if os.environ.get("LSM_INTEROP") == "off":
        pytest.skip("LSM_INTEROP=off")
    if reason := why_not():
        pytest.skip(reason)
    with NewestJava() as java:
        yield java
