"""Reader of Arrow expressions in Substrait: `Expression.to_substrait` is Arrow's public form.

Messages and field numbers: substrait.io, proto/substrait/algebra.proto and extended_expression.proto;
their encoding: protobuf.dev/programming-guides/encoding. Only messages of predicates are read. Another
part becomes `Unknown`: it prunes no file, and Arrow evaluates the whole expression. Decision 67 has what queries cost without it.
"""

import struct
from collections.abc import Iterator
from decimal import Decimal
from math import isnan

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.filter import where
from lsm_engine.filter.predicate import Comparison

Message = dict[int, list[int | bytes]]
_COMPARISONS = {
    "equal": Comparison.EQUAL,
    "not_equal": Comparison.NOT_EQUAL,
    "lt": Comparison.LESS,
    "lte": Comparison.LESS_EQUAL,
    "gt": Comparison.GREATER,
    "gte": Comparison.GREATER_EQUAL,
}
_CASE_SENSITIVE = (b"case_sensitivity", b"CASE_SENSITIVE")
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_NULL = object()


def predicate_of(serialized: bytes, schema: pa.Schema) -> where.Predicate:
    """Return the predicate of a serialized ExtendedExpression over the columns of `schema`."""
    extended = _message(serialized)
    names: dict[int, str] = {}
    for extension in extended.get(2, ()):
        for function in _message(extension).get(3, ()):
            declared = _message(function)
            names[_number(declared, 2)] = _bytes(declared, 3).decode()
    reference = _message(extended[3][0])
    return _Reader(names, schema).predicate(_message(reference[1][0]))


def is_known(predicate: where.Predicate) -> bool:
    """Whether a predicate has no part that only Arrow evaluates."""
    match predicate:
        case where.AllOf() | where.AnyOf():
            return all(is_known(part) for part in predicate.parts)
        case where.Negated():
            return is_known(predicate.part)
        case _:
            return not isinstance(predicate, where.Unknown)


@record
class _Literal:
    """A value; `_NULL` for null."""

    value: object


class _Reader:
    """A reader of the messages of one expression: functions by anchor, columns by position."""

    def __init__(self, functions: dict[int, str], schema: pa.Schema) -> None:
        self._functions = functions
        self._schema = schema

    def predicate(self, message: Message) -> where.Predicate:
        """Return the predicate of an Expression message."""
        if 3 in message:
            return self._function(_message(message[3][0]))
        if 8 in message:
            return self._among(_message(message[8][0]))
        # A bare column or literal is a condition if it is boolean.
        operand = self._operand(message)
        if isinstance(operand, where.Column):
            return operand
        if isinstance(operand, _Literal) and isinstance(operand.value, bool):
            return where.Fixed(value=operand.value)
        fixed = isinstance(operand, _Literal) and operand.value is _NULL
        return where.Fixed(value=None) if fixed else where.Unknown()

    def _function(self, call: Message) -> where.Predicate:
        name = self._name(call)
        arguments = self._arguments(call)
        match name:
            case "and" | "or":
                parts = tuple(map(self.predicate, self._flat(name, call)))
                return where.AllOf(parts=parts) if name == "and" else where.AnyOf(parts=parts)
            case "not":
                return where.Negated(part=self.predicate(arguments[0]))
            case "is_null" | "is_not_null":
                column = self._operand(arguments[0])
                # A null test of an expression is left to Arrow.
                if not isinstance(column, where.Column):
                    return where.Unknown()
                return column.is_null() if name == "is_null" else column.is_not_null()
            case "starts_with":
                return self._starts_with(call, arguments)
            case _:
                comparison = _COMPARISONS.get(name)
                return where.Unknown() if comparison is None else self._test(comparison, arguments)

    def _flat(self, name: str, call: Message) -> Iterator[Message]:
        """Yield the operands of a chain of one function, in order; nested chains are flattened."""
        pending = self._arguments(call)[::-1]
        while pending:
            part = pending.pop()
            inner = _message(part[3][0]) if 3 in part else None
            if inner is not None and self._name(inner) == name:
                pending.extend(self._arguments(inner)[::-1])
            else:
                yield part

    def _test(self, comparison: Comparison, arguments: list[Message]) -> where.Predicate:
        left_operand, right_operand = map(self._operand, arguments)
        # The literal may stand first, so the comparison is mirrored.
        if isinstance(left_operand, _Literal):
            left_operand, right_operand, comparison = (
                right_operand,
                left_operand,
                comparison.mirrored,
            )
        # Two columns or computed values are left to Arrow.
        if not isinstance(left_operand, where.Column) or not isinstance(right_operand, _Literal):
            return where.Unknown()
        if right_operand.value is _NULL:  # a comparison with null is null for every row
            return where.Fixed(value=None)
        if (
            isinstance(right_operand.value, float)
            and isnan(right_operand.value)
            and not self._is_float(left_operand)
        ):
            # Arrow casts the column to a float for it; no value of another type is NaN.
            return where.Unknown()
        return where.Test(
            column=left_operand.name, comparison=comparison, value=right_operand.value
        )

    def _among(self, message: Message) -> where.Predicate:
        column = self._operand(_message(message[1][0]))
        options = [self._operand(_message(option)) for option in message.get(2, ())]
        values = [option.value for option in options if isinstance(option, _Literal)]
        # A null in the set: whether Arrow matches it is not written down.
        if not isinstance(column, where.Column) or len(values) < len(options) or _NULL in values:
            return where.Unknown()
        return where.Among(column=column.name, values=tuple(values), null_is=False)

    def _starts_with(self, call: Message, arguments: list[Message]) -> where.Predicate:
        column, prefix = map(self._operand, arguments)
        chosen = [_message(option) for option in call.get(5, ())]
        exact = all((_bytes(option, 1), _bytes(option, 2)) == _CASE_SENSITIVE for option in chosen)
        # A search that ignores case has no bounds.
        if not isinstance(column, where.Column) or not isinstance(prefix, _Literal) or not exact:
            return where.Unknown()
        is_text = pa.types.is_string(self._schema.field(column.name).type)
        # Bytes have a prefix as well, but the tree compares text only.
        return column.starts_with(str(prefix.value)) if is_text else where.Unknown()

    def _operand(self, message: Message) -> where.Column | _Literal | None:
        """Return a column or a literal; None for anything else, nested fields included."""
        if 1 in message:
            return _literal(_message(message[1][0]))
        # The message holds a call, which has no column or value.
        if 2 not in message:
            return None
        reference = _message(_message(message[2][0])[1][0])
        # The reference starts at something other than a field.
        if 2 not in reference:
            return None
        step = _message(reference[2][0])
        # A second step leads into a structure, whose fields have no statistics here.
        return None if 2 in step else where.col(self._schema.names[_number(step, 1)])

    def _is_float(self, column: where.Column) -> bool:
        return bool(pa.types.is_floating(self._schema.field(column.name).type))

    def _name(self, call: Message) -> str:
        return self._functions.get(_number(call, 1), "")

    def _arguments(self, call: Message) -> list[Message]:
        values = (_message(argument).get(3) for argument in call.get(4, ()))
        return [_message(value[0]) for value in values if value]


