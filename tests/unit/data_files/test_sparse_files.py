"""A metadata file that pretends to be huge is refused by name, without being read to its end."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.metadata import manifests
from lsm_engine.storage.local import LocalFileIO

HUGE = 3 << 30


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> lsm.Table:
    monkeypatch.setattr(manifests, "BYTES_MAX", READ_MAX)  # less memory for a test
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder / "lake")) as catalog:
        table = catalog.create_table(
            "db.t",
            pa.schema([("id", pa.int64())]),
            primary_key=["id"],
            options={"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
        )
    table.upsert([{"id": number} for number in range(5)])
    table.create_tag("kept")
    table.reset_consumer("reader", 1)
    return table


READERS: dict[str, Callable[[lsm.Table], object]] = {
    "schema/schema-0": lambda table: lsm.open_table(table.location),
    "snapshot/snapshot-1": lambda table: lsm.open_table(table.location).scan().to_arrow(),
    "tag/tag-kept": lambda table: lsm.open_table(table.location).scan(tag="kept").to_arrow(),
    "consumer/consumer-reader": lambda table: lsm.open_table(table.location).consumers(),
    "manifest/manifest-list-*-0": lambda table: lsm.open_table(table.location).scan().to_arrow(),
    "manifest/manifest-list-*-1": lambda table: lsm.open_table(table.location).scan().to_arrow(),
    "manifest/manifest-*": lambda table: lsm.open_table(table.location).scan().to_arrow(),
    "manifest/index-manifest-*": lambda table: lsm.open_table(table.location).upsert([{"id": 9}]),
    "index/index-*": lambda table: lsm.open_table(table.location).upsert([{"id": 9}]),
}


@pytest.mark.parametrize("pattern", sorted(READERS))
def test_a_sparse_file_is_refused_without_reading_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    table = made(tmp_path, monkeypatch)
    found = sorted(
        path
        for path in Path(table.location).glob(pattern)
        if pattern.startswith("manifest/manifest-list") or "manifest-list" not in path.name
    )
    assert found
    for path in found:
        with path.open("ab") as file:
            file.truncate(HUGE)
    most = []
    reading = LocalFileIO.read

    def counted(disk: LocalFileIO, *args: object, **kwargs: object) -> bytes:
        data = reading(disk, *args, **kwargs)  # type: ignore[arg-type]
        most.append(len(data))
        return data

    monkeypatch.setattr(LocalFileIO, "read", counted)
    with pytest.raises(lsm.CorruptFileError) as caught:
        READERS[pattern](table)
    assert any(path.name in str(caught.value) for path in found)
    assert max(most) <= READ_MAX + 1


def test_a_sparse_hint_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, monkeypatch)
    for hint in ("LATEST", "EARLIEST"):
        with (Path(table.location) / "snapshot" / hint).open("ab") as file:
            file.truncate(HUGE)
    assert lsm.open_table(table.location).scan().to_arrow().num_rows == 5


def test_a_small_file_is_read_with_a_generous_limit_at_once(tmp_path: Path) -> None:
    disk = LocalFileIO(str(tmp_path))
    disk.write_new("a", b"x" * 100)
    assert disk.read("a", length=READ_MAX) == b"x" * 100
    disk.write_new("b", b"y" * (40 << 20))
    assert len(disk.read("b", length=33 << 20)) == 33 << 20
