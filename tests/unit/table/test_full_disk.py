"""A full disk: what frees space goes on, what needs some is refused, and nothing is lost."""

import errno
import os

import pytest

import lsm_engine as lsm
from lsm_engine.storage.local import LocalFileIO

ROWS = [{"k": key, "v": "x"} for key in range(5)]


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(tmp_path)
    options = {"bucket": "1", "write-only": "true"}
    created = catalog.create_table("d.t", {"k": int, "v": str}, primary_key="k", options=options)
    for _ in range(12):
        created.upsert(ROWS)
    created.compact(full=True)
    return created


@pytest.fixture
def full_disk(monkeypatch):
    """Refuse every new byte; a few bytes in place of others are no new ones."""

    write = LocalFileIO._write

    def refuse(files, real, data, *, sync):
        if data:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(files, real, data, sync=sync)  # an empty file has a name alone

    monkeypatch.setattr(LocalFileIO, "_write", refuse)


def test_an_expiry_frees_space_on_a_full_disk(table, full_disk):
    table.expire_snapshots(older_than="0 s", retain_min=1, retain_max=1)
    assert table.snapshot_ids() == [13]
    assert table.verify().is_clean
    assert table.count() == 5


def test_orphans_are_removed_on_a_full_disk(table, full_disk):
    orphan = os.path.join(table.location, "bucket-0", "data-0000-0.parquet")
    with open(orphan, "wb") as file:
        file.write(b"x")
    os.utime(orphan, (1e9, 1e9))
    table.remove_orphan_files(dry_run=False, older_than="1 d")
    assert not os.path.exists(orphan)


def test_a_tag_is_deleted_on_a_full_disk(table, monkeypatch, request):
    table.create_tag("first", snapshot_id=1)
    request.getfixturevalue("full_disk")
    table.delete_tag("first")
    assert table.tag_names() == []


def test_a_commit_on_a_full_disk_is_refused_and_changes_nothing(table, full_disk):
    with pytest.raises(lsm.StorageError, match="expire_snapshots"):
        table.create_tag("first")
    assert table.tag_names() == []
    assert table.verify().is_clean


@pytest.mark.parametrize("size", [-1, 0, 1, 600])
def test_only_a_few_bytes_are_written_over_others(size, tmp_path, full_disk):
    (tmp_path / "hint").write_bytes(b"99")
    files = LocalFileIO(str(tmp_path))
    data = b"7" * (2 + size)
    if size in (0, 1):
        files.replace("hint", data)
        assert (tmp_path / "hint").read_bytes() == data
    else:  # shorter: bytes would have to be cut off; longer than a sector: a power cut could tear it
        with pytest.raises(lsm.StorageError, match="full"):
            files.replace("hint", data)
        assert (tmp_path / "hint").read_bytes() == b"99"
