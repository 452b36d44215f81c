"""Tables whose buckets lie in a directory of their own (`data-file.path-directory`)."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.bench.tables import new_table

SCHEMA = pa.schema([("k", pa.int64()), ("day", pa.string()), ("v", pa.string())])
OPTIONS = {
    "bucket": "1", "data-file.path-directory": "data/files/", "deletion-vectors.enabled": "true",
    "changelog-producer": "lookup", "file-index.bitmap.columns": "v",
    "file-index.in-manifest-threshold": "1 b",
}  # fmt: skip


def rows(value: str, *keys: int) -> list[dict[str, object]]:
    return [{"k": key, "day": f"d{key % 2}", "v": value} for key in keys]


def test_every_file_of_rows_lies_in_the_directory_and_maintenance_finds_it(tmp_path: Path) -> None:
    table = new_table(tmp_path, SCHEMA, key=("k", "day"), partitioned_by=("day",), options=OPTIONS)
    root = Path(table.location)
    for value in "abc":
        table.upsert(rows(value, *range(20)))
    table.delete(where="k < 4")
    table.compact(full=True)

    def outside() -> list[Path]:
        files = [*root.rglob("*.parquet*")]
        return [path for path in files if path.relative_to(root).parts[:2] != ("data", "files")]

    assert outside() == []
    assert table.maintenance.verify(deep=True).problems == ()
    orphan = root / "data/files/day=d0/bucket-0/data-0-0.parquet"
    elsewhere = root / "day=d0/bucket-0/data-0-0.parquet"
    elsewhere.parent.mkdir(parents=True)
    for path in (orphan, elsewhere):
        path.write_bytes(b"")
        os.utime(path, (0, 0))
    table.maintenance.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert (orphan.exists(), elsewhere.exists()) == (False, True)
    elsewhere.unlink()
    table.maintenance.forget([{"k": 7, "day": "d1"}], dry_run=False, unreferenced_older_than="0 s")
    table.maintenance.expire(retain_min=1, retain_max=1, older_than="0 s", dry_run=False)
    live = set(table.inspect.files().column("file_path").to_pylist())
    assert {str(path.relative_to(root)) for path in root.rglob("data-*.parquet")} == live
    assert sorted(table.scan().to_arrow().column("k").to_pylist()) == [4, 5, 6, *range(8, 20)]
    table.create_branch("tried")
    table.branch("tried").upsert(rows("d", 100))
    assert outside() == []
    assert table.maintenance.verify(deep=True).problems == ()


@pytest.mark.parametrize("directory", ["../x", "/x", "manifest", "metadata/x", "a//b", ".", ""])
def test_a_directory_outside_the_table_or_of_metadata_is_refused(
    tmp_path: Path, directory: str
) -> None:
    options = {"bucket": "1", "data-file.path-directory": directory}
    with pytest.raises(lsm.InvalidOptionError, match=r"data-file\.path-directory"):
        new_table(tmp_path, SCHEMA, key=("k",), options=options)
