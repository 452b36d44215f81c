"""Rows to measure with: nine columns of mixed types, and sorted runs that overlap by a chosen share.

Made from seeds, so every run of a benchmark and every contender sees the same rows.
"""

import decimal
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SINGLE = ("k",)
COMPOSITE = ("name", "part")
TEXT = ("uuid",)
CITIES = pa.array([f"city {number}" for number in range(50)])
FIRST_MICROS, LAST_MICROS = 1_356_998_400_000_000, 1_388_534_400_000_000  # the year 2013


def key_columns(numbers: np.ndarray, key: Sequence[str] = SINGLE) -> dict[str, pa.Array]:
    """Key columns of key number n, in the order of n: one int64, text of 16 and an int32, or text of 36."""
    if tuple(key) == SINGLE:
        return {"k": pa.array(numbers.astype(np.int64))}
    if tuple(key) == TEXT:
        spread = padded(numbers.astype(np.int64) * 7_919, 18)
        return {"uuid": pc.binary_join_element_wise(spread, spread, pa.scalar(""))}
    names = pc.binary_join_element_wise(
        pa.scalar("name-"), padded(numbers // 16, 11), pa.scalar("")
    )
    return {"name": names, "part": pa.array((numbers % 16).astype(np.int32))}


def padded(numbers: np.ndarray, width: int) -> pa.Array:
    """Numbers as text of one width, so that they sort as the numbers do."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def rows(numbers: np.ndarray, *, seed: int, key: Sequence[str] = SINGLE) -> pa.Table:
    """The rows of these key numbers, in their order, with values that the seed decides."""
    count = len(numbers)
    chance = np.random.default_rng(seed)
    columns = key_columns(numbers, key)
    names = pa.array(chance.integers(0, 100_000, count)).cast(pa.string())
    cents = pa.array(chance.integers(0, 1_000_000, count)).cast(pa.decimal128(19, 0))
    columns |= {
        "a": pa.array(chance.integers(0, 1_000, count)),
        "b": pa.array(chance.random(count)),
        "c": pa.array(chance.random(count), mask=chance.random(count) < 0.1),
        "s": pc.binary_join_element_wise(pa.scalar("name-"), names, pa.scalar("")),
        "t": CITIES.take(pa.array(chance.integers(0, len(CITIES), count))),
        "d": pa.array(chance.integers(0, 20_000, count).astype(np.int32)).view(pa.date32()),
        "ts": pa.array(chance.integers(FIRST_MICROS, LAST_MICROS, count), pa.timestamp("us")),
        "dec": pc.multiply(cents, decimal.Decimal("0.01")).cast(pa.decimal128(18, 2)),
    }
    made = pa.table(columns)
    fields = [field.with_nullable(field.name not in key) for field in made.schema]
    return made.cast(pa.schema(fields))


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    """The same rows in no order."""
    return table.take(np.random.default_rng(seed).permutation(table.num_rows))


def two_runs(count: int, *, key: Sequence[str] = SINGLE) -> tuple[pa.Table, pa.Table]:
    """Two unsorted tables of `count` rows that share two thirds of their keys, at random places."""
    third = count // 3
    numbers = np.random.default_rng(1).permutation(count + third)
    only_first, only_second = numbers[:third], numbers[third : 2 * third]
    both = numbers[2 * third :]
    first, second = np.concatenate([only_first, both]), np.concatenate([only_second, both])
    return (
        shuffled(rows(first, seed=2, key=key), 4),
        shuffled(rows(second, seed=3, key=key), 5),
    )


def overlapping_runs(
    counts: Sequence[int], overlap: float, *, key: Sequence[str] = SINGLE
) -> list[pa.Table]:
    """Sorted runs of these sizes; `overlap` of each later run's keys are in earlier ones.

    New keys lie anywhere between the old ones, so all runs span the whole key space.
    """
    chance = np.random.default_rng(7)
    pool = chance.permutation(sum(counts))
    used = 0
    runs = []
    for number, count in enumerate(counts):
        old = min(int(count * overlap), used) if number else 0
        again = pool[chance.choice(used, old, replace=False)] if old else pool[:0]
        new = pool[used : used + count - old]
        used += count - old
        numbers = np.sort(np.concatenate([again, new]))
        runs.append(rows(numbers, seed=100 + number, key=key))
    return runs
