"""Scan planning: which files may hold a match, which splits read them, merged or as they are."""

from dataclasses import replace

import pyarrow as pa

from lsm_engine.filter.expression import tree_of
from lsm_engine.filter.partition import candidate_buckets, manifest_mask, manifests_holding
from lsm_engine.filter.stats import ColumnBounds, may_match
from lsm_engine.format.binary_row import encode_row
from lsm_engine.format.data_file import SimpleStats
from lsm_engine.format.index_file import VectorPlace
from lsm_engine.planning.scan import Packing, Reach, ReadMode, SplitPlanner
from lsm_engine.types.arrow_types import arrow_schema, arrow_type
from lsm_engine.types.types import DataField, parse_type
from tests.cases.notation import entries, index_entries, place
from tests.unit.planning.facts import key_order, manifest


def splits(case):
    vectors = {}
    for one in index_entries(case.get("vectors", "")):
        places = vectors.setdefault((one.partition, one.bucket), {})
        for vector in one.index_file.deletion_vectors:
            places[vector.data_file_name] = VectorPlace(
                index_file=one.index_file.file_name, vector=vector
            )
    planner = SplitPlanner(
        key_order=key_order,
        mode=ReadMode(case.get("mode", "merge")),
        packing=Packing(
            target_size_bytes=int(case.get("target", 1000)),
            open_file_cost_bytes=int(case.get("open cost", 1)),
        ),
        snapshot_id=7,
        vectors=vectors,
        reach=Reach(case.get("reach", "all")),
    )
    found = planner.plan(entries(case["live"]))
    shown = []
    for split in found:
        sections = "".join(
            "[" + " | ".join(" ".join(file.file_name for file in run) for run in section) + "]"
            for section in split.sections
        )
        counted = "" if split.is_counted else " at most"
        marks = "".join(
            f", {one.vector.data_file_name} less those in {one.index_file}" for one in split.vectors
        )
        shown.append(
            f"{place(split.partition, split.bucket)} of {split.total_buckets} {sections}"
            f"{counted} {split.row_count} rows{marks}\n  {split.reason}"
        )
    return "\n".join(shown) or "nothing"


def typed_fields(text):
    named = (one.split(" ", 1) for one in text.split(", "))
    return tuple(
        DataField(id=at, name=name, type=parse_type(kind)) for at, (name, kind) in enumerate(named)
    )


def literal(text, kind):
    """A bound as text; `?` is not known. Numbers and texts, NaN and infinity."""
    if text == "?":
        return None
    if pa.types.is_string(kind):
        return text.encode().decode("unicode_escape")
    return float(text) if pa.types.is_floating(kind) else int(text)


def predicate_of(case, fields):
    schema = arrow_schema(fields)
    return tree_of(case["filter"], schema)


def file_pruning(case):
    """`file: a v 1..5 nulls 2, w ?..? nulls ?`: bounds and nulls by column, of 10 rows."""
    fields = typed_fields(case["columns"])
    known: dict[str, list[tuple[object, object, int | None]]] = {}
    names = []
    for line in case["file"].splitlines():
        name, _, columns = line.partition(" ")
        names.append(name)
        for column in filter(None, columns.split(", ")):
            field, span, _, nulls = column.split(" ")
            kind = next(arrow_type(one.type) for one in fields if one.name == field)
            low, high = (literal(end, kind) for end in span.split(".."))
            count = None if nulls == "?" else int(nulls)
            known.setdefault(field, []).append((low, high, count))
    bounds = {
        field.name: ColumnBounds(
            mins=pa.array([low for low, _, _ in known[field.name]], arrow_type(field.type)),
            maxs=pa.array([high for _, high, _ in known[field.name]], arrow_type(field.type)),
            null_counts=pa.array([count for _, _, count in known[field.name]], pa.int64()),
        )
        for field in fields
        if field.name in known
    }
    rows = pa.array([10] * len(names), pa.int64())
    mask = may_match(predicate_of(case, fields), bounds, rows)
    return " ".join(name for name, reads in zip(names, mask, strict=True) if reads) or "none"


