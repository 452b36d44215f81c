"""A cluster whose workers do not see the driver's disk: what is refused there, and what holds."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm_engine.storage.local import LocalFileIO
from tests.cluster.standalone import WORKERS, Cluster, standalone_cluster
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.stores import servers

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
ROWS = int(os.environ.get("LSM_CLUSTER_ROWS", "6000"))
EXECUTOR_MEGABYTES = 1024  # the JVM and its Python processes
BUCKETS = 50 if ROWS >= 100_000 else 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path) as made:
        yield made


def told(
    cluster: Cluster,
    files: Path,
    warehouse: str,
    *,
    settings: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run the driver's program and return what it printed last."""
    workers = {
        name: {"pid": cluster.workers[name], "directory": str(cluster.home / name)}
        for name in WORKERS
    }
    story = {
        "workers": workers, "warehouse": warehouse, "files": str(files),
        "rows": ROWS, "buckets": BUCKETS,
    }  # fmt: skip
    timeout = 3600 if ROWS > 10_000 else 500
    done = cluster.run(
        HERE / "story.py", json.dumps(story), timeout=timeout,
        settings=settings or {}, variables=variables or {},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def held(facts: dict[str, Any], table: Path) -> None:
    """Processes died, and each file that is there now is named by a root: removal found the others."""
    assert facts["worker killed"]
    assert facts["executor killed"]
    print(json.dumps(facts))
    assert 0 < facts["memory"]["executor"] <= EXECUTOR_MEGABYTES, facts["memory"]
    check_invariants(StoredTable(LocalFileIO(str(table))))


@pytest.mark.sweep  # five JVMs beside the driver's: a minute and a half
def test_a_table_on_a_shared_disk_lives_through_killed_executors(cluster: Cluster) -> None:
    shared = cluster.home / "shared"
    facts = told(cluster, shared, str(shared), settings={"spark.lsm.shared-disk": "true"})
    held(facts, Path(facts["location"]))


@pytest.mark.sweep
def test_a_table_on_s3_lives_through_killed_executors(cluster: Cluster) -> None:
    with servers.s3proxy(cluster.home / "s3") as server:
        options = {
            "ENDPOINT": server.endpoint,
            "ACCESS_KEY": server.access_key,
            "SECRET_KEY": server.secret_key,
        }
        facts = told(
            cluster, cluster.home / "s3", f"s3://{server.bucket}/lake",
            variables={f"LSM_STORAGE_S3_{name}": value for name, value in options.items()},
        )  # fmt: skip
        held(facts, cluster.home / "s3" / facts["location"].removeprefix("s3://"))
