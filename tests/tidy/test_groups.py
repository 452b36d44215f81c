"""Tests that share a server, a browser or a JVM run in one process, whatever versions are installed."""

import pytest


@pytest.mark.xdist_group("tidy")
def test_groups_of_tests_are_seen_by_pytest_xdist(request: pytest.FixtureRequest) -> None:
    """A version of pytest that pytest-xdist did not know ignored them: a run took half as long again."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("no worker of `--dist loadgroup`")
    assert request.node.nodeid.endswith("@tidy")
