"""Names for numbers and strings that must not be mixed up."""

from typing import NewType

from lsm_engine.base.errors import UnsupportedError

SnapshotId = NewType("SnapshotId", int)
SchemaId = NewType("SchemaId", int)
BucketId = NewType("BucketId", int)
TagName = NewType("TagName", str)

FIRST_SNAPSHOT_ID = 1
BATCH_COMMIT_IDENTIFIER = 9_223_372_036_854_775_807
"""The commit identifier of commits that are not part of a numbered stream (format section 3)."""

LONG_MAX = (1 << 63) - 1
"""The largest number of 64 bits with a sign, and so the last snapshot id."""

UNAWARE_BUCKET_COUNT = -1
POSTPONE_BUCKET_COUNT = -2


def checked_sequence(first: int, count: int) -> int:
    """Return the sequence number of the first of some rows; UnsupportedError where they run out."""
    if first > LONG_MAX - count:
        raise UnsupportedError(
            "the bucket has used up its sequence numbers, which end at 2^63; nothing was written; copy "
            "the rows into a new table",
            next_sequence_number=first,
            rows=count,
        )
    return first
