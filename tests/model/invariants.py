"""What is true of a table's files after every step of every history (docs/architecture.md).

Recomputed from the files with plain PyArrow and the codecs of tests/model, never by the engine.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from tests.model.column_kinds import Plain, rank
from tests.model.stored_rows import StoredType, bucket_of, decode_stored, key_hash
from tests.model.stored_table import ADD, Entry, StoredSchema, StoredTable

RETRACT_KINDS = (1, 3)


def check_invariants(table: StoredTable, *, staged: Iterable[str] = ()) -> None:
    """Assert every invariant. `staged`: files that may lie about without a root that needs them."""
    snapshots = table.snapshots()
    check_ids(table, snapshots)
    check_totals(table, snapshots)
    check_reachability(table, staged)
    for snapshot in (*snapshots.values(), *table.tags().values()):
        check_snapshot(table, snapshot)


# --- the directory as a whole ---------------------------------------------------------------------


def check_reachability(table: StoredTable, staged: Iterable[str] = ()) -> None:
    """Reachable == existing, and sizes are as said."""
    existing, reachable = table.files(), table.reachable()
    missing = sorted(reachable.keys() - existing.keys())
    assert not missing, f"named by a snapshot or tag, and not there: {missing}"
    forgotten = sorted(existing.keys() - reachable.keys() - set(staged))
    assert not forgotten, f"needed by no snapshot or tag: {forgotten}"
    sizes = {path: (existing[path], said) for path, said in reachable.items() if said is not None}
    wrong = {path: pair for path, pair in sizes.items() if pair[0] != pair[1]}
    assert not wrong, f"(size, size in the metadata): {wrong}"


def check_ids(table: StoredTable, snapshots: dict[int, dict[str, Any]]) -> None:
    """Ids have no gap and are those in the files; hints are exact; schemas exist; times ascend."""
    ids = sorted(snapshots)
    if not ids:
        return
    assert ids == list(range(ids[0], ids[-1] + 1)), f"gap in snapshot ids: {ids}"
    latest, earliest = table.hint("LATEST"), table.hint("EARLIEST")
    assert latest in (None, ids[-1]), f"LATEST says {latest}, newest is {ids[-1]}"
    assert earliest in (None, ids[0]), f"EARLIEST says {earliest}, oldest is {ids[0]}"
    schemas = table.schemas()
    for number, snapshot in snapshots.items():
        assert snapshot["id"] == number, snapshot
        assert snapshot["version"] == 3, snapshot
        assert snapshot["schemaId"] in schemas, snapshot
        assert snapshot["commitKind"] in ("APPEND", "COMPACT", "OVERWRITE"), snapshot
        assert not [name for name, value in snapshot.items() if value is None], snapshot
    times = [snapshots[number]["timeMillis"] for number in ids]
    assert times == sorted(times), f"time runs backwards: {times}"
    uuids = [snapshot["uuid"] for snapshot in snapshots.values()]
    assert len(set(uuids)) == len(uuids), f"one commit was published twice: {uuids}"


def check_totals(table: StoredTable, snapshots: dict[int, dict[str, Any]]) -> None:
    """total(n) == total(n-1) + delta(n) == rows of the live files; base(n) is the state of n-1."""
    for number, snapshot in snapshots.items():
        fact = ("total", number, snapshot["uuid"])
        before = snapshots.get(number - 1)
        if fact in table.checked or (before is None and number > 1):
            continue
        delta = sum(
            entry.rows if entry.kind == ADD else -entry.rows
            for entry in table.entries(snapshot["deltaManifestList"])
        )
        assert snapshot["deltaRecordCount"] == delta, snapshot
        total = 0 if before is None else before["totalRecordCount"]
        assert snapshot["totalRecordCount"] == total + delta, snapshot
        base = fold(table, snapshot["baseManifestList"])
        state = {} if before is None else table.live(before)
        assert base.keys() == state.keys(), f"base of {number} is not the state of {number - 1}"
        table.checked.add(fact)


def fold(table: StoredTable, manifest_list: str) -> dict[Any, Entry]:
    """The files that one list leaves standing."""
    live: dict[Any, Entry] = {}
    for entry in table.entries(manifest_list):
        if entry.kind == ADD:
            assert entry.identity not in live, f"added twice: {entry.identity}"
            live[entry.identity] = entry
        else:
            assert live.pop(entry.identity, None) is not None, f"not live: {entry.identity}"
    return live


# --- one snapshot ---------------------------------------------------------------------------------


def check_snapshot(table: StoredTable, snapshot: dict[str, Any]) -> None:
    """Levels, keys, counts, buckets and statistics of everything that a snapshot holds."""
    fact = ("snapshot", snapshot["id"], snapshot["uuid"])
    if fact in table.checked:
        return
    live = list(table.live(snapshot).values())
    for which in ("baseManifestList", "deltaManifestList"):
        for said in table.manifest_list(snapshot[which]):
            check_manifest(table, said)
    assert snapshot["totalRecordCount"] == sum(entry.rows for entry in live), snapshot
    for entry in live:
        check_data_file(table, entry)
    trees: dict[tuple[bytes, int], list[Entry]] = {}
    for entry in live:
        trees.setdefault((entry.partition, entry.bucket), []).append(entry)
    for entries in trees.values():
        check_tree(table, entries)
    counts: dict[bytes, set[int]] = {}
    for entry in live:
        if entry.bucket >= 0:  # rows that wait for a bucket are not counted
            counts.setdefault(entry.partition, set()).add(entry.total_buckets)
    check_bucket_indexes(table, snapshot, live)
    check_row_ids(table, snapshot, live)
    assert all(len(totals) == 1 for totals in counts.values()), f"bucket counts: {counts}"
    names = [(entry.partition, entry.bucket, entry.name) for entry in live]
    assert len(set(names)) == len(names), "one file is live at two levels"
    table.checked.add(fact)


def check_bucket_indexes(
    table: StoredTable, snapshot: dict[str, Any], live: Sequence[Entry]
) -> None:
    """Every key of a dynamic bucket is listed for that bucket, and for no other one."""
    listed: dict[bytes, dict[int, int]] = {}
    for entry in table.index_entries(snapshot):
        if entry["_INDEX_TYPE"] != "HASH":
            continue
        hashes = table.bucket_index(entry)
        assert len(hashes) == entry["_ROW_COUNT"], entry
        known = listed.setdefault(entry["_PARTITION"], {})
        assert len(set(hashes)) == len(hashes), f"listed twice: {entry}"
        doubled = known.keys() & hashes
        assert not doubled, f"in two buckets of one partition: {doubled}"
        known.update(dict.fromkeys(hashes, entry["_BUCKET"]))
    for entry in live:
        schema = table.schema_of(entry)
        if (
            entry.total_buckets != -1
            or not schema.primary_keys
            or not all(name in schema.primary_keys for name in schema.partition_keys)
        ):
            continue
        data = table.data(table.data_path(entry, schema))
        types = schema.types_of(schema.trimmed_key)
        for row in zip(*(data[name] for name in schema.trimmed_key), strict=True):
            where = listed.get(entry.partition, {}).get(key_hash(row, types))
            assert where == entry.bucket, f"{row} lies in {entry.bucket}, is listed in {where}"


def check_manifest(table: StoredTable, said: dict[str, Any]) -> None:
    """What a manifest list says of a manifest covers its entries."""
    fact = ("manifest", repr(said))
    if fact in table.checked:
        return
    entries = table.manifest(said["_FILE_NAME"])
    assert entries, f"empty manifest {said['_FILE_NAME']}"
    assert said["_NUM_ADDED_FILES"] == sum(entry.kind == ADD for entry in entries), said
    assert said["_NUM_DELETED_FILES"] == sum(entry.kind != ADD for entry in entries), said
    for bound, facts in (
        ("BUCKET", [e.bucket for e in entries]),
        ("LEVEL", [e.level for e in entries]),
    ):
        low, high = said.get(f"_MIN_{bound}"), said.get(f"_MAX_{bound}")
        assert low is None or low <= min(facts), said
        assert high is None or high >= max(facts), said
    total = said.get("_TOTAL_BUCKETS")
    assert total is None or {entry.total_buckets for entry in entries} == {total}, said
    schema = table.schemas()[said["_SCHEMA_ID"]]
    types = schema.types_of(schema.partition_keys)
    rows = [decode_stored(entry.partition, types) for entry in entries]
    stats = said["_PARTITION_STATS"]
    for place in range(len(types)):
        check_bounds(
            [row[place] for row in rows],
            decode_stored(stats["_MIN_VALUES"], types)[place],
            decode_stored(stats["_MAX_VALUES"], types)[place],
            f"partition column {place} of {said['_FILE_NAME']}",
        )
    table.checked.add(fact)


def check_tree(table: StoredTable, entries: Sequence[Entry]) -> None:
    """One bucket: deep levels do not overlap, and no newer row lies below an older one."""
    schema = table.schema_of(entries[0])
    if not schema.primary_keys:
        return
    ranges: dict[int, list[tuple[Any, Any, str]]] = {}
    versions: dict[Any, list[tuple[int, int]]] = {}
    for entry in entries:
        data = table.data(table.data_path(entry, schema))
        keys = key_ranks(data, schema)
        if entry.level > 0:
            ranges.setdefault(entry.level, []).append((keys[0], keys[-1], entry.name))
        for key, number in zip(keys, row_numbers(entry, data, schema), strict=True):
            versions.setdefault(key, []).append((entry.level, number))
    for level, files in ranges.items():
        for (_, end, first), (start, _, second) in pairwise(sorted(files)):
            assert end < start, f"{first} and {second} overlap at level {level}"
    for key, found in versions.items():
        by_age = sorted(found, key=lambda one: (-one[1], one[0]))
        numbers = [number for _, number in by_age]
        # Looked up and still the newest by its sequence field, a row is there once more; files of
        # one write may share keys (decisions/0013), and under a snapshot's order have one number.
        repeats = (
            "lookup" in schema.options.values()
            or "deletion-vectors.enabled" in schema.options
            or schema.options.get("sequence.snapshot-ordering") == "true"
        )
        assert repeats or len(set(numbers)) == len(numbers), f"two of {key} of one age: {found}"
        levels = [level for level, _ in by_age]
        assert levels == sorted(levels), f"a newer version of {key} lies below an older: {found}"


# --- one data file --------------------------------------------------------------------------------


def check_data_file(table: StoredTable, entry: Entry) -> None:
    """Everything that a manifest says of a file is what the file says of itself."""
    schema = table.schema_of(entry)
    path = table.data_path(entry, schema)
    facts = {name: value for name, value in entry.file.items() if name != "_LEVEL"}
    fact = ("data", path, repr(facts), entry.total_buckets)
    if fact in table.checked:
        return
    data, file = table.data(path), entry.file
    if not schema.primary_keys:
        check_append_file(path, entry, data, schema)
        table.checked.add(fact)
        return
    expected = [f"_KEY_{name}" for name in schema.trimmed_key]
    expected += ["_SEQUENCE_NUMBER", "_VALUE_KIND", *schema.types]
    assert list(data) == expected, f"columns of {path}: {list(data)}"
    count = len(data["_VALUE_KIND"])
    assert count == file["_ROW_COUNT"] > 0, (path, count)
    retracts = sum(kind in RETRACT_KINDS for kind in data["_VALUE_KIND"])
    assert file["_DELETE_ROW_COUNT"] == retracts, (path, file["_DELETE_ROW_COUNT"], retracts)
    numbers = row_numbers(entry, data, schema)
    assert (file["_MIN_SEQUENCE_NUMBER"], file["_MAX_SEQUENCE_NUMBER"]) == (
        min(numbers),
        max(numbers),
    ), path
    check_keys(path, entry, data, schema)
    for name, nullable in schema.nullable.items():
        assert nullable or None not in data[name] or retracts, f"null in {name} of {path}"
    check_stats(path, file["_KEY_STATS"], schema.trimmed_key, data, schema)
    listed = file.get("_VALUE_STATS_COLS")
    check_stats(
        path, file["_VALUE_STATS"], list(schema.types) if listed is None else listed, data, schema
    )
    table.checked.add(fact)


def row_numbers(entry: Entry, data: dict[str, list[Plain]], schema: StoredSchema) -> Sequence[int]:
    """Sequence numbers of a file's rows. Where the snapshot orders them, new files have its id."""
    ordered = schema.options.get("sequence.snapshot-ordering") == "true"
    if ordered and entry.file["_FILE_SOURCE"] == 0:
        return [entry.file["_MIN_SEQUENCE_NUMBER"]] * len(data["_SEQUENCE_NUMBER"])
    return data["_SEQUENCE_NUMBER"]


