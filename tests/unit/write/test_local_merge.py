"""local-merge-buffer-size: rows merged before they travel make the same table as rows that come as they are."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.commit.commit import propose
from lsm_engine.planning.proposal import CommitIdentity, Proposal
from lsm_engine.read.buffer import LocalMerge
from lsm_engine.table.bucket_keys import RoutedRows
from lsm_engine.table.incoming import IncomingRows, conformed, open_rows
from lsm_engine.table.staging import staging_on
from lsm_engine.write.writers import stage_incoming
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.string())]
)
MERGED = {"local-merge-buffer-size": "1 mb"}
TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by a column": {"sequence.field": "a"},
    "ignore-delete": {"ignore-delete": "true"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "partial-update": {
        "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true",
    },
    "sequence group": {
        "merge-engine": "partial-update", "fields.a.sequence-group": "b",
    },
    "aggregation": {
        "merge-engine": "aggregation", "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "last_value",
    },
    "removing aggregation": {
        "merge-engine": "aggregation", "fields.a.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "list": {
        "merge-engine": "aggregation", "ignore-delete": "true",
        "fields.a.aggregate-function": "product", "fields.b.aggregate-function": "listagg",
    },
}  # fmt: skip
rows = st.tuples(
    st.integers(0, 3),
    st.integers(1, 3) | st.none(),
    st.sampled_from(["x", "y", None]),
    st.sampled_from(["+I", "+I", "+U", "-D"]),
)


def written(options: dict[str, str], base: list[Any], parts: list[list[Any]]) -> tuple[Any, int]:
    """The table after a commit of `base` and one of `parts`, each merged by itself if asked for."""
    story = Story(COLUMNS, options=options)
    session = story.table.session
    merge = LocalMerge.for_schema(session.schema)
    travelled = 0

    def rows_of(given: list[Any]) -> list[IncomingRows]:
        nonlocal travelled
        columns = list(zip(*given, strict=True))
        table = pa.table(
            [pa.array(c, t) for c, t in zip(columns, COLUMNS.types, strict=False)], COLUMNS
        )
        table = table.append_column("_row_kind", pa.array(columns[3], pa.string()))
        made = list(conformed(open_rows(table), session.schema, deletes=False))
        if merge is not None:
            made = [
                IncomingRows(rows=routed.rows, kinds=routed.kinds)
                for one in made
                for routed in merge.merged(
                    RoutedRows(partition=b"", bucket=0, rows=one.rows, kinds=one.kinds)
                )
            ]
        travelled += sum(one.rows.num_rows for one in made)
        return made

    for each in ([base], parts):
        on = session.snapshots.latest()
        incoming = [one for part in each if part for one in rows_of(part)]
        messages = stage_incoming(staging_on(session, on), incoming)
        propose(
            session,
            Proposal(
                identity=CommitIdentity(commit_user="w"), messages=tuple(messages), planned_on=on
            ),
        )
    story.table.compact(full=True)
    return sorted(map(str, story.table.scan().to_arrow().to_pylist())), travelled


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=10)
@given(base=st.lists(rows, max_size=6), parts=st.lists(st.lists(rows, max_size=8), max_size=3))
def test_merging_first_changes_nothing(name: str, base: list[Any], parts: list[list[Any]]) -> None:
    plain, _ = written(TABLES[name], base, parts)
    merged, _ = written(TABLES[name] | MERGED, base, parts)
    assert merged == plain


def test_fewer_rows_travel() -> None:
    part = [(key, 1, "x", "+I") for key in (1, 2, 1, 1, 2)]
    assert written({}, [], [part])[1] == 5
    assert written(MERGED, [], [part])[1] == 2


@pytest.mark.parametrize(
    "options",
    [
        {
            "merge-engine": "aggregation",
            "fields.b.aggregate-function": "listagg",
            "sequence.field": "a",
        },
        {"merge-engine": "partial-update", "sequence.field": "a"},
    ],
)
def test_nothing_is_merged_where_a_late_row_may_belong_between(options: dict[str, str]) -> None:
    assert LocalMerge.for_schema(Story(COLUMNS, options=options | MERGED).table.schema) is None


def test_keys_that_move_between_partitions_travel_as_they_come() -> None:
    moving = Story(COLUMNS, key=("id",), partitioned_by=("b",), options={"bucket": "-1", **MERGED})
    assert LocalMerge.for_schema(moving.table.schema) is None


def test_a_changelog_of_the_input_needs_every_row() -> None:
    with pytest.raises(lsm.InvalidOptionError, match="local-merge-buffer-size"):
        Story(COLUMNS, options={"changelog-producer": "input", **MERGED})