def manifest_pruning(case):
    """`manifest: m 1,a..3,c nulls 0,0`: the least and the greatest value of each column."""
    fields = typed_fields(case["partitioned by"]) if "partitioned by" in case else ()
    types = [field.type for field in fields]
    kinds = [arrow_type(one) for one in types]

    def row(text):
        values = text.split(",") if text else []
        return encode_row(
            [literal(one, kind) for one, kind in zip(values, kinds, strict=True)], types
        )

    metas = []
    for line in case.get("manifest", "").splitlines():
        name, *rest = line.split(" ")
        stats = SimpleStats(min_values=b"", max_values=b"", null_counts=())
        if rest:
            low, high = rest[0].split("..")
            counts = [None if one == "?" else int(one) for one in rest[2].split(",")]
            stats = SimpleStats(
                min_values=row(low), max_values=row(high), null_counts=tuple(counts)
            )
        meta = replace(manifest(name, added=10), partition_stats=stats)
        metas.append(meta)
    if "filter" in case:
        mask = manifest_mask(predicate_of(case, fields), metas, fields)
    else:
        mask = manifests_holding(
            metas, [row(one) for one in case["partitions"].replace("none", "").split()], fields
        )
    return (
        " ".join(one.file_name for one, reads in zip(metas, mask, strict=True) if reads) or "none"
    )


def bucket_pruning(case):
    """Each combination of key values is a bucket of its own, called by its values."""
    fields = typed_fields(case["columns"])
    keys = [field for field in fields if field.name in case["bucket key"].split()]
    tried = []

    def bucket_of(columns):
        tried.extend(zip(*(column.to_pylist() for column in columns), strict=True))
        return range(len(tried))

    found = candidate_buckets(predicate_of(case, fields), keys, bucket_of)
    if found is None:
        return "all buckets"
    assert len(found) == len(tried)
    if len(tried) > 9:
        return f"{len(tried)} combinations"
    return "; ".join(sorted(" ".join(map(repr, row)) for row in tried)) or "no bucket"


def test_splits(check_cases):
    check_cases("splits", splits)


def test_file_pruning(check_cases):
    check_cases("file_pruning", file_pruning)


def test_manifest_pruning(check_cases):
    check_cases("manifest_pruning", manifest_pruning)


def test_bucket_pruning(check_cases):
    check_cases("bucket_pruning", bucket_pruning)


def test_thousands_of_combinations_of_keys_are_not_tried():
    def tried(count):
        values = ", ".join(map(str, range(count)))
        case = {"columns": "k INT, l INT", "bucket key": "k l", "filter": f"k IN ({values}) AND l IN (1, 2)"}  # fmt: skip
        return bucket_pruning(case)

    assert tried(2048) == "4096 combinations"
    assert tried(2049) == "all buckets"


def test_a_long_list_of_values_is_taken_for_its_ends():
    def read(count, low, high):
        values = ", ".join(str(2 * value) for value in range(count))
        case = {"columns": "v INT", "file": f"a v {low}..{high} nulls 0"}
        return file_pruning(case | {"filter": f"v IN ({values})"})

    assert read(256, 11, 11) == "none"
    assert read(257, 11, 11) == "a"
    assert read(257, 513, 600) == "none"
    assert read(257, 512, 600) == "a"
    assert read(257, -5, -1) == "none"

    def read_without(count, low, high):
        values = ", ".join(str(2 * value) for value in range(count))
        case = {"columns": "v INT", "file": f"a v {low}..{high} nulls 0"}
        return file_pruning(case | {"filter": f"v NOT IN ({values})"})

    assert read_without(256, 12, 12) == "none"
    assert read_without(257, 12, 12) == "a"
