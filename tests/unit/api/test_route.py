"""Rows go to the partition and bucket that the specification says, in the order in which they came."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.options.table_options import TableOptions
from lsm_engine.table.bucket_keys import Router
from lsm_engine.table.incoming import IncomingRows
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import type_json
from tests.model.column_kinds import INT, rank, to_plain
from tests.model.stored_rows import bucket_of, decode_stored, stored_type
from tests.model.strategies import arrow_rows, arrow_schema, key_pool, row_of, seeds, shapes
from tests.model.table_model import INSERT, Shape


def schema_of(shape: Shape, bucket: int) -> TableSchema:
    ids = FieldIds()
    return TableSchema(
        id=0,
        fields=tuple(field_from_arrow(field, ids) for field in arrow_schema(shape)),
        highest_field_id=ids.highest,
        partition_keys=shape.partitioned_by,
        primary_keys=shape.primary_key,
        options=TableOptions(texts={"bucket": str(bucket)}),
    )


@given(
    shape=shapes(),
    bucket=st.sampled_from([1, 2, 7, 1000]),
    chosen=st.lists(st.tuples(st.integers(0, 11), seeds), min_size=1, max_size=40),
)
def test_every_row_to_its_bucket(shape: Shape, bucket: int, chosen: list[tuple[int, int]]) -> None:
    pool = key_pool(shape, many=True)
    rows = [(INSERT, row_of(shape, pool[number % len(pool)], seed)) for number, seed in chosen]
    schema = schema_of(shape, bucket)
    types = {field.name: stored_type(type_json(field.type)) for field in schema.fields}
    batch = arrow_rows(shape, rows, kinds=False).combine_chunks().to_batches()[0]
    numbers = pa.array([number % 4 for number in range(len(rows))], pa.int8())
    routed = Router(schema).route(IncomingRows(rows=batch, kinds=numbers))

    expected: dict[object, list[int]] = {}
    key_types = [types[name] for name in shape.trimmed_key]
    for place, (_, row) in enumerate(rows):
        partition = shape.part(row, shape.partitioned_by)
        where = bucket_of(shape.part(row, shape.trimmed_key), key_types, bucket)
        expected.setdefault((tuple(map(rank, partition)), where), []).append(place)
    found = {}
    for piece in routed:
        partition = decode_stored(piece.partition, [types[name] for name in shape.partitioned_by])
        found[tuple(map(rank, partition)), piece.bucket] = piece
    assert found.keys() == expected.keys()
    assert len(found) == len(routed), "a bucket comes in two pieces"
    for key, places in expected.items():
        piece = found[key]
        assert piece.kinds.to_pylist() == [place % 4 for place in places]
        for name in shape.names:
            assert to_plain(piece.rows.column(name)) == to_plain(
                batch.column(name).take(pa.array(places))
            )


@pytest.mark.parametrize("bucket", [-1, -2])
def test_buckets_that_are_not_fixed_are_refused(bucket: int) -> None:
    shape = Shape(columns=(("k", INT),), primary_key=("k",))
    with pytest.raises(UnsupportedError, match="bucket"):
        Router(schema_of(shape, bucket))
