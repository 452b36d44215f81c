"""Columns of text → columns of a type, such as the cells of CSV files, and columns → plain JSON values.

Encodings in JSON: timestamps ISO 8601 (with Z if they are instants), dates and times ISO 8601, decimals
text that keeps every digit, binary lower-case hexadecimal text, floats that JSON has no word for
"NaN", "Infinity" and "-Infinity", maps with text keys objects, other maps lists of key and value."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.type_text import type_of_text

NULL_TEXTS = ("", "NA", "N/A", "#N/A", "NULL", "Null", "null", "None", "<NA>")
"""Texts that mean null in columns of numbers, times and booleans; in a column of text they are text."""
_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "on"), ("false", "f", "no", "n", "0", "off")
_ZONED = r"(Z|\d:\d{2}.*[+-]\d{2}(:?\d{2})?)$"
_DAY_ONLY = r"^[^ T:]+$"
_INTEGER = r"^-?\d{1,20}$"
_CODE = r"^\s*[+-]?0\d"
"""Digits behind a zero are a code, such as a postal code: a number would lose the zero."""
_LONG_NUMBER = r"^\s*[+-]?\d{16,}\s*$"
"""Whole numbers beyond the digits that a double keeps."""
_HALF = np.full(256, 255, np.uint8)  # value of a hexadecimal digit, 255 for anything else
for _position, _digit in enumerate("0123456789abcdef"):
    _HALF[ord(_digit)] = _HALF[ord(_digit.upper())] = _position


@record
class TextForms:
    """How values are written as text.

    `null_values`: texts that mean null in every column; None: an empty text, and in columns that are no
    text `NULL_TEXTS`. `column_null_values`: those of single columns besides. The formats are those of
    strptime, of which the first that fits a value counts; none: ISO 8601.
    """

    null_values: tuple[str, ...] | None = None
    column_null_values: tuple[tuple[str, tuple[str, ...]], ...] = ()
    decimal_point: str = "."
    thousands: str = ""
    date_format: tuple[str, ...] = ()
    time_format: tuple[str, ...] = ()
    timestamp_format: tuple[str, ...] = ()

    def of_column(self, name: str, kind: pa.DataType) -> "TextForms":
        """Return the forms of one column, with all its texts that mean null."""
        own = dict(self.column_null_values).get(name)
        if own is None:
            return self
        common = self.null_values
        if common is None:
            common = () if is_text(kind) else NULL_TEXTS
        return replace(self, null_values=(*common, *own))

    def is_null(self, texts: pa.Array) -> pa.Array:
        """Return which texts of a column of another type than text mean null."""
        nulls = NULL_TEXTS if self.null_values is None else ("", *self.null_values)
        return pc.is_in(texts, pa.array(nulls, pa.string()))


def null_texts(by_column: Mapping[Any, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return texts that mean null in single columns, as `TextForms` has them; InvalidInputError for what is no text."""
    pairs = []
    for column, value in by_column.items():
        texts = (value,) if isinstance(value, str) else value
        are_texts = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        if not isinstance(column, str) or not are_texts:
            raise InvalidInputError(
                f"column_null_values has texts by column, such as {{'price': 'NA'}}, not {value!r} of {column!r}",
                argument="column_null_values",
            )
        pairs.append((column, tuple(texts)))
    return tuple(pairs)


ISO_FORMS = TextForms()


def parse_texts(texts: pa.Array, kind: pa.DataType, forms: TextForms = ISO_FORMS) -> pa.Array:
    """Return texts as values of a type; null remains null.

    Dates "2024-05-01"; timestamps with a blank or T between date and time, UTC where the column is
    an instant and no offset is written; times "08:00:00"; binary in hexadecimal. Raises
    pyarrow.ArrowInvalid for what does not fit.
    """
    if pa.types.is_boolean(kind):
        return _booleans(texts)
    if pa.types.is_date(kind):
        if not forms.date_format:
            return texts.cast(kind)
        return _moments(texts, forms.date_format, kind).cast(pa.date32(), safe=False).cast(kind)
    if pa.types.is_timestamp(kind):
        if forms.timestamp_format:
            moments = _moments(texts, forms.timestamp_format, kind)
            return moments.cast(pa.timestamp(kind.unit)).cast(kind)
        return texts.cast(kind) if kind.tz is None else _instants(texts, kind)
    if pa.types.is_time(kind):
        return _times(texts, kind, forms.time_format)
    if _is_binary(kind):
        return _bytes(texts).cast(kind)
    if is_number(kind):
        texts = _plain_numbers(texts, forms)
    values = texts.cast(kind)
    if pa.types.is_floating(kind):
        is_named = pc.match_substring(texts, "inf", ignore_case=True)
        if pc.any(pc.and_(pc.is_inf(values), pc.invert(is_named))).as_py():
            raise pa.ArrowInvalid("a number is too large")
    return values


