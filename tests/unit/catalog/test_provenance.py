"""Run and inputs travel in snapshot properties and come back; nonsense there is left out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.catalog.provenance import (
    Input,
    Run,
    inputs_of,
    provenance_properties,
    run_of,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind


def snapshot(properties):
    return Snapshot(
        id=1, schema_id=0, base_manifest_list="b", delta_manifest_list="d", commit_user="someone",
        commit_identifier=1, commit_kind=CommitKind.APPEND, time_millis=1, total_record_count=0,
        delta_record_count=0, properties=properties,
    )  # fmt: skip


words = st.text(min_size=1, max_size=8)
numbers = st.integers(0, 2**63 - 1)


@given(
    run=st.builds(
        Run, run_id=words, engine=st.none() | words, user=st.none() | words,
        asset_key=st.none() | words, dagster_run_id=st.none() | words, kind=st.none() | words,
        started_millis=st.none() | numbers,
    ),
    inputs=st.lists(
        st.builds(
            Input, dataset=words, snapshot_id=numbers, after_snapshot_id=st.none() | numbers,
            version=st.none() | words, role=words,
            columns=st.lists(st.tuples(words, words), max_size=2).map(tuple),
        ),
        unique=True,
    ).map(tuple),
)  # fmt: skip
def test_there_and_back(run, inputs):
    carried = snapshot(provenance_properties(run, inputs))
    assert run_of(carried) == run
    assert inputs_of(carried) == inputs


def test_clients_that_do_not_tell_are_known_by_their_commit_user():
    assert run_of(snapshot(None)).run_id == "commit-user:someone"
    assert run_of(snapshot({"other": "x"})).run_id == "commit-user:someone"


@pytest.mark.parametrize(
    ("text", "datasets"),
    [
        ("", []),
        ("{", []),
        ("3", []),
        ("{}", []),
        ("[" * 100_000, []),
        ("[1, null, {}, []]", []),
        ('[{"dataset": "a"}, {"no": 1}]', ["a"]),
        (json.dumps([{"dataset": "a", "snapshot": True, "columns": [1, ["x"], 7]}]), ["a"]),
        (json.dumps([{"dataset": "a", "snapshot": 2**70, "after": "x", "role": None}]), ["a"]),
        (json.dumps([{"dataset": "a"}, {"dataset": "a"}]), ["a"]),
    ],
)
def test_nonsense_is_left_out(text, datasets):
    found = inputs_of(snapshot({"lsm.inputs": text}))
    assert [item.dataset for item in found] == datasets
    assert all(item.snapshot_id is None for item in found)


def test_a_started_time_that_is_none():
    told = snapshot({"lsm.run.id": "r", "lsm.run.started-millis": "yesterday"})
    assert run_of(told) == Run(run_id="r")
