"""How many buckets a partition gets whose rows have waited for them."""

from collections.abc import Iterable

from lsm_engine.base import declared
from lsm_engine.base.table_options import TableOptions
from lsm_engine.meta.data_file import DataFileMeta

_BUCKETS_MAX = 2048


def chosen_by_size(options: TableOptions) -> bool:
    """Whether the number of buckets of a new partition is known only once its rows are written."""
    is_given = declared.POSTPONE_DEFAULT_BUCKET_NUM.key in options.texts
    return options[declared.POSTPONE_TARGET_SIZE_PER_BUCKET] is not None and not is_given


def buckets_for(waiting: Iterable[DataFileMeta], options: TableOptions) -> int:
    """Return the number of buckets of a new partition: as its size asks, or the default.

    By size it is a power of two, so that a later rescale by a factor of two reads each old bucket
    for one new one or two.
    """
    target = options[declared.POSTPONE_TARGET_SIZE_PER_BUCKET]
    if target is None or not chosen_by_size(options):
        return options[declared.POSTPONE_DEFAULT_BUCKET_NUM]
    wanted = -(-sum(file.file_size for file in waiting) // max(1, target))
    return min(_BUCKETS_MAX, 1 << max(0, wanted - 1).bit_length())
