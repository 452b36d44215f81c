"""Entries of deltas: kept for who asks again, and not where they go."""

import pytest

from lsm_engine.metadata import manifests
from lsm_engine.table.references import References
from tests.unit.table.history_tables import Story


@pytest.mark.parametrize(("keeps", "times"), [(True, 1), (False, 2)])
def test_deltas_that_stay_are_decoded_once(keeps, times, monkeypatch):
    story, decode, decoded = Story(), manifests.decode_manifest, []

    def counted(data, **given):
        decoded.append(given["file_name"])
        return decode(data, **given)

    for value in "abc":
        story.put(k1=value)
    session = story.table.session
    snapshots = session.snapshots.all()
    session.manifests.forget_all()
    monkeypatch.setattr(manifests, "decode_manifest", counted)
    first = list(References(session).delta_entries(snapshots, keeps=keeps))
    assert list(References(session).delta_entries(snapshots, keeps=keeps)) == first
    assert len(first) == len(snapshots)
    assert len(decoded) == times * len(snapshots)
