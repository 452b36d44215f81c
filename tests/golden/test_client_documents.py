"""Every schema, snapshot, tag and hint that real clients wrote: read whole, written back equal."""

import json
import re

from lsm_engine.format.documents import (
    decode_hint,
    decode_schema,
    decode_snapshot,
    decode_tag,
    encode_schema,
    encode_snapshot,
    encode_tag,
)
from tests.golden.client_tables import TABLES, files


def present(data: bytes) -> dict:
    return {
        name: value
        for name, value in json.loads(data).items()
        if value is not None and name != "lsmChecksum"
    }


def test_there_are_tables() -> None:
    assert len(TABLES) > 40
    assert {name.split("/")[0] for name in TABLES} >= {"java-0.9.0", "pypaimon-2.1.0"}


def test_schemas() -> None:
    found = files("schema/schema-*")
    for name, path in found.items():
        data = path.read_bytes()
        schema = decode_schema(data, file_name=name)
        assert schema.id == int(path.name.removeprefix("schema-")), name
        ours, theirs = present(encode_schema(schema)), present(data)
        # One type has two spellings.
        text = re.sub(
            r"TIMESTAMP_LTZ\((\d)\)",
            r"TIMESTAMP(\1) WITH LOCAL TIME ZONE",
            json.dumps(theirs["fields"]),
        )
        assert ours["fields"] == json.loads(text), name
        assert ours | {"fields": 0} == theirs | {"fields": 0}, name
    assert len(found) > 40


def test_snapshots_and_changelogs() -> None:
    found = files("snapshot/snapshot-*") | files("changelog/changelog-*")
    for name, path in found.items():
        data = path.read_bytes()
        snapshot = decode_snapshot(data, file_name=name)
        assert snapshot.id == int(path.name.partition("-")[2]), name
        assert present(encode_snapshot(snapshot)) == present(data), name
    assert len(found) > 100


def test_tags() -> None:
    found = files("tag/tag-*")
    for name, path in found.items():
        data = path.read_bytes()
        tag = decode_tag(data, name=path.name.removeprefix("tag-"), file_name=name)
        assert present(encode_tag(tag)) == present(data) | {"lsmName": tag.name}, name
    assert len(found) > 8


def test_hints() -> None:
    for name, path in (files("snapshot/LATEST") | files("snapshot/EARLIEST")).items():
        assert decode_hint(path.read_bytes()) == int(path.read_text()), name
