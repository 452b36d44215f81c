"""How many tasks share many items of work, and which task takes which items."""

from collections.abc import Sequence
from itertools import accumulate

from lsm_engine.plan.key_tasks import balanced

TASK_COUNT_MAX = 2_000
"""No job has more tasks: a scheduler spends some 10 ms on each."""
_ITEM_COST_BYTES = 1 << 20
"""What an item weighs beside its bytes: opening files costs as much as reading about so many."""
_TASK_BYTES_MIN = 4 << 20
_TASK_BYTES_MAX = 128 << 20


def packed(
    sizes: Sequence[int], *, task_goal: int, in_order: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Return the items of each task, in ascending order; `sizes`: the bytes that each item reads.

    There are about `task_goal` tasks, enough to keep all cores busy: fewer where the items are small, for a
    task has 4 MiB at least, and more where there is much, for it has 128 MiB at most unless one item has more.
    No item is parted, and an item more costs as much as 1 MiB. `in_order`: the items of a task all come before
    those of the next one; without it tasks are more alike.
    """
    weights = [size + _ITEM_COST_BYTES for size in sizes]
    total = sum(weights)
    share = min(_TASK_BYTES_MAX, max(_TASK_BYTES_MIN, -(-total // max(1, task_goal))))
    # A larger one is a task by itself.
    ends = list(accumulate(min(weight, share) for weight in weights))
    filled = ends[-1] if ends else 0
    count = min(len(sizes), TASK_COUNT_MAX, -(-filled // share))
    chosen: Sequence[int] = balanced(weights, count)
    if in_order:
        chosen = [begin * count // filled for begin in (0, *ends)[: len(ends)]]
    tasks: list[list[int]] = [[] for _ in range(count)]
    for item, task in enumerate(chosen):
        tasks[task].append(item)
    return tuple(tuple(items) for items in tasks if items)
