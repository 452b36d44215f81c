"""Partitions as users name them, {"dt": "2024-01-01"}, against stored partition rows."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lsm_engine.prune.partition import partition_mask, partition_predicate
from lsm_engine.schema.table_schema import TableSchema


class PartitionTest:
    """Whether a stored partition is covered by one of some specs.

    A spec may leave partition columns out; it then covers all their values. Raises InvalidInputError
    for names that are no partition columns and values that do not fit.
    """

    def __init__(self, schema: TableSchema, specs: Sequence[Mapping[str, object]]) -> None:
        self._fields = schema.select(schema.partition_keys)
        self._predicates = [partition_predicate(spec, self._fields) for spec in specs]

    def __call__(self, partition: bytes) -> bool:
        stored = pa.array([partition], pa.binary())
        masks = (partition_mask(one, stored, self._fields) for one in self._predicates)
        return any(bool(mask[0]) for mask in masks)
