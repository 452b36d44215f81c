"""A flip in the name of a member is noticed; members of newer writers are passed over."""

from functools import partial

import pytest

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.documents import (
    decode_consumer,
    decode_schema,
    decode_snapshot,
    decode_tag,
    encode_tag,
)
from lsm_engine.format.manifest_file import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
)
from lsm_engine.format.tag import Tag
from tests.foreign_documents import without_checksum
from tests.golden.test_our_files import FILES, SNAPSHOT


def names_in(text: bytes) -> list[bytes]:
    return [part.split(b'"')[1] for part in text.splitlines() if part.lstrip().startswith(b'"')]


@pytest.mark.parametrize(
    ("name", "decode"),
    [
        ("snapshot", decode_snapshot),
        ("schema", decode_schema),
        ("consumer", partial(decode_consumer, name="c")),
    ],
)
@pytest.mark.parametrize("checked", [True, False])
def test_every_flip_in_every_name_is_noticed(name: str, decode, checked: bool) -> None:
    text = (FILES / name).read_bytes()
    if not checked:
        text = without_checksum(text)
    sound = decode(text, file_name="f")
    tried = 0
    for member in names_in(text):
        quoted = b'"' + member + b'"'
        at = text.index(quoted) + 1
        for bit in range(8 * len(member)):
            damaged = bytearray(text)
            damaged[at + bit // 8] ^= 1 << bit % 8
            tried += 1
            try:
                assert decode(bytes(damaged), file_name="f") == sound
            except CorruptFileError:
                continue
    assert tried > 8


def test_a_tag_whose_own_members_are_misnamed_is_corrupt() -> None:
    tag = Tag(name="t", snapshot=SNAPSHOT, created=(2024, 1, 1, 0, 0, 0, 0), retained_millis=9)
    text = without_checksum(encode_tag(tag))
    for wrong in (b"tagCreateTimf", b"tagcreatetime", b"tagCraeteTime"):
        with pytest.raises(CorruptFileError, match="tagCreateTime"):
            decode_tag(text.replace(b"tagCreateTime", wrong), name="t", file_name="f")


@pytest.mark.parametrize("name", ["futureMember", "indexManifestSize", "guids", "checksum"])
def test_members_of_newer_writers_are_passed_over(name: str) -> None:
    plain = b'{"id":1,"schemaId":0,"baseManifestList":"b","deltaManifestList":"d","commitUser":"u",'
    plain += b'"commitIdentifier":1,"commitKind":"APPEND","timeMillis":1'
    found = decode_snapshot(plain + b',"' + name.encode() + b'":"x"}', file_name="f")
    assert found == decode_snapshot(plain + b"}", file_name="f")


def test_a_tag_is_no_snapshot() -> None:
    tag = Tag(name="t", snapshot=SNAPSHOT, created=(2024, 1, 1, 0, 0, 0, 0))
    with pytest.raises(CorruptFileError, match="holds a tag"):
        decode_snapshot(encode_tag(tag), file_name="f")


def test_no_metadata_file_passes_for_one_of_another_kind() -> None:
    kinds = {
        "manifest": (encode_manifest([]), decode_manifest),
        "list": (encode_manifest_list([]), decode_manifest_list),
        "index": (encode_index_manifest([]), decode_index_manifest),
    }
    for made_as, (data, _) in kinds.items():
        for read_as, (_, decode) in kinds.items():
            if made_as != read_as:
                with pytest.raises(CorruptFileError):
                    decode(data, file_name=f"{made_as} as {read_as}")
