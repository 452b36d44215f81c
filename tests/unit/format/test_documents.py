"""JSON documents: whole records back, unknown members ignored, wrong ones named."""

import json
from contextlib import suppress
from dataclasses import fields, replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, LsmError, UnsupportedError
from lsm_engine.format.documents import (
    decode_consumer,
    decode_hint,
    decode_schema,
    decode_snapshot,
    decode_tag,
    encode_consumer,
    encode_hint,
    encode_schema,
    encode_snapshot,
    encode_tag,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import CommitKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, parse_type
from tests.foreign_documents import without_checksum

SNAPSHOT = Snapshot(
    id=7,
    schema_id=1,
    base_manifest_list="manifest-list-u-0",
    delta_manifest_list="manifest-list-u-1",
    commit_user="me",
    commit_identifier=9_223_372_036_854_775_807,
    commit_kind=CommitKind.APPEND,
    time_millis=1_700_000_000_000,
    total_record_count=10,
    delta_record_count=-1,
)
SCHEMA = TableSchema(
    id=2,
    fields=(
        DataField(id=0, name="k", type=parse_type("BIGINT NOT NULL")),
        DataField(id=1, name="wörds", type=parse_type("STRING"), description="what was said"),
        DataField(
            id=2,
            name="n",
            type=parse_type(
                {"type": "ROW", "fields": [{"id": 3, "name": "a", "type": "DECIMAL(10, 2)"}]}
            ),
        ),
        DataField(id=4, name="t", type=parse_type("TIMESTAMP(6) WITH LOCAL TIME ZONE")),
    ),
    highest_field_id=4,
    partition_keys=(),
    primary_keys=("k",),
    options=TableOptions(texts=MappingProxyType({"bucket": "4", "merge-engine": "partial-update"})),
    time_millis=5,
)

longs = st.none() | st.integers(-(2**63), 2**63 - 1)
texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.none() | st.sampled_from(["manifest-list-1", "x y"])
text_maps = st.none() | st.dictionaries(st.sampled_from("abc"), st.just("é"))


@given(
    st.fixed_dictionaries(
        {
            "changelog_manifest_list": names, "base_manifest_list_size": longs,
            "index_manifest": names, "changelog_record_count": longs, "watermark": longs,
            "log_offsets": st.none() | st.dictionaries(st.just("0"), st.integers(0, 9)),
            "statistics": names, "properties": text_maps, "next_row_id": longs, "uuid": texts,
            "operation": texts, "writer_version": texts, "total_record_count": longs,
            "commit_kind": st.sampled_from(CommitKind), "version": st.none() | st.just(3),
        }
    )
)  # fmt: skip
def test_snapshots_come_back(changes: dict) -> None:
    snapshot = replace(SNAPSHOT, **changes)
    data = encode_snapshot(snapshot)
    assert decode_snapshot(data, file_name="snapshot-7") == snapshot
    assert b": null" not in data


@pytest.mark.parametrize("properties", [None, {"a": "b"}])
def test_a_copy_of_lists_is_a_property_in_the_file_alone(properties: dict | None) -> None:
    snapshot = replace(SNAPSHOT, manifest_lists="text", properties=properties)
    data = encode_snapshot(snapshot)
    assert json.loads(data)["properties"] == {**(properties or {}), "lsm.manifest-lists": "text"}
    assert decode_snapshot(data, file_name="snapshot-7") == snapshot


def test_every_member_of_a_snapshot_is_written() -> None:
    full = replace(
        SNAPSHOT, base_manifest_list_size=1, delta_manifest_list_size=2, changelog_manifest_list="c",
        changelog_manifest_list_size=3, index_manifest="i", log_offsets={}, watermark=5,
        changelog_record_count=4, statistics="s", properties={}, next_row_id=6, uuid="u",
        operation="WRITE", writer_version="v",
    )  # fmt: skip
    assert (
        len(json.loads(without_checksum(encode_snapshot(full)))) == len(fields(Snapshot)) - 2
    )  # checksums and copies of lists are properties


def test_schemas_come_back() -> None:
    assert decode_schema(encode_schema(SCHEMA), file_name="schema-2") == SCHEMA
    commented = replace(SCHEMA, comment='a "comment"\n')
    assert decode_schema(encode_schema(commented), file_name="schema-2") == commented


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        (3, {}, {}),
        (2, {}, {"file.format": "orc"}),
        (2, {"file.format": "avro"}, {"file.format": "avro"}),
        (1, {}, {"bucket": "1", "file.format": "orc"}),
        (None, {"bucket": "9"}, {"bucket": "9", "file.format": "orc"}),
    ],
)
def test_defaults_of_older_schemas(version: int | None, options: dict, expected: dict) -> None:
    stored = json.loads(without_checksum(encode_schema(SCHEMA))) | {
        "version": version,
        "options": options,
    }
    found = decode_schema(json.dumps(stored).encode(), file_name="schema-2")
    assert found.options.texts == expected


