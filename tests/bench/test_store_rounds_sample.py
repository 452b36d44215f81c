"""The bench of requests beside other engines, for this engine alone and a few upserts."""

from pathlib import Path

from tests.bench.store_rounds import measured
from tests.stores.chaos_proxy import Faults, chaos_proxy
from tests.stores.servers import s3proxy


def test_requests_of_this_engine(tmp_path: Path) -> None:
    with s3proxy(tmp_path / "store") as server, chaos_proxy(server, Faults()) as proxy:
        found = measured(proxy, "ours", tmp_path, upserts=5)
    requests = {what: count for what, ((count, _, _), _) in found.items()}
    # Opening 3, snapshots 3, lists and manifests; then the files of the commit 5, marker, base, LATEST 2.
    assert requests["upsert"] <= 3 + 3 + 2 + 3 + 5 + 1 + 1 + 2
    assert requests["plan"] <= 3 + 3 + 2 + 6  # five upserts and a compaction
    assert requests["scan"] <= 3 + 3 + 2 + 6 + 5
    assert found["scan"][1] == 30
