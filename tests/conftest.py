"""Hypothesis profiles, and the flags that every folder shares."""

import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.postgres_server import PostgresServer, running_server
from tests.quick import is_quick, may_hold_quick

# Hundreds of processes import the engine and the tests: what one has compiled the others read.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

SLOW_STARTS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=SLOW_STARTS)
settings.register_profile(
    "ci", max_examples=14, deadline=None, derandomize=True, suppress_health_check=SLOW_STARTS
)
settings.register_profile(
    "nightly",
    max_examples=1_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=SLOW_STARTS,
)
# What a release asks for: 5,000 cases of each aggregate function, 100,000 pairs of keys of each type.
settings.register_profile("release", settings.get_profile("nightly"), max_examples=5_000)
# A mutant is noticed or not: no search for the smallest example, the same examples each time.
settings.register_profile(
    "mutation",
    settings.get_profile("ci"),
    phases=(Phase.explicit, Phase.generate),
    database=None,
    report_multiple_bugs=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

FIXTURES = Path(__file__).parent / "fixtures"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the answers of text cases and golden files anew; review the difference",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick` alone, what holds no quick test is not even imported, which took a third of the time."""
    is_out = config.option.markexpr == "quick" and not may_hold_quick(collection_path)
    return True if is_out else None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a costly thing (a JVM, a browser, client environments, all syntax trees) share a worker."""
    for item in items:
        if " at 0x" in item.nodeid:
            # Two processes would not agree on the tests that there are.
            raise pytest.UsageError(f"the id of a test holds an address in memory: {item.nodeid}")
        if is_quick(item):
            item.add_marker(pytest.mark.quick)
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in ("spark", "dagster", "interop", "browser", "race", "stores", "tidy"):
            group = "jvm" if folder in ("spark", "dagster") else folder
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of modules and tests are garbage at no time: nobody looks for any among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session", autouse=True)
def _warehouse_of_spark() -> Iterator[None]:
    """Every JVM that a worker starts keeps Spark's own tables in a directory of that worker, removed at its end.

    It compiles with one compiler alone, whoever starts it: code of tests runs few times.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lsm-spark-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        defaults = Path(folder, "spark-defaults.conf")
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
        defaults.write_text(
            f"spark.sql.warehouse.dir {folder}/warehouse\nspark.driver.defaultJavaOptions {quick}\n"
        )
        environment.setenv("SPARK_CONF_DIR", folder)
        yield


@pytest.fixture(scope="session")
def fixture_tables() -> Path:
    """Tables that real Paimon clients wrote."""
    return FIXTURES


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session, started by the first test that needs it."""
    with running_server() as server:
        yield server
