"""Interval partition: files → disjoint sections → the fewest sorted runs of each."""

import heapq
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from lsm_engine.mergetree.levels import newest_first
from lsm_engine.mergetree.sorted_run import KeyOrder, SortedRun
from lsm_engine.meta.data_file import DataFileMeta


def sections(files: Iterable[DataFileMeta], key_order: KeyOrder) -> list[list[SortedRun]]:
    """Return sections in key order; no key is in two of them.

    The runs of a section stand oldest first (deepest level, then lowest sequence number), so that a
    merge that has nothing else to decide by lets the newer one win. They are as few as can be, unless
    rows of several runs may have one sequence number: then no run holds both an older and a newer file
    than one of another run.
    """
    return [_runs(section) for section in _sections(files, key_order)]


def runs_by_age(
    section: Iterable[Sequence[DataFileMeta]], compacted_from: int
) -> list[tuple[int, tuple[DataFileMeta, ...]]]:
    """Return the runs of a section cut by age, each with its age, oldest first.

    The age of files above level `compacted_from` is 0: they are new. Other files have their level's.
    """
    cut: list[tuple[int, tuple[DataFileMeta, ...]]] = []
    for run in section:
        by_age: dict[int, list[DataFileMeta]] = {}
        for file in run:
            by_age.setdefault(file.level if file.level >= compacted_from else 0, []).append(file)
        cut += [(age, tuple(files)) for age, files in by_age.items()]
    return sorted(cut, key=lambda cut_section: -cut_section[0])


def runs_are_apart(section: Iterable[Sequence[DataFileMeta]]) -> bool:
    """Whether all rows of a run are older, or all newer, than any row of another, by sequence numbers.

    Then a file's greatest number decides as those of its rows do.
    """
    ends = sorted(
        (
            min(file.min_sequence_number for file in run),
            max(file.max_sequence_number for file in run),
        )
        for run in section
    )
    return all(before[1] < after[0] for before, after in pairwise(ends))


_Bounded = tuple[bytes, bytes, DataFileMeta]  # first key, last key, file


def _sections(files: Iterable[DataFileMeta], key_order: KeyOrder) -> Iterator[list[_Bounded]]:
    bounded = [(key_order(file.min_key), key_order(file.max_key), file) for file in files]
    bounded.sort(key=lambda interval: (interval[0], interval[1], interval[2].file_name))
    section: list[_Bounded] = []
    end = b""
    for bound in bounded:
        if section and bound[0] > end:
            yield section
            section = []
        end = max(end, bound[1]) if section else bound[1]
        section.append(bound)
    if section:
        yield section


def _runs(section: list[_Bounded]) -> list[SortedRun]:
    runs = _by_age(section) if _may_tie(file for _, _, file in section) else _fewest(section)
    return [SortedRun(files=tuple(run)) for run in runs]


def _fewest(section: list[_Bounded]) -> list[list[DataFileMeta]]:
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
    return sorted(runs, key=lambda run: min(map(_newest_first, run)), reverse=True)


def _may_tie(files: Iterable[DataFileMeta]) -> bool:
    """Whether files that may share a key have sequence numbers in common; those of a level share none."""
    spans: dict[object, tuple[int, int]] = {}
    for file in files:
        run = file.level or file.file_name
        low, high = spans.get(run, (file.min_sequence_number, file.max_sequence_number))
        spans[run] = (min(low, file.min_sequence_number), max(high, file.max_sequence_number))
    return any(span[1] >= next_span[0] for span, next_span in pairwise(sorted(spans.values())))


def _by_age(section: list[_Bounded]) -> list[list[DataFileMeta]]:
    """Give files, oldest first, to one run until one shares keys with it: the next begins a run."""
    runs: list[list[_Bounded]] = []
    for interval in sorted(section, key=lambda interval: _newest_first(interval[2]), reverse=True):
        if runs:
            index = bisect(runs[-1], interval[0], key=lambda member: member[0])
            follows = index == 0 or runs[-1][index - 1][1] < interval[0]
            if follows and (index == len(runs[-1]) or interval[1] < runs[-1][index][0]):
                runs[-1].insert(index, interval)
                continue
        runs.append([interval])
    return [[file for _, _, file in run] for run in runs]


def _newest_first(file: DataFileMeta) -> tuple[int, tuple[int, int, int, str]]:
    return (file.level, newest_first(file))
