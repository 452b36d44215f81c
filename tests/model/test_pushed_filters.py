"""A read with a filter, columns or a limit is the whole read, filtered afterwards.

`LSM_PREDICATES` says how many filters each kind of table is asked (default 20). Keys are text and
numbers, partitions are days; their files differ in level, statistics and format.
"""

import os
import random
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_engine.api.table import Table
from lsm_engine.ddl.create import create_table
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.world import components, reopen
from tests.unit.filter.rows import NAN, SCHEMA, filters

PREDICATES = int(os.environ.get("LSM_PREDICATES", "20"))
KEY = ("d", "s", "i")
VECTORS = {"deletion-vectors.enabled": "true"}
SUMS = {
    "merge-engine": "aggregation",
    "fields.m.aggregate-function": "sum",
    "fields.f.aggregate-function": "max",
}
TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {"sequence.field": "t"},
    "deduplicate-vectors": VECTORS | {"metadata.stats-mode": "full"},
    "partial-update": {"merge-engine": "partial-update", "metadata.stats-mode": "full"},
    "partial-update-vectors": VECTORS | {"merge-engine": "partial-update"},
    "aggregation": SUMS | {"file.format": "avro"},
    "aggregation-vectors": SUMS | VECTORS | {"metadata.stats-mode": "truncate(1)"},
    "first-row": {"merge-engine": "first-row", "metadata.stats-mode": "truncate(1)"},
}
VALUES: dict[str, list[Any]] = {
    "i": [-3, -1, 0, 2, 3],
    "s": ["", "a", "ab", "ä", "ä\U0010ffff", "\U0010ffff", "b" * 20],
    "d": [19723, 19724],
    "f": [NAN, -0.0, 0.0, 1.5, -1.5, float("inf")],
    "b": [True, False],
    "m": [-300, 0, 1, 299],
    "t": [-2, 0, 1, 4],
    "y": [b"", b"\0", b"\xff", b"\xff\xff"],
}


def column(name: str, values: list[Any]) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "m":
        return pc.divide(pa.array(values, pa.decimal128(10, 2)), pa.scalar(100)).cast(kind)
    return pa.array(values, kind)


@cache
def filled(name: str) -> tuple[Table, pa.Table]:
    """A table of some batches and compactions, and all its rows."""
    dice = random.Random(name)
    parts = components(MemoryFileIO())
    columns = [field.with_nullable(field.name not in KEY) for field in SCHEMA]
    create_table(
        parts.file_io,
        pa.schema(columns),
        primary_key=KEY,
        partitioned_by=("d",),
        options={"bucket": "2", "target-file-size": "2 kb"} | TABLES[name],
        comment=None,
        clock=parts.clock,
    )
    table = reopen(parts)
    removes = table.options.texts.get("merge-engine") is None
    for step in range(6):
        count = dice.choice([3, 20, 40])
        drawn = {
            one: [
                None if one not in KEY and dice.random() < 0.2 else dice.choice(values)
                for _ in range(count)
            ]
            for one, values in VALUES.items()
        }
        rows = pa.table({one: column(one, values) for one, values in drawn.items()})
        table.upsert(rows)
        if removes:
            table.delete(rows.slice(0, 2).select(list(KEY)))
        if step in (1, 3):
            table.compact(full=step == 1)
    table = reopen(parts)
    return table, table.scan().to_arrow()


def in_order(rows: pa.Table) -> list[Any]:
    """Rows that compare: no NaN is another's equal."""
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=PREDICATES)
@given(data=st.data())
def test_a_filtered_read_is_the_filtered_whole(name: str, data: st.DataObject) -> None:
    table, whole = filled(name)
    where = data.draw(filters())
    wanted = whole.filter(where)
    asked = data.draw(st.sampled_from(["all", "some", "count"]))
    if asked == "all":
        assert in_order(table.scan(where=where).to_arrow()) == in_order(wanted)
    elif asked == "count":
        assert table.scan(where=where).count() == wanted.num_rows
    else:
        names = data.draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True))
        limit = data.draw(st.integers(0, 40))
        some = table.scan(columns=names, where=where, limit=limit).to_arrow()
        assert some.column_names == names
        assert some.num_rows == min(limit, wanted.num_rows)
        left = in_order(wanted.select(names))
        for row in in_order(some):
            left.remove(row)