def test_newer_schemas_and_kinds_are_refused() -> None:
    newer = json.loads(without_checksum(encode_schema(SCHEMA))) | {"version": 4}
    with pytest.raises(UnsupportedError, match="version 4"):
        decode_schema(json.dumps(newer).encode(), file_name="schema-2")
    variant = without_checksum(encode_schema(SCHEMA)).replace(b"BIGINT NOT NULL", b"VARIANT")
    with pytest.raises(UnsupportedError, match=r"VARIANT.*schema-2"):
        decode_schema(variant, file_name="schema-2")
    kind = without_checksum(encode_snapshot(SNAPSHOT)).replace(b"APPEND", b"UPEND")
    with pytest.raises(UnsupportedError, match="UPEND"):
        decode_snapshot(kind, file_name="snapshot-7")


@pytest.mark.parametrize("created", [None, (2024, 1, 2, 3, 4, 5, 600), (2024, 1, 2, 3, 4, 0, 0)])
@pytest.mark.parametrize("retained", [None, 0, 86_400_000, 1])
def test_tags_come_back(created: tuple | None, retained: int | None) -> None:
    tag = Tag(name="t", snapshot=SNAPSHOT, created=created, retained_millis=retained)
    assert decode_tag(encode_tag(tag), name="t", file_name="tag-t") == tag


def test_a_tag_without_lifetime_is_its_snapshot_and_a_name() -> None:
    text = without_checksum(encode_tag(Tag(name="t", snapshot=SNAPSHOT)))
    assert text.replace(b',\n  "lsmName" : "t"', b"") == without_checksum(encode_snapshot(SNAPSHOT))


def test_a_file_of_another_tag_or_consumer_is_refused() -> None:
    tag = encode_tag(Tag(name="t", snapshot=SNAPSHOT))
    with pytest.raises(CorruptFileError, match="that of tag 't'"):
        decode_tag(tag, name="u", file_name="tag-u")
    renamed = decode_tag(tag, name="u", file_name="tag-u", is_of=lambda named, _: named != "t")
    assert (renamed.name, renamed.snapshot) == ("u", SNAPSHOT)
    consumer = encode_consumer(5, name="a")
    with pytest.raises(CorruptFileError, match="that of consumer 'a'"):
        decode_consumer(consumer, name="b", file_name="consumer-b")


RETENTIONS = [
    ("86400.000000000", 86_400_000), ("86400", 86_400_000), ("0.5", 500), ('"PT24H"', 86_400_000),
    ('"P1DT1.5S"', 86_401_500), ("1.0E3", 1_000_000),
]  # fmt: skip


@pytest.mark.parametrize(("text", "millis"), RETENTIONS)
def test_retentions_of_other_writers(text: str, millis: int) -> None:
    data = (
        without_checksum(encode_snapshot(SNAPSHOT))[:-2] + f', "tagTimeRetained": {text}}}'.encode()
    )
    assert decode_tag(data, name="t", file_name="tag-t").retained_millis == millis


CREATIONS = [
    ("[2024,1,2,3,4]", (2024, 1, 2, 3, 4, 0, 0)),
    ('"2024-01-02T03:04:05.678"', (2024, 1, 2, 3, 4, 5, 678_000_000)),
    ('"2024-01-02T03:04"', (2024, 1, 2, 3, 4, 0, 0)),
]


