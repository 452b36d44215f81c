"""Random values of every scalar type, and their spelling for PaimonValues.java."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 -- a TIMESTAMP has no zone


def whole(bits: int) -> Any:
    """Numbers of a width, its edges among them."""
    top = (1 << bits - 1) - 1
    return lambda draw: draw.choice(
        [draw.randint(-top - 1, top), draw.randint(-9, 9), top, -top - 1]
    )


def text(draw: random.Random) -> str:
    return "".join(draw.choices("aß水🙂z￿", k=draw.choice([0, 1, 5, 15, 16, 17, 40])))


MAKERS: dict[str, Any] = {
    "BOOLEAN": lambda draw: draw.random() < 0.5,
    "TINYINT": whole(8),
    "SMALLINT": whole(16),
    "INT": whole(32),
    "BIGINT": whole(64),
    "FLOAT": lambda draw: float(np.float32(draw.gauss(0, 100))),
    "DOUBLE": lambda draw: draw.choice([1.5, 5e-324, -1e308, draw.gauss(0, 1e9)]),
    "STRING": text,
    "BYTES": lambda draw: draw.randbytes(draw.randint(0, 20)),
    "DATE": lambda draw: dt.date(1969, 12, 1) + dt.timedelta(days=draw.randint(0, 90)),
    "DECIMAL(9, 2)": lambda draw: Decimal(draw.randint(-999_999_999, 999_999_999)).scaleb(-2),
    "DECIMAL(30, 4)": lambda draw: Decimal(draw.randint(-(10**27), 10**27)).scaleb(-4),
    "TIMESTAMP(3)": lambda draw: EPOCH + dt.timedelta(milliseconds=draw.randint(-(10**9), 10**12)),
    "TIMESTAMP(6)": lambda draw: EPOCH + dt.timedelta(microseconds=draw.randint(-(10**9), 10**15)),
}  # fmt: skip


def spelled(value: Any) -> Any:
    """A value as PaimonValues.java takes and gives it."""
    match value:
        case bytes():
            return value.hex()
        case Decimal():
            return str(value)
        case dt.datetime():
            return (value - EPOCH) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - EPOCH.date()).days
        case _:
            return value


def spelled_row(row: Any) -> list[Any]:
    return [spelled(value) for value in row]


def made(name: str, draw: random.Random, *, null_share: float = 0.0) -> Any:
    return None if draw.random() < null_share else MAKERS[name](draw)