def is_tracked(schema: StoredSchema) -> bool:
    """Whether rows have ids."""
    return schema.options.get("row-tracking.enabled") == "true"


def check_row_ids(table: StoredTable, snapshot: dict[str, Any], entries: Iterable[Entry]) -> None:
    """Every id that a file gives to rows, or stores, is below the next one; ranges meet whole or not."""
    ranges: dict[tuple[int, int], int] = {}
    for entry in entries:
        schema = table.schema_of(entry)
        if not is_tracked(schema):
            continue
        first, count = entry.file.get("_FIRST_ROW_ID"), entry.file["_ROW_COUNT"]
        if first is None:
            ids = table.data(table.data_path(entry, schema))["_ROW_ID"]
            assert len(set(ids)) == len(ids), f"doubled row ids in {entry.name}"
            assert max(map(int, ids)) < snapshot["nextRowId"], entry.name  # type: ignore[arg-type]
        else:
            assert first + count <= snapshot["nextRowId"], entry.name
            ranges[first, first + count] = 1 + ranges.get((first, first + count), 0)
            evolves = schema.options.get("data-evolution.enabled") == "true"
            assert evolves or ranges[first, first + count] == 1, entry.name
    ordered = sorted(ranges)
    assert all(one[1] <= two[0] for one, two in pairwise(ordered)), f"row ids overlap: {ordered}"


