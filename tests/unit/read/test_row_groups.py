"""Filters leave row groups unread, and never change the answer."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.data_files.reader import DataFileReader
from lsm_engine.options.table_options import TableOptions
from lsm_engine.read.merge import MergeLimits
from tests.shapes import files

COUNT = 20_000
WHERE = [
    pc.field("k") == 7_777,
    pc.field("k").isin([3, 19_999, 50_000]),
    (pc.field("k") > 4_000) & (pc.field("k") <= 4_010),
    ~(pc.field("k") < 19_900),
    pc.field("n") == 1_000_003,
    pc.field("n").is_null(),
    (pc.field("k") < 100) & (pc.field("n") > 1_000_000),
    (pc.field("k") < 100) | (pc.field("x") > 1e6),
    pc.field("x") != 0.5,
    ~(pc.field("x") <= 1e9),
    pc.is_nan(pc.field("x")),
    pc.field("s") == "text 12345",
    pc.field("k") < 0,
]


def rows(keys: np.ndarray, shift: int) -> pa.Table:
    numbers = [None if key % 1000 == 1 else int(key) + shift for key in keys]
    doubles = np.where(keys % 5000 == 2, np.nan, keys / 2)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "n": pa.array(numbers, pa.int64()),
            "x": pa.array(doubles, pa.float64()),
            "s": pa.array([f"text {key}" for key in keys]),
        }
    )


@pytest.fixture(scope="module")
def merged_and_compacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[lsm.Table, lsm.Table]:
    """The same rows in two overlapping runs, and in one; many row groups to a file."""
    folder = tmp_path_factory.mktemp("groups")
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder)) as catalog:
        tables = []
        for name in ("db.merged", "db.compacted"):
            table = catalog.create_table(
                name,
                rows(np.arange(1), 0).schema,
                primary_key=["k"],
                options={"write-only": "true", "file.block-size": "40 kb"},
            )
            table.upsert(rows(np.arange(COUNT), 0))
            table.upsert(rows(np.arange(0, COUNT, 3), 1_000_000))
            table.delete(pa.table({"k": pa.array([7_777, 4_005], pa.int64())}))
            tables.append(table)
        tables[1].compact(full=True)
    return tables[0], tables[1]


@pytest.mark.parametrize("where", WHERE, ids=str)
def test_answers_are_those_of_a_full_scan(
    where: pc.Expression, merged_and_compacted: tuple[lsm.Table, lsm.Table]
) -> None:
    for table in merged_and_compacted:
        wanted = table.scan().to_arrow().filter(where).to_pylist()
        got = table.scan(where=where)
        assert repr(got.to_arrow().to_pylist()) == repr(wanted)  # by text, as NaN is not itself
        assert got.count() == len(wanted)


def test_only_matching_row_groups_are_decoded(
    merged_and_compacted: tuple[lsm.Table, lsm.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: set[tuple[str, int]] = set()
    read = DataFileReader._read_row_group

    def counted(reader: DataFileReader, group: int, *some: Any) -> pa.Table:
        decoded.add((reader.path, group))
        return read(reader, group, *some)

    monkeypatch.setattr(DataFileReader, "_read_row_group", counted)

    def groups(table: lsm.Table, where: pc.Expression | None) -> int:
        decoded.clear()
        table.scan(where=where).to_arrow()
        return len(decoded)

    merged, compacted = merged_and_compacted
    assert groups(compacted, None) > 8
    # A range: rows of a whole key may be looked up by now, as earlier scans were.
    assert groups(compacted, (pc.field("k") > 4_999) & (pc.field("k") < 5_001)) == 1
    assert groups(compacted, pc.field("s") == "missing") == 0
    assert groups(merged, None) > 8
    assert groups(merged, (pc.field("k") > 9_998) & (pc.field("k") < 10_000)) == 2
    # A run's old rows of a value must be read: they may hide a newer row that has another.
    assert groups(merged, pc.field("n") == -1) in (0, groups(merged, None))


@pytest.mark.parametrize(
    ("runs", "options", "spills"),
    [
        ("L0:100 " * 9, {}, False),
        ("L0:100 " * 12, {}, False),
        ("L0:100 " * 12, {"write-buffer-size": "1 kb", "sort-spill-buffer-size": "1 kb"}, True),
        ("L0:100 " * 12, {"sort-spill-threshold": "4", "sort-spill-buffer-size": "1 kb"}, True),
        ("L0:100 " * 12, {"sort-spill-threshold": "20", "sort-spill-buffer-size": "1 kb"}, False),
    ],
)
def test_runs_spill_when_they_are_many_and_large(
    runs: str, options: dict[str, str], *, spills: bool
) -> None:
    section = tuple((file,) for file in files(runs))
    assert MergeLimits.from_options(TableOptions(texts=options), section).spills == spills
