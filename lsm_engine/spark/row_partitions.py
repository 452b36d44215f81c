"""What the tasks of `format("lsm")` read: partitions that know their rows, small ones packed together."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lsm_engine.plan.task_packing import packed
from lsm_engine.spark.jobs import Batches, prepare_worker

_TASK_GOAL = 64
"""Spark does not tell a Python data source how many cores there are."""


class RowsPartition(InputPartition):
    """A partition that knows how to read itself, and how many bytes that are."""

    size_bytes: int

    def batches(self) -> Batches:
        """Yield its rows."""
        raise NotImplementedError


class PackedPartition(RowsPartition):
    """Several partitions that one task reads, one after the other."""

    def __init__(self, parts: Sequence[RowsPartition]) -> None:
        super().__init__(f"{parts[0].value} and {len(parts) - 1} more")
        self.parts = tuple(parts)
        self.size_bytes = sum(part.size_bytes for part in parts)

    def batches(self) -> Batches:
        """Yield their rows, in order."""
        for part in self.parts:
            yield from part.batches()


def packed_partitions(
    parts: Sequence[RowsPartition], *, in_order: bool = False
) -> list[InputPartition]:
    """Return partitions such that small ones share a task; those of a task, or all, stay in order."""
    sizes = [part.size_bytes for part in parts]
    tasks = packed(sizes, task_goal=_TASK_GOAL, in_order=in_order)
    return [
        parts[task[0]] if len(task) == 1 else PackedPartition([parts[number] for number in task])
        for task in tasks
    ]


def rows_of_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, in a task; none where there is nothing to read."""
    prepare_worker()
    if isinstance(partition, RowsPartition):
        yield from partition.batches()
