"""Tables of other clients whose data files lie outside of the table's directory (`data-file.external-paths`)."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.commit.commit import commit_snapshot
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest_file import decode_manifest, encode_manifest, entries_of
from tests.bench.tables import new_table
from tests.foreign_documents import forget_checksums

OPTION = "data-file.external-paths"
SCHEMA = pa.schema([("k", pa.int64()), ("day", pa.string()), ("v", pa.string())])
OPTIONS = {
    "bucket": "1", "deletion-vectors.enabled": "true", "changelog-producer": "lookup",
    "file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b",
}  # fmt: skip
Place = Callable[[str, DataFileMeta], str]


def written(tmp_path: Path) -> lsm.Table:
    table = new_table(
        tmp_path / "w", SCHEMA, key=("k", "day"), partitioned_by=("day",), options=OPTIONS
    )
    for value in "ab":
        table.upsert([{"k": key, "day": f"d{key % 2}", "v": value} for key in range(4)])
    table.upsert([{"k": 9, "day": "d1", "v": "c"}])
    return table


def move_outside(table: lsm.Table, outside: Path) -> lsm.Table:
    """Move the buckets as another client might have written them, and open the table again."""
    for partition in Path(table.location).glob("day=*"):
        partition.rename(outside / partition.name)
    return name_outside(table, outside)


def name_outside(table: lsm.Table, outside: Path, place: Place | None = None) -> lsm.Table:
    """Have the manifests name files outside of the table."""
    disk, context = table.session.file_io, table.session.context()
    forget_checksums(disk)
    for status in disk.list("manifest"):
        if not status.name.startswith("manifest-") or "list" in status.name:
            continue
        entries = entries_of(decode_manifest(disk.read(status.path), file_name=status.path))
        moved = []
        for entry in entries:
            directory = context.bucket_directory(entry.partition, entry.bucket)
            path = f"file:{outside}/{directory}/{entry.file.file_name}"
            external = path if place is None else place(path, entry.file)
            moved.append(replace(entry, file=replace(entry.file, external_path=external)))
        disk.replace(status.path, encode_manifest(moved))
    stored = json.loads(disk.read("schema/schema-0"))
    stored["options"][OPTION] = f"file://{outside}"
    disk.replace("schema/schema-0", json.dumps(stored).encode())
    return lsm.open_table(table.location)


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files but the catalog's database, whose log comes and goes with its connections."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("catalog.db")
    }


def test_every_read_finds_the_files_and_no_write_touches_them(tmp_path: Path) -> None:
    table = written(tmp_path)
    rows = table.scan().to_arrow().sort_by("k")
    changes = table.changes(after=0).to_arrow()
    versions = table.inspect.explain_key({"k": 1, "day": "d1"}).versions
    (outside := tmp_path / "outside").mkdir()
    table = move_outside(table, outside)
    assert table.scan().to_arrow().sort_by("k") == rows
    assert table.scan(where="v = 'c'").to_arrow().column("k").to_pylist() == [9]
    assert table.lookup([{"k": 9, "day": "d1"}]).column("v").to_pylist() == ["c"]
    assert table.changes(after=0).to_arrow() == changes
    assert table.inspect.explain_key({"k": 1, "day": "d1"}).versions == versions
    paths = table.inspect.files().column("file_path").to_pylist()
    assert paths
    assert all(Path(path.removeprefix("file:")).is_relative_to(outside) for path in paths)
    assert table.inspect.explain_file(paths[0]).is_stored
    assert table.maintenance.verify(deep=True).problems == ()
    before = contents(tmp_path)
    refused: list[Callable[[], Any]] = [
        lambda: table.upsert([{"k": 1, "day": "d1", "v": "z"}]),
        lambda: table.delete(where="k = 1"),
        lambda: table.compact(full=True),
        lambda: table.maintenance.expire(retain_max=1, retain_min=1, older_than="0 s"),
        lambda: table.maintenance.remove_orphan_files(older_than="0 s", force=True),
        lambda: table.maintenance.forget([{"k": 1, "day": "d1"}], dry_run=False),
        lambda: table.rollback_to(1),
        lambda: lsm.open_catalog(tmp_path / "w").drop_table("bench.t"),
    ]
    for verb in refused:
        with pytest.raises(lsm.UnsupportedError, match=OPTION):
            verb()
    assert contents(tmp_path) == before
    index = next(outside.rglob("*.index"))
    index.unlink()
    problems = table.maintenance.verify().problems
    assert problems
    assert all(f"{index} is missing" in problem for problem in problems)


def test_without_the_option_the_files_are_refused_by_name(tmp_path: Path) -> None:
    """Who may write the table would leave them behind."""
    table = move_outside(written(tmp_path), tmp_path)
    table.alter(lsm.RemoveOption(OPTION))
    with pytest.raises(lsm.UnsupportedError, match=f"files outside the table.*{OPTION}"):
        lsm.open_table(table.location).scan().to_arrow()


WRONG_PLACES: dict[str, Place] = {
    "of another bucket": lambda path, file: path.replace("bucket-0", "bucket-1"),
    "below the bucket": lambda path, file: path.replace("bucket-0/", "bucket-0/x/"),
    "of another name": lambda path, file: path.replace("data-", "x-").replace("changelog-", "x-"),
    "not absolute": lambda path, file: path.removeprefix("file:/"),
    "of a parent": lambda path, file: f"../day=d0/bucket-0/{file.file_name}",
}


def test_a_manifest_leads_to_no_other_file(tmp_path: Path) -> None:
    table = move_outside(written(tmp_path), tmp_path)
    for wrong, place in WRONG_PLACES.items():
        misled = name_outside(table, tmp_path, place)
        with pytest.raises(lsm.UnsafePathError, match="outside of the table"):
            raise AssertionError(f"{wrong}: {misled.scan().to_arrow()}")
    assert name_outside(table, tmp_path).scan().count() == 5


def test_a_snapshot_of_a_client_is_published_if_its_files_outside_are_there(tmp_path: Path) -> None:
    table = move_outside(written(tmp_path), tmp_path)
    disk, paths, newest = table.session.file_io, table.session.paths, table.latest_snapshot()
    assert newest is not None
    (*_, entry) = table.session.list_entries(newest, newest.delta_manifest_list)
    file = Path(table.session.data_path(entry).removeprefix("file:"))
    content = file.read_bytes()

    def handed_in() -> bool:
        disk.delete(paths.snapshot_file(newest.id))
        disk.delete(paths.snapshot_hint("LATEST"))
        return commit_snapshot(lsm.open_table(table.location).session, newest)

    file.unlink()
    with pytest.raises(lsm.CommitConflictError, match="files that the snapshot names are missing"):
        handed_in()
    file.write_bytes(content)
    assert handed_in()
    assert lsm.open_table(table.location).scan().count() == 5


def test_iceberg_metadata_lags_and_names_the_file_that_lies_outside(tmp_path: Path) -> None:
    options = {"metadata.iceberg.storage": "table-location"}
    table = new_table(tmp_path / "w", SCHEMA, key=(), partitioned_by=("day",), options=options)
    table.append([{"k": 1, "day": "d1", "v": "a"}])
    assert table.inspect.iceberg().problem is None
    outside = tmp_path / "outside"
    outside.mkdir()
    table = move_outside(table, outside)
    problem = table.inspect.iceberg().problem
    assert problem is not None
    assert "lies outside of the table" in problem
    with pytest.raises(lsm.UnsupportedError, match="lies outside of the table"):
        table.maintenance.sync_iceberg(rebuild=True)
    assert table.to_arrow().num_rows == 1
