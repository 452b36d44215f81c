"""What `dg check yaml` and editors know of a table in YAML: the names of types and options, and words they take.

Longer rules, such as the digits of a DECIMAL or options that do not go together, are checked by `dg check defs`.
"""

import re
from enum import Enum
from typing import Any

from lsm_engine import core_options

_TEMPLATE = r".*\{\{.*"
"""A text that is put in when the file is loaded, such as {{ env.BUCKETS }}."""
_TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DEC",
    "NUMERIC", "STRING", "CHAR", "VARCHAR", "BYTES", "BINARY", "VARBINARY", "DATE", "TIME",
    "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "ROW",
)  # fmt: skip
_TYPE = rf"^\s*((?i:{'|'.join(_TYPES)})([\s(<].*)?|{_TEMPLATE})$"


def columns_schema() -> dict[str, Any]:
    """Return the JSON schema of columns, beside what their fields say: a type begins with one that there is.

    Beside it, and not in it: what is wrong is then shown at the line of the column.
    """
    return {"items": {"properties": {"type": {"pattern": _TYPE}}}}


def tables_schema() -> dict[str, Any]:
    """Return the JSON schema of tables, beside what their fields say, for the same reason."""
    return {"items": {"properties": {"columns": columns_schema(), "options": options_schema()}}}


def options_schema() -> dict[str, Any]:
    """Return the JSON schema of a table's options: the keys there are, with their words and descriptions."""
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
        # With "additionalProperties": False what is wrong would be shown at the line of the options.
        "additionalProperties": {"not": {"description": "no table option has this name"}},
    }


def _values(default: object) -> dict[str, Any]:
    if isinstance(default, bool):
        return {"type": ["boolean", "string"], "pattern": rf"^((?i:true|false)|{_TEMPLATE})$"}
    if isinstance(default, Enum):
        words = (re.escape(str(word.value)).replace(r"\-", "[-_]") for word in type(default))
        return {"type": "string", "pattern": rf"^((?i:{'|'.join(words)})|{_TEMPLATE})$"}
    return {"type": ["string", "number", "boolean"]}
