"""A cluster whose workers do not see the driver's disk: what is refused there, and what holds."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm_engine.io.local import LocalFileIO
from tests.cluster.standalone import WORKERS, Cluster, standalone_cluster
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
ROWS = int(os.environ.get("LSM_CLUSTER_ROWS", "6000"))
BUCKETS = 50 if ROWS >= 100_000 else 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path) as made:
        yield made


def told(cluster: Cluster, files: Path, settings: dict[str, str], warehouse: str) -> dict[str, Any]:
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
    done = cluster.run(HERE / "story.py", json.dumps(story), settings=settings, timeout=timeout)
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_tables_live_through_killed_executors(cluster: Cluster) -> None:
    shared = cluster.home / "shared"
    facts = told(cluster, shared, {"spark.lsm.shared-disk": "true"}, str(shared))
    assert facts["worker killed"]
    assert facts["executor killed"]
    # Whatever the killed left, removal of orphans found: each file that is there is named by a root.
    check_invariants(StoredTable(LocalFileIO(facts["location"])))
