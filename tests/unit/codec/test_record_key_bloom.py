"""Bloom filters of record keys: bytes that Hadoop's classes, which Hudi's are, wrote and would read."""

import base64

import numpy as np
import pytest

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.base.modes import BloomFilterType
from lsm_engine.codec.record_key_bloom import (
    BLOOM_KEY,
    MAX_KEY,
    MIN_KEY,
    OLDER_BLOOM_KEY,
    TYPE_KEY,
    RecordKeys,
    bit_places,
    build_record_key_bloom,
    decode_record_key_bloom,
    filter_shape,
    hash_chains,
    read_key_footer,
)

# What the BloomFilter (287 bits, 7 hashes, murmur) and DynamicBloomFilter (72, 10, murmur, 5 a row)
# of hadoop-client-api 3.4 wrote after these keys were added in this order, as base64.
KEYS = ["a", "ab", "abc", "abcd", "id:1,region:eu", "über", "key-00000001", "ÿþý"]
SIMPLE = b"/////wAAAAcBAAABHwAIgECCAABgCRnlAgAC0AYhiBAUQjBACJOAAgCMEIQgoBAgAQ=="
DYNAMIC = b"/////wAAAAoBAAAASAAAAAUAAAADAAAAAv////8AAAAKAQAAAEjsO8QMYhwT2Iv/////AAAACgEAAABIJ6TCsOGiAYFE"  # fmt: skip


def pieces(keys):
    stored = [key.encode() for key in keys]
    offsets = np.cumsum([0, *map(len, stored)]).astype(np.int64)
    return np.frombuffer(b"".join(stored), np.uint8), offsets


def may_hold(bloom, keys):
    return bloom.may_hold(RecordKeys(*pieces(keys))).tolist()


@pytest.mark.parametrize(
    ("stored", "kind"), [(SIMPLE, BloomFilterType.SIMPLE), (DYNAMIC, BloomFilterType.DYNAMIC_V0)]
)
def test_foreign_filters_hold_their_keys(stored, kind):
    bloom = decode_record_key_bloom(stored, kind, file_name="f")
    assert all(may_hold(bloom, KEYS))
    assert sum(may_hold(bloom, [f"absent-{n}" for n in range(1000)])) < 120


def test_our_bytes_are_theirs():
    """The same keys, bits and hashes give the same bytes."""
    ours = np.zeros(36, np.uint8)
    for place in bit_places(hash_chains(*pieces(KEYS), 7), 287).reshape(-1).tolist():
        ours[place // 8] |= 1 << place % 8
    assert base64.b64decode(SIMPLE)[13:] == ours.tobytes()


@pytest.mark.parametrize("kind", list(BloomFilterType))
@pytest.mark.parametrize(
    "count", [300_000, pytest.param(2_000_000, marks=pytest.mark.sweep)], ids=str
)
def test_a_million_keys(kind, count):
    keys = [f"k{n}" for n in range(count)]
    data, offsets = pieces(keys)
    half = len(keys) // 2
    stored = build_record_key_bloom(
        data, offsets[: half + 1], kind,
        entries=half if kind is BloomFilterType.SIMPLE else 2 * count // 5,
        fpp=0.001, max_entries=half,
    )  # fmt: skip
    bloom = decode_record_key_bloom(base64.b64encode(stored), kind, file_name="f")
    found = np.array(may_hold(bloom, keys))
    assert found[:half].all()
    rows = len(bloom.rows)
    assert rows == (1 if kind is BloomFilterType.SIMPLE else 2)
    assert found[half:].mean() <= 2 * 0.001 * rows


def footer(**changes):
    members = {BLOOM_KEY: SIMPLE, TYPE_KEY: b"SIMPLE", MIN_KEY: b"a", MAX_KEY: b"z"}
    return {**members, **changes}


def test_absence_says_nothing():
    for members in (None, {}, {MIN_KEY: b"a"}):
        said = read_key_footer(members, file_name="f")
        assert (said.lowest, said.highest, said.bloom) == (None, None, None)


def test_the_older_name_of_the_filter_in_a_footer_is_read():
    members = footer()
    members[OLDER_BLOOM_KEY] = members.pop(BLOOM_KEY)
    assert read_key_footer(members, file_name="f").bloom is not None


def test_hashes_are_counted_up_as_hudi_does():
    assert filter_shape(60_000, 1e-9) == (2_587_966, 30)
    assert filter_shape(10, 0.1)[1] == 4  # 3.3, which would round down


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({**footer(), TYPE_KEY: b"ROARING"}, UnsupportedError),
        ({**footer(), MIN_KEY: b"zz"}, CorruptFileError),
        ({**footer(), BLOOM_KEY: SIMPLE[:-8]}, CorruptFileError),
        ({**footer(), BLOOM_KEY: SIMPLE[:9]}, CorruptFileError),
        ({**footer(), BLOOM_KEY: b"not base64!"}, CorruptFileError),
        ({**footer(), BLOOM_KEY: b""}, CorruptFileError),
        ({**footer(), BLOOM_KEY: SIMPLE, TYPE_KEY: b"DYNAMIC_V0"}, CorruptFileError),
    ],
)
def test_bad_footers_name_the_file(members, error):
    with pytest.raises(error, match=r"some\.parquet"):
        read_key_footer(members, file_name="some.parquet")


def test_every_truncation_is_noticed():
    raw = base64.b64decode(DYNAMIC)
    for size in range(len(raw)):
        with pytest.raises(CorruptFileError):
            decode_record_key_bloom(
                base64.b64encode(raw[:size]), BloomFilterType.DYNAMIC_V0, file_name="f"
            )