def _literal(message: Message) -> _Literal | None:
    """Return a literal as a Python value; a date or time as an Arrow scalar."""
    ((number, (value, *_)),) = ((n, v) for n, v in message.items() if n not in (50, 51))
    literal: object
    match number, value:
        case 1, int():
            literal = bool(value)
        case ((2 | 3 | 5 | 7), int()):
            literal = _signed(value)
        case 10, bytes():
            (literal,) = struct.unpack("<f", value)
        case 11, bytes():
            (literal,) = struct.unpack("<d", value)
        case 12, bytes():
            literal = value.decode()
        case ((13 | 23), bytes()):
            literal = value
        case ((14 | 27), int()):
            literal = pa.scalar(_signed(value), pa.timestamp("us", "UTC" if number == 27 else None))
        case 16, int():
            literal = pa.scalar(_signed(value), pa.date32())
        case 17, int():
            literal = pa.scalar(_signed(value), pa.time64("us"))
        case 24, bytes():
            parts = _message(value)
            unscaled = int.from_bytes(_bytes(parts, 1), "little", signed=True)
            literal = _decimal(unscaled, _number(parts, 3))
        case 29, _:
            literal = _NULL
        case ((34 | 35), bytes()):
            parts = _message(value)
            unit = _UNITS.get(_number(parts, 1))
            # Arrow has units for four precisions only.
            if unit is None:
                return None
            kind = pa.timestamp(unit, "UTC" if number == 35 else None)
            literal = pa.scalar(_signed(_number(parts, 2)), kind)
        case _:
            return None
    return _Literal(value=literal)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


# --- the encoding of messages --------------------------------------------------------------------


def _message(serialized: int | bytes) -> Message:
    """Return the fields of a message by number, each with its values in order."""
    assert isinstance(serialized, bytes), serialized
    fields: Message = {}
    position = 0
    while position < len(serialized):
        tag, position = _varint(serialized, position)
        value: int | bytes
        match tag & 7:
            case 0:
                value, position = _varint(serialized, position)
            case 2:
                length, position = _varint(serialized, position)
                value = serialized[position : position + length]
                position += length
            case wire:
                width = 8 if wire == 1 else 4
                value = serialized[position : position + width]
                position += width
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(serialized: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = serialized[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _number(message: Message, field: int) -> int:
    value = message.get(field, [0])[0]
    assert isinstance(value, int), value
    return value


def _bytes(message: Message, field: int) -> bytes:
    value = message.get(field, [b""])[0]
    assert isinstance(value, bytes), value
    return value
