"""A large first load of a bucket: it goes to the last level as it is, instead of being merged there."""

from lsm_engine.mergetree.full import FileTest, none_of_them
from lsm_engine.mergetree.levels import Levels
from lsm_engine.mergetree.rewrite_plan import is_small
from lsm_engine.meta.data_file import DataFileMeta


def bulk_load(
    levels: Levels, *, target_file_size: int, must_rewrite: FileTest = none_of_them
) -> tuple[DataFileMeta, ...]:
    """Return the oldest files of level 0 that may move to the last level as they are, or none.

    Nothing may lie below level 0. The files overlap nowhere and hold no deletes; each is large, or
    there is one that is larger than everything newer. Without this the first compaction of a bucket
    would rewrite the load that it began with, because a result never goes to level 0.
    """
    if levels.highest_non_empty_level > 0:
        return ()
    selected: list[DataFileMeta] = []
    for file in reversed(levels.level_zero):
        if file.may_hold_deletes or must_rewrite(file) or _overlaps(file, selected, levels):
            break
        selected.append(file)
    while selected and is_small(selected[-1], target_file_size):
        if len(selected) == 1 and 2 * selected[0].file_size > sum(
            file.file_size for file in levels.files
        ):
            break
        selected.pop()
    return tuple(selected)


def _overlaps(file: DataFileMeta, selected: list[DataFileMeta], levels: Levels) -> bool:
    order = levels.key_order
    low, high = order(file.min_key), order(file.max_key)
    return any(
        order(candidate.min_key) <= high and low <= order(candidate.max_key)
        for candidate in selected
    )
