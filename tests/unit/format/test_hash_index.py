"""Hash lookup files: laid out as format section 17 says, whatever the keys' lengths and hashes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format import lookup_file
from lsm_engine.format.bloom import key_hashes
from lsm_engine.format.lookup_file import (
    HashFile,
    encode_hash_file,
    put_varint,
    varint_at,
    varint_sizes,
)

INT_MAX = 2**31 - 1
VARINT_EDGES = [0, 1, 127, 128, 2**14, 2**21 - 1, 2**28, INT_MAX, 2**31, 2**32, 2**62]


def pieces(values):
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
    return np.frombuffer(b"".join(values), np.uint8), offsets


def written(pairs, load_factor=0.75, bloom_fpp=0.05):
    keys, values = pieces([key for key, _ in pairs]), pieces([value for _, value in pairs])
    return b"".join(encode_hash_file(keys, values, load_factor=load_factor, bloom_fpp=bloom_fpp))


def found_in(data, asked):
    """The values of keys, None where absent; a bloom filter must let every key through."""
    file = HashFile(pa.py_buffer(data), "f.hash")
    keys = pieces(asked)
    hashes = lookup_file.key_hashes(*keys)
    places = file.find(keys, np.arange(len(asked)), hashes)
    if file.bloom is not None:
        assert file.bloom.may_hold(hashes)[places >= 0].all()
    starts, ends = file.values(places[places >= 0])
    values = iter([file.data[a:b].tobytes() for a, b in zip(starts, ends, strict=True)])
    return [next(values) if place >= 0 else None for place in places]


def slow_find(file, data, key):
    """One key, as the format words it: probe by probe, then one read."""
    table = file.tables.get(len(key))
    if table is None:
        return None
    first = int(key_hashes(*pieces([key]))[0]) & INT_MAX
    for probe in range(table.slots):
        slot = table.table + (first + probe) % table.slots * table.slot_bytes
        stored, rest = data[slot : slot + len(key)], data[slot + len(key) :]
        if rest[0] == 0:
            return None
        if stored == key:
            place, _ = slow_varint(rest)
            size, width = slow_varint(data[table.values + place :])
            begin = table.values + place + width
            return data[begin : begin + size]
    return None


def slow_varint(data):
    value = 0
    for at, byte in enumerate(data):
        value |= (byte & 127) << 7 * at
        if byte < 128:
            return value, at + 1
    raise AssertionError("torn")


PAIRS = st.dictionaries(st.binary(max_size=6), st.binary(max_size=300), max_size=60)


@given(PAIRS, st.sampled_from([0.1, 0.75, 1.0]), st.sampled_from([None, 0.05]))
def test_keys_of_any_length_and_values_of_any_size(pairs, load_factor, bloom_fpp):
    """Empty keys, empty values and empty files among them."""
    absent = [key + b"?" for key in pairs] + [b"", b"no"]
    data = written(list(pairs.items()), load_factor, bloom_fpp)
    asked = [*pairs, *(key for key in absent if key not in pairs)]
    wanted = [pairs.get(key) for key in asked]
    assert found_in(data, asked) == wanted
    file = HashFile(pa.py_buffer(data), "f.hash")
    assert [slow_find(file, data, key) for key in asked] == wanted
    for table in file.tables.values():
        assert table.slots == max(1, round(table.count / load_factor))
        assert data[table.values] == 0


@pytest.mark.parametrize("hash_", [INT_MAX, INT_MAX - 1, -1, -(2**31), 0])
def test_hashes_at_the_edge_of_32_bits(hash_, monkeypatch):
    """All keys begin at one slot near the greatest number: hash and probe together pass it."""

    def all_alike(_, offsets):
        return np.full(len(offsets) - 1, hash_, np.int32)

    monkeypatch.setattr(lookup_file, "key_hashes", all_alike)
    pairs = [(b"k%02d" % n, b"v" * n) for n in range(50)]
    data = written(pairs, bloom_fpp=None)
    assert found_in(data, [b"k%02d" % n for n in range(60)]) == [v for _, v in pairs] + [None] * 10


def test_every_flipped_bit_and_every_cut_is_noticed():
    data = written([(b"key%d" % n, b"v" * n) for n in range(20)])
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(CorruptFileError, match=r"f\.hash"):
            HashFile(pa.py_buffer(bytes(damaged)), "f.hash")
        with pytest.raises(CorruptFileError, match=r"f\.hash"):
            HashFile(pa.py_buffer(data[:at]), "f.hash")


@pytest.mark.parametrize("number", VARINT_EDGES)
def test_numbers_at_the_edges(number):
    target = np.zeros(10, np.uint8)
    end = put_varint(target, 0, np.int64(number))
    assert end == varint_sizes(np.array([number]))[0]
    assert varint_at(target, 0, 10) == (number, end)
    assert varint_at(target, 0, end - 1)[1] < 0