def parse_column(
    texts: pa.Array, kind: pa.DataType, forms: TextForms = ISO_FORMS
) -> tuple[pa.Array, pa.Array | None]:
    """Return texts as values of a type, null where one does not fit, and a mask of those; None if all fit.

    Takes what `parse_texts` takes, and null texts. Blanks around values, a plus sign and zeros behind the point of a
    whole number do no harm.
    """
    if is_text(kind):
        return texts.cast(kind), None
    texts = pc.if_else(forms.is_null(texts), None, texts)
    try:
        return parse_texts(texts, kind, forms), None
    except pa.ArrowException:
        return _parse_fitting(texts, kind, forms)


def _parse_fitting(
    texts: pa.Array, kind: pa.DataType, forms: TextForms
) -> tuple[pa.Array, pa.Array | None]:
    trimmed = pc.utf8_trim_whitespace(texts)
    if is_number(kind):
        trimmed = pc.replace_substring_regex(_plain_numbers(trimmed, forms), r"^\+", "")
        forms = ISO_FORMS
    if pa.types.is_integer(kind):
        # pandas writes whole numbers beside nulls as 517.0.
        trimmed = pc.replace_substring_regex(trimmed, r"\.0+$", "")
        trimmed = pc.if_else(pc.match_substring_regex(trimmed, _INTEGER), trimmed, None)
    wrong = pc.and_(pc.is_valid(texts), pc.is_null(trimmed))
    wrong_places = _unparsed(trimmed, lambda part: parse_texts(part, kind, forms))
    if wrong_places:
        mask = np.zeros(len(texts), np.bool_)
        mask[wrong_places] = True
        wrong = pc.or_(wrong, pa.array(mask))
    values = parse_texts(pc.if_else(wrong, None, trimmed), kind, forms)
    return values, wrong if pc.any(wrong).as_py() else None


