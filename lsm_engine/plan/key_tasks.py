"""Which task looks into which data files, so that tasks have about the same to read."""

import heapq
from collections.abc import Sequence

from lsm_engine.base.record import record
from lsm_engine.meta.manifest import ManifestEntry, by_bucket


@record
class FileShare:
    """Data files of one bucket that one task looks into, and how many rows they hold."""

    partition: bytes
    bucket: int
    entries: tuple[ManifestEntry, ...]
    row_count: int


def file_shares(
    entries: Sequence[ManifestEntry], *, task_count: int, task_rows_max: int | None
) -> tuple[FileShare, ...]:
    """Cut live files into shares of one bucket each, none larger than a task's part of all rows.

    With `task_rows_max` None a bucket is never cut; otherwise a share has at most so many rows, if
    its files are not larger. Files that lie side by side in the order given stay together.
    """
    total = sum(entry.file.row_count for entry in entries)
    most = total
    if task_rows_max is not None:
        most = max(1, min(task_rows_max, -(-total // task_count)))
    shares = []
    for (partition, bucket), files in sorted(by_bucket(entries).items()):
        for part in _cut(files, most):
            rows = sum(entry.file.row_count for entry in part)
            shares.append(
                FileShare(partition=partition, bucket=bucket, entries=tuple(part), row_count=rows)
            )
    return tuple(shares)


def _cut(files: Sequence[ManifestEntry], most: int) -> list[list[ManifestEntry]]:
    parts: list[list[ManifestEntry]] = [[]]
    size = 0
    for entry in files:
        if parts[-1] and size + entry.file.row_count > most:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += entry.file.row_count
    return parts


def balanced(costs: Sequence[int], task_count: int) -> tuple[int, ...]:
    """Return the task of each item: the costliest first, each to the task that has least so far.

    No task gets more than 4/3 of what the best of all ways would give its busiest one.
    """
    tasks = [(0, number) for number in range(task_count)]
    chosen = [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda item: (-costs[item], item)):
        cost, number = heapq.heappop(tasks)
        chosen[item] = number
        heapq.heappush(tasks, (cost + costs[item], number))
    return tuple(chosen)
