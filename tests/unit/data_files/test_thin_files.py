"""`data-file.thin-mode`: files without a second copy of the key hold, and answer, what others do."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from tests.bench.tables import new_table

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.int64()), ("u", pa.string()), ("v", pa.int64())])
KEY = ("p", "k", "u")
KINDS: dict[str, dict[str, str]] = {
    "parquet": {},
    "orc": {"file.format": "orc"},
    "avro": {"file.format": "avro"},
    "bloom": {"index.type": "bloom"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "changelog": {"changelog-producer": "lookup"},
    "input": {"changelog-producer": "input"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "sequence": {"sequence.field": "v"},
    "full statistics": {"metadata.stats-mode": "full"},
}


def rows(seed: int, count: int = 600) -> pa.Table:
    chance = np.random.default_rng(seed)
    keys = chance.choice(2_000, count, replace=False)
    columns = [[f"p{key % 2}" for key in keys], keys, [f"u{key}" for key in keys]]
    return pa.table([*columns, chance.integers(0, 99, count)], schema=SCHEMA)


def made(folder: Path, *, thin: bool, **options: str) -> lsm.Table:
    options = {"bucket": "2", "data-file.thin-mode": str(thin).lower(), **options}
    table = new_table(folder, SCHEMA, key=KEY, options=options, partitioned_by=("p",))
    for seed in range(4):
        table.upsert(rows(seed))
    if "merge-engine" not in options:
        table.delete(rows(0).slice(0, 50).select(KEY))
    return table


def answers(table: lsm.Table) -> list[list[dict[str, object]]]:
    keys = rows(1).slice(0, 40).select(KEY)
    found = [
        table.to_arrow(),
        table.to_arrow(where="k = 17 or k > 1900"),
        table.lookup(keys),
        table.locate(keys).select(["action", "partition", "bucket"]),
    ]
    return [sorted(one.to_pylist(), key=str) for one in found]


@pytest.mark.parametrize("kind", KINDS)
def test_thin_files_answer_as_others(kind: str, tmp_path: Path) -> None:
    options = KINDS[kind]
    thin = made(tmp_path / "thin", thin=True, **options)
    other = made(tmp_path / "other", thin=False, **options)
    for _ in range(2):
        assert answers(thin) == answers(other)
        assert thin.verify().is_clean
        thin.compact(full=True)
        other.compact(full=True)
    ends = [
        [(entry.file.min_key, entry.file.max_key, entry.file.key_stats) for entry in live(table)]
        for table in (thin, other)
    ]
    assert ends[0] == ends[1]


def live(table: lsm.Table) -> list[object]:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    entries = table.session.live_entries(snapshot)
    return sorted(entries, key=lambda one: (one.partition, one.bucket, one.file.min_key))


def columns_of(table: lsm.Table) -> set[tuple[str, ...]]:
    files = Path(table.location).rglob("data-*.parquet")
    return {tuple(pq.read_schema(path).names) for path in files}


def test_the_mode_is_changed_at_any_time(tmp_path: Path) -> None:
    table = made(tmp_path, thin=False, **{"write-only": "true"})
    fat = ("_KEY_k", "_KEY_u", "_SEQUENCE_NUMBER", "_VALUE_KIND", *SCHEMA.names)
    table.upsert(rows(3))
    assert columns_of(table) == {fat}
    before = answers(table)
    table.alter(lsm.SetOption(key="data-file.thin-mode", value="true"))
    table.upsert(rows(3))
    assert columns_of(table) == {fat, fat[2:]}
    assert answers(table)[0] == before[0]
    table.compact(full=True)
    kept = {entry.file.file_name for entry in live(table)}
    newest = [path for path in Path(table.location).rglob("data-*") if path.name in kept]
    assert {tuple(pq.read_schema(path).names) for path in newest} == {fat[2:]}
    assert answers(table)[0] == before[0]
