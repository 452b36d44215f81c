"""Documents as other clients write them: without the checksum in their last member."""

import json
from dataclasses import replace

from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.format.documents import PROPERTY as CHECKSUMS
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.format.manifest_file import decode_manifest_list, encode_manifest_list
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.options.modes import CommitKind
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import TablePaths


def without_checksum(document: bytes) -> bytes:
    """Return a document of ours as one who does not know its checksum writes it anew."""
    text, found, _ = document.rpartition(b',\n  "lsmChecksum"')
    assert found, "a document of ours ends with its checksum"
    return text + b"\n}"


def edited(document: bytes, **members: object) -> bytes:
    """Return a document of ours as somebody writes it anew who changes members and knows no checksum."""
    stored = {**json.loads(document), **members}
    stored.pop("lsmChecksum", None)
    if stored.get("properties"):
        stored["properties"].pop(CHECKSUMS, None)
    return json.dumps(stored).encode()


def forget_checksums(disk: FileIO) -> None:
    """Rewrite the metadata of a table in memory as other clients would have written it."""
    for one in disk.list("manifest"):
        if one.name.startswith("manifest-list-"):
            listed = decode_manifest_list(disk.read(one.path), file_name=one.path)
            free = [replace(meta, checksum=None) for meta in listed]
            disk.replace(one.path, encode_manifest_list(free))
    for folder in ("schema", "snapshot", "tag"):
        for one in disk.list(folder):
            if one.name not in ("EARLIEST", "LATEST"):
                stored = json.loads(edited(disk.read(one.path)))
                for key in [key for key in stored if f"{key}Size" in stored]:
                    stored[f"{key}Size"] = len(disk.read(f"manifest/{stored[key]}"))
                disk.replace(one.path, json.dumps(stored).encode())


def commit_as_another_client(
    disk: FileIO, count: int, *, user: str = "flink", identifier: int | None = None
) -> int:
    """Make empty snapshots on the newest one as Java does, without any property; return the id of the last.

    `identifier`: of the first, the next ones count on; None: they have none.
    """
    snapshots = SnapshotStore(disk, TablePaths())
    newest = snapshots.latest()
    assert newest is not None, "the table has a state to go on from"
    state = [
        meta
        for name in (newest.base_manifest_list, newest.delta_manifest_list)
        for meta in decode_manifest_list(disk.read(f"manifest/{name}"), file_name=name)
    ]
    mark = f"{newest.id}-{user}"
    lists = {
        f"manifest-list-java-{mark}-0": encode_manifest_list(state),
        f"manifest-list-java-{mark}-1": encode_manifest_list([]),
    }
    for name, data in lists.items():
        disk.replace(f"manifest/{name}", data)
    base_list, delta_list = lists
    for number in range(count):
        made = replace(
            newest,
            id=newest.id + 1 + number,
            base_manifest_list=base_list,
            delta_manifest_list=delta_list,
            base_manifest_list_size=len(lists[base_list]),
            delta_manifest_list_size=len(lists[delta_list]),
            changelog_manifest_list=None,
            changelog_manifest_list_size=None,
            changelog_record_count=None,
            commit_user=user,
            commit_identifier=BATCH_COMMIT_IDENTIFIER
            if identifier is None
            else identifier + number,
            commit_kind=CommitKind.APPEND,
            delta_record_count=0,
            properties=None,
            uuid=None,
            writer_version=None,
            checksums=None,
            manifest_lists=None,
        )
        assert disk.publish(f"snapshot/snapshot-{made.id}", without_checksum(encode_snapshot(made)))
    disk.replace("snapshot/LATEST", str(newest.id + count).encode())
    return newest.id + count


def expire_as_another_client(disk: FileIO, oldest: int) -> None:
    """Delete the snapshots below one, and then move EARLIEST, as Java does; files that they name stay."""
    for number in SnapshotStore(disk, TablePaths()).listed_ids():
        if number < oldest:
            disk.delete(f"snapshot/snapshot-{number}")
    disk.replace("snapshot/EARLIEST", str(oldest).encode())
