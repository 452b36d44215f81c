"""Loops that have a form of their own where Python interprets them: it does what the compiled one does."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lsm_engine.codec.avro_loop import _number
from lsm_engine.codec.byte_copies import copy_pieces, read_only


@given(st.binary(max_size=14), st.integers(0, 14), st.integers(0, 14))
@example(b"\xff" * 9 + b"\x01", 0, 10)  # the least number
@example(b"\xff" * 9 + b"\x7f", 0, 10)  # bits beyond the 64th are dropped
@example(b"\xff" * 11, 0, 11)  # no end
def test_a_number_is_read_alike(content, position, end) -> None:
    data, end = np.frombuffer(content, np.uint8), min(end, len(content))
    given = (data.ctypes.data, position, end)
    assert _number.interpret(*given) == tuple(int(one) for one in _number.compiled()(*given))


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
