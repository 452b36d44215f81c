"""A request of many keys or rows equals the same keys or rows one by one, in any order and repetition.

For every merge engine, lookup store and kind of bucket. 10 tables each in CI; more
with HYPOTHESIS_PROFILE=nightly.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_engine.api.table import Table
from lsm_engine.ddl.create import create_table
from lsm_engine.lookup.locate import locate_rows
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.world import components, reopen

VALUES = ("a", "b", "c", "t")
COLUMNS = pa.schema(
    [
        ("k", pa.int64()), ("n", pa.string()), ("p", pa.int32()),
        ("a", pa.int64()), ("b", pa.int64()), ("c", pa.string()), ("t", pa.int64()),
    ]
)  # fmt: skip
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "t"},
    "deduplicate without deletes": {"ignore-delete": "true"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "partial-update with deletes": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "product",
        "fields.c.aggregate-function": "listagg",
    },
    "aggregation of extremes": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "max",
        "fields.b.aggregate-function": "last_value",
        "fields.c.aggregate-function": "first_non_null_value",
        "aggregation.remove-record-on-delete": "true",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true", "write-only": "false"},
}
BUCKETS: dict[str, dict[str, str]] = {
    "one": {"bucket": "1"},
    "three": {"bucket": "3"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "4"},
    "across partitions": {"bucket": "-1", "dynamic-bucket.target-row-num": "4"},
}
INDEX_TYPES = ("bloom", "global-bloom", "simple", "inmemory", "bucket")
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A table on trial; `seed` gives its history and the requests."""

    engine: str
    buckets: str
    store: str
    index_type: str
    vectors: bool
    seed: int

    @property
    def key(self) -> list[str]:
        return ["k", "n"] if self.buckets == "across partitions" else ["k", "n", "p"]

    def table(self) -> Table:
        options = {
            "write-only": "true",
            "num-sorted-run.compaction-trigger": "4",
            "lookup.local-file-type": self.store,
            "index.type": self.index_type,
            **ENGINES[self.engine],
            **BUCKETS[self.buckets],
        }
        if self.vectors and self.engine.startswith("deduplicate"):
            options |= {"deletion-vectors.enabled": "true", "write-only": "false"}
        parts = components(MemoryFileIO())
        create_table(
            parts.file_io,
            COLUMNS,
            primary_key=tuple(self.key),
            partitioned_by=("p",),
            options=options,
            comment=None,
            clock=parts.clock,
        )
        table = reopen(parts)
        dice = random.Random(self.seed)
        for _ in range(dice.randint(2, 5)):
            table.upsert(arrow([row_of(dice) for _ in range(dice.randint(1, 12))]))
            if dice.random() < 0.3:
                table.compact(full=dice.random() < 0.3)
        if self.engine == "first-row":
            table.compact(full=True)
        return table


def row_of(dice: random.Random) -> Row:
    key = dice.randrange(6)
    return {
        "k": key, "n": "n" * (key % 3), "p": dice.randrange(2),
        "a": dice.choice([None, 1, 2, 3]), "b": dice.choice([None, 2, 3]),
        "c": dice.choice([None, "x", "yy"]), "t": dice.randrange(9),
    }  # fmt: skip


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def repeated(dice: random.Random, rows: list[Row]) -> list[Row]:
    """Rows with some of their keys again, in any order."""
    again = [*rows, *(dice.choice(rows) for _ in range(len(rows)))]
    dice.shuffle(again)
    return again


ONE_PARTITION_ONLY = ("deduplicate by sequence", "deduplicate without deletes")
"""What does not go with keys that move: there the order of arrival decides, and a move deletes."""

cases = st.builds(
    Case,
    engine=st.sampled_from(list(ENGINES)),
    buckets=st.sampled_from(list(BUCKETS)),
    store=st.sampled_from(["columnar", "sort", "hash"]),
    index_type=st.sampled_from(INDEX_TYPES),
    vectors=st.booleans(),
    seed=st.integers(0, 2**32),
).filter(lambda case: case.buckets != "across partitions" or case.engine not in ONE_PARTITION_ONLY)


@settings(max_examples=settings.default.max_examples // 2)
@given(case=cases)
def test_a_batch_of_keys_is_answered_like_its_keys_one_by_one(case: Case) -> None:
    table, dice = case.table(), random.Random(case.seed + 1)
    rows = repeated(dice, [row_of(dice) for _ in range(dice.randint(1, 8))])
    keys = [{name: row[name] for name in case.key} for row in rows]
    found = table.lookup(keys).to_pylist()
    assert found == [table.lookup([key]).to_pylist()[0] for key in keys]
    scanned = {
        tuple(row[name] for name in case.key): row for row in table.scan().to_arrow().to_pylist()
    }
    for key, row in zip(keys, found, strict=True):
        there = scanned.get(tuple(key.values()))
        assert row.pop("_found") is (there is not None)
        if there is not None:
            assert row == there == table.query().get(key) == table.explain_key(key).row
    located = table.locate(arrow(rows)).to_pylist()
    assert located == [table.locate(arrow([row])).to_pylist()[0] for row in rows]
    newest = table.latest_snapshot()
    tags = locate_rows(table.session, arrow(rows), newest)
    for at, row in enumerate(rows):
        alone = locate_rows(table.session, arrow([row]), newest)
        assert tags.is_there[at] == alone.is_there[0]
        if alone.is_there[0]:
            assert tags.places[tags.place[at]] == alone.places[alone.place[0]]
            assert tags.position[at] == alone.position[0]


VERBS: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "insert": lambda table, rows: table.insert(rows, existing="skip"),
    "update": lambda table, rows: table.update(rows, missing="skip"),
    "delete": lambda table, rows: table.delete(rows),
}


@settings(max_examples=settings.default.max_examples // 2)
@given(case=cases, verb=st.sampled_from(list(VERBS)))
def test_a_batch_of_rows_is_written_like_its_rows_one_by_one(case: Case, verb: str) -> None:
    whole, single = case.table(), case.table()
    dice = random.Random(case.seed + 2)
    rows = repeated(dice, [row_of(dice) for _ in range(dice.randint(1, 6))])
    if verb == "delete" and case.engine == "aggregation":
        return  # it cannot take back a product or a list, and refuses
    VERBS[verb](whole, arrow(rows))
    for row in rows:
        VERBS[verb](single, arrow([row]))
        if case.engine == "first-row":
            single.compact(full=True)
    if case.engine == "first-row":
        whole.compact(full=True)
    assert content(whole) == content(single)


def content(table: Table) -> list[str]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))
