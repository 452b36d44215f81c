"""Hypothesis strategies: tables of random shapes, layouts, and batches of rows for them.

Rows are drawn as small numbers that pick from each column's values, so that drawing is quick and
shrunk histories are short.
"""

from dataclasses import dataclass
from itertools import product

import pyarrow as pa
from hypothesis import strategies as st

from tests.model.column_kinds import (
    BIGINT,
    INT,
    KEY_KINDS,
    KINDS,
    PARTITION_KINDS,
    SEQUENCE_KINDS,
    STRING,
    Kind,
    Plain,
    to_arrow,
)
from tests.model.table_model import INSERT, ROW_KINDS, Key, Row, Shape

MANY = 300
SNAPSHOT_ORDER = "sequence.snapshot-ordering"


@dataclass(frozen=True)
class Layout:
    """Options that may change cost and never content."""

    bucket: int = 1
    options: tuple[tuple[str, str], ...] = ()

    def texts(self) -> dict[str, str]:
        return {"bucket": str(self.bucket), **dict(self.options)}


TRIGGERS = st.integers(2, 5).map(lambda count: ("num-sorted-run.compaction-trigger", str(count)))
CHOICES = (
    st.sampled_from([("target-file-size", "1 kb"), ("target-file-size", "3 kb")]),
    st.sampled_from([("write-buffer-size", "2 kb"), ("write-buffer-size", "64 kb")]),
    st.just(("write-buffer-spillable", "false")),
    st.sampled_from(["none", "counts", "truncate(3)", "truncate(16)", "full"]).map(
        lambda mode: ("metadata.stats-mode", mode)
    ),
    st.just(("write-only", "true")),
    st.sampled_from(["2", "3"]).map(lambda count: ("manifest.merge-min-count", count)),
    st.just(("manifest.target-file-size", "1 kb")),
    st.just(("manifest.full-compaction-threshold-size", "1 b")),
    st.just(("file.block-size", "1 kb")),
    st.just(("num-levels", "3")),
    st.sampled_from(["0", "50", "10000"]).map(
        lambda percent: ("compaction.max-size-amplification-percent", percent)
    ),
    st.sampled_from(["none", "lz4", "gzip", "snappy"]).map(lambda name: ("file.compression", name)),
    st.sampled_from(["null", "deflate"]).map(lambda name: ("manifest.compression", name)),
    st.just(("source.split.target-size", "1 b")),
    st.just(("sort-spill-threshold", "2")),
    st.just(("parquet.page-checksum", "false")),
    st.sampled_from(["input", "lookup", "full-compaction"]).map(
        lambda producer: ("changelog-producer", producer)
    ),
    st.just(("lookup-compact", "gentle")),
    st.sampled_from(["1", "4"]).map(lambda count: ("full-compaction.delta-commits", count)),
)


BUCKET_CHOICES = {
    -1: (
        st.sampled_from(["2", "7", "40", "2000000"]).map(
            lambda count: ("dynamic-bucket.target-row-num", count)
        ),
        st.sampled_from(["1", "1", "3"]).map(
            lambda count: ("dynamic-bucket.initial-buckets", count)
        ),
        st.sampled_from(["-1", "-1", "2", "5"]).map(
            lambda count: ("dynamic-bucket.max-buckets", count)
        ),
    ),
    -2: (st.sampled_from(["1", "3"]).map(lambda count: ("postpone.default-bucket-num", count)),),
}


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Options of one table."""
    options = [draw(TRIGGERS)]
    chosen = draw(st.lists(st.integers(0, len(CHOICES) - 1), unique=True, max_size=8))
    options += [draw(CHOICES[number]) for number in sorted(chosen)]
    if draw(st.integers(0, 4)) == 0 and ("changelog-producer", "full-compaction") not in options:
        # Readers that do not see level 0 would see less than the model.
        options += [
            ("deletion-vectors.enabled", "true"),
            ("deletion-vectors.merge-on-read", "true"),
        ]
    if draw(st.integers(0, 4)) == 0:
        options = [option for option in options if option[0] != "write-only"]
        options += [(SNAPSHOT_ORDER, "true"), ("write-only", "true")]
    bucket = draw(st.sampled_from([1, 2, 7, -1, -1, -2]))
    options += [draw(choice) for choice in BUCKET_CHOICES.get(bucket, ())]
    return Layout(bucket=bucket, options=tuple(options))


def fitted(layout: Layout, shape: Shape) -> Layout:
    """A layout without what contradicts the table's columns."""
    if not shape.sequence:
        return layout
    kept = tuple(option for option in layout.options if option[0] != SNAPSHOT_ORDER)
    return Layout(bucket=layout.bucket, options=kept)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """One to three key columns and up to three others, in any order; up to two partition columns."""
    partitions = draw(st.sampled_from([0, 0, 1, 1, 2]))
    partition_kinds = draw(
        st.lists(st.sampled_from(PARTITION_KINDS), min_size=partitions, max_size=partitions)
    )
    key_kinds = draw(st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=3))
    other_kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    sequence_kinds = draw(
        st.one_of(st.just([]), st.lists(st.sampled_from(SEQUENCE_KINDS), min_size=1, max_size=2))
    )
    columns = [
        *((f"p{number}", kind) for number, kind in enumerate(partition_kinds)),
        *((f"k{number}", kind) for number, kind in enumerate(key_kinds)),
        *((f"v{number}", kind) for number, kind in enumerate(other_kinds)),
        *((f"s{number}", kind) for number, kind in enumerate(sequence_kinds)),
    ]
    keys = [name for name, _ in columns if name[0] in "pk"]
    return Shape(
        columns=tuple(draw(st.permutations(columns))),
        primary_key=tuple(draw(st.permutations(keys))),
        partitioned_by=tuple(name for name in keys if name[0] == "p"),
        sequence=tuple(name for name, _ in columns if name[0] == "s"),
        sequence_descending=bool(sequence_kinds) and draw(st.booleans()),
    )


