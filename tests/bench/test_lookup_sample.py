"""The lookup benchmarks at a small size, so that they cannot rot; nothing is asserted of their figures."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.bench import lookup_keys, lookup_tagging

pytestmark = [pytest.mark.bench, pytest.mark.slow]


def test_our_half_of_the_lookups(tmp_path: Path) -> None:
    table = lookup_keys.filled(str(tmp_path), 500)
    found = lookup_keys.ours_alone(table, np.random.default_rng(1))
    assert found["keys_a_second"] > 0
    assert {*lookup_keys.SINGLES, "building"} <= set(found)
    told = {(one.what, one.name): one.goal for one in lookup_keys.ratios(found)}
    assert told["single key, miss inside", "p50 / that of hits"] == lookup_keys.MISS_TO_HIT
    assert found["hit"]["p99_micros"] >= found["hit"]["p50_micros"]


def test_tables_to_tag_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_tagging, "ASKED", 1_000)
    monkeypatch.setattr(lookup_tagging, "FILE_KEYS", 1_000)
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    lookup_tagging.fill(str(tmp_path), lookup_tagging.SMALL, 2)
    for name in lookup_tagging.ORDERS:
        lookup_tagging.fill(str(tmp_path), name, 3)
        found = lookup_tagging.measure(str(tmp_path), name, 3)
        assert 0 < found["updates"] <= 1_000
        told = lookup_tagging.ratios({(name, 3): [found], (name, 30): [found]})
        assert [one.goal for one in told[-2:]] == [10.0, lookup_tagging.MORE_MEMORY]
        assert found["peak_megabytes"] > found["more_megabytes"] >= 0


def test_the_driver_answers(tmp_path: Path) -> None:
    path = lookup_keys.put(pa.table({"id": [1, 2]}), tmp_path / "k.arrow")
    with lookup_keys.KeysClient("ours") as client:
        table = lookup_keys.filled(str(tmp_path), 50)
        client.call("open", location=table.location, key=1)
        assert client.call("found", keys=path) == table.lookup([{"id": 1}, {"id": 2}])[
            "_found"
        ].to_pylist().count(True)
        client.call("close")