def check_append_file(
    path: str, entry: Entry, data: dict[str, list[Plain]], schema: StoredSchema
) -> None:
    """A file of a table without a key: its columns, numbered rows, and nothing taken away."""
    file = entry.file
    names = file.get("_WRITE_COLS") or list(schema.types)
    assert list(data) == names, f"columns of {path}: {list(data)}"
    count = len(next(iter(data.values())))
    assert count == file["_ROW_COUNT"] > 0, (path, count)
    assert (file["_LEVEL"], file["_DELETE_ROW_COUNT"]) == (0, 0), path
    numbers = file["_MAX_SEQUENCE_NUMBER"] - file["_MIN_SEQUENCE_NUMBER"] + 1
    assert numbers == count or is_tracked(schema), path
    check_stats(path, file["_KEY_STATS"], [], data, schema)
    check_stats(path, file["_VALUE_STATS"], names, data, schema)
    bucket_names = [name for name in schema.options.get("bucket-key", "").split(",") if name]
    if set(schema.partition_keys) <= set(names):
        check_bucket_and_partition(path, entry, data, schema, bucket_names)


def check_keys(path: str, entry: Entry, data: dict[str, list[Plain]], schema: StoredSchema) -> None:
    """Rows are in key order, once each, in their own bucket and partition; bounds are exact."""
    names = schema.trimmed_key
    for name in names:
        assert data[f"_KEY_{name}"] == data[name], f"_KEY_{name} of {path}"
    keys = key_ranks(data, schema)
    assert all(one < two for one, two in pairwise(keys)), f"keys of {path} are not sorted: {keys}"
    types = schema.types_of(names)
    rows = list(zip(*(data[name] for name in names), strict=True))
    assert decode_stored(entry.file["_MIN_KEY"], types) == rows[0], path
    assert decode_stored(entry.file["_MAX_KEY"], types) == rows[-1], path
    bucket_names = [
        name for name in schema.options.get("bucket-key", "").split(",") if name
    ] or names
    check_bucket_and_partition(path, entry, data, schema, bucket_names)


