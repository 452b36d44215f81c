"""How many buckets a partition gets, and which old buckets hold the rows of a new one."""

from collections.abc import Iterable
from math import gcd

from lsm_engine.base.units import POSTPONE_BUCKET_COUNT
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions

# -- How many buckets a partition gets whose rows have waited for them -----------------------------

_BUCKETS_MAX = 2048


def chosen_by_size(options: TableOptions) -> bool:
    """Whether a compaction counts the bytes that wait: the number of a new partition is not given."""
    is_postponed = options[core_options.BUCKET] == POSTPONE_BUCKET_COUNT
    return is_postponed and core_options.POSTPONE_DEFAULT_BUCKET_NUM.key not in options.texts


def waits_for_size(options: TableOptions) -> bool:
    """Whether a batch for a new partition waits until its bytes are counted: a size is given.

    Without one it goes to the default number of buckets at once, and needs no second commit.
    """
    is_given = core_options.POSTPONE_TARGET_SIZE_PER_BUCKET.key in options.texts
    return is_given and chosen_by_size(options)


def buckets_for(waiting: Iterable[DataFileMeta], options: TableOptions) -> int:
    """Return the number of buckets of a new partition: as its size asks, or the default.

    By size it is a power of two, so that a later rescale by a factor of two reads each old bucket
    for one new one or two.
    """
    if not chosen_by_size(options):
        return options[core_options.POSTPONE_DEFAULT_BUCKET_NUM]
    target = options[core_options.POSTPONE_TARGET_SIZE_PER_BUCKET]
    bucket_count = -(-sum(file.file_size for file in waiting) // max(1, target))
    return min(_BUCKETS_MAX, 1 << max(0, bucket_count - 1).bit_length())


# -- Rescale ---------------------------------------------------------------------------------------
#
# Which old buckets hold the rows of a new one, when a partition gets another number of buckets.


def source_buckets(bucket: int, *, old_total: int, new_total: int) -> range:
    """Return the old buckets that may hold rows of a new bucket.

    A row lies in bucket abs(hash) % total, so that its old and its new bucket are equal modulo
    everything that divides both totals.
    """
    step = gcd(old_total, new_total)
    return range(bucket % step, old_total, step)
