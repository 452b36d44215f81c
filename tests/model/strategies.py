"""Hypothesis strategies: tables of random shapes, layouts, and batches of rows for them.

Rows are drawn as small numbers that pick from each column's values, so that drawing is quick and
shrunk histories are short.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pyarrow as pa
from hypothesis import strategies as st

from tests.model.column_kinds import (
    BIGINT,
    BOOLEAN,
    COUNTED,
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
from tests.model.engines import (
    COMMUTATIVE,
    Aggregation,
    FirstRow,
    PartialUpdate,
    SequenceGroups,
)
from tests.model.table_model import (
    INSERT,
    RETRACTS,
    ROW_KINDS,
    UPDATE_BEFORE,
    Deduplicate,
    Key,
    MergeSpec,
    Row,
    Shape,
)

MANY = 300
SNAPSHOT_ORDER = "sequence.snapshot-ordering"
VECTORS = "deletion-vectors.enabled"
MERGE_ON_READ = "deletion-vectors.merge-on-read"
DEFAULT = "default"
NOT_OPTIONS = ("bucket", "engine", "sequence", "partitions", "columns")


@dataclass(frozen=True)
class Layout:
    """Options that may change cost and never content."""

    bucket: int = 1
    options: tuple[tuple[str, str], ...] = ()

    def texts(self) -> dict[str, str]:
        return {"bucket": str(self.bucket), **dict(self.options)}

    def hides_new_rows(self, shape: Shape) -> bool:
        """Whether readers see a row only once it has been compacted."""
        given = dict(self.options)
        vectors = "deletion-vectors.enabled" in given and MERGE_ON_READ not in given
        return vectors or shape.engine.startswith("first-row")


TRIGGER = "num-sorted-run.compaction-trigger"
CHOICES = {
    "target-file-size": ("1 kb", "3 kb"),
    "write-buffer-size": ("2 kb", "64 kb"),
    "write-buffer-spillable": ("false",),
    "metadata.stats-mode": ("none", "counts", "truncate(3)", "truncate(16)", "full"),
    "write-only": ("true",),
    "manifest.merge-min-count": ("2", "3"),
    "manifest.target-file-size": ("1 kb",),
    "manifest.full-compaction-threshold-size": ("1 b",),
    "manifest.compression": ("null", "deflate"),
    "file.block-size": ("1 kb",),
    "file.compression": ("none", "lz4", "gzip", "snappy"),
    "file.format": ("orc", "avro"),
    "file.format.per.level": ("0:avro", "5:orc"),
    "num-levels": ("3",),
    "compaction.max-size-amplification-percent": ("0", "50", "10000"),
    "source.split.target-size": ("1 b",),
    "sort-spill-threshold": ("2",),
    "parquet.page-checksum": ("false",),
    "changelog-producer": ("input", "lookup", "full-compaction"),
    "lookup-compact": ("gentle",),
    "lookup.local-file-type": ("sort", "hash"),
    "full-compaction.delta-commits": ("1", "4"),
    VECTORS: ("true",),
    SNAPSHOT_ORDER: ("true",),
}
"""Options with values beside their default."""
OF_BUCKETS = {
    "-1": {
        "dynamic-bucket.target-row-num": ("2", "7", "40", "2000000"),
        "dynamic-bucket.initial-buckets": ("1", "3"),
        "dynamic-bucket.max-buckets": ("-1", "2", "5"),
    },
    "-2": {"postpone.default-bucket-num": ("1", "3")},
}
OF_VECTORS = {MERGE_ON_READ: (DEFAULT, "true"), "deletion-vectors.bitmap64": (DEFAULT, "true")}
BUCKETS = (1, 2, 7, -1, -1, -2)
DOMAINS = {
    "bucket": tuple(str(bucket) for bucket in dict.fromkeys(BUCKETS)),
    TRIGGER: ("2", "3", "4", "5"),
    **{name: (DEFAULT, *values) for name, values in CHOICES.items()},
    **OF_VECTORS,
    **{name: (DEFAULT, *values) for given in OF_BUCKETS.values() for name, values in given.items()},
    "engine": (
        "deduplicate", "deduplicate ignoring deletes", "partial-update",
        "partial-update ignoring deletes", "partial-update removing on delete", "sequence-groups",
        "sequence-groups ignoring deletes", "aggregation", "aggregation ignoring deletes",
        "first-row", "first-row ignoring deletes",
    ),
    "sequence": (DEFAULT, "1", "2", "1 descending", "2 descending"),
    "partitions": ("0", "1", "2"),
    "columns": ("plain", "all"),
}  # fmt: skip
"""All that is drawn of a table, by name, with every value that it may have."""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Options of one table."""
    chosen = draw(st.lists(st.sampled_from(list(CHOICES)), unique=True, max_size=9))
    bucket = draw(st.sampled_from(BUCKETS))
    values = {TRIGGER: DOMAINS[TRIGGER]}
    values |= {name: CHOICES[name] for name in CHOICES if name in chosen}
    values |= OF_BUCKETS.get(str(bucket), {}) | (OF_VECTORS if VECTORS in chosen else {})
    options = [(name, draw(st.sampled_from(values[name]))) for name in values]
    return Layout(bucket=bucket, options=tuple(one for one in options if one[1] != DEFAULT))


