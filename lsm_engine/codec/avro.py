"""Avro files → Arrow tables: no Python object per record, only the columns asked for."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, LsmError
from lsm_engine.base.record import record
from lsm_engine.codec.arrow_buffers import binary_array, bool_array, fixed_array, validity
from lsm_engine.codec.avro_container import (
    MANIFEST_LIMITS,
    Block,
    Container,
    Limits,
    read_container,
    unpacked,
)
from lsm_engine.codec.avro_loop import DONE, LEVEL_FULL, REASONS, run_blocks
from lsm_engine.codec.avro_program import Leaf, ListNode, Node, Program, Struct, compile_schema
from lsm_engine.codec.byte_copies import gather_pieces
from lsm_engine.codec.row_slots import decimal_column
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words

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
        """Return columns of the records of some blocks; None: all there are.

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
    """Return the Arrow type of what a node decodes into."""
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
    """Mark the columns that a node is made of."""
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
    """Decode a chunk, with more room for list items each time there was too little."""
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
    failure = np.zeros(3, np.int64)
    while True:
        sizes = np.where(stored, room[levels], 0)
        bases = np.where(stored, np.cumsum(sizes) - sizes, -1)
        slots = np.empty(int(sizes.sum()), np.uint64)
        valid = np.empty(len(slots), np.uint8)
        used = np.zeros(program.level_count, np.int64)
        columns = np.stack([levels, bases, items], axis=1)
        status = run_blocks(
            chunk.data, chunk.blocks, program.ops, columns, slots, valid, room, used, failure
        )
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
