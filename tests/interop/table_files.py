"""What the checks need to know of a table without any client: its schema, and how types are spelled."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

ATOMIC = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BYTES",
    pa.large_binary(): "BYTES",
    pa.date32(): "DATE",
    pa.time32("ms"): "TIME(3)",
}
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def latest_schema(path: Path | str) -> dict[str, Any]:
    """The table's newest schema file."""
    numbers = [
        int(file.name.removeprefix("schema-")) for file in Path(path, "schema").glob("schema-*")
    ]
    return json.loads(Path(path, "schema", f"schema-{max(numbers)}").read_text())


def paimon_type(kind: pa.DataType, *, nullable: bool = True) -> str:
    """An Arrow type as schema files spell it; nested ones have to be spelled by the caller."""
    if pa.types.is_decimal(kind):
        spelled = f"DECIMAL({kind.precision}, {kind.scale})"
    elif pa.types.is_timestamp(kind):
        spelled = f"TIMESTAMP({DIGITS[kind.unit]})" + (" WITH LOCAL TIME ZONE" if kind.tz else "")
    elif pa.types.is_fixed_size_binary(kind):
        spelled = f"BINARY({kind.byte_width})"
    else:
        spelled = ATOMIC[kind]
    return spelled if nullable else spelled + " NOT NULL"
