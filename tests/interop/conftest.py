"""The three real clients as fixtures: one process each per test session."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.interop.clients import Client, JavaClient, PypaimonClient, RustClient
from tests.interop.newest_java import BUNDLES, NewestJava, why_not


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
def javas() -> Iterator[Callable[[str], NewestJava]]:
    """A process of each release of Java that is asked for, or a skip that gives the reason."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def started(release: str) -> NewestJava:
            if os.environ.get("LSM_INTEROP") == "off":
                pytest.skip("LSM_INTEROP=off")
            if reason := why_not(release):
                pytest.skip(reason)
            return stack.enter_context(NewestJava(release))

        yield started


@pytest.fixture(scope="session", params=list(BUNDLES))
def newest(request: pytest.FixtureRequest, javas: Callable[[str], NewestJava]) -> NewestJava:
    """Java Apache Paimon 1.4.2, and then 2.0.0."""
    return javas(request.param)


@pytest.fixture(scope="session")
def java_2(javas: Callable[[str], NewestJava]) -> NewestJava:
    """Java Apache Paimon 2.0.0."""
    return javas("2.0.0")
