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


@pytest.mark.parametrize("data", [b"77", b"777"])
def test_a_hint_is_written_over_a_hint(data, tmp_path, full_disk):
    (tmp_path / "hint").write_bytes(b"99")
    LocalFileIO(str(tmp_path)).replace("hint", data)
    assert (tmp_path / "hint").read_bytes() == data


@pytest.mark.parametrize("data", [b"7", b"7" * 600, b'{"nextSnapshot": 7}'])
def test_nothing_but_a_hint_is_written_over_another(data, tmp_path, full_disk):
    # Shorter: bytes would have to be cut off. Longer than a sector, or no number: a power cut could tear it.
    (tmp_path / "hint").write_bytes(b"99")
    with pytest.raises(lsm.StorageError, match="full"):
        LocalFileIO(str(tmp_path)).replace("hint", data)
    assert (tmp_path / "hint").read_bytes() == b"99"


def test_a_hint_that_a_power_cut_tears_is_passed_over(table, full_disk, monkeypatch):
    """Room is made for a longer number before it is written: no other number can stand there."""
    hint = os.path.join(table.location, "snapshot", "EARLIEST")
    with open(hint, "wb") as file:
        file.write(b"1")

    def stop(*_):
        raise OSError(errno.EIO, "power cut")

    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", stop)
    with pytest.raises(lsm.StorageError):
        table.expire_snapshots(older_than="0 s", retain_min=1, retain_max=1)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with open(hint, "rb") as file:
        assert file.read() == b"1\0"
    assert lsm.open_table(table.location).snapshot_ids() == list(range(1, 14))
    assert table.verify().is_clean
    table.expire_snapshots(older_than="0 s", retain_min=1, retain_max=1)
    assert table.snapshot_ids() == [13]
