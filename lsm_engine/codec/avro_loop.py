"""The loop that runs a compiled Avro schema over blocks of records.

A position below zero is an error: minus one of the codes. Strings, bytes and fixed values
become (start << 32) | length. Compiled functions are handed addresses: an array that is handed on is
counted by locked instructions, which take longer than most values.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lsm_engine.kernels.arrow_views import Bytes, Longs, Words
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    load_i64,
    load_u8,
    store_u8,
    store_u64,
)

Table: TypeAlias = npt.NDArray[np.int64]  # two-dimensional

# The steps of a program. They live here because compiled code is cached for this file as it is.
OP_INT = 0
OP_LONG = 1
OP_BYTES = 2
OP_NULLABLE = 3  # operands: which branch is null, where to go on, end of the columns to null, level
OP_LIST_END = 4  # operands: level of the items, where the items' program begins
OP_FLOAT = 5  # this one and those behind it begin with no number
OP_DOUBLE = 6
OP_BOOL = 7
OP_FIXED = 8  # operand: bytes
OP_PRESENT = 9
OP_LIST = 10  # operand: where its OP_LIST_END is
OPERANDS = 6
LIST_DEPTH_MAX = 8
_WORD = 2**64 - 1

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


@compiled
def _number(data: int, position: int, end: int) -> tuple[Any, int]:
    """Return a zigzag number and the position behind it."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(load_u8(data + position))
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), -ENDS_EARLY


@compiled
def _primitive(number: Any, position: int, end: int, op: int) -> tuple[Any, int]:
    """Return the slot of a value that begins with a number, and the position behind it."""
    if op == OP_BYTES:
        if number < 0 or number > end - position:
            return np.uint64(0), -BAD_LENGTH
        return (np.uint64(position) << np.uint64(32)) | np.uint64(number), position + number
    if op == OP_INT and (number < -2147483648 or number > 2147483647):
        return np.uint64(0), -BAD_NUMBER
    return np.uint64(number), position


@compiled
def _fixed(data: int, position: int, end: int, op: int, size: int) -> tuple[Any, int]:
    """Return the slot of a value whose width is known, and the position behind it."""
    if op == OP_PRESENT:
        return np.uint64(0), position
    width = size if op == OP_FIXED else 8 if op == OP_DOUBLE else 4 if op == OP_FLOAT else 1
    if width > end - position:
        return np.uint64(0), -ENDS_EARLY
    if op == OP_FIXED:
        return (np.uint64(position) << np.uint64(32)) | np.uint64(width), position + width
    word = np.uint64(0)
    for byte in range(width):
        word |= np.uint64(load_u8(data + position + byte)) << np.uint64(8 * byte)
    if op == OP_BOOL and word > np.uint64(1):
        return np.uint64(0), -BAD_NUMBER
    return word, position + width


@compiled
def _set_null(op: int, columns: int, slots: int, valid: int, used: int) -> None:
    """Leave the columns under a null without a value in the current row of their level."""
    level = load_i64(op + 40)
    row = load_i64(used + 8 * level)
    for column in range(load_i64(op + 8), load_i64(op + 32)):
        address = columns + 24 * column
        base, items = load_i64(address + 8), load_i64(address + 16)
        if base >= 0 and load_i64(address) == level:
            store_u8(valid + base + row, np.uint8(0))
            word = np.uint64(load_i64(used + 8 * items)) if items >= 0 else np.uint64(0)
            store_u64(slots + 8 * (base + row), word)


@compiled
def _store(column: int, word: Any, slots: int, valid: int, used: int) -> None:
    """Write a column's slot in the current row of its level, unless it is not asked for."""
    place = load_i64(column + 8)
    if place >= 0:
        place += load_i64(used + 8 * load_i64(column))
        store_u64(slots + 8 * place, word)
        store_u8(valid + place, np.uint8(1))


@compiled
def _next_items(data: int, position: int, end: int, count: Any, free: Any) -> tuple[Any, int]:
    """Return how many items the next part of a list has, 0 at its end, and the position behind."""
    if count < 0:  # how many bytes they take follows, for whoever skips them
        count = -count
        _, position = _number(data, position, end)
        if position < 0:
            return np.int64(0), position
    # Every item takes at least a byte.
    if count < 0 or count > end - position:
        return np.int64(0), -BAD_LENGTH
    return (count, position) if count <= free else (np.int64(0), -LEVEL_FULL)


