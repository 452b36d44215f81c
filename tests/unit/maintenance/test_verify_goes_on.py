"""`verify` lists what cannot be read, whatever it is, and still looks at everything else."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.format.manifest_file import encode_manifest, encode_manifest_list
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.foreign_documents import forget_checksums
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        ("v", pa.string()),
    ]
)
HOSTILE = ["../../x", "/etc/passwd", "", "..", "a\0b", "x" * 5000, "\n"]


def lake() -> tuple[Story, str]:
    """A table of two manifests in its newest snapshot, and the path of a file that the second one names."""
    story = Story(COLUMNS, key=("id", "p"), partitioned_by=("p",))
    story.table.upsert([{"id": 1, "p": "a", "v": "x"}])
    story.table.create_tag("first")
    story.table.alter(lsm.AddColumn("w", "INT"))
    story.table.upsert([{"id": 2, "p": "b", "v": "y"}])
    story.table.create_branch("side")
    (path,) = story.files("p=b/")
    forget_checksums(story.disk)
    return story, path


def first_manifest(story: Story) -> ManifestFileMeta:
    session = story.table.session
    snapshot = session.snapshots.load(1)
    (meta,) = session.manifests.read_list(snapshot.delta_manifest_list)
    return meta


def change_files(story: Story, **facts: object) -> None:
    meta = first_manifest(story)
    changed = []
    for entry in story.table.session.manifests.read_entries(meta):
        members = {name: getattr(entry.file, name) for name in entry.file.__slots__}
        changed.append(replace(entry, file=DataFileMeta(**members | facts)))
    story.disk.replace(f"manifest/{meta.file_name}", encode_manifest(changed))
    fit_sizes(story)


def fit_sizes(story: Story) -> None:
    """Let lists name manifests, and snapshots and tags name lists, by the sizes that they have."""
    sizes = {one.path: one.size for one in story.disk.list("manifest")}
    for status in story.disk.list("manifest"):
        if status.name.startswith("manifest-list-"):
            metas = story.table.session.manifests.read_list(status.name)
            fitting = [
                replace(meta, file_size=sizes[f"manifest/{meta.file_name}"]) for meta in metas
            ]
            story.disk.replace(status.path, encode_manifest_list(fitting))
    fit_lists(story)


def fit_lists(story: Story) -> None:
    """Let snapshots and tags name lists by the sizes that they have."""
    for path in ("snapshot/snapshot-1", "snapshot/snapshot-2", "tag/tag-first"):
        stored = json.loads(story.disk.read(path))
        names = ("baseManifestList", "deltaManifestList")
        sizes = {
            f"{name}Size": story.disk.status(f"manifest/{stored[name]}").size for name in names
        }
        change_document(story, path, **sizes)


def change_document(story: Story, path: str, **members: object) -> None:
    stored = json.loads(story.disk.read(path)) | members
    story.disk.replace(path, json.dumps(stored).encode())


def rename_in_lists(story: Story, name: str) -> None:
    """Name the first manifest by another name in every list."""
    first = first_manifest(story).file_name
    for status in story.disk.list("manifest"):
        if status.name.startswith("manifest-list-"):
            metas = story.table.session.manifests.read_list(status.name)
            renamed = [
                replace(meta, file_name=name) if meta.file_name == first else meta for meta in metas
            ]
            story.disk.replace(status.path, encode_manifest_list(renamed))
    fit_lists(story)


DAMAGE: dict[str, Callable[[Story], object]] = {
    **{f"data file {name[:9]!r}": lambda s, n=name: change_files(s, file_name=n) for name in HOSTILE},
    **{f"extra file {name[:9]!r}": lambda s, n=name: change_files(s, extra_files=(n,)) for name in HOSTILE},
    **{f"manifest {name[:9]!r}": lambda s, n=name: rename_in_lists(s, n) for name in HOSTILE},
    **{
        f"{member} {name[:9]!r}": lambda s, m=member, n=name: change_document(s, "snapshot/snapshot-1", **{m: n})
        for member in ("deltaManifestList", "statistics", "indexManifest", "changelogManifestList")
        for name in HOSTILE
    },
    "schema of a file": lambda s: change_files(s, schema_id=99),
    "schema of a snapshot": lambda s: change_document(s, "snapshot/snapshot-1", schemaId=99),
    "schema of a tag": lambda s: change_document(s, "tag/tag-first", schemaId=99),
    "schema gone": lambda s: s.disk.delete("schema/schema-0"),
    "schema of other bytes": lambda s: s.disk.replace("schema/schema-0", b"\xff"),
    "manifest gone": lambda s: s.disk.delete(f"manifest/{first_manifest(s).file_name}"),
    "manifest of other bytes": lambda s: s.disk.replace(f"manifest/{first_manifest(s).file_name}", b"Obj\1"),
    "snapshot of other bytes": lambda s: s.disk.replace("snapshot/snapshot-1", b"[]"),
    "tag of other bytes": lambda s: s.disk.replace("tag/tag-first", b'{"id": 1e999}'),
    "consumer of other bytes": lambda s: s.disk.replace("consumer/consumer-c", b'{"nextSnapshot": "x"}'),
    "schema of a branch": lambda s: s.disk.replace("branch/branch-side/schema/schema-0", b"{}"),
}  # fmt: skip


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_listed_and_the_rest_is_verified(name: str, deep: bool) -> None:
    story, other = lake()
    assert story.reopened().verify(deep=deep).is_clean
    DAMAGE[name](story)
    assert not story.reopened().verify(deep=deep).is_clean
    story.disk.delete(other)
    problems = story.reopened().verify(deep=deep).problems
    assert any(other in text for text in problems), problems
    assert any(other not in text for text in problems), problems


@pytest.mark.parametrize("verb", ["read", "list", "status", "open_input", "exists"])
@pytest.mark.parametrize(
    "beginning", ["snapshot", "schema", "tag", "consumer", "changelog", "manifest", "branch", "p=a"]
)
def test_storage_that_does_not_answer_is_listed_and_the_rest_is_verified(
    verb: str, beginning: str
) -> None:
    story, other = lake()
    failed: list[str] = []

    def fail(call: Call) -> None:
        if call.verb == verb and call.path.startswith(beginning):
            failed.append(call.path)
            raise lsm.StorageError("the disk does not answer", path=call.path)

    table = story.reopened()
    parts = replace(story.parts, file_io=RecordingFileIO(story.disk, on_call=fail))
    table = lsm.Table(type(table.session)("t", parts, table.schema), "t")
    problems = table.verify().problems
    assert bool(problems) == bool(failed)
    story.disk.delete(other)
    hides_all = beginning in ("snapshot", "manifest")
    assert hides_all or any(other in text for text in table.verify().problems)


def test_a_branch_of_a_name_that_no_path_has_is_listed_and_the_others_are_verified(tmp_path):
    with lsm.open_catalog(tmp_path) as catalog:
        table = catalog.create_table("a.t", {"k": "INT"}, primary_key="k")
        table.upsert([{"k": 1}])
        table.create_branch("z")
        table.branch("z").upsert([{"k": 2}])
        newest = table.branch("z").latest_snapshot()
        (Path(table.location) / "branch" / "branch-a\\b" / "schema").mkdir(parents=True)
        (Path(table.location) / "manifest" / newest.delta_manifest_list).unlink()
        problems = table.verify().problems
        assert any("branch 'a\\\\b'" in text for text in problems)
        assert any("branch 'z'" in text for text in problems)
