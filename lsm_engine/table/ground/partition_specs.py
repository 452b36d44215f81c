"""Partitions as users name them, {"dt": "2024-01-01"}, against stored partition rows."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.prune.partition import partition_mask, partition_predicate
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.declared_lengths import stored_values
from lsm_engine.schema.table_schema import TableSchema


class PartitionTest:
    """Whether a stored partition is covered by one of some specs.

    A spec may leave partition columns out; it then covers all their values. Raises InvalidInputError
    for names that are no partition columns and values that do not fit.
    """

    def __init__(self, schema: TableSchema, specs: Sequence[Mapping[str, object]]) -> None:
        self._fields = schema.select_read(schema.partition_keys)
        if not all(isinstance(spec, Mapping) for spec in specs):
            raise InvalidInputError("partitions are given as [{column: value}]", given=specs)
        self._predicates = [partition_predicate(spec, self._fields) for spec in specs]

    def __call__(self, partition: bytes) -> bool:
        stored = pa.array([partition], pa.binary())
        masks = (partition_mask(one, stored, self._fields) for one in self._predicates)
        return any(bool(mask[0]) for mask in masks)


def partition_columns(
    schema: TableSchema, columns: Mapping[str, Sequence[object]]
) -> list[pa.Array]:
    """Return the columns of partitions, of their own types, given as the values of every partition column.

    Raises InvalidInputError for other names, and for values that do not fit.
    """
    fields = schema.select_read(schema.partition_keys)
    if set(columns) != set(schema.partition_keys):
        raise InvalidInputError(
            "a partition is named by all its columns: "
            + (", ".join(schema.partition_keys) or "none"),
            kind=ErrorKind.NO_SUCH_COLUMN,
            given=sorted(columns),
        )
    try:
        given = [pa.array(columns[field.name]).cast(arrow_type(field.type)) for field in fields]
    except pa.ArrowInvalid as error:
        shown = {name: values[0] for name, values in columns.items()} if len(fields) else {}
        raise InvalidInputError(f"no partition has these values: {error}", given=shown) from error
    return [
        stored_values(field.name, field.type, values)
        for field, values in zip(fields, given, strict=True)
    ]
