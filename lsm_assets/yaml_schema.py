"""JSON schemas for `dg check yaml` and editors: names of types and options, and values of options.

`dg check defs` checks other rules, such as the precision of a DECIMAL and options that exclude each other.
"""

import re
from enum import Enum
from typing import Any

from lsm_engine import core_options

_TEMPLATE = r".*\{\{.*"
"""A template that Dagster resolves when it loads the file, such as {{ env.BUCKETS }}."""
_TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DEC",
    "NUMERIC", "STRING", "CHAR", "VARCHAR", "BYTES", "BINARY", "VARBINARY", "DATE", "TIME",
    "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "ROW",
)  # fmt: skip
_TYPE = rf"^\s*((?i:{'|'.join(_TYPES)})([\s(<].*)?|{_TEMPLATE})$"


def columns_schema() -> dict[str, Any]:
    """Return the JSON schema of columns, in addition to that of their fields: a type begins with a known name.

    As a schema of its own it makes `dg` report an error at the line of the column.
    """
    return {"items": {"properties": {"type": {"pattern": _TYPE}}}}


def tables_schema() -> dict[str, Any]:
    """Return the JSON schema of tables, in addition to that of their fields."""
    return {"items": {"properties": {"columns": columns_schema(), "options": options_schema()}}}


def options_schema() -> dict[str, Any]:
    """Return the JSON schema of a table's options: names, values and descriptions."""
    options = core_options.BY_KEY.values()
    properties = {
        key: {**_values(option.default), "description": option.doc}
        for option in options
        for key in (option.key, *option.aliases)
    }
    suffixes = "|".join(re.escape(option.suffix) for option in core_options.FIELD_OPTIONS)
    return {
        "properties": properties,
        "patternProperties": {rf"^fields\..+\.({suffixes})$": {}},
        # With "additionalProperties": False `dg` would report an unknown option at the line of `options`.
        "additionalProperties": {"not": {"description": "no table option has this name"}},
    }


def _values(default: object) -> dict[str, Any]:
    if isinstance(default, bool):
        return {"type": ["boolean", "string"], "pattern": rf"^((?i:true|false)|{_TEMPLATE})$"}
    if isinstance(default, Enum):
        words = (re.escape(str(word.value)).replace(r"\-", "[-_]") for word in type(default))
        return {"type": "string", "pattern": rf"^((?i:{'|'.join(words)})|{_TEMPLATE})$"}
    return {"type": ["string", "number", "boolean"]}
