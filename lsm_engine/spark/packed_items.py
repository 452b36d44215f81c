"""Items of work, packed into the tasks of one Spark job."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.record import record
from lsm_engine.plan.task_packing import packed
from lsm_engine.spark.session import task_goal

_closures = CloudPickleSerializer()  # type: ignore[no-untyped-call]


@record
class PackedItems:
    """What each task works on. It pickles; each item by itself, so that a task unpickles its own alone."""

    tasks: tuple[tuple[int, ...], ...]
    items: tuple[bytes, ...]

    @staticmethod
    def of(
        items: Sequence[Any], sizes: Sequence[int], spark: SparkSession, *, in_order: bool = False
    ) -> "PackedItems":
        """Pack items of so many bytes each into as many tasks as keep a session's cores busy."""
        return PackedItems(
            tasks=packed(sizes, task_goal=task_goal(spark), in_order=in_order),
            items=tuple(_closures.dumps(item) for item in items),  # type: ignore[no-untyped-call]
        )

    def frame(self, spark: SparkSession, *, step: int = 1) -> DataFrame:
        """Return a frame of numbers with a partition for each task, `step` numbers long."""
        count = len(self.tasks)
        return spark.range(0, count * step, 1, count)

    def of_task(self, task: int) -> Iterator[tuple[int, Any]]:
        """Yield the items of a task with their numbers, in ascending order."""
        for number in self.tasks[task]:
            yield number, _closures.loads(self.items[number])  # type: ignore[no-untyped-call]