@pytest.mark.parametrize(("text", "created"), CREATIONS)
def test_birthdays_of_other_writers(text: str, created: tuple) -> None:
    data = (
        without_checksum(encode_snapshot(SNAPSHOT))[:-2] + f', "tagCreateTime": {text}}}'.encode()
    )
    assert decode_tag(data, name="t", file_name="tag-t").created == created


def test_the_spelling_that_java_reads() -> None:
    tag = Tag(name="t", snapshot=SNAPSHOT, created=(2024, 1, 2, 3, 4, 5, 6), retained_millis=1500)
    assert b'"tagTimeRetained" : 1.500000000,\n' in encode_tag(tag)
    assert b'"tagCreateTime" : [2024, 1, 2, 3, 4, 5, 6]' in encode_tag(tag)


def test_consumers_and_hints() -> None:
    assert decode_consumer(encode_consumer(5, name="a"), name="a", file_name="consumer-a") == 5
    assert encode_hint(12) == b"12"
    assert [decode_hint(data) for data in (b"12", b"12\n", b"", b"x", b"-1", b"9" * 30)] == [
        12, 12, None, None, None, None,
    ]  # fmt: skip


def changed(**members: object) -> bytes:
    return json.dumps(json.loads(without_checksum(encode_snapshot(SNAPSHOT))) | members).encode()


BROKEN = {
    "empty": b"",
    "half": encode_snapshot(SNAPSHOT)[:50],
    "no object": b"[]",
    "no text": b"\xff\xfe",
    "twice": b'{"id": 1, "id": 2}',
    "nan": b'{"id": NaN}',
    "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "long number": b'{"id": ' + b"9" * 10_000 + b"}",
    "half a character": changed(commitUser="\ud800"),
    "text for number": changed(id="7"),
    "bool for number": changed(id=True),
    "fraction": changed(id=7.5),
    "65 bits": changed(id=2**63),
    "missing": changed(schemaId=None),
    "path": changed(baseManifestList="../../etc/passwd"),
    "list": changed(commitUser=["me"]),
    "map of numbers": changed(properties={"a": 1}),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_broken_snapshots_are_named(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="snapshot-7"):
        decode_snapshot(data, file_name="snapshot-7")


def test_files_far_too_large_are_not_parsed() -> None:
    with pytest.raises(CorruptFileError, match="too large"):
        decode_snapshot(b" " * ((64 << 20) + 1), file_name="snapshot-7")


BROKEN_FIELDS = [
    [{"id": 0, "name": "k"}],
    [{"id": "0", "name": "k", "type": "INT"}],
    [{"id": 0, "name": "k", "type": "INT("}],
    [{"id": 0, "name": "k", "type": {"type": "ARRAY"}}],
    [{"id": 0, "name": "k", "type": {"type": "ROW", "fields": 3}}],
    [{"id": 0, "name": "x", "type": "INT"}],
    [{"id": 0, "name": "k", "type": "INT"}, {"id": 0, "name": "b", "type": "INT"}],
    [{"id": 0, "name": "k", "type": "INT"}, {"id": 1, "name": "k", "type": "INT"}],
    ["k"],
    {},
]


@pytest.mark.parametrize("stored", BROKEN_FIELDS, ids=range(len(BROKEN_FIELDS)))
def test_broken_schemas_are_named(stored: object) -> None:
    data = json.dumps(
        json.loads(without_checksum(encode_schema(SCHEMA))) | {"fields": stored}
    ).encode()
    with pytest.raises(CorruptFileError, match="schema-2"):
        decode_schema(data, file_name="schema-2")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["id", "type", "name", "fields"]), inner)))  # fmt: skip
def test_any_json_is_a_document_or_named(value: object) -> None:
    data = json.dumps(value).encode()
    for members in (value, {"version": 3, "id": 0, "fields": value}):
        data = json.dumps(members).encode()
        for decode in (decode_schema, decode_snapshot):
            with suppress(LsmError):
                decode(data, file_name="x")


def test_field_ids_count_nested_ones() -> None:
    stored = json.loads(without_checksum(encode_schema(SCHEMA)))
    del stored["highestFieldId"]
    assert decode_schema(json.dumps(stored).encode(), file_name="s").highest_field_id == 4
