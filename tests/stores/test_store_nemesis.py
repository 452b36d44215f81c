"""Processes that are stopped and continued, killed and started again, on an object store: tests/race there.

Writers, a compactor, an expirer that keeps two snapshots, a remover of orphans, one who tags, and a reader. CI runs
one kind on one store for seconds; three kinds on S3 and Azure:

    LSM_NEMESIS_SECONDS=150 python -m pytest tests/stores/test_store_nemesis.py -q -s
"""

import os
from pathlib import Path

import pytest

from tests.race import test_nemesis_race
from tests.race.test_nemesis_race import IN_CI, SECONDS
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

IN_CI_ON_A_STORE = ("s3", "fixed")

pytestmark = pytest.mark.race


@pytest.mark.parametrize("kind", ["fixed", *IN_CI])
@pytest.mark.parametrize("store", ["s3", "azure"])
def test_nothing_acknowledged_is_lost_or_doubled(
    store: str,
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "LSM_NEMESIS_SECONDS" not in os.environ and (store, kind) != IN_CI_ON_A_STORE:
        pytest.skip("of the full race, see above")
    server: StoreServer = request.getfixturevalue(store)
    for name, value in options(server).items():
        variable = name.upper().replace(".", "_").replace("-", "_")
        monkeypatch.setenv(f"LSM_STORAGE_{variable}", value)
    test_nemesis_race.run(location(server, tmp_path.name), tmp_path, kind, SECONDS)
