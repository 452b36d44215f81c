"""One key at a time answers as batches do, for every type of key that has a way of its own."""

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.lookup.lookup import FOUND
from tests.unit.lookup.stores import query_of

KEYS = {
    "long": [("k", pa.int64())],
    "small": [("k", pa.int8()), ("n", pa.int16())],
    "text": [("k", pa.string())],
    "both": [("k", pa.string()), ("n", pa.int32()), ("f", pa.bool_())],
    "bytes": [("n", pa.int64()), ("k", pa.binary())],
    "decimal": [("k", pa.decimal128(9, 2))],  # has no way of its own
}


def value(kind, number):
    if pa.types.is_string(kind):
        return ["", "a\0", "a\1", "same first sixteen bytes " + "é" * number, "x" * 7, "y" * 8][number % 6] + str(number)  # fmt: skip
    if pa.types.is_binary(kind):
        return [b"", b"\0", b"\0\1", b"\xff" * 20][number % 4] + bytes([number % 256])
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    return number - 50


@pytest.mark.parametrize("bucket", ["1", "3"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_get_equals_lookup(key, bucket, tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    fields = [*key, ("dt", pa.string()), ("v", pa.int64())]
    names = [name for name, _ in key]
    table = catalog.create_table(
        "d.t", pa.schema(fields), primary_key=[*names, "dt"], partitioned_by=["dt"],
        options={"bucket": bucket, "write-only": "true", "file.block-size": "1 kb"},
    )  # fmt: skip
    rng = np.random.default_rng(1)

    def rows(numbers):
        made = {name: pa.array([value(kind, n) for n in numbers], kind) for name, kind in key}
        return pa.table({**made, "dt": [f"d{n % 2}" for n in numbers], "v": list(numbers)})

    everything = rows(range(120)).select([*names, "dt"]).to_pylist()
    with query_of(table, "columnar", tmp_path) as query:
        assert query.get(everything[0]) is None
        for step in range(4):
            table.upsert(rows(rng.permutation(100)[:40].tolist()))
            if step == 2:
                table.delete(rows(range(10)).select([*names, "dt"]))
                table.compact(full=True)
            query.refresh()
            wanted = query.lookup(everything).to_pylist()
            for asked, expected in zip(everything, wanted, strict=True):
                found = expected.pop(FOUND)
                assert query.get(asked) == (expected if found else None)


@pytest.mark.parametrize(
    ("key", "match"),
    [({"k": None}, "'k' takes"), ({"k": "1"}, "'k' takes"), ({"k": 2**63}, "'k' takes"),
     ({"k": True}, "'k' takes"), ({}, "exactly the columns k"), ({"k": 1, "x": 2}, "exactly")],
)  # fmt: skip
def test_bad_keys(key, match, tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table("d.t", pa.schema([("k", pa.int64())]), primary_key=["k"])
    table.upsert([{"k": 1}])
    with table.query() as query:
        with pytest.raises(lsm.InvalidInputError, match=match):
            query.get(key)
        with pytest.raises(lsm.NotFoundError):
            query.get({"k": 1}, ["nothing"])
