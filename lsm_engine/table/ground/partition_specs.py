"""Partitions as users name them, {"dt": "2024-01-01"}, against stored partition rows."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from lsm_engine.prune.partition import partition_mask, partition_predicate
from lsm_engine.schema.table_schema import TableSchema


def partition_test(
    schema: TableSchema, specs: Sequence[Mapping[str, object]]
) -> Callable[[bytes], bool]:
    """Return whether a stored partition is covered by one of the specs.

    A spec may leave partition columns out; it then covers all their values. Raises InvalidInputError
    for names that are no partition columns and values that do not fit.
    """
    fields = schema.select(schema.partition_keys)
    predicates = [partition_predicate(spec, fields) for spec in specs]

    def covers(partition: bytes) -> bool:
        stored = pa.array([partition], pa.binary())
        return any(bool(partition_mask(predicate, stored, fields)[0]) for predicate in predicates)

    return covers
