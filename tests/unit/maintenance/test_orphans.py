"""Orphan files go, live files never do, and nothing goes where a root cannot be read."""

from pathlib import Path

import pytest

import lsm_engine as lsm

DAY_SECONDS = 86_400


@pytest.fixture
def table(tmp_path) -> lsm.Table:
    import pyarrow as pa

    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.t",
            pa.schema([("id", pa.int64()), ("day", pa.string())]),
            primary_key=["id", "day"],
            partitioned_by=["day"],
            options={"bucket": 2},
        )
        made.upsert([{"id": at, "day": "a/b"} for at in range(20)])
        made.create_tag("first")
        made.upsert([{"id": at, "day": "c"} for at in range(20)])
        made.compact(full=True)
        made.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
        yield made


def stray_files(table: lsm.Table) -> set[str]:
    root = Path(table.location)
    strays = {
        "manifest/manifest-stray-0",
        "snapshot/.snapshot-9.abc.tmp",
        "day=c/bucket-0/data-stray-0.parquet",
        "day=c/bucket-7/data-stray-1.parquet",
    }
    for name in strays:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x")
    (root / "notes.txt").write_bytes(b"mine")
    return strays


def all_files(table: lsm.Table) -> set[str]:
    root = Path(table.location)
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_strays_go_and_everything_else_stays(table: lsm.Table) -> None:
    strays = stray_files(table)
    before = all_files(table)
    dry = table.remove_orphan_files(older_than="0 s", force=True)
    assert all_files(table) == before
    # A stamp of this very millisecond is not older than nothing.
    assert {path for path, _ in dry.plan.orphans} <= strays
    import os

    for name in strays:
        os.utime(Path(table.location) / name, (0, 0))
    done = table.remove_orphan_files(dry_run=False)
    assert {path for path, _ in done.plan.orphans} == strays
    assert all_files(table) == before - strays
    assert table.verify().is_clean
    assert table.scan(tag="first").count() == 20
    assert table.scan().count() == 40


def test_young_files_stay(table: lsm.Table) -> None:
    stray_files(table)
    report = table.remove_orphan_files(dry_run=False)
    assert report.plan.orphans == ()
    assert report.plan.young_count == 4


def test_ages_below_a_day_need_force(table: lsm.Table) -> None:
    with pytest.raises(lsm.InvalidInputError, match="force"):
        table.remove_orphan_files(older_than="1 h")
    with pytest.raises(lsm.InvalidInputError, match="age"):
        table.remove_orphan_files(older_than="soon")


def test_an_unreadable_root_stops_it(table: lsm.Table) -> None:
    import os

    strays = stray_files(table)
    for name in strays:
        os.utime(Path(table.location) / name, (0, 0))
    tag = table.session.tags.load("first")
    broken = Path(table.location) / "manifest" / tag.snapshot.delta_manifest_list
    kept = broken.read_bytes()
    broken.write_bytes(kept[: len(kept) // 2])
    other = lsm.open_table(table.location)
    with pytest.raises(lsm.CorruptFileError):
        other.remove_orphan_files(dry_run=False)
    assert strays <= all_files(table)


def test_a_branch_that_is_half_made_is_a_root_all_the_same(table: lsm.Table) -> None:
    """Who made it may be about to finish, or its deletion may have died."""
    table.create_branch("x", tag="first")
    location = Path(table.location)
    (location / "branch" / "branch-x" / "schema" / "schema-0").unlink()
    needed = {f"manifest/{table.tags()[0].snapshot.delta_manifest_list}"}
    table.delete_tag("first")
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert needed <= all_files(table)
    table.delete_branch("x")
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert not needed <= all_files(table)
    assert table.verify().is_clean
