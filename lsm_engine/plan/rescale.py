"""Which old buckets hold the rows of a new one, when a partition gets another number of buckets."""

from math import gcd


def source_buckets(bucket: int, *, old_total: int, new_total: int) -> range:
    """Return the old buckets that may hold rows of a new bucket.

    A row lies in bucket abs(hash) % total, so that its old and its new bucket are equal modulo
    everything that divides both totals.
    """
    step = gcd(old_total, new_total)
    return range(bucket % step, old_total, step)