def _unparsed(texts: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> list[int]:
    """Return the places of texts that `parse` refuses, by halving the parts that it refuses."""
    parts, places = [(0, len(texts))], []
    while parts:
        start, end = parts.pop()
        try:
            parse(texts.slice(start, end - start))
        except pa.ArrowException:
            if end - start == 1:
                places.append(start)
                continue
            middle = (start + end) // 2
            parts += [(start, middle), (middle, end)]
    return places


def infer_type(texts: pa.Array, forms: TextForms = ISO_FORMS) -> pa.DataType:
    """Return the narrowest type that all texts fit: a number, a boolean, a date, a timestamp, or text.

    Numbers with zeros before them, such as postal codes, are text, as are whole numbers of more than 64 bits.
    """
    values = texts.filter(pc.invert(forms.is_null(texts))).drop_null()
    if not len(values):
        return pa.string()
    for kind in _inferred_types(forms):
        if _fits(values, kind, forms):
            return kind
    return pa.string()


def has_other_digits(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return which texts would lose digits as numbers of a type that other values of the column suggest."""
    loses = pc.match_substring_regex(texts, _CODE)
    if pa.types.is_floating(kind):
        loses = pc.or_(loses, pc.match_substring_regex(texts, _LONG_NUMBER))
    return pc.fill_null(loses, False)  # noqa: FBT003


def _inferred_types(forms: TextForms) -> list[pa.DataType]:
    formats = forms.timestamp_format
    has_zones = not formats or any("%z" in form for form in formats)
    zoned = [pa.timestamp("us", "UTC")] if has_zones else []
    return [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), *zoned]


def _fits(values: pa.Array, kind: pa.DataType, forms: TextForms) -> bool:
    if pa.types.is_boolean(kind):
        words = pc.is_in(pc.utf8_lower(values), pa.array(["true", "false"]))
        return bool(pc.all(words).as_py())
    if is_number(kind) and pc.any(has_other_digits(values, kind)).as_py():
        return False
    if pa.types.is_integer(kind):
        # A column of 1.0 and 2.0 has fractions sooner or later.
        numbers = _plain_numbers(values, forms)
        if not pc.all(pc.match_substring_regex(numbers, r"^\s*[+-]?\d+\s*$")).as_py():
            return False
    return parse_column(values, kind, forms)[1] is None


def form_hint(kind: pa.DataType) -> str:
    """Return the options that read other forms of a type, for an error. They are those of `read_files`."""
    if pa.types.is_date(kind):
        return "other forms than 2026-06-30 need date_format='%d.%m.%Y' or the like; "
    if pa.types.is_time(kind):
        return "other forms than 17:30:00 need time_format='%H.%M' or the like; "
    if pa.types.is_timestamp(kind):
        return (
            "other forms than 2026-06-30 17:30 need timestamp_format='%d.%m.%Y %H:%M' or the like; "
        )
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return "decimal_point=',' and thousands='.' read other forms; "
    return ""


def newlines_before(batch: pa.RecordBatch) -> Any:
    """Return how many line ends values have before each row, and in all; None without any."""
    counts = None
    for column in batch.columns:
        newlines = pc.fill_null(pc.count_substring(column, "\n"), 0)
        if pc.any(pc.greater(newlines, 0)).as_py():
            counts = newlines if counts is None else pc.add(counts, newlines)
    if counts is None:
        return None
    return np.concatenate([[0], np.cumsum(counts.to_numpy())])


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type holds whole numbers, decimals or floats."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _plain_numbers(texts: pa.Array, forms: TextForms) -> pa.Array:
    if forms.thousands:
        sign, point = re.escape(forms.thousands), re.escape(forms.decimal_point)
        texts = pc.utf8_trim_whitespace(texts)
        # A sign between other groups is a mistake, or a decimal point. India's groups have two digits.
        grouped = (
            rf"^[+-]?(\d+|\d{{1,3}}({sign}\d{{2,3}})*{sign}\d{{3}})?({point}\d*)?([eE][+-]?\d+)?$"
        )
        is_number = pc.match_substring_regex(texts, grouped)
        joined = pc.replace_substring(texts, forms.thousands, "")
        texts = pc.if_else(is_number, joined, pc.replace_substring(texts, forms.thousands, "?"))
    if forms.decimal_point != ".":
        # A point is no digit of such a number.
        texts = pc.replace_substring(texts, ".", "?")
        texts = pc.replace_substring(texts, forms.decimal_point, ".")
    return texts


def _booleans(texts: pa.Array) -> pa.Array:
    words = pc.index_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), pa.array([*_TRUE, *_FALSE]))
    if words.null_count > texts.null_count:
        raise pa.ArrowInvalid("booleans are true, t, yes, y, 1, on and their opposites")
    return pc.less(words, len(_TRUE))


def _moments(texts: pa.Array, formats: Sequence[str], kind: pa.DataType) -> pa.Array:
    moments = pa.nulls(len(texts), pa.timestamp("s"))
    for form in formats:
        if "%z" in form and not (pa.types.is_timestamp(kind) and kind.tz):
            # A time with an offset is an instant, and UTC would be another hour or day.
            continue
        parsed = pc.strptime(texts, form, "s", error_is_null=True).cast(pa.timestamp("s"))
        moments = pc.coalesce(moments, _as_written(texts, parsed, form))
    if moments.null_count > texts.null_count:
        raise pa.ArrowInvalid(f"a text is not of the form {' or '.join(formats)}")
    return moments


def _as_written(texts: pa.Array, moments: pa.Array, form: str) -> pa.Array:
    """Return moments, null for a day that no calendar has, and for two digits where a year has four.

    Arrow's strptime makes 31 February a day of March, and 26 the year 26. Either shows once such a
    moment is written again; only few moments can be either. An offset (%z) is not written again.
    """
    is_month_begin = pc.and_(
        pc.less_equal(pc.day(moments), 3), pc.is_in(pc.month(moments), pa.array([3, 5, 7, 10, 12]))
    )
    doubtful = pc.fill_null(pc.or_(is_month_begin, pc.less(pc.year(moments), 1000)), False)  # noqa: FBT003
    places = np.flatnonzero(doubtful.to_numpy(zero_copy_only=False))
    if not len(places) or "%z" in form:
        return moments
    again = pc.strftime(moments.take(pa.array(places)), form)
    differs = pc.not_equal(_numbers_in(texts.take(pa.array(places))), _numbers_in(again))
    wrong = np.zeros(len(moments), np.bool_)
    wrong[places[differs.to_numpy(zero_copy_only=False)]] = True
    return pc.if_else(pa.array(wrong), None, moments)


def _numbers_in(texts: pa.Array) -> pa.Array:
    """Return the numbers that texts hold, with blanks between, those of two digits without a leading zero."""
    digits = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, r"\D+", " "))
    return pc.replace_substring_regex(digits, r"\b0(\d)\b", r"\1")


def _instants(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    zoned = pc.match_substring_regex(texts, _ZONED)
    suffix = pc.if_else(pc.match_substring_regex(texts, _DAY_ONLY), " 00:00:00Z", "Z")
    marked = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, suffix, ""))
    return marked.cast(kind)


def _times(texts: pa.Array, kind: pa.DataType, formats: Sequence[str]) -> pa.Array:
    day_texts = pc.binary_join_element_wise("1970-01-01 ", texts, "")
    if not formats:
        moments = day_texts.cast(pa.timestamp("us"))
    else:
        moments = _moments(day_texts, [f"%Y-%m-%d {form}" for form in formats], kind)
        moments = moments.cast(pa.timestamp("us"))
    return moments.cast(pa.time64("us")).cast(kind)


def _bytes(texts: pa.Array) -> pa.Array:
    """Decode hexadecimal text column-wise: two digits of the data buffer make one byte."""
    if len(texts) == 0:
        return pa.array([], pa.binary())
    filled = pc.fill_null(pa.concat_arrays([texts]), "")
    lengths = pc.binary_length(filled).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    digits = np.frombuffer(b"".join(filled.cast(pa.binary()).to_pylist()), np.uint8)
    halves = _HALF[digits]
    if (lengths % 2).any() or (halves == 255).any():
        raise pa.ArrowInvalid("binary values are hexadecimal digits, two for each byte")
    data = (halves[0::2] << 4) | halves[1::2]
    valid = texts.is_valid()
    joined = pa.Array.from_buffers(
        pa.binary(), len(texts), [None, pa.py_buffer(offsets // 2), pa.py_buffer(data.tobytes())]
    )
    return pc.if_else(valid, joined, pa.scalar(None, pa.binary()))


# -- Values as people and programs read them: plain JSON values ------------------------------------


def plain_rows(rows: pa.Table | pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """Return rows as dictionaries of plain values, converted column by column."""
    names = rows.schema.names
    columns = [plain_values(column) for column in rows.columns]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values as JSON can hold them."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain_values(chunk)]
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_values(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
        return list(text.to_pylist())
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_floating(kind):
        return [_plain_float(value) for value in column.to_pylist()]
    if _is_any_binary(kind):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    if pa.types.is_struct(kind):
        return _plain_structs(column)
    if pa.types.is_map(kind):
        return _plain_maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _cut(column, plain_values(column.flatten()))
    return list(column.to_pylist())


def _plain_float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _is_any_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _plain_structs(column: pa.Array) -> list[Any]:
    names = [column.type.field(position).name for position in range(column.type.num_fields)]
    members = [plain_values(member) for member in column.flatten()]
    values = zip(*members, strict=True) if members else (() for _ in column)
    valid = column.is_valid().to_pylist()
    return [
        dict(zip(names, value, strict=True)) if is_valid else None
        for value, is_valid in zip(values, valid, strict=True)
    ]


def _plain_maps(column: pa.Array) -> list[Any]:
    # keys and items are the whole buffers: offsets count from their beginning, slices or not.
    keys, items = plain_values(column.keys), plain_values(column.items)
    offsets = column.offsets.to_pylist()
    texts = pa.types.is_string(column.type.key_type)
    rows: list[Any] = []
    for row, is_valid in enumerate(column.is_valid().to_pylist()):
        cut = slice(offsets[row], offsets[row + 1])
        pairs = list(zip(keys[cut], items[cut], strict=True))
        if not is_valid:
            rows.append(None)
        elif texts:
            rows.append(dict(pairs))
        else:
            rows.append([{"key": key, "value": value} for key, value in pairs])
    return rows


def _cut(column: pa.Array, flat: list[Any]) -> list[Any]:
    """Cut the values of all lists, none of null lists among them, into one list per row."""
    lengths = pc.list_value_length(column).to_pylist()
    lists, start = [], 0
    for length in lengths:
        lists.append(None if length is None else flat[start : start + length])
        start += length or 0
    return lists


# -- Columns as a CSV file has them -----------------------------------------------------------------


def texts_of_rows(batch: pa.RecordBatch, forms: TextForms) -> pa.RecordBatch:
    """Return a batch whose values that are not written as PyArrow writes them are text."""
    return pa.RecordBatch.from_arrays(
        [_column_as_text(column, forms) for column in batch.columns], names=batch.schema.names
    )


def _column_as_text(column: pa.Array, forms: TextForms) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind) and forms.date_format:
        return pc.strftime(column, forms.date_format[0])
    if pa.types.is_timestamp(kind) and forms.timestamp_format:
        # With fractions %S would have them, which strptime does not read.
        return pc.strftime(
            column.cast(pa.timestamp("s", kind.tz), safe=False), forms.timestamp_format[0]
        )
    if pa.types.is_time(kind) and forms.time_format:
        seconds = column.cast(pa.time32("s"), safe=False).cast(pa.int32()).cast(pa.int64())
        return pc.strftime(seconds.cast(pa.timestamp("s")), forms.time_format[0])
    if forms.decimal_point != "." and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return pc.replace_substring(column.cast(pa.string()), ".", forms.decimal_point)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(plain_values(column), pa.string())
    return column


def json_texts(column: pa.Array) -> pa.Array:
    """Return values as text; lists, maps and structures as JSON."""
    if pa.types.is_nested(column.type):
        return pa.array(
            [None if value is None else json.dumps(value) for value in plain_values(column)],
            pa.string(),
        )
    return column.cast(pa.string())


def json_type(kind: pa.DataType) -> pa.DataType:
    """Return what the JSON reader parses into: text for what is then parsed as CSV's cells are."""
    is_parsed = (
        pa.types.is_temporal(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
    return pa.string() if is_parsed else kind


# -- Columns of another type, in which no value changes --------------------------------------------


def cast_columns(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    casts: Iterable[tuple[str, str]],
    source: str,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return rows with some columns in other types, named as in SQL; texts are read as `parse_column` reads them.

    Raises InvalidInputError, of values as they are read, for a column that is not there, a type to which there is no
    cast, and a value that would change. `source`: what the rows are of, for messages.
    """
    kinds = {name: arrow_type(type_of_text(text, name)) for name, text in casts}
    for name, kind in kinds.items():
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidInputError(
                f"{source} has no column {name!r}, which casts name",
                kind=ErrorKind.NO_SUCH_COLUMN,
                columns=schema.names,
            )
        schema = schema.set(index, schema.field(index).with_type(kind))
    if not kinds:
        return schema, batches
    return schema, (_cast_batch(batch, schema, kinds, source) for batch in batches)


def _cast_batch(
    batch: pa.RecordBatch, schema: pa.Schema, kinds: Mapping[str, pa.DataType], source: str
) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, kind in kinds.items():
        stored = columns[name]
        columns[name], wrong = _exact_cast(stored, kind)
        if wrong is not None:
            value = stored.filter(wrong)[0].as_py()
            raise InvalidInputError(
                f"{source}, column {name!r}: {value!r} of type {stored.type} cannot be {kind} exactly",
                kind=ErrorKind.INVALID_ROWS,
                column=name,
                value=str(value),
            )
    return pa.RecordBatch.from_arrays([*columns.values()], schema=schema)


def _exact_cast(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return values as another type, null where one would change, and a mask of those; None if none does.

    Text is read as `parse_column` reads it, and null texts are null. Raises pyarrow.ArrowException for types between
    which there is no cast.
    """
    if is_text(values.type):
        return parse_column(values.cast(pa.string()), kind)
    places = _unparsed(values, lambda part: part.cast(kind))
    mask = np.zeros(len(values), np.bool_)
    mask[places] = True
    fitting = pc.if_else(pa.array(mask), None, values)
    cast_values = fitting.cast(kind)
    # Arrow rounds numbers to the digits of a decimal, and cuts times off a day.
    altered = pc.fill_null(pc.not_equal(cast_values.cast(values.type), fitting), False)  # noqa: FBT003
    wrong = pc.or_(pa.array(mask), altered)
    if not pc.any(wrong).as_py():
        return cast_values, None
    return pc.if_else(wrong, None, cast_values), wrong