@compiled
def _record(
    data: int,
    position: int,
    end: int,
    program: tuple[int, int, int],
    filled: tuple[int, int, int, int],
    remaining: int,
    failure: int,
) -> int:
    """Decode one record; return the position behind it."""
    (ops, steps, columns), (slots, valid, room, used) = program, filled
    step, depth = 0, -8
    while step < steps:
        operands = ops + 8 * OPERANDS * step
        op, first = load_i64(operands), load_i64(operands + 16)
        word: Any = np.uint64(0)
        if op == OP_LIST:
            depth += 8
            if depth >= 8 * LIST_DEPTH_MAX:
                return -TOO_DEEP
            store_u64(remaining + depth, word)
            step = first
            continue
        if op == OP_LIST_END and load_i64(remaining + depth) > 0:
            items = load_i64(remaining + depth) - 1
            store_u64(remaining + depth, np.uint64(items))
            store_u64(used + 8 * first, np.uint64(load_i64(used + 8 * first) + 1))
            if items > 0:
                step = load_i64(operands + 24)
                continue
        if op >= OP_FLOAT:
            word, position = _fixed(data, position, end, op, first)
        else:
            number, position = _number(data, position, end)
            if op == OP_NULLABLE and position >= 0:
                if number < 0 or number > 1:
                    return -BAD_BRANCH
                step += 1
                if number == first:
                    _set_null(operands, columns, slots, valid, used)
                    step = load_i64(operands + 24)
                continue
            if op == OP_LIST_END and position >= 0:
                branch_used = load_i64(used + 8 * first)
                free = load_i64(room + 8 * first) - branch_used
                number, position = _next_items(data, position, end, number, free)
                if number > 0:
                    store_u64(remaining + depth, np.uint64(number))
                    step = load_i64(operands + 24)
                    continue
                store_u64(failure + 16, np.uint64(first))
                depth -= 8
                word = np.uint64(branch_used)
            elif position >= 0:
                word, position = _primitive(number, position, end, op)
        if position < 0:
            return position
        _store(columns + 24 * load_i64(operands + 8), word, slots, valid, used)
        step += 1
    return position


class _Damaged(Exception):  # `level`: of the items that there was too little room for
    def __init__(self, code: int, level: int = 0) -> None:
        self.code, self.level = code, level


