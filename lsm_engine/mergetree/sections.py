"""Interval partition: files → disjoint sections → the fewest sorted runs of each."""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from lsm_engine.mergetree.levels import newest_first
from lsm_engine.mergetree.sorted_run import KeyOrder, SortedRun
from lsm_engine.meta.data_file import DataFileMeta


def sections(files: Iterable[DataFileMeta], key_order: KeyOrder) -> list[list[SortedRun]]:
    """Return sections in key order; no key is in two of them.

    The runs of a section are as few as can be, and stand oldest first (deepest level, then lowest
    sequence number), so that a merge that has nothing else to decide by lets the newer one win.
    """
    return [_runs(section) for section in _sections(files, key_order)]


def runs_by_age(
    section: Iterable[Sequence[DataFileMeta]], settled_from: int
) -> list[tuple[int, tuple[DataFileMeta, ...]]]:
    """Return the runs of a section cut by age, each with its age, oldest first.

    The age of files above level `settled_from` is 0: they are new. Other files have their level's.
    """
    cut: list[tuple[int, tuple[DataFileMeta, ...]]] = []
    for run in section:
        by_age: dict[int, list[DataFileMeta]] = {}
        for file in run:
            by_age.setdefault(file.level if file.level >= settled_from else 0, []).append(file)
        cut += [(age, tuple(files)) for age, files in by_age.items()]
    return sorted(cut, key=lambda one: -one[0])


_Bounded = tuple[bytes, bytes, DataFileMeta]  # first key, last key, file


def _sections(files: Iterable[DataFileMeta], key_order: KeyOrder) -> Iterator[list[_Bounded]]:
    bounded = [(key_order(file.min_key), key_order(file.max_key), file) for file in files]
    bounded.sort(key=lambda one: (one[0], one[1], one[2].file_name))
    section: list[_Bounded] = []
    end = b""
    for one in bounded:
        if section and one[0] > end:
            yield section
            section = []
        end = max(end, one[1]) if section else one[1]
        section.append(one)
    if section:
        yield section


def _runs(section: list[_Bounded]) -> list[SortedRun]:
    """Give each file, by first key, to the run that ends first; a new run if even that is too far."""
    ends: list[tuple[bytes, int]] = []  # last key of each run, a heap
    runs: list[list[DataFileMeta]] = []
    for first, last, file in section:
        if ends and ends[0][0] < first:
            _, run = heapq.heappop(ends)
        else:
            run = len(runs)
            runs.append([])
        runs[run].append(file)
        heapq.heappush(ends, (last, run))
    made = (SortedRun(files=tuple(run)) for run in runs)
    return sorted(made, key=_newest_first, reverse=True)


def _newest_first(run: SortedRun) -> tuple[int, tuple[int, int, int, str]]:
    return (min(file.level for file in run.files), min(newest_first(file) for file in run.files))
