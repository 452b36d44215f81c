"""Decoder of Avro files into Arrow tables: only the selected columns, and no Python object per record."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, ErrorKind, LsmError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.arrow_buffers import (
    binary_array,
    bool_array,
    fixed_array,
    gather_pieces,
    validity,
)
from lsm_engine.format.avro.container import (
    MANIFEST_LIMITS,
    Block,
    Container,
    Limits,
    read_container,
    unpacked,
)
from lsm_engine.format.binary_row import decimal_column
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    load_i64,
    load_u8,
    store_u8,
    store_u64,
)

# -- The loop that runs a compiled Avro schema over blocks of records ------------------------------
#
# A position below zero is an error: minus one of the codes. Strings, bytes and fixed values
# become (start << 32) | length. Compiled functions are handed addresses: an array that is
# handed on is counted by locked instructions, which take longer than most values.

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
FAILURE_PLACES = 3
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
    if count < 0:  # how many bytes they take follows, for readers that skip them
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
    scratch: tuple[int, int],
) -> int:
    """Decode one record; return the position behind it."""
    (ops, steps, columns), (slots, valid, room, used) = program, filled
    remaining, failure = scratch
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


# The same rules for few records, without a compiler: decision 66 has the figures.


class _Damaged(Exception):  # `level`: of the items that there was too little room for
    def __init__(self, code: int, level: int = 0) -> None:
        self.code, self.level = code, level


class _Reader:
    """One run of the decoder in Python: its input, its program and its output."""

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


class DecodedSlots(NamedTuple):
    """The output of a program: slots, which of them have a value, and the rows of each level.

    `room` is how many rows of a level fit, `used` how many are filled.
    """

    slots: Words
    valid: Bytes
    room: Longs
    used: Longs


def _run_few_blocks(
    data: Any, blocks: Any, ops: Any, columns: Any, target: DecodedSlots, failure: Any
) -> int:
    """Decode blocks as `run_blocks` does, in plain Python: about 15 microseconds per manifest entry."""
    slots: Any
    valid: Any
    room: Any
    slots, valid, room, used = target
    reader = _Reader(bytes(data), ops.tolist(), columns.tolist(), slots, valid, room.tolist())
    try:
        for block, (position, end, count) in enumerate(blocks.tolist()):
            failure[0] = block
            for _ in range(count):
                position = reader.record(position, end)
                reader.used[0] += 1
            if position != end:
                return BYTES_LEFT
    except (
        _Damaged
    ) as damage:  # the compiled loop returns codes too, as it cannot raise with values
        failure[2] = damage.level
        return damage.code
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
    target: DecodedSlots,
    failure: Longs,  # (block, -, level) where it failed, then a place for each level of lists
) -> int:
    """Decode every record of every block into slots; return DONE or the code of the damage."""
    slots, valid, room, used = target
    program = (ops.ctypes.data, len(ops), columns.ctypes.data)
    filled = (slots.ctypes.data, valid.ctypes.data, room.ctypes.data, used.ctypes.data)
    scratch = (failure.ctypes.data + 8 * FAILURE_PLACES, failure.ctypes.data)
    for block in range(len(blocks)):
        failure[0] = block
        position, end = blocks[block, 0], blocks[block, 1]
        for _ in range(blocks[block, 2]):
            position = _record(data.ctypes.data, position, end, program, filled, scratch)
            if position < 0:
                return -position
            used[0] += 1
        if position != end:
            return BYTES_LEFT
    return DONE


# -- An Avro schema compiled: a program for the decoding loop, and the tree of columns it fills ----
#
# Every value goes into a numbered column. A column belongs to a level: level 0 has one row per
# record, and every array or map opens a level of its own with one row per item. Values wider
# than a word are kept as (start, length) of their bytes.

DEPTH_MAX = 32
COLUMNS_MAX = 20_000


@record
class Leaf:
    """A column of plain values of an Arrow type."""

    name: str
    column: int
    kind: pa.DataType
    nullable: bool


@record
class Struct:
    """A record. `presence` is the column that holds where it is not null, if it can be."""

    name: str
    presence: int | None
    members: "tuple[Node, ...]"


@record
class ListNode:
    """An array, or a map when `is_map` (its item is then a Struct of key and value).

    The column holds, for every row, where its items end.
    """

    name: str
    column: int
    level: int
    item: "Node"
    nullable: bool
    is_map: bool


Node = Leaf | Struct | ListNode


@record
class Program:
    """The program of the decoding loop, and the tree of the columns that it decodes."""

    root: Struct  # column 0 is none of its fields: where each record begins
    ops: Longs  # one row of OPERANDS numbers per step
    column_levels: tuple[int, ...]
    column_items: tuple[int, ...]  # the level of a list column's items, -1 for other columns
    level_count: int


_PRIMITIVES: dict[str, tuple[int, pa.DataType]] = {
    "int": (OP_INT, pa.int32()),
    "long": (OP_LONG, pa.int64()),
    "float": (OP_FLOAT, pa.float32()),
    "double": (OP_DOUBLE, pa.float64()),
    "boolean": (OP_BOOL, pa.bool_()),
    "bytes": (OP_BYTES, pa.binary()),
    "string": (OP_BYTES, pa.string()),
}
# The two families of timestamps differ in meaning only, and writers of the format swap them
# (format section 7), so the table's own types decide about time zones, not these.
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


def compile_schema(schema: Any, *, file_name: str) -> Program:
    """Return the program that decodes records of a writer's schema.

    The schema is a record, or a union of null and a record. Unions are otherwise of null and one
    type. Raises UnsupportedError for Avro that no table file uses (other unions, enums, recursion,
    values that take no bytes) and CorruptFileError for what is no schema.
    """
    compiler = _Compiler(file_name)
    compiler.emit(OP_FIXED, compiler.column(0), 0)
    root = compiler.node(schema, _Place())
    if not isinstance(root, Struct):
        compiler.refuse("the file does not hold records")
    return Program(
        root=root,
        ops=np.array(compiler.ops, np.int64).reshape(-1, OPERANDS),
        column_levels=tuple(compiler.levels),
        column_items=tuple(compiler.items),
        level_count=compiler.level_count,
    )


@record
class _Place:
    """Where a schema stands in that of the file. `nullable`: a null around it leaves its column without a value."""

    name: str = ""
    level: int = 0
    depth: int = 0
    nullable: bool = False
    namespace: str = ""

    def inside(self, **changes: Any) -> "_Place":
        """Return the place of a schema within this one."""
        return replace(self, depth=self.depth + 1, **changes)


class _Compiler:
    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.ops: list[list[int]] = []
        self.levels: list[int] = []
        self.items: list[int] = []
        self.level_count = 1
        self.named: dict[str, tuple[Mapping[str, Any], str]] = {}

    def refuse(self, message: str) -> NoReturn:
        raise UnsupportedError(
            f"avro schema: {message}", kind=ErrorKind.UNSUPPORTED_FORMAT, file=self.file_name
        )

    def corrupt(self, message: str) -> NoReturn:
        raise CorruptFileError(f"avro schema: {message}", file=self.file_name)

    def emit(self, op: int, column: int, *operands: int) -> int:
        self.ops.append([op, column, *operands, *[0] * (OPERANDS - 2 - len(operands))])
        return len(self.ops) - 1

    def column(self, level: int, items: int = -1) -> int:
        if len(self.levels) >= COLUMNS_MAX:
            self.refuse(f"it has more than {COLUMNS_MAX} columns")
        self.levels.append(level)
        self.items.append(items)
        return len(self.levels) - 1

    def node(self, schema: Any, place: _Place) -> Node:
        """Compile any schema."""
        if place.depth > DEPTH_MAX:
            self.refuse("it is nested too deeply, or in itself")
        if isinstance(schema, list):
            return self.union(schema, place)
        if isinstance(schema, str):
            return self.word({"type": schema}, place)
        if not isinstance(schema, dict) or "type" not in schema:
            self.corrupt(f"{str(schema)[:80]!r} is no type")
        if not isinstance(schema["type"], str):
            return self.node(schema["type"], place.inside())
        return self.word(schema, place)

    def union(self, branches: list[Any], place: _Place) -> Node:
        nulls = [index for index, branch in enumerate(branches) if branch == "null"]
        if len(branches) != 2 or len(nulls) != 1:
            self.refuse(f"field {place.name!r} is a union of other than null and one type")
        branch = branches[1 - nulls[0]]
        first_column = len(self.levels)
        step = self.emit(OP_NULLABLE, first_column, nulls[0])
        presence = self.column(place.level) if self.is_record(branch, place.namespace) else None
        if presence is not None:
            self.emit(OP_PRESENT, presence)
        inner = self.node(branch, place.inside(nullable=True))
        self.ops[step][3:6] = [len(self.ops), len(self.levels), place.level]
        if isinstance(inner, Struct):
            inner = Struct(name=place.name, presence=presence, members=inner.members)
        return inner

    def is_record(self, schema: Any, namespace: str) -> bool:
        """Whether a branch is a record, spelled out or named."""
        if isinstance(schema, str):
            schema = (self.resolve(schema, namespace) or ("", ""))[0]
        while isinstance(schema, dict):
            if schema.get("type") == "record":
                return True
            schema = schema.get("type")
        return False

    def resolve(self, name: str, namespace: str) -> tuple[Mapping[str, Any], str] | None:
        """Return a named type declared before, and the namespace of its members."""
        return self.named.get(_full_name(name, namespace)) or self.named.get(name)

    def word(self, schema: Mapping[str, Any], place: _Place) -> Node:
        kind = schema["type"]
        if kind == "record":
            return self.struct(schema, place)
        if kind in ("array", "map"):
            return self.list_of(schema, place)
        if kind == "fixed":
            return self.fixed(schema, place)
        if kind in _PRIMITIVES:
            op, arrow = _PRIMITIVES[kind]
            column = self.column(place.level)
            self.emit(op, column)
            stored = _LOGICAL.get((kind, str(schema.get("logicalType"))), arrow)
            if kind == "bytes" and schema.get("logicalType") == "decimal":
                stored = self.decimal(schema)
            return Leaf(name=place.name, column=column, kind=stored, nullable=place.nullable)
        resolved = self.resolve(kind, place.namespace)
        if resolved is None:
            self.refuse(f"field {place.name!r} has type {str(kind)[:80]!r}")
        return self.node(resolved[0], place.inside(namespace=resolved[1]))

    def struct(self, schema: Mapping[str, Any], place: _Place) -> Struct:
        space = self.declare(schema, place.namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields
        ):
            self.corrupt(f"record {place.name!r} has no proper fields")
        if not fields:
            self.refuse(f"record {place.name!r} has no fields")
        if len({f["name"] for f in fields}) != len(fields):
            self.corrupt(f"record {place.name!r} has two fields of one name")
        members = tuple(
            self.node(f["type"], place.inside(name=f["name"], namespace=space)) for f in fields
        )
        return Struct(name=place.name, presence=None, members=members)

    def declare(self, schema: Mapping[str, Any], namespace: str) -> str:
        """Remember a named type; return the namespace its members are in."""
        name = schema.get("name")
        if not isinstance(name, str):
            self.corrupt("a named type has no name")
        space = schema.get("namespace", namespace)
        full = _full_name(name, str(space))
        space = full.rpartition(".")[0]
        self.named.setdefault(full, (schema, space))
        return space

    def list_of(self, schema: Mapping[str, Any], place: _Place) -> ListNode:
        is_map = schema["type"] == "map"
        item_schema = schema.get("values" if is_map else "items")
        item_level = self.level_count
        self.level_count += 1
        if self.level_count > COLUMNS_MAX:
            self.refuse("it has too many arrays")
        column = self.column(place.level, item_level)
        begin = self.emit(OP_LIST, column)
        items = place.inside(level=item_level, nullable=False)
        if is_map:
            key = self.node("string", replace(items, name="key"))
            value = self.node(item_schema, replace(items, name="value"))
            item: Node = Struct(name="entries", presence=None, members=(key, value))
        else:
            item = self.node(item_schema, replace(items, name="element"))
        end = self.emit(OP_LIST_END, column, item_level, begin + 1)
        self.ops[begin][2] = end
        return ListNode(
            name=place.name, column=column, level=item_level, item=item, nullable=place.nullable,
            is_map=is_map,
        )  # fmt: skip

    def fixed(self, schema: Mapping[str, Any], place: _Place) -> Leaf:
        self.declare(schema, place.namespace)
        size = schema.get("size")
        if type(size) is not int or not 0 < size < 1 << 20:
            self.refuse(f"field {place.name!r} has a fixed size of {size!r}")
        column = self.column(place.level)
        self.emit(OP_FIXED, column, size)
        stored = self.decimal(schema) if schema.get("logicalType") == "decimal" else pa.binary()
        return Leaf(name=place.name, column=column, kind=stored, nullable=place.nullable)

    def decimal(self, schema: Mapping[str, Any]) -> pa.DataType:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            self.corrupt("a decimal has no proper precision")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            self.refuse(f"a decimal has precision {precision} and scale {scale}")
        return pa.decimal128(precision, scale)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


# -- Avro files → Arrow tables: no Python object per record, only the columns asked for ------------

_CHUNK_BYTES = 8 << 20
_STARTS = 0  # the column of where records begin
_LOW = np.uint64(0xFFFFFFFF)


def decode_table(
    data: bytes,
    *,
    file_name: str,
    columns: Collection[str] | None = None,
    flat: bool = True,
    limits: Limits = MANIFEST_LIMITS,
) -> pa.Table:
    """Return the records of an Avro file as a table; `columns` None: all of them.

    Flat, members of nested records are columns of dotted names (`_FILE._FILE_NAME`), null where the
    record is; otherwise they are structs. Names in `columns` that the file does not have are left
    out. Raises CorruptFileError (with file and offset) and UnsupportedError; never more memory than
    `limits` allow.
    """
    container = read_container(data, file_name=file_name, limits=limits)
    return AvroRecords(container, flat=flat).decode(columns)


def decode_joined(
    containers: Sequence[Container], columns: Collection[str] | None = None
) -> tuple[pa.Table, list[int]] | None:
    """Return the records of small files, one file's behind the other's, and how many each has.

    `columns` None: all of them. What a small file costs is mostly work per column. None where their
    schemas differ. What is raised may name another of them: decode them one by one to learn which.
    """
    if any(container.schema != containers[0].schema for container in containers):
        return None
    table = AvroRecords(containers[0], flat=True).decode(columns, behind=containers[1:])
    return table, [container.row_count for container in containers]


class AvroRecords:
    """The records of an open Avro file, as columns of the blocks that are asked for."""

    def __init__(self, container: Container, *, flat: bool) -> None:
        self.container = container
        self._program = _program(container.schema, container.file_name)
        self._fields = list(_fields(self._program.root, "", flat=flat))
        self.schema = pa.schema([(name, arrow_type_of(node)) for name, node in self._fields])

    def decode(
        self,
        columns: Collection[str] | None = None,
        blocks: Sequence[Block] | None = None,
        *,
        behind: Sequence[Container] = (),
    ) -> pa.Table:
        """Return columns of the records of some blocks; None: all blocks.

        `behind`: files of the same schema whose records follow.
        """
        selected = [
            (name, node) for name, node in self._fields if columns is None or name in columns
        ]
        stored = np.zeros(len(self._program.column_levels), np.bool_)
        for _, node in selected:
            _mark(node, stored)
        chunks: list[list[pa.Array]] = [[] for _ in selected]
        unfolded = chain(unpacked(self.container, blocks), *map(unpacked, behind))
        for decoded in self._decoded(unfolded, stored):
            for parts, (_, node) in zip(chunks, selected, strict=True):
                parts.append(_array(decoded, node))
        types = [arrow_type_of(node) for _, node in selected]
        arrays = [pa.chunked_array(parts, kind) for parts, kind in zip(chunks, types, strict=True)]
        return pa.Table.from_arrays(arrays, names=[name for name, _ in selected])

    def places(self) -> Iterator[tuple[Bytes, Longs]]:
        """Yield the content of some blocks at a time, and where each of its n records begins and the last ends."""
        stored = np.zeros(len(self._program.column_levels), np.bool_)
        stored[_STARTS] = True
        for decoded in self._decoded(unpacked(self.container), stored):
            starts = (decoded.words(_STARTS) >> np.uint64(32)).astype(np.int64)
            yield decoded.data, np.append(starts, len(decoded.data))

    def _decoded(
        self, unfolded: Iterable[tuple[Block, bytes]], stored: Bools
    ) -> Iterator["_Decoded"]:
        for chunk in _chunks(unfolded, self.container.file_name):
            yield _run(chunk, self._program, stored, self.container.limits)


def _program(schema: Any, file_name: str) -> Program:
    """Compile a schema, or find it compiled: the manifests of a table have one schema, or few."""
    try:
        return _program_of_text(json.dumps(schema))
    except LsmError:
        return compile_schema(schema, file_name=file_name)  # refused again, now naming the file


@lru_cache(maxsize=64)
def _program_of_text(text: str) -> Program:
    return compile_schema(json.loads(text), file_name="")


def arrow_type_of(node: Node) -> pa.DataType:
    """Return the Arrow type of the column of a node."""
    match node:
        case Leaf():
            return node.kind
        case Struct():
            return pa.struct([(member.name, arrow_type_of(member)) for member in node.members])
        case ListNode():
            item = arrow_type_of(node.item)
            if node.is_map:
                return pa.map_(item.field(0).type, item.field(1).type)
            return pa.list_(item)


def _fields(node: Struct, prefix: str, *, flat: bool) -> Iterator[tuple[str, Node]]:
    for member in node.members:
        if flat and isinstance(member, Struct):
            yield from _fields(member, f"{prefix}{member.name}.", flat=True)
        elif isinstance(member, Struct) and member.presence is None:
            # Where the record at the top may be null, its members are null with it.
            yield member.name, replace(member, presence=node.presence)
        else:
            yield prefix + member.name, member


def _mark(node: Node, stored: Bools) -> None:
    """Mark the columns of a node."""
    match node:
        case Leaf():
            stored[node.column] = True
        case Struct():
            if node.presence is not None:
                stored[node.presence] = True
            for member in node.members:
                _mark(member, stored)
        case ListNode():
            stored[node.column] = True
            _mark(node.item, stored)


@record
class _Chunk:
    """Several blocks, decompressed one behind the other."""

    file_name: str
    data: Bytes
    blocks: Longs  # rows of (start, end, record count)
    offsets: tuple[int, ...]  # where each block lies in the file


def _chunks(unfolded: Iterable[tuple[Block, bytes]], file_name: str) -> Iterator[_Chunk]:
    """Join small blocks, so that the work per block is that of the compiled loop alone."""
    pieces: list[bytes] = []
    blocks: list[tuple[int, int, int]] = []
    offsets: list[int] = []
    size = 0
    for block, data in unfolded:
        pieces.append(data)
        blocks.append((size, size + len(data), block.row_count))
        offsets.append(block.offset)
        size += len(data)
        if size >= _CHUNK_BYTES:
            yield _chunk(file_name, pieces, blocks, offsets)
            pieces, blocks, offsets, size = [], [], [], 0
    if pieces:
        yield _chunk(file_name, pieces, blocks, offsets)


def _chunk(
    file_name: str,
    pieces: list[bytes],
    blocks: list[tuple[int, int, int]],
    offsets: list[int],
) -> _Chunk:
    return _Chunk(
        file_name=file_name,
        data=np.frombuffer(b"".join(pieces), np.uint8),
        blocks=np.array(blocks, np.int64),
        offsets=tuple(offsets),
    )


@record
class _Decoded:
    """The columns of one chunk: `bases` holds where each begins in `slots` and `valid`."""

    file_name: str
    data: Bytes
    slots: Words
    valid: Bytes
    bases: Longs
    levels: Longs
    used: Longs

    def words(self, column: int) -> Words:
        base, count = self.bases[column], self.used[self.levels[column]]
        return self.slots[base : base + count]

    def has_values(self, column: int) -> Bools:
        base, count = self.bases[column], self.used[self.levels[column]]
        return self.valid[base : base + count].view(np.bool_)


def _run(chunk: _Chunk, program: Program, stored: Bools, limits: Limits) -> _Decoded:
    """Decode a chunk, again with more room for list items each time the room was too small."""
    rows = int(chunk.blocks[:, 2].sum())
    if rows > len(chunk.data):  # every record takes at least a byte
        raise CorruptFileError(
            "a block counts more records than it has bytes",
            file=chunk.file_name,
            offset=chunk.offsets[0],
        )
    levels = np.array(program.column_levels, np.int64)
    items = np.array(program.column_items, np.int64)
    room_max = limits.items + len(chunk.data) // limits.item_bytes
    room = np.full(program.level_count, min(4 * rows + 1024, room_max), np.int64)
    room[0] = rows
    for level in set(range(program.level_count)) - set(levels[stored].tolist()):
        room[level] = np.iinfo(np.int64).max // 2  # counted, never kept
    failure = np.zeros(FAILURE_PLACES + LIST_DEPTH_MAX, np.int64)
    while True:
        sizes = np.where(stored, room[levels], 0)
        bases = np.where(stored, np.cumsum(sizes) - sizes, -1)
        slots = np.empty(int(sizes.sum()), np.uint64)
        valid = np.empty(len(slots), np.uint8)
        used = np.zeros(program.level_count, np.int64)
        columns = np.stack([levels, bases, items], axis=1)
        target = DecodedSlots(slots, valid, room, used)
        status = run_blocks(chunk.data, chunk.blocks, program.ops, columns, target, failure)
        if status == DONE:
            return _Decoded(
                file_name=chunk.file_name,
                data=chunk.data,
                slots=slots,
                valid=valid,
                bases=bases,
                levels=levels,
                used=used,
            )
        if status != LEVEL_FULL:
            raise CorruptFileError(
                f"{REASONS[status]}; restore or re-create the file",
                file=chunk.file_name,
                offset=chunk.offsets[int(failure[0])],
            )
        level = int(failure[2])
        if room[level] >= room_max:
            raise CorruptFileError(
                "a block has more list items than such a file can hold",
                file=chunk.file_name,
                offset=chunk.offsets[int(failure[0])],
            )
        room[level] = min(16 * int(room[level]), room_max)


def _array(decoded: _Decoded, node: Node) -> pa.Array:
    match node:
        case Leaf():
            return _leaf(decoded, node)
        case Struct():
            members = [_array(decoded, member) for member in node.members]
            valid = None if node.presence is None else decoded.has_values(node.presence)
            bitmap, nulls = validity(valid)
            kind = arrow_type_of(node)
            return pa.Array.from_buffers(kind, len(members[0]), [bitmap], nulls, children=members)
        case ListNode():
            return _list(decoded, node)


def _list(decoded: _Decoded, node: ListNode) -> pa.Array:
    ends = decoded.words(node.column)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    bitmap, nulls = validity(decoded.has_values(node.column) if node.nullable else None)
    children = [_array(decoded, node.item)]
    kind = arrow_type_of(node)
    if node.is_map:  # keys that might be null in the entries alone crash Arrow's Parquet writer
        fields = [kind.key_field, kind.item_field]
        children = [pa.StructArray.from_arrays(children[0].flatten(), fields=fields)]
    return pa.Array.from_buffers(
        kind, len(ends), [bitmap, pa.py_buffer(offsets)], nulls, children=children
    )


def _leaf(decoded: _Decoded, node: Leaf) -> pa.Array:
    words = decoded.words(node.column)
    valid = decoded.has_values(node.column) if node.nullable else None
    kind: Any = node.kind
    if pa.types.is_boolean(kind):
        return bool_array(words.astype(np.bool_), valid)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_decimal(kind):
        return _pieces(decoded, words, node, valid)
    return fixed_array(words.astype(f"u{kind.bit_width // 8}"), kind, valid)


def _pieces(decoded: _Decoded, words: Words, node: Leaf, valid: Bools | None) -> pa.Array:
    starts = (words >> np.uint64(32)).astype(np.int64)
    lengths = (words & _LOW).astype(np.int64)
    if pa.types.is_decimal(node.kind):
        return _decimals(decoded, starts, lengths, node, valid)
    content, offsets = gather_pieces(decoded.data, starts, lengths)
    array = binary_array(content, offsets, node.kind, valid)
    if pa.types.is_string(node.kind):
        _validate(array, node, decoded.file_name)
    return array


def _decimals(
    decoded: _Decoded, starts: Longs, lengths: Longs, node: Leaf, valid: Bools | None
) -> pa.Array:
    if valid is not None:
        lengths = np.where(valid, lengths, 1)
    if bool(((lengths < 1) | (lengths > 16)).any()):
        raise CorruptFileError(
            "a decimal has no byte or more than 16", file=decoded.file_name, column=node.name
        )
    try:
        return decimal_column(decoded.data, starts, lengths, node.kind, valid)
    except pa.ArrowInvalid as cause:
        raise CorruptFileError(
            "a decimal has too many digits", file=decoded.file_name, column=node.name
        ) from cause


def _validate(array: pa.Array, node: Leaf, file_name: str) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as cause:
        raise CorruptFileError(
            "a text is not UTF-8; restore the file", file=file_name, column=node.name
        ) from cause