def check_bucket_and_partition(
    path: str,
    entry: Entry,
    data: dict[str, list[Plain]],
    schema: StoredSchema,
    bucket_names: list[str],
) -> None:
    """Rows lie in the bucket that their hash chooses, where it does, and in their partition."""
    if entry.total_buckets > 0:
        bucket_types = schema.types_of(bucket_names)
        for row in zip(*(data[name] for name in bucket_names), strict=True):
            bucket = bucket_of(row, bucket_types, entry.total_buckets)
            assert bucket == entry.bucket, f"{row} belongs to bucket {bucket}, lies in {path}"
    partition = decode_stored(entry.partition, schema.types_of(schema.partition_keys))
    for name, value in zip(schema.partition_keys, partition, strict=True):
        assert set(map(rank, data[name])) == {rank(value)}, f"partition column {name} of {path}"


def check_stats(
    path: str,
    stats: dict[str, Any],
    names: Sequence[str],
    data: dict[str, list[Plain]],
    schema: StoredSchema,
) -> None:
    """No value lies outside of the bounds, and null counts are exact where they are given."""
    types: list[StoredType] = schema.types_of(list(names))
    lows = decode_stored(stats["_MIN_VALUES"], types)
    highs = decode_stored(stats["_MAX_VALUES"], types)
    nulls = stats["_NULL_COUNTS"]
    assert nulls is not None, f"no null counts in {path}"
    assert len(nulls) == len(names), (path, nulls)
    for name, low, high, null_count in zip(names, lows, highs, nulls, strict=True):
        check_bounds(data[name], low, high, f"column {name} of {path}")
        assert null_count in (None, data[name].count(None)), f"nulls of {name} in {path}"


def check_bounds(values: Sequence[Plain], low: Plain, high: Plain, what: str) -> None:
    """A bound that is given lies on its side of every value; NaN alone may lie outside."""
    known = [value for value in values if value is not None and value == value]
    assert (low is None) == (high is None), f"only one bound of {what}: {low!r}, {high!r}"
    if low is not None and known:
        assert rank(low) <= min(map(rank, known)), f"minimum of {what}: {low!r}"
        assert rank(high) >= max(map(rank, known)), f"maximum of {what}: {high!r}"


def key_ranks(data: dict[str, list[Plain]], schema: StoredSchema) -> list[tuple[Any, ...]]:
    """The keys of a file's rows, comparable."""
    columns = [data[name] for name in schema.trimmed_key]
    return [tuple(rank(value) for value in row) for row in zip(*columns, strict=True)]
