"""Full compactions copy row groups that no other run overlaps, and nothing that may not stay as it is."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.data_files.writer import DataFileWriter

BLOCKS = {"bucket": "1", "write-only": "true", "file.block-size": "256 kb"}


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the row groups that are copied."""
    found: list[int] = []
    copy = DataFileWriter.copy

    def noted(self: DataFileWriter, groups: object, number: int) -> None:
        found.append(number)
        copy(self, groups, number)  # type: ignore[arg-type]

    monkeypatch.setattr(DataFileWriter, "copy", noted)
    return found


def made(
    folder: Path,
    *,
    key: Sequence[str] = ("k",),
    options: Mapping[str, str] | None = None,
    like: pa.Table | None = None,
) -> lsm.Table:
    catalog = lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder))
    schema = (rows([0]) if like is None else like).schema
    return catalog.create_table(
        "db.t", schema, primary_key=list(key), options={**BLOCKS, **(options or {})}
    )


def rows(keys: Sequence[int], mark: str = "a", value: float = 1.5) -> pa.Table:
    numbers = np.asarray(keys, np.int64)
    return pa.table(
        {
            "k": numbers,
            "a.b": pa.array([f"{mark}{number % 7}" for number in numbers.tolist()]),
            "x": pa.array(np.full(len(numbers), value)),
            "ms": pa.array(numbers, pa.timestamp("ms")),
            "ns": pa.array(numbers, pa.timestamp("ns")),
        }
    )


def by_key(table: lsm.Table, key: str = "k") -> pa.Table:
    return table.to_arrow().sort_by(key)


def files_of(table: lsm.Table) -> list[pq.FileMetaData]:
    files = [file for split in table.scan().splits() for file in split.files]
    return [pq.read_metadata(f"{table.location}/bucket-0/{file.file_name}") for file in files]


def compacted(table: lsm.Table, key: str = "k") -> pa.Table:
    """The rows of a table, which are the same after its compaction as before, and verified."""
    before = by_key(table, key)
    table.compact(full=True)
    after = by_key(table, key)
    assert after.equals(before)
    assert table.verify(deep=True).is_clean
    return after


def test_only_row_groups_around_clustered_updates_are_encoded(
    tmp_path: Path, copies: list[int]
) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(0, 60_000, 2)))
    table.upsert(rows(range(30_000, 30_200), "new"))
    groups = files_of(table)[0].num_row_groups
    found = compacted(table)
    assert found.num_rows == 30_100
    assert groups > 5
    assert len(copies) == groups - 1
    assert copies == sorted(copies)


def test_growing_keys_are_copied_and_small_runs_join_their_neighbours(
    tmp_path: Path, copies: list[int]
) -> None:
    table = made(tmp_path)
    for start, count in ((0, 20_000), (20_000, 30), (20_030, 20_000), (50_000, 7)):
        table.upsert(rows(range(start, start + count)))
    compacted(table)
    (whole,) = files_of(table)
    sizes = [whole.row_group(at).num_rows for at in range(whole.num_row_groups)]
    assert copies
    assert sum(size < 1_000 for size in sizes) == 1, (
        sizes
    )  # what came last, and nothing in the middle


def test_keys_of_several_columns_stay_in_order(tmp_path: Path, copies: list[int]) -> None:
    numbers = np.arange(40_000)
    first = pa.table(
        {
            "name": pa.array([f"{n // 100:04}" for n in numbers.tolist()]),
            "part": pa.array(numbers),
            "v": pa.array(numbers * 2),
        }
    )
    table = made(tmp_path, key=("name", "part"), like=first)
    table.upsert(first)
    table.upsert(first.slice(20_100, 50).set_column(2, "v", pa.array(np.zeros(50, np.int64))))
    compacted(table, "part")
    assert copies
    path = next(Path(table.location).rglob("data-*-0.parquet"))
    assert path.exists()
    (live,) = (file for split in table.scan().splits() for file in split.files)
    stored = pq.read_table(f"{table.location}/bucket-0/{live.file_name}", columns=["part"])
    assert stored["part"].to_pylist() == sorted(stored["part"].to_pylist())


def test_a_file_with_deletes_is_merged_and_loses_them(tmp_path: Path, copies: list[int]) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(20_000)))
    table.delete(rows([5]).select(["k"]))
    table.compact()  # nothing to do while write-only
    table.upsert(rows(range(30_000, 50_000)))
    table.delete(rows([40_000]).select(["k"]))
    assert compacted(table).num_rows == 39_998
    kinds = [
        pq.read_table(f"{table.location}/bucket-0/{file.file_name}", columns=["_VALUE_KIND"])
        for split in table.scan().splits()
        for file in split.files
    ]
    assert not any(any(some["_VALUE_KIND"].to_pylist()) for some in kinds)
    assert copies


def test_not_a_number_leaves_a_copied_column_without_bounds(
    tmp_path: Path, copies: list[int]
) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(20_000), value=math.nan))
    table.upsert(rows(range(20_000, 40_000)))
    table.compact(full=True)
    assert copies
    assert table.count("x > 100") == table.to_arrow().filter(pa.compute.field("x") > 100).num_rows
    assert table.verify(deep=True).is_clean


