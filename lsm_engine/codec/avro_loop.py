"""The loop that runs a compiled Avro schema over blocks of records.

A position below zero is an error: minus one of the codes. Strings, bytes and fixed values
become (start << 32) | length. Everything together takes about 3 s to compile, once per machine.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lsm_engine.kernels.arrow_views import Bytes, Longs, Words
from lsm_engine.kernels.compiled import compiled, compiled_with

Table: TypeAlias = npt.NDArray[np.int64]  # two-dimensional

# The steps of a program. They live here because compiled code is cached for this file as it is.
OP_INT = 0
OP_LONG = 1
OP_BYTES = 2
OP_FLOAT = 3
OP_DOUBLE = 4
OP_BOOL = 5
OP_FIXED = 6  # operand: bytes
OP_NULLABLE = 7  # operands: which branch is null, where to go on, end of the columns to null, level
OP_PRESENT = 8
OP_LIST = 9  # operand: where its OP_LIST_END is
OP_LIST_END = 10  # operands: level of the items, where the items' program begins
OPERANDS = 6
LIST_DEPTH_MAX = 8

DONE = 0
ENDS_EARLY = 1
BAD_BRANCH = 2
BAD_LENGTH = 3
BAD_NUMBER = 4
BYTES_LEFT = 5
TOO_DEEP = 6
LEVEL_FULL = 7  # not the file's fault: the caller gave too little room
REASONS = {
    ENDS_EARLY: "a value goes beyond the end of its block",
    BAD_BRANCH: "a union names a branch that it does not have",
    BAD_LENGTH: "a length or count is negative or larger than the block",
    BAD_NUMBER: "a number does not fit its type",
    BYTES_LEFT: "a block holds more bytes than its records",
    TOO_DEEP: "arrays are nested too deeply",
}


_WORD = (1 << 64) - 1


def _varint_of_python(data: Any, position: int, end: int) -> tuple[int, int]:
    """Do what `_varint` does, with Python's numbers: most take one byte."""
    value = shift = 0
    for place in range(position, min(position + 10, end)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            value &= _WORD
            return (value >> 1) ^ -(value & 1), place + 1
        shift += 7
    return 0, -ENDS_EARLY


@compiled_with(plain=_varint_of_python)
def _varint(data: Bytes, position: int, end: int) -> tuple[Any, int]:
    """Return a zigzag number and the position behind it."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(10):
        if position >= end:
            break
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), -ENDS_EARLY


@compiled
def _scalar(data: Bytes, position: int, end: int, op: int, size: int) -> tuple[Any, int]:
    """Return the slot of a value that is no list, and the position behind it."""
    if op <= OP_BYTES:
        number, position = _varint(data, position, end)
        if position < 0:
            return np.uint64(0), position
        if op == OP_BYTES:
            if number < 0 or number > end - position:
                return np.uint64(0), -BAD_LENGTH
            word = (np.uint64(position) << np.uint64(32)) | np.uint64(number)
            return word, position + number
        if op == OP_INT and (number < -2147483648 or number > 2147483647):
            return np.uint64(0), -BAD_NUMBER
        return np.uint64(number), position
    if op == OP_PRESENT:
        return np.uint64(0), position
    width = size if op == OP_FIXED else 8 if op == OP_DOUBLE else 4 if op == OP_FLOAT else 1
    if width > end - position:
        return np.uint64(0), -ENDS_EARLY
    if op == OP_FIXED:
        return (np.uint64(position) << np.uint64(32)) | np.uint64(width), position + width
    word = np.uint64(0)
    for byte in range(width):
        word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
    if op == OP_BOOL and word > np.uint64(1):
        return np.uint64(0), -BAD_NUMBER
    return word, position + width


@compiled
def _set_null(
    ops: Table, step: int, columns: Table, slots: Words, valid: Bytes, used: Longs
) -> None:
    """Leave the columns under a null without a value in the current row of their level."""
    level = ops[step, 5]
    for column in range(ops[step, 1], ops[step, 4]):
        place = columns[column, 1]
        if columns[column, 0] == level and place >= 0:
            items = columns[column, 2]
            valid[place + used[level]] = 0
            slots[place + used[level]] = np.uint64(used[items]) if items >= 0 else np.uint64(0)


@compiled
def _next_items(
    data: Bytes, position: int, end: int, items: int, room: Longs, used: Longs, failure: Longs
) -> tuple[Any, int]:
    """Return how many items the next part of a list has, 0 at its end, and the position behind."""
    count, position = _varint(data, position, end)
    if position >= 0 and count < 0:
        count = -count
        _, position = _varint(data, position, end)
    if position < 0:
        return np.int64(0), position
    # Every item takes at least a byte.
    if count < 0 or count > end - position:
        return np.int64(0), -BAD_LENGTH
    if used[items] + count > room[items]:
        failure[2] = items
        return np.int64(0), -LEVEL_FULL
    return count, position


@compiled
def _record(
    data: Bytes,
    position: int,
    end: int,
    ops: Table,
    columns: Table,
    slots: Words,
    valid: Bytes,
    room: Longs,
    used: Longs,
    left: Longs,
    failure: Longs,
) -> int:
    """Decode one record; return the position behind it."""
    step = 0
    depth = -1
    while step < len(ops):
        op = ops[step, 0]
        if op == OP_NULLABLE:
            number, position = _varint(data, position, end)
            if position < 0 or number < 0 or number > 1:
                return position if position < 0 else -BAD_BRANCH
            if number == ops[step, 2]:
                _set_null(ops, step, columns, slots, valid, used)
                step = ops[step, 3]
            else:
                step += 1
            continue
        if op == OP_LIST:
            depth += 1
            if depth >= LIST_DEPTH_MAX:
                return -TOO_DEEP
            left[depth] = 0
            step = ops[step, 2]
            continue
        if op == OP_LIST_END:
            items = ops[step, 2]
            if left[depth] > 0:
                used[items] += 1
                left[depth] -= 1
            if left[depth] == 0:
                left[depth], position = _next_items(data, position, end, items, room, used, failure)
                if position < 0:
                    return position
            if left[depth] > 0:
                step = ops[step, 3]
                continue
            depth -= 1
            word: Any = np.uint64(used[items])
        else:
            word, position = _scalar(data, position, end, op, ops[step, 2])
            if position < 0:
                return position
        base = columns[ops[step, 1], 1]
        if base >= 0:
            place = base + used[columns[ops[step, 1], 0]]
            slots[place] = word
            valid[place] = 1
        step += 1
    return position


def _steps(data: Bytes, blocks: Table, ops: Table, *_: object) -> int:
    """Return about how many steps all records take; one has as many bytes as a name or more."""
    return max(int(blocks[:, 2].sum()) * len(ops), len(data) >> 4)


@compiled_with(work=_steps)
def run_blocks(
    data: Bytes,
    blocks: Table,  # rows of (start, end, record count)
    ops: Table,
    columns: Table,  # rows of (level, base in slots or -1, level of items or -1)
    slots: Words,
    valid: Bytes,
    room: Longs,  # rows that fit, per level
    used: Longs,  # rows filled, per level
    failure: Longs,  # (block, -, level) where it failed
) -> int:
    """Decode every record of every block into slots; return DONE or what is wrong."""
    left = np.zeros(LIST_DEPTH_MAX, np.int64)
    for block in range(len(blocks)):
        failure[0] = block
        position = blocks[block, 0]
        end = blocks[block, 1]
        for _ in range(blocks[block, 2]):
            position = _record(
                data, position, end, ops, columns, slots, valid, room, used, left, failure
            )
            if position < 0:
                return -position
            used[0] += 1
        if position != end:
            return BYTES_LEFT
    return DONE
