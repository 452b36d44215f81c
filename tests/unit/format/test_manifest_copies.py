"""Entries copied between manifests: the same entries in the same order, whoever wrote them, and no manifest too large."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.format.avro.container import read_container
from lsm_engine.format.documents import check_readable_avro
from lsm_engine.format.manifest_file import (
    ManifestCopier,
    decode_manifest,
    encode_manifest,
    entries_of,
)
from tests.golden.test_client_manifests import MANIFESTS
from tests.unit.planning.facts import entry

LARGE = 1 << 30


def copied(files, *, target=LARGE, entries_max=50_000, codec="zstandard"):
    """New manifests, decoded, of (bytes, mask) pairs; what they count must be what they hold."""
    copier = ManifestCopier(codec=codec, target_size_bytes=target, entries_max=entries_max)
    made = [one for data, mask in files for one in copier.add(data, mask, file_name="from")]
    made += copier.remainder()
    found = []
    for data, count in made:
        check_readable_avro(bytes(data), decode_manifest, file_name="made")
        found.append(entries_of(decode_manifest(data, file_name="made")))
        assert len(found[-1]) == count
    return found


@given(
    st.lists(st.lists(st.booleans(), max_size=20), max_size=4),
    st.sampled_from(["zstandard", "deflate", "null"]),
)
def test_what_stands_is_copied_in_order(masks, codec):
    files, expected = [], []
    for number, mask in enumerate(masks):
        entries = [entry(f"{number}-{at}", sequence=at) for at in range(len(mask))]
        files.append((encode_manifest(entries, codec=codec), np.array(mask, np.bool_)))
        expected += [one for one, stands in zip(entries, mask, strict=True) if stands]
    found = copied(files)
    assert [one for manifest in found for one in manifest] == expected
    assert len(found) == bool(expected)


def test_a_manifest_ends_at_as_many_entries_and_at_its_size():
    entries = [entry(f"data-{number}") for number in range(5_000)]
    files = [(encode_manifest(entries), np.ones(len(entries), np.bool_))] * 2
    by_count = copied(files, entries_max=1_500)
    assert [len(one) for one in by_count] == [1_500] * 6 + [1_000]
    assert [one for manifest in by_count for one in manifest] == entries * 2
    by_size = copied(files, target=10_000)
    assert len(by_size) > 1
    assert [one for manifest in by_size for one in manifest] == entries * 2


def test_content_that_compresses_very_well_stays_within_what_readers_take():
    long = [entry(f"{'n' * 9_000}{number}") for number in range(400)]
    files = [(encode_manifest(long), np.ones(len(long), np.bool_))] * 12
    found = copied(files)  # each is looked at as a reader would
    assert len(found) > 1
    assert [one for manifest in found for one in manifest] == long * 12


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_entries_of_other_writers_are_encoded_anew(name):
    data = MANIFESTS[name].read_bytes()
    entries = entries_of(decode_manifest(data, file_name=name))
    ours = [entry("ours")]
    files = [
        (data, np.ones(len(entries), np.bool_)),
        (encode_manifest(ours), np.ones(1, np.bool_)),
    ]
    (found,) = copied(files)
    assert found == [*entries, *ours]


def test_damage_is_named():
    data = bytearray(encode_manifest([entry("a")], codec="null"))
    (block,) = read_container(bytes(data), file_name="m").blocks
    data[block.offset + block.size - 1] ^= 0x80
    with pytest.raises((CorruptFileError, UnsupportedError), match=r"\S") as caught:
        copied([(bytes(data), np.ones(1, np.bool_))])
    assert caught.value.facts["file"] == "from"