@pytest.mark.parametrize(
    "options",
    [
        {"compaction.force-rewrite-all-files": "true"},
        {"index.type": "bloom"},
        {"file.compression.per.level": "5:none"},
        {"file.format": "orc"},
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "full-compaction"},
        {"record-level.expire-time": "1 d", "record-level.time-field": "ms"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_where_rows_do_not_stay_as_they_are_none_is_copied(
    tmp_path: Path, copies: list[int], options: dict[str, str]
) -> None:
    table = made(tmp_path, options=options)
    table.upsert(rows(range(20_000)))
    table.upsert(rows(range(20_000, 40_000)))
    table.compact(full=True)
    assert copies == []


def test_a_damaged_file_is_not_copied(tmp_path: Path, copies: list[int]) -> None:
    table = made(tmp_path, options={"parquet.page-checksum": "false"})
    table.upsert(rows(range(20_000)))
    table.upsert(rows(range(20_000, 40_000)))
    damaged = max(Path(table.location).rglob("data-*.parquet"))
    bytes_of = bytearray(damaged.read_bytes())
    bytes_of[len(bytes_of) // 2] ^= 1
    damaged.write_bytes(bytes_of)
    before = table.latest_snapshot().id
    with pytest.raises(lsm.CorruptFileError, match=damaged.name):
        table.compact(full=True)
    assert table.latest_snapshot().id == before


def test_a_file_of_an_older_schema_is_read_and_written(tmp_path: Path, copies: list[int]) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(20_000)))
    table.alter(lsm.AddColumn("y", "INT"))
    table.upsert(rows(range(20_000, 40_000)))
    compacted(table)
    assert copies
    assert {file.schema_id for split in table.scan().splits() for file in split.files} == {1}


def test_a_file_with_copied_row_groups_is_restored_from_what_was_compacted(
    tmp_path: Path, copies: list[int]
) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(0, 60_000, 2)))
    table.upsert(rows(range(30_000, 30_200), "new"))
    before = compacted(table)
    (live,) = (file for split in table.scan().splits() for file in split.files)
    path = Path(table.location, "bucket-0", live.file_name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + b"?" + whole[-8:])
    assert not table.verify(deep=True).is_clean
    table.restore_files(dry_run=False)
    assert path.read_bytes() == whole
    assert by_key(table).equals(before)
    assert copies


@cache
def many_columns(keys: range, *, nan_at: int | None = None, text: int = 8) -> pa.Table:
    numbers = np.arange(keys.start, keys.stop)
    random = np.random.default_rng(keys.start)
    tails = [random.bytes(text // 2 - 4) for _ in numbers]
    doubles = numbers / 3.0
    if nan_at is not None:
        doubles[nan_at - keys.start] = math.nan
    return pa.table(
        {
            "k": pa.array(numbers),
            "t": pa.array(
                [
                    f"{n:08}" + tail.hex()[: text - 8]
                    for n, tail in zip(numbers.tolist(), tails, strict=True)
                ]
            ),
            "x": pa.array(doubles),
            "y": pa.array(np.where(numbers % 2, -0.0, 0.0)),
            "z": pa.array(numbers / 7.0, mask=numbers % 3 == 0),
            "nothing": pa.nulls(len(numbers), pa.float32()),
            "d": pa.array(numbers.astype(np.int32), pa.date32()),
            "m": pa.array(numbers).cast(pa.decimal128(25, 2)),
        }
    )


KEYS = (("k",), ("t",), ("d",), ("t", "k"))
SHAPES: dict[str, tuple[int | None, int, dict[str, str]]] = {
    "plain": (None, 8, {}),
    "nan": (20_500, 8, {}),
    "long text": (None, 5_000, {"file.block-size": "2 mb"}),
    "no statistics": (None, 8, {"metadata.stats-mode": "none"}),
    "cut": (3, 8, {"metadata.stats-mode": "truncate(4)"}),
    "counts": (None, 8, {"metadata.stats-mode": "counts", "fields.x.stats-mode": "full"}),
}
IN_CI = {
    "plain": ("t-k",),
    "nan": ("d",),
    "long text": ("k", "t"),
    "no statistics": ("k",),
    "cut": ("t-k",),
    "counts": ("t",),
}
"""Each key and each shape; all pairs with `-m sweep`."""


@pytest.mark.parametrize(
    ("key", "nan_at", "text", "options"),
    [
        pytest.param(
            key,
            *SHAPES[shape],
            id=f"{shape}-{'-'.join(key)}",
            marks=() if "-".join(key) in IN_CI[shape] else pytest.mark.sweep,
        )
        for shape in SHAPES
        for key in KEYS
    ],
)
def test_a_copied_file_has_the_facts_of_one_that_is_encoded(
    tmp_path: Path,
    copies: list[int],
    monkeypatch: pytest.MonkeyPatch,
    key: Sequence[str],
    nan_at: int | None,
    text: int,
    options: Mapping[str, str],
) -> None:
    found = []
    each = 1_000 if text > 8 else 20_000
    for number, copying in enumerate((True, False)):
        if not copying:
            monkeypatch.setattr(DataFileWriter, "takes_copies", False)
        runs = [
            many_columns(range(start, start + each), nan_at=nan_at, text=text)
            if nan_at is not None and start <= nan_at < start + each
            else many_columns(range(start, start + each), text=text)
            for start in (0, each, 2 * each)
        ]
        table = made(tmp_path / str(number), key=key, options=options, like=runs[0])
        for run in runs:
            table.upsert(run)
        before = len(copies)
        table.compact(full=True)
        has_bounds = text <= 4_096 or key[0] != "t"  # a footer keeps no longer ones
        assert (len(copies) > before) == (copying and has_bounds)
        assert table.verify(deep=True).is_clean
        files = [file for split in table.scan().splits() for file in split.files]
        found.append(
            [
                (
                    *(f.row_count, f.delete_row_count, f.min_key, f.max_key, f.key_stats),
                    *(f.value_stats, f.min_sequence_number, f.max_sequence_number, f.level),
                )
                for f in files
            ]
        )
    assert found[0] == found[1]
