"""Whatever happens to tables, every dot, check and partition says so after two ticks."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lsm_assets import sensors
from tests.dagster.colour_model import BY_DAY, COPY, DAYS, ColourHistory, Writer
from tests.dagster.lake import MARKS
from tests.interop.conftest import java as java
from tests.interop.conftest import java_2 as java_2
from tests.interop.conftest import javas as javas
from tests.interop.conftest import pypaimon as pypaimon
from tests.interop.newest_java import NewestJava

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

HISTORIES = int(os.environ.get("LSM_COLOURS", "1"))
LENGTH = 10
"""Steps of a history."""
CLIENTS = ([], ["pypaimon"], [], ["java"], [], ["pypaimon", "java_2"])
"""Other clients by seed; pypaimon 2.1.0 reads no manifest that Java 0.9.0 has written."""
RUNS: dict[str, Callable[[ColourHistory], Any]] = {
    "write": lambda history: history.write(commits=2),
    "store": ColourHistory.store,
    "compact": ColourHistory.compact_by_asset,
    "replace a tag": lambda history: history.tag("REPLACE"),
    "delete a tag": lambda history: history.tag("DELETE"),
    "read": lambda history: history.read_by(COPY, None),
    "read of a day": lambda history: history.read_by(BY_DAY, DAYS[0]),
}


@dataclass(frozen=True)
class Java2:
    """Java 2.0.0 as a writer."""

    process: NewestJava
    name: str = "java 2.0.0"

    def write(self, path: str, rows: pa.Table) -> None:
        listed = [["+I", list(row.values())] for row in rows.to_pylist()]
        self.process.ask("write", path=path, rows=listed)


@contextmanager
def begun(at: Path, seed: int, *clients: Writer) -> Iterator[ColourHistory]:
    """A history at its beginning."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield ColourHistory(at / "lake", instance, seed, clients)


@pytest.fixture(autouse=True)
def _checks_are_renewed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "RENEWAL_WAIT", 0)  # however slow the machine is


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_random_history(tmp_path: Path, seed: int, request: pytest.FixtureRequest) -> None:
    # Starting another client costs more than a history.
    names = CLIENTS[seed % len(CLIENTS)] if HISTORIES > 1 else []
    clients = [request.getfixturevalue(name) for name in names]
    writers = [Java2(client) if isinstance(client, NewestJava) else client for client in clients]
    with begun(tmp_path, seed, *writers) as history:
        history.live_through(LENGTH)


@pytest.mark.parametrize("kind", RUNS if HISTORIES > 1 else ["write"])
def test_a_run_is_killed_between_each_pair_of_its_steps(tmp_path: Path, kind: str) -> None:
    with begun(tmp_path, 1) as history:
        assert history.partitions_def is not None
        history.dies_after = 0
        while history.dies_after == 0 or history.was_killed:
            history.dies_after += 1 if HISTORIES > 1 else 20
            RUNS[kind](history)
            history.observe_all()
            history.check()
        assert history.dies_after > 5
