"""Whatever happens to tables, every dot, check and partition says so after two ticks."""

import os
from pathlib import Path

import dagster as dg
import pytest

from lsm_assets import sensors
from tests.dagster.colour_model import ColourHistory
from tests.dagster.lake import MARKS
from tests.interop.clients import Client
from tests.interop.conftest import pypaimon as pypaimon

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

HISTORIES = int(os.environ.get("LSM_COLOURS", "1"))
STEPS = 10


def live_through(at: Path, seed: int, *clients: Client) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        ColourHistory(at / "lake", instance, seed, clients).live_through(STEPS)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_random_history(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(sensors, "RENEWAL_WAIT", 0)  # however slow the machine is
    # Starting another client costs more than a history.
    clients = [request.getfixturevalue("pypaimon")] if HISTORIES > 1 and seed % 2 else []
    live_through(tmp_path, seed, *clients)