PLAIN_SHAPE = Shape(columns=(("k", INT), ("v", BIGINT)), primary_key=("k",))
PARTITIONED_SHAPE = Shape(
    columns=(("v", STRING), ("p", INT), ("k", STRING), ("w", BIGINT)),
    primary_key=("k", "p"),
    partitioned_by=("p",),
)
SEQUENCE_SHAPE = Shape(
    columns=(("k", INT), ("s", BIGINT), ("v", STRING)), primary_key=("k",), sequence=("s",)
)


def key_pool(shape: Shape, *, many: bool = False) -> list[Key]:
    """Keys for a table: few, so that they collide, or with `many` some hundred."""
    columns = [_key_values(shape.kind(name), name, shape) for name in shape.primary_key]
    pool = list(product(*columns))
    stride = max(1, len(pool) // 12)
    pool = pool[::stride][:12]
    wide = next(
        (
            (place, shape.kind(name).more)
            for place, name in enumerate(shape.primary_key)
            if shape.kind(name).more and name not in shape.partitioned_by
        ),
        None,
    )
    if many and wide is not None:
        place, more = wide
        for number in range(MANY):
            key = list(pool[number % len(pool)])
            key[place] = more(number)
            pool.append(tuple(key))
    return pool


def _key_values(kind: Kind, name: str, shape: Shape) -> tuple[Plain, ...]:
    # Few partitions, so that each holds several keys.
    return kind.values[:3] if name in shape.partitioned_by else kind.values


def row_of(shape: Shape, key: Key, seed: int) -> Row:
    """A row of a key whose other columns are picked by the digits of `seed`."""
    keys = dict(zip(shape.primary_key, key, strict=True))
    row: list[Plain] = []
    for name, kind in shape.columns:
        if name in keys:
            row.append(keys[name])
            continue
        choices = (*kind.values, *kind.beside, None)
        row.append(choices[seed % len(choices)])
        seed //= len(choices)
    return tuple(row)


seeds = st.integers(0, 2**20)
picks = st.lists(
    st.tuples(st.sampled_from([INSERT, INSERT, *ROW_KINDS]), st.integers(0, 11), seeds),
    min_size=1,
    max_size=8,
)
"""Rows as (row kind, number of the key, seed of the values)."""

Pick = tuple[str, int, int]


def picked_rows(shape: Shape, pool: list[Key], chosen: list[Pick]) -> list[tuple[str, Row]]:
    """The rows that were drawn."""
    return [(kind, row_of(shape, pool[number % len(pool)], seed)) for kind, number, seed in chosen]


def bulk_rows(
    shape: Shape, pool: list[Key], first: int, count: int, seed: int
) -> list[tuple[str, Row]]:
    """Many rows, one per key."""
    start = first % len(pool)
    return [
        (INSERT, row_of(shape, key, seed + 31 * number))
        for number, key in enumerate((pool[start:] + pool[:start])[:count])
    ]


def arrow_schema(shape: Shape) -> pa.Schema:
    """The table's schema, as it is created."""
    return pa.schema(
        pa.field(name, kind.arrow, nullable=name not in shape.primary_key)
        for name, kind in shape.columns
    )


def arrow_rows(shape: Shape, rows: list[tuple[str, Row]], *, kinds: bool = True) -> pa.Table:
    """Rows as a writer hands them in."""
    columns = list(zip(*(row for _, row in rows), strict=True)) or [()] * len(shape.columns)
    arrays = [
        to_arrow(list(values), kind.arrow)
        for values, (_, kind) in zip(columns, shape.columns, strict=True)
    ]
    names = list(shape.names)
    if kinds:
        arrays.append(pa.array([kind for kind, _ in rows], pa.string()))
        names.append("_row_kind")
    return pa.table(arrays, names=names)


def arrow_keys(shape: Shape, keys: list[Key]) -> pa.Table:
    """Keys as a deleter hands them in."""
    columns = list(zip(*keys, strict=True)) or [()] * len(shape.primary_key)
    return pa.table(
        [
            to_arrow(list(values), shape.kind(name).arrow)
            for values, name in zip(columns, shape.primary_key, strict=True)
        ],
        names=list(shape.primary_key),
    )
