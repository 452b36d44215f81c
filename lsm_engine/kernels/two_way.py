"""The compiled loop that merges two sorted inputs of words and tags."""

from typing import Any

import numpy as np

from lsm_engine.kernels.compiled import compiled_with, copy_bytes, load_i64, load_u64, store_u64
from lsm_engine.kernels.key_table import compare_tags
from lsm_engine.kernels.keys import ONE_WORD

_STRETCH = 32


def _rows_of_both(*arguments: Any) -> int:
    stop_a, stop_b = arguments[5], arguments[8]
    return int(stop_a + stop_b)


# Compiles in about 1 s; one version serves every kind of key.
@compiled_with(work=_rows_of_both)
def merge_two(
    form: int,
    tail: int,
    addresses: int,
    words_a: int,
    tags_a: int,
    stop_a: int,
    words_b: int,
    tags_b: int,
    stop_b: int,
    words: int,
    tags: int,
) -> None:
    """Merge two inputs of words and tags, given by address; equal keys come in order of tags."""
    i = j = 0
    while i < stop_a and j < stop_b:
        steps = 1
        if stop_a - i >= _STRETCH and stop_b - j >= _STRETCH:
            steps = _STRETCH
            # Inputs that hardly overlap are copied in stretches.
            if load_u64(words_a + 8 * (i + _STRETCH - 1)) < load_u64(words_b + 8 * j):
                copy_bytes(words + 8 * (i + j), words_a + 8 * i, 8 * _STRETCH)
                copy_bytes(tags + 8 * (i + j), tags_a + 8 * i, 8 * _STRETCH)
                i += _STRETCH
                continue
            if load_u64(words_b + 8 * (j + _STRETCH - 1)) < load_u64(words_a + 8 * i):
                copy_bytes(words + 8 * (i + j), words_b + 8 * j, 8 * _STRETCH)
                copy_bytes(tags + 8 * (i + j), tags_b + 8 * j, 8 * _STRETCH)
                j += _STRETCH
                continue
        for _ in range(steps):
            word_a, word_b = load_u64(words_a + 8 * i), load_u64(words_b + 8 * j)
            tag_a, tag_b = load_i64(tags_a + 8 * i), load_i64(tags_b + 8 * j)
            # Comparisons, selects and additions: nothing here for the processor to guess wrong.
            from_b = (word_b < word_a) | ((word_b == word_a) & (tag_b < tag_a))
            if form != ONE_WORD and word_a == word_b:
                order = compare_tags(form, tail, addresses, tag_b, tag_a)
                from_b = order < 0 or (order == 0 and tag_b < tag_a)
            store_u64(words + 8 * (i + j), word_b if from_b else word_a)
            store_u64(tags + 8 * (i + j), np.uint64(tag_b if from_b else tag_a))
            j += from_b
            i += not from_b
    if i < stop_a:
        copy_bytes(words + 8 * (i + j), words_a + 8 * i, 8 * (stop_a - i))
        copy_bytes(tags + 8 * (i + j), tags_a + 8 * i, 8 * (stop_a - i))
    else:
        copy_bytes(words + 8 * (i + j), words_b + 8 * j, 8 * (stop_b - j))
        copy_bytes(tags + 8 * (i + j), tags_b + 8 * j, 8 * (stop_b - j))