class _Reader:
    """One run: what it reads from, the program, and where it writes to."""

    def __init__(
        self,
        data: bytes,
        ops: list[list[int]],
        columns: list[list[int]],
        slots: Any,
        valid: Any,
        room: list[int],
    ) -> None:
        self._data, self._room = data, room
        self._slots, self._valid = slots, valid
        self.used = [0] * len(room)
        self._program = [(*op, *columns[op[1]][:2]) for op in ops]
        self._nulls = {
            step: [
                (base, items)
                for level, base, items in columns[op[1] : op[4]]
                if level == op[5] and base >= 0
            ]
            for step, op in enumerate(ops)
            if op[0] == OP_NULLABLE
        }

    def record(self, position: int, end: int) -> int:
        """Decode one record; return the position behind it."""
        data, program, used = self._data, self._program, self.used
        slots, valid = self._slots, self._valid
        remaining: list[int] = []
        step = 0
        while step < len(program):
            op, _, first, second, _, _, level, base = program[step]
            if op <= OP_NULLABLE:
                byte = data[position] if position < end else 128
                if byte < 128:
                    number = (byte >> 1) ^ -(byte & 1)
                    position += 1
                else:
                    number, position = self._varint(position, end)
                word = number
                if op == OP_NULLABLE:
                    if number != first:
                        if not 0 <= number <= 1:
                            raise _Damaged(BAD_BRANCH)
                        step += 1
                    else:
                        self._set_null(step)
                        step = second
                    continue
                if op == OP_BYTES:
                    if not 0 <= number <= end - position:
                        raise _Damaged(BAD_LENGTH)
                    word = position << 32 | number
                    position += number
                elif number < 0:
                    word &= _WORD
                if op == OP_INT and not -(2**31) <= number < 2**31:
                    raise _Damaged(BAD_NUMBER)
            elif op == OP_LIST:
                if len(remaining) == LIST_DEPTH_MAX:
                    raise _Damaged(TOO_DEEP)
                remaining.append(0)
                step = first
                continue
            elif op == OP_LIST_END:
                if remaining[-1] > 0:
                    used[first] += 1
                    remaining[-1] -= 1
                if remaining[-1] == 0:
                    remaining[-1], position = self._next_items(position, end, first)
                if remaining[-1] > 0:
                    step = second
                    continue
                remaining.pop()
                word = used[first]
            else:
                word, position = self._fixed(op, first, position, end)
            if base >= 0:
                place = base + used[level]
                slots[place] = word
                valid[place] = 1
            step += 1
        return position

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if position >= end:
                break
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                value &= _WORD
                return (value >> 1) ^ -(value & 1), position
        raise _Damaged(ENDS_EARLY)

    def _fixed(self, op: int, size: int, position: int, end: int) -> tuple[int, int]:
        """Return the slot of a value whose width is known, and the position behind it."""
        if op == OP_PRESENT:
            return 0, position
        width = {OP_FIXED: size, OP_DOUBLE: 8, OP_FLOAT: 4}.get(op, 1)
        if width > end - position:
            raise _Damaged(ENDS_EARLY)
        behind = position + width
        if op == OP_FIXED:
            return position << 32 | width, behind
        word = int.from_bytes(self._data[position:behind], "little")
        if op == OP_BOOL and word > 1:
            raise _Damaged(BAD_NUMBER)
        return word, behind

    def _set_null(self, step: int) -> None:
        place = self.used[self._program[step][5]]
        for base, items in self._nulls[step]:
            self._valid[base + place] = 0
            self._slots[base + place] = self.used[items] if items >= 0 else 0

    def _next_items(self, position: int, end: int, items: int) -> tuple[int, int]:
        """Return how many items the next part of a list has, 0 at its end, and the position behind."""
        count, position = self._varint(position, end)
        if count < 0:
            count = -count
            _, position = self._varint(position, end)
        if not 0 <= count <= end - position:  # every item takes at least a byte
            raise _Damaged(BAD_LENGTH)
        if self.used[items] + count > self._room[items]:
            raise _Damaged(LEVEL_FULL, items)
        return count, position


def _run_few_blocks(data: Any, blocks: Any, ops: Any, columns: Any, *arguments: Any) -> int:
    """Do what `run_blocks` does, in plain Python: some 15 microseconds for a manifest's entry."""
    slots, valid, room, used, failure = arguments
    reader = _Reader(bytes(data), ops.tolist(), columns.tolist(), slots, valid, room.tolist())
    try:
        for block, (position, end, count) in enumerate(blocks.tolist()):
            failure[0] = block
            for _ in range(count):
                position = reader.record(position, end)
                reader.used[0] += 1
            if position != end:
                return BYTES_LEFT
    except _Damaged as found:
        failure[2] = found.level
        return found.code
    for level, count in enumerate(reader.used):
        used[level] = count
    return DONE


def _record_steps(data: Bytes, blocks: Table, ops: Table, *_: Any) -> int:
    """How many microseconds `_run_few_blocks` takes: about one for four steps of the program.

    Items of lists are not counted; each takes at least a byte.
    """
    return max(int(blocks[:, 2].sum()) * len(ops) // 4, len(data) // 16)


@compiled_with(interpreted=_run_few_blocks, work=_record_steps)
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
    remaining = np.zeros(LIST_DEPTH_MAX, np.int64)
    program = (ops.ctypes.data, len(ops), columns.ctypes.data)
    filled = (slots.ctypes.data, valid.ctypes.data, room.ctypes.data, used.ctypes.data)
    for block in range(len(blocks)):
        failure[0] = block
        position, end = blocks[block, 0], blocks[block, 1]
        for _ in range(blocks[block, 2]):
            position = _record(
                data.ctypes.data, position, end, program, filled, remaining.ctypes.data,
                failure.ctypes.data,
            )  # fmt: skip
            if position < 0:
                return -position
            used[0] += 1
        if position != end:
            return BYTES_LEFT
    return DONE