def features(layout: Layout, shape: Shape) -> dict[str, str]:
    """What is drawn of a history, by name; what is not there has its default."""
    order = f"{len(shape.sequence)}{' descending' if shape.sequence_descending else ''}"
    return layout.texts() | {
        "engine": shape.engine,
        "sequence": order if shape.sequence else DEFAULT,
        "partitions": str(len(shape.partitioned_by)),
        "columns": "plain" if shape.is_plain else "all",
    }


def without_contradictions(given: dict[str, str]) -> dict[str, str]:
    """Features that go together: what a table refuses, or would not show to the model, is left out."""
    kept = dict(given)

    def drop(*names: str) -> None:
        for name in names:
            kept.pop(name, None)

    engine = kept.get("engine", "")
    if engine.startswith(("sequence-groups", "first-row")) or (
        engine.startswith("partial-update") and kept.get("sequence", "").startswith("2")
    ):
        drop("sequence")
    if kept.get("columns") == "all":
        drop(
            "file.format", "file.format.per.level"
        )  # the model reads plain columns of ORC and Avro
    if kept.get("sequence", DEFAULT) != DEFAULT:
        drop(SNAPSHOT_ORDER)
    if engine.startswith("first-row"):
        drop(SNAPSHOT_ORDER, VECTORS, "write-only", "lookup-compact")
        if kept.get("changelog-producer") != "lookup":
            drop("changelog-producer")
        if kept.get("bucket") == "-2":
            kept["bucket"] = "1"
    formats = {kept.get("file.format"), kept.get("file.format.per.level")}
    if formats & {"avro", "0:avro"} and kept.get("file.compression") in ("lz4", "snappy"):
        drop("file.compression")
    if VECTORS not in kept:
        drop(MERGE_ON_READ, "deletion-vectors.bitmap64")
    elif kept.get("changelog-producer") == "full-compaction":
        # Readers that do not see level 0 would see less than the model.
        drop("changelog-producer")
    if VECTORS in kept and MERGE_ON_READ not in kept:
        drop(SNAPSHOT_ORDER, "write-only", "lookup-compact")
        if kept.get("bucket") == "-2":
            kept["bucket"] = "1"
    if SNAPSHOT_ORDER in kept:
        kept["write-only"] = "true"
    if kept.get("bucket") != "-1":
        drop(*(name for name in kept if name.startswith("dynamic-bucket.")))
    if kept.get("bucket") != "-2":
        drop("postpone.default-bucket-num")
    return kept


def fitted(layout: Layout, shape: Shape) -> Layout:
    """A layout without what contradicts the table's columns, its engine, or itself."""
    given = features(layout, shape)
    kept = without_contradictions(given)
    options = {name: value for name, value in kept.items() if name not in NOT_OPTIONS}
    return Layout(bucket=int(kept["bucket"]), options=tuple(options.items()))


