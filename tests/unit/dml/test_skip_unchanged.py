"""`write.skip-unchanged`: what is stored already is left out, bucket by bucket; nothing else is."""

import math
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.dml import write

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        ("x", pa.float64()),
        ("name", pa.string()),
    ]
)


def create(tmp_path: Path, name: str = "shop.orders", **options: str) -> lsm.Table:
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    return catalog.create_table(
        name,
        SCHEMA,
        primary_key=["id", "day"],
        partitioned_by=["day"],
        options={"bucket": "1", "write.skip-unchanged": "true", **options},
    )


def rows(*days: int, x: float | None = 1.5, name: str | None = "a") -> pa.Table:
    columns = {
        "id": [1, 2] * len(days),
        "day": [date(2024, 1, day) for day in days for _ in range(2)],
        "x": [x, None] * len(days),
        "name": [name, "b"] * len(days),
    }
    return pa.table(columns, schema=SCHEMA)


def files(tmp_path: Path) -> set[Path]:
    return {path for path in tmp_path.rglob("data-*") if path.is_file()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "input"},
        {"bucket": "-1"},
        {"write-buffer-spillable": "false", "write-buffer-size": "1 b"},
        {"sequence.field": "x"},
    ],
)
def test_a_load_that_changes_nothing_commits_nothing(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = create(tmp_path, **options)
    table.upsert(rows(1, 2, x=math.nan, name=None))
    before, kept = table.latest_snapshot(), files(tmp_path)
    assert table.upsert(rows(1, 2, x=math.nan, name=None)) is None
    assert table.delete(pa.table({"id": [7], "day": [date(2024, 1, 1)]})) is None
    assert table.latest_snapshot() == before
    assert files(tmp_path) == kept


@pytest.mark.parametrize(
    "change",
    [{"x": 1.0}, {"x": None}, {"name": "c"}, {"name": None}, {"x": -1.5}, {"name": ""}],
)
def test_whatever_differs_is_committed(tmp_path: Path, change: dict[str, object]) -> None:
    table = create(tmp_path)
    table.upsert(rows(1))
    made = table.upsert(rows(1, **change))
    assert made is not None
    assert made.id == 2
    assert rows(1, **change).equals(table.scan().to_arrow().sort_by("id"), check_metadata=False)


def test_only_the_buckets_that_change_are_in_the_commit(tmp_path: Path) -> None:
    table = create(tmp_path, **{"write-only": "true"})
    table.upsert(rows(1, 2, 3))
    changed = pa.concat_tables([rows(1), rows(2, name="c"), rows(3)])
    made = table.upsert(changed)
    assert made is not None
    paths = {table.partition_path({"day": date(2024, 1, 2)})}
    assert table.changed_partitions(made.id) == paths
    assert table.scan().count() == 6


def test_a_key_that_comes_and_goes_in_one_load_is_judged_by_its_last_row(tmp_path: Path) -> None:
    table = create(tmp_path, **{"write-buffer-spillable": "false", "write-buffer-size": "1 b"})
    table.upsert(rows(1))
    table.upsert(pa.concat_tables([rows(1, name="z"), rows(1)]))
    names = table.scan().to_arrow().sort_by("id").column("name").to_pylist()
    assert names == ["a", "b"]


def test_a_stream_is_left_out_whole_or_not_at_all(tmp_path: Path) -> None:
    table = create(tmp_path, **{"write-only": "true"})
    table.upsert(rows(1, 2))
    assert table.upsert(rows(1, 2).to_reader()) is None
    made = table.upsert(pa.concat_tables([rows(1), rows(2, name="c")]).to_reader())
    assert made is not None
    changed = table.changed_partitions(made.id)
    assert changed is not None
    assert len(changed) == 2


def test_a_replay_returns_what_the_first_try_made(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = table.upsert(rows(1), commit_user="u", commit_identifier=1)
    again = table.upsert(rows(1), commit_user="u", commit_identifier=1)
    assert first is not None
    assert again is not None
    assert again.id == first.id


def test_a_bucket_left_out_that_others_change_meanwhile_is_written_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, **{"write-only": "true"})
    table.upsert(rows(1, 2))
    look, looks = write.changed_messages, []

    def looked(*state: object) -> object:
        found = look(*state)
        looks.append(len(found))
        if len(looks) == 1:
            table.upsert(rows(1, name="theirs"))
        return found

    monkeypatch.setattr(write, "changed_messages", looked)
    made = table.upsert(pa.concat_tables([rows(1), rows(2, name="ours")]))
    assert made is not None
    assert looks == [1, 1, 2]  # ours, theirs, ours on top of theirs
    names = table.scan().to_arrow().sort_by([("day", "ascending"), ("id", "ascending")])
    assert names.column("name").to_pylist() == ["a", "b", "ours", "b"]


def test_keys_across_partitions_are_moved_and_left_alone(tmp_path: Path) -> None:
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    options = {"bucket": "-1", "write.skip-unchanged": "true"}
    table = catalog.create_table(
        "shop.moves", SCHEMA, primary_key=["id"], partitioned_by=["day"], options=options
    )
    table.upsert(rows(1))
    assert table.upsert(rows(1)) is None
    assert table.upsert(rows(2)) is not None
    assert set(table.scan().to_arrow().column("day").to_pylist()) == {date(2024, 1, 2)}


def test_engines_that_combine_rows_refuse_it(tmp_path: Path) -> None:
    with pytest.raises(lsm.InvalidOptionError, match="skip-unchanged"):
        create(tmp_path, **{"merge-engine": "first-row"})
