"""Names for numbers and strings that must not be mixed up."""

from typing import NewType

SnapshotId = NewType("SnapshotId", int)
SchemaId = NewType("SchemaId", int)
BucketId = NewType("BucketId", int)
TagName = NewType("TagName", str)

FIRST_SNAPSHOT_ID = 1
BATCH_COMMIT_IDENTIFIER = 9_223_372_036_854_775_807
"""The commit identifier of commits that are not part of a numbered stream (format section 3)."""

UNAWARE_BUCKET_COUNT = -1
POSTPONE_BUCKET_COUNT = -2
