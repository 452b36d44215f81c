"""Sort lookup files: laid out as format section 17 says, read by a slow reader written from it."""

import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, LsmError
from lsm_engine.format.bloom import build_bloom, key_hashes
from lsm_engine.format.lookup_file import Entries, SstFile, SstWriter


def entries_of(pairs):
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return Entries(
        keys=np.frombuffer(b"".join(keys), np.uint8), key_offsets=np.cumsum([0, *map(len, keys)]).astype(np.int64),
        values=np.frombuffer(b"".join(values), np.uint8), value_offsets=np.cumsum([0, *map(len, values)]).astype(np.int64),
    )  # fmt: skip


def written(batches, block_size=64, compressed=False, bloom=False):
    out = bytearray()
    writer = SstWriter(out.extend, block_size=block_size, compressed=compressed)
    for batch in batches:
        writer.add(entries_of(batch))
    every = entries_of([pair for batch in batches for pair in batch])
    made = None
    if bloom and len(every):
        made = build_bloom(key_hashes(every.keys, every.key_offsets), entries=len(every), fpp=0.05)
    writer.finish(made)
    return bytes(out)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def slow_block(data, offset, size):
    """Entries of the block, and whether it is aligned."""
    stored, (kind, checksum) = (
        data[offset : offset + size],
        struct.unpack_from("<BI", data, offset + size),
    )
    assert zlib.crc32(stored + bytes([kind])) == checksum
    if kind:
        length, at = varint(stored, 0)
        stored = pa.Codec("zstd").decompress(stored[at:], length).to_pybytes()
    number, aligned = struct.unpack("<iB", stored[-5:])
    if aligned == 0:
        starts = range(0, len(stored) - 5, number)
    else:
        starts = struct.unpack_from(f"<{number}i", stored, len(stored) - 5 - 4 * number)
    found = []
    for start in starts:
        length, at = varint(stored, start)
        key = stored[at : at + length]
        length, at = varint(stored, at + length)
        found.append((key, stored[at : at + length]))
    return found, aligned == 0, len(stored)


def slow_read(data):
    bloom_at, bloom_size, bloom_entries, index_at, index_size, magic = struct.unpack(
        "<qiqqii", data[-36:]
    )
    assert magic == 1481571681
    index, _, _ = slow_block(data, index_at, index_size)
    blocks, expected = [], 0
    for last_key, handle in index:
        offset, at = varint(handle, 0)
        size, end = varint(handle, at)
        assert (offset, end) == (expected, len(handle))
        expected = offset + size + 5
        found = slow_block(data, offset, size)
        assert found[0][-1][0] == last_key
        blocks.append(found)
    assert index_at == expected + bloom_size
    assert (bloom_at, bloom_entries > 0) == ((expected, True) if bloom_size else (0, False))
    return blocks


def fast_read(data, name="f.sst"):
    file = SstFile(pa.py_buffer(data), name)
    pairs = []
    for handle in file.handles:
        block = file.block(handle)
        body = block.body.tobytes()
        pairs += [
            (body[a:b], body[c:d])
            for a, b, c, d in zip(block.key_starts, block.key_ends, block.value_starts, block.value_ends, strict=True)
        ]  # fmt: skip
    return file, pairs


PAIRS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=200)), max_size=30)
ALIKE = st.lists(st.tuples(st.binary(min_size=4, max_size=4), st.just(b"same")), max_size=60)


@given(st.lists(PAIRS | ALIKE, max_size=4), st.integers(20, 300), st.booleans(), st.booleans())
def test_layout_and_reading(batches, block_size, compressed, bloom):
    data = written(batches, block_size, compressed, bloom)
    wanted = [pair for batch in batches for pair in batch]
    blocks = slow_read(data)
    assert [pair for found, _, _ in blocks for pair in found] == wanted
    for number, (found, aligned, size) in enumerate(blocks):
        sizes = {len(key) + len(value) + 1 + (1 if len(value) < 128 else 2) for key, value in found}
        assert aligned == (len(sizes) == 1)
        if number < len(blocks) - 1:  # flushed by the entry that took it beyond the block size
            assert size > block_size
            assert len(found) == 1 or len(slow_block_size(found[:-1])) <= block_size
    file, pairs = fast_read(data)
    assert pairs == wanted
    assert (file.bloom is not None) == (bloom and bool(wanted))


def slow_block_size(found):
    body = b"".join(put(len(k)) + k + put(len(v)) + v for k, v in found)
    sizes = {len(put(len(k)) + k + put(len(v)) + v) for k, v in found}
    return body + bytes(5 if len(sizes) == 1 else 5 + 4 * len(found))


def put(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_golden_bytes():
    """Two aligned entries and one index entry, byte for byte."""
    data = written([[(b"\0\0\5\0\0\0", b"ab"), (b"\0\0\6\0\0\0", b"cd")]], block_size=1000)
    body = bytes.fromhex("06000005000000026162060000060000000263640a00000000")
    index = bytes.fromhex("060000060000000200190a00000000")

    def block(stored):
        return stored + b"\0" + struct.pack("<I", zlib.crc32(stored + b"\0"))

    assert data == block(body) + block(index) + struct.pack(
        "<qiqqii", 0, 0, 0, 30, len(index), 1481571681
    )


def test_compression_is_kept_only_where_it_saves_an_eighth():
    rng = np.random.default_rng(0)
    noise = [(bytes([n]), rng.bytes(100)) for n in range(10)]
    zeros = [(bytes([n]), bytes(100)) for n in range(10)]
    for pairs, kind in ((noise, 0), (zeros, 1)):
        data = written([pairs], block_size=10_000, compressed=True)
        file = SstFile(pa.py_buffer(data), "f")
        handle = file.handles[0]
        assert data[handle.offset + handle.size] == kind
        assert fast_read(data)[1] == pairs


@pytest.mark.parametrize("compressed", [False, True])
def test_every_flipped_bit_and_every_cut_is_noticed(compressed):
    """Or does no harm: then the entries are still those that were written."""
    pairs = [(b"key%03d" % n, b"v" * (n % 7)) for n in range(40)]
    data = written([pairs], 120, compressed, bloom=True)
    bloom_at, bloom_size = struct.unpack_from("<qi", data, len(data) - 36)
    names = set()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        try:
            _, found = fast_read(bytes(damaged))
        except LsmError as error:
            names.add(error.facts["file"])
            continue
        assert found == pairs
        in_footer = at >= len(data) - 36
        assert bloom_at <= at < bloom_at + bloom_size or in_footer
    assert names == {"f.sst"}
    for size in range(0, len(data), 7):
        with pytest.raises(CorruptFileError):
            fast_read(data[:size])
