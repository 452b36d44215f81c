"""Arrow expressions ⇄ predicate trees.

Arrow has no public way to walk an expression. Its serialized form is one: an IPC file whose schema
metadata holds the tree in order, as pairs that repeat their names, and whose only row holds literals
and function options. Python's `schema.metadata` keeps one of equal names, so the pairs are read
through the C data interface. What is not understood stays a subtree that Arrow evaluates.
"""

import ctypes
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.prune.exact_literals import exact_compare, exact_values
from lsm_engine.prune.predicate import (
    And,
    Compare,
    Comparison,
    Constant,
    IsIn,
    IsNull,
    IsValid,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)

_COMPARISONS = {comparison.value: comparison for comparison in Comparison}
_BUILD = {
    Comparison.EQUAL: pc.equal,
    Comparison.NOT_EQUAL: pc.not_equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_EQUAL: pc.greater_equal,
}
_MATCH_NULLS, _SKIP_NULLS = (
    0,
    1,
)  # Arrow's SetLookupOptions: the two behaviours without null results


def from_expression(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    """Return the tree of a boolean expression over columns of `schema`.

    Raises InvalidInputError for a column that is not there, for a value that its column cannot be
    compared with, and for anything else that Arrow could not evaluate on such rows.
    """
    if not isinstance(expression, pc.Expression):
        raise _invalid(
            "a filter is a pyarrow.compute.Expression, such as pc.field('k') > 3",
            given=type(expression).__name__,
        )
    try:
        _, (serialized,) = expression.__reduce__()
    except pa.ArrowException as cause:
        raise _invalid(
            "this filter cannot be written down; name columns instead of numbering them",
            filter=str(expression),
        ) from cause
    reader = pa.ipc.open_file(serialized)
    source = _Source(pairs=tuple(_metadata_pairs(reader.schema)), literals=reader.get_batch(0))
    tree = _tree(source, iter(range(len(source.pairs))))
    _require_columns(tree, schema)
    empty = schema.empty_table()
    _require_comparable(tree, empty)
    predicate = _predicate(tree, source, schema)
    _require_evaluable(to_expression(predicate), dict.fromkeys(_columns(tree)), empty)
    return predicate


def to_expression(predicate: Predicate) -> pc.Expression:
    """Return the Arrow expression of a tree."""
    match predicate:
        case And():
            return reduce(and_, (to_expression(part) for part in predicate.parts))
        case Or():
            return reduce(or_, (to_expression(part) for part in predicate.parts))
        case Not():
            return ~to_expression(predicate.part)
        case Compare():
            build = _BUILD[predicate.comparison]
            return build(pc.field(predicate.column), pc.scalar(predicate.value))
        case IsIn():
            values = predicate.values
            if predicate.null_matches:
                values = pa.concat_arrays([values, pa.nulls(1, values.type)])
            return pc.field(predicate.column).isin(values)
        case StartsWith():
            return pc.starts_with(pc.field(predicate.column), predicate.prefix)
        case IsNull():
            return pc.field(predicate.column).is_null()
        case IsValid():
            return pc.field(predicate.column).is_valid()
        case Constant():
            return pc.scalar(pa.scalar(predicate.value, pa.bool_()))
        case Opaque():
            revive, _ = pc.scalar(True).__reduce__()  # noqa: FBT003  the public way to Arrow's reviver
            return revive(pa.py_buffer(predicate.serialized))


def matches(predicate: Predicate, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return exactly which rows Arrow's filter keeps, as a mask."""
    mask = np.zeros(rows.num_rows, dtype=np.bool_)
    if rows.num_columns == 0:
        assert isinstance(predicate, Constant), predicate
        mask[:] = predicate.value is True
        return mask
    position = "row"
    while position in rows.column_names:
        position += "_"
    numbered = rows.append_column(position, pa.array(np.arange(rows.num_rows)))
    mask[numbered.filter(to_expression(predicate))[position].to_numpy()] = True
    return mask


# --- the serialized form -------------------------------------------------------------------------


@record
class _Source:
    """A serialized expression: its tree in order, and one row of literals and options."""

    pairs: tuple[tuple[str, str], ...]
    literals: pa.RecordBatch

    def literal(self, position: str) -> pa.Scalar:
        return self.literals.column(int(position))[0]


@record
class _Node:
    """One node, with the pairs `first` to `last` that it was read from."""

    word: str  # call, field_ref, nested_field_ref, literal
    value: str | pa.Scalar
    first: int
    last: int
    children: "tuple[_Node, ...]" = ()
    options: pa.Scalar | None = None


def _tree(source: _Source, positions: Iterator[int]) -> _Node:
    first = next(positions)
    word, value = source.pairs[first]
    if word == "literal":
        return _Node(word=word, value=source.literal(value), first=first, last=first)
    if word == "nested_field_ref":
        steps = [next(positions) for _ in range(int(value))]
        return _Node(word=word, value=source.pairs[steps[0]][1], first=first, last=steps[-1])
    if word != "call":
        assert word == "field_ref", word
        return _Node(word=word, value=value, first=first, last=first)
    children: list[_Node] = []
    options: pa.Scalar | None = None
    ahead = first + 1
    while source.pairs[ahead][0] != "end":
        if source.pairs[ahead][0] == "options":
            options = source.literal(source.pairs[next(positions)][1])
            ahead += 1
        else:
            children.append(_tree(source, positions))
            ahead = children[-1].last + 1
    return _Node(
        word=word,
        value=value,
        first=first,
        last=next(positions),
        children=tuple(children),
        options=options,
    )


class _CSchema(ctypes.Structure):
    """The head of the C data interface's ArrowSchema."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    """Every pair of a schema's metadata, equal names included: int32 count, then lengths and bytes."""
    capsule = schema.__arrow_c_schema__()  # owns the memory: alive until this function returns
    address = _CSchema.from_address(_pointer_of(capsule, b"arrow_schema")).metadata
    if not address:
        return []

    def number() -> int:
        nonlocal address
        value = ctypes.c_int32.from_address(address).value
        address += 4
        return value

    def text() -> str:
        nonlocal address
        length = number()
        value = ctypes.string_at(address, length)
        address += length
        return value.decode()

    return [(text(), text()) for _ in range(number())]


# --- tree → predicate ----------------------------------------------------------------------------


def _predicate(node: _Node, source: _Source, schema: pa.Schema) -> Predicate:
    if isinstance(node.value, pa.Scalar):
        is_bool = node.value.type == pa.bool_()
        return Constant(value=node.value.as_py()) if is_bool else _opaque(node, source)
    if node.word == "field_ref" and schema.field(str(node.value)).type == pa.bool_():
        return Compare(
            column=str(node.value), comparison=Comparison.EQUAL, value=pa.scalar(value=True)
        )
    if node.word != "call":
        return _opaque(node, source)
    match node.value:
        case "and_kleene":
            return And(parts=tuple(_predicate(child, source, schema) for child in node.children))
        case "or_kleene":
            return Or(parts=tuple(_predicate(child, source, schema) for child in node.children))
        case "invert":
            return Not(part=_predicate(node.children[0], source, schema))
        case _:
            return _leaf(node, schema) or _opaque(node, source)


def _leaf(node: _Node, schema: pa.Schema) -> Predicate | None:
    """The function of one column that `node` is, if it is one that pruning understands."""
    comparison = _COMPARISONS.get(str(node.value))
    if comparison is not None:
        return _exact(_compare(node, comparison), schema)
    if not node.children or node.children[0].word != "field_ref":
        return None
    column = str(node.children[0].value)
    options: dict[str, Any] = _options_of(node)
    match node.value:
        case "is_valid":
            return IsValid(column=column)
        case "is_null":
            floats = pa.types.is_floating(schema.field(column).type)
            return None if options.get("nan_is_null") and floats else IsNull(column=column)
        case "starts_with" if not options["ignore_case"]:
            is_text = pa.types.is_string(schema.field(column).type)
            prefix = options["pattern"]
            return StartsWith(column=column, prefix=prefix) if is_text else None
        case "is_in" if options["null_matching_behavior"] in (_MATCH_NULLS, _SKIP_NULLS):
            assert node.options is not None
            values: pa.Array = node.options["value_set"].values
            matching = options["null_matching_behavior"] == _MATCH_NULLS
            return IsIn(
                column=column,
                values=exact_values(schema.field(column).type, values.drop_null()),
                null_matches=matching and values.null_count > 0,
            )
        case _:
            return None


def _options_of(node: _Node) -> dict[str, Any]:
    """Function options as Python values; a set of values stays in Arrow."""
    if node.options is None:
        return {}
    return {
        field.name: node.options[field.name].as_py()
        for field in node.options.type
        if field.name != "value_set"
    }


def _compare(node: _Node, comparison: Comparison) -> Predicate | None:
    left, right = node.children
    if left.word == "literal":
        left, right, comparison = right, left, comparison.mirrored
    if left.word != "field_ref" or right.word != "literal":
        return None
    assert isinstance(right.value, pa.Scalar)
    if not right.value.is_valid:
        return Constant(value=None)
    return Compare(column=str(left.value), comparison=comparison, value=right.value)


def _exact(leaf: Predicate | None, schema: pa.Schema) -> Predicate | None:
    if not isinstance(leaf, Compare):
        return leaf
    kind = schema.field(leaf.column).type
    return exact_compare(leaf.column, kind, leaf.comparison, leaf.value)


def _opaque(node: _Node, source: _Source) -> Opaque:
    pairs = list(source.pairs[node.first : node.last + 1])
    metadata = pa.KeyValueMetadata(pairs)
    kept = source.literals.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, kept.schema) as writer:
        writer.write_batch(kept)
    columns = tuple(dict.fromkeys(_columns(node)))
    return Opaque(columns=columns, serialized=sink.getvalue().to_pybytes())


def _columns(node: _Node) -> Iterator[str]:
    if node.word in ("field_ref", "nested_field_ref"):
        yield str(node.value)
    for child in node.children:
        yield from _columns(child)


# --- refusals ------------------------------------------------------------------------------------


def _require_columns(tree: _Node, schema: pa.Schema) -> None:
    for column in _columns(tree):
        if column not in schema.names:
            raise InvalidInputError(
                f"the filter names column {column!r}; there are {', '.join(schema.names)}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=column,
            )


def _require_comparable(node: _Node, empty: pa.Table) -> None:
    """Try every comparison of a column on no rows at all: Arrow knows what it compares with what."""
    comparison = _COMPARISONS.get(str(node.value))
    leaf = _compare(node, comparison) if node.word == "call" and comparison else None
    leaf = _exact(leaf, empty.schema)
    if isinstance(leaf, Compare):
        column: pa.ChunkedArray = empty[leaf.column]
        try:
            _BUILD[leaf.comparison](column, leaf.value)
        except pa.ArrowException as cause:
            raise _invalid(
                f"column {leaf.column!r} is {column.type} and cannot be compared with "
                f"{leaf.value.as_py()!r} ({leaf.value.type})",
                column=leaf.column,
            ) from cause
    for child in node.children:
        _require_comparable(child, empty)


def _require_evaluable(expression: pc.Expression, columns: Iterable[str], empty: pa.Table) -> None:
    try:
        empty.filter(expression)
    except (pa.ArrowException, TypeError) as cause:
        raise _invalid(
            "Arrow cannot evaluate this filter on the columns it names",
            filter=str(expression),
            columns={name: str(empty.schema.field(name).type) for name in columns},
        ) from cause


def _invalid(message: str, **facts: object) -> InvalidInputError:
    return InvalidInputError(message, kind=ErrorKind.INVALID_FILTER, **facts)
