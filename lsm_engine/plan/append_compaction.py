"""Which small files of an append table become one: nothing is merged, so only sizes decide."""

from collections.abc import Iterable, Iterator, Sequence

from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.plan.row_ids import column_groups, row_ids_of

_SMALL = 0.7
"""A file below this part of the target size is small, as in an LSM tree."""


@record
class AppendSizes:
    """What decides: `target_file_size` in bytes; `min_file_count` small files make a group due."""

    target_file_size: int
    min_file_count: int

    def is_small(self, file: DataFileMeta) -> bool:
        """Whether a file should be joined with others."""
        return file.file_size < _SMALL * self.target_file_size


def append_groups(
    files: Iterable[DataFileMeta],
    sizes: AppendSizes,
    *,
    in_order: bool,
    full: bool = False,
    must_rewrite: frozenset[str] = frozenset(),
) -> list[tuple[DataFileMeta, ...]]:
    """Return groups of files of one bucket, each to be rewritten as one, oldest rows first.

    `in_order`: rows of the bucket have an order that a rewrite keeps (a fixed bucket), so that only
    neighbours are joined. A group is due when it fills a file, or when it has `min_file_count` files
    of which none outweighs the others together: a row is then rewritten a number of times that grows
    with the logarithm of the table's size. With `full` all small files are joined, and files in
    `must_rewrite` are rewritten even alone.
    """
    arranged = sorted(files, key=_age)
    groups: list[tuple[DataFileMeta, ...]] = []
    for stretch in _stretches(arranged, sizes, in_order=in_order, must_rewrite=must_rewrite):
        for group in _filled(stretch, sizes):
            chosen = tuple(group) if full else _is_worth_it(group, sizes, in_order=in_order)
            if len(chosen) > 1 or (full and any(file.file_name in must_rewrite for file in chosen)):
                groups.append(tuple(sorted(chosen, key=_age)))
    return groups


def row_range_groups(
    files: Iterable[DataFileMeta], sizes: AppendSizes, *, full: bool = False
) -> list[tuple[DataFileMeta, ...]]:
    """Return groups of files whose rows' ids follow each other, each to be rewritten as one.

    For `data-evolution.enabled`: one file holds one range of ids, whole. Neighbours are joined up to the
    target size, and column files with the rows that they belong to. A group is due when it has
    `min_file_count` files and no range in it outweighs those after it together, as in `append_groups`;
    so is a range alone that has as many. With `full` every group of two files is.
    """
    stretches: list[list[tuple[DataFileMeta, ...]]] = []
    size, end = 0, -1
    for group in column_groups(files):
        added = _size(group)
        starts_anew = row_ids_of(group[0]).start != end or size + added > sizes.target_file_size
        if not stretches or starts_anew:
            stretches.append([])
            size = 0
        stretches[-1].append(group)
        size, end = size + added, row_ids_of(group[0]).stop
    least = 2 if full else sizes.min_file_count
    groups = []
    for stretch in stretches:
        heavy, light = ([], stretch) if full else _split_off(stretch)
        parts = [*heavy, tuple(file for group in light for file in group)]
        groups += [part for part in parts if len(part) >= least]
    return groups


def _size(group: Iterable[DataFileMeta]) -> int:
    return sum(file.file_size for file in group)


def _split_off(
    stretch: Sequence[tuple[DataFileMeta, ...]],
) -> tuple[Sequence[tuple[DataFileMeta, ...]], Sequence[tuple[DataFileMeta, ...]]]:
    """Part the ranges up to the last one that outweighs all after it from the others."""
    total, start = sum(map(_size, stretch)), 0
    for index, group in enumerate(stretch[:-1]):
        total -= _size(group)
        if _size(group) > total:
            start = index + 1
    return stretch[:start], stretch[start:]


def _age(file: DataFileMeta) -> tuple[int, int, str]:
    return (file.min_sequence_number, file.creation_millis or 0, file.file_name)


def _stretches(
    files: Sequence[DataFileMeta],
    sizes: AppendSizes,
    *,
    in_order: bool,
    must_rewrite: frozenset[str],
) -> Iterator[list[DataFileMeta]]:
    """Yield files that may be joined: neighbours in order, or all that are small, largest first."""

    def chosen(file: DataFileMeta) -> bool:
        return sizes.is_small(file) or file.file_name in must_rewrite

    if not in_order:
        small = [file for file in files if chosen(file)]
        yield sorted(small, key=lambda file: (-file.file_size, _age(file)))
        return
    stretch: list[DataFileMeta] = []
    for file in files:
        if chosen(file):
            stretch.append(file)
        else:
            yield stretch
            stretch = []
    yield stretch


def _filled(
    stretch: Sequence[DataFileMeta], sizes: AppendSizes
) -> Iterator[Sequence[DataFileMeta]]:
    """Cut a stretch where a target file is full."""
    group: list[DataFileMeta] = []
    size = 0
    for file in stretch:
        group.append(file)
        size += file.file_size
        if size >= sizes.target_file_size:
            yield group
            group, size = [], 0
    if group:
        yield group


def _is_worth_it(
    group: Sequence[DataFileMeta], sizes: AppendSizes, *, in_order: bool
) -> tuple[DataFileMeta, ...]:
    total = sum(file.file_size for file in group)
    if len(group) > 1 and total >= sizes.target_file_size:
        return tuple(group)
    # Drop what outweighs all that comes after it: it was rewritten when it was that large.
    start = 0
    for index, file in enumerate(group):
        total -= file.file_size
        if file.file_size > total and len(group) - index > 1:
            start = index + 1
        elif not in_order:
            break
    tail = tuple(group[start:])
    return tail if len(tail) >= sizes.min_file_count else ()
