"""Documents as other clients write them: without the checksum in their last member."""

import json
from dataclasses import replace

from lsm_engine.codec.manifest import decode_manifest_list, encode_manifest_list
from lsm_engine.codec.snapshot_checksums import PROPERTY as CHECKSUMS
from lsm_engine.io.file_io import FileIO


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
