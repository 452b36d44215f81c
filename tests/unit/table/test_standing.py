"""Folding entries as columns gives what folding them as objects gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CommitConflictError
from lsm_engine.format.manifest import ManifestEntry, fold
from lsm_engine.format.manifest_columns import rows_of
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.options.modes import EntryKind
from lsm_engine.table.live_files import standing
from tests.unit.planning.facts import entry

KINDS = st.sampled_from([EntryKind.ADD, EntryKind.DELETE])
ENTRIES = st.lists(
    st.builds(
        lambda name, kind, bucket, level: entry(name, kind=kind, bucket=bucket, level=level),
        st.sampled_from("abc"), KINDS, st.integers(0, 1), st.integers(0, 1),
    ),
    max_size=12,
)  # fmt: skip


def told(entries: list[ManifestEntry]) -> list[tuple]:
    return sorted((one.identity, one.kind.value) for one in entries)


@given(ENTRIES)
def test_what_stands_is_what_a_fold_leaves(entries: list[ManifestEntry]) -> None:
    rows = rows_of(entries)
    try:
        expected = fold(entries)
    except CommitConflictError:
        with pytest.raises(CommitConflictError, match="added twice"):
            standing(rows)
        return
    left = entries_of(rows.filter(standing(rows)))
    assert told(left) == told(expected)


def test_entries_keep_their_order() -> None:
    entries = [entry(name) for name in "dacb"]
    rows = rows_of([*entries, entry("c", kind=EntryKind.DELETE)])
    assert np.flatnonzero(standing(rows)).tolist() == [0, 1, 3]
