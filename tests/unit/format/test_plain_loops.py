"""Loops that have a form of their own where Python interprets them: it does what the compiled one does."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lsm_engine.base.errors import LsmError
from lsm_engine.format.arrow_buffers import copy_pieces, read_only
from lsm_engine.format.avro.decoder import _number, decode_table
from lsm_engine.format.data_file import DataFileMeta, SimpleStats
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_file import encode_manifest
from lsm_engine.options.modes import EntryKind
from tests.kernel_forms import in_form


@given(st.binary(max_size=14), st.integers(0, 14), st.integers(0, 14))
@example(b"\xff" * 9 + b"\x01", 0, 10)  # the least number
@example(b"\xff" * 9 + b"\x7f", 0, 10)  # bits beyond the 64th are dropped
@example(b"\xff" * 11, 0, 11)  # no end
def test_a_number_is_read_alike(content, position, end) -> None:
    data, end = np.frombuffer(content, np.uint8), min(end, len(content))
    given = (data.ctypes.data, position, end)
    assert _number.interpret(*given) == tuple(int(one) for one in _number.compiled()(*given))


def manifest() -> bytes:
    """A manifest with every kind of column: lists with nulls, texts, numbers of any length."""
    stats = SimpleStats(min_values=b"\0abc", max_values=b"\0z", null_counts=(1, None, 1 << 40))
    file = DataFileMeta(
        file_name="data-a-0.parquet", file_size=123_456, row_count=1_000, min_key=b"\0" * 20,
        max_key=b"\1" * 70, key_stats=stats, value_stats=stats, min_sequence_number=0,
        max_sequence_number=1 << 40, schema_id=0, level=0, extra_files=("a", "b"), delete_row_count=5,
        embedded_index=b"xx", value_stats_columns=("a", "bb"), checksum=(1 << 32) - 1,
    )  # fmt: skip
    entry = ManifestEntry(kind=EntryKind.ADD, partition=b"p", bucket=1, total_buckets=9, file=file)
    return encode_manifest([entry] * 4, codec="null")


WHOLE = manifest()
SOME = ("_BUCKET", "_FILE._FILE_NAME", "_FILE._VALUE_STATS._NULL_COUNTS")
DAMAGE = st.tuples(
    st.integers(len(WHOLE) // 3, len(WHOLE) - 17), st.integers(0, 255) | st.sampled_from([128, 255])
)


@given(st.lists(DAMAGE, min_size=1, max_size=4), st.sampled_from([None, SOME]))
def test_damaged_records_are_decoded_or_refused_alike(damage, columns) -> None:
    data = bytearray(WHOLE)
    for at, byte in damage:
        data[at] = byte
    found = []
    for form in ("interpreted", "compiled"):
        with in_form(form):
            try:
                found.append(decode_table(bytes(data), file_name="m", columns=columns).to_pylist())
            except LsmError as refusal:
                found.append(str(refusal))
    assert found[0] == found[1]


@given(st.lists(st.binary(max_size=5), max_size=6))
def test_pieces_are_copied_alike(pieces) -> None:
    source = read_only(np.frombuffer(b"-".join(pieces) + b"-", np.uint8))
    offsets = np.cumsum([0, *map(len, pieces)]).astype(np.int64)
    starts = offsets[:-1] + np.arange(len(pieces))
    made = []
    for copied in (copy_pieces.interpret, copy_pieces.compiled()):
        target = np.zeros(offsets[-1], np.uint8)
        copied(source, starts, offsets, target)
        made.append(target.tobytes())
    assert made == [b"".join(pieces)] * 2
