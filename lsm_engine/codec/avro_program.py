"""An Avro schema compiled: a program for the decoding loop, and the tree of columns it fills.

Every value goes into a numbered column. A column belongs to a level: level 0 has one row per record,
and every array or map opens a level of its own with one row per item. Values wider than a word are
kept as (start, length) of their bytes.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.codec.avro_loop import (
    OP_BOOL,
    OP_BYTES,
    OP_DOUBLE,
    OP_FIXED,
    OP_FLOAT,
    OP_INT,
    OP_LIST,
    OP_LIST_END,
    OP_LONG,
    OP_NULLABLE,
    OP_PRESENT,
    OPERANDS,
)
from lsm_engine.kernels.arrow_views import Longs

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
    """What the decoding loop needs to know, and the tree of what comes out."""

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
    root = compiler.node(schema, "", 0, 0, nullable=False, namespace="")
    if not isinstance(root, Struct):
        compiler.refuse("the file does not hold records")
    return Program(
        root=root,
        ops=np.array(compiler.ops, np.int64).reshape(-1, OPERANDS),
        column_levels=tuple(compiler.levels),
        column_items=tuple(compiler.items),
        level_count=compiler.level_count,
    )


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

    def node(
        self, schema: Any, name: str, level: int, depth: int, *, nullable: bool, namespace: str
    ) -> Node:
        """Compile any schema. `nullable`: a null around it leaves this column without a value."""
        if depth > DEPTH_MAX:
            self.refuse("it is nested too deeply, or in itself")
        if isinstance(schema, list):
            return self.union(schema, name, level, depth, namespace)
        if isinstance(schema, str):
            return self.word(
                {"type": schema}, name, level, depth, nullable=nullable, namespace=namespace
            )
        if not isinstance(schema, dict) or "type" not in schema:
            self.corrupt(f"{str(schema)[:80]!r} is no type")
        if not isinstance(schema["type"], str):
            return self.node(
                schema["type"], name, level, depth + 1, nullable=nullable, namespace=namespace
            )
        return self.word(schema, name, level, depth, nullable=nullable, namespace=namespace)

    def union(self, branches: list[Any], name: str, level: int, depth: int, namespace: str) -> Node:
        nulls = [index for index, branch in enumerate(branches) if branch == "null"]
        if len(branches) != 2 or len(nulls) != 1:
            self.refuse(f"field {name!r} is a union of other than null and one type")
        branch = branches[1 - nulls[0]]
        first_column = len(self.levels)
        step = self.emit(OP_NULLABLE, first_column, nulls[0])
        presence = self.column(level) if self.is_record(branch, namespace) else None
        if presence is not None:
            self.emit(OP_PRESENT, presence)
        inner = self.node(branch, name, level, depth + 1, nullable=True, namespace=namespace)
        self.ops[step][3:6] = [len(self.ops), len(self.levels), level]
        if isinstance(inner, Struct):
            inner = Struct(name=name, presence=presence, members=inner.members)
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

    def word(
        self,
        schema: Mapping[str, Any],
        name: str,
        level: int,
        depth: int,
        *,
        nullable: bool,
        namespace: str,
    ) -> Node:
        kind = schema["type"]
        if kind == "record":
            return self.struct(schema, name, level, depth, nullable=nullable, namespace=namespace)
        if kind in ("array", "map"):
            return self.list_of(schema, name, level, depth, nullable=nullable, namespace=namespace)
        if kind == "fixed":
            return self.fixed(schema, name, level, nullable=nullable, namespace=namespace)
        if kind in _PRIMITIVES:
            op, arrow = _PRIMITIVES[kind]
            column = self.column(level)
            self.emit(op, column)
            stored = _LOGICAL.get((kind, str(schema.get("logicalType"))), arrow)
            if kind == "bytes" and schema.get("logicalType") == "decimal":
                stored = self.decimal(schema)
            return Leaf(name=name, column=column, kind=stored, nullable=nullable)
        resolved = self.resolve(kind, namespace)
        if resolved is None:
            self.refuse(f"field {name!r} has type {str(kind)[:80]!r}")
        return self.node(
            resolved[0], name, level, depth + 1, nullable=nullable, namespace=resolved[1]
        )

    def struct(
        self,
        schema: Mapping[str, Any],
        name: str,
        level: int,
        depth: int,
        *,
        nullable: bool,
        namespace: str,
    ) -> Struct:
        space = self.declare(schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields
        ):
            self.corrupt(f"record {name!r} has no proper fields")
        if not fields:
            self.refuse(f"record {name!r} has no fields")
        if len({f["name"] for f in fields}) != len(fields):
            self.corrupt(f"record {name!r} has two fields of one name")
        members = tuple(
            self.node(f["type"], f["name"], level, depth + 1, nullable=nullable, namespace=space)
            for f in fields
        )
        return Struct(name=name, presence=None, members=members)

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

    def list_of(
        self,
        schema: Mapping[str, Any],
        name: str,
        level: int,
        depth: int,
        *,
        nullable: bool,
        namespace: str,
    ) -> ListNode:
        is_map = schema["type"] == "map"
        item_schema = schema.get("values" if is_map else "items")
        item_level = self.level_count
        self.level_count += 1
        if self.level_count > COLUMNS_MAX:
            self.refuse("it has too many arrays")
        column = self.column(level, item_level)
        begin = self.emit(OP_LIST, column)
        if is_map:
            key = self.node("string", "key", item_level, depth + 1, nullable=False, namespace="")
            value = self.node(
                item_schema, "value", item_level, depth + 1, nullable=False, namespace=namespace
            )
            item: Node = Struct(name="entries", presence=None, members=(key, value))
        else:
            item = self.node(
                item_schema, "element", item_level, depth + 1, nullable=False, namespace=namespace
            )
        end = self.emit(OP_LIST_END, column, item_level, begin + 1)
        self.ops[begin][2] = end
        return ListNode(
            name=name, column=column, level=item_level, item=item, nullable=nullable, is_map=is_map
        )

    def fixed(
        self,
        schema: Mapping[str, Any],
        name: str,
        level: int,
        *,
        nullable: bool,
        namespace: str,
    ) -> Leaf:
        self.declare(schema, namespace)
        size = schema.get("size")
        if type(size) is not int or not 0 < size < 1 << 20:
            self.refuse(f"field {name!r} has a fixed size of {size!r}")
        column = self.column(level)
        self.emit(OP_FIXED, column, size)
        stored = self.decimal(schema) if schema.get("logicalType") == "decimal" else pa.binary()
        return Leaf(name=name, column=column, kind=stored, nullable=nullable)

    def decimal(self, schema: Mapping[str, Any]) -> pa.DataType:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            self.corrupt("a decimal has no proper precision")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            self.refuse(f"a decimal has precision {precision} and scale {scale}")
        return pa.decimal128(precision, scale)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
