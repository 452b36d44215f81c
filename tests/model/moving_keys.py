"""Tables whose keys move between partitions: their histories, and what a follower makes of their changes."""

import random

import pyarrow as pa

import lsm_engine as lsm

ROWS = pa.schema([("k", pa.int64()), ("day", pa.string()), ("v", pa.int64())])


def applied(rows: pa.Table, to: dict[int, tuple] | None = None) -> dict[int, tuple]:
    """What somebody has who goes by the key alone: a row is put there or taken away."""
    there = {} if to is None else to
    for row in rows.to_pylist():
        if row["_row_kind"] in ("+I", "+U"):
            there[row["k"]] = (row["day"], row["v"])
        else:
            there.pop(row["k"], None)
    return there


def stored(table: lsm.Table) -> dict[int, tuple]:
    """What the table has."""
    return {row["k"]: (row["day"], row["v"]) for row in table.scan().to_arrow().to_pylist()}


def history(table: lsm.Table, chance: random.Random, steps: int) -> None:
    """Keys that go to and fro, several times in one commit, are deleted, come again; compactions between."""
    value = 0
    for _ in range(steps):
        with table.writer() as writer:
            for _ in range(chance.randrange(1, 4)):
                value += 1
                picked = chance.choices(range(8), k=chance.randrange(1, 7))
                days = chance.choices("abc", k=len(picked))
                values = range(value * 100, value * 100 + len(picked))
                given = pa.table({"k": picked, "day": days, "v": values}, schema=ROWS)
                kinds = chance.choices(["+I", "+I", "+I", "-D"], k=len(picked))
                writer.write(given.append_column("_row_kind", pa.array(kinds)))
            writer.commit()
        if chance.random() < 0.3:
            table.compact(full=chance.random() < 0.3)
