"""Defects that cost users of lake tables live files, each as a test of its own.

The names say whose defect it was. Interleavings are in test_two_preemptions.py, lies of the storage at
every call in test_lies.py; here is the plain story of each.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, StorageError
from lsm_engine.commit.metadata_writer import MetadataWriter
from lsm_engine.ddl.create import create_table
from lsm_engine.ddl.open import load_schema
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Lie, Misread, RecordingFileIO
from tests.foreign_documents import edited
from tests.unit.table.history_tables import COLUMNS, Story

EXPIRE_ALL = {"retain_min": 1, "retain_max": 1, "older_than": "0 s"}


@pytest.fixture
def told() -> Story:
    """Snapshots 1 to 4, the last a compaction; tag t at 2, whose files nothing newer names."""
    story = Story()
    for value in "abc":
        story.put(k1=value)
    story.table.create_tag("t", 2)
    story.table.compact(full=True)
    return story


def over(told: Story, storage: object) -> lsm.Table:
    session = told.table.session
    parts = replace(told.parts, file_io=storage)
    return lsm.Table(type(session)("t", parts, session.schema), "t")


@pytest.mark.parametrize("which", ["base", "delta", "manifest", "tag file"])
def test_paimon_5237_and_2105_an_unreadable_manifest_of_a_tag_is_not_an_empty_one(
    told: Story, which: str
) -> None:
    snapshot = told.table.tags()[0].snapshot
    metas = told.table.session.manifests.read_list(snapshot.delta_manifest_list)
    path = {
        "base": f"manifest/{snapshot.base_manifest_list}",
        "delta": f"manifest/{snapshot.delta_manifest_list}",
        "manifest": f"manifest/{metas[0].file_name}",
        "tag file": "tag/tag-t",
    }[which]
    read = told.disk.read

    def failing(asked: str, *rest: object, **named: object) -> bytes:
        if asked == path:
            raise StorageError("cannot be read now", path=asked)
        return read(asked, *rest, **named)

    told.disk.read = failing  # type: ignore[method-assign]
    before = told.files()
    for act in (
        lambda table: table.expire_snapshots(**EXPIRE_ALL),
        lambda table: table.remove_orphan_files(dry_run=False, older_than="0 s", force=True),
    ):
        with pytest.raises(StorageError):
            act(told.reopened())
    assert told.files() == before
    told.disk.read = read  # type: ignore[method-assign]
    assert told.rows(tag="t") == {1: "b"}


def test_paimon_1278_2409_2765_a_deleted_tag_takes_nothing_from_another(told: Story) -> None:
    told.table.create_tag("same", 2)
    told.table.create_tag("older", 1)
    told.table.expire_snapshots(**EXPIRE_ALL)
    told.table.delete_tag("t")
    assert told.rows(tag="same") == {1: "b"}
    told.table.delete_tag("same")
    assert told.rows(tag="older") == {1: "a"}
    told.check()


def test_paimon_3074_a_commit_while_orphans_are_looked_for(told: Story) -> None:
    """Candidates are listed before roots are read: what a commit adds in between is no orphan."""
    done: list[int] = []

    def on_call(call: object) -> None:
        if call.verb == "list" and call.path == "snapshot" and not done:
            done.append(told.put(k9="meanwhile"))

    storage = RecordingFileIO(told.disk, on_call=on_call)
    over(told, storage).remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert done
    assert told.rows() == {1: "c", 9: "meanwhile"}


@pytest.mark.parametrize("lie", [Lie.EMPTY, Lie.SHORT, Lie.STALE])
def test_paimon_7920_an_empty_listing_makes_no_candidates(told: Story, lie: Lie) -> None:
    plain = RecordingFileIO(told.disk)
    over(told, plain).remove_orphan_files(older_than="0 s", force=True)
    for call in plain.reads:
        if call.verb != "list":
            continue
        table = over(told, RecordingFileIO(told.disk, Misread(at=call.number, how=lie)))
        try:
            table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
        except lsm.LsmError:
            continue
        told.check()
        assert told.rows(tag="t") == {1: "b"}


@pytest.mark.parametrize("hint", [b"", b"7", b"-1", b"x" * 40, b"99999999999999999999", None, b"1"])
@pytest.mark.parametrize("which", ["LATEST", "EARLIEST"])
def test_paimon_1308_3479_4930_7572_clickhouse_114437_120165_hints_that_lie_or_are_gone(
    told: Story, which: str, hint: bytes | None
) -> None:
    told.disk.delete(f"snapshot/{which}")
    if hint is not None:
        told.disk.replace(f"snapshot/{which}", hint)
    if (which, hint) == ("LATEST", b"7"):  # as if the newest snapshot were lost
        with pytest.raises(lsm.CorruptFileError, match="snapshot 7 is missing"):
            told.rows()
        told.table.repair_latest_snapshot(dry_run=False)
    assert told.rows() == {1: "c"}
    assert told.rows(snapshot_id=1) == {1: "a"}
    told.table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 s")
    assert [one.id for one in told.table.snapshots()] == [3, 4]
    assert told.rows(tag="t") == {1: "b"}
    told.put(k2="z")
    told.table.rollback_to(4)
    assert told.rows() == {1: "c"}
    told.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    told.check()


def test_one_empty_listing_hides_no_rollback(told: Story) -> None:
    """Its sign is a tag: an expiry that overlooks it may leave no snapshot between the two."""
    told.table.create_tag("rolling-back-1", 2)
    plain = RecordingFileIO(told.disk)
    with pytest.raises(lsm.CommitConflictError):
        over(told, plain).expire_snapshots(**EXPIRE_ALL)
    before = told.files()
    listings = [call.number for call in plain.reads if (call.verb, call.path) == ("list", "tag")]
    assert listings
    for number in listings:
        lying = RecordingFileIO(told.disk, Misread(at=number, how=Lie.EMPTY))
        with pytest.raises((lsm.CommitConflictError, StorageError)):
            over(told, lying).expire_snapshots(**EXPIRE_ALL)
        assert told.files() == before


@pytest.mark.parametrize("hint", [b"5", b"99999999999"])
def test_a_hint_that_lies_hides_no_loss(told: Story, hint: bytes) -> None:
    (lost,) = (
        told.table.session.context().data_file(entry.partition, entry.bucket, entry.file.file_name)
        for entry in told.table.session.live_entries(told.table.latest_snapshot())
    )
    told.disk.delete(lost)
    told.disk.replace("snapshot/EARLIEST", hint)
    assert any("snapshot 4" in problem for problem in told.table.verify().problems)


def test_paimon_7923_changelogs_whose_files_are_gone_expire_all_the_same() -> None:
    story = Story(options={"changelog-producer": "input", "snapshot.num-retained.min": "1",
                           "snapshot.num-retained.max": "1", "changelog.num-retained.max": "3",
                           "changelog.time-retained": "1 h"})  # fmt: skip
    story.put(k1="a")
    (lost,) = (path for path in story.files() if "/changelog-" in path and "bucket" in path)
    story.put(k1="b")
    story.put(k1="c")
    story.table.expire_snapshots()
    story.disk.delete(lost)
    story.put(k1="d")
    story.put(k1="e")
    story.table.expire_snapshots()
    assert story.table.session.changelogs.ids() == [3, 4]
    story.check()


def test_paimon_9037_snapshots_without_a_watermark_are_passed_over(told: Story) -> None:
    with pytest.raises(lsm.NotFoundError, match="watermark"):
        told.table.rollback_to(watermark=1)


def test_iceberg_4194_an_age_shorter_than_a_running_job_is_refused(told: Story) -> None:
    with pytest.raises(lsm.InvalidInputError, match="younger than a day"):
        told.table.remove_orphan_files(dry_run=False, older_than="23 h")


def test_amoro_1959_and_trino_19965_statistics_are_used_files(told: Story) -> None:
    told.disk.write_new("statistics/stat-used-0", b"{}")
    told.disk.write_new("statistics/stat-stray-0", b"{}")
    snapshot = told.table.session.snapshots.load(4)
    told.disk.delete("snapshot/snapshot-4")
    told.table.session.snapshots.publish_only(replace(snapshot, statistics="stat-used-0"))
    told.clock.advance(1000)
    told.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert told.files("statistics") == {"statistics/stat-used-0"}


@pytest.mark.parametrize("error", [StorageError("EIO"), PermissionError(13, "no")])
def test_dagster_34064_only_a_table_that_is_not_there_is_made(
    told: Story, error: Exception
) -> None:
    before = told.files()
    failing = MemoryFileIO()
    failing._files = told.disk._files

    def listing(_: str) -> list[object]:
        raise error

    failing.list = listing  # type: ignore[method-assign, assignment]
    with pytest.raises(type(error)):
        load_schema(failing, "t")
    with pytest.raises(lsm.AlreadyExistsError):
        create_table(
            told.disk, COLUMNS, primary_key=("id",), partitioned_by=(), options={}, comment=None,
            clock=told.clock,
        )  # fmt: skip
    assert told.files() == before


def test_delta_1013_the_past_says_that_it_is_over(told: Story) -> None:
    told.table.expire_snapshots(**EXPIRE_ALL)
    with pytest.raises(lsm.ExpiredError, match="has expired"):
        told.rows(snapshot_id=1)
    with pytest.raises(lsm.NotFoundError):
        told.rows(as_of_millis=1)


def test_paimon_4871_files_in_a_directory_that_is_not_looked_into_are_nobodys_orphans(
    told: Story,
) -> None:
    option = "data-file.external-paths"
    told.disk.replace("data/bucket-0/data-elsewhere-0.parquet", b"x")
    schema = json.loads(told.disk.read("schema/schema-0"))
    schema["options"][option] = "data"
    told.disk.replace("schema/schema-0", edited(json.dumps(schema).encode()))
    before = told.files()
    with pytest.raises(lsm.UnsupportedError, match=option):
        told.reopened().remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert told.files() == before


def test_hudi_19332_a_snapshot_with_members_missing_is_named(told: Story) -> None:
    whole = json.loads(told.disk.read("snapshot/snapshot-2"))
    for member in ("baseManifestList", "deltaManifestList", "commitKind", "id", "schemaId"):
        less = {name: value for name, value in whole.items() if name != member}
        told.disk.replace("snapshot/snapshot-2", edited(json.dumps(less).encode()))
        before = told.files()
        with pytest.raises(lsm.CorruptFileError) as caught:
            told.table.expire_snapshots(**EXPIRE_ALL)
        assert caught.value.facts["file"] == "snapshot/snapshot-2"
        assert told.files() == before
    told.disk.replace("snapshot/snapshot-2", edited(json.dumps(whole), unknown=[1]))
    told.table.expire_snapshots(**EXPIRE_ALL)
    told.check()


# --- names and paths that lead outside -------------------------------------------------------------

HOSTILE = [
    "..", "../x", "a/b", "a\\b", "/etc/passwd", "a\0b", "a\nb", "\x1b[2J", ".hidden", "", " ", "x ",
    "\u202egnp.exe", "\ud800", "x" * 256, "ü" * 128, "12",
]  # fmt: skip
HARMLESS = ["$snapshots", "tag-", "%2e%2e", "';--", "CON", "a b", "2024-05-01", "ümlaut", "x" * 200]


def tree_hash(folder: Path) -> str:
    """Every file and directory below, with its bytes."""
    told = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        told.update(str(path.relative_to(folder)).encode())
        told.update(path.read_bytes() if path.is_file() else b"/")
    return told.hexdigest()


@pytest.fixture
def on_disk(tmp_path: Path) -> lsm.Table:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_bytes(b"mine")
    location = tmp_path / "outside" / "t"
    story = Story()
    create_table(
        LocalFileIO(str(location)), COLUMNS, primary_key=("id",), partitioned_by=(),
        options={"bucket": "1"}, comment=None, clock=story.clock,
    )  # fmt: skip
    table = lsm.open_table(str(location))
    table.upsert([{"id": 1, "v": "a"}])
    table.create_tag("t")
    return table


def test_names_that_lead_outside_touch_nothing(on_disk: lsm.Table) -> None:
    outside = Path(on_disk.location).parent
    before = tree_hash(outside)
    acts = [
        on_disk.create_tag, on_disk.replace_tag, on_disk.delete_tag, on_disk.create_branch,
        on_disk.delete_branch, on_disk.branch, on_disk.fast_forward, on_disk.undo_maintenance,
        lambda name: on_disk.rename_tag("t", name), lambda name: on_disk.rename_branch("b", name),
        lambda name: on_disk.reset_consumer(name, 1), lambda name: on_disk.rollback_to(tag=name),
        lambda name: on_disk.scan(tag=name).to_arrow(),
    ]  # fmt: skip
    for name in HOSTILE:
        for number, act in enumerate(acts):
            if name == "12" and number == 10:
                continue  # a consumer may have a number for a name
            with pytest.raises((lsm.LsmError, UnicodeEncodeError)) as caught:
                act(name)
            kind = getattr(caught.value, "kind", None)
            assert kind is not ErrorKind.CORRUPT, (name, number, caught.value)
            assert tree_hash(outside) == before, (name, number)


@pytest.mark.parametrize("name", HARMLESS)
def test_odd_names_are_names(on_disk: lsm.Table, name: str) -> None:
    assert on_disk.create_tag(name).name == name
    on_disk.create_branch(name, tag=name)
    on_disk.reset_consumer(name, 1)
    assert on_disk.branches() == [name]
    assert on_disk.branch(name).scan(tag=name).to_arrow().num_rows == 1
    on_disk.expire_snapshots(**EXPIRE_ALL)
    on_disk.delete_branch(name)
    on_disk.delete_tag(name)


@pytest.mark.parametrize("member", ["baseManifestList", "deltaManifestList", "statistics"])
@pytest.mark.parametrize("target", ["../../precious", "/etc/passwd", ".."])
def test_metadata_that_points_outside_is_refused(
    on_disk: lsm.Table, member: str, target: str
) -> None:
    outside = Path(on_disk.location).parent
    path = Path(on_disk.location) / "snapshot" / "snapshot-1"
    path.write_text(json.dumps({**json.loads(path.read_text()), member: target}))
    on_disk.session.snapshots.hint_earliest(1)
    before = tree_hash(outside)
    table = lsm.open_table(on_disk.location)
    for act in (
        lambda: table.expire_snapshots(**EXPIRE_ALL),
        lambda: table.remove_orphan_files(dry_run=False, older_than="0 s", force=True),
        lambda: table.rollback_to_as_latest(1),
    ):
        with pytest.raises((lsm.CorruptFileError, lsm.UnsafePathError)) as caught:
            act()
        assert "snapshot-1" in str(caught.value)
    left = [one.name for one in Path(on_disk.location).iterdir() if one.name.startswith(".clock")]
    assert not left
    assert tree_hash(outside) == before


def test_links_inside_a_table_are_not_followed_when_files_go(on_disk: lsm.Table) -> None:
    import os

    outside = Path(on_disk.location).parent
    link = Path(on_disk.location) / "manifest" / "manifest-link-0"
    link.symlink_to(outside / "precious")
    os.utime(link, (0, 0), follow_symlinks=False)
    on_disk.remove_orphan_files(dry_run=False)
    assert not link.is_symlink()
    assert (outside / "precious").read_bytes() == b"mine"


def test_files_of_another_under_the_same_name_are_not_taken_back(told: Story) -> None:
    """Names are random; should one come again, what it stood for stays."""
    session = told.table.session
    one, other = MetadataWriter(session), MetadataWriter(session)
    other._unique = one._unique
    name, _ = one.list([])
    with pytest.raises(lsm.AlreadyExistsError):
        other.list([])
    session.delete_quietly(other.paths)
    assert session.manifests.read_list(name) == []
    assert told.disk.exists(session.paths.manifest(name))
