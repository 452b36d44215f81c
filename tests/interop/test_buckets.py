"""The bucket of every key is the one that Java gives it, whatever its type."""

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_engine.table.bucket_keys import Router
from tests.interop.clients import Client
from tests.interop.our_tables import create

pytestmark = pytest.mark.interop

RANDOM = random.Random(20_240_229)
ROWS = 10_000


def random_text(_: int) -> str:
    letters = "abc0189 _äß日本😀\x00~"
    return "".join(RANDOM.choices(letters, k=RANDOM.randrange(24)))


def random_number(bits: int) -> int:
    """Any magnitude, so that short and long values are as frequent."""
    return RANDOM.getrandbits(RANDOM.randrange(1, bits)) * RANDOM.choice((1, -1))


KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "tinyint": (pa.int8(), lambda _: random_number(7)),
    "smallint": (pa.int16(), lambda _: random_number(15)),
    "int": (pa.int32(), lambda _: random_number(31)),
    "bigint": (pa.int64(), lambda _: random_number(63)),
    "boolean": (pa.bool_(), lambda i: i % 2 == 0),
    "float": (pa.float32(), lambda _: float(np.float32(RANDOM.gauss(0, 1) * 10.0 ** RANDOM.randrange(-30, 30)))),
    "double": (pa.float64(), lambda _: RANDOM.gauss(0, 1) * 10.0 ** RANDOM.randrange(-300, 300)),
    "decimal9": (pa.decimal128(9, 2), lambda _: Decimal(random_number(29)).scaleb(-2)),
    "decimal18": (pa.decimal128(18, 3), lambda _: Decimal(random_number(59)).scaleb(-3)),
    "decimal38": (pa.decimal128(38, 10), lambda _: Decimal(random_number(126)).scaleb(-10)),
    "string": (pa.string(), random_text),
    "bytes": (pa.binary(), lambda _: RANDOM.randbytes(RANDOM.randrange(24))),
    "date": (pa.date32(), lambda _: random_number(21) % 3_000_000 - 700_000),
    "time": (pa.time32("ms"), lambda _: RANDOM.randrange(86_400_000)),
    "timestamp3": (pa.timestamp("ms"), lambda _: random_number(46)),
    "timestamp6": (pa.timestamp("us"), lambda _: random_number(55)),
    "ltz3": (pa.timestamp("ms", "UTC"), lambda _: random_number(46)),
    "ltz6": (pa.timestamp("us", "UTC"), lambda _: random_number(55)),
}  # fmt: skip


def random_column(name: str, count: int) -> pa.Array:
    kind, value = KEYS[name]
    values = [value(i) for i in range(count)]
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, width).view(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id="-".join(names)[:40], marks=marks)
        for names, marks in [
            (["bigint"], [pytest.mark.interop_full]),
            (["string", "decimal38", "timestamp6", "int"], []),
            *(([name], [pytest.mark.interop_full]) for name in KEYS if name != "bigint"),
            (list(KEYS), [pytest.mark.interop_full]),
        ]
    ],
)
def test_buckets_are_those_of_java(names: list[str], java: Client, tmp_path: Path) -> None:
    rows = pa.table({name: random_column(name, ROWS) for name in names})
    table = create(tmp_path, rows.schema, primary_key=names, options={"bucket": "97"})
    router = Router(table.schema)
    (batch,) = rows.cast(table.schema.arrow).combine_chunks().to_batches()
    ours = router.buckets(batch)
    assert ours.tolist() == java.buckets(table.location, rows)
    assert len(set(ours.tolist())) > 1