def can_meet(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two features may be of one table; what each of them needs beside is given."""
    asked = dict([one, other])
    # Options of a kind of bucket are always given.
    mine = OF_BUCKETS.get(asked.get("bucket", ""), {})
    if any(asked.get(name) == DEFAULT for name in mine):
        return False
    needed = {
        name: value
        for feature in asked.items()
        if feature[1] != DEFAULT
        for name, value in NEEDS.get(feature[0], {}).items()
    }
    for beside in ({}, {MERGE_ON_READ: "true"}):
        given = {**beside, **needed, **asked}
        texts = {name: value for name, value in given.items() if value != DEFAULT}
        kept = without_contradictions(texts)
        if all(kept.get(name, DEFAULT) == value for name, value in asked.items()):
            return True
    return False


NEEDS = {
    **{name: {VECTORS: "true"} for name in OF_VECTORS},
    **{name: {"bucket": bucket} for bucket, given in OF_BUCKETS.items() for name in given},
    SNAPSHOT_ORDER: {"write-only": "true"},
}


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """One to three key columns and up to three others, in any order; up to two partition columns."""
    plain = draw(st.booleans())

    def some(kinds: Sequence[Kind], least: int, most: int) -> list[Kind]:
        usable = [kind for kind in kinds if kind.is_everywhere or not plain]
        return draw(st.lists(st.sampled_from(usable), min_size=least, max_size=most))

    partitions = draw(st.sampled_from([0, 0, 1, 1, 2]))
    partition_kinds = some(PARTITION_KINDS, partitions, partitions)
    key_kinds = some(KEY_KINDS, 1, 3)
    other_kinds = some(KINDS, 1, 3)
    sequence_kinds = some(SEQUENCE_KINDS, 1, 2) if draw(st.booleans()) else []
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


@st.composite
def shapes_of_engines(draw: st.DrawFn) -> Shape:
    """A shape with a merge engine, and what that needs of the columns."""
    shape = draw(shapes())
    match draw(st.sampled_from(ENGINE_NAMES)):
        case "deduplicate":
            ignored = draw(st.sampled_from([(), (), RETRACTS]))
            return merging(shape, "deduplicate", Deduplicate(ignored))
        case "first-row":
            kept = without_sequence(shape)
            return merging(kept, "first-row", FirstRow(draw(IGNORED)))
        case "partial-update":
            removes = draw(st.booleans())
            merge = PartialUpdate(removes, (UPDATE_BEFORE,) if removes else draw(IGNORED))
            options = {"partial-update.remove-record-on-delete": "true"} if removes else {}
            kept = with_rising_sequence(shape) if shape.sequence else shape
            return merging(kept, "partial-update", merge, options)
        case "sequence-groups":
            return draw(grouped(without_sequence(shape)))
        case _:
            return draw(aggregated(shape))


IGNORED = st.sampled_from([(), RETRACTS])
ENGINE_NAMES = (
    "deduplicate", "deduplicate", "partial-update", "sequence-groups", "aggregation", "first-row",
)  # fmt: skip


def merging(
    shape: Shape, name: str, merge: MergeSpec, options: Mapping[str, str] | None = None
) -> Shape:
    """The shape with an engine and its options; `engine` tells the variants apart."""
    engine = "partial-update" if name == "sequence-groups" else name
    texts = {"merge-engine": engine, **(options or {})}
    variant = name
    if merge.ignored == RETRACTS:
        texts["ignore-delete"] = "true"
        variant += " ignoring deletes"
    elif merge.ignored:
        variant += " removing on delete"
    return replace(shape, engine=variant, merge=merge, merge_options=tuple(texts.items()))


def without_sequence(shape: Shape) -> Shape:
    columns = tuple((name, kind) for name, kind in shape.columns if name not in shape.sequence)
    return replace(shape, columns=columns, sequence=(), sequence_descending=False)


def with_rising_sequence(shape: Shape) -> Shape:
    """Rows come in order: late ones merge as each compaction has it."""
    name = shape.sequence[0]
    columns = tuple(
        (other, BIGINT if other == name else kind)
        for other, kind in shape.columns
        if other == name or other not in shape.sequence
    )
    return replace(shape, columns=columns, sequence=(name,), rises=True)


@st.composite
def grouped(draw: st.DrawFn, shape: Shape) -> Shape:
    """One or two sequence groups over the first columns that are no keys, one of them summed."""
    columns, options, groups, sums = dict(shape.columns), dict[str, str](), [], []
    free = [name for name in shape.names if name not in shape.primary_key]
    for number, name in enumerate(free[:2]):
        kinds = [kind for kind in SEQUENCE_KINDS if kind.is_everywhere or not shape.is_plain]
        orders = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2))
        names = tuple(f"{'gh'[number]}{place}" for place in range(len(orders)))
        columns |= dict(zip(names, orders, strict=True))
        if number and draw(st.booleans()):
            columns[name] = COUNTED
            sums.append(name)
            options[f"fields.{name}.aggregate-function"] = "sum"
        groups.append((names, (name,)))
        options[f"fields.{','.join(names)}.sequence-group"] = name
    order = draw(st.permutations(list(columns)))
    shape = replace(
        shape, columns=tuple((name, columns[name]) for name in order), groups=tuple(groups)
    )
    merge = SequenceGroups(
        groups=tuple((shape.places(names), shape.places(held)) for names, held in groups),
        sums=shape.places(sums),
        ignored=draw(IGNORED),
    )
    return merging(shape, "sequence-groups", merge, options)


@st.composite
def aggregated(draw: st.DrawFn, shape: Shape) -> Shape:
    """A function for each column; under a sequence field only those that no order changes."""
    columns, functions = dict(shape.columns), {}
    for name, kind in shape.columns:
        if name in (*shape.primary_key, *shape.sequence):
            continue
        if draw(st.booleans()):
            kind = columns[name] = COUNTED
        usable = [one for one in functions_of(kind) if one in COMMUTATIVE or not shape.sequence]
        if not usable:
            kind = columns[name] = COUNTED
            usable = ["sum"]
        functions[name] = draw(st.sampled_from(usable))
    shape = replace(shape, columns=tuple(columns.items()))
    merge = Aggregation(
        functions=tuple((shape.places([name])[0], each) for name, each in functions.items()),
        ignored=draw(IGNORED),
    )
    options = {f"fields.{name}.aggregate-function": each for name, each in functions.items()}
    return merging(shape, "aggregation", merge, options)


def functions_of(kind: Kind) -> list[str]:
    """Aggregate functions that take a column of this type."""
    found = ["last_value", "last_non_null_value", "first_value", "first_non_null_value"]
    if kind is COUNTED:
        found += ["sum", "sum", "max", "min"]
    elif kind is BOOLEAN:
        found += ["bool_and", "bool_or"]
    elif kind is STRING:
        found += ["listagg", "max", "min"]
    elif kind.is_sequence:
        found += ["max", "min"]
    return found


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
    for orders, protected in shape.groups:
        # A lone row is read as it came, one of several without what its null sequence protects.
        if all(value is None for value in shape.part(tuple(row), orders)):
            for place in shape.places(protected):
                row[place] = None
    return tuple(row)


seeds = st.integers(0, 2**20)
Pick = tuple[str, int, int]


def with_a_repeated_key(chosen: list[Pick]) -> list[Pick]:
    """The same, and the first key once more, with other values: every request repeats a key."""
    kind, number, _ = chosen[0]
    return [*chosen, (kind, number, chosen[-1][2] + 1)]


picks = st.lists(
    st.tuples(st.sampled_from([INSERT, INSERT, *ROW_KINDS]), st.integers(0, 11), seeds),
    min_size=1,
    max_size=7,
).map(with_a_repeated_key)
"""Rows as (row kind, number of the key, seed of the values)."""


def picked_rows(shape: Shape, pool: list[Key], chosen: list[Pick]) -> list[tuple[str, Row]]:
    """The rows that were drawn."""
    return [(kind, row_of(shape, pool[number % len(pool)], seed)) for kind, number, seed in chosen]


def bulk_rows(
    shape: Shape, pool: list[Key], first: int, count: int, seed: int
) -> list[tuple[str, Row]]:
    """Many rows, one per key, and the first key once more."""
    start = first % len(pool)
    keys = (pool[start:] + pool[:start])[:count]
    return [
        (INSERT, row_of(shape, key, seed + 31 * number))
        for number, key in enumerate([*keys, keys[0]])
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
